/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/ask.h - talking to the agents of this user through their named sockets.
 */
#ifndef MANTA_CMD_ASK_H
#define MANTA_CMD_ASK_H

#include <stdbool.h>
#include <sys/types.h>

#include <manta/value.h>

/* What every agent answers to "ps": a list of {agent, driver, runs: [{path, attempt, world,
 * workers: [{rank, pid, state}, …]}, …]}; driver is -1 once it is gone, and 0 if it is on another
 * host; a worker on another host has the name of that in `host`. Sockets that nobody listens on any
 * more are removed; an agent that does not answer in time is passed over, with a warning unless
 * `quiet`. */
manta_status manta__ask_ps(manta_value *out, bool quiet, manta_error *err);
/* The same of one agent: an empty list if it is gone. */
manta_status manta__ask_agent(manta_value *out, pid_t agent, manta_error *err);

/* Passes "kill", "resize" (to n) or "notice" on to the driver of the run at `path`, which is
 * spelled as ps spells it. MANTA_ENOENT if the agent does not know it. */
manta_status manta__ask_run(pid_t agent, const char *what, const char *path, int64_t n,
                            manta_error *err);

/* A run in the answers of manta__ask_ps; all borrowed from them. */
struct manta__live {
  pid_t agent, driver; /* driver -1: it is gone */
  const char *path;
  const manta_value *run;
};
/* Steps through the runs of all agents: *at is {0} at first. False at the end. */
struct manta__live_at {
  size_t agent, run;
};
bool manta__live_next(const manta_value *ps, struct manta__live_at *at, struct manta__live *out);
/* The run of this directory, however its path is spelled; of several agents the one whose driver is
 * on this host. */
bool manta__live_find(const manta_value *ps, const char *path, struct manta__live *out);

/* Is `pid` that process, or a descendant of it? */
bool manta__is_below(pid_t pid, pid_t ancestor);

#endif
