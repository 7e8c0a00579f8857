/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/dash.c - the options, the socket, the loop.
 */
#include "dash/dash.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "dash/server.h"
#include "sys/file.h"
#include "sys/sock.h"

#define PEM_MAX (1u << 20)

// --- The address ---------------------------------------------------------------------------------

union address {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
};

static manta_status parse_address(union address *a, const char *text, manta_error *err)
{
  *a = (union address){0};
  if (inet_pton(AF_INET, text, &a->v4.sin_addr) == 1)
    a->any.sa_family = AF_INET;
  else if (inet_pton(AF_INET6, text, &a->v6.sin6_addr) == 1)
    a->any.sa_family = AF_INET6;
  else
    return manta_error_set(err, MANTA_EINVAL, "--bind %s: this is no IP address", text);
  return MANTA_OK;
}

static bool is_loopback(const union address *a)
{
  if (a->any.sa_family == AF_INET)
    return (ntohl(a->v4.sin_addr.s_addr) >> 24) == 127;
  return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static manta_status check_options(const struct manta__dash_options *o, const union address *a,
                                  manta_error *err)
{
  if (!o->cert != !o->key)
    return manta_error_set(err, MANTA_EINVAL, "--cert and --key belong together");
  if (o->cert && o->insecure)
    return manta_error_set(err, MANTA_EINVAL, "--insecure contradicts --cert");
  if (!is_loopback(a) && !o->cert && !o->insecure)
    return manta_error_set(err, MANTA_EINVAL,
                           "beyond this host the dashboard needs --cert and --key\n"
                           "hint: ssh -L %d:127.0.0.1:%d HOST reaches it without; --insecure sends "
                           "token and data in the clear",
                           MANTA__DASH_PORT, MANTA__DASH_PORT);
  return MANTA_OK;
}

static int bind_to(union address *a, int port)
{
  int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int one = 1;
  if (fd < 0)
    return -1;
  a->v4.sin_port = htons((uint16_t)port); // at the same place in both
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  socklen_t len = a->any.sa_family == AF_INET ? sizeof a->v4 : sizeof a->v6;
  if (bind(fd, &a->any, len) == 0 && listen(fd, 64) == 0)
    return fd;
  manta__fd_close(&fd);
  return -1;
}

static manta_status open_socket(int *out, union address *a, int *port, const char *text,
                                manta_error *err)
{
  int fd = bind_to(a, *port < 0 ? MANTA__DASH_PORT : *port);
  if (fd < 0 && *port < 0 && errno == EADDRINUSE)
    fd = bind_to(a, 0);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "listen on %s port %d: %m", text,
                           *port < 0 ? MANTA__DASH_PORT : *port);
  union address is;
  socklen_t len = sizeof is;
  getsockname(fd, &is.any, &len);
  *port = ntohs(is.v4.sin_port);
  *out = fd;
  return MANTA_OK;
}

// --- TLS -----------------------------------------------------------------------------------------

static manta_status read_key(const char *path, char **out, manta_error *err)
{
  size_t n;
  struct stat sb;
  if (stat(path, &sb) == 0 && (sb.st_mode & 077) != 0)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s can be read or changed by others\nhint: chmod 600 %s", path, path);
  return manta__file_read(AT_FDCWD, path, PEM_MAX, out, &n, err);
}

static manta_status start(struct manta__server *s, const struct manta__dash_options *o, int sock,
                          manta_error *err)
{
  char *cert = NULL, *key = NULL;
  size_t n;
  manta_status st = MANTA_OK;
  if (o->cert) {
    st = manta__file_read(AT_FDCWD, o->cert, PEM_MAX, &cert, &n, err);
    if (st == MANTA_OK)
      st = read_key(o->key, &key, err);
  }
  if (st == MANTA_OK)
    st = manta__server_start(s, sock, cert, key, err);
  if (key)
    explicit_bzero(key, strlen(key));
  manta_free(key);
  manta_free(cert);
  return st;
}

// --- Serving -------------------------------------------------------------------------------------

static void tell(const struct manta__server *s, const struct manta__dash_options *o,
                 const union address *a, int port)
{
  char where[INET6_ADDRSTRLEN], link[256 + sizeof s->guard.own + MANTA__TOKEN_MAX];
  bool v6 = a->any.sa_family == AF_INET6;
  const void *raw = v6 ? (const void *)&a->v6.sin6_addr : (const void *)&a->v4.sin_addr;
  inet_ntop(a->any.sa_family, raw, where, sizeof where);
  bool any = !strcmp(where, "0.0.0.0") || !strcmp(where, "::");
  const char *host = o->host ? o->host : any ? s->guard.own : where;
  snprintf(link, sizeof link, "%s://%s%s%s:%d/?token=%s", s->guard.tls ? "https" : "http",
           v6 && host == where ? "[" : "", host, v6 && host == where ? "]" : "", port,
           s->guard.token);
  o->ready(link, o->ctx);
}

static void serve(struct manta__server *s, int signals)
{
  int64_t by = manta__now();
  while (!manta__catalog_work(&s->catalog, signals, by))
    by = manta__stream_tick(s);
}

static manta_status prepare(struct manta__server *s, const struct manta__dash_options *o,
                            manta_error *err)
{
  s->guard = (struct manta__guard){.tls = o->cert != NULL, .allowed = o->host};
  if (gethostname(s->guard.own, sizeof s->guard.own - 1) < 0)
    s->guard.own[0] = 0;
  MANTA_TRY(o->token_file ? manta__guard_read_token(&s->guard, o->token_file, err)
                          : manta__guard_make_token(&s->guard, err));
  return manta__catalog_open(&s->catalog, o->dir, err);
}

static manta_status run(struct manta__server *s, const struct manta__dash_options *o, int signals,
                        manta_error *err)
{
  union address a;
  const char *text = o->bind ? o->bind : "127.0.0.1";
  int sock = -1, port = o->port;
  MANTA_TRY(parse_address(&a, text, err));
  MANTA_TRY(check_options(o, &a, err));
  MANTA_TRY(prepare(s, o, err));
  MANTA_TRY(open_socket(&sock, &a, &port, text, err));
  manta_status st = start(s, o, sock, err);
  if (st < 0) {
    manta__fd_close(&sock);
    return st;
  }
  tell(s, o, &a, port);
  serve(s, signals);
  manta__server_stop(s); // closes the socket
  return MANTA_OK;
}

static manta_status dash_serve(const struct manta__dash_options *o, manta_error *err)
{
  struct manta__server *s = manta__calloc(1, sizeof *s);
  sigset_t set;
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the dashboard");
  s->catalog.fd = s->catalog.wake[0] = s->catalog.wake[1] = -1;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
  int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  manta_status st =
      signals < 0 ? manta_error_set(err, MANTA_EIO, "signalfd: %m") : run(s, o, signals, err);
  manta__catalog_close(&s->catalog);
  manta__fd_close(&signals);
  explicit_bzero(&s->guard, sizeof s->guard);
  manta__free(s);
  return st;
}

extern const struct manta__dash_module manta_dash_entry;
MANTA_API const struct manta__dash_module manta_dash_entry = {.serve = dash_serve};
