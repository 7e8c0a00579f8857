/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/run.c - `manta run`: the environment of a program, and the program.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/trainer.h>

#include "base/alloc.h"
#include "cmd/child.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/python.h"
#include "remote/objects.h"

// Absolute, for the program may change its directory before it looks.
static manta_status set_logdir(const char *dir, manta_error *err)
{
  char cwd[PATH_MAX];
  if (!*dir)
    return manta_error_set(err, MANTA_EINVAL, "--logdir is empty");
  if (manta__is_uri(dir))
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "--logdir %s: must be a directory\nhint: the logdir of the program's "
                           "trainer can be s3://BUCKET/PREFIX",
                           dir);
  if (dir[0] == '/') {
    setenv("MANTA_RESULTS", dir, 1);
    return MANTA_OK;
  }
  char *path = getcwd(cwd, sizeof cwd) ? manta__asprintf("%s/%s", cwd, dir) : NULL;
  if (!path)
    return manta_error_set(err, MANTA_EIO, "--logdir %s: %m", dir);
  setenv("MANTA_RESULTS", path, 1);
  manta__free(path);
  return MANTA_OK;
}

static manta_status set_environment(const struct manta__args *a, manta_error *err)
{
  const char *n = manta__args_get(a, "workers"), *dir = manta__args_get(a, "logdir");
  const char *pdb = manta__args_get(a, "pdb"), *verbose = manta__args_get(a, "verbose");
  int64_t workers, rank, level;
  if (n) {
    MANTA_TRY(manta__args_int(&workers, n, "-n", 1, MANTA_MAX_RANKS, err));
    setenv("MANTA_NUM_WORKERS", n, 1);
  }
  if (dir)
    MANTA_TRY(set_logdir(dir, err));
  if (pdb) {
    MANTA_TRY(manta__args_int(&rank, pdb, "--pdb", 0, MANTA_MAX_RANKS - 1, err));
    setenv("MANTA_PDB", pdb, 1);
  }
  if (verbose) {
    MANTA_TRY(manta__args_int(&level, verbose, "--verbose", 0, 2, err));
    setenv("MANTA_VERBOSE", verbose, 1);
  }
  return manta__child_prepare(err);
}

static bool is_python(const char *program)
{
  size_t n = strlen(program);
  return n > 3 && !strcmp(program + n - 3, ".py") && access(program, X_OK) != 0;
}

// By the interpreter, as the user would start it by hand: `python script`, or with --ray
// `python -m manta.compat.ray script`.
static int run_python(const struct manta__args *a, bool ray)
{
  char *python = (char *)manta__python_name();
  char **argv = manta__calloc((size_t)a->count + 4, sizeof *argv);
  int n = 0;
  if (!argv) {
    manta__say("no memory for the arguments of %s", a->operand[0]);
    return MANTA__EXIT_FAILED;
  }
  argv[n++] = python;
  if (ray) {
    argv[n++] = (char *)"-m";
    argv[n++] = (char *)"manta.compat.ray";
  }
  memcpy(argv + n, a->operand, (size_t)a->count * sizeof *argv);
  int code = manta__child_run(python, argv);
  manta__free(argv);
  return code;
}

int manta__cmd_run(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  if (set_environment(a, &err) < 0)
    return manta__complain(&err);
  bool ray = manta__args_has(a, "ray");
  if (ray || is_python(a->operand[0]))
    return run_python(a, ray);
  return manta__child_run(a->operand[0], a->operand);
}
