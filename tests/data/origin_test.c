/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are in no file: of an Arrow stream, of streams that are opened block by block, numbers;
 * parts of a data set; and batches as matrices.
 */
#include "data/plan/pack.h"

#include <math.h>

#include "base/alloc.h"
#include "folder.h"
#include "numbered.h"

static int64_t count(manta_dataset *d)
{
  manta_error err = MANTA_ERROR_INIT;
  int64_t rows = -1;
  assert_ok(manta_dataset_count(d, &rows, &err), &err);
  return rows;
}

static struct ArrowArrayStream stream_of(manta_dataset *d, int64_t first, int64_t blocks)
{
  manta_error err = MANTA_ERROR_INIT;
  struct ArrowArrayStream s;
  manta_reader *r;
  assert_ok(manta_reader_open(&r, d, first, blocks, &err), &err);
  assert_ok(manta_reader_export(r, &s, &err), &err);
  return s;
}

// --- memory -------------------------------------------------------------------------------------

#define PEOPLE "name,age\nAda,36\nBob,\nEve,29\n"
#define READ   "name:string|age:i64\n'Ada'|36\n'Bob'|null\n'Eve'|29"

static void a_stream_is_held_in_memory(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *from = open_text("people.csv", PEOPLE), *d;
  struct ArrowArrayStream s = stream_of(from, 0, manta_dataset_blocks(from));
  assert_ok(manta_dataset_import(&d, &s, &err), &err);
  assert_null(s.release);
  manta_dataset_close(from);
  unlink(file_text(dir, "people.csv", "gone")); // nobody reads it any more
  assert_is(d, READ);
  d = with_filter(d, "[\">\", [\"col\", \"age\"], 30]");
  assert_is(d, "name:string|age:i64\n'Ada'|36");
  manta_dataset_close(d);
}

static void large_batches_become_blocks(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *numbers, *d, *again;
  assert_ok(manta_dataset_range(&numbers, "id", 200000, NULL, 0, &err), &err);
  struct ArrowArrayStream s = stream_of(numbers, 0, manta_dataset_blocks(numbers));
  assert_ok(manta_dataset_import(&d, &s, &err), &err);
  assert_int_equal(manta_dataset_blocks(d), 4);
  assert_int_equal(count(d), 200000);
  assert_string_equal(manta_dataset_block_file(d, 3), "memory");
  s = stream_of(d, 1, 2);
  assert_ok(manta_dataset_import(&again, &s, &err), &err);
  again = with_filter(again, "[\"<\", [\"col\", \"id\"], 65538]");
  assert_is(again, "id:i64\n65536\n65537");
  manta_dataset_close(again);
  manta_dataset_close(d);
  manta_dataset_close(numbers);
}

// --- numbers ------------------------------------------------------------------------------------

static void ranges_are_made_when_they_are_read(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  int64_t shape[] = {2, 1};
  assert_ok(manta_dataset_range(&d, "id", 3, NULL, 0, &err), &err);
  assert_is(d, "id:i64\n0\n1\n2");
  manta_dataset_close(d);
  assert_ok(manta_dataset_range(&d, "data", 2, shape, 2, &err), &err);
  assert_is(d, "data:i64[2,1]\n0 0\n1 1");
  manta_dataset_close(d);
  assert_ok(manta_dataset_range(&d, "id", (int64_t)1 << 40, NULL, 0, &err), &err);
  assert_int_equal(manta_dataset_blocks(d), 1 << 24);
  manta_dataset_close(d);
  assert_status(manta_dataset_range(&d, "id", -1, NULL, 0, &err), MANTA_EINVAL);
}

// --- streams ------------------------------------------------------------------------------------

struct opened {
  manta_dataset *from;
  int opened, closed;
  bool wanted[2]; /* of the last block */
  bool fails;
};

static manta_status open_block(void *ctx, int64_t block, const bool *wanted,
                               struct ArrowArrayStream *out, manta_error *err)
{
  struct opened *o = ctx;
  const char *names[2];
  size_t n = 0;
  manta_dataset *d;
  o->opened++;
  if (o->fails)
    return manta_error_set(err, MANTA_EIO, "block %d is gone", (int)block);
  for (int i = 0; i < 2; i++) {
    o->wanted[i] = wanted[i];
    if (wanted[i])
      names[n++] = i ? "age" : "name";
  }
  MANTA_TRY(manta_dataset_select(&d, o->from, names, n, err));
  *out = stream_of(d, block, 1);
  manta_dataset_close(d);
  return MANTA_OK;
}

