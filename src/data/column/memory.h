/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/memory.h - the memory of columns: counted references, and a pool to use it again.
 *
 * (1) A memory lives until its last reference is given back, by whatever thread. Columns, their
 *     slices and arrays that were exported hold one reference each per buffer.
 * (2) What we allocate begins at a multiple of 64 bytes, as Arrow recommends, and has 64 bytes
 *     behind its end that may be read or written: kernels work in whole vectors.
 * (3) A pool keeps memory that came back and gives it out again: fresh pages would have to be
 *     cleared by the kernel, batch after batch. It keeps at most `idle_max` bytes, counts what is
 *     out, and lives until the last memory that it gave out is back.
 * (4) What lies elsewhere (a foreign Arrow array, a slot of a ring) is a memory with a release of
 *     its own; the columns do not see a difference.
 */
#ifndef MANTA_DATA_COLUMN_MEMORY_H
#define MANTA_DATA_COLUMN_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct manta__pool;

struct manta__memory {
  _Atomic int refs;
  void *data;
  size_t bytes; /* that there is room for */
  struct manta__pool *pool;
  void (*release)(void *ctx); /* NULL: data lies behind this struct */
  void *ctx;
};

/* Not cleared. One reference, the caller's. NULL: no memory. `pool` may be NULL. */
struct manta__memory *manta__memory_create(struct manta__pool *pool, size_t bytes);
/* Memory of somebody else's, whose release(ctx) is called with the last reference. On failure
 * (NULL) it is not called. */
struct manta__memory *manta__memory_foreign(void (*release)(void *ctx), void *ctx);
/* NULL is fine, and given back. */
struct manta__memory *manta__memory_ref(struct manta__memory *m);
void manta__memory_unref(struct manta__memory *m);
/* Room for `bytes`, with the first `used` kept: another memory if need be, in which case *m's
 * reference is given back. *m may be NULL. False: no memory, and *m stays. */
bool manta__memory_grow(struct manta__memory **m, struct manta__pool *pool, size_t used,
                        size_t bytes);

/* NULL: no memory. */
struct manta__pool *manta__pool_create(size_t idle_max);
/* The pool gives out nothing more; it is gone when all its memory is. NULL is fine. */
void manta__pool_close(struct manta__pool *p);
/* Bytes that are out at the moment. */
size_t manta__pool_out(struct manta__pool *p);

#endif
