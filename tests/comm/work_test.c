/* SPDX-License-Identifier: Apache-2.0
 *
 * Started operations, sends and receives, groups.
 */
#include "ranks.h"
#include "sys/proc.h"

static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, 4096, 16384, 16385, 50000, 300001};
#define SIZES (sizeof sizes / sizeof *sizes)
#define MOST  300001

static void fill(float *p, int seed, size_t n)
{
  for (size_t i = 0; i < n; i++)
    p[i] = (float)((i * 31 + (size_t)seed * 17) % 97);
}

static bool holds(const float *p, int seed, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (p[i] != (float)((i * 31 + (size_t)seed * 17) % 97))
      return false;
  return true;
}

// --- started collectives ------------------------------------------------------------------------

static int many_in_flight(manta_comm *c, int rank, int n, struct shared *sh)
{
  enum { WORKS = 20 };
  manta_error err = MANTA_ERROR_INIT;
  manta_work *w[WORKS];
  float *x[WORKS], y = 1;
  for (int i = 0; i < WORKS; i++) {
    size_t k = sizes[(size_t)i % SIZES];
    x[i] = malloc((k + 1) * 4);
    for (size_t j = 0; j < k; j++)
      x[i][j] = (float)(rank + i);
    EXPECT(manta_comm_allreduce_start(c, x[i], x[i], k, MANTA_F32, MANTA_SUM, &w[i], &err) ==
           MANTA_OK);
  }
  // A blocking call takes its turn behind them.
  EXPECT(manta_comm_allreduce(c, &y, &y, 1, MANTA_F32, MANTA_SUM, &err) == MANTA_OK && y == n);
  for (int i = 0; i < WORKS; i++)
    EXPECT(manta_work_test(w[i]));
  for (int i = WORKS - 1; i >= 0; i--) {
    size_t k = sizes[(size_t)i % SIZES];
    EXPECT(manta_work_wait(w[i], &err) == MANTA_OK);
    for (size_t j = 0; j < k; j++)
      EXPECT(x[i][j] == (float)(n * (n - 1) / 2 + n * i));
    free(x[i]);
  }
  return 0;
}

static void several_operations_are_in_flight(void **state)
{
  for (int n = 1; n <= 5; n++)
    on_ranks(n, many_in_flight);
}

static int all_kinds(manta_comm *c, int rank, int n, struct shared *sh)
{
  enum { K = 5000, KINDS = 9 };
  manta_error err = MANTA_ERROR_INIT;
  size_t counts[RANKS_MAX], room = (size_t)K * (size_t)n * 4;
  manta_work *w[KINDS];
  float *a = malloc(room), *out[KINDS];
  for (int i = 0; i < KINDS; i++)
    out[i] = malloc(room);
  for (int r = 0; r < n; r++)
    counts[r] = (size_t)r + 1;
  fill(a, rank, (size_t)K * (size_t)n);
  fill(out[0], rank, K);
  EXPECT(manta_comm_broadcast_start(c, out[0], K, MANTA_F32, 0, &w[0], &err) == 0);
  EXPECT(manta_comm_reduce_start(c, a, out[1], K, MANTA_F32, MANTA_MAX, 0, &w[1], &err) == 0);
  EXPECT(manta_comm_allgather_start(c, a, out[2], K, MANTA_F32, &w[2], &err) == 0);
  EXPECT(manta_comm_allgatherv_start(c, a, out[3], counts, MANTA_F32, &w[3], &err) == 0);
  memset(counts, 0xff, sizeof counts); // it has a copy
  EXPECT(manta_comm_reduce_scatter_start(c, a, out[4], K, MANTA_F32, MANTA_MIN, &w[4], &err) == 0);
  EXPECT(manta_comm_alltoall_start(c, a, out[5], K, MANTA_F32, &w[5], &err) == 0);
  EXPECT(manta_comm_gather_start(c, a, out[6], K, MANTA_F32, n - 1, &w[6], &err) == 0);
  EXPECT(manta_comm_scatter_start(c, a, out[7], K, MANTA_F32, n - 1, &w[7], &err) == 0);
  EXPECT(manta_comm_barrier_start(c, &w[8], &err) == 0);
  for (int i = 0; i < KINDS; i++)
    EXPECT(manta_work_wait(w[i], &err) == MANTA_OK);
  EXPECT(holds(out[0], 0, K));
  float *p = out[3];
  for (int r = 0; r < n; r++) {
    EXPECT(holds(out[2] + (size_t)r * K, r, K));
    EXPECT(holds(p, r, (size_t)r + 1));
    EXPECT(rank != n - 1 || holds(out[6] + (size_t)r * K, r, K));
    p += r + 1;
  }
  fill(a, n - 1, (size_t)K * (size_t)n);
  EXPECT(memcmp(out[7], a + (size_t)rank * K, K * 4) == 0);
  for (int i = 0; i < KINDS; i++)
    free(out[i]);
  free(a);
  return 0;
}

