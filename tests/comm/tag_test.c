/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages with tags, from anybody; groups that only their members make.
 */
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "sys/proc.h"

static int value(int from, int tag, size_t i)
{
  return from * 1000 + tag * 10 + (int)(i % 7);
}

static void fill(int *buf, size_t n, int from, int tag)
{
  for (size_t i = 0; i < n; i++)
    buf[i] = value(from, tag, i);
}

static bool is_of(const int *buf, size_t n, int from, int tag)
{
  for (size_t i = 0; i < n; i++)
    if (buf[i] != value(from, tag, i))
      return false;
  return true;
}

// --- tags ---------------------------------------------------------------------------------------

#define MANY 6
static const size_t lengths[MANY] = {1, 300000, 0, 40, 9000, 70000};

static int backwards(manta_comm *c, int rank, int n, struct shared *sh)
{
  static int buf[MANY][300000];
  int from = 0;
  manta_work *w[MANY];
  for (int i = 0; i < MANY && rank == 0; i++) {
    fill(buf[i], lengths[i], 0, i);
    EXPECT(manta_comm_send_tagged_start(c, buf[i], lengths[i], MANTA_I32, 1, i, &w[i], NULL) == 0);
  }
  for (int i = MANY - 1; i >= 0; i--) {
    if (rank == 0) {
      EXPECT(manta_work_wait(w[i], NULL) == 0);
      continue;
    }
    EXPECT(manta_comm_recv_tagged(c, buf[i], lengths[i], MANTA_I32, &from, i, NULL) == 0);
    EXPECT(is_of(buf[i], lengths[i], 0, i));
  }
  EXPECT(manta_comm_barrier(c, NULL) == 0); // nothing is left over in the channel
  return 0;
}

// Those of one tag stay in order, whatever was put aside between them.
static int in_order(manta_comm *c, int rank, int n, struct shared *sh)
{
  enum { ROUNDS = 200 };
  int x, from;
  for (int i = 0; i < ROUNDS && rank == 0; i++)
    for (int tag = 0; tag < 3; tag++) {
      x = i * 3 + tag;
      EXPECT(manta_comm_send_tagged(c, &x, 1, MANTA_I32, 1, tag, NULL) == 0);
    }
  for (int tag = 2; tag >= 0 && rank == 1; tag--)
    for (int i = 0; i < ROUNDS; i++) {
      from = 0;
      EXPECT(manta_comm_recv_tagged(c, &x, 1, MANTA_I32, &from, tag, NULL) == 0);
      EXPECT(x == i * 3 + tag);
    }
  return 0;
}

// A message with another tag can come between the look at what to put aside and the step. If its
// sender has left meanwhile, what it has sent behind that one is there.
static int behind_another(manta_comm *c, int rank, int n, struct shared *sh)
{
  int x = 2, from = 0;
  for (int tag = 1; tag <= 2 && rank == 0; tag++)
    EXPECT(manta_comm_send_tagged(c, &x, 1, MANTA_I32, 1, tag, NULL) == 0);
  if (rank == 0)
    return 0;
  while (!atomic_load(&c->team.line[0].left))
    usleep(500);
  manta_status st = MANTA_OK;
  struct manta__move m = {.tag = 2,
                          .buf = (uint8_t *)&x,
                          .bytes = sizeof x,
                          .count = 1,
                          .type = MANTA_I32,
                          .by = MANTA__NEVER};
  EXPECT(!manta__pair_step(&c->team, &m, &st, NULL) && st == MANTA_OK);
  for (int tag = 2; tag >= 1; tag--)
    EXPECT(manta_comm_recv_tagged(c, &x, 1, MANTA_I32, &from, tag, NULL) == 0);
  EXPECT(manta_comm_recv_tagged(c, &x, 1, MANTA_I32, &from, 2, NULL) == MANTA_EPEERLOST);
  return 0;
}

