/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets that carry descriptors.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/sock.h"
#include "test.h"

static void pair(int end[2])
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__sock_pair(end, &err), &err);
}

static int lowest_fd(void)
{
  int fd = dup(0);
  close(fd);
  return fd;
}

static int numbered(int n)
{
  int fd = memfd_create("n", MFD_CLOEXEC);
  assert_int_equal(pwrite(fd, &n, sizeof n, 0), sizeof n);
  return fd;
}

static void descriptors_arrive_in_order(void **ctx)
{
  int end[2], fd[MANTA__SOCK_MAX_FDS], got[MANTA__SOCK_MAX_FDS], count = -1, n;
  char text[8] = "";
  pair(end);
  for (int i = 0; i < MANTA__SOCK_MAX_FDS; i++)
    fd[i] = numbered(i);
  assert_int_equal(manta__sock_send(end[0], "abc", 3, fd, MANTA__SOCK_MAX_FDS), 3);
  manta__fd_close_all(fd, MANTA__SOCK_MAX_FDS);
  assert_int_equal(fd[3], -1);
  assert_int_equal(manta__sock_recv(end[1], text, 8, got, MANTA__SOCK_MAX_FDS, &count), 3);
  assert_string_equal(text, "abc");
  assert_int_equal(count, MANTA__SOCK_MAX_FDS);
  for (int i = 0; i < count; i++) {
    assert_int_equal(pread(got[i], &n, sizeof n, 0), sizeof n);
    assert_int_equal(n, i);
    assert_int_equal(fcntl(got[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  manta__fd_close_all(got, count);
  manta__fd_close_all(end, 2);
}

static void too_many_to_send_are_refused(void **ctx)
{
  int end[2], fd[MANTA__SOCK_MAX_FDS + 1] = {0};
  pair(end);
  errno = 0;
  assert_int_equal(manta__sock_send(end[0], "x", 1, fd, MANTA__SOCK_MAX_FDS + 1), -1);
  assert_int_equal(errno, EINVAL);
  manta__fd_close_all(end, 2);
}

static void too_many_to_receive_are_told_and_not_leaked(void **ctx)
{
  int before = lowest_fd(), end[2], fd[3], got[2] = {-1, -1}, count = -1;
  char x;
  pair(end);
  for (int i = 0; i < 3; i++)
    fd[i] = numbered(i);
  assert_int_equal(manta__sock_send(end[0], "x", 1, fd, 3), 1);
  assert_int_equal(manta__sock_recv(end[1], &x, 1, got, 2, &count), -1);
  assert_int_equal(errno, EMFILE);
  assert_int_equal(count, 0);
  manta__fd_close_all(fd, 3);
  manta__fd_close_all(end, 2);
  assert_int_equal(lowest_fd(), before);
}

// The process is at its own limit: what cannot be taken is told, not silently less.
static void a_full_table_of_descriptors_is_told(void **ctx)
{
  int end[2], fd[2] = {numbered(0), numbered(1)}, got[2], count = -1;
  struct rlimit was, tight;
  char x;
  pair(end);
  assert_int_equal(manta__sock_send(end[0], "x", 1, fd, 2), 1);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
  tight = was;
  tight.rlim_cur = (rlim_t)lowest_fd() + 1; // room for one more
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
  ssize_t n = manta__sock_recv(end[1], &x, 1, got, 2, &count);
  int error = errno;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
  assert_int_equal(n, -1);
  assert_int_equal(error, EMFILE);
  assert_int_equal(count, 0);
  manta__fd_close_all(fd, 2);
  manta__fd_close_all(end, 2);
}

static void the_end_is_zero_and_a_pipe_error_no_signal(void **ctx)
{
  int end[2], got, count = -1;
  char x;
  pair(end);
  manta__fd_close(&end[0]);
  assert_int_equal(manta__sock_recv(end[1], &x, 1, &got, 1, &count), 0);
  assert_int_equal(count, 0);
  assert_int_equal(manta__sock_send(end[1], "x", 1, NULL, 0), -1);
  assert_int_equal(errno, EPIPE);
  manta__fd_close(&end[1]);
  assert_int_equal(manta__sock_recv(end[1], &x, 1, &got, 1, &count), -1);
  assert_int_equal(count, 0);
}

static void waiting_is_for_what_was_asked(void **ctx)
{
  int end[2];
  pair(end);
  int64_t t0 = manta__now();
  assert_int_equal(manta__fd_wait(end[0], false, t0 + 5000000), 0);
  assert_true(manta__now() - t0 >= 5000000);
  assert_int_equal(manta__fd_wait(end[0], true, MANTA__NEVER), 1);
  assert_int_equal(manta__sock_send(end[1], "x", 1, NULL, 0), 1);
  assert_int_equal(manta__fd_wait(end[0], false, MANTA__NEVER), 1);
  assert_int_equal(manta__fd_wait(end[0], false, 0), 1);
  manta__fd_close_all(end, 2);
}

static void on_alarm(int sig)
{
}

static void a_signal_does_not_cut_a_wait_short(void **ctx)
{
  struct sigaction was, sa = {.sa_handler = on_alarm};
  int end[2];
  pair(end);
  sigaction(SIGALRM, &sa, &was);
  ualarm(3000, 3000);
  int64_t t0 = manta__now();
  assert_int_equal(manta__fd_wait(end[0], false, t0 + 20000000), 0);
  assert_true(manta__now() - t0 >= 20000000);
  ualarm(0, 0);
  sigaction(SIGALRM, &was, NULL);
  manta__fd_close_all(end, 2);
}

static void nonblocking_goes_both_ways(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  int end[2], got, count;
  char x;
  pair(end);
  assert_ok(manta__fd_nonblock(end[0], true, &err), &err);
  assert_int_equal(manta__sock_recv(end[0], &x, 1, &got, 1, &count), -1);
  assert_int_equal(errno, EAGAIN);
  assert_ok(manta__fd_nonblock(end[0], false, &err), &err);
  assert_int_equal(fcntl(end[0], F_GETFL) & O_NONBLOCK, 0);
  manta__fd_close_all(end, 2);
  assert_status(manta__fd_nonblock(-1, true, &err), MANTA_EIO);
}

static void closing_keeps_errno_and_forgets(void **ctx)
{
  int fd = numbered(1), none = -1;
  errno = EDOM;
  manta__fd_close(&fd);
  manta__fd_close(&fd);
  manta__fd_close(&none);
  assert_int_equal(fd, -1);
  assert_int_equal(errno, EDOM);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(descriptors_arrive_in_order),
      cmocka_unit_test(too_many_to_send_are_refused),
      cmocka_unit_test(too_many_to_receive_are_told_and_not_leaked),
      cmocka_unit_test(a_full_table_of_descriptors_is_told),
      cmocka_unit_test(the_end_is_zero_and_a_pipe_error_no_signal),
      cmocka_unit_test(waiting_is_for_what_was_asked),
      cmocka_unit_test(a_signal_does_not_cut_a_wait_short),
      cmocka_unit_test(nonblocking_goes_both_ways),
      cmocka_unit_test(closing_keeps_errno_and_forgets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
