/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions over rows as steps: what they see, what they give, and that positions stay exact where
 * they leave rows out or make several of one.
 */
#include "base/alloc.h"
#include "folder.h"
#include "numbered.h"

#define FILES 4
#define EACH  60
#define ALL   (FILES * EACH + 10) /* one file has ten more */

// --- functions ----------------------------------------------------------------------------------

/* What a function is told, and what it was asked, by any thread of a loader. */
struct seen {
  _Atomic int calls;
  int closes;
  _Atomic int64_t rows[64]; /* of each call */
  _Atomic int columns;      /* of the last */
  int fails_at;             /* the call that fails; 0: none */
};

static int64_t number_at(const manta_batch *b, const char *name, int64_t i)
{
  manta_column c;
  assert_status(manta_batch_column_named(b, name, &c, NULL), MANTA_OK);
  return ((const int64_t *)c.data)[c.offset + i];
}

static manta_status note(struct seen *s, const manta_batch *in, manta_error *err)
{
  int call = s->calls++;
  s->rows[call % 64] = manta_batch_rows(in);
  s->columns = manta_batch_columns(in);
  if (call + 1 == s->fails_at)
    return manta_error_set(err, MANTA_EUSER, "it does not like row %lld",
                           (long long)number_at(in, "n", 0));
  return MANTA_OK;
}

static void note_close(void *ctx)
{
  ((struct seen *)ctx)->closes++;
}

static manta_status keep_even(void *ctx, const manta_batch *in, manta_applied *out,
                              manta_error *err)
{
  uint32_t rows[1024];
  int64_t n = 0;
  MANTA_TRY(note(ctx, in, err));
  for (int64_t i = 0; i < manta_batch_rows(in); i++)
    if (number_at(in, "n", i) % 2 == 0)
      rows[n++] = (uint32_t)i;
  return manta_applied_rows(out, rows, n, err);
}

static manta_column ints(const char *name, const int64_t *values, int64_t rows)
{
  return (manta_column){.field = {.name = name, .kind = MANTA_KIND_NUMBER, .dtype = MANTA_I64},
                        .rows = rows,
                        .data = values};
}

// Columns n and copy: row n, n % 3 times.
static manta_status some_copies(void *ctx, const manta_batch *in, manta_applied *out,
                                manta_error *err)
{
  int64_t n[2048], copy[2048], at = 0;
  uint32_t rows[2048];
  MANTA_TRY(note(ctx, in, err));
  for (int64_t i = 0; i < manta_batch_rows(in); i++)
    for (int64_t k = 0; k < number_at(in, "n", i) % 3; k++, at++) {
      n[at] = number_at(in, "n", i);
      copy[at] = k;
      rows[at] = (uint32_t)i;
    }
  manta_column columns[] = {ints("n", n, at), ints("copy", copy, at)};
  MANTA_TRY(manta_batch_create(&out->batch, columns, 2, err));
  return manta_applied_rows(out, rows, at, err);
}

// A column "square", and another "twice".
static manta_status add_two(void *ctx, const manta_batch *in, manta_applied *out, manta_error *err)
{
  int64_t square[2048], twice[2048], rows = manta_batch_rows(in);
  MANTA_TRY(note(ctx, in, err));
  for (int64_t i = 0; i < rows; i++) {
    square[i] = number_at(in, "n", i) * number_at(in, "n", i);
    twice[i] = -number_at(in, "n", i);
  }
  manta_column columns[] = {ints("square", square, rows), ints("twice", twice, rows)};
  return manta_batch_create(&out->batch, columns, 2, err);
}

// The sum of a batch, in one row.
static manta_status sum(void *ctx, const manta_batch *in, manta_applied *out, manta_error *err)
{
  int64_t all = 0;
  MANTA_TRY(note(ctx, in, err));
  for (int64_t i = 0; i < manta_batch_rows(in); i++)
    all += number_at(in, "n", i);
  manta_column c = ints("sum", &all, 1);
  return manta_batch_create(&out->batch, &c, 1, err);
}

static manta_dataset *with(manta_dataset *d, manta_apply_kind kind,
                           manta_status (*call)(void *, const manta_batch *, manta_applied *,
                                                manta_error *),
                           int64_t batch_rows, struct seen *s)
{
  manta_apply_config c = MANTA_APPLY_CONFIG_INIT;
  c.kind = kind;
  c.call = call;
  c.close = note_close;
  c.batch_rows = batch_rows;
  c.ctx = s;
  STEP(d, manta_dataset_apply(&step_out, d, &c, &step_err));
  return d;
}