static void every_collective_can_be_started(void **state)
{
  for (int n = 1; n <= 4; n++)
    on_ranks(n, all_kinds);
}

static int lost_in_flight(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_work *w[8];
  float *x = calloc(MOST, 4);
  if (rank == 0) { // never comes
    atomic_store(&sh->note[0], 1);
    pause();
  }
  for (int i = 0; i < 8; i++)
    EXPECT(manta_comm_allreduce_start(c, x, x, MOST, MANTA_F32, MANTA_SUM, &w[i], &err) == 0);
  atomic_store(&sh->note[rank], 1);
  for (int i = 0; i < 8; i++)
    EXPECT(manta_work_wait(w[i], &err) == MANTA_EPEERLOST && strstr(err.message, "rank 0"));
  EXPECT(manta_comm_barrier(c, &err) == MANTA_EPEERLOST);
  free(x);
  return 0;
}

static void a_lost_peer_ends_what_is_in_flight(void **state)
{
  for (int i = 0; i < 10; i++) {
    struct ranks t;
    ranks_start(&t, 3, lost_in_flight);
    for (int r = 0; r < 3; r++)
      while (!t.shared->note[r])
        usleep(100);
    manta__proc_signal(t.pid[0], SIGKILL);
    ranks_abort(&t, 0);
    assert_int_equal(ranks_end(&t), 0);
  }
}

// Works that nobody waits for neither hang nor leak when the function ends.
static int forgetful(manta_comm *c, int rank, int n, struct shared *sh)
{
  static float x[100];
  manta_error err = MANTA_ERROR_INIT;
  manta_work *w;
  for (int i = 0; i < 5 && rank; i++)
    EXPECT(manta_comm_allreduce_start(c, x, x, 100, MANTA_F32, MANTA_SUM, &w, &err) == 0);
  if (rank)
    EXPECT(manta_comm_recv_start(c, x, 7, MANTA_F32, 0, &w, &err) == 0);
  return 0;
}

static void a_function_may_end_with_work_in_flight(void **state)
{
  for (int i = 0; i < 5; i++)
    on_ranks(3, forgetful);
}

static int slow_start(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_work *w;
  float x = 1;
  manta_comm_set_timeout(c, 0.05);
  if (rank == 0) {
    EXPECT(manta_comm_allreduce_start(c, &x, &x, 1, MANTA_F32, MANTA_SUM, &w, &err) == 0);
    EXPECT(manta_work_wait(w, &err) == MANTA_ETIMEDOUT);
    EXPECT(manta_comm_barrier(c, &err) == MANTA_ESTATE && strstr(err.message, "out of step"));
    EXPECT(manta_comm_recv(c, &x, 1, MANTA_F32, 1, &err) == MANTA_ESTATE);
    EXPECT(strstr(err.message, "recv: an earlier call ran out of time"));
    atomic_store(&sh->note[0], 1);
  }
  while (!sh->note[0])
    usleep(100);
  return 0;
}

static void started_operations_have_the_deadline_too(void **state)
{
  on_ranks(2, slow_start);
}

// --- sends and receives -------------------------------------------------------------------------

// Everybody to everybody, in one direction after the other.
static int mails(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  float *x = malloc(MOST * 4 + 4), *heap;
  EXPECT(manta_shm_alloc(c, MOST * 4, (void **)&heap, &err) == MANTA_OK);
  for (size_t s = 0; s < SIZES; s++)
    for (int from = 0; from < n; from++)
      for (int to = 0; to < n; to++) {
        float *buf = (s + (size_t)from) % 2 ? x : heap;
        if (from == to)
          continue;
        if (rank == from) {
          fill(buf, from * 16 + to, sizes[s]);
          EXPECT(manta_comm_send(c, buf, sizes[s], MANTA_F32, to, &err) == MANTA_OK);
        } else if (rank == to) {
          x[sizes[s]] = 77;
          EXPECT(manta_comm_recv(c, x, sizes[s], MANTA_F32, from, &err) == MANTA_OK);
          EXPECT(holds(x, from * 16 + to, sizes[s]) && x[sizes[s]] == 77);
        }
      }
  EXPECT(manta_comm_send(c, x, 1, MANTA_F32, rank, &err) == MANTA_EINVAL);
  EXPECT(manta_comm_recv(c, x, 1, MANTA_F32, n, &err) == MANTA_EINVAL);
  free(x);
  return 0;
}

static void messages_arrive_whole_and_in_order(void **state)
{
  for (int n = 2; n <= 4; n++)
    on_ranks(n, mails);
}

