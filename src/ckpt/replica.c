/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/replica.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ckpt/ckdir.h"
#include "ckpt/known.h"
#include "ckpt/random.h"
#include "remote/objects.h"
#include "sys/file.h"
#include "sys/proc.h"
#include "sys/sock.h"
#include "sys/tree.h"

#define STAGE      ".upload-"
#define EVERY_NS   10000000000 /* files that grow */
#define SHARE      20          /* … and at most this part of the time */
#define DEPTH_MAX  32
#define MANIFEST   "/" MANTA__CKPT_MANIFEST
#define FOLDER     "checkpoints/"
#define FOLDER_LEN (sizeof FOLDER - 1)

struct manta__replica {
  int rundir;
  struct manta__objects *objects;
  struct manta__known known;
  char stage[32];  /* of this process */
  char newest[32]; /* the newest checkpoint that is whole there, and what lies beside it */
  char newest_user[48], newest_random[48];
  int64_t files_at; /* when files that grow are sent next */
};

// --- opening ------------------------------------------------------------------------------------

static manta_status on_object(void *ctx, const char *name, int64_t size, manta_error *err)
{
  struct manta__replica *m = ctx;
  return manta__known_set(&m->known, name, size, 0) < 0
             ? manta_error_set(err, MANTA_ENOMEM, "no memory to list %s", m->objects->uri)
             : MANTA_OK;
}

// "checkpoints/000012/manifest.json": 12; else -1.
static int64_t manifest_number(const char *name, char dir[32])
{
  const char *from = name + FOLDER_LEN;
  if (strncmp(name, FOLDER, FOLDER_LEN) != 0)
    return -1;
  size_t n = strcspn(from, "/");
  if (n >= 32 || strcmp(from + n, MANIFEST) != 0)
    return -1;
  memcpy(dir, from, n);
  dir[n] = 0;
  return manta__ckdir_number(dir);
}

static void find_newest(struct manta__replica *m)
{
  int64_t best = -1;
  for (size_t i = 0; i < m->known.count; i++) {
    char dir[32];
    int64_t n = manifest_number(m->known.item[i].name, dir);
    if (n > best) {
      best = n;
      memcpy(m->newest, dir, sizeof dir);
    }
  }
}

// Links that an uploader left which was killed.
static manta_status remove_leftover(void *ctx, const char *name)
{
  const struct manta__replica *m = ctx;
  size_t n = sizeof STAGE - 1;
  long pid = strncmp(name, STAGE, n) != 0 ? 0 : strtol(name + n, NULL, 10);
  if (pid > 0 && manta__proc_signal((pid_t)pid, 0) < 0 && errno == ESRCH)
    manta__tree_remove(m->rundir, name, NULL);
  return MANTA_OK;
}

