/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/device_ranks.h - a function on n forked ranks, each with a GPU (a real one or a fake),
 * and with what a device communicator needs of its host.
 */
#ifndef MANTA_TEST_DEVICE_RANKS_H
#define MANTA_TEST_DEVICE_RANKS_H

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/fake/fake.h"
#include "comm/nccl/device.h"
#include "test.h"

#define RANKS_MAX FAKE_RANKS
#define HANG_S    60 /* nothing takes so long, unless it hangs */

struct board { /* shared by all ranks and the test */
  _Atomic uint32_t abort;
  _Atomic uint32_t round[RANKS_MAX];
  _Atomic uint32_t note[RANKS_MAX];
  uint8_t blob[2][RANKS_MAX][512];
};

struct driver { /* of CUDA's, what only tests need */
  int (*init)(unsigned);
  int (*device)(int *, int);
  int (*retain)(struct cu_context **, int);
  int (*push)(struct cu_context *);
  int (*alloc)(uint64_t *, size_t);
  int (*free)(uint64_t);
  int (*write)(uint64_t, const void *, size_t);
  int (*read)(void *, uint64_t, size_t);
};

struct rank {
  int rank, n;
  struct board *board;
  uint32_t round;
  const struct manta__device_ops *ops;
  struct manta__device_host host;
  struct driver cu;
  struct fake_cuda *cuda; /* NULL: it is real */
  struct fake_nccl *nccl;
  void (*fill_later)(struct cu_stream *, void *, int, size_t, int);
  int alive[2]; /* calls with false and true */
  manta_error err;
};

/* 0: well; anything else is the line of the expectation that failed. */
typedef int (*rank_fn)(struct rank *t);
#define EXPECT(what)                                                                               \
  do {                                                                                             \
    if (!(what))                                                                                   \
      return __LINE__;                                                                             \
  } while (0)
#define EXPECT_OK(expr) EXPECT((expr) == MANTA_OK)

/* How the ranks get at their GPU: fakes are loaded from here; NULL: the real one. */
static const char *fakes;

/* --- what the host gives --- */

static manta_status host_check(void *ctx, manta_error *err)
{
  struct rank *t = ctx;
  uint32_t cause = atomic_load(&t->board->abort);
  return cause ? manta_error_set(err, MANTA_EPEERLOST, "rank %u was lost", cause - 1) : MANTA_OK;
}

static void host_alive(void *ctx, bool waits)
{
  struct rank *t = ctx;
  t->alive[waits]++;
}

static manta_status host_exchange(void *ctx, const void *mine, void *all, size_t bytes, int64_t by,
                                  manta_error *err)
{
  struct rank *t = ctx;
  struct board *b = t->board;
  uint32_t round = ++t->round;
  if (bytes > sizeof b->blob[0][0])
    return manta_error_set(err, MANTA_ETOOBIG, "%zu bytes", bytes);
  memcpy(b->blob[round & 1][t->rank], mine, bytes);
  atomic_store(&b->round[t->rank], round);
  for (int r = 0; r < t->host.size; r++)
    while (t->host.size > 1 && atomic_load(&b->round[r]) < round) {
      if (manta__now() > by)
        return manta_error_set(err, MANTA_ETIMEDOUT, "rank %d did not come", r);
      usleep(100);
    }
  for (int r = 0; r < t->host.size; r++)
    memcpy((uint8_t *)all + (size_t)r * bytes, b->blob[round & 1][t->host.size > 1 ? r : t->rank],
           bytes);
  return MANTA_OK;
}

/* --- one rank --- */

static bool bind(void *library, const char *symbol, void *slot)
{
  void *p = dlsym(library, symbol);
  memcpy(slot, &p, sizeof p);
  return p != NULL;
}

/* The driver is there, as it is in a process that uses CUDA. */
static bool load_driver(struct rank *t)
{
  char path[4096];
  snprintf(path, sizeof path, "%s%slibcuda.so.1", fakes ? fakes : "", fakes ? "/" : "");
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  struct driver *cu = &t->cu;
  if (!lib || !bind(lib, "cuInit", &cu->init) || !bind(lib, "cuDeviceGet", &cu->device) ||
      !bind(lib, "cuDevicePrimaryCtxRetain", &cu->retain) ||
      !bind(lib, "cuCtxPushCurrent_v2", &cu->push) || !bind(lib, "cuMemAlloc_v2", &cu->alloc) ||
      !bind(lib, "cuMemFree_v2", &cu->free) || !bind(lib, "cuMemcpyHtoD_v2", &cu->write) ||
      !bind(lib, "cuMemcpyDtoH_v2", &cu->read))
    return false;
  return !fakes ||
         (bind(lib, "fake_cuda", &t->cuda) && bind(lib, "fake_fill_later", &t->fill_later));
}

