/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/heap.c - memory that all ranks can read: each rank deals out its own region of one
 * segment.
 *
 * First fit over a sorted list of blocks, kept in private memory: allocations are few and large.
 * A block is whole pages of this machine.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "comm/shm/team.h"
#include "sys/pages.h"
#include "sys/shm.h"

struct manta__grave {
  struct manta__grave *next;
  uint64_t at;
  int ranks;
};

// --- the segment --------------------------------------------------------------------------------

// Where the heap begins, behind the team of all.
static size_t heap_at(int size)
{
  return (manta__team_bytes(size) + MANTA__LARGE_PAGE - 1) & ~(MANTA__LARGE_PAGE - 1);
}

size_t manta__comm_segment(int size, uint64_t region)
{
  return heap_at(size) + (size_t)size * region;
}

manta_status manta__fabric_create(struct manta__fabric **out, const struct manta__comm_host *host,
                                  manta_error *err)
{
  const struct manta__span *span = host->span;
  struct manta__fabric *f = manta__calloc(1, sizeof *f);
  int *here = manta__calloc((size_t)host->size, sizeof *here);
  void *base = NULL;
  manta_status st = f && here ? manta__shm_map(host->heap_fd, &base, &f->bytes, err)
                              : manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  if (st == MANTA_OK && f->bytes < heap_at(host->size)) {
    manta__shm_unmap(base, f->bytes);
    st = manta_error_set(err, MANTA_EPROTO, "the shared segment is too small for %d ranks",
                         host->size);
  }
  if (st < 0) {
    manta__free(here);
    manta__free(f);
    return st;
  }
  f->host = *host;
  f->base = base;
  f->here = here;
  for (int r = 0, n = 0; span ? r < span->size : r < host->size; r++)
    if (!span || span->host[r] == span->host[span->rank])
      here[n++] = r;
  f->next_group = 1;
  f->heap_at = heap_at(host->size);
  f->region = (f->bytes - f->heap_at) / (size_t)host->size & ~(uint64_t)(manta__page_bytes() - 1);
  pthread_mutex_init(&f->lock, NULL);
  *out = f;
  return MANTA_OK;
}

void manta__fabric_destroy(struct manta__fabric *f)
{
  for (struct manta__grave *g = f->grave, *next; g; g = next) {
    next = g->next;
    manta__free(g);
  }
  manta__shm_unmap(f->base, f->bytes);
  manta__free(f->block);
  manta__free(f->here);
  pthread_mutex_destroy(&f->lock);
  manta__free(f);
}

static uint64_t ours(const struct manta__fabric *f)
{
  return f->heap_at + (uint64_t)f->host.rank * f->region;
}

uint64_t manta__heap_offset(const struct manta__fabric *f, const void *p, size_t bytes)
{
  uintptr_t from = (uintptr_t)p, mine = (uintptr_t)f->base + ours(f);
  if (from < mine || bytes > f->region || from - mine > f->region - bytes)
    return MANTA__NOWHERE;
  return from - (uintptr_t)f->base;
}

// --- blocks -------------------------------------------------------------------------------------

static manta_status insert(struct manta__fabric *f, size_t i, struct manta__heap_block b,
                           manta_error *err)
{
  if (f->blocks == f->block_cap) {
    size_t cap = f->block_cap ? f->block_cap * 2 : 16;
    struct manta__heap_block *p = manta__realloc(f->block, cap * sizeof *p);
    if (!p)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for the list of shared blocks");
    f->block = p;
    f->block_cap = cap;
  }
  memmove(&f->block[i + 1], &f->block[i], (f->blocks - i) * sizeof b);
  f->block[i] = b;
  f->blocks++;
  return MANTA_OK;
}

// Bytes to leave out so that large pages fit best into what is taken from a block.
static uint64_t gap(const struct manta__fabric *f, const struct manta__heap_block *b, uint64_t need)
{
  uint64_t bytes = -(ours(f) + b->at) & (MANTA__LARGE_PAGE - 1);
  return need >= MANTA__LARGE_PAGE && b->bytes >= bytes && b->bytes - bytes >= need ? bytes : 0;
}

