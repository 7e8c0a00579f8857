/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/web.h - a small HTTP server in a thread of the test, which fails as it is told to.
 */
#ifndef MANTA_TEST_WEB_H
#define MANTA_TEST_WEB_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "sys/thread.h"
#include "test.h"

#define WEB_REQUEST 16384

struct web {
  int fd, port;
  pthread_t thread;
  _Atomic bool stops;
  _Atomic int open; /* connections */
  /* What it gives: */
  const char *body; /* of every path that ends in .csv or .bin */
  _Atomic size_t size;
  /* Answers what paths it does not know; NULL: 404. Writes a body and returns the status. */
  int (*other)(const char *request, char *out, size_t room);
  /* What goes wrong: */
  _Atomic int busy;      /* so many requests are answered with `status` */
  _Atomic int status;    /* 503 and the like */
  _Atomic int cut;       /* so many bodies break off half-way */
  _Atomic bool no_range; /* the whole body, always */
  _Atomic bool no_size;  /* the same, without its length */
  _Atomic bool no_head;  /* HEAD is not known */
  _Atomic int etag;      /* of the body */
  /* What it saw: */
  _Atomic int requests;
  _Atomic int64_t last; /* the last byte that was asked for */
  _Atomic int64_t sent; /* bytes of bodies */
};

static inline void web_send(int fd, const void *p, size_t n)
{
  for (size_t at = 0; at < n;) {
    ssize_t w = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
    if (w <= 0)
      return;
    at += (size_t)w;
  }
}

static inline void web_reply(int fd, int status, const char *headers, const void *p, size_t n)
{
  char head[512];
  int k = snprintf(head, sizeof head, "HTTP/1.1 %d x\r\nContent-Length: %zu\r\n%s\r\n", status, n,
                   headers);
  web_send(fd, head, (size_t)k);
  web_send(fd, p, n);
}

