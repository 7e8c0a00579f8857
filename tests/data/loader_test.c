/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders: the order of rows against that of order/order.h, whatever the ranks; positions; tails;
 * memory; failures.
 */
#include "data/loader/loader.h"

#include "base/alloc.h"
#include "cells.h"
#include "folder.h"
#include "numbered.h"

#define FILES 7
#define EACH  150
#define ALL   (FILES * EACH + 20) /* two files have ten more */

static manta_dataset *open_numbered(size_t block_bytes)
{
  return numbered_open(dir, "set", FILES, EACH, block_bytes);
}

// --- the truth ----------------------------------------------------------------------------------

/* The numbers of rows in the order in which they are to come. */
struct truth {
  int64_t n[8 * ALL];
  int64_t rows;
};

static bool passes(int64_t n, int modulus)
{
  return modulus == 0 || n % modulus == 0;
}

// By the tables of order.h: rows of each block, as readers give them; `modulus`: the filter.
static void add_epoch(struct truth *t, manta_dataset *plain, const struct manta__passes *p,
                      int64_t epoch, int modulus)
{
  int64_t blocks = manta_dataset_blocks(plain);
  int64_t *rows = calloc((size_t)blocks, sizeof *rows), *first = calloc((size_t)blocks, 8), sum = 0;
  struct manta__row_order o;
  for (int64_t b = 0; b < blocks; b++) {
    manta_reader *r;
    manta_batch *batch;
    first[b] = sum;
    assert_status(manta_reader_open(&r, plain, b, 1, NULL), MANTA_OK);
    while (manta_reader_next(r, &batch, NULL) == 1) {
      rows[b] += manta_batch_rows(batch);
      manta_batch_destroy(batch);
    }
    manta_reader_close(r);
    sum += rows[b];
  }
  assert_int_equal(sum, ALL);
  assert_status(
      manta__order_make(&o, rows, blocks, p->shuffles, p->seed, (uint64_t)epoch, p->window, NULL),
      MANTA_OK);
  for (int64_t q = 0; q < o.rows; q++) {
    int64_t k, row;
    manta__order_find(&o, manta__order_stream(&o, q), &k, &row);
    int64_t n = first[manta__order_block(&o, k)] + row;
    if (passes(n, modulus))
      t->n[t->rows++] = n;
  }
  manta__order_fini(&o);
  free(rows);
  free(first);
}

// Takes a batch that must hold these rows, and nothing else.
static void assert_rows(const manta_batch *b, const int64_t *want, int64_t rows)
{
  manta_column n, twice, word;
  manta_error err = MANTA_ERROR_INIT;
  assert_int_equal(manta_batch_rows(b), rows);
  assert_ok(manta_batch_column_named(b, "n", &n, &err), &err);
  assert_ok(manta_batch_column_named(b, "twice", &twice, &err), &err);
  assert_ok(manta_batch_column_named(b, "word", &word, &err), &err);
  for (int64_t i = 0; i < rows; i++) {
    int64_t at = ((const int64_t *)n.data)[n.offset + i];
    assert_int_equal(at, want[i]);
    assert_int_equal(((const int64_t *)twice.data)[twice.offset + i], 2 * at);
    const int32_t *o = word.offsets + word.offset + i;
    assert_int_equal(o[1] - o[0], 2);
    assert_int_equal(((const char *)word.data)[o[0] + 1], '0' + at % 7);
  }
}

static manta_loader *open_loader(manta_dataset *d, const manta_loader_config *c)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_loader *l;
  assert_ok(manta_loader_open(&l, d, c, &err), &err);
  return l;
}

