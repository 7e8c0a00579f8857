/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/logs.c - `manta logs`: what the workers printed.
 *
 * A rank's output is rank-N.log.1, if there is one, and then rank-N.log; when the latter has grown
 * to its share it becomes the former. Following looks every 100 ms at the file that is open, and
 * when its name has passed to a new file reads on there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta/trainer.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"
#include "event/lock.h"
#include "sys/sock.h"

#define CHUNK     (64u << 10)
#define LOOK_MS   100
#define LAST_LOOK 3 /* looks after the run has ended: its workers' last lines may be under way */

/* The output of one rank. */
struct tail {
  int rank, fd;
  bool prefixed, in_line; // in_line: what was printed last did not end its line
};

struct logs {
  const struct manta__runref *run;
  int dir;
  int64_t lines; // print only so many of each rank at first; -1: all
  struct tail *tail;
  size_t count;
};

// --- Printing ------------------------------------------------------------------------------------

static void print_prefixed(struct tail *t, const char *p, size_t n)
{
  while (n > 0) {
    const char *end = memchr(p, '\n', n);
    size_t k = end ? (size_t)(end - p) + 1 : n;
    if (!t->in_line)
      printf("(rank %d) ", t->rank);
    fwrite(p, 1, k, stdout);
    t->in_line = !end;
    p += k;
    n -= k;
  }
}

static bool print_rest(struct tail *t)
{
  static char chunk[CHUNK];
  ssize_t n;
  bool any = false;
  while (t->fd >= 0 && (n = read(t->fd, chunk, sizeof chunk)) > 0) {
    any = true;
    if (t->prefixed)
      print_prefixed(t, chunk, (size_t)n);
    else
      fwrite(chunk, 1, (size_t)n, stdout);
  }
  return any;
}

// --- Files ---------------------------------------------------------------------------------------

