/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches between processes: images of any columns; a loader that takes its batches from a reader,
 * which is a thread here, and what happens when that one dies.
 */
#include "data/share/share.h"

#include <sys/socket.h>

#include "cells.h"
#include "data/share/image.h"
#include "folder.h"
#include "numbered.h"
#include "threadreader.h"

// --- images -------------------------------------------------------------------------------------

static manta_batch *make_batch(int64_t rows, uint64_t *noise)
{
  struct manta__schema_field fields[CELL_TYPES];
  struct manta__schema *s;
  manta_batch *b;
  char names[CELL_TYPES][8];
  for (int i = 0; i < CELL_TYPES; i++) {
    snprintf(names[i], sizeof names[i], "c%d", i);
    fields[i] = (struct manta__schema_field){names[i], cell_type(i)};
  }
  assert_status(manta__schema_create(&s, fields, CELL_TYPES, NULL), MANTA_OK);
  assert_status(manta__batch_create(&b, s, rows, NULL), MANTA_OK);
  manta__schema_unref(s);
  for (int i = 0; i < CELL_TYPES; i++)
    cells_make(&b->column[i], &fields[i].type, rows, (int)(cells_random(noise) % 4), noise);
  return b;
}

static void *aligned(size_t bytes)
{
  void *p = NULL;
  assert_int_equal(posix_memalign(&p, 64, bytes ? bytes : 64), 0);
  return p;
}

static int released;
static void release(void *p)
{
  released++;
  free(p);
}

static void images_are_the_same_batch(void **state)
{
  uint64_t noise = 5;
  for (int round = 0; round < 60; round++) {
    int64_t rows = round < 3 ? round : (int64_t)(cells_random(&noise) % 300);
    int64_t from = rows ? (int64_t)(cells_random(&noise) % (uint64_t)rows) : 0;
    manta_batch *whole = make_batch(rows, &noise), *part, *seen;
    manta_error err = MANTA_ERROR_INIT;
    assert_ok(manta__batch_slice(&part, whole, from, rows - from, &err), &err);
    size_t bytes = manta__image_bytes(part);
    void *p = aligned(bytes);
    manta__image_write(p, part);
    struct manta__memory *held = manta__memory_foreign(release, p);
    released = 0;
    assert_ok(manta__image_view(&seen, part->schema, p, bytes, held, &err), &err);
    manta__memory_unref(held);
    assert_int_equal(seen->rows, part->rows);
    for (int i = 0; i < CELL_TYPES; i++)
      for (int64_t k = 0; k < part->rows; k++)
        assert_same_cell(&seen->column[i], k, &part->column[i], k);
    assert_int_equal(released, 0);
    manta_batch_destroy(seen);
    assert_int_equal(released, 1);
    manta_batch_destroy(part);
    manta_batch_destroy(whole);
  }
}

// A word of the head or of a column's row becomes something else: it is refused, or stays inside.
static void images_that_make_no_sense_are_refused(void **state)
{
  uint64_t noise = 6;
  manta_batch *b = make_batch(100, &noise), *seen;
  size_t bytes = manta__image_bytes(b), words = 3 + CELL_TYPES * 7;
  uint64_t *p = aligned(bytes);
  struct manta__memory *held = manta__memory_foreign(release, p);
  int refused = 0;
  for (size_t i = 0; i < words; i++) {
    manta__image_write(p, b);
    p[i] = i % 2 ? UINT64_MAX - 63 : bytes + 64;
    if (manta__image_view(&seen, b->schema, p, bytes, held, NULL) == MANTA_OK)
      manta_batch_destroy(seen); // the number of nulls, which is believed
    else
      refused++;
  }
  assert_in_range(refused, words - CELL_TYPES, words);
  assert_status(manta__image_view(&seen, b->schema, p, 16, held, NULL), MANTA_EPROTO);
  manta__memory_unref(held);
  manta_batch_destroy(b);
}

// --- a reader that is a thread ------------------------------------------------------------------

static int64_t first_of(const manta_batch *b)
{
  manta_column n;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_batch_column_named(b, "n", &n, &err), &err);
  return ((const int64_t *)n.data)[n.offset];
}