// All send to all before anybody receives, with a collective in between.
static int crossing(manta_comm *c, int rank, int n, struct shared *sh)
{
  enum { EACH = 3 };
  manta_error err = MANTA_ERROR_INIT;
  manta_work *w[2][RANKS_MAX][EACH];
  float *out = malloc(MOST * 4), *in[RANKS_MAX][EACH], y = 1;
  fill(out, rank, MOST);
  for (int r = 0; r < n; r++)
    for (int k = 0; k < EACH && r != rank; k++) {
      in[r][k] = malloc(MOST * 4);
      EXPECT(manta_comm_send_start(c, out, MOST - (size_t)k, MANTA_F32, r, &w[0][r][k], &err) == 0);
    }
  EXPECT(manta_comm_allreduce(c, &y, &y, 1, MANTA_F32, MANTA_SUM, &err) == MANTA_OK && y == n);
  for (int r = n - 1; r >= 0; r--)
    for (int k = 0; k < EACH && r != rank; k++)
      EXPECT(manta_comm_recv_start(c, in[r][k], MOST - (size_t)k, MANTA_F32, r, &w[1][r][k],
                                   &err) == 0);
  for (int r = 0; r < n; r++)
    for (int k = EACH - 1; k >= 0 && r != rank; k--) {
      EXPECT(manta_work_wait(w[1][r][k], &err) == MANTA_OK);
      EXPECT(manta_work_wait(w[0][r][k], &err) == MANTA_OK);
      EXPECT(holds(in[r][k], r, MOST - (size_t)k));
      free(in[r][k]);
    }
  free(out);
  return 0;
}

static void sends_may_cross(void **state)
{
  for (int n = 2; n <= 5; n++)
    on_ranks(n, crossing);
}

static int unequal(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  float x[50] = {0};
  if (rank == 0) {
    x[0] = 5;
    EXPECT(manta_comm_send(c, x, 30, MANTA_F32, 1, &err) == MANTA_OK);
    EXPECT(manta_comm_send(c, x, 50, MANTA_F32, 1, &err) == MANTA_OK);
    return 0;
  }
  EXPECT(manta_comm_recv(c, x, 20, MANTA_I32, 0, &err) == MANTA_EINVAL);
  EXPECT(strstr(err.message, "recv of 20 I32 from rank 0, but rank 0 sends 30 F32 to rank 1"));
  EXPECT(x[0] == 0);
  EXPECT(manta_comm_recv(c, x, 50, MANTA_F32, 0, &err) == MANTA_OK && x[0] == 5);
  return 0;
}

static void an_unequal_message_is_named(void **state)
{
  on_ranks(2, unequal);
}

// A message that ran out of time half-way must not go on as another.
static int cut_short(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_work *w[2];
  float *x = calloc(MOST, 4);
  manta_comm_set_timeout(c, 0.05);
  if (rank == 0) {
    fill(x, 1, MOST);
    EXPECT(manta_comm_send_start(c, x, MOST, MANTA_F32, 1, &w[0], &err) == MANTA_OK);
    EXPECT(manta_comm_send_start(c, x, MOST, MANTA_F32, 1, &w[1], &err) == MANTA_OK);
    EXPECT(manta_work_wait(w[0], &err) == MANTA_ETIMEDOUT);
    EXPECT(strstr(err.message, "send: rank 1 of 2 is missing"));
    EXPECT(manta_work_wait(w[1], &err) == MANTA_ESTATE);
    EXPECT(manta_comm_send(c, x, MOST, MANTA_F32, 1, &err) == MANTA_ESTATE);
    atomic_store(&sh->note[0], 1);
    while (!sh->note[1])
      usleep(100);
  } else {
    while (!sh->note[0])
      usleep(100);
    manta_status st = manta_comm_recv(c, x, MOST, MANTA_F32, 0, &err);
    atomic_store(&sh->note[1], 1);
    EXPECT(st == MANTA_ETIMEDOUT);
  }
  free(x);
  return 0;
}

static void a_message_cut_short_stays_so(void **state)
{
  on_ranks(2, cut_short);
}

static int never_sent(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  float *x = calloc(MOST, 4);
  if (rank == 0) {
    EXPECT(manta_comm_send(c, x, 10, MANTA_F32, 1, &err) == MANTA_OK);
    return 0; // leaves: what it sent is still there, more does not come
  }
  if (rank == 1) {
    usleep(20000);
    EXPECT(manta_comm_recv(c, x, 10, MANTA_F32, 0, &err) == MANTA_OK);
    EXPECT(manta_comm_recv(c, x, 10, MANTA_F32, 0, &err) == MANTA_EPEERLOST);
  } else {
    EXPECT(manta_comm_send(c, x, MOST, MANTA_F32, 0, &err) == MANTA_EPEERLOST);
    EXPECT(strstr(err.message, "send: rank 0 has left"));
  }
  return 0;
}

