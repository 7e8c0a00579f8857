/* SPDX-License-Identifier: Apache-2.0
 *
 * group/worker.h - one rank's process: takes jobs from its agent until it is told to end.
 *
 * The process has no thread of manta's. Between jobs it waits on its control socket; inside a job
 * the abort word and the notice reach it through the control segment.
 * (1) A job that is to wait begins when the agent says that the predecessors are gone.
 * (2) A train function is the last that a process does, unless its trainer keeps its workers. One
 *     that an abort has ended is left without finalisation, once its output and its end are told.
 */
#ifndef MANTA_GROUP_WORKER_H
#define MANTA_GROUP_WORKER_H

#include <pthread.h>

#include <manta/embed.h>
#include <manta/value.h>

#include "ckpt/origin.h"
#include "group/ctl.h"
#include "group/proto.h"
#include "group/ring.h"
#include "wire/conn.h"

/* The descriptors a worker is born with, in the order of the FORK message and of exec. */
enum {
  MANTA__W_CONN,
  MANTA__W_LIFELINE,
  MANTA__W_STDOUT,
  MANTA__W_STDERR,
  MANTA__W_RING,
  MANTA__W_WAKE, /* eventfd of the driver's I/O thread */
  MANTA__W_FDS
};

struct manta__worker {
  manta__conn *conn;
  int lifeline, wake;
  struct manta__ring ring;
  uint64_t seq;            /* of rows and snapshots: the session's, with the ring */
  _Atomic uint64_t said;   /* messages of other kinds */
  pthread_mutex_t speech;  /* held while something is sent: any thread may save */
  pthread_mutex_t hearing; /* held by whoever waits for an answer, until it has been read */
  bool dead;               /* we are a forked child of the worker: nothing of this is ours */
};

/* Sends to the agent and waits until it is out. Any thread. */
manta_status manta__worker_send(struct manta__worker *w, const struct manta__msg *m,
                                manta_error *err);

/* One job, as the agent hands it out. */
struct manta__job {
  struct manta__worker *worker;
  struct manta__ctl *ctl;
  size_t ctl_bytes;
  bool over;                /* the agent has been told of its end */
  bool spent;               /* the process ends with it, whatever `keep` says */
  _Atomic uint32_t *told;   /* in a fork of the worker, and there: set when its end is told */
  struct manta__cell *cell; /* ours: by local rank, as the segment is one host's */
  struct manta__ident id;   /* run, attempt, rank */
  int world, local_rank, local_world, node_rank;
  int hosts;                   /* that have ranks of this attempt */
  const char **host_name;      /* by host */
  const char **host_addr;      /* … where its control channel runs; "": not known */
  int *host_of;                /* host of each rank; ours is node_rank */
  int heap_fd;                 /* shared by the workers of the attempt on this host */
  struct manta__origin origin; /* a checkpoint to begin from, or nothing */
  bool keep;                   /* the process serves further calls of a train function */
  manta_value head, spec;      /* the agent's words, and the driver's own */
  void *map;                   /* what the driver's own was read from … */
  size_t map_bytes;            /* … */
  const void *payload;         /* … and the payload in it, or NULL */
  size_t payload_bytes;
  int result_fd; /* the result, if the function gave it so, or -1 */
  char result_kind[MANTA__RESULT_KIND];
  uint64_t exchanges, agreements, fetches, reads, recalls; /* that were made */
};

/* What the ranks of an attempt gave to each other, by rank. */
struct manta__blobs {
  int count;
  const uint8_t **data;
  size_t *bytes;
};
void manta__blobs_fini(struct manta__blobs *b); /* {0} is fine */

/* The two ways in which the ranks of an attempt talk to each other over the control connection: for
 * addresses and the like, not for data. Both belong to the thread that runs the train function, and
 * all ranks make the same calls in the same order. A call that failed with MANTA_ETIMEDOUT may be
 * made again.
 *
 * Gives `bytes` (at most MANTA__GIVE_MAX) to all ranks, and takes what they give: *all is to be
 * finished by the caller. Ended by an abort: MANTA_EPEERLOST, MANTA_EABORTED. */
manta_status manta__worker_exchange(struct manta__job *job, const void *mine, size_t bytes,
                                    struct manta__blobs *all, int64_t by, manta_error *err);
/* *value becomes the least of all ranks that are neither dead nor out of their function, the same
 * on each of them. An abort does not end it: those who survive it can agree how to go on. */
manta_status manta__worker_agree(struct manta__job *job, int64_t *value, int64_t by,
                                 manta_error *err);

/* Rank 0's newest snapshot of this attempt, when it has called save at least so often: *fd is a
 * slot that is not written any more (close it), or -1 if there is none. Waits for it, and is ended
 * by an abort, or by MANTA_ESTATE when rank 0 leaves its function before. Any thread, one at a
 * time. */
manta_status manta__worker_fetch(struct manta__job *job, uint64_t least, int *fd, manta_error *err);

/* A socket to the reader of this host, which is started if it is not there: data/share/share.h says
 * what is said on it. Any thread. */
manta_status manta__worker_reader(struct manta__job *job, int *sock, manta_error *err);

/* Random states, for the checkpoint of an iteration: gives this rank's, without a wait; takes those
 * of this rank, or else of rank 0 (*owner; -1: there are none). manta_free them. Any thread. */
manta_status manta__worker_put_random(struct manta__job *job, int64_t iteration, const void *bytes,
                                      size_t len, manta_error *err);
manta_status manta__worker_recall(struct manta__job *job, int64_t iteration, int *owner,
                                  void **bytes, size_t *len, manta_error *err);

/* Says that the job has ended well, without a result, and ends the process at once. From any
 * thread; the job's own goes on until then. */
_Noreturn void manta__worker_leave(struct manta__job *job);
/* Ends the job with "peer lost", waits for the next attempt of the run and takes part in it: *job
 * is then that one, with the spec it had. MANTA_ESTATE: no peer is lost. MANTA_EABORTED: another
 * job came, or the end; the function is to return. On the thread that runs it. */
manta_status manta__worker_rejoin(struct manta__job *job, manta_error *err);

/* What a job means is somebody else's business, and so is what an interpreter does at a fork. */
struct manta__job_ops {
  /* Runs it. result is {0}. */
  manta_status (*run)(struct manta__job *job, manta_value *result, manta_error *err);
  /* A snapshot slot of the predecessor, which is gone. Takes fd. */
  void (*take_slot)(int index, int fd);
  /* The process is about to end in good order. */
  void (*end)(void);
  /* A process of the reader's that calls functions: serves it until it is gone. Takes the
   * descriptors of MANTA__M_CALLER. */
  void (*serve_reader)(const int *fds, const manta_callers *functions);
  manta_fork_hooks fork;
};

/* Serves jobs until the worker is told to end. fds: MANTA__W_FDS descriptors, taken. */
void manta__worker_main(const int *fds, const struct manta__job_ops *ops);

#endif
