/* SPDX-License-Identifier: Apache-2.0
 *
 * One writer per run: who else tries is told who has it, and it is free when that process is dead.
 */
#include <signal.h>
#include <sys/wait.h>

#include "bed.h"
#include "event/lock.h"
#include "sys/proc.h"

static void wait_byte(int fd)
{
  char c;
  assert_int_equal(read(fd, &c, 1), 1);
}

static void say_byte(int fd)
{
  assert_int_equal(write(fd, "!", 1), 1);
}

static void two_writers_in_one_process(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true), *other;
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__log_writer_open(&other, b->dir, false, &err), MANTA_ESTATE);
  assert_has(err.message, "by this process already");
  assert_int_equal(manta__runlock_holder(b->dir), getpid());
  manta__log_writer_close(w);
  assert_int_equal(manta__runlock_holder(b->dir), 0);
  manta__log_writer_close(bed_writer(b, false));
}

static void another_process_is_refused(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  manta__log_set_limits(w, 200, MANTA__LOG_BACKLOG);
  for (int i = 1; i < 20; i++) // the lock must hold over segments
    bed_row(w, 0, 0, i);
  bed_flush(w);
  assert_true(bed_segments(b) > 5);
  bed_read(b, NULL, 0, NULL); // nor may a reader's closing of files drop it
  assert_int_equal(manta__runlock_holder(b->dir), getpid());
  pid_t pid = fork();
  if (pid == 0) {
    manta__log_writer *other;
    manta_error err = MANTA_ERROR_INIT;
    char want[64];
    snprintf(want, sizeof want, "being written by another process (pid %d)", (int)getppid());
    bool ok = manta__log_writer_open(&other, b->dir, false, &err) == MANTA_ESTATE;
    ok = ok && strstr(err.message, want) && strstr(err.message, b->path);
    ok = ok && manta__runlock_holder(b->dir) == getppid();
    _exit(ok ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  manta__log_writer_close(w);
}

// The holder is killed while a child that it forked lives on with all its descriptors.
static void the_lock_dies_with_its_holder(void **state)
{
  struct bed *b = *state;
  int ready[2], stay[2], status;
  assert_int_equal(pipe(ready), 0);
  assert_int_equal(pipe(stay), 0);
  pid_t pid = fork();
  if (pid == 0) {
    bed_writer(b, true);
    if (fork() == 0) { // keeps everything open until the test closes `stay`
      char c;
      close(stay[1]);
      say_byte(ready[1]);
      _exit(read(stay[0], &c, 1) < 0);
    }
    pause();
  }
  wait_byte(ready[0]);
  manta__log_writer *w = NULL;
  assert_status(manta__log_writer_open(&w, b->dir, false, NULL), MANTA_ESTATE);
  assert_int_equal(manta__runlock_holder(b->dir), pid);
  assert_int_equal(manta__proc_signal(pid, SIGKILL), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  w = bed_writer(b, false);
  manta__log_writer_close(w);
  for (int i = 0; i < 2; i++) {
    close(stay[i]);
    close(ready[i]);
  }
}

// A fork of the writer frees its copy: nothing is written twice, and the lock stays the parent's.
static void a_fork_leaves_the_log_alone(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  bed_row(w, 0, 0, 1);
  pid_t pid = fork();
  if (pid == 0) {
    manta__log_writer_close(w);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(bed_size(b, "run.log"), 0);
  pid = fork();
  if (pid == 0) {
    manta__log_writer *other;
    _exit(manta__log_writer_open(&other, b->dir, false, NULL) == MANTA_ESTATE ? 0 : 1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  manta__log_writer_close(w);
  assert_int_equal(bed_read(b, NULL, 0, NULL), 1);
}

// A reader in another process follows a writer that goes through many segments and cut-backs.
static void a_reader_keeps_up_with_a_writer(void **state)
{
  struct bed *b = *state;
  enum { N = 20000 };
  manta__log_writer_close(bed_writer(b, true));
  pid_t pid = fork();
  if (pid == 0) {
    manta__log_writer *w = bed_writer(b, false);
    manta__log_set_limits(w, 4000, MANTA__LOG_BACKLOG);
    for (int i = 1; i <= N; i++) {
      bed_row(w, 0, 0, i);
      if (i % 13 == 0)
        manta__log_flush(w, NULL);
    }
    manta__log_writer_close(w);
    _exit(0);
  }
  manta__log_reader *r;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__record h;
  const uint8_t *p;
  assert_ok(manta__log_reader_open(&r, b->dir, &err), &err);
  for (uint64_t seen = 0; seen < N;) {
    int rc = manta__log_next(r, &h, &p, &err);
    assert_ok(rc, &err);
    if (rc == 1)
      assert_int_equal(h.id.seq, ++seen);
  }
  assert_int_equal(manta__log_torn(r), 0); // and nothing was taken for damage on the way
  assert_int_equal(b->warnings, 0);
  manta__log_reader_close(r);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(two_writers_in_one_process),      TEST(another_process_is_refused),
      TEST(the_lock_dies_with_its_holder),   TEST(a_fork_leaves_the_log_alone),
      TEST(a_reader_keeps_up_with_a_writer),
  };
  return cmocka_run_group_tests_name("event_lock", tests, NULL, NULL);
}
