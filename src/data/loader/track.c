/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader/track.h"

#include <inttypes.h>

#include "base/alloc.h"

#define VERSION 1

struct manta__track {
  _Atomic int refs;
  struct manta__passes passes; /* of the data set, and what names it */
  int64_t blocks;
  uint64_t data;
  pthread_mutex_t lock; /* of all that follows */
  bool open, over, marked;
  int64_t epoch;             /* of pass 0 */
  struct manta__position at; /* behind the batch that was given out last */
  int64_t mark_epoch;        /* the same, of the mark */
  struct manta__position mark;
};

// --- life ---------------------------------------------------------------------------------------

struct manta__track *manta__track_create(const manta_dataset *d, int64_t epoch)
{
  struct manta__track *t = manta__calloc(1, sizeof *t);
  if (!t)
    return NULL;
  t->refs = 1;
  t->passes = d->passes;
  t->blocks = d->blocks;
  t->data = d->mark;
  t->open = true;
  t->epoch = epoch;
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

struct manta__track *manta__track_ref(struct manta__track *t)
{
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  return t;
}

void manta__track_unref(struct manta__track *t)
{
  if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) > 1)
    return;
  pthread_mutex_destroy(&t->lock);
  manta__free(t);
}

// --- the loader's word --------------------------------------------------------------------------

void manta__track_go(struct manta__track *t, int64_t epoch, const struct manta__position *at)
{
  pthread_mutex_lock(&t->lock);
  t->epoch = epoch;
  t->at = *at;
  t->over = t->marked = false;
  pthread_mutex_unlock(&t->lock);
}

void manta__track_move(struct manta__track *t, const struct manta__position *at, bool over)
{
  pthread_mutex_lock(&t->lock);
  t->at = *at;
  t->over = over;
  pthread_mutex_unlock(&t->lock);
}

void manta__track_close(struct manta__track *t)
{
  pthread_mutex_lock(&t->lock);
  t->open = false;
  pthread_mutex_unlock(&t->lock);
}

bool manta__track_is_open(struct manta__track *t)
{
  pthread_mutex_lock(&t->lock);
  bool open = t->open;
  pthread_mutex_unlock(&t->lock);
  return open;
}

void manta__track_get(struct manta__track *t, int64_t *epoch, struct manta__position *at)
{
  pthread_mutex_lock(&t->lock);
  *epoch = t->epoch;
  *at = t->at;
  pthread_mutex_unlock(&t->lock);
}

// --- values -------------------------------------------------------------------------------------

// What is to be saved.
static void choose(struct manta__track *t, int64_t *epoch, struct manta__position *at)
{
  pthread_mutex_lock(&t->lock);
  *epoch = t->marked ? t->mark_epoch : t->epoch;
  *at = t->marked ? t->mark : t->at;
  if (!t->marked && t->over) {
    *epoch += t->passes.times;
    *at = (struct manta__position){0};
  }
  pthread_mutex_unlock(&t->lock);
}

manta_status manta__track_save(struct manta__track *t, manta_value *out, manta_error *err)
{
  const struct manta__passes *p = &t->passes;
  struct manta__position at;
  int64_t epoch;
  choose(t, &epoch, &at);
  const struct {
    const char *key;
    int64_t value;
  } rows[] = {
      {"version", VERSION},
      {"data", (int64_t)t->data},
      {"blocks", t->blocks},
      {"seed", p->shuffles ? (int64_t)p->seed : 0},
      {"window", p->shuffles ? p->window : 0},
      {"epoch", epoch},
      {"pass", at.pass},
      {"rows", at.rows},
      {"inside", at.inside},
      {"ticket", at.ticket},
      {"before", at.before},
      {"taken", at.taken},
  };
  manta_value v = {0};
  manta_status st = manta_value_set_map(&v);
  for (size_t i = 0; i < sizeof rows / sizeof *rows && st == MANTA_OK; i++)
    st = manta_value_put_int(&v, rows[i].key, rows[i].value);
  if (st < 0) {
    manta_value_fini(&v);
    return manta_error_set(err, st, "no memory for a position");
  }
  manta_value_move(out, &v);
  return MANTA_OK;
}

static int64_t number(const manta_value *state, const char *key)
{
  return manta_value_as_int(manta_value_get(state, key), -1);
}

static manta_status check_order(const struct manta__track *t, const manta_value *state,
                                manta_error *err)
{
  const struct manta__passes *p = &t->passes;
  int64_t blocks = number(state, "blocks"), window = p->shuffles ? p->window : 0;
  if (number(state, "version") != VERSION)
    return manta_error_set(err, MANTA_EINVAL,
                           "is no position of a loader, or one of another version of manta");
  if (blocks != t->blocks || number(state, "data") != (int64_t)t->data)
    return manta_error_set(err, MANTA_EINVAL,
                           "is a position in other data: %" PRId64 " blocks, here are %" PRId64
                           "%s\nhint: the same files, in the same order, with the same block_bytes",
                           blocks, t->blocks, blocks == t->blocks ? " of other sizes" : "");
  if (number(state, "window") != window ||
      (p->shuffles && manta_value_as_int(manta_value_get(state, "seed"), 0) != (int64_t)p->seed))
    return manta_error_set(err, MANTA_EINVAL,
                           "is a position in another order: window %" PRId64 " and seed %" PRId64
                           ", here they are %" PRId64 " and %" PRIu64,
                           number(state, "window"), number(state, "seed"), window,
                           p->shuffles ? p->seed : 0);
  return MANTA_OK;
}

manta_status manta__track_read(struct manta__track *t, const manta_value *state, int64_t *epoch,
                               struct manta__position *at, manta_error *err)
{
  struct manta__position p = {.pass = number(state, "pass"),
                              .rows = number(state, "rows"),
                              .inside = number(state, "inside"),
                              .ticket = number(state, "ticket"),
                              .before = number(state, "before"),
                              .taken = number(state, "taken")};
  int64_t first = number(state, "epoch");
  MANTA_TRY(check_order(t, state, err));
  if (first < 0 || p.pass < 0 || p.rows < 0 || p.inside < 0 || p.taken < 0 || p.ticket < 0 ||
      p.before < 0 || p.before > p.rows || (t->blocks && p.ticket >= t->blocks) ||
      (t->passes.times && p.pass >= t->passes.times))
    return manta_error_set(err, MANTA_EINVAL,
                           "is no position of a loader: pass %" PRId64 ", row %" PRId64
                           ", block %" PRId64,
                           p.pass, p.rows, p.ticket);
  *epoch = first;
  *at = p;
  return MANTA_OK;
}

manta_status manta__track_mark(struct manta__track *t, const manta_value *state, manta_error *err)
{
  struct manta__position at = {0};
  int64_t epoch = 0;
  bool marked = state->type != MANTA_NIL;
  if (marked)
    MANTA_TRY(manta__track_read(t, state, &epoch, &at, err));
  pthread_mutex_lock(&t->lock);
  t->marked = marked;
  t->mark_epoch = epoch;
  t->mark = at;
  pthread_mutex_unlock(&t->lock);
  return MANTA_OK;
}
