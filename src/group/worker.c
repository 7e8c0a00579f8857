/* SPDX-License-Identifier: Apache-2.0 */
#include "group/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pack.h"
#include "group/apart.h"
#include "group/place.h"
#include "group/proto.h"
#include "sys/crash.h"
#include "sys/lifeline.h"
#include "sys/omp.h"
#include "sys/proc.h"
#include "sys/robust.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define SEND_TIMEOUT 60.0 /* seconds an agent may take to read what a worker says */

static struct manta__worker self = {.lifeline = -1,
                                    .wake = -1,
                                    .ring = {.fd = -1},
                                    .speech = PTHREAD_MUTEX_INITIALIZER,
                                    .hearing = PTHREAD_MUTEX_INITIALIZER};

_Noreturn static void die(const char *what, const manta_error *err)
{
  manta__error("worker: %s: %s", what, err->message);
  _exit(70);
}

// Output goes to the agent, buffered as on a terminal: what was printed before a crash is seen.
static void take_output(int out, int err)
{
  int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0)
    dup2(null, STDIN_FILENO);
  manta__fd_close(&null);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  close(out);
  close(err);
  __fpurge(stdout); // printed before manta_init: the driver has said it, not every worker again
  setvbuf(stdout, NULL, _IOLBF, 0);
  setvbuf(stderr, NULL, _IONBF, 0);
}

static int pipes[2] = {-1, -1}; // our output, while a terminal is in its place

static void take_terminal(struct manta__msg *m)
{
  int tty = manta__msg_take_fd(m, 0);
  for (int i = 0; tty >= 0 && i < 2 && pipes[i] < 0; i++)
    pipes[i] = fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, 3);
  for (int i = 0; tty >= 0 && i < 3; i++)
    dup2(tty, i);
  manta__fd_close(&tty);
}

static void leave_terminal(void)
{
  int in = pipes[0] >= 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
  if (in >= 0)
    dup2(in, STDIN_FILENO);
  manta__fd_close(&in);
  for (int i = 0; i < 2; i++) {
    if (pipes[i] >= 0)
      dup2(pipes[i], STDOUT_FILENO + i);
    manta__fd_close(&pipes[i]);
  }
}

// A child that the train function forks shares our sockets: it must neither speak nor hold them
// open.
static bool apart; // … unless it is the one that a job is for

static void forget_in_child(void)
{
  if (apart)
    return;
  self.dead = true;
  manta__fd_close(&self.lifeline);
  manta__fd_close(&self.wake);
  manta__fd_close(&self.ring.fd);
  if (self.conn) {
    int fd = manta__conn_fd(self.conn);
    manta__fd_close(&fd);
  }
}

static manta_status be_born(const int *fds, manta_error *err)
{
  setsid(); // fails harmlessly where exec has done it
  manta__proc_reset_signals();
  prctl(PR_SET_NAME, program_invocation_short_name);
  self.lifeline = fds[MANTA__W_LIFELINE];
  self.wake = fds[MANTA__W_WAKE];
  MANTA_TRY(manta__lifeline_hang_on(self.lifeline, err));
  pthread_atfork(NULL, NULL, forget_in_child);
  manta__crash_trace();
  take_output(fds[MANTA__W_STDOUT], fds[MANTA__W_STDERR]);
  MANTA_TRY(manta__ring_open(&self.ring, fds[MANTA__W_RING], err));
  self.ring.pos = atomic_load(&self.ring.h->head);
  return manta__conn_create(&self.conn, fds[MANTA__W_CONN],
                            manta__proto_end(MANTA__WORKER_TO_AGENT), err);
}

// --- what surrounds a job ------------------------------------------------------------------------

