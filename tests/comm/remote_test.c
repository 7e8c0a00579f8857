/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduces of private memory by every way there is, and the remote one where it is forbidden,
 * where memory cannot be reached, and when it is given up in the middle.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "plain.h"
#include "sys/proc.h"

#define ROOM     (1300u << 10)
#define LARGE    (2u << 20)
#define PATIENCE 100 // s: against hangs

static bool is_remote(const manta_comm *c)
{
  return c->team.remote.state == MANTA__REMOTE_WORKS && c->team.remote.pushes > 1;
}

// Whether the kernel lets us at the memory of a rank that has offered some.
static bool may_read(const manta_comm *c, int rank)
{
  const struct manta__hand *h = &c->team.line[rank].hand;
  uint64_t word;
  struct iovec own = {&word, sizeof word}, theirs = {(void *)(uintptr_t)h->done_at, sizeof word};
  return process_vm_readv(h->pid, &own, 1, &theirs, 1, 0) == sizeof word;
}

// Where the way is fixed to the remote one and that is allowed, calls have gone it.
static bool went_as_told(const manta_comm *c, int rank, int n)
{
  const char *way = getenv("MANTA_COMM_WAY");
  bool told = way && !strcmp(way, "remote");
  bool forbidden = c->team.remote.state == MANTA__REMOTE_FORBIDDEN && !may_read(c, (rank + 1) % n);
  return told ? is_remote(c) || forbidden : !way || !is_remote(c);
}

static void on_ranks_by(const char *way, int n, rank_fn fn)
{
  setenv("MANTA_COMM_WAY", way, 1);
  on_ranks(n, fn);
  unsetenv("MANTA_COMM_WAY");
}

// --- the same bits ------------------------------------------------------------------------------

// From where the remote way begins; ends that are no cache line, no page, no piece.
static const size_t sizes[] = {131072, 131080, 200008, 262144, 524312, 1048576, 1200008};
#define SIZES (sizeof sizes / sizeof *sizes)
#define FEW   3 // of them, where everything else varies

static int one(manta_comm *c, struct plain_bed *b, struct plain p, int rank, int n)
{
  static const int shifts[] = {0, 1, 7, 33, 4};
  p.call = MANTA__CALL_ALLREDUCE;
  p.count = p.count / manta_dtype_bytes(p.type);
  p.shift = shifts[p.seed % 5];
  p.in_place = p.seed % 2;
  return plain_one(c, b, &p, rank, n);
}

static int every_type_and_op(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct plain_bed b;
  uint64_t k = 0;
  alarm(PATIENCE);
  int line = plain_open(&b, c, n, ROOM);
  for (int type = 0; type < MANTA_DTYPE_COUNT && !line; type++)
    for (int op = 0; op <= MANTA_BXOR && !line; op++)
      if (manta__reduce_valid((manta_dtype)type, (manta_op)op)) {
        struct plain p = {.type = (manta_dtype)type, .op = (manta_op)op, .seed = k++};
        p.count = sizes[k % FEW];
        line = one(c, &b, p, rank, n);
      }
  plain_close(&b, c);
  EXPECT(line || went_as_told(c, rank, n));
  return line;
}

static int every_size(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct plain_bed b;
  alarm(PATIENCE);
  int line = plain_open(&b, c, n, ROOM);
  for (uint64_t k = 0; k < SIZES && !line; k++) {
    struct plain p = {.type = MANTA_F32, .op = MANTA_MEAN, .seed = k + (uint64_t)n};
    p.count = sizes[k];
    line = one(c, &b, p, rank, n);
  }
  plain_close(&b, c);
  EXPECT(line || went_as_told(c, rank, n));
  return line;
}

static void by_way(const char *way)
{
  static const int n[] = {2, 3, 4, 8};
  on_ranks_by(way, 3, every_type_and_op);
  for (int i = 0; i < 4; i++)
    on_ranks_by(way, n[i], every_size);
}

static void through_the_caches(void **state)
{
  by_way("cached");
}

static void past_the_caches(void **state)
{
  by_way("past");
}

static void remote(void **state)
{
  by_way("remote");
}

// Many calls of one size: all ways are tried, and what each gives is right.
static int learning(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct plain_bed b;
  alarm(PATIENCE);
  int line = plain_open(&b, c, n, ROOM);
  for (uint64_t k = 0; k < 50 && !line; k++) {
    struct plain p = {.call = MANTA__CALL_ALLREDUCE, .type = MANTA_F32, .op = MANTA_SUM};
    p.seed = k;
    p.count = 75000;
    p.in_place = k % 2;
    line = plain_one(c, &b, &p, rank, n);
  }
  plain_close(&b, c);
  EXPECT(line || c->team.remote.state != MANTA__REMOTE_UNTRIED);
  EXPECT(line || !c->team.crowded || !is_remote(c));
  return line;
}

