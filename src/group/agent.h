/* SPDX-License-Identifier: Apache-2.0
 *
 * group/agent.h - the supervisor of one driver on one host: its parts and what they share.
 *
 * The agent starts zygotes, has them fork workers, holds the shared segments, sees every death,
 * keeps the accounts of resources, and passes messages between driver and workers without looking
 * into them.
 * (1) It never waits: everything is an event of its loop. Only the threads that watch lives
 *     block.
 * (2) It does no file I/O but the workers' logs; checkpoints are written by a child, the writer.
 * (3) Behind a bridge (group/bridge.h) it has no run directory: logs and snapshots go over it.
 * (4) When its driver is gone it ends the workers at once, lets the writer finish the newest
 *     snapshot (at most AGENT_LAST_WRITE_S), and leaves.
 *
 * agent.c          the loop, the driver's messages, the end
 * agent_zygote.c   programs and their zygotes
 * agent_worker.c   workers: birth, messages, death
 * agent_attempt.c  attempts: who takes part, hangs
 * agent_watch.c    the watchers of lives
 * agent_heir.c     successors: a fresh process for every call of a train function
 * agent_room.c     room for a request: who gives way
 * agent_holders.c  who holds what others wait for
 * agent_snap.c     snapshots and the writer
 * agent_output.c   what workers print
 * agent_door.c     the named socket of `manta ps`, `kill`, …
 */
#ifndef MANTA_GROUP_AGENT_H
#define MANTA_GROUP_AGENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/buf.h"
#include "ckpt/queue.h"
#include "group/ctl.h"
#include "group/ledger.h"
#include "group/proto.h"
#include "group/ring.h"
#include "sys/proc.h"
#include "wire/conn.h"

#define AGENT_LAST_WRITE_S 30.0
#define AGENT_EXIT_S       5.0 /* for a worker's normal end */
#define AGENT_ZYGOTES      4
#define AGENT_WARM_S       300.0 /* for the warm-up of a zygote's successor */

struct agent;
struct group;
struct worker;

/* A connection on the loop. */
struct link {
  manta__conn *conn; /* NULL: none */
  uv_poll_t poll;
  bool closing;
  void (*on_msg)(struct link *l, struct manta__msg *m);
  void (*on_end)(
      struct link *l); /* the other end is gone; called once, the link is closed already */
  void *owner;
};

/* One process of a program. */
struct zygote_proc {
  struct zygote *zygote;
  pid_t pid; /* 0: not running */
  int lifeline;
  struct link *link;
};

struct zygote {
  uint64_t key; /* 0: unused */
  struct manta__exe exe;
  char **argv, **env;
  char *why; /* it cannot be started, and why; NULL: it can */
  int cwd_fd;
  struct zygote_proc now;  /* who forks */
  struct zygote_proc next; /* its successor, which warms up: says its pid when it is ready */
  struct zygote_proc old;  /* its predecessor, which was told to end */
  bool cold;               /* `now` may have a successor, and had none yet */
  uv_timer_t *limit;       /* for the warm-up of `next` */
  int64_t used_ns;         /* last use: the oldest makes room */
  bool warned;             /* of threads */
};

enum worker_state { WORKER_STARTING, WORKER_IDLE, WORKER_RUNNING, WORKER_GONE };

struct slot_dup {
  int fd;
  struct manta__slot_meta *meta;
  bool retire; /* handed out for loading: never FREE again */
  struct manta__snap_msg snap;
};

