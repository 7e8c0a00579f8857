/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/process.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "sink/feed.h"
#include "sink/setup.h"
#include "sink/state.h"
#include "sink/trials.h"
#include "sys/file.h"
#include "sys/sock.h"

#define QUIT_S 5.0 /* for a sink in a call that was told to quit */

struct sink_process {
  int conn;   // -1: there is no driver, or it is gone
  int wakeup; // eventfd: a feed has ended
  char path[PATH_MAX], id[20];
  struct manta__sink_feed_run run;
  manta_value setup;
  manta__sink_feed *feed[MANTA__SETUP_MAX_SINKS];
  int count;
  int64_t by; // when those that linger are told to quit, or an orphan ends
  bool quitting;
  int lock;
  int trials; // descriptor of the log of an experiment; -1: it is a run
  enum manta__sink_feed_end end;
};

// --- speaking ------------------------------------------------------------------------------------

static void say(struct sink_process *s, char what, const char *text)
{
  char packet[MANTA__SINK_PACKET];
  int n = snprintf(packet, sizeof packet, "%c%s", what, text);
  size_t len = n < (int)sizeof packet ? (size_t)n : sizeof packet - 1;
  if (s->conn >= 0 && send(s->conn, packet, len, MSG_NOSIGNAL) == (ssize_t)len)
    return;
  if (what == MANTA__SINK_WARN)
    manta__warn("%s", text);
}

static void on_warning(void *ctx, const char *text)
{
  say(ctx, MANTA__SINK_WARN, text);
}

static void on_feed_end(void *ctx)
{
  struct sink_process *s = ctx;
  uint64_t one = 1;
  ssize_t n = write(s->wakeup, &one, sizeof one);
  (void)n;
}

// --- beginning -----------------------------------------------------------------------------------

