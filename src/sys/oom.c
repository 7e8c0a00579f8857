/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/oom.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// False: there is nothing to read. What does not fit is left out.
static bool slurp(const char *path, char *buf, size_t size)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;
  if (fd >= 0)
    close(fd);
  buf[n > 0 ? n : 0] = 0;
  return n > 0;
}

// "oom_kill N" in memory.events (v2) or memory.oom_control (v1) of our cgroup.
static bool count_in(const char *path, uint64_t *out)
{
  char text[1024];
  if (!slurp(path, text, sizeof text))
    return false;
  for (char *p = text; (p = strstr(p, "oom_kill ")); p++)
    if (p == text || p[-1] == '\n') {
      *out = strtoull(p + 9, NULL, 10);
      return true;
    }
  return false;
}

static bool oom_count(uint64_t *out)
{
  char text[4096], path[4400];
  if (!slurp("/proc/self/cgroup", text, sizeof text))
    return false;
  char *save = NULL;
  for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    char *at = strchr(line, ':'), *dir = at ? strchr(at + 1, ':') : NULL;
    if (!dir)
      continue;
    bool v2 = !strncmp(line, "0::", 3), v1 = !strncmp(at, ":memory:", 8);
    if (v2)
      snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", dir + 1);
    else if (v1)
      snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.oom_control", dir + 1);
    if ((v1 || v2) && count_in(path, out))
      return true;
  }
  return false;
}

bool manta__oom_happened(uint64_t *seen)
{
  uint64_t now = 0;
  if (!oom_count(&now))
    return false;
  bool rose = now > *seen;
  *seen = now;
  return rose;
}
