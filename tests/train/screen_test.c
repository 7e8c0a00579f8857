/* SPDX-License-Identifier: Apache-2.0 */
#include "train/screen.h"

#include "test.h"

static char said[2][8192];
static size_t said_len[2];

static void on_write(void *ctx, int stream, const char *text, size_t len)
{
  size_t *n = &said_len[stream - 1];
  assert_true(*n + len < sizeof said[0]);
  memcpy(said[stream - 1] + *n, text, len);
  *n += len;
  said[stream - 1][*n] = 0;
}

// What was written to the stream since it was asked last.
static const char *wrote(int stream)
{
  static char copy[sizeof said[0]];
  memcpy(copy, said[stream - 1], said_len[stream - 1] + 1);
  said_len[stream - 1] = 0;
  said[stream - 1][0] = 0;
  return copy;
}

static void make(struct manta__screen *s, manta_display_kind out, manta_display_kind err)
{
  manta_display d = {.write = on_write, .kind = {out, err}};
  memset(said_len, 0, sizeof said_len);
  said[0][0] = said[1][0] = 0;
  manta__screen_init(s, &d);
}

static void lines(struct manta__screen *s, int rank, int stream, const char *text)
{
  manta__screen_lines(s, rank, stream, text, strlen(text));
}

static void rows(struct manta__screen *s, int rank, int stream, const char *text)
{
  manta__screen_live(s, rank, stream, text, strlen(text));
}

static void plain_streams_get_whole_lines(void **state)
{
  struct manta__screen s;
  setenv("TERM", "xterm", 1);
  make(&s, MANTA_DISPLAY_PLAIN, MANTA_DISPLAY_PLAIN);
  assert_false(manta__screen_moves(&s));
  lines(&s, 0, 1, "a\n\nb\n");
  lines(&s, 12, 2, "c\n");
  rows(&s, 0, 2, "50%");
  manta__screen_lay(&s);
  assert_string_equal(wrote(1), "(rank 0) a\n(rank 0) \n(rank 0) b\n");
  assert_string_equal(wrote(2), "(rank 12) c\n");
  manta__screen_fini(&s);
  manta__screen_fini(&s);
  assert_string_equal(wrote(2), "");
}

static void pieces_of_a_line_stay_together(void **state)
{
  struct manta__screen s;
  make(&s, MANTA_DISPLAY_PLAIN, MANTA_DISPLAY_PLAIN);
  lines(&s, 0, 1, "be");
  lines(&s, 0, 1, "gun\nhalf");
  lines(&s, 1, 1, "other\n");
  lines(&s, 0, 1, "end");
  manta__screen_fini(&s);
  assert_string_equal(wrote(1), "(rank 0) begun\n(rank 0) half\n(rank 1) other\n(rank 0) end\n");
}

static void colours_are_for_terminals(void **state)
{
  struct manta__screen s;
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_PLAIN);
  lines(&s, 0, 1, "a\n");
  lines(&s, 0, 2, "b\n");
  assert_string_equal(wrote(1), "\033[36m(rank 0)\033[0m a\n");
  assert_string_equal(wrote(2), "(rank 0) b\n");
  manta__screen_fini(&s);
  setenv("NO_COLOR", "1", 1);
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_TERMINAL);
  lines(&s, 0, 1, "a\n");
  assert_string_equal(wrote(1), "(rank 0) a\n");
  manta__screen_fini(&s);
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_TERMINAL);
  assert_int_equal(s.to.kind[0], MANTA_DISPLAY_LINE);
  lines(&s, 0, 1, "a\n");
  assert_string_equal(wrote(1), "(rank 0) a\n");
  manta__screen_fini(&s);
  setenv("TERM", "xterm", 1);
}

static void a_bar_is_drawn_in_place(void **state)
{
  struct manta__screen s;
  setenv("NO_COLOR", "1", 1);
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_TERMINAL);
  assert_true(manta__screen_moves(&s));
  rows(&s, 0, 2, "50%");
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "(rank 0) 50%\033[K");
  manta__screen_lay(&s); // nothing has changed
  assert_string_equal(wrote(2), "");
  rows(&s, 0, 2, "60%");
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "\r(rank 0) 60%\033[K");
  lines(&s, 0, 1, "a line\n");
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "\r\033[J(rank 0) 60%\033[K");
  assert_string_equal(wrote(1), "(rank 0) a line\n");
  rows(&s, 0, 2, "");
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "\r\033[J");
  manta__screen_fini(&s);
}

