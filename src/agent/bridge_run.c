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

static void announce(struct manta__bridge_run *r, struct manta__msg *msg, int64_t wid)
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
    return;
  }
  m->wid = wid;
  m->next = r->mirrors;
  r->mirrors = m;
  msg->fd[0] = m->ring.fd;
  msg->fds = 1;
  msg->call = 0;
  manta__near_to_driver(r->near, msg);
  msg->fds = 0; // it stays ours
}

static int64_t wid_of(struct manta__msg *m)
{
  manta_value v = {0};
  int64_t wid = manta__msg_value(m, &v, NULL) == MANTA_OK
                    ? manta_value_as_int(manta_value_get(&v, "wid"), -1)
                    : -1;
  manta_value_fini(&v);
  return wid;
}

static void on_rows(struct manta__bridge_run *r, const struct manta__msg *m)
{
  struct manta__rows_msg at;
  bool wake = false;
  if (m->len < sizeof at)
    return;
  memcpy(&at, m->data, sizeof at);
  struct manta__mirror *k = find_mirror(r, at.wid);
  if (!k)
    return;
  if (manta__ring_put(&k->ring, at.pos, (const uint8_t *)m->data + sizeof at, m->len - sizeof at,
                      at.last, &wake) < 0)
    manta__warn("bridge to %s: rows that do not fit", r->near->name);
  if (wake) {
    ssize_t n = write(r->near->wake_fd, &(uint64_t){1}, 8);
    (void)n; // the counter is full: then it is awake
  }
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

static void on_output(struct manta__bridge_run *r, struct manta__msg *m)
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
}

static void on_live(struct manta__bridge_run *r, struct manta__msg *m)
{
  if (m->id.rank == 0 || r->show_all)
    manta__near_to_driver(r->near, m);
}

// --- the writer ---------------------------------------------------------------------------------

static void tell_both(struct manta__bridge_run *r, struct manta__msg *m)
{
  m->group = r->group;
  m->id = r->id;
  m->fds = 0;
  manta__near_to_driver(r->near, m);
  if (m->kind != MANTA__M_WARN) {
    r->writing = false;
    manta__near_to_far(r->near, m, NULL);
  }
}

static void say_failed(struct manta__bridge_run *r, int64_t iteration, const char *why)
{
  manta_value v = MANTA_MAP(MANTA_KV_INT("iteration", iteration), MANTA_KV_STR("message", why));
  struct manta__msg m = {.kind = MANTA__M_STOREFAIL};
  void *bytes;
  if (manta_value_pack(&v, &bytes, &m.len, NULL) < 0)
    return;
  m.data = bytes;
  tell_both(r, &m);
  manta_free(bytes);
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
  manta_status st = manta__conn_create(&r->writer, sock, NULL, err);
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
      tell_both(r, &m);
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
static void on_snapshot(struct manta__bridge_run *r, struct manta__msg *m)
{
  struct manta__snap_msg s;
  manta_error err = MANTA_ERROR_INIT;
  if (m->len != sizeof s)
    return;
  memcpy(&s, m->data, sizeof s);
  if (m->id.run != r->id.run || m->id.attempt != r->id.attempt) {
    struct manta__msg done = {.kind = MANTA__M_STORED, .group = r->group, .id = r->id};
    manta__near_to_far(r->near, &done, NULL);
  } else if (write_snapshot(r, m, &s, &err) < 0) {
    say_failed(r, s.iteration, err.message);
  }
}

// --- messages of the far half -------------------------------------------------------------------

static void on_gone(struct manta__bridge_run *r, struct manta__msg *m)
{
  struct manta__mirror *k = find_mirror(r, wid_of(m));
  manta__near_to_driver(r->near, m);
  if (k)
    k->gone = true;
  bury(r);
  if (r->disband && !r->mirrors)
    manta__bridge_run_disband(r->near, r->group);
}

bool manta__bridge_run_take(struct manta__near *n, struct manta__msg *m)
{
  struct manta__bridge_run *r = m->kind == MANTA__M_WORKER || m->kind == MANTA__M_ROWS ||
                                        m->kind == MANTA__M_GONE || m->kind == MANTA__M_OUTPUT ||
                                        m->kind == MANTA__M_LIVE || m->kind == MANTA__M_WRITE
                                    ? find(n, m->group)
                                    : NULL;
  if (!r || (m->kind == MANTA__M_WORKER && m->call == 0))
    return false;
  switch (m->kind) {
  case MANTA__M_WORKER: // with a ring
    announce(r, m, wid_of(m));
    break;
  case MANTA__M_ROWS:
    on_rows(r, m);
    break;
  case MANTA__M_GONE:
    on_gone(r, m);
    break;
  case MANTA__M_OUTPUT:
    on_output(r, m);
    break;
  case MANTA__M_LIVE:
    on_live(r, m);
    break;
  default:
    on_snapshot(r, m);
  }
  return true;
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

// The directory stays here; of all that ranks print, the far half is to send everything.
static void take_run(struct manta__bridge_run *r, struct manta__msg *m, const manta_value *v)
{
  r->job = (struct manta__writer_job){
      .rundir = manta__msg_take_fd(m, 0),
      .keep_last = (int)manta_value_as_int(manta_value_get(v, "keep_last"), 2),
      .keep_best = (int)manta_value_as_int(manta_value_get(v, "keep_best"), 0),
      .score_min = manta_value_as_bool(manta_value_get(v, "score_min"), false)};
  r->logdir = manta__msg_take_fd(m, 1);
  r->log_limit = manta_value_as_int(manta_value_get(v, "log_limit"), 64 << 20);
}

void manta__bridge_run_begin(struct manta__near *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__bridge_run *r = find(n, m->group);
  if (!r || manta__msg_value(m, &v, NULL) < 0)
    return;
  bool exec = manta_value_as_bool(manta_value_get(&v, "exec"), false);
  if (!exec)
    leave_run(r);
  r->id = m->id;
  r->disband = false;
  r->show_all = manta_value_as_bool(manta_value_get(&v, "show_all"), false);
  if (!exec)
    take_run(r, m, &v);
  manta_value_put_bool(&v, "show_all", true);
  struct manta__msg out = {.kind = m->kind, .group = m->group, .id = m->id};
  manta__near_to_far(n, &out, &v);
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
  manta_value v =
      MANTA_MAP(MANTA_KV_INT("status", why->status), MANTA_KV_STR("message", why->message));
  struct manta__msg m = {.kind = MANTA__M_NOROOM, .group = r->group, .id = r->id};
  if (r->near->driver)
    manta__conn_send_value(r->near->driver, &m, &v, NULL);
}

void manta__bridge_run_attempt(struct manta__near *n, struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__bridge_run *r = find(n, m->group);
  if (!r)
    return;
  r->id = m->id;
  int blob = m->flags & MANTA__FRAME_BLOB ? 1 : 0, ckpt = m->fds - 1 - blob;
  if (ckpt > 0 && send_checkpoint(r, m->fd + 1, ckpt, &err) < 0) {
    refuse(r, &err);
    return;
  }
  struct manta__msg out = *m;
  out.call = ckpt > 0; // with the checkpoint that it has
  out.fds = 1 + blob;
  out.fd[1] = m->fd[m->fds - 1];
  manta__near_to_far(n, &out, NULL);
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
