/* SPDX-License-Identifier: Apache-2.0
 *
 * Series of few bins, axes with round ticks, and what becomes of them in files and on a terminal.
 */
#include <math.h>

#include "base/alloc.h"
#include "event/bed.h"
#include "view/plot.h"

static void add(manta__log_writer *w, uint32_t attempt, int rank, int64_t at, double loss)
{
  bed_add(w, MANTA__EV_ROW, ident(attempt, rank, (uint64_t)at),
          MANTA_MAP(MANTA_KV_REAL("loss", loss), MANTA_KV_REAL("val_loss", 2 * loss),
                    MANTA_KV_INT("step<1>", at), MANTA_KV_INT("_training_iteration", at)));
}

static void begin(manta__log_writer *w, uint32_t k)
{
  bed_add(w, MANTA__EV_ATTEMPT, ident(k, -1, 2), MANTA_MAP(MANTA_KV_INT("world", 2)));
}

// --- series --------------------------------------------------------------------------------------

static void a_long_run_has_few_bins(void **state)
{
  struct bed *b = *state;
  struct manta__run_series s;
  manta_error err = MANTA_ERROR_INIT;
  manta__log_writer *w = bed_writer(b, true);
  begin(w, 0);
  for (int i = 1; i <= 10000; i++)
    add(w, 0, 0, i, i == 7777 ? 99 : 1);
  manta__log_writer_close(w);
  assert_ok(manta__run_series_read(&s, b->dir, 0, &err), &err);
  const struct manta__plot_series *one = manta__run_series_find(&s, "loss");
  assert_non_null(one);
  assert_true(one->count <= MANTA__BINS && one->count > MANTA__BINS / 4);
  int64_t rows = 0, at = 0;
  double most = 0;
  for (size_t i = 0; i < one->count; i++) {
    assert_true(one->bins[i].first > at && one->bins[i].last >= one->bins[i].first);
    at = one->bins[i].last;
    rows += one->bins[i].count;
    most = fmax(most, one->bins[i].most);
  }
  assert_int_equal(rows, 10000); // none is lost, and no peak is
  assert_near(most, 99, 0);
  manta__run_series_fini(&s);
}

static void void_rows_are_not_drawn(void **state)
{
  struct bed *b = *state;
  struct manta__run_series s;
  manta_error err = MANTA_ERROR_INIT;
  manta__log_writer *w = bed_writer(b, true);
  begin(w, 0);
  for (int i = 1; i <= 6; i++)
    add(w, 0, 0, i, 1);
  bed_add(w, MANTA__EV_REWIND, ident(1, -1, 3), MANTA_MAP(MANTA_KV_INT("to", 4)));
  begin(w, 1);
  add(w, 0, 0, 7, 50); // late, of the attempt before
  for (int i = 5; i <= 8; i++)
    add(w, 1, 0, i, 3);
  manta__log_writer_close(w);
  assert_ok(manta__run_series_read(&s, b->dir, 0, &err), &err);
  const struct manta__plot_series *one = manta__run_series_find(&s, "loss");
  assert_int_equal(one->count, 8);
  for (size_t i = 0; i < 8; i++)
    assert_near(manta__bin_mean(&one->bins[i]), i < 4 ? 1 : 3, 0);
  manta__run_series_fini(&s);
}

static void ranks_together_have_a_band(void **state)
{
  struct bed *b = *state;
  struct manta__run_series s;
  manta_error err = MANTA_ERROR_INIT;
  manta__log_writer *w = bed_writer(b, true);
  begin(w, 0);
  for (int i = 1; i <= 3; i++)
    add(w, 0, 0, i, 1);
  for (int i = 1; i <= 3; i++)
    add(w, 0, 1, i, 3);
  manta__log_writer_close(w);
  assert_ok(manta__run_series_read(&s, b->dir, -1, &err), &err);
  const struct manta__plot_series *one = manta__run_series_find(&s, "loss");
  assert_int_equal(one->count, 3);
  for (int i = 0; i < 3; i++) {
    assert_near(manta__bin_mean(&one->bins[i]), 2, 0);
    assert_true(one->bins[i].least == 1 && one->bins[i].most == 3 && one->bins[i].last == i + 1);
  }
  manta__run_series_fini(&s);
}

// --- axes ----------------------------------------------------------------------------------------

static void check_axis(double low, double high, bool log)
{
  struct manta__axis a;
  char before[MANTA__TEXT] = "", label[MANTA__TEXT];
  manta__axis_make(&a, low, high, log, 5, true);
  assert_true(a.low < a.high && a.count >= 2 && a.count <= MANTA__TICKS_MAX);
  for (int i = 0; i < a.count; i++) {
    assert_in_range((int)(100 * manta__axis_place(&a, a.tick[i])), 0, 100);
    manta__axis_label(&a, i, label);
    assert_string_not_equal(label, before);
    assert_true(strlen(label) < 9);
    snprintf(before, sizeof before, "%s", label);
  }
}

