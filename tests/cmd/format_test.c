/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/format.h"

#include "cmd/options.h"
#include "test.h"

#define S 1000000000ll

static void durations_read_like_a_person(void **state)
{
  static const struct {
    int64_t ns;
    const char *text;
  } t[] = {{-5, "0.0s"},           {0, "0.0s"},
           {450000000, "0.4s"},    {9990000000, "9.9s"},
           {10 * S, "10s"},        {59 * S + S - 1, "59s"},
           {60 * S, "1m 00s"},     {192 * S, "3m 12s"},
           {3600 * S, "1h 00m"},   {7500 * S, "2h 05m"},
           {86399 * S, "23h 59m"}, {100 * 3600 * S, "4d 4h"}};
  char buf[MANTA__TEXT];
  for (size_t i = 0; i < sizeof t / sizeof *t; i++)
    assert_string_equal(manta__text_duration(buf, t[i].ns), t[i].text);
}

static void sizes_are_powers_of_ten(void **state)
{
  static const struct {
    uint64_t bytes;
    const char *text;
  } t[] = {{0, "0 B"},           {999, "999 B"},    {1000, "1.0 kB"},      {1234, "1.2 kB"},
           {9960, "10 kB"},      {99999, "100 kB"}, {100000000, "100 MB"}, {999600000, "1.0 GB"},
           {UINT64_MAX, "18 EB"}};
  char buf[MANTA__TEXT];
  for (size_t i = 0; i < sizeof t / sizeof *t; i++)
    assert_string_equal(manta__text_size(buf, t[i].bytes), t[i].text);
}

static void values_are_short(void **state)
{
  char buf[16];
  manta_value real = manta_value_real(1.0 / 3), text = manta_value_borrow_string("a b"),
              map = MANTA_MAP(MANTA_KV_INT("a", 1), MANTA_KV_BOOL("long name", true));
  assert_string_equal(manta__text_value(buf, sizeof buf, &real), "0.333333");
  assert_string_equal(manta__text_value(buf, sizeof buf, &text), "a b");
  assert_string_equal(manta__text_value(buf, sizeof buf, &map), "{\"a\":1,\"long na");
  assert_string_equal(manta__text_value(buf, sizeof buf, NULL), "?");
}

static void tables_align_characters_and_hide_escapes(void **state)
{
  static const char *const titles[] = {"name", "n", ""};
  char text[512] = "";
  struct manta__grid g;
  FILE *f = fmemopen(text, sizeof text - 1, "w");
  assert_non_null(f);
  manta__grid_init(&g, titles, 3, 1u << 1);
  manta__grid_cell(&g, "größe");
  manta__grid_cell(&g, "%d", 5);
  manta__grid_cell(&g, "best");
  manta__grid_cell(&g, "\033[31m");
  manta__grid_cell(&g, "%d", 100);
  manta__grid_cell(&g, "%s", "");
  manta__grid_print(&g, f);
  manta__grid_fini(&g);
  fclose(f);
  assert_string_equal(text, "name     n\n"
                            "größe    5  best\n"
                            "?[31m  100\n");
}

static int nothing(const struct manta__args *a)
{
  return 0;
}

static const struct manta__option rows[] = {
    {'n', "lines", "N", ""}, {'f', "follow", NULL, ""}, {0, "from", "X", ""}, {0}};
static const struct manta__command looks = {"look", "RUN", "", NULL, rows, 1, 2, false, nothing};
static const struct manta__command runs = {"run", "PROGRAM", "", NULL, rows, 1, -1, true, nothing};

static manta_status parse(struct manta__args *a, const struct manta__command *c, char **argv,
                          manta_error *err)
{
  int n = 0;
  while (argv[n])
    n++;
  return manta__args_parse(a, c, n, argv, err);
}

#define WORDS(...)                                                                                 \
  (char *[])                                                                                       \
  {                                                                                                \
    (char *)"x", __VA_ARGS__, NULL                                                                 \
  }

static void options_come_in_any_order(void **state)
{
  struct manta__args a;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(parse(&a, &looks, WORDS("RUN", "-fn3", "--from=y"), &err), &err);
  assert_int_equal(a.count, 1);
  assert_string_equal(a.operand[0], "RUN");
  assert_null(a.operand[1]);
  assert_string_equal(manta__args_get(&a, "lines"), "3");
  assert_string_equal(manta__args_get(&a, "follow"), "");
  assert_string_equal(manta__args_get(&a, "from"), "y");
  assert_null(manta__args_get(&a, "other"));
  assert_ok(parse(&a, &looks, WORDS("--", "-f"), &err), &err);
  assert_string_equal(a.operand[0], "-f");
  assert_false(manta__args_has(&a, "follow"));
}

static void a_program_keeps_its_options(void **state)
{
  struct manta__args a;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(parse(&a, &runs, WORDS("-n", "2", "prog", "-n", "--from"), &err), &err);
  assert_int_equal(a.count, 3);
  assert_string_equal(a.operand[1], "-n");
  assert_string_equal(manta__args_get(&a, "lines"), "2");
}

static void wrong_lines_are_explained(void **state)
{
  static const struct {
    char *argv[4];
    const char *said;
  } t[] = {{{"x", NULL}, "manta look needs RUN"},
           {{"x", "a", "--nope", NULL}, "unknown option --nope"},
           {{"x", "a", "-q", NULL}, "unknown option -q"},
           {{"x", "a", "--from", NULL}, "option --from needs an argument"},
           {{"x", "a", "-n", NULL}, "option -n needs an argument"}};
  struct manta__args a;
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
    char *argv[4];
    manta_error err = MANTA_ERROR_INIT;
    memcpy(argv, t[i].argv, sizeof argv);
    assert_status(parse(&a, &looks, argv, &err), MANTA_EINVAL);
    assert_string_equal(err.message, t[i].said);
  }
}

static void numbers_have_bounds(void **state)
{
  int64_t n = 0;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__args_int(&n, "12", "-n", 1, 12, &err), &err);
  assert_int_equal(n, 12);
  static const char *const wrong[] = {"13", "0", "", "1x", "0x5", "99999999999999999999"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_status(manta__args_int(&n, wrong[i], "-n", 1, 12, &err), MANTA_EINVAL);
  assert_int_equal(n, 12);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(durations_read_like_a_person),
      cmocka_unit_test(sizes_are_powers_of_ten),
      cmocka_unit_test(values_are_short),
      cmocka_unit_test(tables_align_characters_and_hide_escapes),
      cmocka_unit_test(options_come_in_any_order),
      cmocka_unit_test(a_program_keeps_its_options),
      cmocka_unit_test(wrong_lines_are_explained),
      cmocka_unit_test(numbers_have_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