static int open_log(const struct logs *l, int rank, const char *suffix)
{
  char name[64];
  snprintf(name, sizeof name, "rank-%d.log%s", rank, suffix);
  return openat(l->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

// Sets the file to the start of its last lines; gives how many of them it did not have.
static int64_t seek_lines(int fd, int64_t lines)
{
  char chunk[4096];
  off_t at = lseek(fd, 0, SEEK_END);
  int64_t wanted = lines;
  bool first = true; // the newline at the very end begins no line
  while (at > 0) {
    size_t n = at < (off_t)sizeof chunk ? (size_t)at : sizeof chunk;
    if (pread(fd, chunk, n, at - (off_t)n) != (ssize_t)n)
      break;
    for (size_t i = n; i-- > 0; first = false)
      if (chunk[i] == '\n' && !first && --wanted == 0) {
        lseek(fd, at - (off_t)n + (off_t)i + 1, SEEK_SET);
        return 0;
      }
    at -= (off_t)n;
  }
  lseek(fd, 0, SEEK_SET);
  return first ? lines : wanted - 1;
}

static void print_first(const struct logs *l, struct tail *t)
{
  int older = open_log(l, t->rank, ".1");
  t->fd = open_log(l, t->rank, "");
  int64_t left = l->lines;
  if (l->lines > 0 && t->fd >= 0)
    left = seek_lines(t->fd, l->lines);
  else if (l->lines == 0 && t->fd >= 0)
    lseek(t->fd, 0, SEEK_END);
  if (older >= 0 && (l->lines < 0 || left > 0)) {
    struct tail before = {.rank = t->rank, .fd = older, .prefixed = t->prefixed};
    if (l->lines > 0)
      seek_lines(older, left);
    print_rest(&before);
    t->in_line = before.in_line;
  }
  manta__fd_close(&older);
  print_rest(t);
}

// Has the name passed to another file? Then the old one is at its end.
static void move_on(const struct logs *l, struct tail *t)
{
  struct stat was = {0}, is;
  int fd = open_log(l, t->rank, "");
  if (fd < 0)
    return;
  if (t->fd >= 0 && fstat(t->fd, &was) == 0 && fstat(fd, &is) == 0 && was.st_ino == is.st_ino) {
    close(fd);
    return;
  }
  print_rest(t);
  manta__fd_close(&t->fd);
  t->fd = fd;
}

// --- Ranks ---------------------------------------------------------------------------------------

static manta_status add_rank(struct logs *l, int rank, bool prefixed, manta_error *err)
{
  struct tail *p = manta__realloc(l->tail, (l->count + 1) * sizeof *p);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the logs of %zu ranks", l->count);
  l->tail = p;
  l->tail[l->count++] = (struct tail){.rank = rank, .fd = -1, .prefixed = prefixed};
  return MANTA_OK;
}

static int by_rank(const void *a, const void *b)
{
  return ((const struct tail *)a)->rank - ((const struct tail *)b)->rank;
}

static bool has_rank(const struct logs *l, int rank)
{
  for (size_t i = 0; i < l->count; i++)
    if (l->tail[i].rank == rank)
      return true;
  return false;
}

// Adds those whose log is there and that are not known yet.
static manta_status add_all(struct logs *l, manta_error *err)
{
  int fd = openat(l->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  manta_status st = MANTA_OK;
  if (!d) {
    manta__fd_close(&fd);
    return manta_error_set(err, MANTA_EIO, "read logs/: %m");
  }
  size_t before = l->count;
  for (struct dirent *e; st == MANTA_OK && (e = readdir(d));) {
    int rank, n = 0;
    if (sscanf(e->d_name, "rank-%d.log%n", &rank, &n) == 1 && n > 0 && !e->d_name[n] && rank >= 0 &&
        !has_rank(l, rank))
      st = add_rank(l, rank, true, err);
  }
  closedir(d);
  if (l->count > before)
    qsort(l->tail + before, l->count - before, sizeof *l->tail, by_rank);
  return st;
}

static manta_status check_rank(const struct logs *l, int rank, manta_error *err)
{
  int fd = open_log(l, rank, "");
  if (fd >= 0) {
    close(fd);
    return MANTA_OK;
  }
  return manta_error_set(err, MANTA_ENOENT,
                         "rank %d of %s has printed nothing\nhint: manta logs --all %s", rank,
                         l->run->name, l->run->name);
}

// --- Following -----------------------------------------------------------------------------------

static manta_status follow(struct logs *l, bool all, manta_error *err)
{
  for (int looks = LAST_LOOK; looks > 0;) {
    looks = manta__runlock_holder(l->run->fd) ? LAST_LOOK : looks - 1;
    if (all)
      MANTA_TRY(add_all(l, err));
    for (size_t i = 0; i < l->count; i++) {
      print_rest(&l->tail[i]);
      move_on(l, &l->tail[i]);
      print_rest(&l->tail[i]);
    }
    if (fflush(stdout) == EOF)
      return manta_error_set(err, MANTA_EIO, "write: %m");
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000l}, NULL);
  }
  return MANTA_OK;
}

static manta_status print_logs(struct logs *l, const struct manta__args *a, manta_error *err)
{
  bool all = manta__args_has(a, "all"), following = manta__args_has(a, "follow");
  const char *lines = manta__args_get(a, "lines"), *given = manta__args_get(a, "rank");
  int64_t rank = 0;
  l->lines = -1;
  if (lines)
    MANTA_TRY(manta__args_int(&l->lines, lines, "-n", 0, INT64_MAX, err));
  if (given && all)
    return manta_error_set(err, MANTA_EINVAL, "--rank and --all contradict each other");
  if (given)
    MANTA_TRY(manta__args_int(&rank, given, "--rank", 0, MANTA_MAX_RANKS - 1, err));
  l->dir = openat(l->run->fd, "logs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (l->dir < 0)
    return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "%s/logs: %m",
                           l->run->path);
  if (!following && !all)
    MANTA_TRY(check_rank(l, (int)rank, err));
  MANTA_TRY(all ? add_all(l, err) : add_rank(l, (int)rank, false, err));
  for (size_t i = 0; i < l->count; i++)
    print_first(l, &l->tail[i]);
  return following ? follow(l, all, err) : MANTA_OK;
}

int manta__cmd_logs(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r;
  if (manta__runref_open(&r, a->operand[0], &err) < 0)
    return manta__complain(&err);
  struct logs l = {.run = &r, .dir = -1};
  manta_status st = print_logs(&l, a, &err);
  for (size_t i = 0; i < l.count; i++)
    manta__fd_close(&l.tail[i].fd);
  manta__free(l.tail);
  manta__fd_close(&l.dir);
  manta__runref_close(&r);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}
