/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl/device.h - collectives on device memory: the table that a transport of GPUs fills.
 *
 * The core knows no GPU library. It asks whether a buffer is device memory, and if so loads the
 * module that moves it (libmanta-nccl.so) and talks to it by this table alone.
 *
 * (1) Operations are started in one order on all ranks, and are done in that order. Each gets a
 *     ticket, 1, 2, 3 …; waiting for a ticket waits for all before it. At most
 *     MANTA__DEVICE_FLIGHT are under way: one more waits for the oldest.
 * (2) An operation comes after all work that was put on the stream that the caller set; without
 *     one, after all work on the device's default stream. So what a kernel is still writing there
 *     is summed when it is written. Work on other streams must be ordered by the caller. When wait
 *     has returned, the result is there for every stream.
 * (3) Nothing waits for ever: a wait ends with the operation, with the abort word, with an error
 *     of the transport, or with its deadline. Each of the last three ends the communicator on this
 *     rank: what runs on the device is called off (NCCL takes half a second for that), later calls
 *     give the same status (after MANTA_ETIMEDOUT: MANTA_ESTATE), and buffers of operations under
 *     way are undefined. The process, its CUDA context and its other communicators go on.
 * (4) The order of addition is the transport's own. The fixed order of manta/comm.h does NOT hold
 *     on device memory: the same job gives the same bits only with the same ranks on the same GPUs
 *     and hosts, and the same version and settings of NCCL. Likewise mean (of floats the sum of
 *     x/n, not the sum over n), and min and max of NaN, are what NCCL makes of them.
 * (5) Data is moved in any type; sums and the like are computed in I8, U8, I32, U32, I64, U64, F16,
 *     BF16, F32 and F64, BOOL8 (min and max only). 16-bit integers are refused: MANTA_ETYPE.
 * (6) One thread at a time. Sends and receives have their turn like all others, so two ranks that
 *     send to each other before they receive wait for each other.
 *
 * How the core uses it: manta__comm_run, whose task is about to be run in its turn, asks
 *
 *     int gpu;
 *     if (manta__device_owns(t->send ? t->send : t->recv, &gpu))
 *       return on_device(c, gpu, t, err);
 *
 * and on_device makes c's device communicator at its first use (manta__device_load, then create,
 * whose exchange is an all-gather of c's own, in host memory), then start and wait. Sends and
 * receives of device memory go through the lane too (6). If the ranks compare descriptions first,
 * as they do for host memory, then calls that differ, ranks that pass host memory where others pass
 * a GPU's, and peers that are gone are found before the GPU is asked.
 */
#ifndef MANTA_COMM_NCCL_DEVICE_H
#define MANTA_COMM_NCCL_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/shm/task.h"

#define MANTA__DEVICE_ABI    1u /* rises when anything below, or struct manta__task, changes */
#define MANTA__DEVICE_FLIGHT 64

struct manta__device; /* one rank's end of a communicator; complete in the module only */

/* What the transport needs of its caller. Borrowed until destroy, but for the struct itself. */
struct manta__device_host {
  int rank, size;
  int gpu; /* as CUDA counts in this process */
  void *ctx;
  /* A collective over the same ranks, of host memory: `all` gets size blocks of `bytes` bytes, at
   * most 512. Ends by itself at `by`. */
  manta_status (*exchange)(void *ctx, const void *mine, void *all, size_t bytes, int64_t by,
                           manta_error *err);
  const _Atomic uint32_t *abort; /* not 0: check says why */
  manta_status (*check)(void *ctx, manta_error *err);
  /* A sign of life; waits = true: about to sleep. Optional. */
  void (*alive)(void *ctx, bool waits);
};

struct manta__device_ops {
  uint32_t abi;     /* MANTA__DEVICE_ABI */
  const char *name; /* "nccl" */

  /* A collective. When one rank cannot take part (no library, one that is too old), all ranks get
   * MANTA_EUNSUPPORTED and its reason. */
  manta_status (*create)(struct manta__device **out, const struct manta__device_host *host,
                         int64_t by, manta_error *err);
  /* Ends what is under way: at once if the communicator has failed, else when its data is out, a
   * few seconds at most. No collective. NULL is fine. */
  void (*destroy)(struct manta__device *d);

  /* The CUstream (or cudaStream_t) for the operations that follow; NULL: the transport's own. */
  void (*set_stream)(struct manta__device *d, void *stream);

  /* Puts the operation on the stream. What it refuses with MANTA_EINVAL or MANTA_ETYPE was not
   * begun and does no harm. Mostly quick; but it may wait, until `by`, for the oldest of too many,
   * and for peers that have to be connected to, which is when they make the same call. BROADCAST:
   * the buffer is recv. */
  manta_status (*start)(struct manta__device *d, const struct manta__task *t, int64_t by,
                        uint64_t *ticket, manta_error *err);
  /* The deadline counts as failure even if the operation would be done a moment later. */
  manta_status (*wait)(struct manta__device *d, uint64_t ticket, int64_t by, manta_error *err);
  /* Whether wait would return at once, well or not. */
  bool (*test)(struct manta__device *d, uint64_t ticket);
};

/* --- device.c: in the core --- */

/* Whether p is memory of a GPU, and of which one. As long as CUDA's driver is not loaded in this
 * process the answer costs some ten nanoseconds, and never loads anything. Managed memory counts as
 * where CUDA says it is. NULL is not. */
bool manta__device_owns(const void *p, int *gpu_out);

/* Loads the module, once. MANTA_EUNSUPPORTED says why it cannot be had. */
manta_status manta__device_load(const struct manta__device_ops **out, manta_error *err);

/* --- nccl.c: in the module --- */

/* The one symbol that the module shows: const struct manta__device_ops * by this name. */
#define MANTA__DEVICE_ENTRY "manta_device_entry"

#endif
