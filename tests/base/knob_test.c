/* SPDX-License-Identifier: Apache-2.0 */
#include "base/knob.h"

#include <ctype.h>
#include <unistd.h>

#include "base/typo.h"
#include "comma.h"
#include "test.h"

static manta_error err;

static int setup(void **state)
{
  err = (manta_error)MANTA_ERROR_INIT;
  for (int i = 0; i < MANTA__KNOBS; i++)
    unsetenv(manta__knob_row(i)->name);
  return 0;
}

// --- The table -----------------------------------------------------------------------------------

static void every_row_is_complete(void **state)
{
  for (int i = 0; i < MANTA__KNOBS; i++) {
    const struct manta__knob *k = manta__knob_row(i);
    assert_non_null(k->name);
    assert_int_equal(strncmp(k->name, "MANTA_", 6), 0);
    assert_int_equal(manta__knob_find(k->name), i); // so none is there twice
    assert_true(k->help && islower((unsigned char)k->help[0]));
    assert_true(k->help[strlen(k->help) - 1] != '.' && !strchr(k->help, '\n'));
    assert_true((k->dflt != NULL) != (k->otherwise != NULL));
    bool number = k->type == MANTA__AS_WHOLE || k->type == MANTA__AS_NUMBER;
    assert_int_equal(number, k->low < k->high);
    assert_true((k->type == MANTA__AS_WORD) == (k->words != NULL));
    assert_true(k->type != MANTA__AS_BOOL || k->dflt);
    assert_true(!k->unit || strcmp(k->unit, "seconds") != 0 || k->dflt);
  }
  assert_int_equal(manta__knob_find("MANTA_NOTHING"), MANTA__KNOBS);
}

static void every_default_is_a_right_value(void **state)
{
  for (int i = 0; i < MANTA__KNOBS; i++) {
    manta_value v = {0};
    const char *dflt = manta__knob_row(i)->dflt;
    assert_ok(manta__knob_value(i, true, &v, &err), &err);
    assert_int_equal(v.type == MANTA_NIL, dflt == NULL);
    if (dflt)
      setenv(manta__knob_row(i)->name, dflt, 1);
    assert_ok(manta__knob_check(i, &err), &err);
  }
}

// Who reads the list stops at the rows that are not his.
static void rows_are_in_the_order_of_their_readers(void **state)
{
  for (int i = 1; i < MANTA__KNOBS; i++)
    assert_true(manta__knob_row(i - 1)->reader <= manta__knob_row(i)->reader);
  assert_string_equal(manta__knob_reader_name(MANTA__FOR_USERS), "users");
  assert_string_equal(manta__knob_reader_name(MANTA__FOR_MANTA), "manta");
  assert_string_equal(manta__knob_type_name(MANTA__AS_HEX), "hex");
}

// --- Values --------------------------------------------------------------------------------------

static void the_environment_beats_the_default(void **state)
{
  int64_t n = 0;
  assert_true(manta__knob_whole(MANTA__KNOB_NUM_WORKERS, &n) && n == 1);
  assert_false(manta__knob_is_set(MANTA__KNOB_NUM_WORKERS));
  setenv("MANTA_NUM_WORKERS", "4096", 1);
  assert_true(manta__knob_whole(MANTA__KNOB_NUM_WORKERS, &n) && n == 4096);
  assert_true(manta__knob_is_set(MANTA__KNOB_NUM_WORKERS));
  setenv("MANTA_NUM_WORKERS", "", 1); // as if it was not there
  assert_true(manta__knob_whole(MANTA__KNOB_NUM_WORKERS, &n) && n == 1);
  assert_false(manta__knob_is_set(MANTA__KNOB_NUM_WORKERS));
  assert_string_equal(manta__knob_text(MANTA__KNOB_PYTHON), "python3");
  setenv("MANTA_PYTHON", "/opt/python", 1);
  assert_string_equal(manta__knob_text(MANTA__KNOB_PYTHON), "/opt/python");
}

static void without_either_there_is_no_value(void **state)
{
  int64_t n = -7;
  double x = -7;
  uint64_t id = 7;
  assert_false(manta__knob_whole(MANTA__KNOB_PDB, &n) || n != -7);
  assert_false(manta__knob_number(MANTA__KNOB_NUM_CPUS, &x) || x != -7);
  assert_false(manta__knob_hex(MANTA__KNOB_RESUME, &id) || id != 7);
  assert_int_equal(manta__knob_word(MANTA__KNOB_AMX), -1);
  assert_null(manta__knob_text(MANTA__KNOB_HOSTS));
}

