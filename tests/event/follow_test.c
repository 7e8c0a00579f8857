/* SPDX-License-Identifier: Apache-2.0
 *
 * The follower of a log: it gives every record once and in order, whatever becomes of the log and
 * of its writer meanwhile, and is woken when there is something to see.
 */
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "bed.h"
#include "event/lock.h"
#include "event/log_follow.h"
#include "event/log_wake.h"
#include "sys/proc.h"

#define SOON 60.0 /* only a broken follower takes so long */

static manta__log_follow *follow(struct bed *b, const struct manta__log_place *from)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__log_follow *f = NULL;
  assert_ok(manta__log_follow_open(&f, b->dir, from, &err), &err);
  return f;
}

// The next thing; *seq is that of a record.
static int next(manta__log_follow *f, uint64_t *seq)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__record h;
  const uint8_t *p;
  int rc = manta__log_follow_next(f, &h, &p, &err);
  assert_ok(rc, &err);
  if (rc == MANTA__FOLLOW_RECORD)
    *seq = h.id.seq;
  return rc;
}

static void assert_rows(manta__log_follow *f, uint64_t from, uint64_t to)
{
  uint64_t seq = 0;
  for (uint64_t i = from; i <= to; i++) {
    assert_int_equal(next(f, &seq), MANTA__FOLLOW_RECORD);
    assert_int_equal(seq, i);
  }
}

static void assert_told(manta__log_follow *f, enum manta__follow want)
{
  uint64_t seq;
  assert_int_equal(next(f, &seq), want);
}

// Waits, as a loop of events would, until something else than WAIT is told.
static int await(manta__log_follow *f, uint64_t *seq)
{
  int rc;
  while ((rc = next(f, seq)) == MANTA__FOLLOW_WAIT)
    assert_true(manta__log_follow_wait(f, manta__deadline(SOON)));
  return rc;
}

static bool readable(int fd)
{
  struct pollfd p = {.fd = fd, .events = POLLIN};
  return poll(&p, 1, 0) == 1;
}

static int open_log(struct bed *b, const char *name)
{
  int fd = openat(b->dir, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  return fd;
}

// A log of rows 1 to n, closed; its bytes.
static int64_t make_log(struct bed *b, int n)
{
  manta__log_writer *w = bed_writer(b, true);
  for (int i = 1; i <= n; i++)
    bed_row(w, 0, 0, i);
  manta__log_writer_close(w);
  return bed_size(b, "run.log");
}

// --- records and places --------------------------------------------------------------------------

static void records_come_as_they_are_written(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, 500, MANTA__LOG_BACKLOG);
  manta__log_follow *f = follow(b, NULL);
  for (uint64_t i = 1; i <= 50; i++) {
    assert_told(f, MANTA__FOLLOW_WAIT);
    bed_row(w, 0, 0, (int64_t)i);
    bed_flush(w);
    assert_rows(f, i, i);
  }
  assert_true(bed_segments(b) > 5);
  assert_told(f, MANTA__FOLLOW_WAIT);
  manta__log_writer_close(w);
  assert_told(f, MANTA__FOLLOW_END);
  manta__log_follow_close(f);
  manta__log_follow_close(NULL);
}

static void a_record_is_given_whole(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ident id = {77, 3, 5, 11};
  static uint8_t big[3 << 20];
  memset(big, 0x5a, sizeof big);
  assert_ok(manta__log_add(w, MANTA__EV_REWIND, &id, 123, "payload", 7, &err), &err);
  assert_ok(manta__log_add(w, MANTA__EV_ROW, &id, 124, big, sizeof big, &err), &err);
  assert_ok(manta__log_add(w, MANTA__EV_FINISH, &id, 125, "", 0, &err), &err);
  manta__log_writer_close(w);
  manta__log_follow *f = follow(b, NULL);
  struct manta__record h;
  const uint8_t *p;
  assert_int_equal(manta__log_follow_next(f, &h, &p, &err), MANTA__FOLLOW_RECORD);
  assert_true(h.kind == MANTA__EV_REWIND && h.len == 7 && h.wall_ns == 123 && h.id.rank == 5);
  assert_memory_equal(p, "payload", 7);
  assert_int_equal(manta__log_follow_next(f, &h, &p, &err), MANTA__FOLLOW_RECORD);
  assert_int_equal(h.len, sizeof big);
  assert_memory_equal(p, big, sizeof big);
  assert_int_equal(manta__log_follow_next(f, &h, &p, &err), MANTA__FOLLOW_RECORD);
  assert_int_equal(h.kind, MANTA__EV_FINISH);
  assert_told(f, MANTA__FOLLOW_END);
  manta__log_follow_close(f);
}

