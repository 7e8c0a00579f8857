/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/ddp.h - data-parallel training: every rank has the same parameters and its own gradients,
 * which become their mean while the backward pass still goes on.
 *
 *   create, add (each parameter, in forward order), fill in or load the parameters, begin
 *   per step: compute gradients, ready (each one when it is complete), sync, update the parameters
 *
 * Parameters and gradients lie in shared memory, gradients that follow each other in buckets. Once
 * all gradients of a bucket are ready its reduction starts, in the same order on every rank
 * whatever the order of the ready calls; from ready to sync the gradient belongs to manta.
 *
 * The same gradients give the same bits: with or without overlap, for any size of buckets, in two
 * runs, on every rank. All ranks make the same calls with the same arguments. After a call has
 * failed by a lost peer or a deadline, or because the ranks differ, each later one returns that
 * failure: destroy, and return the status. One thread at a time.
 */
#ifndef MANTA_DDP_H
#define MANTA_DDP_H

#include <manta/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_ddp manta_ddp;

/* Whether a thread of manta's reduces while the caller computes. AUTO: if the host has two CPUs per
 * rank (fewer, and that thread would only take the ranks' time); the same on all ranks. */
typedef enum manta_ddp_overlap {
  MANTA_DDP_OVERLAP_AUTO = 0,
  MANTA_DDP_OVERLAP_ON,
  MANTA_DDP_OVERLAP_OFF
} manta_ddp_overlap;

#define MANTA_DDP_MAX_PARAMS   MANTA_STATE_MAX_TENSORS
#define MANTA_DDP_BUCKET_BYTES (4u << 20)
#define MANTA_DDP_CHECK_EVERY  100

/* {0} after .size means: every default. */
typedef struct manta_ddp_config {
  size_t size;               /* filled by MANTA_DDP_CONFIG_INIT */
  size_t bucket_bytes;       /* gradients reduced together; 0: 4 MiB. A larger one is alone */
  manta_ddp_overlap overlap; /* 0: auto */
  bool compress;             /* f32 gradients travel as bf16: see below */
  double clip_norm;          /* gradients whose norm is greater are scaled down to it; 0: never */
  int check_every;           /* syncs between checks that replicas are equal; 0: 100; -1: never */
} manta_ddp_config;
#define MANTA_DDP_CONFIG_INIT                                                                      \
  {                                                                                                \
    sizeof(manta_ddp_config), 0, MANTA_DDP_OVERLAP_AUTO, false, 0, 0                               \
  }

/* Gives an empty set of parameters in *out (destroy it). comm is borrowed and must outlive it. cfg
 * NULL: every default. MANTA_EINVAL names the field; *out is then as it was. */
MANTA_API manta_status manta_ddp_create(manta_ddp **out, manta_comm *comm,
                                        const manta_ddp_config *cfg, manta_error *err);
/* Adds a parameter of `count` elements (f32, f64, f16 or bf16) and gives its place in *param and
 * that of its gradient in *grad (each may be NULL): zeroed, 64-byte aligned, there until destroy.
 * In the order in which the forward pass uses them; the index, which counts from 0, is that order.
 * The name is copied; it is one of a tensor in a checkpoint, and unique. MANTA_ESTATE after begin.
 */
MANTA_API manta_status manta_ddp_add(manta_ddp *d, const char *name, size_t count, manta_dtype type,
                                     void **param, void **grad, manta_error *err);
/* Ends the adding. MANTA_EINVAL on every rank if they have not added the same, or have other
 * configs: the message shows the first difference. Then the parameters of rank 0 become those of
 * all. */
MANTA_API manta_status manta_ddp_begin(manta_ddp *d, manta_error *err);

/* The gradient `index` is complete for this step, and not to be touched until sync has returned.
 * Starts the reduction of what is complete; never waits. MANTA_ESTATE for one that is ready
 * already. */
MANTA_API manta_status manta_ddp_ready(manta_ddp *d, size_t index, manta_error *err);
/* Ends a step: every gradient, also one that was never ready, is now the mean over the ranks, and
 * clipped. *norm: that of all gradients together before clipping, or NULL, but alike on all ranks.
 * A norm that is infinite or no number is given as it is, and nothing is scaled then.
 *
 * Every check_every-th time the parameters (as the last step left them) are compared by their XXH3.
 * MANTA_ECORRUPT on all ranks if one differs: the message names it and the first parameter. The
 * default costs one pass over the parameters in a hundred steps. */
MANTA_API manta_status manta_ddp_sync(manta_ddp *d, double *norm, manta_error *err);
/* For steps that only accumulate: while paused, ready does nothing. Add up the gradients of the
 * micro-steps, unpause for the last one, then sync. The mean is over the ranks alone: divide by the
 * number of micro-steps yourself. MANTA_ESTATE if something was ready already, and for sync while
 * paused. */
MANTA_API manta_status manta_ddp_pause(manta_ddp *d, bool paused, manta_error *err);
/* All gradients become 0. MANTA_ESTATE between ready and sync. */
MANTA_API manta_status manta_ddp_zero_grad(manta_ddp *d, manta_error *err);

/* How many were added; parameter i and its gradient as tensors, or NULL past the last. Borrowed
 * until the next add. */
MANTA_API size_t manta_ddp_count(const manta_ddp *d);
MANTA_API const manta_tensor *manta_ddp_param(const manta_ddp *d, size_t i);
MANTA_API const manta_tensor *manta_ddp_grad(const manta_ddp *d, size_t i);
/* Whether reductions overlap with the caller: what AUTO became. False before begin. */
MANTA_API bool manta_ddp_overlaps(const manta_ddp *d);

/* manta_session_save of all parameters, of `more` (count of them: an optimizer's state) and of
 * `value`; the latter two may be 0 and NULL. Every rank calls it. */
MANTA_API manta_status manta_ddp_save(manta_ddp *d, manta_session *s, const manta_tensor *more,
                                      size_t count, const manta_value *value, manta_error *err);
/* Copies the parameters out of a checkpoint, by name. Before begin it is enough on rank 0.
 * MANTA_ENOENT and MANTA_ETYPE name the tensor that is missing or has another type or size. */
MANTA_API manta_status manta_ddp_load(manta_ddp *d, const manta_checkpoint *c, manta_error *err);

/* With `compress`, what a rank contributes is its f32 gradient rounded to bf16; what the rounding
 * left over is kept, in f32, and added to its gradient of the next step. The mean is taken in f32,
 * rounded to bf16, and given as f32. Other types are not compressed. What was left over is not part
 * of a checkpoint, for it differs by rank: save and load set it to 0 on the rank that calls them.
 * So a run that is revived gives the same bits as one that was not, if all ranks call save; and a
 * run that saves after every step compresses without this correction. */

/* Waits for the reductions in flight (not for a rank that does not come: at most 1 s), and frees.
 * NULL is fine. */
MANTA_API void manta_ddp_destroy(manta_ddp *d);

#ifdef __cplusplus
}
#endif
#endif
