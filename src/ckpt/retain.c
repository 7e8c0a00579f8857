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

#include "base/alloc.h"

static bool scored(const struct manta__manifest *m)
{
  return m->has_score && !isnan(m->score);
}

// Equal ones are not better than each other.
static bool better(double a, double b, bool score_min)
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
    if (best < 0 || !better(list[best].score, list[i].score, score_min))
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

bool manta__retain_wants(struct manta__best_scores *b, const struct manta__retention *keep,
                         bool has_score, double score)
{
  if (keep->keep_best <= 0 || !has_score || isnan(score))
    return false;
  if (!b->score && !(b->score = manta__calloc((size_t)keep->keep_best, sizeof *b->score)))
    return false;
  int i = b->count;
  if (i == keep->keep_best) {
    if (!better(score, b->score[i - 1], keep->score_min))
      return false;
    i--;
  } else {
    b->count++;
  }
  for (; i > 0 && better(score, b->score[i - 1], keep->score_min); i--)
    b->score[i] = b->score[i - 1];
  b->score[i] = score;
  return true;
}

void manta__best_scores_fini(struct manta__best_scores *b)
{
  manta__free(b->score);
  *b = (struct manta__best_scores){0};
}
