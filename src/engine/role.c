/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/role.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

#define FIRST_FD 3 /* where manta__proc_spawn puts them */

static const struct {
  const char *env;
  int fds;
} roles[] = {
#define ROW(role, name, fds) {MANTA__ROLE_ENV "=" name, fds},
    MANTA__ROLE_MAP(ROW)
#undef ROW
};

const char *manta__role_env(enum manta__role r)
{
  return roles[r].env;
}

char **manta__role_environment(enum manta__role r)
{
  size_t n = 0;
  while (environ[n])
    n++;
  char **env = manta__calloc(n + 2, sizeof *env);
  if (env) {
    memcpy(env, environ, n * sizeof *env);
    env[n] = (char *)manta__role_env(r);
  }
  return env;
}

enum manta__role manta__role_named(const char *name)
{
  int r = 0;
  while (r < MANTA__ROLE_COUNT && strcmp(roles[r].env + sizeof MANTA__ROLE_ENV, name) != 0)
    r++;
  return (enum manta__role)r;
}

void manta__role_enter(enum manta__role r)
{
  unsetenv(MANTA__ROLE_ENV);
  for (int i = 0; i < roles[r].fds; i++)
    fcntl(FIRST_FD + i, F_SETFD, FD_CLOEXEC);
}
