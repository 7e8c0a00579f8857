/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank is killed, leaves or is stopped at its 1st, 2nd, 3rd … publication inside a call, until
 * the call gets through, for every way in which calls are done. The others end, in time and with
 * the right status, and whoever is told that all is well has the right data.
 *
 * A rank asks for the bell of each peer after it has published something: there the fault comes in,
 * on whatever thread that is.
 */
#include <sys/prctl.h>

#include "plain.h"
#include "sys/proc.h"

#define ROOM     (1400u << 10)
#define PATIENCE 60 // s: against hangs

enum fault { KILL, LEAVE, STOP };

struct outcome { // of a rank, for the test to judge
  _Atomic int status, after, later;
  _Atomic bool right, named, over;
};

struct note { // by all
  struct outcome rank[RANKS_MAX];
  _Atomic bool fired;
};

static struct note *note;
static manta_comm *comm;
static int victim, left_to_go, own_rank, ranks_n;
static enum fault fault;
static double timeout = -1;

struct path {
  const char *name;
  int n;
  manta_status (*run)(manta_comm *c, int rank, int n, bool *right);
  bool own;        // a communicator of its own
  const char *way; // that all-reduces are told to go, or NULL
};

// --- the fault ----------------------------------------------------------------------------------

static void ring_all(void)
{
  for (int r = 0; r < ranks_n; r++)
    if (r != own_rank)
      manta__bell_ring(comm->fabric->host.bell(comm->fabric->host.ctx, r));
}

static void leave(void)
{
  for (manta_comm *c = comm->fabric->comms; c; c = c->next)
    atomic_store(&c->team.line[c->rank].left, 1);
  ring_all();
  _exit(0);
}

// A rank that is stopped has rung for all before: else a peer may sleep beside what it waits for
// until its own deadline, and another name that one.
static void on_ring(int to)
{
  if (left_to_go <= 0 || (fault == STOP && to != (own_rank == ranks_n - 1 ? to : ranks_n - 1)))
    return;
  if (--left_to_go)
    return;
  atomic_store(&note->fired, true);
  if (fault == LEAVE)
    leave();
  if (fault == STOP)
    ring_all();
  raise(fault == KILL ? SIGKILL : SIGSTOP);
}

// --- the ways -----------------------------------------------------------------------------------

static manta_status collective(manta_comm *c, int rank, int n, struct plain p, size_t bytes,
                               bool *right)
{
  struct plain_bed b;
  manta_error err = MANTA_ERROR_INIT;
  p.type = MANTA_F32;
  p.op = MANTA_SUM;
  p.count = bytes / 4;
  p.seed = 7;
  for (int r = 0; r < n && p.call == MANTA__CALL_ALLGATHERV; r++)
    p.counts[r] = p.count / (size_t)(r + 1);
  *right = plain_open(&b, c, n, ROOM) == 0;
  plain_prepare(&b, &p, rank, n);
  left_to_go = rank == victim ? left_to_go : 0;
  manta_status st = plain_call(c, &p, &b, NULL, &err);
  left_to_go = 0;
  *right = *right && (st < 0 || plain_check(&b, &p, rank, n) == 0);
  char who[16];
  snprintf(who, sizeof who, "rank %d ", victim);
  note->rank[rank].named = st != MANTA_ETIMEDOUT || strstr(err.message, who);
  plain_close(&b, c);
  return st;
}

