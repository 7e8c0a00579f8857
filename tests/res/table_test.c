/* SPDX-License-Identifier: Apache-2.0 */
#include "res/table.h"

#include "test.h"

static const struct manta__table_row rows[] = {
    {0, "box", 4711, 2, "0-1", 0.5, "0", "running"},
    {1, "box", 4712, 2, "2-3", 0.5, "0", "running"},
    {10, "longer-name", 0, 0.5, NULL, 0, NULL, "lost"},
    {11, NULL, -1, 0, NULL, 0, "", NULL},
};

static char *draw(const struct manta__table *t, bool utf8)
{
  static manta__buf b;
  manta__buf_fini(&b);
  manta__buf_init(&b, 1 << 16);
  assert_int_equal(manta__table_draw(&b, t, utf8), MANTA_OK);
  assert_int_equal(manta__buf_terminate(&b), MANTA_OK);
  return (char *)b.data;
}

static void columns_line_up(void **state)
{
  struct manta__table t = {rows, 4, "CPUs 4.5/8, GPUs 1/1"};
  assert_string_equal(draw(&t, false),
                      "+------+-------------+------+---------+---------+---------+\n"
                      "| rank | host        |  pid | CPUs    | GPUs    | state   |\n"
                      "+------+-------------+------+---------+---------+---------+\n"
                      "|    0 | box         | 4711 | 2 (0-1) | 0.5 (0) | running |\n"
                      "|    1 | box         | 4712 | 2 (2-3) | 0.5 (0) | running |\n"
                      "|   10 | longer-name |    - | 0.5     | -       | lost    |\n"
                      "|   11 | -           |    - | -       | -       | -       |\n"
                      "+------+-------------+------+---------+---------+---------+\n"
                      "used: CPUs 4.5/8, GPUs 1/1\n");
}

static void boxes_where_the_locale_has_them(void **state)
{
  struct manta__table t = {rows, 1, NULL};
  assert_string_equal(draw(&t, true), "┌──────┬──────┬──────┬─────────┬─────────┬─────────┐\n"
                                      "│ rank │ host │  pid │ CPUs    │ GPUs    │ state   │\n"
                                      "├──────┼──────┼──────┼─────────┼─────────┼─────────┤\n"
                                      "│    0 │ box  │ 4711 │ 2 (0-1) │ 0.5 (0) │ running │\n"
                                      "└──────┴──────┴──────┴─────────┴─────────┴─────────┘\n");
}

static void no_workers_is_a_table_too(void **state)
{
  struct manta__table t = {NULL, 0, "CPUs 0/2"};
  assert_string_equal(draw(&t, false), "+------+------+-----+------+------+-------+\n"
                                       "| rank | host | pid | CPUs | GPUs | state |\n"
                                       "+------+------+-----+------+------+-------+\n"
                                       "used: CPUs 0/2\n");
}

// Width is counted in characters; what is too long is cut between two of them; a terminal is not
// steered by a name.
static void cells_are_tamed(void **state)
{
  char name[200] = "", want[200];
  for (int i = 0; i < 60; i++)
    memcpy(name + 2 * i, "ü", 3);
  struct manta__table_row odd[] = {{0, name, 1, 1, NULL, 0, NULL, "\033[31mred\n"},
                                   {1, "süd", 1, 1, NULL, 0, NULL, "ok"}};
  struct manta__table t = {odd, 2, NULL};
  const char *text = draw(&t, false);
  assert_has(text, "| ?[31mred? |");
  snprintf(want, sizeof want, "| %.62s |", name); // 31 characters of two bytes
  assert_has(text, want);
  assert_has(text, "| süd                             |");
}

static void the_locale_is_read_from_the_environment(void **state)
{
  static const struct {
    const char *all, *ctype, *lang;
    bool want;
  } t[] = {
      {NULL, NULL, "en_US.UTF-8", true}, {NULL, NULL, "C.utf8", true},
      {NULL, NULL, NULL, false},         {NULL, NULL, "C", false},
      {"C", "en_US.UTF-8", "x", false},  {"", "de_DE.UTF-8", "C", true},
      {NULL, "UTF-8", NULL, true},       {NULL, NULL, "de_DE.ISO-8859-1", false},
  };
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
    t[i].all ? setenv("LC_ALL", t[i].all, 1) : unsetenv("LC_ALL");
    t[i].ctype ? setenv("LC_CTYPE", t[i].ctype, 1) : unsetenv("LC_CTYPE");
    t[i].lang ? setenv("LANG", t[i].lang, 1) : unsetenv("LANG");
    assert_int_equal(manta__table_utf8(), t[i].want);
  }
}

static void failure_leaves_the_buffer_as_it_was(void **state)
{
  struct manta__table t = {rows, 4, NULL};
  manta__buf b;
  manta__buf_init(&b, 200);
  assert_int_equal(manta__buf_puts(&b, "before"), MANTA_OK);
  assert_status(manta__table_draw(&b, &t, false), MANTA_ETOOBIG);
  assert_int_equal(b.len, 6);
  manta__buf_fini(&b);
  manta__buf_init(&b, 1 << 16);
  FOR_EACH_OOM(manta__table_draw(&b, &t, false), (void)0);
  manta__buf_fini(&b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_line_up),
      cmocka_unit_test(boxes_where_the_locale_has_them),
      cmocka_unit_test(no_workers_is_a_table_too),
      cmocka_unit_test(cells_are_tamed),
      cmocka_unit_test(the_locale_is_read_from_the_environment),
      cmocka_unit_test(failure_leaves_the_buffer_as_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