static void every_rank_has_its_own_row(void **state)
{
  struct manta__screen s;
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_TERMINAL);
  rows(&s, 1, 2, "b 1%\nb 2%");
  rows(&s, 0, 1, "a 1%");
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "(rank 0) a 1%\033[K\n(rank 1) b 1%\033[K\n(rank 1) b 2%\033[K");
  rows(&s, 1, 2, "b 3%");
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "\r\033[2A(rank 0) a 1%\033[K\n(rank 1) b 3%\033[K\n\033[J\033[A");
  manta__screen_fini(&s);
}

static void a_row_that_is_too_wide_is_cut(void **state)
{
  struct manta__screen s;
  char wide[2048], want[128];
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_TERMINAL);
  memset(wide, 'x', sizeof wide - 1);
  wide[sizeof wide - 1] = 0;
  rows(&s, 0, 2, wide);
  manta__screen_lay(&s);
  const char *got = wrote(2);
  assert_true(strlen(got) < 1024); // whatever the width of the terminal here
  manta__screen_fini(&s);
  snprintf(want, sizeof want, "\033[31m%.20s", wide);
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_TERMINAL);
  rows(&s, 0, 2, want);
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "(rank 0) \033[31mxxxxxxxxxxxxxxxxxxxx\033[0m\033[K");
  manta__screen_fini(&s);
}

static void one_line_moves_in_a_notebook(void **state)
{
  struct manta__screen s;
  make(&s, MANTA_DISPLAY_LINE, MANTA_DISPLAY_LINE);
  rows(&s, 0, 2, "a 10%");
  manta__screen_lay(&s);
  rows(&s, 1, 2, "9%");
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "\r(rank 0) a 10%\r(rank 1) 9%   ");
  lines(&s, 0, 2, "said\n");
  assert_string_equal(wrote(2), "\r           \r(rank 0) said\n");
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "\r(rank 1) 9%");
  assert_string_equal(wrote(1), "");
  manta__screen_fini(&s);
}

// The cursor stays where it was: room below it first, then the rows, then back.
static void a_block_stands_below_the_cursor(void **state)
{
  struct manta__screen s;
  setenv("NO_COLOR", "1", 1);
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_TERMINAL);
  manta__screen_block(&s, "one\ntwo", 7);
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "\033[J\033D\033D\033[2A\0337\033[B\rone\033[B\rtwo\0338");
  manta__screen_lay(&s); // nothing has changed
  assert_string_equal(wrote(2), "");
  lines(&s, 0, 1, "a line\n");
  assert_string_equal(wrote(2), "\033[J");
  assert_string_equal(wrote(1), "(rank 0) a line\n");
  rows(&s, 0, 2, "50%");
  manta__screen_block(&s, "three", 5);
  manta__screen_lay(&s);
  assert_string_equal(wrote(2), "(rank 0) 50%\033[K\033[J\033D\033[1A\0337\033[B\rthree\0338");
  manta__screen_fini(&s);
  assert_string_equal(wrote(2), "\033[J\r\033[J");
}

static void a_block_needs_a_terminal(void **state)
{
  struct manta__screen s;
  make(&s, MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_PLAIN);
  manta__screen_block(&s, "one", 3);
  manta__screen_lay(&s);
  manta__screen_fini(&s);
  assert_string_equal(wrote(1), "");
  assert_string_equal(wrote(2), "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_streams_get_whole_lines),
      cmocka_unit_test(pieces_of_a_line_stay_together),
      cmocka_unit_test(colours_are_for_terminals),
      cmocka_unit_test(a_bar_is_drawn_in_place),
      cmocka_unit_test(every_rank_has_its_own_row),
      cmocka_unit_test(a_row_that_is_too_wide_is_cut),
      cmocka_unit_test(one_line_moves_in_a_notebook),
      cmocka_unit_test(a_block_stands_below_the_cursor),
      cmocka_unit_test(a_block_needs_a_terminal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
