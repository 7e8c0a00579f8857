/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/cgroup.h - the limits that control groups put on this process.
 *
 * A limit anywhere between the process's own group and the root holds, so all of them are read.
 * Both hierarchies may exist at once (v1 per controller, v2 unified); the tightest limit counts.
 * Inside a container the groups above its own are not visible, and a path that leads there is cut
 * off.
 */
#ifndef MANTA_SYS_CGROUP_H
#define MANTA_SYS_CGROUP_H

#include <stdint.h>

struct manta__cgroup {
  double quota;      /* CPUs; 0: none */
  int64_t mem_limit; /* bytes; 0: none */
  int64_t mem_used;  /* by the group that has that limit */
};

/* Reads ROOT/proc/self/cgroup and ROOT/proc/self/mountinfo and the files they lead to (under ROOT).
 * Never fails: what cannot be read is no limit. */
void manta__cgroup_read(struct manta__cgroup *out, const char *root);

#endif
