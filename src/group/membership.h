/* SPDX-License-Identifier: Apache-2.0
 *
 * group/membership.h - the membership of one run: a state machine and nothing else.
 *
 * It is told what happens (formed, done, gone, a clock tick, a wish) and says what to do next. It
 * allocates nothing after init, touches no process and no clock.
 *
 *   IDLE ──begin──► FORMING ──formed──► RUNNING ──all done well──► OVER
 *                     ▲  └─no room─► BACKOFF ─┐    │ lost, failed, stopped, resized
 *                     └──────────────────────┘    ▼
 *                     └──── retries left ───── ENDING ──(all members accounted for)──► OVER
 *
 * (1) ENDING ends when every member is done or gone; those that are neither when the grace time
 *     is up are to be killed.
 * (2) "Peer lost", "aborted" and "preempted" are never the root of a failure; the first other one
 *     is.
 * (3) A lost worker uses up a retry, as does a failed function if errors are retried; a resize
 *     does not. So does an attempt that was given up for a lost peer, even if nobody is known to
 *     be lost.
 * (4) After OVER nothing is asked for any more.
 * (5) Where every attempt has fresh processes, their forking is asked for once per attempt, as soon
 *     as it is certain that another one follows: before the members have left the old one.
 * (6) The newest size that was asked for is that of the next attempt. If it came too late for the
 *     one that was just being formed, that one is given up as soon as it is there.
 */
#ifndef MANTA_GROUP_MEMBERSHIP_H
#define MANTA_GROUP_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

enum manta__phase {
  MANTA__PHASE_IDLE,
  MANTA__PHASE_FORMING,
  MANTA__PHASE_RUNNING,
  MANTA__PHASE_ENDING,
  MANTA__PHASE_BACKOFF,
  MANTA__PHASE_OVER
};
enum manta__member_state { MANTA__MB_RUNNING, MANTA__MB_DONE, MANTA__MB_GONE };

struct manta__member {
  int64_t wid;
  enum manta__member_state state;
  bool dying;          /* the kernel has said so; gone when its memory is freed, which takes time */
  manta_status status; /* of a DONE one */
};

struct manta__policy {
  int want, min;
  int max_retries; /* -1: without end */
  bool retry_errors;
  bool fresh; /* every attempt has processes of its own */
  double grace_s;
  double grow_after_s;   /* room must have lasted so long */
  double resize_every_s; /* and the last resize be so old */
};

struct manta__membership {
  struct manta__policy policy;
  enum manta__phase phase;
  uint32_t attempt;
  int world;
  struct manta__member
      *member; /* by rank; the caller's array of `places` entries, >= policy.want */
  int places;
  int retries, backoffs;
  int64_t by; /* when the clock matters next; MANTA__NEVER */
  int64_t ending_ns, resized_ns, room_since_ns;
  bool stop, notice, resize, killed, lost, failed, peer_trouble, renewed;
  manta_error root;                   /* status 0: none yet; rank in .rank */
  char echo[MANTA_ERROR_MESSAGE_MAX]; /* what the first rank that left for a peer said */
};

/* What to do now; several calls of manta__membership_next may be needed until NOTHING. */
enum manta__membership_do {
  MANTA__DO_NOTHING,
  MANTA__DO_FORM,  /* start attempt g->attempt with g->policy.want workers, at least .min */
  MANTA__DO_ABORT, /* raise the abort word of the current attempt */
  MANTA__DO_KILL,  /* SIGKILL the members that are still RUNNING */
  MANTA__DO_RENEW, /* another attempt will follow: fork the successors of the members */
  MANTA__DO_FINISH /* the run is over: g->root says how (status 0: well) */
};

void manta__membership_init(struct manta__membership *g, const struct manta__policy *p,
                            struct manta__member *places, int count);
/* The caller's array is another one now, which begins with what the old one has. */
void manta__membership_extend(struct manta__membership *g, struct manta__member *places, int count);
/* Begins at `attempt` (0 in a fresh run). */
void manta__membership_begin(struct manta__membership *g, uint32_t attempt, int64_t now);

/* Events. All but `formed` may come in any phase; what does not fit is ignored. */
void manta__membership_formed(struct manta__membership *g, const int64_t *wids, int world);
void manta__membership_noroom(struct manta__membership *g, const manta_error *why, int64_t now);
/* The index (rank) of a member, or -1. */
int manta__membership_rank(const struct manta__membership *g, int64_t wid);
void manta__membership_done(struct manta__membership *g, int64_t wid, manta_status st,
                            const manta_error *err);
/* It died by itself, whatever is done to it from now on; `gone` follows and says how. */
void manta__membership_dying(struct manta__membership *g, int64_t wid);
void manta__membership_gone(struct manta__membership *g, int64_t wid, const manta_error *why,
                            int64_t now);
void manta__membership_agent_lost(struct manta__membership *g, const manta_error *why);
/* One of several hosts is lost, with the `count` ranks from `first` on. */
void manta__membership_host_lost(struct manta__membership *g, int first, int count,
                                 const manta_error *why);
/* Wishes. `resize` is granted at the next checkpoint (manta__membership_checkpoint), or at once
 * when no attempt is going on. */
void manta__membership_stop(struct manta__membership *g, manta_status st, const char *why);
void manta__membership_notice(struct manta__membership *g);
void manta__membership_resize(struct manta__membership *g, int want);
void manta__membership_checkpoint(struct manta__membership *g, int64_t now);
/* There would be room for `n` more workers (0: none). */
void manta__membership_room(struct manta__membership *g, int n, int64_t now);

enum manta__membership_do manta__membership_next(struct manta__membership *g, int64_t now);

#endif