static manta_dataset *numbered(void)
{
  return numbered_open(dir, "set", FILES, EACH, 400);
}

static manta_dataset *few(int64_t rows)
{
  manta_dataset *d = numbered_open(dir, "few", 1, 10, 0);
  STEP(d, manta_dataset_limit(&step_out, d, rows, &step_err));
  return d;
}

// --- what they give -----------------------------------------------------------------------------

static void rows_are_kept_by_a_function(void **state)
{
  struct seen s = {0};
  manta_dataset *d = with(few(5), MANTA_APPLY_FILTER, keep_even, 0, &s);
  assert_int_equal(s.calls, 0); // it is not needed to know the columns
  assert_was(d, "n:i64|twice:i64|word:string\n0|0|'w0'\n2|4|'w2'\n4|8|'w4'");
  assert_int_equal(s.closes, 1);
}

static void columns_are_added_by_a_function(void **state)
{
  struct seen s = {0};
  manta_dataset *d = with(few(3), MANTA_APPLY_ADD, add_two, 0, &s);
  assert_was(d, "n:i64|twice:i64|word:string|square:i64\n0|0|'w0'|0\n1|-1|'w1'|1\n2|-2|'w2'|4");
  assert_int_equal(s.calls, 2); // once to learn the columns; none to count the rows
}

static void rows_are_made_by_a_function(void **state)
{
  struct seen s = {0};
  manta_dataset *d = with(few(6), MANTA_APPLY_ROWS, some_copies, 0, &s);
  assert_was(d, "n:i64|copy:i64\n1|0\n2|0\n2|1\n4|0\n5|0\n5|1");
  d = with(few(6), MANTA_APPLY_ROWS, some_copies, 0, &s);
  STEP(d, manta_dataset_limit(&step_out, d, 2, &step_err)); // between two of one row
  d = with_filter(d, "[\">\", [\"col\", \"n\"], 1]");
  assert_was(d, "n:i64|copy:i64\n2|0");
  d = with(few(10), MANTA_APPLY_ROWS, sum, 4, &s);
  assert_was(d, "sum:i64\n6\n22\n17");
}

static void calls_have_the_rows_that_were_asked_for(void **state)
{
  struct seen s = {0};
  const char *one[] = {"n"};
  manta_apply_config c = MANTA_APPLY_CONFIG_INIT;
  c.kind = MANTA_APPLY_FILTER;
  c.call = keep_even;
  c.ctx = &s;
  c.batch_rows = 7;
  c.columns = one;
  c.column_count = 1;
  c.name = "evens";
  manta_dataset *d = numbered_open(dir, "few", 1, 250, 0);
  char *text;
  int64_t rows;
  STEP(d, manta_dataset_apply(&step_out, d, &c, &step_err));
  assert_status(manta_dataset_explain(d, &text, NULL), MANTA_OK);
  assert_has(text, "filter by evens, 7 rows a call  [worker]\n");
  assert_status(manta_dataset_count(d, &rows, NULL), MANTA_OK);
  assert_int_equal(rows, 125);
  assert_int_equal(s.calls, 36);
  assert_int_equal(s.columns, 1);
  for (int i = 0; i < s.calls; i++)
    assert_int_equal(s.rows[i], i < 35 ? 7 : 5);
  manta_free(text);
  manta_dataset_close(d);
}

// The second function's calls are cut inside of what the first made of one row.
static void functions_follow_each_other(void **state)
{
  struct seen s = {0}, t = {0};
  manta_dataset *d = with(few(6), MANTA_APPLY_ROWS, some_copies, 2, &s);
  d = with(d, MANTA_APPLY_ROWS, sum, 2, &t);
  assert_was(d, "sum:i64\n3\n6\n10");
  d = with(numbered(), MANTA_APPLY_ROWS, some_copies, 3, &s);
  d = with(d, MANTA_APPLY_FILTER, keep_even, 2, &t);
  int64_t rows, want = 0;
  for (int n = 0; n < ALL; n += 2)
    want += n % 3;
  assert_status(manta_dataset_count(d, &rows, NULL), MANTA_OK);
  assert_int_equal(rows, want);
  manta_dataset_close(d);
}

// --- positions ----------------------------------------------------------------------------------

