/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/slots.c - the three slots of a saving rank: choosing one, filling it, keeping the others
 * warm.
 *
 * The first save makes one slot and fills it; a short-lived thread then makes the others, so that
 * the second save finds them warm. The same thread replaces, behind a later save, what has become
 * useless: a slot that was RETIRED, or a free one that a grown state does not fit into.
 * (1) All checks come before a slot is taken: once FILLING, nothing can fail any more but what the
 *     caller himself puts into it.
 * (2) With an unchanged set of tensors and a free slot, a save makes no system call and no
 *     allocation.
 * (3) The thread owns the slots it was given until it sets `done`; no other memory is shared with
 *     it.
 * (4) A forked child has neither the thread nor the mappings: fini there closes descriptors only.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/pack.h"
#include "ckpt/safetensors.h"
#include "ckpt/slot.h"
#include "sys/thread.h"

#define PAGE       4096
#define NAP_MS     5
#define WARM_STACK (256 << 10)

struct manta__slots_warmer {
  pthread_t thread;
  uint64_t capacity;
  unsigned todo;    /* bit per slot; constant while the thread runs */
  unsigned adopt;   /* of those, the ones that another process made: `slot` has a descriptor only */
  unsigned pending; /* of those, the ones not taken over: not the thread's */
  struct {
    struct manta__slot slot; /* in: what is to be dropped; out: the new one, or fd < 0 */
    _Atomic uint32_t done;
  } item[MANTA__SLOTS];
};

/* What a save is going to write. */
struct slot_plan {
  const manta_value *value;
  size_t tensors_len, value_off, value_len;
  struct manta__slot_part extra[MANTA__EXTRA_COUNT];
  uint64_t need; /* bytes of slot */
  void **dst;    /* of each tensor, for the caller's fill; or NULL */
};

void manta__slots_init(struct manta__slots *s)
{
  *s = (struct manta__slots){.count = MANTA__SLOTS};
  for (int i = 0; i < MANTA__SLOTS; i++)
    s->slot[i].fd = s->adopted[i] = -1;
}

void manta__slots_init_one(struct manta__slots *s)
{
  manta__slots_init(s);
  s->count = 1;
}

/* --- The thread that warms --- */

static void *warm(void *arg)
{
  struct manta__slots_warmer *w = arg;
  for (int i = 0; i < MANTA__SLOTS; i++) {
    if (!(w->todo & 1u << i))
      continue;
    struct manta__slot *slot = &w->item[i].slot;
    if (w->adopt & 1u << i) {
      int fd = slot->fd;
      *slot = (struct manta__slot){.fd = -1};
      manta__slot_adopt(slot, fd, NULL); // likewise
    } else {
      manta__slot_drop(slot);
      manta__slot_make(slot, w->capacity, NULL); // if it fails, the save that needs it says why
    }
    atomic_store_explicit(&w->item[i].done, 1, memory_order_release);
    manta__slot_wake(&w->item[i].done);
  }
  return NULL;
}

static uint32_t state_of(const struct manta__slot *s)
{
  return atomic_load_explicit(&s->meta->state, memory_order_acquire);
}

static bool being_made(const struct manta__slots *s, int i)
{
  return s->warmer && s->warmer->pending & 1u << i;
}

// To wait for a slot that is only mapped takes less than to make one.
static bool adopting(const struct manta__slots *s)
{
  return s->warmer && s->warmer->pending & s->warmer->adopt;
}

// Of no use for `need` bytes, and ours to replace.
static bool useless(const struct manta__slots *s, int i, uint64_t need)
{
  const struct manta__slot *slot = &s->slot[i];
  if (being_made(s, i))
    return false;
  if (slot->fd < 0 || state_of(slot) == MANTA__SLOT_RETIRED)
    return true;
  return state_of(slot) == MANTA__SLOT_FREE && slot->capacity < need;
}

static uint64_t capacity_for(uint64_t need)
{
  return (need + need / 16 + PAGE - 1) / PAGE * PAGE;
}