static void a_place_is_taken_up_again(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, 300, MANTA__LOG_BACKLOG); // three in each segment
  for (int i = 1; i <= 9; i++)
    bed_row(w, 0, 0, i);
  manta__log_writer_close(w);
  struct manta__log_place at[10] = {0};
  manta__log_follow *f = follow(b, NULL);
  for (uint64_t i = 1; i <= 9; i++) {
    assert_rows(f, i, i);
    at[i] = manta__log_follow_place(f);
  }
  manta__log_follow_close(f);
  for (uint64_t i = 0; i <= 9; i++) {
    f = follow(b, &at[i]);
    assert_rows(f, i + 1, 9);
    assert_told(f, MANTA__FOLLOW_END);
    struct manta__log_place end = manta__log_follow_place(f);
    assert_memory_equal(&end, &at[9], sizeof end);
    manta__log_follow_close(f);
  }
}

static void the_log_need_not_be_there_yet(void **state)
{
  struct bed *b = *state;
  manta__log_follow *f = follow(b, NULL);
  assert_told(f, MANTA__FOLLOW_END);
  manta__log_writer *w = bed_writer(b, true);
  assert_told(f, MANTA__FOLLOW_WAIT);
  bed_row(w, 0, 0, 1);
  manta__log_writer_close(w);
  assert_rows(f, 1, 1);
  assert_told(f, MANTA__FOLLOW_END);
  manta__log_follow_close(f);
}

// --- torn and cut --------------------------------------------------------------------------------

// A writer that is stopped after every byte: what is not whole is waited for, and never an error.
static void a_torn_end_is_waited_for_at_every_byte(void **state)
{
  struct bed *b = *state;
  char bytes[4096];
  int64_t size = make_log(b, 4), one = size / 4;
  int fd = open_log(b, "run.log");
  assert_int_equal(read(fd, bytes, sizeof bytes), size);
  for (int written = 0; written < 2; written++) {
    struct manta__runlock lock;
    assert_int_equal(ftruncate(fd, 0), 0);
    if (written)
      assert_status(manta__runlock_take(&lock, b->dir, b->path, NULL), MANTA_OK);
    manta__log_follow *f = follow(b, NULL);
    for (int64_t n = 1; n <= size; n++) {
      assert_int_equal(pwrite(fd, bytes + n - 1, 1, n - 1), 1);
      if (n % one == 0)
        assert_rows(f, (uint64_t)(n / one), (uint64_t)(n / one));
      assert_told(f, written ? MANTA__FOLLOW_WAIT : MANTA__FOLLOW_END);
    }
    manta__log_follow_close(f);
    if (written)
      manta__runlock_drop(&lock);
  }
  assert_int_equal(b->warnings, 0);
  close(fd);
}

// Cut off at every byte of its last record; a resumed run cuts the rest and goes on.
static void a_resumed_log_goes_on_behind_the_cut(void **state)
{
  struct bed *b = *state;
  char bytes[4096];
  int64_t size = make_log(b, 3), one = size / 3;
  int fd = open_log(b, "run.log");
  assert_int_equal(read(fd, bytes, sizeof bytes), size);
  for (int64_t cut = 2 * one; cut < size; cut++) {
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, bytes, (size_t)cut, 0), cut);
    manta__log_follow *f = follow(b, NULL);
    assert_rows(f, 1, 2);
    assert_told(f, MANTA__FOLLOW_END);
    manta__log_writer *w = bed_writer(b, false);
    assert_told(f, MANTA__FOLLOW_WAIT);
    bed_add(w, MANTA__EV_REWIND, ident(1, -1, 100), MANTA_MAP(MANTA_KV_INT("to", 1)));
    bed_row(w, 1, 0, 101);
    manta__log_writer_close(w);
    assert_rows(f, 100, 101); // the rewind is given like any other
    assert_told(f, MANTA__FOLLOW_END);
    manta__log_follow_close(f);
  }
  close(fd);
}

