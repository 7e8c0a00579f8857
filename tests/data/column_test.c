/* SPDX-License-Identifier: Apache-2.0
 *
 * Types, schemas, memory, and columns that are built, cut, picked from and joined.
 */
#include "data/column/batch.h"

#include "cells.h"

// --- types --------------------------------------------------------------------------------------

static void types_read_back_from_their_text(void **state)
{
  char text[MANTA__TYPE_TEXT_MAX];
  for (int i = 0; i < CELL_TYPES; i++) {
    struct manta__type t = cell_type(i), again;
    assert_status(manta__type_parse(&again, manta__type_text(&t, text), NULL), MANTA_OK);
    assert_true(manta__type_equal(&t, &again));
  }
  struct manta__type t;
  assert_status(manta__type_parse(&t, "float32[28,28]", NULL), MANTA_OK);
  assert_string_equal(manta__type_text(&t, text), "f32[28,28]");
  assert_int_equal(manta__type_count(&t), 784);
  assert_int_equal(manta__type_width(&t), 3136);
}

static void wrong_types_are_refused(void **state)
{
  static const char *const wrong[] = {"",
                                      "i65",
                                      "f32[",
                                      "f32[]",
                                      "f32[0]",
                                      "f32[-1]",
                                      "f32[3]x",
                                      "f32[3",
                                      "string[3]",
                                      "f32[3,]",
                                      "F32",
                                      "f32[1,1,1,1,1,1,1,1,1]",
                                      "f64[99999999999999999999]"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct manta__type t;
    manta_error err = MANTA_ERROR_INIT;
    assert_status(manta__type_parse(&t, wrong[i], &err), MANTA_EINVAL);
    assert_true(err.message[0]);
  }
}

// --- schemas ------------------------------------------------------------------------------------

static struct manta__schema *schema_of(const char *const *names, int n)
{
  struct manta__schema_field f[16];
  struct manta__schema *s;
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < n; i++)
    f[i] = (struct manta__schema_field){names[i], manta__type_of(MANTA_F64)};
  assert_ok(manta__schema_create(&s, f, n, &err), &err);
  return s;
}

static void a_missing_column_is_told_with_its_neighbours(void **state)
{
  static const char *const names[] = {"age", "wage", "name", "Height", "x0"};
  struct manta__schema *s = schema_of(names, 5);
  manta_error err = MANTA_ERROR_INIT;
  int at;
  assert_status(manta__schema_need(s, "name", &at, &err), MANTA_OK);
  assert_int_equal(at, 2);
  assert_status(manta__schema_need(s, "agee", &at, &err), MANTA_ENOENT);
  assert_has(err.message, "there is no column \"agee\"");
  assert_has(err.message, "nearest names are \"age\", \"wage\"");
  assert_status(manta__schema_need(s, "HEIGHT", &at, &err), MANTA_ENOENT);
  assert_has(err.message, "\"Height\"");
  assert_status(manta__schema_need(s, "zzzzzzzz", &at, &err), MANTA_ENOENT);
  assert_has(err.message, "the columns are \"age\", \"wage\", \"name\"");
  manta__schema_unref(s);
}

static void distances_are_counted_in_edits(void **state)
{
  assert_int_equal(manta__name_distance("kitten", "sitting", 9), 3);
  assert_int_equal(manta__name_distance("", "abc", 9), 3);
  assert_int_equal(manta__name_distance("abc", "abc", 9), 0);
  assert_int_equal(manta__name_distance("abc", "xyz", 1), 2);
}

static void schemas_refuse_what_makes_no_sense(void **state)
{
  struct manta__schema *s;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__schema_field twice[] = {{"a", manta__type_of(MANTA_F32)},
                                        {"b", manta__type_of(MANTA_F32)},
                                        {"a", manta__type_of(MANTA_I8)}};
  assert_status(manta__schema_create(&s, twice, 3, &err), MANTA_EINVAL);
  assert_has(err.message, "two columns \"a\"");
  struct manta__schema_field bad[] = {{"", manta__type_of(MANTA_F32)}};
  assert_status(manta__schema_create(&s, bad, 1, &err), MANTA_EINVAL);
  bad[0].name = "\xff";
  assert_status(manta__schema_create(&s, bad, 1, &err), MANTA_EINVAL);
  assert_has(err.message, "UTF-8");
  bad[0] = (struct manta__schema_field){"x", {.ndim = 1, .dtype = MANTA_F32}};
  assert_status(manta__schema_create(&s, bad, 1, &err), MANTA_EINVAL);
  assert_has(err.message, "column \"x\"");
  FOR_EACH_OOM(manta__schema_create(&s, twice, 2, NULL), manta__schema_unref(s));
}

