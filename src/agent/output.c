/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/output.c - what workers print, on two streams: into logs/rank-N.log, both in one, and
 * rank 0's to the driver.
 *
 * (1) Lines are logged and passed on when they are final (agent/lines.h). What still changes goes
 *     to a driver that shows it, as a whole and at most every LIVE_MS.
 * (2) A driver that does not read loses live lines (they are in the log), never blocks the worker.
 * (3) A worker that prints without end gets its turn among all others: AT_ONCE bytes of a stream.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/lines.h"
#include "agent/logfile.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "sys/sock.h"

#define CHUNK       (32u << 10)
#define AT_ONCE     2  /* chunks: as much as a pipe holds */
#define AT_END      64 /* … of a worker that has said its last */
#define LAST_MAX    400
#define LIVE_MS     40
#define LIVE_MAX    (16u << 10)
#define FAR_BACKLOG (4u << 20) /* bytes on their way to a bridge: more lines are dropped */

struct stream {
  struct manta__output *output;
  int number; // MANTA__STDOUT, MANTA__STDERR
  int fd;
  uv_poll_t poll;
  struct manta__lines lines;
  bool shown; // the driver shows rows of it
};

struct manta__output {
  struct manta__agent_worker *worker;
  struct manta__agent_group *group;
  struct stream stream[2];
  int open; // polls that are not closed yet
  struct manta__logfile log;
  bool failed;   // the log could not be written: said once
  bool settling; // one stream on behalf of the other
  uv_timer_t *live;
  int64_t live_ns;         // when rows were sent last
  char last[LAST_MAX + 1]; // the end of what was printed, for the message about its death
  size_t last_len;
};

// --- final lines ---------------------------------------------------------------------------------

static void to_file(struct manta__output *o, const char *p, size_t n)
{
  int rank = o->worker->rank;
  if (o->group->logdir < 0 || rank < 0 ||
      manta__logfile_write(&o->log, o->group->logdir, rank, o->group->log_limit, p, n))
    return;
  if (!o->failed)
    manta__agent_warn(o->group->agent, o->group->id, "cannot write logs/rank-%d.log: %s", rank,
                      strerror(errno));
  o->failed = true;
}

// A bridge that does not get its bytes away: lines are lost rather than messages.
static bool congested(struct manta__agent_group *g)
{
  struct manta__loop_conn *l = g->agent->driver;
  return g->agent->far && l && manta__conn_queued(l->conn) >= FAR_BACKLOG;
}

static void tell_lost(struct manta__agent_group *g)
{
  if (!g->lines_lost)
    manta__agent_warn(g->agent, g->id,
                      "workers on %s print more than the link to it carries: lines are lost",
                      g->agent->host);
  g->lines_lost = true;
}

static void to_driver(const struct stream *s, uint16_t kind, const char *p, size_t n)
{
  struct manta__agent_group *g = s->output->group;
  struct manta__msg m = {.kind = kind, .group = g->id, .call = (uint64_t)s->number};
  m.id = g->run;
  m.id.rank = s->output->worker->rank;
  m.data = p;
  m.len = n;
  manta__agent_send(g->agent->driver, &m);
}

static bool heard(const struct manta__output *o)
{
  return o->worker->rank == 0 || o->group->show_all;
}

static void remember(struct manta__output *o, const char *p, size_t n)
{
  if (n >= LAST_MAX) {
    p += n - LAST_MAX;
    n = LAST_MAX;
    o->last_len = 0;
  }
  size_t keep = o->last_len < LAST_MAX - n ? o->last_len : LAST_MAX - n;
  memmove(o->last, o->last + o->last_len - keep, keep);
  memcpy(o->last + keep, p, n);
  o->last_len = keep + n;
  o->last[o->last_len] = 0;
}

// Bars of the other stream that have ended came before; they have none before them in turn.
static void settle_other(struct stream *s)
{
  struct manta__output *o = s->output;
  if (o->settling)
    return;
  o->settling = true;
  manta__lines_settle(&o->stream[s == &o->stream[0]].lines);
  o->settling = false;
}

// Rows that became lines are not shown twice.
static void hide_live(struct stream *s)
{
  if (s->shown)
    to_driver(s, MANTA__M_LIVE, "", 0);
  s->shown = false;
}

static void on_final(void *ctx, const char *p, size_t n)
{
  struct stream *s = ctx;
  struct manta__output *o = s->output;
  settle_other(s);
  to_file(o, p, n);
  remember(o, p, n);
  if (!heard(o))
    return;
  hide_live(s);
  if (congested(o->group))
    tell_lost(o->group);
  else
    to_driver(s, MANTA__M_OUTPUT, p, n);
}

// --- rows that change ----------------------------------------------------------------------------

