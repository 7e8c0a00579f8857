/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/remote.h - an all-reduce straight out of, and into, the private memory of the others.
 *
 * Each rank reads its slice of everybody's buffer (process_vm_readv), adds, and writes the sum into
 * everybody's result (process_vm_writev): two phases, whatever the size.
 *
 * Why this can be faster than staging, although the kernel has to look up every page: all lines of
 * a staging buffer must be got for writing while the peer still has them, and then be read by the
 * peer out of our cache. Here half of them (of two ranks) cross over, and are at hand when the sum
 * is written back. On a Xeon (Emerald Rapids), where a core gets 16 GB/s out of another's cache
 * whatever is prefetched, 2 ranks all-reduce 4 MB in 0.45 instead of 0.67 ms, and 256 KB in 30
 * instead of 32 us. Reading only, the data and then the sums, takes 0.55 ms for 4 MB and 41 us for
 * 256 KB: the sums that were read lie in the wrong cache, and so do the lines they are put into.
 *
 * (1) Memory is reached in a call only if its rank has offered it in the description of that call.
 *     The kernel may forbid it (seccomp, Yama, another user): the first call that would go this way
 *     tries it out, between all ranks, and it is used by all or never.
 * (2) A rank offers only what it can reach in this way itself: not memory of a device, for example,
 *     and pinned memory often is that.
 * (3) Nobody writes into the memory of a rank that has returned from the call. One that wants to
 *     return early says first that it gives up, then waits for each writer to be done with it
 *     (manta__remote_withdraw); a writer says first what it will write, then looks whether that
 *     rank has given up.
 * (4) That wait is as long as a piece takes. A writer that dies lets go of its mutex. One that is
 *     stopped (SIGSTOP, a debugger) is so outside of the system call, whose last act is to write
 *     the number of the piece: only one that was stopped in the few instructions in front of it
 *     holds up the other until it goes on.
 * (5) What was read may have been changed by a rank that gave up: whoever has read it finds out at
 *     the end of the call, as with the shared heap (manta__team_meet_verified).
 * (6) The kernel may leave it to a rank that is reading to free the memory of one that died: of ten
 *     deaths in such calls one is known later by that, 10 ms for 256 MB. Where ranks share CPUs and
 *     may be preempted while they read, it would be many: there no rank goes this way, unless
 *     MANTA_COMM_WAY says so.
 */
#ifndef MANTA_COMM_SHM_REMOTE_H
#define MANTA_COMM_SHM_REMOTE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

struct manta__team;
struct manta__transfer;
struct manta__desc;

/* What a rank shows the others, in the segment. */
struct manta__hand {
  _Alignas(64) pthread_mutex_t writes; /* robust: held while it writes into somebody's memory */
  _Atomic uint64_t push;               /* number << 16 | 1 + rank of the piece that it writes */
  _Alignas(64) int32_t pid;
  uint64_t token;           /* what `done` ends with: so that no other process is taken for it */
  uint64_t done_at;         /* its address of `done` */
  _Atomic uint32_t verdict; /* of the try-out */
};

/* What it has for itself. */
struct manta__remote {
  enum { MANTA__REMOTE_UNTRIED, MANTA__REMOTE_WORKS, MANTA__REMOTE_FORBIDDEN } state;
  uint8_t *bounce;        /* a piece of each of the others */
  size_t piece;           /* bytes of one */
  _Atomic uint64_t *done; /* [ranks + 1]: `push` of the last piece that each has written to us */
  uint64_t pushes;
};

manta_status manta__remote_init(struct manta__team *t, manta_error *err);
void manta__remote_fini(struct manta__remote *r);
/* Puts the addresses of this call's buffers into its description, if they can be reached. */
bool manta__remote_offer(struct manta__team *t, const struct manta__transfer *x,
                         struct manta__desc *d);
/* After the descriptions, if all have offered: whether it works. The same answer on all ranks. */
manta_status manta__remote_try(struct manta__team *t, bool *works, manta_error *err);
/* The caller meets and settles with all. */
manta_status manta__remote_allreduce(struct manta__team *t, const struct manta__transfer *x,
                                     manta_error *err);
/* A call that we have offered memory in has failed. After this nobody writes there any more. */
void manta__remote_withdraw(struct manta__team *t);

#endif
