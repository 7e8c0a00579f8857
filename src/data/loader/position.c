/* SPDX-License-Identifier: Apache-2.0
 *
 * data/loader/position.c - where a loader is, as a value that packs into a checkpoint.
 *
 * It names the order that it counts in (the blocks, the shuffle), so that a position of another one
 * is refused and not followed to other rows.
 */
#include <inttypes.h>

#include "data/loader/loader.h"

#define VERSION 1

manta_status manta_loader_begin(manta_loader *l, int64_t epoch, manta_error *err)
{
  if (epoch < 0)
    return manta_error_set(err, MANTA_EINVAL, "epoch %" PRId64 ": they count from 0 on", epoch);
  manta__loader_stop(l);
  l->epoch = epoch;
  l->position = (struct manta__position){0};
  l->over = (struct manta__made){.st = (manta_status)1};
  return MANTA_OK;
}

int64_t manta_loader_epoch(const manta_loader *l)
{
  return l->epoch + l->position.pass;
}

manta_status manta_loader_save(const manta_loader *l, manta_value *out, manta_error *err)
{
  const struct manta__passes *p = &l->dataset->passes;
  const struct manta__position *at = &l->position;
  const struct {
    const char *key;
    int64_t value;
  } rows[] = {
      {"version", VERSION},
      {"data", (int64_t)l->dataset->mark},
      {"blocks", l->dataset->blocks},
      {"seed", p->shuffles ? (int64_t)p->seed : 0},
      {"window", p->shuffles ? p->window : 0},
      {"epoch", l->epoch},
      {"pass", at->pass},
      {"rows", at->rows},
      {"ticket", at->ticket},
      {"before", at->before},
      {"taken", at->taken},
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

static manta_status check_order(const manta_loader *l, const manta_value *state, manta_error *err)
{
  const struct manta__passes *p = &l->dataset->passes;
  int64_t blocks = number(state, "blocks"), window = p->shuffles ? p->window : 0;
  if (number(state, "version") != VERSION)
    return manta_error_set(err, MANTA_EINVAL,
                           "is no position of a loader, or one of another version of manta");
  if (blocks != l->dataset->blocks || number(state, "data") != (int64_t)l->dataset->mark)
    return manta_error_set(err, MANTA_EINVAL,
                           "is a position in other data: %" PRId64 " blocks, here are %" PRId64
                           "%s\nhint: the same files, in the same order, with the same block_bytes",
                           blocks, l->dataset->blocks,
                           blocks == l->dataset->blocks ? " of other sizes" : "");
  if (number(state, "window") != window ||
      (p->shuffles && manta_value_as_int(manta_value_get(state, "seed"), 0) != (int64_t)p->seed))
    return manta_error_set(err, MANTA_EINVAL,
                           "is a position in another order: window %" PRId64 " and seed %" PRId64
                           ", here they are %" PRId64 " and %" PRIu64,
                           number(state, "window"), number(state, "seed"), window,
                           p->shuffles ? p->seed : 0);
  return MANTA_OK;
}

manta_status manta_loader_load(manta_loader *l, const manta_value *state, manta_error *err)
{
  struct manta__position at = {.pass = number(state, "pass"),
                               .rows = number(state, "rows"),
                               .ticket = number(state, "ticket"),
                               .before = number(state, "before"),
                               .taken = number(state, "taken")};
  int64_t epoch = number(state, "epoch");
  MANTA_TRY(check_order(l, state, err));
  if (epoch < 0 || at.pass < 0 || at.rows < 0 || at.taken < 0 || at.ticket < 0 || at.before < 0 ||
      at.before > at.rows || (l->dataset->blocks && at.ticket >= l->dataset->blocks) ||
      (l->dataset->passes.times && at.pass >= l->dataset->passes.times))
    return manta_error_set(err, MANTA_EINVAL,
                           "is no position of a loader: pass %" PRId64 ", row %" PRId64
                           ", block %" PRId64,
                           at.pass, at.rows, at.ticket);
  MANTA_TRY(manta_loader_begin(l, epoch, err));
  l->position = at;
  return MANTA_OK;
}