static void send_live(struct stream *s)
{
  char rows[LIVE_MAX];
  size_t n = manta__lines_live(&s->lines, rows, sizeof rows);
  if (n > 0 || s->shown)
    to_driver(s, MANTA__M_LIVE, rows, n);
  s->shown = n > 0;
}

static void on_live(uv_timer_t *t)
{
  struct manta__output *o = t->data;
  manta__agent_timer_stop(&o->live);
  o->live_ns = manta__now();
  for (int i = 0; i < 2; i++)
    if (o->stream[i].lines.changed)
      send_live(&o->stream[i]);
}

static void show_live(struct manta__output *o)
{
  bool changed = o->stream[0].lines.changed || o->stream[1].lines.changed;
  if (!changed || o->live || !o->group->live || !heard(o) || congested(o->group))
    return;
  double wait = LIVE_MS * 1e-3 - (double)(manta__now() - o->live_ns) * 1e-9;
  o->live = manta__agent_timer(o->group->agent, wait > 0 ? wait : 0, 0, on_live, o);
}

// --- reading -------------------------------------------------------------------------------------

static void drain(struct stream *s, int chunks)
{
  char buf[CHUNK];
  for (int i = 0; i < chunks && s->fd >= 0; i++) {
    ssize_t n = read(s->fd, buf, sizeof buf);
    if (n < 0 && errno == EINTR)
      continue;
    if (n == 0)
      uv_poll_stop(&s->poll);
    if (n <= 0)
      return;
    manta__lines_put(&s->lines, buf, (size_t)n);
  }
}

// The streams come in the order in which they became readable.
static void on_readable(uv_poll_t *h, int status, int events)
{
  struct stream *s = h->data;
  drain(s, AT_ONCE);
  show_live(s->output);
}

void manta__agent_output_flush(struct manta__output *o)
{
  if (!o)
    return;
  for (int i = 0; i < 2; i++)
    drain(&o->stream[i], AT_END);
  for (int i = 0; i < 2; i++) {
    manta__lines_finish(&o->stream[i].lines);
    hide_live(&o->stream[i]);
  }
}

// Whole lines, without the line end of the last.
const char *manta__agent_output_last(struct manta__output *o)
{
  if (!o || o->last_len == 0)
    return "";
  if (o->last[o->last_len - 1] == '\n')
    o->last[--o->last_len] = 0;
  const char *first = o->last_len >= LAST_MAX - 1 ? strchr(o->last, '\n') : NULL;
  return first ? first + 1 : o->last;
}

void manta__agent_output_terminal(struct manta__agent_worker *w)
{
  struct manta__agent_group *g = w->group;
  struct manta__msg m = {.kind = MANTA__M_TERMINAL, .id = g->run, .fd = {g->tty}, .fds = 1};
  if (g->tty >= 0 && w->rank == g->tty_rank)
    manta__agent_send(w->conn, &m);
}

// --- beginning and end ---------------------------------------------------------------------------

static void open_stream(struct manta__output *o, int number, int fd)
{
  struct stream *s = &o->stream[number - 1];
  s->output = o;
  s->number = number;
  s->fd = fd;
  s->poll.data = s;
  manta__lines_init(&s->lines, on_final, s);
  uv_poll_init(&o->group->agent->loop, &s->poll, fd);
  uv_poll_start(&s->poll, UV_READABLE, on_readable);
  o->open++;
}

struct manta__output *manta__agent_output_start(struct manta__agent_worker *w, int out, int err_fd,
                                                manta_error *err)
{
  struct manta__output *o = manta__calloc(1, sizeof *o);
  if (!o || manta__fd_nonblock(out, true, err) < 0 || manta__fd_nonblock(err_fd, true, err) < 0) {
    manta__free(o);
    return NULL;
  }
  o->worker = w;
  o->group = w->group;
  o->log = (struct manta__logfile){-1, -1, 0};
  open_stream(o, MANTA__STDOUT, out);
  open_stream(o, MANTA__STDERR, err_fd);
  return o;
}

static void stream_free(uv_handle_t *h)
{
  struct stream *s = h->data;
  struct manta__output *o = s->output;
  manta__fd_close(&s->fd);
  manta__lines_fini(&s->lines);
  if (--o->open == 0)
    manta__free(o);
}

void manta__agent_output_end(struct manta__output *o)
{
  if (!o)
    return;
  manta__agent_timer_stop(&o->live);
  manta__logfile_close(&o->log);
  for (int i = 0; i < 2; i++)
    uv_close((uv_handle_t *)&o->stream[i].poll, stream_free);
}

void manta__agent_output_close_files(struct manta__agent_group *g)
{
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->output)
      manta__logfile_close(&w->output->log);
}
