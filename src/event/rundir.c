/* SPDX-License-Identifier: Apache-2.0
 *
 * event/rundir.c - making run directories: LOGDIR/NAME_NNNN_YYYY-MM-DD_HH-MM-SS.
 *
 * The number is one above the highest that NAME has. mkdir alone does not keep it unique, for two
 * processes may meet it in different seconds; a lock on LOGDIR, held over counting and making,
 * does.
 */
#include "event/rundir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/knob.h"
#include "base/log.h"
#include "sys/file.h"

#define NAME_KEEP   200 /* bytes of a name that are used: number and time must fit behind it */
#define LOCK_WAIT_S 2.0

static void clean_name(char out[NAME_KEEP + 1], const char *name)
{
  size_t n = 0;
  for (; name[n] && n < NAME_KEEP; n++) {
    unsigned char c = (unsigned char)name[n];
    out[n] = (c < 128 && isalnum(c)) || c == '.' || c == '_' || c == '-' ? (char)c : '-';
  }
  out[n] = 0;
  if (n == 0)
    snprintf(out, NAME_KEEP + 1, "run");
}

// Does s look like 2026-11-15_04-46-27?
static bool is_time(const char *s)
{
  static const char form[] = "dddd-dd-dd_dd-dd-dd";
  for (size_t i = 0; i < sizeof form; i++)
    if (form[i] == 'd' ? !isdigit((unsigned char)s[i]) : s[i] != form[i])
      return false;
  return true;
}

// The number in NAME_NNNN_TIME, or 0 if `entry` is no directory of that name.
static long number_of(const char *entry, const char *name)
{
  size_t n = strlen(name);
  if (strncmp(entry, name, n) != 0 || entry[n] != '_' || !isdigit((unsigned char)entry[n + 1]))
    return 0;
  char *end;
  errno = 0;
  long k = strtol(entry + n + 1, &end, 10);
  return errno == 0 && k < LONG_MAX && *end == '_' && is_time(end + 1) ? k : 0;
}

static manta_status highest_number(int top, const char *name, long *out, manta_error *err)
{
  int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    manta_error_set(err, MANTA_EIO, "read directory: %m");
    if (fd >= 0)
      close(fd);
    return MANTA_EIO;
  }
  *out = 0;
  for (struct dirent *e; (e = readdir(d));) {
    long k = number_of(e->d_name, name);
    if (k > *out)
      *out = k;
  }
  closedir(d);
  return MANTA_OK;
}

// Best effort: where directories cannot be locked (NFS), a number may come twice, a name never.
static void lock_numbers(int top)
{
  int64_t by = manta__deadline(LOCK_WAIT_S);
  while (flock(top, LOCK_EX | LOCK_NB) < 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
    if (manta__now() > by)
      return;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

// Runs cannot go there; errno says why.
static manta_status refuse(const char *logdir, const char *dir, manta_error *err)
{
  return manta_error_set(err, MANTA_EIO,
                         "cannot make the directory %s%s%s: %m\n"
                         "hint: runs go to the trainer's logdir, else to MANTA_RESULTS, else to "
                         "~/manta_results; one of these must be a directory that you can write",
                         logdir, *dir ? "/" : "", dir);
}

static manta_status make_next(int top, const char *logdir, const char *name, char dir[NAME_MAX + 1],
                              manta_error *err)
{
  long k;
  MANTA_TRY(highest_number(top, name, &k, err));
  for (int tries = 0; tries < 10000; tries++) {
    char when[32];
    time_t now = (time_t)(manta__wall() / 1000000000);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y-%m-%d_%H-%M-%S", &tm);
    snprintf(dir, NAME_MAX + 1, "%s_%04ld_%s", name, ++k, when);
    if (mkdirat(top, dir, 0700) == 0)
      return MANTA_OK;
    if (errno != EEXIST)
      break;
  }
  return refuse(logdir, dir, err);
}

static manta_status open_made(int top, const char *dir, int *fd_out, char **path_out,
                              manta_error *err)
{
  int fd = openat(top, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "open directory %s: %m", dir);
  char path[PATH_MAX];
  manta__dir_path(fd, path);
  char *copy = manta__strdup(path);
  if (!copy) {
    close(fd);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the path of a run");
  }
  *fd_out = fd;
  *path_out = copy;
  return MANTA_OK;
}

manta_status manta__rundir_create(const char *logdir, const char *name, int *fd_out,
                                  char **path_out, manta_error *err)
{
  char clean[NAME_KEEP + 1], dir[NAME_MAX + 1];
  clean_name(clean, name ? name : "");
  int top;
  manta_status st = manta__dir_make(logdir, &top, err);
  if (st < 0)
    return st == MANTA_EIO ? refuse(logdir, "", err) : st;
  lock_numbers(top);
  st = make_next(top, logdir, clean, dir, err);
  flock(top, LOCK_UN); // not by close alone: a child forked meanwhile shares the descriptor
  if (st == MANTA_OK && (st = open_made(top, dir, fd_out, path_out, err)) < 0)
    unlinkat(top, dir, AT_REMOVEDIR);
  close(top);
  return st;
}

static const char *home(char *buf, size_t size)
{
  const char *h = getenv("HOME");
  if (h && *h)
    return h;
  struct passwd pw, *found = NULL;
  return getpwuid_r(getuid(), &pw, buf, size, &found) == 0 && found ? found->pw_dir : NULL;
}

manta_status manta__rundir_default(char **out, manta_error *err)
{
  char buf[4096];
  const char *set = manta__knob_text(MANTA__KNOB_RESULTS);
  const char *h = home(buf, sizeof buf);
  if (!set && !h)
    return manta_error_set(err, MANTA_ENOENT, "no home directory; set MANTA_RESULTS");
  char *path = set ? manta__strdup(set) : manta__asprintf("%s/manta_results", h);
  if (!path)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the path of results");
  *out = path;
  return MANTA_OK;
}

bool manta__rundir_fits_trial(const char *name)
{
  size_t n = strlen(name);
  if (n == 0 || n >= MANTA__TRIAL_DIR_MAX || name[0] == '.' || strcmp(name, "experiment") == 0)
    return false;
  for (const char *c = name; *c; c++)
    if (*c == '/' || (unsigned char)*c < 32 || *c == 127)
      return false;
  return true;
}
