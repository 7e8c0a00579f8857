/* SPDX-License-Identifier: Apache-2.0
 *
 * group/ctl.h - what the agent and the workers of one attempt share: lives, the abort word,
 * heartbeats.
 *
 * One sealed memfd per attempt, made by the agent. After an abort it is never used again.
 * (1) A worker holds its cell's `life` mutex from the start of its job to the end. The agent
 *     waits for it; the kernel hands it over when the worker dies.
 * (2) The abort word goes from 0 to a cause once and stays. Everything that waits watches it.
 * (3) The segment is one host's: its cells are those of the ranks there, by local rank. The abort
 *     word names a rank of the whole run.
 */
#ifndef MANTA_GROUP_CTL_H
#define MANTA_GROUP_CTL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

#include "sys/bell.h"

#define MANTA__CTL_MAGIC 0x6c74436e616dull

/* The abort word: 0, one of these, or MANTA__ABORT_RANK + the rank that was lost. */
enum { MANTA__ABORT_NONE = 0, MANTA__ABORT_STOP = 1, MANTA__ABORT_RANK = 16 };

struct manta__cell {
  _Alignas(128) pthread_mutex_t life;
  _Atomic int64_t beat_ns;  /* monotonic time of the last sign of life */
  _Atomic int64_t step_ns;  /* what a step typically takes, by a running median */
  _Atomic uint32_t stalled; /* waits in back-pressure: its clock stands still */
  /* Rung by peers that went on, and at the end of the attempt. A line apart: they look at it in
   * every call, and in every call we write what is above. */
  _Alignas(64) struct manta__bell bell;
  _Atomic uint32_t running; /* inside the train function */
};

struct manta__ctl {
  uint64_t magic;
  uint64_t run;
  uint32_t attempt;
  uint32_t cells;                      /* one for each rank on this host */
  char host[64];                       /* where they are */
  _Alignas(64) _Atomic uint32_t abort; /* futex */
  _Atomic uint32_t notice;             /* asked to stop (SIGTERM) */
  _Atomic uint64_t saves;              /* calls of save that rank 0 has made, if it is here */
  _Atomic uint32_t told;               /* not 0: `why` is constant, and about this cause */
  char why[256];
  struct manta__cell cell[];
};

manta_status manta__ctl_create(int *fd_out, uint64_t run, uint32_t attempt, int cells,
                               const char *host, manta_error *err);
/* Maps it and checks it; borrows the descriptor. */
manta_status manta__ctl_map(struct manta__ctl **out, size_t *bytes_out, int fd, manta_error *err);
/* Says where and how the rank was lost that the abort word names, or will name. Once; by the loop
 * of the agent only. host NULL: on this one. */
void manta__ctl_explain(struct manta__ctl *c, uint32_t cause, const char *host, const char *how);
/* Raises the abort word if it is still 0, and wakes all who wait on it. */
void manta__ctl_abort(struct manta__ctl *c, uint32_t cause);
/* MANTA_OK, or the error a waiting or calling worker must return, with its message. */
manta_status manta__ctl_check(const struct manta__ctl *c, manta_error *err);

#endif
