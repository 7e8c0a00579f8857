/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "ckpt/slot.h"
#include "ckpt/store.h"
#include "event/log.h"
#include "group/proto.h"
#include "group/ring.h"
#include "sys/proc.h"
#include "sys/sock.h"
#include "wire/conn.h"

#define LOCK_WAIT_S    60.0  /* for a writer before us to finish */
#define ROWS_WAIT_S    600.0 /* for the driver to have logged the rows of a snapshot */
#define ROWS_LAST_S    2.0   /* … when its run is over for the agent, or that is gone */
#define MAX_LOST_RINGS 4096

struct writer {
  manta__conn *conn;
  int rundir;
  struct manta__retention keep;
  manta__store *store;
  bool driver_lost, agent_lost;
  bool logged;            // false: a light run, whose rows somebody else keeps
  manta__log_writer *log; // of the salvage
};

static manta_status open_store(struct writer *w, manta_error *err)
{
  if (w->store)
    return MANTA_OK;
  return manta__store_open(&w->store, w->rundir, &w->keep, err);
}

// --- rows of a lost driver ----------------------------------------------------------------------

static manta_status save_row(struct writer *w, const struct manta__ring_rec *rec, manta_error *err)
{
  return manta__log_add(w->log, MANTA__EV_ROW, &rec->id, rec->wall_ns, manta__ring_payload(rec),
                        rec->used, err);
}

static void salvage(struct writer *w, struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ring ring;
  w->driver_lost = true;
  if (!w->logged)
    return;
  int fd = manta__msg_take_fd(m, 0);
  if (fd < 0 || manta__ring_open(&ring, fd, &err) < 0)
    return;
  manta_status st = w->log ? MANTA_OK : manta__log_writer_open(&w->log, w->rundir, false, &err);
  const struct manta__ring_rec *rec;
  manta_status damaged = MANTA_OK;
  while (st == MANTA_OK && (rec = manta__ring_next(&ring, &damaged)))
    st = save_row(w, rec, &err);
  if (st == MANTA_OK)
    st = manta__log_flush(w->log, &err);
  if (st == MANTA_OK)
    manta__ring_release(&ring);
  else
    manta__warn("rows of a lost driver: %s", err.message);
  manta__ring_close(&ring);
}

// --- writing ------------------------------------------------------------------------------------

static bool handle_while_waiting(struct writer *w, int64_t by);

// Whether the rows that belong to it can still come, and be kept.
static manta_status check_rows(const struct writer *w, const struct manta__ring *ring, uint64_t pos,
                               const struct manta__slot_meta *slot, manta_error *err)
{
  if (w->driver_lost && !w->logged) // a trial that went on from it would never report them
    return manta_error_set(err, MANTA_ECANCELED, "the rows before it went with the driver");
  if (atomic_load(&slot->unreported) || (w->driver_lost && atomic_load(&ring->h->head) < pos))
    return manta_error_set(err, MANTA_ECANCELED, "the report that it was saved for never came");
  return MANTA_OK;
}

// The rows that belong to the snapshot must be in run.log first: decision 1.
static manta_status await_rows(struct writer *w, struct manta__ring *ring, uint64_t pos,
                               const struct manta__slot_meta *slot, manta_error *err)
{
  int64_t by = manta__deadline(ROWS_WAIT_S), last = MANTA__NEVER;
  for (int64_t pause = 200000; atomic_load(&ring->h->tail) < pos;) {
    MANTA_TRY(check_rows(w, ring, pos, slot, err));
    if (w->driver_lost)
      return MANTA_OK; // salvaged
    if (w->agent_lost && last == MANTA__NEVER)
      last = manta__deadline(ROWS_LAST_S);
    if (manta__now() > (last < by ? last : by))
      return manta_error_set(err, MANTA_ETIMEDOUT, "the driver does not log the rows before it");
    int64_t until = manta__now() + pause;
    handle_while_waiting(w, until);
    pause = pause < 5000000 ? pause * 2 : pause;
  }
  return MANTA_OK;
}

static int last_segment(int rundir)
{
  char name[32] = "run.log";
  int n = 1;
  for (;; n++) {
    snprintf(name, sizeof name, "run.log.%d", n + 1);
    if (faccessat(rundir, name, F_OK, 0) < 0)
      return n;
  }
}

// What was written becomes a checkpoint when its rows are kept.
static manta_status commit(struct writer *w, struct manta__ring *ring, uint64_t pos, int slot,
                           const struct manta__manifest *man, manta_error *err)
{
  struct manta__slot_meta *meta;
  int last = last_segment(w->rundir);
  manta_status st = manta__slot_map_meta(slot, &meta, err);
  if (st == MANTA_OK) {
    st = await_rows(w, ring, pos, meta, err);
    munmap(meta, MANTA__SLOT_META);
  }
  if (st == MANTA_OK && w->logged)
    st = manta__log_sync(w->rundir, last > 1 ? last - 1 : 1, last_segment(w->rundir), err);
  if (st == MANTA_OK)
    st = manta__store_commit(w->store, man, err);
  if (st < 0)
    manta__store_discard(w->store, man);
  return st;
}

