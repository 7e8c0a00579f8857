/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/server.c - requests: who may ask, and which part answers.
 */
#include "dash/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dash/show.h"

#define IDLE_S     60u /* a connection without a request */
#define STRANGER_S 5u /* … that has not shown the token: there are few, and anybody can open one */
#define PER_CONN   (32u << 10)
#define JSON_MAX   (16u << 20)
#define TAIL_BYTES (64u << 10)

/* An answer under way. */
struct answer {
  struct manta__server *server;
  struct MHD_Connection *conn;
  unsigned code;
  const char *type;
};

static struct MHD_Response *plain(struct answer *a, unsigned code, const char *text)
{
  a->code = code;
  a->type = "text/plain; charset=utf-8";
  return MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                         MHD_RESPMEM_MUST_COPY);
}

struct MHD_Response *manta__server_text(manta__buf *b)
{
  size_t n;
  void *p = manta__buf_release(b, &n);
  struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback(n, p, manta_free);
  if (!r)
    manta_free(p);
  return r;
}

static const char *argument(const struct answer *a, const char *name)
{
  return MHD_lookup_connection_value(a->conn, MHD_GET_ARGUMENT_KIND, name);
}

static const char *header(const struct answer *a, const char *name)
{
  return MHD_lookup_connection_value(a->conn, MHD_HEADER_KIND, name);
}

// --- What can be asked for -----------------------------------------------------------------------

static struct MHD_Response *get_page(struct answer *a)
{
  a->type = "text/html; charset=utf-8";
  return MHD_create_response_from_buffer(manta__page_size, (void *)(uintptr_t)manta__page,
                                         MHD_RESPMEM_PERSISTENT);
}

static struct MHD_Response *get_runs(struct answer *a)
{
  manta__buf b;
  manta__buf_init(&b, JSON_MAX);
  struct manta__dash_json j = {.to = &b};
  pthread_mutex_lock(&a->server->catalog.lock);
  manta__show_runs(&j, &a->server->catalog);
  pthread_mutex_unlock(&a->server->catalog.lock);
  a->type = "application/json";
  struct MHD_Response *r = j.st == MANTA_OK
                               ? manta__server_text(&b)
                               : plain(a, MHD_HTTP_INSUFFICIENT_STORAGE, "too large\n");
  manta__buf_fini(&b);
  return r;
}

static struct MHD_Response *get_events(struct answer *a)
{
  a->type = "text/event-stream";
  struct MHD_Response *r = manta__stream_open(a->server, a->conn, &a->code);
  if (r)
    return r;
  return plain(a, a->code, a->code == MHD_HTTP_NOT_FOUND ? "no such run\n" : "too many readers\n");
}

static struct MHD_Response *get_log(struct answer *a)
{
  const char *run = argument(a, "run"), *rank = argument(a, "rank");
  char *end = NULL;
  long n = rank && *rank >= '0' && *rank <= '9' ? strtol(rank, &end, 10) : -1;
  manta_error err = MANTA_ERROR_INIT;
  manta__buf b;
  if (!run || n < 0 || *end || n >= MANTA__INDEX_RANKS)
    return plain(a, MHD_HTTP_BAD_REQUEST, "a log is asked for by run and rank\n");
  manta__buf_init(&b, TAIL_BYTES + 1);
  a->type = "text/plain; charset=utf-8";
  manta_status st = manta__catalog_tail(&a->server->catalog, run, (int)n, TAIL_BYTES, &b, &err);
  struct MHD_Response *r =
      st == MANTA_OK ? manta__server_text(&b) : plain(a, MHD_HTTP_NOT_FOUND, err.message);
  manta__buf_fini(&b);
  return r;
}

static struct MHD_Response *get_metrics(struct answer *a)
{
  manta__buf b;
  manta__buf_init(&b, JSON_MAX);
  pthread_mutex_lock(&a->server->catalog.lock);
  manta_status st = manta__show_prometheus(&a->server->catalog, &b);
  pthread_mutex_unlock(&a->server->catalog.lock);
  a->type = "text/plain; version=0.0.4; charset=utf-8";
  struct MHD_Response *r = st == MANTA_OK ? manta__server_text(&b)
                                          : plain(a, MHD_HTTP_INSUFFICIENT_STORAGE, "too large\n");
  manta__buf_fini(&b);
  return r;
}

static const struct route {
  const char *path;
  struct MHD_Response *(*get)(struct answer *a);
  bool page; // a link from elsewhere may lead to it
} routes[] = {
    {"/", get_page, true},
    {"/api/runs", get_runs, false},
    {"/api/events", get_events, false},
    {"/api/log", get_log, false},
    {"/metrics", get_metrics, false},
};

