/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "group/table.h"
#include "train/run.h"

#define drv manta__drv

static int rank_of(const manta_trainer *t, int64_t wid)
{
  for (int r = 0; r < t->world; r++)
    if (t->wids[r] == wid)
      return r;
  return -1;
}

static void fill_row(struct manta__table_row *row, const manta_trainer *t,
                     const struct manta__peer *p)
{
  bool going = t->run && !t->run->over;
  *row = (struct manta__table_row){.rank = rank_of(t, p->wid),
                                   .host = manta__node_name(p->node),
                                   .pid = p->pid,
                                   .cpus = t->cpus > 0 ? t->cpus : 1,
                                   .gpus = t->gpus,
                                   .state = going ? "running" : "idle"};
}

// Workers by rank; those that have none yet come in the order of their age.
static int by_rank(const void *a, const void *b)
{
  const struct manta__table_row *x = a, *y = b;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static manta_status draw(const manta_trainer *t, manta__buf *out)
{
  size_t n = 0, i = 0;
  for (struct manta__peer *p = t->peers; p; p = p->next)
    n++;
  struct manta__table_row *rows = manta__calloc(n, sizeof *rows);
  if (!rows)
    return MANTA_ENOMEM;
  for (struct manta__peer *p = t->peers; p; p = p->next)
    fill_row(&rows[i++], t, p);
  qsort(rows, n, sizeof *rows, by_rank);
  char totals[128];
  double cpus = (t->cpus > 0 ? t->cpus : 1) * (double)n, have = 0, gpus = 0;
  for (int k = 0; k < t->places; k++) {
    have += t->place[k].node->cpus;
    gpus += t->place[k].node->gpus;
  }
  int len = snprintf(totals, sizeof totals, "CPUs %g/%g", cpus, have);
  if (t->newest.fd >= 0)
    len += snprintf(totals + len, sizeof totals - (size_t)len, ", snapshots 3 x %.1f MB",
                    (double)t->newest.capacity / 1e6);
  if (gpus > 0 || t->gpus > 0)
    snprintf(totals + len, sizeof totals - (size_t)len, ", GPUs %g/%g", t->gpus * (double)n, gpus);
  struct manta__table table = {rows, n, totals};
  manta_status st = manta__table_draw(out, &table, manta__table_utf8());
  manta__free(rows);
  return st;
}

manta_status manta_trainer_print(manta_trainer *t, FILE *to)
{
  manta__buf b;
  manta__buf_init(&b, 4u << 20);
  pthread_mutex_lock(&drv.lock);
  manta_status st = draw(t, &b);
  pthread_mutex_unlock(&drv.lock);
  if (st == MANTA_OK && fwrite(b.data, 1, b.len, to) != b.len)
    st = MANTA_EIO;
  manta__buf_fini(&b);
  return st;
}
