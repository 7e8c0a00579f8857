/* SPDX-License-Identifier: Apache-2.0
 *
 * event/row.h - a packed row looked at where it lies: no allocation, nothing believed.
 */
#ifndef MANTA_EVENT_ROW_H
#define MANTA_EVENT_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANTA__ROW_DEPTH 8  /* maps in maps; what is deeper is passed over */
#define MANTA__ROW_NAME  96 /* bytes of a name, with its NUL; a longer one is cut */

/* `_training_iteration`; 0 if there is none. */
int64_t manta__row_iteration(const uint8_t *payload, size_t len);

/* The numbers of a row, one after the other. Those in maps are named "outer/inner". A name that is
 * too long ends in "~" and a hash of the key, so that two of them stay two. */
struct manta__row_walk {
  char name[MANTA__ROW_NAME]; /* of the one that was given last */
  size_t name_len;
  const uint8_t *bytes;
  size_t len, at;
  int depth;
  uint64_t left[MANTA__ROW_DEPTH]; /* pairs, of the maps that it is in */
  size_t prefix[MANTA__ROW_DEPTH]; /* bytes of `name` that are theirs */
};
void manta__row_walk(struct manta__row_walk *w, const void *row, size_t len);
/* False: there are no more, or bytes that are no row. */
bool manta__row_next(struct manta__row_walk *w, double *value);

#endif