static inline void web_reset(int fd)
{
  struct linger now = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

// The whole in chunks, whose number is not told; or half of it, and then the connection ends.
static inline bool web_chunks(struct web *w, int fd, bool is_head)
{
  bool whole = is_head || !(w->cut > 0 && w->cut-- > 0);
  size_t size = w->size, all = whole ? size : size / 2;
  char head[128];
  int k = snprintf(head, sizeof head, "HTTP/1.1 200 x\r\n%sETag: \"%d\"\r\n\r\n",
                   is_head ? "" : "Transfer-Encoding: chunked\r\n", w->etag);
  web_send(fd, head, (size_t)k);
  for (size_t at = 0, n; at < all && !is_head; at += n) {
    n = all - at < 100000 ? all - at : 100000;
    k = snprintf(head, sizeof head, "%zx\r\n", n);
    web_send(fd, head, (size_t)k);
    web_send(fd, w->body + at, n);
    web_send(fd, "\r\n", 2);
    w->sent += (int64_t)n;
  }
  if (whole && !is_head)
    web_send(fd, "0\r\n\r\n", 5);
  return whole && !is_head;
}

// False: the connection ends.
static inline bool web_body(struct web *w, int fd, const char *request)
{
  long long from = 0, to = (long long)w->size - 1;
  const char *range = strcasestr(request, "\r\nRange: bytes=");
  char headers[128];
  int status = 200;
  bool is_head = !strncmp(request, "HEAD", 4);
  if (is_head && w->no_head) {
    web_reply(fd, 405, "", NULL, 0);
    return true;
  }
  if (w->no_size)
    return web_chunks(w, fd, is_head);
  if (range && !w->no_range && sscanf(range + 15, "%lld-%lld", &from, &to) == 2)
    status = 206;
  if (from > to || to >= (long long)w->size) {
    web_reply(fd, 416, "", NULL, 0);
    return true;
  }
  snprintf(headers, sizeof headers, "ETag: \"%d\"\r\n", w->etag);
  if (is_head) {
    char head[512];
    int k = snprintf(head, sizeof head, "HTTP/1.1 200 x\r\nContent-Length: %zu\r\n%s\r\n",
                     (size_t)w->size, headers);
    web_send(fd, head, (size_t)k);
    return true;
  }
  if (to > w->last)
    w->last = to;
  size_t n = (size_t)(to - from + 1);
  if (w->cut > 0 && w->cut-- > 0) { // all is announced, and half of it comes
    char head[512];
    int k = snprintf(head, sizeof head, "HTTP/1.1 %d x\r\nContent-Length: %zu\r\n%s\r\n", status, n,
                     headers);
    web_send(fd, head, (size_t)k);
    web_send(fd, w->body + from, n / 2);
    if (w->cut % 2)
      web_reset(fd);
    return false;
  }
  w->sent += (int64_t)n;
  web_reply(fd, status, headers, w->body + from, n);
  return true;
}

static inline bool web_answer(struct web *w, int fd, const char *request)
{
  static _Thread_local char text[65536];
  char path[4096] = "";
  sscanf(request, "%*s %4095s", path);
  size_t n = strcspn(path, "?");
  w->requests++;
  if (w->busy > 0 && w->busy-- > 0) {
    if (w->status == 0)
      return false;
    web_reply(fd, w->status, "Retry-After: 0\r\n", "busy", !strncmp(request, "HEAD", 4) ? 0 : 4);
    return true;
  }
  int status = w->other ? w->other(request, text, sizeof text) : 0;
  if (status)
    web_reply(fd, status, "", text, !strncmp(request, "HEAD", 4) ? 0 : strlen(text));
  else if (n > 4 && (!memcmp(path + n - 4, ".csv", 4) || !memcmp(path + n - 4, ".bin", 4)))
    return web_body(w, fd, request);
  else
    web_reply(fd, 404, "", NULL, 0);
  return true;
}

struct web_connection {
  struct web *web;
  int fd;
};

static inline void *web_serve(void *ctx)
{
  struct web_connection c = *(struct web_connection *)ctx;
  char request[WEB_REQUEST + 1];
  size_t have = 0;
  free(ctx);
  for (bool goes = true; goes && !c.web->stops;) {
    struct pollfd p = {c.fd, POLLIN, 0};
    if (poll(&p, 1, 50) <= 0)
      continue;
    ssize_t got = recv(c.fd, request + have, WEB_REQUEST - have, 0);
    if (got <= 0)
      break;
    request[have += (size_t)got] = 0;
    if (strstr(request, "\r\n\r\n")) { // a client of ours does not send the next one before
      goes = web_answer(c.web, c.fd, request);
      have = 0;
    }
  }
  close(c.fd);
  c.web->open--;
  return NULL;
}

static inline void *web_accept(void *ctx)
{
  struct web *w = ctx;
  while (!w->stops) {
    struct pollfd p = {w->fd, POLLIN, 0};
    pthread_t thread;
    if (poll(&p, 1, 50) <= 0)
      continue;
    struct web_connection *c = malloc(sizeof *c);
    int on = 1;
    *c = (struct web_connection){w, accept4(w->fd, NULL, NULL, SOCK_CLOEXEC)};
    if (c->fd < 0) {
      free(c);
      continue;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    w->open++;
    assert_int_equal(manta__thread_start(&thread, "web", 1 << 18, web_serve, c), 0);
    pthread_detach(thread);
  }
  return NULL;
}

static inline void web_start(struct web *w, const char *body, size_t size,
                             int (*other)(const char *request, char *out, size_t room))
{
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  *w = (struct web){.body = body, .size = size, .other = other, .etag = 1};
  w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(w->fd >= 0);
  assert_int_equal(bind(w->fd, (struct sockaddr *)&a, sizeof a), 0);
  assert_int_equal(listen(w->fd, 64), 0);
  assert_int_equal(getsockname(w->fd, (struct sockaddr *)&a, &n), 0);
  w->port = ntohs(a.sin_port);
  assert_int_equal(manta__thread_start(&w->thread, "web", 1 << 18, web_accept, w), 0);
}

static inline void web_stop(struct web *w)
{
  w->stops = true;
  pthread_join(w->thread, NULL);
  close(w->fd);
  while (w->open)
    usleep(1000);
}

#endif
