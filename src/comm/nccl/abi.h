/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl/abi.h - the little of NCCL's and CUDA's binary interfaces that is used, in our words.
 *
 * Neither needs to be installed where manta is built: the libraries are looked up when the first
 * device communicator is made. NCCL keeps its functions and the numbers below from version to
 * version; each function says from which version on it is there, and the configuration is that of
 * the oldest version which later ones still take. CUDA's driver marks a changed function by a
 * new name (_v2).
 */
#ifndef MANTA_COMM_NCCL_ABI_H
#define MANTA_COMM_NCCL_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

/* --- NCCL --- */

#define NCCL_CODE(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
/* The first with communicators that don't block: only those can be given a deadline. */
#define NCCL_OLDEST NCCL_CODE(2, 14, 0)

enum nccl_result {
  NCCL_SUCCESS = 0,
  NCCL_CUDA_ERROR = 1,
  NCCL_SYSTEM_ERROR = 2,
  NCCL_INTERNAL_ERROR = 3,
  NCCL_INVALID_ARGUMENT = 4,
  NCCL_INVALID_USAGE = 5,
  NCCL_REMOTE_ERROR = 6,
  NCCL_IN_PROGRESS = 7
};

enum nccl_type {
  NCCL_I8 = 0,
  NCCL_U8 = 1,
  NCCL_I32 = 2,
  NCCL_U32 = 3,
  NCCL_I64 = 4,
  NCCL_U64 = 5,
  NCCL_F16 = 6,
  NCCL_F32 = 7,
  NCCL_F64 = 8,
  NCCL_BF16 = 9
};

enum nccl_op { NCCL_SUM = 0, NCCL_PROD = 1, NCCL_MAX = 2, NCCL_MIN = 3, NCCL_AVG = 4 };

struct nccl_comm;

struct nccl_id { /* passed by value */
  char bytes[128];
};
static_assert(sizeof(struct nccl_id) == 128, "ncclUniqueId");

#define NCCL_CONFIG_MAGIC 0xcafebeefu

struct nccl_config { /* of 2.14; `version` tells later ones that no more fields follow */
  size_t size;
  uint32_t magic, version;
  int blocking;
  int pad; /* cgaClusterSize from 2.17 on, which is not read from a config of 2.14 */
};
static_assert(sizeof(struct nccl_config) == 24, "ncclConfig_v21400");
static_assert(offsetof(struct nccl_config, blocking) == 16, "ncclConfig_v21400");

struct cu_stream;

/* X(field, symbol, since, arguments): each gives an int, an nccl_result. */
#define NCCL_MAP(X)                                                                                \
  X(version, ncclGetVersion, 20000, (int *code))                                                   \
  X(unique_id, ncclGetUniqueId, 20000, (struct nccl_id * id))                                      \
  X(init, ncclCommInitRankConfig, 21400,                                                           \
    (struct nccl_comm * *comm, int size, struct nccl_id id, int rank, struct nccl_config *config)) \
  X(finalize, ncclCommFinalize, 21400, (struct nccl_comm * comm))                                  \
  X(destroy, ncclCommDestroy, 20000, (struct nccl_comm * comm))                                    \
  X(abort, ncclCommAbort, 20400, (struct nccl_comm * comm))                                        \
  X(async_error, ncclCommGetAsyncError, 20400, (struct nccl_comm * comm, int *result))             \
  X(group_start, ncclGroupStart, 20000, (void))                                                    \
  X(group_end, ncclGroupEnd, 20000, (void))                                                        \
  X(all_reduce, ncclAllReduce, 20000,                                                              \
    (const void *send, void *recv, size_t count, int type, int op, struct nccl_comm *comm,         \
     struct cu_stream *stream))                                                                    \
  X(reduce, ncclReduce, 20000,                                                                     \
    (const void *send, void *recv, size_t count, int type, int op, int root,                       \
     struct nccl_comm *comm, struct cu_stream *stream))                                            \
  X(broadcast, ncclBroadcast, 20200,                                                               \
    (const void *send, void *recv, size_t count, int type, int root, struct nccl_comm *comm,       \
     struct cu_stream *stream))                                                                    \
  X(all_gather, ncclAllGather, 20000,                                                              \
    (const void *send, void *recv, size_t count, int type, struct nccl_comm *comm,                 \
     struct cu_stream *stream))                                                                    \
  X(reduce_scatter, ncclReduceScatter, 20000,                                                      \
    (const void *send, void *recv, size_t count, int type, int op, struct nccl_comm *comm,         \
     struct cu_stream *stream))                                                                    \
  X(send, ncclSend, 20700,                                                                         \
    (const void *buf, size_t count, int type, int to, struct nccl_comm *comm,                      \
     struct cu_stream *stream))                                                                    \
  X(recv, ncclRecv, 20700,                                                                         \
    (void *buf, size_t count, int type, int from, struct nccl_comm *comm,                          \
     struct cu_stream *stream))