// Zeros behind the last record, as a power cut leaves them.
static void zeros_at_the_end_are_no_damage(void **state)
{
  struct bed *b = *state;
  int64_t size = make_log(b, 2);
  manta__log_follow *f = follow(b, NULL);
  assert_rows(f, 1, 2);
  int fd = open_log(b, "run.log");
  assert_int_equal(ftruncate(fd, size + 10000), 0);
  assert_told(f, MANTA__FOLLOW_END);
  assert_int_equal(ftruncate(fd, size + 20000), 0); // nobody writes: whoever it was, it is torn
  assert_told(f, MANTA__FOLLOW_END);
  manta__log_writer *w = bed_writer(b, false);
  bed_row(w, 1, 0, 3);
  bed_flush(w);
  assert_rows(f, 3, 3);
  assert_told(f, MANTA__FOLLOW_WAIT);
  manta__log_writer_close(w);
  manta__log_follow_close(f);
  close(fd);
}

static void a_log_that_lost_records_begins_anew(void **state)
{
  struct bed *b = *state;
  int64_t one = make_log(b, 3) / 3;
  manta__log_follow *f = follow(b, NULL);
  assert_rows(f, 1, 3);
  struct manta__log_place end = manta__log_follow_place(f);
  int fd = open_log(b, "run.log");
  assert_int_equal(ftruncate(fd, one), 0);
  assert_told(f, MANTA__FOLLOW_CUT);
  assert_rows(f, 1, 1);
  assert_told(f, MANTA__FOLLOW_END);
  manta__log_follow_close(f);
  // The same is seen by who comes back, whatever has been written there since.
  for (int rows = 0; rows < 4; rows++) {
    f = follow(b, &end);
    assert_told(f, MANTA__FOLLOW_CUT);
    assert_rows(f, 1, 1);
    for (int i = 0; i < rows; i++)
      assert_rows(f, 9, 9);
    assert_told(f, MANTA__FOLLOW_END);
    manta__log_follow_close(f);
    manta__log_writer *w = bed_writer(b, false);
    bed_row(w, 1, 0, 9);
    manta__log_writer_close(w);
  }
  close(fd);
}

static void a_place_without_sense_is_a_cut(void **state)
{
  struct bed *b = *state;
  make_log(b, 2);
  manta__log_follow *f = follow(b, NULL);
  assert_rows(f, 1, 1);
  struct manta__log_place good = manta__log_follow_place(f),
                          bad[] = {
                              {.segment = 1},
                              {.segment = -1, .end = good.end, .hash = good.hash},
                              {.segment = INT64_MAX, .end = good.end, .hash = good.hash},
                              {.segment = 2, .end = good.end, .hash = good.hash},
                              {.segment = 1, .start = -1, .end = good.end, .hash = good.hash},
                              {.segment = 1, .start = 1, .end = good.end, .hash = good.hash},
                              {.segment = 1,
                               .start = INT64_MIN,
                               .end = INT64_MAX,
                               .hash = good.hash},
                              {.segment = 1, .end = INT64_MAX, .hash = good.hash},
                              {.segment = 1, .end = good.end + 1, .hash = good.hash},
                              {.segment = 1, .end = good.end, .hash = good.hash + 1},
                          };
  manta__log_follow_close(f);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    f = follow(b, &bad[i]);
    assert_told(f, MANTA__FOLLOW_CUT);
    assert_rows(f, 1, 2);
    manta__log_follow_close(f);
  }
}

// --- damage --------------------------------------------------------------------------------------