// The payload stays where it is, for all workers of the host; what it says about itself is checked.
static manta_status read_spec(struct manta__job *job, int fd, manta_error *err)
{
  struct manta__job_head h = {0};
  MANTA_TRY(manta__shm_map(fd, &job->map, &job->map_bytes, err));
  if (job->map_bytes >= sizeof h)
    memcpy(&h, job->map, sizeof h);
  size_t room = job->map_bytes < sizeof h ? 0 : job->map_bytes - sizeof h;
  if (h.spec == 0 || h.spec > room)
    return manta_error_set(err, MANTA_EPROTO, "malformed job");
  size_t at = (sizeof h + h.spec + MANTA__JOB_PAGE - 1) / MANTA__JOB_PAGE * MANTA__JOB_PAGE;
  if (h.payload > 0 && (at > job->map_bytes || h.payload > job->map_bytes - at))
    return manta_error_set(err, MANTA_EPROTO, "malformed job");
  job->payload = h.payload > 0 ? (const char *)job->map + at : NULL;
  job->payload_bytes = h.payload;
  return manta_value_unpack(&job->spec, (const char *)job->map + sizeof h, h.spec, err);
}

// Names borrow from the head. Without a list there is only this host.
static manta_status take_hosts(struct manta__job *job, const struct manta__job_msg *head,
                               manta_error *err)
{
  size_t n = head->hosts && head->hosts->count > 0 ? head->hosts->count : 1;
  job->host_name = manta__calloc(2 * n, sizeof *job->host_name);
  job->host_of = manta__calloc((size_t)job->world, sizeof *job->host_of);
  if (!job->host_name || !job->host_of)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a list of hosts");
  job->hosts = (int)n;
  job->host_addr = job->host_name + n;
  for (size_t i = 0; i < n; i++) {
    job->host_name[i] = manta_value_as_string(manta_value_at(head->hosts, i), head->host);
    job->host_addr[i] = manta_value_as_string(manta_value_at(head->addresses, i), "");
    int64_t from = manta_value_as_int(manta_value_at(head->firsts, i), 0);
    for (int64_t r = from < 0 ? 0 : from; r < job->world; r++)
      job->host_of[r] = (int)i;
  }
  return MANTA_OK;
}

// All descriptors behind the first three, but for a blob.
static void take_origin(struct manta__job *job, const struct manta__job_msg *head,
                        struct manta__msg *m)
{
  int n = m->fds - 3 - (m->flags & MANTA__FRAME_BLOB ? 1 : 0);
  struct manta__origin *o = &job->origin;
  o->given = head->given;
  for (o->count = 0; o->count < n && o->count < MANTA__ORIGIN_FDS; o->count++)
    o->fd[o->count] = manta__msg_take_fd(m, 3 + o->count);
}

static manta_status begin_job(struct manta__job *job, const struct manta__job_msg *head,
                              struct manta__msg *m, manta_error *err)
{
  job->world = head->world;
  job->local_rank = head->local_rank;
  job->local_world = head->local_world;
  job->node_rank = head->node_rank;
  job->keep = head->keep;
  job->heap_fd = manta__msg_take_fd(m, 2);
  take_origin(job, head, m);
  if (job->id.rank < 0 || job->id.rank >= job->world || job->local_rank < 0 ||
      (uint32_t)job->local_rank >= job->ctl->cells)
    return manta_error_set(err, MANTA_EPROTO, "rank %d of %d, %d in a segment of %u", job->id.rank,
                           job->world, job->local_rank, job->ctl->cells);
  MANTA_TRY(take_hosts(job, head, err));
  MANTA_TRY(read_spec(job, m->fd[1], err));
  manta__place_mark(head->mark); // before our own environment is gone
  manta__place_environment(manta_value_get(&job->spec, "env"));
  manta__place_take(job, head);
  const char *cwd = manta_value_as_string(manta_value_get(&job->spec, "cwd"), NULL);
  if (cwd && chdir(cwd) < 0)
    return manta_error_set(err, MANTA_EIO, "the driver's directory %s, on host %s: %m", cwd,
                           job->host_name[job->node_rank]);
  return MANTA_OK;
}

manta_status manta__worker_send(struct manta__worker *w, const struct manta__msg *m,
                                manta_error *err)
{
  pthread_mutex_lock(&w->speech);
  manta_status st = manta__conn_send(w->conn, m, err);
  if (st == MANTA_OK)
    st = manta__conn_drain(w->conn, manta__deadline(SEND_TIMEOUT), err);
  pthread_mutex_unlock(&w->speech);
  return st;
}

