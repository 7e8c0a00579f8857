/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/stager.c - whether staging goes through the caches or past them, by what calls took.
 */
#include "comm/shm/team.h"

#define RETRY 250 /* calls until the other way is tried again */

int manta__stager_class(size_t bytes)
{
  int c = -1;
  for (size_t n = bytes >> 13; n && c < MANTA__STAGE_SIZES - 1; n >>= 1)
    c++;
  return c;
}

// The other way is tried until the lines of the whole ring have gone it, or it is clearly dearer.
void manta__stager_note(struct manta__stager *s, int class, int64_t ns, size_t bytes, size_t ring)
{
  struct manta__stage_size *z = &s->size[class];
  int64_t cost = ns * MANTA__COMM_PIECE / (int64_t)bytes, usual = z->cost[z->past];
  size_t calls = 2 * ring / bytes;
  uint16_t some = (uint16_t)(calls < 4 ? 4 : calls > 64 ? 64 : calls);
  if (usual == 0 && z->best == 0) // the very first
    z->left = some;
  z->best = z->best == 0 || cost < z->best ? cost : z->best;
  bool dear = z->tries && cost > usual + usual / 2;
  if (z->left > 0 && !dear) {
    z->left--;
  } else {
    z->cost[z->past != z->tries] = z->best;
    if (z->tries)
      z->past = z->cost[1] < z->cost[0];
    z->tries = !z->tries;
    z->left = z->tries ? some : RETRY;
    z->best = 0;
  }
  s->next = (uint16_t)((s->next & ~(1u << class)) | (unsigned)(z->past != z->tries) << class);
}
