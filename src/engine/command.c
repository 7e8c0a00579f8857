/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/command.c - the command `manta`: where it is, and a child of it in one of its roles.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/knob.h"
#include "engine/engine.h"
#include "sys/proc.h"
#include "sys/sock.h"

// Not the directory of that name in which the modules lie.
static bool is_command(const char *path)
{
  struct stat sb;
  return access(path, X_OK) == 0 && stat(path, &sb) == 0 && S_ISREG(sb.st_mode);
}

static char *beside(const char *file, const char *relative)
{
  const char *slash = strrchr(file, '/');
  char *path = slash ? manta__asprintf("%.*s/%s", (int)(slash - file), file, relative) : NULL;
  if (path && is_command(path))
    return path;
  manta__free(path);
  return NULL;
}

static char *in_path(void)
{
  const char *dirs = getenv("PATH");
  while (dirs && *dirs) {
    size_t n = strcspn(dirs, ":");
    char *path = manta__asprintf("%.*s/manta", (int)n, dirs);
    if (path && n > 0 && is_command(path))
      return path;
    manta__free(path);
    dirs += n + (dirs[n] == ':');
  }
  return NULL;
}

char *manta__engine_command(void)
{
  static const char *const places[] = {"manta", "../bin/manta", "cmd/manta", "../../bin/manta"};
  const char *given = manta__knob_text(MANTA__KNOB_BIN);
  if (given)
    return manta__strdup(given);
  Dl_info info;
  char self[PATH_MAX], lib[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  const char *from[] = {NULL, self};
  if (dladdr((void *)manta__engine_command, &info) && info.dli_fname &&
      realpath(info.dli_fname, lib))
    from[0] = lib;
  for (size_t f = 0; f < 2; f++)
    for (size_t i = 0; from[f] && i < sizeof places / sizeof *places; i++) {
      char *path = beside(from[f], places[i]);
      if (path)
        return path;
    }
  return in_path();
}

manta_status manta__engine_spawn_role(enum manta__role role, char *const argv[], const int *fds,
                                      int count, pid_t *pid, manta_error *err)
{
  manta_status st;
  char *path = manta__engine_command();
  if (!path)
    return manta_error_set(err, MANTA_ENOENT,
                           "the command \"manta\" is not found, and manta needs it to run workers\n"
                           "hint: install it, or set MANTA_BIN to its path");
  char **env = manta__role_environment(role);
  if (env)
    st = manta__proc_spawn(pid, path, argv, env, fds, count, -1, err);
  else
    st = manta_error_set(err, MANTA_ENOMEM, "no memory to start a process");
  manta__free(env);
  manta__free(path);
  return st;
}

manta_status manta__engine_start_role(enum manta__role role, char *const argv[], int *sock,
                                      pid_t *pid, manta_error *err)
{
  int end[2];
  MANTA_TRY(manta__sock_pair(end, err));
  manta_status st = manta__engine_spawn_role(role, argv, &end[1], 1, pid, err);
  close(end[1]);
  if (st < 0)
    close(end[0]);
  else
    *sock = end[0];
  return st;
}

int manta__engine_end(pid_t pid, bool at_once)
{
  int status = -1;
  if (pid <= 0)
    return -1;
  if (at_once)
    manta__proc_signal(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return -1; // the program reaps all its children
  return status;
}
