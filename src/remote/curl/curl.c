/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/curl/curl.c - HTTP by libcurl, in a module of its own.
 */
#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "remote/http.h"

#define CONNECT_SECONDS 10L
#define STALL_SECONDS   30L /* without a byte */
#define REDIRECTS       8L

struct curl_slot {
  CURL *easy;
  struct curl_slist *headers;
  bool running, done;
  bool stream, full; /* full: it stands still */
  uint8_t *to;
  size_t room, over; /* bytes that there was no room for */
  int fd;            /* of what is sent, out of a file */
  int64_t at, sent, size;
  CURLcode code;
  struct manta__http_reply reply;
};

struct manta__http_client {
  CURLM *multi;
  struct curl_slot slot[MANTA__HTTP_SLOTS];
};

static void start_library(void)
{
  curl_global_init(CURL_GLOBAL_ALL);
}

static void destroy(struct manta__http_client *c)
{
  for (int i = 0; i < MANTA__HTTP_SLOTS; i++) {
    struct curl_slot *s = &c->slot[i];
    if (s->running)
      curl_multi_remove_handle(c->multi, s->easy);
    curl_easy_cleanup(s->easy);
    curl_slist_free_all(s->headers);
  }
  curl_multi_cleanup(c->multi);
  manta__free(c);
}

static manta_status create(struct manta__http_client **out, manta_error *err)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start_library);
  struct manta__http_client *c = manta__calloc(1, sizeof *c);
  bool ok = c && (c->multi = curl_multi_init());
  for (int i = 0; i < MANTA__HTTP_SLOTS && ok; i++)
    ok = (c->slot[i].easy = curl_easy_init()) != NULL;
  if (!ok) {
    if (c)
      destroy(c);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for libcurl");
  }
  *out = c;
  return MANTA_OK;
}

// --- what comes ---------------------------------------------------------------------------------

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
  struct curl_slot *s = ctx;
  if (s->stream && n > s->room - s->reply.got && s->reply.got) {
    s->full = true;
    return CURL_WRITEFUNC_PAUSE; // the same bytes come again
  }
  size_t fits = s->room - s->reply.got < n ? s->room - s->reply.got : n;
  memcpy(s->to + s->reply.got, p, fits);
  s->reply.got += fits;
  s->over += n - fits;
  return fits; // fewer than n: libcurl gives up
}

static bool header_is(const char *line, size_t n, const char *name, char *value, size_t room)
{
  size_t k = strlen(name);
  if (n <= k || strncasecmp(line, name, k) || line[k] != ':')
    return false;
  const char *from = line + k + 1, *end = line + n;
  while (from < end && *from == ' ')
    from++;
  while (end > from && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
    end--;
  snprintf(value, room, "%.*s", (int)(end - from), from);
  return true;
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
  struct manta__http_reply *r = &((struct curl_slot *)ctx)->reply;
  char value[128];
  if (n > 5 && !strncmp(line, "HTTP/", 5)) { // of the next reply, behind a redirect
    r->etag[0] = r->region[0] = 0;
    r->length = -1;
    r->retry_after = -1;
  } else if (header_is(line, n, "content-length", value, sizeof value))
    r->length = strtoll(value, NULL, 10);
  else if (header_is(line, n, "retry-after", value, sizeof value))
    r->retry_after = strtod(value, NULL);
  else if (!header_is(line, n, "etag", r->etag, sizeof r->etag))
    header_is(line, n, "x-amz-bucket-region", r->region, sizeof r->region);
  return n;
}

// --- what is sent -------------------------------------------------------------------------------

static size_t on_send(char *p, size_t size, size_t n, void *ctx)
{
  struct curl_slot *s = ctx;
  int64_t left = s->size - s->sent;
  size_t want = (int64_t)(size * n) < left ? size * n : (size_t)left;
  ssize_t got = want ? pread(s->fd, p, want, s->at + s->sent) : 0;
  if (got < 0 || (got == 0 && want)) // it was cut meanwhile
    return CURL_READFUNC_ABORT;
  s->sent += got;
  return (size_t)got;
}

// The connection was lost, or it goes elsewhere: once more from the beginning.
static int on_seek(void *ctx, curl_off_t to, int whence)
{
  struct curl_slot *s = ctx;
  if (whence != SEEK_SET || to > s->size)
    return CURL_SEEKFUNC_FAIL;
  s->sent = to;
  return CURL_SEEKFUNC_OK;
}

static void set_body(struct curl_slot *s, const struct manta__http_call *call)
{
  CURL *e = s->easy;
  if (call->text) {
    curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->text));
    curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->text);
    return;
  }
  s->fd = call->fd;
  s->at = call->at;
  s->size = call->size;
  s->sent = 0;
  curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->size);
  curl_easy_setopt(e, CURLOPT_READFUNCTION, on_send);
  curl_easy_setopt(e, CURLOPT_READDATA, s);
  curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
  curl_easy_setopt(e, CURLOPT_SEEKDATA, s);
  curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(e, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L); // the body is sent at once
}

// --- requests -----------------------------------------------------------------------------------

