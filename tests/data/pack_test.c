/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that are sent to another process: what comes of them there is the same.
 */
#include "data/plan/pack.h"

#include "data/loader/loader.h"
#include "folder.h"
#include "numbered.h"

static manta_dataset *numbered(void)
{
  return numbered_open(dir, "set", 4, 60, 500);
}

// Through bytes.
static manta_value sent(manta_dataset *d)
{
  manta_value v = {0}, again = {0};
  manta_error err = MANTA_ERROR_INIT;
  void *bytes;
  size_t n;
  assert_ok(manta__plan_pack(d, &v, &err), &err);
  assert_ok(manta_value_pack(&v, &bytes, &n, &err), &err);
  assert_ok(manta_value_unpack(&again, bytes, n, &err), &err);
  manta_value_fini(&v);
  manta_free(bytes);
  return again;
}

// All that a loader gives, as text.
static char *loaded(manta_dataset *d)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta__buf text;
  manta_loader *l;
  manta_batch *b;
  manta_status st;
  c.batch_rows = 50;
  c.threads = 2;
  manta__buf_init(&text, 1 << 20);
  assert_ok(manta_loader_open(&l, d, &c, &err), &err);
  while ((st = manta_loader_next(l, &b, &err)) == 1) {
    show_batch(&text, b);
    manta_batch_destroy(b);
  }
  assert_ok(st, &err);
  manta_loader_close(l);
  char *copy = strndup(text.data ? (const char *)text.data : "", text.len);
  manta__buf_fini(&text);
  return copy;
}

// Takes the data set.
static void assert_travels(manta_dataset *d)
{
  manta_value plan = sent(d);
  manta_dataset *there;
  manta_error err = MANTA_ERROR_INIT;
  char *here_text, *there_text;
  assert_ok(manta__plan_unpack(&there, &plan, &err), &err);
  manta_value_fini(&plan);
  assert_int_equal(there->mark, d->mark);
  assert_int_equal(there->blocks, d->blocks);
  assert_true(manta__schema_equal(there->out, d->out));
  assert_ok(manta_dataset_explain(d, &here_text, &err), &err);
  assert_ok(manta_dataset_explain(there, &there_text, &err), &err);
  assert_string_equal(here_text, there_text);
  manta_free(here_text);
  manta_free(there_text);
  here_text = loaded(d);
  there_text = loaded(there);
  assert_true(strlen(here_text) > 8);
  assert_string_equal(here_text, there_text);
  free(here_text);
  free(there_text);
  manta_dataset_close(there);
  manta_dataset_close(d);
}

static void every_step_travels(void **state)
{
  const char *some[] = {"word", "n"}, *from[] = {"twice"}, *to[] = {"double"};
  manta_dataset *d = numbered();
  assert_travels(manta__dataset_ref(d));
  assert_travels(with_filter(manta__dataset_ref(d), "[\">\", [\"col\", \"n\"], 30]"));
  assert_travels(with_column(manta__dataset_ref(d), "x", "[\"*\", [\"col\", \"n\"], 0.5]"));
  manta_dataset *one = manta__dataset_ref(d);
  STEP(one, manta_dataset_select(&step_out, one, some, 2, &step_err));
  STEP(one, manta_dataset_shuffle(&step_out, one, 7, 33, &step_err));
  STEP(one, manta_dataset_repeat(&step_out, one, 3, &step_err));
  STEP(one, manta_dataset_repeat(&step_out, one, 2, &step_err));
  STEP(one, manta_dataset_limit(&step_out, one, 700, &step_err));
  assert_travels(one);
  one = open_text("single.csv", "a,b\n0.1,0.2\n0.3,4\n");
  STEP(one, manta_dataset_single(&step_out, one, (const char *const[]){"b"}, 1, &step_err));
  assert_travels(one);
  one = manta__dataset_ref(d);
  STEP(one, manta_dataset_rename(&step_out, one, from, to, 1, &step_err));
  STEP(one, manta_dataset_drop(&step_out, one, some, 1, &step_err));
  STEP(one, manta_dataset_sample(&step_out, one, 0.4, 1ull << 63, &step_err));
  STEP(one, manta_dataset_limit(&step_out, one, 60, &step_err));
  assert_travels(one);
  manta_dataset_close(d);
}