// All ranks, step by step, from row `from` of the truth on; they end together.
static void assert_loads(manta_loader **l, int ranks, int64_t batch, const struct truth *t,
                         int64_t from, int64_t steps)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b;
  for (int64_t at = from; steps-- && at < t->rows; at += batch) {
    int64_t size = t->rows - at < batch ? t->rows - at : batch, done = 0;
    for (int r = 0; r < ranks; r++) {
      int64_t rows = size * (r + 1) / ranks - size * r / ranks;
      manta_status st = manta_loader_next(l[r], &b, &err);
      if (st != 1)
        fail_msg("rank %d at row %lld: %s", r, (long long)at, st < 0 ? err.message : "the end");
      assert_rows(b, t->n + at + done, rows);
      done += rows;
      manta_batch_destroy(b);
    }
    assert_int_equal(done, size);
  }
  for (int r = 0; steps >= 0 && r < ranks; r++) {
    assert_int_equal(manta_loader_next(l[r], &b, &err), 0);
    assert_int_equal(manta_loader_next(l[r], &b, &err), 0);
  }
}

static void assert_all(manta_dataset *d, manta_loader_config c, int ranks, const struct truth *t)
{
  manta_loader *l[8];
  c.ranks = ranks;
  for (c.rank = 0; c.rank < ranks; c.rank++)
    l[c.rank] = open_loader(d, &c);
  assert_loads(l, ranks, c.batch_rows ? c.batch_rows : ranks, t, 0, INT64_MAX);
  for (int r = 0; r < ranks; r++)
    manta_loader_close(l[r]);
}

// --- order --------------------------------------------------------------------------------------

static void files_come_in_their_order(void **state)
{
  manta_dataset *d = open_numbered(1000);
  struct truth *t = calloc(1, sizeof *t);
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  add_epoch(t, d, &(struct manta__passes){0}, 0, 0);
  for (int64_t i = 0; i < ALL; i++)
    assert_int_equal(t->n[i], i);
  static const int64_t sizes[] = {0, 1, 7, 64, 333, ALL, 5000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int ranks = 1; ranks <= 3; ranks++) {
      c.batch_rows = sizes[i];
      c.prefetch = (int)(i % 3) - 1;
      c.threads = 1 + (int)(i % 3);
      assert_all(d, c, ranks, t);
    }
  manta_data_stats s;
  manta_dataset_stats(d, &s);
  assert_true(s.rows > 18 * ALL);
  manta_dataset_close(d);
  free(t);
}

static void shuffles_depend_on_seed_and_epoch_alone(void **state)
{
  static const int64_t windows[] = {1, 2, 100, 137, ALL - 1, ALL, 100000};
  struct truth *t = calloc(1, sizeof *t), *other = calloc(1, sizeof *other);
  for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
    manta_dataset *plain = open_numbered(1500), *d = plain;
    manta_error err = MANTA_ERROR_INIT;
    manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
    assert_ok(manta_dataset_shuffle(&d, plain, 5 + i, windows[i], &err), &err);
    t->rows = other->rows = 0;
    add_epoch(t, plain, &d->passes, 3, 0);
    add_epoch(other, plain, &d->passes, 4, 0);
    assert_memory_not_equal(t->n, other->n, ALL * sizeof *t->n);
    c.epoch = 3;
    c.batch_rows = 50 + (int64_t)i;
    c.threads = 3;
    assert_all(d, c, 1 + (int)(i % 4), t);
    c.epoch = 4;
    assert_all(d, c, 2, other);
    manta_dataset_close(d);
    manta_dataset_close(plain);
  }
  free(t);
  free(other);
}

// Rows that are filtered out leave the order of the others as it was.
static void filters_leave_the_order(void **state)
{
  struct truth *t = calloc(1, sizeof *t);
  for (int modulus = 1; modulus < 2000; modulus = modulus * 5 + 3) {
    manta_dataset *plain = open_numbered(1500), *d = plain;
    manta_error err = MANTA_ERROR_INIT;
    manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
    char filter[64];
    snprintf(filter, sizeof filter, "[\"==\", [\"%%\", [\"col\", \"n\"], %d], 0]", modulus);
    assert_ok(manta_dataset_shuffle(&d, plain, 11, 90, &err), &err);
    d = with_filter(d, filter);
    t->rows = 0;
    add_epoch(t, plain, &d->passes, 0, modulus);
    c.batch_rows = 16;
    assert_all(d, c, 2, t);
    manta_dataset_close(d);
    manta_dataset_close(plain);
  }
  free(t);
}

