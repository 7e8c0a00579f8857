/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/agent.h - the supervisor of one driver on one host: its parts and what they share.
 *
 * The agent starts zygotes, has them fork workers, holds the shared segments, sees every death,
 * keeps the accounts of resources, and passes messages between driver and workers without looking
 * into them.
 * (1) It never waits: everything is an event of its loop. Only the threads that watch lives
 *     block.
 * (2) It does no file I/O but the workers' logs; checkpoints are written by a child, the writer.
 * (3) Behind a bridge (agent/bridge.h) it has no run directory: logs and snapshots go over it.
 * (4) When its driver is gone it ends the workers at once, lets the writer finish the newest
 *     snapshot (at most AGENT_LAST_WRITE_S), and leaves.
 *
 * agent.c     the beginning, trainers' groups, signals, the end
 * loop.c      connections and timers
 * driver.c    the driver's messages
 * zygote.c    programs and their zygotes
 * worker.c    workers: birth, messages, death
 * attempt.c   attempts: who takes part, hangs
 * watch.c     the watchers of lives
 * heir.c      successors: a fresh process for every call of a train function
 * room.c      room for a request: who gives way
 * holders.c   who holds what others wait for
 * snap.c      snapshots and the writer
 * fetch.c     rank 0's newest snapshot, for ranks that ask
 * usage.c     what workers use
 * output.c    what workers print; lines.h: as a terminal would show it, logfile.h: in a file
 * door.c      the named socket of `manta ps`, `kill`, …
 * orphans.h   what workers have started themselves
 * reads.c     the reader of a run, for workers that ask
 * writer.h    the process that writes checkpoints
 * reader.h    the process that parses data
 * bridge.h    an agent on another host
 */
#ifndef MANTA_AGENT_AGENT_H
#define MANTA_AGENT_AGENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/buf.h"
#include "ckpt/queue.h"
#include "ckpt/retain.h"
#include "group/ctl.h"
#include "group/proto.h"
#include "group/ring.h"
#include "res/ledger.h"
#include "sys/proc.h"
#include "wire/conn.h"

#define AGENT_LAST_WRITE_S 30.0
#define AGENT_EXIT_S       5.0 /* for a worker's normal end */
#define AGENT_ZYGOTES      4
#define AGENT_WARM_S       300.0 /* for the warm-up of a zygote's successor */

struct manta__agent;
struct manta__agent_group;
struct manta__agent_worker;

/* A connection on the loop. */
struct manta__loop_conn {
  manta__conn *conn; /* NULL: none */
  uv_poll_t poll;
  int events; /* that it waits for */
  bool closing;
  void (*on_msg)(struct manta__loop_conn *l, struct manta__msg *m);
  void (*on_end)(struct manta__loop_conn
                     *l); /* the other end is gone; called once, the link is closed already */
  void *owner;
};

/* One process of a program. */
struct manta__zygote_proc {
  struct manta__agent_zygote *zygote;
  pid_t pid; /* 0: not running */
  int lifeline;
  struct manta__loop_conn *conn;
};

struct manta__agent_zygote {
  uint64_t key; /* 0: unused */
  struct manta__exe exe;
  char **argv, **env;
  char *why; /* it cannot be started, and why; NULL: it can */
  int cwd_fd;
  struct manta__zygote_proc now;  /* who forks */
  struct manta__zygote_proc next; /* its successor, which warms up: says its pid when it is ready */
  struct manta__zygote_proc old;  /* its predecessor, which was told to end */
  bool cold;                      /* `now` may have a successor, and had none yet */
  uv_timer_t *limit;              /* for the warm-up of `next` */
  int64_t used_ns;                /* last use: the oldest makes room */
  bool warned;                    /* of threads */
};

enum manta__worker_state { WORKER_STARTING, WORKER_IDLE, WORKER_RUNNING, WORKER_GONE };

struct manta__slot_dup {
  int fd;
  struct manta__slot_meta *meta;
  bool retire; /* handed out for loading: never FREE again */
  struct manta__snap_msg snap;
};