// A byte is changed, and the writer goes on: from its next write on that is an error.
static void damage_before_a_writer_is_an_error(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  for (int i = 1; i <= 3; i++)
    bed_row(w, 0, 0, i);
  bed_flush(w);
  int64_t one = bed_size(b, "run.log") / 3;
  int fd = open_log(b, "run.log"), errors = 0;
  for (int64_t at = one; at < 2 * one; at++) {
    uint8_t was, bad;
    manta_error err = MANTA_ERROR_INIT;
    struct manta__record h;
    const uint8_t *p;
    assert_int_equal(pread(fd, &was, 1, at), 1);
    bad = was ^ 0x10;
    assert_int_equal(pwrite(fd, &bad, 1, at), 1);
    manta__log_follow *f = follow(b, NULL);
    assert_rows(f, 1, 1);
    assert_told(f, MANTA__FOLLOW_WAIT);
    bed_row(w, 0, 0, 4);
    bed_flush(w);
    // A length that is now larger than what is there is waited for: bytes 4 to 7.
    int rc = manta__log_follow_next(f, &h, &p, &err);
    if (rc < 0) {
      assert_status(rc, MANTA_ECORRUPT);
      assert_has(err.message, "damaged at byte");
      assert_status(manta__log_follow_next(f, &h, &p, &err), MANTA_ECORRUPT);
      errors++;
    } else {
      assert_true(rc == MANTA__FOLLOW_WAIT && at >= one + 4 && at < one + 8);
    }
    assert_int_equal(pwrite(fd, &was, 1, at), 1);
    assert_rows(f, 2, 3); // and when it is mended, the rest is there
    manta__log_follow_close(f);
  }
  assert_true(errors >= one - 4);
  manta__log_writer_close(w);
  close(fd);
}

static void damage_costs_one_segment(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, 300, MANTA__LOG_BACKLOG); // three in each segment
  for (int i = 1; i <= 9; i++)
    bed_row(w, 0, 0, i);
  manta__log_writer_close(w);
  int64_t one = bed_size(b, "run.log") / 3;
  int fd = open_log(b, "run.log.2");
  assert_int_equal(pwrite(fd, "?", 1, one + 60), 1); // in its second record
  close(fd);
  manta__log_follow *f = follow(b, NULL);
  assert_rows(f, 1, 4);
  assert_rows(f, 7, 9);
  assert_told(f, MANTA__FOLLOW_END);
  assert_has(b->warning, "run.log.2 is damaged");
  manta__log_follow_close(f);
}

// A header that promises 64 MB in a small file: no memory is taken for it.
static void a_length_is_not_believed(void **state)
{
  struct bed *b = *state;
  int64_t size = make_log(b, 1);
  int fd = open_log(b, "run.log");
  struct manta__record h = {.magic = MANTA__LOG_MAGIC, .len = MANTA__LOG_MAX_PAYLOAD};
  assert_int_equal(pwrite(fd, &h, sizeof h, size), sizeof h);
  assert_int_equal(ftruncate(fd, size + 100000), 0);
  manta__alloc_fail_after(3); // the follower, the reader, its buffer
  manta__log_follow *f = follow(b, NULL);
  assert_rows(f, 1, 1);
  assert_told(f, MANTA__FOLLOW_END);
  assert_int_equal(manta__alloc_fail_after(-1), 3);
  manta__log_follow_close(f);
  close(fd);
}

static void what_is_no_file_is_an_error(void **state)
{
  struct bed *b = *state;
  manta__log_follow *f;
  manta_error err = MANTA_ERROR_INIT;
  assert_int_equal(mkfifoat(b->dir, "run.log", 0600), 0); // must not hang
  assert_status(manta__log_follow_open(&f, b->dir, NULL, &err), MANTA_EIO);
  assert_has(err.message, "not a regular file");
}

// --- the directory -------------------------------------------------------------------------------

static void a_deleted_log_is_gone(void **state)
{
  struct bed *b = *state;
  make_log(b, 2);
  manta__log_follow *f = follow(b, NULL);
  assert_true(manta__log_follow_fd(f) >= 0);
  assert_rows(f, 1, 2);
  assert_told(f, MANTA__FOLLOW_END);
  assert_int_equal(unlinkat(b->dir, "run.log", 0), 0);
  assert_true(manta__log_follow_wait(f, manta__deadline(SOON)));
  assert_told(f, MANTA__FOLLOW_GONE);
  assert_told(f, MANTA__FOLLOW_GONE);
  manta__log_follow_close(f);
}