static void close_blocks(void *ctx)
{
  ((struct opened *)ctx)->closed++;
}

static manta_dataset *open_streams(struct opened *o)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_stream_config c = MANTA_STREAM_CONFIG_INIT;
  struct ArrowSchema schema;
  manta_dataset *d;
  c.name = "people";
  c.blocks = manta_dataset_blocks(o->from);
  c.ctx = o;
  c.open = open_block;
  c.close = close_blocks;
  assert_ok(manta_dataset_schema(o->from, &schema, &err), &err);
  assert_ok(manta_dataset_streams(&d, &schema, &c, &err), &err);
  schema.release(&schema);
  return d;
}

static void streams_are_opened_when_rows_are_read(void **state)
{
  struct opened o = {.from = open_text("people.csv", PEOPLE)};
  manta_dataset *d = open_streams(&o);
  assert_int_equal(o.opened, 0);
  assert_is(d, READ);
  const char *age = "age";
  STEP(d, manta_dataset_select(&step_out, d, &age, 1, &step_err));
  assert_is(d, "age:i64\n36\nnull\n29");
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_ok(read_blocks(d, &got, &err), &err);
  manta_free(got);
  assert_false(o.wanted[0]);
  assert_true(o.wanted[1]);
  d = with_filter(d, "[\">\", [\"col\", \"age\"], 30]");
  assert_is(d, "age:i64\n36");
  o.fails = true;
  assert_status(read_blocks(d, &got, &err), MANTA_EIO);
  assert_string_equal(err.message, "block 0 is gone");
  assert_int_equal(o.closed, 0);
  manta_dataset_close(d);
  assert_int_equal(o.closed, 1);
  manta_dataset_close(o.from);
}

// --- parts --------------------------------------------------------------------------------------

static manta_dataset *part_of(manta_dataset *d, int64_t from, int64_t to, int64_t of, bool shuffle)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_part_config c = MANTA_PART_CONFIG_INIT;
  manta_dataset *part;
  c.from = from;
  c.to = to;
  c.of = of;
  c.shuffle = shuffle;
  c.seed = 7;
  assert_ok(manta_dataset_part(&part, d, &c, &err), &err);
  return part;
}

static void add_numbers(manta_dataset *d, int *seen)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_reader *r;
  manta_batch *b;
  manta_column c;
  assert_ok(manta_reader_open(&r, d, 0, manta_dataset_blocks(d), &err), &err);
  while (manta_reader_next(r, &b, &err) == 1) {
    assert_ok(manta_batch_column_named(b, "n", &c, &err), &err);
    for (int64_t i = 0; i < c.rows; i++)
      seen[((const int64_t *)c.data)[c.offset + i]]++;
    manta_batch_destroy(b);
  }
  manta_reader_close(r);
}

static void parts_have_each_row_once(void **state)
{
  manta_dataset *d = with_filter(numbered_open(dir, "parts", 3, 100, 1000),
                                 "[\"!=\", [\"%\", [\"col\", \"n\"], 5], 0]");
  for (int shuffle = 0; shuffle < 2; shuffle++) {
    int seen[310] = {0};
    int64_t rows = 0;
    for (int i = 0; i < 7; i++) {
      manta_dataset *p = part_of(d, i, i + 1, 7, shuffle);
      int64_t n = count(p);
      assert_true(n == 248 / 7 || n == 248 / 7 + 1);
      rows += n;
      add_numbers(p, seen);
      manta_dataset_close(p);
    }
    assert_int_equal(rows, 248);
    for (int n = 0; n < 310; n++)
      assert_int_equal(seen[n], n % 5 != 0);
  }
  manta_dataset *p = part_of(d, 2, 2, 7, false);
  assert_int_equal(count(p), 0);
  manta_dataset_close(p);
  manta_part_config wrong = MANTA_PART_CONFIG_INIT;
  wrong.from = 2;
  assert_status(manta_dataset_part(&p, d, &wrong, NULL), MANTA_EINVAL);
  manta_dataset_close(d);
}