// Gives the slots of `todo` to a thread. If that can't be, they stay as they are.
static bool start_warmer(struct manta__slots *s, unsigned todo, unsigned adopt, uint64_t capacity)
{
  struct manta__slots_warmer *w = todo && !s->warmer ? manta__calloc(1, sizeof *w) : NULL;
  if (!w)
    return false;
  w->capacity = capacity;
  w->todo = w->pending = todo;
  w->adopt = adopt;
  for (int i = 0; i < MANTA__SLOTS; i++) {
    w->item[i].slot = todo & 1u << i ? s->slot[i] : (struct manta__slot){.fd = -1};
    if (adopt & 1u << i)
      w->item[i].slot.fd = s->adopted[i];
  }
  if (manta__thread_start(&w->thread, "manta-warm", WARM_STACK, warm, w) != 0) {
    manta__free(w);
    return false;
  }
  for (int i = 0; i < MANTA__SLOTS; i++)
    if (todo & 1u << i)
      s->slot[i] = (struct manta__slot){.fd = -1};
  s->warmer = w;
  return true;
}

// Has the useless slots replaced behind the caller's back. If that can't be, the next save does it.
static void warm_others(struct manta__slots *s, uint64_t need)
{
  unsigned todo = 0;
  for (int i = 0; i < s->count; i++)
    todo |= (unsigned)useless(s, i, need) << i;
  start_warmer(s, todo, 0, capacity_for(need));
}

void manta__slots_adopt(struct manta__slots *s, int index, int fd)
{
  bool taken = index >= 0 && index < s->count && s->slot[index].fd < 0 && s->adopted[index] < 0;
  if (taken)
    s->adopted[index] = fd;
  else
    close(fd);
}

void manta__slots_warm_adopted(struct manta__slots *s)
{
  unsigned adopt = 0;
  for (int i = 0; i < MANTA__SLOTS; i++)
    adopt |= (unsigned)(s->adopted[i] >= 0) << i;
  s->owner = getpid();
  bool started = start_warmer(s, adopt, adopt, 0);
  for (int i = 0; i < MANTA__SLOTS; i++) {
    if (s->adopted[i] >= 0 && !started)
      close(s->adopted[i]);
    s->adopted[i] = -1;
  }
}

// Waits for the thread's end and takes over the rest of what it made.
static void finish_warmer(struct manta__slots *s)
{
  struct manta__slots_warmer *w = s->warmer;
  pthread_join(w->thread, NULL);
  for (int i = 0; i < MANTA__SLOTS; i++)
    if (w->pending & 1u << i)
      s->slot[i] = w->item[i].slot;
  manta__free(w);
  s->warmer = NULL;
}

// Takes over what the thread has made so far.
static void take_over(struct manta__slots *s)
{
  struct manta__slots_warmer *w = s->warmer;
  if (!w)
    return;
  for (int i = 0; i < MANTA__SLOTS; i++) {
    if (w->pending & 1u << i && atomic_load_explicit(&w->item[i].done, memory_order_acquire)) {
      s->slot[i] = w->item[i].slot;
      w->pending &= ~(1u << i);
    }
  }
  if (!w->pending)
    finish_warmer(s);
}

void manta__slots_fini(struct manta__slots *s)
{
  bool child = s->owner && s->owner != getpid();
  if (s->warmer && !child) // a child has not its thread, which may have been at work: left alone
    finish_warmer(s);
  for (int i = 0; i < MANTA__SLOTS; i++) {
    if (child)
      s->slot[i].meta = NULL; // not mapped here, and something else may be
    manta__slot_drop(&s->slot[i]);
    if (s->adopted[i] >= 0)
      close(s->adopted[i]);
  }
  if (s->layout)
    manta__layout_fini(s->layout);
  manta__free(s->layout);
  manta__slots_init(s);
}

/* --- Taking a slot --- */

static int find_free(const struct manta__slots *s, uint64_t need)
{
  for (int i = 0; i < s->count; i++)
    if (s->slot[i].fd >= 0 && s->slot[i].capacity >= need &&
        state_of(&s->slot[i]) == MANTA__SLOT_FREE)
      return i;
  return -1;
}

static int find_useless(const struct manta__slots *s, uint64_t need)
{
  for (int i = 0; i < s->count; i++)
    if (useless(s, i, need))
      return i;
  return -1;
}

