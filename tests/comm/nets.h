/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/nets.h - a function on n forked ranks, each a host of its own, with a net between
 * them: over the loopback interface, or over two network namespaces joined by a veth pair.
 */
#ifndef MANTA_TEST_NETS_H
#define MANTA_TEST_NETS_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/hosts/net.h"
#include "sys/bell.h"
#include "test.h"

#define NETS_MAX 8

struct board { /* shared by all ranks and the test */
  _Atomic uint32_t abort;
  _Atomic int given;
  _Atomic int64_t note[NETS_MAX];
  struct manta__bell bell[NETS_MAX];
  size_t bytes[NETS_MAX];
  uint8_t blob[NETS_MAX][MANTA__NET_BLOB_MAX];
};

struct place { /* where ranks live: rank r in namespace r % 2 */
  bool apart;
  char ns[2][32], dev[2][16]; /* no namespace: "" */
};

struct nets {
  struct board *board;
  const struct place *place;
  int n;
  pid_t pid[NETS_MAX];
};

/* 0: well; anything else is the line of the expectation that failed (EXPECT). */
typedef int (*net_fn)(struct manta__net *net, int rank, int n, struct board *b);
#define EXPECT(what)                                                                               \
  do {                                                                                             \
    if (!(what))                                                                                   \
      return __LINE__;                                                                             \
  } while (0)

static bool nets_module(void)
{
  char path[4096];
  const char *folder = getenv("MANTA_MODULES");
  snprintf(path, sizeof path, "%s/libmanta-ucx.so", folder ? folder : ".");
  return access(path, F_OK) == 0;
}

/* The module is built where UCX is. */
#define need_ucx()                                                                                 \
  do {                                                                                             \
    if (!nets_module())                                                                            \
      skip_because("built without UCX");                                                           \
  } while (0)

static const struct place loopback = {.dev = {"lo", "lo"}};

static manta_status nets_exchange(void *ctx, const void *blob, size_t size, const void **all,
                                  size_t *bytes, manta_error *err)
{
  struct {
    struct board *b;
    int rank, n;
  } *me = ctx;
  memcpy(me->b->blob[me->rank], blob, size);
  me->b->bytes[me->rank] = size;
  atomic_fetch_add(&me->b->given, 1);
  for (int64_t by = manta__deadline(20); atomic_load(&me->b->given) < me->n; usleep(200))
    if (manta__now() > by)
      return manta_error_set(err, MANTA_ETIMEDOUT, "a rank is missing");
  for (int r = 0; r < me->n; r++) {
    all[r] = me->b->blob[r];
    bytes[r] = me->b->bytes[r];
  }
  return MANTA_OK;
}

static manta_status nets_join(struct manta__net **net, struct board *b, int rank, int n,
                              const char *local, manta_error *err)
{
  const struct manta__net_ops *ops;
  bool remote[NETS_MAX];
  struct {
    struct board *b;
    int rank, n;
  } me = {b, rank, n};
  for (int r = 0; r < n; r++)
    remote[r] = r != rank;
  struct manta__net_config cfg = {.rank = rank,
                                  .size = n,
                                  .remote = remote,
                                  .local = local,
                                  .ctx = &me,
                                  .exchange = nets_exchange};
  MANTA_TRY(manta__net_load("ucx", &ops, err));
  return ops->create(net, &cfg, err);
}

/* As ip netns exec does: UCX finds interfaces in /sys, which is that of its mount's namespace. */
static bool nets_enter(const char *name)
{
  char path[64];
  if (!*name)
    return true;
  snprintf(path, sizeof path, "/var/run/netns/%s", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  bool in = fd >= 0 && setns(fd, CLONE_NEWNET) == 0 && unshare(CLONE_NEWNS) == 0 &&
            mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
            mount("net", "/sys", "sysfs", 0, NULL) == 0;
  close(fd);
  return in;
}

static void nets_child(struct nets *t, int rank, net_fn fn)
{
  struct manta__net *net = NULL;
  manta_error err = MANTA_ERROR_INIT;
  if (!nets_enter(t->place->ns[rank % 2]) ||
      nets_join(&net, t->board, rank, t->n, t->place->dev[rank % 2], &err) < 0) {
    fprintf(stderr, "rank %d: %s\n", rank, err.message);
    _exit(99);
  }
  int line = fn(net, rank, t->n, t->board);
  if (line)
    fprintf(stderr, "rank %d of %d: line %d\n", rank, t->n, line);
  net->ops->destroy(net);
  _exit(line != 0); /* LeakSanitizer cannot walk a process that has loaded UCX */
}

static void nets_start(struct nets *t, const struct place *place, int n, net_fn fn)
{
  t->n = n;
  t->place = place;
  t->board =
      mmap(NULL, sizeof *t->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(t->board != MAP_FAILED);
  for (int r = 0; r < n; r++) {
    t->pid[r] = fork();
    assert_true(t->pid[r] >= 0);
    if (t->pid[r] == 0)
      nets_child(t, r, fn);
  }
}

/* Waits for all; how many did not end well. A rank that was killed on purpose is not counted. */
static int nets_end(struct nets *t)
{
  int bad = 0;
  for (int r = 0; r < t->n; r++) {
    int status = 0;
    assert_int_equal(waitpid(t->pid[r], &status, 0), t->pid[r]);
    bad += !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) && status != 0;
  }
  munmap(t->board, sizeof *t->board);
  return bad;
}

/* --- two namespaces --- */

static int nets_sh(const char *fmt, ...)
{
  char command[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(command, sizeof command, fmt, ap);
  va_end(ap);
  return system(command);
}

static void place_remove(struct place *p)
{
  for (int i = 0; i < 2; i++)
    if (p->apart)
      nets_sh("ip netns del %s 2>/dev/null", p->ns[i]); /* the interfaces go with it */
  p->apart = false;
}

/* The kernel takes its time until an interface that was set up is running. */
static bool place_runs(const struct place *p, int i)
{
  for (int64_t by = manta__deadline(10); manta__now() < by; usleep(20000))
    if (nets_sh("ip -n %s link show %s | grep -q 'state UP'", p->ns[i], p->dev[i]) == 0)
      return true;
  return false;
}

static bool place_make(struct place *p)
{
  int pid = (int)getpid();
  *p = (struct place){.apart = true};
  for (int i = 0; i < 2; i++) {
    snprintf(p->ns[i], sizeof p->ns[i], "manta-net-%d-%c", pid, 'a' + i);
    snprintf(p->dev[i], sizeof p->dev[i], "mv%d%c", pid, 'a' + i);
    if (nets_sh("ip netns add %s 2>/dev/null", p->ns[i]) != 0) {
      place_remove(p);
      return false;
    }
  }
  bool good = nets_sh("ip link add %s netns %s type veth peer name %s netns %s", p->dev[0],
                      p->ns[0], p->dev[1], p->ns[1]) == 0;
  for (int i = 0; i < 2 && good; i++)
    good = nets_sh("ip -n %s addr add 10.77.0.%d/24 dev %s", p->ns[i], i + 1, p->dev[i]) == 0 &&
           nets_sh("ip -n %s link set lo up", p->ns[i]) == 0 &&
           nets_sh("ip -n %s link set %s up", p->ns[i], p->dev[i]) == 0;
  good = good && place_runs(p, 0) && place_runs(p, 1);
  if (!good)
    place_remove(p);
  return good;
}

#endif
