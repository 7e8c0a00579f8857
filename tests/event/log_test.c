/* SPDX-License-Identifier: Apache-2.0
 *
 * The log's writer and reader: what is added comes back, whole and in order, whatever the file, the
 * disk or another process does to it.
 */
#include <errno.h>

#include "bed.h"
#include "event/row.h"

static void records_come_back_as_added(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ident id = {77, 3, 5, 11};
  assert_ok(manta__log_add(w, MANTA__EV_ROW, &id, 123456789, "payload", 7, &err), &err);
  id.seq = 12;
  assert_ok(manta__log_add(w, MANTA__EV_NOTE, &id, -1, NULL, 0, &err), &err);
  assert_int_equal(bed_size(b, "run.log"), 0); // no system call before the flush
  bed_flush(w);
  manta__log_writer_close(w);

  manta__log_reader *r;
  struct manta__record h;
  const uint8_t *p;
  assert_ok(manta__log_reader_open(&r, b->dir, &err), &err);
  assert_int_equal(manta__log_next(r, &h, &p, &err), 1);
  assert_int_equal(h.kind, MANTA__EV_ROW);
  assert_int_equal(h.len, 7);
  assert_memory_equal(p, "payload", 7);
  assert_int_equal(h.wall_ns, 123456789);
  assert_true(h.id.run == 77 && h.id.attempt == 3 && h.id.rank == 5 && h.id.seq == 11);
  assert_int_equal(manta__log_next(r, &h, &p, &err), 1);
  assert_int_equal(h.len, 0);
  assert_int_equal(h.id.seq, 12);
  assert_int_equal(manta__log_next(r, &h, &p, &err), 0);
  assert_int_equal(manta__log_torn(r), 0);
  manta__log_reader_close(r);
}

static void values_are_packed(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  bed_row(w, 0, 0, 9);
  manta__log_writer_close(w); // flushes
  manta__log_reader *r;
  struct manta__record h;
  const uint8_t *p;
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__log_reader_open(&r, b->dir, &err), &err);
  assert_int_equal(manta__log_next(r, &h, &p, &err), 1);
  assert_ok(manta_value_unpack(&v, p, h.len, &err), &err);
  assert_int_equal(manta_value_as_int(manta_value_get(&v, "_training_iteration"), 0), 9);
  assert_near(manta_value_as_real(manta_value_get(&v, "loss"), 0), 1.0 / 9, 0);
  manta_value_fini(&v);
  manta__log_reader_close(r);
}

static void a_large_buffer_flushes_itself(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  static const char big[100000];
  struct manta__ident id = ident(0, 0, 1);
  for (int i = 0; i < 10; i++)
    assert_status(manta__log_add(w, MANTA__EV_ROW, &id, 0, big, sizeof big, NULL), MANTA_OK);
  assert_int_equal(bed_size(b, "run.log"), 0);
  assert_status(manta__log_add(w, MANTA__EV_ROW, &id, 0, big, sizeof big, NULL), MANTA_OK);
  assert_int_equal(bed_size(b, "run.log"), 11 * (56 + sizeof big));
  manta__log_writer_close(w);
}

static void too_large_a_record_is_refused(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ident id = ident(0, 0, 1);
  assert_status(manta__log_add(w, MANTA__EV_ROW, &id, 0, "", MANTA__LOG_MAX_PAYLOAD + 1u, &err),
                MANTA_ETOOBIG);
  assert_has(err.message, "67108865");
  manta__log_writer_close(w);
  assert_int_equal(bed_read(b, NULL, 0, NULL), 0);
}

