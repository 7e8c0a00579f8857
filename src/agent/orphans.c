/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/orphans.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group/proto.h"
#include "sys/proc.h"

void manta__orphans_mark(char *buf, size_t size, pid_t agent, int64_t wid)
{
  snprintf(buf, size, "%d.%lld", (int)agent, (long long)wid);
}

// Reads at most size - 1 bytes of a /proc file; the number, or -1.
static ssize_t slurp(const char *path, char *buf, size_t size)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  size_t at = 0;
  for (ssize_t n; at < size - 1 && (n = read(fd, buf + at, size - 1 - at)) > 0;)
    at += (size_t)n;
  close(fd);
  buf[at] = 0;
  return (ssize_t)at;
}

static pid_t session_of(pid_t pid)
{
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (slurp(path, text, sizeof text) < 0)
    return -1;
  // pid (name) state ppid pgrp session: the name may hold anything, so from its last ')' on.
  char *p = strrchr(text, ')');
  int session = -1;
  return p && sscanf(p + 1, " %*c %*d %*d %d", &session) == 1 ? session : -1;
}

static bool carries(pid_t pid, const char *mark)
{
  static char env[128 << 10];
  char path[64], want[80];
  snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
  ssize_t n = slurp(path, env, sizeof env);
  int len = snprintf(want, sizeof want, MANTA__MARK_ENV "=%s", mark);
  for (ssize_t i = 0; i < n; i += (ssize_t)strlen(env + i) + 1)
    if (!strncmp(env + i, want, (size_t)len + 1))
      return true;
  return false;
}

struct pids {
  pid_t pid[4096];
  int count;
};

static void add_children(struct pids *all, const char *path)
{
  static char list[64 << 10];
  char *save = NULL;
  if (slurp(path, list, sizeof list) <= 0)
    return;
  for (char *p = strtok_r(list, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
    pid_t pid = (pid_t)strtol(p, NULL, 10);
    if (pid > 1 && all->count < (int)(sizeof all->pid / sizeof *all->pid))
      all->pid[all->count++] = pid;
  }
}

// A child belongs to the thread that made it.
static void add_children_of(struct pids *all, pid_t pid)
{
  char path[300];
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(path);
  for (struct dirent *e; tasks && (e = readdir(tasks));)
    if (e->d_name[0] != '.') {
      snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)pid, e->d_name);
      add_children(all, path);
    }
  if (tasks)
    closedir(tasks);
}

int manta__orphans_end(pid_t agent, int64_t wid, pid_t sid)
{
  static struct pids all;
  char mark[48];
  int ended = 0, kept = 0;
  manta__orphans_mark(mark, sizeof mark, agent, wid);
  all.count = 0;
  add_children_of(&all, getpid());
  for (int i = 0; i < all.count; i++)
    if (session_of(all.pid[i]) == sid || carries(all.pid[i], mark))
      all.pid[kept++] = all.pid[i];
  all.count = kept;
  // Before any is killed: whoever loses its parent then comes to us, and nobody would look again.
  for (int i = 0; i < all.count; i++)
    add_children_of(&all, all.pid[i]);
  for (int i = 0; i < all.count; i++)
    ended += manta__proc_signal(all.pid[i], SIGKILL) == 0;
  return ended;
}
