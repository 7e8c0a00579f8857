/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches through Arrow's C data interface and back, and arrays of others: with other layouts than
 * ours, and with wrong statements about themselves.
 */
#include "data/column/arrow.h"

#include <errno.h>

#include "cells.h"

// --- ours and back ------------------------------------------------------------------------------

// Every type, from row 3 on of what was made.
static manta_batch *make_batch(int64_t rows, int nulls, uint64_t seed)
{
  struct manta__schema_field f[CELL_TYPES];
  char names[CELL_TYPES][8];
  struct manta__schema *s;
  manta_batch *b;
  for (int i = 0; i < CELL_TYPES; i++) {
    snprintf(names[i], sizeof names[i], "c%d", i);
    f[i] = (struct manta__schema_field){names[i], cell_type(i)};
  }
  assert_status(manta__schema_create(&s, f, CELL_TYPES, NULL), MANTA_OK);
  assert_status(manta__batch_create(&b, s, rows, NULL), MANTA_OK);
  for (int i = 0; i < CELL_TYPES; i++) {
    cells_make(&b->column[i], &f[i].type, rows + 3, nulls, &seed);
    manta__column_slice(&b->column[i], 3, rows);
  }
  manta__schema_unref(s);
  return b;
}

static void assert_same_batch(const manta_batch *a, const manta_batch *b)
{
  assert_int_equal(a->rows, b->rows);
  assert_true(manta__schema_equal(a->schema, b->schema));
  for (int c = 0; c < a->schema->count; c++)
    for (int64_t i = 0; i < a->rows; i++)
      assert_same_cell(&a->column[c], i, &b->column[c], i);
}

static void what_is_exported_is_imported_without_a_copy(void **state)
{
  for (int nulls = 0; nulls <= 3; nulls += 3) {
    manta_batch *b = make_batch(50, nulls, 7), *again;
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct manta__schema *ours;
    manta_error err = MANTA_ERROR_INIT;
    assert_ok(manta_batch_export(b, &schema, &array, &err), &err);
    assert_ok(manta__arrow_import_schema(&schema, &ours, &err), &err);
    assert_ok(manta__arrow_import(&again, &array, &schema, ours, NULL, &err), &err);
    assert_null(array.release);
    assert_same_batch(b, again);
    for (int c = 0; c < b->schema->count; c++)
      assert_ptr_equal(b->column[c].data, again->column[c].data);
    manta_batch_destroy(b); // the buffers live on
    assert_int_equal(manta_batch_rows(again), 50);
    b = make_batch(50, nulls, 7);
    assert_same_batch(b, again);
    schema.release(&schema);
    manta__schema_unref(ours);
    manta_batch_destroy(again);
    manta_batch_destroy(b);
  }
}

static void arrays_say_what_the_specification_wants(void **state)
{
  static const char *const formats[CELL_TYPES] = {"b", "c", "C", "s", "S", "i", "I",    "l",   "L",
                                                  "e", "f", "S", "g", "u", "z", "+w:3", "+w:4"};
  manta_batch *b = make_batch(10, 2, 8);
  struct ArrowSchema schema;
  struct ArrowArray array;
  assert_status(manta_batch_export(b, &schema, &array, NULL), MANTA_OK);
  assert_string_equal(schema.format, "+s");
  assert_int_equal(array.n_buffers, 1);
  assert_null(array.buffers[0]);
  for (int c = 0; c < CELL_TYPES; c++) {
    struct ArrowArray *a = array.children[c];
    assert_string_equal(schema.children[c]->format, formats[c]);
    assert_int_equal(schema.children[c]->flags, ARROW_FLAG_NULLABLE);
    assert_int_equal(a->length, 10);
    assert_int_equal(a->offset, 3);
    assert_int_equal(a->null_count, manta__column_nulls(&b->column[c]));
    assert_int_equal(a->n_buffers, formats[c][0] == '+'                         ? 1
                                   : formats[c][0] == 'u' || *formats[c] == 'z' ? 3
                                                                                : 2);
  }
  static const char bf16[] = "\1\0\0\0\24\0\0\0ARROW:extension:name\12\0\0\0manta.bf16";
  assert_memory_equal(schema.children[11]->metadata, bf16, sizeof bf16 - 1);
  assert_int_equal(array.children[15]->children[0]->length, 39);
  assert_string_equal(schema.children[15]->children[0]->format, "f");
  assert_null(schema.children[15]->metadata);
  assert_non_null(schema.children[16]->metadata);
  schema.release(&schema);
  array.release(&array);
  assert_null(array.release);
  manta_batch_destroy(b);
}