static void parts_and_ranges_are_sent(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *numbers, *again;
  manta_value v = {0};
  int64_t shape[] = {2};
  assert_ok(manta_dataset_range(&numbers, "data", 20, shape, 1, &err), &err);
  manta_dataset *part = part_of(numbers, 1, 2, 10, true);
  assert_ok(manta__plan_pack(part, &v, &err), &err);
  assert_ok(manta__plan_unpack(&again, &v, &err), &err);
  char *want, *got;
  assert_ok(read_blocks(part, &want, &err), &err);
  assert_ok(read_blocks(again, &got, &err), &err);
  assert_string_equal(got, want);
  assert_true(again->mark == part->mark && again->mark != numbers->mark);
  manta_free(want);
  manta_free(got);
  manta_value_fini(&v);
  manta_dataset_close(again);
  manta_dataset_close(part);
  manta_dataset_close(numbers);
}

// --- matrices -----------------------------------------------------------------------------------

static manta_batch *first_batch(manta_dataset *d)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_reader *r;
  manta_batch *b;
  assert_ok(manta_reader_open(&r, d, 0, 1, &err), &err);
  assert_status(manta_reader_next(r, &b, &err), 1);
  manta_reader_close(r);
  return b;
}

static void columns_become_a_matrix(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = open_text("m.csv", "a,b,c,d\n1,0.1,x,true\n-2,,y,false\n3,2.5,z,true\n");
  manta_batch *b = first_batch(d);
  int columns[] = {1, 0, 3}, text[] = {2}, none[] = {4};
  float f[9], want[] = {0.1f, 1, 1, NAN, -2, 0, 2.5f, 3, 1};
  assert_ok(manta_batch_matrix(b, columns, 3, MANTA_F32, f, &err), &err);
  for (int i = 0; i < 9; i++)
    assert_true(f[i] == want[i] || (isnan(f[i]) && isnan(want[i])));
  int64_t n[6], whole[] = {0, 1, 0, -2, 2, 3};
  assert_ok(manta_batch_matrix(b, columns, 2, MANTA_I64, n, &err), &err);
  assert_memory_equal(n, whole, sizeof n);
  double r[3], exact[] = {1, -2, 3};
  assert_ok(manta_batch_matrix(b, columns + 1, 1, MANTA_F64, r, &err), &err);
  assert_memory_equal(r, exact, sizeof r);
  assert_status(manta_batch_matrix(b, text, 1, MANTA_F32, f, &err), MANTA_ETYPE);
  assert_non_null(strstr(err.message, "column \"c\" has text"));
  assert_status(manta_batch_matrix(b, none, 1, MANTA_F32, f, &err), MANTA_ENOENT);
  assert_status(manta_batch_matrix(b, columns, 1, MANTA_I8, f, &err), MANTA_EINVAL);
  manta_batch_destroy(b);
  manta_dataset_close(d);
}

// Groups of four columns, tiles and what is left over of both.
static void many_columns_become_a_matrix(void **state)
{
  enum { ROWS = 301, COLUMNS = 10 };
  manta_error err = MANTA_ERROR_INIT;
  char *text = malloc(ROWS * COLUMNS * 16);
  size_t at = (size_t)snprintf(text, 32, "a,b,c,d,e,f,g,h,i,j\n");
  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < COLUMNS; k++) {
      if (i != 7 || k != 5) // one value is missing: its column goes alone
        at += (size_t)snprintf(text + at, 16, "%d.%d", i, k);
      at += (size_t)snprintf(text + at, 2, k == COLUMNS - 1 ? "\n" : ",");
    }
  manta_dataset *d = open_text("many.csv", text);
  manta_batch *b = first_batch(d);
  int columns[COLUMNS];
  float *f = malloc(ROWS * COLUMNS * sizeof *f);
  for (int k = 0; k < COLUMNS; k++)
    columns[k] = COLUMNS - 1 - k;
  assert_ok(manta_batch_matrix(b, columns, COLUMNS, MANTA_F32, f, &err), &err);
  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < COLUMNS; k++) {
      float got = f[i * COLUMNS + COLUMNS - 1 - k];
      assert_true(i == 7 && k == 5 ? isnan(got) : got == (float)(i + k / 10.0));
    }
  free(f);
  free(text);
  manta_batch_destroy(b);
  manta_dataset_close(d);
}

