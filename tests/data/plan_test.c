/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a data set: what rows and columns they give, what they ask of the files, and in
 * which order they can be taken.
 */
#include "data/plan/dataset.h"

#include "base/alloc.h"
#include "folder.h"
#include "numbered.h"

static void assert_explains(manta_dataset *d, const char *want)
{
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_ok(manta_dataset_explain(d, &got, &err), &err);
  assert_string_equal(got, want);
  manta_free(got);
}

static manta_dataset *people(void)
{
  return open_text("people.csv", "name,age,score\nAda,36,1.5\nBob,,2\nEve,29,3\nGrace,85,4.25\n");
}

// --- columns ------------------------------------------------------------------------------------

static void columns_are_chosen_and_renamed(void **state)
{
  const char *two[] = {"score", "name"}, *one[] = {"age"}, *to[] = {"years"};
  manta_dataset *d = people();
  STEP(d, manta_dataset_select(&step_out, d, two, 2, &step_err));
  assert_was(d, "score:f64|name:string\n1.5|'Ada'\n2|'Bob'\n3|'Eve'\n4.25|'Grace'");
  d = people();
  STEP(d, manta_dataset_drop(&step_out, d, two, 2, &step_err));
  assert_was(d, "age:i64\n36\nnull\n29\n85");
  d = people();
  STEP(d, manta_dataset_rename(&step_out, d, one, to, 1, &step_err));
  STEP(d, manta_dataset_select(&step_out, d, to, 1, &step_err));
  assert_was(d, "years:i64\n36\nnull\n29\n85");
}

// What is not f64, and what is no file of text, stays as it is.
static void columns_of_text_are_single(void **state)
{
  static const char *const some[] = {"score", "age", "name"};
  manta_error err = MANTA_ERROR_INIT;
  manta_data_stats stats;
  manta_dataset *d = people(), *same;
  STEP(d, manta_dataset_single(&step_out, d, some, 3, &step_err));
  assert_is(d, "name:string|age:i64|score:f32\n'Ada'|36|1.5\n'Bob'|null|2\n'Eve'|29|3\n"
               "'Grace'|85|4.25");
  manta_dataset_stats(d, &stats);
  assert_true(stats.bytes > 0);
  assert_ok(manta_dataset_single(&same, d, some, 1, &err), &err); // it is no file
  assert_ptr_equal(same, d);
  manta_dataset_close(same);
  STEP(d, manta_dataset_select(&step_out, d, some, 1, &step_err));
  assert_was(d, "score:f32\n1.5\n2\n3\n4.25");
  d = people();
  int failed = 0;
  do {
    manta__alloc_fail_after(failed++);
  } while (manta_dataset_single(&same, d, some, 1, NULL) == MANTA_ENOMEM);
  manta__alloc_fail_after(-1);
  assert_true(failed > 4);
  manta_dataset_close(same);
  manta_dataset_close(d);
  d = open_text("third.csv", "x,y\n0.1,1\n0.33333333333333331,2\n1e300,3\n,4\n");
  STEP(d, manta_dataset_single(&step_out, d, (const char *const[]){"x"}, 1, &step_err));
  assert_was(d, "x:f32|y:i64\n0.100000001|1\n0.333333343|2\ninf|3\nnull|4");
}

static void columns_are_computed(void **state)
{
  manta_dataset *d = people();
  d = with_column(d, "next", "[\"+\", [\"col\", \"age\"], 1]");
  d = with_column(d, "name", "[\"length\", [\"col\", \"name\"]]"); // in the place of the old one
  d = with_column(d, "one", "[\"lit\", 1]");
  assert_was(d, "name:i64|age:i64|score:f64|next:i64|one:i64\n3|36|1.5|37|1\n3|null|2|null|1\n"
                "3|29|3|30|1\n5|85|4.25|86|1");
}