struct manta__agent_worker {
  struct manta__agent_worker *next;
  struct manta__agent_group *group;
  int64_t wid;
  pid_t pid;
  int pidfd, lifeline, ring_fd;
  enum manta__worker_state state;
  int rank; /* in the run, of this or the last attempt, or its predecessor's; -1: none yet */
  int cell; /* … and among those on this host: the index of its cell */
  uint32_t attempt;
  struct manta__agent_zygote *zygote;
  pid_t zygote_pid; /* who reports its end; another zygote may have taken its place */
  struct manta__loop_conn *conn;
  uv_poll_t *pidfd_poll;
  uv_timer_t
      *last_words; /* limit for the end of a worker that was told to, or whose status is late */
  struct manta__output *output;
  struct manta__grant *grant;
  bool used;         /* a train function was or is in it */
  bool stays;        /* it waits inside manta_comm_rebuild for the next attempt of its run */
  bool awaits_go;    /* it has a job, and enters it when the used ones are gone */
  bool stopped;      /* by a signal, when it was to get a job: it is ended, and has a successor */
  bool abandoned;    /* it does not end: what it holds is never given out again */
  uint64_t turn;     /* the group's, when it got its newest job */
  int64_t ending_ns; /* since when it should be gone; 0: it should not */
  struct manta__agent_worker
      *before;  /* whose share it takes over when that one is gone; NULL: none */
  bool watched; /* a watcher waits for its life in this attempt */
  bool dying;   /* … and has seen its end; the kernel still frees its memory */
  bool exit_asked;
  char cause[160]; /* why we killed it, or "" */
  bool hung;
  uint64_t usage_ticks; /* CPU time when usage.c last looked … */
  int64_t usage_ns;     /* … and when that was; 0: never */
  struct manta__slot_dup slot[MANTA__SLOTS];
  struct manta__snapq snapq;
};

struct manta__agent_group {
  struct manta__agent_group *next;
  struct manta__agent *agent;
  uint32_t id;
  struct manta__ident run; /* run and attempt now */
  char *path;              /* run directory, "" before the first run */
  int rundir, logdir;      /* -1: no run */
  int64_t log_limit;
  bool show_all, live, lines_lost; /* live: the driver shows rows that change */
  int tty, tty_rank;               /* the driver's terminal and the rank that has it; -1: none */
  int keep_last, keep_best;
  bool score_min;
  bool light;                       /* a trial, whose record another keeps */
  struct manta__shared_ctl *shared; /* the control segment of the attempt, with its watchers */
  struct manta__ctl *ctl;           /* the same, mapped; NULL: none */
  int ctl_fd, heap_fd, cells; /* heap: what the workers of the attempt share for collectives */
  bool keep;                  /* its workers serve several calls of a train function */
  uint64_t turn;              /* raised when an attempt begins, or is known to end */
  uv_timer_t *gone_limit;
  double step_timeout;
  uv_timer_t *health, *usage;
  int64_t health_warned_ns;
  struct manta__agent_worker *workers;
  struct manta__loop_conn *writer;
  pid_t writer_pid;
  struct manta__agent_worker *writing; /* whose slot the writer has */
  int writing_slot;
  struct manta__loop_conn *reader; /* NULL: none */
  pid_t reader_pid;
  int reader_lifeline;
  uint64_t reader_program;        /* key of the program of those it reads for */
  struct manta__best_scores best; /* of what was given to the writer, or waits for it */
  struct manta__msg drain;        /* a request that waits for the writer to be idle; kind 0: none */
  bool disband;
  char *name;                /* of its trainer; NULL: not told yet */
  bool hold;                 /* its idle workers are not to be ended for another group */
  int64_t rest_ns;           /* since when its trainer is idle; 0: it is not */
  struct manta__msg waiting; /* a request that waits for room that others give up; kind 0: none */
  struct manta__holders
      *holders;          /* it waits for other agents to say what they hold; NULL: it does not */
  manta_value elsewhere; /* the run's workers on other hosts, as the driver tells it; a list */
  int64_t weighed;       /* largest slot that was held against the memory there is */
  uint64_t saves;        /* that rank 0 has made in this attempt */
  struct manta__fetch *fetches; /* ranks that wait for one of them */
};

