/* SPDX-License-Identifier: Apache-2.0
 *
 * group/agent_output.c - what workers print: into logs/rank-N.log, and rank 0's lines to the
 * driver.
 *
 * A driver that does not read loses live lines (they are in the log), never blocks the worker.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "group/agent.h"
#include "group/logfile.h"
#include "sys/sock.h"

#define CHUNK       (32u << 10)
#define LAST_MAX    400
#define FAR_BACKLOG (4u << 20) /* bytes on their way to a bridge: more lines are dropped */
#define LINE_MAX_   (8u << 10) /* a longer line is passed on in pieces */

struct output {
  struct worker *worker; // NULL once it is gone
  struct group *group;
  int fd;
  uv_poll_t poll;
  struct manta__logfile log;
  bool failed; // the log could not be written: said once
  char line[LINE_MAX_];
  size_t len;              // of the line begun in `line`
  char last[LAST_MAX + 1]; // the end of what was printed, for the message about its death
  size_t last_len;
};

static void to_file(struct output *o, const char *p, size_t n)
{
  int rank = o->worker->rank;
  if (o->group->logdir < 0 || rank < 0 ||
      manta__logfile_write(&o->log, o->group->logdir, rank, o->group->log_limit, p, n))
    return;
  if (!o->failed)
    agent_warn(o->group->agent, o->group->id, "cannot write logs/rank-%d.log: %s", rank,
               strerror(errno));
  o->failed = true;
}

// A bridge that does not get its bytes away: lines are lost rather than messages.
static bool congested(struct group *g)
{
  struct link *l = g->agent->driver;
  if (!g->agent->far || !l || manta__conn_queued(l->conn) < FAR_BACKLOG)
    return false;
  if (!g->lines_lost)
    agent_warn(g->agent, g->id,
               "workers on %s print more than the link to it carries: lines are lost",
               g->agent->host);
  g->lines_lost = true;
  return true;
}

static void to_driver(struct output *o, const char *p, size_t n)
{
  struct group *g = o->group;
  if (n == 0 || (o->worker->rank != 0 && !g->show_all) || congested(g))
    return;
  struct manta__msg m = {.kind = MANTA__M_OUTPUT, .group = g->id, .data = p, .len = n};
  m.id = g->run;
  m.id.rank = o->worker->rank;
  agent_send(g->agent->driver, &m);
}

// Passes whole lines on; the rest waits for its end.
static void to_lines(struct output *o, const char *p, size_t n)
{
  while (n > 0) {
    const char *end = memrchr(p, '\n', n);
    size_t whole = end ? (size_t)(end - p) + 1 : 0;
    if (whole && o->len == 0) {
      to_driver(o, p, whole);
      p += whole;
      n -= whole;
      continue;
    }
    const char *first = memchr(p, '\n', n);
    size_t k = first ? (size_t)(first - p) + 1 : n;
    if (k > sizeof o->line - o->len)
      k = sizeof o->line - o->len;
    memcpy(o->line + o->len, p, k);
    o->len += k;
    p += k;
    n -= k;
    if (o->line[o->len - 1] == '\n' || o->len == sizeof o->line) {
      to_driver(o, o->line, o->len);
      o->len = 0;
    }
  }
}

static void remember(struct output *o, const char *p, size_t n)
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

// Whole lines, without the line end of the last.
const char *agent_output_last(struct output *o)
{
  if (!o || o->last_len == 0)
    return "";
  if (o->last[o->last_len - 1] == '\n')
    o->last[--o->last_len] = 0;
  const char *first = o->last_len >= LAST_MAX - 1 ? strchr(o->last, '\n') : NULL;
  return first ? first + 1 : o->last;
}

void agent_output_drain(struct output *o)
{
  char buf[CHUNK];
  if (!o || o->fd < 0)
    return;
  // Bounded: a worker that prints without end must not keep the agent from everything else.
  for (int i = 0; i < 64; i++) {
    ssize_t n = read(o->fd, buf, sizeof buf);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      if (n == 0)
        uv_poll_stop(&o->poll);
      return;
    }
    to_file(o, buf, (size_t)n);
    to_lines(o, buf, (size_t)n);
    remember(o, buf, (size_t)n);
  }
}

static void on_readable(uv_poll_t *h, int status, int events)
{
  agent_output_drain(h->data);
}

struct output *agent_output_start(struct worker *w, int fd, manta_error *err)
{
  struct output *o = manta__calloc(1, sizeof *o);
  if (!o || manta__fd_nonblock(fd, true, err) < 0) {
    manta__free(o);
    return NULL;
  }
  o->worker = w;
  o->group = w->group;
  o->fd = fd;
  o->log = (struct manta__logfile){-1, -1, 0};
  o->poll.data = o;
  uv_poll_init(&w->group->agent->loop, &o->poll, fd);
  uv_poll_start(&o->poll, UV_READABLE, on_readable);
  return o;
}

static void output_free(uv_handle_t *h)
{
  struct output *o = h->data;
  manta__fd_close(&o->fd);
  manta__free(o);
}

void agent_output_end(struct output *o)
{
  if (!o)
    return;
  if (o->len) {
    o->line[o->len < sizeof o->line ? o->len++ : o->len - 1] = '\n';
    to_driver(o, o->line, o->len);
  }
  manta__logfile_close(&o->log);
  uv_close((uv_handle_t *)&o->poll, output_free);
}

void agent_output_close_files(struct group *g)
{
  for (struct worker *w = g->workers; w; w = w->next)
    if (w->output)
      manta__logfile_close(&w->output->log);
}