static void a_child_may_be_moved_out_and_outlive_the_rest(void **state)
{
  manta_batch *b = make_batch(10, 2, 9);
  struct ArrowSchema schema, field;
  struct ArrowArray array, list, item;
  char want[CELL_MAX], got[CELL_MAX];
  assert_status(manta_batch_export(b, &schema, &array, NULL), MANTA_OK);
  list = *array.children[15];
  array.children[15]->release = NULL;
  field = *schema.children[15];
  schema.children[15]->release = NULL;
  array.release(&array);
  schema.release(&schema);
  item = *list.children[0];
  list.children[0]->release = NULL;
  list.release(&list);
  snprintf(want, sizeof want, "%s", cell(&b->column[15], 9, got));
  manta_batch_destroy(b);
  for (int k = 0; k < 12; k++)
    snprintf(got + 2 * k, 3, "%02x", ((const uint8_t *)item.buffers[1])[12 * 12 + k]);
  assert_true(!strcmp(want, "null") || !strcmp(want, got));
  item.release(&item);
  field.release(&field);
}

static void every_allocation_of_an_export_may_fail(void **state)
{
  manta_batch *b = make_batch(10, 2, 10), *again;
  struct ArrowSchema schema;
  struct ArrowArray array;
  struct manta__schema *ours;
  FOR_EACH_OOM(manta_batch_export(b, &schema, &array, NULL), (void)0);
  FOR_EACH_OOM(manta__arrow_import_schema(&schema, &ours, NULL), (void)0);
  FOR_EACH_OOM(manta__arrow_import(&again, &array, &schema, ours, NULL, NULL), (void)0);
  assert_same_batch(b, again);
  manta_batch_destroy(again);
  manta__schema_unref(ours);
  schema.release(&schema);
  manta_batch_destroy(b);
}

// --- arrays of others ---------------------------------------------------------------------------

static int released;

static void release_toy(struct ArrowArray *a)
{
  released++;
  a->release = NULL;
}

static void release_toy_schema(struct ArrowSchema *s)
{
  s->release = NULL;
}

// One array, alone: the fields that a case needs are set by it.
struct toy {
  struct ArrowArray array, child, dictionary;
  struct ArrowSchema schema, child_schema, dictionary_schema;
  struct ArrowArray *children[1];
  struct ArrowSchema *child_schemas[1];
  const void *buffers[8], *child_buffers[8], *dictionary_buffers[8];
};

static struct toy *toy(const char *format, int64_t length, int64_t buffers)
{
  static struct toy t;
  t = (struct toy){0};
  t.children[0] = &t.child;
  t.child_schemas[0] = &t.child_schema;
  t.array = (struct ArrowArray){
      .length = length, .n_buffers = buffers, .buffers = t.buffers, .release = release_toy};
  t.child.buffers = t.child_buffers;
  t.dictionary.buffers = t.dictionary_buffers;
  t.schema = (struct ArrowSchema){.format = format, .name = "x", .release = release_toy_schema};
  released = 0;
  return &t;
}

static manta_status import(struct toy *t, manta_batch **out, manta_error *err)
{
  struct manta__schema *ours;
  MANTA_TRY(manta__arrow_import_schema(&t->schema, &ours, err));
  manta_status st = manta__arrow_import(out, &t->array, &t->schema, ours, NULL, err);
  manta__schema_unref(ours);
  return st;
}

static void assert_cells(const manta_batch *b, const char *const *want, int n)
{
  char got[CELL_MAX];
  assert_int_equal(b->rows, n);
  for (int i = 0; i < n; i++)
    assert_string_equal(cell(&b->column[0], i, got), want[i]);
}

// Imports, compares, destroys, and sees that the array was released once: at the end, or at once if
// all of it had to be copied.
static void assert_import(struct toy *t, bool copied, const char *const *want, int n)
{
  manta_batch *b;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(import(t, &b, &err), &err);
  assert_string_equal(b->schema->field[0].name, "x");
  assert_cells(b, want, n);
  assert_int_equal(released, copied);
  manta_batch_destroy(b);
  assert_int_equal(released, 1);
}

