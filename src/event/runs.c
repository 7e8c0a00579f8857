/* SPDX-License-Identifier: Apache-2.0
 *
 * event/runs.c - finding runs: the directories under a logdir that hold a run.log.
 *
 * A run is as old as its first record, not as its name or its directory says: those change when a
 * directory is copied or the clock's zone does. Only that record is read.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "event/log.h"
#include "event/rundir.h"
#include "sys/file.h"

#define MAX_RUNS   65536 /* listed of one logdir */
#define NAMES_HINT 5     /* candidates named in a message */

struct run {
  char *name;
  int64_t when;
  int64_t session, ordinal; /* -1: unknown */
};

struct runs {
  struct run *items; /* newest first */
  size_t count, cap;
};

static void runs_fini(struct runs *l)
{
  for (size_t i = 0; i < l->count; i++)
    manta__free(l->items[i].name);
  manta__free(l->items);
  *l = (struct runs){0};
}

// What the first record says. MANTA_ENOENT: no run.log there.
static manta_status read_first(int dirfd, struct run *run, manta_error *err)
{
  manta__log_reader *r;
  struct manta__record h;
  const uint8_t *payload;
  struct stat sb;
  manta_value v = {0};
  MANTA_TRY(manta__log_reader_open(&r, dirfd, err));
  manta_status st = MANTA_OK;
  run->session = run->ordinal = -1;
  run->when = fstat(dirfd, &sb) < 0 ? 0 : sb.st_mtim.tv_sec * 1000000000ll + sb.st_mtim.tv_nsec;
  int rc = manta__log_next(r, &h, &payload, err);
  if (rc > 0 && h.kind == MANTA__EV_RUN) {
    run->when = h.wall_ns;
    st = manta_value_unpack(&v, payload, h.len, err);
    run->session = manta_value_as_int(manta_value_get(&v, "session"), -1);
    run->ordinal = manta_value_as_int(manta_value_get(&v, "ordinal"), -1);
    manta_value_fini(&v);
  }
  manta__log_reader_close(r);
  return st == MANTA_ENOMEM || rc == MANTA_ENOMEM ? MANTA_ENOMEM : MANTA_OK;
}

static manta_status runs_add(struct runs *l, const struct run *run, const char *name)
{
  if (l->count == l->cap) {
    size_t cap = l->cap ? 2 * l->cap : 16;
    struct run *p = manta__realloc(l->items, cap * sizeof *p);
    if (!p)
      return MANTA_ENOMEM;
    l->items = p;
    l->cap = cap;
  }
  char *copy = manta__strdup(name);
  if (!copy)
    return MANTA_ENOMEM;
  l->items[l->count] = *run;
  l->items[l->count++].name = copy;
  return MANTA_OK;
}

// Adds the entry if it is a run; what is none, or cannot be read, is passed over.
static manta_status add_entry(struct runs *l, int top, const char *name, manta_error *err)
{
  if (!strcmp(name, ".") || !strcmp(name, ".."))
    return MANTA_OK;
  int fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return MANTA_OK;
  struct run run = {0};
  manta_status st = read_first(fd, &run, NULL);
  close(fd);
  if (st == MANTA_OK)
    st = runs_add(l, &run, name);
  return st == MANTA_ENOMEM ? manta_error_set(err, st, "no memory to list runs") : MANTA_OK;
}

static int newer_first(const void *pa, const void *pb)
{
  const struct run *a = pa, *b = pb;
  if (a->when != b->when)
    return a->when < b->when ? 1 : -1;
  return strcmp(b->name, a->name);
}

// All runs of a logdir; none if there is no such directory.
static manta_status runs_read(struct runs *l, const char *logdir, manta_error *err)
{
  DIR *d = opendir(logdir);
  if (!d && errno == ENOENT)
    return MANTA_OK;
  if (!d)
    return manta_error_set(err, MANTA_EIO, "read directory %s: %m", logdir);
  manta_status st = MANTA_OK;
  for (struct dirent *e; st == MANTA_OK && (e = readdir(d));) {
    if (l->count == MAX_RUNS) {
      manta__warn("%s: more than %d runs, the rest is left out", logdir, MAX_RUNS);
      break;
    }
    if (e->d_type == DT_DIR || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN)
      st = add_entry(l, dirfd(d), e->d_name, err);
  }
  closedir(d);
  if (st < 0)
    runs_fini(l);
  else if (l->count > 0)
    qsort(l->items, l->count, sizeof *l->items, newer_first);
  return st;
}

// Opens a run's directory and gives its absolute path. base NULL: `name` is a path of its own.
static manta_status open_run(const char *base, const char *name, int *fd_out, char **path_out,
                             manta_error *err)
{
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s%s%s", base ? base : "", base ? "/" : "", name) >= PATH_MAX)
    return manta_error_set(err, MANTA_EINVAL, "path %s is too long", name);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, errno == ENOENT || errno == ENOTDIR ? MANTA_ENOENT : MANTA_EIO,
                           "open directory %s: %m", path);
  if (faccessat(fd, "run.log", F_OK, 0) < 0) {
    bool tuned = faccessat(fd, "experiment/run.log", F_OK, 0) == 0;
    close(fd);
    return manta_error_set(err, MANTA_ENOENT,
                           tuned ? "%s is an experiment and no run\nhint: `manta tune status`"
                                 : "%s holds no run.log",
                           path);
  }
  manta__dir_path(fd, path);
  char *copy = manta__strdup(path);
  if (!copy) {
    close(fd);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the path of a run");
  }
  if (path_out)
    *path_out = copy;
  else
    manta__free(copy);
  if (fd_out)
    *fd_out = fd;
  else
    close(fd);
  return MANTA_OK;
}

