/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/ckpt.h - the state of a training: what is saved, and how it is read again.
 *
 * A state is a set of named tensors plus one small value. Saving costs the step one memory copy;
 * the file is written behind it. On disk the tensors are a safetensors file that other tools open.
 * Many threads may read one checkpoint; opening and closing one is for one thread at a time.
 */
#ifndef MANTA_CKPT_H
#define MANTA_CKPT_H

#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/*      name   bytes  safetensors */
#define MANTA_DTYPE_MAP(X)                                                                         \
  X(BOOL8, 1, "BOOL")                                                                              \
  X(U8, 1, "U8")                                                                                   \
  X(I8, 1, "I8")                                                                                   \
  X(U16, 2, "U16")                                                                                 \
  X(I16, 2, "I16")                                                                                 \
  X(F16, 2, "F16")                                                                                 \
  X(BF16, 2, "BF16")                                                                               \
  X(U32, 4, "U32")                                                                                 \
  X(I32, 4, "I32")                                                                                 \
  X(F32, 4, "F32")                                                                                 \
  X(U64, 8, "U64")                                                                                 \
  X(I64, 8, "I64")                                                                                 \
  X(F64, 8, "F64")

typedef enum manta_dtype {
#define MANTA__DTYPE_ENUM(name, bytes, text) MANTA_##name,
  MANTA_DTYPE_MAP(MANTA__DTYPE_ENUM)
#undef MANTA__DTYPE_ENUM
      MANTA_DTYPE_COUNT
} manta_dtype;

MANTA_API size_t manta_dtype_bytes(manta_dtype t);     /* 0 if unknown */
MANTA_API const char *manta_dtype_name(manta_dtype t); /* "F32"; "?" if unknown */

#define MANTA_MAX_DIMS          8
#define MANTA_TENSOR_NAME_MAX   1024
#define MANTA_STATE_MAX_TENSORS 65536
#define MANTA_STATE_VALUE_MAX   (1u << 20) /* packed bytes of the small value */

/* A named array. In a state to be saved, name and data are the caller's; out of a checkpoint they
 * are borrowed from it. Row-major, no strides. */
typedef struct manta_tensor {
  const char *name;
  manta_dtype dtype;
  int ndim;
  int64_t shape[MANTA_MAX_DIMS];
  void *data;
} manta_tensor;

/* Bytes of the tensor's data, or -1 if shape and type make no sense. */
MANTA_API int64_t manta_tensor_bytes(const manta_tensor *t);

/* What is saved: all borrowed for the duration of the save. */
typedef struct manta_state {
  const manta_tensor *tensors;
  size_t count;
  const manta_value *value; /* NULL: nil */
} manta_state;

/* Where a state is being put: the memory of a slot, mapped at `base`. It stays there for later
 * saves. Memory with another serial is other memory, also at the same address; `live` are the
 * serials of all that is mapped (0: none). For those who register it with a device. */
typedef struct manta_slot_memory {
  void *base;
  size_t bytes;
  uint64_t serial, live[3];
} manta_slot_memory;

/* Writes, itself, the tensors of a state whose data is NULL: number i goes to dst[i]. If it fails,
 * the state is not saved and the save returns what it returned. */
typedef manta_status (*manta_fill_fn)(void *ctx, void *const *dst, const manta_slot_memory *memory,
                                      manta_error *err);

#ifndef __cplusplus
/* A one-dimensional tensor over an array: MANTA_VECTOR("w", MANTA_F32, w, n). */
#define MANTA_VECTOR(name_, dtype_, data_, n_)                                                     \
  ((manta_tensor){(name_), (dtype_), 1, {(int64_t)(n_)}, (void *)(data_)})
#endif

/* A checkpoint that can be read: the newest one out of memory, or one from disk. Given by
 * manta_checkpoint_open, manta_session_load and manta_trainer_checkpoint; the caller closes it, and
 * it stays readable until then, whatever happens to the run, the trainer or the files. */
typedef struct manta_checkpoint manta_checkpoint;

/* Opens a checkpoint directory (the one that holds manifest.json) and gives it in *out. verify:
 * also compare the XXH3 of every file, which reads them whole; else files are mapped and only their
 * sizes checked. MANTA_ENOENT: there is none; MANTA_ECORRUPT names the file and what is wrong with
 * it. On failure *out is not to be used. */
MANTA_API manta_status manta_checkpoint_open(manta_checkpoint **out, const char *dir, bool verify,
                                             manta_error *err);
/* Writes `state` as a checkpoint directory of its own, which manta_checkpoint_open and
 * manta_run_config.checkpoint take: `dir` is made with its parents if it is not there, and may have
 * other files. On disk when it returns. MANTA_EINVAL: it has a checkpoint already, or a tensor
 * makes no sense; MANTA_EIO: the manifest is not there then, so there is no checkpoint. */
MANTA_API manta_status manta_checkpoint_write(const char *dir, const manta_state *state,
                                              manta_error *err);
/* Unmaps and frees it, and with it all that was borrowed from it. NULL is fine. */
MANTA_API void manta_checkpoint_close(manta_checkpoint *c);

/* The number of tensors; tensor i, or NULL past the last; the tensor of a name, or NULL; the small
 * value (nil if none was saved). All borrow: what they return dies with the checkpoint. The data is
 * mapped: a page of it is read when it is looked at, and becomes this process's own when it is
 * written to, which changes neither the checkpoint on disk nor what another opens. */
MANTA_API size_t manta_checkpoint_count(const manta_checkpoint *c);
MANTA_API const manta_tensor *manta_checkpoint_at(const manta_checkpoint *c, size_t i);
MANTA_API const manta_tensor *manta_checkpoint_tensor(const manta_checkpoint *c, const char *name);
MANTA_API const manta_value *manta_checkpoint_value(const manta_checkpoint *c);
/* Reports that rank 0 had made when it saved: the run counts on from here. */
MANTA_API int64_t manta_checkpoint_iteration(const manta_checkpoint *c);
/* True of one that manta_session_load gives and that the run did not save itself: it was named in
 * manta_run_config.checkpoint. Nothing is known about who wrote it, so nothing in it may be
 * executed (unpickled, say) without the user's word. */
MANTA_API bool manta_checkpoint_given(const manta_checkpoint *c);

/* Copies one tensor's data into `dst`, the caller's memory of exactly `bytes` bytes. MANTA_ENOENT
 * (no such tensor) and MANTA_ETYPE (another size) name it; `dst` is then as it was. */
MANTA_API manta_status manta_checkpoint_copy(const manta_checkpoint *c, const char *name, void *dst,
                                             size_t bytes, manta_error *err);

#ifdef __cplusplus
}
#endif
#endif
