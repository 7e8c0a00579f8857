/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/ranges.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define CHUNK  ((int64_t)2 << 20)
#define LARGE  ((int64_t)8 << 20) /* of a long range: fewer requests */
#define SLOTS  MANTA__HTTP_SLOTS
#define NEARBY 65536 /* the least that is asked for where nothing was announced */

/* A range that is on its way, or there. Chunks follow each other: number k is in slot k % SLOTS. */
struct range_chunk {
  int64_t at;
  size_t size, got;
  int tried; /* without a byte */
  bool running;
  char range[64];
};

struct manta__ranges {
  char *name;
  struct manta__remote_spec spec; /* of our own strings */
  char *text;                     /* they lie here */
  struct manta__remote_facts facts;
  pthread_mutex_t lock;
  const struct manta__http *http;
  struct manta__http_client *client;
  struct range_chunk chunk[SLOTS];
  uint8_t *data[SLOTS]; /* `each` bytes, CHUNK at least */
  int64_t each;
  int64_t first, count; /* the chunks that there are: numbers first … first + count - 1 */
  int64_t from, to;     /* what was announced */
  /* A server without ranges: slot 0 has the stream, data[0] a part of it. */
  bool whole, streaming, paused;
  int64_t part_at, reached; /* reached: as far as it ever came */
  size_t part;
  int tried; /* without coming further */
};

// --- opening ------------------------------------------------------------------------------------

struct manta__http_call manta__remote_call(const struct manta__remote_spec *spec,
                                           const char *method)
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

manta_status manta__remote_look(const char *name, const struct manta__remote_spec *spec,
                                struct manta__remote_facts *out, manta_error *err)
{
  struct manta__http_reply r;
  struct manta__http_call call = manta__remote_call(spec, "HEAD");
  MANTA_TRY(manta__http_ask(&call, name, &r, err));
  // A server may know only GET, and a URL may be signed for GET alone.
  bool get_only = r.status == 405 || r.status == 501 || (r.status == 403 && !call.sign);
  if (r.status >= 300 && !get_only)
    return manta__http_failed(&r, name, err);
  out->size = get_only ? -1 : r.length;
  out->whole = out->size < 0;
  snprintf(out->etag, sizeof out->etag, "%s", r.etag);
  return MANTA_OK;
}

// All strings in one block.
static bool copy_spec(struct manta__ranges *s, const struct manta__remote_spec *spec)
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

manta_status manta__ranges_open(manta__ranges **out, const char *name,
                                const struct manta__remote_spec *spec,
                                const struct manta__remote_facts *facts, manta_error *err)
{
  struct manta__ranges *s = manta__calloc(1, sizeof *s);
  if (s) {
    pthread_mutex_init(&s->lock, NULL);
    s->name = manta__strdup(name);
    s->facts = *facts;
  }
  if (!s || !s->name || !copy_spec(s, spec)) {
    manta__ranges_close(s);
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to open it", name);
  }
  *out = s;
  return MANTA_OK;
}

static void drop_chunks(struct manta__ranges *s)
{
  for (int i = 0; i < SLOTS; i++) {
    if (s->chunk[i].running)
      s->http->cancel(s->client, i);
    s->chunk[i].running = false;
  }
  s->count = 0;
}

static void drop_stream(struct manta__ranges *s)
{
  if (s->streaming)
    s->http->cancel(s->client, 0);
  s->streaming = s->paused = false;
  s->part = 0;
  s->part_at = 0;
}

void manta__ranges_close(manta__ranges *s)
{
  if (!s)
    return;
  drop_chunks(s);
  drop_stream(s);
  manta__http_close(s->client);
  for (int i = 0; i < SLOTS; i++)
    manta__free(s->data[i]);
  pthread_mutex_destroy(&s->lock);
  manta__free(s->text);
  manta__free(s->name);
  manta__free(s);
}

// --- chunks -------------------------------------------------------------------------------------

static struct range_chunk *chunk_of(struct manta__ranges *s, int64_t number)
{
  return &s->chunk[number % SLOTS];
}