// Sleeps a little, where the next slot is most likely to come from: the thread, else the oldest.
static void nap(struct manta__slots *s, int64_t by)
{
  int left = manta__left_ms(by), ms = left < 0 || left > NAP_MS ? NAP_MS : left;
  const struct manta__slot *oldest = NULL;
  for (int i = 0; i < s->count; i++) {
    const struct manta__slot *slot = &s->slot[i];
    if (being_made(s, i)) {
      manta__slot_wait(&s->warmer->item[i].done, 0, ms);
      return;
    }
    if (slot->fd >= 0 && (!oldest || slot->meta->id.seq < oldest->meta->id.seq))
      oldest = slot;
  }
  uint32_t state = oldest ? state_of(oldest) : 0;
  if (oldest && state != MANTA__SLOT_FREE && state != MANTA__SLOT_RETIRED)
    manta__slot_wait(&oldest->meta->state, state, ms);
}

static manta_status remake(struct manta__slots *s, int i, uint64_t need, manta_error *err)
{
  manta__slot_drop(&s->slot[i]);
  s->owner = getpid();
  return manta__slot_make(&s->slot[i], capacity_for(need), err);
}

// Gives a slot that is FREE and large enough.
static manta_status find_slot(struct manta__slots *s, uint64_t need, int64_t by,
                              manta_status (*stop)(void *ctx, manta_error *err), void *ctx,
                              int *index, manta_error *err)
{
  for (;;) {
    take_over(s);
    if ((*index = find_free(s, need)) >= 0)
      return MANTA_OK;
    if (!adopting(s) && (*index = find_useless(s, need)) >= 0)
      return remake(s, *index, need, err);
    if (stop)
      MANTA_TRY(stop(ctx, err));
    if (by != MANTA__NEVER && manta__now() >= by)
      return manta_error_set(err, MANTA_ETIMEDOUT,
                             "save: all %d snapshot slots are still being written", s->count);
    nap(s, by);
  }
}

/* --- Saving --- */

static manta_status check_data(const manta_state *state, const struct manta__layout *l, bool filled,
                               manta_error *err)
{
  for (size_t i = 0; i < state->count && !filled; i++)
    if (!state->tensors[i].data && l->bytes[i])
      return manta_error_set(err, MANTA_EINVAL, "tensor \"%s\" has no data",
                             state->tensors[i].name);
  return MANTA_OK;
}