static void several_inputs_travel(void **state)
{
  manta_dataset *d = numbered(), *both;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *odd =
      with_filter(manta__dataset_ref(d), "[\"==\", [\"%\", [\"col\", \"n\"], 2], 1]");
  assert_ok(manta_dataset_union(&both, (manta_dataset *[]){d, odd}, 2, &err), &err);
  assert_travels(both);
  manta_dataset *other = manta__dataset_ref(d);
  STEP(other, manta_dataset_rename(&step_out, other, &(const char *){"n"}, &(const char *){"m"}, 1,
                                   &step_err));
  assert_ok(manta_dataset_zip(&both, d, other, &err), &err);
  assert_travels(both);
  manta_dataset_close(other);
  manta_dataset_close(odd);
  manta_dataset_close(d);
}

static void folds_travel(void **state)
{
  manta_dataset *d = numbered(), *f;
  manta_error err = MANTA_ERROR_INIT;
  for (int kind = 0; kind < 4; kind++) {
    manta_fold_config c = MANTA_FOLD_CONFIG_INIT;
    c.folds = 3;
    c.split = kind % 3;
    c.validate = kind % 2;
    c.shuffle = kind == 0;
    c.seed = 11;
    c.series = kind == 1;
    c.stratify = kind == 2 ? "word" : NULL;
    c.groups = kind == 3 ? "word" : NULL;
    assert_ok(manta_dataset_fold(&f, d, &c, &err), &err);
    assert_travels(f);
  }
  manta_dataset_close(d);
}

static void options_travel(void **state)
{
  static const char text[] = "1;'a;b';-\n2;x;7\nno;y;8\n";
  const char *path = file_write(dir, "odd.txt.gz", text, sizeof text - 1), *plain;
  const char *names[] = {"k", "s", "v"}, *some[] = {"v", "s"}, *missing[] = {"-"};
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"k\": \"i16\", \"v\": \"f32\"}"),
              filter = tree_of("[\"<\", [\"col\", \"k\"], 9]");
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  char format[] = "csv", compression[] = "none";
  plain = path;
  c.format = format;
  c.compression = compression; // the name says something else
  c.separator = ';';
  c.quote = '\'';
  c.no_header = c.skip_errors = true;
  c.names = names;
  c.name_count = 3;
  c.columns = some;
  c.column_count = 2;
  c.missing = missing;
  c.missing_count = 1;
  c.types = &types;
  c.filter = &filter;
  assert_ok(manta_dataset_open(&d, &plain, 1, &c, &err), &err);
  memset(format, 'x', 3); // all of it was borrowed for the call
  memset(compression, 'x', 4);
  manta_value_fini(&types);
  manta_value_fini(&filter);
  assert_travels(d);
}

// A step of somebody else's.
static void a_step_that_cannot_be_sent_is_named(void **state)
{
  static const struct manta__step foreign = {.name = "by hand"};
  manta_dataset *d = numbered(), *by_hand;
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  assert_ok(manta__dataset_create(&by_hand, sizeof *by_hand, &foreign, &d, 1, &err), &err);
  assert_status(manta__plan_pack(by_hand, &v, &err), MANTA_EUNSUPPORTED);
  assert_has(err.message, "\"by hand\"");
  manta_dataset_close(by_hand);
  manta_dataset_close(d);
}

// Each key of each step is taken away, or becomes something else.
static void what_makes_no_sense_is_refused(void **state)
{
  manta_dataset *d = numbered(), *there;
  manta_error err = MANTA_ERROR_INIT;
  d = with_filter(d, "[\">\", [\"col\", \"n\"], 30]");
  STEP(d, manta_dataset_select(&step_out, d, &(const char *){"n"}, 1, &step_err));
  STEP(d, manta_dataset_shuffle(&step_out, d, 7, 33, &step_err));
  manta_value plan = sent(d);
  int refused = 0;
  for (size_t i = 0; i < plan.count; i++)
    for (size_t k = 0; k < plan.u.items[i].count; k++) {
      manta_value bad = {0};
      assert_status(manta_value_copy(&bad, &plan), MANTA_OK);
      manta_value_fini(&bad.u.items[i].u.pairs[k].value);
      if (manta__plan_unpack(&there, &bad, &err) == MANTA_OK)
        manta_dataset_close(there); // an option that has a default
      else
        refused++;
      manta_value_fini(&bad);
    }
  assert_true(refused >= 15);
  assert_status(manta__plan_unpack(&there, &(manta_value){0}, &err), MANTA_EPROTO);
  manta_value_fini(&plan);
  manta_dataset_close(d);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_step_travels),
      cmocka_unit_test(several_inputs_travel),
      cmocka_unit_test(folds_travel),
      cmocka_unit_test(options_travel),
      cmocka_unit_test(a_step_that_cannot_be_sent_is_named),
      cmocka_unit_test(what_makes_no_sense_is_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