static void large_strings_come_in(void **state)
{
  static const int64_t offsets[] = {5, 5, 8, 8, 11};
  static const uint8_t valid[] = {0x0b};
  static const char *const want[] = {"text:", "text:abc", "null", "text:def"};
  struct toy *t = toy("U", 4, 3);
  t->buffers[0] = valid;
  t->buffers[1] = offsets;
  t->buffers[2] = "-----abcdef";
  t->array.null_count = -1;
  assert_import(t, false, want, 4);
  t = toy("Z", 2, 3);
  t->array.offset = 2;
  t->array.null_count = 1;
  t->buffers[0] = valid;
  t->buffers[1] = offsets;
  t->buffers[2] = "-----abcdef";
  assert_import(t, false, want + 2, 2);
}

static void string_views_come_in(void **state)
{
  static const char text[] = "....a longer string than twelve";
  struct {
    int32_t size;
    char inside[12];
  } views[4] = {{3, "abc"},
                {27, ""},
                {12, {'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b'}},
                {0, ""}};
  int32_t where[] = {0, 4};
  int64_t sizes[] = {sizeof text - 1};
  static const uint8_t valid[] = {0x07};
  static const char *const want[] = {"text:abc", "text:a longer string than twelve",
                                     "text:0123456789ab", "null"};
  memcpy(views[1].inside + 4, where, 8);
  struct toy *t = toy("vu", 4, 4);
  t->array.null_count = 1;
  t->buffers[0] = valid;
  t->buffers[1] = views;
  t->buffers[2] = text;
  t->buffers[3] = sizes;
  assert_import(t, true, want, 4);
  for (int wrong = 0; wrong < 3; wrong++) {
    manta_batch *b;
    where[0] = wrong == 0 ? 1 : wrong == 1 ? -1 : 0;
    where[1] = wrong == 2 ? 5 : 4;
    memcpy(views[1].inside + 4, where, 8);
    t->array.release = release_toy;
    assert_status(import(t, &b, NULL), MANTA_EINVAL);
  }
}

static void dictionaries_are_decoded(void **state)
{
  static const int8_t index[] = {1, 0, -5, 1};
  static const uint8_t valid[] = {0x0b}, values_valid[] = {0x03};
  static const int32_t offsets[] = {0, 3, 5, 5};
  static const char *const want[] = {"text:uv", "text:abc", "null", "text:uv"};
  struct toy *t = toy("c", 4, 2);
  t->schema.dictionary = &t->dictionary_schema;
  t->dictionary_schema = (struct ArrowSchema){.format = "u"};
  t->array.dictionary = &t->dictionary;
  t->array.null_count = 1;
  t->buffers[0] = valid;
  t->buffers[1] = index;
  t->dictionary.length = 3;
  t->dictionary.n_buffers = 3;
  t->dictionary.null_count = 1;
  t->dictionary_buffers[0] = values_valid;
  t->dictionary_buffers[1] = offsets;
  t->dictionary_buffers[2] = "abcuv";
  assert_import(t, true, want, 4);
  manta_batch *b;
  manta_error err = MANTA_ERROR_INIT;
  t->array.release = release_toy;
  t->buffers[0] = NULL; // the -5 counts now
  t->array.null_count = 0;
  assert_status(import(t, &b, &err), MANTA_EINVAL);
  assert_has(err.message, "past the end of its dictionary");
  t->buffers[0] = valid;
  t->array.null_count = 1;
  t->dictionary.length = t->dictionary.null_count = 0;
  assert_status(import(t, &b, &err), MANTA_EINVAL);
  static const uint8_t none[] = {0};
  static const char *const nulls[] = {"null", "null", "null", "null"};
  released = 0;
  t->buffers[0] = none;
  t->array.null_count = 4;
  t->array.release = release_toy;
  assert_import(t, true, nulls, 4);
}

static void misaligned_numbers_are_copied(void **state)
{
  char raw[64];
  double values[] = {1.0, -2.5, 0.0};
  manta_batch *b;
  memcpy(raw + 1, values, sizeof values);
  struct toy *t = toy("g", 3, 2);
  t->buffers[1] = raw + 1;
  assert_status(import(t, &b, NULL), MANTA_OK);
  assert_int_equal((uintptr_t)b->column[0].data % 8, 0);
  assert_memory_equal(b->column[0].data, values, sizeof values);
  manta_batch_destroy(b);
}

static void dates_keep_their_form(void **state)
{
  static const int64_t times[] = {0, 86400};
  manta_batch *b;
  struct ArrowSchema schema;
  struct ArrowArray array;
  struct toy *t = toy("tss:Europe/Berlin", 2, 2);
  t->buffers[1] = times;
  assert_status(import(t, &b, NULL), MANTA_OK);
  assert_int_equal(b->schema->field[0].type.dtype, MANTA_I64);
  assert_status(manta_batch_export(b, &schema, &array, NULL), MANTA_OK);
  assert_string_equal(schema.children[0]->format, "tss:Europe/Berlin");
  schema.release(&schema);
  array.release(&array);
  manta_batch_destroy(b);
}