static void unknown_columns_are_named(void **state)
{
  const char *wrong[] = {"scor"}, *same[] = {"name"};
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = tree_of("[\">\", [\"col\", \"agee\"], 1]"), text = tree_of("[\"col\", \"name\"]");
  manta_dataset *d = people(), *out = NULL;
  assert_status(manta_dataset_select(&out, d, wrong, 1, &err), MANTA_ENOENT);
  assert_has(err.message, "score");
  assert_status(manta_dataset_drop(&out, d, wrong, 1, &err), MANTA_ENOENT);
  assert_status(manta_dataset_single(&out, d, wrong, 1, &err), MANTA_ENOENT);
  assert_status(manta_dataset_rename(&out, d, wrong, same, 1, &err), MANTA_ENOENT);
  assert_status(manta_dataset_filter(&out, d, &v, &err), MANTA_ENOENT);
  assert_has(err.message, "age");
  assert_status(manta_dataset_filter(&out, d, &text, &err), MANTA_ETYPE);
  assert_status(manta_dataset_add(&out, d, "x", &v, &err), MANTA_ENOENT);
  wrong[0] = "score";
  assert_status(manta_dataset_rename(&out, d, wrong, same, 1, &err), MANTA_EINVAL); // twice name
  assert_null(out);
  manta_value_fini(&v);
  manta_value_fini(&text);
  manta_dataset_close(d);
}

// --- rows ---------------------------------------------------------------------------------------

static void filters_meet_wherever_they_are_taken(void **state)
{
  const char *age[] = {"age"}, *years[] = {"years"}, *name[] = {"name"};
  manta_dataset *d = people();
  d = with_filter(d, "[\">\", [\"col\", \"score\"], 1.75]");
  STEP(d, manta_dataset_rename(&step_out, d, age, years, 1, &step_err));
  d = with_filter(d, "[\">\", [\"col\", \"years\"], 20]"); // stays above the new name
  d = with_column(d, "half", "[\"/\", [\"col\", \"years\"], 2]");
  d = with_filter(d, "[\"<\", [\"col\", \"half\"], 42]"); // stays above the column
  d = with_filter(d, "[\"!=\", [\"col\", \"name\"], \"Ada\"]");
  STEP(d, manta_dataset_select(&step_out, d, name, 1, &step_err));
  assert_was(d, "name:string\n'Eve'");
}

static void plans_say_what_the_files_are_asked_for(void **state)
{
  const char *age[] = {"age"}, *years[] = {"years"}, *name[] = {"name"};
  manta_dataset *d = people();
  d = with_filter(d, "[\">\", [\"col\", \"score\"], 1.75]");
  assert_explains(
      d, "filter score > 1.75  [reader]\n"
         "csv: 1 file, 1 block, 56 bytes; 3 of 3 columns; filter score > 1.75  [reader]\n");
  STEP(d, manta_dataset_rename(&step_out, d, age, years, 1, &step_err));
  d = with_filter(d, "[\">\", [\"col\", \"years\"], 20]");
  d = with_column(d, "half", "[\"/\", [\"col\", \"years\"], 2]");
  STEP(d, manta_dataset_select(&step_out, d, name, 1, &step_err));
  STEP(d, manta_dataset_limit(&step_out, d, 5, &step_err));
  STEP(d, manta_dataset_shuffle(&step_out, d, 9, 1000, &step_err));
  STEP(d, manta_dataset_repeat(&step_out, d, 2, &step_err));
  assert_explains(d, "repeat: 2 passes  [reader]\n"
                     "shuffle blocks, and rows in windows of 1000, seed 9  [reader]\n"
                     "limit 5 rows  [reader]\n"
                     "columns name  [reader]\n"
                     "add half = years / 2; not wanted  [reader]\n"
                     "filter years > 20  [reader]\n"
                     "keep rows where years > 20  [reader]\n"
                     "columns name, years (age), score  [reader]\n"
                     "filter score > 1.75  [reader]\n"
                     "csv: 1 file, 1 block, 56 bytes; 2 of 3 columns: name, age; filter score > "
                     "1.75  [reader]\n");
  manta_dataset_close(d);
}

