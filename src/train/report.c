/* SPDX-License-Identifier: Apache-2.0
 *
 * train/report.c - one row, from the caller's map straight into the ring.
 */
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pack.h"
#include "base/value.h"
#include "train/session.h"

#define gate          manta__session_gate
#define WAIT_STEP_NS  20000000 /* how often a waiting call looks at the abort word */
#define LOOK_NS       500000   /* … at first, when it waits for a decision */
#define CLOCKS_NS     10000000 /* how long the two clocks count as running alike */
#define AUTO_FIELDS   3
#define AUTO_BYTES    96
#define DETAIL_FIELDS 5
#define DETAIL_BYTES  512

// A running median by small steps: it needs no memory and shrugs off outliers.
static void beat(manta_session *s, int64_t now)
{
  struct manta__cell *c = s->job->cell;
  int64_t took = now - atomic_load_explicit(&c->beat_ns, memory_order_relaxed);
  int64_t typical = atomic_load_explicit(&c->step_ns, memory_order_relaxed);
  int64_t move = typical / 16 + 1;
  typical = typical == 0 ? took : typical + (took > typical ? move : -move);
  atomic_store_explicit(&c->step_ns, typical, memory_order_relaxed);
  atomic_store_explicit(&c->beat_ns, now, memory_order_relaxed);
}

static uint8_t *put_key(uint8_t *p, const char *key)
{
  return manta__pack_string(p, key, (uint32_t)strlen(key));
}

static uint8_t *put_details(uint8_t *p, manta_session *s, int64_t wall, int64_t now)
{
  const char *address, *interface;
  char date[32];
  struct tm tm;
  if (manta_session_address(s, &address, &interface, NULL) < 0)
    address = "127.0.0.1";
  time_t t = (time_t)(wall / 1000000000);
  localtime_r(&t, &tm);
  strftime(date, sizeof date, "%Y-%m-%d_%H-%M-%S", &tm);
  p = manta__pack_string(put_key(p, "_date"), date, (uint32_t)strlen(date));
  p = manta__pack_string(put_key(p, "_hostname"), s->host, (uint32_t)strlen(s->host));
  p = manta__pack_string(put_key(p, "_node_ip"), address, (uint32_t)strlen(address));
  p = manta__pack_int(put_key(p, "_pid"), getpid());
  return manta__pack_real(put_key(p, "_time_total_s"), (double)(now - s->began_ns) / 1e9);
}

static uint8_t *put_row(uint8_t *p, manta_session *s, const manta_value *row, int64_t wall,
                        int64_t now)
{
  p = manta__pack_map(p, row->count + AUTO_FIELDS + (s->detailed ? DETAIL_FIELDS : 0));
  for (uint32_t i = 0; i < row->count; i++) {
    p = put_key(p, row->u.pairs[i].key);
    p = manta__pack_into(p, &row->u.pairs[i].value);
  }
  p = manta__pack_int(put_key(p, "_timestamp"), wall / 1000000000);
  p = manta__pack_real(put_key(p, "_time_this_iter_s"), (double)(now - s->last_report_ns) / 1e9);
  p = manta__pack_int(put_key(p, "_training_iteration"), manta_session_iteration(s) + 1);
  return s->detailed ? put_details(p, s, wall, now) : p;
}

// The driver is slower than we are: wait, with our clock standing still, until it has read some.
static manta_status await_room(manta_session *s, size_t need, uint8_t **out, manta_error *err)
{
  struct manta__ring *ring = &s->job->worker->ring;
  manta_status st = MANTA_OK;
  atomic_store(&s->job->cell->stalled, 1);
  while (!(*out = manta__ring_reserve(ring, need)) &&
         (st = manta__ctl_check(s->job->ctl, err)) == 0) {
    manta__ring_wait_room(ring, manta__now() + WAIT_STEP_NS);
    manta_session_heartbeat(s); // another thread may have set our clock going
  }
  manta_session_heartbeat(s);
  atomic_store(&s->job->cell->stalled, 0);
  return st;
}

void manta__session_note_score(manta_session *s, const manta_value *row)
{
  const manta_value *v = manta__value_path(row, s->score_key);
  s->reported = true;
  if (!v)
    return;
  s->score = manta_value_as_real(v, NAN);
  s->has_score = !isnan(s->score);
  s->score_known = v->type == MANTA_REAL || v->type == MANTA_INT || v->type == MANTA_BOOL;
}