static void ticks_are_round_and_differ(void **state)
{
  static const double ranges[][2] = {{0, 1},       {0, 0},       {5, 5},          {-3, 7},
                                     {1e-9, 3e-9}, {1e9, 1e12},  {0.97, 0.99},    {7, -3},
                                     {1, 1000000}, {-1e-5, 0.1}, {123456, 123460}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    for (int log = 0; log < 2; log++)
      check_axis(ranges[i][0], ranges[i][1], log);
  struct manta__axis a;
  char label[MANTA__TEXT];
  manta__axis_make(&a, 0.1, 2.2, false, 5, false);
  assert_int_equal(a.count, 4);
  assert_string_equal(manta__axis_label(&a, 0, label), "0.5");
  manta__axis_make(&a, 0, 40000, false, 4, false);
  assert_string_equal(manta__axis_label(&a, a.count - 1, label), "40k");
  manta__axis_make(&a, 1e-3, 1e3, true, 6, false);
  assert_string_equal(manta__axis_label(&a, 0, label), "0.001");
  assert_near(manta__axis_place(&a, 1), 0.5, 1e-12);
}

// --- plots ---------------------------------------------------------------------------------------

static struct manta__plot *plot_of(struct bed *b, int rows)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__log_writer *w = bed_writer(b, true);
  begin(w, 0);
  for (int i = 1; i <= rows; i++)
    add(w, 0, 0, i, 1.0 / i);
  bed_add(w, MANTA__EV_LOST, ident(0, -1, 3),
          MANTA_MAP(MANTA_KV_INT("rank", 1), MANTA_KV_STR("cause", "killed")));
  manta__log_writer_close(w);
  struct manta__plot *p = manta__calloc(1, sizeof *p);
  p->run_count = 1;
  snprintf(p->names[0], sizeof p->names[0], "%s", "r");
  snprintf(p->title, sizeof p->title, "%s", "a & b");
  assert_ok(manta__run_series_read(&p->runs[0], b->dir, 0, &err), &err);
  return p;
}

static void end_plot(struct manta__plot *p)
{
  manta__plot_fini(p);
  manta__free(p);
}

static void metrics_of_one_word_share_a_panel(void **state)
{
  struct manta__plot *p = plot_of(*state, 30);
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__plot_make(p, NULL, 0, &err), &err);
  assert_int_equal(p->panel_count, 2);
  assert_string_equal(p->panels[0].title, "loss");
  assert_int_equal(p->panels[0].count, 2);
  assert_string_equal(p->panels[0].lines[0].label, "loss, best 0.033333 at 30");
  assert_string_equal(p->panels[1].title, "step<1>");
  end_plot(p);
}

static void a_missing_metric_is_named(void **state)
{
  struct manta__plot *p = plot_of(*state, 3);
  manta_error err = MANTA_ERROR_INIT;
  char *wanted[] = {"loss", "lost"};
  assert_status(manta__plot_make(p, wanted, 2, &err), MANTA_ENOENT);
  assert_non_null(strstr(err.message, "\"lost\""));
  assert_non_null(strstr(err.message, "loss, val_loss, step<1>"));
  end_plot(p);
}

static void svg_is_text_that_is_escaped(void **state)
{
  struct manta__plot *p = plot_of(*state, 30);
  manta_error err = MANTA_ERROR_INIT;
  manta__buf out;
  manta__buf_init(&out, 1u << 20);
  assert_ok(manta__plot_make(p, NULL, 0, &err), &err);
  assert_ok(manta__plot_draw(p, &manta__canvas_svg, &out, &err), &err);
  assert_status(manta__buf_terminate(&out), MANTA_OK);
  const char *svg = (const char *)out.data;
  assert_non_null(strstr(svg, ">a &amp; b</text>"));
  assert_non_null(strstr(svg, ">step&lt;1&gt;</text>"));
  assert_non_null(strstr(svg, ">worker lost</text>"));
  assert_non_null(strstr(svg, ">iteration</text>"));
  assert_null(strstr(svg, "nan"));
  int open = 0, shut = 0;
  for (const char *s = svg; (s = strstr(s, "<g ")); s++)
    open++;
  for (const char *s = svg; (s = strstr(s, "</g>")); s++)
    shut++;
  assert_int_equal(open, 2);
  assert_int_equal(shut, 2);
  manta__buf_fini(&out);
  end_plot(p);
}

static int count_of(const char *text, const char *what)
{
  int n = 0;
  for (const char *s = text; (s = strstr(s, what)); s++)
    n++;
  return n;
}

