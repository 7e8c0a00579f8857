/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/runref.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ckpt/replica.h"
#include "cmd/ask.h"
#include "cmd/format.h"
#include "event/lock.h"
#include "event/log.h"
#include "remote/objects.h"
#include "sys/sock.h"

#define WRITER       "manta-writer\n" /* what /proc calls it */
#define DYING_S      0.5
#define LAST_WRITE_S 40.0

static const char *last_part(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool fits(const char *name, const char *what)
{
  size_t n = strlen(name), k = strlen(what);
  return n >= k && (!strncmp(name, what, k) || !strcmp(name + n - k, what));
}

// The only run going on that the name fits; "" if there is none, or more than one.
static const char *live_path(const manta_value *ps, const char *what)
{
  struct manta__live_at at = {0};
  struct manta__live live;
  const char *found = "";
  int n = 0;
  while (manta__live_next(ps, &at, &live)) {
    if (!live.path[0] || !fits(last_part(live.path), what))
      continue;
    found = live.path;
    if (!strcmp(last_part(live.path), what))
      return found;
    n++;
  }
  return n == 1 ? found : "";
}

static manta_status find_live(struct manta__runref *out, const char *what, manta_error *err)
{
  manta_value ps = {0};
  manta_error ignored = MANTA_ERROR_INIT;
  manta_status st = MANTA_ENOENT;
  if (what && *what && manta__ask_ps(&ps, true, &ignored) == MANTA_OK) {
    const char *path = live_path(&ps, what);
    if (*path)
      st = manta__rundir_find(path, &out->fd, &out->path, err);
  }
  manta_value_fini(&ps);
  return st;
}

// A run in a store: brought here first.
static manta_status open_stored(struct manta__runref *out, const char *uri, manta_error *err)
{
  char *dir = NULL;
  MANTA_TRY(manta__replica_fetch(uri, &dir, err));
  manta_status st = manta__rundir_find(dir, &out->fd, &out->path, err);
  manta__free(dir);
  if (st == MANTA_OK)
    out->name = last_part(out->path);
  return st;
}

manta_status manta__runref_open(struct manta__runref *out, const char *what, manta_error *err)
{
  *out = MANTA__RUNREF_NONE;
  if (what && manta__is_uri(what))
    return open_stored(out, what, err);
  manta_status st = manta__rundir_find(what, &out->fd, &out->path, err);
  if (st == MANTA_ENOENT && find_live(out, what, NULL) == MANTA_OK)
    st = MANTA_OK;
  if (st == MANTA_OK)
    out->name = last_part(out->path);
  return st;
}

void manta__runref_close(struct manta__runref *r)
{
  manta__fd_close(&r->fd);
  manta__free(r->path);
  *r = MANTA__RUNREF_NONE;
}

manta_status manta__runref_start(const struct manta__runref *r, manta_value *out, int64_t *wall_ns,
                                 manta_error *err)
{
  manta__log_reader *reader;
  struct manta__record h;
  const uint8_t *payload;
  MANTA_TRY(manta__log_reader_open(&reader, r->fd, err));
  int rc = manta__log_next(reader, &h, &payload, err);
  manta_status st = rc < 0 ? (manta_status)rc : MANTA_OK;
  if (rc == 0 || (rc > 0 && h.kind != MANTA__EV_RUN))
    st = manta_error_set(err, MANTA_ECORRUPT, "the log of %s does not say how the run began",
                         r->name);
  if (st == MANTA_OK)
    st = manta_value_unpack(out, payload, h.len, err);
  if (st == MANTA_OK)
    *wall_ns = h.wall_ns;
  manta__log_reader_close(reader);
  return st;
}

static const char *word_of(const struct manta__standing *s)
{
  if (s->sum.state == MANTA__RUN_DONE)
    return "finished";
  if (s->sum.state == MANTA__RUN_FAILED)
    return "failed";
  return s->holder && !s->ending ? "running" : "interrupted";
}

static bool is_writer(pid_t pid)
{
  char path[64], name[32];
  snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
  int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof name - 1);
  manta__fd_close(&fd);
  return n > 0 && n == (ssize_t)strlen(WRITER) && !memcmp(name, WRITER, (size_t)n);
}

// The holder first: a run that ends in between then shows as running, never as interrupted.
manta_status manta__standing_read(struct manta__standing *out, const struct manta__runref *r,
                                  manta_error *err)
{
  *out = (struct manta__standing){.holder = manta__runlock_holder(r->fd)};
  out->ending = is_writer(out->holder);
  MANTA_TRY(manta__run_summary_read(&out->sum, r->fd, r->path, err));
  out->word = word_of(out);
  return MANTA_OK;
}

// A driver that was killed this moment holds its lock for another one.
manta_status manta__standing_await(struct manta__standing *out, const struct manta__runref *r,
                                   manta_error *err)
{
  int64_t dead_by = manta__deadline(DYING_S), written_by = manta__deadline(LAST_WRITE_S);
  for (pid_t pid; (pid = manta__runlock_holder(r->fd)) != 0;) {
    int64_t now = manta__now();
    if (now > written_by || (now > dead_by && !is_writer(pid)))
      break;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  return manta__standing_read(out, r, err);
}

void manta__standing_fini(struct manta__standing *s)
{
  manta__run_summary_fini(&s->sum);
}

const char *manta__text_argv(char *buf, size_t size, const manta_value *argv)
{
  size_t at = 0;
  buf[0] = 0;
  for (size_t i = 0; argv && i < argv->count && at + 1 < size; i++) {
    const char *word = manta_value_as_string(manta_value_at(argv, i), "?");
    int n = snprintf(buf + at, size - at, "%s%s", i ? " " : "", word);
    at += n > 0 ? (size_t)n : 0;
  }
  return manta__text_safe(buf);
}
