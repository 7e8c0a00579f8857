/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl/nccl.h - one rank's end of an NCCL communicator, inside the module.
 *
 * (1) NCCL is asked never to block. Then each of its calls may go on behind our back, and nothing
 *     else may be asked of the communicator until its state says that it is over (settle). Only so
 *     can a wait for a peer that never comes be given up; seen with 2.28: all-reduces of another
 *     size than before connect anew, and then wait for a dead peer without end. NCCL does it by a
 *     thread per call, which costs a call 0.1 ms.
 * (2) CUDA's context is that of the process (the primary one), current only inside a call.
 * (3) Threads that NCCL starts have all signals blocked.
 * (4) comm is NULL once the communicator has failed; `why` then says how.
 */
#ifndef MANTA_COMM_NCCL_NCCL_H
#define MANTA_COMM_NCCL_NCCL_H

#include <signal.h>

#include "comm/nccl/abi.h"
#include "comm/nccl/device.h"

struct manta__device {
  struct manta__device_host host;
  const struct nccl *nccl;
  const struct cuda *cuda;
  struct cu_context *ctx;
  int gpu; /* the handle that belongs to host.gpu */
  struct nccl_comm *comm;
  struct cu_stream *own, *given;               /* given: by set_stream, or NULL */
  struct cu_event *before;                     /* what came earlier on the default stream */
  struct cu_event *done[MANTA__DEVICE_FLIGHT]; /* of the operation with ticket i + 1, and so on */
  enum manta__call call[MANTA__DEVICE_FLIGHT];
  uint64_t word;            /* device memory, for barriers */
  uint64_t begun, finished; /* the last tickets that are */
  bool stuck;               /* NCCL did not come back: what it may still use is left to it */
  manta_error why;
};

/* Around anything that is asked of CUDA or NCCL. */
struct nccl_inside {
  sigset_t signals;
};
void manta__nccl_enter(const struct manta__device *d, struct nccl_inside *in);
void manta__nccl_leave(const struct manta__device *d, const struct nccl_inside *in);

/* Writes what failed; the status is that of the number. comm may be NULL. */
manta_status manta__nccl_error(const struct nccl *t, struct nccl_comm *comm, int result,
                               const char *what, manta_error *err);
manta_status manta__cuda_error(const struct cuda *t, int result, const char *what,
                               manta_error *err);

/* --- call.c --- */

/* Whether the call makes sense; touches nothing. */
manta_status manta__nccl_check(const struct manta__device *d, const struct manta__task *t,
                               manta_error *err);
/* Asks NCCL for it; gives an nccl_result. */
int manta__nccl_put(const struct manta__device *d, const struct manta__task *t,
                    struct cu_stream *stream);
const char *manta__nccl_name(enum manta__call call);

/* --- end.c --- */

/* Frees the communicator by `how` (NCCL's abort or destroy), which may hang: after a few seconds it
 * is left to the thread that it hangs in. Whether it came back. */
bool manta__nccl_reap(const struct manta__device *d, int (*how)(struct nccl_comm *comm));

#endif