// Whatever their names are, every line has its entry, and nothing is wider than the picture.
static void every_line_is_in_the_legend(void **state)
{
  static const char *const names[] = {"a_run_whose_name_is_as_long_as_such_names_become_00001",
                                      "a_run_whose_name_is_as_long_as_such_names_become_00002",
                                      "with\033[31m\xc2\x9b\xff"};
  struct manta__plot *p = plot_of(*state, 30);
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  char *wanted[] = {"loss"};
  manta__buf out;
  manta__buf_init(&out, 4u << 20);
  for (size_t i = 0; i < 3; i++) {
    if (i > 0)
      assert_ok(manta__run_series_read(&p->runs[i], b->dir, 0, &err), &err);
    snprintf(p->names[i], sizeof p->names[i], "%s", names[i]);
  }
  p->run_count = 3;
  assert_ok(manta__plot_make(p, wanted, 1, &err), &err);
  assert_ok(manta__plot_draw(p, &manta__canvas_svg, &out, &err), &err);
  assert_status(manta__buf_terminate(&out), MANTA_OK);
  const char *svg = (const char *)out.data;
  assert_int_equal(count_of(svg, "become_00001, best"), 1);
  assert_int_equal(count_of(svg, "become_00002, best"), 1);
  assert_int_equal(count_of(svg, ">with?[31m???, best"), 1);
  assert_int_equal(count_of(svg, ">worker lost<"), 1);
  out.len = 0;
  assert_ok(manta__plot_print(p, 50, 8, false, &out), &err);
  assert_status(manta__buf_terminate(&out), MANTA_OK);
  assert_int_equal(count_of((const char *)out.data, "▬"), 3);
  for (char *line = (char *)out.data, *end; (end = strchr(line, '\n')); line = end + 1) {
    *end = 0;
    assert_in_range(manta__text_columns(line), 0, 50);
  }
  manta__buf_fini(&out);
  end_plot(p);
}

static void iterations_are_whole_numbers(void **state)
{
  struct manta__axis a;
  char label[MANTA__TEXT];
  manta__axis_count(&a, 1, 5, 8);
  assert_int_equal(a.count, 5);
  assert_string_equal(manta__axis_label(&a, 4, label), "5");
  manta__axis_count(&a, 1, 1, 8);
  assert_string_equal(manta__axis_label(&a, 1, label), "1");
  assert_near(manta__axis_place(&a, 1), 0.5, 1e-12);
  manta__axis_count(&a, 1, 1000000, 8);
  assert_string_equal(manta__axis_label(&a, 0, label), "200k");
}

static void texts_are_cut_to_columns(void **state)
{
  char out[64];
  assert_int_equal(manta__text_columns("损失 e\xcc\x81"), 6); // wide ones, and an accent
  assert_string_equal(manta__text_cut(out, sizeof out, "short", 9), "short");
  assert_string_equal(manta__text_cut(out, sizeof out, "abcdefghijklmno", 9), "abcd…lmno");
  assert_string_equal(manta__text_cut(out, sizeof out, "损失损失损失", 7), "损…失");
  assert_string_equal(manta__text_cut(out, sizeof out, "损失损失损失", 8), "损失…失");
}

static void png_has_its_size(void **state)
{
  const struct manta__canvas_kind *png;
  struct manta__plot *p = plot_of(*state, 30);
  manta_error err = MANTA_ERROR_INIT;
  manta__buf out;
  manta__buf_init(&out, 16u << 20);
  assert_ok(manta__plot_make(p, NULL, 0, &err), &err);
  assert_ok(manta__canvas_png(&png, &err), &err);
  assert_ok(manta__plot_draw(p, png, &out, &err), &err);
  assert_true(out.len > 5000);
  assert_memory_equal(out.data, "\x89PNG\r\n\x1a\n", 8);
  assert_memory_equal(out.data + 16, "\0\0\x06\xb8", 4); // 2 x 860 pixels
  manta__buf_fini(&out);
  end_plot(p);
}

static void a_terminal_has_blocks(void **state)
{
  struct manta__plot *p = plot_of(*state, 30);
  manta_error err = MANTA_ERROR_INIT;
  char *wanted[] = {"loss"};
  manta__buf out;
  manta__buf_init(&out, 1u << 20);
  assert_ok(manta__plot_make(p, wanted, 1, &err), &err);
  assert_ok(manta__plot_print(p, 60, 8, false, &out), &err);
  assert_status(manta__buf_terminate(&out), MANTA_OK);
  const char *line = (const char *)out.data;
  int lines = 0;
  for (; *line; lines++) {
    char one[512];
    size_t n = strcspn(line, "\n");
    snprintf(one, sizeof one, "%.*s", (int)n, line);
    if (lines > 0 && lines <= 8)
      assert_int_equal(manta__text_columns(one), 59);
    assert_null(strchr(one, '\033'));
    line += n + 1;
  }
  assert_int_equal(lines, 12);
  assert_non_null(strstr((const char *)out.data, "▀"));
  assert_non_null(strstr((const char *)out.data, "┊")); // the loss
  manta__buf_fini(&out);
  end_plot(p);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_long_run_has_few_bins),
      TEST(void_rows_are_not_drawn),
      TEST(ranks_together_have_a_band),
      cmocka_unit_test(ticks_are_round_and_differ),
      TEST(metrics_of_one_word_share_a_panel),
      TEST(a_missing_metric_is_named),
      TEST(svg_is_text_that_is_escaped),
      TEST(every_line_is_in_the_legend),
      cmocka_unit_test(iterations_are_whole_numbers),
      cmocka_unit_test(texts_are_cut_to_columns),
      TEST(png_has_its_size),
      TEST(a_terminal_has_blocks),
  };
  return cmocka_run_group_tests_name("view_plot", tests, NULL, NULL);
}