static void set_method(struct curl_slot *s, const struct manta__http_call *call)
{
  bool sends = !strcmp(call->method, "PUT") || !strcmp(call->method, "POST");
  if (sends)
    set_body(s, call);
  if (!strcmp(call->method, "HEAD"))
    curl_easy_setopt(s->easy, CURLOPT_NOBODY, 1L);
  else if (strcmp(call->method, "GET") != 0)
    curl_easy_setopt(s->easy, CURLOPT_CUSTOMREQUEST, call->method);
}

static bool set_headers(struct curl_slot *s, const struct manta__http_call *call)
{
  curl_slist_free_all(s->headers);
  s->headers = NULL;
  for (int i = 0; i < MANTA__HTTP_HEADERS && call->headers[i]; i++) {
    struct curl_slist *more = curl_slist_append(s->headers, call->headers[i]);
    if (!more)
      return false;
    s->headers = more;
  }
  curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, s->headers);
  return true;
}

static bool set_options(struct curl_slot *s, const struct manta__http_call *call)
{
  CURL *e = s->easy;
  curl_easy_reset(e); // connections stay
  curl_easy_setopt(e, CURLOPT_PRIVATE, s);
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, call->sign ? 0L : 1L); // a signature is for one host
  curl_easy_setopt(e, CURLOPT_MAXREDIRS, REDIRECTS);
  curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
                   call->connect_s > 0 ? (long)(call->connect_s * 1000) : CONNECT_SECONDS * 1000);
  curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME,
                   call->stall_s > 0 ? (long)call->stall_s : STALL_SECONDS);
  curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 512L << 10);
  set_method(s, call);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, s);
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(e, CURLOPT_HEADERDATA, s);
  bool ok = curl_easy_setopt(e, CURLOPT_URL, call->url) == CURLE_OK && set_headers(s, call);
  if (ok && call->sign)
    ok = curl_easy_setopt(e, CURLOPT_AWS_SIGV4, call->sign) == CURLE_OK &&
         curl_easy_setopt(e, CURLOPT_USERNAME, call->user) == CURLE_OK &&
         curl_easy_setopt(e, CURLOPT_PASSWORD, call->secret) == CURLE_OK;
  return ok;
}

static manta_status start(struct manta__http_client *c, int slot,
                          const struct manta__http_call *call, manta_error *err)
{
  struct curl_slot *s = &c->slot[slot];
  s->to = call->to;
  s->room = call->room;
  s->over = 0;
  s->done = s->full = false;
  s->stream = call->stream;
  s->reply = (struct manta__http_reply){.length = -1, .retry_after = -1};
  if (!set_options(s, call) || curl_multi_add_handle(c->multi, s->easy) != CURLM_OK)
    return manta_error_set(err, MANTA_ENOMEM, "libcurl takes no request");
  s->running = true;
  int busy;
  curl_multi_perform(c->multi, &busy); // the request goes out, whoever is waited for
  return MANTA_OK;
}

static bool is_final(CURLcode code)
{
  return code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
         code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_TOO_MANY_REDIRECTS ||
         code == CURLE_SSL_CACERT_BADFILE || code == CURLE_NOT_BUILT_IN;
}

static void collect(struct manta__http_client *c)
{
  const CURLMsg *m;
  int left;
  while ((m = curl_multi_info_read(c->multi, &left))) {
    struct curl_slot *s = NULL;
    long status = 0;
    if (m->msg != CURLMSG_DONE)
      continue;
    CURL *easy = m->easy_handle;
    CURLcode code = m->data.result;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&s);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(c->multi, easy);
    s->running = false;
    s->done = true;
    s->reply.status = (int)status;
    s->reply.complete = code == CURLE_OK || s->over > 0;
    s->reply.over = s->over > 0;
    s->reply.final = is_final(code);
    if (!s->reply.complete)
      snprintf(s->reply.why, sizeof s->reply.why, "%s", curl_easy_strerror(code));
  }
}

static void wait(struct manta__http_client *c, int slot, struct manta__http_reply *out)
{
  struct curl_slot *s = &c->slot[slot];
  int busy;
  while (!s->done && !s->full) {
    curl_multi_perform(c->multi, &busy);
    collect(c);
    if (!s->done && !s->full)
      curl_multi_poll(c->multi, NULL, 0, 1000, NULL);
  }
  long status = s->reply.status;
  if (!s->done)
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
  s->reply.status = (int)status;
  s->reply.full = s->full && !s->done;
  s->done = false;
  *out = s->reply;
}

static void more(struct manta__http_client *c, int slot, uint8_t *to, size_t room)
{
  struct curl_slot *s = &c->slot[slot];
  s->to = to;
  s->room = room;
  s->reply.got = 0;
  s->full = false;
  curl_easy_pause(s->easy, CURLPAUSE_CONT);
}

static void cancel(struct manta__http_client *c, int slot)
{
  struct curl_slot *s = &c->slot[slot];
  if (s->running)
    curl_multi_remove_handle(c->multi, s->easy);
  s->running = s->done = s->full = false;
}

static const struct manta__http http = {
    MANTA__HTTP_VERSION, create, destroy, start, wait, more, cancel};

extern MANTA_API const struct manta__http *const manta_http_entry;
const struct manta__http *const manta_http_entry = &http;
