/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/iface.h - the network interface by which other hosts reach this one.
 */
#ifndef MANTA_SYS_IFACE_H
#define MANTA_SYS_IFACE_H

#include <stddef.h>

#include <manta/status.h>

struct manta__iface {
  char name[16];
  char address[46]; /* in figures, IPv4 before IPv6 if it has both */
};

/* The one that has this name or this address. MANTA_ENOENT: none, or it has no address. */
manta_status manta__iface_find(struct manta__iface *out, const char *told, manta_error *err);

/* The one of these that comes first:
 *   - what was told, as above (NULL and "": nothing was);
 *   - that by which the kernel would send to the first of n other hosts that it knows a way to (in
 *     figures; NULL and "" are passed over);
 *   - that of the default route;
 *   - the first that is up and has an address, the loopback last.
 * Sends nothing. MANTA_ENOENT only for what was told, or if there is no interface at all. */
manta_status manta__iface_choose(struct manta__iface *out, const char *told,
                                 const char *const *others, size_t n, manta_error *err);

#endif
