/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets: many files, many readers at once, streams for other libraries, options that make no
 * sense.
 */
#include "cells.h"
#include "data/column/arrow.h"
#include "folder.h"
#include "sys/thread.h"

#define FILES 6
#define ROWS  3000

// DIR/set/part-N.csv: the numbers from 0 on, and their squares.
static const char *make_set(void)
{
  static char path[PATH_MAX];
  char *text = malloc(ROWS * 32);
  snprintf(path, sizeof path, "%s/set", dir);
  mkdir(path, 0700);
  for (int f = 0; f < FILES; f++) {
    char name[32];
    size_t at = (size_t)snprintf(text, 32, "n,square\n");
    for (int i = f * ROWS; i < (f + 1) * ROWS; i++)
      at += (size_t)snprintf(text + at, 32, "%d,%lld\n", i, (long long)i * i);
    snprintf(name, sizeof name, "set/part-%d.csv", f);
    file_write(dir, name, text, at);
  }
  free(text);
  return path;
}

static manta_dataset *open_set(size_t block_bytes)
{
  const char *path = make_set();
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  c.block_bytes = block_bytes;
  c.batch_rows = 500;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  return d;
}

static void a_folder_is_one_data_set(void **state)
{
  manta_dataset *d = open_set(0);
  manta_data_stats s;
  manta_error err = MANTA_ERROR_INIT;
  manta_field f;
  char *got;
  assert_int_equal(manta_dataset_blocks(d), FILES);
  for (int i = 0; i < FILES; i++) {
    char name[32];
    snprintf(name, sizeof name, "part-%d.csv", i);
    assert_has(manta_dataset_block_file(d, i), name);
  }
  assert_null(manta_dataset_block_file(d, FILES));
  assert_null(manta_dataset_block_file(d, -1));
  assert_int_equal(manta_dataset_columns(d), 2);
  assert_ok(manta_dataset_field(d, 1, &f, &err), &err);
  assert_string_equal(f.name, "square");
  assert_status(manta_dataset_field(d, 2, &f, &err), MANTA_ENOENT);
  assert_ok(read_blocks(d, &got, &err), &err);
  assert_has(got, "n:i64|square:i64\n0|0\n1|1\n2|4\n");
  assert_has(got, "\n17999|323964001");
  manta_dataset_stats(d, &s);
  assert_int_equal(s.rows, FILES * ROWS);
  assert_int_equal(s.skipped, 0);
  assert_string_equal(s.first_skip, "");
  manta_free(got);
  manta_dataset_close(d);
  manta_dataset_close(NULL);
}

// --- readers ------------------------------------------------------------------------------------

struct share {
  manta_dataset *dataset;
  _Atomic int64_t *next;
  int64_t rows, sum;
  manta_status st;
};

static void *read_share(void *ctx)
{
  struct share *s = ctx;
  int64_t block, blocks = manta_dataset_blocks(s->dataset);
  while (s->st >= 0 && (block = atomic_fetch_add(s->next, 1)) < blocks) {
    manta_reader *r;
    manta_batch *b;
    s->st = manta_reader_open(&r, s->dataset, block, 1, NULL);
    while (s->st >= 0 && (s->st = manta_reader_next(r, &b, NULL)) == 1) {
      manta_column c;
      s->st = manta_batch_column_named(b, "n", &c, NULL);
      for (int64_t i = 0; s->st >= 0 && i < c.rows; i++)
        s->sum += ((const int64_t *)c.data)[c.offset + i];
      s->rows += manta_batch_rows(b);
      manta_batch_destroy(b);
    }
    manta_reader_close(r);
  }
  return NULL;
}