static void a_deleted_directory_is_gone(void **state)
{
  struct bed *b = *state;
  assert_int_equal(mkdirat(b->dir, "sub", 0700), 0);
  struct bed sub = {.dir = openat(b->dir, "sub", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  manta__log_follow *f = follow(&sub, NULL);
  assert_told(f, MANTA__FOLLOW_END);
  assert_int_equal(unlinkat(b->dir, "sub", AT_REMOVEDIR), 0);
  assert_told(f, MANTA__FOLLOW_GONE);
  manta__log_follow_close(f);
  close(sub.dir);
}

static void a_directory_may_be_moved(void **state)
{
  struct bed *b = *state;
  assert_int_equal(mkdirat(b->dir, "a", 0700), 0);
  struct bed sub = {.dir = openat(b->dir, "a", O_RDONLY | O_DIRECTORY | O_CLOEXEC), .path = "a"};
  manta__log_writer *w = bed_writer(&sub, true);
  manta__log_follow *f = follow(&sub, NULL);
  assert_true(manta__log_follow_fd(f) >= 0);
  assert_told(f, MANTA__FOLLOW_WAIT);
  assert_int_equal(renameat(b->dir, "a", b->dir, "b"), 0);
  bed_row(w, 0, 0, 1);
  bed_flush(w);
  assert_true(manta__log_follow_wait(f, manta__deadline(SOON)));
  assert_rows(f, 1, 1);
  manta__log_writer_close(w);
  manta__log_follow_close(f);
  close(sub.dir);
}

// --- waking --------------------------------------------------------------------------------------

// A write is told by the time it returns; no clock is needed to see that.
static void a_write_wakes_at_once(void **state)
{
  struct bed *b = *state;
  struct manta__log_wake w;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__log_wake_open(&w, &err), &err);
  close(open_log(b, "x"));
  manta__log_wake_watch(&w, b->dir);
  assert_int_equal(poll(&(struct pollfd){.fd = w.fd, .events = POLLIN}, 1, (int)(SOON * 1000)), 1);
  if (w.notify < 0)
    skip_because("the file system of /tmp is not one of those that tell");
  assert_false(readable(w.notify));
  manta__log_writer *log = bed_writer(b, true); // makes files
  assert_true(readable(w.notify) && readable(w.fd));
  for (int i = 1; i <= 3; i++) {
    manta__log_wake_clear(&w);
    manta__log_wake_arm(&w, false);
    assert_false(readable(w.notify));
    bed_row(log, 0, 0, i);
    assert_false(readable(w.notify)); // it is in the writer's memory
    bed_flush(log);
    assert_true(readable(w.notify) && readable(w.fd));
  }
  manta__log_wake_clear(&w);
  assert_int_equal(manta__runlock_holder(b->dir), getpid());
  assert_false(readable(w.notify)); // to look does not wake
  manta__log_writer_close(log);
  assert_true(readable(w.notify)); // the end of a writer does
  manta__log_wake_close(&w);
  manta__log_wake_close(&w);
}

// After a batch the watch is muted, and what comes meanwhile is seen when the pause is over.
static void a_batch_is_waited_for(void **state)
{
  struct bed *b = *state;
  struct manta__log_wake w;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__log_wake_open(&w, &err), &err);
  manta__log_wake_watch(&w, b->dir);
  manta__log_wake_clear(&w);
  manta__log_wake_arm(&w, true);
  close(open_log(b, "x"));
  struct pollfd p = {.fd = w.fd, .events = POLLIN}, timer = {.fd = w.timer, .events = POLLIN};
  assert_int_equal(poll(&p, 1, (int)(SOON * 1000)), 1);
  assert_int_equal(poll(&timer, 1, 0), 1); // not the watch has woken us, though it knows
  manta__log_wake_close(&w);
}

static void without_a_watch_the_log_is_polled(void **state)
{
  struct manta__log_wake w;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__log_wake_open(&w, &err), &err);
  assert_int_equal(w.notify, -1);
  for (int i = 0; i < 3; i++) {
    struct pollfd p = {.fd = w.fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, (int)(SOON * 1000)), 1);
    manta__log_wake_clear(&w);
    assert_false(readable(w.timer));
    manta__log_wake_arm(&w, i % 2);
  }
  manta__log_wake_close(&w);
}

