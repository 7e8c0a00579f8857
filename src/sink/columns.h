/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/columns.h - the columns of a CSV file, in their order.
 */
#ifndef MANTA_SINK_COLUMNS_H
#define MANTA_SINK_COLUMNS_H

#include <stddef.h>

#include <manta/value.h>

/* Names, with an index: keys come in the order of the columns most of the time, and a look at the
 * next one finds them. */
struct manta__columns {
  manta_value names; /* a list of strings */
  uint32_t *slot;    /* hash table: position + 1 */
  size_t slots;
  size_t next;
};

#define MANTA__NO_COLUMN ((size_t)-1)

void manta__columns_fini(struct manta__columns *c);
/* The position of a name, or MANTA__NO_COLUMN. */
size_t manta__columns_find(struct manta__columns *c, const char *name);
manta_status manta__columns_add(struct manta__columns *c, const char *name);
/* Forgets all but the first n. */
void manta__columns_cut(struct manta__columns *c, size_t n);

#endif
