/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/file.c - local files: a path, a pattern (*, ?, […]) or a folder with all below it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/typo.h"
#include "data/source/source.h"

#define DEPTH_MAX 64

struct file_source {
  struct manta__source source;
  int fd;
};

static manta_status status_of(int error)
{
  return error == ENOENT || error == ENOTDIR ? MANTA_ENOENT
         : error == EACCES || error == EPERM ? MANTA_EDENIED
                                             : MANTA_EIO;
}

// --- reading ------------------------------------------------------------------------------------

static manta_status open_file(struct manta__source **out, const char *name, manta_error *err)
{
  struct stat sb;
  int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); // a pipe must not hold us up
  if (fd < 0 || fstat(fd, &sb) < 0) {
    manta_status st = manta_error_set(err, status_of(errno), "%s: %m", name);
    if (fd >= 0)
      close(fd);
    return st;
  }
  struct file_source *f = NULL;
  if (S_ISREG(sb.st_mode) && (f = manta__calloc(1, sizeof *f)))
    f->source.name = manta__strdup(name);
  if (!f || !f->source.name) {
    manta__free(f);
    close(fd);
    return S_ISREG(sb.st_mode)
               ? manta_error_set(err, MANTA_ENOMEM, "%s: no memory to open it", name)
               : manta_error_set(err, MANTA_EINVAL, "%s: is no regular file", name);
  }
  f->source.place = &manta__place_file;
  f->source.size = sb.st_size;
  f->fd = fd;
  posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  *out = &f->source;
  return MANTA_OK;
}

static manta_status read_file(struct manta__source *s, int64_t at, void *to, size_t n,
                              manta_error *err)
{
  struct file_source *f = (struct file_source *)s;
  for (size_t done = 0; done < n;) {
    ssize_t got = pread(f->fd, (char *)to + done, n - done, at + (off_t)done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return manta_error_set(err, MANTA_EIO, "%s: read at byte %" PRId64 ": %m", s->name,
                             at + (int64_t)done);
    if (got == 0)
      return manta_error_set(err, MANTA_EIO,
                             "%s: ends at byte %" PRId64 ", but had %" PRId64
                             " bytes when it was opened: it was cut while it was read\nhint: write "
                             "another file and rename it over this one",
                             s->name, at + (int64_t)done, s->size);
    done += (size_t)got;
  }
  return MANTA_OK;
}

static void close_file(struct manta__source *s)
{
  struct file_source *f = (struct file_source *)s;
  close(f->fd);
  manta__free(s->name);
  manta__free(f);
}

// --- listing ------------------------------------------------------------------------------------

static manta_status list_folder(struct manta__listing *to, const char *folder, int depth,
                                manta_error *err);

// An entry of a folder: what is no file and no folder is passed over, and so are links to folders,
// which could lead back.
static manta_status list_entry(struct manta__listing *to, const char *folder, const char *name,
                               int depth, manta_error *err)
{
  char path[PATH_MAX];
  struct stat sb;
  const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
  if (name[0] == '.' || name[0] == '_')
    return MANTA_OK;
  if (snprintf(path, sizeof path, "%s%s%s", folder, slash, name) >= (int)sizeof path)
    return manta_error_set(err, MANTA_ETOOBIG, "%s/%s: the path is too long", folder, name);
  if (lstat(path, &sb) < 0)
    return errno == ENOENT ? MANTA_OK : manta_error_set(err, status_of(errno), "%s: %m", path);
  if (S_ISDIR(sb.st_mode))
    return list_folder(to, path, depth + 1, err);
  if (S_ISLNK(sb.st_mode) && stat(path, &sb) < 0)
    return manta_error_set(err, status_of(errno), "%s: %m", path);
  return S_ISREG(sb.st_mode) ? manta__listing_add(to, path, sb.st_size, err) : MANTA_OK;
}

static manta_status list_folder(struct manta__listing *to, const char *folder, int depth,
                                manta_error *err)
{
  manta_status st = MANTA_OK;
  const struct dirent *e;
  if (depth > DEPTH_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "%s: folders in folders, %d deep", folder,
                           DEPTH_MAX);
  DIR *d = opendir(folder);
  if (!d)
    return manta_error_set(err, status_of(errno), "%s: %m", folder);
  while (st == MANTA_OK && (errno = 0, e = readdir(d)))
    st = list_entry(to, folder, e->d_name, depth, err);
  if (st == MANTA_OK && errno)
    st = manta_error_set(err, MANTA_EIO, "%s: %m", folder);
  closedir(d);
  return st;
}

// Says which name of its folder is near one that is not there.
static manta_status tell_missing(const char *name, manta_error *err)
{
  int error = errno, best = 1 + (int)strlen(name) / 8;
  char parent[PATH_MAX], found[NAME_MAX + 1] = "";
  const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
  snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - name + 1) : 2, slash ? name : "./");
  DIR *d = error == ENOENT ? opendir(parent) : NULL;
  for (const struct dirent *e; d && (e = readdir(d));) {
    int distance = manta__typo_distance(last, e->d_name);
    if (distance <= best && e->d_name[0] != '.') {
      best = distance - 1;
      snprintf(found, sizeof found, "%s", e->d_name);
    }
  }
  if (d)
    closedir(d);
  errno = error;
  if (found[0])
    return manta_error_set(err, status_of(error), "%s: %m\nhint: there is \"%s\"", name, found);
  return manta_error_set(err, status_of(error), "%s: %m%s", name,
                         error == ENOENT && !d ? "\nhint: its folder is not there either" : "");
}

