/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/replica_fetch.c - the way back: runs out of a store, into their staging directories.
 *
 * (1) Names of objects are others' words: only those that stay below the directory become files.
 * (2) A file appears by rename when it is whole, and manifests after all others: whatever breaks
 *     off, the directory is one that a run could have left.
 * (3) A run whose log is at least as long here as there, or that is going on here, is left alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/knob.h"
#include "base/log.h"
#include "ckpt/ckdir.h"
#include "ckpt/known.h"
#include "ckpt/random.h"
#include "ckpt/replica.h"
#include "event/lock.h"
#include "remote/objects.h"
#include "sys/file.h"
#include "sys/sock.h"

#define SESSION  ".session-"
#define TEMP     ".fetching"
#define LOG      "run.log"
#define URI_MAX  4096
#define MANIFEST "/" MANTA__CKPT_MANIFEST

// --- names --------------------------------------------------------------------------------------

// Stays below a directory: a/b/c, without . and .., and not too long.
static bool is_plain(const char *name)
{
  if (strlen(name) > PATH_MAX / 2)
    return false;
  for (const char *p = name;; p++) {
    size_t n = strcspn(p, "/");
    if (n == 0 || n > NAME_MAX || (n == 1 && p[0] == '.') || (n == 2 && !memcmp(p, "..", 2)))
      return false;
    p += n;
    if (!*p)
      return true;
  }
}

manta_status manta__staging_path(const char *uri, char **out, manta_error *err)
{
  const char *base = manta__knob_text(MANTA__KNOB_STAGING), *home = getenv("HOME");
  const char *rest = strstr(uri, "://") + 3;
  size_t n = strlen(rest);
  while (n && rest[n - 1] == '/')
    n--;
  char *path = manta__strndup(rest, n);
  bool plain = path && is_plain(path);
  if (path && plain && base)
    *out = manta__asprintf("%s/%.*s/%s", base, (int)(rest - uri) - 3, uri, path);
  else if (path && plain)
    *out = manta__asprintf("%s/manta_results/storage/%.*s/%s", home && *home ? home : "/tmp",
                           (int)(rest - uri) - 3, uri, path);
  else
    *out = NULL;
  manta__free(path);
  if (!plain)
    return manta_error_set(err, MANTA_EINVAL, "%s: is no name for a directory", uri);
  return *out ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its path", uri);
}

// --- whose a directory is -----------------------------------------------------------------------

manta_status manta__replica_claim(int rundir, const char *uri, uint64_t session, int ordinal,
                                  manta_error *err)
{
  struct manta__objects *o;
  char name[64];
  MANTA_TRY(manta__objects_open(&o, uri, err));
  snprintf(name, sizeof name, SESSION "%016" PRIx64 "-%d", session, ordinal);
  manta_status st = manta__objects_put_text(o, name, name, true, err);
  if (st == MANTA_OK)
    st = manta__file_replace(rundir, MANTA__STORAGE_FILE, o->uri, strlen(o->uri), err);
  manta__objects_close(o);
  return st;
}

manta_status manta__replica_uri(int rundir, char **out, manta_error *err)
{
  size_t n;
  MANTA_TRY(manta__file_read(rundir, MANTA__STORAGE_FILE, URI_MAX, out, &n, err));
  (*out)[strcspn(*out, "\n")] = 0;
  return MANTA_OK;
}

// --- fetching -----------------------------------------------------------------------------------

struct replica_fetch {
  struct manta__objects *objects;
  struct manta__known known;
  int top;    /* where it goes */
  bool fresh; /* something came */
};

static manta_status on_object(void *ctx, const char *name, int64_t size, manta_error *err)
{
  struct replica_fetch *f = ctx;
  if (!is_plain(name)) {
    manta__warn("%s/%s is passed over: it is no name for a file", f->objects->uri, name);
    return MANTA_OK;
  }
  return manta__known_set(&f->known, name, size, 0) < 0
             ? manta_error_set(err, MANTA_ENOMEM, "no memory to list %s", f->objects->uri)
             : MANTA_OK;
}

