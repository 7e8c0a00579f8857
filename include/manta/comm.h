/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/comm.h - collectives: the buffers of all ranks become one, or change places.
 *
 * Every rank of the group calls the same function with the same count, type and operation, in the
 * same order. A call returns when this rank's part is done. A rank that is lost ends every
 * waiting and later call of the others with MANTA_EPEERLOST, within a fraction of a millisecond;
 * what buffers of the call hold is then undefined (those in shared memory may still change: a
 * slower rank may not know yet), and the train function should clean up and return the status.
 *
 * The sum of n contributions is a balanced binary tree over the ranks, ((0+1)+(2+3))+..., each
 * node in f32 or wider, whatever the size or the layout: the same input gives the same bits.
 *
 * Buffers may be memory of a GPU (CUDA): NCCL then does the work, in its own order of addition, and
 * needs half a second to leave when a peer is lost. All ranks must pass the same kind.
 *
 * The collectives of a communicator come from one thread at a time; sends, receives and waits may
 * come from any. Each call has a deadline: the communicator's (manta_comm_set_timeout). After a
 * call has failed by its deadline the ranks are out of step, and the communicator is of no use any
 * more: its later calls give MANTA_ESTATE.
 */
#ifndef MANTA_COMM_H
#define MANTA_COMM_H

#include <manta/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_comm manta_comm;
typedef struct manta_work manta_work; /* an operation that was started */

/* The bitwise ones are for integers and BOOL8 in host memory; BOOL8 has those, MIN and MAX. */
typedef enum manta_op {
  MANTA_SUM = 0,
  MANTA_MEAN,
  MANTA_PROD,
  MANTA_MIN,
  MANTA_MAX,
  MANTA_BAND,
  MANTA_BOR,
  MANTA_BXOR
} manta_op;

/* All ranks of the run. Borrowed: dies with the attempt. On several hosts the first call waits
 * until every rank has made it. If it could not be made (a peer is lost, or there is no way to the
 * other hosts), what is called on it returns the reason. */
MANTA_API manta_comm *manta_session_comm(manta_session *s);

MANTA_API int manta_comm_rank(const manta_comm *c);
MANTA_API int manta_comm_size(const manta_comm *c);
/* How long a call may wait for the others before it returns MANTA_ETIMEDOUT, naming who is
 * missing, in seconds; negative: for ever (the default: deaths are known at once, and
 * step_timeout sees hangs). */
MANTA_API void manta_comm_set_timeout(manta_comm *c, double seconds);

/* The cudaStream_t behind whose work operations on device memory are to come; NULL (the default):
 * behind that of the default stream. */
MANTA_API void manta_comm_set_stream(manta_comm *c, void *stream);

/* Memory that all ranks of this host can read: collectives on it copy less. Zeroed, 64-byte
 * aligned, private to this rank otherwise. From 2 MB on it comes in large pages where the kernel
 * has them, all of it at once. Gives: free it with manta_shm_free, or it ends with the attempt. */
MANTA_API manta_status manta_shm_alloc(manta_comm *c, size_t bytes, void **out, manta_error *err);
MANTA_API void manta_shm_free(manta_comm *c, void *p); /* NULL is fine */

/* recv = op over all ranks of send. send and recv may be the same; else they must not overlap. */
MANTA_API manta_status manta_comm_allreduce(manta_comm *c, const void *send, void *recv,
                                            size_t count, manta_dtype type, manta_op op,
                                            manta_error *err);
/* The same, only on `root`; recv is not touched elsewhere and may be NULL there. */
MANTA_API manta_status manta_comm_reduce(manta_comm *c, const void *send, void *recv, size_t count,
                                         manta_dtype type, manta_op op, int root, manta_error *err);
/* buf of `root` becomes that of all. */
MANTA_API manta_status manta_comm_broadcast(manta_comm *c, void *buf, size_t count,
                                            manta_dtype type, int root, manta_error *err);
/* recv holds size * count elements: those of rank 0, of rank 1, … */
MANTA_API manta_status manta_comm_allgather(manta_comm *c, const void *send, void *recv,
                                            size_t count, manta_dtype type, manta_error *err);