// `v` is packed here: what is sent is bytes.
static manta_status send_value(struct manta__msg *m, const manta_value *v, manta_error *err)
{
  void *bytes;
  MANTA_TRY(manta_value_pack(v, &bytes, &m->len, err));
  m->data = bytes;
  manta_status st = manta__worker_send(&self, m, err);
  manta_free(bytes);
  return st;
}

static void say(uint16_t kind, const struct manta__ident *id, const manta_value *v, int fd)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = kind, .id = *id, .fd = {fd}, .fds = fd >= 0};
  m.id.seq = ++self.said;
  manta_status st = v ? send_value(&m, v, &err) : manta__worker_send(&self, &m, &err);
  if (st < 0)
    die("the agent does not listen", &err);
}

// A result that is too large for a message becomes a memory file. One for which there is no memory
// is the rank's failure.
static manta_status part_with(struct manta__job *job, manta_value *result, manta_error *err)
{
  void *bytes = NULL;
  size_t n = manta__pack_size(result);
  if (n == 0)
    return manta_error_set(err, MANTA_ETOOBIG, "the result is nested deeper than %d levels",
                           MANTA_VALUE_MAX_DEPTH);
  if (job->result_fd >= 0 || n <= MANTA__RESULT_INLINE)
    return MANTA_OK;
  manta_status st = manta_value_pack(result, &bytes, &n, err);
  manta_value_fini(result);
  if (st == MANTA_OK)
    st = manta__shm_of(MANTA__RESULT_FILE, bytes, n, &job->result_fd, err);
  manta_free(bytes);
  snprintf(job->result_kind, sizeof job->result_kind, "%s", MANTA__RESULT_VALUE);
  return st;
}

static void say_done(struct manta__job *job, manta_status st, manta_error *err, manta_value *result)
{
  if (st < 0)
    manta__fd_close(&job->result_fd);
  manta_status parted = part_with(job, result, st < 0 ? NULL : err);
  if (parted < 0) {
    manta_value_fini(result);
    st = st < 0 ? st : parted;
  }
  uint32_t cause = st == MANTA_EPEERLOST && job->ctl ? atomic_load(&job->ctl->abort) : 0;
  manta_value done =
      MANTA__PACK(done_msg, .status = st, .message = st < 0 ? err->message : "",
                  .lost = cause >= MANTA__ABORT_RANK ? (int)(cause - MANTA__ABORT_RANK) : -1,
                  .kind = job->result_fd >= 0 ? job->result_kind : NULL, .result = result);
  say(MANTA__M_DONE, &job->id, &done, job->result_fd);
  manta__fd_close(&job->result_fd);
  if (job->told)
    atomic_store(job->told, 1);
}

// --- a job ---------------------------------------------------------------------------------------

static struct manta__msg kept; // read by a job that it is not for
static bool has_kept;
static const struct manta__job_ops *job_ops;

static void take_slot(struct manta__msg *m)
{
  struct manta__slot_msg s;
  if (manta__msg_copy(m, &s, sizeof s) && m->fds == 1)
    job_ops->take_slot(s.slot, manta__msg_take_fd(m, 0));
}

// Their GPU memory and their ports are free then.
static manta_status await_predecessors(struct manta__job *job, manta_error *err)
{
  for (;;) {
    struct manta__msg m;
    if (manta__conn_wait(self.conn, MANTA__NEVER, &m, err) < 0)
      die("control connection", err);
    if (m.kind == MANTA__M_JOB || m.kind == MANTA__M_EXIT) {
      kept = m;
      has_kept = true;
      return manta_error_set(err, MANTA_EABORTED, "the attempt does not begin");
    }
    if (m.kind == MANTA__M_SLOT)
      take_slot(&m);
    manta__msg_close(&m);
    if (m.kind == MANTA__M_GO)
      return manta__ctl_check(job->ctl, err);
  }
}

// The life mutex is held around the function: from READY on, a death is known at once.
static manta_status hold(struct manta__job *job, manta_error *err)
{
  job->cell = &job->ctl->cell[job->local_rank];
  if (manta__robust_hold(&job->cell->life) < 0)
    return manta_error_set(err, MANTA_EIO, "life mutex: %m");
  atomic_store(&job->cell->beat_ns, manta__now());
  atomic_store(&job->cell->running, 1);
  say(MANTA__M_READY, &job->id, NULL, -1);
  return MANTA_OK;
}

