/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/hosts.h - the hosts of a trainer: those that it was given, those of MANTA_HOSTS, those
 * that an engine finds, or this one.
 *
 * MANTA_HOSTS is a list, separated by newlines or semicolons; each entry is a name, a number of
 * workers and the way to the host (engine.h (1)), separated by blanks:
 *   a 2; b 2 ssh b manta agent --stdio
 * The name may be followed by an address or the name of an interface: b@10.0.0.7, b@eth1
 */
#ifndef MANTA_ENGINE_HOSTS_H
#define MANTA_ENGINE_HOSTS_H

#include <manta/trainer.h>

#include "engine/engine.h"

struct manta__host_entry {
  struct manta__engine_host host;
  char *address; /* to reach its workers at, or an interface; NULL: as the agent there says */
  int slots;     /* workers it may have; 0: not said */
};

struct manta__host_list { /* {0} is empty */
  struct manta__host_entry *item;
  size_t count;
};

/* Adds a host as the user described it; one that discover found, too. MANTA_EINVAL says what is
 * wrong with it, by its number in the list. */
manta_status manta__engine_hosts_add(struct manta__host_list *l, const manta_host *h,
                                     manta_error *err);
/* Adds what a text in the form of MANTA_HOSTS names. */
manta_status manta__engine_hosts_parse(struct manta__host_list *l, const char *text,
                                       manta_error *err);
/* The hosts for a trainer that was given `count` of them. alone: without any it has this one,
 * whatever the environment says. There is at least one. On failure the list is empty. */
manta_status manta__engine_hosts_find(struct manta__host_list *out, const manta_host *given,
                                      size_t count, bool alone, manta_error *err);
void manta__engine_hosts_fini(struct manta__host_list *l);

#endif