#define MADE_MAX (2 * ALL)
struct made {
  int64_t key[MADE_MAX]; /* 2 n + copy */
  int64_t rows;
};

// Batches of all ranks, `steps` of them; false: it ended before.
static bool load(manta_loader **l, int ranks, int steps, struct made *m)
{
  for (int k = 0; k < steps; k++)
    for (int r = 0; r < ranks; r++) {
      manta_batch *b;
      manta_error err = MANTA_ERROR_INIT;
      manta_status st = manta_loader_next(l[r], &b, &err);
      assert_true(st >= 0);
      if (st == 0)
        return false;
      for (int64_t i = 0; i < manta_batch_rows(b); i++)
        m->key[m->rows++] = 2 * number_at(b, "n", i) + number_at(b, "copy", i);
      manta_batch_destroy(b);
    }
  return true;
}

static void open_all(manta_loader **l, manta_dataset *d, int ranks, const manta_value *from)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  c.ranks = ranks;
  c.batch_rows = 5;
  c.prefetch = -1;
  c.threads = 2;
  for (c.rank = 0; c.rank < ranks; c.rank++) {
    assert_ok(manta_loader_open(&l[c.rank], d, &c, &err), &err);
    if (from)
      assert_ok(manta_loader_load(l[c.rank], from, &err), &err);
  }
}

// From the position behind each step, with another number of ranks, the same rows follow.
static void check_positions(manta_dataset *d)
{
  static struct made whole, parts;
  manta_loader *l[3];
  whole.rows = 0;
  open_all(l, d, 1, NULL);
  assert_false(load(l, 1, 1000, &whole));
  manta_loader_close(l[0]);
  bool split = false;
  for (int step = 1; step * 5 < whole.rows; step += 1 + step / 8) {
    manta_value at = {0};
    parts.rows = 0;
    open_all(l, d, 2, NULL);
    assert_true(load(l, 2, step, &parts));
    assert_status(manta_loader_save(l[0], &at, NULL), MANTA_OK);
    split |= manta_value_as_int(manta_value_get(&at, "inside"), 0) > 0;
    manta_loader_close(l[0]);
    manta_loader_close(l[1]);
    open_all(l, d, 3, &at);
    assert_false(load(l, 3, 1000, &parts));
    for (int r = 0; r < 3; r++)
      manta_loader_close(l[r]);
    assert_int_equal(parts.rows, whole.rows);
    assert_memory_equal(parts.key, whole.key, (size_t)whole.rows * sizeof *whole.key);
    manta_value_fini(&at);
  }
  assert_true(split); // else nothing was tried
  int64_t want = 0;
  for (int n = 0; n < ALL; n++)
    want += n % 3;
  assert_int_equal(whole.rows, want);
  manta_dataset_close(d);
}

static void positions_lie_between_rows_made_of_one(void **state)
{
  struct seen s = {0};
  check_positions(with(numbered(), MANTA_APPLY_ROWS, some_copies, 4, &s));
  manta_dataset *d = with(numbered(), MANTA_APPLY_ROWS, some_copies, 4, &s);
  STEP(d, manta_dataset_shuffle(&step_out, d, 7, 16, &step_err));
  check_positions(d);
}

// --- failures -----------------------------------------------------------------------------------

static manta_status changes_its_mind(void *ctx, const manta_batch *in, manta_applied *out,
                                     manta_error *err)
{
  struct seen *s = ctx;
  int64_t n[1024] = {0}, rows = manta_batch_rows(in);
  double real[1024] = {0.5};
  MANTA_TRY(note(s, in, err));
  manta_column c = ints(s->calls < 3 ? "n" : "m", n, rows);
  if (s->calls == 2) {
    c.field.dtype = MANTA_F64;
    c.data = real;
  }
  return manta_batch_create(&out->batch, &c, 1, err);
}

static manta_status gives_narrow(void *ctx, const manta_batch *in, manta_applied *out,
                                 manta_error *err)
{
  struct seen *s = ctx;
  float real[1024];
  int64_t whole[1024], rows = manta_batch_rows(in);
  double wide[1024];
  MANTA_TRY(note(s, in, err));
  for (int64_t i = 0; i < rows; i++) {
    whole[i] = number_at(in, "n", i);
    wide[i] = real[i] = (float)whole[i] + 0.5f;
  }
  manta_column c = ints("x", whole, rows);
  if (s->calls % 3 != 0) {
    c.field.dtype = s->calls % 3 == 1 ? MANTA_F64 : MANTA_F32;
    c.data = s->calls % 3 == 1 ? (const void *)wide : real;
  }
  return manta_batch_create(&out->batch, &c, 1, err);
}

