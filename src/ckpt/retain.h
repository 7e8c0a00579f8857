/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/retain.h - which checkpoints stay. Pure: it deletes nothing.
 */
#ifndef MANTA_CKPT_RETAIN_H
#define MANTA_CKPT_RETAIN_H

#include "ckpt/store.h"

/* True if a is the better of two scores; equal ones are not better than each other. */
bool manta__retain_better(double a, double b, bool score_min);
/* Index of the best by score among those with skip[i] false (skip may be NULL), or -1. The list is
 * oldest first; of equal scores the newer one wins. */
int64_t manta__retain_best(const struct manta__manifest *list, size_t count, bool score_min,
                           const bool *skip);
/* Sets stays[i] for each that is kept: the newest keep_last (one at least) and the best keep_best.
 */
void manta__retain_mark(const struct manta__manifest *list, size_t count,
                        const struct manta__retention *keep, bool *stays);
/* Would one more, with this score, be among the best keep_best? */
bool manta__retain_wants(const struct manta__manifest *list, size_t count,
                         const struct manta__retention *keep, bool has_score, double score);

#endif