struct worker {
  struct worker *next;
  struct group *group;
  int64_t wid;
  pid_t pid;
  int pidfd, lifeline, ring_fd;
  enum worker_state state;
  int rank;  /* in the run, of this or the last attempt, or its predecessor's; -1: none yet */
  int place; /* … and among those on this host: its cell */
  uint32_t attempt;
  struct zygote *zygote;
  pid_t zygote_pid; /* who reports its end; another zygote may have taken its place */
  struct link *link;
  uv_poll_t *pidfd_poll;
  uv_timer_t
      *last_words; /* limit for the end of a worker that was told to, or whose status is late */
  struct output *output;
  struct manta__grant *grant;
  bool used;             /* a train function was or is in it */
  bool stays;            /* it waits inside manta_comm_rebuild for the next attempt of its run */
  bool awaits_go;        /* it has a job, and enters it when the used ones are gone */
  bool abandoned;        /* it does not end: what it holds is never given out again */
  uint64_t turn;         /* the group's, when it got its newest job */
  int64_t ending_ns;     /* since when it should be gone; 0: it should not */
  struct worker *before; /* whose share it takes over when that one is gone; NULL: none */
  bool watched;          /* a watcher waits for its life in this attempt */
  bool dying;            /* … and has seen its end; the kernel still frees its memory */
  bool exit_asked;
  char cause[160]; /* why we killed it, or "" */
  bool hung;
  struct slot_dup slot[MANTA__SLOTS];
  struct manta__snapq snapq;
};

struct group {
  struct group *next;
  struct agent *agent;
  uint32_t id;
  struct manta__ident run; /* run and attempt now */
  char *path;              /* run directory, "" before the first run */
  int rundir, logdir;      /* -1: no run */
  int64_t log_limit;
  bool show_all, live, lines_lost; /* live: the driver shows rows that change */
  int tty, tty_rank;               /* the driver's terminal and the rank that has it; -1: none */
  int keep_last, keep_best;
  bool score_min;
  struct shared_ctl *shared;  /* the control segment of the attempt, with its watchers */
  struct manta__ctl *ctl;     /* the same, mapped; NULL: none */
  int ctl_fd, heap_fd, world; /* heap: what the workers of the attempt share for collectives */
  bool keep;                  /* its workers serve several calls of a train function */
  uint64_t turn;              /* raised when an attempt begins, or is known to end */
  uv_timer_t *gone_limit;
  double step_timeout;
  uv_timer_t *health;
  int64_t health_warned_ns;
  struct worker *workers;
  struct link *writer;
  pid_t writer_pid;
  struct worker *writing; /* whose slot the writer has */
  int writing_slot;
  double *best; /* keep_best best scores given to the writer */
  int best_count;
  struct manta__msg settle; /* a request that waits for the writer to be idle; kind 0: none */
  bool disband;
  char *name;                /* of its trainer; NULL: not told yet */
  bool hold;                 /* its idle workers are not to be ended for another group */
  int64_t rest_ns;           /* since when its trainer is idle; 0: it is not */
  struct manta__msg waiting; /* a request that waits for room that others give up; kind 0: none */
  struct holders *holders; /* it waits for other agents to say what they hold; NULL: it does not */
  manta_value elsewhere;   /* the run's workers on other hosts, as the driver tells it; a list */
  int64_t weighed;         /* largest slot that was held against the memory there is */
  uint64_t saves;          /* that rank 0 has made in this attempt */
  struct fetch *fetches;   /* ranks that wait for one of them */
};

struct agent {
  uv_loop_t loop;
  struct link *driver;
  pid_t driver_pid;
  int driver_pidfd;
  uv_poll_t driver_poll;
  bool driver_lost;
  bool far;    /* the driver is on another host, behind a bridge: no run directory, no writer */
  int wake_fd; /* eventfd of the driver's I/O thread, handed to workers */
  char host[256];
  double cpus; /* that the host really has, whatever is declared */
  manta__ledger *ledger;
  bool gpus_listed; /* NVML takes 17 ms to look: not before somebody wants a GPU */
  struct zygote zygote[AGENT_ZYGOTES];
  struct group *groups;
  int64_t wids;
  uv_signal_t sigchld, sigterm;
  int sigterms;
  uv_async_t death; /* a watcher saw one */
  pthread_mutex_t death_lock;
  struct death {
    int64_t wid;
    uint32_t attempt;
    bool died; /* false: the worker released its life by itself */
  } deaths[MANTA__LEDGER_MAX_WORKERS];
  int death_count;
  struct door *door;
  uv_timer_t *room; /* requests that wait for room are tried again; NULL: not due */
  uint64_t ooms;    /* oom_kill count of our cgroup when last looked at */
};