// Only what is asked for is parsed: a value that is no number in a column that nobody wants is none
// of an error.
static void columns_that_nobody_wants_are_not_parsed(void **state)
{
  const char *a[] = {"a"}, *b[] = {"b"};
  manta_value types = tree_of("{\"b\": \"i64\"}");
  const char *path = file_text(dir, "bad.csv", "a,b\n1,2\n3,four\n");
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *all, *d;
  char *text;
  c.types = &types;
  assert_ok(manta_dataset_open(&all, &path, 1, &c, &err), &err);
  assert_ok(manta_dataset_select(&d, all, a, 1, &err), &err);
  assert_was(d, "a:i64\n1\n3");
  assert_ok(manta_dataset_select(&d, all, b, 1, &err), &err);
  assert_status(read_blocks(d, &text, &err), MANTA_EINVAL);
  assert_has(err.message, "four");
  manta_dataset_close(d);
  manta_dataset_close(all);
  manta_value_fini(&types);
}

static void limits_are_places_in_the_files(void **state)
{
  const char *n[] = {"n"};
  char *want = malloc(65536);
  for (int64_t limit = 0; limit <= 430; limit += limit < 5 ? 1 : 71) {
    manta_dataset *d = numbered_open(dir, "limits", 4, 100, 300); // 410 rows
    d = with_filter(d, "[\"==\", [\"%\", [\"col\", \"n\"], 3], 0]");
    STEP(d, manta_dataset_limit(&step_out, d, limit, &step_err));
    d = with_filter(d, "[\"!=\", [\"col\", \"n\"], 3]"); // behind the limit, and does not move it
    STEP(d, manta_dataset_select(&step_out, d, n, 1, &step_err));
    size_t at = (size_t)snprintf(want, 16, "n:i64");
    for (int64_t i = 0; i < limit && 3 * i < 410; i++)
      if (i != 1)
        at += (size_t)snprintf(want + at, 16, "\n%d", (int)(3 * i));
    assert_was(d, want);
  }
  free(want);
}

static void samples_are_the_same_each_time(void **state)
{
  int64_t rows[3], all;
  for (int i = 0; i < 3; i++) {
    manta_dataset *d = numbered_open(dir, "samples", 3, 1000, i == 1 ? 2000 : 0);
    manta_error err = MANTA_ERROR_INIT;
    manta_dataset *other = d;
    if (i == 2)
      d = with_filter(d, "[\">=\", [\"col\", \"n\"], 0]"); // changes nothing
    STEP(d, manta_dataset_sample(&step_out, d, 0.25, 7, &step_err));
    assert_ok(manta_dataset_count(d, &rows[i], &err), &err);
    assert_status(manta_dataset_sample(&other, d, 1.5, 7, &err), MANTA_EINVAL);
    assert_status(manta_dataset_sample(&other, d, NAN, 7, &err), MANTA_EINVAL);
    manta_dataset_close(d);
  }
  assert_int_equal(rows[0], rows[2]);
  assert_in_range(rows[0], 3010 / 4 - 120, 3010 / 4 + 120);
  manta_dataset *d = numbered_open(dir, "samples", 3, 1000, 0);
  STEP(d, manta_dataset_sample(&step_out, d, 1, 7, &step_err));
  assert_status(manta_dataset_count(d, &all, NULL), MANTA_OK);
  assert_int_equal(all, 3010);
  manta_dataset_close(d);
}

// --- several ------------------------------------------------------------------------------------