static void other_forms_come_in(void **state)
{
  static const char *const nulls[] = {"null", "null"}, *const bytes[] = {"6162", "6364"};
  static const char *const floats[] = {"0000803f00000040", "0000404000008040"};
  static const float items[] = {9, 1, 2, 3, 4};
  struct toy *t = toy("n", 2, 0);
  t->array.null_count = 2;
  manta_batch *b;
  assert_status(import(t, &b, NULL), MANTA_OK);
  assert_cells(b, nulls, 2);
  manta_batch_destroy(b);
  t = toy("w:2", 2, 2);
  t->buffers[1] = "abcd";
  assert_import(t, false, bytes, 2);
  t = toy("+w:2", 2, 1); // the items begin in the middle of their own array
  t->array.children = t->children;
  t->schema.children = t->child_schemas;
  t->array.n_children = t->schema.n_children = 1;
  t->child_schema = (struct ArrowSchema){.format = "f", .name = "item"};
  t->child.length = 4;
  t->child.offset = 1;
  t->child.n_buffers = 2;
  t->child_buffers[1] = items;
  assert_import(t, false, floats, 2);
}

static void what_we_have_no_type_for_is_named(void **state)
{
  static const char *const formats[] = {"+l", "+s2",  "d:19,10", "+m",   "tiM",    "?",
                                        "",   "+w:x", "+w:0",    "w:-1", "+ud:0,1"};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    manta_error err = MANTA_ERROR_INIT;
    manta_batch *b;
    struct toy *t = toy(formats[i], 1, 2);
    assert_status(import(t, &b, &err), MANTA_EUNSUPPORTED);
    assert_has(err.message, "column \"x\"");
    assert_has(err.message, "hint: ");
  }
}

