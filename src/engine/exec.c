/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/exec.c - an agent on another host, reached by a command of the user's: a bridge runs it.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine.h"

static manta_status parse(struct manta__engine_host *h, const char *text, manta_error *err)
{
  if (!text[strspn(text, " \t")])
    return manta_error_set(err, MANTA_EINVAL, "exec: is followed by a command");
  h->target = manta__strdup(text);
  return h->target ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for a command");
}

static void start(struct manta__engine_start *s)
{
  const struct manta__engine_host *h = s->host;
  char timeout[32];
  snprintf(timeout, sizeof timeout, "%.3f", h->timeout_s);
  char *argv[] = {(char *)"manta-bridge", h->name, h->target, timeout, NULL};
  manta__engine_start_role(MANTA__ROLE_BRIDGE, argv, &s->sock, &s->pid, &s->why);
}

static void start_many(struct manta__engine_start *const *s, size_t count)
{
  for (size_t i = 0; i < count; i++)
    start(s[i]);
}

const struct manta__engine manta__engine_exec = {.name = "exec",
                                                 .remote = true,
                                                 .parse = parse,
                                                 .start_many = start_many,
                                                 .end = manta__engine_end};