static void unions_follow_each_other(void **state)
{
  manta_dataset *d[3], *u, *no = NULL;
  manta_error err = MANTA_ERROR_INIT;
  d[0] = open_text("u0.csv", "a,b\n1,x\n2,y\n");
  d[1] = open_text("u1.csv", "a,b\n3,z\n");
  d[2] = open_text("u2.csv", "a,b\n4.5,z\n");
  d[1] = with_filter(d[1], "[\">\", [\"col\", \"a\"], 0]");
  assert_status(manta_dataset_union(&no, d, 3, &err), MANTA_EINVAL);
  assert_has(err.message, "column 0 is \"a\" (i64) in the first data set, but \"a\" (f64)");
  assert_status(manta_dataset_union(&no, d, 0, &err), MANTA_EINVAL);
  assert_ok(manta_dataset_union(&u, d, 2, &err), &err);
  assert_has(manta_dataset_block_file(u, 1), "u1.csv");
  u = with_filter(u, "[\"!=\", [\"col\", \"a\"], 1]");
  assert_explains(u, "filter a != 1  [reader]\nunion of 2  [reader]\n"
                     "  csv: 1 file, 1 block, 12 bytes; 2 of 2 columns; filter a != 1  [reader]\n"
                     "  filter a > 0  [reader]\n"
                     "  csv: 1 file, 1 block, 8 bytes; 2 of 2 columns; filter (a > 0) and (a != "
                     "1)  [reader]\n");
  assert_was(u, "a:i64|b:string\n2|'y'\n3|'z'");
  STEP(d[1], manta_dataset_shuffle(&step_out, d[1], 1, 0, &step_err));
  assert_status(manta_dataset_union(&no, d, 2, &err), MANTA_EUNSUPPORTED);
  assert_has(err.message, "make the union first");
  assert_null(no);
  for (int i = 0; i < 3; i++)
    manta_dataset_close(d[i]);
}

// Blocks and batches of both lie differently, and rows are left out on both sides.
static void zips_put_rows_side_by_side(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *a = numbered_open(dir, "za", 4, 100, 700), *z; // 410 rows
  manta_dataset *b = numbered_open(dir, "zb", 2, 410, 900);     // 820 rows
  manta_reader *r;
  manta_batch *batch;
  int64_t row = 0;
  b = with_filter(b, "[\"==\", [\"%\", [\"col\", \"n\"], 2], 1]"); // the odd ones: 410
  assert_ok(manta_dataset_zip(&z, a, b, &err), &err);
  assert_int_equal(manta_dataset_columns(z), 6);
  z = with_filter(z, "[\"==\", [\"%\", [\"col\", \"n_1\"], 3], 0]");
  assert_ok(manta_reader_open(&r, z, 0, manta_dataset_blocks(z), &err), &err);
  manta_status st;
  while ((st = manta_reader_next(r, &batch, &err)) == 1) {
    manta_column n, m;
    assert_ok(manta_batch_column_named(batch, "n", &n, &err), &err);
    assert_ok(manta_batch_column_named(batch, "twice_1", &m, &err), &err);
    for (int64_t i = 0; i < n.rows; i++, row++) {
      int64_t x = ((const int64_t *)n.data)[n.offset + i];
      assert_int_equal((2 * x + 1) % 3, 0);
      assert_int_equal(x, 3 * row + 1);
      assert_int_equal(((const int64_t *)m.data)[m.offset + i], 2 * (2 * x + 1));
    }
    manta_batch_destroy(batch);
  }
  assert_int_equal(st, 0);
  assert_int_equal(row, 137);
  manta_reader_close(r);
  manta_dataset_close(z);
  STEP(b, manta_dataset_limit(&step_out, b, 409, &step_err));
  assert_ok(manta_dataset_zip(&z, a, b, &err), &err);
  assert_status(manta_reader_open(&r, z, 0, 1, &err), MANTA_EINVAL);
  assert_has(err.message, "one data set has 410 rows, the other 409");
  manta_dataset_close(z);
  manta_dataset_close(a);
  manta_dataset_close(b);
}