static void repeats_go_on_with_the_next_epoch(void **state)
{
  manta_dataset *plain = open_numbered(4000), *d;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  struct truth *t = calloc(1, sizeof *t);
  assert_ok(manta_dataset_shuffle(&d, plain, 2, 200, &err), &err);
  STEP(d, manta_dataset_repeat(&step_out, d, 3, &step_err));
  for (int64_t e = 5; e < 8; e++)
    add_epoch(t, plain, &d->passes, e, 0);
  c.epoch = 5;
  c.batch_rows = 100; // does not divide an epoch
  assert_all(d, c, 2, t);
  STEP(d, manta_dataset_limit(&step_out, d, ALL + 77, &step_err));
  t->rows = ALL + 77;
  assert_all(d, c, 3, t);
  manta_dataset_close(d);
  assert_ok(manta_dataset_repeat(&d, plain, 0, &err), &err); // without end
  for (int64_t i = 0; i < 8 * ALL; i++)
    t->n[i] = i % ALL;
  t->rows = 8 * ALL;
  c.batch_rows = ALL / 2;
  manta_loader *l = open_loader(d, &c);
  assert_loads(&l, 1, c.batch_rows, t, 0, 15);
  assert_int_equal(manta_loader_epoch(l), 5 + 7);
  manta_loader_close(l);
  manta_dataset_close(d);
  manta_dataset_close(plain);
  free(t);
}

// --- tails --------------------------------------------------------------------------------------

static void tails_are_dropped_or_padded(void **state)
{
  manta_dataset *plain = open_numbered(1500), *d;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  struct truth *t = calloc(1, sizeof *t);
  assert_ok(manta_dataset_shuffle(&d, plain, 1, 100, &err), &err);
  add_epoch(t, plain, &d->passes, 0, 0);
  c.batch_rows = 300; // 1070 rows: 3 batches and 170 rows
  c.tail = MANTA_TAIL_DROP;
  t->rows = 900;
  assert_all(d, c, 4, t);
  c.tail = MANTA_TAIL_PAD;
  memcpy(t->n + ALL, t->n, 130 * sizeof *t->n);
  t->rows = 1200;
  assert_all(d, c, 4, t);
  c.batch_rows = 2 * ALL + 30; // more than there is: twice around
  memcpy(t->n + ALL, t->n, ALL * sizeof *t->n);
  memcpy(t->n + 2 * ALL, t->n, 30 * sizeof *t->n);
  t->rows = 2 * ALL + 30;
  assert_all(d, c, 3, t);
  c.tail = MANTA_TAIL_DROP;
  t->rows = 0;
  assert_all(d, c, 3, t);
  manta_dataset_close(d);
  manta_dataset_close(plain);
  free(t);
}

static void empty_parts_have_columns(void **state)
{
  manta_dataset *d = open_numbered(0);
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b;
  STEP(d, manta_dataset_limit(&step_out, d, 2, &step_err));
  c.batch_rows = 8;
  c.ranks = 4;
  int64_t rows = 0;
  for (c.rank = 0; c.rank < 4; c.rank++) {
    manta_loader *l = open_loader(d, &c);
    assert_int_equal(manta_loader_next(l, &b, &err), 1);
    assert_rows(b, (int64_t[]){rows}, manta_batch_rows(b));
    rows += manta_batch_rows(b);
    manta_batch_destroy(b);
    assert_int_equal(manta_loader_next(l, &b, &err), 0);
    manta_loader_close(l);
  }
  assert_int_equal(rows, 2);
  manta_dataset_close(d);
}