static bool has_end(const char *s, const char *end)
{
  size_t n = strlen(s), k = strlen(end);
  return n >= k && !strcmp(s + n - k, end);
}

static bool matches(const struct run *run, const char *what)
{
  return !strncmp(run->name, what, strlen(what)) || has_end(run->name, what);
}

static manta_status ambiguous(const struct runs *l, const char *what, manta_error *err)
{
  manta__buf b;
  manta__buf_init(&b, MANTA_ERROR_MESSAGE_MAX);
  int n = 0;
  for (size_t i = 0; i < l->count; i++)
    if (matches(&l->items[i], what) && n++ < NAMES_HINT)
      manta__buf_printf(&b, "\n  %s", l->items[i].name);
  if (n > NAMES_HINT)
    manta__buf_printf(&b, "\n  and %d more", n - NAMES_HINT);
  manta_status st = manta__buf_terminate(&b);
  manta_error_set(err, MANTA_EINVAL, "\"%s\" matches %d runs:%s", what, n,
                  st < 0 ? " too many to list" : (char *)b.data);
  manta__buf_fini(&b);
  return MANTA_EINVAL;
}

// The run in the list that a name means: whole, or the only one that begins or ends with it.
static manta_status pick(const struct runs *l, const char *what, const char *logdir,
                         const struct run **out, manta_error *err)
{
  if (!what && l->count == 0)
    return manta_error_set(err, MANTA_ENOENT, "there are no runs in %s", logdir);
  const struct run *found = what ? NULL : &l->items[0];
  int fits = 0;
  for (size_t i = 0; what && i < l->count; i++) {
    if (!strcmp(l->items[i].name, what)) {
      *out = &l->items[i];
      return MANTA_OK;
    }
    if (matches(&l->items[i], what) && fits++ == 0)
      found = &l->items[i];
  }
  if (fits > 1)
    return ambiguous(l, what, err);
  if (!found)
    return manta_error_set(err, MANTA_ENOENT, "no run \"%s\", neither as a directory nor in %s",
                           what, logdir);
  *out = found;
  return MANTA_OK;
}

static manta_status find_in(const char *logdir, const char *what, int *fd_out, char **path_out,
                            manta_error *err)
{
  struct runs l = {0};
  const struct run *run = NULL;
  MANTA_TRY(runs_read(&l, logdir, err));
  manta_status st = pick(&l, what, logdir, &run, err);
  if (st == MANTA_OK)
    st = open_run(logdir, run->name, fd_out, path_out, err);
  runs_fini(&l);
  return st;
}

manta_status manta__rundir_find(const char *what, int *fd_out, char **path_out, manta_error *err)
{
  if (what && (!*what || !strcmp(what, "latest")))
    what = NULL;
  if (what) {
    manta_status st = open_run(NULL, what, fd_out, path_out, err);
    if (st != MANTA_ENOENT || strchr(what, '/'))
      return st;
  }
  char *logdir;
  MANTA_TRY(manta__rundir_default(&logdir, err));
  manta_status st = find_in(logdir, what, fd_out, path_out, err);
  manta__free(logdir);
  return st;
}

static void free_paths(char **paths, size_t n)
{
  for (size_t i = 0; i < n; i++)
    manta__free(paths[i]);
  manta__free(paths);
}

static manta_status paths_of(const struct runs *l, const char *logdir, char ***out,
                             manta_error *err)
{
  char top[PATH_MAX] = "";
  size_t n = l->count;
  if (n > 0 && !realpath(logdir, top))
    return manta_error_set(err, MANTA_EIO, "realpath %s: %m", logdir);
  char **paths = manta__calloc(n, sizeof *paths);
  size_t i = 0;
  while (paths && i < n && (paths[i] = manta__asprintf("%s/%s", top, l->items[i].name)))
    i++;
  if (!paths || i < n) {
    if (paths)
      free_paths(paths, i);
    return manta_error_set(err, MANTA_ENOMEM, "no memory to list runs");
  }
  *out = paths;
  return MANTA_OK;
}

manta_status manta__rundir_list(const char *logdir, char ***out, size_t *count, manta_error *err)
{
  struct runs l = {0};
  MANTA_TRY(runs_read(&l, logdir, err));
  manta_status st = paths_of(&l, logdir, out, err);
  if (st == MANTA_OK)
    *count = l.count;
  runs_fini(&l);
  return st;
}

manta_status manta__rundir_of_session(const char *logdir, uint64_t session, int ordinal,
                                      char **path_out, manta_error *err)
{
  struct runs l = {0};
  MANTA_TRY(runs_read(&l, logdir, err));
  manta_status st = MANTA_ENOENT;
  for (size_t i = 0; i < l.count && st == MANTA_ENOENT; i++)
    if (l.items[i].session >= 0 && (uint64_t)l.items[i].session == session &&
        l.items[i].ordinal == ordinal)
      st = open_run(logdir, l.items[i].name, NULL, path_out, err);
  runs_fini(&l);
  if (st == MANTA_ENOENT)
    manta_error_set(err, st, "no run %d of this program in %s", ordinal, logdir);
  return st;
}