static void the_log_goes_on_in_segments(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, 1000, MANTA__LOG_BACKLOG);
  static const char big[3000];
  struct manta__ident id;
  for (int i = 0; i < 100; i++) {
    id = ident(0, 0, (uint64_t)i);
    // The 50th is larger than a segment and gets one of its own.
    assert_status(manta__log_add(w, MANTA__EV_ROW, &id, 0, big, i == 50 ? 3000 : 100, NULL), 0);
    if (i % 7 == 0)
      bed_flush(w);
  }
  bed_flush(w);
  int last = bed_segments(b);
  assert_int_equal(last, 9 + 1 + 9); // six records each: 50 in 9, 1, 49 in 9
  manta__log_writer_close(w);
  for (int i = 1; i <= last; i++) {
    char name[MANTA__SEGMENT_NAME_MAX];
    manta__segment_name(name, i);
    assert_in_range(bed_size(b, name), 1, i == 10 ? 3056 : 1000);
  }
  uint64_t seqs[100];
  assert_int_equal(bed_read(b, seqs, 100, NULL), 100);
  for (uint64_t i = 0; i < 100; i++)
    assert_int_equal(seqs[i], i);
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__log_sync(b->dir, 1, last, &err), &err);
  assert_status(manta__log_sync(b->dir, 1, last + 1, &err), MANTA_ENOENT);
  w = bed_writer(b, false); // goes on in the last one
  bed_row(w, 0, 0, 100);
  bed_flush(w);
  manta__log_writer_close(w);
  assert_int_equal(bed_segments(b), last);
  assert_int_equal(bed_read(b, NULL, 0, NULL), 101);
}

static void a_reader_follows_a_growing_log(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, 500, MANTA__LOG_BACKLOG);
  manta_error err = MANTA_ERROR_INIT;
  manta__log_reader *r;
  struct manta__record h;
  const uint8_t *p;
  assert_ok(manta__log_reader_open(&r, b->dir, &err), &err);
  for (int i = 1; i <= 50; i++) {
    assert_int_equal(manta__log_next(r, &h, &p, &err), 0);
    bed_row(w, 0, 0, i);
    bed_flush(w);
    assert_int_equal(manta__log_next(r, &h, &p, &err), 1);
    assert_int_equal(h.id.seq, i);
  }
  assert_true(bed_segments(b) > 5);
  manta__log_reader_close(r);
  manta__log_writer_close(w);
}

// A reader that met half a record goes on when the other half comes.
static void half_a_record_is_read_when_whole(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  bed_row(w, 0, 0, 1);
  bed_row(w, 0, 0, 2);
  manta__log_writer_close(w);
  char bytes[4096];
  int fd = openat(b->dir, "run.log", O_RDWR | O_CLOEXEC);
  ssize_t n = read(fd, bytes, sizeof bytes);
  manta_error err = MANTA_ERROR_INIT;
  for (ssize_t cut = n / 2 + 1; cut < n; cut++) {
    manta__log_reader *r;
    struct manta__record h;
    const uint8_t *p;
    assert_int_equal(ftruncate(fd, cut), 0);
    assert_ok(manta__log_reader_open(&r, b->dir, &err), &err);
    assert_int_equal(manta__log_next(r, &h, &p, &err), 1);
    assert_int_equal(manta__log_next(r, &h, &p, &err), 0);
    assert_int_equal(manta__log_torn(r), cut - n / 2);
    assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), n);
    assert_int_equal(manta__log_next(r, &h, &p, &err), 1);
    assert_int_equal(h.id.seq, 2);
    assert_int_equal(manta__log_next(r, &h, &p, &err), 0);
    assert_int_equal(manta__log_torn(r), 0);
    manta__log_reader_close(r);
  }
  close(fd);
}

// Cuts the file at every byte: readers stop there, a writer cuts the tail and goes on.
static void a_torn_tail_is_cut_off(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  for (int i = 1; i <= 3; i++)
    bed_row(w, 0, 0, i);
  manta__log_writer_close(w);
  int64_t size = bed_size(b, "run.log"), one = size / 3, torn;
  char bytes[4096];
  int fd = openat(b->dir, "run.log", O_RDWR | O_CLOEXEC);
  assert_int_equal(read(fd, bytes, sizeof bytes), size);
  for (int64_t cut = 0; cut <= size; cut++) {
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, bytes, (size_t)cut, 0), cut);
    assert_int_equal(bed_read(b, NULL, 0, &torn), cut / one);
    assert_int_equal(torn, cut % one);
    b->warnings = 0;
    w = bed_writer(b, false);
    assert_int_equal(b->warnings, cut % one > 0);
    if (cut % one == 5)
      assert_has(b->warning, "run.log: cut off a torn tail of 5 bytes");
    assert_int_equal(bed_size(b, "run.log"), cut - cut % one);
    bed_row(w, 0, 0, 99);
    manta__log_writer_close(w);
    uint64_t seqs[4] = {0};
    assert_int_equal(bed_read(b, seqs, 4, &torn), cut / one + 1);
    assert_int_equal(seqs[cut / one], 99);
    assert_int_equal(torn, 0);
  }
  close(fd);
}