struct nccl {
#define NCCL_FIELD(field, symbol, since, arguments) int(*field) arguments;
  NCCL_MAP(NCCL_FIELD)
#undef NCCL_FIELD
  const char *(*error_string)(int result);
  const char *(*last_error)(struct nccl_comm *comm);
  int code; /* what ncclGetVersion said */
};

/* --- CUDA's driver --- */

#define CUDA_LIBRARY "libcuda.so.1"

enum cu_result { CU_SUCCESS = 0, CU_NOT_READY = 600 };
enum cu_number {
  CU_POINTER_MEMORY_TYPE = 2,
  CU_POINTER_DEVICE_ORDINAL = 9,
  CU_MEMORY_DEVICE = 2,
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_NO_TIMING = 2
};

struct cu_context;
struct cu_event;

/* X(field, symbol, arguments): each gives an int, a cu_result. A device pointer is a uint64_t. */
#define CUDA_MAP(X)                                                                                \
  X(init, cuInit, (unsigned flags))                                                                \
  X(device, cuDeviceGet, (int *device, int ordinal))                                               \
  X(error_name, cuGetErrorName, (int error, const char **name))                                    \
  X(retain, cuDevicePrimaryCtxRetain, (struct cu_context * *ctx, int device))                      \
  X(release, cuDevicePrimaryCtxRelease_v2, (int device))                                           \
  X(push, cuCtxPushCurrent_v2, (struct cu_context * ctx))                                          \
  X(pop, cuCtxPopCurrent_v2, (struct cu_context * *ctx))                                           \
  X(alloc, cuMemAlloc_v2, (uint64_t * out, size_t bytes))                                          \
  X(free, cuMemFree_v2, (uint64_t at))                                                             \
  X(stream_create, cuStreamCreate, (struct cu_stream * *out, unsigned flags))                      \
  X(stream_destroy, cuStreamDestroy_v2, (struct cu_stream * stream))                               \
  X(stream_wait, cuStreamWaitEvent,                                                                \
    (struct cu_stream * stream, struct cu_event * event, unsigned flags))                          \
  X(event_create, cuEventCreate, (struct cu_event * *out, unsigned flags))                         \
  X(event_destroy, cuEventDestroy_v2, (struct cu_event * event))                                   \
  X(event_record, cuEventRecord, (struct cu_event * event, struct cu_stream * stream))             \
  X(event_query, cuEventQuery, (struct cu_event * event))

struct cuda {
#define CUDA_FIELD(field, symbol, arguments) int(*field) arguments;
  CUDA_MAP(CUDA_FIELD)
#undef CUDA_FIELD
};

/* --- lib.c --- */

/* The libraries of this process, loaded and bound at the first call and kept; later calls give the
 * same answer. A library that the process already has (torch's, say) is taken before any other;
 * MANTA_NCCL names the file of NCCL instead. MANTA_EUNSUPPORTED says what is missing or too old. */
manta_status manta__nccl_load(const struct nccl **nccl, const struct cuda **cuda, manta_error *err);

#endif