static void steps_that_cannot_follow_are_refused(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = people(), *no = NULL;
  manta_value v = tree_of("[\">\", [\"col\", \"age\"], 1]");
  int64_t rows;
  assert_status(manta_dataset_limit(&no, d, -1, &err), MANTA_EINVAL);
  assert_status(manta_dataset_repeat(&no, d, -1, &err), MANTA_EINVAL);
  assert_status(manta_dataset_shuffle(&no, d, 1, -1, &err), MANTA_EINVAL);
  STEP(d, manta_dataset_shuffle(&step_out, d, 1, 0, &step_err));
  STEP(d, manta_dataset_limit(&step_out, d, 3, &step_err));
  assert_status(manta_dataset_filter(&no, d, &v, &err), MANTA_EUNSUPPORTED);
  assert_has(err.message, "a filter cannot follow a limit that follows a shuffle");
  assert_status(manta_dataset_sample(&no, d, 0.5, 1, &err), MANTA_EUNSUPPORTED);
  assert_status(manta_dataset_shuffle(&no, d, 1, 0, &err), MANTA_EUNSUPPORTED);
  assert_status(manta_dataset_repeat(&no, d, 2, &err), MANTA_EUNSUPPORTED);
  assert_status(manta_dataset_zip(&no, d, d, &err), MANTA_EUNSUPPORTED);
  assert_null(no);
  assert_ok(manta_dataset_count(d, &rows, &err), &err);
  assert_int_equal(rows, 3);
  manta_value_fini(&v);
  manta_dataset_close(d);
}

// --- cross validation ---------------------------------------------------------------------------

// Which rows of 410 a data set has; it is closed.
static int rows_of(manta_dataset *d, bool *has)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_reader *r;
  manta_batch *b;
  int count = 0;
  memset(has, 0, 410);
  assert_ok(manta_reader_open(&r, d, 0, manta_dataset_blocks(d), &err), &err);
  while (manta_reader_next(r, &b, &err) == 1) {
    manta_column n;
    assert_ok(manta_batch_column_named(b, "n", &n, &err), &err);
    for (int64_t i = 0; i < n.rows; i++, count++)
      has[((const int64_t *)n.data)[n.offset + i]] = true;
    manta_batch_destroy(b);
  }
  manta_reader_close(r);
  manta_dataset_close(d);
  return count;
}

static manta_dataset *open_fold(const manta_fold_config *c)
{
  manta_dataset *d = numbered_open(dir, "folds", 4, 100, 500); // 410 rows
  STEP(d, manta_dataset_fold(&step_out, d, c, &step_err));
  return d;
}

// Each row validates once, and trains otherwise; a word (n % 7) is spread, or kept together.
static void check_folds(manta_fold_config c)
{
  bool train[410], test[410], seen[410] = {0};
  for (c.split = 0; c.split < c.folds; c.split++) {
    int words[7] = {0};
    c.validate = true;
    int n = rows_of(open_fold(&c), test);
    c.validate = false;
    assert_int_equal(rows_of(open_fold(&c), train), 410 - n);
    for (int i = 0; i < 410; i++) {
      assert_int_equal(train[i], !test[i]);
      assert_false(test[i] && seen[i]);
      seen[i] |= test[i];
      words[i % 7] += test[i];
    }
    for (int w = 0; w < 7; w++) {
      int all = 410 / 7 + (w < 410 % 7);
      if (c.stratify)
        assert_in_range(words[w], all / c.folds, all / c.folds + 1);
      else if (c.groups)
        assert_true(words[w] == 0 || words[w] == all);
    }
    if (!c.groups && !c.stratify)
      assert_in_range(n, 410 / c.folds, 410 / c.folds + 1);
  }
  for (int i = 0; i < 410; i++)
    assert_true(seen[i]);
}

static void folds_divide_the_rows(void **state)
{
  for (int folds = 2; folds <= 5; folds++)
    for (int shuffle = 0; shuffle < 2; shuffle++) {
      manta_fold_config c = MANTA_FOLD_CONFIG_INIT;
      c.folds = folds;
      c.shuffle = shuffle;
      c.seed = 9;
      check_folds(c);
      c.stratify = "word";
      check_folds(c);
      c.stratify = NULL;
      c.groups = "word";
      check_folds(c);
    }
}

static void series_are_validated_by_what_follows(void **state)
{
  manta_fold_config c = MANTA_FOLD_CONFIG_INIT;
  bool has[410];
  c.folds = 4;
  c.series = true;
  for (c.split = 0; c.split < 4; c.split++) {
    c.validate = false;
    int n = rows_of(open_fold(&c), has);
    assert_int_equal(n, 410 - (4 - c.split) * (410 / 5));
    for (int i = 0; i < 410; i++)
      assert_int_equal(has[i], i < n);
    c.validate = true;
    assert_int_equal(rows_of(open_fold(&c), has), 410 / 5);
    for (int i = 0; i < 410; i++)
      assert_int_equal(has[i], i >= n && i < n + 410 / 5);
  }
}

