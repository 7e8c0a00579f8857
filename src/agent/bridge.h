/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/bridge.h - an agent on another host: a bridge of two halves over a plain stream of bytes.
 *
 *   driver ══ near half ── standard input and output of a command ── far half ══ agent ══ workers
 *
 * To the driver the near half looks like an agent on its own host, to the agent the far half looks
 * like its driver. What they pass on they do not look into, but for what a descriptor stood for:
 *
 *   rings           the far half reads the worker's, the near half fills one of its own with the
 *                   same records at the same positions; the worker's is given back when the driver
 *                   has read its mirror, so that back-pressure is the same
 *   run directory   stays with the near half, which writes the logs of the far ranks
 *   snapshots       come by value, one at a time, and are then written by the ordinary writer
 *   checkpoints     to begin from go by value, once per host
 *   job, blobs      go by value
 *
 * (1) Both halves beat. Silence for longer than the host's time-out, the end of the stream and the
 *     end of the command mean that the other side is lost: the near half says why and ends; the far
 *     half ends, and with it agent and workers.
 * (2) When the driver is lost, the near half tells the far one, takes the snapshot that is on its
 *     way, has the rows saved, and ends (at most BRIDGE_LAST_S later).
 * (3) What the command prints on its standard error is shown with the host's name in front.
 *
 * bridge_near.c   the near half: the command, the driver's messages, the end
 * bridge_run.c    its runs: mirrors of rings, logs, snapshots and their writer
 * bridge_far.c    the far half
 */
#ifndef MANTA_AGENT_BRIDGE_H
#define MANTA_AGENT_BRIDGE_H

#include "agent/logfile.h"
#include "agent/writer.h"
#include "group/proto.h"
#include "group/ring.h"
#include "wire/stream.h"

#define BRIDGE_LAST_S  30.0
#define BRIDGE_BATCH_S 0.01       /* rings are looked at so often while they are not empty */
#define BRIDGE_PAUSE   (8u << 20) /* bytes that one side has not taken: the other is not read */

/* conn: to the driver. argv: name, host, command, time-out in seconds. */
int manta__bridge_near_main(int conn, char *const argv[]);
/* Standard input and output: to the near half. */
int manta__bridge_far_main(void);

/* Seconds between two beats. */
double manta__bridge_beat(double timeout_s);

/* --- the near half --- */

struct manta__mirror { /* the ring of a far worker, on this host */
  struct manta__mirror *next;
  int64_t wid;
  struct manta__ring ring;
  uint64_t told; /* the far half knows that the driver has read up to there */
  bool gone;     /* its worker is; a snapshot of it may still come */
};

struct manta__rank_log {
  struct manta__rank_log *next;
  struct manta__logfile file;
};

struct manta__bridge_run { /* of one trainer */
  struct manta__bridge_run *next;
  struct manta__near *near;
  uint32_t group;
  struct manta__ident id; /* of the newest attempt */
  struct manta__writer_job job;
  int logdir;
  int64_t log_limit;
  bool show_all, log_failed, disband;
  struct manta__mirror *mirrors;
  struct manta__rank_log *logs;
  manta__conn *writer; /* NULL: none */
  pid_t writer_pid;
  bool writing;
  struct manta__ident ckpt; /* the checkpoint that the far half has; run 0: none */
};

struct manta__near {
  const char *name, *command;
  double timeout_s;
  manta__conn *driver; /* NULL: it is gone */
  int driver_pidfd, wake_fd;
  manta__stream *far; /* NULL: it is gone */
  pid_t command_pid;
  int command_pidfd, err_fd;
  char words[1024]; /* the end of what the command said on its standard error */
  size_t words_len;
  char line[1024]; /* what it has begun to say */
  size_t line_len;
  bool spoke; /* the agent there answered */
  int64_t heard_ns, beat_ns, leave_by;
  manta_error why; /* what the far half said about its end */
  struct manta__bridge_run *runs;
  pid_t ending[8]; /* writers that were let go: they finish what they have begun */
};

/* bridge_near.c */
void manta__near_to_driver(struct manta__near *n, const struct manta__msg *m);
void manta__near_to_far(struct manta__near *n, const struct manta__msg *m, const manta_value *v);
void manta__near_beat(void *n); /* if it is time */

/* bridge_run.c: the driver's messages … */
void manta__bridge_run_begin(struct manta__near *n, struct manta__msg *m);
void manta__bridge_run_attempt(struct manta__near *n, struct manta__msg *m);
void manta__bridge_run_disband(struct manta__near *n, uint32_t group);
/* … and those of the far half that are not to be passed on as they are. A failure: it does not keep
 * to the protocol. */
bool manta__bridge_run_takes(uint16_t kind);
manta_status manta__bridge_run_take(struct manta__near *n, struct manta__msg *m, manta_error *err);
/* Tells the far half what the driver has read; true while there is something that it has not. */
bool manta__bridge_run_tails(struct manta__near *n);
void manta__bridge_run_writers(struct manta__near *n);
void manta__bridge_run_driver_lost(struct manta__near *n);
void manta__bridge_run_free(struct manta__near *n);

#endif
