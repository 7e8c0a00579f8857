/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "comm/team.h"
#include "sys/thread.h"

#define CPUS 1024 /* a host with more of them has fewer ranks than processors */

struct crowd {
  int ranks[CPUS]; /* that were last seen on it */
  int last[CPUS];  /* the highest of them */
};

static void count(const struct manta__team *t, struct crowd *c)
{
  for (int r = 0; r < t->size; r++) {
    const struct manta__post *post = &t->line[r].post[t->turn & 1];
    int cpu = atomic_load_explicit(&post->cpu, memory_order_relaxed);
    if (cpu < 0 || cpu >= CPUS)
      continue;
    c->ranks[cpu]++;
    c->last[cpu] = r;
  }
}

// The processor that we may use with the fewest ranks, or -1.
static int emptiest(const struct crowd *c)
{
  cpu_set_t ours;
  int best = -1;
  if (sched_getaffinity(0, sizeof ours, &ours) < 0)
    return -1;
  for (int i = 0; i < CPUS && i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &ours) && (best < 0 || c->ranks[i] < c->ranks[best]))
      best = i;
  return best;
}

// One of those on a processor moves at a time. What was seen may be old: the next look sees better.
void manta__team_even_out(struct manta__team *t)
{
  struct crowd c = {0};
  int here = sched_getcpu();
  t->looks = 0;
  if (t->size < t->fabric->host.size || here < 0 || here >= CPUS)
    return; // of a part nothing can be said
  count(t, &c);
  int there = emptiest(&c);
  if (there >= 0 && c.ranks[here] - c.ranks[there] > 1 && c.last[here] == t->rank)
    manta__thread_move(there);
}
