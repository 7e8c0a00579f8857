/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/heap.c - memory that all ranks can read: each rank deals out its own region of one segment.
 *
 * First fit over a sorted list of blocks, kept in private memory: allocations are few and large.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "comm/comm.h"

uint64_t manta__heap_place(const manta_comm *c, const void *p, size_t bytes)
{
  uintptr_t from = (uintptr_t)p, heap = (uintptr_t)c->base + c->heap_at;
  uintptr_t mine = heap + (uint64_t)c->host.rank * c->region;
  if (from < mine || bytes > c->region || from - mine > c->region - bytes)
    return UINT64_MAX;
  return from - (uintptr_t)c->base;
}

static manta_status insert(manta_comm *c, size_t i, struct manta__heap_block b, manta_error *err)
{
  if (c->blocks == c->block_cap) {
    size_t cap = c->block_cap ? c->block_cap * 2 : 16;
    struct manta__heap_block *p = manta__realloc(c->block, cap * sizeof *p);
    if (!p)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for the list of shared blocks");
    c->block = p;
    c->block_cap = cap;
  }
  memmove(&c->block[i + 1], &c->block[i], (c->blocks - i) * sizeof b);
  c->block[i] = b;
  c->blocks++;
  return MANTA_OK;
}

manta_status manta_shm_alloc(manta_comm *c, size_t bytes, void **out, manta_error *err)
{
  uint64_t need = bytes < c->region ? (bytes + 4095) & ~(uint64_t)4095 : UINT64_MAX;
  if (need == 0)
    need = 4096;
  if (c->blocks == 0)
    MANTA_TRY(insert(c, 0, (struct manta__heap_block){0, c->region, false}, err));
  for (size_t i = 0; i < c->blocks; i++) {
    struct manta__heap_block *b = &c->block[i];
    if (b->used || b->bytes < need)
      continue;
    struct manta__heap_block rest = {b->at + need, b->bytes - need, false};
    if (rest.bytes > 0)
      MANTA_TRY(insert(c, i + 1, rest, err));
    c->block[i].bytes = need;
    c->block[i].used = true;
    *out = c->base + c->heap_at + (uint64_t)c->host.rank * c->region + c->block[i].at;
    return MANTA_OK;
  }
  return manta_error_set(err, MANTA_ENOMEM, "%zu bytes of shared memory are not to be had", bytes);
}

static void join(manta_comm *c, size_t i)
{
  if (i + 1 >= c->blocks || c->block[i].used || c->block[i + 1].used)
    return;
  c->block[i].bytes += c->block[i + 1].bytes;
  memmove(&c->block[i + 1], &c->block[i + 2], (c->blocks - i - 2) * sizeof *c->block);
  c->blocks--;
}

void manta_shm_free(manta_comm *c, void *p)
{
  uint64_t place = p ? manta__heap_place(c, p, 1) : UINT64_MAX;
  if (place == UINT64_MAX)
    return;
  uint64_t at = place - c->heap_at - (uint64_t)c->host.rank * c->region;
  for (size_t i = 0; i < c->blocks; i++) {
    if (c->block[i].at != at || !c->block[i].used)
      continue;
    // The pages go back to the kernel, and come again as zeros.
    madvise(p, c->block[i].bytes, MADV_REMOVE);
    c->block[i].used = false;
    join(c, i);
    if (i > 0)
      join(c, i - 1);
    return;
  }
}