static void each_type_is_read(void **state)
{
  int64_t n = 0;
  double x = 0;
  uint64_t id = 0;
  setenv("MANTA_PDB", "0", 1);
  setenv("MANTA_NUM_CPUS", "2.5", 1);
  setenv("MANTA_RESUME", "fedcba9876543210", 1);
  setenv("MANTA_LOG", "debug", 1);
  setenv("MANTA_GROW_AFTER", "0.05", 1);
  assert_true(manta__knob_whole(MANTA__KNOB_PDB, &n) && n == 0);
  assert_true(manta__knob_number(MANTA__KNOB_NUM_CPUS, &x));
  assert_near(x, 2.5, 0);
  assert_true(manta__knob_hex(MANTA__KNOB_RESUME, &id) && id == 0xfedcba9876543210u);
  assert_int_equal(manta__knob_word(MANTA__KNOB_LOG), 3);
  assert_near(manta__knob_seconds(MANTA__KNOB_GROW_AFTER), 0.05, 0);
  assert_near(manta__knob_seconds(MANTA__KNOB_RESIZE_EVERY), 600, 0);
}

static void flags_have_several_words(void **state)
{
  static const struct {
    const char *text;
    bool want;
  } rows[] = {{"1", true},  {"true", true},   {"yes", true}, {"On", true},
              {"0", false}, {"FALSE", false}, {"no", false}, {"off", false}};
  assert_false(manta__knob_bool(MANTA__KNOB_STRICT));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    setenv("MANTA_STRICT", rows[i].text, 1);
    assert_ok(manta__knob_check(MANTA__KNOB_STRICT, &err), &err);
    assert_int_equal(manta__knob_bool(MANTA__KNOB_STRICT), rows[i].want);
  }
}

static void read_a_fraction(void)
{
  setenv("MANTA_GRACE", "0.5", 1);
  assert_ok(manta__knob_check(MANTA__KNOB_GRACE, &err), &err);
  assert_near(manta__knob_seconds(MANTA__KNOB_GRACE), 0.5, 0);
}

static void a_locale_with_a_comma_changes_nothing(void **state)
{
  with_comma(read_a_fraction);
}

static void values_are_given_by_their_type(void **state)
{
  manta_value v = {0};
  setenv("MANTA_LOG", "info", 1);
  setenv("MANTA_STRICT", "yes", 1);
  setenv("MANTA_PDB", "3", 1);
  setenv("MANTA_GRACE", "2", 1);
  assert_ok(manta__knob_value(MANTA__KNOB_LOG, false, &v, &err), &err);
  assert_string_equal(manta_value_as_string(&v, ""), "info");
  assert_ok(manta__knob_value(MANTA__KNOB_STRICT, false, &v, &err), &err);
  assert_true(v.type == MANTA_BOOL && v.u.b);
  assert_ok(manta__knob_value(MANTA__KNOB_PDB, false, &v, &err), &err);
  assert_true(v.type == MANTA_INT && v.u.i == 3);
  assert_ok(manta__knob_value(MANTA__KNOB_GRACE, false, &v, &err), &err);
  assert_true(v.type == MANTA_REAL && v.u.r == 2);
  assert_ok(manta__knob_value(MANTA__KNOB_GRACE, true, &v, &err), &err);
  assert_true(v.type == MANTA_REAL && v.u.r == 30);
  assert_ok(manta__knob_value(MANTA__KNOB_PDB, true, &v, &err), &err);
  assert_int_equal(v.type, MANTA_NIL);
}

// --- What is wrong -------------------------------------------------------------------------------

