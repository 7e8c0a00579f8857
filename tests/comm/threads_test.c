/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks as threads of one process, for ThreadSanitizer: it sees a race only between accesses to
 * one address, so all ranks get the same mapping of the segment (the program is linked with
 * --wrap=manta__shm_map). What forked ranks share, these share; what is private to a process
 * (fabric, communicators, heap lists) each thread has for itself.
 *
 * The sanitizer knows no fences: none is needed for the data, which go by release and acquire of a
 * phase. (The one in front of a sleep orders a store before a load; see sys/bell.h.)
 */
#include <pthread.h>
#include <sched.h>

#include "plain.h"

#define N      4
#define ROUNDS 120 // of all ways
#define ROOM   (300u << 10)

// --- one mapping --------------------------------------------------------------------------------

static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;
static void *mapped;
static size_t mapped_bytes;
static int users;

manta_status __real_manta__shm_map(int fd, void **out, size_t *bytes_out, manta_error *err);
manta_status __wrap_manta__shm_map(int fd, void **out, size_t *bytes_out, manta_error *err);
void __real_manta__shm_unmap(void *p, size_t bytes);
void __wrap_manta__shm_unmap(void *p, size_t bytes);

manta_status __wrap_manta__shm_map(int fd, void **out, size_t *bytes_out, manta_error *err)
{
  pthread_mutex_lock(&mapping);
  manta_status st = users ? MANTA_OK : __real_manta__shm_map(fd, &mapped, &mapped_bytes, err);
  users += st == MANTA_OK;
  *out = mapped;
  *bytes_out = mapped_bytes;
  pthread_mutex_unlock(&mapping);
  return st;
}

void __wrap_manta__shm_unmap(void *p, size_t bytes)
{
  pthread_mutex_lock(&mapping);
  if (--users == 0)
    __real_manta__shm_unmap(p, bytes);
  pthread_mutex_unlock(&mapping);
}

// --- ranks --------------------------------------------------------------------------------------

struct seat {
  struct ranks *ranks;
  int rank, n, line;
  rank_fn fn;
};

static void *sit(void *arg)
{
  struct seat *s = arg;
  manta_comm *c;
  struct manta__comm_host host = {.rank = s->rank,
                                  .size = s->n,
                                  .heap_fd = s->ranks->heap_fd,
                                  .ctx = s->ranks,
                                  .abort = &s->ranks->shared->abort,
                                  .check = ranks_check,
                                  .bell = ranks_bell,
                                  .alive = ranks_alive};
  if (manta__comm_create(&c, &host, NULL) < 0)
    return NULL;
  s->line = s->fn(c, s->rank, s->n, s->ranks->shared);
  manta__comm_destroy(c);
  return NULL;
}

static void on_threads(int n, rank_fn fn)
{
  static struct shared shared;
  struct ranks t = {.shared = &shared, .n = n, .self = -1};
  struct seat seat[N];
  pthread_t thread[N];
  manta_error err = MANTA_ERROR_INIT;
  memset(&shared, 0, sizeof shared);
  assert_ok(manta__shm_create("test-heap", manta__comm_segment(n, 64u << 20), &t.heap_fd, &err),
            &err);
  for (int r = 0; r < n; r++) {
    seat[r] = (struct seat){&t, r, n, __LINE__, fn};
    assert_int_equal(pthread_create(&thread[r], NULL, sit, &seat[r]), 0);
  }
  for (int r = 0; r < n; r++)
    pthread_join(thread[r], NULL);
  for (int r = 0; r < n; r++)
    if (seat[r].line)
      fail_msg("rank %d of %d: line %d", r, n, seat[r].line);
  assert_int_equal(users, 0);
  close(t.heap_fd);
}

// --- all ways -----------------------------------------------------------------------------------

static const struct {
  enum manta__call call;
  size_t bytes;
} ways[] = {
    {MANTA__CALL_ALLREDUCE, 4},
    {MANTA__CALL_ALLREDUCE, 6000},
    {MANTA__CALL_ALLREDUCE, 30000},
    {MANTA__CALL_ALLREDUCE, 200000},
    {MANTA__CALL_BARRIER, 0},
    {MANTA__CALL_REDUCE, 400},
    {MANTA__CALL_REDUCE, 140000},
    {MANTA__CALL_REDUCE_SCATTER, 3000},
    {MANTA__CALL_REDUCE_SCATTER, 40000},
    {MANTA__CALL_BROADCAST, 1000},
    {MANTA__CALL_BROADCAST, 140000},
    {MANTA__CALL_ALLGATHER, 100},
    {MANTA__CALL_ALLGATHER, 70000},
    {MANTA__CALL_ALLGATHERV, 70000},
    {MANTA__CALL_ALLTOALL, 500},
    {MANTA__CALL_ALLTOALL, 40000},
    {MANTA__CALL_GATHER, 40000},
    {MANTA__CALL_SCATTER, 40000},
};
#define WAYS (sizeof ways / sizeof *ways)