static manta_status cut(struct manta__fabric *f, size_t i, uint64_t bytes, manta_error *err)
{
  struct manta__heap_block rest = {f->block[i].at + bytes, f->block[i].bytes - bytes, false};
  MANTA_TRY(insert(f, i + 1, rest, err));
  f->block[i].bytes = bytes;
  return MANTA_OK;
}

static manta_status take(struct manta__fabric *f, size_t bytes, uint64_t *at, manta_error *err)
{
  uint64_t need = bytes < f->region ? manta__pages_round(bytes ? bytes : 1) : UINT64_MAX;
  if (f->blocks == 0)
    MANTA_TRY(insert(f, 0, (struct manta__heap_block){0, f->region, false}, err));
  for (size_t i = 0; i < f->blocks; i++) {
    if (f->block[i].used || f->block[i].bytes < need)
      continue;
    uint64_t skip = gap(f, &f->block[i], need);
    if (skip > 0)
      MANTA_TRY(cut(f, i++, skip, err));
    if (f->block[i].bytes > need)
      MANTA_TRY(cut(f, i, need, err));
    f->block[i].used = true;
    *at = ours(f) + f->block[i].at;
    return MANTA_OK;
  }
  return manta_error_set(err, MANTA_ENOMEM, "cannot allocate %zu bytes of shared memory", bytes);
}

static void join(struct manta__fabric *f, size_t i)
{
  if (i + 1 >= f->blocks || f->block[i].used || f->block[i + 1].used)
    return;
  f->block[i].bytes += f->block[i + 1].bytes;
  memmove(&f->block[i + 1], &f->block[i + 2], (f->blocks - i - 2) * sizeof *f->block);
  f->blocks--;
}

static void give(struct manta__fabric *f, uint64_t place)
{
  uint64_t at = place - ours(f);
  for (size_t i = 0; i < f->blocks; i++) {
    if (f->block[i].at != at || !f->block[i].used)
      continue;
    // The pages, which are nobody else's, go back to the kernel and come again as zeros.
    madvise(f->base + place, f->block[i].bytes, MADV_REMOVE);
    f->block[i].used = false;
    join(f, i);
    if (i > 0)
      join(f, i - 1);
    return;
  }
}

// --- teams that are no more ---------------------------------------------------------------------

static bool all_left(const struct manta__fabric *f, const struct manta__grave *g)
{
  const struct manta__line *line = (const struct manta__line *)(f->base + g->at);
  for (int r = 0; r < g->ranks; r++)
    if (!atomic_load(&line[r].left))
      return false;
  return true;
}

static void clear_graves(struct manta__fabric *f)
{
  for (struct manta__grave **p = &f->grave; *p;) {
    struct manta__grave *g = *p;
    if (!all_left(f, g)) {
      p = &g->next;
      continue;
    }
    *p = g->next;
    give(f, g->at);
    manta__free(g);
  }
}

void manta__heap_bury(struct manta__fabric *f, uint64_t at, int n)
{
  struct manta__grave *g = manta__malloc(sizeof *g);
  if (!g)
    return; // the memory stays taken until the attempt ends
  pthread_mutex_lock(&f->lock);
  *g = (struct manta__grave){f->grave, at, n};
  f->grave = g;
  clear_graves(f);
  pthread_mutex_unlock(&f->lock);
}

// --- the calls ----------------------------------------------------------------------------------

manta_status manta__heap_take(struct manta__fabric *f, size_t bytes, uint64_t *at, manta_error *err)
{
  pthread_mutex_lock(&f->lock);
  clear_graves(f);
  manta_status st = take(f, bytes, at, err);
  pthread_mutex_unlock(&f->lock);
  return st;
}

void manta__heap_give(struct manta__fabric *f, uint64_t at)
{
  pthread_mutex_lock(&f->lock);
  give(f, at);
  pthread_mutex_unlock(&f->lock);
}