// The same batches as a loader without a reader gives, and the same positions.
static void a_loader_takes_what_a_reader_parses(void **state)
{
  struct thread_reader r = {0};
  manta_dataset *d = numbered_open(dir, "set", 5, 200, 900);
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_loader *here, *there;
  STEP(d, manta_dataset_shuffle(&step_out, d, 4, 300, &step_err));
  c.batch_rows = 64;
  c.rank = 1;
  c.ranks = 3;
  there = thread_reader_open(&r, d, c);
  assert_ok(manta_loader_open(&here, d, &c, &err), &err);
  for (int epoch = 0; epoch < 2; epoch++) {
    for (int ended = 0; !ended;) {
      manta_batch *a, *b;
      manta_value at = {0}, bt = {0};
      ended = manta_loader_next(here, &a, &err) == 0;
      assert_int_equal(manta_loader_next(there, &b, &err), !ended);
      assert_ok(manta_loader_save(here, &at, &err), &err);
      assert_ok(manta_loader_save(there, &bt, &err), &err);
      assert_true(manta_value_equal(&at, &bt));
      manta_value_fini(&at);
      manta_value_fini(&bt);
      if (ended)
        continue;
      assert_int_equal(manta_batch_rows(a), manta_batch_rows(b));
      for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < a->rows; k++)
          assert_same_cell(&a->column[i], k, &b->column[i], k);
      manta_batch_destroy(a);
      manta_batch_destroy(b);
    }
    assert_ok(manta_loader_begin(here, epoch + 1, &err), &err);
    assert_ok(manta_loader_begin(there, epoch + 1, &err), &err);
  }
  manta_loader_close(here);
  manta_loader_close(there);
  manta_dataset_close(d);
  thread_reader_join(&r);
}

// More than there are slots: the reader goes on, and what was kept stays as it was.
static void batches_can_be_kept(void **state)
{
  struct thread_reader r = {0};
  manta_dataset *d = numbered_open(dir, "set", 5, 200, 900);
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_batch *kept[200];
  int n = 0;
  c.batch_rows = 10;
  manta_loader *l = thread_reader_open(&r, d, c);
  while (manta_loader_next(l, &kept[n], &err) == 1)
    n++;
  assert_int_equal(n, 101);
  manta_loader_close(l);
  manta_dataset_close(d);
  thread_reader_join(&r); // the slots are unmapped there
  for (int i = 0; i < n; i++) {
    assert_int_equal(first_of(kept[i]), 10 * i);
    manta_batch_destroy(kept[i]);
  }
}

static void another_reader_goes_on_when_one_dies(void **state)
{
  struct thread_reader r = {0};
  manta_dataset *d = numbered_open(dir, "set", 5, 200, 900);
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_batch *b;
  int n = 0, killed = 0;
  c.batch_rows = 10;
  manta_loader *l = thread_reader_open(&r, d, c);
  while (manta_loader_next(l, &b, &err) == 1) {
    assert_int_equal(first_of(b), 10 * n);
    manta_batch_destroy(b);
    if (++n % 30 == 0) {
      r.refuse = killed++; // the next ones die at once
      shutdown(r.sock[r.count - 1], SHUT_RDWR);
    }
  }
  assert_int_equal(n, 101);
  assert_int_equal(killed, 3);
  manta_loader_close(l);
  r.refuse = 100;
  l = thread_reader_open(&r, d, c);
  assert_status(manta_loader_next(l, &b, &err), MANTA_EWORKER);
  assert_has(err.message, "died 5 times");
  manta_loader_close(l);
  manta_dataset_close(d);
  thread_reader_join(&r);
}

static void a_failure_is_the_same_through_a_reader(void **state)
{
  struct thread_reader r = {0};
  const char *path = file_write(dir, "bad.csv", "n\n1\n2\nx\n", 8);
  manta_value types = tree_of("{\"n\": \"i64\"}");
  manta_data_config dc = MANTA_DATA_CONFIG_INIT;
  manta_error here = MANTA_ERROR_INIT, there = MANTA_ERROR_INIT;
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_dataset *d;
  manta_loader *l;
  manta_batch *b;
  dc.types = &types;
  c.batch_rows = 10;
  assert_ok(manta_dataset_open(&d, &path, 1, &dc, &here), &here);
  assert_ok(manta_loader_open(&l, d, &c, &here), &here);
  manta_status st = manta_loader_next(l, &b, &here);
  assert_true(st < 0);
  manta_loader_close(l);
  l = thread_reader_open(&r, d, c);
  for (int i = 0; i < 2; i++) {
    assert_status(manta_loader_next(l, &b, &there), st);
    assert_string_equal(here.message, there.message);
  }
  manta_loader_close(l);
  manta_dataset_close(d);
  manta_value_fini(&types);
  thread_reader_join(&r);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(images_are_the_same_batch),
      cmocka_unit_test(images_that_make_no_sense_are_refused),
      cmocka_unit_test(a_loader_takes_what_a_reader_parses),
      cmocka_unit_test(batches_can_be_kept),
      cmocka_unit_test(another_reader_goes_on_when_one_dies),
      cmocka_unit_test(a_failure_is_the_same_through_a_reader),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
