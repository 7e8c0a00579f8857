/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/fake/fake.h - stand-ins for CUDA's driver and NCCL, for machines without a GPU.
 *
 * They keep the rules that the real ones have and that a caller can break: a context must be
 * current, a communicator that is busy takes no call, a stream does its work in order and only
 * while somebody looks. Each such mistake is counted. "Device" memory is ordinary memory; ranks are
 * processes, and data goes through a memfd of rank 0.
 */
#ifndef MANTA_TEST_FAKE_H
#define MANTA_TEST_FAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/nccl/abi.h"

#define FAKE_RANKS   8
#define FAKE_MESSAGE (64u << 10) /* the longest */

/* What libcuda.so.1 shows as fake_cuda. */
struct fake_cuda {
  int contexts, streams, events, blocks; /* that exist */
  int misuses;
  int query_result; /* not 0: what events say */
  int fail_objects; /* so many streams and events can be made */
};

/* What libnccl.so.2 shows as fake_nccl. */
struct fake_nccl {
  int code;         /* version; 0: 2.28.9 */
  int polls;        /* how often a call is still in progress */
  int init_result;  /* not 0: what init gives */
  bool init_late;   /* it comes when rank 0 is gone, or after 5 s */
  int id_result;    /* not 0: what ncclGetUniqueId gives */
  int async_result; /* not 0: what the state is */
  bool notices;     /* a peer that aborted is a remote error */
  bool abort_hangs;
  int inits, finalizes, destroys, aborts; /* calls */
  int misuses;
};

/* Puts work on a stream: step is called until it gives true, and then never again; drop instead if
 * it is called off. Of fake_cuda's library. */
void fake_enqueue(struct cu_stream *stream, bool (*step)(void *), void (*drop)(void *), void *arg,
                  const void *owner);
void fake_cancel(const void *owner);
bool fake_busy(const void *owner);
bool fake_context_is_current(void);
/* Work that is over after so many looks, and then writes. */
void fake_fill_later(struct cu_stream *stream, void *at, int byte, size_t bytes, int looks);

#endif