// --- positions ----------------------------------------------------------------------------------

// Through its bytes, as in a checkpoint.
static manta_value position_of(manta_loader *l)
{
  manta_value v = {0}, again = {0};
  manta_error err = MANTA_ERROR_INIT;
  void *bytes;
  size_t n;
  assert_ok(manta_loader_save(l, &v, &err), &err);
  assert_ok(manta_value_pack(&v, &bytes, &n, &err), &err);
  assert_ok(manta_value_unpack(&again, bytes, n, &err), &err);
  manta_value_fini(&v);
  manta_free(bytes);
  return again;
}

// At random steps the ranks are given up, and as many others, or more, or fewer, go on from there.
static void go_on_with_others(manta_dataset *d, const struct truth *t, uint64_t *noise)
{
  int64_t at = 0;
  bool ended = false; // the end was given out: the position is the beginning of the next epoch
  manta_value position = {0};
  manta_error err = MANTA_ERROR_INIT;
  while (at < t->rows) {
    int ranks = 1 + (int)(cells_random(noise) % 4);
    int64_t steps = 1 + (int64_t)(cells_random(noise) % 6);
    manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
    manta_loader *l[4];
    c.ranks = ranks;
    c.batch_rows = 1 + (int64_t)(cells_random(noise) % 90);
    c.threads = 1 + (int)(cells_random(noise) % 3);
    c.prefetch = (int)(cells_random(noise) % 6) - 1;
    for (c.rank = 0; c.rank < ranks; c.rank++) {
      l[c.rank] = open_loader(d, &c);
      if (position.type != MANTA_NIL)
        assert_ok(manta_loader_load(l[c.rank], &position, &err), &err);
    }
    int64_t end = at + steps * c.batch_rows;
    ended = steps > (t->rows - at + c.batch_rows - 1) / c.batch_rows;
    assert_loads(l, ranks, c.batch_rows, t, at, steps);
    at = end < t->rows ? end : t->rows;
    manta_value_fini(&position);
    position = position_of(l[0]);
    for (int r = 0; r < ranks; r++)
      manta_loader_close(l[r]);
  }
  manta_loader *l = open_loader(d, NULL);
  manta_batch *b;
  assert_ok(manta_loader_load(l, &position, &err), &err);
  if (ended)
    assert_int_equal(manta_loader_epoch(l), d->passes.times);
  assert_int_equal(manta_loader_next(l, &b, &err), ended);
  if (ended)
    manta_batch_destroy(b);
  manta_loader_close(l);
  manta_value_fini(&position);
}

static void positions_hold_for_other_ranks(void **state)
{
  uint64_t noise = 12345;
  struct truth *t = calloc(1, sizeof *t);
  for (int round = 0; round < 12; round++) {
    manta_dataset *plain = open_numbered(800 + cells_random(&noise) % 3000), *d;
    int modulus = (int)(cells_random(&noise) % 4);
    manta_error err = MANTA_ERROR_INIT;
    if (round % 4)
      assert_ok(manta_dataset_shuffle(&d, plain, cells_random(&noise), 1 + round * 60, &err), &err);
    else
      assert_ok(manta_dataset_limit(&d, plain, ALL, &err), &err);
    if (modulus) {
      char filter[64];
      snprintf(filter, sizeof filter, "[\"==\", [\"%%\", [\"col\", \"n\"], %d], 0]", modulus);
      d = with_filter(d, filter);
    }
    int64_t times = 1 + round % 3;
    STEP(d, manta_dataset_repeat(&step_out, d, times, &step_err));
    t->rows = 0;
    for (int64_t e = 0; e < times; e++)
      add_epoch(t, plain, &d->passes, e, modulus);
    if (round % 2 && times > 1) {
      STEP(d, manta_dataset_limit(&step_out, d, t->rows - 100, &step_err));
      t->rows -= 100;
    }
    go_on_with_others(d, t, &noise);
    manta_dataset_close(d);
    manta_dataset_close(plain);
  }
  free(t);
}