static manta_status persist(struct writer *w, struct manta__msg *m, const struct manta__snap_msg *s,
                            struct manta__manifest *man, manta_error *err)
{
  struct manta__ring ring;
  int slot = manta__msg_take_fd(m, 0), ring_fd = manta__msg_take_fd(m, 1);
  manta_status st = manta__ring_open(&ring, ring_fd, err);
  if (st == MANTA_OK) {
    st = open_store(w, err);
    if (st == MANTA_OK)
      st = manta__store_write(w->store, slot, man, err);
    if (st == MANTA_OK)
      st = commit(w, &ring, s->ring_pos, slot, man, err);
    manta__ring_close(&ring);
  }
  manta__fd_close(&slot);
  return st;
}

static void reply(struct writer *w, uint16_t kind, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = kind};
  if (manta__conn_send_value(w->conn, &m, v, &err) < 0 ||
      manta__conn_drain(w->conn, manta__deadline(30), &err) < 0)
    w->agent_lost = true;
}

static void serve_write(struct writer *w, struct manta__msg *m)
{
  struct manta__snap_msg s;
  struct manta__manifest man;
  manta_error err = MANTA_ERROR_INIT;
  if (!manta__msg_copy(m, &s, sizeof s))
    return;
  int64_t t0 = manta__now();
  manta_status st = persist(w, m, &s, &man, &err);
  if (st < 0) {
    manta_value v = MANTA__PACK(storefail_msg, .iteration = s.iteration, .message = err.message);
    reply(w, MANTA__M_STOREFAIL, &v);
    return;
  }
  manta_value score = man.has_score ? manta_value_real(man.score) : (manta_value){0};
  manta_value v = MANTA__PACK(stored_msg, .dir = man.name, .iteration = man.iteration,
                              .bytes = (int64_t)man.bytes,
                              .seconds = (double)(manta__now() - t0) * 1e-9, .score = &score);
  reply(w, MANTA__M_STORED, &v);
}

// Only the loss of the driver can come while a write waits for its rows.
static bool handle_while_waiting(struct writer *w, int64_t by)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  if (w->agent_lost) {
    usleep(1000);
    return false;
  }
  int rc = manta__conn_wait(w->conn, by, &m, &err);
  if (rc == 1) {
    if (m.kind == MANTA__M_DRIVER_LOST)
      salvage(w, &m);
    manta__msg_close(&m);
    return true;
  }
  w->agent_lost = rc != MANTA_ETIMEDOUT;
  return false;
}

// Its warnings go to the user by the way its results go. It holds nobody's output open.
static void warn_by_message(void *ctx, manta_log_level level, const char *text)
{
  manta_value v = MANTA__PACK(warn_msg, .text = text);
  reply(ctx, MANTA__M_WARN, &v);
}

void manta__writer_env(char *env[MANTA__CHILD_ENV], enum manta__role role)
{
  size_t n = 1;
  memset(env, 0, MANTA__CHILD_ENV * sizeof *env);
  env[0] = (char *)(uintptr_t)manta__role_env(role);
  for (char **e = environ; *e && n < MANTA__CHILD_ENV - 1; e++)
    if (!strncmp(*e, "LD_", 3))
      env[n++] = *e;
}

manta_status manta__writer_start(const struct manta__writer_job *job, int *sock, pid_t *pid,
                                 manta_error *err)
{
  int end[2];
  char last[16], best[16];
  snprintf(last, sizeof last, "%d", job->keep_last);
  snprintf(best, sizeof best, "%d", job->keep_best);
  char *argv[] = {(char *)"manta-writer", last, best, (char *)(job->score_min ? "min" : "max"),
                  NULL};
  char *env[MANTA__CHILD_ENV];
  manta__writer_env(env, MANTA__ROLE_WRITER);
  MANTA_TRY(manta__sock_pair(end, err));
  int fds[] = {end[1], job->rundir};
  manta_status st = manta__proc_spawn(pid, "/proc/self/exe", argv, env, fds, 2, -1, err);
  close(end[1]);
  if (st < 0)
    close(end[0]);
  else
    *sock = end[0];
  return st;
}

int manta__writer_main(int conn, int rundir, char *const argv[])
{
  struct writer w = {.rundir = rundir, .logged = faccessat(rundir, "run.log", F_OK, 0) == 0};
  manta_error err = MANTA_ERROR_INIT;
  prctl(PR_SET_NAME, "manta-writer");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, SIG_IGN); // a notice to the whole job must not cut a write short
  int niceness = nice(5);   // than the run it belongs to, whatever that one's is
  (void)niceness;
  w.keep = (struct manta__retention){
      .keep_last = argv[1] ? (int)strtol(argv[1], NULL, 10) : 2,
      .keep_best = argv[1] && argv[2] ? (int)strtol(argv[2], NULL, 10) : 0,
      .score_min = argv[1] && argv[2] && argv[3] && !strcmp(argv[3], "min"),
      .lock_wait_s = LOCK_WAIT_S};
  if (manta__conn_create(&w.conn, conn, manta__proto_end(MANTA__WRITER_TO_AGENT), &err) < 0)
    return 1;
  manta__fd_mute();
  manta_set_log(warn_by_message, &w);
  struct manta__msg m;
  while (!w.agent_lost && manta__conn_wait(w.conn, MANTA__NEVER, &m, &err) == 1) {
    if (m.kind == MANTA__M_WRITE)
      serve_write(&w, &m);
    else if (m.kind == MANTA__M_DRIVER_LOST)
      salvage(&w, &m);
    manta__msg_close(&m);
  }
  manta_set_log(NULL, NULL);
  manta__log_writer_close(w.log);
  manta__store_close(w.store);
  manta__conn_destroy(w.conn);
  return 0;
}