struct manta__agent {
  uv_loop_t loop;
  struct manta__loop_conn *driver;
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
  struct manta__agent_zygote zygote[AGENT_ZYGOTES];
  struct manta__agent_group *groups;
  int64_t wids;
  uv_signal_t sigchld, sigterm;
  int sigterms;
  uv_async_t death; /* a watcher saw one */
  pthread_mutex_t death_lock;
  struct manta__agent_death {
    int64_t wid;
    uint32_t attempt;
    bool died; /* false: the worker released its life by itself */
  } deaths[MANTA__LEDGER_MAX_WORKERS];
  int death_count;
  struct manta__door *door;
  uv_timer_t *room; /* requests that wait for room are tried again; NULL: not due */
  struct manta__gpu_usage *gpu_usage; /* of usage.c; NULL: nobody had a GPU */
  uint64_t ooms;                      /* oom_kill count of our cgroup when last looked at */
};

/* --- agent.c --- */
int manta__agent_main(int conn, char *const argv[]);
struct manta__agent_group *manta__agent_group(struct manta__agent *a, uint32_t id, bool make);
bool manta__agent_group_alive(
    const struct manta__agent_group *g); /* a worker lives, or a snapshot is to be written */
void manta__agent_group_ended(
    struct manta__agent_group *g); /* something of it ended: was it the last? */
void manta__agent_group_disband(struct manta__agent_group *g);
void manta__agent_driver_lost(struct manta__agent *a); /* may come more than once */
void manta__agent_maybe_leave(struct manta__agent *a);

/* --- driver.c --- */
void manta__agent_on_driver(struct manta__loop_conn *l, struct manta__msg *m);

/* --- loop.c --- */
struct manta__loop_conn *
manta__agent_connect(struct manta__agent *a, int sock, enum manta__way end,
                     void (*on_msg)(struct manta__loop_conn *, struct manta__msg *),
                     void (*on_end)(struct manta__loop_conn *), void *owner, manta_error *err);
void manta__agent_disconnect(
    struct manta__loop_conn *l); /* closes; no callback comes any more. NULL is fine */
/* Sends, and polls for writing while something is queued. A broken link is noticed by its poll. */
void manta__agent_send(struct manta__loop_conn *l, const struct manta__msg *m);
void manta__agent_send_value(struct manta__loop_conn *l, const struct manta__msg *m,
                             manta_value *v); /* finishes v */
void manta__agent_reply(struct manta__loop_conn *l, const struct manta__msg *request,
                        manta_value *v); /* finishes v */
