/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/engine.h - how agents get onto hosts: a table for each way.
 *
 *   local   the command `manta`, on this host
 *   exec    a command whose standard input and output are the control channel, for example
 *           `ssh host manta agent --stdio`; a bridge on this host runs it (agent/bridge.h)
 *
 * Whatever the way, the driver gets a child process and a socket on which an agent speaks, with
 * descriptors. Which way it is, only this room knows.
 */
#ifndef MANTA_ENGINE_ENGINE_H
#define MANTA_ENGINE_ENGINE_H

#include <stdbool.h>
#include <sys/types.h>

#include <manta/status.h>

/* Which of its roles a child of the command plays. */
#define MANTA__ROLE_ENV "MANTA_ROLE"

/* A host as the user named it. Borrowed. */
struct manta__engine_host {
  const char *name;
  const char *command; /* NULL: this host */
  double timeout_s;    /* silence for longer: it is lost */
};

struct manta__engine {
  const char *name;
  /* Starts an agent there. *sock (the caller's) speaks with it; *pid is a child that ends when the
   * agent does, or when the socket is closed. An agent that cannot be is told on the socket, or by
   * its end: this only starts. */
  manta_status (*start)(const struct manta__engine_host *h, int *sock, pid_t *pid,
                        manta_error *err);
  /* Waits for the child, whose socket was closed, and gives its status as waitpid does, or -1.
   * at_once: it is not asked, but killed. */
  int (*end)(pid_t pid, bool at_once);
};

extern const struct manta__engine manta__engine_local, manta__engine_exec;

/* The one for this host. */
const struct manta__engine *manta__engine_for(const struct manta__engine_host *h);

/* Finds the command manta, which is the agent's binary. manta_free it; NULL: it is not there. */
char *manta__engine_command(void);
/* Starts it in a role (agent, bridge), as a child that speaks on *sock. */
manta_status manta__engine_start_role(const char *role, char *const argv[], int *sock, pid_t *pid,
                                      manta_error *err);
int manta__engine_end(pid_t pid, bool at_once);

#endif
