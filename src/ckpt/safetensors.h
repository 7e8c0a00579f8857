/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/safetensors.h - the file format of the tensors.
 *
 *   8 bytes: length n of the header, little-endian │ n bytes: JSON, padded with spaces │ data
 *
 * The header maps each name to dtype, shape and data_offsets (begin, end, counted from the data's
 * start); the data has no holes. "__metadata__" holds strings only.
 */
#ifndef MANTA_CKPT_SAFETENSORS_H
#define MANTA_CKPT_SAFETENSORS_H

#include <stdbool.h>

#include <manta/ckpt.h>

#define MANTA__ST_HEADER_MAX 100000000u /* what the reference implementation takes, too */
#define MANTA__ST_ALIGN      64         /* of the data's start, in the file and in memory */

/* --- Names ------------------------------------------------------------------------------------ */

/* Finds tensors by name: open addressing over their hashes. {0} is empty. */
struct manta__st_index {
  uint32_t *slot; /* index + 1, or 0 */
  size_t mask;
};

/* MANTA_EINVAL and the name if one is there twice. Borrows `t` in find only. */
manta_status manta__st_index_make(struct manta__st_index *out, const manta_tensor *t, size_t count,
                                  manta_error *err);
void manta__st_index_fini(struct manta__st_index *x);
/* Number of the tensor, or -1. */
int64_t manta__st_index_find(const struct manta__st_index *x, const manta_tensor *t,
                             const char *name);

/* No NUL, no overlong form, no surrogate. */
bool manta__st_utf8(const char *s, size_t n);

/* --- Writing ---------------------------------------------------------------------------------- */

/* Where each tensor of a state goes, and the header that says so: kept from save to save, since the
 * tensors of a training rarely change. {0} is the layout of no state at all. */
struct manta__layout {
  manta_tensor *tensors; /* a copy of names, types and shapes; data is NULL */
  uint64_t *offset;      /* of each, from the data's start */
  uint64_t *bytes;
  size_t count;
  uint8_t *header; /* length, JSON, padding: header_len bytes */
  size_t header_len;
  uint64_t data_len;
  char *names;
};

/* MANTA_EINVAL names the tensor that makes no sense, MANTA_ETOOBIG the limit. The data addresses
 * are not looked at. */
manta_status manta__layout_make(struct manta__layout *out, const manta_state *state,
                                manta_error *err);
void manta__layout_fini(struct manta__layout *l);
/* True if the state has exactly these names, types and shapes, in this order. */
bool manta__layout_fits(const struct manta__layout *l, const manta_state *state);
/* Puts the iteration into a copy of the header. */
void manta__layout_stamp(uint8_t *header, int64_t iteration);

/* --- Reading ---------------------------------------------------------------------------------- */

/* The tensors of a file. {0} is empty. */
struct manta__st {
  manta_tensor *tensors; /* data points into the file */
  size_t count;
  struct manta__st_index index;
  char *header; /* a private copy; the names live in it */
};

/* Reads the header of the `len` bytes at `file`, which must outlive `out`. Believes nothing:
 * MANTA_ECORRUPT says what is wrong, and where. */
manta_status manta__st_open(struct manta__st *out, const void *file, size_t len, manta_error *err);
void manta__st_fini(struct manta__st *s);

#endif
