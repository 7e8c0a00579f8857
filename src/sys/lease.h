/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/lease.h - what runs of the same user hold of a host: cores, GPUs, shares of CPU time.
 *
 * A lease is a lock on a byte of the file `leases` in the runtime directory:
 *
 *   0 .. 4095            core i, for a worker that is pinned to it
 *   8192 .. 12287        GPU j (NVML's index), whole: sharing one is a matter within a run
 *   2^20 + 1000 c + u    the u-th thousandth of CPU c: shares of CPU time, of no particular core
 *   2^32 + u             shares beyond the CPUs of the mask, where more were declared
 *
 * (1) Locks are of the open file description kind: the kernel drops them when the last copy of
 *     the descriptor is closed, however the holder died. There is nothing to leak and nothing to
 *     repair.
 * (2) The file stays empty and is never removed: removing it would part its holders from
 *     newcomers.
 * (3) A second descriptor looks and never holds, so our own locks look taken to us as well.
 *
 * The descriptors are close-on-exec; whoever forks without exec and lives on closes them in the
 * child with manta__lease_close. One thread at a time.
 */
#ifndef MANTA_SYS_LEASE_H
#define MANTA_SYS_LEASE_H

#include <stdint.h>

#include <manta/status.h>

#define MANTA__LEASE_CPUS 4096
#define MANTA__LEASE_GPUS 4096
#define MANTA__LEASE_UNIT 1000 /* shares of one CPU */

typedef struct manta__lease manta__lease;

/* Opens the file under `dirfd` (borrowed), making it if it is not there. Gives: close it. */
manta_status manta__lease_open(manta__lease **out, int dirfd, manta_error *err);
/* Gives everything back. NULL is fine. */
void manta__lease_close(manta__lease *l);

/* Take up to `want` of the `n` candidates that nobody holds, in the order given. `taken` has room
 * for `want`. The number taken, 0 upwards. */
int manta__lease_take_cpus(manta__lease *l, const int *candidates, int n, int want, int *taken);
int manta__lease_take_gpus(manta__lease *l, const int *candidates, int n, int want, int *taken);
void manta__lease_release_cpus(manta__lease *l, const int *ids, int n);
void manta__lease_release_gpus(manta__lease *l, const int *ids, int n);
/* How many of the candidates nobody holds, we included. */
int manta__lease_count_free_cpus(const manta__lease *l, const int *candidates, int n);
int manta__lease_count_free_gpus(const manta__lease *l, const int *candidates, int n);

/* The shares a host offers: those of its CPUs (`cpus` borrowed), cut or stretched to `total`. Two
 * runs with the same mask contend for the same shares, two with disjoint masks for none. */
struct manta__lease_pool {
  const int *cpus;
  int cpu_count;
  int64_t total; /* in 1/MANTA__LEASE_UNIT CPU */
};
/* Makes the number of shares that `l` holds out of the pool equal to `want`: all of them or no
 * change. MANTA_ENOROOM if others hold too many. Shrinking always succeeds. */
manta_status manta__lease_hold(manta__lease *l, const struct manta__lease_pool *pool, int64_t want,
                               manta_error *err);
int64_t manta__lease_held(const manta__lease *l);
/* Shares that nobody holds, we included. */
int64_t manta__lease_count_free(const manta__lease *l, const struct manta__lease_pool *pool);

#endif
