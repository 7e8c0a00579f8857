/* SPDX-License-Identifier: Apache-2.0
 *
 * The log on a disk that is full or broken: never half a record, nothing lost that need not be.
 */
#include <errno.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "bed.h"
#include "sys/file.h"

#define ROWS 5

static int stuck; /* so many ftruncates fail */

// In place of the C library's, for the log's writer too.
int ftruncate(int fd, off_t size)
{
  if (stuck > 0) {
    stuck--;
    errno = EIO;
    return -1;
  }
  return (int)syscall(SYS_ftruncate, fd, size);
}

static void no_fault(void)
{
  manta__file_fault(0, 0, 0);
}

// Also after a failure: no fault and no mount may outlive its test.
static int fault_teardown(void **state)
{
  struct bed *b = *state;
  char at[PATH_MAX];
  snprintf(at, sizeof at, "%s/small", b->path);
  umount2(at, MNT_DETACH);
  stuck = 0;
  no_fault();
  return bed_teardown(state);
}

// The disk is full at every byte in turn: what is in the file is whole, and all comes when there is
// room again, once and in order.
static void full_at_every_byte(void **state, int64_t segment)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  bool fired = true;
  for (int64_t room = 0; fired; room++) {
    assert_true(room < 100000);
    manta__log_writer *w = bed_writer(b, true);
    manta__log_set_limits(w, segment, MANTA__LOG_BACKLOG);
    for (int i = 0; i < ROWS; i++)
      bed_row(w, 0, 0, i + 1);
    b->warnings = 0;
    manta__file_fault(room, ENOSPC, 0);
    manta_status st = manta__log_flush(w, &err);
    int64_t torn;
    int there = bed_read(b, NULL, 0, &torn);
    assert_int_equal(torn, 0);
    fired = manta__file_fault(0, ENOSPC, 0) > 0;
    assert_int_equal(st, fired ? MANTA_EIO : MANTA_OK);
    assert_true(fired ? there < ROWS : there == ROWS);
    assert_int_equal(b->warnings, fired);
    if (fired)
      assert_has(b->warning, "No space left on device");
    bed_row(w, 0, 0, ROWS + 1);
    assert_status(manta__log_flush(w, &err), MANTA_EIO);
    assert_true(manta__file_fault(0, 0, 0) > 0);
    bed_flush(w);
    assert_has(b->warning, "can be written again");
    assert_int_equal(b->warnings, 2); // one for the trouble, one for its end
    uint64_t seqs[ROWS + 1];
    assert_int_equal(bed_read(b, seqs, ROWS + 1, &torn), ROWS + 1);
    for (uint64_t i = 0; i <= ROWS; i++)
      assert_int_equal(seqs[i], i + 1);
    int last = bed_segments(b);
    manta__log_writer_close(w);
    for (int i = 1; i <= last; i++) {
      char name[MANTA__SEGMENT_NAME_MAX];
      manta__segment_name(name, i);
      unlinkat(b->dir, name, 0);
    }
  }
}

static void a_full_disk_leaves_whole_records(void **state)
{
  full_at_every_byte(state, MANTA__LOG_SEGMENT);
}

static void a_full_disk_at_a_segment_switch(void **state)
{
  full_at_every_byte(state, 200);
}

// Half a record that cannot be cut off at once is cut off before anything is written behind it.
static void a_tail_that_resists_is_cut_later(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  for (int i = 0; i < ROWS; i++)
    bed_row(w, 0, 0, i + 1);
  manta__file_fault(150, EIO, 0);
  stuck = 2;
  assert_status(manta__log_flush(w, NULL), MANTA_EIO);
  assert_true(manta__file_fault(0, 0, 0) > 0);
  assert_int_equal(stuck, 1);
  assert_int_equal(bed_size(b, "run.log"), 150);
  assert_status(manta__log_flush(w, NULL), MANTA_EIO); // the disk writes again, but does not cut
  assert_int_equal(stuck, 0);
  assert_int_equal(bed_size(b, "run.log"), 150);
  bed_flush(w);
  int64_t torn;
  assert_int_equal(bed_read(b, NULL, 0, &torn), ROWS);
  assert_int_equal(torn, 0);
  manta__log_writer_close(w);
}

static void short_writes_are_joined(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__file_fault(0, 0, 7);
  for (int i = 0; i < 50; i++)
    bed_row(w, 0, 0, i + 1);
  bed_flush(w);
  no_fault();
  assert_int_equal(bed_read(b, NULL, 0, NULL), 50);
  manta__log_writer_close(w);
}

// Reads rows, notes and the rest; the text of the last note goes to `text`.
static void count_kinds(struct bed *b, int *rows, int *notes, int *others, char text[256])
{
  manta_error err = MANTA_ERROR_INIT;
  manta__log_reader *r;
  struct manta__record h;
  const uint8_t *p;
  uint64_t newest = 0;
  assert_ok(manta__log_reader_open(&r, b->dir, &err), &err);
  *rows = *notes = *others = 0;
  while (manta__log_next(r, &h, &p, &err) > 0) {
    if (h.kind == MANTA__EV_NOTE) {
      manta_value v = {0};
      assert_ok(manta_value_unpack(&v, p, h.len, &err), &err);
      snprintf(text, 256, "%s", manta_value_as_string(manta_value_get(&v, "text"), "?"));
      manta_value_fini(&v);
      assert_int_equal(h.id.rank, MANTA__LOG_SELF);
      assert_int_equal(h.id.run, 0x1234);
      ++*notes;
      continue;
    }
    assert_true(h.id.seq > newest); // still in order
    newest = h.id.seq;
    ++*(h.kind == MANTA__EV_ROW ? rows : others);
  }
  assert_int_equal(manta__log_torn(r), 0);
  manta__log_reader_close(r);
}

