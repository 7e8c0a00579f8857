/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/probe.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/lifeline.h"
#include "sys/proc.h"
#include "sys/robust.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define LIMIT_S 2.0

// What the process and its child both see.
struct page {
  pthread_mutex_t mutex;
  _Atomic uint32_t word;
};

// --- Tools ---------------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static void broken(struct manta__probe *p, const char *fmt,
                                                         ...)
{
  va_list ap;
  va_start(ap, fmt);
  p->works = false;
  vsnprintf(p->why, sizeof p->why, fmt, ap);
  va_end(ap);
}

static struct page *page_new(struct manta__probe *p)
{
  *p = (struct manta__probe){0};
  void *m =
      mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) {
    broken(p, "mmap: %s", strerror(errno));
    return NULL;
  }
  return m;
}

// A child that runs fn and ends; it dies with us.
static pid_t child(struct manta__probe *p, void (*fn)(void *), void *ctx)
{
  pid_t pid = fork();
  if (pid < 0)
    broken(p, "fork: %s", strerror(errno));
  if (pid != 0)
    return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  fn(ctx);
  _exit(0);
}

static void say(_Atomic uint32_t *word, uint32_t what)
{
  atomic_store(word, what);
  manta__futex_wake(word, 1);
}

static bool hear(_Atomic uint32_t *word, uint32_t what)
{
  int64_t by = manta__deadline(LIMIT_S);
  for (uint32_t seen; (seen = atomic_load(word)) != what;) {
    if (manta__now() >= by)
      return false;
    manta__futex_wait(word, seen, by);
  }
  return true;
}

// True if the child ended by itself, or by somebody else's hand, in time; it is gone afterwards.
static bool reap(pid_t pid, int *status)
{
  int64_t by = manta__deadline(LIMIT_S);
  pid_t got;
  while ((got = waitpid(pid, status, WNOHANG)) == 0 && manta__now() < by)
    usleep(50);
  if (got == pid)
    return true;
  manta__proc_signal(pid, SIGKILL);
  waitpid(pid, status, 0);
  return false;
}

static double ms_since(int64_t then)
{
  return (double)(manta__now() - then) / 1e6;
}

// --- Experiments ---------------------------------------------------------------------------------

void manta__probe_memfd(struct manta__probe *p)
{
  int fd;
  manta_error err = MANTA_ERROR_INIT;
  *p = (struct manta__probe){.works = true};
  if (manta__shm_create("manta-doctor", 4096, &fd, &err) < 0) {
    broken(p, "%.150s", err.message);
    return;
  }
  if (ftruncate(fd, 0) == 0 || ftruncate(fd, 8192) == 0)
    broken(p, "the seal on its size does not hold");
  close(fd);
}

static void hold_and_wait(void *ctx)
{
  struct page *page = ctx;
  manta__robust_hold(&page->mutex);
  say(&page->word, 1);
  for (;;)
    pause();
}

// Waits for the mutex of a process that was just killed.
static void await_notice(struct manta__probe *p, struct page *page, pid_t pid)
{
  struct timespec by;
  clock_gettime(CLOCK_REALTIME, &by); // the only clock that timedlock takes
  by.tv_sec += (time_t)LIMIT_S;
  int64_t killed = manta__now();
  manta__proc_signal(pid, SIGKILL);
  int rc = pthread_mutex_timedlock(&page->mutex, &by);
  p->ms = ms_since(killed);
  p->works = rc == EOWNERDEAD;
  if (!p->works)
    broken(p, "no notice of the death came within %.0f s (%s)", LIMIT_S, strerror(rc));
  if (rc == EOWNERDEAD || rc == 0)
    pthread_mutex_unlock(&page->mutex);
}