// Batches that were taken ahead of their use do not count before they are marked as used.
static void a_mark_is_what_is_saved(void **state)
{
  manta_dataset *d = open_numbered(2000);
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_value at[3], again, nil = {0};
  manta_batch *b;
  c.batch_rows = 10;
  manta_loader *l = open_loader(d, &c);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(manta_loader_next(l, &b, &err), 1);
    manta_batch_destroy(b);
    at[i] = position_of(l);
  }
  assert_ok(manta_loader_mark(l, &at[0], &err), &err);
  again = position_of(l);
  assert_true(manta_value_equal(&again, &at[0]));
  manta_value_fini(&again);
  assert_int_equal(manta_loader_next(l, &b, &err), 1); // goes on where the loader is
  manta_column n;
  assert_ok(manta_batch_column_named(b, "n", &n, &err), &err);
  assert_int_equal(((const int64_t *)n.data)[n.offset], 30);
  manta_batch_destroy(b);
  assert_ok(manta_loader_mark(l, &nil, &err), &err);
  again = position_of(l);
  assert_int_equal(manta_value_as_int(manta_value_get(&again, "rows"), -1), 40);
  manta_value_fini(&again);
  for (int i = 0; i < 3; i++)
    manta_value_fini(&at[i]);
  manta_loader_close(l);
  manta_dataset_close(d);
}

static void epochs_begin_again(void **state)
{
  manta_dataset *plain = open_numbered(2000), *d;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  struct truth *t = calloc(1, sizeof *t);
  manta_batch *b;
  assert_ok(manta_dataset_shuffle(&d, plain, 3, 0, &err), &err);
  assert_true(d->passes.window > 1000);
  c.batch_rows = 128;
  manta_loader *l = open_loader(d, &c);
  for (int64_t e = 0; e < 3; e++) {
    t->rows = 0;
    add_epoch(t, plain, &d->passes, e, 0);
    assert_ok(manta_loader_begin(l, e, &err), &err);
    if (e == 1) { // given up half-way
      assert_int_equal(manta_loader_next(l, &b, &err), 1);
      manta_batch_destroy(b);
      assert_ok(manta_loader_begin(l, e, &err), &err);
    }
    assert_int_equal(manta_loader_epoch(l), e);
    assert_loads(&l, 1, c.batch_rows, t, 0, INT64_MAX);
  }
  assert_status(manta_loader_begin(l, -1, &err), MANTA_EINVAL);
  manta_loader_stats s;
  manta_loader_get_stats(l, &s);
  assert_int_equal(s.batches, 3 * 9 + 1);
  assert_int_equal(s.rows, 3 * ALL + 128);
  assert_true(s.parse > 0 && s.make > 0 && s.bytes_max > 0);
  manta_loader_close(l);
  manta_loader_close(NULL);
  manta_dataset_close(d);
  manta_dataset_close(plain);
  free(t);
}

