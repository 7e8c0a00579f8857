/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"

static void identify(struct manta__exe *out, const struct stat *sb)
{
  out->dev = sb->st_dev;
  out->ino = sb->st_ino;
  out->size = (uint64_t)sb->st_size;
  out->mtime_ns = (int64_t)sb->st_mtim.tv_sec * 1000000000 + sb->st_mtim.tv_nsec;
}

manta_status manta__exe_self(struct manta__exe *out, manta_error *err)
{
  struct stat sb;
  ssize_t n = readlink("/proc/self/exe", out->path, sizeof out->path - 1);
  if (n < 0 || stat("/proc/self/exe", &sb) < 0)
    return manta_error_set(err, MANTA_EIO, "/proc/self/exe: %m");
  out->path[n] = 0;
  identify(out, &sb);
  return manta__exe_check(out, err);
}

manta_status manta__exe_check(const struct manta__exe *exe, manta_error *err)
{
  struct stat sb;
  struct manta__exe now;
  if (stat(exe->path, &sb) < 0)
    return manta_error_set(err, MANTA_ESTATE, "the program %s is gone from disk: %m", exe->path);
  identify(&now, &sb);
  if (now.dev != exe->dev || now.ino != exe->ino || now.size != exe->size ||
      now.mtime_ns != exe->mtime_ns)
    return manta_error_set(
        err, MANTA_ESTATE,
        "the program %s changed on disk since it was started\nhint: start it again, "
        "so that driver and workers are the same program",
        exe->path);
  return MANTA_OK;
}

manta_status manta__exe_hash(const char *path, uint64_t *out, manta_error *err)
{
  struct stat sb;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &sb) < 0) {
    manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "%s: %m", path);
    if (fd >= 0)
      close(fd);
    return errno == ENOENT ? MANTA_ENOENT : MANTA_EIO;
  }
  size_t n = (size_t)sb.st_size;
  void *p = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
  close(fd);
  if (p == MAP_FAILED)
    return manta_error_set(err, MANTA_EIO, "map %s: %m", path);
  *out = manta__hash(p, n);
  if (p)
    munmap(p, n);
  return MANTA_OK;
}

static int fill_actions(posix_spawn_file_actions_t *fa, const int *fds, int count, int cwd_fd)
{
  // The directory first: its descriptor may lie where one of the others goes.
  int rc = cwd_fd >= 0 ? posix_spawn_file_actions_addfchdir_np(fa, cwd_fd) : 0;
  if (rc == 0)
    rc = posix_spawn_file_actions_addopen(fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (int i = 0; rc == 0 && i < count; i++)
    rc = posix_spawn_file_actions_adddup2(fa, fds[i], 3 + i);
  // Not everything in a user's program is close-on-exec.
  return rc ? rc : posix_spawn_file_actions_addclosefrom_np(fa, 3 + count);
}

// The targets 3, 4, … must not be among the sources, or one dup2 overwrites the next one's source.
static int lift(const int *fds, int count, int *lifted)
{
  for (int i = 0; i < count; i++) {
    lifted[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 64);
    if (lifted[i] < 0) {
      while (i-- > 0)
        close(lifted[i]);
      return -1;
    }
  }
  return 0;
}

manta_status manta__proc_spawn(pid_t *out, const char *path, char *const argv[], char *const envp[],
                               const int *fds, int count, int cwd_fd, manta_error *err)
{
  int lifted[16];
  if (count > 16)
    return manta_error_set(err, MANTA_EINVAL, "start %s: %d descriptors, at most 16", path, count);
  if (lift(fds, count, lifted) < 0)
    return manta_error_set(err, MANTA_EIO, "start %s: %m", path);
  posix_spawn_file_actions_t fa;
  posix_spawnattr_t at;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_init(&fa);
  posix_spawnattr_init(&at);
  posix_spawnattr_setsigmask(&at, &none);
  posix_spawnattr_setsigdefault(&at, &all);
  posix_spawnattr_setflags(&at,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  int rc = fill_actions(&fa, lifted, count, cwd_fd);
  if (rc == 0)
    rc = posix_spawn(out, path, &fa, &at, argv, envp);
  posix_spawnattr_destroy(&at);
  posix_spawn_file_actions_destroy(&fa);
  for (int i = 0; i < count; i++)
    close(lifted[i]);
  errno = rc;
  return rc ? manta_error_set(err, MANTA_EIO, "start %s: %m", path) : MANTA_OK;
}

int manta__pidfd_open(pid_t pid)
{
  return (int)syscall(SYS_pidfd_open, pid, 0);
}

int manta__proc_threads(void)
{
  DIR *d = opendir("/proc/self/task");
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));)
    n += e->d_name[0] != '.';
  if (d)
    closedir(d);
  return n;
}

void manta__proc_reset_signals(void)
{
  struct sigaction dfl = {.sa_handler = SIG_DFL};
  for (int s = 1; s < NSIG; s++)
    if (s != SIGKILL && s != SIGSTOP)
      sigaction(s, &dfl, NULL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

// "pid (name) S ... status": the name may hold anything, parentheses too. From ") S" on, or NULL.
static const char *read_stat(pid_t pid, char *text, size_t size)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;
  if (fd >= 0)
    close(fd);
  text[n > 0 ? n : 0] = 0;
  return strrchr(text, ')');
}

static int nobody(void)
{
  errno = ESRCH;
  return -1;
}

int manta__proc_signal(pid_t pid, int sig)
{
  return pid > 0 ? kill(pid, sig) : nobody(); // in a container the driver may be 1
}

int manta__proc_signal_group(pid_t leader, int sig)
{
  return leader > 1 ? kill(-leader, sig) : nobody();
}

bool manta__proc_stopped(pid_t pid)
{
  char text[1024];
  const char *state = read_stat(pid, text, sizeof text);
  return state && strncmp(state, ") T ", 4) == 0; // a debugger's would be 't'
}

int manta__proc_zombie_status(pid_t pid)
{
  char text[1024];
  const char *state = read_stat(pid, text, sizeof text), *last = strrchr(text, ' ');
  if (!state || strncmp(state, ") Z ", 4) != 0 || !last)
    return -1;
  return (int)strtol(last, NULL, 10);
}

void manta__proc_explain(int status, char *buf, size_t size)
{
  if (WIFSIGNALED(status)) {
    const char *name = sigabbrev_np(WTERMSIG(status)); // real-time signals have none
    snprintf(buf, size, "killed by signal %d%s%s%s", WTERMSIG(status), name ? " (SIG" : "",
             name ? name : "", name ? ")" : "");
  } else {
    snprintf(buf, size, "exit code %d", WEXITSTATUS(status));
  }
}