manta_status manta__replica_open(struct manta__replica **out, int rundir, const char *uri,
                                 manta_error *err)
{
  struct manta__replica *m = manta__calloc(1, sizeof *m);
  if (!m)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to store it", uri);
  m->rundir = openat(rundir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  manta_status st = m->rundir < 0 ? manta_error_set(err, MANTA_EIO, "open a run directory: %m")
                                  : manta__objects_open(&m->objects, uri, err);
  if (st == MANTA_OK)
    st = manta__objects_list(m->objects, "", on_object, m, err);
  if (st < 0) {
    manta__replica_close(m);
    return st;
  }
  find_newest(m);
  snprintf(m->stage, sizeof m->stage, STAGE "%d", (int)getpid());
  manta__ckdir_each(m->rundir, remove_leftover, m, NULL);
  *out = m;
  return MANTA_OK;
}

void manta__replica_close(struct manta__replica *m)
{
  if (!m)
    return;
  manta__fd_close(&m->rundir);
  manta__objects_close(m->objects);
  manta__known_fini(&m->known);
  manta__free(m);
}

// --- one file, one tree -------------------------------------------------------------------------

static int64_t mtime_of(const struct stat *sb)
{
  return (int64_t)sb->st_mtim.tv_sec * 1000000000 + sb->st_mtim.tv_nsec + 1; // never 0
}

static bool is_sent(const struct manta__replica *m, const char *key, const struct stat *sb)
{
  const struct manta__known_object *k = manta__known_find(&m->known, key);
  return k && k->size == sb->st_size && k->mtime_ns == mtime_of(sb);
}

// One that is gone, or is no file, is passed over; one that shrinks meanwhile waits for the next
// pass.
static manta_status send_file(struct manta__replica *m, int dir, const char *name, const char *key,
                              manta_error *err)
{
  struct stat sb, now;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return MANTA_OK;
  manta_status st = MANTA_OK;
  if (fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && !is_sent(m, key, &sb)) {
    st = manta__objects_put(m->objects, key, fd, sb.st_size, err);
    if (st == MANTA_OK && manta__known_set(&m->known, key, sb.st_size, mtime_of(&sb)) < 0)
      st = manta_error_set(err, MANTA_ENOMEM, "no memory to store %s", key);
    else if (st < 0 && fstat(fd, &now) == 0 && now.st_size < sb.st_size)
      st = MANTA_OK;
  }
  close(fd);
  return st;
}

/* What a walk over a tree does with each file. */
struct replica_walk {
  struct manta__replica *replica;
  bool (*skips)(const struct replica_walk *w, const char *key, const char *name);
  bool all;
};

static manta_status send_tree(const struct replica_walk *w, int dir, const char *prefix, int depth,
                              manta_error *err);

static manta_status send_entry(const struct replica_walk *w, int dir, const char *prefix,
                               const char *name, int depth, manta_error *err)
{
  char key[PATH_MAX];
  struct stat sb;
  if (snprintf(key, sizeof key, "%s%s", prefix, name) >= PATH_MAX - 1 || w->skips(w, key, name) ||
      fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW) < 0)
    return MANTA_OK;
  if (S_ISREG(sb.st_mode))
    return send_file(w->replica, dir, name, key, err);
  if (!S_ISDIR(sb.st_mode) || depth == DEPTH_MAX)
    return MANTA_OK;
  int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  memcpy(key + strlen(key), "/", 2);
  manta_status st = below < 0 ? MANTA_OK : send_tree(w, below, key, depth + 1, err);
  manta__fd_close(&below);
  return st;
}

static manta_status send_tree(const struct replica_walk *w, int dir, const char *prefix, int depth,
                              manta_error *err)
{
  int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    manta__fd_close(&fd);
    return MANTA_OK;
  }
  manta_status st = MANTA_OK;
  for (const struct dirent *e; st == MANTA_OK && (e = readdir(d));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      st = send_entry(w, dir, prefix, e->d_name, depth, err);
  closedir(d);
  return st;
}

// --- checkpoints --------------------------------------------------------------------------------

static bool is_manifest(const struct replica_walk *w, const char *key, const char *name)
{
  char dir[32];
  return manifest_number(key, dir) >= 0;
}

static bool is_no_log(const struct replica_walk *w, const char *key, const char *name)
{
  return strncmp(name, "run.log", 7) != 0;
}

// Where the checkpoint can be read from until the end: links, or where there can be none, itself.
static int open_stage(const struct manta__replica *m, int checkpoints, const char *name,
                      const char *user)
{
  int stage;
  manta__tree_remove(m->rundir, m->stage, NULL);
  if (manta__dir_makeat(m->rundir, m->stage, &stage, NULL) == MANTA_OK) {
    if (manta__tree_link(checkpoints, name, stage) &&
        (!user[0] || manta__tree_link(checkpoints, user, stage)))
      return stage;
    close(stage);
  }
  return dup(checkpoints);
}

static manta_status send_beside(struct manta__replica *m, int dir, const char *name,
                                manta_error *err)
{
  struct replica_walk w = {m, is_manifest, true};
  return send_entry(&w, dir, FOLDER, name, 0, err);
}