static const struct {
  enum manta__knob_id id;
  const char *text, *want;
} wrong[] = {
    {MANTA__KNOB_GROW_AFTER, "abc",
     "MANTA_GROW_AFTER must be a number of seconds from 0 to 1000000000, not \"abc\""},
    {MANTA__KNOB_GROW_AFTER, "30 s", "not \"30 s\""},
    {MANTA__KNOB_GROW_AFTER, "-1", "not \"-1\""},
    {MANTA__KNOB_GROW_AFTER, "nan", "not \"nan\""},
    {MANTA__KNOB_GROW_AFTER, "inf", "not \"inf\""},
    {MANTA__KNOB_GROW_AFTER, " ", "not \" \""},
    {MANTA__KNOB_NUM_WORKERS, "0",
     "MANTA_NUM_WORKERS must be a whole number of workers from 1 to 4096, not \"0\""},
    {MANTA__KNOB_NUM_WORKERS, "4097", "not \"4097\""},
    {MANTA__KNOB_NUM_WORKERS, "2.0", "not \"2.0\""},
    {MANTA__KNOB_NUM_WORKERS, "99999999999999999999", "not \"99999999999999999999\""},
    {MANTA__KNOB_PDB, "first", "MANTA_PDB must be a whole number from 0 to 4095, not \"first\""},
    {MANTA__KNOB_NUM_CPUS, "many",
     "MANTA_NUM_CPUS must be a number of CPUs from 0 to 1000000, not \"many\""},
    {MANTA__KNOB_NUM_GPUS, "1.5", "whole number of GPUs from 0 to 2048, not \"1.5\""},
    {MANTA__KNOB_LOG, "loud", "MANTA_LOG must be error, warn, info or debug, not \"loud\""},
    {MANTA__KNOB_LOG, "inf", "not \"inf\""},    // no beginning of a word
    {MANTA__KNOB_LOG, "warn info", "not \"wa"}, // nor two
    {MANTA__KNOB_LOG, "\033[31m", "not \"?[31m\""},
    {MANTA__KNOB_LOG, "Debug", "not \"Debug\""},
    {MANTA__KNOB_STRICT, "falsehood", "not \"falsehood\""},
    {MANTA__KNOB_STRICT, "maybe",
     "MANTA_STRICT must be 1 or 0 (or true, false, yes, no, on, off), not \"maybe\""},
    {MANTA__KNOB_RESUME, "latest", "MANTA_RESUME must be up to 16 hexadecimal digits"},
    {MANTA__KNOB_RESUME, "0123456789abcdef0", "not \"0123456789abcdef0\""},
};

static void a_wrong_value_is_named_with_what_would_be_right(void **state)
{
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    manta_value v = manta_value_int(7);
    const char *name = manta__knob_row(wrong[i].id)->name;
    setenv(name, wrong[i].text, 1);
    assert_status(manta__knob_check(wrong[i].id, &err), MANTA_EINVAL);
    assert_has(err.message, wrong[i].want);
    err = (manta_error)MANTA_ERROR_INIT;
    assert_status(manta__knobs_check(&err), MANTA_EINVAL);
    assert_has(err.message, wrong[i].want);
    assert_status(manta__knob_value(wrong[i].id, false, &v, &err), MANTA_EINVAL);
    assert_true(v.type == MANTA_INT && v.u.i == 7);
    assert_status(manta__knobs_check(NULL), MANTA_EINVAL);
    unsetenv(name);
    assert_ok(manta__knobs_check(&err), &err);
  }
}

static void a_long_value_is_cut_in_the_message(void **state)
{
  char text[5000];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = 0;
  setenv("MANTA_LOG", text, 1);
  assert_status(manta__knobs_check(&err), MANTA_EINVAL);
  assert_true(strlen(err.message) < 300);
  assert_has(err.message, "xxx...\"");
}

static int warnings;
static char warning[512];

static void hear(void *ctx, manta_log_level level, const char *text)
{
  assert_int_equal(level, MANTA_LOG_WARN);
  warnings++;
  snprintf(warning, sizeof warning, "%s", text);
}

// Whatever changed the environment since it was checked.
static void a_getter_warns_once_and_takes_the_default(void **state)
{
  warnings = 0;
  manta_set_log(hear, NULL);
  setenv("MANTA_GONE_AFTER", "soon", 1);
  for (int i = 0; i < 3; i++)
    assert_near(manta__knob_seconds(MANTA__KNOB_GONE_AFTER), 10, 0);
  assert_int_equal(warnings, 1);
  assert_has(warning, "MANTA_GONE_AFTER must be a number of seconds");
  assert_has(warning, "not \"soon\"; going on without it");
  double x = -7;
  setenv("MANTA_NUM_CPUS", "many", 1);
  assert_false(manta__knob_number(MANTA__KNOB_NUM_CPUS, &x) || x != -7);
  assert_int_equal(warnings, 2);
  setenv("MANTA_AMX", "what", 1);
  assert_int_equal(manta__knob_word(MANTA__KNOB_AMX), -1);
  assert_int_equal(warnings, 3);
  manta_set_log(NULL, NULL);
}

