/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps that wait until global batches are cut: the same rows and positions as before the cut, and
 * only those of the rank are mapped.
 */
#include "cells.h"
#include "numbered.h"

#define FILES 4
#define EACH  60

static char *dir;

static int set_up(void **state)
{
  dir = scratch_make();
  return 0;
}

static int tear_down(void **state)
{
  scratch_remove(dir);
  return 0;
}

// --- functions ----------------------------------------------------------------------------------

struct seen {
  _Atomic int64_t rows;
  int64_t fails_at; /* a value of n; 0: none */
};

static int64_t number_at(const manta_batch *b, int64_t i)
{
  manta_column c;
  assert_status(manta_batch_column_named(b, "n", &c, NULL), MANTA_OK);
  return ((const int64_t *)c.data)[c.offset + i];
}

// n + 1 as the columns n and, if a row of the call has an even one, "even".
static manta_status next(void *ctx, const manta_batch *in, manta_applied *out, manta_error *err)
{
  struct seen *s = ctx;
  int64_t n[2048], rows = manta_batch_rows(in);
  uint8_t valid[256] = {0};
  bool any = false;
  s->rows += rows;
  for (int64_t i = 0; i < rows; i++) {
    n[i] = number_at(in, i) + 1;
    if (s->fails_at && n[i] == s->fails_at)
      return manta_error_set(err, MANTA_EUSER, "it does not like %lld", (long long)n[i]);
    any |= n[i] % 2 == 0;
    valid[i / 8] |= (uint8_t)((n[i] % 2 == 0) << (i % 8));
  }
  manta_column c[] = {{.field = {.name = "n", .kind = MANTA_KIND_NUMBER, .dtype = MANTA_I64},
                       .rows = rows,
                       .data = n},
                      {.field = {.name = "even", .kind = MANTA_KIND_NUMBER, .dtype = MANTA_I64},
                       .rows = rows,
                       .data = n,
                       .valid = valid}};
  return manta_batch_create(&out->batch, c, any ? 2 : 1, err);
}

static manta_status keep_some(void *ctx, const manta_batch *in, manta_applied *out,
                              manta_error *err)
{
  uint32_t rows[2048];
  int64_t n = 0;
  for (int64_t i = 0; i < manta_batch_rows(in); i++)
    if (number_at(in, i) % 5)
      rows[n++] = (uint32_t)i;
  return manta_applied_rows(out, rows, n, err);
}

static manta_dataset *with(manta_dataset *d, bool filters, bool late, struct seen *s)
{
  manta_apply_config c = MANTA_APPLY_CONFIG_INIT;
  c.kind = filters ? MANTA_APPLY_FILTER : MANTA_APPLY_MAP;
  c.call = filters ? keep_some : next;
  c.name = filters ? "some" : "next";
  c.each_row = late;
  c.ctx = s;
  STEP(d, manta_dataset_apply(&step_out, d, &c, &step_err));
  return d;
}

/* How a data set is made and read. */
struct way {
  bool filters, shuffles, selects;
  int maps, repeats;
  int64_t limit;
  manta_loader_config c;
};

static struct way draw(uint64_t *noise)
{
  struct way w = {.filters = cells_random(noise) % 2,
                  .shuffles = cells_random(noise) % 2,
                  .selects = cells_random(noise) % 2,
                  .maps = 1 + (int)(cells_random(noise) % 2),
                  .repeats = 1 + (int)(cells_random(noise) % 2),
                  .c = MANTA_LOADER_CONFIG_INIT};
  w.limit = cells_random(noise) % 3 ? 0 : 20 + (int64_t)(cells_random(noise) % 100);
  w.c.ranks = 1 + (int)(cells_random(noise) % 3);
  w.c.rank = (int)(cells_random(noise) % (uint64_t)w.c.ranks);
  w.c.batch_rows = w.c.ranks * (1 + (int64_t)(cells_random(noise) % 40));
  w.c.tail = (manta_tail)(cells_random(noise) % 3);
  w.c.prefetch = cells_random(noise) % 2 ? 2 : -1;
  w.c.threads = 2;
  return w;
}

// With maps that may wait, or may not.
static manta_dataset *make(const struct way *w, bool late, struct seen *s)
{
  static const char *const turned[] = {"even", "n"};
  manta_dataset *d = numbered_open(dir, "set", FILES, EACH, 400);
  if (w->filters)
    d = with(d, true, false, NULL);
  for (int i = 0; i < w->maps; i++)
    d = with(d, false, late, s);
  if (w->selects)
    STEP(d, manta_dataset_select(&step_out, d, turned, 2, &step_err));
  if (w->shuffles)
    STEP(d, manta_dataset_shuffle(&step_out, d, 7, 50, &step_err));
  if (w->repeats > 1)
    STEP(d, manta_dataset_repeat(&step_out, d, w->repeats, &step_err));
  if (w->limit && (w->shuffles || w->repeats > 1))
    STEP(d, manta_dataset_limit(&step_out, d, w->limit, &step_err));
  return d;
}

