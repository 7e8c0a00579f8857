/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/extra.h - what a checkpoint may carry besides the state: where the data was, and the states
 * of random number generators.
 *
 * Small packed values. In a slot they lie behind the state's value; on disk they are fields of the
 * manifest, as bytes in base64. A checkpoint that was saved without one gives nil for it.
 */
#ifndef MANTA_CKPT_EXTRA_H
#define MANTA_CKPT_EXTRA_H

#include <manta/ckpt.h>

enum manta__extra {
  MANTA__EXTRA_DATA,   /* source rows handed out, in the global order */
  MANTA__EXTRA_RANDOM, /* generators as they were at the save */
  MANTA__EXTRA_COUNT
};

#define MANTA__EXTRA_MAX (64u << 10) /* packed bytes of each */

/* "data", "random": the field of the manifest. */
const char *manta__extra_name(enum manta__extra which);

/* Packed, its own memory. {0}: none. */
struct manta__extras {
  struct manta__extra_bytes {
    uint8_t *bytes;
    size_t len; /* 0: there is none */
  } item[MANTA__EXTRA_COUNT];
};

manta_status manta__extras_put(struct manta__extras *e, enum manta__extra which, const void *bytes,
                               size_t len, manta_error *err);
/* Unpacks one; nil if there is none. */
manta_status manta__extras_value(const struct manta__extras *e, enum manta__extra which,
                                 manta_value *out, manta_error *err);
void manta__extras_fini(struct manta__extras *e);

#endif