static manta_status take_job(struct manta__job *job, struct manta__msg *m, manta_error *err)
{
  struct manta__job_msg head;
  *job = (struct manta__job){.worker = &self, .id = m->id, .heap_fd = -1, .result_fd = -1};
  manta_status st = manta__job_msg_unpack(m, &job->head, &head, err);
  if (st == MANTA_OK)
    st = manta__ctl_map(&job->ctl, &job->ctl_bytes, m->fd[0], err);
  if (st == MANTA_OK)
    st = begin_job(job, &head, m, err);
  manta__msg_close(m);
  if (st == MANTA_OK && head.await)
    st = await_predecessors(job, err);
  return st == MANTA_OK ? hold(job, err) : st;
}

static void let_live(struct manta__job *job)
{
  if (job->cell)
    manta__robust_release(&job->cell->life);
  job->over = true;
}

static void tell_end(struct manta__job *job, manta_status st, manta_error *err, manta_value *result)
{
  if (job->cell)
    atomic_store(&job->cell->running, 0);
  fflush(stdout);
  fflush(stderr);
  leave_terminal();
  say_done(job, st, err, result);
  if (!job->told) // else the life is the worker's
    let_live(job);
}

static void drop_spec(struct manta__job *job)
{
  manta_value_fini(&job->spec);
  manta__shm_unmap(job->map, job->map_bytes);
  job->map = NULL;
}

void manta__worker_leave(struct manta__job *job)
{
  manta_error none = MANTA_ERROR_INIT;
  manta_value nothing = {0};
  if (!job->told)
    say(MANTA__M_LEAVES, &job->id, NULL, -1);
  tell_end(job, MANTA_OK, &none, &nothing);
  _exit(0);
}

// All but the spec.
static void drop_job(struct manta__job *job)
{
  manta__fd_close(&job->result_fd);
  manta__shm_unmap(job->ctl, job->ctl_bytes);
  manta__fd_close(&job->heap_fd);
  manta__origin_close(&job->origin);
  manta_value_fini(&job->head);
  manta__free(job->host_name);
  manta__free(job->host_of);
}

// A rank that did not fail by itself, in an attempt that was given up: nothing of it is of use.
static bool is_void(const struct manta__job *job, manta_status st)
{
  bool trains = manta_value_as_bool(manta_value_get(&job->spec, "in_run"), true);
  if (job->keep || !trains || !job->ctl)
    return false;
  return st == MANTA_EPEERLOST || st == MANTA_EABORTED ||
         (st >= 0 && manta__ctl_check(job->ctl, NULL) < 0);
}

_Noreturn static void be_apart(struct manta__job *job)
{
  manta_value result = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = job_ops->run(job, &result, &err);
  tell_end(job, st, &err, &result);
  _exit(0);
}

