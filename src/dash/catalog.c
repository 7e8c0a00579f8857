/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/catalog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "event/record.h"
#include "sys/file.h"
#include "sys/sock.h"
#include "sys/tree.h"

#define SCAN_NS    2000000000ll  /* between two looks at the directory */
#define WEIGH_NS   15000000000ll /* … at the size of a run that somebody writes */
#define EXPERIMENT "experiment"  /* the directory of its log, as in tune/journal.h */
#define SLICE      4096          /* records read under one hold of the lock */
#define MAX_POLLS  256
#define MAX_OPEN   96 /* runs that are followed at a time, … */
#define MAX_KEPT   64 /* … and between two looks at them, unless somebody looks at them */

// --- Entries -------------------------------------------------------------------------------------

static void entry_close(struct manta__catalog *c, struct manta__entry *e)
{
  if (e->follow) {
    c->open--;
    e->place = manta__log_follow_place(e->follow);
  }
  manta__log_follow_close(e->follow);
  e->follow = NULL;
  manta__fd_close(&e->dir);
}

static void entry_free(struct manta__catalog *c, struct manta__entry *e)
{
  entry_close(c, e);
  manta__index_fini(&e->index);
  if (e->trials)
    manta__dash_trials_fini(e->trials);
  manta__free(e->trials);
  manta__free(e->name);
  manta__free(e);
}

// Bytes of its log: the number of segments and the length of the last tell whether it grew.
static int64_t log_size(int dir)
{
  int64_t total = 0;
  for (int i = 1;; i++) {
    char name[MANTA__SEGMENT_NAME_MAX];
    struct stat sb;
    manta__segment_name(name, i);
    if (fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW) < 0)
      return total;
    total += sb.st_size;
  }
}

