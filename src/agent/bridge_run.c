/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/bridge_run.c - the runs of a near half: mirrors of rings, logs, snapshots and their writer.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/bridge.h"
#include "base/alloc.h"
#include "base/log.h"
#include "ckpt/origin.h"
#include "ckpt/slot.h"
#include "ckpt/store.h"
#include "sys/sock.h"

#define MAX_GONE 16 /* mirrors kept of workers that are gone */

static struct manta__bridge_run *find(struct manta__near *n, uint32_t group)
{
  for (struct manta__bridge_run *r = n->runs; r; r = r->next)
    if (r->group == group)
      return r;
  struct manta__bridge_run *r = manta__calloc(1, sizeof *r);
  if (!r)
    return NULL;
  *r = (struct manta__bridge_run){.next = n->runs, .near = n, .group = group, .logdir = -1};
  r->job.rundir = -1;
  n->runs = r;
  return r;
}

// --- mirrors ------------------------------------------------------------------------------------

static struct manta__mirror *find_mirror(struct manta__bridge_run *r, int64_t wid)
{
  for (struct manta__mirror *m = r->mirrors; m; m = m->next)
    if (m->wid == wid)
      return m;
  return NULL;
}

static void mirror_free(struct manta__mirror *m)
{
  manta__ring_close(&m->ring);
  manta__free(m);
}

// The newest are first: of those whose worker is gone, only so many are kept.
static void bury(struct manta__bridge_run *r)
{
  int gone = 0;
  for (struct manta__mirror **at = &r->mirrors; *at;) {
    struct manta__mirror *m = *at;
    if (m->gone && (r->disband || ++gone > MAX_GONE)) {
      *at = m->next;
      mirror_free(m);
    } else {
      at = &m->next;
    }
  }
}

static struct manta__mirror *add_mirror(struct manta__bridge_run *r, int64_t wid)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__mirror *m = manta__calloc(1, sizeof *m);
  int fd = -1;
  manta_status st = m ? manta__ring_create(&fd, &err) : MANTA_ENOMEM;
  if (st == MANTA_OK)
    st = manta__ring_open(&m->ring, fd, &err);
  if (st < 0) {
    manta__warn("bridge to %s: no ring: %s", r->near->name, err.message);
    manta__free(m);
    return NULL;
  }
  m->wid = wid;
  m->next = r->mirrors;
  r->mirrors = m;
  return m;
}

static manta_status on_worker(struct manta__bridge_run *r, struct manta__msg *m, manta_error *err)
{
  manta_value v = {0};
  struct manta__worker_msg in;
  struct manta__msg out = *m;
  MANTA_TRY(manta__worker_msg_unpack(m, &v, &in, err));
  struct manta__mirror *k = in.ring ? add_mirror(r, in.wid) : NULL;
  out.fds = k ? 1 : 0;
  out.fd[0] = k ? k->ring.fd : -1;
  if (k || !in.ring)
    manta__near_to_driver(r->near, &out);
  manta_value_fini(&v);
  return MANTA_OK;
}

static manta_status on_rows(struct manta__bridge_run *r, struct manta__msg *m, manta_error *err)
{
  struct manta__rows_msg at;
  bool wake = false;
  if (m->len < sizeof at)
    return manta_error_set(err, MANTA_EPROTO, "ROWS with %zu bytes", m->len);
  memcpy(&at, m->data, sizeof at);
  struct manta__mirror *k = find_mirror(r, at.wid);
  if (!k)
    return MANTA_OK;
  if (manta__ring_put(&k->ring, at.pos, (const uint8_t *)m->data + sizeof at, m->len - sizeof at,
                      at.last, &wake) < 0)
    manta__warn("bridge to %s: rows that do not fit", r->near->name);
  if (wake) {
    ssize_t n = write(r->near->wake_fd, &(uint64_t){1}, 8);
    (void)n; // the counter is full: then it is awake
  }
  return MANTA_OK;
}

bool manta__bridge_run_tails(struct manta__near *n)
{
  bool unread = false;
  for (struct manta__bridge_run *r = n->runs; r; r = r->next)
    for (struct manta__mirror *k = r->mirrors; k; k = k->next) {
      struct manta__rows_msg at = {.wid = k->wid, .pos = manta__ring_tail(&k->ring)};
      struct manta__msg m = {.kind = MANTA__M_TAIL, .data = &at, .len = sizeof at};
      if (at.pos != k->told && !k->gone)
        manta__near_to_far(n, &m, NULL);
      k->told = at.pos;
      unread |= k->told != k->ring.pos && !k->gone;
    }
  return unread;
}

