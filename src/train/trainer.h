/* SPDX-License-Identifier: Apache-2.0
 *
 * train/trainer.h - a trainer inside the driver: what was asked for, its hosts, its workers.
 *
 * (1) The driver's lock guards it. What create sets stays as it is, but for workers, min_workers,
 *     keep and hold.
 * (2) It has one run at a time. While that run's `renew` calls the workers, the run is parked and
 *     each call is the trainer's run.
 * (3) Workers outlive attempts and runs: a peer is known from its agent's WORKER to its GONE, or
 *     until the agent is lost.
 *
 *   trainer.c   create, start, shut down, what can be asked of it
 *   hosts.c     its hosts, from its config or MANTA_HOSTS
 *   print.c     its table of workers
 *   muster.h    how many workers each of several hosts has
 *   form.h      attempts; run.h: the run
 */
#ifndef MANTA_TRAIN_TRAINER_H
#define MANTA_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/trainer.h>

#include "group/ring.h"
#include "train/driver.h"
#include "train/muster.h"
#include "train/program.h"

struct manta__trainer_host { /* a host of a trainer */
  struct manta__link *link;
  char *address;    /* as given, or NULL */
  int slots;        /* workers it may have; 0: as many as it has CPUs, and more if need be */
  bool announced;   /* it knows of the run */
  int first, count; /* its ranks in the newest attempt */
  int planned;      /* its workers when the run began, by which it divides its CPUs; 0: none yet */
  int share, limit; /* muster: workers it is to have; more than that it has not */
  int asked;        /* … that it was asked for; 0: none yet */
  bool answered;
  int64_t *wids; /* … the workers it has ready, `ready` of them */
  int ready;
};

struct manta__peer { /* a worker process */
  struct manta__peer *next;
  struct manta__link *link;
  int64_t wid;
  int64_t before; /* whose place it takes, or -1 */
  int seat;       /* … and that one's rank, or -1 */
  pid_t pid;
  struct manta__ring ring;
  bool damaged; /* its ring was scribbled over: nothing more is read from it */
  bool held;    /* its next row is too far ahead of the others' */
  bool done;    /* its function has returned, well; told when its last row was read */
};

struct manta__newest { /* the newest snapshot in memory */
  int fd;              /* -1: none … */
  bool disowned;       /* … because its report never came; the writer may still have it */
  int64_t wid;
  int slot;
  int64_t iteration;
  int64_t capacity;  /* bytes of its slot, of which there are three */
  uint64_t ring_pos; /* of its worker's ring: the rows before it belong to the snapshot */
};

struct manta_trainer {
  manta_trainer *next;
  uint32_t group;
  int workers, min_workers, max_retries;
  int threads;        /* that programs are loaded with; 0: as the environment says */
  int worker_threads; /* of a worker; 0: as the environment says; -1: its part of the CPUs */
  bool elastic; /* the user gave a minimum: fewer than asked for is no error, even at the start */
  bool retry_errors, pin, show_all, quiet, strict_cpus;
  bool keep; /* its workers serve several calls of a train function */
  bool hold; /* its idle workers are not to be ended for another trainer's sake */
  double step_timeout, grace, cpus, gpus;
  int64_t log_limit;
  char *name, *logdir, *storage; /* storage: a URI of which logdir is the staging directory */
  struct manta__program program;
  manta_value config, resources;
  manta_callbacks *callbacks;
  size_t callback_count;
  manta_value sinks; /* a list, as in sinks.json; or nil */
  struct manta__peer *peers;
  struct manta__trainer_host *host; /* the hosts, in the order of their ranks */
  int hosts;
  struct manta__link *door; /* on this host, so that `manta ps` finds the run; NULL: host 0 is */
  struct manta__muster muster;
  bool spawning; /* a SPAWN waits for its answer */
  manta_error spawn_error;
  bool told_open; /* in this run, that its network is to be trusted */
  manta_run *run; /* the current one, or NULL */
  manta_run *parked;
  char *run_dir; /* of the newest */
  bool score_min;
  int notice; /* set by manta_trainer_notice, from a signal handler perhaps */
  struct manta__newest newest;
  int world;     /* of the newest attempt */
  int64_t *wids; /* … its workers by rank */
  int wid_places;
};

void manta__peer_free(struct manta__peer *p);

/* The hosts of a trainer: the config's, those of MANTA_HOSTS, or this one. With the lock held. */
manta_status manta__hostlist_take(manta_trainer *t, const manta_trainer_config *c,
                                  manta_error *err);
void manta__hostlist_drop(manta_trainer *t);

#endif
