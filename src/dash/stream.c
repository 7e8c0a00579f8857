/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/stream.c - server-sent events: each reader gets what is new to it, when it is ready for it.
 *
 * (1) Nothing is queued for a slow reader: when it has taken one event, the next is made of what
 *     has changed since.
 * (2) Events of one reader are PACE_NS apart, so that rows that come by the thousand are drawn a
 *     few times a second; without news a comment every BEAT_NS shows whether it is still there.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "dash/server.h"
#include "dash/show.h"

#define PACE_NS   250000000ll
#define BEAT_NS   15000000000ll
#define EVENT_MAX (32u << 20)
#define KEPT      (64u << 10) /* bytes of a buffer that is kept between events */
#define BLOCK     (64u << 10)

struct manta__dash_stream {
  struct manta__dash_stream *next;
  struct manta__server *server;
  struct MHD_Connection *conn;
  bool asleep;
  int64_t next_ns, beat_ns; // no event before, one after
  manta__buf out;
  size_t at; // of it, what is gone
  uint64_t list_version;
  int runs; // 0: the list
  struct manta__entry *entry[MANTA__STREAM_RUNS];
  struct manta__sent sent[MANTA__STREAM_RUNS];
};

// --- Events --------------------------------------------------------------------------------------

static bool has_news(const struct manta__dash_stream *m)
{
  if (m->runs == 0)
    return m->list_version != m->server->catalog.version + 1;
  for (int i = 0; i < m->runs; i++)
    if (m->sent[i].version != m->entry[i]->version)
      return true;
  return false;
}

static bool is_due(const struct manta__dash_stream *m, int64_t now)
{
  return m->server->stopping || now >= m->beat_ns || (now >= m->next_ns && has_news(m));
}

static void write_event(struct manta__dash_stream *m, int i)
{
  struct manta__dash_json j = {.to = &m->out};
  size_t before = m->out.len;
  manta__buf_puts(&m->out, "data: ");
  if (i < 0)
    manta__show_runs(&j, &m->server->catalog);
  else
    manta__show_run(&j, m->entry[i], &m->sent[i]);
  if (j.st == MANTA_OK)
    j.st = manta__buf_puts(&m->out, "\n\n");
  if (j.st < 0) { // too large, or no memory
    m->out.len = before;
    manta__buf_puts(&m->out, "event: failed\ndata: {}\n\n");
  }
}

static void write_news(struct manta__dash_stream *m, int64_t now)
{
  bool news = has_news(m);
  if (news && m->runs == 0) {
    m->list_version = m->server->catalog.version + 1; // 0 is never a version
    write_event(m, -1);
  }
  for (int i = 0; i < m->runs; i++)
    if (m->sent[i].version != m->entry[i]->version)
      write_event(m, i);
  if (!news)
    manta__buf_puts(&m->out, ": still here\n\n");
  m->next_ns = now + PACE_NS;
  m->beat_ns = now + BEAT_NS;
}

// Called by libmicrohttpd when the reader can take more.
static ssize_t pull(void *cls, uint64_t pos, char *to, size_t most)
{
  struct manta__dash_stream *m = cls;
  ssize_t n = 0;
  pthread_mutex_lock(&m->server->catalog.lock);
  int64_t now = manta__now();
  if (m->at == m->out.len) {
    if (m->out.cap > KEPT) {
      manta__buf_fini(&m->out);
      manta__buf_init(&m->out, EVENT_MAX);
    }
    m->out.len = 0;
    m->at = 0;
    if (is_due(m, now) && !m->server->stopping)
      write_news(m, now);
  }
  if (m->at < m->out.len) {
    n = (ssize_t)(m->out.len - m->at < most ? m->out.len - m->at : most);
    memcpy(to, m->out.data + m->at, (size_t)n);
    m->at += (size_t)n;
  } else if (m->server->stopping) {
    n = MHD_CONTENT_READER_END_OF_STREAM;
  } else {
    m->asleep = true;
    MHD_suspend_connection(m->conn);
  }
  pthread_mutex_unlock(&m->server->catalog.lock);
  return n;
}

int64_t manta__stream_tick(struct manta__server *s)
{
  int64_t now = manta__now(), next = now + BEAT_NS;
  pthread_mutex_lock(&s->catalog.lock);
  for (struct manta__dash_stream *m = s->streams; m; m = m->next) {
    if (m->asleep && is_due(m, now)) {
      m->asleep = false;
      MHD_resume_connection(m->conn);
    }
    int64_t due = has_news(m) && m->next_ns > now ? m->next_ns : m->beat_ns;
    next = due < next ? due : next;
  }
  pthread_mutex_unlock(&s->catalog.lock);
  return next;
}

// --- Life ----------------------------------------------------------------------------------------

static void stream_free(void *cls)
{
  struct manta__dash_stream *m = cls;
  struct manta__server *s = m->server;
  pthread_mutex_lock(&s->catalog.lock);
  for (struct manta__dash_stream **p = &s->streams; *p; p = &(*p)->next)
    if (*p == m) {
      *p = m->next;
      s->stream_count--;
      break;
    }
  for (int i = 0; i < m->runs; i++) {
    manta__catalog_view(&s->catalog, m->entry[i], false);
    manta__sent_fini(&m->sent[i]);
  }
  pthread_mutex_unlock(&s->catalog.lock);
  manta__buf_fini(&m->out);
  manta__free(m);
}

// The runs that are asked for; false: one of them is not there, or they are too many.
static enum MHD_Result add_run(void *cls, enum MHD_ValueKind kind, const char *key,
                               const char *value)
{
  struct manta__dash_stream *m = cls;
  if (strcmp(key, "run"))
    return MHD_YES;
  struct manta__entry *e = value ? manta__catalog_find(&m->server->catalog, value) : NULL;
  if (!e || m->runs == MANTA__STREAM_RUNS) {
    m->runs = -1;
    return MHD_NO;
  }
  m->entry[m->runs++] = e;
  return MHD_YES;
}

static bool take_runs(struct manta__dash_stream *m, struct MHD_Connection *c)
{
  MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, add_run, m);
  for (int i = 0; i < m->runs; i++)
    manta__catalog_view(&m->server->catalog, m->entry[i], true);
  return m->runs >= 0;
}

struct MHD_Response *manta__stream_open(struct manta__server *s, struct MHD_Connection *c,
                                        unsigned *code)
{
  struct manta__dash_stream *m = manta__calloc(1, sizeof *m);
  *code = MHD_HTTP_SERVICE_UNAVAILABLE;
  if (!m)
    return NULL;
  m->server = s;
  m->conn = c;
  manta__buf_init(&m->out, EVENT_MAX);
  m->beat_ns = manta__now();
  pthread_mutex_lock(&s->catalog.lock);
  bool room = s->stream_count < MANTA__SERVER_STREAMS && !s->stopping;
  if (room && !take_runs(m, c))
    *code = MHD_HTTP_NOT_FOUND;
  else if (room)
    *code = MHD_HTTP_OK;
  if (*code == MHD_HTTP_OK) {
    m->next = s->streams;
    s->streams = m;
    s->stream_count++;
  }
  pthread_mutex_unlock(&s->catalog.lock);
  if (*code != MHD_HTTP_OK) {
    manta__free(m);
    return NULL;
  }
  struct MHD_Response *r =
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, pull, m, stream_free);
  if (!r)
    stream_free(m);
  return r;
}