static void lies_are_refused(void **state)
{
  static const int32_t falling[] = {0, 3, 2}, negative[] = {-1, 0, 0}, good[] = {0, 1, 2};
  static const int64_t wide[] = {0, INT64_MAX, 5};
  static const struct {
    const char *format;
    int64_t length, offset, nulls, buffers;
    const void *first, *second, *third;
  } cases[] = {
      {"l", -1, 0, 0, 2, NULL, good, NULL},
      {"l", 1, -1, 0, 2, NULL, good, NULL},
      {"l", 1, 0, 2, 2, good, good, NULL},
      {"l", 1, 0, 1, 2, NULL, good, NULL},
      {"l", 1, 0, -2, 2, NULL, good, NULL},
      {"l", 1, 0, 0, 3, NULL, good, NULL},
      {"l", 1, 0, 0, 2, NULL, NULL, NULL},
      {"l", 1, INT64_MAX, 0, 2, NULL, good, NULL},
      {"u", 2, 0, 0, 3, NULL, falling, "abc"},
      {"u", 2, 0, 0, 3, NULL, negative, "abc"},
      {"u", 2, 0, 0, 3, NULL, good, NULL},
      {"u", 2, 0, 0, 2, NULL, good, "ab"},
      {"U", 1, 0, 0, 3, NULL, wide, "a"},
      {"U", 1, 1, 0, 3, NULL, wide, "a"},
      {"vu", 1, 0, 0, 2, NULL, good, NULL},
      {"b", 1, 0, 0, 2, NULL, NULL, NULL},
      {"l", INT64_MAX / 2, 0, 0, 2, NULL, good, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    manta_error err = MANTA_ERROR_INIT;
    manta_batch *b;
    struct toy *t = toy(cases[i].format, cases[i].length, cases[i].buffers);
    t->array.offset = cases[i].offset;
    t->array.null_count = cases[i].nulls;
    t->buffers[0] = cases[i].first;
    t->buffers[1] = cases[i].second;
    t->buffers[2] = cases[i].third;
    manta_status st = import(t, &b, &err);
    if (st != MANTA_EINVAL && st != MANTA_ETOOBIG)
      fail_msg("case %zu: %s", i, manta_status_name(st));
    assert_true(err.message[0]);
    assert_int_equal(released, 0); // still the caller's
    assert_non_null(t->array.release);
  }
}

static void structs_are_batches(void **state)
{
  static const int32_t values[] = {1, 2, 3, 4, 5};
  static const char *const want[] = {"04000000", "05000000"};
  manta_batch *b;
  manta_error err = MANTA_ERROR_INIT;
  struct toy *t = toy("+s", 2, 1);
  t->array.children = t->children;
  t->schema.children = t->child_schemas;
  t->array.n_children = t->schema.n_children = 1;
  t->array.offset = 2; // and the child has one of its own
  t->child_schema = (struct ArrowSchema){.format = "i", .name = "n"};
  t->child.length = 4;
  t->child.offset = 1;
  t->child.n_buffers = 2;
  t->child_buffers[1] = values;
  assert_ok(import(t, &b, &err), &err);
  assert_string_equal(b->schema->field[0].name, "n");
  assert_cells(b, want, 2);
  manta_batch_destroy(b);
  t->array.release = release_toy;
  t->child.length = 3;
  assert_status(import(t, &b, &err), MANTA_EINVAL);
  assert_has(err.message, "shorter than its batch");
  static const uint8_t one[] = {0x04};
  t->child.length = 4;
  t->array.null_count = 1;
  t->buffers[0] = one;
  assert_status(import(t, &b, &err), MANTA_EUNSUPPORTED);
  t->array.n_children = 0;
  assert_status(import(t, &b, &err), MANTA_EINVAL);
}

// --- streams ------------------------------------------------------------------------------------

struct three {
  int given, closed;
  manta_batch *batch;
};

static manta_status give_batch(void *ctx, manta_batch **out, manta_error *err)
{
  struct three *t = ctx;
  if (t->given == 3)
    return 0;
  if (t->given == 2 && t->closed < 0)
    return manta_error_set(err, MANTA_EIO, "the disk is on fire");
  t->given++;
  MANTA_TRY(manta__batch_slice(out, t->batch, 0, t->batch->rows, err));
  return (manta_status)1;
}

static void close_batches(void *ctx)
{
  ((struct three *)ctx)->closed++;
}

static void streams_go_out_and_come_in(void **state)
{
  struct three t = {.batch = make_batch(20, 3, 11)};
  struct ArrowArrayStream out;
  struct manta__arrow_stream in;
  manta_batch *b;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__arrow_stream_export(&out, t.batch->schema, give_batch, close_batches, &t, &err),
            &err);
  assert_ok(manta__arrow_stream_open(&in, &out, &err), &err);
  assert_null(out.release);
  for (int i = 0; i < 3; i++) {
    assert_status(manta__arrow_stream_next(&in, &b, &err), 1);
    assert_int_equal(b->first, 20 * i);
    assert_same_batch(b, t.batch);
    manta_batch_destroy(b);
  }
  assert_status(manta__arrow_stream_next(&in, &b, &err), 0);
  manta__arrow_stream_close(&in);
  manta__arrow_stream_close(&in);
  assert_int_equal(t.closed, 1);
  manta_batch_destroy(t.batch);
}

static void a_stream_that_fails_says_why(void **state)
{
  struct three t = {.batch = make_batch(20, 3, 11), .given = 0, .closed = -1};
  struct ArrowArrayStream out;
  struct manta__arrow_stream in;
  manta_batch *b;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__arrow_stream_export(&out, t.batch->schema, give_batch, close_batches, &t, &err),
            &err);
  assert_ok(manta__arrow_stream_open(&in, &out, &err), &err);
  for (int i = 0; i < 2; i++) {
    assert_status(manta__arrow_stream_next(&in, &b, &err), 1);
    manta_batch_destroy(b);
  }
  assert_status(manta__arrow_stream_next(&in, &b, &err), MANTA_EIO);
  assert_has(err.message, "after 40 rows: the disk is on fire");
  manta__arrow_stream_close(&in);
  assert_int_equal(t.closed, 0);
  manta_batch_destroy(t.batch);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_exported_is_imported_without_a_copy),
      cmocka_unit_test(arrays_say_what_the_specification_wants),
      cmocka_unit_test(a_child_may_be_moved_out_and_outlive_the_rest),
      cmocka_unit_test(every_allocation_of_an_export_may_fail),
      cmocka_unit_test(large_strings_come_in),
      cmocka_unit_test(string_views_come_in),
      cmocka_unit_test(dictionaries_are_decoded),
      cmocka_unit_test(misaligned_numbers_are_copied),
      cmocka_unit_test(dates_keep_their_form),
      cmocka_unit_test(other_forms_come_in),
      cmocka_unit_test(what_we_have_no_type_for_is_named),
      cmocka_unit_test(lies_are_refused),
      cmocka_unit_test(structs_are_batches),
      cmocka_unit_test(streams_go_out_and_come_in),
      cmocka_unit_test(a_stream_that_fails_says_why),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
