/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/kill.c - `manta kill`, `resize` and `notice`: what is asked of a run from outside.
 *
 * The agent passes the wish on to the driver, which ends the run as its own cancel would: the rows
 * are logged, the run can be resumed. A driver that does not react is killed; its agent then ends
 * everything below it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <manta/trainer.h>

#include "base/clock.h"
#include "cmd/ask.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"
#include "event/lock.h"
#include "sys/proc.h"
#include "sys/sock.h"

#define BEGIN_S 2.0  /* for a run that has just begun to be known to its agent */
#define REACT_S 5.0  /* for the driver to end the run by itself */
#define LEAVE_S 1.0  /* for a program whose run has ended to end, too */
#define LAST_S  35.0 /* for the agent of a killed driver: its last write has 30 */
#define LOOK_MS 20

/* A run that is going on, as its agent said. */
struct target {
  struct manta__runref ref;
  pid_t agent, driver;
  char path[4096]; // as the agent spells it
};

// --- Finding -------------------------------------------------------------------------------------

// Asks all agents, or only the one that is known to have the run.
static manta_status look(struct target *t, bool *found, manta_error *err)
{
  manta_value ps = {0};
  struct manta__live live;
  if (t->agent > 0)
    MANTA_TRY(manta__ask_agent(&ps, t->agent, err));
  else
    MANTA_TRY(manta__ask_ps(&ps, false, err));
  *found = manta__live_find(&ps, t->ref.path, &live);
  if (*found) {
    t->agent = live.agent;
    t->driver = live.driver;
    snprintf(t->path, sizeof t->path, "%s", live.path);
  }
  manta_value_fini(&ps);
  return MANTA_OK;
}

static manta_status not_running(const struct target *t, manta_error *err)
{
  struct manta__standing s;
  MANTA_TRY(manta__standing_read(&s, &t->ref, err));
  const char *word = s.word;
  pid_t holder = s.holder;
  manta__standing_fini(&s);
  if (holder > 0)
    return manta_error_set(err, MANTA_ESTATE, "no agent knows %s, but process %d writes its log",
                           t->ref.name, (int)holder);
  return manta_error_set(err, MANTA_ESTATE, "%s is not running: it %s", t->ref.name,
                         strcmp(word, "interrupted") ? word : "was interrupted");
}

// A run has its log, and with it a holder, a moment before its agent hears of it. A program may
// keep its workers after the run: then the agent still names it, but nobody holds it (idle_too).
static manta_status find(struct target *t, const char *what, bool idle_too, manta_error *err)
{
  bool held;
  bool found = false;
  *t = (struct target){.ref = MANTA__RUNREF_NONE};
  MANTA_TRY(manta__runref_open(&t->ref, what, err));
  for (int64_t by = manta__deadline(BEGIN_S);;) {
    held = manta__runlock_holder(t->ref.fd) != 0;
    MANTA_TRY(look(t, &found, err));
    if (found || !held || manta__now() > by)
      break;
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000l}, NULL);
  }
  bool idle = found && !held && t->driver > 0;
  return found && (!idle || idle_too) ? MANTA_OK : not_running(t, err);
}

// --- Ending --------------------------------------------------------------------------------------

enum outcome { STAYS, RUN_ENDED, ALL_GONE };

// Waits until agent and workers are gone, or at least the run has been closed by its driver.
static enum outcome await_end(struct target *t, double s, manta_error *err)
{
  int64_t by = manta__deadline(s), leave_by = MANTA__NEVER;
  bool found = true;
  for (;;) {
    if (look(t, &found, err) == MANTA_OK && !found)
      return ALL_GONE;
    if (manta__runlock_holder(t->ref.fd) == 0 && t->driver > 0) {
      if (leave_by == MANTA__NEVER)
        leave_by = manta__deadline(LEAVE_S);
      if (manta__now() > leave_by)
        return RUN_ENDED;
    }
    if (manta__now() > by)
      return STAYS;
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000l}, NULL);
  }
}

