/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/schema.h - names and types of columns; shared by all batches that have them.
 *
 * (1) A schema does not change once it is made. Any thread may read it and hold references.
 * (2) Names are not empty, are valid UTF-8, and no two are the same.
 */
#ifndef MANTA_DATA_COLUMN_SCHEMA_H
#define MANTA_DATA_COLUMN_SCHEMA_H

#include <stdatomic.h>

#include "data/column/type.h"

#define MANTA__COLUMNS_MAX 65536
#define MANTA__NAME_MAX    4096 /* bytes of a column's name */

struct manta__schema_field {
  const char *name;
  struct manta__type type;
};

struct manta__schema {
  _Atomic int refs;
  int count;
  struct manta__schema_field *field;
};

/* Copies the fields; *out has one reference, the caller's. MANTA_EINVAL names the column that makes
 * no sense or is there twice; MANTA_ETOOBIG past a limit. */
manta_status manta__schema_create(struct manta__schema **out,
                                  const struct manta__schema_field *fields, int count,
                                  manta_error *err);
/* The fields with these numbers, in this order. */
manta_status manta__schema_select(struct manta__schema **out, const struct manta__schema *s,
                                  const int *columns, int count, manta_error *err);
struct manta__schema *manta__schema_ref(struct manta__schema *s);
void manta__schema_unref(struct manta__schema *s); /* NULL is fine */
bool manta__schema_equal(const struct manta__schema *a, const struct manta__schema *b);

/* Number of the column, or -1. */
int manta__schema_find(const struct manta__schema *s, const char *name);
/* The same; MANTA_ENOENT tells the names that are nearest, or what there is. */
manta_status manta__schema_need(const struct manta__schema *s, const char *name, int *out,
                                manta_error *err);

/* As the public header shows it; the name is borrowed. */
void manta__schema_show(const struct manta__schema *s, int column, manta_field *out);

/* Single-letter edits that make b of a, at most `limit`; more is limit + 1. */
int manta__name_distance(const char *a, const char *b, int limit);

#endif
