/* SPDX-License-Identifier: Apache-2.0
 *
 * group/agent_output.c - what workers print: into logs/rank-N.log, and rank 0's lines to the
 * driver.
 *
 * (1) A log is at most log_limit bytes: the file being written and the one before it (.1), half
 *     each.
 * (2) A driver that does not read loses live lines (they are in the log), never blocks the
 *     worker.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "group/agent.h"
#include "sys/file.h"
#include "sys/sock.h"

#define CHUNK     (32u << 10)
#define LAST_MAX  400
#define LINE_MAX_ (8u << 10) /* a longer line is passed on in pieces */

struct output {
  struct worker *worker; // NULL once it is gone
  struct group *group;
  int fd;
  uv_poll_t poll;
  int file, rank; // the open log, and whose it is
  int64_t size;   // of the open log
  bool failed;    // the log could not be written: said once
  char line[LINE_MAX_];
  size_t len;              // of the line begun in `line`
  char last[LAST_MAX + 1]; // the end of what was printed, for the message about its death
  size_t last_len;
};

static void log_name(char *buf, size_t size, int rank, const char *suffix)
{
  snprintf(buf, size, "rank-%d.log%s", rank, suffix);
}

static void close_file(struct output *o)
{
  manta__fd_close(&o->file);
  o->rank = -1;
}

static void open_file(struct output *o, int rank)
{
  char name[64];
  log_name(name, sizeof name, rank, "");
  o->file = openat(o->group->logdir, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  o->rank = rank;
  o->size = o->file >= 0 ? lseek(o->file, 0, SEEK_END) : 0;
}

static void rotate(struct output *o)
{
  char now[64], before[64];
  int rank = o->rank;
  log_name(now, sizeof now, rank, "");
  log_name(before, sizeof before, rank, ".1");
  close_file(o);
  renameat(o->group->logdir, now, o->group->logdir, before);
  open_file(o, rank);
}

static void to_file(struct output *o, const char *p, size_t n)
{
  int rank = o->worker->rank;
  if (o->group->logdir < 0 || rank < 0)
    return;
  if (o->rank != rank) {
    close_file(o);
    open_file(o, rank);
  }
  if (o->size + (int64_t)n > o->group->log_limit / 2 && o->size > 0)
    rotate(o);
  if (o->file < 0 || manta__write_all(o->file, p, n, NULL) < 0) {
    if (!o->failed)
      agent_warn(o->group->agent, o->group->id, "cannot write logs/rank-%d.log: %s", rank,
                 strerror(errno));
    o->failed = true;
    return;
  }
  o->size += (int64_t)n;
}

static void to_driver(struct output *o, const char *p, size_t n)
{
  struct group *g = o->group;
  if (n == 0 || (o->worker->rank != 0 && !g->show_all))
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
  o->file = o->rank = -1;
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
  close_file(o);
  uv_close((uv_handle_t *)&o->poll, output_free);
}

void agent_output_close_files(struct group *g)
{
  for (struct worker *w = g->workers; w; w = w->next)
    if (w->output)
      close_file(w->output);
}
