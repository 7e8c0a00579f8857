/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lines.h"

#include "test.h"

static char said[65536];
static size_t said_len;

static void on_final(void *ctx, const char *text, size_t len)
{
  assert_true(said_len + len < sizeof said);
  memcpy(said + said_len, text, len);
  said_len += len;
  said[said_len] = 0;
}

// What became final since it was asked last.
static const char * final(void)
{
  static char copy[sizeof said];
  memcpy(copy, said, said_len + 1);
  said_len = 0;
  said[0] = 0;
  return copy;
}

static const char *live(struct manta__lines *l)
{
  static char rows[16384];
  rows[manta__lines_live(l, rows, sizeof rows - 1)] = 0;
  return rows;
}

static void put(struct manta__lines *l, const char *text)
{
  manta__lines_put(l, text, strlen(text));
}

static int setup(void **state)
{
  static struct manta__lines l;
  manta__lines_fini(&l);
  manta__lines_init(&l, on_final, NULL);
  said_len = 0;
  said[0] = 0;
  *state = &l;
  return 0;
}

static void plain_lines_are_final_at_once(void **state)
{
  struct manta__lines *l = *state;
  put(l, "one\n\ntwo\nthr");
  assert_string_equal(final(), "one\n\ntwo\n");
  assert_string_equal(live(l), "thr");
  put(l, "ee\nfour\r\n");
  assert_string_equal(final(), "three\nfour\n");
  assert_string_equal(live(l), "");
}

static void the_last_line_needs_no_newline(void **state)
{
  struct manta__lines *l = *state;
  put(l, "accuracy: 0.93");
  manta__lines_finish(l);
  assert_string_equal(final(), "accuracy: 0.93\n");
  manta__lines_finish(l);
  assert_string_equal(final(), "");
}

static void of_a_bar_its_last_state_is_final(void **state)
{
  struct manta__lines *l = *state;
  for (int i = 0; i <= 100; i++) {
    char frame[32];
    snprintf(frame, sizeof frame, "\r%d%%", i);
    put(l, frame);
    assert_string_equal(live(l), frame + 1);
  }
  assert_string_equal(final(), "");
  put(l, "\n");
  assert_string_equal(live(l), "100%");
  put(l, "done\n");
  assert_string_equal(final(), "100%\ndone\n");
  put(l, "50%\r60%\r"); // as others draw them
  assert_string_equal(live(l), "60%");
  manta__lines_finish(l);
  assert_string_equal(final(), "60%\n");
}

static void a_bar_that_is_wiped_off_leaves_nothing(void **state)
{
  struct manta__lines *l = *state;
  put(l, "\r50%\r     \rnext\n");
  manta__lines_finish(l);
  assert_string_equal(final(), "next\n");
  put(l, "\r50%\r    \r");
  manta__lines_finish(l);
  assert_string_equal(final(), "");
  put(l, "\r50%\033[2K\rnext\n\033[?25l\r\033[Kx\n"); // by escape sequences
  manta__lines_finish(l);
  assert_string_equal(final(), "next\nx\n");
}

static void a_second_bar_settles_the_first(void **state)
{
  struct manta__lines *l = *state;
  put(l, "\ra 9%\ra 100%\n\rb 0%");
  assert_string_equal(live(l), "a 100%\nb 0%");
  put(l, "\rb 1%");
  assert_string_equal(final(), "a 100%\n");
  assert_string_equal(live(l), "b 1%");
  put(l, "\n");
  manta__lines_settle(l);
  assert_string_equal(final(), "b 1%\n");
}

// The way tqdm draws an inner bar: down, the bar, up.
static void nested_bars_keep_their_rows(void **state)
{
  struct manta__lines *l = *state;
  put(l, "\router 0");
  for (int i = 0; i < 20; i++) {
    put(l, "\n");
    put(l, i % 2 ? "\rinner 1" : "\rinner 0");
    put(l, "\033[");
    put(l, "A");
    assert_string_equal(live(l), i % 2 ? "outer 0\ninner 1" : "outer 0\ninner 0");
  }
  put(l, "\n\r       \033[A\router 1\n"); // the inner one is wiped off, the outer one ends
  put(l, "said\n");
  assert_string_equal(final(), "outer 1\nsaid\n");
}

