/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/expr.h - expressions over the columns of a batch: filters, and computed columns.
 *
 * A tree is a manta_value, so that it packs, travels and prints as any other: a literal is itself
 * (nil, bool, int, real, string, bytes), and an operation is a list of its name and its arguments.
 *
 *     ["col", "age"]    [">", ["col", "age"], 30]    ["and", [...], ["not", ["is_null", [...]]]]
 *
 * | operations                                       | of                    | give             |
 * | col NAME, lit VALUE                              |                       |                  |
 * | + - * // %, neg, abs                             | numbers (+: strings)  | i64, f64 …       |
 * | / **, sqrt exp log floor ceil round              | numbers               | a float          |
 * | == != < <= > >=                                  | two of one kind       | bool             |
 * | and or not                                       | bools                 | bool             |
 * | is_null is_nan, fill_null X Y, where C X Y       |                       |                  |
 * | is_in X [LITERALS]                               |                       | bool             |
 * | length lower upper strip concat                  | strings               |                  |
 * | contains starts_with ends_with                   | two strings           | bool             |
 * | cast X "TYPE"                                    |                       | TYPE             |
 *
 * (1) Null in, null out, but for is_null, fill_null and where; `and` and `or` know three values
 *     (false and null is false); is_in is null for null. A filter keeps rows that are true.
 * (2) Integers compute in 64 bits and wrap around; a division by 0 is null. // and % round down,
 *     as in Python. u64 stays unsigned among its own and with literals that are not negative, else
 *     it computes as f64. Where all columns are f32 or narrower, floats are rounded to f32 after
 *     each step, else to f64. NaN compares as IEEE says.
 * (3) A cast that cannot be (text that is no number, a number that does not fit) is null. Floats
 *     become integers towards 0.
 * (4) Strings compare by their bytes; length counts characters, of bytes the bytes; lower and upper
 *     know the letters of ASCII.
 * (5) A compiled expression is for one thread at a time.
 */
#ifndef MANTA_DATA_EXPR_EXPR_H
#define MANTA_DATA_EXPR_EXPR_H

#include <manta/value.h>

#include "data/column/batch.h"

#define MANTA__EXPR_NODES 4096

struct manta__expr;

/* MANTA_EINVAL says which operation is wrong, MANTA_ENOENT which column is missing and what its
 * nearest names are, MANTA_ETYPE which types do not go together. The tree is only looked at. */
manta_status manta__expr_compile(struct manta__expr **out, const manta_value *tree,
                                 const struct manta__schema *schema, manta_error *err);
void manta__expr_destroy(struct manta__expr *e); /* NULL is fine */
const struct manta__type *manta__expr_type(const struct manta__expr *e);
/* Sets used[i] of each column that the expression looks at; leaves the others. */
void manta__expr_columns(const struct manta__expr *e, bool *used);

/* The columns of a batch have the numbers that they had in the schema; those that the expression
 * does not look at may be empty. */

/* The numbers of the rows that are true, rising: `rows` has room for batch->rows of them. The
 * expression is a bool. */
manta_status manta__expr_filter(struct manta__expr *e, const manta_batch *b, uint32_t *rows,
                                int64_t *count, manta_error *err);
/* A column of one value per row. `out` must be empty, and stays so on failure. */
manta_status manta__expr_column(struct manta__expr *e, const manta_batch *b,
                                struct manta__column *out, struct manta__pool *pool,
                                manta_error *err);

/* The tree as a person would write it, in memory that the caller frees with manta_free:
 * (age > 30) and not is_null(name) */
manta_status manta__expr_print(const manta_value *tree, char **out, manta_error *err);

#endif