static bool load_fake_nccl(struct rank *t)
{
  char path[4096];
  if (!fakes)
    return true;
  snprintf(path, sizeof path, "%s/libnccl.so.2", fakes);
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return lib && bind(lib, "fake_nccl", &t->nccl);
}

/* A context of its own, as the train function has. */
static bool open_gpu(struct rank *t)
{
  struct cu_context *ctx;
  int device;
  if (!load_driver(t) || t->cu.init(0) != 0 || t->cu.device(&device, 0) != 0)
    return false;
  if (t->cu.retain(&ctx, device) != 0 || t->cu.push(ctx) != 0)
    return false;
  return load_fake_nccl(t);
}

static void prepare_rank(struct rank *t, struct board *board, int rank, int n)
{
  *t = (struct rank){.rank = rank, .n = n, .board = board};
  t->host = (struct manta__device_host){.rank = rank,
                                        .size = n,
                                        .ctx = t,
                                        .exchange = host_exchange,
                                        .abort = &board->abort,
                                        .check = host_check,
                                        .alive = host_alive};
}

/* In sanitized builds. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void run_rank(struct board *board, int rank, int n, rank_fn fn)
{
  struct rank t;
  char id[32];
  prepare_rank(&t, board, rank, n);
  snprintf(id, sizeof id, "rank-%d", rank); // NCCL takes two ranks on one GPU if it can't know
  setenv("NCCL_HOSTID", id, 1);
  int line = open_gpu(&t) && manta__device_load(&t.ops, &t.err) == MANTA_OK ? fn(&t) : __LINE__;
  if (line)
    fprintf(stderr, "rank %d of %d: line %d: %s\n", rank, n, line, t.err.message);
  if (!line && t.nccl && (t.nccl->misuses || t.cuda->misuses))
    fprintf(stderr, "rank %d of %d: NCCL misused %d times, CUDA %d\n", rank, n,
            line = t.nccl->misuses, t.cuda->misuses);
  if (!line && __lsan_do_recoverable_leak_check)
    line = __lsan_do_recoverable_leak_check();
  _exit(line != 0);
}

/* --- all of them --- */

struct ranks {
  struct board *board;
  int n;
  pid_t pid[RANKS_MAX];
};

static void ranks_start(struct ranks *t, int n, rank_fn fn)
{
  t->n = n;
  t->board =
      mmap(NULL, sizeof *t->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(t->board != MAP_FAILED);
  for (int r = 0; r < n; r++) {
    t->pid[r] = fork();
    assert_true(t->pid[r] >= 0);
    if (t->pid[r] == 0)
      run_rank(t->board, r, n, fn);
  }
}

static int end_of(pid_t pid)
{
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

/* Waits for all; how many did not end well. A rank that killed itself is not counted. */
static int ranks_end(struct ranks *t)
{
  int bad = 0;
  for (int r = 0; r < t->n; r++) {
    int status = t->pid[r] > 0 ? end_of(t->pid[r]) : 0;
    bad += status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  munmap(t->board, sizeof *t->board);
  return bad;
}

static void on_ranks(int n, rank_fn fn)
{
  struct ranks t;
  ranks_start(&t, n, fn);
  assert_int_equal(ranks_end(&t), 0);
}

/* --- what tests do on a rank --- */

static int64_t soon(void)
{
  return manta__deadline(HANG_S);
}

static manta_status make(struct rank *t, struct manta__device **d)
{
  return t->ops->create(d, &t->host, soon(), &t->err);
}

/* Started and waited for. */
static manta_status done(struct rank *t, struct manta__device *d, struct manta__task call)
{
  uint64_t ticket = 0;
  MANTA_TRY(t->ops->start(d, &call, soon(), &ticket, &t->err));
  return t->ops->wait(d, ticket, soon(), &t->err);
}

/* A place on the device, with what is at `from` in it. Never 0 bytes. */
static void *on_device(struct rank *t, const void *from, size_t bytes)
{
  uint64_t at = 0;
  if (t->cu.alloc(&at, bytes + 1) != 0 || (from && t->cu.write(at, from, bytes) != 0))
    abort();
  return (void *)(uintptr_t)at;
}

static void off_device(struct rank *t, void *at)
{
  if (t->cu.free((uintptr_t)at) != 0)
    abort();
}

static void fetch(struct rank *t, void *to, const void *at, size_t bytes)
{
  if (t->cu.read(to, (uintptr_t)at, bytes) != 0)
    abort();
}

#endif