// Else retention would keep by a score that never comes. Before the first report there is none.
bool manta__session_lacks_score(const manta_session *s)
{
  return s->score_key && !s->score_optional && !s->score_known && s->job->id.rank == 0 &&
         s->reported;
}

static manta_status check_row(const manta_value *row, size_t *bytes, manta_error *err)
{
  if (!row || row->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "a report is a map of metrics");
  size_t n = manta__pack_size(row);
  if (n == 0 || n > MANTA__ROW_MAX)
    return manta_error_set(
        err, MANTA_ETOOBIG,
        "a report of %zu bytes is over the limit of %u\nhint: put large values into "
        "a checkpoint",
        n, MANTA__ROW_MAX);
  *bytes = n + AUTO_BYTES;
  return MANTA_OK;
}

// The wall clock at `now`: a step that it made is seen a little later. In `row`.
static int64_t wall_of(manta_session *s, int64_t now)
{
  if (now - s->compared_ns > CLOCKS_NS) {
    s->apart_ns = manta__wall() - now;
    s->compared_ns = now;
  }
  return now + s->apart_ns;
}

// In `row`.
static manta_status put(manta_session *s, const manta_value *row, size_t need, manta_error *err)
{
  struct manta__worker *w = s->job->worker;
  MANTA_TRY(manta__session_in_run(s, "report", err));
  MANTA_TRY(manta__ctl_check(s->job->ctl, err));
  need += s->detailed ? DETAIL_BYTES : 0;
  uint8_t *at = manta__ring_reserve(&w->ring, need);
  if (!at)
    MANTA_TRY(await_room(s, need, &at, err));
  int64_t now = manta__now(), wall = wall_of(s, now);
  uint8_t *end = put_row(at, s, row, wall, now);
  struct manta__ident id = manta__session_next_id(s);
  int64_t iteration = manta_session_iteration(s) + 1;
  atomic_store_explicit(&s->iteration, iteration, memory_order_relaxed);
  s->last_report_ns = now;
  manta__ring_publish(&w->ring, (size_t)(end - at), &id, wall, iteration);
  beat(s, now);
  if (s->score_key)
    manta__session_note_score(s, row);
  return MANTA_OK;
}

// In lockstep the driver gives the row's place back when it has decided what becomes of us. In
// `row`, as long as that takes.
static manta_status await_decision(manta_session *s, manta_error *err)
{
  struct manta__ring *ring = &s->job->worker->ring;
  manta_status st = MANTA_OK;
  int64_t step = LOOK_NS;
  atomic_store(&s->job->cell->stalled, 1);
  while (manta__ring_tail(ring) < ring->pos && (st = manta__ctl_check(s->job->ctl, err)) == 0) {
    manta__ring_wait_read(ring, ring->pos, manta__now() + step);
    step = 2 * step < WAIT_STEP_NS ? 2 * step : WAIT_STEP_NS;
  }
  // As if it came by a message, but before anything else is reported.
  if (st == MANTA_OK && atomic_load(&ring->h->asked))
    atomic_store(&s->job->ctl->notice, 1);
  manta_session_heartbeat(s);
  atomic_store(&s->job->cell->stalled, 0);
  return st;
}

static void wake_driver(struct manta__worker *w)
{
  if (manta__ring_sleeps(&w->ring)) {
    ssize_t n = write(w->wake, &(uint64_t){1}, 8);
    (void)n; // the counter is full: then it is awake
  }
}

manta_status manta_session_report(manta_session *s, const manta_value *row, manta_error *err)
{
  size_t need = 0;
  MANTA_TRY(check_row(row, &need, err));
  MANTA_TRY(manta__gate_enter(&gate, &gate.row, "report", err));
  manta_status st = put(s, row, need, err);
  if (st == MANTA_OK && s->lockstep) {
    manta__mutex_fence();
    wake_driver(gate.worker);
    st = await_decision(s, err);
  }
  // Whoever never saves, or has saved for this row, has nothing to wait for after a notice.
  bool settled = !s->saves || s->owed == manta_session_iteration(s);
  if (st == MANTA_OK && manta_session_preempted(s) && settled)
    st = manta__session_asked_to_stop(err);
  manta__mutex_leave(&gate.row);
  manta__mutex_fence();
  wake_driver(gate.worker); // which outlives the job
  return st;
}