static int open_dir(const struct manta__catalog *c, const char *name)
{
  return openat(c->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// The directory that its log is in.
static int open_log_dir(const struct manta__catalog *c, const struct manta__entry *e)
{
  int dir = open_dir(c, e->name);
  if (dir < 0 || !e->trials)
    return dir;
  int inner = openat(dir, EXPERIMENT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  close(dir);
  return inner;
}

static bool entry_open(struct manta__catalog *c, struct manta__entry *e)
{
  manta_error err = MANTA_ERROR_INIT;
  e->dir = open_log_dir(c, e);
  if (e->dir < 0)
    return false;
  const struct manta__log_place *from = e->place.segment ? &e->place : NULL;
  if (manta__log_follow_open(&e->follow, e->dir, from, &err) < 0) {
    snprintf(e->error, sizeof e->error, "%.255s", err.message);
    manta__fd_close(&e->dir);
    return false;
  }
  c->open++;
  return true;
}

// Its index begins anew. all: it is another log.
static void entry_forget(struct manta__entry *e, bool all)
{
  manta__index_restart(&e->index, all);
  if (e->trials)
    manta__dash_trials_fini(e->trials);
}

// To be read from its beginning again.
static void entry_restart(struct manta__catalog *c, struct manta__entry *e, bool anew)
{
  entry_close(c, e);
  e->place = (struct manta__log_place){0};
  entry_forget(e, anew);
  e->whole = false;
  e->begun++;
  e->version++;
}

const char *manta__entry_state(const struct manta__entry *e)
{
  if (e->trials && e->trials->records > 0)
    return e->trials->ended ? "finished" : e->live ? "running" : "interrupted";
  if (e->index.records == 0)
    return e->error[0] || (e->whole && !e->live) ? "interrupted" : "starting";
  if (e->index.ended)
    return e->index.failed ? "failed" : "finished";
  return e->live ? "running" : "interrupted";
}

// --- The directory -------------------------------------------------------------------------------

static manta_status open_only(struct manta__catalog *c)
{
  char *slash = strrchr(c->dir, '/');
  int run = c->fd;
  if (!slash || slash == c->dir)
    return MANTA_OK;
  *slash = 0;
  c->fd = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (c->fd < 0)
    c->fd = run;
  else
    close(run);
  c->only = manta__strdup(slash + 1);
  return c->only ? MANTA_OK : MANTA_ENOMEM;
}

manta_status manta__catalog_open(struct manta__catalog *c, const char *dir, manta_error *err)
{
  char path[PATH_MAX];
  *c = (struct manta__catalog){.fd = -1, .wake = {-1, -1}};
  pthread_mutex_init(&c->lock, NULL);
  c->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (c->fd < 0)
    return manta_error_set(err, errno == ENOENT || errno == ENOTDIR ? MANTA_ENOENT : MANTA_EIO,
                           "open directory %s: %m", dir);
  manta__dir_path(c->fd, path);
  manta_status st = (c->dir = manta__strdup(path)) ? MANTA_OK : MANTA_ENOMEM;
  if (st == MANTA_OK && (faccessat(c->fd, "run.log", F_OK, 0) == 0 ||
                         faccessat(c->fd, EXPERIMENT "/run.log", F_OK, 0) == 0))
    st = open_only(c);
  if (st == MANTA_OK && pipe2(c->wake, O_CLOEXEC | O_NONBLOCK) < 0)
    return manta_error_set(err, MANTA_EIO, "pipe: %m");
  return st < 0 ? manta_error_set(err, st, "no memory for the runs of %s", dir) : MANTA_OK;
}

void manta__catalog_close(struct manta__catalog *c)
{
  for (size_t i = 0; i < c->count; i++)
    entry_free(c, c->entry[i]);
  manta__free(c->entry);
  manta__free(c->only);
  manta__free(c->dir);
  manta__fd_close(&c->fd);
  manta__fd_close(&c->wake[0]);
  manta__fd_close(&c->wake[1]);
  pthread_mutex_destroy(&c->lock);
}

void manta__catalog_wake(struct manta__catalog *c)
{
  ssize_t n = write(c->wake[1], "", 1);
  (void)n; // full: it will look
}

struct manta__entry *manta__catalog_find(struct manta__catalog *c, const char *name)
{
  for (size_t i = 0; i < c->count; i++)
    if (!strcmp(c->entry[i]->name, name))
      return c->entry[i];
  return NULL;
}

static manta_status add_entry(struct manta__catalog *c, const char *name, int64_t changed_ns,
                              bool experiment)
{
  struct manta__entry **p = manta__realloc(c->entry, (c->count + 1) * sizeof *p);
  struct manta__entry *e = p ? manta__calloc(1, sizeof *e) : NULL;
  if (p)
    c->entry = p;
  if (e && experiment)
    e->trials = manta__calloc(1, sizeof *e->trials);
  if (!e || (experiment && !e->trials) || !(e->name = manta__strdup(name))) {
    if (e)
      manta__free(e->trials);
    manta__free(e);
    return MANTA_ENOMEM;
  }
  e->dir = -1;
  e->version = 1; // 0: nothing was sent
  e->seen = c->scan;
  e->changed_ns = changed_ns;
  c->entry[c->count++] = e;
  c->version++;
  return MANTA_OK;
}

static void look_at_name(struct manta__catalog *c, const char *name)
{
  struct manta__entry *e = manta__catalog_find(c, name);
  struct stat sb;
  char log[NAME_MAX + 32];
  if (name[0] == '.' || strlen(name) > NAME_MAX || (c->only && strcmp(name, c->only)))
    return;
  snprintf(log, sizeof log, "%s/run.log", name);
  bool experiment = faccessat(c->fd, log, R_OK, 0) < 0;
  if (experiment)
    snprintf(log, sizeof log, "%s/" EXPERIMENT "/run.log", name);
  if (fstatat(c->fd, name, &sb, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(sb.st_mode) ||
      (experiment && faccessat(c->fd, log, R_OK, 0) < 0))
    return;
  if (e)
    e->seen = c->scan;
  else if (c->count >= MANTA__CATALOG_RUNS)
    c->full = true;
  else
    add_entry(c, name, (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec, experiment);
}

static int newer_first(const void *a, const void *b)
{
  const struct manta__entry *x = *(struct manta__entry *const *)a;
  const struct manta__entry *y = *(struct manta__entry *const *)b;
  if (x->changed_ns != y->changed_ns)
    return x->changed_ns < y->changed_ns ? 1 : -1;
  return strcmp(y->name, x->name);
}

static void drop_gone(struct manta__catalog *c)
{
  size_t kept = 0;
  for (size_t i = 0; i < c->count; i++) {
    struct manta__entry *e = c->entry[i];
    if (e->seen == c->scan || e->viewers > 0) {
      c->entry[kept++] = e;
    } else {
      entry_free(c, e);
      c->version++;
    }
  }
  c->count = kept;
}

// The directory may have been removed, and made again by the next run.
static void reopen(struct manta__catalog *c)
{
  struct stat sb;
  int fd = fstat(c->fd, &sb) == 0 && sb.st_nlink == 0
               ? open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
               : -1;
  if (fd < 0)
    return;
  close(c->fd);
  c->fd = fd;
}

static void scan(struct manta__catalog *c)
{
  reopen(c);
  int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    manta__fd_close(&fd);
    return;
  }
  size_t before = c->count;
  c->scan++;
  for (struct dirent *e; (e = readdir(d));)
    if (e->d_type == DT_DIR || e->d_type == DT_UNKNOWN)
      look_at_name(c, e->d_name);
  closedir(d);
  drop_gone(c);
  if (c->count != before && c->count > 0)
    qsort(c->entry, c->count, sizeof(struct manta__entry *), newer_first);
}

// --- Reading -------------------------------------------------------------------------------------

static void take_end(struct manta__catalog *c, struct manta__entry *e, bool live)
{
  if (!e->whole || e->live != live) {
    e->version++;
    c->version++;
  }
  e->whole = true;
  e->live = live;
}

// Without memory it is a point less.
static void take_record(struct manta__entry *e, const struct manta__record *h,
                        const uint8_t *payload)
{
  if (e->trials)
    manta__dash_trials_take(e->trials, h, payload);
  else
    manta__index_take(&e->index, h, payload);
}

// One slice; true: there is more at once.
static bool read_slice(struct manta__catalog *c, struct manta__entry *e)
{
  struct manta__record h;
  const uint8_t *payload;
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < SLICE; i++) {
    int rc = manta__log_follow_next(e->follow, &h, &payload, &err);
    if (rc == MANTA__FOLLOW_RECORD) {
      take_record(e, &h, payload);
      e->version++;
      c->version++;
      continue;
    }
    if (rc == MANTA__FOLLOW_CUT) {
      entry_forget(e, true);
      e->begun++;
      continue;
    }
    if (rc < 0)
      snprintf(e->error, sizeof e->error, "%.255s", err.message);
    else
      e->error[0] = 0;
    take_end(c, e, rc == MANTA__FOLLOW_WAIT);
    return false;
  }
  return true;
}

// Is there something to read in a run that is not followed, as far as one can tell without reading?
static bool is_due(struct manta__catalog *c, struct manta__entry *e)
{
  if (e->viewers > 0)
    return true;
  if (c->open >= MAX_OPEN || (e->whole && !c->scanned))
    return false;
  if (!e->whole || e->live)
    return true;
  int dir = open_log_dir(c, e);
  bool grew = dir >= 0 && log_size(dir) != e->size;
  manta__fd_close(&dir);
  return grew;
}

static bool read_entry(struct manta__catalog *c, struct manta__entry *e)
{
  if (e->viewers > 0 && e->index.shed)
    entry_restart(c, e, false);
  if (!e->follow && (!is_due(c, e) || !entry_open(c, e)))
    return false;
  bool more = read_slice(c, e);
  if (!more && e->index.dirty) {
    entry_restart(c, e, false);
    return true;
  }
  if (!more && e->viewers == 0 && (!e->live || c->open > MAX_KEPT)) {
    e->size = log_size(e->dir);
    entry_close(c, e);
  }
  return more;
}

// Without the lock, for it may take long: entries come and go by this thread alone.
static void weigh(struct manta__catalog *c, struct manta__entry *e, int64_t now)
{
  if (!e->whole || (e->weighed_ns && (!e->live || now - e->weighed_ns < WEIGH_NS)))
    return;
  int dir = open_dir(c, e->name);
  int64_t bytes = dir < 0 ? 0 : manta__tree_bytes(dir);
  manta__fd_close(&dir);
  pthread_mutex_lock(&c->lock);
  e->version += e->bytes != bytes;
  c->version += e->bytes != bytes;
  e->bytes = bytes;
  e->weighed_ns = now;
  pthread_mutex_unlock(&c->lock);
}

static void keep_budget(struct manta__catalog *c)
{
  size_t total = 0;
  for (size_t i = 0; i < c->count; i++)
    total += manta__index_bytes(&c->entry[i]->index);
  while (total > MANTA__CATALOG_BYTES) {
    struct manta__entry *oldest = NULL;
    for (size_t i = 0; i < c->count; i++) {
      struct manta__entry *e = c->entry[i];
      if (e->viewers == 0 && manta__index_bytes(&e->index) > 0 &&
          (!oldest || e->used_ns < oldest->used_ns))
        oldest = e;
    }
    if (!oldest)
      return;
    total -= manta__index_bytes(&oldest->index);
    manta__index_shed(&oldest->index);
  }
}

// A pass over all runs, or over those that are looked at; true: there is more to read at once.
static bool read_all(struct manta__catalog *c, bool viewed)
{
  bool more = false;
  for (size_t i = 0;; i++) {
    pthread_mutex_lock(&c->lock);
    struct manta__entry *e = i < c->count ? c->entry[i] : NULL;
    bool ours = e && (e->viewers > 0) == viewed;
    if (ours)
      more |= read_entry(c, e);
    pthread_mutex_unlock(&c->lock);
    if (ours)
      weigh(c, e, manta__now());
    if (!e)
      return more;
  }
}

static bool wait_for_more(struct manta__catalog *c, int also, int64_t by)
{
  struct pollfd p[MAX_POLLS];
  nfds_t n = 0;
  p[n++] = (struct pollfd){.fd = also, .events = POLLIN};
  p[n++] = (struct pollfd){.fd = c->wake[0], .events = POLLIN};
  pthread_mutex_lock(&c->lock);
  for (size_t i = 0; i < c->count && n < MAX_POLLS; i++)
    if (c->entry[i]->follow)
      p[n++] = (struct pollfd){.fd = manta__log_follow_fd(c->entry[i]->follow), .events = POLLIN};
  pthread_mutex_unlock(&c->lock);
  int64_t limit = c->next_scan_ns < by ? c->next_scan_ns : by;
  if (poll(p, n, manta__left_ms(limit)) <= 0)
    return false;
  char drop[64];
  while (p[1].revents && read(c->wake[0], drop, sizeof drop) > 0)
    continue;
  return p[0].revents != 0;
}

bool manta__catalog_work(struct manta__catalog *c, int also, int64_t by)
{
  int64_t now = manta__now();
  pthread_mutex_lock(&c->lock);
  c->scanned = now >= c->next_scan_ns;
  if (c->scanned) {
    scan(c);
    c->next_scan_ns = now + SCAN_NS;
  }
  pthread_mutex_unlock(&c->lock);
  bool more = read_all(c, true);
  if (!more)
    more = read_all(c, false);
  pthread_mutex_lock(&c->lock);
  keep_budget(c);
  pthread_mutex_unlock(&c->lock);
  return wait_for_more(c, also, more ? now : by);
}

void manta__catalog_view(struct manta__catalog *c, struct manta__entry *e, bool on)
{
  e->viewers += on ? 1 : -1;
  e->used_ns = manta__now();
  if (on)
    manta__catalog_wake(c);
}
