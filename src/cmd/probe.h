/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/probe.h - small experiments: does this kernel, in this container, do what manta builds on?
 *
 * Each takes a few milliseconds, at most two seconds where something is broken, and leaves no
 * process and no descriptor behind. The calling process must have one thread.
 */
#ifndef MANTA_CMD_PROBE_H
#define MANTA_CMD_PROBE_H

#include <stdbool.h>

struct manta__probe {
  bool works;
  double ms;     /* how long what was waited for took, where something was */
  char why[160]; /* why it does not work */
};

/* Shared memory whose size is sealed. */
void manta__probe_memfd(struct manta__probe *p);
/* The time from a SIGKILL to the notice by the robust mutex that the victim held. */
void manta__probe_robust(struct manta__probe *p);
/* The exit of a child, seen on its pidfd. */
void manta__probe_pidfd(struct manta__probe *p);
/* A wake-up from one process to another. */
void manta__probe_futex(struct manta__probe *p);
/* The time from a closed lifeline to the death of who hung on it. */
void manta__probe_lifeline(struct manta__probe *p);
/* An orphan comes to its grandparent. */
void manta__probe_subreaper(struct manta__probe *p);

#endif
