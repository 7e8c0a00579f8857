/* SPDX-License-Identifier: Apache-2.0
 *
 * Every collective against what it should give, computed by each rank for itself.
 */
#include "ranks.h"

#include "comm/reduce/reduce.h"
#include "sys/proc.h"

static const size_t counts[] = {0, 1, 3, 17, 1000, 2048, 2049, 70000, 200001};
#define COUNTS (sizeof counts / sizeof *counts)

// What rank r holds at place i: small whole numbers, exact in every type.
static int64_t number(int r, size_t i)
{
  return (int64_t)((i * 7 + (size_t)r * 13) % 5) - 1;
}

static void store(void *p, size_t i, manta_dtype t, int64_t v)
{
  switch (t) {
  case MANTA_F32:
    ((float *)p)[i] = (float)v;
    break;
  case MANTA_F64:
    ((double *)p)[i] = (double)v;
    break;
  case MANTA_I64:
    ((int64_t *)p)[i] = v;
    break;
  default:
    ((int8_t *)p)[i] = (int8_t)v;
  }
}

static void fill(void *p, int r, size_t from, size_t n, manta_dtype t)
{
  for (size_t i = 0; i < n; i++)
    store(p, i, t, number(r, from + i));
}

// The op over all ranks of `from … from + n`, by the plain truth.
static void truth(void *out, int ranks, size_t from, size_t n, manta_dtype t, manta_op op)
{
  const void *in[RANKS_MAX] = {0};
  void *mem[RANKS_MAX];
  for (int r = 0; r < ranks; r++) {
    in[r] = mem[r] = malloc(n * 8 + 8);
    fill(mem[r], r, from, n, t);
  }
  manta__reduce_ref(out, in, ranks, n, t, op);
  for (int r = 0; r < ranks; r++)
    free(mem[r]);
}

static const manta_dtype types[] = {MANTA_F32, MANTA_F64, MANTA_I64, MANTA_I8};
#define TYPES (sizeof types / sizeof *types)

struct work { // buffers of a rank, one guard element behind each
  uint8_t *send, *recv, *want;
  manta_error err;
};

static int one_allreduce(manta_comm *c, struct work *w, int rank, int n, size_t k, manta_dtype t,
                         manta_op op, bool in_place)
{
  size_t bytes = k * manta_dtype_bytes(t);
  fill(w->send, rank, 0, k, t);
  uint8_t *to = in_place ? w->send : w->recv;
  to[bytes] = 0x5a;
  EXPECT(manta_comm_allreduce(c, w->send, to, k, t, op, &w->err) == MANTA_OK);
  truth(w->want, n, 0, k, t, op);
  EXPECT(memcmp(to, w->want, bytes) == 0);
  EXPECT(to[bytes] == 0x5a);
  return 0;
}

static int allreduces(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct work w = {malloc(2 << 20), malloc(2 << 20), malloc(2 << 20), MANTA_ERROR_INIT};
  for (size_t t = 0; t < TYPES; t++)
    for (size_t k = 0; k < COUNTS; k++)
      for (int op = MANTA_SUM; op <= MANTA_MAX; op++) {
        int line = one_allreduce(c, &w, rank, n, counts[k], types[t], (manta_op)op, (k + t) % 2);
        if (line)
          return line;
      }
  free(w.send);
  free(w.recv);
  free(w.want);
  return 0;
}

static void allreduce_gives_the_truth(void **state)
{
  for (int n = 1; n <= 5; n++)
    on_ranks(n, allreduces);
}

static int in_heap(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct work w = {.want = malloc(2 << 20), .err = MANTA_ERROR_INIT};
  EXPECT(manta_shm_alloc(c, 2 << 20, (void **)&w.send, &w.err) == MANTA_OK);
  EXPECT(manta_shm_alloc(c, 2 << 20, (void **)&w.recv, &w.err) == MANTA_OK);
  for (size_t k = 0; k < COUNTS; k++) {
    int line = one_allreduce(c, &w, rank, n, counts[k], MANTA_F32, MANTA_MEAN, k % 2);
    if (line)
      return line;
  }
  // Some ranks in the heap, some not.
  uint8_t *own = malloc(2 << 20), *heap = w.send;
  w.send = rank % 2 ? own : heap;
  int line = one_allreduce(c, &w, rank, n, 70000, MANTA_F32, MANTA_SUM, true);
  line = line ? line : one_allreduce(c, &w, rank, n, 1000, MANTA_F32, MANTA_SUM, true);
  free(own);
  manta_shm_free(c, heap);
  void *again;
  EXPECT(manta_shm_alloc(c, 1000, &again, &w.err) == MANTA_OK);
  EXPECT(again == heap && ((char *)again)[17] == 0);
  EXPECT(manta_shm_alloc(c, (size_t)1 << 40, &again, &w.err) == MANTA_ENOMEM);
  free(w.want);
  return line;
}

