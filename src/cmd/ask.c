/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/ask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/format.h"
#include "group/proto.h"
#include "sys/proc.h"
#include "sys/runtime.h"
#include "sys/sock.h"
#include "wire/conn.h"

#define ANSWER_S  2.0
#define BIRTH_S   5    /* a socket younger than this may be between bind and listen */
#define MAX_ABOVE 1000 /* generations of processes looked through */

// --- One agent -----------------------------------------------------------------------------------

static pid_t pid_of(const char *name)
{
  int pid, n = 0;
  if (sscanf(name, "agent-%d.sock%n", &pid, &n) != 1 || name[n] || n == 0 || pid <= 0)
    return 0;
  return pid;
}

// Through /proc/self/fd, so that the path is short and the directory the one that was checked.
static int connect_in(int dirfd, const char *name)
{
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/%s", dirfd, name);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
    manta__fd_close(&fd);
  return fd;
}

// `out` borrows from `answer`.
static manta_status converse(manta__conn *c, const manta_value *ask, manta_value *answer,
                             struct manta__ask_reply *out, manta_error *err)
{
  struct manta__msg m = {.kind = MANTA__M_ASK, .call = 1}, reply;
  int64_t by = manta__deadline(ANSWER_S);
  MANTA_TRY(manta__conn_send_value(c, &m, ask, err));
  MANTA_TRY(manta__conn_drain(c, by, err));
  int rc = manta__conn_wait(c, by, &reply, err);
  if (rc < 0)
    return (manta_status)rc;
  manta_status st = manta__ask_reply_unpack(&reply, answer, out, err);
  manta__msg_close(&reply);
  return st;
}

// MANTA_ECLOSED: nobody listens there.
static manta_status call(int dirfd, const char *name, const manta_value *ask, manta_value *answer,
                         struct manta__ask_reply *out, manta_error *err)
{
  manta__conn *c;
  int fd = connect_in(dirfd, name);
  if (fd < 0)
    return manta_error_set(err,
                           errno == ECONNREFUSED || errno == ENOENT ? MANTA_ECLOSED : MANTA_EIO,
                           "connect to %s: %m", name);
  manta_status st = manta__conn_create(&c, fd, manta__proto_end(MANTA__COMMAND_TO_AGENT), err);
  if (st < 0) {
    close(fd);
    return st;
  }
  st = converse(c, ask, answer, out, err);
  manta__conn_destroy(c);
  return st;
}

// --- All agents ----------------------------------------------------------------------------------

// An agent that was killed could not remove it; one that is just being born must keep it.
static void remove_stale(int dirfd, const char *name)
{
  struct stat sb;
  bool alive = manta__proc_signal(pid_of(name), 0) == 0 || errno == EPERM;
  if (fstatat(dirfd, name, &sb, AT_SYMLINK_NOFOLLOW) < 0)
    return;
  if (!alive || manta__wall() / 1000000000 - sb.st_mtim.tv_sec > BIRTH_S)
    unlinkat(dirfd, name, 0);
}

static manta_status ask_one(int dirfd, const char *name, manta_value *list, manta_error *err)
{
  manta_value ask = MANTA__PACK(ask_msg, .what = "ps"), answer = {0};
  struct manta__ask_reply out;
  manta_status st = call(dirfd, name, &ask, &answer, &out, err);
  if (st == MANTA_ECLOSED) {
    remove_stale(dirfd, name);
    st = MANTA_OK;
  } else if (st == MANTA_OK) {
    st = manta_value_append(list, &answer);
  }
  manta_value_fini(&answer);
  return st;
}

static manta_status ask_or_warn(int dirfd, const char *name, manta_value *list, bool quiet)
{
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = ask_one(dirfd, name, list, &why);
  if (st == MANTA_ENOMEM)
    return st;
  if (st < 0 && !quiet)
    manta__say("agent %d does not answer: %s", (int)pid_of(name), why.message);
  return MANTA_OK;
}