// --- logs ---------------------------------------------------------------------------------------

static void close_logs(struct manta__bridge_run *r)
{
  for (struct manta__rank_log *l = r->logs, *next; l; l = next) {
    next = l->next;
    manta__logfile_close(&l->file);
    manta__free(l);
  }
  r->logs = NULL;
}

static struct manta__rank_log *log_of(struct manta__bridge_run *r, int rank)
{
  for (struct manta__rank_log *l = r->logs; l; l = l->next)
    if (l->file.rank == rank || l->file.rank < 0)
      return l;
  struct manta__rank_log *l = manta__calloc(1, sizeof *l);
  if (l) {
    *l = (struct manta__rank_log){.next = r->logs, .file = {-1, -1, 0}};
    r->logs = l;
  }
  return l;
}

static manta_status on_output(struct manta__bridge_run *r, struct manta__msg *m, manta_error *err)
{
  int rank = m->id.rank;
  struct manta__rank_log *l = r->logdir >= 0 && rank >= 0 ? log_of(r, rank) : NULL;
  if (l && !manta__logfile_write(&l->file, r->logdir, rank, r->log_limit, m->data, m->len) &&
      !r->log_failed) {
    r->log_failed = true;
    manta__warn("cannot write logs/rank-%d.log: %m", rank);
  }
  if (rank == 0 || r->show_all)
    manta__near_to_driver(r->near, m);
  return MANTA_OK;
}

static manta_status on_live(struct manta__bridge_run *r, struct manta__msg *m, manta_error *err)
{
  if (m->id.rank == 0 || r->show_all)
    manta__near_to_driver(r->near, m);
  return MANTA_OK;
}

// --- the writer ---------------------------------------------------------------------------------

// The far half keeps the slot until it is told.
static void say_written(struct manta__bridge_run *r)
{
  struct manta__msg m = {.kind = MANTA__M_WRITTEN, .group = r->group, .id = r->id};
  r->writing = false;
  manta__near_to_far(r->near, &m, NULL);
}

static void on_writer(struct manta__bridge_run *r, const struct manta__msg *m)
{
  struct manta__msg out = *m;
  out.group = r->group;
  out.id = r->id;
  manta__near_to_driver(r->near, &out);
  if (m->kind != MANTA__M_WARN)
    say_written(r);
}

static void say_failed(struct manta__bridge_run *r, int64_t iteration, const char *why)
{
  manta_value v = MANTA__PACK(storefail_msg, .iteration = iteration, .message = why);
  struct manta__msg m = {.kind = MANTA__M_STOREFAIL, .group = r->group, .id = r->id};
  if (r->near->driver)
    manta__conn_send_value(r->near->driver, &m, &v, NULL); // a failure shows when reading
  say_written(r);
}

static void end_writer(struct manta__bridge_run *r)
{
  struct manta__near *n = r->near;
  if (!r->writer)
    return;
  manta__conn_destroy(r->writer); // what it has begun it finishes
  r->writer = NULL;
  for (size_t i = 0; i < sizeof n->ending / sizeof *n->ending; i++)
    if (n->ending[i] == 0) {
      n->ending[i] = r->writer_pid;
      return;
    }
  waitpid(r->writer_pid, NULL, 0); // a trainer has one at a time: these are many trainers
}

static void reap_writers(struct manta__near *n)
{
  for (size_t i = 0; i < sizeof n->ending / sizeof *n->ending; i++)
    if (n->ending[i] > 0 && waitpid(n->ending[i], NULL, WNOHANG) != 0)
      n->ending[i] = 0;
}

static manta_status have_writer(struct manta__bridge_run *r, manta_error *err)
{
  int sock;
  if (r->writer)
    return MANTA_OK;
  if (r->job.rundir < 0)
    return manta_error_set(err, MANTA_ESTATE, "there is no run directory");
  MANTA_TRY(manta__writer_start(&r->job, &sock, &r->writer_pid, err));
  manta_status st =
      manta__conn_create(&r->writer, sock, manta__proto_end(MANTA__AGENT_TO_WRITER), err);
  if (st < 0)
    close(sock);
  return st;
}

void manta__bridge_run_writers(struct manta__near *n)
{
  for (struct manta__bridge_run *r = n->runs; r; r = r->next) {
    struct manta__msg m;
    manta_error err = MANTA_ERROR_INIT;
    int rc = 0;
    while (r->writer && (rc = manta__conn_recv(r->writer, &m, &err)) == 1) {
      on_writer(r, &m);
      manta__msg_close(&m);
    }
    if (r->writer && rc < 0) {
      end_writer(r);
      if (r->writing)
        say_failed(r, -1, "the process that writes checkpoints died");
    }
  }
  reap_writers(n);
}