// --- Who may ask ---------------------------------------------------------------------------------

static const struct route *find_route(const char *path)
{
  for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
    if (!strcmp(routes[i].path, path))
      return &routes[i];
  return NULL;
}

static struct MHD_Response *respond(struct answer *a, const char *path, const char *method)
{
  const struct manta__guard *g = &a->server->guard;
  const struct route *r = find_route(path);
  const char *host = header(a, MHD_HTTP_HEADER_HOST);
  const char *site = r && r->page ? NULL : header(a, "Sec-Fetch-Site");
  if (!manta__guard_host_ok(g, host))
    return plain(a, MHD_HTTP_FORBIDDEN,
                 "this is not a name of the dashboard's host\n"
                 "hint: manta dashboard --allow-host NAME admits another one\n");
  if (!manta__guard_token_ok(g, argument(a, "token")) &&
      !manta__guard_bearer_ok(g, header(a, MHD_HTTP_HEADER_AUTHORIZATION)))
    return plain(a, MHD_HTTP_UNAUTHORIZED,
                 "a token is needed: open the link that manta dashboard has printed\n");
  MHD_set_connection_option(a->conn, MHD_CONNECTION_OPTION_TIMEOUT, IDLE_S);
  if (!manta__guard_origin_ok(g, header(a, MHD_HTTP_HEADER_ORIGIN), site, host))
    return plain(a, MHD_HTTP_FORBIDDEN, "asked for by another page\n");
  if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
    return plain(a, MHD_HTTP_METHOD_NOT_ALLOWED, "the dashboard only shows: GET\n");
  if (!r)
    return plain(a, MHD_HTTP_NOT_FOUND, "no such page\n");
  return r->get(a);
}

static void add_headers(struct MHD_Response *r, const struct answer *a)
{
  static const char *const headers[][2] = {
      {"Content-Security-Policy", manta__page_policy},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
      {"Cache-Control", "no-store"},
  };
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
    MHD_add_response_header(r, headers[i][0], headers[i][1]);
  MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, a->type);
  if (a->code == MHD_HTTP_UNAUTHORIZED)
    MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
  if (a->code == MHD_HTTP_METHOD_NOT_ALLOWED)
    MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
  static char seen; // the first call comes before a body, of which we want none
  struct answer a = {cls, conn, MHD_HTTP_OK, "text/plain; charset=utf-8"};
  bool simple = !strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD);
  if (!*state && simple) {
    *state = &seen;
    return MHD_YES;
  }
  struct MHD_Response *r = respond(&a, url, method);
  if (!r)
    return MHD_NO;
  add_headers(r, &a);
  enum MHD_Result rc = MHD_queue_response(conn, a.code, r);
  MHD_destroy_response(r);
  return rc;
}

static void on_error(void *cls, const char *fmt, va_list ap)
{
  // A reader that went away is no news, and libmicrohttpd tells of little else.
}

// --- Life ----------------------------------------------------------------------------------------

manta_status manta__server_start(struct manta__server *s, int sock, const char *cert,
                                 const char *key, manta_error *err)
{
  // poll, not epoll: that one is edge-triggered, and misses the end of a connection that comes with
  // the request.
  unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
  struct MHD_OptionItem tls[] = {
      {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)cert},
      {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)key},
      {MHD_OPTION_HTTPS_PRIORITIES, 0,
       (void *)(uintptr_t) "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
      {MHD_OPTION_END, 0, NULL}};
  struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
  s->daemon = MHD_start_daemon(flags | (cert ? MHD_USE_TLS : 0), 0, NULL, NULL, on_request, s,
                               MHD_OPTION_EXTERNAL_LOGGER, on_error, NULL, MHD_OPTION_LISTEN_SOCKET,
                               sock, MHD_OPTION_CONNECTION_LIMIT,
                               (unsigned)MANTA__SERVER_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                               STRANGER_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)PER_CONN,
                               MHD_OPTION_ARRAY, cert ? tls : none, MHD_OPTION_END);
  if (!s->daemon)
    return manta_error_set(err, MANTA_EIO, "%s",
                           cert ? "cannot serve: is the certificate in order?" : "cannot serve");
  return MANTA_OK;
}

void manta__server_stop(struct manta__server *s)
{
  pthread_mutex_lock(&s->catalog.lock);
  s->stopping = true;
  pthread_mutex_unlock(&s->catalog.lock);
  manta__stream_tick(s); // streams end by themselves
  if (s->daemon)
    MHD_stop_daemon(s->daemon);
  s->daemon = NULL;
}