/* The same with counts[r] elements of rank r; every rank passes the same counts. */
MANTA_API manta_status manta_comm_allgatherv(manta_comm *c, const void *send, void *recv,
                                             const size_t *counts, manta_dtype type,
                                             manta_error *err);
/* send holds size * count elements; recv gets the op over all ranks of block `rank`. */
MANTA_API manta_status manta_comm_reduce_scatter(manta_comm *c, const void *send, void *recv,
                                                 size_t count, manta_dtype type, manta_op op,
                                                 manta_error *err);
/* Block r of send goes to rank r, where it becomes block `rank` of recv. count: of one block. */
MANTA_API manta_status manta_comm_alltoall(manta_comm *c, const void *send, void *recv,
                                           size_t count, manta_dtype type, manta_error *err);
/* recv of `root` holds size * count elements; elsewhere it is not touched and may be NULL. */
MANTA_API manta_status manta_comm_gather(manta_comm *c, const void *send, void *recv, size_t count,
                                         manta_dtype type, int root, manta_error *err);
/* send of `root` holds size * count elements; elsewhere it may be NULL. */
MANTA_API manta_status manta_comm_scatter(manta_comm *c, const void *send, void *recv, size_t count,
                                          manta_dtype type, int root, manta_error *err);
/* Returns when all ranks have called it. */
MANTA_API manta_status manta_comm_barrier(manta_comm *c, manta_error *err);

/* To and from one rank, in the order of the calls between the two; nobody else takes part. count
 * and type must be the same on both sides (MANTA_EINVAL, with both, else). A send of private
 * memory up to some 32 KB returns before it is received; a larger one, or one of shared memory,
 * when it is. */
MANTA_API manta_status manta_comm_send(manta_comm *c, const void *buf, size_t count,
                                       manta_dtype type, int to, manta_error *err);
MANTA_API manta_status manta_comm_recv(manta_comm *c, void *buf, size_t count, manta_dtype type,
                                       int from, manta_error *err);
/* The same with a tag (0 to MANTA_TAG_MAX; without one it is 0): a receive takes the first message
 * that has its own. Those before it are put aside, up to 1 GiB (MANTA_ENOROOM). *from = -1: from
 * any rank, if all are on one host; it becomes the sender's. Not for memory of a GPU. */
#define MANTA_TAG_MAX ((1 << 22) - 1)
MANTA_API manta_status manta_comm_send_tagged(manta_comm *c, const void *buf, size_t count,
                                              manta_dtype type, int to, int tag, manta_error *err);
MANTA_API manta_status manta_comm_recv_tagged(manta_comm *c, void *buf, size_t count,
                                              manta_dtype type, int *from, int tag,
                                              manta_error *err);

/* --- Started operations ---------------------------------------------------------------------
 *
 * The same calls, but they return at once, and a thread of manta's does the work while the caller
 * goes on. Buffers and *from (not counts: those are copied) belong to the operation until it is
 * waited for.
 * Several may be in flight: the collectives of one communicator are done in the order in which they
 * were started, and a blocking collective takes its place behind them. Every *work must be waited
 * for. On failure *work is NULL. With work = NULL it is the blocking call.
 */
MANTA_API manta_status manta_comm_allreduce_start(manta_comm *c, const void *send, void *recv,
                                                  size_t count, manta_dtype type, manta_op op,
                                                  manta_work **work, manta_error *err);
MANTA_API manta_status manta_comm_reduce_start(manta_comm *c, const void *send, void *recv,
                                               size_t count, manta_dtype type, manta_op op,
                                               int root, manta_work **work, manta_error *err);
MANTA_API manta_status manta_comm_broadcast_start(manta_comm *c, void *buf, size_t count,
                                                  manta_dtype type, int root, manta_work **work,
                                                  manta_error *err);
MANTA_API manta_status manta_comm_allgather_start(manta_comm *c, const void *send, void *recv,
                                                  size_t count, manta_dtype type, manta_work **work,
                                                  manta_error *err);
MANTA_API manta_status manta_comm_allgatherv_start(manta_comm *c, const void *send, void *recv,
                                                   const size_t *counts, manta_dtype type,
                                                   manta_work **work, manta_error *err);
