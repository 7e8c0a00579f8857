/* SPDX-License-Identifier: Apache-2.0
 *
 * The module libmanta-nccl.so with a real GPU and the real NCCL. Several ranks share the first GPU,
 * which NCCL allows when it takes them for different hosts (NCCL_HOSTID).
 */
#include "comm/device_comm.h"

/* Why there is nothing to test, found out by a child: CUDA does not survive a fork. */
enum { FINE, NO_DRIVER, NO_GPU, NO_NCCL };

static int look_for_gpu(void)
{
  static struct board board;
  struct rank t;
  struct manta__device *d;
  prepare_rank(&t, &board, 0, 1);
  if (!load_driver(&t))
    return NO_DRIVER;
  if (!open_gpu(&t))
    return NO_GPU;
  if (manta__device_load(&t.ops, &t.err) < 0 || make(&t, &d) < 0) {
    print_message("# %s\n", t.err.message);
    return NO_NCCL;
  }
  t.ops->destroy(d);
  return FINE;
}

static int verdict = -1;

static void need_gpu(void)
{
  if (verdict < 0) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      int found = look_for_gpu();
      fflush(NULL);
      _exit(found);
    }
    int status = end_of(pid);
    verdict = WIFEXITED(status) ? WEXITSTATUS(status) : NO_GPU;
  }
  if (verdict == NO_DRIVER)
    skip_because("there is no driver of CUDA (libcuda.so.1)");
  if (verdict == NO_GPU)
    skip_because("CUDA finds no GPU");
  if (verdict == NO_NCCL)
    skip_because("NCCL cannot be used (MANTA_NCCL names its file)");
}

static void test_public_calls(void **state)
{
  need_gpu();
  through_the_public_calls(3);
}

static void test_sums(void **state)
{
  need_gpu();
  for (int n = 1; n <= 4; n++)
    on_ranks(n, case_sums);
}

static void test_moves(void **state)
{
  need_gpu();
  on_ranks(1, case_moves);
  on_ranks(2, case_moves);
  on_ranks(4, case_moves);
}

static void test_in_place(void **state)
{
  need_gpu();
  on_ranks(3, case_in_place);
}

static void test_many_in_flight(void **state)
{
  need_gpu();
  on_ranks(1, case_flight);
  on_ranks(2, case_flight);
}

static void test_create_and_destroy(void **state)
{
  need_gpu();
  on_ranks(1, case_again);
  on_ranks(2, case_again);
}

static void test_a_killed_peer(void **state)
{
  need_gpu();
  kill_one_of(2);
  kill_one_of(4);
}

/* Large enough for many pieces on many channels. */
static int large(struct rank *t)
{
  enum { N = 16 << 20 };
  struct manta__device *d;
  float *host = malloc(N * sizeof *host);
  EXPECT_OK(make(t, &d));
  for (size_t i = 0; i < N; i++)
    host[i] = (float)((i + (size_t)t->rank) % 1000);
  float *at = on_device(t, host, N * sizeof *host);
  EXPECT_OK(done(t, d, CALL(ALLREDUCE, .send = at, .recv = at, .count = N, .type = MANTA_F32)));
  fetch(t, host, at, N * sizeof *host);
  for (size_t i = 0; i < N; i++) {
    float want = 0;
    for (size_t r = 0; r < (size_t)t->n; r++)
      want += (float)((i + r) % 1000);
    EXPECT(host[i] == want);
  }
  t->ops->destroy(d);
  off_device(t, at);
  free(host);
  return 0;
}

static void test_a_large_sum(void **state)
{
  need_gpu();
  on_ranks(2, large);
}

static int knows_memory(struct rank *t)
{
  int gpu = -1, on_stack = 0;
  uint8_t *at = on_device(t, NULL, 1 << 20);
  EXPECT(manta__device_owns(at, &gpu) && gpu == 0);
  EXPECT(manta__device_owns(at + (1 << 20) - 1, &gpu));
  EXPECT(!manta__device_owns(&on_stack, &gpu));
  off_device(t, at);
  return 0;
}

static void test_device_memory_is_known(void **state)
{
  need_gpu();
  on_ranks(1, knows_memory);
}

/* What a call costs, for whoever runs this by hand; nothing is asserted. */
static int tells_times(struct rank *t)
{
  struct manta__device *d;
  float *at = on_device(t, NULL, 1 << 20);
  int64_t from = manta__now();
  EXPECT_OK(make(t, &d));
  int64_t made = manta__now();
  struct manta__task call =
      CALL(ALLREDUCE, .send = at, .recv = at, .count = 256, .type = MANTA_F32);
  EXPECT_OK(done(t, d, call));
  int64_t first = manta__now();
  for (int i = 0; i < 200; i++)
    EXPECT_OK(done(t, d, call));
  int64_t last = manta__now();
  int64_t asked = manta__now();
  int gpu, count = 0;
  for (int i = 0; i < 1000; i++)
    count += manta__device_owns(&gpu, &gpu) + manta__device_owns(at, &gpu);
  EXPECT(count == 1000);
  int64_t owned = manta__now();
  t->ops->destroy(d);
  if (t->rank == 0)
    print_message("# %d ranks: create %.0f ms, first 1 KB all-reduce %.1f ms, then %.1f us each; "
                  "owns %.0f ns\n",
                  t->n, (double)(made - from) / 1e6, (double)(first - made) / 1e6,
                  (double)(last - first) / 200e3, (double)(owned - asked) / 2000);
  fflush(NULL);
  off_device(t, at);
  return 0;
}

static void test_times(void **state)
{
  need_gpu();
  on_ranks(1, tells_times);
  on_ranks(2, tells_times);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_device_memory_is_known),
      cmocka_unit_test(test_public_calls),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_moves),
      cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_many_in_flight),
      cmocka_unit_test(test_create_and_destroy),
      cmocka_unit_test(test_a_killed_peer),
      cmocka_unit_test(test_a_large_sum),
      cmocka_unit_test(test_times),
  };
  char modules[4096];
  ssize_t n = readlink("/proc/self/exe", modules, sizeof modules - 16);
  char *slash = n > 0 ? memrchr(modules, '/', (size_t)n) : NULL;
  if (!slash)
    return 1;
  memcpy(slash, "/../src", sizeof "/../src");
  setenv("MANTA_MODULES", modules, 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