manta_status manta__ask_agent(manta_value *out, pid_t agent, manta_error *err)
{
  char name[64];
  int dirfd;
  snprintf(name, sizeof name, "agent-%d.sock", (int)agent);
  MANTA_TRY(manta__runtime_dir(&dirfd, NULL, 0, err));
  manta_status st = manta_value_set_list(out);
  if (st == MANTA_OK)
    st = ask_one(dirfd, name, out, err);
  close(dirfd);
  return st;
}

manta_status manta__ask_ps(manta_value *out, bool quiet, manta_error *err)
{
  int dirfd;
  MANTA_TRY(manta__runtime_dir(&dirfd, NULL, 0, err));
  manta_status st = manta_value_set_list(out);
  DIR *d = fdopendir(dirfd);
  if (!d) {
    manta_error_set(err, MANTA_EIO, "read the runtime directory: %m");
    close(dirfd);
    return MANTA_EIO;
  }
  for (struct dirent *e; st == MANTA_OK && (e = readdir(d));)
    if (pid_of(e->d_name) > 0)
      st = ask_or_warn(dirfd, e->d_name, out, quiet);
  closedir(d);
  return st < 0 ? manta_error_set(err, st, "no memory for the list of runs") : MANTA_OK;
}

manta_status manta__ask_run(pid_t agent, const char *what, const char *path, int64_t n,
                            manta_error *err)
{
  char name[64];
  int dirfd;
  manta_value answer = {0}, ask = MANTA__PACK(ask_msg, .what = what, .run = path, .n = n);
  struct manta__ask_reply out;
  snprintf(name, sizeof name, "agent-%d.sock", (int)agent);
  MANTA_TRY(manta__runtime_dir(&dirfd, NULL, 0, err));
  manta_status st = call(dirfd, name, &ask, &answer, &out, err);
  close(dirfd);
  if (st == MANTA_OK && !out.found)
    st = manta_error_set(err, MANTA_ENOENT, "its agent (pid %d) does not know the run %s",
                         (int)agent, path);
  manta_value_fini(&answer);
  return st;
}

// --- Runs in the answers -------------------------------------------------------------------------

bool manta__live_next(const manta_value *ps, struct manta__live_at *at, struct manta__live *out)
{
  for (const manta_value *a; (a = manta_value_at(ps, at->agent)); at->agent++, at->run = 0) {
    const manta_value *run = manta_value_at(manta_value_get(a, "runs"), at->run);
    if (!run)
      continue;
    at->run++;
    *out =
        (struct manta__live){.agent = (pid_t)manta_value_as_int(manta_value_get(a, "agent"), -1),
                             .driver = (pid_t)manta_value_as_int(manta_value_get(a, "driver"), -1),
                             .path = manta_value_as_string(manta_value_get(run, "path"), ""),
                             .run = run};
    return true;
  }
  return false;
}

static bool same_directory(const char *a, const char *b)
{
  struct stat x, y;
  return !strcmp(a, b) ||
         (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

bool manta__live_find(const manta_value *ps, const char *path, struct manta__live *out)
{
  struct manta__live_at at = {0};
  struct manta__live one;
  bool found = false;
  while ((!found || out->driver == 0) && manta__live_next(ps, &at, &one))
    if (one.path[0] && same_directory(one.path, path)) {
      *out = one;
      found = true;
    }
  return found;
}

// --- Processes -----------------------------------------------------------------------------------

// The name in the second field may hold anything, so what follows is read from its last ")".
static pid_t parent_of(pid_t pid)
{
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  manta__fd_close(&fd);
  if (n <= 0)
    return 0;
  text[n] = 0;
  const char *end = strrchr(text, ')');
  int parent = 0;
  return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

bool manta__is_below(pid_t pid, pid_t ancestor)
{
  for (int i = 0; pid > 0 && i < MAX_ABOVE; i++, pid = parent_of(pid))
    if (pid == ancestor)
      return true;
  return false;
}
