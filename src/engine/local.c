/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/local.c - an agent on this host: the command itself.
 */
#include <stddef.h>

#include "engine/engine.h"

static manta_status start(const struct manta__engine_host *h, int *sock, pid_t *pid,
                          manta_error *err)
{
  char *argv[] = {(char *)"manta-agent", NULL};
  return manta__engine_start_role("agent", argv, sock, pid, err);
}

const struct manta__engine manta__engine_local = {
    .name = "local", .start = start, .end = manta__engine_end};