// The descriptor is taken before the agent is asked again: then it cannot be another process's.
static manta_status kill_driver(struct target *t, manta_error *err)
{
  bool found;
  pid_t pid = t->driver;
  int fd = pid > 0 ? manta__pidfd_open(pid) : -1;
  manta_status st = look(t, &found, err);
  if (st == MANTA_OK && found && t->driver == pid && fd >= 0 &&
      syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
    st = manta_error_set(err, MANTA_EDENIED, "kill %d: %m", (int)pid);
  manta__fd_close(&fd);
  return st;
}

// A driver that is gone has left its agent the last checkpoint to write.
static manta_status end_by_force(struct target *t, manta_error *err)
{
  pid_t pid = t->driver;
  if (pid > 0)
    MANTA_TRY(kill_driver(t, err));
  if (await_end(t, LAST_S, err) != ALL_GONE)
    return manta_error_set(err, MANTA_ETIMEDOUT, "the agent of %s (pid %d) does not end",
                           t->ref.name, (int)t->agent);
  if (pid > 0)
    printf("killed %s and its program (pid %d)\n", t->ref.name, (int)pid);
  else
    printf("ended %s\n", t->ref.name);
  return MANTA_OK;
}

static manta_status end_run(struct target *t, bool now, manta_error *err)
{
  if (now || t->driver < 0)
    return end_by_force(t, err);
  manta_status st = manta__ask_run(t->agent, "kill", t->path, 0, err);
  if (st < 0 && st != MANTA_ENOENT && st != MANTA_ECLOSED) // those: it has just ended
    return st;
  switch (await_end(t, REACT_S, err)) {
  case ALL_GONE:
    printf("ended %s\n", t->ref.name);
    return MANTA_OK;
  case RUN_ENDED:
    printf("ended %s; its program (pid %d) continues\n", t->ref.name, (int)t->driver);
    return MANTA_OK;
  default:
    manta__say("%s did not end within %.0f s: its program is killed", t->ref.name, REACT_S);
    return end_by_force(t, err);
  }
}

int manta__cmd_kill(const struct manta__args *a)
{
  struct target t;
  manta_error err = MANTA_ERROR_INIT;
  bool now = manta__args_has(a, "now");
  manta_status st = find(&t, a->operand[0], now, &err);
  if (st == MANTA_OK)
    st = end_run(&t, now, &err);
  manta__runref_close(&t.ref);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}

// --- Other wishes --------------------------------------------------------------------------------

static manta_status ask(struct target *t, const char *run, const char *what, int64_t n,
                        manta_error *err)
{
  MANTA_TRY(find(t, run, false, err));
  if (t->driver < 0)
    return manta_error_set(err, MANTA_ESTATE, "the program of %s is gone", t->ref.name);
  return manta__ask_run(t->agent, what, t->path, n, err);
}

int manta__cmd_resize(const struct manta__args *a)
{
  struct target t = {.ref = MANTA__RUNREF_NONE};
  manta_error err = MANTA_ERROR_INIT;
  int64_t n;
  manta_status st =
      manta__args_int(&n, a->operand[1], "the number of workers", 1, MANTA_MAX_RANKS, &err);
  if (st == MANTA_OK)
    st = ask(&t, a->operand[0], "resize", n, &err);
  if (st == MANTA_OK)
    printf("asked %s to continue with %d worker%s after its next checkpoint\n", t.ref.name, (int)n,
           n == 1 ? "" : "s");
  manta__runref_close(&t.ref);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}

int manta__cmd_notice(const struct manta__args *a)
{
  struct target t = {.ref = MANTA__RUNREF_NONE};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = ask(&t, a->operand[0], "notice", 0, &err);
  if (st == MANTA_OK)
    printf("asked %s to save and stop\n", t.ref.name);
  manta__runref_close(&t.ref);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}
