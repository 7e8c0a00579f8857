/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/feed.c - the thread of one sink.
 *
 * It follows run.log from the newest bookmark. When something fails it goes back to the newest
 * bookmark, waits, and follows again: there is one way to go on, whatever went wrong, and it is
 * that of a fresh process as well.
 */
#include "sink/feed.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sink/cuts.h"
#include "sink/gather.h"
#include "sink/state.h"
#include "sink/trials.h"
#include "sys/file.h"
#include "sys/sock.h"
#include "sys/thread.h"

#define STACK_BYTES (1u << 20)
#define FLUSH_NS    200000000LL  /* rows that keep coming are flushed so often */
#define LOOK_EVERY  256          /* records between two looks at the clock */
#define SAVE_NS     1000000000LL /* the file of the bookmark is at most so old */
#define PAUSE_S     0.1          /* after the first failure; doubled up to … */
#define PAUSE_MAX_S 5.0
#define WELL_NS     5000000000LL /* without a failure: works again (a full disk takes some) */
#define LAST_TRIES  3            /* of a sink that does not linger, when the run is over */

struct manta__sink_feed {
  const struct manta__sink_feed_run *run;
  const struct manta__sink_kind *row;  // of the table
  const struct manta__sink_kind *kind; // the same, loaded; NULL: not yet
  const manta_value *options;
  struct manta__sink_env env;
  struct manta__pick pick;
  struct manta__gather gather;
  struct manta__sink_state state;
  struct manta__cuts cuts;
  manta__log_follow *follow;
  void *sink;
  pthread_t thread;
  int wake; // eventfd: the end was set
  int outdir;
  atomic_int end;
  atomic_bool quit, ended;
  _Atomic int64_t moved_ns;
  bool whole, told;
  int failures, last_tries;
  int64_t flushed_ns, saved_ns, failed_ns;
  int unlooked; // records since the clock was looked at
};

// --- saying --------------------------------------------------------------------------------------

static void warn(const manta__sink_feed *f, const char *text)
{
  char all[1100];
  snprintf(all, sizeof all, "sink %s: %s", f->row->name, text);
  f->run->warn(f->run->ctx, all);
}

static void warn_of_sink(const struct manta__sink_env *env, const char *text)
{
  warn((const manta__sink_feed *)((const char *)env - offsetof(manta__sink_feed, env)), text);
}

static int64_t wall_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// --- bookmarks -----------------------------------------------------------------------------------

// A bookmark that is not on disk is only older than it could be: more is read again after a kill.
static void save(manta__sink_feed *f, int64_t now)
{
  f->saved_ns = now;
  manta__state_save(&f->state, NULL);
}

