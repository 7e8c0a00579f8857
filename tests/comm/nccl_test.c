/* SPDX-License-Identifier: Apache-2.0
 *
 * The module libmanta-nccl.so against stand-ins for CUDA and NCCL (tests/comm/fake).
 */
#include "comm/device_comm.h"
#include "comm/nccl/nccl.h"

/* The module's own files are also linked in, so that their allocations can be made to fail. */
extern const struct manta__device_ops *const linked_device_entry;

static char place[4096];

// --- before there is a GPU ----------------------------------------------------------------------

static void test_numbers_are_those_of_the_library(void **state)
{
  assert_int_equal(sizeof(struct nccl_id), 128);
  assert_int_equal(sizeof(struct nccl_config), 24);
  assert_int_equal(offsetof(struct nccl_config, magic), 8);
  assert_int_equal(offsetof(struct nccl_config, version), 12);
  assert_int_equal(NCCL_BF16, 9);
  assert_int_equal(NCCL_AVG, 4);
  assert_true(NCCL_OLDEST < NCCL_CODE(2, 17, 0)); // else its config has more fields
}

static void test_without_cuda_nothing_is_device_memory(void **state)
{
  int gpu = -1, on_stack;
  assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
  assert_false(manta__device_owns(&on_stack, &gpu));
  assert_false(manta__device_owns(NULL, &gpu));
  assert_int_equal(gpu, -1);
  assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
}

static void test_the_module_loads(void **state)
{
  const struct manta__device_ops *ops = NULL, *again = NULL;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__device_load(&ops, &err), &err);
  assert_ok(manta__device_load(&again, &err), &err);
  assert_ptr_equal(ops, again);
  assert_string_equal(ops->name, "nccl");
  assert_int_equal(ops->abi, MANTA__DEVICE_ABI);
  assert_true(ops != linked_device_entry); // the one in the file
}

/* In a process that has no libcuda: one rank, which says so. */
static int without_driver(struct rank *t)
{
  struct manta__device *d = NULL;
  EXPECT(make(t, &d) == MANTA_EUNSUPPORTED);
  EXPECT(strstr(t->err.message, "rank 0: libcuda.so.1") && !d);
  return 0;
}

static void test_without_cuda_it_says_so(void **state)
{
  if (dlopen("libcuda.so.1", RTLD_LAZY))
    skip_because("this machine has CUDA's driver");
  static struct board board;
  struct rank t;
  prepare_rank(&t, &board, 0, 1);
  assert_ok(manta__device_load(&t.ops, &t.err), &t.err);
  assert_int_equal(without_driver(&t), 0);
}

// --- libraries that do not fit ------------------------------------------------------------------

static int knows_its_memory(struct rank *t)
{
  int gpu = -1, on_stack = 0;
  uint8_t *at = on_device(t, NULL, 16);
  EXPECT(manta__device_owns(at, &gpu) && gpu == 0);
  EXPECT(manta__device_owns(at + 15, &gpu));
  EXPECT(!manta__device_owns(&on_stack, &gpu) && !manta__device_owns(NULL, &gpu));
  off_device(t, at);
  EXPECT(!manta__device_owns(at, &gpu));
  return 0;
}

static void test_device_memory_is_known(void **state)
{
  on_ranks(1, knows_its_memory);
}

static int no_library(struct rank *t)
{
  struct manta__device *d = NULL;
  if (t->rank == 1)
    setenv("MANTA_NCCL", "/nowhere/libnccl.so.2", 1);
  EXPECT(make(t, &d) == MANTA_EUNSUPPORTED && !d);
  EXPECT(strstr(t->err.message, "rank 1: /nowhere/libnccl.so.2"));
  EXPECT(strstr(t->err.message, "MANTA_NCCL"));
  EXPECT(t->nccl->inits == 0 && t->cuda->streams == 0 && t->cuda->events == 0);
  unsetenv("MANTA_NCCL"); // now it is found among the libraries that are loaded
  EXPECT_OK(make(t, &d));
  EXPECT(sums_one(t, d));
  t->ops->destroy(d);
  return 0;
}

static void test_one_rank_without_nccl_stops_all(void **state)
{
  on_ranks(3, no_library);
}