// The directory of a file, made if need be; *last: its name there. Close it.
static manta_status make_parents(int top, const char *key, int *out, const char **last,
                                 manta_error *err)
{
  int dir = dup(top);
  manta_status st = dir < 0 ? manta_error_set(err, MANTA_EIO, "open a directory: %m") : MANTA_OK;
  const char *p = key;
  for (const char *slash; st == MANTA_OK && (slash = strchr(p, '/')); p = slash + 1) {
    char name[NAME_MAX + 1];
    int below = -1;
    snprintf(name, sizeof name, "%.*s", (int)(slash - p), p);
    st = manta__dir_makeat(dir, name, &below, err);
    close(dir);
    dir = below;
  }
  *out = dir;
  *last = p;
  return st;
}

static manta_status fetch_into(struct replica_fetch *f, int dir, const char *key, const char *last,
                               manta_error *err)
{
  int fd = openat(dir, TEMP, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "make a file for %s: %m", key);
  manta_status st = manta__objects_get(f->objects, key, fd, err);
  if (st == MANTA_OK && fsync(fd) < 0)
    st = manta_error_set(err, MANTA_EIO, "sync %s: %m", key);
  close(fd);
  if (st == MANTA_OK && renameat(dir, TEMP, dir, last) < 0)
    st = manta_error_set(err, MANTA_EIO, "rename %s: %m", key);
  if (st < 0)
    unlinkat(dir, TEMP, 0);
  else
    f->fresh = true;
  return st;
}

static manta_status fetch_one(struct replica_fetch *f, const char *key, manta_error *err)
{
  int dir = -1;
  const char *last;
  manta_status st = make_parents(f->top, key, &dir, &last, err);
  if (st == MANTA_OK)
    st = fetch_into(f, dir, key, last, err);
  manta__fd_close(&dir);
  return st;
}

// --- runs ---------------------------------------------------------------------------------------

// Bytes of the segments of a log: there, or in a directory here.
static int64_t log_bytes(const struct replica_fetch *f, const char *run, int here)
{
  int64_t bytes = 0;
  for (int n = 1;; n++) {
    char name[32] = LOG, key[PATH_MAX + 64];
    struct stat sb;
    if (n > 1)
      snprintf(name, sizeof name, LOG ".%d", n);
    snprintf(key, sizeof key, "%s%s", run, name);
    const struct manta__known_object *k = manta__known_find(&f->known, key);
    if (here >= 0 ? fstatat(here, name, &sb, AT_SYMLINK_NOFOLLOW) < 0 : !k)
      return bytes;
    bytes += here >= 0 ? sb.st_size : k->size;
  }
}

// The run that an object belongs to, as the beginning of its name; -1: none.
static int run_of(const struct replica_fetch *f, const char *key)
{
  char log[PATH_MAX + 16];
  for (int n = (int)strlen(key); n >= 0; n--) {
    if (n > 0 && key[n - 1] != '/')
      continue;
    snprintf(log, sizeof log, "%.*s" LOG, n, key);
    if (manta__known_find(&f->known, log))
      return n;
  }
  return -1;
}

static bool is_newer_here(const struct replica_fetch *f, const char *run)
{
  char path[PATH_MAX + 16];
  snprintf(path, sizeof path, "%s.", run);
  int dir = openat(f->top, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0)
    return false;
  int64_t here = log_bytes(f, run, dir);
  bool newer = manta__runlock_holder(dir) != 0 || (here && here >= log_bytes(f, run, -1));
  close(dir);
  return newer;
}

