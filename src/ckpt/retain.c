/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/retain.c - which checkpoints stay.
 *
 * (1) The newest always stays: it is what a failure goes back to.
 * (2) A score of NaN is no score: it would be neither better nor worse than any other.
 */
#include "ckpt/retain.h"

#include <math.h>
#include <string.h>

static bool scored(const struct manta__manifest *m)
{
  return m->has_score && !isnan(m->score);
}

bool manta__retain_better(double a, double b, bool score_min)
{
  return score_min ? a < b : a > b;
}

int64_t manta__retain_best(const struct manta__manifest *list, size_t count, bool score_min,
                           const bool *skip)
{
  int64_t best = -1;
  for (size_t i = 0; i < count; i++) {
    if (!scored(&list[i]) || (skip && skip[i]))
      continue;
    if (best < 0 || !manta__retain_better(list[best].score, list[i].score, score_min))
      best = (int64_t)i;
  }
  return best;
}

// The first `best` scores are marked in `stays`, which is clear before.
static void mark_best(const struct manta__manifest *list, size_t count,
                      const struct manta__retention *keep, bool *stays)
{
  for (int k = 0; k < keep->keep_best; k++) {
    int64_t i = manta__retain_best(list, count, keep->score_min, stays);
    if (i < 0)
      return;
    stays[i] = true;
  }
}

void manta__retain_mark(const struct manta__manifest *list, size_t count,
                        const struct manta__retention *keep, bool *stays)
{
  memset(stays, 0, count * sizeof *stays);
  mark_best(list, count, keep, stays);
  size_t last = keep->keep_last < 0 ? count : keep->keep_last < 1 ? 1 : (size_t)keep->keep_last;
  for (size_t i = count > last ? count - last : 0; i < count; i++)
    stays[i] = true;
}

bool manta__retain_wants(const struct manta__manifest *list, size_t count,
                         const struct manta__retention *keep, bool has_score, double score)
{
  if (!has_score || isnan(score))
    return false;
  int better = 0;
  for (size_t i = 0; i < count; i++)
    better += scored(&list[i]) && manta__retain_better(list[i].score, score, keep->score_min);
  return better < keep->keep_best;
}