// A copy of its own, that nobody writes to any more.
static manta_status seal_off(int fd, manta_error *err)
{
  struct manta__slot_meta *meta;
  MANTA_TRY(manta__slot_map_meta(fd, &meta, err));
  atomic_store(&meta->state, MANTA__SLOT_RETIRED);
  munmap(meta, MANTA__SLOT_META);
  return MANTA_OK;
}

static manta_status write_snapshot(struct manta__bridge_run *r, struct manta__msg *m,
                                   const struct manta__snap_msg *s, manta_error *err)
{
  struct manta__mirror *k = find_mirror(r, s->wid);
  if (m->fds != 1 || !k)
    return manta_error_set(err, MANTA_EPROTO, "a snapshot of an unknown worker");
  MANTA_TRY(seal_off(m->fd[0], err));
  struct manta__msg tell = *m;
  tell.kind = MANTA__M_SNAP;
  manta__near_to_driver(r->near, &tell);
  MANTA_TRY(have_writer(r, err));
  struct manta__msg out = {.kind = MANTA__M_WRITE,
                           .id = m->id,
                           .data = m->data,
                           .len = m->len,
                           .fd = {m->fd[0], k->ring.fd},
                           .fds = 2};
  r->writing = true;
  return manta__conn_send(r->writer, &out, err);
}

// One that comes when the next attempt has begun without it is of no use.
static manta_status on_snapshot(struct manta__bridge_run *r, struct manta__msg *m, manta_error *err)
{
  struct manta__snap_msg s;
  manta_error why = MANTA_ERROR_INIT;
  if (!manta__msg_copy(m, &s, sizeof s))
    return manta_error_set(err, MANTA_EPROTO, "WRITE with %zu bytes", m->len);
  if (m->id.run != r->id.run || m->id.attempt != r->id.attempt) {
    struct manta__msg done = {.kind = MANTA__M_WRITTEN, .group = r->group, .id = r->id};
    manta__near_to_far(r->near, &done, NULL);
  } else if (write_snapshot(r, m, &s, &why) < 0) {
    say_failed(r, s.iteration, why.message);
  }
  return MANTA_OK;
}

// --- messages of the far half -------------------------------------------------------------------

static manta_status on_gone(struct manta__bridge_run *r, struct manta__msg *m, manta_error *err)
{
  manta_value v = {0};
  struct manta__gone_msg in;
  MANTA_TRY(manta__gone_msg_unpack(m, &v, &in, err));
  struct manta__mirror *k = find_mirror(r, in.wid);
  manta_value_fini(&v);
  manta__near_to_driver(r->near, m);
  if (k)
    k->gone = true;
  bury(r);
  if (r->disband && !r->mirrors)
    manta__bridge_run_disband(r->near, r->group);
  return MANTA_OK;
}

static manta_status (*const handlers[MANTA__M_KINDS])(struct manta__bridge_run *r,
                                                      struct manta__msg *m, manta_error *err) = {
    [MANTA__M_WORKER] = on_worker, [MANTA__M_ROWS] = on_rows, [MANTA__M_GONE] = on_gone,
    [MANTA__M_OUTPUT] = on_output, [MANTA__M_LIVE] = on_live, [MANTA__M_WRITE] = on_snapshot,
};

bool manta__bridge_run_takes(uint16_t kind)
{
  return kind < MANTA__M_KINDS && handlers[kind];
}

manta_status manta__bridge_run_take(struct manta__near *n, struct manta__msg *m, manta_error *err)
{
  struct manta__bridge_run *r = find(n, m->group);
  return r ? handlers[m->kind](r, m, err) : MANTA_OK;
}

// --- messages of the driver ---------------------------------------------------------------------

static void leave_run(struct manta__bridge_run *r)
{
  end_writer(r);
  close_logs(r);
  manta__fd_close(&r->job.rundir);
  manta__fd_close(&r->logdir);
  r->writing = r->log_failed = false;
}

// The directory stays here.
static void take_run(struct manta__bridge_run *r, struct manta__msg *m,
                     const struct manta__run_msg *in)
{
  r->job = (struct manta__writer_job){.rundir = manta__msg_take_fd(m, 0),
                                      .keep_last = in->keep_last,
                                      .keep_best = in->keep_best,
                                      .score_min = in->score_min};
  r->logdir = manta__msg_take_fd(m, 1);
  r->log_limit = in->log_limit;
}

