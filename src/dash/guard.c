/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/sock.h"

// --- Tokens --------------------------------------------------------------------------------------

manta_status manta__guard_make_token(struct manta__guard *g, manta_error *err)
{
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return manta_error_set(err, MANTA_EIO, "getrandom: %m");
  for (size_t i = 0; i < sizeof bytes; i++)
    snprintf(g->token + 2 * i, 3, "%02x", bytes[i]);
  return MANTA_OK;
}

static bool is_token(const char *s, size_t n)
{
  static const char fine[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
  return n >= MANTA__TOKEN_MIN && n <= MANTA__TOKEN_MAX && strspn(s, fine) == n;
}

manta_status manta__guard_read_token(struct manta__guard *g, const char *path, manta_error *err)
{
  char text[MANTA__TOKEN_MAX + 2] = "";
  struct stat sb;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0)
    return manta_error_set(err, MANTA_ENOENT, "open %s: %m", path);
  ssize_t n = fstat(fd, &sb) < 0 ? -1 : read(fd, text, sizeof text - 1);
  manta__fd_close(&fd);
  if (n < 0)
    return manta_error_set(err, MANTA_EIO, "read %s: %m", path);
  if (sb.st_uid != geteuid() || (sb.st_mode & 077) != 0)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s can be read or changed by others\nhint: chmod 600 %s", path, path);
  text[strcspn(text, "\r\n")] = 0;
  if (!is_token(text, strlen(text)))
    return manta_error_set(err, MANTA_EINVAL,
                           "%s: a token is %d to %d letters, digits, '-', '_', '.' or '~'", path,
                           MANTA__TOKEN_MIN, MANTA__TOKEN_MAX);
  snprintf(g->token, sizeof g->token, "%s", text);
  return MANTA_OK;
}

bool manta__guard_token_ok(const struct manta__guard *g, const char *given)
{
  size_t n = strlen(g->token), k = given ? strlen(given) : 0;
  volatile unsigned char differs = n != k || n == 0;
  for (size_t i = 0; i < n; i++)
    differs |= (unsigned char)g->token[i] ^ (unsigned char)(i < k ? given[i] : 0);
  return !differs;
}

bool manta__guard_bearer_ok(const struct manta__guard *g, const char *header)
{
  static const char scheme[] = "Bearer ";
  return header && !strncasecmp(header, scheme, sizeof scheme - 1) &&
         manta__guard_token_ok(g, header + sizeof scheme - 1);
}

// --- Hosts ---------------------------------------------------------------------------------------

// The name without its port, in `out`; false if it cannot be one.
static bool split_host(const char *host, char *out, size_t size)
{
  const char *end;
  bool quoted = host[0] == '[';
  if (quoted) {
    end = strchr(++host, ']');
    if (!end || (end[1] && end[1] != ':'))
      return false;
  } else {
    end = host + strcspn(host, ":");
  }
  size_t n = (size_t)(end - host);
  const char *port = end + quoted;
  if (n == 0 || n >= size ||
      (*port == ':' && (!port[1] || port[1 + strspn(port + 1, "0123456789")])))
    return false;
  memcpy(out, host, n);
  out[n] = 0;
  return true;
}

static bool is_address(const char *name)
{
  unsigned char any[sizeof(struct in6_addr)];
  return inet_pton(AF_INET, name, any) == 1 || inet_pton(AF_INET6, name, any) == 1;
}

bool manta__guard_host_ok(const struct manta__guard *g, const char *host)
{
  char name[256];
  if (!host || !split_host(host, name, sizeof name))
    return false;
  return is_address(name) || !strcasecmp(name, "localhost") ||
         (g->own[0] && !strcasecmp(name, g->own)) || (g->allowed && !strcasecmp(name, g->allowed));
}

bool manta__guard_origin_ok(const struct manta__guard *g, const char *origin, const char *site,
                            const char *host)
{
  const char *scheme = g->tls ? "https://" : "http://";
  if (site && strcmp(site, "same-origin") && strcmp(site, "none"))
    return false;
  if (!origin)
    return true;
  size_t n = strlen(scheme);
  return host && !strncasecmp(origin, scheme, n) && !strcasecmp(origin + n, host);
}
