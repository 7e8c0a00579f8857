/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/npy.h - an array of numpy, as it lies in an .npy file or in a member of an .npz.
 *
 * (1) The first dimension counts rows; the others are the shape of a value. An array without
 *     dimensions is one row.
 * (2) Types: bool, integers, floats, in either byte order; datetime64 and timedelta64 as i64; S as
 *     bytes without the zeros at their ends, U as strings. Objects are refused: they are pickles,
 *     and a pickle runs code. So are complex numbers and records.
 * (3) Fortran order is read where every byte of the array can be reached: not where it is
 *     compressed.
 */
#ifndef MANTA_DATA_BINARY_NPY_H
#define MANTA_DATA_BINARY_NPY_H

#include "data/column/build.h"
#include "data/source/input.h"

#define MANTA__NPY_HEADER_MAX (1 << 20)

enum manta__npy_kind { MANTA__NPY_NUMBER, MANTA__NPY_BOOL, MANTA__NPY_BYTES, MANTA__NPY_UNICODE };

struct manta__npy_header {
  enum manta__npy_kind kind;
  struct manta__type type; /* of the column */
  size_t element;          /* bytes of one element in the file */
  size_t row;              /* bytes of one row */
  bool swapped, fortran;
  int64_t rows;
  int64_t bytes; /* of the header itself */
};

#define MANTA__NPY_START 12 /* bytes that say how long the header is */

/* How many bytes the header has, these included. MANTA_EINVAL, MANTA_EUNSUPPORTED: it is no array.
 * `name` is for messages. */
manta_status manta__npy_length(const uint8_t start[MANTA__NPY_START], size_t *out, const char *name,
                               manta_error *err);
/* Parses a header of n bytes. */
manta_status manta__npy_parse(struct manta__npy_header *out, const uint8_t *p, size_t n,
                              const char *name, manta_error *err);

/* An array that is being read, from row `next` on. {0} is closed; close twice is harmless. */
struct manta__npy {
  struct manta__npy_header header;
  struct manta__source *source; /* borrowed */
  char *name;                   /* for messages */
  struct manta__input input;
  int64_t from; /* where the array begins in the source, if it is not compressed */
  int64_t next, end;
  uint8_t *scratch;
  size_t scratch_bytes;
  bool checks; /* the checksum of all bytes is kept, from the first on */
  uint32_t crc;
};

/* The array in [from, to) of the source, decoded by `form`; reads its header. */
manta_status manta__npy_open(struct manta__npy *a, struct manta__source *source, int64_t from,
                             int64_t to, enum manta__compression form, const char *name,
                             manta_error *err);
void manta__npy_close(struct manta__npy *a);
/* Goes to a row; only where the array is not compressed. */
manta_status manta__npy_seek(struct manta__npy *a, int64_t row, manta_error *err);
/* Appends the next n rows, which are there. */
manta_status manta__npy_read(struct manta__npy *a, int64_t n, struct manta__build *b,
                             manta_error *err);

#endif