static void threads_share_a_data_set(void **state)
{
  enum { THREADS = 4 };
  manta_dataset *d = open_set(10000);
  pthread_t thread[THREADS];
  struct share share[THREADS];
  _Atomic int64_t next = 0;
  int64_t rows = 0, sum = 0, n = FILES * ROWS;
  assert_true(manta_dataset_blocks(d) > 2 * FILES);
  for (int i = 0; i < THREADS; i++) {
    share[i] = (struct share){.dataset = d, .next = &next};
    assert_int_equal(manta__thread_start(&thread[i], "reader", 1 << 20, read_share, &share[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(thread[i], NULL);
    assert_true(share[i].st >= 0);
    rows += share[i].rows;
    sum += share[i].sum;
  }
  assert_int_equal(rows, n);
  assert_int_equal(sum, n * (n - 1) / 2);
  manta_data_stats s;
  manta_dataset_stats(d, &s);
  assert_int_equal(s.rows, n);
  manta_dataset_close(d);
}

static void readers_outlive_what_they_read(void **state)
{
  manta_dataset *d = open_set(0);
  manta_reader *r;
  manta_batch *b;
  manta_column c;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_reader_open(&r, d, 2, 1, &err), &err);
  manta_dataset_close(d);
  assert_status(manta_reader_next(r, &b, &err), 1);
  manta_reader_close(r);
  assert_ok(manta_batch_column_named(b, "n", &c, &err), &err);
  assert_int_equal(((const int64_t *)c.data)[0], 2 * ROWS);
  manta_batch_destroy(b);
  d = open_set(0);
  assert_status(manta_reader_open(&r, d, 0, FILES + 1, &err), MANTA_EINVAL);
  assert_has(err.message, "the data set has 6");
  assert_status(manta_reader_open(&r, d, -1, 1, &err), MANTA_EINVAL);
  assert_ok(manta_reader_open(&r, d, FILES, 0, &err), &err);
  assert_status(manta_reader_next(r, &b, &err), 0);
  assert_status(manta_reader_next(r, &b, &err), 0);
  manta_reader_close(r);
  manta_reader_close(NULL);
  manta_dataset_close(d);
}

static void a_reader_is_a_stream_of_arrow(void **state)
{
  manta_dataset *d = open_set(0);
  manta_reader *r;
  struct ArrowArrayStream stream;
  struct manta__arrow_stream in;
  manta_batch *b;
  manta_error err = MANTA_ERROR_INIT;
  int64_t rows = 0;
  assert_ok(manta_reader_open(&r, d, 0, FILES, &err), &err);
  assert_ok(manta_reader_export(r, &stream, &err), &err); // takes the reader
  manta_dataset_close(d);
  assert_ok(manta__arrow_stream_open(&in, &stream, &err), &err);
  assert_string_equal(in.schema->field[1].name, "square");
  while (manta__arrow_stream_next(&in, &b, &err) == 1) {
    for (int64_t i = 0; i < b->rows; i++)
      assert_int_equal(((const int64_t *)b->column[0].data)[i], rows + i);
    rows += b->rows;
    manta_batch_destroy(b);
  }
  assert_int_equal(rows, FILES * ROWS);
  manta__arrow_stream_close(&in);
}

// --- options ------------------------------------------------------------------------------------

static void options_that_make_no_sense_are_refused(void **state)
{
  const char *path = file_text(dir, "x.csv", "a\n1\n");
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  static const char *const none[] = {NULL}, *const names[] = {"a"};
  static const struct {
    manta_data_config c;
    const char *says;
  } cases[] = {
      {{.compression = "lzma"}, "there is no compression \"lzma\""},
      {{.separator = '\n'}, "separator and quote"},
      {{.separator = '"'}, "separator and quote"},
      {{.quote = '\r'}, "separator and quote"},
      {{.batch_rows = -1}, "batch_rows"},
      {{.row_bytes = (size_t)1 << 40}, "row_bytes"},
      {{.names = names, .name_count = 1}, "no_header"},
      {{.columns = none, .column_count = 1}, "columns: number 1 of 1 is NULL"},
      {{.format = "excel"}, "there is no format \"excel\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    manta_data_config c = cases[i].c;
    c.size = sizeof c;
    assert_status(manta_dataset_open(&d, &path, 1, &c, &err), MANTA_EINVAL);
    assert_has(err.message, cases[i].says);
  }
  // a program that was built with fewer options
  manta_data_config old = {.size = offsetof(manta_data_config, separator), .separator = '\n'};
  assert_ok(manta_dataset_open(&d, &path, 1, &old, &err), &err);
  manta_dataset_close(d);
}

static void small_batches_hold_few_rows(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  const char *path = make_set();
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  manta_reader *r;
  manta_batch *b;
  int64_t rows = 0;
  c.batch_bytes = 2000;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_ok(manta_reader_open(&r, d, 0, 1, &err), &err);
  while (manta_reader_next(r, &b, &err) == 1) {
    assert_in_range(manta_batch_rows(b), 1, 100);
    rows += manta_batch_rows(b);
    manta_batch_destroy(b);
  }
  assert_int_equal(rows, ROWS);
  manta_reader_close(r);
  manta_dataset_close(d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_folder_is_one_data_set),
      cmocka_unit_test(threads_share_a_data_set),
      cmocka_unit_test(readers_outlive_what_they_read),
      cmocka_unit_test(a_reader_is_a_stream_of_arrow),
      cmocka_unit_test(options_that_make_no_sense_are_refused),
      cmocka_unit_test(small_batches_hold_few_rows),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