// What the sink wants to be remembered, before anything else happens. flushed: a bookmark follows.
static manta_status note_memo(manta__sink_feed *f, bool flushed, manta_error *err)
{
  bool changed = false, void_marks = false;
  const manta_value *memo = f->kind->memo ? f->kind->memo(f->sink, &changed, &void_marks) : NULL;
  if (!changed && !(flushed && f->kind->record))
    return MANTA_OK;
  if (manta_value_copy(&f->state.memo, memo) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory");
  if (void_marks)
    manta__state_back(&f->state, -1);
  return changed ? manta__state_save(&f->state, err) : MANTA_OK;
}

static void get_well(manta__sink_feed *f)
{
  warn(f, "works again");
  f->failures = 0;
  f->told = false;
}

static manta_status flush(manta__sink_feed *f, manta_error *err)
{
  int64_t now = manta__now();
  struct manta__bookmark b = {
      .iteration = f->gather.next - 1, .attempt = f->gather.attempt, .world = f->gather.world};
  MANTA_TRY(f->kind->flush(f->sink, err));
  MANTA_TRY(note_memo(f, true, err));
  f->flushed_ns = now;
  b.place = manta__gather_place(&f->gather, manta__log_follow_place(f->follow));
  f->kind->mark(f->sink, &b.mark);
  if (f->row->linger_s > 0) // files are not waited for, whatever a full disk takes meanwhile
    f->last_tries = 0;
  if (f->failures > 0 && now - f->failed_ns > WELL_NS)
    get_well(f);
  if (!memcmp(&b, manta__state_newest(&f->state), sizeof b))
    return MANTA_OK;
  manta__state_add(&f->state, &b);
  if (now - f->saved_ns > SAVE_NS)
    save(f, now);
  return MANTA_OK;
}

// --- beginning, and beginning again --------------------------------------------------------------

static manta_status open_outdir(manta__sink_feed *f, manta_error *err)
{
  const char *path = manta_value_as_string(manta_value_get(f->options, "logdir"), NULL);
  if (path && f->outdir < 0)
    MANTA_TRY(manta__dir_make(path, &f->outdir, err));
  f->env.outdir = path ? f->outdir : f->run->rundir;
  return MANTA_OK;
}

static manta_status open_sink(manta__sink_feed *f, manta_error *err)
{
  if (f->sink)
    return MANTA_OK;
  MANTA_TRY(manta__sink_load(f->row->name, &f->env.each, err));
  f->kind = f->run->trials ? &manta__sink_trials : f->env.each;
  MANTA_TRY(open_outdir(f, err));
  MANTA_TRY(f->kind->open(&f->sink, &f->env, err));
  return note_memo(f, false, err);
}

// To the newest bookmark.
static manta_status restart(manta__sink_feed *f, manta_error *err)
{
  const struct manta__bookmark *b = manta__state_newest(&f->state);
  manta_status st = f->kind->back(f->sink, &b->mark, err);
  if (st == MANTA_ECORRUPT) {
    b = manta__state_back(&f->state, -1);
    st = f->kind->back(f->sink, &b->mark, err);
  }
  MANTA_TRY(st);
  MANTA_TRY(manta__gather_reset(&f->gather, b->attempt, b->world, b->iteration, err));
  manta__log_follow_close(f->follow);
  f->follow = NULL;
  const struct manta__log_place *from = b->place.segment > 0 ? &b->place : NULL;
  return manta__log_follow_open(&f->follow, f->run->logdir, from, err);
}

// --- records -------------------------------------------------------------------------------------

static manta_status emit(void *ctx, const struct manta__sink_rows *rows, manta_error *err)
{
  manta__sink_feed *f = ctx;
  return f->kind->rows(f->sink, rows, err);
}

static manta_status on_rewind(manta__sink_feed *f, const struct manta__record *h,
                              const manta_value *v, manta_error *err)
{
  int64_t to = manta_value_as_int(manta_value_get(v, "to"), -1);
  if (to < 0)
    return MANTA_OK;
  if (f->kind->cuts && !manta__cuts_has(&f->cuts, h->id.attempt, to)) {
    MANTA_TRY(manta__cuts_add(&f->cuts, h->id.attempt, to, err));
    if (f->gather.next - 1 > to) {
      manta__state_back(&f->state, to);
      return restart(f, err);
    }
  }
  MANTA_TRY(manta__gather_begin(&f->gather, h->id.attempt, 0, to, err));
  return f->kind->rewound ? f->kind->rewound(f->sink, to, h->wall_ns, err) : MANTA_OK;
}

static manta_status on_other(manta__sink_feed *f, const struct manta__record *h,
                             const uint8_t *payload, manta_error *err)
{
  manta_value v = {0};
  manta_status st = manta_value_unpack(&v, payload, h->len, NULL);
  if (st < 0 || v.type != MANTA_MAP)
    st = MANTA_OK; // of another program: not for us
  else if (h->kind == MANTA__EV_REWIND)
    st = on_rewind(f, h, &v, err);
  else if (h->kind == MANTA__EV_ATTEMPT)
    st = manta__gather_begin(&f->gather, h->id.attempt,
                             (int)manta_value_as_int(manta_value_get(&v, "world"), 0),
                             manta_value_as_int(manta_value_get(&v, "from"), 0), err);
  else if (h->kind == MANTA__EV_FINISH)
    st = manta__gather_end(&f->gather, err);
  if (st == MANTA_OK && f->kind->event && v.type == MANTA_MAP)
    st = f->kind->event(f->sink, h, &v, err);
  manta_value_fini(&v);
  return st;
}

static manta_status take(manta__sink_feed *f, const struct manta__record *h, const uint8_t *payload,
                         const struct manta__log_place *before, manta_error *err)
{
  if (f->kind->record) {
    MANTA_TRY(f->kind->record(f->sink, h, payload, err));
    atomic_store(&f->moved_ns, manta__now());
    MANTA_TRY(note_memo(f, false, err));
  } else if (h->kind != MANTA__EV_ROW)
    MANTA_TRY(on_other(f, h, payload, err));
  else if (!f->kind->cuts || !manta__cuts_void(&f->cuts, h, payload))
    MANTA_TRY(manta__gather_row(&f->gather, h, payload, before, err));
  if (++f->unlooked < LOOK_EVERY)
    return MANTA_OK;
  f->unlooked = 0;
  return manta__now() - f->flushed_ns > FLUSH_NS ? flush(f, err) : MANTA_OK;
}

// --- following -----------------------------------------------------------------------------------

// Sleeps until the log or the end has news.
static void await_news(manta__sink_feed *f)
{
  struct pollfd p[2] = {{.fd = manta__log_follow_fd(f->follow), .events = POLLIN},
                        {.fd = f->wake, .events = POLLIN}};
  uint64_t n;
  poll(p, 2, -1);
  ssize_t rd = p[1].revents ? read(f->wake, &n, sizeof n) : 0;
  (void)rd;
}

static bool is_end(enum manta__sink_feed_end end, int got)
{
  return end == MANTA__SINK_FEED_WRITTEN ||
         (end == MANTA__SINK_FEED_ORPHANED && got == MANTA__FOLLOW_END);
}

// MANTA_OK: all is out, and there will be no more.
static manta_status follow(manta__sink_feed *f, manta_error *err)
{
  struct manta__record head;
  const uint8_t *payload;
  MANTA_TRY(open_sink(f, err));
  MANTA_TRY(restart(f, err));
  for (;;) {
    enum manta__sink_feed_end end =
        atomic_load(&f->end); // before we look: what is there then, is there
    struct manta__log_place before = manta__log_follow_place(f->follow);
    if (atomic_load(&f->quit))
      return manta_error_set(err, MANTA_ECANCELED, "was told to stop");
    int got = manta__log_follow_next(f->follow, &head, &payload, err);
    if (got == MANTA__FOLLOW_RECORD) {
      MANTA_TRY(take(f, &head, payload, &before, err));
      continue;
    }
    if (got == MANTA__FOLLOW_CUT) {
      manta__state_back(&f->state, -1);
      MANTA_TRY(restart(f, err));
      continue;
    }
    if (got < 0)
      return (manta_status)got;
    bool last = got == MANTA__FOLLOW_GONE || is_end(end, got);
    MANTA_TRY(last ? manta__gather_end(&f->gather, err)
                   : manta__gather_idle(&f->gather, wall_clock(), err));
    MANTA_TRY(flush(f, err));
    if (last) {
      save(f, manta__now());
      return MANTA_OK;
    }
    await_news(f);
  }
}

// --- the thread ----------------------------------------------------------------------------------

static void complain(manta__sink_feed *f, const manta_error *err)
{
  char text[MANTA_ERROR_MESSAGE_MAX + 40];
  f->failed_ns = manta__now();
  if (!f->told && err->status != MANTA_ECANCELED) {
    snprintf(text, sizeof text, "%s%s", err->message,
             err->status == MANTA_EUNSUPPORTED ? "" : "; trying again");
    warn(f, text);
  }
  f->told = true;
}

// False: there is no use in trying again.
static bool pause_before_next(manta__sink_feed *f)
{
  double s = PAUSE_S;
  for (int i = 0; i < f->failures && s < PAUSE_MAX_S; i++)
    s *= 2;
  f->failures++;
  if (atomic_load(&f->end) != MANTA__SINK_FEED_GOES_ON) {
    s = PAUSE_S;
    if ((f->row->linger_s == 0 || f->run->replay) && ++f->last_tries > LAST_TRIES)
      return false;
  }
  manta__fd_wait(f->wake, false, manta__deadline(s));
  uint64_t n;
  ssize_t rd = read(f->wake, &n, sizeof n);
  (void)rd;
  return !atomic_load(&f->quit);
}

static void tell_rest(const manta__sink_feed *f)
{
  char text[600], where[64] = "";
  if (!f->run->trials)
    snprintf(where, sizeof where, ": it has the rows up to iteration %lld",
             (long long)manta__state_newest(&f->state)->iteration);
  int n = snprintf(text, sizeof text, "did not get all%s", where);
  if (f->row->later)
    snprintf(text + n, sizeof text - (size_t)n, "\nhint: `%s %s` sends the rest", f->row->later,
             f->run->run_dir);
  else
    snprintf(text + n, sizeof text - (size_t)n, "\nhint: `manta sink %s` writes the rest",
             f->run->run_dir);
  warn(f, text);
}

static void *feed_thread(void *arg)
{
  manta__sink_feed *f = arg;
  for (bool again = true; again && !f->whole;) {
    manta_error err = MANTA_ERROR_INIT;
    f->whole = follow(f, &err) == MANTA_OK;
    if (!f->whole) {
      complain(f, &err);
      again = err.status != MANTA_EUNSUPPORTED && pause_before_next(f);
    }
  }
  if (!f->whole)
    tell_rest(f);
  else if (f->failures > 0)
    get_well(f);
  if (f->sink)
    f->kind->close(f->sink);
  f->sink = NULL;
  atomic_store(&f->ended, true);
  f->run->ended(f->run->ctx);
  return NULL;
}

// --- from other threads --------------------------------------------------------------------------

static void free_feed(manta__sink_feed *f)
{
  manta__log_follow_close(f->follow);
  manta__gather_fini(&f->gather);
  manta__state_fini(&f->state);
  manta__cuts_fini(&f->cuts);
  manta__pick_fini(&f->pick);
  manta__fd_close(&f->wake);
  manta__fd_close(&f->outdir);
  manta__free(f);
}

static manta_status begin(manta__sink_feed *f, const char *name, manta_error *err)
{
  manta__state_init(&f->state, f->run->rundir, name, f->options);
  MANTA_TRY(manta__pick_init(&f->pick, f->options, err));
  MANTA_TRY(manta__gather_init(&f->gather, &f->pick, emit, f, err));
  if ((f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
    return manta_error_set(err, MANTA_EIO, "eventfd: %m");
  errno = manta__thread_start(&f->thread, f->row->name, STACK_BYTES, feed_thread, f);
  return errno ? manta_error_set(err, MANTA_EIO, "cannot start a thread: %m") : MANTA_OK;
}

manta_status manta__sink_feed_start(manta__sink_feed **out, const struct manta__sink_feed_run *run,
                                    const char *name, const char *kind, const manta_value *options,
                                    manta_error *err)
{
  const struct manta__sink_kind *row;
  MANTA_TRY(manta__sink_check(kind, options, err));
  MANTA_TRY(manta__sink_find(kind, &row, err));
  manta__sink_feed *f = manta__calloc(1, sizeof *f);
  if (!f)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  f->run = run;
  f->row = row;
  f->options = options;
  f->wake = f->outdir = -1;
  f->env = (struct manta__sink_env){.run_id = run->run_id,
                                    .run_name = run->run_name,
                                    .run_dir = run->run_dir,
                                    .rundir = run->rundir,
                                    .config = run->config,
                                    .options = options,
                                    .memo = &f->state.memo,
                                    .quit = &f->quit,
                                    .warn = warn_of_sink};
  manta_status st = begin(f, name, err);
  if (st < 0)
    free_feed(f);
  else
    *out = f;
  return st;
}

static void wake(manta__sink_feed *f)
{
  uint64_t one = 1;
  ssize_t n = write(f->wake, &one, sizeof one);
  (void)n;
}

void manta__sink_feed_end(manta__sink_feed *f, enum manta__sink_feed_end how)
{
  atomic_store(&f->end, how);
  wake(f);
}

void manta__sink_feed_quit(manta__sink_feed *f)
{
  atomic_store(&f->quit, true);
  wake(f);
}

bool manta__sink_feed_ended(const manta__sink_feed *f)
{
  return atomic_load(&f->ended);
}

bool manta__sink_feed_whole(const manta__sink_feed *f)
{
  return f->whole;
}

int64_t manta__sink_feed_moved(const manta__sink_feed *f)
{
  return atomic_load(&f->moved_ns);
}

double manta__sink_feed_linger(const manta__sink_feed *f)
{
  return f->row->linger ? f->row->linger(f->options) : f->row->linger_s;
}

void manta__sink_feed_join(manta__sink_feed *f)
{
  pthread_join(f->thread, NULL);
  free_feed(f);
}