static void the_oldest_rows_are_dropped_past_the_backlog(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, MANTA__LOG_SEGMENT, 64 << 10);
  manta__file_fault(0, ENOSPC, 0);
  int rows, notes, others, lost = 0, added = 0;
  for (int i = 1; i <= 5000; i++) {
    if (i % 100 == 0)
      bed_add(w, MANTA__EV_LOST, ident(0, -1, (uint64_t)i), MANTA_MAP(MANTA_KV_INT("rank", 1)));
    else
      bed_row(w, 0, 0, i);
    lost += i % 100 == 0;
    added += i % 100 != 0;
    if (i % 50 == 0)
      assert_status(manta__log_flush(w, NULL), MANTA_EIO);
  }
  assert_int_equal(b->warnings, 2); // the disk is full; rows are dropped: one each
  assert_has(b->warning, "oldest rows are dropped");
  assert_int_equal(manta__file_fault(0, 0, 0), 100);
  bed_flush(w);
  manta__log_writer_close(w);
  char text[256] = "", want[64];
  count_kinds(b, &rows, &notes, &others, text);
  assert_int_equal(others, lost);
  assert_int_equal(notes, 1);
  assert_in_range(rows, 100, 700);
  assert_in_range(bed_size(b, "run.log"), 40 << 10, 65 << 10);
  snprintf(want, sizeof want, "%d rows were dropped", added - rows);
  assert_has(text, want);
  uint64_t seqs[1];
  assert_int_equal(bed_read(b, seqs, 1, NULL), rows + notes + others);
  assert_int_equal(seqs[0], 100); // the first that is no row
}

static void what_cannot_be_written_at_the_end_is_told(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  bed_row(w, 0, 0, 1);
  manta__file_fault(0, EIO, 0);
  manta__log_writer_close(w);
  assert_true(manta__file_fault(0, 0, 0) > 0);
  assert_has(b->warning, "could not be written and are lost");
  assert_int_equal(bed_read(b, NULL, 0, NULL), 0);
}

// Past all limits other records are refused, not dropped.
static void memory_for_a_full_disk_is_bounded(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__file_fault(0, ENOSPC, 0);
  size_t n = 8 << 20, added = 0;
  char *big = manta__calloc(1, n);
  struct manta__ident id = ident(0, -1, 1);
  manta_status st;
  while ((st = manta__log_add(w, MANTA__EV_CKPT, &id, 0, big, n, NULL)) == MANTA_OK)
    assert_true(++added < 100);
  assert_int_equal(st, MANTA_ETOOBIG);
  assert_true(added * n > MANTA__LOG_BACKLOG);
  assert_true(manta__file_fault(0, 0, 0) > 0);
  manta__log_writer_close(w);
  assert_int_equal(bed_read(b, NULL, 0, NULL), added);
  manta__free(big);
}

// A file system that is really full, and then is not.
static void a_real_full_file_system(void **state)
{
  struct bed *b = *state;
  char at[PATH_MAX], stuff[4096] = {1};
  snprintf(at, sizeof at, "%s/small", b->path);
  assert_int_equal(mkdir(at, 0700), 0);
  if (mount("tmpfs", at, "tmpfs", 0, "size=256k") < 0)
    skip_because("no tmpfs can be mounted here");
  struct bed small = *b;
  small.dir = scratch_open(at);
  int hog = openat(small.dir, "hog", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  for (int i = 0; i < 40; i++)
    assert_int_equal(write(hog, stuff, sizeof stuff), sizeof stuff);
  manta__log_writer *w = bed_writer(&small, true);
  int added = 0;
  while (manta__log_flush(w, NULL) == MANTA_OK) {
    assert_true(added < 10000);
    for (int i = 0; i < 100; i++)
      bed_row(w, 0, 0, ++added);
  }
  int64_t torn;
  int there = bed_read(&small, NULL, 0, &torn);
  assert_true(there > 0 && there < added);
  assert_int_equal(torn, 0);
  assert_int_equal(ftruncate(hog, 0), 0);
  bed_flush(w);
  manta__log_writer_close(w);
  assert_int_equal(bed_read(&small, NULL, 0, &torn), added);
  close(hog);
  close(small.dir);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, fault_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_full_disk_leaves_whole_records),
      TEST(a_full_disk_at_a_segment_switch),
      TEST(a_tail_that_resists_is_cut_later),
      TEST(short_writes_are_joined),
      TEST(the_oldest_rows_are_dropped_past_the_backlog),
      TEST(what_cannot_be_written_at_the_end_is_told),
      TEST(memory_for_a_full_disk_is_bounded),
      TEST(a_real_full_file_system),
  };
  return cmocka_run_group_tests_name("event_disk", tests, NULL, NULL);
}