void manta__probe_robust(struct manta__probe *p)
{
  struct page *page = page_new(p);
  if (!page)
    return;
  manta_error err = MANTA_ERROR_INIT;
  pid_t pid = -1;
  int status;
  if (manta__robust_init(&page->mutex, &err) < 0)
    broken(p, "%.150s", err.message);
  else if ((pid = child(p, hold_and_wait, page)) > 0) {
    if (hear(&page->word, 1))
      await_notice(p, page, pid);
    else
      broken(p, "a child did not start");
    manta__proc_signal(pid, SIGKILL);
    reap(pid, &status);
  }
  munmap(page, sizeof *page);
}

static void end_at_once(void *ctx)
{
}

void manta__probe_pidfd(struct manta__probe *p)
{
  *p = (struct manta__probe){.works = true};
  pid_t pid = child(p, end_at_once, NULL);
  if (pid < 0)
    return;
  int status, fd = manta__pidfd_open(pid);
  if (fd < 0)
    broken(p, "pidfd_open: %s", strerror(errno));
  else if (manta__fd_wait(fd, false, manta__deadline(LIMIT_S)) != 1)
    broken(p, "the exit of a child was not seen on its pidfd");
  if (fd >= 0)
    close(fd);
  reap(pid, &status);
}

static void say_one(void *ctx)
{
  usleep(1000); // so that the other one really sleeps
  say(&((struct page *)ctx)->word, 1);
}

void manta__probe_futex(struct manta__probe *p)
{
  struct page *page = page_new(p);
  if (!page)
    return;
  int status;
  pid_t pid = child(p, say_one, page);
  if (pid > 0) {
    int64_t began = manta__now();
    p->works = true;
    if (!hear(&page->word, 1) || ms_since(began) > 1000)
      broken(p, "no wake-up came from another process");
    reap(pid, &status);
  }
  munmap(page, sizeof *page);
}

struct probe_line {
  int end[2];
  struct page *page;
};

static void hang_on(void *ctx)
{
  struct probe_line *l = ctx;
  close(l->end[0]);
  if (manta__lifeline_hang_on(l->end[1], NULL) < 0)
    _exit(1);
  say(&l->page->word, 1);
  for (;;)
    pause();
}

static void cut(struct manta__probe *p, struct probe_line *l, pid_t pid)
{
  int status = 0;
  close(l->end[1]);
  bool ready = hear(&l->page->word, 1);
  int64_t closed = manta__now();
  close(l->end[0]);
  bool ended = reap(pid, &status);
  p->ms = ms_since(closed);
  p->works = ready && ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (!p->works)
    broken(p, ready ? "a closed lifeline did not kill" : "O_ASYNC cannot be set on a socket");
}

void manta__probe_lifeline(struct manta__probe *p)
{
  struct probe_line l = {.page = page_new(p)};
  manta_error err = MANTA_ERROR_INIT;
  if (!l.page)
    return;
  if (manta__lifeline_create(l.end, &err) < 0)
    broken(p, "%.150s", err.message);
  else {
    pid_t pid = child(p, hang_on, &l);
    if (pid > 0) {
      cut(p, &l, pid);
    } else {
      close(l.end[0]);
      close(l.end[1]);
    }
  }
  munmap(l.page, sizeof *l.page);
}

// Runs in a child, so that we do not become a subreaper ourselves: parent, then orphan, and the
// parent leaves. Exit code 0: both came to us.
static void adopt(void *ctx)
{
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
    _exit(1);
  pid_t parent = fork();
  if (parent == 0) {
    if (fork() == 0)
      usleep(1000); // outlive the parent
    _exit(0);
  }
  int n = 0;
  while (waitpid(-1, NULL, 0) > 0)
    n++;
  _exit(n == 2 ? 0 : 2);
}

void manta__probe_subreaper(struct manta__probe *p)
{
  *p = (struct manta__probe){.works = true};
  int status = 0;
  pid_t pid = child(p, adopt, NULL);
  if (pid > 0 && (!reap(pid, &status) || !WIFEXITED(status) || WEXITSTATUS(status) != 0))
    broken(p, "an orphaned grandchild was not handed over");
}