// A page that a fork and its worker see, or NULL.
static _Atomic uint32_t *shared_word(void)
{
  static _Atomic uint32_t *word;
  void *p =
      word ? word
           : mmap(NULL, sizeof *word, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  word = p == MAP_FAILED ? NULL : p;
  if (word)
    atomic_store(word, 0);
  return word;
}

// Calls the function in a fork, and says what that could not say itself.
static void run_apart(struct manta__job *job)
{
  manta_value nothing = {0};
  manta_error err = MANTA_ERROR_INIT;
  char how[160];
  apart = true;
  pid_t pid = manta__apart_fork(&job_ops->fork);
  if (pid == 0)
    be_apart(job);
  apart = false;
  if (pid < 0)
    manta_error_set(&err, MANTA_EWORKER, "cannot fork: %m");
  int status = pid > 0 ? manta__apart_wait(pid) : 0;
  self.ring.pos = atomic_load(&self.ring.h->head);
  self.ring.seen = atomic_load(&self.ring.h->tail);
  atomic_store(&job->cell->running, 0);
  if (pid > 0 && !atomic_load(job->told)) {
    manta__apart_explain(status, how, sizeof how);
    manta_error_set(&err, MANTA_EWORKER, "pid %d: %s", (int)pid, how);
  }
  if (!atomic_load(job->told))
    say_done(job, err.status, &err, &nothing);
  let_live(job);
}

// True: the job is over.
static bool serve_apart(struct manta__job *job)
{
  if (!manta_value_as_bool(manta_value_get(&job->spec, "apart"), false))
    return false;
  if (job_ops->fork.prepare)
    job_ops->fork.prepare(job->payload, job->payload_bytes);
  if (manta__apart_can() && (job->told = shared_word())) {
    run_apart(job);
    return true;
  }
  say(MANTA__M_LEAVES, &job->id, NULL, -1);
  job->spent = true;
  return false;
}

static void serve_job(struct manta__msg *m)
{
  struct manta__job job;
  manta_value result = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = take_job(&job, m, &err);
  if (st == MANTA_OK && !serve_apart(&job))
    st = job_ops->run(&job, &result, &err);
  bool given_up = job.spent || is_void(&job, st);
  if (!job.over)
    tell_end(&job, st, &err, &result);
  if (given_up)
    _exit(0);
  drop_job(&job);
  drop_spec(&job);
  manta_value_fini(&result);
}

// Of this run, or not at all.
static manta_status await_attempt(struct manta__job *next, uint64_t run, manta_error *err)
{
  for (;;) {
    struct manta__msg m;
    if (manta__conn_wait(self.conn, MANTA__NEVER, &m, err) < 0)
      die("control connection", err);
    if (m.kind == MANTA__M_JOB && m.id.run == run)
      return take_job(next, &m, err);
    if (m.kind == MANTA__M_TERMINAL)
      take_terminal(&m);
    if (m.kind == MANTA__M_JOB || m.kind == MANTA__M_EXIT) {
      kept = m;
      has_kept = true;
      return manta_error_set(err, MANTA_EABORTED, "the run does not continue");
    }
    manta__msg_close(&m);
  }
}

manta_status manta__worker_rejoin(struct manta__job *job, manta_error *err)
{
  struct manta__job next = {.over = true, .heap_fd = -1, .result_fd = -1};
  manta_error why = MANTA_ERROR_INIT;
  manta_value nothing = {0};
  if (self.dead || job->over)
    return manta_error_set(err, MANTA_ESTATE, "this process is not a worker of the run");
  if (manta__ctl_check(job->ctl, &why) != MANTA_EPEERLOST)
    return manta_error_set(err, MANTA_ESTATE, "no rank is lost");
  say(MANTA__M_STAYS, &job->id, NULL, -1);
  tell_end(job, MANTA_EPEERLOST, &why, &nothing);
  manta_status st = await_attempt(&next, job->id.run, err);
  if (st < 0) {
    if (!next.over) { // a job that could not begin
      tell_end(&next, st, err, &nothing);
      drop_job(&next);
      drop_spec(&next);
    }
    return st;
  }
  drop_spec(&next);
  next.spec = job->spec; // the function may hold parts of it
  next.map = job->map;
  next.map_bytes = job->map_bytes;
  next.payload = job->payload;
  next.payload_bytes = job->payload_bytes;
  drop_job(job);
  *job = next;
  return MANTA_OK;
}

static struct manta__msg next_message(void)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m;
  if (has_kept) {
    has_kept = false;
    return kept;
  }
  if (manta__conn_wait(self.conn, MANTA__NEVER, &m, &err) < 0)
    die("control connection", &err);
  return m;
}

void manta__worker_main(const int *fds, const struct manta__job_ops *ops)
{
  manta_error err = MANTA_ERROR_INIT;
  job_ops = ops;
  if (be_born(fds, &err) < 0)
    die("start", &err);
  for (;;) {
    struct manta__msg m = next_message();
    if (m.kind == MANTA__M_SLOT)
      take_slot(&m);
    if (m.kind == MANTA__M_TERMINAL)
      take_terminal(&m);
    if (m.kind == MANTA__M_JOB)
      serve_job(&m);
    else
      manta__msg_close(&m);
    if (m.kind == MANTA__M_EXIT) {
      ops->end();
      return;
    }
  }
}
