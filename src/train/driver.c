/* SPDX-License-Identifier: Apache-2.0 */
#include "train/driver.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/sock.h"
#include "sys/thread.h"
#include "train/rows.h"
#include "train/run.h"
#include "train/trainer.h"

#define BATCH_NS    10000000 /* rows are read at most this often */
#define STACK_BYTES (512u << 10)
#define MAX_SINKS   256

struct manta__driver manta__drv = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                   .cond = PTHREAD_COND_INITIALIZER,
                                   .command_fd = -1,
                                   .ring_fd = -1};
#define drv manta__drv

void manta__driver_note_program(int argc, char **argv)
{
  drv.argc = argc;
  drv.argv = argv;
}

void manta__driver_wake(void)
{
  ssize_t n = write(__atomic_load_n(&drv.command_fd, __ATOMIC_ACQUIRE), &(uint64_t){1}, 8);
  (void)n;
}

// --- the thread ----------------------------------------------------------------------------------

static int64_t read_agents(int64_t now)
{
  int64_t next = MANTA__NEVER;
  for (struct manta__link *n = drv.nodes; n; n = n->next) {
    int64_t at = manta__link_read(n, now);
    next = at < next ? at : next;
  }
  return next;
}

static int drain_rows(int64_t now)
{
  int rows = 0;
  bool held = false;
  for (manta_trainer *t = drv.trainers; t; t = t->next) {
    int more = manta__rows_drain(t);
    rows += t->run && t->run->lockstep ? 0 : more; // whoever waits for an answer is not made to
    held |= t->run && t->run->held_ns > 0;
  }
  if (rows > 0 || held)
    drv.drained_ns = now;
  drv.rows_flowing = rows > 0 || held;
  return rows;
}

static int64_t step_all(int64_t now)
{
  int64_t next = MANTA__NEVER;
  for (manta_trainer *t = drv.trainers; t; t = t->next) {
    int64_t at = manta__run_step(t, now);
    next = at < next ? at : next;
  }
  return next;
}

// While rows keep coming they are read every 10 ms; else their producers wake us.
static bool arm_rings(void)
{
  bool quiet = true;
  for (manta_trainer *t = drv.trainers; t; t = t->next)
    for (struct manta__peer *p = t->peers; p; p = p->next)
      if (p->ring.h && !p->damaged && manta__rows_reading(t))
        quiet &= manta__ring_sleep(&p->ring);
  return quiet;
}

static nfds_t poll_agents(struct pollfd *p)
{
  nfds_t count = 0;
  for (struct manta__link *a = drv.nodes; a; a = a->next)
    if (a->conn)
      p[count++] =
          (struct pollfd){.fd = manta__conn_fd(a->conn),
                          .events = (short)(POLLIN | (manta__conn_pending(a->conn) ? POLLOUT : 0))};
  return count;
}

// Those of more runs than that are looked at whenever something happens.
static nfds_t poll_sinks(struct pollfd *p)
{
  nfds_t count = 0;
  for (manta_trainer *t = drv.trainers; t && count < MAX_SINKS; t = t->next)
    if (t->run && t->run->sink.sock >= 0)
      p[count++] = (struct pollfd){.fd = t->run->sink.sock, .events = POLLIN};
  return count;
}

static void wait_for_events(int64_t until)
{
  bool batching = drv.rows_flowing;
  if (batching) {
    int64_t batch = drv.drained_ns + BATCH_NS;
    until = batch < until ? batch : until;
  } else if (!arm_rings()) {
    until = 0;
  }
  struct pollfd p[2 + MANTA_MAX_HOSTS + MAX_SINKS] = {
      {.fd = drv.command_fd, .events = POLLIN},
      {.fd = batching ? -1 : drv.ring_fd, .events = POLLIN}};
  nfds_t count = 2 + poll_agents(p + 2);
  count += poll_sinks(p + count);
  pthread_mutex_unlock(&drv.lock);
  pthread_cond_broadcast(&drv.cond); // behind the lock: who wakes up would wait for it
  poll(p, count, manta__left_ms(until));
  uint64_t n;
  ssize_t rd = p[0].revents ? read(drv.command_fd, &n, 8) : 0;
  rd = p[1].revents ? read(drv.ring_fd, &n, 8) : rd;
  (void)rd;
  pthread_mutex_lock(&drv.lock);
  for (struct manta__link *a = drv.nodes; a; a = a->next)
    if (a->conn && manta__conn_pending(a->conn))
      manta__conn_flush(a->conn, NULL);
}