static void a_changed_byte_ends_the_log(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  for (int i = 1; i <= 3; i++)
    bed_row(w, 0, 0, i);
  manta__log_writer_close(w);
  int64_t size = bed_size(b, "run.log"), one = size / 3, torn;
  int fd = openat(b->dir, "run.log", O_RDWR | O_CLOEXEC);
  for (int64_t at = one; at < 2 * one; at++) {
    uint8_t was, bad;
    assert_int_equal(pread(fd, &was, 1, at), 1);
    bad = was ^ 0x10;
    assert_int_equal(pwrite(fd, &bad, 1, at), 1);
    assert_int_equal(bed_read(b, NULL, 0, &torn), 1);
    assert_int_equal(torn, 2 * one);
    assert_int_equal(pwrite(fd, &was, 1, at), 1);
  }
  assert_int_equal(bed_read(b, NULL, 0, &torn), 3);
  close(fd);
}

static void what_follows_damage_is_kept_beside_the_log(void **state)
{
  struct bed *b = *state;
  int64_t one = 0;
  for (int times = 1; times <= 2; times++) {
    manta__log_writer *w = bed_writer(b, times == 1);
    for (int i = times; i <= 3; i++)
      bed_row(w, 0, 0, i);
    manta__log_writer_close(w);
    one = bed_size(b, "run.log") / 3;
    int fd = openat(b->dir, "run.log", O_RDWR);
    assert_int_equal(pwrite(fd, "?", 1, one + 8), 1); // in the second of three
    close(fd);
    manta__log_writer_close(bed_writer(b, false));
    assert_int_equal(bed_size(b, "run.log"), one);
    assert_int_equal(bed_size(b, "run.log.damaged"), 2 * one * times);
  }
  assert_int_equal(unlinkat(b->dir, "run.log.damaged", 0), 0);
}

static void zeros_and_garbage_end_the_log(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  bed_row(w, 0, 0, 1);
  manta__log_writer_close(w);
  int64_t size = bed_size(b, "run.log"), torn;
  int fd = openat(b->dir, "run.log", O_RDWR | O_CLOEXEC);
  assert_int_equal(ftruncate(fd, size + 100000), 0); // as after a power cut
  assert_int_equal(bed_read(b, NULL, 0, &torn), 1);
  assert_int_equal(torn, 100000);
  // A header that promises 64 MB in a file that has 100 KB: no memory is taken for it.
  struct manta__record h = {.magic = MANTA__LOG_MAGIC, .len = MANTA__LOG_MAX_PAYLOAD};
  assert_int_equal(pwrite(fd, &h, sizeof h, size), sizeof h);
  manta__alloc_fail_after(2); // one for the reader, one for its buffer
  assert_int_equal(bed_read(b, NULL, 0, &torn), 1);
  assert_int_equal(manta__alloc_fail_after(-1), 2);
  assert_int_equal(torn, 100000);
  close(fd);
}

static void damage_costs_one_segment(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, 300, MANTA__LOG_BACKLOG);
  for (int i = 1; i <= 9; i++) // three in each segment
    bed_row(w, 0, 0, i);
  manta__log_writer_close(w);
  assert_int_equal(bed_size(b, "run.log.4"), -1);
  int64_t one = bed_size(b, "run.log") / 3, torn;
  int fd = openat(b->dir, "run.log.2", O_RDWR | O_CLOEXEC);
  assert_int_equal(pwrite(fd, "?", 1, one + 60), 1); // in its second record
  close(fd);
  uint64_t seqs[9];
  assert_int_equal(bed_read(b, seqs, 9, &torn), 7);
  assert_int_equal(seqs[3], 4);
  assert_int_equal(seqs[4], 7);
  assert_int_equal(torn, 2 * one);
  assert_has(b->warning, "run.log.2 is damaged");
}

