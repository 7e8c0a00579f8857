/* SPDX-License-Identifier: Apache-2.0
 *
 * data/loader/track.h - where a loader is, for those who save it.
 *
 * (1) A track is shared by the loader and by whoever saves its position with something else (a
 *     session, with its checkpoints). It outlives both as long as the other holds it.
 * (2) It is behind the batch that was given out last, or where the user has put a mark. An epoch
 *     whose end was given out is over: what is saved then is the beginning of the next.
 * (3) It names the order that it counts in (the blocks, the shuffle), so that a position of another
 *     one is refused and not followed to other rows.
 */
#ifndef MANTA_DATA_LOADER_TRACK_H
#define MANTA_DATA_LOADER_TRACK_H

#include <manta/data.h>

#include "data/loader/flow.h"

struct manta__track;

/* With one reference, at the beginning of `epoch`. NULL: no memory. */
struct manta__track *manta__track_create(const manta_dataset *d, int64_t epoch);
struct manta__track *manta__track_ref(struct manta__track *t);
void manta__track_unref(struct manta__track *t); /* NULL is fine */

/* By the loader. `over`: its end was given out. Both forget the mark. */
void manta__track_go(struct manta__track *t, int64_t epoch, const struct manta__position *at);
void manta__track_move(struct manta__track *t, const struct manta__position *at, bool over);
/* The loader is closed. */
void manta__track_close(struct manta__track *t);

/* By anybody, at any time. */
bool manta__track_is_open(struct manta__track *t);
void manta__track_get(struct manta__track *t, int64_t *epoch, struct manta__position *at);
manta_status manta__track_save(struct manta__track *t, manta_value *out, manta_error *err);
/* The position that a saved value is, if it is one in this order. */
manta_status manta__track_read(struct manta__track *t, const manta_value *state, int64_t *epoch,
                               struct manta__position *at, manta_error *err);
/* What `manta__track_save` gives from now on, until the next move would change it. */
manta_status manta__track_mark(struct manta__track *t, const manta_value *state, manta_error *err);

#endif
