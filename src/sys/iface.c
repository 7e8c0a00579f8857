/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/iface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(sizeof((struct manta__iface *)0)->name == IF_NAMESIZE, "an interface's name");
_Static_assert(sizeof((struct manta__iface *)0)->address == INET6_ADDRSTRLEN, "an address");

static bool spell(const struct sockaddr *a, char text[INET6_ADDRSTRLEN])
{
  const void *raw = NULL;
  if (a && a->sa_family == AF_INET)
    raw = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
  else if (a && a->sa_family == AF_INET6)
    raw = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
  return raw && inet_ntop(a->sa_family, raw, text, INET6_ADDRSTRLEN);
}

// One that works only together with the interface's name is none for us.
static bool is_link_local(const struct sockaddr *a)
{
  return a->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

// --- by name or address -------------------------------------------------------------------------

// How well an entry suits, 0: not at all. Of what equals, the first is taken.
typedef int rate_fn(const struct ifaddrs *i, const char *text, const char *told);

static int as_told(const struct ifaddrs *i, const char *text, const char *told)
{
  if (!strcmp(text, told))
    return 3;
  if (strcmp(i->ifa_name, told) != 0 || is_link_local(i->ifa_addr))
    return 0;
  return i->ifa_addr->sa_family == AF_INET ? 2 : 1;
}

static int as_found(const struct ifaddrs *i, const char *text, const char *told)
{
  if (!(i->ifa_flags & IFF_UP) || is_link_local(i->ifa_addr))
    return 0;
  return 1 + (i->ifa_addr->sa_family == AF_INET) + 2 * !(i->ifa_flags & IFF_LOOPBACK);
}

static bool pick(struct manta__iface *out, rate_fn *rate, const char *told)
{
  struct ifaddrs *all;
  char text[INET6_ADDRSTRLEN];
  int best = 0;
  if (getifaddrs(&all) != 0)
    return false;
  for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
    int r = spell(i->ifa_addr, text) ? rate(i, text, told) : 0;
    if (r <= best)
      continue;
    best = r;
    snprintf(out->name, sizeof out->name, "%s", i->ifa_name);
    snprintf(out->address, sizeof out->address, "%s", text);
  }
  freeifaddrs(all);
  return best > 0;
}

manta_status manta__iface_find(struct manta__iface *out, const char *told, manta_error *err)
{
  if (pick(out, as_told, told))
    return MANTA_OK;
  return manta_error_set(err, MANTA_ENOENT, "no network interface has the name or address %s",
                         told);
}

// --- by where it leads --------------------------------------------------------------------------

static socklen_t parse(const char *text, struct sockaddr_storage *out)
{
  struct sockaddr_in *four = (void *)out;
  struct sockaddr_in6 *six = (void *)out;
  memset(out, 0, sizeof *out);
  if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(9);
    return sizeof *four;
  }
  if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(9);
    return sizeof *six;
  }
  return 0;
}

// To connect a datagram socket is to ask for the route.
static bool leads_to(struct manta__iface *out, const char *there)
{
  struct sockaddr_storage to, from;
  char text[INET6_ADDRSTRLEN];
  socklen_t size = parse(there, &to), got = sizeof from;
  int s = size ? socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
  if (s < 0)
    return false;
  bool found = connect(s, (struct sockaddr *)&to, size) == 0 &&
               getsockname(s, (struct sockaddr *)&from, &got) == 0 &&
               spell((struct sockaddr *)&from, text) && pick(out, as_told, text);
  close(s);
  return found;
}

manta_status manta__iface_choose(struct manta__iface *out, const char *told,
                                 const char *const *others, size_t n, manta_error *err)
{
  static const char *const anywhere[] = {"203.0.113.1", "2001:db8::1"}; // nobody's
  if (told && *told)
    return manta__iface_find(out, told, err);
  for (size_t i = 0; i < n; i++)
    if (others[i] && leads_to(out, others[i]))
      return MANTA_OK;
  if (leads_to(out, anywhere[0]) || leads_to(out, anywhere[1]) || pick(out, as_found, NULL))
    return MANTA_OK;
  return manta_error_set(err, MANTA_ENOENT, "this host has no network interface");
}
