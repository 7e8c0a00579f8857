/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting processes: what they are born with, and nothing else. The program started is this one,
 * which as a child writes down what it finds.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"
#include "sys/proc.h"

extern char **environ;

// --- the child ----------------------------------------------------------------------------------

/* Which of the first 63 signals are not as a fresh program has them. */
static uint64_t odd_signals(void)
{
  uint64_t odd = 0;
  sigset_t mask;
  sigprocmask(SIG_SETMASK, NULL, &mask);
  for (int s = 1; s < 63; s++) {
    struct sigaction sa;
    if (sigismember(&mask, s) == 1)
      odd |= 1ull << s;
    if (sigaction(s, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN)
      odd |= 1ull << s;
  }
  return odd;
}

/* Descriptors that are open, as bits. */
static uint64_t open_bits(void)
{
  uint64_t bits = 0;
  for (int fd = 0; fd < 64; fd++)
    if (fcntl(fd, F_GETFD) >= 0)
      bits |= 1ull << fd;
  return bits;
}

struct report {
  uint64_t fds, signals;
  int many; /* of those open, how many are above 63 */
  pid_t pid, sid;
  char cwd[256], env[64], stdin_is[64], arg[64];
};

static int count_high(void)
{
  int n = 0;
  for (int fd = 64; fd < 4096; fd++)
    n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

/* argv: program "child" WHERE ARG: the report goes to descriptor WHERE. */
static int be_child(char **argv)
{
  struct report r = {.signals = odd_signals(), .fds = open_bits(), .many = count_high()};
  r.pid = getpid();
  r.sid = getsid(0);
  snprintf(r.arg, sizeof r.arg, "%s", argv[3]);
  snprintf(r.env, sizeof r.env, "%s", getenv("PROC_TEST") ? getenv("PROC_TEST") : "none");
  if (!getcwd(r.cwd, sizeof r.cwd))
    return 1;
  ssize_t n = readlink("/proc/self/fd/0", r.stdin_is, sizeof r.stdin_is - 1);
  if (n < 0 || write((int)strtol(argv[2], NULL, 10), &r, sizeof r) != sizeof r)
    return 1;
  return 3;
}

// --- starting -----------------------------------------------------------------------------------

static void spawn(struct report *r, const int *fds, int count, int where, int from, int cwd_fd)
{
  manta_error err = MANTA_ERROR_INIT;
  char place[12];
  snprintf(place, sizeof place, "%d", where);
  char *argv[] = {"proc-test", "child", place, "an argument", NULL};
  char *envp[] = {"PROC_TEST=yes", NULL};
  pid_t pid = -1;
  int status;
  assert_ok(manta__proc_spawn(&pid, "/proc/self/exe", argv, envp, fds, count, cwd_fd, &err), &err);
  assert_int_equal(read(from, r, sizeof *r), sizeof *r);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  assert_int_equal(r->pid, pid);
}

static void a_process_is_born_with_what_was_given(void **ctx)
{
  int p[2];
  struct report r;
  assert_int_equal(pipe2(p, O_CLOEXEC), 0);
  spawn(&r, &p[1], 1, 3, p[0], -1);
  assert_int_equal(r.sid, r.pid);
  assert_string_equal(r.arg, "an argument");
  assert_string_equal(r.env, "yes");
  assert_string_equal(r.stdin_is, "/dev/null");
  char cwd[256];
  assert_non_null(getcwd(cwd, sizeof cwd));
  assert_string_equal(r.cwd, cwd);
  assert_int_equal(r.fds, 0xf);
  assert_int_equal(r.many, 0);
  close(p[0]);
  close(p[1]);
}

// Sources that lie where targets go, in the worst order.
static void descriptors_are_not_mixed_up(void **ctx)
{
  int p[2], fds[5];
  struct report r;
  assert_int_equal(pipe2(p, O_CLOEXEC), 0);
  for (int i = 0; i < 4; i++) {
    fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_true(fds[i] >= 0);
  }
  fds[4] = p[1];
  for (int i = 0, j = 4; i < j; i++, j--) {
    int t = fds[i];
    fds[i] = fds[j];
    fds[j] = t;
  }
  spawn(&r, fds, 5, 3, p[0], -1);
  assert_int_equal(r.fds, 0xff);
  for (int i = 1; i < 5; i++)
    close(fds[i]);
  close(p[0]);
  close(p[1]);
}

static void what_the_program_left_open_is_not_inherited(void **ctx)
{
  int p[2], low = open("/dev/null", O_RDWR), high = fcntl(low, F_DUPFD, 700);
  struct report r;
  assert_true(low >= 0 && high >= 700);
  assert_int_equal(pipe2(p, O_CLOEXEC), 0);
  spawn(&r, &p[1], 1, 3, p[0], -1);
  assert_int_equal(r.fds, 0xf);
  assert_int_equal(r.many, 0);
  close(low);
  close(high);
  close(p[0]);
  close(p[1]);
}

static void it_starts_in_the_directory_given(void **ctx)
{
  char *dir = scratch_make();
  struct report r;
  int p[2], pad[4];
  assert_int_equal(pipe2(p, O_CLOEXEC), 0);
  // Wherever the directory's descriptor lies, also where others are put.
  for (int i = 0; i < 4; i++) {
    int fds[4] = {p[1], p[1], p[1], p[1]};
    pad[i] = scratch_open(dir);
    spawn(&r, fds, 4, 3, p[0], pad[i]);
    assert_string_equal(r.cwd, dir);
  }
  for (int fd = 3; fd < 7; fd++) { // exactly there
    int fds[4] = {p[1], p[1], p[1], p[1]}, kept = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    int out = fcntl(p[1], F_DUPFD_CLOEXEC, 100), in = fcntl(p[0], F_DUPFD_CLOEXEC, 100);
    for (int i = 0; i < 4; i++)
      fds[i] = out;
    assert_int_equal(dup2(pad[3], fd), fd);
    spawn(&r, fds, 4, 3, in, fd);
    assert_string_equal(r.cwd, dir);
    if (kept >= 0)
      dup3(kept, fd, O_CLOEXEC);
    else
      close(fd);
    close(kept);
    close(out);
    close(in);
  }
  for (int i = 0; i < 4; i++)
    close(pad[i]);
  close(p[0]);
  close(p[1]);
  scratch_remove(dir);
}

static void signals_are_as_in_a_fresh_program(void **ctx)
{
  int p[2];
  struct report r;
  sigset_t mask, was;
  assert_int_equal(pipe2(p, O_CLOEXEC), 0);
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);
  sigaddset(&mask, SIGCHLD);
  sigprocmask(SIG_BLOCK, &mask, &was);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  spawn(&r, &p[1], 1, 3, p[0], -1);
  assert_int_equal(r.signals, 0);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  sigprocmask(SIG_SETMASK, &was, NULL);
  close(p[0]);
  close(p[1]);
}

static void what_cannot_start_is_told(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  char *argv[] = {"x", NULL};
  int fds[17] = {0}, before = dup(0);
  pid_t pid = -1;
  close(before);
  assert_status(manta__proc_spawn(&pid, "/nonexistent/program", argv, environ, NULL, 0, -1, &err),
                MANTA_EIO);
  assert_string_equal(err.message, "start /nonexistent/program: No such file or directory");
  errno = 0;
  assert_status(manta__proc_spawn(&pid, "/bin/true", argv, environ, fds, 17, -1, &err),
                MANTA_EINVAL);
  assert_null(strstr(err.message, "Success"));
  fds[0] = 0;
  fds[1] = 9999;
  assert_status(manta__proc_spawn(&pid, "/bin/true", argv, environ, fds, 2, -1, &err), MANTA_EIO);
  assert_has(err.message, "Bad file descriptor");
  int after = dup(0);
  close(after);
  assert_int_equal(before, after);
}

// --- what is known of processes -----------------------------------------------------------------

static void a_changed_program_is_noticed(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__exe exe;
  struct stat sb;
  assert_ok(manta__exe_self(&exe, &err), &err);
  assert_ok(manta__exe_check(&exe, &err), &err);
  char *dir = scratch_make(), other[64];
  scratch_write(dir, "prog", "one");
  snprintf(exe.path, sizeof exe.path, "%s/prog", dir);
  snprintf(other, sizeof other, "%s/new", dir);
  assert_status(manta__exe_check(&exe, &err), MANTA_ESTATE);
  assert_int_equal(stat(exe.path, &sb), 0);
  exe.dev = sb.st_dev;
  exe.ino = sb.st_ino;
  exe.size = (uint64_t)sb.st_size;
  exe.mtime_ns = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec;
  assert_ok(manta__exe_check(&exe, &err), &err);
  struct timespec t[2] = {sb.st_atim, sb.st_mtim};
  scratch_write(dir, "new", "two"); // the same size and time: another file all the same
  assert_int_equal(utimensat(AT_FDCWD, other, t, 0), 0);
  assert_int_equal(rename(other, exe.path), 0);
  assert_status(manta__exe_check(&exe, &err), MANTA_ESTATE);
  assert_has(err.message, "changed on disk since it was started\nhint: ");
  assert_int_equal(unlink(exe.path), 0);
  assert_status(manta__exe_check(&exe, &err), MANTA_ESTATE);
  assert_has(err.message, "is gone from disk");
  scratch_remove(dir);
}

static void a_program_rewritten_in_place_is_noticed(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__exe exe = {0};
  struct stat sb;
  char *dir = scratch_make();
  scratch_write(dir, "prog", "one");
  snprintf(exe.path, sizeof exe.path, "%s/prog", dir);
  assert_int_equal(stat(exe.path, &sb), 0);
  exe = (struct manta__exe){.dev = sb.st_dev, .ino = sb.st_ino, .size = (uint64_t)sb.st_size};
  exe.mtime_ns = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec;
  snprintf(exe.path, sizeof exe.path, "%s/prog", dir);
  assert_ok(manta__exe_check(&exe, &err), &err);
  struct timespec t[2] = {sb.st_atim, sb.st_mtim};
  t[1].tv_nsec = (t[1].tv_nsec + 1) % 1000000000;
  assert_int_equal(utimensat(AT_FDCWD, exe.path, t, 0), 0);
  assert_status(manta__exe_check(&exe, &err), MANTA_ESTATE);
  scratch_remove(dir);
}

static void how_a_process_ended_is_explained(void **ctx)
{
  static const struct {
    int status;
    const char *text;
  } rows[] = {{0, "exit code 0"},
              {3 << 8, "exit code 3"},
              {255 << 8, "exit code 255"},
              {SIGKILL, "killed by signal 9 (SIGKILL)"},
              {SIGSEGV | 0x80, "killed by signal 11 (SIGSEGV)"},
              {37, "killed by signal 37"}};
  char text[64], tiny[8];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    manta__proc_explain(rows[i].status, text, sizeof text);
    assert_string_equal(text, rows[i].text);
  }
  manta__proc_explain(9, tiny, sizeof tiny);
  assert_string_equal(tiny, "killed ");
}

