/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/shm/chooser.h"

#include "base/knob.h"

#define SMALLEST    13         /* 2 ^ 13 bytes: the first size */
#define REMOTE_FROM 4          /* the size, 128 KB: below it a call is one piece for two ranks */
#define RETRY       250        /* calls until another way is tried again, */
#define RETRY_SOON  16         /* or for the first time, of a way that was taken over */
#define UNIT        (64 << 10) /* bytes that costs are for */
#define NEVER       (INT64_MAX / 4)

_Static_assert(MANTA__CHOICES *MANTA__WAY_BITS <= 64, "choices are told in one word");
_Static_assert(MANTA__COMM_WAYS <= 1 << MANTA__WAY_BITS, "a way is told in these bits");

int manta__chooser_find(bool allreduce, size_t bytes)
{
  int size = -1;
  for (size_t n = bytes >> SMALLEST; n && size < MANTA__CHOICE_SIZES - 1; n >>= 1)
    size++;
  return size < 0 ? -1 : (allreduce ? MANTA__CHOICE_SIZES : 0) + size;
}

// Only an all-reduce of some size has a remote way.
static bool can(const struct manta__chooser *s, int choice, int way)
{
  return way != MANTA__WAY_REMOTE || (!s->barred && choice >= MANTA__CHOICE_SIZES + REMOTE_FROM);
}

static void tell(struct manta__chooser *s, int choice, int way)
{
  int at = choice * MANTA__WAY_BITS;
  s->next = (s->next & ~((uint64_t)3 << at)) | (uint64_t)way << at;
}

static void tell_fixed(struct manta__chooser *s)
{
  for (int i = 0; i < MANTA__CHOICES; i++)
    tell(s, i, can(s, i, s->fixed - 1) ? s->fixed - 1 : MANTA__WAY_CACHED);
}

manta_status manta__chooser_init(struct manta__chooser *s, manta_error *err)
{
  MANTA_TRY(manta__knob_check(MANTA__KNOB_COMM_WAY, err));
  int way = manta__knob_word(MANTA__KNOB_COMM_WAY); // in the order of enum manta__comm_way
  s->fixed = (uint8_t)(1 + way);
  if (s->fixed) {
    tell_fixed(s);
    s->now = s->next;
  }
  return MANTA_OK;
}

// Calls that a way is tried for: until all lines of the ring have gone it, and some at least, since
// the first ones meet cold memory.
static uint16_t some(size_t bytes, size_t ring)
{
  size_t calls = 2 * ring / bytes;
  return (uint16_t)(calls < 4 ? 4 : calls > 64 ? 64 : calls);
}

// Whether a way that was tried for so many of these calls is not worth the others.
static bool is_dear(const struct manta__choice *c, int made, int calls)
{
  int64_t usual = c->cost[c->way], limit = usual + usual / (2 * made < calls ? 2 : 5);
  return c->tried != c->way && made >= 2 && c->best > limit;
}

// The way after `last` that is not the best; one that was never tried first. -1: there is none.
static int another(const struct manta__chooser *s, int choice)
{
  const struct manta__choice *c = &s->of[choice];
  int found = -1;
  for (int i = MANTA__COMM_WAYS; i > 0; i--) {
    int way = (c->last + i) % MANTA__COMM_WAYS;
    if (way == c->way || !can(s, choice, way))
      continue;
    found = found < 0 || c->cost[way] == 0 || c->cost[found] != 0 ? way : found;
  }
  return found;
}

static void try(struct manta__chooser *s, int choice, int way, uint16_t calls)
{
  struct manta__choice *c = &s->of[choice];
  c->tried = (uint8_t)way;
  c->last = way == c->way ? c->last : (uint8_t)way;
  c->left = calls;
  c->best = 0;
  tell(s, choice, way);
}

// To larger sizes of this kind that were never called and have the same ways.
static void pass_on(struct manta__chooser *s, int choice)
{
  bool remote = can(s, choice, MANTA__WAY_REMOTE);
  for (int i = choice + 1; i % MANTA__CHOICE_SIZES; i++) {
    struct manta__choice *c = &s->of[i];
    if (c->best || c->cost[c->way] || can(s, i, MANTA__WAY_REMOTE) != remote)
      return;
    c->way = s->of[choice].way;
    try(s, i, c->way, RETRY_SOON);
  }
}

// Every way once; then the best, and now and then one of the others.
static void conclude(struct manta__chooser *s, int choice, uint16_t calls)
{
  struct manta__choice *c = &s->of[choice];
  bool rested = c->tried == c->way;
  c->cost[c->tried] = c->best;
  if (c->best < c->cost[c->way])
    c->way = c->tried;
  int next = another(s, choice);
  if (next >= 0 && (rested || c->cost[next] == 0)) {
    try(s, choice, next, calls);
    return;
  }
  try(s, choice, c->way, RETRY);
  pass_on(s, choice);
}

void manta__chooser_note(struct manta__chooser *s, int choice, enum manta__comm_way way, int64_t ns,
                         size_t bytes, size_t ring)
{
  struct manta__choice *c = &s->of[choice];
  int64_t cost = ns * UNIT / (int64_t)bytes;
  uint16_t calls = some(bytes, ring);
  if (s->fixed || way != c->tried)
    return;
  if (c->best == 0 && c->cost[c->way] == 0 && c->left == 0) // the very first: all is cold
    c->left = bytes < 4 * ring ? (uint16_t)(2 * calls) : 2;
  cost = cost > 0 ? cost : 1;
  c->best = c->best == 0 || cost < c->best ? cost : c->best;
  if (c->left > 1 && !is_dear(c, calls - c->left + 1, calls))
    c->left--;
  else
    conclude(s, choice, calls);
}

void manta__chooser_miss(struct manta__chooser *s, int choice, enum manta__comm_way way)
{
  if (s->fixed || way != s->of[choice].tried)
    return;
  s->of[choice].best = NEVER;
  conclude(s, choice, 2);
}

void manta__chooser_bar(struct manta__chooser *s)
{
  s->barred = true;
  if (s->fixed)
    tell_fixed(s);
  for (int i = 0; i < MANTA__CHOICES && !s->fixed; i++) {
    struct manta__choice *c = &s->of[i];
    c->way = c->way == MANTA__WAY_REMOTE ? MANTA__WAY_CACHED : c->way;
    if (c->tried == MANTA__WAY_REMOTE)
      try(s, i, c->way, c->cost[c->way] ? RETRY : 0);
  }
}