/* agent.c */
int manta__agent_main(int conn, char *const argv[]);
struct link *agent_link(struct agent *a, int sock,
                        void (*on_msg)(struct link *, struct manta__msg *),
                        void (*on_end)(struct link *), void *owner, manta_error *err);
void agent_unlink(struct link *l); /* closes; no callback comes any more. NULL is fine */
/* Sends, and polls for writing while something is queued. A broken link is noticed by its poll. */
void agent_send(struct link *l, const struct manta__msg *m);
void agent_send_value(struct link *l, const struct manta__msg *m, manta_value *v); /* finishes v */
void agent_warn(struct agent *a, uint32_t group, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct group *agent_group(struct agent *a, uint32_t id, bool make);
bool agent_group_alive(const struct group *g); /* a worker lives, or a snapshot is to be written */
void agent_group_ended(struct group *g);       /* something of it ended: was it the last? */
void agent_maybe_leave(struct agent *a);
/* A timer that frees itself when stopped by agent_timer_stop; NULL without memory. */
uv_timer_t *agent_timer(struct agent *a, double first_s, double repeat_s, uv_timer_cb cb,
                        void *data);
void agent_timer_stop(uv_timer_t **t);

/* agent_zygote.c */
void agent_program(struct agent *a, struct manta__msg *m);
void agent_warm(struct agent *a, struct manta__msg *m); /* starts a zygote ahead of its use */
struct zygote *agent_zygote(struct agent *a, uint64_t key, manta_error *err); /* running, or NULL */
bool agent_zygote_exited(struct agent *a, pid_t pid, int status); /* true if it was one */
void agent_zygotes_end(struct agent *a);

/* agent_worker.c */
/* Has one forked: with a share of its own, or as the successor of `before`, whose share it gets. */
struct worker *agent_worker_start(struct group *g, struct zygote *z, struct manta__grant *grant,
                                  struct worker *before, manta_error *err);
struct worker *agent_worker_find(struct agent *a, int64_t wid);
struct worker *agent_worker_of_pid(struct agent *a, pid_t pid);
void agent_worker_forked(struct worker *w, pid_t pid, int pidfd, int error);
void agent_worker_exited(struct worker *w, int status); /* as waitpid gives it; -1: unknown */
void agent_worker_kill(struct worker *w, const char *cause);
void agent_worker_ask_exit(struct worker *w);
void agent_worker_give_up(struct worker *w); /* it does not end: the driver counts it as gone */
/* Passes a message on to those that are inside their function. */
void agent_worker_tell_all(struct group *g, const struct manta__msg *m);

/* agent_watch.c */
/* The segment outlives the attempt as long as a watcher waits in it: the agent waits for nobody. */
struct shared_ctl {
  struct manta__ctl *ctl;
  size_t bytes;
  _Atomic int refs;
};
void agent_watch_unref(struct shared_ctl *s); /* NULL is fine */
void agent_watch_begin(struct worker *w);
void agent_watch_deaths(uv_async_t *h);

/* agent_attempt.c */
void agent_attempt(struct group *g, struct manta__msg *m);
void agent_spawn(struct group *g, struct manta__msg *m);
void agent_probe(struct group *g, struct manta__msg *m);
void agent_attempt_abort(struct group *g, uint32_t cause);
/* The driver's word to end it, because of a rank on another host perhaps. */
void agent_attempt_end(struct group *g, struct manta__msg *m);
void agent_attempt_leave(struct group *g); /* its control segment is no longer needed */

/* agent_heir.c */
/* It takes part in nothing any more: a train function was in it, and its group does not keep it. */
bool agent_spent(const struct worker *w);
/* Forks successors of spent workers that have none, lowest ranks first, at most `count`; gives how
 * many. */
int agent_heirs_make(struct group *g, uint64_t key, int count, manta_error *err);
/* The share a worker has, or will have when its predecessor is gone. */
const struct manta__share *agent_heir_share(const struct worker *w);
/* Spent workers are asked to end, if they are not in their function any more. */
void agent_heirs_retire(struct group *g);
/* An attempt is to be formed: what took part in the one before does so no more. */
void agent_heirs_turn(struct group *g, const manta_value *v);
/* Whether what a worker that is gone held is kept for a successor that may be asked for yet. */
bool agent_heirs_keep_share(const struct worker *w);
/* Nobody succeeds those that are gone: what was kept is given back. */
void agent_heirs_release(struct group *g);
/* A worker's process is gone: its share and its free slots pass to its successor. */
void agent_heirs_inherit(struct worker *w);
/* Whether spent workers are still there. */
bool agent_heirs_awaited(const struct group *g);
/* It was killed, or is known to be dying: it is abandoned if it is not gone in time. */
void agent_heirs_expect_end(struct worker *w);
/* Lets those that wait enter their function, if nobody is awaited any more. */
void agent_heirs_admit(struct group *g);
void agent_renew(struct group *g, struct manta__msg *m);
/* Answers the group's ATTEMPT or SPAWN: it cannot be done. */
void agent_attempt_noroom(struct group *g, const manta_error *err);

/* agent_room.c */
void agent_room_rest(struct group *g, struct manta__msg *m);
/* Whether an idle trainer's workers, or some that are ending, would make room for the request. */
bool agent_room_can(const struct group *g, const struct manta__request *rq, int workers);
/* Ends the workers of the trainer that has been idle for longest, if that helps. */
bool agent_room_make(struct group *g, const struct manta__request *rq, int workers);
/* A request (ATTEMPT or SPAWN) has no room, and err says why: true if it was taken and is answered
 * later, when others have made room or whoever holds it is known. */
bool agent_room_wait(struct group *g, struct manta__msg *m, const struct manta__request *rq,
                     int workers, manta_error *err);
void agent_room_freed(struct agent *a);  /* a worker has given back what it held */
void agent_room_forget(struct group *g); /* a request that waits is answered: the group ends */

/* agent_holders.c */
/* What a group holds, as one line of text; "" if nothing. */
void agent_holders_own(const struct group *g, char *out, size_t size);
/* Asks the other agents of this user what they hold. True: agent_attempt_noroom will be called with
 * err and their answers, soon. False: there is none. */
bool agent_holders_ask(struct group *g, const manta_error *err);
void agent_holders_forget(struct group *g);

/* agent_snap.c */
/* Hands the slots of a worker that is gone to another, as far as they hold nothing. */
void agent_snap_inherit(struct worker *from, struct worker *to);
void agent_snap(struct worker *w, struct manta__msg *m);
void agent_snap_worker_gone(struct worker *w);
void agent_snap_bury(struct group *g); /* frees dead workers that nobody needs any more */
bool agent_snap_busy(const struct group *g);

/* agent_fetch.c */
/* A rank asks for rank 0's newest snapshot; rank 0 is on this host. */
void agent_fetch(struct group *g, const struct manta__msg *m);
/* The answer, from another host. */
void agent_fetched(struct group *g, const struct manta__msg *m);
/* Rank 0 has saved, or left: answers who can be answered. */
void agent_fetch_look(struct group *g);
void agent_fetch_reset(struct group *g);
/* The bridge has had it written. */
void agent_snap_written(struct group *g);
void agent_snap_retire(struct group *g, int64_t wid, int slot);
void agent_snap_driver_lost(struct group *g);
bool agent_writer_exited(struct agent *a, pid_t pid, int status);
void agent_settle(struct group *g, struct manta__msg *m);
void agent_snap_run_ended(struct group *g);

/* agent_output.c */
struct output *agent_output_start(struct worker *w, int out, int err_fd, manta_error *err);
/* Reads what is there; its last line needs no newline. */
void agent_output_flush(struct output *o);
/* Before a job: gives the driver's terminal to the rank that is to have it. */
void agent_output_terminal(struct worker *w);
/* The last lines it printed; borrowed. */
const char *agent_output_last(struct output *o);
void agent_output_end(struct output *o);
void agent_output_close_files(struct group *g);

/* agent_door.c */
struct door *agent_door_open(struct agent *a, manta_error *err);
void agent_door_close(struct door *d);

#endif