static void a_missing_segment_ends_the_log(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, 300, MANTA__LOG_BACKLOG);
  for (int i = 1; i <= 12; i++)
    bed_row(w, 0, 0, i);
  manta__log_writer_close(w);
  assert_int_equal(unlinkat(b->dir, "run.log.3", 0), 0);
  assert_int_equal(bed_read(b, NULL, 0, NULL), 6);
  // A writer goes on behind the gap's beginning, over what no reader would reach.
  w = bed_writer(b, false);
  manta__log_set_limits(w, 300, MANTA__LOG_BACKLOG);
  for (int i = 13; i <= 20; i++)
    bed_row(w, 0, 0, i);
  manta__log_writer_close(w);
  assert_has(b->warning, "run.log.4");
  uint64_t seqs[20];
  assert_int_equal(bed_read(b, seqs, 20, NULL), 14);
  assert_int_equal(seqs[6], 13);
  assert_int_equal(seqs[13], 20);
  assert_int_equal(unlinkat(b->dir, "run.log", 0), 0);
  manta__log_reader *r;
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__log_reader_open(&r, b->dir, &err), MANTA_ENOENT);
}

static void create_and_open_say_what_is_wrong(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w;
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__log_writer_open(&w, b->dir, false, &err), MANTA_ENOENT);
  assert_has(err.message, b->path);
  manta__log_writer_close(bed_writer(b, true));
  assert_status(manta__log_writer_open(&w, b->dir, true, &err), MANTA_ESTATE);
  assert_has(err.message, "has a run.log already");
  assert_int_equal(unlinkat(b->dir, "run.log", 0), 0);
  assert_int_equal(mkfifoat(b->dir, "run.log", 0600), 0); // must not hang
  assert_status(manta__log_writer_open(&w, b->dir, false, &err), MANTA_EIO);
}

static void constructors_survive_any_oom(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w;
  manta__log_reader *r;
  manta_error err = MANTA_ERROR_INIT;
  FOR_EACH_OOM(manta__log_writer_open(&w, b->dir, true, &err), manta__log_writer_close(w));
  FOR_EACH_OOM(manta__log_writer_open(&w, b->dir, false, &err), manta__log_writer_close(w));
  FOR_EACH_OOM(manta__log_reader_open(&r, b->dir, &err), manta__log_reader_close(r));
}

static void adding_survives_oom(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  static const char big[2 << 20];
  struct manta__ident id = ident(0, 0, 1);
  bed_row(w, 0, 0, 7);
  manta__alloc_fail_after(0);
  assert_status(manta__log_add(w, MANTA__EV_ROW, &id, 0, big, sizeof big, NULL), MANTA_OK);
  assert_int_equal(manta__alloc_fail_after(-1), 2); // the second try had the flushed buffer's room
  manta__log_writer_close(w);
  assert_int_equal(bed_read(b, NULL, 0, NULL), 2);
}

static void every_kind_is_in_the_table(void **state)
{
  for (uint32_t k = MANTA__EV_RUN; k <= MANTA__EV_TRIAL; k++) {
    assert_non_null(manta__event_info(k));
    assert_int_equal(manta__event_info(k)->kind, k);
  }
  assert_null(manta__event_info(0));
  assert_null(manta__event_info(MANTA__EV_TRIAL + 1));
}

static int64_t scan_of(const manta_value *v)
{
  void *p;
  size_t n;
  assert_status(manta_value_pack(v, &p, &n, NULL), MANTA_OK);
  int64_t i = manta__row_iteration(p, n);
  for (size_t cut = 0; cut < n;
       cut += cut < 2000 ? 1 : 997) { // never reads past the end: the sanitizer looks
    uint8_t *part = manta__malloc(cut);
    memcpy(part, p, cut);
    manta__row_iteration(part, cut);
    manta__free(part);
  }
  manta_free(p);
  return i;
}