static void folds_that_make_no_sense_are_refused(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = people(), *no = NULL, *f;
  manta_reader *r;
  manta_fold_config c = MANTA_FOLD_CONFIG_INIT;
  static const manta_fold_config wrong[] = {{.folds = 1},
                                            {.folds = 3, .split = 3},
                                            {.folds = 3, .split = -1},
                                            {.folds = 3, .stratify = "name", .groups = "name"},
                                            {.folds = 3, .series = true, .shuffle = true}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    manta_fold_config w = wrong[i];
    w.size = sizeof w;
    assert_status(manta_dataset_fold(&no, d, &w, &err), MANTA_EINVAL);
  }
  c.groups = "nam";
  assert_status(manta_dataset_fold(&no, d, &c, &err), MANTA_ENOENT);
  c.groups = NULL;
  c.folds = 5;
  assert_ok(manta_dataset_fold(&f, d, &c, &err), &err);
  assert_explains(f, "training of split 0 of 5  [reader]\n"
                     "csv: 1 file, 1 block, 56 bytes; 3 of 3 columns  [reader]\n");
  assert_status(manta_reader_open(&r, f, 0, 1, &err), MANTA_EINVAL);
  assert_has(err.message, "5 folds of 4 rows");
  manta_dataset_close(f);
  STEP(d, manta_dataset_repeat(&step_out, d, 2, &step_err));
  assert_status(manta_dataset_fold(&no, d, &c, &err), MANTA_EUNSUPPORTED);
  assert_null(no);
  manta_dataset_close(d);
}

// --- memory -------------------------------------------------------------------------------------

/* The data sets that a chain of steps makes, the last one last. */
struct chain {
  manta_dataset *d[16];
  int n;
};

static manta_status add_step(struct chain *c, manta_status st)
{
  if (st == MANTA_OK)
    c->n++;
  return st;
}

#define ADD(call) MANTA_TRY(add_step(c, call))
static manta_status make_chain(struct chain *c, const char *path, const manta_value *filter,
                               const manta_value *sum, manta_error *err)
{
  static const char *const one[] = {"score"}, *const to[] = {"points"}, *const drop[] = {"name"};
  manta_fold_config strata = MANTA_FOLD_CONFIG_INIT, groups = MANTA_FOLD_CONFIG_INIT;
  strata.stratify = groups.groups = "age";
  manta_dataset **d = c->d;
  ADD(manta_dataset_open(&d[0], &path, 1, NULL, err));
  ADD(manta_dataset_filter(&d[1], d[0], filter, err));
  ADD(manta_dataset_rename(&d[2], d[1], one, to, 1, err));
  ADD(manta_dataset_add(&d[3], d[2], "next", sum, err));
  ADD(manta_dataset_filter(&d[4], d[3], filter, err));
  ADD(manta_dataset_sample(&d[5], d[4], 1, 0, err));
  ADD(manta_dataset_drop(&d[6], d[5], drop, 1, err));
  ADD(manta_dataset_union(&d[7], (manta_dataset *[]){d[6], d[6]}, 2, err));
  ADD(manta_dataset_limit(&d[8], d[7], 5, err));
  ADD(manta_dataset_zip(&d[9], d[8], d[8], err));
  ADD(manta_dataset_fold(&d[10], d[9], &strata, err));
  ADD(manta_dataset_fold(&d[11], d[10], &groups, err));
  ADD(manta_dataset_shuffle(&d[12], d[11], 1, 4, err));
  return MANTA_OK;
}

static void close_chain(struct chain *c)
{
  while (c->n)
    manta_dataset_close(c->d[--c->n]);
}

