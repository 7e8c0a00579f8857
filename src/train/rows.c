/* SPDX-License-Identifier: Apache-2.0 */
#include "train/rows.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/newest.h"
#include "train/run.h"
#include "train/say.h"
#include "train/trainer.h"

#define QUEUE_BYTES (32u << 20) /* aligned rows the user has not taken: then the rings fill up */
#define HELD_NS     1000000000  /* rows wait so long for a rank that lags behind */

bool manta__rows_reading(const manta_trainer *t)
{
  const manta_run *r = t->run;
  return !r || (r->queued <= QUEUE_BYTES && r->membership.phase != MANTA__PHASE_FORMING);
}

void manta__rows_queue(manta_run *r)
{
  struct manta__rowset *last, *first = manta__align_take(&r->align, &last);
  for (struct manta__rowset *s = first; s; s = s->next)
    r->queued += s->bytes;
  if (first && r->queue_last)
    r->queue_last->next = first;
  else if (first)
    r->queue = first;
  if (last)
    r->queue_last = last;
  if (r->align.warning[0]) {
    char text[sizeof r->align.warning];
    memcpy(text, r->align.warning, sizeof text);
    r->align.warning[0] = 0;
    manta__run_warn(r->trainer, "%s", text);
  }
}

static void log_row(manta_run *r, const struct manta__ring_rec *rec)
{
  manta_error err = MANTA_ERROR_INIT;
  if (manta__log_add(r->log, MANTA__EV_ROW, &rec->id, rec->wall_ns, manta__ring_payload(rec),
                     rec->used, &err) < 0)
    manta__warn("run.log: %s", err.message);
  manta__progress_row(r, &rec->id, rec->wall_ns, manta__ring_payload(rec), rec->used);
}

// Where the time went until there was something to see.
static void tell_start(manta_run *r)
{
  struct manta__timeline *t = &r->timeline;
  t->first_row = manta__now() - t->began;
  manta__info("%d workers asked for after %.1f ms, first row after %.1f ms", r->membership.world,
              (double)t->formed / 1e6, (double)t->first_row / 1e6);
}

// False: the row is to be read later.
static bool take_row(manta_run *r, const struct manta__ring_rec *rec, enum manta__ahead how)
{
  manta_error err = MANTA_ERROR_INIT;
  if (!r || rec->id.run != r->id || (!r->log && !r->light))
    return true;
  bool current = rec->id.attempt == r->membership.attempt; // else: logged, void
  bool fits = manta__align_fits(&r->align, rec->iteration);
  if (current && !fits && how == MANTA__HOLD)
    return false;
  if (current && rec->iteration < r->align.next)
    r->gaps_are_fine = false; // a late row: that rank does report
  if (r->log)
    log_row(r, rec);
  if (r->timeline.first_row == 0)
    tell_start(r);
  if (current && (fits || how == MANTA__PUSH) &&
      manta__align_push(&r->align, rec->id.rank, rec->iteration, manta__ring_payload(rec),
                        rec->used, &err) < 0)
    manta__warn("%s", err.message);
  return true;
}

int manta__rows_read(manta_trainer *t, struct manta__peer *p, enum manta__ahead how)
{
  manta_status st = MANTA_OK;
  int rows = 0;
  p->held = false;
  if (!p->ring.h || p->damaged)
    return 0;
  for (const struct manta__ring_rec *rec; (rec = manta__ring_next(&p->ring, &st)); rows++)
    if (!take_row(t->run, rec, how)) {
      manta__ring_unread(&p->ring, rec);
      p->held = true;
      break;
    }
  if (st < 0) {
    p->damaged = true;
    manta__run_warn(t, "the reports of worker %lld are damaged: no more are read from it",
                    (long long)p->wid);
  }
  return rows;
}

// Rows go to the log before they are released from their rings, and before callbacks see them.
void manta__rows_release(manta_trainer *t)
{
  manta_error err = MANTA_ERROR_INIT;
  if (t->run && t->run->log)
    manta__log_flush(t->run->log, &err); // a failure is kept and told by the log itself
  for (struct manta__peer *p = t->peers; p; p = p->next)
    if (p->ring.h && !(t->run && t->run->light)) // else when its rows are answered
      manta__ring_release(&p->ring);
  if (t->run)
    manta__rows_queue(t->run);
}

static void tell_done(manta_trainer *t, struct manta__peer *p)
{
  manta_run *r = t->run;
  int rank = manta__membership_rank(&r->membership, p->wid);
  p->done = false;
  manta__newest_settle(t, p);
  manta__align_end(&r->align, rank);
  manta__membership_done(&r->membership, p->wid, MANTA_OK, NULL);
}

static bool any_held(const manta_trainer *t)
{
  for (struct manta__peer *p = t->peers; p; p = p->next)
    if (p->held)
      return true;
  return false;
}

static int read_rings(manta_trainer *t, enum manta__ahead how)
{
  int rows = 0;
  for (struct manta__peer *p = t->peers; p; p = p->next) {
    rows += manta__rows_read(t, p, how);
    if (p->done && !p->held)
      tell_done(t, p);
  }
  return rows;
}

// Waits a while for a rank that lags behind, and from then on no more until it is heard of.
static int push_held(manta_trainer *t)
{
  manta_run *r = t->run;
  int64_t now = manta__now();
  if (r->held_ns == 0)
    r->held_ns = now;
  if (now - r->held_ns <= HELD_NS)
    return 0;
  r->held_ns = 0;
  r->gaps_are_fine = true;
  return read_rings(t, MANTA__PUSH);
}

int manta__rows_drain(manta_trainer *t)
{
  manta_run *r = t->run;
  int rows = 0, more;
  if (!manta__rows_reading(t))
    return 0;
  while ((more = read_rings(t, r && r->gaps_are_fine ? MANTA__PUSH : MANTA__HOLD)) > 0) {
    rows += more; // again: a slow rank's rows make room for a fast one's
    if (r)
      r->held_ns = 0;
  }
  if (r && any_held(t))
    rows += push_held(t);
  manta__rows_release(t);
  return rows;
}
