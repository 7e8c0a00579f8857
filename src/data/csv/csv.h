/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/csv.h - CSV as RFC 4180 has it, read by columns.
 *
 * A block is read in pieces of some 32 KB that stay in the first-level cache, each a number of
 * whole rows. isa.h finds the ends of all fields of a piece; rows.c sees that every row has as many
 * as it should; convert.c then goes over the piece column by column, so that what is decided by a
 * column's type is decided once, and columns that nobody wants cost nothing more. A filter is
 * evaluated per piece, and the other columns are parsed only for rows that pass it.
 *
 * What is a row:
 * (1) Rows end in LF or CRLF outside of quotes; the last may end with the file. Lines without any
 *     character are no rows.
 * (2) A quote is either at both ends of a field, or doubled inside of one. Anything else is an
 *     error. So what lies beside a quote says whether it opens or closes, and that is how files
 *     are cut in the middle (cut.c): a newline inside of quotes is not taken for the end of a row.
 *     With skip_errors, a row with another quote ends with its line.
 * (3) Every row has as many fields as the header, or as the first row where there is none.
 *
 * What is a value:
 * (4) A number is what number.h says, a bool is true or false in any case of letters. Blanks around
 *     them do not count. A field that is missing is a null; strings are as they are, without
 *     quotes.
 * (5) Types are found in the first MB of the first file that has rows, and in the first rows of
 *     some others: i64, u64, f64, bool, else string; a column of missing values alone is f64.
 */
#ifndef MANTA_DATA_CSV_CSV_H
#define MANTA_DATA_CSV_CSV_H

#include "data/column/build.h"
#include "data/csv/isa.h"
#include "data/format/format.h"

#define MANTA__CSV_PIECE  (32u << 10)
#define MANTA__CSV_WINDOW (256u << 10)

/* --- rows.c: pieces of whole rows --- */

/* {0} is closed; close twice is harmless. */
struct manta__csv_rows {
  const struct manta__file *file; /* borrowed */
  struct manta__tally *tally;     /* NULL: nothing is skipped or counted */
  struct manta__window window;
  int64_t from; /* where the window's range begins in the decoded file */
  struct manta__csv_marks marks;
  const struct manta__csv_isa *isa;
  int width;       /* fields of a row; 0: those of the first row */
  bool first_only; /* what follows the first row does not matter */
  int64_t cut;     /* the file goes on where the rows end, which is there; 0: it ends as well */
  size_t piece_bytes;
  uint32_t *block, *pos; /* pos[-1] is the byte in front of the piece */
  size_t pos_cap;
  uint32_t *first;  /* [rows]: number of the row's first position */
  uint32_t *record; /* [rows]: its number among the records of the piece */
  size_t row_cap;

  /* The piece that next has found. */
  const uint8_t *text;
  size_t used; /* bytes */
  size_t rows, records;
  int64_t record_base; /* records of the block in front of it */
};

manta_status manta__csv_rows_open(struct manta__csv_rows *r, const struct manta__file *file,
                                  int64_t from, int64_t to, int width, struct manta__tally *tally,
                                  manta_error *err);
void manta__csv_rows_close(struct manta__csv_rows *r);
/* 1 and a piece with one record at least (of which skip_errors may have left no row), 0 at the end,
 * or what is wrong with a row. */
manta_status manta__csv_rows_next(struct manta__csv_rows *r, manta_error *err);
/* The first record alone: it says how wide rows are. */
manta_status manta__csv_rows_first(struct manta__csv_rows *r, manta_error *err);
/* Passes over n bytes, before the first piece. */
manta_status manta__csv_rows_skip(struct manta__csv_rows *r, int64_t n, manta_error *err);
/* "FILE:LINE: " for a byte of the piece. */
void manta__csv_place(const struct manta__csv_rows *r, size_t at, char *out, size_t size);

/* --- head.c: names and types --- */

/* {0} is empty. */
struct manta__csv_head {
  char **names;
  int count;
  int64_t skip; /* bytes in front of the first row of data, in the decoded file */
};

/* Reads names out of the header, or makes them. An empty file has no columns. */
manta_status manta__csv_head_read(struct manta__csv_head *out, const struct manta__file *f,
                                  manta_error *err);
void manta__csv_head_fini(struct manta__csv_head *h);

/* Where the rows of a block of a plain file begin: the head may reach over its first blocks. */
static inline int64_t manta__csv_first(const struct manta__csv_head *h,
                                       const struct manta__block *b)
{
  int64_t at = h->skip > b->from ? h->skip : b->from;
  return at < b->to ? at : b->to;
}
struct manta__csv_marks manta__csv_marks_of(const struct manta__file *f);
manta_status manta__csv_look(const struct manta__file *f, struct manta__schema **out,
                             manta_error *err);

/* --- cut.c --- */

manta_status manta__csv_cut(const struct manta__file *f, int32_t number, struct manta__blocks *out,
                            manta_error *err);

/* --- field.c: one field --- */

struct manta__csv_field {
  const char *p;
  size_t n;
  bool quoted; /* the quotes are not in it, doubled ones may be */
};

struct manta__csv_field manta__csv_field_at(const struct manta__csv_fields *f, size_t r,
                                            const struct manta__csv_marks *m);
/* Writes the field without doubled quotes to `to`, which has room for n bytes; how many it were. */
size_t manta__csv_unquote(const struct manta__csv_field *f, uint8_t quote, char *to);
/* Whether it stands for a value that is not there. */
bool manta__csv_missing(const struct manta__csv_field *f, const manta_data_config *c,
                        bool is_string);
bool manta__csv_bool(const struct manta__csv_field *f, bool *out);

/* --- convert.c: one column of a piece --- */

struct manta__csv_convert {
  struct manta__csv_fields fields;
  const struct manta__csv_isa *isa;
  const manta_data_config *config;
  struct manta__csv_marks marks;
  uint32_t *hard, *nulls; /* scratch, one per row */
  int64_t *scratch;       /* one per row */
  uint32_t *bad;          /* [bad_count]: rows that hold no value of the type, rising */
  size_t bad_count;
};

/* Appends n rows; those in c->bad have got a null. MANTA_ENOMEM, MANTA_ETOOBIG. */
manta_status manta__csv_convert(struct manta__csv_convert *c, size_t n, struct manta__build *b,
                                manta_error *err);

#endif