// --- tests --------------------------------------------------------------------------------------

static bool same_next(manta_loader *a, manta_loader *b)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *x, *y;
  manta_value at = {0}, bt = {0};
  manta_status st = manta_loader_next(a, &x, &err);
  assert_int_equal(manta_loader_next(b, &y, &err), st);
  assert_ok(manta_loader_save(a, &at, &err), &err);
  assert_ok(manta_loader_save(b, &bt, &err), &err);
  assert_true(manta_value_equal(&at, &bt));
  manta_value_fini(&at);
  manta_value_fini(&bt);
  if (st != 1)
    return false;
  assert_int_equal(x->rows, y->rows);
  for (int i = 0; i < 2; i++)
    for (int64_t k = 0; k < x->rows; k++)
      assert_same_cell(&x->column[i], k, &y->column[i], k);
  manta_batch_destroy(x);
  manta_batch_destroy(y);
  return true;
}

static void maps_give_the_same_before_and_after_the_cut(void **state)
{
  uint64_t noise = 3;
  for (int round = 0; round < 60; round++) {
    struct seen seen[2] = {0};
    struct way w = draw(&noise);
    manta_error err = MANTA_ERROR_INIT;
    manta_dataset *late = make(&w, true, &seen[0]), *early = make(&w, false, &seen[1]);
    manta_loader *a, *b;
    assert_ok(manta_loader_open(&a, late, &w.c, &err), &err);
    assert_ok(manta_loader_open(&b, early, &w.c, &err), &err);
    for (int epoch = 0; epoch < 2; epoch++) {
      while (same_next(a, b))
        ;
      assert_ok(manta_loader_begin(a, epoch + 1, &err), &err);
      assert_ok(manta_loader_begin(b, epoch + 1, &err), &err);
    }
    manta_loader_close(a);
    manta_loader_close(b);
    manta_dataset_close(late);
    manta_dataset_close(early);
  }
}

static void only_the_rows_of_the_rank_are_mapped(void **state)
{
  struct seen s = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_dataset *d = with(numbered_open(dir, "set", FILES, EACH, 400), false, true, &s);
  manta_loader *l;
  manta_batch *b;
  char *text;
  int64_t rows = 0, learned = s.rows;
  STEP(d, manta_dataset_shuffle(&step_out, d, 7, 50, &step_err));
  c.ranks = 5;
  c.rank = 3;
  c.batch_rows = 25;
  c.tail = MANTA_TAIL_DROP;
  assert_ok(manta_dataset_explain(d, &text, &err), &err);
  assert_has(text, "window");
  assert_has(text, "map by next  [worker]\ncsv: 4 files");
  assert_has(text, "columns  [reader]\n");
  manta_free(text);
  assert_ok(manta_loader_open(&l, d, &c, &err), &err);
  while (manta_loader_next(l, &b, &err) == 1) {
    rows += b->rows;
    manta_batch_destroy(b);
  }
  assert_int_equal(rows, 50);
  assert_int_equal(s.rows - learned, rows);
  manta_loader_close(l);
  manta_dataset_close(d);
}

// The batch on which it failed is still to come.
static void a_failure_does_not_move_the_position(void **state)
{
  struct seen s = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_dataset *d = with(numbered_open(dir, "set", FILES, EACH, 400), false, true, &s);
  manta_loader *l;
  manta_batch *b;
  manta_value before = {0}, after = {0};
  c.batch_rows = 10;
  c.prefetch = -1;
  s.fails_at = 15;
  assert_ok(manta_loader_open(&l, d, &c, &err), &err);
  assert_int_equal(manta_loader_next(l, &b, &err), 1);
  manta_batch_destroy(b);
  assert_ok(manta_loader_save(l, &before, &err), &err);
  assert_status(manta_loader_next(l, &b, &err), MANTA_EUSER);
  assert_string_equal(err.message, "it does not like 15");
  assert_ok(manta_loader_save(l, &after, &err), &err);
  assert_true(manta_value_equal(&before, &after));
  s.fails_at = 0;
  assert_ok(manta_loader_load(l, &after, &err), &err);
  assert_int_equal(manta_loader_next(l, &b, &err), 1);
  assert_int_equal(number_at(b, 0), 11);
  manta_batch_destroy(b);
  manta_value_fini(&before);
  manta_value_fini(&after);
  manta_loader_close(l);
  manta_dataset_close(d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(maps_give_the_same_before_and_after_the_cut),
      cmocka_unit_test(only_the_rows_of_the_rank_are_mapped),
      cmocka_unit_test(a_failure_does_not_move_the_position),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