// With more ranks than CPUs: but the remote one.
static void every_way_is_tried(void **state)
{
  for (int n = 2; n <= 4; n++)
    on_ranks(n, learning);
}

static int refused(manta_comm *c, int rank, int n, struct shared *sh)
{
  return 0; // never runs: there is no communicator
}

static void a_way_that_is_none_is_an_error(void **state)
{
  struct ranks t;
  setenv("MANTA_COMM_WAY", "sideways", 1);
  ranks_start(&t, 2, refused);
  unsetenv("MANTA_COMM_WAY");
  assert_int_equal(ranks_end(&t), 2);
}

// --- forbidden ----------------------------------------------------------------------------------

static int forbid(long call)
{
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  return 0;
}

static int some_calls(manta_comm *c, int rank, int n)
{
  struct plain_bed b;
  alarm(PATIENCE);
  int line = plain_open(&b, c, n, ROOM);
  for (uint64_t k = 0; k < 4 && !line; k++)
    line = one(c, &b, (struct plain){.type = MANTA_F32, .count = sizes[k], .seed = k}, rank, n);
  plain_close(&b, c);
  EXPECT(line || !is_remote(c));
  return line;
}

static int unreadable(manta_comm *c, int rank, int n, struct shared *sh)
{
  int line = rank == 1 ? forbid(SYS_process_vm_readv) : 0;
  return line ? line : some_calls(c, rank, n);
}

static int unwritable(manta_comm *c, int rank, int n, struct shared *sh)
{
  int line = rank == 1 ? forbid(SYS_process_vm_writev) : 0;
  return line ? line : some_calls(c, rank, n);
}

// It takes a process for another: the token is not there, and nothing is written.
static int mistaken(manta_comm *c, int rank, int n, struct shared *sh)
{
  static float x[40000];
  manta_error err = MANTA_ERROR_INIT;
  alarm(PATIENCE);
  struct manta__hand *h = &c->team.line[rank].hand;
  c->team.remote.bounce = malloc(256 << 10);
  c->team.remote.piece = 256 << 10;
  c->team.remote.done = calloc((size_t)n + 1, 8);
  h->pid = getpid();
  h->done_at = (uintptr_t)c->team.remote.done;
  h->token = 5;
  c->team.remote.done[n] = rank == 1 ? 4 : 5;
  EXPECT(manta_comm_allreduce(c, x, x, 40000, MANTA_F32, MANTA_SUM, &err) == MANTA_OK);
  EXPECT(c->team.remote.state == MANTA__REMOTE_FORBIDDEN);
  EXPECT(rank != 1 || c->team.remote.done[0] == 0);
  return 0;
}

static void it_works_where_it_is_forbidden(void **state)
{
  on_ranks_by("remote", 3, unreadable);
  on_ranks_by("remote", 3, unwritable);
  on_ranks_by("remote", 2, mistaken);
}

// --- memory that cannot be reached --------------------------------------------------------------

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

static float *secret(size_t bytes)
{
  int fd = (int)syscall(SYS_memfd_secret, 0);
  if (fd < 0)
    return NULL;
  void *p = ftruncate(fd, (off_t)bytes) == 0
                ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                : MAP_FAILED;
  close(fd);
  return p == MAP_FAILED ? NULL : p;
}

// The kernel reaches it for nobody but its process; calls before and after go on as they did.
static int in_secret(manta_comm *c, int rank, int n, struct shared *sh)
{
  enum { COUNT = 40000 };
  float *own = malloc(COUNT * sizeof *own), *odd = secret(COUNT * sizeof *odd);
  alarm(PATIENCE);
  EXPECT(odd);
  for (int k = 0; k < 9; k++) {
    float *x = k % 3 == 1 && rank == 1 ? odd : own, *y = k % 3 == 2 && rank == 0 ? odd : x;
    for (int i = 0; i < COUNT; i++)
      x[i] = (float)(i % 100 + rank);
    EXPECT(manta_comm_allreduce(c, x, y, COUNT, MANTA_F32, MANTA_SUM, NULL) == MANTA_OK);
    for (int i = 0; i < COUNT; i++)
      EXPECT(y[i] == (float)(2 * (i % 100) + 1));
  }
  EXPECT(went_as_told(c, rank, n));
  free(own);
  return 0;
}

static void memory_that_is_out_of_reach_is_staged(void **state)
{
  float *p = secret(4096);
  if (!p) {
    print_message("# this kernel has no memory that is out of reach\n");
    return;
  }
  munmap(p, 4096);
  on_ranks_by("remote", 2, in_secret);
}

// --- given up -----------------------------------------------------------------------------------

static uint8_t paint_of(int rank)
{
  return (uint8_t)(0x40 + rank);
}

