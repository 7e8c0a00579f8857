/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/index_note.h - what the two halves of the index need of each other.
 */
#ifndef MANTA_DASH_INDEX_NOTE_H
#define MANTA_DASH_INDEX_NOTE_H

#include "dash/index.h"

/* Any record but a row. */
manta_status manta__index_note(struct manta__index *x, const struct manta__record *h,
                               const uint8_t *payload);
/* Rows after `to` of attempts before `attempt` are void. */
manta_status manta__index_rewind(struct manta__index *x, uint32_t attempt, int64_t to);
/* The state of a rank, made if need be; valid until the next is made. MANTA_ETOOBIG: no rank. */
manta_status manta__index_rank(struct manta__index *x, int rank, struct manta__rank_state **out);
/* The index of this series, made if need be. MANTA_ETOOBIG: there are too many. */
manta_status manta__index_series(struct manta__index *x, const char *name, size_t len, int rank,
                                 uint32_t *out);

#endif
