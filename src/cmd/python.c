/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/python.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/knob.h"
#include "sys/proc.h"
#include "sys/sock.h"

// A line each. What lies in the current directory does not count: it is not installed.
static const char question[] = "import sys\n"
                               "sys.path[:] = [p for p in sys.path if p]\n"
                               "from importlib import metadata, util\n"
                               "def version(module, distribution):\n"
                               "    try:\n"
                               "        return metadata.version(distribution)\n"
                               "    except metadata.PackageNotFoundError:\n"
                               "        return '?' if util.find_spec(module) else ''\n"
                               "print('.'.join(map(str, sys.version_info[:3])))\n"
                               "print(version('manta', 'manta-train'))\n"
                               "print(version('torch', 'torch'))\n";

const char *manta__python_name(void)
{
  return manta__knob_text(MANTA__KNOB_PYTHON);
}

// --- The child -----------------------------------------------------------------------------------

static int spawn(pid_t *pid, const char *name, int out)
{
  char *argv[] = {(char *)name, (char *)"-c", (char *)question, NULL};
  posix_spawn_file_actions_t acts;
  int error = posix_spawn_file_actions_init(&acts);
  if (error)
    return error;
  error = posix_spawn_file_actions_addopen(&acts, 0, "/dev/null", O_RDONLY, 0);
  if (!error)
    error = posix_spawn_file_actions_adddup2(&acts, out, 1);
  if (!error)
    error = posix_spawn_file_actions_addopen(&acts, 2, "/dev/null", O_WRONLY, 0);
  if (!error)
    error = posix_spawnp(pid, name, &acts, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&acts);
  return error;
}

// All that it prints, or the first size - 1 bytes. False: the time is over.
static bool read_all(int fd, char *text, size_t size, int64_t by)
{
  size_t n = 0;
  text[0] = 0;
  while (n + 1 < size) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ready = poll(&p, 1, manta__left_ms(by));
    if (ready == 0)
      return false;
    ssize_t got = ready < 0 ? -1 : read(fd, text + n, size - 1 - n);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return true;
    n += (size_t)got;
    text[n] = 0;
  }
  return true;
}

// Whether it ends by then: who has closed its output may go on all the same.
static bool ends(pid_t pid, int64_t by)
{
  int fd = manta__pidfd_open(pid);
  struct pollfd p = {.fd = fd, .events = POLLIN};
  int ready;
  do
    ready = fd < 0 ? 0 : poll(&p, 1, manta__left_ms(by));
  while (ready < 0 && errno == EINTR);
  manta__fd_close(&fd);
  return ready > 0;
}

static manta_status run(const char *name, char *text, size_t size, double limit_s, manta_error *err)
{
  int tube[2], status = -1;
  pid_t pid;
  if (pipe2(tube, O_CLOEXEC) < 0)
    return manta_error_set(err, MANTA_EIO, "pipe: %m");
  int error = spawn(&pid, name, tube[1]);
  close(tube[1]);
  if (error) {
    close(tube[0]);
    return manta_error_set(err, MANTA_ENOENT, "cannot run %s: %s", name, strerror(error));
  }
  int64_t by = manta__deadline(limit_s);
  bool in_time = read_all(tube[0], text, size, by);
  close(tube[0]);
  in_time = in_time && ends(pid, by);
  if (!in_time)
    manta__proc_signal(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  if (!in_time)
    return manta_error_set(err, MANTA_ETIMEDOUT, "%s did not answer within %.3g s", name, limit_s);
  if (status != 0)
    return manta_error_set(err, MANTA_EIO, "%s could not say what it has", name);
  return MANTA_OK;
}

// --- The answer ----------------------------------------------------------------------------------

static const char *take_line(const char *text, char line[MANTA__PYTHON_TEXT])
{
  size_t n = strcspn(text, "\n");
  snprintf(line, MANTA__PYTHON_TEXT, "%.*s", (int)n, text);
  return text[n] ? text + n + 1 : NULL;
}

manta_status manta__python_ask(struct manta__python *out, double limit_s, manta_error *err)
{
  char text[512];
  const char *name = manta__python_name();
  *out = (struct manta__python){0};
  MANTA_TRY(run(name, text, sizeof text, limit_s, err));
  struct manta__python p;
  const char *at = take_line(text, p.version);
  at = at ? take_line(at, p.manta) : NULL;
  at = at ? take_line(at, p.torch) : NULL;
  if (!at || !p.version[0])
    return manta_error_set(err, MANTA_EIO, "%s is not a Python", name);
  *out = p;
  return MANTA_OK;
}