static int from_anybody(manta_comm *c, int rank, int n, struct shared *sh)
{
  static int buf[50000];
  int seen = 0;
  const size_t len = sizeof buf / sizeof *buf;
  if (rank > 0) {
    fill(buf, len, rank, 9);
    EXPECT(manta_comm_send_tagged(c, buf, 3, MANTA_I32, 0, 8, NULL) == 0);
    EXPECT(manta_comm_send_tagged(c, buf, len, MANTA_I32, 0, 9, NULL) == 0);
  }
  for (int i = 1; i < n && rank == 0; i++) {
    int from = -1;
    EXPECT(manta_comm_recv_tagged(c, buf, len, MANTA_I32, &from, 9, NULL) == 0);
    EXPECT(from > 0 && from < n && !(seen >> from & 1) && is_of(buf, len, from, 9));
    seen |= 1 << from;
  }
  for (int i = 1; i < n && rank == 0; i++) { // what was put aside is there, too
    int from = -1;
    manta_work *w;
    EXPECT(manta_comm_recv_tagged_start(c, buf, 3, MANTA_I32, &from, 8, &w, NULL) == 0);
    EXPECT(manta_work_wait(w, NULL) == 0);
    EXPECT(is_of(buf, 3, from, 9) && seen >> from & 1);
    seen &= ~(1 << from);
  }
  return rank == 0 && seen ? __LINE__ : 0;
}

static int wrong_things(manta_comm *c, int rank, int n, struct shared *sh)
{
  int x = 0, from = -1, self = rank;
  double y = 0;
  manta_error err = MANTA_ERROR_INIT;
  EXPECT(manta_comm_send_tagged(c, &x, 1, MANTA_I32, !rank, -1, NULL) == MANTA_EINVAL);
  EXPECT(manta_comm_send_tagged(c, &x, 1, MANTA_I32, !rank, MANTA_TAG_MAX + 1, NULL) ==
         MANTA_EINVAL);
  EXPECT(manta_comm_send_tagged(c, &x, 1, MANTA_I32, -1, 1, NULL) == MANTA_EINVAL);
  EXPECT(manta_comm_recv_tagged(c, &x, 1, MANTA_I32, &self, 1, NULL) == MANTA_EINVAL);
  if (rank == 0) {
    EXPECT(manta_comm_send_tagged(c, &x, 1, MANTA_I32, 1, 2, NULL) == 0);
    EXPECT(manta_comm_send_tagged(c, &x, 1, MANTA_I32, 1, 3, NULL) == 0);
    return 0;
  }
  from = 0;
  EXPECT(manta_comm_recv_tagged(c, &x, 1, MANTA_I32, &from, 3, NULL) == 0);
  EXPECT(manta_comm_recv_tagged(c, &y, 1, MANTA_F64, &from, 2, &err) == MANTA_EINVAL);
  EXPECT(strstr(err.message, "rank 0 sends 1 I32"));
  from = -1; // nobody is left who could send
  EXPECT(manta_comm_recv_tagged(c, &x, 1, MANTA_I32, &from, 5, &err) == MANTA_EPEERLOST);
  return 0;
}

static int waits_for_ever(manta_comm *c, int rank, int n, struct shared *sh)
{
  int x, from = -1;
  sh->note[rank] = 1;
  manta_status st = manta_comm_recv_tagged(c, &x, 1, MANTA_I32, &from, 1, NULL);
  return st == MANTA_EPEERLOST ? 0 : __LINE__;
}

static int canceled(manta_comm *c, int rank, int n, struct shared *sh)
{
  static float x[100000];
  int y, from = !rank;
  manta_work *a = NULL, *b = NULL;
  if (rank == 0) { // the other never comes
    EXPECT(manta_comm_allreduce_start(c, x, x, 100000, MANTA_F32, MANTA_SUM, &a, NULL) == 0);
    EXPECT(manta_comm_recv_tagged_start(c, &y, 1, MANTA_I32, &from, 1, &b, NULL) == 0);
    manta_comm_cancel(c);
    EXPECT(manta_work_wait(a, NULL) == MANTA_ECANCELED);
    EXPECT(manta_work_wait(b, NULL) == MANTA_ECANCELED);
    EXPECT(manta_comm_barrier(c, NULL) == MANTA_ECANCELED);
    sh->note[0] = 1;
  }
  while (!sh->note[0])
    usleep(500);
  return 0;
}

static void check(int n, rank_fn fn)
{
  struct ranks t;
  ranks_start(&t, n, fn);
  assert_int_equal(ranks_end(&t), 0);
}

static void a_tag_finds_its_message(void **state)
{
  check(2, backwards);
  check(2, in_order);
}