static bool is_here(const struct replica_fetch *f, const char *key)
{
  return faccessat(f->top, key, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// Whether an object of a run is wanted. Checkpoints: those that are whole there and not here.
static bool is_wanted(const struct replica_fetch *f, const char *run, const char *key)
{
  static const char folder[] = "checkpoints/";
  const char *below = key + strlen(run);
  char manifest[PATH_MAX + 32];
  if (strncmp(below, folder, sizeof folder - 1) != 0)
    return below[0] != '.';
  below += sizeof folder - 1;
  size_t n = strcspn(below, "/");
  snprintf(manifest, sizeof manifest, "%.*s" MANIFEST, (int)(below + n - key), key);
  if (!strncmp(below, MANTA__CKPT_USER, sizeof MANTA__CKPT_USER - 1) ||
      !strncmp(below, MANTA__CKPT_RANDOM, sizeof MANTA__CKPT_RANDOM - 1))
    return !is_here(f, key);
  return manta__known_find(&f->known, manifest) && !is_here(f, manifest);
}

static bool is_manifest(const char *key)
{
  size_t n = strlen(key), k = sizeof MANIFEST - 1;
  return n > k && !strcmp(key + n - k, MANIFEST);
}

static manta_status note_origin(const struct replica_fetch *f, const char *run, manta_error *err)
{
  char uri[2 * URI_MAX], path[PATH_MAX + 16];
  size_t n = strlen(run);
  snprintf(uri, sizeof uri, "%s%s%.*s", f->objects->uri, n ? "/" : "", n ? (int)n - 1 : 0, run);
  snprintf(path, sizeof path, "%s.", run);
  int dir = openat(f->top, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", run);
  manta_status st = manta__file_replace(dir, MANTA__STORAGE_FILE, uri, strlen(uri), err);
  if (st == MANTA_OK)
    st = manta__file_replace(dir, MANTA__FETCHED_FILE, uri, strlen(uri), err);
  close(dir);
  return st;
}

static manta_status fetch_run(struct replica_fetch *f, const char *run, manta_error *err)
{
  size_t n = strlen(run);
  for (int manifests = 0; manifests < 2; manifests++)
    for (size_t i = 0; i < f->known.count; i++) {
      const char *key = f->known.item[i].name;
      if (!strncmp(key, run, n) && run_of(f, key) == (int)n && is_manifest(key) == manifests &&
          is_wanted(f, run, key))
        MANTA_TRY(fetch_one(f, key, err));
    }
  return note_origin(f, run, err);
}

static manta_status fetch_runs(struct replica_fetch *f, manta_error *err)
{
  for (size_t i = 0; i < f->known.count; i++) {
    const char *key = f->known.item[i].name;
    char run[PATH_MAX];
    size_t n = strlen(key), k = sizeof LOG - 1;
    bool is_log = n >= k && !strcmp(key + n - k, LOG) && (n == k || key[n - k - 1] == '/');
    snprintf(run, sizeof run, "%.*s", is_log ? (int)(n - k) : 0, key);
    if (is_log && !is_newer_here(f, run))
      MANTA_TRY(fetch_run(f, run, err));
    else if (!is_log && run_of(f, key) < 0 && strncmp(key, SESSION, sizeof SESSION - 1) != 0 &&
             !strstr(key, "/" SESSION))
      MANTA_TRY(fetch_one(f, key, err));
  }
  return MANTA_OK;
}

static void end_fetch(struct replica_fetch *f)
{
  manta__objects_close(f->objects);
  manta__known_fini(&f->known);
  manta__fd_close(&f->top);
}

static manta_status begin_fetch(struct replica_fetch *f, const char *uri, const char *dir,
                                manta_error *err)
{
  *f = (struct replica_fetch){.top = -1};
  MANTA_TRY(manta__objects_open(&f->objects, uri, err));
  manta_status st = manta__objects_list(f->objects, "", on_object, f, err);
  if (st == MANTA_OK && f->known.count == 0)
    st = manta_error_set(err, MANTA_ENOENT, "%s: there is nothing", uri);
  if (st == MANTA_OK)
    st = manta__dir_make(dir, &f->top, err);
  if (st < 0)
    end_fetch(f);
  return st;
}

manta_status manta__replica_fetch(const char *uri, char **dir_out, manta_error *err)
{
  struct replica_fetch f;
  char *path;
  MANTA_TRY(manta__objects_check(uri, err));
  MANTA_TRY(manta__staging_path(uri, &path, err));
  manta_status st = begin_fetch(&f, uri, path, err);
  if (st == MANTA_OK) {
    st = fetch_runs(&f, err);
    if (st == MANTA_OK && f.fresh)
      st = manta__file_replace(f.top, MANTA__FETCHED_FILE, uri, strlen(uri), err);
    end_fetch(&f);
  }
  if (st < 0)
    manta__free(path);
  else
    *dir_out = path;
  return st;
}

manta_status manta__replica_download(const char *uri, const char *dir, manta_error *err)
{
  struct replica_fetch f;
  MANTA_TRY(manta__objects_check(uri, err));
  MANTA_TRY(begin_fetch(&f, uri, dir, err));
  manta_status st = MANTA_OK;
  for (int manifests = 0; manifests < 2; manifests++)
    for (size_t i = 0; i < f.known.count && st == MANTA_OK; i++) {
      const char *key = f.known.item[i].name;
      bool last = is_manifest(key) || !strcmp(key, MANTA__CKPT_MANIFEST);
      if (last == manifests)
        st = fetch_one(&f, key, err);
    }
  end_fetch(&f);
  return st;
}

// --- the other runs of a session ----------------------------------------------------------------

struct session_search {
  char mark[64];               /* "/.session-HEX-" */
  struct manta__known markers; /* all: whose runs are where */
};

static manta_status on_marker(void *ctx, const char *name, int64_t size, manta_error *err)
{
  struct session_search *s = ctx;
  if (!is_plain(name) || !strstr(name, "/" SESSION))
    return MANTA_OK;
  return manta__known_set(&s->markers, name, 0, 0) < 0
             ? manta_error_set(err, MANTA_ENOMEM, "no memory for a listing")
             : MANTA_OK;
}

// Of the run itself, out of its marker.
static bool find_mark(struct session_search *s, const char *run)
{
  size_t n = strlen(run);
  for (size_t i = 0; i < s->markers.count; i++) {
    const char *name = s->markers.item[i].name;
    if (strncmp(name, run, n) != 0 || strncmp(name + n, "/" SESSION, sizeof SESSION) != 0)
      continue;
    const char *end = strrchr(name, '-');
    snprintf(s->mark, sizeof s->mark, "%.*s", (int)(end + 1 - (name + n)), name + n);
    return true;
  }
  return false;
}

static manta_status fetch_marked(const struct session_search *s, const char *parent,
                                 manta_error *err)
{
  for (size_t i = 0; i < s->markers.count; i++) {
    const char *name = s->markers.item[i].name, *at = strstr(name, s->mark);
    char uri[URI_MAX], *dir = NULL;
    if (!at)
      continue;
    snprintf(uri, sizeof uri, "%s/%.*s", parent, (int)(at - name), name);
    MANTA_TRY(manta__replica_fetch(uri, &dir, err));
    manta__free(dir);
  }
  return MANTA_OK;
}

manta_status manta__replica_fetch_session(const char *uri, manta_error *err)
{
  struct session_search s = {.mark = ""};
  struct manta__objects *o;
  char parent[URI_MAX];
  snprintf(parent, sizeof parent, "%s", uri);
  for (size_t n = strlen(parent); n && parent[n - 1] == '/';)
    parent[--n] = 0;
  char *slash = strrchr(parent, '/');
  if (!slash || slash[-1] == '/')
    return MANTA_OK; // a bucket has nothing beside it
  *slash = 0;
  MANTA_TRY(manta__objects_open(&o, parent, err));
  manta_status st = manta__objects_list(o, "", on_marker, &s, err);
  if (st == MANTA_OK && find_mark(&s, slash + 1))
    st = fetch_marked(&s, parent, err);
  manta__objects_close(o);
  manta__known_fini(&s.markers);
  return st;
}
