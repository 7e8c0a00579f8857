/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source/remote.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define CHUNK  ((int64_t)2 << 20)
#define SLOTS  MANTA__HTTP_SLOTS
#define NEARBY 65536 /* the least that is asked for where nothing was announced */

/* A range that is on its way, or there. Chunks follow each other: number k is in slot k % SLOTS. */
struct remote_chunk {
  int64_t at;
  size_t size, got;
  int tried; /* without a byte */
  bool running;
  char range[64];
};

struct remote_source {
  struct manta__source source;
  struct manta__remote_spec spec; /* of our own strings */
  char *text;                     /* they lie here */
  char etag[128];
  pthread_mutex_t lock;
  const struct manta__http *http;
  struct manta__http_client *client;
  struct remote_chunk chunk[SLOTS];
  uint8_t *data[SLOTS]; /* CHUNK bytes each */
  int64_t first, count; /* the chunks that there are: numbers first … first + count - 1 */
  int64_t from, to;     /* what was announced */
};

// --- opening ------------------------------------------------------------------------------------

static struct manta__http_call call_of(const struct manta__remote_spec *spec, const char *method)
{
  struct manta__http_call c = {.method = method, .url = spec->url};
  if (spec->sign && spec->sign[0]) {
    c.sign = spec->sign;
    c.user = spec->user;
    c.secret = spec->secret;
  }
  if (spec->token && spec->token[0])
    c.headers[0] = spec->token;
  return c;
}

static manta_status head(const char *name, const struct manta__remote_spec *spec,
                         struct manta__http_reply *r, manta_error *err)
{
  struct manta__http_call call = call_of(spec, "HEAD");
  MANTA_TRY(manta__http_ask(&call, name, r, err));
  if (r->status >= 300)
    return manta__http_failed(r, name, err);
  if (r->length < 0)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "%s: the server does not tell its size\nhint: download it first", name);
  return MANTA_OK;
}

manta_status manta__remote_size(const char *name, const struct manta__remote_spec *spec,
                                int64_t *out, manta_error *err)
{
  struct manta__http_reply r;
  MANTA_TRY(head(name, spec, &r, err));
  *out = r.length;
  return MANTA_OK;
}

// All strings in one block.
static bool copy_spec(struct remote_source *s, const struct manta__remote_spec *spec)
{
  const char *from[] = {spec->url, spec->sign, spec->user, spec->secret, spec->token};
  const char **to[] = {&s->spec.url, &s->spec.sign, &s->spec.user, &s->spec.secret, &s->spec.token};
  size_t bytes = 0;
  for (int i = 0; i < 5; i++)
    bytes += (from[i] ? strlen(from[i]) : 0) + 1;
  char *at = s->text = manta__calloc(1, bytes);
  for (int i = 0; at && i < 5; i++) {
    *to[i] = at;
    size_t n = from[i] ? strlen(from[i]) : 0;
    if (n)
      memcpy(at, from[i], n);
    at += n + 1;
  }
  return s->text != NULL;
}

manta_status manta__remote_open(struct manta__source **out, const struct manta__place *place,
                                const char *name, const struct manta__remote_spec *spec,
                                manta_error *err)
{
  struct manta__http_reply r;
  MANTA_TRY(head(name, spec, &r, err));
  struct remote_source *s = manta__calloc(1, sizeof *s);
  if (s) {
    pthread_mutex_init(&s->lock, NULL);
    s->source.name = manta__strdup(name);
  }
  if (!s || !s->source.name || !copy_spec(s, spec)) {
    if (s)
      manta__remote_close(&s->source);
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to open it", name);
  }
  s->source.place = place;
  s->source.size = r.length;
  snprintf(s->etag, sizeof s->etag, "%s", r.etag);
  *out = &s->source;
  return MANTA_OK;
}

static void drop_chunks(struct remote_source *s)
{
  for (int i = 0; i < SLOTS; i++) {
    if (s->chunk[i].running)
      s->http->cancel(s->client, i);
    s->chunk[i].running = false;
  }
  s->count = 0;
}

void manta__remote_close(struct manta__source *source)
{
  struct remote_source *s = (struct remote_source *)source;
  drop_chunks(s);
  manta__http_close(s->client);
  for (int i = 0; i < SLOTS; i++)
    manta__free(s->data[i]);
  pthread_mutex_destroy(&s->lock);
  manta__free(s->text);
  manta__free(source->name);
  manta__free(s);
}

// --- chunks -------------------------------------------------------------------------------------

static struct remote_chunk *chunk_of(struct remote_source *s, int64_t number)
{
  return &s->chunk[number % SLOTS];
}

static manta_status ask(struct remote_source *s, int slot, manta_error *err)
{
  struct remote_chunk *c = &s->chunk[slot];
  struct manta__http_call call = call_of(&s->spec, "GET");
  snprintf(c->range, sizeof c->range, "Range: bytes=%" PRId64 "-%" PRId64, c->at + (int64_t)c->got,
           c->at + (int64_t)c->size - 1);
  call.headers[call.headers[0] ? 1 : 0] = c->range;
  call.to = s->data[slot] + c->got;
  call.room = c->size - c->got;
  MANTA_TRY(s->http->start(s->client, slot, &call, err));
  c->running = true;
  return MANTA_OK;
}

