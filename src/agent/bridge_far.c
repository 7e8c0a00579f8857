/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/bridge_far.c - the far half of a bridge: looks like a driver to its agent.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/manta.h>

#include "agent/bridge.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "sys/proc.h"
#include "sys/sock.h"

#define PIECE      (32u << 10) /* bytes of a ring in one message */
#define ROWS_AHEAD (1u << 20)  /* bytes that wait to be sent: no more rows then */
#define OPEN_S     60.0        /* for the near half's first word */

struct source { /* the ring of a worker */
  struct source *next;
  uint32_t group;
  int64_t wid;
  struct manta__ring ring;
  bool damaged;
};

struct ckpt { /* what attempts of a trainer begin from */
  struct ckpt *next;
  uint32_t group;
  int fd;
};

struct far {
  manta__stream *near; /* NULL: gone */
  manta__conn *agent;  /* NULL: gone */
  pid_t agent_pid;
  int wake_fd;
  struct source *sources;
  struct ckpt *ckpts;
  double timeout_s;
  int64_t heard_ns, beat_ns;
  bool refused; /* the near half was told why this ends */
};

static void to_near(struct far *f, const struct manta__msg *m, uint64_t lane, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  if (!f->near)
    return;
  manta_status st = v ? manta__stream_send_value(f->near, m, lane, v, &err)
                      : manta__stream_send(f->near, m, lane, &err);
  if (st < 0 && st != MANTA_ECLOSED)
    manta__warn("manta agent: %s", err.message);
}

static void to_agent(struct far *f, const struct manta__msg *m, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  if (!f->agent)
    return;
  manta_status st =
      v ? manta__conn_send_value(f->agent, m, v, &err) : manta__conn_send(f->agent, m, &err);
  if (st < 0 && st != MANTA_ECLOSED)
    manta__warn("manta agent: %s", err.message);
}

static void refuse(struct far *f, manta_status st, const char *message)
{
  manta_value v = MANTA__PACK(refused_msg, .status = st, .message = message);
  if (!f->refused)
    to_near(f, &(struct manta__msg){.kind = MANTA__M_REFUSED}, 0, &v);
  f->refused = true;
}

// --- rings --------------------------------------------------------------------------------------

static void add_source(struct far *f, struct manta__msg *m, int64_t wid)
{
  manta_error err = MANTA_ERROR_INIT;
  struct source *s = manta__calloc(1, sizeof *s);
  if (!s || manta__ring_open(&s->ring, manta__msg_take_fd(m, 0), &err) < 0) {
    manta__warn("manta agent: a ring: %s", err.message);
    manta__free(s);
    return;
  }
  s->group = m->group;
  s->wid = wid;
  s->next = f->sources;
  f->sources = s;
}

static void drop_source(struct far *f, int64_t wid)
{
  for (struct source **at = &f->sources; *at; at = &(*at)->next)
    if ((*at)->wid == wid) {
      struct source *s = *at;
      *at = s->next;
      manta__ring_close(&s->ring);
      manta__free(s);
      return;
    }
}

static void send_part(struct far *f, const struct source *s, struct manta__rows_msg *at,
                      const uint8_t *p, size_t n)
{
  uint8_t buf[sizeof *at + PIECE];
  memcpy(buf, at, sizeof *at);
  memcpy(buf + sizeof *at, p, n);
  struct manta__msg m = {
      .kind = MANTA__M_ROWS, .group = s->group, .data = buf, .len = sizeof *at + n};
  to_near(f, &m, 0, NULL);
}

// A ring that its worker scribbled over gives nothing any more.
static size_t send_rows(struct far *f, struct source *s, size_t limit)
{
  struct manta__rows_msg at = {.wid = s->wid};
  size_t n, sent = 0;
  manta_status st = MANTA_OK;
  const uint8_t *p;
  while (!s->damaged && sent < limit && (p = manta__ring_take(&s->ring, PIECE, &at.pos, &n, &st)))
    for (size_t part; n > 0; n -= part, p += part, at.pos += part, sent += part) {
      part = n < PIECE ? n : PIECE;
      at.last = part == n;
      send_part(f, s, &at, p, part);
    }
  s->damaged |= st < 0;
  return sent;
}

// Rows come before what is said about their end.
static void send_all_rows(struct far *f, uint32_t group)
{
  for (struct source *s = f->sources; s; s = s->next)
    if (s->group == group)
      send_rows(f, s, SIZE_MAX);
}

