/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/exec.c - an agent on another host, reached by a command of the user's: a bridge runs it.
 */
#include <stdio.h>

#include "engine/engine.h"

static manta_status start(const struct manta__engine_host *h, int *sock, pid_t *pid,
                          manta_error *err)
{
  char timeout[32];
  snprintf(timeout, sizeof timeout, "%.3f", h->timeout_s);
  char *argv[] = {(char *)"manta-bridge", (char *)h->name, (char *)h->command, timeout, NULL};
  return manta__engine_start_role("bridge", argv, sock, pid, err);
}

const struct manta__engine manta__engine_exec = {
    .name = "exec", .start = start, .end = manta__engine_end};

const struct manta__engine *manta__engine_for(const struct manta__engine_host *h)
{
  return h->command ? &manta__engine_exec : &manta__engine_local;
}