// Large blocks begin with a large page and take none of the others; small ones fill the gaps.
static int deals(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  static const size_t bytes[] = {1000, 5 << 20, 4096, 2 << 20, 100, (2 << 20) - 1, 7 << 20};
  enum { BLOCKS = sizeof bytes / sizeof *bytes };
  uint8_t *p[BLOCKS];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < BLOCKS; i++) {
      EXPECT(manta_shm_alloc(c, bytes[i], (void **)&p[i], &err) == MANTA_OK);
      EXPECT(bytes[i] < 2 << 20 || (uintptr_t)p[i] % (2 << 20) == 0);
      EXPECT(p[i][0] == 0 && p[i][bytes[i] - 1] == 0);
      memset(p[i], i + 1, bytes[i]);
    }
    EXPECT(p[2] < p[1] && p[4] < p[1]);
    for (int i = 0; i < BLOCKS; i++) {
      EXPECT(p[i][0] == i + 1 && p[i][bytes[i] / 2] == i + 1 && p[i][bytes[i] - 1] == i + 1);
      manta_shm_free(c, p[i]);
    }
  }
  // All is one block again: nearly the whole region is to be had, at once.
  EXPECT(manta_shm_alloc(c, 63 << 20, (void **)&p[0], &err) == MANTA_OK);
  return 0;
}

static void memory_is_dealt_out_whole(void **state)
{
  on_ranks(3, deals);
}

static void shared_buffers_give_the_same(void **state)
{
  for (int n = 1; n <= 5; n++)
    on_ranks(n, in_heap);
}

static int movers(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  size_t most = 70000, room = most * 8 * (size_t)n + 8;
  uint8_t *a = malloc(room), *b = malloc(room), *want = malloc(room);
  manta_dtype t = MANTA_F32;
  for (size_t j = 0; j < COUNTS - 1; j++) {
    size_t k = counts[j], bytes = k * 4;
    int root = (int)j % n;
    fill(a, rank, 0, k, t); // broadcast
    EXPECT(manta_comm_broadcast(c, a, k, t, root, &err) == MANTA_OK);
    fill(want, root, 0, k, t);
    EXPECT(memcmp(a, want, bytes) == 0);
    fill(a, rank, 0, k, t); // allgather and gather
    EXPECT(manta_comm_allgather(c, a, b, k, t, &err) == MANTA_OK);
    for (int r = 0; r < n; r++)
      fill(want + (size_t)r * bytes, r, 0, k, t);
    EXPECT(memcmp(b, want, bytes * (size_t)n) == 0);
    memset(b, 0, bytes * (size_t)n);
    EXPECT(manta_comm_gather(c, a, rank == root ? b : NULL, k, t, root, &err) == MANTA_OK);
    EXPECT(rank != root || memcmp(b, want, bytes * (size_t)n) == 0);
    EXPECT(manta_comm_scatter(c, rank == root ? want : NULL, b, k, t, root, &err) == MANTA_OK);
    EXPECT(memcmp(b, want + (size_t)rank * bytes, bytes) == 0);
    fill(a, rank, 0, k * (size_t)n, t); // alltoall
    EXPECT(manta_comm_alltoall(c, a, b, k, t, &err) == MANTA_OK);
    for (int r = 0; r < n; r++)
      fill(want + (size_t)r * bytes, r, (size_t)rank * k, k, t);
    EXPECT(memcmp(b, want, bytes * (size_t)n) == 0);
    EXPECT(manta_comm_reduce_scatter(c, a, b, k, t, MANTA_SUM, &err) == MANTA_OK);
    truth(want, n, (size_t)rank * k, k, t, MANTA_SUM);
    EXPECT(memcmp(b, want, bytes) == 0);
    EXPECT(manta_comm_reduce(c, a, rank == root ? b : NULL, k, t, MANTA_MAX, root, &err) ==
           MANTA_OK);
    truth(want, n, 0, k, t, MANTA_MAX);
    EXPECT(rank != root || memcmp(b, want, bytes) == 0);
    EXPECT(manta_comm_barrier(c, &err) == MANTA_OK);
  }
  free(a);
  free(b);
  free(want);
  return 0;
}

static void data_moves_where_it_should(void **state)
{
  for (int n = 1; n <= 5; n++)
    on_ranks(n, movers);
}