static void *idle(void *p)
{
  pthread_mutex_lock(p);
  pthread_mutex_unlock(p);
  return NULL;
}

static void threads_are_counted(void **ctx)
{
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  pthread_t t[3];
  int before = manta__proc_threads();
  assert_true(before >= 1);
  pthread_mutex_lock(&m);
  for (int i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&t[i], NULL, idle, &m), 0);
  assert_int_equal(manta__proc_threads(), before + 3);
  pthread_mutex_unlock(&m);
  for (int i = 0; i < 3; i++)
    pthread_join(t[i], NULL);
}

static void on_signal(int sig)
{
}

static void a_fork_can_make_its_signals_fresh(void **ctx)
{
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    sigset_t all;
    struct sigaction sa;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    signal(SIGUSR1, on_signal);
    signal(SIGHUP, SIG_IGN);
    manta__proc_reset_signals();
    sigaction(SIGUSR1, NULL, &sa);
    _exit(odd_signals() == 0 && sa.sa_handler == SIG_DFL ? 0 : 1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

static void a_pidfd_tells_of_the_end(void **ctx)
{
  pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  int fd = manta__pidfd_open(pid);
  assert_true(fd >= 0);
  assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  manta__proc_signal(pid, SIGKILL);
  siginfo_t si;
  assert_int_equal(waitid(P_PIDFD, (id_t)fd, &si, WEXITED), 0);
  assert_int_equal(si.si_pid, pid);
  close(fd);
  assert_int_equal(manta__pidfd_open(pid), -1);
  assert_int_equal(errno, ESRCH);
}

// Signal 0 only asks. kill() itself would find somebody: all, or the group of the caller.
static void a_signal_meets_one_process(void **ctx)
{
  for (pid_t pid = -1; pid <= 1; pid++) {
    errno = 0;
    assert_int_equal(manta__proc_signal_group(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    errno = 0;
    assert_true(pid == 1 || (manta__proc_signal(pid, 0) == -1 && errno == ESRCH));
  }
  assert_true(manta__proc_signal(1, 0) == 0 || errno == EPERM);
  assert_int_equal(manta__proc_signal(getpid(), 0), 0);
  assert_int_equal(manta__proc_signal_group(getpgrp(), 0), 0);
}

static pid_t zombie(int sig)
{
  siginfo_t si;
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_NAME, ") Z 1 2"); // is not to be taken for what follows the name
    raise(sig);
    _exit(3);
  }
  assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
  return pid;
}

static void how_a_zombie_ended_is_known(void **ctx)
{
  static const int signals[] = {SIGKILL, SIGTERM, 0}; // 0: it exits
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    int status;
    pid_t pid = zombie(signals[i]);
    int found = manta__proc_zombie_status(pid);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(found, status);
    assert_int_equal(manta__proc_zombie_status(pid), -1);
  }
  assert_int_equal(manta__proc_zombie_status(getpid()), -1);
  assert_int_equal(manta__proc_zombie_status(0), -1);
}

int main(int argc, char **argv)
{
  if (argc == 4 && !strcmp(argv[1], "child"))
    return be_child(argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_is_born_with_what_was_given),
      cmocka_unit_test(descriptors_are_not_mixed_up),
      cmocka_unit_test(what_the_program_left_open_is_not_inherited),
      cmocka_unit_test(it_starts_in_the_directory_given),
      cmocka_unit_test(signals_are_as_in_a_fresh_program),
      cmocka_unit_test(what_cannot_start_is_told),
      cmocka_unit_test(a_changed_program_is_noticed),
      cmocka_unit_test(a_program_rewritten_in_place_is_noticed),
      cmocka_unit_test(how_a_process_ended_is_explained),
      cmocka_unit_test(threads_are_counted),
      cmocka_unit_test(a_fork_can_make_its_signals_fresh),
      cmocka_unit_test(a_pidfd_tells_of_the_end),
      cmocka_unit_test(a_signal_meets_one_process),
      cmocka_unit_test(how_a_zombie_ended_is_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
