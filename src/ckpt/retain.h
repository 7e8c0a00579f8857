/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/retain.h - which checkpoints stay. Pure: it deletes nothing.
 */
#ifndef MANTA_CKPT_RETAIN_H
#define MANTA_CKPT_RETAIN_H

#include "ckpt/store.h"

/* Index of the best by score among those with skip[i] false (skip may be NULL), or -1. The list is
 * oldest first; of equal scores the newer one wins. */
int64_t manta__retain_best(const struct manta__manifest *list, size_t count, bool score_min,
                           const bool *skip);
/* Sets stays[i] for each that is kept: the newest keep_last (one at least) and the best keep_best.
 */
void manta__retain_mark(const struct manta__manifest *list, size_t count,
                        const struct manta__retention *keep, bool *stays);

/* The best scores of the checkpoints that are on disk or on their way there: by them it is decided
 * what will be kept before it is written. {0} is empty. */
struct manta__best_scores {
  double *score; /* best first; room for keep_best of them */
  int count;
};
/* Would one more with this score be kept for it (not for its age)? Then it is counted. One that
 * only equals the worst of them would not: as good a one is there, and a score that has stopped
 * improving must not make saves wait for the disk. `keep` is the same in every call. */
bool manta__retain_wants(struct manta__best_scores *b, const struct manta__retention *keep,
                         bool has_score, double score);
void manta__best_scores_fini(struct manta__best_scores *b);

#endif