static void positions_of_other_data_are_refused(void **state)
{
  manta_dataset *plain = open_numbered(500), *other = open_numbered(0), *d, *e;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_dataset_shuffle(&d, plain, 3, 50, &err), &err);
  assert_ok(manta_dataset_shuffle(&e, plain, 4, 50, &err), &err);
  manta_loader *l = open_loader(d, NULL), *of_plain = open_loader(plain, NULL);
  manta_loader *of_other = open_loader(other, NULL), *of_e = open_loader(e, NULL);
  manta_value v = position_of(l), nil = {0};
  assert_status(manta_loader_load(of_plain, &v, &err), MANTA_EINVAL);
  assert_has(err.message, "another order");
  assert_status(manta_loader_load(of_e, &v, &err), MANTA_EINVAL);
  assert_has(err.message, "another order");
  assert_status(manta_loader_load(of_other, &v, &err), MANTA_EINVAL);
  assert_has(err.message, "other data");
  assert_status(manta_loader_load(l, &nil, &err), MANTA_EINVAL);
  static const struct {
    const char *key;
    int64_t value;
  } wrong[] = {{"rows", -1}, {"before", 5}, {"ticket", 1000}, {"pass", 1}, {"epoch", -4}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    manta_value bad = {0};
    assert_status(manta_value_copy(&bad, &v), MANTA_OK);
    assert_status(manta_value_put_int(&bad, wrong[i].key, wrong[i].value), MANTA_OK);
    assert_status(manta_loader_load(l, &bad, &err), MANTA_EINVAL);
    manta_value_fini(&bad);
  }
  assert_ok(manta_loader_load(l, &v, &err), &err);
  manta_value_fini(&v);
  manta_loader_close(l);
  manta_loader_close(of_plain);
  manta_loader_close(of_other);
  manta_loader_close(of_e);
  manta_dataset_close(d);
  manta_dataset_close(e);
  manta_dataset_close(plain);
  manta_dataset_close(other);
}

// --- blocks that are kept -----------------------------------------------------------------------

static int64_t bytes_read(const manta_dataset *d)
{
  manta_data_stats s;
  manta_dataset_stats(d, &s);
  return s.bytes;
}

static void read_to_the_end(manta_loader *l)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b;
  manta_status st;
  while ((st = manta_loader_next(l, &b, &err)) == 1)
    manta_batch_destroy(b);
  assert_ok(st, &err);
}

// Bytes that two epochs of a set of some megabytes read, in units of one epoch.
static int64_t epochs_read(size_t limit, bool reopen)
{
  manta_dataset *d = numbered_open(dir, "wide", 4, 40000, 1 << 18);
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  c.batch_rows = 1000;
  c.memory_limit = limit;
  c.threads = 2;
  manta_loader *l = open_loader(d, &c);
  read_to_the_end(l);
  int64_t once = bytes_read(d);
  if (reopen) {
    manta_loader_close(l);
    c.epoch = 1;
    l = open_loader(d, &c);
  } else {
    assert_ok(manta_loader_begin(l, 1, &err), &err);
  }
  read_to_the_end(l);
  int64_t twice = bytes_read(d);
  manta_loader_close(l);
  manta_dataset_close(d);
  assert_true(once > 1 << 20);
  return (twice + once / 2) / once;
}

static void a_second_epoch_that_fits_parses_nothing(void **state)
{
  assert_int_equal(epochs_read(64 << 20, false), 1);
  assert_int_equal(epochs_read(64 << 20, true), 1);
  assert_int_equal(epochs_read(1 << 20, false), 2);
}

// An order is no other rows: with another seed, or behind a repeat, they are there already.
static void other_orders_share_what_is_parsed(void **state)
{
  manta_dataset *d = numbered_open(dir, "wide", 6, 40000, 1 << 17), *other;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader *l = open_loader(d, NULL);
  read_to_the_end(l);
  manta_loader_close(l);
  int64_t once = bytes_read(d);
  for (uint64_t seed = 1; seed <= 3; seed++) {
    assert_ok(manta_dataset_shuffle(&other, d, seed, 500, &err), &err);
    STEP(other, manta_dataset_repeat(&step_out, other, 2, &step_err));
    l = open_loader(other, NULL);
    read_to_the_end(l);
    manta_loader_close(l);
    manta_dataset_close(other);
  }
  assert_true(once > 1 << 20);
  assert_int_equal(bytes_read(d), once);
  manta_dataset_close(d);
}

