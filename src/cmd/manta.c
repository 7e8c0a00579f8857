/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/manta.c - the command, and the binary of agent and writer: which it is, its environment says.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/agent.h"
#include "group/proto.h"
#include "group/writer.h"

static int play_role(const char *role, char **argv)
{
  bool agent = !strcmp(role, "agent"), writer = !strcmp(role, "writer");
  unsetenv(MANTA__ROLE_ENV);
  fcntl(MANTA__ROLE_CONN_FD, F_SETFD, FD_CLOEXEC);
  if (agent)
    return manta__agent_main(MANTA__ROLE_CONN_FD, argv);
  fcntl(MANTA__ROLE_LIFELINE_FD, F_SETFD, FD_CLOEXEC);
  if (writer)
    return manta__writer_main(MANTA__ROLE_CONN_FD, MANTA__ROLE_LIFELINE_FD, argv);
  fprintf(stderr, "manta: unknown role in %s\n", MANTA__ROLE_ENV);
  return 64;
}

int main(int argc, char **argv)
{
  const char *role = getenv(MANTA__ROLE_ENV);
  if (role)
    return play_role(role, argv);
  fprintf(stderr, "usage: manta COMMAND\n");
  return 64;
}
