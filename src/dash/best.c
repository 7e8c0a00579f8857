/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/best.h"

#include "view/goal.h"

static struct manta__best at_best(const struct manta__curve *s, bool lowest)
{
  return (struct manta__best){s, lowest, lowest ? s->low : s->high};
}

struct manta__best manta__best_of(const struct manta__index *x)
{
  const char *score = manta_value_as_string(manta_value_get(&x->start, "score"), "");
  const struct manta__curve *chosen = *score ? manta__index_find(x, score, 0) : NULL;
  if (chosen && chosen->finite > 0)
    return at_best(chosen, manta_value_as_bool(manta_value_get(&x->start, "score_min"), false));
  for (uint32_t i = 0; i < x->series_count; i++) {
    const struct manta__curve *s = &x->series[i];
    enum manta__goal goal =
        s->rank == 0 && s->name[0] != '_' && s->finite > 0 ? manta__goal_of(s->name) : 0;
    if (goal)
      return at_best(s, goal == MANTA__GOAL_MIN);
  }
  return (struct manta__best){0};
}
