/* SPDX-License-Identifier: Apache-2.0
 *
 * group/proto.h - the messages between driver, agent, zygote, worker and writer.
 *
 * Payloads are MessagePack maps unless said otherwise; the agent never looks into a job, a result
 * or a report. Every message carries (run, attempt, rank, seq) in its frame; whatever belongs to an
 * older attempt is dropped by whoever knows the newer one.
 *
 * A worker is known by `wid`, a number its agent gives out once; rank is its place in one attempt.
 */
#ifndef MANTA_GROUP_PROTO_H
#define MANTA_GROUP_PROTO_H

#include <stdint.h>

#include "engine/engine.h"

/* Where a role finds its connection and its lifeline after exec. */
enum { MANTA__ROLE_CONN_FD = 3, MANTA__ROLE_LIFELINE_FD = 4 };
/* A worker's mark, by which its descendants are known. The kernel shows the environment a process
 * was started with: a zygote is given room in it, for its forked workers to write into. */
#define MANTA__MARK_ENV  "MANTA_WORKER"
#define MANTA__MARK_ROOM "................................................"

#define MANTA__PROTO_VERSION 1

enum manta__msg_kind {
  /* driver -> agent */
  MANTA__M_HELLO =
      1, /* request {version, wids, name}; reply {version, pid, host, address, cpus, gpus};
                         fd: ring eventfd */
  MANTA__M_PROGRAM,   /* how zygotes are started: {key, argv, env, exe…}; fd: cwd */
  MANTA__M_RUN,       /* a run begins: {path, log_limit, keep…}; fds: run directory, its logs, the
                       terminal of a rank */
  MANTA__M_SPAWN,     /* have `count` idle workers ready: {key, count, request} */
  MANTA__M_ATTEMPT,   /* start a job: {key, count, min, keep, request, step_timeout}; blob: job; fds
                     */
  MANTA__M_ABORT,     /* end the attempt: raise the abort word with {cause} */
  MANTA__M_KILL,      /* SIGKILL these workers: {wids, cause} */
  MANTA__M_NOTICE,    /* asked to stop: workers see preempted() */
  MANTA__M_DRAIN,     /* request: reply when no snapshot is being written or waits to be */
  MANTA__M_PROBE,     /* request: how many of `count` more workers would fit: {room} */
  MANTA__M_RENEW,     /* the attempt is over, or about to be: end the workers it was in, and fork
                       `count` successors: {as SPAWN, over: there is no other attempt} */
  MANTA__M_DISBAND,   /* end the workers of the group, release what they hold */
  MANTA__M_WARM,      /* start a zygote ahead of its first use: {key} */
  MANTA__M_REST,      /* the group's trainer is idle: {hold}; its workers may be ended for another's
                         sake, unless hold */
  MANTA__M_ELSEWHERE, /* workers on other hosts, for `manta ps`: [{rank, pid, host, state}, …] */
  /* driver -> agent -> every worker inside its function; call: the round */
  MANTA__M_GIVEN,  /* what all ranks gave: struct manta__given, sizes, bytes */
  MANTA__M_AGREED, /* the least number: int64_t */
  /* agent -> worker that asked for it, perhaps through the driver; call: of the FETCH */
  MANTA__M_FETCHED, /* rank 0's newest snapshot: struct manta__fetched; fd: a slot, or none */
  /* agent -> driver */
  MANTA__M_WORKER = 32, /* a worker exists: {wid, pid}, first {wid, seat, before}; fd: its ring */
  MANTA__M_FORMED,      /* the attempt runs: {world, members: [[wid, rank], …]} */
  MANTA__M_NOROOM,      /* it does not: {status, message, free} */
  MANTA__M_DYING,       /* the kernel handed over the life of a rank: {wid} */
  MANTA__M_GONE,        /* a worker is gone: {wid, status, cause, oom} */
  MANTA__M_SNAP,        /* a snapshot is in memory: struct manta__snap_msg; fd: the slot, if new */
  MANTA__M_STORED,      /* a checkpoint is on disk: {dir, iteration, bytes, score} */
  MANTA__M_STOREFAIL,   /* it could not be written: {iteration, message} */
  MANTA__M_OUTPUT,      /* lines a worker printed, or a piece of a long one; call: the stream */
  MANTA__M_WARN,        /* text to show: {text} */
  MANTA__M_REFUSED,     /* the agent cannot work, and ends: {status, message} */
  MANTA__M_ASKED,       /* from outside: {what: "kill" | "resize" | "notice", n} */
  MANTA__M_BEAT,        /* an agent behind a bridge is still there */
  MANTA__M_LIVE,        /* rows of a worker's output that change, all of them; call: the stream */
  /* agent -> worker (through its control socket) */
  MANTA__M_JOB = 64, /* fds: control segment, job, heap, checkpoint (ckpt/origin.h: 0, 1 or 3) */
  MANTA__M_SLOT,     /* a predecessor's snapshot slot: struct manta__slot_msg; fd: the slot */
  MANTA__M_GO,       /* the predecessors are gone: a job that was to wait begins */
  MANTA__M_EXIT,     /* end by normal finalisation */
  MANTA__M_TERMINAL, /* the next job has the driver's terminal; fd */
  /* worker -> agent (-> driver) */
  MANTA__M_READY = 96, /* it holds its life mutex and enters the function */
  MANTA__M_LEAVES,     /* it ends by itself after the DONE that follows: it takes no other job */
  MANTA__M_STAYS,      /* the DONE that follows is not its end: it waits for the next attempt */
  MANTA__M_DONE,       /* {status, message, result, lost: the rank it left for, or -1, kind}; fd:
                          the result, if it is large */
  MANTA__M_GIVE,       /* bytes for all ranks; call: the round */
  MANTA__M_AGREE,      /* a number, of which the least is wanted: int64_t; call: the round */
  MANTA__M_FETCH, /* rank 0's newest snapshot, when it has saved so often: uint64_t. Goes to the
                          agent of rank 0, perhaps through the driver */
  /* agent <-> zygote */
  MANTA__M_FORK = 112, /* {wid}; fds: those of group/worker.h */
  MANTA__M_FORKED,     /* {wid, pid} or {wid, error}; fd: pidfd */
  MANTA__M_EXITED,     /* {pid, status} */
  MANTA__M_SERVING,    /* zygote -> agent, if its program can warm up: it forks from now on: struct
                          manta__serving_msg */
  MANTA__M_SUCCEED,    /* agent -> zygote: fork a successor that warms up; fds: its connection, its
                          lifeline */
  MANTA__M_RETIRE,     /* agent -> zygote: end, once all asked for before is done */
  /* agent <-> writer */
  MANTA__M_WRITE = 128, /* struct manta__snap_msg; fds: slot, rank 0's ring. Also agent -> bridge:
                           fd: slot; answered by STORED or STOREFAIL */
  MANTA__M_DRIVER_LOST, /* rows still in rings are to be saved: {}; fds: rings, several messages */
  /* across a bridge (agent/bridge.h) */
  MANTA__M_OPEN = 144, /* near -> far, first: {version, timeout} */
  MANTA__M_LOST,       /* near -> far -> agent: the driver is gone */
  MANTA__M_CKPT,       /* near -> far: what the next attempts begin from; fd: a slot */
  MANTA__M_ROWS,       /* far -> near: struct manta__rows_msg, and bytes of a ring */
  MANTA__M_TAIL,       /* near -> far: struct manta__rows_msg: the driver has read up to there */
  /* command -> agent, over the named socket: requests, replied to */
  MANTA__M_ASK = 160 /* {what: "ps" | "kill" | "resize" | "notice", run, n} */
};

