/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/passes.c - shuffle and repeat: not what the rows are, but in which order they come.
 */
#include <inttypes.h>

#include "data/plan/pack.h"

#define WINDOW_BYTES ((int64_t)64 << 20)
#define WINDOW_MIN   1024
#define WINDOW_MAX   (1 << 20)
#define TEXT_BYTES   64 /* of a string, about */

static manta_status explain_shuffle(const manta_dataset *d, const struct manta__want *want,
                                    manta__buf *b)
{
  return manta__buf_printf(b, "shuffle blocks, and rows in windows of %" PRId64 ", seed %" PRIu64,
                           d->passes.window, d->passes.seed);
}

static manta_status explain_repeat(const manta_dataset *d, const struct manta__want *want,
                                   manta__buf *b)
{
  if (d->passes.times)
    return manta__buf_printf(b, "repeat: %" PRId64 " passes", d->passes.times);
  return manta__buf_puts(b, "repeat without end");
}

static manta_status pack_shuffle(const manta_dataset *d, manta_value *to, manta_error *err)
{
  MANTA_TRY(manta_value_put_int(to, "seed", (int64_t)d->passes.seed));
  return manta_value_put_int(to, "window", d->passes.window);
}

static manta_status unpack_shuffle(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                                   const manta_value *from, manta_error *err)
{
  if (inputs != 1)
    return manta__plan_malformed(err);
  return manta_dataset_shuffle(out, in[0],
                               (uint64_t)manta_value_as_int(manta_value_get(from, "seed"), 0),
                               manta_value_as_int(manta_value_get(from, "window"), -1), err);
}

// Those of its own: the input may be repeated, too.
static manta_status pack_repeat(const manta_dataset *d, manta_value *to, manta_error *err)
{
  int64_t before = d->input[0]->passes.times;
  return manta_value_put_int(to, "times", before ? d->passes.times / before : 0);
}

static manta_status unpack_repeat(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                                  const manta_value *from, manta_error *err)
{
  if (inputs != 1)
    return manta__plan_malformed(err);
  return manta_dataset_repeat(out, in[0], manta_value_as_int(manta_value_get(from, "times"), -1),
                              err);
}

const struct manta__step manta__step_shuffle = {
    .name = "shuffle", .explain = explain_shuffle, .pack = pack_shuffle, .unpack = unpack_shuffle};
const struct manta__step manta__step_repeat = {
    .name = "repeat", .explain = explain_repeat, .pack = pack_repeat, .unpack = unpack_repeat};

// By the types alone: the same on every host, and with every limit of memory.
static int64_t window_of(const struct manta__schema *s)
{
  int64_t row = 1;
  for (int i = 0; i < s->count; i++) {
    const struct manta__type *t = &s->field[i].type;
    row += manta__type_varies(t) ? TEXT_BYTES : 1 + (int64_t)manta__type_width(t);
  }
  int64_t rows = WINDOW_BYTES / row;
  return rows < WINDOW_MIN ? WINDOW_MIN : rows > WINDOW_MAX ? WINDOW_MAX : rows;
}

manta_status manta_dataset_shuffle(manta_dataset **out, manta_dataset *d, uint64_t seed,
                                   int64_t window, manta_error *err)
{
  manta_dataset *s;
  if (window < 0 || window > INT32_MAX)
    return manta_error_set(err, MANTA_EINVAL, "a window of %" PRId64 " rows: 1 to %d, or 0", window,
                           INT32_MAX);
  MANTA_TRY(manta__dataset_unlimited(d, "a shuffle", err));
  MANTA_TRY(manta__dataset_create(&s, sizeof *s, &manta__step_shuffle, &d, 1, err));
  s->passes.shuffles = true;
  s->passes.seed = seed;
  s->passes.window = window ? window : window_of(d->out);
  *out = s;
  return MANTA_OK;
}

manta_status manta_dataset_repeat(manta_dataset **out, manta_dataset *d, int64_t times,
                                  manta_error *err)
{
  manta_dataset *r;
  int64_t all;
  if (times < 0 || __builtin_mul_overflow(times, d->passes.times, &all))
    return manta_error_set(err, MANTA_EINVAL, "a repeat of %" PRId64 " passes", times);
  MANTA_TRY(manta__dataset_unlimited(d, "a repeat", err));
  MANTA_TRY(manta__dataset_create(&r, sizeof *r, &manta__step_repeat, &d, 1, err));
  r->passes.times = all;
  *out = r;
  return MANTA_OK;
}