MANTA_API manta_status manta_comm_reduce_scatter_start(manta_comm *c, const void *send, void *recv,
                                                       size_t count, manta_dtype type, manta_op op,
                                                       manta_work **work, manta_error *err);
MANTA_API manta_status manta_comm_alltoall_start(manta_comm *c, const void *send, void *recv,
                                                 size_t count, manta_dtype type, manta_work **work,
                                                 manta_error *err);
MANTA_API manta_status manta_comm_gather_start(manta_comm *c, const void *send, void *recv,
                                               size_t count, manta_dtype type, int root,
                                               manta_work **work, manta_error *err);
MANTA_API manta_status manta_comm_scatter_start(manta_comm *c, const void *send, void *recv,
                                                size_t count, manta_dtype type, int root,
                                                manta_work **work, manta_error *err);
MANTA_API manta_status manta_comm_barrier_start(manta_comm *c, manta_work **work, manta_error *err);
MANTA_API manta_status manta_comm_send_start(manta_comm *c, const void *buf, size_t count,
                                             manta_dtype type, int to, manta_work **work,
                                             manta_error *err);
MANTA_API manta_status manta_comm_recv_start(manta_comm *c, void *buf, size_t count,
                                             manta_dtype type, int from, manta_work **work,
                                             manta_error *err);
MANTA_API manta_status manta_comm_send_tagged_start(manta_comm *c, const void *buf, size_t count,
                                                    manta_dtype type, int to, int tag,
                                                    manta_work **work, manta_error *err);
MANTA_API manta_status manta_comm_recv_tagged_start(manta_comm *c, void *buf, size_t count,
                                                    manta_dtype type, int *from, int tag,
                                                    manta_work **work, manta_error *err);
/* Whether it is done, well or not: wait then returns at once. Any thread. */
MANTA_API bool manta_work_test(const manta_work *w);
/* Waits for it, gives its status and message, and frees it. NULL is fine. An operation has its
 * communicator's deadline, which runs from its own begin. */
MANTA_API manta_status manta_work_wait(manta_work *w, manta_error *err);

/* --- After a loss ---------------------------------------------------------------------------- */

/* *value becomes the least of all ranks of the run that are neither dead nor out of their function,
 * the same on each of them: how far they got, or whether to go on. Works before and after a loss,
 * through the driver (some 0.1 ms). Only on a session's communicator. */
MANTA_API manta_status manta_comm_agree(manta_comm *c, int64_t *value, manta_error *err);
/* After MANTA_EPEERLOST by a death: goes on in this call of the train function instead of returning
 * the error. Waits until the run has workers again, survivors and newcomers, and gives the
 * communicator of all of them in *c. What belongs to the old one is gone: groups, works, and memory
 * from manta_shm_alloc. rank, world size, attempt and iteration are new, and manta_session_load
 * gives what the newcomers load, whose function begins at its first line: everybody goes on from
 * that checkpoint. MANTA_ESTATE: nobody is lost. MANTA_EABORTED: the run does not go on; return. */
MANTA_API manta_status manta_comm_rebuild(manta_comm **c, manta_error *err);

/* --- Groups --------------------------------------------------------------------------------- */

/* A collective: the ranks that pass the same colour (>= 0) become a communicator of their own,
 * ordered by key, then by rank. A negative colour takes part and gets NULL in *out. Gives: free it.
 * Its timeout is that of `c`. */
MANTA_API manta_status manta_comm_split(manta_comm *c, int color, int key, manta_comm **out,
                                        manta_error *err);
/* The same for a list of n ranks of `c`, in the order they are to have: only those call it, all
 * with the same list. It takes no turn among the collectives of `c`. */
MANTA_API manta_status manta_comm_group(manta_comm *c, const int *ranks, int n, manta_comm **out,
                                        manta_error *err);
/* Ends what this rank has in flight on it, and every later call, with MANTA_ECANCELED. Buffers are
 * the caller's again when the works were waited for. Any thread. */
MANTA_API void manta_comm_cancel(manta_comm *c);
/* Waits for what was started on it, and frees a communicator made by split or group (one of a
 * session is left alone). Memory from manta_shm_alloc is not bound to it. NULL is fine. */
MANTA_API void manta_comm_free(manta_comm *c);

#ifdef __cplusplus
}
#endif
#endif