// --- memory -------------------------------------------------------------------------------------

static void a_pool_gives_out_what_came_back(void **state)
{
  struct manta__pool *p = manta__pool_create(1000);
  struct manta__memory *a = manta__memory_create(p, 600), *b = manta__memory_create(p, 600);
  assert_int_equal((uintptr_t)a->data % 64, 0);
  assert_int_equal(manta__pool_out(p), 1200);
  void *data = a->data;
  manta__memory_unref(manta__memory_ref(a));
  manta__memory_unref(a);
  manta__memory_unref(b); // over the limit: freed
  assert_int_equal(manta__pool_out(p), 0);
  a = manta__memory_create(p, 500);
  assert_ptr_equal(a->data, data);
  b = manta__memory_create(p, 100);
  manta__pool_close(p);
  manta__memory_unref(a); // the pool is gone with the last of them: the leak check sees to it
  manta__memory_unref(b);
}

static int released;

static void count_release(void *ctx)
{
  released += *(int *)ctx;
}

static void foreign_memory_is_released_once(void **state)
{
  int one = 1;
  struct manta__memory *m = manta__memory_foreign(count_release, &one);
  released = 0;
  manta__memory_ref(m);
  manta__memory_unref(m);
  assert_int_equal(released, 0);
  manta__memory_unref(m);
  assert_int_equal(released, 1);
}

// --- bits ---------------------------------------------------------------------------------------

static void bits_are_those_of_the_plain_loop(void **state)
{
  uint64_t seed = 1;
  for (int round = 0; round < 2000; round++) {
    uint8_t from[40], to[40], want[40];
    for (int i = 0; i < 40; i++) {
      from[i] = (uint8_t)cells_random(&seed);
      to[i] = want[i] = (uint8_t)cells_random(&seed);
    }
    int64_t n = (int64_t)(cells_random(&seed) % 200), f = (int64_t)(cells_random(&seed) % 100),
            t = (int64_t)(cells_random(&seed) % 100), count = 0;
    for (int64_t i = 0; i < n; i++) {
      manta__bit_set(want, t + i, manta__bit_get(from, f + i));
      count += manta__bit_get(from, f + i);
    }
    assert_int_equal(manta__bits_count(from, f, n), count);
    manta__bits_copy(to, t, from, f, n);
    assert_memory_equal(to, want, 40);
    manta__bits_fill(to, t, n, round & 1);
    assert_int_equal(manta__bits_count(to, t, n), round & 1 ? n : 0);
    manta__bits_copy(to, t, want, t, n);
    assert_memory_equal(to, want, 40); // nothing beside them was touched
  }
}

// --- building -----------------------------------------------------------------------------------

static void nulls_read_as_nan_or_zero(void **state)
{
  static const struct {
    const char *type;
    uint64_t bits;
  } cases[] = {{"f64", 0x7ff8000000000000},
               {"f32", 0x7fc00000},
               {"f16", 0x7e00},
               {"bf16", 0x7fc0},
               {"i64", 0},
               {"u8", 0},
               {"f32[2]", 0x7fc000007fc00000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct manta__type t;
    struct manta__build b;
    struct manta__column c;
    uint64_t ones = ~UINT64_C(0), got = 0;
    assert_status(manta__type_parse(&t, cases[i].type, NULL), MANTA_OK);
    assert_status(manta__build_begin(&b, &t, 3, 0, NULL, NULL), MANTA_OK);
    manta__build_number(&b, &ones);
    assert_null(b.mem[MANTA__VALID]); // no bitmap before the first null
    assert_status(manta__build_null(&b, NULL), MANTA_OK);
    manta__build_number(&b, &ones);
    manta__build_finish(&b, &c);
    assert_int_equal(manta__column_nulls(&c), 1);
    assert_false(manta__column_is_null(&c, 0));
    assert_true(manta__column_is_null(&c, 1));
    assert_false(manta__column_is_null(&c, 2));
    memcpy(&got, manta__column_at(&c, 1), manta__type_width(&t));
    assert_true(got == cases[i].bits);
    manta__column_fini(&c);
  }
}

static void kernels_write_rows_and_count_their_nulls(void **state)
{
  struct manta__type t = manta__type_of(MANTA_I32);
  struct manta__build b;
  struct manta__column c;
  assert_status(manta__build_begin(&b, &t, 30, 0, NULL, NULL), MANTA_OK);
  for (int part = 0; part < 3; part++) {
    int32_t *out = manta__build_data(&b);
    for (int i = 0; i < 10; i++)
      out[i] = part * 10 + i;
    uint32_t nulls[] = {2, 9};
    assert_status(manta__build_valid(&b, 10, nulls, part == 1 ? 2 : 0, NULL), MANTA_OK);
  }
  manta__build_finish(&b, &c);
  assert_int_equal(c.length, 30);
  assert_int_equal(manta__column_nulls(&c), 2);
  for (int i = 0; i < 30; i++) {
    bool null = i == 12 || i == 19;
    assert_int_equal(manta__column_is_null(&c, i), null);
    assert_int_equal(*(const int32_t *)manta__column_at(&c, i), null ? 0 : i);
  }
  manta__column_fini(&c);
}

static void text_has_a_limit(void **state)
{
  struct manta__type t = manta__type_kind(MANTA_KIND_BYTES);
  struct manta__build b;
  char kb[1024] = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__build_begin(&b, &t, 100, 20 << 10, NULL, NULL), MANTA_OK);
  for (int i = 0; i < 20; i++)
    assert_ok(manta__build_text(&b, kb, sizeof kb, &err), &err);
  assert_status(manta__build_text(&b, kb, 1, &err), MANTA_ETOOBIG);
  assert_ok(manta__build_text(&b, kb, 0, &err), &err);
  assert_int_equal(b.rows, 21);
  manta__build_fini(&b);
  manta__build_fini(&b);
}

