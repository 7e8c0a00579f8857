/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/best.h"

#include <string.h>
#include <strings.h>

static bool names_one(const char *name, const char *const *words)
{
  for (; *words; words++)
    if (strcasestr(name, *words))
      return true;
  return false;
}

// Lower is better: 1, greater: 2, unknown: 3. The smaller number is chosen.
static int kind_of(const char *name)
{
  static const char *const low[] = {"loss", "error", "perplexity", "mse", "mae", NULL};
  static const char *const high[] = {"acc", "score", "reward", "auc", "f1", "bleu", NULL};
  return names_one(name, low) ? 1 : names_one(name, high) ? 2 : 3;
}

static struct manta__best at_best(const struct manta__series *s, bool lowest)
{
  return (struct manta__best){s, lowest, lowest ? s->low : s->high};
}

struct manta__best manta__best_of(const struct manta__index *x)
{
  const char *score = manta_value_as_string(manta_value_get(&x->start, "score"), "");
  const struct manta__series *chosen = *score ? manta__index_find(x, score, 0) : NULL;
  if (chosen && chosen->finite > 0)
    return at_best(chosen, manta_value_as_bool(manta_value_get(&x->start, "score_min"), false));
  int kind = 4;
  for (uint32_t i = 0; i < x->series_count; i++) {
    const struct manta__series *s = &x->series[i];
    int k = s->rank == 0 && s->name[0] != '_' && s->finite > 0 ? kind_of(s->name) : 4;
    if (k < kind) {
      kind = k;
      chosen = s;
    }
  }
  return kind == 4 ? (struct manta__best){0} : at_best(chosen, kind != 2);
}
