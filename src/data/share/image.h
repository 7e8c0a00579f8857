/* SPDX-License-Identifier: Apache-2.0
 *
 * data/share/image.h - a batch as one run of bytes, for another process that maps them.
 *
 * A head, a row of numbers per column, then the buffers, each at a multiple of 64 bytes. There are
 * no pointers in it. Who views one copies head and rows before it looks at them: the other process
 * may write there.
 */
#ifndef MANTA_DATA_SHARE_IMAGE_H
#define MANTA_DATA_SHARE_IMAGE_H

#include "data/column/batch.h"

/* Shared memory for an image, all of it there: a memfd, and where it is mapped (shm_unmap it). */
manta_status manta__image_create(const char *name, size_t bytes, int *fd, void **p, size_t *mapped,
                                 manta_error *err);
size_t manta__image_bytes(const manta_batch *b);
/* `to` has so many bytes, and begins at a multiple of 64. */
void manta__image_write(void *to, const manta_batch *b);
/* The batch in `bytes` bytes at `base`, of this schema, without a copy: each of its buffers holds a
 * reference on `held`. MANTA_EPROTO: it is none. */
manta_status manta__image_view(manta_batch **out, struct manta__schema *schema, const void *base,
                               size_t bytes, struct manta__memory *held, manta_error *err);

#endif
