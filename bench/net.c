/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/net.c - an all-reduce between two hosts that are network namespaces.
 *
 *   net [--ns0 A --ns1 B] [--dev0 lo] [--dev1 lo] [--bytes 25000000] [--calls 7]
 *       f32, sum, in place, one rank per host; every rank rewrites its buffer before each call. A
 *       sample is the time of the slower rank. The first two calls are not shown: connections and
 *       buffers are made then.
 *
 * With the core, for the agents that put ranks onto hosts have no part in it.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench.h"
#include "comm/comm.h"
#include "comm/hosts/net.h"
#include "sys/shm.h"

#define WARM    2
#define LIMIT_S 120

struct meeting { // shared by both ranks
  _Atomic int given;
  _Atomic uint32_t abort;
  struct manta__bell bell[2];
  size_t bytes[2];
  _Atomic int64_t took[2];
  uint8_t blob[2][MANTA__NET_BLOB_MAX];
};

struct me {
  struct meeting *m;
  int rank;
  const char *ns, *dev;
  size_t bytes;
  long calls;
};

// As ip netns exec does it: UCX finds interfaces in /sys.
static void enter(const char *name)
{
  char path[256];
  if (!*name)
    return;
  snprintf(path, sizeof path, "/var/run/netns/%s", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) < 0 || unshare(CLONE_NEWNS) < 0 ||
      mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
      mount("net", "/sys", "sysfs", 0, NULL) < 0)
    bench_die("enter namespace %s: %m", name);
  close(fd);
}

static manta_status exchange(void *ctx, const void *blob, size_t size, const void **all,
                             size_t *bytes, manta_error *err)
{
  struct me *me = ctx;
  memcpy(me->m->blob[me->rank], blob, size);
  me->m->bytes[me->rank] = size;
  atomic_fetch_add(&me->m->given, 1);
  for (int64_t by = manta__deadline(LIMIT_S); atomic_load(&me->m->given) < 2; bench_nap(200000))
    if (manta__now() > by)
      return manta_error_set(err, MANTA_ETIMEDOUT, "the other rank is missing");
  for (int r = 0; r < 2; r++) {
    all[r] = me->m->blob[r];
    bytes[r] = me->m->bytes[r];
  }
  return MANTA_OK;
}

static manta_status check(void *ctx, manta_error *err)
{
  return manta_error_set(err, MANTA_EABORTED, "ended");
}

static struct manta__bell *bell(void *ctx, int rank)
{
  struct me *me = ctx;
  return &me->m->bell[me->rank];
}

static void alive(void *ctx, bool waits)
{
}

static void join_net(struct me *me, struct manta__wire *wire)
{
  manta_error err = MANTA_ERROR_INIT;
  const struct manta__net_ops *ops;
  struct manta__net *net;
  bool remote[2] = {me->rank != 0, me->rank != 1};
  struct manta__net_config cfg = {.rank = me->rank,
                                  .size = 2,
                                  .remote = remote,
                                  .local = me->dev,
                                  .ctx = me,
                                  .exchange = exchange};
  bench_check(manta__net_load("ucx", &ops, &err), "load", &err);
  bench_check(ops->create(&net, &cfg, &err), "create a net", &err);
  bench_check(manta__wire_init(wire, net, &err), "wire", &err);
}

static manta_comm *join_comm(struct me *me, struct manta__wire *wire)
{
  static const int host[2] = {0, 1};
  manta_error err = MANTA_ERROR_INIT;
  manta_comm *c;
  struct manta__span span = {.rank = me->rank, .size = 2, .host = host, .wire = wire};
  struct manta__comm_host h = {.rank = 0,
                               .size = 1,
                               .span = &span,
                               .ctx = me,
                               .abort = &me->m->abort,
                               .check = check,
                               .bell = bell,
                               .alive = alive};
  bench_check(manta__shm_create("bench-heap", manta__comm_segment(1, 1 << 20), &h.heap_fd, &err),
              "segment", &err);
  bench_check(manta__comm_create(&c, &h, &err), "create a communicator", &err);
  return c;
}

static void reduce(struct me *me, manta_comm *c)
{
  manta_error err = MANTA_ERROR_INIT;
  size_t count = me->bytes / sizeof(float);
  float *x = bench_resident(me->bytes);
  for (long i = 0; i < me->calls; i++) {
    for (size_t k = 0; k < count; k++)
      x[k] = (float)(i + me->rank);
    bench_check(manta_comm_barrier(c, &err), "barrier", &err);
    int64_t began = bench_now();
    bench_check(manta_comm_allreduce(c, x, x, count, MANTA_F32, MANTA_SUM, &err), "allreduce",
                &err);
    atomic_store(&me->m->took[me->rank], bench_now() - began);
    if (x[count / 2] != (float)(2 * i + 1))
      bench_die("a wrong sum");
    bench_check(manta_comm_barrier(c, &err), "barrier", &err);
    int64_t a = atomic_load(&me->m->took[0]), b = atomic_load(&me->m->took[1]);
    if (me->rank == 0 && i >= WARM)
      bench_sample("net_ms", (double)(a > b ? a : b) / 1e6);
  }
}

static int run(struct me *me)
{
  struct manta__wire wire;
  enter(me->ns);
  join_net(me, &wire);
  manta_comm *c = join_comm(me, &wire);
  reduce(me, c);
  fflush(stdout);
  manta__comm_destroy(c);
  manta__wire_fini(&wire);
  return 0;
}

int main(int argc, char **argv)
{
  struct meeting *m =
      mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED)
    bench_die("map: %m");
  int bad = 0;
  pid_t pid[2];
  for (int r = 0; r < 2; r++) {
    struct me me = {.m = m,
                    .rank = r,
                    .ns = bench_arg_text(argc, argv, r ? "ns1" : "ns0", ""),
                    .dev = bench_arg_text(argc, argv, r ? "dev1" : "dev0", "lo"),
                    .bytes = (size_t)bench_arg(argc, argv, "bytes", 25000000),
                    .calls = bench_arg(argc, argv, "calls", 7)};
    if ((pid[r] = fork()) == 0)
      _exit(run(&me));
  }
  for (int r = 0; r < 2; r++) {
    int status = 1;
    bad += waitpid(pid[r], &status, 0) != pid[r] || status != 0;
  }
  return bad != 0;
}
