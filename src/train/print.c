/* SPDX-License-Identifier: Apache-2.0
 *
 * train/print.c - a trainer as a table: its hosts, and who runs there with what.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "res/table.h"
#include "train/run.h"
#include "train/trainer.h"

#define drv     manta__drv
#define HELLO_S 2.0 // longer than that nobody waits for a table

static int rank_of(const manta_trainer *t, int64_t wid)
{
  for (int r = 0; r < t->world; r++)
    if (t->wids[r] == wid)
      return r;
  return -1;
}

// A worker that has a successor is about to end.
static bool replaced(const manta_trainer *t, const struct manta__peer *p)
{
  for (const struct manta__peer *o = t->peers; o; o = o->next)
    if (o->before == p->wid)
      return true;
  return false;
}

static void fill_row(struct manta__table_row *row, const manta_trainer *t,
                     const struct manta__peer *p)
{
  bool going = t->run && !t->run->over;
  int rank = rank_of(t, p->wid);
  *row = (struct manta__table_row){.rank = rank < 0 ? p->seat : rank,
                                   .host = manta__link_name(p->link),
                                   .pid = p->pid,
                                   .cpus = t->cpus > 0 ? t->cpus : 1,
                                   .gpus = t->gpus,
                                   .state = going ? "running" : "idle"};
}

// Before the start: those that the trainer asks for.
static void plan_rows(struct manta__table_row *rows, const manta_trainer *t)
{
  for (int i = 0; i < t->workers; i++)
    rows[i] = (struct manta__table_row){
        .rank = i, .cpus = t->cpus > 0 ? t->cpus : 1, .gpus = t->gpus, .state = "not started"};
}

// Workers by rank; those that have none yet come in the order of their age.
static int by_rank(const void *a, const void *b)
{
  const struct manta__table_row *x = a, *y = b;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

// What n workers hold, and what there is; "?" while no host has said what it has.
static void describe(const manta_trainer *t, size_t n, char *text, size_t size)
{
  double cpus = 0, gpus = 0;
  char all[2][32] = {"?", "?"};
  for (int k = 0; k < t->hosts; k++) {
    cpus += t->host[k].link->cpus;
    gpus += t->host[k].link->gpus;
  }
  if (cpus > 0) {
    snprintf(all[0], sizeof all[0], "%g", cpus);
    snprintf(all[1], sizeof all[1], "%g", gpus);
  }
  int len = snprintf(text, size, "CPUs %g/%s", (t->cpus > 0 ? t->cpus : 1) * (double)n, all[0]);
  if (t->newest.fd >= 0)
    len += snprintf(text + len, size - (size_t)len, ", snapshots 3 x %.1f MB",
                    (double)t->newest.capacity / 1e6);
  if (gpus > 0 || t->gpus > 0)
    snprintf(text + len, size - (size_t)len, ", GPUs %g/%s", t->gpus * (double)n, all[1]);
}

static manta_status draw(const manta_trainer *t, manta__buf *out)
{
  size_t n = 0, i = 0;
  char totals[128];
  for (struct manta__peer *p = t->peers; p; p = p->next)
    n += !replaced(t, p);
  size_t shown = n ? n : (size_t)t->workers;
  struct manta__table_row *rows = manta__calloc(shown, sizeof *rows);
  if (!rows)
    return MANTA_ENOMEM;
  for (struct manta__peer *p = t->peers; p; p = p->next)
    if (!replaced(t, p))
      fill_row(&rows[i++], t, p);
  qsort(rows, n, sizeof *rows, by_rank);
  if (!n)
    plan_rows(rows, t);
  describe(t, n, totals, sizeof totals);
  struct manta__table table = {rows, shown, totals};
  manta_status st = manta__table_draw(out, &table, manta__table_utf8());
  manta__free(rows);
  return st;
}

static bool silent(const manta_trainer *t)
{
  for (int k = 0; k < t->hosts; k++)
    if (t->host[k].link->conn && !t->host[k].link->spoke)
      return true;
  return false;
}

// An agent that was started a moment ago tells in a few milliseconds what its host has.
static void await_hosts(const manta_trainer *t)
{
  int64_t by = manta__deadline(HELLO_S);
  struct timespec at = {by / 1000000000, by % 1000000000};
  while (silent(t) && drv.running)
    if (pthread_cond_timedwait(&drv.cond, &drv.lock, &at) != 0)
      return;
}

manta_status manta_trainer_print(manta_trainer *t, FILE *to)
{
  manta__buf b;
  manta__buf_init(&b, 4u << 20);
  pthread_mutex_lock(&drv.lock);
  await_hosts(t);
  manta_status st = draw(t, &b);
  pthread_mutex_unlock(&drv.lock);
  if (st == MANTA_OK && fwrite(b.data, 1, b.len, to) != b.len)
    st = MANTA_EIO;
  manta__buf_fini(&b);
  return st;
}