// --- cutting, picking, joining ------------------------------------------------------------------

static void slices_show_the_same_values(void **state)
{
  uint64_t seed = 2;
  for (int which = 0; which < CELL_TYPES; which++) {
    struct manta__type t = cell_type(which);
    struct manta__column whole, part;
    cells_make(&whole, &t, 100, 5, &seed);
    manta__column_copy(&part, &whole);
    manta__column_slice(&part, 13, 60);
    manta__column_slice(&part, 7, 50);
    assert_int_equal(part.length, 50);
    int64_t nulls = 0;
    for (int64_t i = 0; i < 50; i++) {
      assert_same_cell(&whole, 20 + i, &part, i);
      nulls += manta__column_is_null(&whole, 20 + i);
    }
    assert_int_equal(manta__column_nulls(&part), nulls);
    manta__column_fini(&whole);
    assert_int_equal(manta__column_nulls(&part), nulls); // it holds its buffers itself
    manta__column_fini(&part);
  }
}

static void picked_rows_are_the_rows(void **state)
{
  uint64_t seed = 3;
  for (int which = 0; which < CELL_TYPES; which++)
    for (int nulls = 0; nulls <= 4; nulls += 4) {
      struct manta__type t = cell_type(which);
      struct manta__column whole, got = {0};
      uint32_t rows[70];
      cells_make(&whole, &t, 100, nulls, &seed);
      manta__column_slice(&whole, 5, 90);
      for (int i = 0; i < 70; i++)
        rows[i] = (uint32_t)(cells_random(&seed) % 90);
      assert_status(manta__column_take(&got, &whole, rows, 70, NULL, NULL), MANTA_OK);
      assert_int_equal(got.length, 70);
      for (int i = 0; i < 70; i++)
        assert_same_cell(&got, i, &whole, rows[i]);
      manta__column_fini(&got);
      assert_status(manta__column_take(&got, &whole, rows, 0, NULL, NULL), MANTA_OK);
      assert_int_equal(got.length, 0);
      manta__column_fini(&got);
      FOR_EACH_OOM(manta__column_take(&got, &whole, rows, 70, NULL, NULL),
                   manta__column_fini(&got));
      manta__column_fini(&whole);
    }
}

static void joined_columns_follow_each_other(void **state)
{
  uint64_t seed = 4;
  for (int which = 0; which < CELL_TYPES; which++) {
    struct manta__type t = cell_type(which);
    struct manta__column part[3], got = {0};
    const struct manta__column *parts[] = {&part[0], &part[1], &part[2]};
    cells_make(&part[0], &t, 33, 0, &seed);
    cells_make(&part[1], &t, 50, 3, &seed);
    cells_make(&part[2], &t, 7, 0, &seed);
    manta__column_slice(&part[1], 9, 31);
    assert_status(manta__column_concat(&got, parts, 3, NULL, NULL), MANTA_OK);
    assert_int_equal(got.length, 71);
    for (int64_t k = 0, at = 0; k < 3; k++)
      for (int64_t i = 0; i < part[k].length; i++)
        assert_same_cell(&got, at++, &part[k], i);
    manta__column_fini(&got);
    FOR_EACH_OOM(manta__column_concat(&got, parts, 3, NULL, NULL), manta__column_fini(&got));
    for (int k = 0; k < 3; k++)
      manta__column_fini(&part[k]);
  }
}