// True while rows keep coming; else their producers wake us.
static bool pump_rows(struct far *f)
{
  bool flowing = false;
  for (struct source *s = f->sources; s && f->near; s = s->next)
    if (manta__stream_queued(f->near) < ROWS_AHEAD)
      flowing |= send_rows(f, s, ROWS_AHEAD) > 0;
    else
      flowing = true;
  for (struct source *s = f->sources; s && !flowing; s = s->next)
    flowing = !s->damaged && !manta__ring_sleep(&s->ring);
  return flowing;
}

static manta_status on_tail(struct far *f, struct manta__msg *m, manta_error *err)
{
  struct manta__rows_msg at;
  if (!manta__msg_copy(m, &at, sizeof at))
    return manta_error_set(err, MANTA_EPROTO, "TAIL with %zu bytes", m->len);
  for (struct source *s = f->sources; s; s = s->next)
    if (s->wid == at.wid)
      manta__ring_release_to(&s->ring, at.pos);
  return MANTA_OK;
}

// --- messages of the near half ------------------------------------------------------------------

static manta_status on_open(struct far *f, struct manta__msg *m, manta_error *err)
{
  manta_value v = {0};
  struct manta__open_msg in;
  char text[256];
  MANTA_TRY(manta__open_msg_unpack(m, &v, &in, err));
  if (strcmp(in.version, manta_version()) != 0 || in.protocol != MANTA__PROTO_VERSION) {
    snprintf(text, sizeof text, "manta is %s there, and %s at the driver", manta_version(),
             in.version);
    refuse(f, MANTA_EUNSUPPORTED, text);
  }
  f->timeout_s = in.timeout;
  manta_value_fini(&v);
  return MANTA_OK;
}

static manta_status on_beat(struct far *f, struct manta__msg *m, manta_error *err)
{
  return MANTA_OK;
}

static manta_status on_hello(struct far *f, struct manta__msg *m, manta_error *err)
{
  manta_value v = {0};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  struct manta__hello_msg in;
  struct manta__msg out = {.kind = m->kind, .call = m->call, .fd = {f->wake_fd}, .fds = 1};
  MANTA_TRY(manta__hello_msg_unpack(m, &v, &in, err));
  in.far = true;
  manta_value to = manta__hello_msg_map(pairs, &in);
  to_agent(f, &out, &to);
  manta_value_fini(&v);
  return MANTA_OK;
}

// The program must lie at the same path here, and be the same build.
static manta_status find_program(struct manta__program_msg *p, manta_error *err)
{
  struct stat sb;
  uint64_t hash;
  char host[256] = "?";
  gethostname(host, sizeof host - 1);
  if (stat(p->path, &sb) < 0 || manta__exe_hash(p->path, &hash, NULL) < 0)
    return manta_error_set(err, MANTA_ENOENT,
                           "the program %s is not on host %s: %m\nhint: it must lie at the same "
                           "path on every host",
                           p->path, host);
  if (hash >> 1 != p->hash)
    return manta_error_set(err, MANTA_ESTATE,
                           "the program %s on host %s is not the driver's build\nhint: copy the "
                           "driver's program there",
                           p->path, host);
  p->dev = sb.st_dev;
  p->ino = sb.st_ino;
  p->size = (uint64_t)sb.st_size;
  p->mtime_ns = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec;
  return MANTA_OK;
}

static manta_status on_program(struct far *f, struct manta__msg *m, manta_error *err)
{
  manta_value v = {0};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  struct manta__program_msg in;
  manta_error why = MANTA_ERROR_INIT;
  MANTA_TRY(manta__program_msg_unpack(m, &v, &in, err));
  if (find_program(&in, &why) < 0)
    in.why = why.message;
  int cwd = open(in.cwd ? in.cwd : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (cwd < 0)
    cwd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC); // the job says it, if it matters
  struct manta__msg out = {.kind = m->kind, .fd = {cwd}, .fds = cwd >= 0};
  manta_value to = manta__program_msg_map(pairs, &in);
  to_agent(f, &out, &to);
  manta__fd_close(&cwd);
  manta_value_fini(&v);
  return MANTA_OK;
}

static struct ckpt *ckpt_of(struct far *f, uint32_t group)
{
  for (struct ckpt *c = f->ckpts; c; c = c->next)
    if (c->group == group)
      return c;
  struct ckpt *c = manta__calloc(1, sizeof *c);
  if (c) {
    *c = (struct ckpt){.next = f->ckpts, .group = group, .fd = -1};
    f->ckpts = c;
  }
  return c;
}

static manta_status on_ckpt(struct far *f, struct manta__msg *m, manta_error *err)
{
  struct ckpt *c = ckpt_of(f, m->group);
  if (!c)
    return MANTA_OK;
  manta__fd_close(&c->fd);
  c->fd = manta__msg_take_fd(m, 0);
  return MANTA_OK;
}