static manta_status gives_wrong_rows(void *ctx, const manta_batch *in, manta_applied *out,
                                     manta_error *err)
{
  return manta_applied_rows(out, (const uint32_t[]){1, 0}, 2, err);
}

static void assert_fails(manta_dataset *d, manta_status want, const char *says)
{
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_status(read_blocks(d, &got, &err), want);
  assert_has(err.message, says);
  manta_dataset_close(d);
}

static void failures_are_told(void **state)
{
  struct seen s = {.fails_at = 3};
  assert_fails(with(numbered_open(dir, "few", 1, 10, 0), MANTA_APPLY_FILTER, keep_even, 2, &s),
               MANTA_EUSER, "it does not like row 4");
  s = (struct seen){0};
  assert_fails(with(few(10), MANTA_APPLY_MAP, changes_its_mind, 5, &s), MANTA_ETYPE,
               "column \"n\" is f64 here, but i64");
  s = (struct seen){.calls = 0};
  manta_dataset *d = with(few(10), MANTA_APPLY_MAP, changes_its_mind, 5, &s);
  s.calls = 2;
  assert_fails(d, MANTA_ETYPE, "a column \"m\" that its first rows did not have");
  assert_fails(with(few(10), MANTA_APPLY_FILTER, gives_wrong_rows, 5, &s), MANTA_EINVAL,
               "numbers rise");
  manta_apply_config c = MANTA_APPLY_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *none = NULL;
  s = (struct seen){0};
  c.call = sum; // as a map
  c.ctx = &s;
  c.close = note_close;
  d = few(10);
  assert_status(manta_dataset_apply(&none, d, &c, &err), MANTA_EINVAL);
  assert_has(err.message, "a function gives 1 rows for 10");
  assert_int_equal(s.closes, 0);
  c.columns = (const char *[]){"m"};
  c.column_count = 1;
  assert_status(manta_dataset_apply(&none, d, &c, &err), MANTA_ENOENT);
  assert_null(none);
  manta_dataset_close(d);
}

static void numbers_are_widened(void **state)
{
  struct seen s = {0};
  assert_was(with(few(4), MANTA_APPLY_MAP, gives_narrow, 1, &s),
             "x:f64\n0.5\n1\n2.5\n3.5"); // f32, i64, f64, f32
}

static manta_status run_starved(manta_dataset *d, int64_t *rows)
{
  struct seen s = {0};
  manta_apply_config c = MANTA_APPLY_CONFIG_INIT;
  manta_dataset *made, *kept;
  c.kind = MANTA_APPLY_ROWS;
  c.call = some_copies;
  c.batch_rows = 4;
  c.ctx = &s;
  MANTA_TRY(manta_dataset_apply(&made, d, &c, NULL));
  c.kind = MANTA_APPLY_FILTER;
  c.call = keep_even;
  manta_status st = manta_dataset_apply(&kept, made, &c, NULL);
  manta_dataset_close(made);
  if (st == MANTA_OK) {
    st = manta_dataset_count(kept, rows, NULL);
    manta_dataset_close(kept);
  }
  return st;
}

static void functions_survive_without_memory(void **state)
{
  manta_dataset *d = few(10);
  manta_status st = MANTA_ENOMEM;
  int64_t rows = 0;
  int failed = 0;
  assert_status(run_starved(d, &rows), MANTA_OK);
  for (rows = 0; st == MANTA_ENOMEM; failed++) {
    manta__alloc_fail_after(failed);
    st = run_starved(d, &rows);
    manta__alloc_fail_after(-1);
  }
  assert_int_equal(st, MANTA_OK);
  assert_int_equal(rows, 2 + 1 + 2);
  assert_true(failed > 50);
  manta_dataset_close(d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_kept_by_a_function),
      cmocka_unit_test(columns_are_added_by_a_function),
      cmocka_unit_test(rows_are_made_by_a_function),
      cmocka_unit_test(calls_have_the_rows_that_were_asked_for),
      cmocka_unit_test(functions_follow_each_other),
      cmocka_unit_test(positions_lie_between_rows_made_of_one),
      cmocka_unit_test(failures_are_told),
      cmocka_unit_test(numbers_are_widened),
      cmocka_unit_test(functions_survive_without_memory),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