// What we do with our memory after a call that failed is not undone by anybody. A byte of each
// page, to be sooner than who might still be writing.
static int stays(uint8_t *p, int rank)
{
  for (size_t i = 0; i < LARGE; i += 4096)
    p[i] = paint_of(rank);
  usleep(3000);
  for (size_t i = 0; i < LARGE; i += 4096)
    EXPECT(p[i] == paint_of(rank));
  return 0;
}

// Calls until one fails, as the test wants it to. Says that it goes on.
static int until_given_up(manta_comm *c, int rank, struct shared *sh, manta_status want)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = MANTA_OK;
  uint8_t *p = calloc(1, LARGE);
  alarm(PATIENCE);
  while (st == MANTA_OK) {
    st = manta_comm_allreduce(c, p, p, LARGE / 4, MANTA_F32, MANTA_SUM, &err);
    atomic_fetch_add(&sh->note[rank], 1);
  }
  int line = stays(p, rank);
  EXPECT(line || st == want);
  atomic_store(&sh->note[rank], -1);
  free(p);
  return line;
}

static int until_aborted(manta_comm *c, int rank, int n, struct shared *sh)
{
  return until_given_up(c, rank, sh, MANTA_EPEERLOST);
}

static void await_calls(struct ranks *t, int64_t calls)
{
  for (int r = 0; r < t->n; r++)
    while (atomic_load(&t->shared->note[r]) < calls)
      usleep(100);
}

static uint64_t draw(uint64_t n)
{
  static uint64_t state;
  return plain_mix(++state) % n;
}

static void nobody_writes_after_an_abort(void **state)
{
  setenv("MANTA_COMM_WAY", "remote", 1);
  for (int i = 0; i < 40; i++) {
    struct ranks t;
    ranks_start(&t, 3, until_aborted);
    await_calls(&t, 2);
    usleep((useconds_t)draw(3000));
    ranks_abort(&t, 7);
    assert_int_equal(ranks_end(&t), 0);
  }
  unsetenv("MANTA_COMM_WAY");
}

static void a_death_in_the_middle_ends_all(void **state)
{
  setenv("MANTA_COMM_WAY", "remote", 1);
  for (int i = 0; i < 20; i++) {
    struct ranks t;
    siginfo_t info;
    ranks_start(&t, 3, until_aborted);
    await_calls(&t, 2);
    usleep((useconds_t)draw(3000));
    manta__proc_signal(t.pid[i % 3], SIGKILL);
    waitid(P_PID, (id_t)t.pid[i % 3], &info, WEXITED | WNOWAIT);
    ranks_abort(&t, i % 3);
    assert_int_equal(ranks_end(&t), 0);
  }
  unsetenv("MANTA_COMM_WAY");
}

// Rank 1 is stopped at some time: the other has its memory back by the deadline, and for good.
static int until_late(manta_comm *c, int rank, int n, struct shared *sh)
{
  static uint8_t still[LARGE];
  if (rank == 0)
    manta_comm_set_timeout(c, 0.05);
  if (rank == 1) {
    manta_status st = MANTA_OK;
    alarm(PATIENCE);
    while (st == MANTA_OK) {
      st = manta_comm_allreduce(c, still, still, LARGE / 4, MANTA_F32, MANTA_SUM, NULL);
      atomic_fetch_add(&sh->note[rank], 1);
    }
    return 0; // its data are of no use any more
  }
  return until_given_up(c, rank, sh, MANTA_ETIMEDOUT);
}

static void a_rank_that_is_stopped_holds_nobody_up(void **state)
{
  setenv("MANTA_COMM_WAY", "remote", 1);
  for (int i = 0; i < 20; i++) {
    struct ranks t;
    int64_t by = manta__now() + 30000000000;
    ranks_start(&t, 2, until_late);
    while (atomic_load(&t.shared->note[1]) < 2 && atomic_load(&t.shared->note[0]) >= 0)
      usleep(100);
    usleep((useconds_t)draw(3000));
    manta__proc_signal(t.pid[1], SIGSTOP);
    while (atomic_load(&t.shared->note[0]) >= 0 && manta__now() < by)
      usleep(100);
    bool back = atomic_load(&t.shared->note[0]) < 0;
    manta__proc_signal(t.pid[1], SIGCONT);
    assert_int_equal(ranks_end(&t), 0);
    assert_true(back);
  }
  unsetenv("MANTA_COMM_WAY");
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(through_the_caches),
      cmocka_unit_test(past_the_caches),
      cmocka_unit_test(remote),
      cmocka_unit_test(every_way_is_tried),
      cmocka_unit_test(a_way_that_is_none_is_an_error),
      cmocka_unit_test(it_works_where_it_is_forbidden),
      cmocka_unit_test(memory_that_is_out_of_reach_is_staged),
      cmocka_unit_test(nobody_writes_after_an_abort),
      cmocka_unit_test(a_death_in_the_middle_ends_all),
      cmocka_unit_test(a_rank_that_is_stopped_holds_nobody_up),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
