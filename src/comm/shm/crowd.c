/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/crowd.c - a rank that has waited long migrates off a CPU that it shares with others.
 *
 * A rank that waits yields to those that have its CPU, and a call takes as long as the CPU with the
 * most ranks needs for a turn of all. The scheduler takes its time to even that out, if it does (8
 * ranks on 2 CPUs: all-reduces of 9, 11, 15 or 19 us with 4, 5, 6 or 7 on one; 2 on 2 of 24 us
 * instead of 0.2 while both are on one). So a rank that waits looks now and then where the others
 * were last, and moves.
 */
#include <sched.h>

#include "comm/shm/team.h"
#include "sys/thread.h"

#define CPUS 1024 /* a host with more of them has fewer ranks than processors */

// How many ranks were last seen on each processor; gives the last of those on `here`, or -1.
static int count(const struct manta__team *t, int here, int ranks[CPUS])
{
  int last = -1;
  for (int r = 0; r < t->size; r++) {
    int cpu = (int)atomic_load_explicit(&t->line[r].cpu, memory_order_relaxed) - 1;
    if (cpu < 0 || cpu >= CPUS)
      continue;
    ranks[cpu]++;
    last = cpu == here ? r : last;
  }
  return last;
}

// The processor that we may use with the fewest ranks, or -1.
static int emptiest(const int ranks[CPUS])
{
  cpu_set_t ours;
  int best = -1;
  if (sched_getaffinity(0, sizeof ours, &ours) < 0)
    return -1;
  for (int i = 0; i < CPUS && i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &ours) && (best < 0 || ranks[i] < ranks[best]))
      best = i;
  return best;
}

// One of those on a processor moves at a time. What was seen may be old: the next look sees better.
void manta__team_even_out(struct manta__team *t)
{
  int ranks[CPUS] = {0}, here = sched_getcpu();
  t->looks = 0;
  if (t->size < t->fabric->host.size || here < 0 || here >= CPUS)
    return; // of a part nothing can be said
  if (count(t, here, ranks) != t->rank)
    return;
  int there = emptiest(ranks);
  if (there >= 0 && ranks[here] - ranks[there] > 1)
    manta__thread_move(there);
}