static int another_library(struct rank *t)
{
  struct manta__device *d = NULL;
  setenv("MANTA_NCCL", "libcuda.so.1", 1);
  EXPECT(make(t, &d) == MANTA_EUNSUPPORTED);
  EXPECT(strstr(t->err.message, "is not NCCL: it lacks ncclGetVersion"));
  return 0;
}

static void test_a_library_that_is_not_nccl(void **state)
{
  on_ranks(1, another_library);
}

static int old_library(struct rank *t)
{
  struct manta__device *d = NULL;
  t->nccl->code = 2804;
  EXPECT(make(t, &d) == MANTA_EUNSUPPORTED);
  EXPECT(strstr(t->err.message, "version 2804") && strstr(t->err.message, "21400"));
  t->nccl->code = NCCL_OLDEST;
  EXPECT_OK(make(t, &d));
  t->ops->destroy(d);
  return 0;
}

static void test_a_version_that_is_too_old(void **state)
{
  on_ranks(1, old_library);
}

static int mixed_libraries(struct rank *t)
{
  struct manta__device *d = NULL;
  t->nccl->code = t->rank == 1 ? 22005 : 22809;
  EXPECT(make(t, &d) == MANTA_EUNSUPPORTED);
  EXPECT(strstr(t->err.message, "rank 0 22809, rank 1 22005"));
  EXPECT(t->nccl->inits == 0);
  return 0;
}

static void test_versions_that_differ(void **state)
{
  on_ranks(2, mixed_libraries);
}

// --- what it does -------------------------------------------------------------------------------

static int slowly(struct rank *t, rank_fn fn)
{
  t->nccl->polls = 3;
  return fn(t);
}

static int slow_sums(struct rank *t)
{
  return slowly(t, case_sums);
}

static int slow_moves(struct rank *t)
{
  return slowly(t, case_moves);
}

static int slow_flight(struct rank *t)
{
  return slowly(t, case_flight);
}

static void test_public_calls(void **state)
{
  through_the_public_calls(3);
}

static void test_sums(void **state)
{
  for (int n = 1; n <= 4; n++)
    on_ranks(n, case_sums);
  on_ranks(3, slow_sums);
}

static void test_moves(void **state)
{
  for (int n = 1; n <= 4; n++)
    on_ranks(n, case_moves);
  on_ranks(3, slow_moves);
}

static void test_in_place(void **state)
{
  on_ranks(1, case_in_place);
  on_ranks(4, case_in_place);
}

static void test_many_in_flight(void **state)
{
  on_ranks(1, case_flight);
  on_ranks(3, case_flight);
  on_ranks(2, slow_flight);
}

static int leaves_nothing(struct rank *t)
{
  int line = case_again(t);
  EXPECT(t->nccl->inits == 5 && t->nccl->destroys == 5 && t->nccl->finalizes == 5);
  EXPECT(t->nccl->aborts == 0);
  EXPECT(t->cuda->streams == 0 && t->cuda->events == 0 && t->cuda->blocks == 0);
  EXPECT(t->cuda->contexts == 1); // the test's own
  return line;
}

static void test_create_and_destroy(void **state)
{
  on_ranks(1, leaves_nothing);
  on_ranks(3, leaves_nothing);
}

