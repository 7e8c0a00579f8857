/* SPDX-License-Identifier: Apache-2.0
 *
 * The membership of a run: scenarios by table, and a random walk that checks what must hold in any
 * order of events.
 */
#include "base/clock.h"
#include "group/membership.h"
#include "test.h"

#define PLACES 4
#define SECOND 1000000000ll

enum op {
  END,
  FORMED, /* n workers */
  NOROOM, /* status */
  DONE,   /* rank n, status */
  DYING,  /* rank n */
  GONE,   /* rank n */
  AGENT,
  HOST, /* with the ranks from n on */
  STOP,
  NOTICE,
  RESIZE, /* to n */
  CKPT,
  ROOM, /* for n */
  TICK
};

/* What happens at `ms`, and what is then asked for: F form, A abort, K kill, R renew, O over. */
struct step {
  enum op op;
  int n;
  int status;
  int64_t ms;
  const char *asked;
};

struct scenario {
  const char *name;
  struct manta__policy policy;
  struct step step[40];
  enum manta__phase phase;
  manta_status root;
  int root_rank;
  uint32_t attempt;
  int retries;
};

/* Once more than a second into the clock: 0 means "never" in places. */
static int64_t at_ms(int64_t ms)
{
  return SECOND + ms * 1000000;
}

static void ask(struct manta__membership *g, int64_t now, char *out, size_t size)
{
  static const char letter[] = {0, 'F', 'A', 'K', 'R', 'O'};
  size_t n = 0;
  for (enum manta__membership_do d; (d = manta__membership_next(g, now)) != MANTA__DO_NOTHING;) {
    assert_true(n < size - 1);
    out[n++] = letter[d];
  }
  out[n] = 0;
}

static void apply(struct manta__membership *g, const struct step *s)
{
  static manta_error err;
  int64_t now = at_ms(s->ms), wids[PLACES];
  err = (manta_error){.status = (manta_status)s->status, .rank = -1};
  snprintf(err.message, sizeof err.message, "at %lld", (long long)s->ms);
  int64_t wid = s->op == DONE || s->op == GONE || s->op == DYING ? g->member[s->n].wid : 0;
  for (int r = 0; r < PLACES; r++)
    wids[r] = (int64_t)g->attempt * 100 + r;
  switch (s->op) {
  case FORMED:
    manta__membership_formed(g, wids, s->n);
    break;
  case NOROOM:
    manta__membership_noroom(g, &err, now);
    break;
  case DONE:
    manta__membership_done(g, wid, (manta_status)s->status, &err);
    break;
  case DYING:
    manta__membership_dying(g, wid);
    break;
  case GONE:
    manta__membership_gone(g, wid, &err, now);
    break;
  case AGENT:
    manta__membership_agent_lost(g, &err);
    break;
  case HOST: // of two, the second
    manta__membership_host_lost(g, s->n, g->world - s->n, &err);
    break;
  case STOP:
    manta__membership_stop(g, MANTA_ECANCELED, "canceled");
    break;
  case NOTICE:
    manta__membership_notice(g);
    break;
  case RESIZE:
    manta__membership_resize(g, s->n);
    break;
  case CKPT:
    manta__membership_checkpoint(g, now);
    break;
  case ROOM:
    manta__membership_room(g, s->n, now);
    break;
  default:
    break;
  }
}

/* max_retries, retry_errors */
#define POLICY(retries, errors)                                                                    \
  {                                                                                                \
    .want = 2, .min = 1, .max_retries = (retries), .retry_errors = (errors), .grace_s = 5,         \
    .grow_after_s = 30, .resize_every_s = 600                                                      \
  }
#define FRESH(retries, errors)                                                                     \
  {                                                                                                \
    .want = 2, .min = 1, .max_retries = (retries), .retry_errors = (errors), .grace_s = 5,         \
    .grow_after_s = 30, .resize_every_s = 600, .fresh = true                                       \
  }
#define LOST MANTA_EPEERLOST