void manta__bridge_run_begin(struct manta__near *n, struct manta__msg *m)
{
  manta_value v = {0};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  struct manta__run_msg in;
  struct manta__bridge_run *r = find(n, m->group);
  if (!r || manta__run_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  r->id = m->id;
  r->disband = false;
  r->show_all = in.show_all;
  if (!in.exec) {
    leave_run(r);
    take_run(r, m, &in);
  }
  in.show_all = true; // of all that ranks print, the far half is to send everything
  struct manta__msg out = {.kind = m->kind, .group = m->group, .id = m->id};
  manta_value to = manta__run_msg_map(pairs, &in);
  manta__near_to_far(n, &out, &to);
  manta_value_fini(&v);
}

static bool same_ident(const struct manta__ident *a, const struct manta__ident *b)
{
  return a->run == b->run && a->attempt == b->attempt && a->rank == b->rank && a->seq == b->seq;
}

// What the attempt begins from, unless the far half has it: a slot, or the files of a checkpoint.
static manta_status send_checkpoint(struct manta__bridge_run *r, const int *from, int count,
                                    manta_error *err)
{
  struct manta__slot_meta *meta;
  int slot = -1, fd = from[0];
  if (count == MANTA__ORIGIN_FDS) {
    MANTA_TRY(manta__checkpoint_to_slot(from, manta__near_beat, r->near, &slot, err));
    fd = slot;
  }
  manta_status st = manta__slot_map_meta(fd, &meta, err);
  if (st == MANTA_OK) {
    if (!same_ident(&meta->id, &r->ckpt))
      manta__near_to_far(
          r->near,
          &(struct manta__msg){.kind = MANTA__M_CKPT, .group = r->group, .fd = {fd}, .fds = 1},
          NULL);
    r->ckpt = meta->id;
    munmap(meta, MANTA__SLOT_META);
  }
  manta__fd_close(&slot);
  return st;
}

static void refuse(struct manta__bridge_run *r, const manta_error *why)
{
  manta_value v = MANTA__PACK(noroom_msg, .status = why->status, .message = why->message);
  struct manta__msg m = {.kind = MANTA__M_NOROOM, .group = r->group, .id = r->id};
  if (r->near->driver)
    manta__conn_send_value(r->near->driver, &m, &v, NULL);
}

// The far half puts the checkpoint that it has behind the job.
static manta_status pass_attempt(struct manta__bridge_run *r, struct manta__msg *m,
                                 manta_error *err)
{
  manta_value v = {0};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  struct manta__attempt_msg in;
  int from = m->fds - 1 - (m->flags & MANTA__FRAME_BLOB ? 1 : 0);
  MANTA_TRY(manta__attempt_msg_unpack(m, &v, &in, err));
  manta_status st = from > 0 ? send_checkpoint(r, m->fd + 1, from, err) : MANTA_OK;
  if (st == MANTA_OK) {
    in.stored = from > 0;
    struct manta__msg out = {
        .kind = m->kind, .group = m->group, .id = m->id, .fd = {m->fd[0]}, .fds = 1};
    manta_value to = manta__attempt_msg_map(pairs, &in);
    manta__near_to_far(r->near, &out, &to);
  }
  manta_value_fini(&v);
  return st;
}

void manta__bridge_run_attempt(struct manta__near *n, struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__bridge_run *r = find(n, m->group);
  if (!r)
    return;
  r->id = m->id;
  if (pass_attempt(r, m, &err) < 0)
    refuse(r, &err);
}

void manta__bridge_run_disband(struct manta__near *n, uint32_t group)
{
  struct manta__bridge_run *r = find(n, group);
  if (!r)
    return;
  r->disband = true;
  bury(r);
  if (!r->mirrors)
    leave_run(r);
}

// The writer saves the rows that the driver can no longer fetch.
void manta__bridge_run_driver_lost(struct manta__near *n)
{
  manta_error err = MANTA_ERROR_INIT;
  for (struct manta__bridge_run *r = n->runs; r; r = r->next)
    for (struct manta__mirror *k = r->mirrors; k && r->job.rundir >= 0; k = k->next) {
      struct manta__msg m = {
          .kind = MANTA__M_DRIVER_LOST, .id = r->id, .fd = {k->ring.fd}, .fds = 1};
      if (have_writer(r, &err) == MANTA_OK)
        manta__conn_send(r->writer, &m, NULL);
    }
}

void manta__bridge_run_free(struct manta__near *n)
{
  for (struct manta__bridge_run *r = n->runs, *next; r; r = next) {
    next = r->next;
    leave_run(r);
    for (struct manta__mirror *k = r->mirrors, *after; k; k = after) {
      after = k->next;
      mirror_free(k);
    }
    manta__free(r);
  }
  n->runs = NULL;
}