static int refuses(struct rank *t)
{
  struct manta__device *d;
  size_t counts[] = {SIZE_MAX / 4, SIZE_MAX / 4};
  uint64_t ticket = 0;
  void *at = on_device(t, NULL, 64), *to = on_device(t, NULL, 64);
  EXPECT_OK(make(t, &d));
  const struct {
    struct manta__task call;
    manta_status want;
    const char *message;
  } rows[] = {
      {CALL(ALLREDUCE, .type = MANTA_I16, .count = 1), MANTA_ETYPE, "I16"},
      {CALL(REDUCE, .type = MANTA_U16, .count = 1), MANTA_ETYPE, "U16"},
      {CALL(ALLREDUCE, .type = MANTA_BOOL8, .op = MANTA_SUM), MANTA_ETYPE, "BOOL"},
      {CALL(ALLREDUCE, .type = MANTA_F32, .op = (manta_op)9), MANTA_EINVAL, "operation 9"},
      {CALL(ALLREDUCE, .type = MANTA_DTYPE_COUNT), MANTA_EINVAL, "type 13"},
      {CALL(BROADCAST, .type = MANTA_F32, .root = 2), MANTA_EINVAL, "no rank 2 among 2"},
      {CALL(SEND, .type = MANTA_F32, .root = -1), MANTA_EINVAL, "no rank -1"},
      {CALL(ALLGATHER, .type = MANTA_F32, .count = SIZE_MAX / 4), MANTA_EINVAL, "more elements"},
      {CALL(ALLGATHERV, .type = MANTA_F32, .counts = counts), MANTA_EINVAL, "more elements"},
      {CALL(ALLTOALL, .type = MANTA_F32, .send = at, .recv = at), MANTA_EINVAL,
       "cannot be in place"},
      {(struct manta__task){0}, MANTA_EINVAL, "operation 0"},
      {(struct manta__task){.call = (enum manta__call)99}, MANTA_EINVAL, "99"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    EXPECT(t->ops->start(d, &rows[i].call, soon(), &ticket, &t->err) == rows[i].want);
    EXPECT(strstr(t->err.message, rows[i].message) && ticket == 0);
  }
  EXPECT_OK(done(
      t, d,
      CALL(ALLREDUCE, .send = at, .recv = to, .type = MANTA_BOOL8, .count = 8, .op = MANTA_MAX)));
  EXPECT(sums_one(t, d)); // it did no harm
  t->ops->destroy(d);
  off_device(t, at);
  off_device(t, to);
  return 0;
}

static void test_calls_that_make_no_sense(void **state)
{
  on_ranks(2, refuses);
}

// --- streams ------------------------------------------------------------------------------------

/* A kernel is still writing the buffer when the sum is asked for. */
static int follows_kernels(struct rank *t)
{
  struct manta__device *d;
  struct cu_stream *mine;
  int (*create)(struct cu_stream **, unsigned);
  uint8_t host[16];
  uint8_t *at = on_device(t, memset(host, 0, 16), 16);
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT(bind(lib, "cuStreamCreate", &create) && create(&mine, 1) == 0);
  EXPECT_OK(make(t, &d));
  struct cu_stream *streams[] = {NULL, mine, NULL};
  for (size_t i = 0; i < 3; i++) { // the default, one that was set, the default again
    t->ops->set_stream(d, streams[i]);
    t->fill_later(streams[i], at, (int)i + 1, 16, 20);
    EXPECT_OK(done(t, d, CALL(ALLREDUCE, .send = at, .recv = at, .count = 16, .type = MANTA_U8)));
    fetch(t, host, at, 16);
    EXPECT(host[0] == (i + 1) * (size_t)t->n && host[15] == host[0]);
  }
  t->ops->destroy(d);
  off_device(t, at);
  return 0;
}

static void test_it_comes_after_the_kernels(void **state)
{
  on_ranks(2, follows_kernels);
}

/* A peer that comes late: the wait sleeps, tells that it does, and ends. */
static int waits_for_the_late(struct rank *t)
{
  struct manta__device *d;
  uint64_t ticket;
  float x = 1, *at = on_device(t, &x, sizeof x);
  struct manta__task call = CALL(ALLREDUCE, .send = at, .recv = at, .count = 1, .type = MANTA_F32);
  EXPECT_OK(make(t, &d));
  t->alive[0] = t->alive[1] = 0;
  if (t->rank == 1)
    while (!atomic_load(&t->board->note[0]))
      usleep(1000);
  EXPECT_OK(t->ops->start(d, &call, soon(), &ticket, &t->err));
  if (t->rank == 0) {
    EXPECT(!t->ops->test(d, ticket));
    atomic_store(&t->board->note[0], 1);
    usleep(20000);
  }
  EXPECT_OK(t->ops->wait(d, ticket, soon(), &t->err));
  EXPECT(t->alive[0] == t->alive[1]); // whoever goes to sleep tells that it woke
  t->ops->destroy(d);
  off_device(t, at);
  return 0;
}

static void test_a_late_peer(void **state)
{
  on_ranks(2, waits_for_the_late);
}

// --- faults -------------------------------------------------------------------------------------

static void test_a_killed_peer(void **state)
{
  kill_one_of(2);
  kill_one_of(4);
}

/* Rank 1 does not come. */
static int runs_out_of_time(struct rank *t)
{
  struct manta__device *d;
  uint64_t ticket = 0;
  float *at = on_device(t, NULL, sizeof *at);
  struct manta__task call = CALL(ALLREDUCE, .send = at, .recv = at, .count = 1, .type = MANTA_F32);
  EXPECT_OK(make(t, &d));
  if (t->rank == 0) {
    EXPECT_OK(t->ops->start(d, &call, soon(), &ticket, &t->err));
    EXPECT(t->ops->wait(d, ticket, manta__deadline(0.05), &t->err) == MANTA_ETIMEDOUT);
    EXPECT(strstr(t->err.message, "allreduce") && strstr(t->err.message, "rank 0 of 2"));
    EXPECT(t->nccl->aborts == 1);
    EXPECT(t->ops->wait(d, ticket, soon(), &t->err) == MANTA_ESTATE);
    EXPECT(t->ops->start(d, &call, soon(), &ticket, &t->err) == MANTA_ESTATE);
    atomic_store(&t->board->note[0], 1);
  }
  while (!atomic_load(&t->board->note[0]))
    usleep(1000);
  t->ops->destroy(d);
  EXPECT(t->nccl->aborts == (t->rank == 0) && t->cuda->streams == 0);
  off_device(t, at);
  return 0;
}

static void test_a_deadline(void **state)
{
  on_ranks(2, runs_out_of_time);
}

/* More are started than fit, and the peer does not come: start itself waits, and gives up. */
static int start_runs_out_of_time(struct rank *t)
{
  struct manta__device *d;
  uint64_t ticket = 0;
  float *at = on_device(t, NULL, sizeof *at);
  struct manta__task call = CALL(ALLREDUCE, .send = at, .recv = at, .count = 1, .type = MANTA_F32);
  EXPECT_OK(make(t, &d));
  for (int i = 0; t->rank == 0 && i < MANTA__DEVICE_FLIGHT; i++)
    EXPECT_OK(t->ops->start(d, &call, soon(), &ticket, &t->err));
  if (t->rank == 0)
    EXPECT(t->ops->start(d, &call, manta__deadline(0.05), &ticket, &t->err) == MANTA_ETIMEDOUT);
  atomic_store(&t->board->note[t->rank], 1);
  while (!atomic_load(&t->board->note[0]))
    usleep(1000);
  t->ops->destroy(d);
  off_device(t, at);
  return 0;
}

static void test_a_deadline_of_start(void **state)
{
  on_ranks(2, start_runs_out_of_time);
}

static int connects_to_nobody(struct rank *t)
{
  struct manta__device *d = NULL;
  if (t->rank == 1) // answers, but NCCL does not get to know of it
    t->nccl->init_result = NCCL_INTERNAL_ERROR;
  manta_status st = t->ops->create(&d, &t->host, manta__deadline(0.3), &t->err);
  EXPECT(st == (t->rank == 1 ? MANTA_EIO : MANTA_ETIMEDOUT) && !d);
  EXPECT(strstr(t->err.message, "connecting"));
  EXPECT(t->nccl->aborts == (t->rank == 0));
  EXPECT(t->cuda->streams == 0 && t->cuda->events == 0 && t->cuda->blocks == 0);
  return 0;
}

static void test_a_peer_that_does_not_connect(void **state)
{
  on_ranks(2, connects_to_nobody);
}

// Rank 2 finds nobody at the other end: the others have heard of the loss before.
static int connects_to_the_dead(struct rank *t)
{
  struct manta__device *d = NULL;
  if (t->rank == 1) {
    t->nccl->init_result = NCCL_INTERNAL_ERROR;
    EXPECT(make(t, &d) == MANTA_EIO);
    atomic_store(&t->board->abort, 2);
    return 0;
  }
  t->nccl->init_late = t->rank == 2;
  EXPECT(make(t, &d) == MANTA_EPEERLOST && !d);
  EXPECT(strstr(t->err.message, "rank 1 was lost"));
  EXPECT(t->nccl->aborts == (t->rank == 0));
  return 0;
}

static void test_an_abort_while_connecting(void **state)
{
  on_ranks(3, connects_to_the_dead);
}

static int no_address(struct rank *t)
{
  struct manta__device *d = NULL;
  t->nccl->id_result = t->rank == 0 ? NCCL_SYSTEM_ERROR : 0;
  EXPECT(make(t, &d) == MANTA_EIO);
  EXPECT(strstr(t->err.message, "rank 0: address: NCCL"));
  EXPECT(t->nccl->inits == 0);
  return 0;
}

static void test_rank_0_cannot_listen(void **state)
{
  on_ranks(2, no_address);
}

/* NCCL itself sees that a peer is gone, and no agent says more. */
static int hears_of_it_by_nccl(struct rank *t)
{
  struct manta__device *d;
  uint64_t ticket = 0;
  float *at = on_device(t, NULL, sizeof *at);
  struct manta__task call =
      CALL(RECV, .recv = at, .count = 1, .type = MANTA_F32, .root = 1 - t->rank);
  EXPECT_OK(make(t, &d));
  EXPECT_OK(t->ops->start(d, &call, soon(), &ticket, &t->err));
  if (t->rank == 1) // gives up, and with it its connections
    EXPECT(t->ops->wait(d, ticket, manta__now(), &t->err) == MANTA_ETIMEDOUT);
  t->nccl->notices = true;
  if (t->rank == 0) {
    EXPECT(t->ops->wait(d, ticket, soon(), &t->err) == MANTA_EPEERLOST);
    EXPECT(strstr(t->err.message, "recv: NCCL: the other end is gone"));
  }
  EXPECT(t->nccl->aborts == 1);
  t->ops->destroy(d);
  off_device(t, at);
  return 0;
}

static void test_nccl_sees_a_peer_go(void **state)
{
  on_ranks(2, hears_of_it_by_nccl);
}

/* NCCL sees it first; a moment later the agent says who it was. */
static int prefers_the_agents_word(struct rank *t)
{
  struct manta__device *d;
  uint64_t ticket = 0;
  float *at = on_device(t, NULL, sizeof *at);
  struct manta__task call = CALL(ALLREDUCE, .send = at, .recv = at, .count = 1, .type = MANTA_F32);
  EXPECT_OK(make(t, &d));
  EXPECT_OK(t->ops->start(d, &call, soon(), &ticket, &t->err));
  if (t->rank == 0) {
    EXPECT_OK(t->ops->wait(d, ticket, soon(), &t->err));
    t->nccl->async_result = NCCL_REMOTE_ERROR;
    atomic_store(&t->board->note[0], 1);
    EXPECT(done(t, d, call) == MANTA_EPEERLOST);
    EXPECT(strstr(t->err.message, "rank 6 was lost"));
  } else {
    EXPECT_OK(t->ops->wait(d, ticket, soon(), &t->err));
    while (!atomic_load(&t->board->note[0]))
      usleep(1000);
    usleep(20000);
    atomic_store(&t->board->abort, 7);
  }
  t->ops->destroy(d);
  off_device(t, at);
  return 0;
}

static void test_the_agents_word_is_the_better_one(void **state)
{
  on_ranks(2, prefers_the_agents_word);
}

static int breaks_on_the_device(struct rank *t)
{
  struct manta__device *d;
  EXPECT_OK(make(t, &d));
  t->cuda->query_result = 700;
  EXPECT(done(t, d, CALL(BARRIER, .count = 0)) == MANTA_EIO);
  EXPECT(strstr(t->err.message, "barrier: CUDA_ERROR_OF_THE_TEST (700)"));
  t->cuda->query_result = 0;
  EXPECT(done(t, d, CALL(BARRIER, .count = 0)) == MANTA_EIO);
  EXPECT(t->nccl->aborts == 1);
  t->ops->destroy(d);
  return 0;
}

static void test_an_error_of_the_device(void **state)
{
  on_ranks(1, breaks_on_the_device);
}

/* NCCL's abort does not come back: we do. */
static int abort_hangs(struct rank *t)
{
  struct manta__device *d;
  uint64_t ticket = 0;
  struct manta__task call = CALL(BARRIER, .count = 0);
  EXPECT_OK(make(t, &d));
  EXPECT(sums_one(t, d));
  if (t->rank == 1) {
    t->ops->destroy(d);
    return 0;
  }
  EXPECT_OK(t->ops->start(d, &call, soon(), &ticket, &t->err));
  t->nccl->abort_hangs = true;
  EXPECT(t->ops->wait(d, ticket, manta__deadline(0.01), &t->err) == MANTA_ETIMEDOUT);
  t->ops->destroy(d);
  _exit(0); // what hangs is lost, and that is no leak
}

static void test_an_abort_that_hangs(void **state)
{
  on_ranks(2, abort_hangs);
}

// --- starving -----------------------------------------------------------------------------------

static int few_objects(struct rank *t)
{
  struct manta__device *d = NULL;
  for (int left = 0;; left++) {
    EXPECT(left < 1000);
    t->cuda->fail_objects = t->rank == 0 ? left : -1;
    manta_status st = make(t, &d);
    EXPECT(st == MANTA_OK || (st == MANTA_EIO && strstr(t->err.message, "rank 0: ")));
    if (st == MANTA_OK) {
      EXPECT(left > MANTA__DEVICE_FLIGHT);
      break;
    }
    EXPECT(t->cuda->streams == 0 && t->cuda->events == 0 && t->cuda->blocks == 0);
  }
  t->ops->destroy(d);
  return 0;
}

static void test_no_room_on_the_device(void **state)
{
  on_ranks(2, few_objects);
}

static int starves(struct rank *t)
{
  struct manta__device *d = NULL;
  for (long n = 0;; n++) {
    EXPECT(n < 100);
    manta__alloc_fail_after(n);
    manta_status st = linked_device_entry->create(&d, &t->host, soon(), &t->err);
    manta__alloc_fail_after(-1);
    EXPECT(st == MANTA_OK || st == MANTA_ENOMEM);
    if (st == MANTA_OK) {
      EXPECT(n == 2);
      break;
    }
  }
  manta__alloc_fail_after(0); // the end needs none
  linked_device_entry->destroy(d);
  manta__alloc_fail_after(-1);
  EXPECT(t->nccl->destroys == 1 && t->cuda->streams == 0 && t->cuda->events == 0);
  return 0;
}

static void test_no_memory(void **state)
{
  on_ranks(1, starves);
}

// ------------------------------------------------------------------------------------------------

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers_are_those_of_the_library),
      cmocka_unit_test(test_without_cuda_nothing_is_device_memory),
      cmocka_unit_test(test_the_module_loads),
      cmocka_unit_test(test_without_cuda_it_says_so),
      cmocka_unit_test(test_device_memory_is_known),
      cmocka_unit_test(test_one_rank_without_nccl_stops_all),
      cmocka_unit_test(test_a_library_that_is_not_nccl),
      cmocka_unit_test(test_a_version_that_is_too_old),
      cmocka_unit_test(test_versions_that_differ),
      cmocka_unit_test(test_public_calls),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_moves),
      cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_many_in_flight),
      cmocka_unit_test(test_create_and_destroy),
      cmocka_unit_test(test_calls_that_make_no_sense),
      cmocka_unit_test(test_it_comes_after_the_kernels),
      cmocka_unit_test(test_a_late_peer),
      cmocka_unit_test(test_a_killed_peer),
      cmocka_unit_test(test_a_deadline),
      cmocka_unit_test(test_a_deadline_of_start),
      cmocka_unit_test(test_a_peer_that_does_not_connect),
      cmocka_unit_test(test_an_abort_while_connecting),
      cmocka_unit_test(test_rank_0_cannot_listen),
      cmocka_unit_test(test_nccl_sees_a_peer_go),
      cmocka_unit_test(test_the_agents_word_is_the_better_one),
      cmocka_unit_test(test_an_error_of_the_device),
      cmocka_unit_test(test_an_abort_that_hangs),
      cmocka_unit_test(test_no_room_on_the_device),
      cmocka_unit_test(test_no_memory),
  };
  // meson names the fakes' folder there; they must be found only when a test loads them.
  if (getenv("LD_LIBRARY_PATH")) {
    unsetenv("LD_LIBRARY_PATH");
    execv("/proc/self/exe", argv);
  }
  // The fakes lie beside this program, the module in the build's src/.
  ssize_t n = readlink("/proc/self/exe", place, sizeof place - 64);
  char *slash = n > 0 ? strrchr(place, '/') : NULL;
  char modules[sizeof place + 16];
  if (!slash)
    return 1;
  *slash = 0;
  snprintf(modules, sizeof modules, "%s/../src", place);
  setenv("MANTA_MODULES", modules, 0);
  unsetenv("MANTA_NCCL");
  memcpy(slash, "/comm/fake", sizeof "/comm/fake");
  fakes = place;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
