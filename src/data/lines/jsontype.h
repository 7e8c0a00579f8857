/* SPDX-License-Identifier: Apache-2.0
 *
 * data/lines/jsontype.h - JSON values and the types of columns: which type fits what was seen, and
 * values of that type.
 *
 * (1) Numbers are i64, or f64 if one of them is no such integer; arrays of numbers of one shape are
 *     tensors. Everything that has no type of its own (objects, arrays that differ in shape, values
 *     of several kinds) is a string: strings as themselves, the rest as its JSON text.
 * (2) A key that is missing is a null. Of a key that comes twice the last value counts.
 */
#ifndef MANTA_DATA_LINES_JSONTYPE_H
#define MANTA_DATA_LINES_JSONTYPE_H

#include "data/column/build.h"
#include "data/lines/json.h"

/* What was seen of a column so far; {0}: nothing but nulls. */
struct manta__json_guess {
  bool seen, is_bool, is_i64, is_f64;
  int ndim;
  int64_t shape[MANTA_MAX_DIMS];
};

void manta__json_guess(struct manta__json_guess *g, const struct manta__json_value *v);
struct manta__type manta__json_type(const struct manta__json_guess *g);

/* Appends the value. 0: it is none of the builder's type, and nothing was appended. 1: it was. */
manta_status manta__json_put(struct manta__build *b, const struct manta__json_value *v,
                             manta_error *err);

#endif