static void what_was_sent_before_leaving_comes(void **state)
{
  check(2, behind_another);
}

static void any_rank_will_do(void **state)
{
  check(2, from_anybody);
  check(4, from_anybody);
}

static void what_is_wrong_is_said(void **state)
{
  check(2, wrong_things);
}

static void a_loss_ends_a_wait_for_anybody(void **state)
{
  struct ranks t;
  ranks_start(&t, 3, waits_for_ever);
  for (int r = 0; r < 3; r++)
    while (!t.shared->note[r])
      usleep(500);
  manta__proc_signal(t.pid[2], SIGKILL);
  ranks_abort(&t, 2);
  assert_int_equal(ranks_end(&t), 0);
}

static void what_is_in_flight_can_be_canceled(void **state)
{
  check(2, canceled);
}

// --- groups -------------------------------------------------------------------------------------

static int sum_in(manta_comm *g, int mine)
{
  int x = mine;
  return manta_comm_allreduce(g, &x, &x, 1, MANTA_I32, MANTA_SUM, NULL) == 0 ? x : -1;
}

// A receive is in flight, the others are in a collective of all or not there at all.
static int only_members(manta_comm *c, int rank, int n, struct shared *sh)
{
  const int ends[2] = {3, 0}, middle[2] = {1, 2}, three[3] = {0, 1, 3};
  manta_comm *g = NULL, *h = NULL;
  manta_work *w = NULL;
  int x = 0;
  if (rank == 0)
    EXPECT(manta_comm_recv_start(c, &x, 1, MANTA_I32, 3, &w, NULL) == 0);
  bool outer = rank == 0 || rank == 3;
  EXPECT(manta_comm_group(c, outer ? ends : middle, 2, &g, NULL) == 0);
  EXPECT(manta_comm_rank(g) == (outer ? rank == 0 : rank - 1) && manta_comm_size(g) == 2);
  EXPECT(sum_in(g, rank) == 3);
  if (rank != 2) {
    EXPECT(manta_comm_group(c, three, 3, &h, NULL) == 0);
    EXPECT(sum_in(h, rank) == 4);
  }
  if (rank == 3) {
    x = 77;
    EXPECT(manta_comm_send(c, &x, 1, MANTA_I32, 0, NULL) == 0);
  }
  EXPECT(rank != 0 || (manta_work_wait(w, NULL) == 0 && x == 77));
  manta_comm_free(g);
  manta_comm_free(h);
  EXPECT(sum_in(c, rank) == 6);
  return 0;
}

// Memory comes back: far more groups than there is room for at once.
static int again_and_again(manta_comm *c, int rank, int n, struct shared *sh)
{
  const int all[2] = {0, 1};
  for (int i = 0; i < 200; i++) {
    manta_comm *g;
    EXPECT(manta_comm_group(c, all, 2, &g, NULL) == 0);
    EXPECT(sum_in(g, i) == 2 * i);
    manta_comm_free(g);
  }
  return 0;
}

static int wrong_lists(manta_comm *c, int rank, int n, struct shared *sh)
{
  const int twice[2] = {0, 0}, far[2] = {0, 9}, other[1] = {!rank}, self[1] = {rank};
  manta_comm *g;
  EXPECT(manta_comm_group(c, twice, 2, &g, NULL) == MANTA_EINVAL && !g);
  EXPECT(manta_comm_group(c, far, 2, &g, NULL) == MANTA_EINVAL);
  EXPECT(manta_comm_group(c, other, 1, &g, NULL) == MANTA_EINVAL);
  EXPECT(manta_comm_group(c, self, 0, &g, NULL) == MANTA_EINVAL);
  EXPECT(manta_comm_group(c, self, 1, &g, NULL) == 0 && sum_in(g, 5) == 5);
  return 0;
}

static void members_make_a_group(void **state)
{
  check(4, only_members);
  check(2, again_and_again);
  check(2, wrong_lists);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tag_finds_its_message),
      cmocka_unit_test(what_was_sent_before_leaving_comes),
      cmocka_unit_test(any_rank_will_do),
      cmocka_unit_test(what_is_wrong_is_said),
      cmocka_unit_test(a_loss_ends_a_wait_for_anybody),
      cmocka_unit_test(what_is_in_flight_can_be_canceled),
      cmocka_unit_test(members_make_a_group),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