/* The streams of a worker. */
enum { MANTA__STDOUT = 1, MANTA__STDERR = 2 };

/* A job is one memory file, which all workers map: this, the packed description, and from the next
 * whole page on the payload. */
struct manta__job_head {
  uint64_t spec, payload; /* bytes */
};
#define MANTA__JOB_PAGE 4096u

/* A result that packs to more rides behind DONE as a descriptor: the bytes that `kind` names
 * ("msgpack": the packed value). */
#define MANTA__RESULT_INLINE (48u << 10)
#define MANTA__RESULT_KIND   16 /* with its NUL */
#define MANTA__RESULT_VALUE  "msgpack"
#define MANTA__RESULT_FILE   "manta-result"

/* A place in the ring of a worker. */
struct manta__rows_msg {
  int64_t wid;
  uint64_t pos;
  uint32_t last, zero; /* ROWS: more of the same record follows, if 0 */
};

/* What one rank may give to all. */
#define MANTA__GIVE_MAX (64u << 10)

/* Behind it lie `count` sizes (uint64_t) and then the bytes of all ranks, in their order. */
struct manta__given {
  uint32_t count;
  int32_t missing; /* -1, or a rank that left its function without giving: nothing follows */
};

/* A slot that passes to a successor. */
struct manta__slot_msg {
  int32_t slot, zero;
};

/* A snapshot's hand-over, fixed so that it costs the saving rank no allocation. */
struct manta__snap_msg {
  int32_t slot;   /* index in the worker's slots; -1: the save failed, only `saves` counts */
  int32_t wanted; /* retention would keep it for its score */
  int64_t wid;
  int64_t iteration;
  int64_t capacity;  /* bytes of the slot: three of them are made */
  uint64_t ring_pos; /* rank 0's rows up to here belong to it */
  uint64_t saves;    /* calls of save in this attempt, this one included */
};

struct manta__fetched {
  int32_t left; /* not 0: rank 0 has left its function without saving so often */
  int32_t zero;
};

#endif