static manta_status list_pattern(struct manta__listing *to, const char *pattern, manta_error *err)
{
  glob_t g = {0};
  manta_status st = MANTA_OK;
  int rc = glob(pattern, GLOB_TILDE, NULL, &g);
  if (rc == GLOB_NOMATCH)
    st =
        manta_error_set(err, MANTA_ENOENT,
                        "%s: no file matches this pattern\nhint: * and ? do not stand for a slash; "
                        "a folder stands for all files below it",
                        pattern);
  else if (rc != 0)
    st = manta_error_set(err, rc == GLOB_NOSPACE ? MANTA_ENOMEM : MANTA_EIO,
                         "%s: the pattern could not be looked up", pattern);
  for (size_t i = 0; i < g.gl_pathc && st == MANTA_OK; i++) {
    struct stat sb;
    if (stat(g.gl_pathv[i], &sb) < 0)
      st = manta_error_set(err, status_of(errno), "%s: %m", g.gl_pathv[i]);
    else if (S_ISREG(sb.st_mode))
      st = manta__listing_add(to, g.gl_pathv[i], sb.st_size, err);
  }
  globfree(&g);
  return st;
}

static manta_status list_name(struct manta__listing *to, const char *name, manta_error *err)
{
  struct stat sb;
  size_t before = to->count;
  if (stat(name, &sb) == 0) {
    if (S_ISREG(sb.st_mode))
      return manta__listing_add(to, name, sb.st_size, err);
    if (!S_ISDIR(sb.st_mode))
      return manta_error_set(err, MANTA_EINVAL, "%s: is no regular file", name);
    MANTA_TRY(list_folder(to, name, 0, err));
  } else if (strpbrk(name, "*?[~"))
    MANTA_TRY(list_pattern(to, name, err));
  else
    return tell_missing(name, err);
  if (to->count == before)
    return manta_error_set(err, MANTA_ENOENT,
                           "%s: there is no file in it\nhint: names that begin with . or _ do not "
                           "count",
                           name);
  manta__listing_sort(to, before);
  return MANTA_OK;
}

const struct manta__place manta__place_file = {
    .scheme = "",
    .open = open_file,
    .read = read_file,
    .close = close_file,
    .list = list_name,
};
