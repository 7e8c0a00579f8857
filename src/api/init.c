/* SPDX-License-Identifier: Apache-2.0
 *
 * api/init.c - the first statement of main: driver, zygote or worker?
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/embed.h>
#include <manta/manta.h>

#include "base/alloc.h"
#include "base/knob.h"
#include "base/log.h"
#include "data/share/callers.h"
#include "group/proto.h"
#include "group/zygote.h"
#include "sys/amx.h"
#include "sys/lifeline.h"
#include "train/driver.h"
#include "train/func.h"
#include "train/session.h"

const char *manta_version(void)
{
  return MANTA_VERSION;
}

// --- roles ---------------------------------------------------------------------------------------

static_assert((int)MANTA__ROLE_WORKER_FDS == (int)MANTA__W_FDS, "one of each");

static void be_zygote(char *const argv[], const struct manta__job_ops *ops)
{
  manta__zygote_main(MANTA__ROLE_CONN_FD, MANTA__ROLE_LIFELINE_FD, argv, ops);
}

static void be_worker(char *const argv[], const struct manta__job_ops *ops)
{
  int fds[MANTA__W_FDS];
  for (int i = 0; i < MANTA__W_FDS; i++)
    fds[i] = MANTA__ROLE_CONN_FD + i;
  manta__worker_main(fds, ops);
}

static_assert((int)MANTA__ROLE_CALLER_FDS == (int)MANTA__C_FDS, "one of each");

_Noreturn static void be_caller(char *const argv[], const struct manta__job_ops *ops)
{
  int fds[MANTA__C_FDS];
  for (int i = 0; i < MANTA__C_FDS; i++)
    fds[i] = MANTA__ROLE_CONN_FD + i;
  if (ops->fork.callers)
    ops->serve_reader(fds, ops->fork.callers);
  _exit(0);
}

// Those that a program plays; the others are the command's.
static void (*const parts[MANTA__ROLE_COUNT + 1])(char *const argv[],
                                                  const struct manta__job_ops *ops) = {
    [MANTA__ROLE_ZYGOTE] = be_zygote,
    [MANTA__ROLE_WORKER] = be_worker,
    [MANTA__ROLE_CALLER] = be_caller};

// Comes back in a worker at its end, or where there is no such role.
static manta_status play(const char *name, char *const argv[], const struct manta__job_ops *ops,
                         manta_error *err)
{
  enum manta__role role = manta__role_named(name);
  if (!parts[role]) {
    unsetenv(MANTA__ROLE_ENV);
    return manta_error_set(err, MANTA_EINVAL, "unknown role \"%s\" in %s", name, MANTA__ROLE_ENV);
  }
  manta__role_enter(role);
  parts[role](argv, ops);
  return MANTA_OK;
}

// --- the program ---------------------------------------------------------------------------------

manta_status manta_init(int *argc, char ***argv)
{
  const char *role = manta__knob_text(MANTA__KNOB_ROLE);
  manta_error err = MANTA_ERROR_INIT;
  manta__func_note_objects();
  manta__driver_note_program(*argc, *argv);
  if (!role)
    return MANTA_OK;
  role = strdupa(role);
  if (play(role, *argv, &manta__session_ops, &err) == MANTA_OK)
    exit(0);
  manta__error("%s", err.message);
  return err.status;
}

// --- another language ----------------------------------------------------------------------------

manta_status manta_embed(int argc, char *const argv[], manta_error *err)
{
  manta_program p = MANTA_PROGRAM_INIT;
  struct manta__program line; // for the life of the process
  p.argv = (const char *const *)argv;
  if (argc < 1)
    return manta_error_set(err, MANTA_EINVAL, "a driver has a command line");
  MANTA_TRY(manta__program_copy(&line, &p, err));
  manta__func_note_objects();
  manta__driver_note_program(argc, line.argv);
  manta__free(line.env);
  return MANTA_OK;
}

manta_status manta_prestart(const manta_program *p, int threads, manta_error *err)
{
  struct manta__program copy;
  MANTA_TRY(manta__knobs_check(err));
  MANTA_TRY(manta__program_copy(&copy, p, err));
  manta_status st = manta__driver_keep(&copy, manta__program_threads(&copy, threads), err);
  manta__program_fini(&copy);
  return st;
}

manta_status manta_trainer_prestart(manta_trainer *t, manta_error *err)
{
  return manta__driver_keep_hosts(t, err);
}

void manta_release(void)
{
  manta__driver_release();
}

bool manta_serving(void)
{
  if (!manta__knob_is_set(MANTA__KNOB_ROLE))
    return false;
  manta__lifeline_hang_on(MANTA__ROLE_LIFELINE_FD, NULL); // if not, serving will say so
  return true;
}

manta_status manta_serve(char *const argv[], const manta_fork_hooks *hooks, manta_error *err)
{
  const char *role = manta__knob_text(MANTA__KNOB_ROLE);
  struct manta__job_ops ops = manta__session_ops;
  if (!role)
    return manta_error_set(err, MANTA_ESTATE, "this process was not started by an agent");
  if (hooks)
    ops.fork = *hooks;
  role = strdupa(role);
  return play(role, argv, &ops, err);
}

const char *manta_amx_cure(void)
{
  return manta__amx_is_trap(manta__amx_read()) ? MANTA__AMX_CURE_NAME "=" MANTA__AMX_CURE_VALUE
                                               : NULL;
}

manta_status manta_knob(const char *name, manta_value *out, manta_error *err)
{
  manta_value v = {0};
  enum manta__knob_id id = manta__knob_find(name);
  if (id == MANTA__KNOBS)
    return manta_error_set(err, MANTA_EINVAL, "manta has no environment variable \"%s\"", name);
  MANTA_TRY(manta__knob_value(id, false, &v, err));
  if (manta_value_copy(out, &v) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the value of %s", name);
  return MANTA_OK;
}