void manta__agent_warn(struct manta__agent *a, uint32_t group, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A timer that frees itself when stopped by manta__agent_timer_stop; NULL without memory. */
uv_timer_t *manta__agent_timer(struct manta__agent *a, double first_s, double repeat_s,
                               uv_timer_cb cb, void *data);
void manta__agent_timer_stop(uv_timer_t **t);

/* --- zygote.c --- */
void manta__agent_program(struct manta__agent *a, struct manta__msg *m);
void manta__agent_warm(struct manta__agent *a,
                       struct manta__msg *m); /* starts a zygote ahead of its use */
struct manta__agent_zygote *manta__agent_zygote(struct manta__agent *a, uint64_t key,
                                                manta_error *err); /* running, or NULL */
bool manta__agent_zygote_exited(struct manta__agent *a, pid_t pid,
                                int status); /* true if it was one */
void manta__agent_zygotes_end(struct manta__agent *a);

/* --- worker.c --- */
/* Has one forked: with a share of its own, or as the successor of `before`, whose share it gets. */
struct manta__agent_worker *manta__agent_worker_start(struct manta__agent_group *g,
                                                      struct manta__agent_zygote *z,
                                                      struct manta__grant *grant,
                                                      struct manta__agent_worker *before,
                                                      manta_error *err);
struct manta__agent_worker *manta__agent_worker_find(struct manta__agent *a, int64_t wid);
struct manta__agent_worker *manta__agent_worker_of_pid(struct manta__agent *a, pid_t pid);
void manta__agent_worker_forked(struct manta__agent_worker *w, pid_t pid, int pidfd, int error);
void manta__agent_worker_exited(struct manta__agent_worker *w,
                                int status); /* as waitpid gives it; -1: unknown */
void manta__agent_worker_kill(struct manta__agent_worker *w, const char *cause);
void manta__agent_worker_ask_exit(struct manta__agent_worker *w);
void manta__agent_worker_give_up(
    struct manta__agent_worker *w); /* it does not end: the driver counts it as gone */
/* Passes a message on to those that are inside their function. */
void manta__agent_worker_tell_all(struct manta__agent_group *g, const struct manta__msg *m);

/* --- watch.c --- */
/* The segment outlives the attempt as long as a watcher waits in it: the agent waits for nobody. */
struct manta__shared_ctl {
  struct manta__ctl *ctl;
  size_t bytes;
  _Atomic int refs;
};
void manta__agent_watch_unref(struct manta__shared_ctl *s); /* NULL is fine */
void manta__agent_watch_begin(struct manta__agent_worker *w);
void manta__agent_watch_deaths(uv_async_t *h);

/* --- attempt.c --- */
void manta__agent_attempt(struct manta__agent_group *g, struct manta__msg *m);
void manta__agent_spawn(struct manta__agent_group *g, struct manta__msg *m);
void manta__agent_probe(struct manta__agent_group *g, struct manta__msg *m);
void manta__agent_attempt_abort(struct manta__agent_group *g, uint32_t cause);
/* The driver's word to end it, because of a rank on another host perhaps. */
void manta__agent_attempt_end(struct manta__agent_group *g, struct manta__msg *m);
void manta__agent_attempt_leave(
    struct manta__agent_group *g); /* its control segment is no longer needed */

/* --- heir.c --- */
/* It takes part in nothing any more: a train function was in it, and its group does not keep it. */
bool manta__agent_spent(const struct manta__agent_worker *w);
/* Forks successors of spent workers that have none, lowest ranks first, at most `count`; gives how
 * many. */
int manta__agent_heirs_make(struct manta__agent_group *g, uint64_t key, int count,
                            manta_error *err);
/* The share a worker has, or will have when its predecessor is gone. */
const struct manta__share *manta__agent_heir_share(const struct manta__agent_worker *w);
/* Spent workers are asked to end, if they are not in their function any more. */
void manta__agent_heirs_retire(struct manta__agent_group *g);
/* An attempt is to be formed: what took part in the one before does so no more. */
void manta__agent_heirs_turn(struct manta__agent_group *g, bool keep);
/* Whether what a worker that is gone held is kept for a successor that may be asked for yet. */
bool manta__agent_heirs_keep_share(const struct manta__agent_worker *w);
/* Nobody succeeds those that are gone: what was kept is given back. */
void manta__agent_heirs_release(struct manta__agent_group *g);
/* A worker's process is gone: its share and its free slots pass to its successor. */
void manta__agent_heirs_inherit(struct manta__agent_worker *w);
/* Whether spent workers are still there. */
bool manta__agent_heirs_awaited(const struct manta__agent_group *g);
/* It was killed, or is known to be dying: it is abandoned if it is not gone in time. */
void manta__agent_heirs_expect_end(struct manta__agent_worker *w);
/* Lets those that wait enter their function, if nobody is awaited any more. */
void manta__agent_heirs_admit(struct manta__agent_group *g);
void manta__agent_renew(struct manta__agent_group *g, struct manta__msg *m);
/* Answers the group's ATTEMPT or SPAWN: it cannot be done. */
void manta__agent_attempt_noroom(struct manta__agent_group *g, const manta_error *err);

/* --- room.c --- */
void manta__agent_room_rest(struct manta__agent_group *g, struct manta__msg *m);
/* Whether an idle trainer's workers, or some that are ending, would make room for the request. */
bool manta__agent_room_can(const struct manta__agent_group *g, const struct manta__request *rq,
                           int workers);
/* Ends the workers of the trainer that has been idle for longest, if that helps. */
bool manta__agent_room_make(struct manta__agent_group *g, const struct manta__request *rq,
                            int workers);
/* A request (ATTEMPT or SPAWN) has no room, and err says why: true if it was taken and is answered
 * later, when others have made room or whoever holds it is known. */
bool manta__agent_room_wait(struct manta__agent_group *g, struct manta__msg *m,
                            const struct manta__request *rq, int workers, manta_error *err);
void manta__agent_room_freed(struct manta__agent *a); /* a worker has given back what it held */
void manta__agent_room_forget(
    struct manta__agent_group *g); /* a request that waits is answered: the group ends */

/* --- holders.c --- */
/* What a group holds, as one line of text; "" if nothing. */
void manta__agent_holders_own(const struct manta__agent_group *g, char *out, size_t size);
/* Asks the other agents of this user what they hold. True: agent_attempt_noroom will be called with
 * err and their answers, soon. False: there is none. */
bool manta__agent_holders_ask(struct manta__agent_group *g, const manta_error *err);
void manta__agent_holders_forget(struct manta__agent_group *g);

/* --- snap.c --- */
/* Hands the slots of a worker that is gone to another, as far as they hold nothing. */
void manta__agent_snap_inherit(struct manta__agent_worker *from, struct manta__agent_worker *to);
void manta__agent_snap(struct manta__agent_worker *w, struct manta__msg *m);
void manta__agent_snap_worker_gone(struct manta__agent_worker *w);
void manta__agent_snap_bury(
    struct manta__agent_group *g); /* frees dead workers that nobody needs any more */
bool manta__agent_snap_busy(const struct manta__agent_group *g);

/* --- fetch.c --- */
/* A rank asks for rank 0's newest snapshot; rank 0 is on this host. */
void manta__agent_fetch(struct manta__agent_group *g, struct manta__msg *m);
/* The answer, from another host. */
void manta__agent_fetched(struct manta__agent_group *g, struct manta__msg *m);
/* Rank 0 has saved, or left: answers who can be answered. */
void manta__agent_fetch_look(struct manta__agent_group *g);
void manta__agent_fetch_reset(struct manta__agent_group *g);
/* The bridge has had it written. */
void manta__agent_snap_written(struct manta__agent_group *g);
void manta__agent_snap_retire(struct manta__agent_group *g, int64_t wid, int slot);
void manta__agent_snap_driver_lost(struct manta__agent_group *g);
bool manta__agent_writer_exited(struct manta__agent *a, pid_t pid, int status);
void manta__agent_drain(struct manta__agent_group *g, struct manta__msg *m);
void manta__agent_snap_run_ended(struct manta__agent_group *g);

/* --- usage.c --- */
/* The driver is told what the workers use, until the group is gone. */
void manta__agent_usage_begin(struct manta__agent_group *g);

/* --- reads.c --- */
/* A worker wants to be connected with the reader, which is started if it is not there. */
void manta__agent_read(struct manta__agent_worker *w, struct manta__msg *m);
/* The run is over: the reader dies. */
void manta__agent_reads_end(struct manta__agent_group *g);
bool manta__agent_reader_exited(struct manta__agent *a, pid_t pid);

/* --- output.c --- */
struct manta__output *manta__agent_output_start(struct manta__agent_worker *w, int out, int err_fd,
                                                manta_error *err);
/* Reads what is there; its last line needs no newline. */
void manta__agent_output_flush(struct manta__output *o);
/* Before a job: gives the driver's terminal to the rank that is to have it. */
void manta__agent_output_terminal(struct manta__agent_worker *w);
/* The last lines it printed; borrowed. */
const char *manta__agent_output_last(struct manta__output *o);
void manta__agent_output_end(struct manta__output *o);
void manta__agent_output_close_files(struct manta__agent_group *g);

/* --- door.c --- */
struct manta__door *manta__agent_door_open(struct manta__agent *a, manta_error *err);
void manta__agent_door_close(struct manta__door *d);

#endif