static manta_status on_attempt(struct far *f, struct manta__msg *m, manta_error *err)
{
  manta_value v = {0};
  struct manta__attempt_msg in;
  struct manta__msg out = *m;
  if (m->fds != 1 || (m->flags & MANTA__FRAME_BLOB))
    return manta_error_set(err, MANTA_EPROTO, "ATTEMPT with %d descriptors", m->fds);
  MANTA_TRY(manta__attempt_msg_unpack(m, &v, &in, err));
  struct ckpt *c = in.stored ? ckpt_of(f, m->group) : NULL;
  if (c && c->fd >= 0)
    out.fd[out.fds++] = c->fd;
  to_agent(f, &out, NULL);
  manta_value_fini(&v);
  return MANTA_OK;
}

static manta_status pass_on(struct far *f, struct manta__msg *m, manta_error *err)
{
  MANTA_TRY(manta__proto_check(m, MANTA__NEAR_TO_FAR, err));
  to_agent(f, m, NULL);
  return MANTA_OK;
}

static manta_status (*const handlers[MANTA__M_KINDS])(struct far *f, struct manta__msg *m,
                                                      manta_error *err) = {
    [MANTA__M_OPEN] = on_open,       [MANTA__M_BEAT] = on_beat, [MANTA__M_HELLO] = on_hello,
    [MANTA__M_PROGRAM] = on_program, [MANTA__M_CKPT] = on_ckpt, [MANTA__M_ATTEMPT] = on_attempt,
    [MANTA__M_TAIL] = on_tail,
};

static void read_near(struct far *f)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  bool heard = false;
  int rc = 0;
  while (f->near && !f->refused && (rc = manta__stream_recv(f->near, &m, &heard, &err)) == 1) {
    bool ours = m.kind < MANTA__M_KINDS && handlers[m.kind];
    manta_status st = (ours ? handlers[m.kind] : pass_on)(f, &m, &err);
    manta__msg_close(&m);
    if (st < 0)
      refuse(f, st, err.message);
  }
  if (heard)
    f->heard_ns = manta__now();
  if (rc == MANTA_EPROTO) {
    refuse(f, MANTA_EPROTO, err.message);
  } else if (f->near && rc < 0) {
    manta__stream_destroy(f->near);
    f->near = NULL;
  }
}

// --- messages of the agent ----------------------------------------------------------------------

static uint64_t lane_of(const struct manta__msg *m)
{
  bool last = m->kind == MANTA__M_DONE || m->kind == MANTA__M_GONE; // of one worker, in this order
  return last ? (uint64_t)m->group << 32 | (uint32_t)(m->id.rank + 1) : 0;
}

// The near half makes a ring of its own.
static void on_worker(struct far *f, struct manta__msg *m)
{
  manta_value v = {0};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  struct manta__worker_msg in;
  struct manta__msg out = {.kind = m->kind, .group = m->group, .id = m->id};
  if (manta__worker_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  in.ring = m->fds > 0;
  if (in.ring)
    add_source(f, m, in.wid);
  manta_value to = manta__worker_msg_map(pairs, &in);
  to_near(f, &out, lane_of(m), &to);
  manta_value_fini(&v);
}

static void on_gone(struct far *f, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__gone_msg in;
  to_near(f, m, lane_of(m), NULL);
  if (manta__gone_msg_unpack(m, &v, &in, NULL) == MANTA_OK)
    drop_source(f, in.wid);
  manta_value_fini(&v);
}

static void on_agent(struct far *f, struct manta__msg *m)
{
  if (m->kind == MANTA__M_DONE || m->kind == MANTA__M_GONE || m->kind == MANTA__M_WRITE)
    send_all_rows(f, m->group);
  f->refused |= m->kind == MANTA__M_REFUSED;
  if (m->kind == MANTA__M_WORKER)
    on_worker(f, m);
  else if (m->kind == MANTA__M_GONE)
    on_gone(f, m);
  else
    to_near(f, m, lane_of(m), NULL);
}

static void read_agent(struct far *f)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int rc = 0;
  while (f->agent && f->near && manta__stream_queued(f->near) < BRIDGE_PAUSE &&
         (rc = manta__conn_recv(f->agent, &m, &err)) == 1) {
    on_agent(f, &m);
    manta__msg_close(&m);
  }
  if (f->agent && rc < 0) {
    manta__conn_destroy(f->agent);
    f->agent = NULL;
  }
}

// --- the loop -----------------------------------------------------------------------------------