// One process at a time writes the files: that of a driver that is gone may still be at work.
static manta_status lock(struct sink_process *s, int rundir, bool wait, manta_error *err)
{
  int64_t by = manta__deadline(MANTA__SINK_ORPHAN_S);
  int folder;
  MANTA_TRY(manta__dir_makeat(rundir, MANTA__STATE_FOLDER, &folder, err));
  s->lock = openat(folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  close(folder);
  if (s->lock < 0)
    return manta_error_set(err, MANTA_EIO, "open " MANTA__STATE_FOLDER "/lock: %m");
  while (flock(s->lock, LOCK_EX | LOCK_NB) < 0) {
    if (!wait || manta__now() > by)
      return manta_error_set(err, MANTA_ESTATE, "the sinks of the run are at work already");
    usleep(5000);
  }
  return MANTA_OK;
}

// A sink that cannot begin is told of, and the others work.
static void start_feed(struct sink_process *s, size_t i, const manta_value *sink)
{
  char name[40];
  manta_error err = MANTA_ERROR_INIT;
  const char *kind = manta_value_as_string(manta_value_get(sink, "kind"), "");
  snprintf(name, sizeof name, "%zu-%.24s", i, kind);
  if (strchr(name, '/') || manta__sink_feed_start(&s->feed[s->count], &s->run, name, kind,
                                                  manta_value_get(sink, "options"), &err) < 0)
    say(s, MANTA__SINK_WARN, err.message);
  else
    s->count++;
}

static manta_status start_all(struct sink_process *s, int rundir, const char *only,
                              manta_error *err)
{
  static const manta_value none = {.type = MANTA_MAP};
  MANTA_TRY(manta__setup_read(rundir, &s->setup, err));
  MANTA_TRY(lock(s, rundir, s->conn >= 0, err));
  if ((s->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
    return manta_error_set(err, MANTA_EIO, "eventfd: %m");
  s->trials = openat(rundir, MANTA__TRIALS_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  manta__dir_path(rundir, s->path);
  const char *slash = strrchr(s->path, '/');
  const manta_value *config = manta_value_get(&s->setup, "config");
  snprintf(s->id, sizeof s->id, "%s", manta_value_as_string(manta_value_get(&s->setup, "run"), ""));
  s->run =
      (struct manta__sink_feed_run){.run_id = s->id,
                                    .run_name = slash ? slash + 1 : s->path,
                                    .run_dir = s->path,
                                    .rundir = rundir,
                                    .logdir = s->trials >= 0 ? s->trials : rundir,
                                    .trials = s->trials >= 0,
                                    .config = config && config->type == MANTA_MAP ? config : &none,
                                    .replay = s->conn < 0,
                                    .warn = on_warning,
                                    .ended = on_feed_end,
                                    .ctx = s};
  const manta_value *sinks = manta_value_get(&s->setup, "sinks");
  for (size_t i = 0; i < sinks->count; i++) {
    const manta_value *sink = manta_value_at(sinks, i);
    if (!only || !strcmp(only, manta_value_as_string(manta_value_get(sink, "kind"), "")))
      start_feed(s, i, sink);
  }
  return MANTA_OK;
}

// --- the end -------------------------------------------------------------------------------------

static void set_end(struct sink_process *s, enum manta__sink_feed_end how)
{
  double linger = how == MANTA__SINK_FEED_ORPHANED ? MANTA__SINK_ORPHAN_S : 0;
  if (s->end == how)
    return;
  s->end = how;
  for (int i = 0; i < s->count; i++) {
    double l = manta__sink_feed_linger(s->feed[i]);
    linger = l > linger ? l : linger;
    manta__sink_feed_end(s->feed[i], how);
  }
  s->by = linger > 0 && s->conn >= 0 ? manta__deadline(linger) : MANTA__NEVER;
}

// The time of those that linger is up; an orphan waits for nobody. One that does not hear is left
// in its call: nothing of it is needed any more.
static void quit_slow(struct sink_process *s)
{
  if (s->quitting) {
    say(s, MANTA__SINK_DONE, "");
    _exit(1);
  }
  for (int i = 0; i < s->count; i++)
    if (s->end == MANTA__SINK_FEED_ORPHANED || manta__sink_feed_linger(s->feed[i]) > 0)
      manta__sink_feed_quit(s->feed[i]);
  s->by = manta__deadline(QUIT_S);
  s->quitting = true;
}

// When the last of them that is at work is to be done, if it goes on as it does.
static int64_t patience(const struct sink_process *s)
{
  int64_t by = 0;
  for (int i = 0; i < s->count; i++) {
    double linger = manta__sink_feed_linger(s->feed[i]);
    int64_t until = manta__sink_feed_moved(s->feed[i]) + (int64_t)(linger * 1e9);
    if (!manta__sink_feed_ended(s->feed[i]) && until > by)
      by = until;
  }
  return by;
}

static int left(const struct sink_process *s)
{
  int n = 0;
  for (int i = 0; i < s->count; i++)
    n += !manta__sink_feed_ended(s->feed[i]);
  return n;
}

static void hear(struct sink_process *s)
{
  char what = 0;
  ssize_t n = recv(s->conn, &what, 1, MSG_DONTWAIT);
  if (n > 0 && what == MANTA__SINK_FINISH)
    set_end(s, MANTA__SINK_FEED_WRITTEN);
  if (n != 0)
    return;
  manta__fd_close(&s->conn);
  if (s->end == MANTA__SINK_FEED_GOES_ON)
    set_end(s, MANTA__SINK_FEED_ORPHANED);
}

static void serve(struct sink_process *s)
{
  while (left(s) > 0) {
    struct pollfd p[2] = {{.fd = s->wakeup, .events = POLLIN}, {.fd = s->conn, .events = POLLIN}};
    uint64_t n;
    poll(p, 2, manta__left_ms(s->by));
    ssize_t rd = p[0].revents ? read(s->wakeup, &n, sizeof n) : 0;
    (void)rd;
    if (p[1].revents)
      hear(s);
    if (s->run.trials && !s->quitting && manta__now() >= s->by && patience(s) > s->by)
      s->by = patience(s);
    if (manta__now() >= s->by)
      quit_slow(s);
  }
}

static bool join_all(struct sink_process *s)
{
  bool whole = true;
  for (int i = 0; i < s->count; i++) {
    whole &= manta__sink_feed_whole(s->feed[i]);
    manta__sink_feed_join(s->feed[i]);
  }
  s->count = 0;
  manta_value_fini(&s->setup);
  manta__fd_close(&s->wakeup);
  manta__fd_close(&s->lock);
  manta__fd_close(&s->trials);
  return whole;
}

// Each trial that runs has files of its own.
static void raise_limit(void)
{
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
  }
}

int manta__sink_main(int conn, int rundir)
{
  struct sink_process s = {
      .conn = conn, .wakeup = -1, .lock = -1, .trials = -1, .by = MANTA__NEVER};
  manta_error err = MANTA_ERROR_INIT;
  prctl(PR_SET_NAME, "manta-sink");
  signal(SIGPIPE, SIG_IGN);
  raise_limit();
  if (start_all(&s, rundir, NULL, &err) < 0) {
    say(&s, MANTA__SINK_WARN, err.message);
    say(&s, MANTA__SINK_DONE, "");
    return 1;
  }
  serve(&s);
  bool whole = join_all(&s);
  say(&s, MANTA__SINK_DONE, "");
  return whole ? 0 : 1;
}

manta_status manta__sink_replay(int rundir, const char *kind, manta_error *err)
{
  struct sink_process s = {.conn = -1, .wakeup = -1, .lock = -1, .trials = -1, .by = MANTA__NEVER};
  manta_status st = start_all(&s, rundir, kind, err);
  if (st == MANTA_OK) {
    set_end(&s, MANTA__SINK_FEED_WRITTEN);
    serve(&s);
  }
  if (!join_all(&s) && st == MANTA_OK)
    st = manta_error_set(err, MANTA_EIO, "not every sink of the run has all of it");
  return st;
}