static manta_status renew_layout(struct manta__slots *s, const manta_state *state, manta_error *err)
{
  struct manta__layout fresh = {0};
  if (!s->layout && !(s->layout = manta__calloc(1, sizeof *s->layout)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the layout of a snapshot");
  MANTA_TRY(manta__layout_make(&fresh, state, err));
  manta__layout_fini(s->layout);
  *s->layout = fresh;
  return MANTA_OK;
}

// Places for the caller's own writing.
static manta_status make_places(const manta_state *state, struct slot_plan *p, manta_error *err)
{
  p->dst = manta__calloc(state->count + 1, sizeof *p->dst);
  return p->dst ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory to save a state");
}

static manta_status plan_extras(struct slot_plan *p, const struct manta__snapshot *snap,
                                manta_error *err)
{
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    const manta_value *v = snap->extra[i];
    if (!v || v->type == MANTA_NIL)
      continue;
    size_t len = manta__pack_size(v);
    if (len == 0 || len > MANTA__EXTRA_MAX)
      return manta_error_set(
          err, MANTA_ETOOBIG,
          "\"%s\" of the checkpoint: over %u packed bytes, or nested over %d deep",
          manta__extra_name((enum manta__extra)i), MANTA__EXTRA_MAX, MANTA_VALUE_MAX_DEPTH);
    p->extra[i] = (struct manta__slot_part){p->need, len};
    p->need += len;
  }
  return MANTA_OK;
}

static manta_status make_plan(struct manta__slots *s, const manta_state *state,
                              const struct manta__snapshot *snap, struct slot_plan *p,
                              manta_error *err)
{
  static const manta_value nil;
  bool filled = snap->fill != NULL;
  if (state->count && !state->tensors)
    return manta_error_set(err, MANTA_EINVAL, "a state of %zu tensors without an array of them",
                           state->count);
  if (!s->layout || !manta__layout_fits(s->layout, state))
    MANTA_TRY(renew_layout(s, state, err));
  MANTA_TRY(check_data(state, s->layout, filled, err));
  p->value = state->value ? state->value : &nil;
  p->value_len = manta__pack_size(p->value);
  if (p->value_len == 0 || p->value_len > MANTA_STATE_VALUE_MAX)
    return manta_error_set(
        err, MANTA_ETOOBIG,
        "the value of the state has more than %u bytes packed, or is nested deeper than %d levels",
        MANTA_STATE_VALUE_MAX, MANTA_VALUE_MAX_DEPTH);
  p->tensors_len = s->layout->header_len + s->layout->data_len;
  p->value_off = (MANTA__SLOT_META + p->tensors_len + 7) / 8 * 8;
  p->need = p->value_off + p->value_len;
  MANTA_TRY(plan_extras(p, snap, err));
  return filled ? make_places(state, p, err) : MANTA_OK;
}

static void fill_meta(struct manta__slot_meta *m, const struct slot_plan *p,
                      const struct manta__snapshot *snap)
{
  m->id = snap->id;
  m->iteration = snap->iteration;
  m->wall_ns = manta__wall();
  m->world = snap->world;
  m->has_score = snap->has_score;
  m->score = snap->has_score ? snap->score : 0;
  m->tensors_off = MANTA__SLOT_META;
  m->tensors_len = p->tensors_len;
  m->value_off = p->value_off;
  m->value_len = p->value_len;
  m->files = snap->files;
  m->directory = snap->directory;
  atomic_store_explicit(&m->unreported, 0, memory_order_relaxed);
  memcpy(m->extra, p->extra, sizeof m->extra);
}

// What is not in memory of this process's own, the caller writes.
static manta_status fill_by_caller(const struct manta__slots *s, int i, const struct slot_plan *p,
                                   const struct manta__snapshot *snap, manta_error *err)
{
  const struct manta__slot *slot = &s->slot[i];
  const struct manta__layout *l = s->layout;
  uint8_t *data = (uint8_t *)slot->meta + MANTA__SLOT_META + l->header_len;
  manta_slot_memory memory = {slot->meta, slot->capacity, slot->serial, {0}};
  static_assert(sizeof memory.live / sizeof *memory.live == MANTA__SLOTS, "one of each");
  for (int k = 0; k < MANTA__SLOTS; k++)
    memory.live[k] = s->slot[k].fd >= 0 ? s->slot[k].serial : 0;
  for (size_t k = 0; k < l->count; k++)
    p->dst[k] = data + l->offset[k];
  return snap->fill(snap->fill_ctx, p->dst, &memory, err);
}

static void copy_tensors(uint8_t *data, const struct manta__layout *l, const manta_state *state)
{
  for (size_t i = 0; i < l->count; i++)
    if (state->tensors[i].data)
      manta__copy(data + l->offset[i], state->tensors[i].data, l->bytes[i], l->data_len);
}

static manta_status fill(const struct manta__slots *s, int i, const manta_state *state,
                         const struct slot_plan *p, const struct manta__snapshot *snap,
                         manta_error *err)
{
  const struct manta__layout *l = s->layout;
  struct manta__slot_meta *m = s->slot[i].meta;
  uint8_t *base = (uint8_t *)m, *header = base + MANTA__SLOT_META;
  manta_status st = MANTA_OK;
  atomic_store(&m->state, MANTA__SLOT_FILLING);
  fill_meta(m, p, snap);
  memcpy(header, l->header, l->header_len);
  manta__layout_stamp(header, snap->iteration);
  if (snap->fill)
    st = fill_by_caller(s, i, p, snap, err);
  if (st == MANTA_OK) {
    copy_tensors(header + l->header_len, l, state);
    manta__pack_into(base + p->value_off, p->value);
    for (int k = 0; k < MANTA__EXTRA_COUNT; k++)
      if (p->extra[k].len)
        manta__pack_into(base + p->extra[k].off, snap->extra[k]);
    manta__copy_fence();
  }
  atomic_store_explicit(&m->state, st < 0 ? MANTA__SLOT_FREE : MANTA__SLOT_READY,
                        memory_order_release);
  return st;
}

manta_status manta__slots_save(struct manta__slots *s, const manta_state *state,
                               const struct manta__snapshot *snap, int64_t by,
                               manta_status (*stop)(void *ctx, manta_error *err), void *ctx,
                               int *index_out, manta_error *err)
{
  struct slot_plan p = {0};
  int i = 0;
  MANTA_TRY(make_plan(s, state, snap, &p, err));
  manta_status st = find_slot(s, p.need, by, stop, ctx, &i, err);
  if (st == MANTA_OK)
    st = fill(s, i, state, &p, snap, err);
  manta__free(p.dst);
  MANTA_TRY(st);
  warm_others(s, p.need);
  *index_out = i;
  return MANTA_OK;
}
