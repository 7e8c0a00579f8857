/* SPDX-License-Identifier: Apache-2.0
 *
 * train/next.c - what the user's thread waits for: the next iteration of a run, or of any of many.
 *
 * (1) Whatever a run has for that thread is looked after in one place: what it says is shown, a new
 *     attempt is prepared, rows are taken from it all at once and then given out one by one.
 * (2) Among many, the run that was looked after the longest time ago is next: none starves.
 * (3) One that has nothing costs a look at its first fields: no system call, no lock of its own.
 */
#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "train/deliver.h"
#include "train/driver.h"
#include "train/form.h"
#include "train/progress.h"
#include "train/rows.h"
#include "train/run.h"
#include "train/trainer.h"

#define drv manta__drv

// --- one run: with the lock held ----------------------------------------------------------------

static bool has_news(const manta_run *r)
{
  return r->batch || r->queue || r->over || r->texts || r->paused || manta__progress_due(r);
}

// Takes what the thread has aligned, all at once.
static bool take_batch(manta_run *r)
{
  if (!r->queue)
    return false;
  bool was_full = !manta__rows_reading(r->trainer);
  r->batch = r->queue;
  r->queue = r->queue_last = NULL;
  r->queued = 0;
  if (was_full)
    manta__driver_wake();
  return true;
}

// The lock is dropped while the user's function is at work: the trainer has no run then, and its
// workers can be called.
static void renew(manta_run *r)
{
  manta_trainer *t = r->trainer;
  manta_error err = MANTA_ERROR_INIT;
  t->parked = r;
  t->run = NULL;
  pthread_mutex_unlock(&drv.lock);
  manta_status st = r->renew(r->renew_ctx, (int)r->membership.attempt, &err);
  pthread_mutex_lock(&drv.lock);
  t->run = r;
  t->parked = NULL;
  r->paused = false;
  err.status = st == MANTA_ENOROOM ? MANTA_EUSER : st; // no room would be waited for
  if (st < 0)
    manta__membership_noroom(&r->membership, &err, manta__now());
  else
    manta__form(r);
  manta__driver_wake();
}

enum news { NOTHING, ROWS, END };

// Does what is due for the user's thread; drops the lock while user code runs.
static enum news look_after(manta_run *r)
{
  if (r->trainer && manta__progress_due(r))
    manta__progress_show(r);
  if (r->batch)
    return ROWS;
  if (!r->trainer)
    return END;
  manta__deliver_texts(r);
  if (take_batch(r))
    return ROWS;
  if (r->over && !r->texts) // its last words may have come while others were shown
    return END;
  if (r->paused)
    renew(r);
  return NOTHING;
}

// False when the time is up; the lock is dropped meanwhile.
static bool sleep_until(int64_t by)
{
  struct timespec t = {by / 1000000000, by % 1000000000};
  if (by == MANTA__NEVER)
    return pthread_cond_wait(&drv.cond, &drv.lock) == 0;
  return pthread_cond_timedwait(&drv.cond, &drv.lock, &t) != ETIMEDOUT;
}

static bool await_news(const manta_run *r, int64_t by)
{
  while (!has_news(r)) {
    int64_t due = manta__progress_next(r);
    if (!sleep_until(due < by ? due : by) && by <= due)
      return false;
  }
  return true;
}

static manta_status refuse_child(manta_error *err)
{
  return manta_error_set(err, MANTA_ESTATE, "a forked child cannot use its parent's run");
}

static int give(manta_run *r, enum news what, manta_rows *out, manta_error *err)
{
  return what == END ? manta__deliver_end(r, err) : manta__deliver_rows(r, out, err);
}

int manta_run_next(manta_run *r, double timeout_s, manta_rows *out, manta_error *err)
{
  int64_t by = manta__deadline(timeout_s);
  if (drv.dead)
    return refuse_child(err);
  if (r->batch && !manta__progress_due(r))
    return give(r, ROWS, out, err);
  if (r->moves)
    manta__screen_lay(&r->screen);
  pthread_mutex_lock(&drv.lock);
  enum news what;
  while ((what = look_after(r)) == NOTHING && await_news(r, by))
    ;
  pthread_mutex_unlock(&drv.lock);
  if (what == NOTHING)
    return manta_error_set(err, MANTA_ETIMEDOUT, "no row within %.3g s", timeout_s);
  return give(r, what, out, err);
}

// --- many runs ----------------------------------------------------------------------------------

struct many {
  manta_run *const *runs;
  size_t count;
  size_t at;   // whose turn it is
  bool moving; // some have rows that change on a screen
  int64_t due; // when the progress of one of them is to be shown
};

// False: nobody has anything.
static bool find_turn(struct many *m)
{
  const manta_run *first = NULL;
  m->due = MANTA__NEVER;
  for (size_t i = 0; i < m->count; i++) {
    const manta_run *r = m->runs[i];
    if (!r)
      continue;
    if (manta__progress_next(r) < m->due)
      m->due = manta__progress_next(r);
    m->moving |= r->moves;
    if (has_news(r) && (!first || r->turn < first->turn)) {
      first = r;
      m->at = i;
    }
  }
  return first != NULL;
}

// Two runs cannot have rows that change on one screen: whoever is to write there has it alone.
static void lift_others(const struct many *m)
{
  pthread_mutex_unlock(&drv.lock);
  for (size_t i = 0; i < m->count; i++)
    if (i != m->at && m->runs[i] && m->runs[i]->moves)
      manta__screen_lift(&m->runs[i]->screen);
  pthread_mutex_lock(&drv.lock);
}

// Those that were taken off when rows were given out come back, of the run that had them last.
static void lay_last(const struct many *m)
{
  manta_run *last = NULL;
  for (size_t i = 0; i < m->count; i++)
    if (m->runs[i] && m->runs[i]->moves && (!last || m->runs[i]->turn > last->turn))
      last = m->runs[i];
  pthread_mutex_unlock(&drv.lock);
  if (last)
    manta__screen_lay(&last->screen);
  pthread_mutex_lock(&drv.lock);
}

// False when the time is up.
static bool await_turn(struct many *m, int64_t by)
{
  if (find_turn(m))
    return true;
  if (m->moving)
    lay_last(m);
  while (!find_turn(m))
    if (!sleep_until(m->due < by ? m->due : by) && by <= m->due)
      return false;
  return true;
}

static bool is_any(const struct many *m)
{
  for (size_t i = 0; i < m->count; i++)
    if (m->runs[i])
      return true;
  return false;
}

int manta_run_next_any(manta_run *const *runs, size_t count, double timeout_s, size_t *which,
                       manta_rows *out, manta_error *err)
{
  struct many m = {.runs = runs, .count = count};
  int64_t by = manta__deadline(timeout_s);
  enum news what = NOTHING;
  *which = count;
  if (drv.dead)
    return refuse_child(err);
  if (!is_any(&m))
    return manta_error_set(err, MANTA_ENOENT, "there is no run to wait for");
  pthread_mutex_lock(&drv.lock);
  while (what == NOTHING && await_turn(&m, by)) {
    if (m.moving)
      lift_others(&m);
    runs[m.at]->turn = ++drv.turns;
    what = look_after(runs[m.at]);
  }
  pthread_mutex_unlock(&drv.lock);
  if (what == NOTHING)
    return manta_error_set(err, MANTA_ETIMEDOUT, "no row of any run within %.3g s", timeout_s);
  *which = m.at;
  return give(runs[m.at], what, out, err);
}