// No descriptor left for a watch: the log is followed all the same.
static void a_watch_that_cannot_be_had_is_done_without(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  struct rlimit old, few;
  int free_fd = dup(b->dir);
  close(free_fd);
  getrlimit(RLIMIT_NOFILE, &old);
  few = (struct rlimit){(rlim_t)free_fd + 2, old.rlim_max};
  struct manta__log_wake wake;
  manta_error err = MANTA_ERROR_INIT;
  setrlimit(RLIMIT_NOFILE, &few); // for fd and timer
  manta_status st = manta__log_wake_open(&wake, &err);
  if (st == MANTA_OK)
    manta__log_wake_watch(&wake, b->dir);
  setrlimit(RLIMIT_NOFILE, &old);
  assert_ok(st, &err);
  assert_int_equal(wake.notify, -1);
  bed_row(w, 0, 0, 1);
  bed_flush(w);
  struct pollfd p = {.fd = wake.fd, .events = POLLIN};
  assert_int_equal(poll(&p, 1, (int)(SOON * 1000)), 1);
  manta__log_wake_close(&wake);
  few.rlim_cur = (rlim_t)free_fd + 1;
  setrlimit(RLIMIT_NOFILE, &few);
  st = manta__log_wake_open(&wake, &err);
  setrlimit(RLIMIT_NOFILE, &old);
  assert_status(st, MANTA_EIO);
  assert_int_equal(dup(b->dir), free_fd); // nothing is left open
  close(free_fd);
  manta__log_writer_close(w);
}

// System calls that read, of this process; -1 if it is not told.
static int64_t reads(void)
{
  char text[512] = "";
  long long n = -1;
  int fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
    return -1;
  close(fd);
  const char *at = strstr(text, "syscr:");
  return at && sscanf(at, "syscr: %lld", &n) == 1 ? n : -1;
}

static void a_batch_is_one_read(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_follow *f = follow(b, NULL);
  assert_told(f, MANTA__FOLLOW_WAIT);
  if (reads() < 0)
    skip_because("/proc/self/io is not there");
  int64_t own = -reads();
  own += reads(); // what it takes to ask
  for (int round = 0; round < 3; round++) {
    for (int i = 1; i <= 500; i++)
      bed_row(w, 0, 0, i);
    bed_flush(w);
    assert_true(bed_size(b, "run.log") < (round + 1) * 65536);
    assert_told(f, MANTA__FOLLOW_RECORD); // clears what woke it: reads of its own
    int64_t before = reads();
    assert_rows(f, 2, 500);
    assert_told(f, MANTA__FOLLOW_WAIT);
    assert_int_equal(reads() - before, own); // the first record's read brought them all
  }
  manta__log_follow_close(f);
  manta__log_writer_close(w);
}

// --- two processes -------------------------------------------------------------------------------

struct child {
  pid_t pid;
  int ask[2], did[2]; /* pipes: write the next, written */
};

// A writer of rows that does what it is told: so many rows in one flush; 0: its end.
static void be_writer(struct bed *b, const struct child *c)
{
  manta__log_writer *w = bed_writer(b, faccessat(b->dir, "run.log", F_OK, 0) < 0);
  int64_t row = 0;
  uint8_t n;
  manta__log_set_limits(w, 4000, MANTA__LOG_BACKLOG);
  while (write(c->did[1], "", 1) == 1 && read(c->ask[0], &n, 1) == 1 && n > 0) {
    for (int i = 0; i < n; i++)
      bed_row(w, 0, 0, ++row);
    bed_flush(w);
  }
  manta__log_writer_close(w);
  _exit(0);
}

static void start_writer(struct bed *b, struct child *c)
{
  char ready;
  assert_true(pipe(c->ask) == 0 && pipe(c->did) == 0);
  c->pid = fork();
  if (c->pid == 0)
    be_writer(b, c);
  assert_int_equal(read(c->did[0], &ready, 1), 1);
}

static void tell(const struct child *c, uint8_t rows)
{
  char done;
  assert_int_equal(write(c->ask[1], &rows, 1), 1);
  if (rows > 0)
    assert_int_equal(read(c->did[0], &done, 1), 1);
}

static int reap(struct child *c)
{
  int status = -1;
  assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
  for (int i = 0; i < 2; i++) {
    close(c->ask[i]);
    close(c->did[i]);
  }
  return status;
}

// Nothing but the descriptor says when to look.
static void another_process_wakes_the_follower(void **state)
{
  struct bed *b = *state;
  struct child c;
  uint64_t seq = 0, last = 0;
  start_writer(b, &c);
  manta__log_follow *f = follow(b, NULL);
  assert_told(f, MANTA__FOLLOW_WAIT);
  for (int i = 1; i <= 60; i++) {
    tell(&c, (uint8_t)i);
    for (int k = 0; k < i; k++) {
      assert_int_equal(await(f, &seq), MANTA__FOLLOW_RECORD);
      assert_int_equal(seq, ++last);
    }
  }
  tell(&c, 0);
  assert_int_equal(await(f, &seq), MANTA__FOLLOW_END);
  assert_int_equal(reap(&c), 0);
  assert_int_equal(manta__log_follow_place(f).segment > 10, 1);
  assert_int_equal(b->warnings, 0);
  manta__log_follow_close(f);
}