static const struct scenario scenarios[] = {
    {"all done well is the end",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {DONE, 1, 0, 1, ""}, {DONE, 0, 0, 2, "O"}},
     MANTA__PHASE_OVER,
     MANTA_OK,
     -1,
     0,
     0},
    {"a loss is retried once all are accounted for",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {GONE, 1, 0, 10, "A"},
      {DONE, 0, LOST, 20, "F"},
      {FORMED, 2, 0, 30, ""},
      {DONE, 0, 0, 40, ""},
      {DONE, 1, 0, 41, "O"}},
     MANTA__PHASE_OVER,
     MANTA_OK,
     -1,
     1,
     1},
    {"successors are forked when a death is known, once",
     FRESH(1, false),
     {{FORMED, 2, 0, 0, ""},
      {DYING, 1, 0, 10, "R"},
      {DONE, 0, LOST, 11, "A"},
      {GONE, 1, 0, 20, "F"},
      {FORMED, 2, 0, 30, ""},
      {DYING, 0, 0, 40, ""}, // the retries are used up
      {DONE, 1, LOST, 41, "A"},
      {GONE, 0, 0, 42, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EWORKER,
     0,
     1,
     1},
    {"successors are forked before the abort of a loss, a resize and an error that is retried",
     FRESH(3, true),
     {{FORMED, 2, 0, 0, ""},
      {GONE, 1, 0, 1, "RA"},
      {DONE, 0, LOST, 2, "F"},
      {FORMED, 2, 0, 3, ""},
      {RESIZE, 1, 0, 4, ""},
      {CKPT, 0, 0, 5, "AR"},
      {DONE, 0, MANTA_EABORTED, 6, ""},
      {DONE, 1, MANTA_EABORTED, 7, "F"},
      {FORMED, 1, 0, 8, ""},
      {DONE, 0, MANTA_EUSER, 9, "RF"}},
     MANTA__PHASE_FORMING,
     MANTA_OK,
     -1,
     3,
     2},
    {"nothing is forked ahead of a run's end",
     FRESH(2, false),
     {{FORMED, 2, 0, 0, ""},
      {DONE, 1, MANTA_EUSER, 1, "A"},
      {DYING, 0, 0, 2, ""},
      {DONE, 0, MANTA_EABORTED, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EUSER,
     1,
     0,
     0},
    {"the echo before the loss is not the root",
     POLICY(0, false),
     {{FORMED, 2, 0, 0, ""}, {DONE, 0, LOST, 10, "A"}, {GONE, 1, 0, 20, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EWORKER,
     1,
     0,
     0},
    {"retries are used up",
     POLICY(1, false),
     {{FORMED, 1, 0, 0, ""}, {GONE, 0, 0, 1, "F"}, {FORMED, 1, 0, 2, ""}, {GONE, 0, 0, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EWORKER,
     0,
     1,
     1},
    {"a user's error ends the run",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {DONE, 1, MANTA_EUSER, 1, "A"}, {DONE, 0, MANTA_EABORTED, 2, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EUSER,
     1,
     0,
     0},
    {"a user's error is retried if asked, and counts",
     POLICY(1, true),
     {{FORMED, 1, 0, 0, ""},
      {DONE, 0, MANTA_EUSER, 1, "F"},
      {FORMED, 1, 0, 2, ""},
      {DONE, 0, MANTA_EUSER, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EUSER,
     0,
     1,
     1},
    {"who does not follow the abort is killed, once",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {GONE, 1, 0, 1, "A"},
      {TICK, 0, 0, 5000, ""},
      {TICK, 0, 0, 5001, "K"},
      {TICK, 0, 0, 90000, ""},
      {GONE, 0, 0, 90001, "F"}},
     MANTA__PHASE_FORMING,
     MANTA_OK,
     -1,
     1,
     1},
    {"a peer's echo is a loss even when the lost one is known late",
     POLICY(0, false),
     {{FORMED, 2, 0, 0, ""},
      {DONE, 0, LOST, 1, "A"},
      {TICK, 0, 0, 5001, "K"},
      {GONE, 1, 0, 6000, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EPEERLOST,
     -1,
     0,
     0},
    {"an echo of nothing is no success",
     POLICY(0, false),
     {{FORMED, 1, 0, 0, ""}, {DONE, 0, MANTA_EABORTED, 1, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EPEERLOST,
     -1,
     0,
     0},
    {"the first real error wins over the second",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {DONE, 1, MANTA_EUSER, 1, "A"}, {DONE, 0, MANTA_EIO, 2, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EUSER,
     1,
     0,
     0},
    {"a loss known within 200 ms of an error is its root",
     POLICY(0, false),
     {{FORMED, 2, 0, 0, ""}, {DONE, 1, MANTA_EUSER, 100, "A"}, {GONE, 0, 0, 300, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EWORKER,
     0,
     0,
     0},
    {"a loss later than 200 ms is a consequence",
     POLICY(0, false),
     {{FORMED, 2, 0, 0, ""}, {DONE, 1, MANTA_EUSER, 100, "A"}, {GONE, 0, 0, 301, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EUSER,
     1,
     0,
     0},
    {"an error after a loss is a consequence",
     POLICY(0, false),
     {{FORMED, 2, 0, 0, ""}, {GONE, 0, 0, 1, "A"}, {DONE, 1, MANTA_EUSER, 2, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EWORKER,
     0,
     0,
     0},
    {"waiting for room doubles up to 10 s",
     POLICY(2, false),
     {{NOROOM, 0, MANTA_ENOROOM, 0, ""},
      {TICK, 0, 0, 99, ""},
      {TICK, 0, 0, 100, "F"},
      {NOROOM, 0, MANTA_ENOROOM, 100, ""},
      {TICK, 0, 0, 299, ""},
      {TICK, 0, 0, 300, "F"},
      {NOROOM, 0, MANTA_ENOROOM, 300, ""},
      {TICK, 0, 0, 700, "F"},
      {NOROOM, 0, MANTA_ENOROOM, 700, ""},
      {TICK, 0, 0, 1500, "F"},
      {NOROOM, 0, MANTA_ENOROOM, 1500, ""},
      {TICK, 0, 0, 3100, "F"},
      {NOROOM, 0, MANTA_ENOROOM, 3100, ""},
      {TICK, 0, 0, 6300, "F"},
      {NOROOM, 0, MANTA_ENOROOM, 6300, ""},
      {TICK, 0, 0, 12699, ""},
      {TICK, 0, 0, 12700, "F"},
      {NOROOM, 0, MANTA_ENOROOM, 12700, ""},
      {TICK, 0, 0, 22699, ""},
      {TICK, 0, 0, 22700, "F"},
      {NOROOM, 0, MANTA_ENOROOM, 22700, ""},
      {TICK, 0, 0, 32699, ""},
      {TICK, 0, 0, 32700, "F"},
      {FORMED, 2, 0, 32701, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     0,
     0},
    {"what cannot be started ends the run",
     POLICY(2, false),
     {{NOROOM, 0, MANTA_ESTATE, 0, "O"}},
     MANTA__PHASE_OVER,
     MANTA_ESTATE,
     -1,
     0,
     0},
    {"what cannot be started is not retried like a function's error",
     POLICY(-1, true),
     {{NOROOM, 0, MANTA_ESTATE, 0, "O"}},
     MANTA__PHASE_OVER,
     MANTA_ESTATE,
     -1,
     0,
     0},
    {"stop while forming",
     POLICY(2, false),
     {{STOP, 0, 0, 0, ""},
      {FORMED, 2, 0, 1, "A"},
      {DONE, 0, MANTA_EABORTED, 2, ""},
      {DONE, 1, MANTA_EABORTED, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_ECANCELED,
     -1,
     0,
     0},
    {"stop while waiting for room",
     POLICY(2, false),
     {{NOROOM, 0, MANTA_ENOROOM, 0, ""}, {STOP, 0, 0, 10, "O"}},
     MANTA__PHASE_OVER,
     MANTA_ECANCELED,
     -1,
     0,
     0},
    {"stop while running, somebody deaf",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {STOP, 0, 0, 10, "A"},
      {DONE, 0, MANTA_EABORTED, 11, ""},
      {TICK, 0, 0, 5010, "K"},
      {GONE, 1, 0, 5020, "O"}},
     MANTA__PHASE_OVER,
     MANTA_ECANCELED,
     -1,
     0,
     0},
    {"stop while ending after a loss: no more attempts",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {GONE, 0, 0, 10, "A"}, {STOP, 0, 0, 11, ""}, {DONE, 1, LOST, 12, "O"}},
     MANTA__PHASE_OVER,
     MANTA_ECANCELED,
     -1,
     0,
     0},
    {"what breaks after a stop does not change the reason",
     POLICY(2, false),
     {{FORMED, 3, 0, 0, ""},
      {STOP, 0, 0, 10, "A"},
      {DONE, 0, MANTA_EUSER, 11, ""},
      {GONE, 1, 0, 12, ""},
      {DONE, 2, MANTA_EABORTED, 13, "O"}},
     MANTA__PHASE_OVER,
     MANTA_ECANCELED,
     -1,
     0,
     0},
    {"a notice lets ranks leave in their own time",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {NOTICE, 0, 0, 1, ""},
      {DONE, 1, MANTA_EPREEMPTED, 2, ""},
      {TICK, 0, 0, 20001, ""},
      {DONE, 0, MANTA_EPREEMPTED, 20001, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EPREEMPTED,
     -1,
     0,
     0},
    {"but one that waits for a rank that left is not waited for",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {NOTICE, 0, 0, 1, ""},
      {DONE, 1, MANTA_EPREEMPTED, 2, ""},
      {TICK, 0, 0, 20002, "A"},
      {DONE, 0, MANTA_EABORTED, 20003, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EPREEMPTED,
     -1,
     0,
     0},
    {"nor anybody once rank 0 has left",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {NOTICE, 0, 0, 1, ""},
      {DONE, 0, MANTA_EPREEMPTED, 2, "A"},
      {DONE, 1, MANTA_EABORTED, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EPREEMPTED,
     -1,
     0,
     0},
    {"a notice that only a worker saw counts for the run",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {DONE, 1, MANTA_EPREEMPTED, 2, ""},
      {DONE, 0, MANTA_EPREEMPTED, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EPREEMPTED,
     -1,
     0,
     0},
    {"a loss after a notice is not retried",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {NOTICE, 0, 0, 1, ""}, {GONE, 0, 0, 2, "A"}, {DONE, 1, LOST, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EPREEMPTED,
     -1,
     0,
     0},
    {"a notice while waiting for room",
     POLICY(2, false),
     {{NOROOM, 0, MANTA_ENOROOM, 0, ""}, {NOTICE, 0, 0, 1, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EPREEMPTED,
     -1,
     0,
     0},
    {"a resize waits for a checkpoint and costs no retry",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {RESIZE, 3, 0, 1, ""},
      {TICK, 0, 0, 60000, ""},
      {CKPT, 0, 0, 60001, "A"},
      {DONE, 0, MANTA_EABORTED, 60002, ""},
      {DONE, 1, MANTA_EABORTED, 60003, "F"},
      {FORMED, 3, 0, 60004, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     1,
     0},
    {"a wish to resize does not restart a run that has finished",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {RESIZE, 3, 0, 1, ""}, {DONE, 0, 0, 2, ""}, {DONE, 1, 0, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_OK,
     -1,
     0,
     0},
    {"a resize taken back is forgotten",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {RESIZE, 3, 0, 1, ""}, {RESIZE, 2, 0, 2, ""}, {CKPT, 0, 0, 3, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     0,
     0},
    {"a resize beyond all places is cut, one to nothing ignored",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {RESIZE, 0, 0, 1, ""},
      {CKPT, 0, 0, 2, ""},
      {RESIZE, 1000, 0, 3, ""},
      {CKPT, 0, 0, 4, "A"},
      {DONE, 0, MANTA_EABORTED, 5, ""},
      {DONE, 1, MANTA_EABORTED, 6, "F"},
      {FORMED, 4, 0, 7, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     1,
     0},
    {"a resize while a revival is formed is made when that is there, and costs no retry",
     FRESH(1, false),
     {{FORMED, 2, 0, 0, ""},
      {GONE, 1, 0, 1, "RA"},
      {DONE, 0, LOST, 2, "F"},
      {RESIZE, 1, 0, 3, ""},
      {FORMED, 2, 0, 4, "AR"},
      {DONE, 0, MANTA_EABORTED, 5, ""},
      {DONE, 1, MANTA_EABORTED, 6, "F"},
      {FORMED, 1, 0, 7, ""},
      {CKPT, 0, 0, 8, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     2,
     1},
    {"of several resizes while a revival is formed the newest counts",
     POLICY(1, false),
     {{FORMED, 2, 0, 0, ""},
      {GONE, 1, 0, 1, "A"},
      {DONE, 0, LOST, 2, "F"},
      {RESIZE, 1, 0, 3, ""},
      {RESIZE, 3, 0, 4, ""},
      {FORMED, 2, 0, 5, "A"},
      {DONE, 0, MANTA_EABORTED, 6, ""},
      {DONE, 1, MANTA_EABORTED, 7, "F"},
      {FORMED, 3, 0, 8, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     2,
     1},
    {"a resize taken back while an attempt is formed changes nothing",
     POLICY(1, false),
     {{RESIZE, 1, 0, 0, ""}, {RESIZE, 2, 0, 1, ""}, {FORMED, 2, 0, 2, ""}, {CKPT, 0, 0, 3, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     0,
     0},
    {"a resize while there is no room is asked for when there may be",
     POLICY(1, false),
     {{RESIZE, 3, 0, 0, ""},
      {NOROOM, 0, MANTA_ENOROOM, 1, ""},
      {RESIZE, 4, 0, 2, ""},
      {TICK, 0, 0, 200, "F"},
      {FORMED, 3, 0, 201, ""}, // as many as there is room for
      {CKPT, 0, 0, 202, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     0,
     0},
    {"what cannot be started is not tried again for a resize",
     POLICY(1, true),
     {{RESIZE, 3, 0, 0, ""}, {NOROOM, 0, MANTA_ENOENT, 1, "O"}},
     MANTA__PHASE_OVER,
     MANTA_ENOENT,
     -1,
     0,
     0},
    {"a resize during the end of an attempt is that of the next one",
     POLICY(1, false),
     {{FORMED, 2, 0, 0, ""},
      {GONE, 1, 0, 1, "A"},
      {RESIZE, 3, 0, 2, ""},
      {DONE, 0, LOST, 3, "F"},
      {FORMED, 3, 0, 4, ""},
      {CKPT, 0, 0, 5, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     1,
     1},
    {"a loss during a resize uses up a retry",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {RESIZE, 3, 0, 1, ""},
      {CKPT, 0, 0, 2, "A"},
      {GONE, 0, 0, 3, ""},
      {DONE, 1, MANTA_EABORTED, 4, "F"}},
     MANTA__PHASE_FORMING,
     MANTA_OK,
     -1,
     1,
     1},
    {"growth: room for 30 s, 10 min after the last change, at a checkpoint",
     POLICY(2, false),
     {{FORMED, 1, 0, 0, ""},
      {ROOM, 1, 0, 580000, ""},
      {CKPT, 0, 0, 599999, ""}, /* neither */
      {CKPT, 0, 0, 609999, ""}, /* room for 29.999 s only */
      {TICK, 0, 0, 700000, ""},
      {CKPT, 0, 0, 700001, "A"},
      {DONE, 0, MANTA_EABORTED, 700002, "F"},
      {FORMED, 2, 0, 700003, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     1,
     0},
    {"growth: not within 10 min of the last change",
     POLICY(2, false),
     {{FORMED, 1, 0, 0, ""}, {ROOM, 1, 0, 1, ""}, {CKPT, 0, 0, 599999, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     0,
     0},
    {"growth: room that went away counts from anew",
     POLICY(2, false),
     {{FORMED, 1, 0, 0, ""},
      {ROOM, 1, 0, 600000, ""},
      {ROOM, 0, 0, 620000, ""},
      {ROOM, 1, 0, 625000, ""},
      {CKPT, 0, 0, 654999, ""},
      {CKPT, 0, 0, 655000, "A"}},
     MANTA__PHASE_ENDING,
     MANTA_OK,
     -1,
     0,
     0},
    {"growth: a full group does not grow",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {ROOM, 1, 0, 1, ""}, {CKPT, 0, 0, 900000, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     0,
     0},
    {"the agent's loss takes all members with it",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""}, {AGENT, 0, 0, 1, "F"}, {FORMED, 2, 0, 2, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     1,
     1},
    {"a host's loss ends the attempt of the others, and is retried",
     POLICY(2, false),
     {{FORMED, 4, 0, 0, ""},
      {HOST, 2, MANTA_EAGENT, 1, "A"},
      {DONE, 0, LOST, 2, ""},
      {DONE, 1, LOST, 3, "F"},
      {FORMED, 2, 0, 4, ""}},
     MANTA__PHASE_RUNNING,
     MANTA_OK,
     -1,
     1,
     1},
    {"a host's loss without retries is the root",
     POLICY(0, false),
     {{FORMED, 4, 0, 0, ""},
      {HOST, 2, MANTA_EAGENT, 1, "A"},
      {DONE, 0, LOST, 2, ""},
      {TICK, 0, 0, 5001, "K"},
      {GONE, 1, 0, 5002, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EAGENT,
     2,
     0,
     0},
    {"a host that is lost after its ranks were done is no loss",
     POLICY(2, false),
     {{FORMED, 2, 0, 0, ""},
      {DONE, 1, 0, 1, ""},
      {HOST, 1, MANTA_EAGENT, 2, ""},
      {DONE, 0, 0, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_OK,
     -1,
     0,
     0},
    {"the agent's loss while forming and while waiting for room",
     POLICY(1, false),
     {{AGENT, 0, 0, 1, "F"}, {NOROOM, 0, MANTA_ENOROOM, 2, ""}, {AGENT, 0, 0, 3, "O"}},
     MANTA__PHASE_OVER,
     MANTA_EAGENT,
     -1,
     1,
     1},
    {"after the end nothing is asked",
     POLICY(2, false),
     {{FORMED, 1, 0, 0, ""},
      {DONE, 0, 0, 1, "O"},
      {STOP, 0, 0, 2, ""},
      {AGENT, 0, 0, 3, ""},
      {GONE, 0, 0, 4, ""},
      {NOTICE, 0, 0, 5, ""},
      {RESIZE, 3, 0, 6, ""},
      {CKPT, 0, 0, 7, ""},
      {FORMED, 2, 0, 8, ""},
      {NOROOM, 0, MANTA_ENOROOM, 9, ""},
      {TICK, 0, 0, 99999, ""}},
     MANTA__PHASE_OVER,
     MANTA_OK,
     -1,
     0,
     0},
};

static void play(const struct scenario *s)
{
  struct manta__member places[PLACES] = {0};
  struct manta__membership g;
  char asked[32];
  manta__membership_init(&g, &s->policy, places, PLACES);
  manta__membership_begin(&g, 0, at_ms(0));
  for (int i = 0; s->step[i].op != END; i++) {
    apply(&g, &s->step[i]);
    ask(&g, at_ms(s->step[i].ms), asked, sizeof asked);
    if (strcmp(asked, s->step[i].asked) != 0)
      fail_msg("\"%s\", step %d: asked \"%s\", want \"%s\"", s->name, i, asked, s->step[i].asked);
  }
  if (g.phase != s->phase || g.root.status != s->root || g.root.rank != s->root_rank ||
      g.attempt != s->attempt || g.retries != s->retries)
    fail_msg("\"%s\": phase %d root %s of rank %d attempt %u retries %d", s->name, g.phase,
             manta_status_name(g.root.status), g.root.rank, g.attempt, g.retries);
}

static void scenarios_play_out(void **ctx)
{
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
    play(&scenarios[i]);
}

// --- any order of events ------------------------------------------------------------------------

static uint64_t rng_state = 0x9e3779b97f4a7c15;

static uint32_t pick(uint32_t n)
{
  rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rng_state >> 33) % n;
}

/* What an outsider remembers of a group, to judge what it asks for. */
struct watch {
  struct manta__member places[PLACES];
  struct manta__membership g;
  int64_t now;
  uint32_t attempt;
  int kills, aborts, renewals, retries; /* of this attempt; retries in all */
  bool over;
  long asked[6], events, overs;
};

static manta_status some_status(void)
{
  static const manta_status all[] = {MANTA_OK,        MANTA_OK,       MANTA_OK,
                                     MANTA_EUSER,     MANTA_EINVAL,   MANTA_EIO,
                                     MANTA_EPEERLOST, MANTA_EABORTED, MANTA_EPREEMPTED};
  return all[pick(9)];
}

static bool all_well(const struct manta__membership *g)
{
  for (int r = 0; r < g->world; r++)
    if (g->member[r].state != MANTA__MB_DONE || g->member[r].status < 0)
      return false;
  return g->world > 0;
}

static int still_running(const struct manta__membership *g)
{
  int n = 0;
  for (int r = 0; r < g->world; r++)
    n += g->member[r].state == MANTA__MB_RUNNING;
  return n;
}

static void judge(struct watch *w, enum manta__membership_do d, bool was_well, int were_running)
{
  struct manta__membership *g = &w->g;
  assert_false(w->over);
  w->asked[d]++;
  if (d == MANTA__DO_KILL)
    assert_int_equal(++w->kills, 1);
  if (d == MANTA__DO_ABORT)
    assert_int_equal(++w->aborts, 1);
  if (d == MANTA__DO_RENEW) {
    assert_true(g->policy.fresh && !g->stop && !g->notice);
    assert_int_equal(++w->renewals, 1);
  }
  if (d == MANTA__DO_FORM && g->attempt != w->attempt) {
    assert_int_equal(g->attempt, w->attempt + 1);
    assert_int_equal(were_running, 0);
    assert_true(g->retries - w->retries <= 1);
    assert_false(was_well && w->aborts == 0); // a run that has finished is not started again
    assert_false(g->stop || g->notice);
    w->attempt = g->attempt;
    w->retries = g->retries;
    w->kills = w->aborts = w->renewals = 0;
  }
  if (d == MANTA__DO_FINISH) {
    assert_int_equal(were_running, 0);
    assert_int_equal(g->phase, MANTA__PHASE_OVER);
    if (g->root.status == 0)
      assert_true(was_well);
    w->over = true;
    w->overs++;
  }
  assert_true(g->policy.max_retries < 0 || g->retries <= g->policy.max_retries);
}

static void obey(struct watch *w)
{
  for (int i = 0;; i++) {
    bool well = all_well(&w->g);
    int were = still_running(&w->g);
    enum manta__membership_do d = manta__membership_next(&w->g, w->now);
    if (d == MANTA__DO_NOTHING)
      break;
    assert_true(i < 5);
    judge(w, d, well, were);
  }
  // ENDING ends once all are accounted for: it never rests there with nobody running.
  assert_false(w->g.phase == MANTA__PHASE_ENDING && still_running(&w->g) == 0);
  assert_false(w->g.phase == MANTA__PHASE_ENDING && !w->g.killed && w->g.by == MANTA__NEVER);
}

static int64_t some_wid(const struct manta__membership *g)
{
  return (int64_t)(g->attempt - (g->attempt > 0 && pick(8) == 0)) * 100 + pick(PLACES + 1);
}

static void any_event(struct watch *w)
{
  static const enum op often[] = {DONE, GONE, DONE, DYING,  FORMED, FORMED, TICK, CKPT,
                                  ROOM, TICK, CKPT, NOROOM, RESIZE, DONE,   DONE, TICK};
  static const enum op rare[] = {STOP, NOTICE, AGENT, HOST, NOROOM};
  static manta_error err = {.rank = -1, .message = "why"};
  struct manta__membership *g = &w->g;
  enum op op = pick(60) == 0 ? rare[pick(5)] : often[pick(16)];
  struct step s = {.op = op, .n = (int)pick(PLACES) + 1};
  manta_status st = some_status();
  err.status = st < 0 && pick(3) == 0 ? st : MANTA_ENOROOM;
  w->events++;
  w->now += (int64_t)pick(4) * pick(4) * pick(4) * 100000000;
  if (op == DONE)
    manta__membership_done(g, some_wid(g), st, &err);
  else if (op == GONE)
    manta__membership_gone(g, some_wid(g), &err, w->now);
  else if (op == DYING)
    manta__membership_dying(g, some_wid(g));
  else if (op == NOROOM)
    manta__membership_noroom(g, &err, w->now);
  else if (op != TICK) {
    s.ms = (w->now - SECOND) / 1000000;
    apply(g, &s);
  }
  obey(w);
}

// With everybody answering in the end and the clock going on, it must not rest but in RUNNING or
// OVER; and RUNNING with everybody done must end, too.
static void settle(struct watch *w)
{
  static const manta_error err = {.rank = -1, .status = MANTA_ENOROOM, .message = "why"};
  for (int i = 0; !w->over; i++) {
    struct manta__membership *g = &w->g;
    assert_true(i < 2000);
    int64_t wids[PLACES];
    for (int r = 0; r < PLACES; r++)
      wids[r] = (int64_t)g->attempt * 100 + r;
    if (g->phase == MANTA__PHASE_FORMING && pick(4) == 0)
      manta__membership_noroom(g, &err, w->now);
    else if (g->phase == MANTA__PHASE_FORMING)
      manta__membership_formed(g, wids, (int)pick(PLACES) + 1);
    else if (g->phase == MANTA__PHASE_BACKOFF)
      w->now = g->by > w->now ? g->by : w->now;
    else if (pick(4) == 0)
      manta__membership_gone(g, wids[pick(PLACES)], &err, w->now);
    else
      manta__membership_done(g, wids[pick(PLACES)], pick(2) ? MANTA_OK : some_status(), &err);
    obey(w);
  }
}

static void no_order_of_events_breaks_it(void **ctx)
{
  static struct watch w;
  long walks = 0;
  for (; w.events < 4000000; walks++) {
    struct manta__policy p = POLICY((int)pick(12) - 1, pick(2) == 1);
    p.want = (int)pick(PLACES) + 1;
    p.fresh = pick(2) == 1;
    manta__membership_init(&w.g, &p, w.places, PLACES);
    manta__membership_begin(&w.g, 0, w.now = SECOND);
    w.attempt = 0;
    w.kills = w.aborts = w.renewals = w.retries = 0;
    w.over = false;
    for (int n = (int)pick(200); n > 0; n--)
      any_event(&w);
    if (!w.over && p.max_retries >= 0)
      settle(&w);
  }
  // It went everywhere, or the walk proves little.
  for (int d = MANTA__DO_FORM; d <= MANTA__DO_FINISH; d++)
    assert_true(w.asked[d] > 1000);
  assert_true(w.overs > walks / 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scenarios_play_out),
      cmocka_unit_test(no_order_of_events_breaks_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
