/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory without names, and waiting on a word in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "holder.h"
#include "sys/shm.h"

static int make(size_t bytes)
{
  manta_error err = MANTA_ERROR_INIT;
  int fd = -1;
  assert_ok(manta__shm_create("test", bytes, &fd, &err), &err);
  return fd;
}

static void its_size_is_sealed(void **ctx)
{
  int fd = make(5000);
  assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  assert_int_equal(ftruncate(fd, 4999), -1);
  assert_int_equal(errno, EPERM);
  assert_int_equal(ftruncate(fd, 5001), -1);
  assert_int_equal(errno, EPERM);
  assert_int_equal(pwrite(fd, "x", 1, 5000), -1);
  close(fd);
}

static int write_word(void *p)
{
  memcpy(p, "hello", 6);
  return 0;
}

static void what_one_writes_another_process_reads(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  void *p, *q;
  size_t bytes;
  int said, fd = make(10000);
  assert_ok(manta__shm_map(fd, &p, &bytes, &err), &err);
  assert_int_equal(bytes, 10000);
  assert_ok(manta__shm_map(fd, &q, &bytes, &err), &err);
  close(fd);
  holder_kill(holder_start(write_word, p, &said));
  assert_string_equal(q, "hello");
  manta__shm_unmap(p, bytes);
  manta__shm_unmap(q, bytes);
  manta__shm_unmap(NULL, bytes);
}

static void refuse(int fd)
{
  manta_error err = MANTA_ERROR_INIT;
  void *p = NULL;
  size_t bytes;
  assert_status(manta__shm_map(fd, &p, &bytes, &err), MANTA_EPROTO);
  assert_null(p);
  if (fd >= 0)
    close(fd);
}

// A peer could shrink it under us: a SIGBUS instead of an error.
static void what_is_not_sealed_is_refused(void **ctx)
{
  int fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(ftruncate(fd, 4096), 0);
  refuse(dup(fd));
  assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
  refuse(fd);
  refuse(open("/dev/zero", O_RDWR | O_CLOEXEC));
  refuse(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  refuse(-1);
}

static void an_empty_segment_is_an_error_and_no_mapping(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  void *p = NULL;
  size_t bytes;
  int fd = make(0);
  assert_true(manta__shm_map(fd, &p, &bytes, &err) < 0);
  assert_null(p);
  close(fd);
}

static void an_impossible_size_is_an_error(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  int fd = -1;
  assert_status(manta__shm_create("huge", SIZE_MAX, &fd, &err), MANTA_EIO);
  assert_has(err.message, "huge");
  assert_int_equal(fd, -1);
}

// --- waiting ------------------------------------------------------------------------------------

static void a_wait_ends_at_its_deadline(void **ctx)
{
  _Atomic uint32_t word = 3;
  int64_t t0 = manta__now();
  while (manta__now() - t0 < 10000000) // it may wake spuriously
    manta__futex_wait(&word, 3, t0 + 10000000);
  assert_true(manta__now() - t0 < 5000000000);
  t0 = manta__now();
  manta__futex_wait(&word, 3, t0);            // passed
  manta__futex_wait(&word, 3, 0);             // long ago
  manta__futex_wait(&word, 3, INT64_MIN / 2); // before the clock began
  manta__futex_wait(&word, 4, MANTA__NEVER);  // another value: not at all
  assert_true(manta__now() - t0 < 1000000000);
}

struct words {
  _Atomic uint32_t go, woken;
};

static int sleep_on_it(void *p)
{
  struct words *w = p;
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (atomic_load(&w->go) == 0)
      manta__futex_wait(&w->go, 0, MANTA__NEVER);
    atomic_store(&w->woken, 1);
    manta__futex_wake(&w->woken, 1);
    pause();
  }
  return 0;
}

static void a_sleeper_in_another_process_is_woken(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  void *p;
  size_t bytes;
  int said, fd = make(sizeof(struct words));
  assert_ok(manta__shm_map(fd, &p, &bytes, &err), &err);
  close(fd);
  struct words *w = p;
  pid_t pid = holder_start(sleep_on_it, w, &said);
  usleep(10000);
  assert_int_equal(atomic_load(&w->woken), 0);
  atomic_store(&w->go, 1);
  manta__futex_wake(&w->go, 1);
  int64_t by = manta__deadline(10);
  while (atomic_load(&w->woken) == 0 && manta__now() < by)
    manta__futex_wait(&w->woken, 0, by);
  assert_int_equal(atomic_load(&w->woken), 1);
  holder_kill(pid);
  manta__shm_unmap(p, bytes);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(its_size_is_sealed),
      cmocka_unit_test(what_one_writes_another_process_reads),
      cmocka_unit_test(what_is_not_sealed_is_refused),
      cmocka_unit_test(an_empty_segment_is_an_error_and_no_mapping),
      cmocka_unit_test(an_impossible_size_is_an_error),
      cmocka_unit_test(a_wait_ends_at_its_deadline),
      cmocka_unit_test(a_sleeper_in_another_process_is_woken),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
