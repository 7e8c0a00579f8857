/* SPDX-License-Identifier: Apache-2.0
 *
 * api/init.c - the first statement of main: driver, zygote or worker?
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>

#include "base/log.h"
#include "group/proto.h"
#include "group/zygote.h"
#include "train/driver.h"
#include "train/func.h"
#include "train/session.h"

const char *manta_version(void)
{
  return MANTA_VERSION;
}

// Descriptors that exec handed over: close-on-exec from here on.
static void keep_private(int count)
{
  for (int i = 0; i < count; i++)
    fcntl(MANTA__ROLE_CONN_FD + i, F_SETFD, FD_CLOEXEC);
}

manta_status manta_init(int *argc, char ***argv)
{
  const char *role = getenv(MANTA__ROLE_ENV);
  manta__func_note_objects();
  if (!role) {
    manta__driver_note_program(*argc, *argv);
    return MANTA_OK;
  }
  bool zygote = !strcmp(role, "zygote"), worker = !strcmp(role, "worker");
  unsetenv(MANTA__ROLE_ENV);
  if (zygote) {
    keep_private(2);
    manta__driver_note_program(*argc, *argv);
    manta__zygote_main(MANTA__ROLE_CONN_FD, MANTA__ROLE_LIFELINE_FD, *argv, &manta__session_ops);
  }
  if (worker) {
    int fds[MANTA__W_FDS];
    keep_private(MANTA__W_FDS);
    for (int i = 0; i < MANTA__W_FDS; i++)
      fds[i] = MANTA__ROLE_CONN_FD + i;
    manta__driver_note_program(*argc, *argv);
    manta__worker_main(fds, &manta__session_ops);
  }
  manta__error("unknown role \"%s\" in %s", role, MANTA__ROLE_ENV);
  return MANTA_EINVAL;
}