static manta_status ask(struct manta__ranges *s, int slot, manta_error *err)
{
  struct range_chunk *c = &s->chunk[slot];
  struct manta__http_call call = manta__remote_call(&s->spec, "GET");
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
static manta_status add_chunk(struct manta__ranges *s, int64_t at, int64_t end, manta_error *err)
{
  int slot = (int)((s->first + s->count) % SLOTS);
  if (!s->data[slot] && !(s->data[slot] = manta__malloc((size_t)s->each)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", s->name);
  s->chunk[slot] =
      (struct range_chunk){.at = at, .size = (size_t)(end - at < s->each ? end - at : s->each)};
  MANTA_TRY(ask(s, slot, err));
  s->count++;
  return MANTA_OK;
}

static manta_status check(struct manta__ranges *s, int64_t end, const struct manta__http_reply *r,
                          manta_error *err)
{
  if (r->status == 416)
    return manta_error_set(err, MANTA_EIO,
                           "%s: has fewer than %" PRId64 " bytes now: it was cut while it was read",
                           s->name, end);
  if (r->status == 404 || r->status == 410)
    return manta_error_set(
        err, MANTA_ENOENT,
        "%s: is gone (HTTP %d): it was there when it was opened\nhint: the files "
        "of a data set must stay until they are read",
        s->name, r->status);
  if (r->status >= 300)
    return manta__http_failed(r, s->name, err);
  if (s->facts.etag[0] && r->etag[0] && strcmp(s->facts.etag, r->etag))
    return manta_error_set(err, MANTA_EIO,
                           "%s: was replaced while it was read\nhint: write another object, and "
                           "read that",
                           s->name);
  if (!s->facts.etag[0])
    memcpy(s->facts.etag, r->etag, sizeof r->etag);
  return MANTA_OK;
}

// The whole file comes where a part was asked for.
static bool is_whole(const struct range_chunk *c, const struct manta__http_reply *r)
{
  return r->status < 300 && (r->over || r->length > (int64_t)(c->size - c->got));
}

// Until a chunk is there, with as many requests as that takes; or until it is known that the server
// has no ranges: s->whole.
static manta_status finish(struct manta__ranges *s, int slot, manta_error *err)
{
  struct range_chunk *c = &s->chunk[slot];
  while (c->got < c->size) {
    struct manta__http_reply r;
    if (!c->running)
      MANTA_TRY(ask(s, slot, err));
    s->http->wait(s->client, slot, &r);
    c->running = false;
    if (r.status >= 200 && r.status < 300) {
      MANTA_TRY(check(s, c->at + (int64_t)c->size, &r, err));
      if ((s->whole = is_whole(c, &r)))
        return MANTA_OK;
      c->got += r.got;
      c->tried = r.got ? 0 : c->tried;
      r.complete = c->got == c->size;
    }
    if (c->got == c->size)
      return MANTA_OK;
    if (!manta__http_busy(&r))
      return check(s, c->at + (int64_t)c->size, &r, err);
    if (++c->tried == MANTA__HTTP_TRIES)
      return manta__http_failed(&r, s->name, err);
    manta__http_pause(c->tried, &r);
  }
  return MANTA_OK;
}

// --- reading ------------------------------------------------------------------------------------

// The chunk that has the byte at `at`, with others behind it on their way.
static manta_status seek(struct manta__ranges *s, int64_t at, size_t n, manta_error *err)
{
  int64_t end = s->from <= at && at < s->to ? s->to : at + (n < NEARBY ? NEARBY : (int64_t)n);
  if (end > s->facts.size)
    end = s->facts.size;
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
    const struct range_chunk *last = chunk_of(s, s->first + s->count - 1);
    int64_t next = last->at + (int64_t)last->size;
    if (next >= end)
      break;
    MANTA_TRY(add_chunk(s, next, end, err));
  }
  return MANTA_OK;
}

static manta_status read_ranges(struct manta__ranges *s, int64_t at, uint8_t *to, size_t n,
                                manta_error *err)
{
  while (n) {
    MANTA_TRY(seek(s, at, n, err));
    int slot = (int)(s->first % SLOTS);
    const struct range_chunk *c = &s->chunk[slot];
    MANTA_TRY(finish(s, slot, err));
    if (s->whole)
      return MANTA_OK;
    size_t skip = (size_t)(at - c->at), part = c->size - skip < n ? c->size - skip : n;
    memcpy(to, s->data[slot] + skip, part);
    to += part;
    at += (int64_t)part;
    n -= part;
  }
  return MANTA_OK;
}

// --- one stream ---------------------------------------------------------------------------------

static manta_status start_stream(struct manta__ranges *s, manta_error *err)
{
  struct manta__http_call call = manta__remote_call(&s->spec, "GET");
  drop_stream(s);
  if (!s->data[0] && !(s->data[0] = manta__malloc((size_t)CHUNK)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", s->name);
  call.stream = true;
  call.to = s->data[0];
  call.room = (size_t)CHUNK;
  MANTA_TRY(s->http->start(s->client, 0, &call, err));
  s->streaming = true;
  return MANTA_OK;
}

// The part behind the one that there is. What breaks off begins again, as long as it comes further.
static manta_status next_part(struct manta__ranges *s, manta_error *err)
{
  struct manta__http_reply r;
  if (s->paused)
    s->http->more(s->client, 0, s->data[0], (size_t)CHUNK);
  s->part_at += (int64_t)s->part;
  s->http->wait(s->client, 0, &r);
  s->paused = s->streaming = r.full;
  s->part = r.status < 300 ? r.got : 0;
  if (!manta__http_busy(&r) || s->part)
    MANTA_TRY(check(s, s->facts.size, &r, err));
  int64_t end = s->part_at + (int64_t)s->part;
  if (!r.full && r.complete && r.status < 300 && end < s->facts.size)
    return manta_error_set(err, MANTA_EIO,
                           "%s: has %" PRId64 " bytes now, not %" PRId64
                           ": it was cut while it was read",
                           s->name, end, s->facts.size);
  if (end > s->reached) {
    s->reached = end;
    s->tried = 0;
  } else if (!r.full && ++s->tried == MANTA__HTTP_TRIES)
    return manta__http_failed(&r, s->name, err);
  if (!r.full && s->part == 0)
    manta__http_pause(s->tried ? s->tried : 1, &r);
  return MANTA_OK;
}

static manta_status read_stream(struct manta__ranges *s, int64_t at, uint8_t *to, size_t n,
                                manta_error *err)
{
  while (n) {
    if (s->part && at >= s->part_at && at < s->part_at + (int64_t)s->part) {
      size_t skip = (size_t)(at - s->part_at), k = s->part - skip < n ? s->part - skip : n;
      memcpy(to, s->data[0] + skip, k);
      to += k;
      at += (int64_t)k;
      n -= k;
      continue;
    }
    if (!s->streaming || at < s->part_at)
      MANTA_TRY(start_stream(s, err));
    MANTA_TRY(next_part(s, err));
  }
  return MANTA_OK;
}

// Chunks become larger when a long range is announced behind a short one.
static void choose_size(struct manta__ranges *s)
{
  int64_t each = s->to - s->from >= SLOTS * LARGE ? LARGE : CHUNK;
  if (s->whole || each <= s->each)
    return;
  drop_chunks(s);
  for (int i = 0; i < SLOTS; i++) {
    manta__free(s->data[i]);
    s->data[i] = NULL;
  }
  s->each = each;
}

static manta_status read_locked(struct manta__ranges *s, int64_t at, void *to, size_t n,
                                manta_error *err)
{
  if (!s->client)
    MANTA_TRY(manta__http_open(&s->http, &s->client, err));
  choose_size(s);
  if (!s->whole) {
    MANTA_TRY(read_ranges(s, at, to, n, err));
    if (!s->whole)
      return MANTA_OK;
    s->facts.whole = true;
    drop_chunks(s);
  }
  return read_stream(s, at, to, n, err);
}

manta_status manta__ranges_read(manta__ranges *s, int64_t at, void *to, size_t n, manta_error *err)
{
  pthread_mutex_lock(&s->lock);
  manta_status st = read_locked(s, at, to, n, err);
  if (st < 0 && s->client) {
    drop_chunks(s);
    drop_stream(s);
  }
  pthread_mutex_unlock(&s->lock);
  return st;
}

const struct manta__remote_facts *manta__ranges_facts(const manta__ranges *s)
{
  return &s->facts;
}

void manta__ranges_expect(manta__ranges *s, int64_t from, int64_t to)
{
  pthread_mutex_lock(&s->lock);
  s->from = from;
  s->to = to;
  pthread_mutex_unlock(&s->lock);
}