// Three ranks in step, far less memory than data: what one has parsed the others take.
static void ranks_parse_a_block_once(void **state)
{
  manta_dataset *d = numbered_open(dir, "wide", 6, 40000, 1 << 17), *alone;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader *l[3];
  manta_batch *b;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  c.batch_rows = 3000;
  c.threads = 1;
  c.memory_limit = 3 << 20;
  c.ranks = 3;
  for (c.rank = 0; c.rank < 3; c.rank++)
    l[c.rank] = open_loader(d, &c);
  for (int ended = 0; !ended;)
    for (int r = 0; r < 3; r++) {
      manta_status st = manta_loader_next(l[r], &b, &err);
      assert_ok(st, &err);
      if (st == 1)
        manta_batch_destroy(b);
      ended += st == 0;
    }
  int64_t shared = bytes_read(d);
  for (int r = 0; r < 3; r++)
    manta_loader_close(l[r]);
  manta_dataset_close(d);
  alone = numbered_open(dir, "wide", 6, 40000, 1 << 17);
  l[0] = open_loader(alone, NULL);
  read_to_the_end(l[0]);
  int64_t once = bytes_read(alone);
  manta_loader_close(l[0]);
  manta_dataset_close(alone);
  assert_true(once > (int64_t)c.memory_limit);
  assert_in_range(shared, once, once + once / 2); // two of three would read it twice
}

// --- memory and failures ------------------------------------------------------------------------

// 4 MiB of columns in 64 blocks, and a limit of 1 MiB.
static void memory_is_bounded(void **state)
{
  manta_dataset *plain = numbered_open(dir, "large", 8, 20000, 50000), *d;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_batch *b;
  c.memory_limit = 1 << 20;
  c.threads = 4;
  c.batch_rows = 1000;
  manta_loader *l = open_loader(plain, &c);
  int64_t rows = 0;
  while (manta_loader_next(l, &b, &err) == 1) {
    rows += manta_batch_rows(b);
    manta_batch_destroy(b);
  }
  assert_int_equal(rows, 160020);
  manta_loader_stats s;
  manta_loader_get_stats(l, &s);
  assert_in_range(s.bytes_max, 1, c.memory_limit);
  manta_loader_close(l);
  assert_ok(manta_dataset_shuffle(&d, plain, 3, 100000, &err), &err);
  l = open_loader(d, &c);
  for (int i = 0; i < 2; i++) { // the same failure again
    assert_status(manta_loader_next(l, &b, &err), MANTA_ETOOBIG);
    assert_has(err.message, "a window of 100000 rows does not fit into 1048576 bytes");
  }
  manta_loader_close(l);
  manta_dataset_close(d);
  manta_dataset_close(plain);
}

// What is wrong in the last block comes when its rows would, whichever thread meets it first.
static void failures_come_in_order(void **state)
{
  for (int prefetch = -1; prefetch <= 4; prefetch += 5) {
    manta_dataset *d = open_numbered(1500);
    manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
    manta_error err = MANTA_ERROR_INIT;
    manta_batch *b;
    manta_status st;
    int64_t rows = 0;
    file_text(dir, "set/part-006.csv", "n,twice,word\n900,oops\n");
    c.threads = 4;
    c.batch_rows = 10;
    c.prefetch = prefetch;
    manta_loader *l = open_loader(d, &c);
    while ((st = manta_loader_next(l, &b, &err)) == 1) {
      assert_rows(b,
                  (int64_t[]){rows, rows + 1, rows + 2, rows + 3, rows + 4, rows + 5, rows + 6,
                              rows + 7, rows + 8, rows + 9},
                  10);
      rows += manta_batch_rows(b);
      manta_batch_destroy(b);
    }
    assert_true(st < 0);
    assert_has(err.message, "part-006.csv");
    assert_int_equal(rows, 6 * EACH + 20);
    assert_int_equal(manta_loader_next(l, &b, &err), st);
    manta_loader_close(l);
    manta_dataset_close(d);
  }
}

