/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "sys/cgroup.h"

bool manta__host_text(const char *root, const char *path, char *buf, size_t size)
{
  char full[PATH_MAX];
  buf[0] = 0;
  int len = snprintf(full, sizeof full, "%s%s", root, path);
  int fd = len < 0 || (size_t)len >= sizeof full ? -1 : open(full, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  size_t n = 0;
  ssize_t r = 1;
  while (n + 1 < size && ((r = read(fd, buf + n, size - 1 - n)) > 0 || (r < 0 && errno == EINTR)))
    n += r > 0 ? (size_t)r : 0;
  close(fd);
  if (r < 0)
    n = 0;
  else if (n > 0 && buf[n - 1] == '\n')
    n--;
  buf[n] = 0;
  return r >= 0;
}

// The number behind "Name:" at the beginning of a line, in `text`; NULL if there is none.
static const char *field(const char *text, const char *name)
{
  size_t n = strlen(name);
  for (const char *p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
    if (strncmp(p, name, n) == 0 && p[n] == ':')
      return p + n + 1 + strspn(p + n + 1, " \t");
  return NULL;
}

// --- CPUs ----------------------------------------------------------------------------------------

typedef bool cpu_set[MANTA__HOST_MAX_CPUS];

// "0-3,5,7-8"
static bool parse_list(const char *s, cpu_set set)
{
  for (;;) {
    char *end;
    long from = strtol(s, &end, 10), to = from;
    if (end == s || from < 0)
      return false;
    if (*end == '-') {
      s = end + 1;
      to = strtol(s, &end, 10);
      if (end == s || to < from)
        return false;
    }
    for (long i = from; i <= to && i < MANTA__HOST_MAX_CPUS; i++)
      set[i] = true;
    if (*end != ',')
      return *end == 0 || *end == '\n';
    s = end + 1;
  }
}

static bool listed_mask(const char *root, cpu_set set)
{
  char text[8192];
  const char *list = NULL;
  if (manta__host_text(root, "/proc/self/status", text, sizeof text))
    list = field(text, "Cpus_allowed_list");
  return list && parse_list(list, set);
}

// The kernel refuses a mask that is smaller than its own: twice what we use is more than any has.
static bool real_mask(cpu_set set)
{
  size_t size = CPU_ALLOC_SIZE(2 * MANTA__HOST_MAX_CPUS);
  cpu_set_t mask[2 * MANTA__HOST_MAX_CPUS / CPU_SETSIZE];
  if (size > sizeof mask || sched_getaffinity(0, sizeof mask, mask) < 0)
    return false;
  for (int i = 0; i < MANTA__HOST_MAX_CPUS; i++)
    set[i] = CPU_ISSET_S(i, sizeof mask, mask);
  return true;
}

static manta_status read_mask(struct manta__host *h, const char *root, manta_error *err)
{
  cpu_set set = {false};
  if (!(*root ? listed_mask(root, set) : real_mask(set)))
    return manta_error_set(err, MANTA_EIO, "cannot read the CPU affinity of this process");
  int n = 0;
  for (int i = 0; i < MANTA__HOST_MAX_CPUS; i++)
    n += set[i];
  if (n == 0)
    return manta_error_set(err, MANTA_EIO, "the CPU affinity of this process is empty");
  h->cpu_ids = manta__calloc((size_t)n, sizeof *h->cpu_ids);
  if (!h->cpu_ids)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the list of CPUs");
  for (int i = 0; i < MANTA__HOST_MAX_CPUS; i++)
    if (set[i])
      h->cpu_ids[h->cpu_count++] = i;
  return MANTA_OK;
}

// --- The rest ------------------------------------------------------------------------------------

static int64_t kilobytes(const char *text, const char *name)
{
  const char *p = field(text, name);
  long long kb = p ? strtoll(p, NULL, 10) : 0;
  return kb > 0 && kb < INT64_MAX / 1024 ? kb * 1024 : 0;
}

static void read_memory(struct manta__host *h, const char *root)
{
  char text[1024]; // the two lines are among the first
  if (!manta__host_text(root, "/proc/meminfo", text, sizeof text))
    return;
  h->mem_total = kilobytes(text, "MemTotal");
  h->mem_available = kilobytes(text, "MemAvailable");
}

static void read_limits(struct manta__host *h, const char *root)
{
  struct manta__cgroup c;
  manta__cgroup_read(&c, root);
  h->quota = c.quota;
  h->cpus = c.quota > 0 && c.quota < h->cpu_count ? c.quota : h->cpu_count;
  h->mem_limit = c.mem_limit;
  h->mem_used = c.mem_used;
}

manta_status manta__host_read(struct manta__host *out, const char *root, manta_error *err)
{
  struct manta__host h = {0};
  MANTA_TRY(read_mask(&h, root, err));
  read_limits(&h, root);
  read_memory(&h, root);
  manta__host_text(root, "/proc/sys/kernel/hostname", h.name, sizeof h.name);
  manta__host_text(root, "/proc/sys/kernel/osrelease", h.release, sizeof h.release);
  *out = h;
  return MANTA_OK;
}

void manta__host_fini(struct manta__host *h)
{
  manta__free(h->cpu_ids);
  *h = (struct manta__host){0};
}