static int ragged(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  size_t many[RANKS_MAX], total = 0;
  uint8_t *a = malloc(1 << 20), *b = malloc(4 << 20), *want = malloc(4 << 20);
  for (int r = 0; r < n; r++) {
    many[r] = r == 1 ? 0 : 40000u * (size_t)r + 3;
    fill(want + total * 4, r, 0, many[r], MANTA_F32);
    total += many[r];
  }
  fill(a, rank, 0, many[rank], MANTA_F32);
  EXPECT(manta_comm_allgatherv(c, a, b, many, MANTA_F32, &err) == MANTA_OK);
  EXPECT(memcmp(b, want, total * 4) == 0);
  free(a);
  free(b);
  free(want);
  return 0;
}

static void ragged_blocks_are_gathered(void **state)
{
  for (int n = 1; n <= 5; n++)
    on_ranks(n, ragged);
}

// --- trouble ------------------------------------------------------------------------------------

static int differ(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  float x[8] = {0};
  size_t k = rank == 1 ? 7 : 8;
  EXPECT(manta_comm_allreduce(c, x, x, k, MANTA_F32, MANTA_SUM, &err) == MANTA_EINVAL);
  EXPECT(strstr(err.message, "allreduce of 8 F32 sum") && strstr(err.message, "of 7 F32"));
  // Ragged counts with the same sum.
  size_t these[] = {1, 2, 1}, those[] = {2, 1, 1};
  EXPECT(manta_comm_allgatherv(c, x, x + 4, rank ? these : those, MANTA_F32, &err) == MANTA_EINVAL);
  EXPECT(strstr(err.message, "allgatherv of 4 F32 in parts"));
  // They are still in step.
  EXPECT(manta_comm_allreduce(c, x, x, 8, MANTA_F32, MANTA_SUM, &err) == MANTA_OK);
  return 0;
}

static void different_calls_are_named(void **state)
{
  on_ranks(3, differ);
}

static int late(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  if (rank == 1) {
    while (sh->note[0] == 0)
      usleep(1000);
    return 0;
  }
  manta_comm_set_timeout(c, 0.05);
  EXPECT(manta_comm_barrier(c, &err) == MANTA_ETIMEDOUT);
  EXPECT(strstr(err.message, "barrier: rank 1 of 2 is missing"));
  sh->note[0] = 1;
  return 0;
}

static void a_deadline_names_who_is_missing(void **state)
{
  on_ranks(2, late);
}

static int leaver(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  EXPECT(manta_comm_rank(c) == rank && manta_comm_size(c) == n);
  EXPECT(manta_comm_barrier(c, &err) == MANTA_OK);
  if (rank == 1)
    return 0;
  EXPECT(manta_comm_barrier(c, &err) == MANTA_EPEERLOST);
  EXPECT(strstr(err.message, "rank 1 has left"));
  return 0;
}

static void a_rank_that_left_is_not_waited_for(void **state)
{
  for (int i = 0; i < 20; i++)
    on_ranks(3, leaver);
}

static int reduces_for_ever(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  size_t k = 300000;
  float *x = malloc(k * 4);
  for (int64_t i = 1;; i++) {
    for (size_t j = 0; j < k; j += 1000)
      x[j] = (float)(i % 100);
    manta_status st = manta_comm_allreduce(c, x, x, k, MANTA_F32, MANTA_SUM, &err);
    if (st == MANTA_EPEERLOST)
      break;
    EXPECT(st == MANTA_OK);
    for (size_t j = 0; j < k; j += 1000) // never a wrong sum
      EXPECT(x[j] == (float)(i % 100) * (float)n);
    sh->note[rank] = i;
  }
  free(x);
  return 0;
}

static void survivors_leave_when_a_peer_is_killed(void **state)
{
  for (int i = 0; i < 25; i++) {
    struct ranks t;
    ranks_start(&t, 2 + i % 3, reduces_for_ever);
    int victim = i % t.n;
    while (t.shared->note[victim] < 2)
      usleep(500);
    usleep((useconds_t)(i * 137 % 3000));
    manta__proc_signal(t.pid[victim], SIGKILL);
    ranks_abort(&t, victim);
    assert_int_equal(ranks_end(&t), 0);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(allreduce_gives_the_truth),
      cmocka_unit_test(memory_is_dealt_out_whole),
      cmocka_unit_test(shared_buffers_give_the_same),
      cmocka_unit_test(data_moves_where_it_should),
      cmocka_unit_test(ragged_blocks_are_gathered),
      cmocka_unit_test(different_calls_are_named),
      cmocka_unit_test(a_deadline_names_who_is_missing),
      cmocka_unit_test(a_rank_that_left_is_not_waited_for),
      cmocka_unit_test(survivors_leave_when_a_peer_is_killed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
