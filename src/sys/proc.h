/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/proc.h - starting processes, and what is known of them.
 */
#ifndef MANTA_SYS_PROC_H
#define MANTA_SYS_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/status.h>

/* What identifies a program file, to see whether it changed on disk. */
struct manta__exe {
  uint64_t dev, ino, size;
  int64_t mtime_ns;
  char path[4096];
};
/* Of the running program. MANTA_ESTATE if the file at its path is not the one that runs. */
manta_status manta__exe_self(struct manta__exe *out, manta_error *err);
/* MANTA_ESTATE if the file at exe->path is not the same any more. */
manta_status manta__exe_check(const struct manta__exe *exe, manta_error *err);
/* What is in a program file: the same build has the same, on whatever host. */
manta_status manta__exe_hash(const char *path, uint64_t *out, manta_error *err);

/* Starts `path` in a session of its own, all signals at their defaults, stdin from /dev/null.
 * fds[i] becomes descriptor 3 + i there; nothing else is inherited but stdout and stderr. cwd_fd <
 * 0: ours. */
manta_status manta__proc_spawn(pid_t *out, const char *path, char *const argv[], char *const envp[],
                               const int *fds, int count, int cwd_fd, manta_error *err);

int manta__pidfd_open(pid_t pid); /* -1 with errno; close-on-exec */
/* Threads of this process. */
int manta__proc_threads(void);
/* Ends the process after a fork, a signal mask and dispositions as a fresh program has them. */
void manta__proc_reset_signals(void);

/* kill() of one process, and of the group of one. Where kill() itself would signal all processes,
 * as for the -1 that elsewhere means "none", nothing is done: ESRCH. */
int manta__proc_signal(pid_t pid, int sig);
int manta__proc_signal_group(pid_t leader, int sig);

/* Whether a signal has stopped it, as SIGSTOP does, and it waits for SIGCONT. */
bool manta__proc_stopped(pid_t pid);
/* How a process ended that its parent has not waited for yet; -1 if that cannot be told. */
int manta__proc_zombie_status(pid_t pid);
/* "killed by signal 9 (SIGKILL)", "exit code 3". status: as waitpid gives it. */
void manta__proc_explain(int status, char *buf, size_t size);

#endif
