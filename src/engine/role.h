/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/role.h - the roles in which manta starts processes of its own; MANTA_ROLE says which.
 *
 * The command plays those of a host, a program that calls manta_init or manta_serve those that need
 * its functions. A new role is a row here, and a function in the table of whoever plays it
 * (api/init.c, cmd/manta.c).
 */
#ifndef MANTA_ENGINE_ROLE_H
#define MANTA_ENGINE_ROLE_H

#define MANTA__ROLE_ENV "MANTA_ROLE"

/*      role    name     descriptors that it is handed, from 3 on */
#define MANTA__ROLE_MAP(X)                                                                         \
  X(AGENT, "agent", 1)       /* the command: supervises the workers of a host */                   \
  X(BRIDGE, "bridge", 1)     /* the command: stands for the agent of another host */               \
  X(WRITER, "writer", 2)     /* the command: makes snapshots durable */                            \
  X(READER, "reader", 2)     /* the command: parses data for the workers of a host */              \
  X(SINK, "sink", 2)         /* the command: takes the rows of a run to files and servers */       \
  X(UPLOADER, "uploader", 1) /* the command: sends what a run stores to where it is kept */        \
  X(ZYGOTE, "zygote", 2)     /* the program: workers are forked from it */                         \
  X(WORKER, "worker", 6)     /* the program: one rank, where it could not be forked */             \
  X(CALLER, "caller", 3)     /* the program: functions of the reader, likewise */

enum manta__role {
#define MANTA__ROLE_ENUM(role, name, fds) MANTA__ROLE_##role,
  MANTA__ROLE_MAP(MANTA__ROLE_ENUM)
#undef MANTA__ROLE_ENUM
      MANTA__ROLE_COUNT /* none */
};

enum {
#define MANTA__ROLE_FDS_ENUM(role, name, fds) MANTA__ROLE_##role##_FDS = (fds),
  MANTA__ROLE_MAP(MANTA__ROLE_FDS_ENUM)
#undef MANTA__ROLE_FDS_ENUM
};

/* What the environment of a process in this role has: "MANTA_ROLE=agent". */
const char *manta__role_env(enum manta__role r);
/* Our environment with that added, for exec: a list of its own, to be freed; the strings are not
 * copied. NULL: no memory. */
char **manta__role_environment(enum manta__role r);
/* The role of this name; MANTA__ROLE_COUNT: there is none. */
enum manta__role manta__role_named(const char *name);
/* This process is in the role now: neither the name nor the descriptors reach its children. */
void manta__role_enter(enum manta__role r);

#endif