static struct plain pick(uint64_t k, int n)
{
  struct plain p = {.call = ways[k % WAYS].call, .type = MANTA_F32, .seed = k, .op = MANTA_MEAN};
  p.count = ways[k % WAYS].bytes / 4;
  p.place = (enum plain_place)(k / WAYS % PLAIN_PLACES);
  p.in_place = k % 5 < 2;
  p.root = (int)(k % (uint64_t)n);
  p.shift = (int)(k % 3) * 4;
  for (int r = 0; r < n; r++)
    p.counts[r] = p.count / (size_t)(1 + (r + p.root) % n);
  return p;
}

static int all_ways(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct plain_bed b;
  int line = plain_open(&b, c, n, ROOM);
  for (uint64_t k = 0; k < ROUNDS * (uint64_t)n && !line; k++) {
    struct plain p = pick(k, n);
    line = plain_one(c, &b, &p, rank, n);
    if (plain_mix(k * N + (uint64_t)rank) % 8 == 0)
      sched_yield();
  }
  plain_close(&b, c);
  return line;
}

static void collectives_have_no_race(void **state)
{
  for (int n = 2; n <= N; n++)
    on_threads(n, all_ways);
}

// What the kernel writes is not seen here; what the ranks say of it is.
static int all_remote(manta_comm *c, int rank, int n, struct shared *sh)
{
  int line = all_ways(c, rank, n, sh);
  EXPECT(line || c->team.remote.state == MANTA__REMOTE_WORKS);
  return line;
}

static void remote_ones_have_no_race(void **state)
{
  setenv("MANTA_COMM_WAY", "remote", 1);
  on_threads(3, all_remote);
  unsetenv("MANTA_COMM_WAY");
}

// Several in flight, the deadline set meanwhile, messages crossing, groups coming and going.
static int everything_at_once(manta_comm *c, int rank, int n, struct shared *sh)
{
  enum { WORKS = 4, COUNT = 30000 };
  struct plain_bed b[WORKS];
  manta_error err = MANTA_ERROR_INIT;
  manta_work *w[WORKS], *out, *in;
  uint32_t *mail = malloc(COUNT * 8), *shared;
  int to = (rank + 1) % n, from = (rank + n - 1) % n, line = 0;
  EXPECT(manta_shm_alloc(c, COUNT * 4, (void **)&shared, &err) == MANTA_OK);
  for (int i = 0; i < WORKS && !line; i++)
    line = plain_open(&b[i], c, n, ROOM);
  for (uint64_t k = 0; k < 40 && !line; k++) {
    uint32_t *own = k % 2 ? mail : shared;
    manta_comm *g;
    for (int i = 0; i < WORKS; i++) {
      struct plain p = pick(k * WORKS + (uint64_t)i, n);
      plain_prepare(&b[i], &p, rank, n);
      EXPECT(plain_call(c, &p, &b[i], &w[i], &err) == MANTA_OK);
    }
    manta_comm_set_timeout(c, 100);
    for (uint32_t i = 0; i < COUNT; i++)
      own[i] = i * 3 + (uint32_t)rank;
    EXPECT(manta_comm_send_start(c, own, COUNT, MANTA_U32, to, &out, &err) == MANTA_OK);
    EXPECT(manta_comm_recv_start(c, mail + COUNT, COUNT, MANTA_U32, from, &in, &err) == MANTA_OK);
    EXPECT(manta_comm_split(c, rank % 2, rank, &g, &err) == MANTA_OK);
    EXPECT(manta_comm_barrier(g, &err) == MANTA_OK);
    manta_comm_free(g);
    EXPECT(manta_work_wait(in, &err) == MANTA_OK && manta_work_wait(out, &err) == MANTA_OK);
    for (uint32_t i = 0; i < COUNT; i++)
      EXPECT(mail[COUNT + i] == i * 3 + (uint32_t)from);
    for (int i = 0; i < WORKS && !line; i++) {
      struct plain p = pick(k * WORKS + (uint64_t)i, n);
      EXPECT(manta_work_wait(w[i], &err) == MANTA_OK);
      line = plain_check(&b[i], &p, rank, n);
    }
  }
  for (int i = 0; i < WORKS; i++)
    plain_close(&b[i], c);
  free(mail);
  return line;
}

static void started_ones_have_no_race(void **state)
{
  on_threads(3, everything_at_once);
}

// The abort comes from another thread, while calls are in flight and while nobody is waiting.
static int until_lost(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = MANTA_OK;
  static float shared_nowhere[N][20000];
  for (int i = 0; st == MANTA_OK; i++) {
    manta_work *w = NULL;
    if (rank == 0 && i == 20) {
      atomic_store(&sh->abort, 1);
      for (int r = 0; r < n; r++)
        manta__bell_ring(&sh->bell[r]);
    }
    st = manta_comm_allreduce_start(c, shared_nowhere[rank], shared_nowhere[rank], 20000, MANTA_F32,
                                    MANTA_MAX, &w, &err);
    st = st == MANTA_OK ? manta_work_wait(w, &err) : st;
  }
  EXPECT(st == MANTA_EPEERLOST);
  return 0;
}

static void an_abort_has_no_race(void **state)
{
  for (int i = 0; i < 20; i++)
    on_threads(3, until_lost);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(collectives_have_no_race),
      cmocka_unit_test(remote_ones_have_no_race),
      cmocka_unit_test(started_ones_have_no_race),
      cmocka_unit_test(an_abort_has_no_race),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