static void tensors_go_into_a_matrix(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  int64_t shape[] = {3};
  int columns[] = {0, 0};
  assert_ok(manta_dataset_range(&d, "data", 300, shape, 1, &err), &err);
  manta_batch *b = first_batch(d);
  int64_t copy[900];
  float *wide = malloc(300 * 6 * sizeof *wide);
  assert_ok(manta_batch_matrix(b, columns, 1, MANTA_I64, copy, &err), &err);
  assert_ok(manta_batch_matrix(b, columns, 2, MANTA_F32, wide, &err), &err);
  for (int i = 0; i < 300; i++) {
    assert_int_equal(copy[3 * i + 2], i);
    assert_true(wide[6 * i] == (float)i && wide[6 * i + 5] == (float)i);
  }
  free(wide);
  manta_batch_destroy(b);
  manta_dataset_close(d);
}

// --- without memory -----------------------------------------------------------------------------

// One column of the data set; memory may run out here as well.
static manta_status open_starved(void *ctx, int64_t block, const bool *wanted,
                                 struct ArrowArrayStream *out, manta_error *err)
{
  manta_reader *r;
  MANTA_TRY(manta_reader_open(&r, ((struct opened *)ctx)->from, block, 1, err));
  manta_status st = manta_reader_export(r, out, err);
  if (st < 0)
    manta_reader_close(r);
  return st;
}

// Numbers, held in memory, streamed once more, and a part of them.
static manta_status make_and_count(struct opened *o, int64_t *rows, manta_error *err)
{
  manta_dataset *numbers = NULL, *held = NULL, *streams = NULL, *part = NULL;
  struct ArrowArrayStream s;
  struct ArrowSchema schema = {0};
  manta_stream_config c = MANTA_STREAM_CONFIG_INIT;
  manta_part_config half = MANTA_PART_CONFIG_INIT;
  manta_reader *r = NULL;
  manta_status st = manta_dataset_range(&numbers, "name", 10, NULL, 0, err);
  half.of = 2;
  c.ctx = o;
  c.open = open_starved;
  c.blocks = 1;
  if (st == MANTA_OK)
    st = manta_reader_open(&r, numbers, 0, 1, err);
  if (st == MANTA_OK && (st = manta_reader_export(r, &s, err)) < 0)
    manta_reader_close(r);
  if (st == MANTA_OK)
    st = manta_dataset_import(&held, &s, err);
  if (st == MANTA_OK)
    st = manta_dataset_schema(held, &schema, err);
  if (st == MANTA_OK)
    st = manta_dataset_streams(&streams, &schema, &c, err);
  if (st == MANTA_OK)
    st = manta_dataset_part(&part, streams, &half, err);
  o->from = held;
  if (st == MANTA_OK)
    st = manta_dataset_count(part, rows, err);
  if (schema.release)
    schema.release(&schema);
  manta_dataset_close(part);
  manta_dataset_close(streams);
  manta_dataset_close(held);
  manta_dataset_close(numbers);
  return st;
}

static void every_origin_survives_without_memory(void **state)
{
  struct opened o = {0};
  int64_t rows = 0;
  int failed = 0;
  manta_status st;
  do {
    manta__alloc_fail_after(failed);
    st = make_and_count(&o, &rows, NULL);
    manta__alloc_fail_after(-1);
    failed += st < 0;
  } while (st == MANTA_ENOMEM || st == MANTA_EIO); // a stream that fails is an I/O error
  assert_int_equal(st, MANTA_OK);
  assert_int_equal(rows, 5);
  assert_true(failed > 40);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stream_is_held_in_memory),
      cmocka_unit_test(large_batches_become_blocks),
      cmocka_unit_test(ranges_are_made_when_they_are_read),
      cmocka_unit_test(streams_are_opened_when_rows_are_read),
      cmocka_unit_test(parts_have_each_row_once),
      cmocka_unit_test(parts_and_ranges_are_sent),
      cmocka_unit_test(columns_become_a_matrix),
      cmocka_unit_test(many_columns_become_a_matrix),
      cmocka_unit_test(tensors_go_into_a_matrix),
      cmocka_unit_test(every_origin_survives_without_memory),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
