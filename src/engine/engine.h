/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/engine.h - how agents get onto hosts: a table for each way, and the list of them.
 *
 *   local   the command `manta`, on this host
 *   exec    a command whose standard input and output are the control channel, for example
 *           `ssh host manta agent --stdio`; a bridge on this host runs it (agent/bridge.h)
 *
 * (1) The user's text says how a host is reached: ENGINE:REST, where REST is for that engine alone
 *     to understand. No text is local; a text that begins with no engine is a command, for exec.
 * (2) Whatever the engine, the driver gets a child process and a socket for each host. On the
 *     socket an agent speaks, with descriptors. What an engine needs besides (one command that
 *     starts the agents of many hosts) hangs on these children.
 * (3) Outside of this room a host is known by its description, and an engine by its table: which
 *     engines there are, only engine.c knows.
 */
#ifndef MANTA_ENGINE_ENGINE_H
#define MANTA_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <manta/status.h>

#include "engine/role.h"

struct manta__engine;
struct manta__host_list;

/* A host, and the way to it. {0} is none; strings are its own. */
struct manta__engine_host {
  const struct manta__engine *engine;
  char *name;       /* as the user named it; "": what the host calls itself */
  char *target;     /* what the engine's parse made of the text */
  double timeout_s; /* silence for longer: it is lost */
};

/* An agent to be started, and what came of it. */
struct manta__engine_start {
  const struct manta__engine_host *host; /* borrowed */
  int sock;                              /* the caller's from then on */
  pid_t pid;       /* a child that ends when the agent does, or when the socket is closed */
  manta_error why; /* status < 0: it was not started, and there is neither socket nor child */
};

struct manta__engine {
  const char *name; /* lower-case letters, digits and -: what stands before the colon */
  /* Its agents are on other hosts, behind bridges: they beat, silence is a loss, they know the
   * program by what is in its file, and leave when no trainer uses them. Otherwise they are on the
   * driver's own host, of which there is one. */
  bool remote;
  /* Fills h->target from the user's text; may change h->name. A failure is the user's mistake, and
   * the message says which. */
  manta_status (*parse)(struct manta__engine_host *h, const char *text, manta_error *err);
  /* Optional: adds the hosts that are there without being named (those of an allocation), if there
   * are any. */
  manta_status (*discover)(struct manta__host_list *out, manta_error *err);
  /* Starts an agent on each of these hosts of its own, and fills in what came of it; some may fail.
   * It only starts: an agent that cannot be is told on the socket, or by its end. */
  void (*start_many)(struct manta__engine_start *const *s, size_t count);
  /* Waits for the child, whose socket was closed, and gives its status as waitpid does, or -1.
   * at_once: it is not asked, but killed. */
  int (*end)(pid_t pid, bool at_once);
};

extern const struct manta__engine manta__engine_local, manta__engine_exec;

/* --- engine.c: which there are --- */

#define MANTA__MAX_ENGINES 16

/* Adds one that is not part of this library. Its table stays where it is for good. Before the first
 * trainer. MANTA_EINVAL: the name is taken or no name; MANTA_ETOOBIG: there are too many. */
manta_status manta__engine_add(const struct manta__engine *e, manta_error *err);
/* The one of this name, or NULL. */
const struct manta__engine *manta__engine_find(const char *name);

/* Describes the host that is reached by `text` (1), NULL: this one. MANTA_EINVAL lists the engines
 * if there is none of that name. */
manta_status manta__engine_describe(struct manta__engine_host *out, const char *name,
                                    const char *text, manta_error *err);
/* This host, as nobody has named it. For good. */
const struct manta__engine_host *manta__engine_here(void);
manta_status manta__engine_host_copy(struct manta__engine_host *out,
                                     const struct manta__engine_host *from);
void manta__engine_host_fini(struct manta__engine_host *h);
/* Whether the same agent would serve both. */
bool manta__engine_same_host(const struct manta__engine_host *a,
                             const struct manta__engine_host *b);

/* Asks the engines in turn which hosts there are; the first that knows any is believed. */
manta_status manta__engine_discover(struct manta__host_list *out, manta_error *err);
/* Starts agents on hosts of whatever engines, each of which is called once. The pointers may come
 * out in another order. */
void manta__engine_start_many(struct manta__engine_start **s, size_t count);

/* --- command.c: what engines have in common --- */

/* Finds the command manta, which is the agent's binary. manta_free it; NULL: it is not there. */
char *manta__engine_command(void);
/* Starts it in a role, as a child that speaks on *sock. */
manta_status manta__engine_start_role(enum manta__role role, char *const argv[], int *sock,
                                      pid_t *pid, manta_error *err);
/* The same with these descriptors, from 3 on, and no socket of its own. */
manta_status manta__engine_spawn_role(enum manta__role role, char *const argv[], const int *fds,
                                      int count, pid_t *pid, manta_error *err);
/* As `end` of the table, for a child that is the engine's own. */
int manta__engine_end(pid_t pid, bool at_once);

#endif