#define WAY(name, what, where, bytes)                                                              \
  static manta_status name(manta_comm *c, int rank, int n, bool *right)                            \
  {                                                                                                \
    struct plain p = {.call = MANTA__CALL_##what, .place = PLAIN_##where};                         \
    return collective(c, rank, n, p, bytes, right);                                                \
  }
WAY(barrier, BARRIER, PRIVATE, 0)
WAY(allreduce_tiny, ALLREDUCE, PRIVATE, 400)
WAY(allreduce_rides, ALLREDUCE, PRIVATE, 60000)
WAY(allreduce_pieces, ALLREDUCE, PRIVATE, 200000)
WAY(allreduce_parts, ALLREDUCE, PRIVATE, 1100000)
WAY(allreduce_remote, ALLREDUCE, PRIVATE, 1300000)
WAY(allreduce_heap, ALLREDUCE, HEAP, 100000)
WAY(allreduce_mixed, ALLREDUCE, MIXED, 30000)
WAY(reduce_tiny, REDUCE, PRIVATE, 100)
WAY(reduce_pieces, REDUCE, PRIVATE, 200000)
WAY(reduce_heap, REDUCE, HEAP, 200000)
WAY(reduce_scatter_rides, REDUCE_SCATTER, PRIVATE, 2000)
WAY(reduce_scatter_pieces, REDUCE_SCATTER, PRIVATE, 60000)
WAY(reduce_scatter_heap, REDUCE_SCATTER, HEAP, 60000)
WAY(broadcast_tiny, BROADCAST, PRIVATE, 100)
WAY(broadcast_pieces, BROADCAST, PRIVATE, 200000)
WAY(broadcast_heap, BROADCAST, HEAP, 200000)
WAY(allgather_tiny, ALLGATHER, PRIVATE, 100)
WAY(allgather_pieces, ALLGATHER, PRIVATE, 140000)
WAY(allgather_heap, ALLGATHER, HEAP, 60000)
WAY(allgatherv_pieces, ALLGATHERV, PRIVATE, 140000)
WAY(alltoall_rides, ALLTOALL, PRIVATE, 2000)
WAY(alltoall_pieces, ALLTOALL, PRIVATE, 60000)
WAY(alltoall_heap, ALLTOALL, HEAP, 60000)
WAY(gather_pieces, GATHER, PRIVATE, 140000)
WAY(gather_heap, GATHER, HEAP, 60000)
WAY(scatter_pieces, SCATTER, PRIVATE, 60000)
WAY(scatter_heap, SCATTER, HEAP, 60000)

// Three in flight, done by the lane's thread or by whoever waits.
static manta_status started(manta_comm *c, int rank, int n, bool *right)
{
  enum { WORKS = 3 };
  struct plain_bed b[WORKS];
  manta_work *w[WORKS];
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = MANTA_OK;
  *right = true;
  for (int i = 0; i < WORKS; i++)
    *right = *right && plain_open(&b[i], c, n, ROOM) == 0;
  left_to_go = rank == victim ? left_to_go : 0;
  for (int i = 0; i < WORKS; i++) {
    struct plain p = {.call = MANTA__CALL_ALLREDUCE, .type = MANTA_F32, .seed = (uint64_t)i};
    p.count = i == 1 ? 50000 : 100;
    plain_prepare(&b[i], &p, rank, n);
    if (plain_call(c, &p, &b[i], &w[i], &err) < 0)
      *right = false;
  }
  for (int i = 0; i < WORKS; i++) {
    struct plain p = {.call = MANTA__CALL_ALLREDUCE, .type = MANTA_F32, .seed = (uint64_t)i};
    p.count = i == 1 ? 50000 : 100;
    manta_status is = manta_work_wait(w[i], &err);
    *right = *right && (is < 0 || (st == MANTA_OK && plain_check(&b[i], &p, rank, n) == 0));
    st = st < 0 ? st : is;
  }
  left_to_go = 0;
  note->rank[rank].named = true;
  for (int i = 0; i < WORKS; i++)
    plain_close(&b[i], c);
  return st;
}

// Rank 0 to 1 to 2: what is received is sent on. More than the ring, or from its place.
static manta_status passed_on(manta_comm *c, int rank, int n, bool heap, bool *right)
{
  enum { COUNT = 50000 };
  struct plain p = {.type = MANTA_F32, .seed = 3};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = MANTA_OK;
  uint8_t *own = malloc(COUNT * 4), *want = malloc(COUNT * 4), *shared;
  *right = manta_shm_alloc(c, COUNT * 4, (void **)&shared, &err) == MANTA_OK;
  uint8_t *buf = heap ? shared : own;
  plain_data(want, &p, 0, 0, COUNT);
  memcpy(buf, want, rank == 0 ? COUNT * 4 : 0);
  left_to_go = rank == victim ? left_to_go : 0;
  if (rank > 0)
    st = manta_comm_recv(c, buf, COUNT, MANTA_F32, rank - 1, &err);
  *right = *right && (st < 0 || memcmp(buf, want, COUNT * 4) == 0);
  if (rank < n - 1 && st == MANTA_OK)
    st = manta_comm_send(c, buf, COUNT, MANTA_F32, rank + 1, &err);
  left_to_go = 0;
  note->rank[rank].named = true; // the one behind waits for the one before
  free(own);
  free(want);
  return st;
}

static manta_status message(manta_comm *c, int rank, int n, bool *right)
{
  return passed_on(c, rank, n, false, right);
}

static manta_status message_from_heap(manta_comm *c, int rank, int n, bool *right)
{
  return passed_on(c, rank, n, true, right);
}

static manta_status group(manta_comm *c, int rank, int n, bool *right)
{
  manta_comm *g = NULL;
  manta_error err = MANTA_ERROR_INIT;
  float x = (float)rank;
  int then = rank == victim ? left_to_go : 0;
  left_to_go = fault == LEAVE ? 0 : then; // nobody leaves its function inside a split
  manta_status st = manta_comm_split(c, 1, -rank, &g, &err);
  left_to_go = fault == LEAVE ? then : left_to_go;
  *right = st < 0 ? g == NULL : manta_comm_rank(g) == n - 1 - rank;
  if (st == MANTA_OK)
    st = manta_comm_allreduce(g, &x, &x, 1, MANTA_F32, MANTA_SUM, &err);
  left_to_go = 0;
  *right = *right && (st < 0 || x == (float)(n * (n - 1) / 2));
  note->rank[rank].named = true; // by its rank in the group
  manta_comm_free(g);
  return st;
}

// --- a run --------------------------------------------------------------------------------------

static const struct path *path;

static int rank_runs(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct outcome *o = &note->rank[rank];
  manta_error err = MANTA_ERROR_INIT;
  bool right = false;
  alarm(PATIENCE);
  comm = c;
  own_rank = rank;
  ranks_n = n;
  ranks_on_ring = rank == victim ? on_ring : NULL;
  manta_comm_set_timeout(c, timeout);
  o->status = path->run(c, rank, n, &right);
  left_to_go = 0;
  o->after = manta_comm_barrier(c, &err);
  o->later = o->after < 0 ? manta_comm_barrier(c, &err) : MANTA_OK;
  o->right = right;
  o->over = true;
  return 0;
}

static void end_of_stop(struct ranks *t)
{
  int status;
  for (int r = 0; r < t->n; r++)
    while (r != victim && !note->rank[r].over)
      usleep(200);
  // It said so before it stopped: on a busy machine all others may be done by then.
  assert_int_equal(waitpid(t->pid[victim], &status, WUNTRACED), t->pid[victim]);
  assert_true(WIFSTOPPED(status));
  manta__proc_signal(t->pid[victim], SIGCONT);
}

// True if the fault came: the call has more publications than k - 1.
static bool run_with_fault(int k)
{
  struct ranks t;
  memset(note, 0, sizeof *note);
  left_to_go = k;
  if (path->way)
    setenv("MANTA_COMM_WAY", path->way, 1);
  ranks_start(&t, path->n, rank_runs);
  unsetenv("MANTA_COMM_WAY");
  siginfo_t info;
  if (fault == KILL) { // as the agent does it
    waitid(P_PID, (id_t)t.pid[victim], &info, WEXITED | WNOWAIT);
    if (note->fired) {
      assert_int_equal(info.si_code, CLD_KILLED);
      ranks_abort(&t, victim);
    }
  } else if (fault == STOP) {
    while (!note->fired && !note->rank[victim].over)
      usleep(200);
    if (note->fired)
      end_of_stop(&t);
  }
  if (ranks_end(&t) != 0)
    fail_msg("%s: a rank crashed or hung, publication %d", path->name, k);
  return note->fired;
}

static bool is_well(const struct outcome *o, bool fired)
{
  if (!fired)
    return o->right && o->status == MANTA_OK && o->after == MANTA_OK;
  if (!o->right || !o->over || !o->named)
    return false;
  if (fault != STOP)
    return o->after == MANTA_EPEERLOST && (o->status == MANTA_OK || o->status == MANTA_EPEERLOST) &&
           o->later == MANTA_EPEERLOST;
  if (o->after == MANTA_ESTATE) // the deadline passed in the call itself
    return o->status == MANTA_ETIMEDOUT;
  return (o->status == MANTA_OK || path->own) && o->after == MANTA_ETIMEDOUT &&
         o->later == MANTA_ESTATE;
}

static bool all_well(void)
{
  bool well = true;
  for (int r = 0; r < path->n; r++)
    if (r == victim && note->fired)
      well = well && (fault != STOP || note->rank[r].right);
    else
      well = well && is_well(&note->rank[r], note->fired);
  return well;
}

static void complain(int k)
{
  for (int r = 0; r < path->n; r++) {
    struct outcome *o = &note->rank[r];
    fprintf(stderr, "# %s, fault %d of rank %d at %d (%s): rank %d %s, then %s, %s; %s%s\n",
            path->name, (int)fault, victim, k, note->fired ? "fired" : "not fired", r,
            manta_status_name(o->status), manta_status_name(o->after), manta_status_name(o->later),
            o->right ? "right" : "WRONG", o->named ? "" : ", another named");
  }
  fail_msg("%s", path->name);
}

// A deadline may pass because the machine is busy: once more then, with a longer one.
static bool run_one(int k)
{
  static const double patience[] = {0.03, 0.3, 3};
  for (int i = 0;; i++) {
    timeout = fault == STOP ? patience[i] : -1;
    bool fired = run_with_fault(k);
    if (all_well())
      return fired;
    if (fault != STOP || i == 2)
      complain(k);
  }
}

static const struct path paths[] = {
    {"barrier", 3, barrier},
    {"allreduce tiny", 3, allreduce_tiny},
    {"allreduce rides", 3, allreduce_rides},
    {"allreduce pieces", 3, allreduce_pieces},
    {"allreduce parts", 4, allreduce_parts},
    {"allreduce heap", 4, allreduce_heap},
    {"allreduce mixed", 3, allreduce_mixed},
    {"reduce tiny", 3, reduce_tiny},
    {"reduce pieces", 3, reduce_pieces},
    {"reduce heap", 3, reduce_heap},
    {"reduce_scatter rides", 3, reduce_scatter_rides},
    {"reduce_scatter pieces", 3, reduce_scatter_pieces},
    {"reduce_scatter heap", 3, reduce_scatter_heap},
    {"broadcast tiny", 3, broadcast_tiny},
    {"broadcast pieces", 3, broadcast_pieces},
    {"broadcast heap", 3, broadcast_heap},
    {"allgather tiny", 3, allgather_tiny},
    {"allgather pieces", 3, allgather_pieces},
    {"allgather heap", 3, allgather_heap},
    {"allgatherv pieces", 3, allgatherv_pieces},
    {"alltoall rides", 3, alltoall_rides},
    {"alltoall pieces", 3, alltoall_pieces},
    {"alltoall heap", 3, alltoall_heap},
    {"gather pieces", 3, gather_pieces},
    {"gather heap", 3, gather_heap},
    {"scatter pieces", 3, scatter_pieces},
    {"scatter heap", 3, scatter_heap},
    {"started", 3, started},
    {"message", 3, message},
    {"message from heap", 3, message_from_heap},
    {"group", 3, group, true},
    {"allreduce pieces past the caches", 3, allreduce_pieces, .way = "past"},
    {"allreduce parts past the caches", 4, allreduce_parts, .way = "past"},
    {"allreduce remote", 3, allreduce_remote, .way = "remote"},
    {"allreduce remote of two", 2, allreduce_remote, .way = "remote"},
};
#define PATHS (sizeof paths / sizeof *paths)

// At least one fault must have come, and at last none: so every publication was met.
static void at_every_publication(enum fault what)
{
  int fired = 0;
  fault = what;
  for (size_t i = 0; i < PATHS; i++) {
    path = &paths[i];
    victim = (int)i % path->n;
    int k = 1;
    while (run_one(k)) {
      assert_true(k < 100);
      k++;
    }
    if (k == 1)
      fail_msg("%s: the fault never came", path->name);
    fired += k - 1;
  }
  print_message("# %d faults\n", fired);
}

static void a_rank_is_killed(void **state)
{
  at_every_publication(KILL);
}

static void a_rank_leaves(void **state)
{
  at_every_publication(LEAVE);
}

static void a_rank_stands_still(void **state)
{
  at_every_publication(STOP);
}

// --- slow ones ----------------------------------------------------------------------------------

static _Atomic int64_t *go_on, *rung;

// Between its publication and all that comes behind it a rank may stand for as long as it likes.
static void hold(int to)
{
  ranks_on_ring = NULL;
  atomic_store(rung, 1);
  while (!atomic_load(go_on))
    usleep(100);
}

static void hold_in(struct shared *sh)
{
  go_on = &sh->note[0];
  rung = &sh->note[1];
  ranks_on_ring = hold;
}

static void await(_Atomic int64_t *word)
{
  while (!atomic_load(word))
    usleep(100);
}

// A call of two, rank 1 of which stands in it until it may go on.
static bool add_held(manta_comm *c, int rank, struct shared *sh)
{
  float x = (float)(rank + 1);
  if (rank == 1)
    hold_in(sh);
  else
    await(&sh->note[1]); // it is held before it rings: nobody may sleep for it
  return manta_comm_allreduce(c, &x, &x, 1, MANTA_F32, MANTA_SUM, NULL) == MANTA_OK && x == 3;
}

// Rank 0 makes many more calls, all of which fail; rank 1 is still in the first.
static int overtaken(manta_comm *c, int rank, int n, struct shared *sh)
{
  static float many[15000];
  manta_error err = MANTA_ERROR_INIT;
  alarm(PATIENCE);
  EXPECT(add_held(c, rank, sh));
  if (rank == 1)
    return 0;
  atomic_store(&sh->abort, 8);
  for (int i = 0; i < 100; i++) {
    manta_status st =
        manta_comm_allreduce(c, many, many, i % 3 ? 1 : 15000, MANTA_F32, MANTA_SUM, &err);
    EXPECT(st == MANTA_EPEERLOST && strstr(err.message, "rank 7"));
  }
  atomic_store(&sh->note[0], 1);
  return 0;
}

static void a_slow_rank_is_not_overtaken(void **state)
{
  on_ranks(2, overtaken);
}

// Rank 0 leaves with calls in its lane.
static int left_behind(manta_comm *c, int rank, int n, struct shared *sh)
{
  static float y[8] = {5, 5, 5, 5, 5, 5, 5, 5};
  manta_error err = MANTA_ERROR_INIT;
  manta_work *w;
  alarm(PATIENCE);
  EXPECT(add_held(c, rank, sh));
  if (rank == 1)
    return 0;
  for (int i = 0; i < 8; i++)
    EXPECT(manta_comm_allreduce_start(c, &y[i], &y[i], 1, MANTA_F32, MANTA_SUM, &w, &err) == 0);
  manta__team_quit(&c->team);
  for (manta_work *i = c->all; i; i = i->next_all)
    while (!manta_work_test(i))
      usleep(100);
  atomic_store(&sh->note[0], 1);
  return 0;
}

static void who_leaves_overtakes_nobody(void **state)
{
  on_ranks(2, left_behind);
}

enum { ONES = 20000 };

// In shared memory; NULL if there is none.
static float *ones(manta_comm *c)
{
  float *x;
  if (manta_shm_alloc(c, ONES * sizeof *x, (void **)&x, NULL) != MANTA_OK)
    return NULL;
  for (int i = 0; i < ONES; i++)
    x[i] = 1;
  return x;
}

// Rank 0 gives up and uses its shared memory for something else, while rank 1 reads it.
static int pulled_away(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  alarm(PATIENCE);
  float *x = ones(c);
  EXPECT(x);
  if (rank == 1) {
    hold_in(sh);
    EXPECT(manta_comm_allreduce(c, x, x, ONES, MANTA_F32, MANTA_SUM, &err) == MANTA_EPEERLOST);
    return 0;
  }
  await(&sh->note[1]); // it has published that it is here
  manta_comm_set_timeout(c, 0.02);
  EXPECT(manta_comm_allreduce(c, x, x, ONES, MANTA_F32, MANTA_SUM, &err) == MANTA_ETIMEDOUT);
  memset(x, 0x77, ONES * sizeof *x);
  float *y, *z = x;
  manta_shm_free(c, z); // not dealt out again: rank 1 may write there
  EXPECT(manta_shm_alloc(c, ONES * sizeof *x, (void **)&y, &err) == MANTA_OK && y != z);
  atomic_store(&sh->note[0], 1);
  await(&sh->note[3]);
  return 0;
}

static int pulled_away_in_step(manta_comm *c, int rank, int n, struct shared *sh)
{
  int line = pulled_away(c, rank, n, sh);
  atomic_store(&sh->note[3], 1);
  return line;
}

static void memory_of_who_gave_up_is_not_trusted(void **state)
{
  on_ranks(2, pulled_away_in_step);
}

// The same with a message out of shared memory.
static int pulled_back(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  alarm(PATIENCE);
  float *x = ones(c);
  EXPECT(x);
  if (rank == 0) {
    manta_comm_set_timeout(c, 0.02);
    EXPECT(manta_comm_send(c, x, ONES, MANTA_F32, 1, &err) == MANTA_ETIMEDOUT);
    memset(x, 0x77, ONES * sizeof *x);
    atomic_store(&sh->note[0], 1);
    await(&sh->note[3]);
    return 0;
  }
  await(&sh->note[0]);
  manta_status st = manta_comm_recv(c, x, ONES, MANTA_F32, 0, &err);
  atomic_store(&sh->note[3], 1);
  EXPECT(st == MANTA_EPEERLOST && strstr(err.message, "recv: rank 0 has given up"));
  return 0;
}

static void a_message_that_was_given_up_is_not_taken(void **state)
{
  on_ranks(2, pulled_back);
}

// A rank that has no memory for its part of a group leaves nobody waiting for it there.
static int without_memory(manta_comm *c, int rank, int n, struct shared *sh)
{
  manta_error err = MANTA_ERROR_INIT;
  alarm(PATIENCE);
  for (int k = 3;; k++) { // behind the three lists of the split itself
    manta_comm *g;
    if (rank == 1)
      manta__alloc_fail_after(k);
    manta_status st = manta_comm_split(c, 0, 0, &g, &err);
    manta__alloc_fail_after(-1);
    EXPECT(rank == 1 ? st == MANTA_OK || st == MANTA_ENOMEM : st == MANTA_OK);
    int64_t here = st == MANTA_OK;
    if (here)
      EXPECT(manta_comm_barrier(g, &err) == MANTA_OK || strstr(err.message, "rank 1 has left"));
    manta_comm_free(g);
    EXPECT(manta_comm_allreduce(c, &here, &here, 1, MANTA_I64, MANTA_MIN, &err) == MANTA_OK);
    if (here) {
      EXPECT(k > 3);
      return 0;
    }
  }
}

static void a_group_does_not_wait_for_who_has_no_memory(void **state)
{
  on_ranks(3, without_memory);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_is_killed),
      cmocka_unit_test(a_rank_leaves),
      cmocka_unit_test(a_rank_stands_still),
      cmocka_unit_test(a_slow_rank_is_not_overtaken),
      cmocka_unit_test(who_leaves_overtakes_nobody),
      cmocka_unit_test(memory_of_who_gave_up_is_not_trusted),
      cmocka_unit_test(a_message_that_was_given_up_is_not_taken),
      cmocka_unit_test(a_group_does_not_wait_for_who_has_no_memory),
  };
  note = mmap(NULL, sizeof *note, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
