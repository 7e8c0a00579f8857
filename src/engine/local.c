/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/local.c - an agent on this host: the command itself.
 */
#include "engine/engine.h"

static manta_status parse(struct manta__engine_host *h, const char *text, manta_error *err)
{
  if (*text)
    return manta_error_set(err, MANTA_EINVAL,
                           "local: is this host, and nothing follows it, not \"%s\"", text);
  return MANTA_OK;
}

static void start_many(struct manta__engine_start *const *s, size_t count)
{
  char *argv[] = {(char *)"manta-agent", NULL};
  for (size_t i = 0; i < count; i++)
    manta__engine_start_role(MANTA__ROLE_AGENT, argv, &s[i]->sock, &s[i]->pid, &s[i]->why);
}

const struct manta__engine manta__engine_local = {
    .name = "local", .parse = parse, .start_many = start_many, .end = manta__engine_end};
