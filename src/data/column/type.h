/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/type.h - what the values of a column are, in our words and in Arrow's.
 *
 * (1) A type is a kind; a number also has a dtype, a shape (ndim 0: a plain number) and perhaps a
 *     logical form, which is the Arrow format of what its integers stand for (a date, a time). It
 *     is carried from import to export and means nothing in between.
 * (2) In text: "bool", "string", "bytes", "i64", "f32[28,28]". Also taken: "int64", "float32",
 *     "double", "str" and the like.
 * (3) In Arrow: numbers as themselves, tensors as fixed-size lists, with the extension
 *     arrow.fixed_shape_tensor where they have more than one dimension. Arrow has no bf16: it goes
 *     as u16 with the extension manta.bf16.
 */
#ifndef MANTA_DATA_COLUMN_TYPE_H
#define MANTA_DATA_COLUMN_TYPE_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/data.h>

#define MANTA__LOGICAL_MAX   64
#define MANTA__TYPE_TEXT_MAX 256
#define MANTA__WIDTH_MAX     (1 << 30) /* bytes of one value */

struct manta__type {
  manta_kind kind;
  manta_dtype dtype;
  int ndim;
  int64_t shape[MANTA_MAX_DIMS];
  char logical[MANTA__LOGICAL_MAX]; /* "": none */
};

static inline struct manta__type manta__type_of(manta_dtype dtype)
{
  return (struct manta__type){.kind = MANTA_KIND_NUMBER, .dtype = dtype};
}

static inline struct manta__type manta__type_kind(manta_kind kind)
{
  return (struct manta__type){.kind = kind};
}

/* STRING or BYTES: values of any length, found by offsets. */
static inline bool manta__type_varies(const struct manta__type *t)
{
  return t->kind == MANTA_KIND_STRING || t->kind == MANTA_KIND_BYTES;
}

bool manta__type_is_float(const struct manta__type *t);
bool manta__type_equal(const struct manta__type *a, const struct manta__type *b);
/* Elements of one value: the product of its shape. 1 for what is no tensor. */
int64_t manta__type_count(const struct manta__type *t);
/* Bytes of one value of a NUMBER; 0 for the others. */
size_t manta__type_width(const struct manta__type *t);

/* MANTA_EINVAL with the names that there are. */
manta_status manta__type_parse(struct manta__type *out, const char *text, manta_error *err);
/* Writes at most MANTA__TYPE_TEXT_MAX bytes to `text` and returns it. */
const char *manta__type_text(const struct manta__type *t, char *text);
/* MANTA_EINVAL: a negative or impossible shape, or wider than MANTA__WIDTH_MAX. */
manta_status manta__type_check(const struct manta__type *t, manta_error *err);

/* The Arrow format of the column, or of an element if it is a tensor. Static storage, or `t`'s. */
const char *manta__type_arrow(const struct manta__type *t);
/* The type that a primitive Arrow format stands for; false: none of ours. */
bool manta__type_from_arrow(struct manta__type *out, const char *format);

#endif