static void await_events(struct far *f, bool flowing)
{
  bool full = manta__stream_queued(f->near) >= BRIDGE_PAUSE;
  short in = POLLIN, out = manta__stream_pending(f->near) ? POLLOUT : 0;
  short agent = (short)((full ? 0 : POLLIN) | (manta__conn_pending(f->agent) ? POLLOUT : 0));
  struct pollfd p[] = {{.fd = manta__stream_in(f->near), .events = in},
                       {.fd = out ? manta__stream_out(f->near) : -1, .events = out},
                       {.fd = manta__conn_fd(f->agent), .events = agent},
                       {.fd = flowing ? -1 : f->wake_fd, .events = POLLIN}};
  int64_t until = f->beat_ns, batch = manta__deadline(BRIDGE_BATCH_S);
  if (flowing && batch < until)
    until = batch;
  poll(p, 4, manta__stream_more(f->near) ? 0 : manta__left_ms(until));
  uint64_t count;
  ssize_t n = p[3].revents ? read(f->wake_fd, &count, 8) : 0;
  (void)n;
  if (out)
    manta__stream_flush(f->near, NULL); // a failure shows when reading
  if (manta__conn_pending(f->agent))
    manta__conn_flush(f->agent, NULL);
}

static void serve(struct far *f)
{
  while (f->near && f->agent && !f->refused) {
    int64_t now = manta__now();
    read_near(f);
    read_agent(f);
    bool flowing = pump_rows(f);
    if (now >= f->beat_ns) {
      f->beat_ns = now + (int64_t)(manta__bridge_beat(f->timeout_s) * 1e9);
      to_near(f, &(struct manta__msg){.kind = MANTA__M_BEAT}, 0, NULL);
    }
    if ((double)(now - f->heard_ns) * 1e-9 > f->timeout_s)
      return; // nobody is there any more
    if (f->near && f->agent)
      await_events(f, flowing);
  }
}

// --- the beginning and the end ------------------------------------------------------------------

// The stream is ours alone: whatever else prints, prints on standard error.
static manta_status take_stdio(struct far *f, manta_error *err)
{
  int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (in < 0 || out < 0 || null < 0)
    return manta_error_set(err, MANTA_EIO, "standard input and output: %m");
  dup2(null, STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  close(null);
  return manta__stream_create(&f->near, in, out, manta__proto_end(MANTA__FAR_TO_NEAR), err);
}

static manta_status start_agent(struct far *f, manta_error *err)
{
  char *argv[] = {(char *)"manta-agent", NULL}, self[4096];
  int sock;
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n < 0)
    return manta_error_set(err, MANTA_EIO, "/proc/self/exe: %m");
  self[n] = 0;
  setenv("MANTA_BIN", self, 1); // the agent is of this very build
  MANTA_TRY(manta__engine_start_role(MANTA__ROLE_AGENT, argv, &sock, &f->agent_pid, err));
  manta_status st =
      manta__conn_create(&f->agent, sock, manta__proto_end(MANTA__DRIVER_TO_AGENT), err);
  if (st < 0)
    close(sock);
  return st;
}

// Agent and workers end when its socket closes; an agent that nobody waits for would be a zombie
// where no init reaps.
static int end_agent(struct far *f)
{
  manta__conn_destroy(f->agent);
  f->agent = NULL;
  return f->agent_pid > 0 ? manta__engine_end(f->agent_pid, false) : -1;
}

static void say_last(struct far *f, bool agent_gone, int status)
{
  char how[64] = "cause unknown", text[128];
  manta_error err = MANTA_ERROR_INIT;
  if (!f->near)
    return;
  if (status >= 0)
    manta__proc_explain(status, how, sizeof how);
  snprintf(text, sizeof text, "its agent died: %s", how);
  if (agent_gone && !(status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0))
    refuse(f, MANTA_EAGENT, text);
  int64_t by = manta__deadline(1);
  while (manta__stream_queued(f->near) > 0 && manta__now() < by &&
         manta__stream_flush(f->near, &err) == MANTA_OK)
    manta__fd_wait(manta__stream_out(f->near), true, by);
}

int manta__bridge_far_main(void)
{
  static struct far f = {.wake_fd = -1, .timeout_s = OPEN_S};
  manta_error err = MANTA_ERROR_INIT;
  prctl(PR_SET_NAME, "manta-stdio");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  f.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  f.heard_ns = manta__now();
  if (take_stdio(&f, &err) < 0 || start_agent(&f, &err) < 0) {
    manta__error("manta agent: %s", err.message);
    refuse(&f, err.status, err.message);
  } else {
    serve(&f);
  }
  bool agent_gone = !f.agent;
  say_last(&f, agent_gone, end_agent(&f));
  manta__stream_destroy(f.near);
  return 0;
}