static void *io_thread(void *arg)
{
  prctl(PR_SET_NAME, "manta-io");
  pthread_mutex_lock(&drv.lock);
  while (!drv.quit) {
    int64_t now = manta__now();
    int64_t heard = read_agents(now);
    drain_rows(now);
    int64_t next = step_all(now);
    wait_for_events(heard < next ? heard : next);
  }
  pthread_mutex_unlock(&drv.lock);
  return NULL;
}

static manta_status start_thread(manta_error *err)
{
  __atomic_store_n(&drv.command_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), __ATOMIC_RELEASE);
  drv.ring_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (drv.command_fd < 0 || drv.ring_fd < 0)
    return manta_error_set(err, MANTA_EIO, "eventfd: %m");
  drv.quit = false;
  errno = manta__thread_start(&drv.thread, "manta-io", STACK_BYTES, io_thread, NULL);
  if (errno)
    return manta_error_set(err, MANTA_EIO, "cannot start a thread: %m");
  drv.running = true;
  return MANTA_OK;
}

// A child that the user forks shares our sockets: it must neither speak nor keep them open.
static void forget_in_child(void)
{
  if (!drv.running)
    return;
  drv.dead = true;
  drv.running = false;
  for (struct manta__link *n = drv.nodes; n; n = n->next) {
    int fd = n->conn ? manta__conn_fd(n->conn) : -1;
    manta__fd_close(&fd);
  }
  for (manta_trainer *t = drv.trainers; t; t = t->next)
    if (t->run)
      manta__upload_forget(t->run);
  manta__fd_close(&drv.command_fd);
  manta__fd_close(&drv.ring_fd);
}

// Non-negative as an int64, which is how logs keep it.
manta_status manta__driver_session(manta_error *err)
{
  while (drv.session == 0) {
    if (getrandom(&drv.session, sizeof drv.session, 0) != sizeof drv.session)
      return manta_error_set(err, MANTA_EIO, "getrandom: %m");
    drv.session >>= 1;
  }
  return MANTA_OK;
}

manta_status manta__driver_up(manta_error *err)
{
  static bool hooked;
  if (drv.dead)
    return manta_error_set(err, MANTA_ESTATE,
                           "manta cannot be used in a forked child of its driver");
  if (!hooked) {
    pthread_condattr_t at;
    pthread_condattr_init(&at);
    pthread_condattr_setclock(&at, CLOCK_MONOTONIC);
    pthread_cond_init(&drv.cond, &at);
    pthread_atfork(NULL, NULL, forget_in_child);
    hooked = true;
  }
  MANTA_TRY(manta__driver_session(err));
  return drv.running ? MANTA_OK : start_thread(err);
}

void manta__driver_down(void)
{
  if (!drv.running || drv.trainers || manta__links_kept())
    return;
  drv.quit = true;
  manta__driver_wake();
  pthread_mutex_unlock(&drv.lock);
  pthread_join(drv.thread, NULL);
  pthread_mutex_lock(&drv.lock);
  drv.running = false;
  manta__links_end();
  manta__fd_close(&drv.command_fd);
  manta__fd_close(&drv.ring_fd);
}

manta_status manta__driver_keep(const struct manta__program *p, int threads, manta_error *err)
{
  pthread_mutex_lock(&drv.lock);
  struct manta__link *n = manta__link_use(manta__engine_here(), err);
  manta_status st = n ? manta__link_keep(n, p, threads, err) : MANTA_ENOMEM;
  manta__link_drop(n);
  pthread_mutex_unlock(&drv.lock);
  return st;
}

manta_status manta__driver_keep_hosts(manta_trainer *t, manta_error *err)
{
  struct manta__link *links[MANTA_MAX_HOSTS];
  pthread_mutex_lock(&drv.lock);
  for (int i = 0; i < t->hosts; i++)
    links[i] = t->host[i].link;
  manta_status st = manta__links_up(links, t->hosts, err);
  for (int i = 0; i < t->hosts && st == MANTA_OK; i++)
    st = manta__link_keep(t->host[i].link, &t->program, t->threads, err);
  pthread_mutex_unlock(&drv.lock);
  return st;
}

void manta__driver_release(void)
{
  pthread_mutex_lock(&drv.lock);
  manta__links_release();
  manta__driver_down();
  pthread_mutex_unlock(&drv.lock);
}