static void who_left_is_not_waited_for(void **state)
{
  on_ranks(3, never_sent);
}

// --- groups -------------------------------------------------------------------------------------

static int rows_and_columns(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_comm *row, *col, *none, *back;
  EXPECT(manta_comm_split(c, rank / 2, rank, &row, &err) == MANTA_OK);
  EXPECT(manta_comm_split(c, rank % 2, rank, &col, &err) == MANTA_OK);
  EXPECT(manta_comm_split(c, rank == 1 ? -1 : 0, 0, &none, &err) == MANTA_OK);
  EXPECT((none == NULL) == (rank == 1));
  EXPECT(manta_comm_split(c, 0, -rank, &back, &err) == MANTA_OK);
  EXPECT(manta_comm_rank(back) == n - 1 - rank && manta_comm_size(back) == n);
  EXPECT(manta_comm_rank(row) == rank % 2);
  for (int i = 0; i < 50; i++) {
    float x = (float)rank, y = (float)rank;
    manta_work *w;
    EXPECT(manta_comm_allreduce_start(col, &y, &y, 1, MANTA_F32, MANTA_SUM, &w, &err) == 0);
    EXPECT(manta_comm_allreduce(row, &x, &x, 1, MANTA_F32, MANTA_SUM, &err) == MANTA_OK);
    EXPECT(x == (rank / 2 * 2 + 1 < n ? (float)(rank / 2 * 4 + 1) : (float)rank));
    EXPECT(manta_work_wait(w, &err) == MANTA_OK);
    float want = 0;
    for (int r = rank % 2; r < n; r += 2)
      want += (float)r;
    EXPECT(y == want);
  }
  manta_comm_free(row);
  manta_comm_free(none);
  EXPECT(manta_comm_barrier(back, &err) == MANTA_OK);
  manta_comm_free(back);
  manta_comm_free(NULL);
  manta_comm_free(c); // left alone
  return 0;           // `col` ends with the session
}

static void groups_work_beside_each_other(void **state)
{
  for (int n = 2; n <= 5; n++)
    on_ranks(n, rows_and_columns);
}

// What was started on a group is done before it is freed.
static int free_waits(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_comm *g;
  manta_work *w;
  float *x = malloc(MOST * 4);
  EXPECT(manta_comm_split(c, 0, 0, &g, &err) == MANTA_OK);
  if (rank == 0) {
    fill(x, 5, MOST);
    EXPECT(manta_comm_send_start(g, x, MOST, MANTA_F32, 1, &w, &err) == MANTA_OK);
    manta_comm_free(g);
  } else {
    usleep(10000);
    EXPECT(manta_comm_recv(g, x, MOST, MANTA_F32, 0, &err) == MANTA_OK && holds(x, 5, MOST));
    manta_comm_free(g);
  }
  free(x);
  return 0;
}

static void freeing_waits_for_messages(void **state)
{
  on_ranks(2, free_waits);
}

// The memory of groups comes back.
static int again_and_again(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < 300; i++) {
    manta_comm *g;
    EXPECT(manta_comm_split(c, (rank + i) % 2, rank, &g, &err) == MANTA_OK);
    EXPECT(manta_comm_barrier(g, &err) == MANTA_OK);
    manta_comm_free(g);
  }
  return 0;
}

static void groups_come_and_go(void **state)
{
  on_ranks(4, again_and_again);
}

static int gone_from_group(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_comm *g;
  EXPECT(manta_comm_split(c, rank / 2, 0, &g, &err) == MANTA_OK);
  if (rank == 3)
    return 0;
  EXPECT(manta_comm_barrier(g, &err) == (rank == 2 ? MANTA_EPEERLOST : MANTA_OK));
  EXPECT(rank != 2 || strstr(err.message, "rank 1 (3 of the run) has left"));
  return 0;
}

static void a_group_names_ranks_of_the_run(void **state)
{
  on_ranks(4, gone_from_group);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(several_operations_are_in_flight),
      cmocka_unit_test(every_collective_can_be_started),
      cmocka_unit_test(a_lost_peer_ends_what_is_in_flight),
      cmocka_unit_test(a_function_may_end_with_work_in_flight),
      cmocka_unit_test(started_operations_have_the_deadline_too),
      cmocka_unit_test(messages_arrive_whole_and_in_order),
      cmocka_unit_test(sends_may_cross),
      cmocka_unit_test(an_unequal_message_is_named),
      cmocka_unit_test(a_message_cut_short_stays_so),
      cmocka_unit_test(who_left_is_not_waited_for),
      cmocka_unit_test(groups_work_beside_each_other),
      cmocka_unit_test(freeing_waits_for_messages),
      cmocka_unit_test(groups_come_and_go),
      cmocka_unit_test(a_group_names_ranks_of_the_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