// Whatever allocation fails first, in making the steps or in what they do.
static void every_step_survives_without_memory(void **state)
{
  const char *path =
      file_text(dir, "oom.csv", "name,age,score\nAda,36,1.5\nEve,29,3\nGrace,85,4\n");
  manta_value filter = tree_of("[\">\", [\"col\", \"age\"], 1]");
  manta_value sum = tree_of("[\"+\", [\"col\", \"age\"], 1]");
  manta_error err = MANTA_ERROR_INIT;
  struct chain c = {.n = 0};
  int64_t left;
  int failed = 0;
  manta_status st;
  do {
    manta__alloc_fail_after(failed);
    st = make_chain(&c, path, &filter, &sum, NULL);
    manta__alloc_fail_after(-1);
    close_chain(&c);
    failed += st < 0;
  } while (st == MANTA_ENOMEM);
  assert_int_equal(st, MANTA_OK);
  assert_true(failed > 40);
  assert_ok(make_chain(&c, path, &filter, &sum, &err), &err);
  assert_ok(manta_dataset_count(c.d[c.n - 1], &left, &err), &err);
  assert_in_range(left, 1, 4);
  for (failed = 0; st >= 0 || st == MANTA_ENOMEM; failed++) {
    manta_batch *b;
    manta_reader *r = NULL;
    int64_t rows = 0;
    char *text = NULL;
    manta__alloc_fail_after(failed);
    st = manta_reader_open(&r, c.d[c.n - 1], 0, 2, NULL);
    while (st >= 0 && (st = manta_reader_next(r, &b, NULL)) == 1) {
      rows += manta_batch_rows(b);
      manta_batch_destroy(b);
    }
    if (st >= 0)
      st = manta_dataset_explain(c.d[c.n - 1], &text, NULL);
    manta__alloc_fail_after(-1);
    manta_free(text);
    manta_reader_close(r);
    if (st == MANTA_OK) {
      assert_int_equal(rows, left);
      break;
    }
  }
  assert_int_equal(st, MANTA_OK);
  assert_true(failed > 100);
  close_chain(&c);
  manta_value_fini(&filter);
  manta_value_fini(&sum);
}

static void configs_that_were_not_initialised_are_refused(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = people(), *out = NULL;
  const char *path = "x.csv";
  assert_status(manta_dataset_part(&out, d, &(manta_part_config){.of = 2, .to = 1}, &err),
                MANTA_EINVAL);
  assert_has(err.message, "use MANTA_PART_CONFIG_INIT");
  assert_status(manta_dataset_fold(&out, d, &(manta_fold_config){.folds = 2}, &err), MANTA_EINVAL);
  assert_has(err.message, "use MANTA_FOLD_CONFIG_INIT");
  assert_status(manta_dataset_open(&out, &path, 1, &(manta_data_config){.no_header = true}, &err),
                MANTA_EINVAL);
  assert_has(err.message, "use MANTA_DATA_CONFIG_INIT");
  assert_null(out);
  manta_dataset_close(d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_are_chosen_and_renamed),
      cmocka_unit_test(columns_of_text_are_single),
      cmocka_unit_test(columns_are_computed),
      cmocka_unit_test(unknown_columns_are_named),
      cmocka_unit_test(filters_meet_wherever_they_are_taken),
      cmocka_unit_test(plans_say_what_the_files_are_asked_for),
      cmocka_unit_test(columns_that_nobody_wants_are_not_parsed),
      cmocka_unit_test(limits_are_places_in_the_files),
      cmocka_unit_test(samples_are_the_same_each_time),
      cmocka_unit_test(unions_follow_each_other),
      cmocka_unit_test(zips_put_rows_side_by_side),
      cmocka_unit_test(steps_that_cannot_follow_are_refused),
      cmocka_unit_test(folds_divide_the_rows),
      cmocka_unit_test(series_are_validated_by_what_follows),
      cmocka_unit_test(folds_that_make_no_sense_are_refused),
      cmocka_unit_test(every_step_survives_without_memory),
      cmocka_unit_test(configs_that_were_not_initialised_are_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