static void the_iteration_is_found_in_any_row(void **state)
{
  manta_value items[] = {manta_value_int(1), manta_value_real(2), manta_value_bool(true)};
  manta_value list = {.type = MANTA_LIST, .count = 3, .u.items = items};
  static char text[70000];
  memset(text, 'x', sizeof text - 1);
  manta_value deep = MANTA_MAP(MANTA_KV("_list", list), MANTA_KV_INT("_training_iteration", 5));
  manta_value row = MANTA_MAP(
      MANTA_KV("deep", deep), MANTA_KV("nil", (manta_value){0}), MANTA_KV_INT("big", INT64_MAX),
      MANTA_KV_INT("small", INT64_MIN), MANTA_KV_STR("long", text), MANTA_KV("list", list),
      MANTA_KV("bytes", manta_value_borrow_bytes(text, 300)), MANTA_KV_STR("short", "ab"),
      MANTA_KV_INT("_training_iteration", 1234567), MANTA_KV_REAL("after", 0.5));
  assert_int_equal(scan_of(&row), 1234567);
  manta_value without = MANTA_MAP(MANTA_KV("deep", deep));
  assert_int_equal(scan_of(&without), 0);
  assert_int_equal(scan_of(&list), 0);
  manta_value many = {0};
  assert_status(manta_value_set_map(&many), MANTA_OK);
  for (int i = 0; i < 1000; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    assert_status(manta_value_put_int(&many, key, i * 1000003), MANTA_OK);
  }
  assert_status(manta_value_put_int(&many, "_training_iteration", 42), MANTA_OK);
  assert_int_equal(scan_of(&many), 42);
  manta_value_fini(&many);
}

static void numbers_are_found_in_any_row(void **state)
{
  static const char *const names[] = {"loss", "val/acc", "val/deep/x", "nnn", "big", "last"};
  static const double values[] = {0.5, 0.25, -3, 1, 1e300, 7};
  char long_name[MANTA__ROW_NAME + 8];
  memset(long_name, 'n', sizeof long_name);
  long_name[sizeof long_name - 1] = 0;
  manta_value deep = MANTA_MAP(MANTA_KV_INT("x", -3));
  manta_value val = MANTA_MAP(MANTA_KV_REAL("acc", 0.25), MANTA_KV("deep", deep));
  manta_value row = MANTA_MAP(
      MANTA_KV_REAL("loss", 0.5), MANTA_KV_STR("text", "abc"), MANTA_KV("val", val),
      MANTA_KV_INT(long_name, 1), MANTA_KV_BOOL("flag", true), MANTA_KV_REAL("big", 1e300),
      MANTA_KV("empty", ((manta_value){.type = MANTA_MAP})), MANTA_KV_INT("last", 7));
  void *p;
  size_t len, n = 0;
  struct manta__row_walk w;
  double x;
  assert_status(manta_value_pack(&row, &p, &len, NULL), MANTA_OK);
  for (manta__row_walk(&w, p, len); manta__row_next(&w, &x); n++) {
    assert_true(n < 6);
    assert_memory_equal(w.name, names[n], strlen(names[n]));
    assert_int_equal(w.name_len, n == 3 ? MANTA__ROW_NAME - 1 : strlen(names[n])); // cut
    assert_near(x, values[n], 0);
  }
  assert_int_equal(n, 6);
  for (size_t cut = 0; cut < len; cut++) { // the sanitizer looks
    uint8_t *part = manta__malloc(cut);
    memcpy(part, p, cut);
    for (manta__row_walk(&w, part, cut); manta__row_next(&w, &x);)
      ;
    manta__free(part);
  }
  manta_free(p);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(records_come_back_as_added),
      TEST(values_are_packed),
      TEST(a_large_buffer_flushes_itself),
      TEST(too_large_a_record_is_refused),
      TEST(the_log_goes_on_in_segments),
      TEST(a_reader_follows_a_growing_log),
      TEST(half_a_record_is_read_when_whole),
      TEST(a_torn_tail_is_cut_off),
      TEST(a_changed_byte_ends_the_log),
      TEST(what_follows_damage_is_kept_beside_the_log),
      TEST(zeros_and_garbage_end_the_log),
      TEST(damage_costs_one_segment),
      TEST(a_missing_segment_ends_the_log),
      TEST(create_and_open_say_what_is_wrong),
      TEST(constructors_survive_any_oom),
      TEST(adding_survives_oom),
      cmocka_unit_test(every_kind_is_in_the_table),
      cmocka_unit_test(the_iteration_is_found_in_any_row),
      cmocka_unit_test(numbers_are_found_in_any_row),
  };
  return cmocka_run_group_tests_name("event_log", tests, NULL, NULL);
}
