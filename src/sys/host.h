/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/host.h - what this host lets this process use: CPUs, memory, names.
 *
 * A container's limits are those of its cgroup, so the CPUs are the smaller of the affinity mask
 * and the tightest quota between this process's cgroup and the root (cgroup v2 and v1, also mixed).
 */
#ifndef MANTA_SYS_HOST_H
#define MANTA_SYS_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#define MANTA__HOST_MAX_CPUS 4096

struct manta__host {
  int *cpu_ids;  /* CPUs of the affinity mask, rising */
  int cpu_count; /* at least 1 */
  double quota;  /* CPUs by cgroup quota, may be a fraction; 0: none */
  double cpus;   /* min(cpu_count, quota) */

  int64_t mem_total;     /* bytes of the host; 0: unknown */
  int64_t mem_available; /* of them, without swapping; 0: unknown */
  int64_t mem_limit;     /* the tightest cgroup limit; 0: none */
  int64_t mem_used; /* by the cgroup of that limit (page cache counted in); 0 without a limit */

  char name[256];    /* host name */
  char release[128]; /* of the kernel: "6.1.0-18-amd64" */
};

/* Reads all of it. `root` is put before /proc and /sys, "" for this host; with another root the
 * mask is the Cpus_allowed_list of ROOT/proc/self/status. What cannot be read counts as "no limit":
 * only an unreadable mask fails (MANTA_EIO). fini it. */
manta_status manta__host_read(struct manta__host *out, const char *root, manta_error *err);
/* {0} and twice are fine. */
void manta__host_fini(struct manta__host *h);

/* The beginning of a small text file such as those in /proc, without its last newline. False, and
 * "" in buf, if it cannot be read. */
bool manta__host_text(const char *root, const char *path, char *buf, size_t size);

#endif