static void the_death_of_a_writer_is_seen(void **state)
{
  struct bed *b = *state;
  struct child c;
  uint64_t seq = 0;
  start_writer(b, &c);
  manta__log_follow *f = follow(b, NULL);
  tell(&c, 3);
  assert_rows(f, 1, 3);
  assert_told(f, MANTA__FOLLOW_WAIT);
  manta__proc_signal(c.pid, SIGKILL);
  assert_int_equal(await(f, &seq), MANTA__FOLLOW_END);
  assert_int_equal(reap(&c), SIGKILL);
  start_writer(b, &c); // resumed
  assert_told(f, MANTA__FOLLOW_WAIT);
  tell(&c, 2);
  assert_rows(f, 1, 2);
  tell(&c, 0);
  assert_int_equal(await(f, &seq), MANTA__FOLLOW_END);
  assert_int_equal(reap(&c), 0);
  manta__log_follow_close(f);
}

// At full speed, through many segments, by a follower that starts anew from its place again and
// again.
static void nothing_is_lost_or_given_twice(void **state)
{
  struct bed *b = *state;
  enum { N = 20000 };
  pid_t pid = fork();
  if (pid == 0) {
    manta__log_writer *w = bed_writer(b, true);
    manta__log_set_limits(w, 16000, MANTA__LOG_BACKLOG);
    for (int i = 1; i <= N; i++) {
      bed_row(w, 0, 0, i);
      if (i % 17 == 0)
        bed_flush(w);
    }
    manta__log_writer_close(w);
    _exit(0);
  }
  manta__log_follow *f = follow(b, NULL);
  uint64_t seq = 0, last = 0;
  while (last < N) {
    int rc = await(f, &seq);
    if (rc == MANTA__FOLLOW_RECORD) {
      assert_int_equal(seq, ++last);
    } else { // it has not begun
      assert_true(rc == MANTA__FOLLOW_END && last == 0);
      manta__log_follow_wait(f, manta__deadline(SOON));
    }
    if (last % 701 == 0 && rc == MANTA__FOLLOW_RECORD) {
      struct manta__log_place at = manta__log_follow_place(f);
      manta__log_follow_close(f);
      f = follow(b, &at);
    }
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_told(f, MANTA__FOLLOW_END);
  assert_int_equal(b->warnings, 0);
  manta__log_follow_close(f);
}

static void opening_survives_any_oom(void **state)
{
  struct bed *b = *state;
  manta__log_follow *f;
  make_log(b, 1);
  FOR_EACH_OOM(manta__log_follow_open(&f, b->dir, NULL, NULL), manta__log_follow_close(f));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      TEST(records_come_as_they_are_written),
      TEST(a_record_is_given_whole),
      TEST(a_place_is_taken_up_again),
      TEST(the_log_need_not_be_there_yet),
      TEST(a_torn_end_is_waited_for_at_every_byte),
      TEST(a_resumed_log_goes_on_behind_the_cut),
      TEST(zeros_at_the_end_are_no_damage),
      TEST(a_log_that_lost_records_begins_anew),
      TEST(a_place_without_sense_is_a_cut),
      TEST(damage_before_a_writer_is_an_error),
      TEST(damage_costs_one_segment),
      TEST(a_length_is_not_believed),
      TEST(what_is_no_file_is_an_error),
      TEST(a_deleted_log_is_gone),
      TEST(a_deleted_directory_is_gone),
      TEST(a_directory_may_be_moved),
      TEST(a_write_wakes_at_once),
      TEST(a_batch_is_waited_for),
      TEST(without_a_watch_the_log_is_polled),
      TEST(a_watch_that_cannot_be_had_is_done_without),
      TEST(a_batch_is_one_read),
      TEST(another_process_wakes_the_follower),
      TEST(the_death_of_a_writer_is_seen),
      TEST(nothing_is_lost_or_given_twice),
      TEST(opening_survives_any_oom),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  return cmocka_run_group_tests_name("event_follow", tests, NULL, NULL);
}
