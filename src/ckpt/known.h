/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/known.h - what is known to lie in a store, by name.
 */
#ifndef MANTA_CKPT_KNOWN_H
#define MANTA_CKPT_KNOWN_H

#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

struct manta__known_object {
  char *name;
  int64_t size, mtime_ns; /* of the file that was sent; mtime_ns 0: it lay there before */
};

/* {0} is empty. */
struct manta__known {
  struct manta__known_object *item; /* in the order of their names */
  size_t count, cap;
};

/* NULL: it is not there. */
const struct manta__known_object *manta__known_find(const struct manta__known *k, const char *name);
/* Copies the name; one that is there is overwritten. MANTA_ENOMEM. */
manta_status manta__known_set(struct manta__known *k, const char *name, int64_t size,
                              int64_t mtime_ns);
void manta__known_drop(struct manta__known *k, const char *name);
void manta__known_fini(struct manta__known *k);

#endif