static manta_batch *make_batch(int64_t first, int64_t rows, uint64_t *seed)
{
  static const char *const names[] = {"a", "b"};
  struct manta__schema *s = schema_of(names, 2);
  struct manta__type t = manta__type_of(MANTA_F64);
  manta_batch *b;
  assert_status(manta__batch_create(&b, s, rows, NULL), MANTA_OK);
  for (int i = 0; i < 2; i++)
    cells_make(&b->column[i], &t, rows, 4, seed);
  b->first = first;
  manta__schema_unref(s);
  return b;
}

static void batches_remember_where_their_rows_come_from(void **state)
{
  uint64_t seed = 5;
  static const uint32_t rows[] = {1, 4, 5, 19};
  manta_batch *a = make_batch(100, 20, &seed), *b = make_batch(120, 5, &seed), *picked, *all, *cut;
  assert_status(manta__batch_take(&picked, a, rows, 4, NULL, NULL), MANTA_OK);
  assert_int_equal(picked->source_rows, 20);
  for (int i = 0; i < 4; i++)
    assert_int_equal(manta__batch_source(picked, i), 100 + rows[i]);
  const manta_batch *parts[] = {picked, b};
  assert_status(manta__batch_concat(&all, parts, 2, NULL, NULL), MANTA_OK);
  assert_int_equal(all->rows, 9);
  assert_int_equal(all->source_rows, 25);
  assert_int_equal(manta__batch_source(all, 3), 119);
  assert_int_equal(manta__batch_source(all, 4), 120);
  assert_int_equal(manta__batch_source(all, 8), 124);
  assert_same_cell(&all->column[1], 2, &a->column[1], 5);
  assert_status(manta__batch_slice(&cut, all, 3, 4, NULL), MANTA_OK);
  assert_int_equal(manta__batch_source(cut, 1), 120);
  assert_same_cell(&cut->column[0], 0, &a->column[0], 19);
  manta_batch_destroy(cut);
  assert_status(manta__batch_slice(&cut, b, 2, 2, NULL), MANTA_OK);
  assert_int_equal(manta__batch_source(cut, 0), 122);
  manta_batch_destroy(picked);
  FOR_EACH_OOM(manta__batch_take(&picked, a, rows, 4, NULL, NULL), manta_batch_destroy(picked));
  manta_batch_destroy(cut);
  manta_batch_destroy(all);
  manta_batch_destroy(a);
  manta_batch_destroy(b);
}

static void a_batch_shows_its_columns(void **state)
{
  uint64_t seed = 6;
  manta_batch *b = make_batch(0, 20, &seed);
  manta_column c;
  manta_error err = MANTA_ERROR_INIT;
  assert_int_equal(manta_batch_rows(b), 20);
  assert_int_equal(manta_batch_columns(b), 2);
  assert_ok(manta_batch_column_named(b, "b", &c, &err), &err);
  assert_string_equal(c.field.name, "b");
  assert_int_equal(c.field.kind, MANTA_KIND_NUMBER);
  assert_int_equal(c.field.dtype, MANTA_F64);
  assert_int_equal(c.nulls, manta__column_nulls(&b->column[1]));
  assert_ptr_equal(c.data, b->column[1].data);
  assert_status(manta_batch_column(b, 2, &c, &err), MANTA_ENOENT);
  assert_status(manta_batch_column_named(b, "c", &c, &err), MANTA_ENOENT);
  assert_has(err.message, "nearest names are \"a\", \"b\"");
  manta_batch_destroy(b);
  manta_batch_destroy(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(types_read_back_from_their_text),
      cmocka_unit_test(wrong_types_are_refused),
      cmocka_unit_test(a_missing_column_is_told_with_its_neighbours),
      cmocka_unit_test(distances_are_counted_in_edits),
      cmocka_unit_test(schemas_refuse_what_makes_no_sense),
      cmocka_unit_test(a_pool_gives_out_what_came_back),
      cmocka_unit_test(foreign_memory_is_released_once),
      cmocka_unit_test(bits_are_those_of_the_plain_loop),
      cmocka_unit_test(nulls_read_as_nan_or_zero),
      cmocka_unit_test(kernels_write_rows_and_count_their_nulls),
      cmocka_unit_test(text_has_a_limit),
      cmocka_unit_test(slices_show_the_same_values),
      cmocka_unit_test(picked_rows_are_the_rows),
      cmocka_unit_test(joined_columns_follow_each_other),
      cmocka_unit_test(batches_remember_where_their_rows_come_from),
      cmocka_unit_test(a_batch_shows_its_columns),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
