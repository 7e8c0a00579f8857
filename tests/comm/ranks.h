/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/ranks.h - a function on n forked ranks with a communicator between them, and no agent.
 */
#ifndef MANTA_TEST_RANKS_H
#define MANTA_TEST_RANKS_H

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "sys/shm.h"
#include "test.h"

#define RANKS_MAX 16

struct shared { /* by all ranks and the test */
  _Atomic uint32_t abort;
  struct manta__bell bell[RANKS_MAX];
  _Atomic int64_t note[RANKS_MAX];
};

struct ranks {
  struct shared *shared;
  int n, heap_fd, self;
  pid_t pid[RANKS_MAX];
};

/* 0: well; anything else is the line of the expectation that failed (EXPECT), or a status. */
typedef int (*rank_fn)(manta_comm *c, int rank, int n, struct shared *sh);
#define EXPECT(what)                                                                               \
  do {                                                                                             \
    if (!(what))                                                                                   \
      return __LINE__;                                                                             \
  } while (0)

static manta_status ranks_check(void *ctx, manta_error *err)
{
  struct ranks *t = ctx;
  uint32_t cause = atomic_load(&t->shared->abort);
  return cause ? manta_error_set(err, MANTA_EPEERLOST, "rank %u was lost", cause - 1) : MANTA_OK;
}

/* Called in a rank after each of its publications, once for each rank that it then rings for. */
static void (*ranks_on_ring)(int to);

static struct manta__bell *ranks_bell(void *ctx, int rank)
{
  struct ranks *t = ctx;
  if (ranks_on_ring && rank != t->self)
    ranks_on_ring(rank);
  return &t->shared->bell[rank];
}

static void ranks_alive(void *ctx, bool waits)
{
}

static inline void ranks_child(struct ranks *t, int rank, rank_fn fn)
{
  manta_comm *c;
  manta_error err = MANTA_ERROR_INIT;
  t->self = rank;
  struct manta__comm_host host = {.rank = rank,
                                  .size = t->n,
                                  .heap_fd = t->heap_fd,
                                  .ctx = t,
                                  .abort = &t->shared->abort,
                                  .check = ranks_check,
                                  .bell = ranks_bell,
                                  .alive = ranks_alive};
  if (manta__comm_create(&c, &host, &err) < 0)
    _exit(99);
  int line = fn(c, rank, t->n, t->shared);
  if (line)
    fprintf(stderr, "rank %d of %d: line %d\n", rank, t->n, line);
  manta__comm_destroy(c);
  _exit(line != 0);
}

static inline void ranks_start(struct ranks *t, int n, rank_fn fn)
{
  manta_error err = MANTA_ERROR_INIT;
  t->n = n;
  t->shared =
      mmap(NULL, sizeof *t->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(t->shared != MAP_FAILED);
  assert_ok(manta__shm_create("test-heap", manta__comm_segment(n, 64u << 20), &t->heap_fd, &err),
            &err);
  for (int r = 0; r < n; r++) {
    t->pid[r] = fork();
    assert_true(t->pid[r] >= 0);
    if (t->pid[r] == 0)
      ranks_child(t, r, fn);
  }
}

/* As the agent does it. */
static inline void ranks_abort(struct ranks *t, int lost)
{
  atomic_store(&t->shared->abort, (uint32_t)lost + 1);
  for (int r = 0; r < t->n; r++)
    manta__bell_ring(&t->shared->bell[r]);
}

/* Waits for all; how many did not end well. A rank that was killed on purpose is not counted; one
 * that crashed is a peer lost to the others. */
static inline int ranks_end(struct ranks *t)
{
  int bad = 0;
  for (int i = 0; i < t->n; i++) {
    int status = 0, lost = 0;
    pid_t pid = waitpid(-1, &status, 0);
    assert_true(pid > 0);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bad += !killed && status != 0;
    while (t->pid[lost] != pid)
      lost++;
    if (WIFSIGNALED(status) && !killed)
      ranks_abort(t, lost);
  }
  close(t->heap_fd);
  munmap(t->shared, sizeof *t->shared);
  return bad;
}

static inline void on_ranks(int n, rank_fn fn)
{
  struct ranks t;
  ranks_start(&t, n, fn);
  assert_int_equal(ranks_end(&t), 0);
}

#endif