static manta_status send_parts(struct manta__replica *m, int stage, const char *name,
                               const char *user, manta_error *err)
{
  struct replica_walk log = {m, is_no_log, true};
  MANTA_TRY(send_beside(m, stage, name, err));
  if (user[0])
    MANTA_TRY(send_beside(m, stage, user, err));
  return send_tree(&log, m->rundir, "", DEPTH_MAX, err);
}

static manta_status send_manifest(struct manta__replica *m, int stage, const char *name,
                                  manta_error *err)
{
  char path[64], key[128];
  snprintf(path, sizeof path, "%s" MANIFEST, name);
  snprintf(key, sizeof key, FOLDER "%s", path);
  if (faccessat(stage, path, F_OK, 0) < 0) // it was removed before it could be held
    return MANTA_OK;
  return send_file(m, stage, path, key, err);
}

static manta_status send_checkpoint(struct manta__replica *m, int checkpoints,
                                    const struct manta__manifest *man, manta_error *err)
{
  char user[48] = "", random[48];
  if (man->directory)
    manta__ckdir_user_name(user, man->id.attempt, man->iteration);
  manta__random_name(random, man->id.attempt, man->iteration);
  int stage = open_stage(m, checkpoints, man->name, user);
  if (stage < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", m->stage);
  manta_status st = send_parts(m, stage, man->name, user, err);
  if (st == MANTA_OK)
    st = send_beside(m, checkpoints, random, err);
  if (st == MANTA_OK)
    st = send_manifest(m, stage, man->name, err);
  close(stage);
  manta__tree_remove(m->rundir, m->stage, NULL);
  if (st == MANTA_OK && manta__ckdir_number(man->name) > manta__ckdir_number(m->newest)) {
    memcpy(m->newest, man->name, sizeof m->newest);
    memcpy(m->newest_user, user, sizeof user);
    memcpy(m->newest_random, random, sizeof random);
  }
  return st;
}

struct replica_scan {
  const struct manta__replica *replica;
  int dir;
  struct manta__manifest newest; /* of those that are not there yet; name "": none */
};

static manta_status look_at(void *ctx, const char *name)
{
  struct replica_scan *s = ctx;
  struct manta__manifest m;
  char key[128];
  int64_t n = manta__ckdir_number(name);
  snprintf(key, sizeof key, FOLDER "%.64s" MANIFEST, name);
  if (n >= 0 && n > manta__ckdir_number(s->newest.name) &&
      !manta__known_find(&s->replica->known, key) &&
      manta__ckdir_read(s->dir, name, &m, NULL) == MANTA_OK)
    s->newest = m;
  return MANTA_OK;
}

static manta_status send_checkpoints(struct manta__replica *m, int dir, manta_error *err)
{
  for (;;) {
    struct replica_scan scan = {.replica = m, .dir = dir};
    char key[128];
    manta__ckdir_each(dir, look_at, &scan, NULL);
    if (!scan.newest.name[0])
      return MANTA_OK;
    MANTA_TRY(send_checkpoint(m, dir, &scan.newest, err));
    snprintf(key, sizeof key, FOLDER "%s" MANIFEST, scan.newest.name);
    if (!manta__known_find(&m->known, key))
      return MANTA_OK; // it was removed before its turn: the next pass sees what is left
  }
}

// --- what is gone -------------------------------------------------------------------------------

static bool is_gone(const struct manta__replica *m, int dir, const char *key)
{
  char name[NAME_MAX + 1];
  const char *from = key + FOLDER_LEN;
  size_t n = strcspn(from, "/");
  if (strncmp(key, FOLDER, FOLDER_LEN) != 0 || !from[n] || n > NAME_MAX)
    return false;
  memcpy(name, from, n);
  name[n] = 0;
  return strcmp(name, m->newest) != 0 && strcmp(name, m->newest_user) != 0 &&
         strcmp(name, m->newest_random) != 0 &&
         faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static manta_status remove_gone(struct manta__replica *m, int dir, bool manifests, manta_error *err)
{
  char ignored[32];
  for (size_t i = m->known.count; i-- > 0;) {
    const char *key = m->known.item[i].name;
    if ((manifests && manifest_number(key, ignored) < 0) || !is_gone(m, dir, key))
      continue;
    MANTA_TRY(manta__objects_remove(m->objects, key, err));
    manta__known_drop(&m->known, key);
  }
  return MANTA_OK;
}

// --- passes -------------------------------------------------------------------------------------

static bool is_elsewhere(const struct replica_walk *w, const char *key, const char *name)
{
  return name[0] == '.' || !strcmp(key, "checkpoints") || (!w->all && !strcmp(key, "logs"));
}

static manta_status send_files(struct manta__replica *m, bool all, manta_error *err)
{
  struct replica_walk w = {m, is_elsewhere, all};
  int64_t began = manta__now();
  if (!all && began < m->files_at)
    return MANTA_OK;
  manta_status st = send_tree(&w, m->rundir, "", 0, err);
  int64_t now = manta__now(), rest = SHARE * (now - began);
  m->files_at = now + (rest > EVERY_NS ? rest : EVERY_NS);
  return st;
}

manta_status manta__replica_pass(struct manta__replica *m, bool all, manta_error *err)
{
  int dir = openat(m->rundir, "checkpoints", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  manta_status st = dir < 0 ? MANTA_OK : send_checkpoints(m, dir, err);
  if (st == MANTA_OK && dir >= 0 && m->newest_random[0]) // of ranks that came to their save later
    st = send_beside(m, dir, m->newest_random, err);
  if (st == MANTA_OK)
    st = send_files(m, all, err);
  if (st == MANTA_OK && dir >= 0)
    st = remove_gone(m, dir, true, err);
  if (st == MANTA_OK && dir >= 0)
    st = remove_gone(m, dir, false, err);
  manta__fd_close(&dir);
  return st;
}

// --- anything else ------------------------------------------------------------------------------

static bool is_top_manifest(const struct replica_walk *w, const char *key, const char *name)
{
  return !strcmp(key, MANTA__CKPT_MANIFEST);
}

static manta_status upload_directory(struct manta__replica *m, int dir, manta_error *err)
{
  struct replica_walk w = {m, is_top_manifest, true};
  MANTA_TRY(send_tree(&w, dir, "", 0, err));
  return send_file(m, dir, MANTA__CKPT_MANIFEST, MANTA__CKPT_MANIFEST, err);
}

static manta_status upload_file(const char *path, int fd, int64_t size, const char *uri,
                                manta_error *err)
{
  struct manta__objects *o;
  const char *name = strrchr(uri, '/') + 1;
  char *folder = manta__strndup(uri, (size_t)(name - uri) - 1);
  if (!folder)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to store it", uri);
  manta_status st = manta__objects_open(&o, folder, err);
  manta__free(folder);
  MANTA_TRY(st);
  st = manta__objects_put(o, name, fd, size, err);
  manta__objects_close(o);
  return st;
}

manta_status manta__replica_upload(const char *path, const char *uri, manta_error *err)
{
  struct manta__replica m = {.rundir = -1};
  struct stat sb;
  MANTA_TRY(manta__objects_check(uri, err));
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &sb) < 0) {
    manta__fd_close(&fd);
    return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "open %s: %m", path);
  }
  manta_status st;
  if (S_ISDIR(sb.st_mode)) {
    st = manta__objects_open(&m.objects, uri, err);
    if (st == MANTA_OK)
      st = upload_directory(&m, fd, err);
    manta__objects_close(m.objects);
    manta__known_fini(&m.known);
  } else
    st = upload_file(path, fd, sb.st_size, uri, err);
  close(fd);
  return st;
}
