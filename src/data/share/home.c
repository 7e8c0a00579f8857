/* SPDX-License-Identifier: Apache-2.0
 *
 * data/share/home.c - directory and environment, from one process to another.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "data/plan/pack.h"
#include "data/share/share.h"

manta_status manta__home_put(manta_value *map)
{
  char cwd[PATH_MAX];
  size_t n = 0;
  while (environ[n])
    n++;
  if (getcwd(cwd, sizeof cwd))
    MANTA_TRY(manta_value_put_string(map, "cwd", cwd));
  return manta__plan_put_strings(map, "env", (const char *const *)environ, n);
}

// Its own role is none of the other's business.
static bool is_taken(const char *pair, const char *eq)
{
  static const char own[] = "MANTA_ROLE=";
  return eq && eq > pair && strncmp(pair, own, sizeof own - 1) != 0;
}

void manta__home_take(const manta_value *map)
{
  const manta_value *env = manta_value_get(map, "env");
  const char *cwd = manta_value_as_string(manta_value_get(map, "cwd"), NULL);
  for (size_t i = 0; env && env->type == MANTA_LIST && i < env->count; i++) {
    const char *pair = manta_value_as_string(manta_value_at(env, i), "");
    const char *eq = strchr(pair, '=');
    char *name = is_taken(pair, eq) ? manta__strndup(pair, (size_t)(eq - pair)) : NULL;
    if (name)
      setenv(name, eq + 1, 1);
    manta__free(name);
  }
  if (cwd && chdir(cwd) < 0)
    manta__warn("a process of the reader cannot go to %s: %m", cwd);
}