// The memory of the thread that makes batches; parsing has tests of its own.
static void loaders_survive_without_memory(void **state)
{
  manta_dataset *d = open_numbered(3000);
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  int failed = 0;
  manta_status st;
  STEP(d, manta_dataset_shuffle(&step_out, d, 1, 400, &step_err));
  c.batch_rows = 300;
  c.prefetch = -1;
  c.threads = 1;
  c.memory_limit = 1 << 24; // else the host is asked, and may know nothing
  c.tail = MANTA_TAIL_PAD;
  do {
    manta_loader *l = NULL;
    manta_batch *b;
    manta_value v = {0};
    manta__alloc_fail_after(failed);
    st = manta_loader_open(&l, d, &c, NULL);
    while (st >= 0 && (st = manta_loader_next(l, &b, NULL)) == 1)
      manta_batch_destroy(b);
    if (st >= 0)
      st = manta_loader_save(l, &v, NULL);
    manta__alloc_fail_after(-1);
    manta_value_fini(&v);
    manta_loader_close(l);
    failed += st < 0;
  } while (st == MANTA_ENOMEM);
  assert_int_equal(st, MANTA_OK);
  assert_true(failed > 50);
  manta_dataset_close(d);
}

static void loaders_are_closed_at_any_time(void **state)
{
  uint64_t noise = 3;
  for (int i = 0; i < 40; i++) {
    manta_dataset *d = open_numbered(500);
    manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
    manta_error err = MANTA_ERROR_INIT;
    manta_batch *b;
    if (i % 2)
      STEP(d, manta_dataset_shuffle(&step_out, d, 1, 77, &step_err));
    c.batch_rows = 5;
    c.threads = 1 + i % 4;
    c.prefetch = i % 5 - 1;
    manta_loader *l = open_loader(d, &c);
    manta_dataset_close(d); // it keeps what it needs
    for (uint64_t n = cells_random(&noise) % 50; n; n--) {
      assert_int_equal(manta_loader_next(l, &b, &err), 1);
      manta_batch_destroy(b);
    }
    manta_loader_close(l);
  }
}

static void options_that_make_no_sense_are_refused(void **state)
{
  manta_dataset *d = open_numbered(0);
  manta_error err = MANTA_ERROR_INIT;
  manta_loader *l = NULL;
  static const manta_loader_config wrong[] = {{.rank = 1},
                                              {.rank = -1, .ranks = 2},
                                              {.ranks = -1},
                                              {.batch_rows = -1},
                                              {.tail = 9},
                                              {.epoch = -1},
                                              {.threads = -1},
                                              {.threads = 100000},
                                              {.prefetch = 9999},
                                              {.memory_limit = 1000},
                                              {.batch_rows = INT64_MAX}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    manta_loader_config c = wrong[i];
    c.size = sizeof c;
    assert_status(manta_loader_open(&l, d, &c, &err), MANTA_EINVAL);
    assert_null(l);
  }
  manta_dataset_close(d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_come_in_their_order),
      cmocka_unit_test(shuffles_depend_on_seed_and_epoch_alone),
      cmocka_unit_test(filters_leave_the_order),
      cmocka_unit_test(repeats_go_on_with_the_next_epoch),
      cmocka_unit_test(tails_are_dropped_or_padded),
      cmocka_unit_test(empty_parts_have_columns),
      cmocka_unit_test(positions_hold_for_other_ranks),
      cmocka_unit_test(a_mark_is_what_is_saved),
      cmocka_unit_test(epochs_begin_again),
      cmocka_unit_test(positions_of_other_data_are_refused),
      cmocka_unit_test(a_second_epoch_that_fits_parses_nothing),
      cmocka_unit_test(ranks_parse_a_block_once),
      cmocka_unit_test(other_orders_share_what_is_parsed),
      cmocka_unit_test(memory_is_bounded),
      cmocka_unit_test(failures_come_in_order),
      cmocka_unit_test(loaders_survive_without_memory),
      cmocka_unit_test(loaders_are_closed_at_any_time),
      cmocka_unit_test(options_that_make_no_sense_are_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