static void inner_bars_that_stay_come_before_the_outer(void **state)
{
  struct manta__lines *l = *state;
  put(l, "\router 0");
  for (int i = 0; i < 12; i++) {
    put(l, "\n\rinner 0\033[A");
    put(l, "\rinner 1\n\router 1");
  }
  put(l, "\n");
  manta__lines_finish(l);
  const char *all = final();
  int inner = 0;
  for (const char *p = all; (p = strstr(p, "inner 1\n")); p++)
    inner++;
  assert_int_equal(inner, 12);
  assert_null(strstr(all, "inner 0"));
  assert_string_equal(strstr(all, "outer"), "outer 1\n");
}

static void long_lines_come_in_pieces(void **state)
{
  struct manta__lines *l = *state;
  size_t n = 0;
  for (int i = 0; i < 1001; i++)
    put(l, "ünïcödé 12345678"); // 20 bytes
  manta__lines_finish(l);
  const char *all = final();
  assert_int_equal(strlen(all), 20 * 1001 + 1);
  while (all[n] && all[n] != '\n')
    n++;
  assert_int_equal(n, 20 * 1001);
  put(l, "next\n");
  assert_string_equal(final(), "next\n");
}

static void a_piece_holds_whole_characters(void **state)
{
  struct manta__lines *l = *state;
  for (int i = 0; i < MANTA__LINE_MAX - 1; i++)
    put(l, "x");
  put(l, "é and more");
  assert_int_equal(strlen(final()), MANTA__LINE_MAX - 1);
  assert_string_equal(live(l), "é and more");
}

static void a_moving_row_is_cut(void **state)
{
  struct manta__lines *l = *state;
  put(l, "\r");
  for (int i = 0; i < 2 * MANTA__LINE_MAX; i++)
    put(l, "x");
  put(l, "\r1%\n");
  manta__lines_finish(l);
  assert_string_equal(final(), "1%\n");
}

static void colours_are_text(void **state)
{
  struct manta__lines *l = *state;
  put(l, "\033[31mred\033[0m\npart \033[1");
  put(l, "mbold");
  assert_string_equal(final(), "\033[31mred\033[0m\n");
  assert_string_equal(live(l), "part \033[1mbold");
}

// The same text is final however it was cut.
static void how_it_is_cut_does_not_matter(void **state)
{
  struct manta__lines *l = *state;
  static const char text[] = "a\r\nb\rc\n\r1\r2\n\n\033[A\rx\ny\n\r3\n\033[32mz\033[0m\nlast";
  char *whole;
  put(l, text);
  manta__lines_finish(l);
  assert_non_null(whole = strdup(final()));
  for (size_t step = 1; step < sizeof text; step++) {
    for (size_t i = 0; i < sizeof text - 1; i += step)
      manta__lines_put(l, text + i, i + step < sizeof text - 1 ? step : sizeof text - 1 - i);
    manta__lines_finish(l);
    assert_string_equal(final(), whole);
  }
  free(whole);
}

#define lines_test(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
  const struct CMUnitTest tests[] = {
      lines_test(plain_lines_are_final_at_once),
      lines_test(the_last_line_needs_no_newline),
      lines_test(of_a_bar_its_last_state_is_final),
      lines_test(a_bar_that_is_wiped_off_leaves_nothing),
      lines_test(a_second_bar_settles_the_first),
      lines_test(nested_bars_keep_their_rows),
      lines_test(inner_bars_that_stay_come_before_the_outer),
      lines_test(long_lines_come_in_pieces),
      lines_test(a_piece_holds_whole_characters),
      lines_test(a_moving_row_is_cut),
      lines_test(colours_are_text),
      lines_test(how_it_is_cut_does_not_matter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
