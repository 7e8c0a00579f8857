/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/isa.h - the inner loops of the CSV reader, compiled once per instruction set.
 *
 * (1) scan: 64 bytes at a time become bit masks of separators, newlines and quotes; a running xor
 *     over the quotes says which bytes lie inside of them, and what is left of the others are the
 *     ends of fields, whose positions are written one after the other.
 * (2) index: the same for the ends of rows alone, to cut files and to count.
 * (3) f64, i64: fields of one column become numbers. A field of at most 16 characters and a sign is
 *     read as one vector that ends with it: the dot is taken out by a shuffle, 16 digits become a
 *     number by three multiplications, and a double is that number over a power of ten, rounded
 *     once. There is no branch per digit. Fields of any other form are left to the caller ("hard").
 * (4) All sets give the same results, bit by bit.
 *
 * 64 bytes in front of the text and behind it may be read.
 */
#ifndef MANTA_DATA_CSV_ISA_H
#define MANTA_DATA_CSV_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef MANTA_SANITIZED
// Speed is no matter there, and clang takes up to six times as long where all is one function.
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#define MANTA__CSV_SLACK 64 /* positions behind the last one that scan may overwrite */

struct manta__csv_marks {
  uint8_t separator, quote;
  bool quotes; /* false: nothing quotes */
};

struct manta__csv_scan {
  size_t fields, rows; /* ends that were found: of fields (and rows), of rows */
  bool inside;         /* the text ends inside of quotes */
  bool stray; /* a quote stands where none may be: neither at an end of a field nor doubled */
};

/* Text that begins where a row does. pos has room for n + MANTA__CSV_SLACK. */
typedef void manta__csv_scan_fn(const uint8_t *text, size_t n, const struct manta__csv_marks *m,
                                uint32_t *pos, struct manta__csv_scan *out);

/* The state between two pieces of a file; {.ended = true} at its beginning. */
struct manta__csv_index {
  bool inside;   /* of quotes */
  bool ended;    /* the last byte ended a row */
  bool carriage; /* the last byte is a CR, and the one before it ended a row */
  int64_t rows;  /* rows that ended so far, without empty lines */
};

/* Goes on until the first row that begins at `target` or behind it; returns where that is, or n. */
typedef size_t manta__csv_index_fn(const uint8_t *text, size_t n, const struct manta__csv_marks *m,
                                   size_t target, struct manta__csv_index *s);

/* One column of some rows: field `column` of row r ends at pos[first[r] + column] and begins behind
 * the position in front of that one. */
struct manta__csv_fields {
  const uint8_t *text;
  const uint32_t *pos, *first;
  uint32_t column;
  bool last; /* a CR in front of its end is none of it */
};

/* Row r's number goes to out[r]; rows that are not of the simple form are written to `hard`,
 * rising, and their out is undefined. Returns how many. */
typedef size_t manta__csv_f64_fn(double *out, const struct manta__csv_fields *f, size_t n,
                                 uint32_t *hard);
typedef size_t manta__csv_i64_fn(int64_t *out, const struct manta__csv_fields *f, size_t n,
                                 uint32_t *hard);

struct manta__csv_isa {
  const char *name;
  manta__csv_scan_fn *scan;
  manta__csv_index_fn *index;
  manta__csv_f64_fn *f64;
  manta__csv_i64_fn *i64;
};

extern const struct manta__csv_isa manta__csv_scalar;
#if defined(__x86_64__)
extern const struct manta__csv_isa manta__csv_avx2;
extern const struct manta__csv_isa manta__csv_avx512;
#endif

/* What runs here: the widest set that the CPU has and MANTA_DATA_ISA=scalar|avx2|avx512 allows;
 * chosen at the first call. */
const struct manta__csv_isa *manta__csv_isa(void);
/* The set of that name, or NULL if there is none here. */
const struct manta__csv_isa *manta__csv_isa_named(const char *name);

static inline size_t manta__csv_begin(const struct manta__csv_fields *f, size_t r)
{
  return f->pos[(ptrdiff_t)f->first[r] + (ptrdiff_t)f->column - 1] + 1u;
}

static inline size_t manta__csv_end(const struct manta__csv_fields *f, size_t r)
{
  size_t end = f->pos[(size_t)f->first[r] + f->column];
  return f->last && end > manta__csv_begin(f, r) && f->text[end - 1] == '\r' ? end - 1 : end;
}

#endif