// One more chunk behind those that there are, or the first, which begins at `at`.
static manta_status add_chunk(struct remote_source *s, int64_t at, int64_t end, manta_error *err)
{
  int slot = (int)((s->first + s->count) % SLOTS);
  if (!s->data[slot] && !(s->data[slot] = manta__malloc((size_t)CHUNK)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", s->source.name);
  s->chunk[slot] =
      (struct remote_chunk){.at = at, .size = (size_t)(end - at < CHUNK ? end - at : CHUNK)};
  MANTA_TRY(ask(s, slot, err));
  s->count++;
  return MANTA_OK;
}

static manta_status check(const struct remote_source *s, const struct remote_chunk *c,
                          const struct manta__http_reply *r, manta_error *err)
{
  if (r->status == 416)
    return manta_error_set(err, MANTA_EIO,
                           "%s: has fewer than %" PRId64 " bytes now: it was cut while it was read",
                           s->source.name, c->at + (int64_t)c->size);
  if (r->status >= 300)
    return manta__http_failed(r, s->source.name, err);
  if (s->etag[0] && r->etag[0] && strcmp(s->etag, r->etag))
    return manta_error_set(err, MANTA_EIO,
                           "%s: was replaced while it was read\nhint: write another object, and "
                           "read that",
                           s->source.name);
  if (r->length > (int64_t)(c->size - c->got))
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "%s: the server sends the whole file where a part is asked for (no "
                           "range requests)\nhint: download it first",
                           s->source.name);
  return MANTA_OK;
}

// Until a chunk is there, with as many requests as that takes.
static manta_status finish(struct remote_source *s, int slot, manta_error *err)
{
  struct remote_chunk *c = &s->chunk[slot];
  while (c->got < c->size) {
    struct manta__http_reply r;
    if (!c->running)
      MANTA_TRY(ask(s, slot, err));
    s->http->wait(s->client, slot, &r);
    c->running = false;
    if (r.status >= 200 && r.status < 300) {
      MANTA_TRY(check(s, c, &r, err));
      c->got += r.got;
      c->tried = r.got ? 0 : c->tried;
      r.complete = c->got == c->size;
    }
    if (c->got == c->size)
      return MANTA_OK;
    if (!manta__http_busy(&r))
      return check(s, c, &r, err);
    if (++c->tried == MANTA__HTTP_TRIES)
      return manta__http_failed(&r, s->source.name, err);
    manta__http_pause(c->tried, &r);
  }
  return MANTA_OK;
}

// --- reading ------------------------------------------------------------------------------------

// The chunk that has the byte at `at`, with others behind it on their way.
static manta_status seek(struct remote_source *s, int64_t at, size_t n, manta_error *err)
{
  int64_t end = s->from <= at && at < s->to ? s->to : at + (n < NEARBY ? NEARBY : (int64_t)n);
  if (end > s->source.size)
    end = s->source.size;
  while (s->count && at >= chunk_of(s, s->first)->at + (int64_t)chunk_of(s, s->first)->size &&
         !chunk_of(s, s->first)->running) {
    s->first++;
    s->count--;
  }
  if (s->count && (at < chunk_of(s, s->first)->at ||
                   at >= chunk_of(s, s->first)->at + (int64_t)chunk_of(s, s->first)->size))
    drop_chunks(s);
  if (!s->count)
    MANTA_TRY(add_chunk(s, at, end, err));
  while (s->count < SLOTS) {
    const struct remote_chunk *last = chunk_of(s, s->first + s->count - 1);
    int64_t next = last->at + (int64_t)last->size;
    if (next >= end)
      break;
    MANTA_TRY(add_chunk(s, next, end, err));
  }
  return MANTA_OK;
}

static manta_status read_locked(struct remote_source *s, int64_t at, uint8_t *to, size_t n,
                                manta_error *err)
{
  if (!s->client)
    MANTA_TRY(manta__http_open(&s->http, &s->client, err));
  while (n) {
    MANTA_TRY(seek(s, at, n, err));
    int slot = (int)(s->first % SLOTS);
    const struct remote_chunk *c = &s->chunk[slot];
    MANTA_TRY(finish(s, slot, err));
    size_t skip = (size_t)(at - c->at), part = c->size - skip < n ? c->size - skip : n;
    memcpy(to, s->data[slot] + skip, part);
    to += part;
    at += (int64_t)part;
    n -= part;
  }
  return MANTA_OK;
}

manta_status manta__remote_read(struct manta__source *source, int64_t at, void *to, size_t n,
                                manta_error *err)
{
  struct remote_source *s = (struct remote_source *)source;
  pthread_mutex_lock(&s->lock);
  manta_status st = read_locked(s, at, to, n, err);
  if (st < 0 && s->client)
    drop_chunks(s);
  pthread_mutex_unlock(&s->lock);
  return st;
}

void manta__remote_expect(struct manta__source *source, int64_t from, int64_t to)
{
  struct remote_source *s = (struct remote_source *)source;
  pthread_mutex_lock(&s->lock);
  s->from = from;
  s->to = to;
  pthread_mutex_unlock(&s->lock);
}