// --- Names that are none -------------------------------------------------------------------------

static void the_distance_counts_changes_of_letters(void **state)
{
  static const struct {
    const char *a, *b;
    int want;
  } rows[] = {
      {"", "", 0},        {"a", "", 1},        {"status", "status", 0}, {"stauts", "status", 1},
      {"log", "logs", 1}, {"grow", "blow", 2}, {"kitten", "sitting", 3}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(manta__typo_distance(rows[i].a, rows[i].b), rows[i].want);
    assert_int_equal(manta__typo_distance(rows[i].b, rows[i].a), rows[i].want);
  }
  const char *longer = "abcdefghijklmnopqrstuvwxyzabcdefg";
  assert_int_equal(manta__typo_distance(longer, longer), MANTA__TYPO_MAX);
}

static void a_typing_error_is_recognised(void **state)
{
  static const struct {
    const char *name, *like;
  } rows[] = {
      {"MANTA_GROW_AFTR", "MANTA_GROW_AFTER"},
      {"MANTA_GROWAFTER", "MANTA_GROW_AFTER"},
      {"MANTA_RESULT", "MANTA_RESULTS"},
      {"MANTA_HOST", "MANTA_HOSTS"},
      {"MANTA_LOGS", "MANTA_LOG"},
      {"MANTA_WORKERS", "MANTA_NUM_WORKERS"},
      {"MANTA_CPUS", "MANTA_NUM_CPUS"},
      {"MANTA_NUM_GPU", "MANTA_NUM_GPUS"},
      {"MANTA_NUM_WORKER", "MANTA_NUM_WORKERS"},
      {"MANTA_LGO", "MANTA_LOG"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *like = manta__knob_like(rows[i].name);
    if (!like || strcmp(like, rows[i].like) != 0)
      fail_msg("%s is like %s, not %s", rows[i].name, like ? like : "none", rows[i].like);
  }
}

static void what_is_somebody_else_s_is_left_alone(void **state)
{
  static const char *const names[] = {"MANTA_HOME",      "MANTA_ROOT",     "MANTA_DIR",
                                      "MANTA_TEST_SEED", "MANTA_TEST_BED", "MANTA_LIBDIR",
                                      "MANTA_CFLAGS",    "MANTA_COUNTER",  "MANTA_ROLES",
                                      "MANTA_",          "MANTA",          "MANTARESULTS",
                                      "RESULTS",         "PATH",           "MANTA_S",
                                      "MANTA_GPU",       "MANTA_SOAK_OUT"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (manta__knob_like(names[i]))
      fail_msg("%s is like %s", names[i], manta__knob_like(names[i]));
  for (int i = 0; i < MANTA__KNOBS; i++)
    assert_null(manta__knob_like(manta__knob_row(i)->name));
}

static void the_warning_comes_once_per_process(void **state)
{
  warnings = 0;
  manta_set_log(hear, NULL);
  setenv("MANTA_GROW_AFTR", "5", 1);
  setenv("MANTA_HOME", "/x", 1);
  setenv("MANTA_ROLE", "agent", 1);
  manta__knobs_warn_unknown();
  assert_int_equal(warnings, 1);
  assert_string_equal(warning, "unknown environment variable MANTA_GROW_AFTR; did you mean "
                               "MANTA_GROW_AFTER?");
  manta__knobs_warn_unknown();
  assert_int_equal(warnings, 1);
  manta_set_log(NULL, NULL);
  unsetenv("MANTA_GROW_AFTR");
  unsetenv("MANTA_HOME");
}

#define test(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
  const struct CMUnitTest tests[] = {
      test(every_row_is_complete),
      test(every_default_is_a_right_value),
      test(rows_are_in_the_order_of_their_readers),
      test(the_environment_beats_the_default),
      test(without_either_there_is_no_value),
      test(each_type_is_read),
      test(flags_have_several_words),
      test(a_locale_with_a_comma_changes_nothing),
      test(values_are_given_by_their_type),
      test(a_wrong_value_is_named_with_what_would_be_right),
      test(a_long_value_is_cut_in_the_message),
      test(a_getter_warns_once_and_takes_the_default),
      test(the_distance_counts_changes_of_letters),
      test(a_typing_error_is_recognised),
      test(what_is_somebody_else_s_is_left_alone),
      test(the_warning_comes_once_per_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
