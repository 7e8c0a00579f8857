/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys/host.h"

#define LINE_MAX_ 8192               // an overlay mount names its layers: a page of options
#define NO_LIMIT  (INT64_C(1) << 60) // v1 writes "none" as a huge number

// Where a hierarchy's files of this process lie. `top` is how much of dir is the mount point.
struct cgroup_place {
  char dir[PATH_MAX];
  size_t top;
};

// --- Finding the place ---------------------------------------------------------------------------

struct cgroup_reader {
  int fd;
  size_t at, len;
  char chunk[4096];
};

static bool reader_open(struct cgroup_reader *r, const char *root, const char *path)
{
  char full[PATH_MAX];
  int n = snprintf(full, sizeof full, "%s%s", root, path);
  r->at = r->len = 0;
  r->fd = n < 0 || (size_t)n >= sizeof full ? -1 : open(full, O_RDONLY | O_CLOEXEC);
  return r->fd >= 0;
}

static int next_char(struct cgroup_reader *r)
{
  if (r->at == r->len) {
    ssize_t n;
    while ((n = read(r->fd, r->chunk, sizeof r->chunk)) < 0 && errno == EINTR)
      ;
    r->at = 0;
    r->len = n > 0 ? (size_t)n : 0;
    if (n <= 0)
      return EOF;
  }
  return (unsigned char)r->chunk[r->at++];
}

// The next line without its newline; what does not fit is dropped. False at the end.
static bool next_line(struct cgroup_reader *r, char line[LINE_MAX_])
{
  size_t n = 0;
  int c = next_char(r);
  if (c == EOF)
    return false;
  for (; c != EOF && c != '\n'; c = next_char(r))
    if (n < LINE_MAX_ - 1)
      line[n++] = (char)c;
  line[n] = 0;
  return true;
}

static bool has_word(const char *list, const char *word)
{
  size_t n = strlen(word);
  for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
    if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == 0))
      return true;
  return false;
}

// The group of this process in a hierarchy (NULL: v2) out of lines "4:cpu,cpuacct:/a/b".
static bool find_group(const char *root, const char *controller, char group[LINE_MAX_])
{
  struct cgroup_reader r;
  bool found = false;
  char line[LINE_MAX_];
  if (!reader_open(&r, root, "/proc/self/cgroup"))
    return false;
  while (!found && next_line(&r, line)) {
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    if (!path)
      continue;
    *path++ = 0;
    found = controller ? has_word(names + 1, controller) : names[1] == 0;
    if (found)
      memcpy(group, path, strlen(path) + 1);
  }
  close(r.fd);
  return found;
}

// mountinfo writes space, tab, newline and backslash as \040 and the like.
static void unescape(char *s)
{
  char *to = s;
  for (; *s; s++)
    if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
      *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
      s += 3;
    } else {
      *to++ = *s;
    }
  *to = 0;
}

struct mount {
  const char *root, *point, *type, *options;
};

// "36 35 98:0 /root /point rw,… optional… - type source options"
static bool read_mount(char *line, struct mount *m)
{
  char *dash = strstr(line, " - "), *field[5];
  if (!dash)
    return false;
  *dash = 0;
  for (int i = 0; i < 5; i++)
    if (!(field[i] = strsep(&line, " ")))
      return false;
  char *rest = dash + 3, *type = strsep(&rest, " ");
  strsep(&rest, " "); // the source: any name
  unescape(field[3]);
  unescape(field[4]);
  *m = (struct mount){field[3], field[4], type, rest ? rest : ""};
  return true;
}

static bool mount_is(const struct mount *m, const char *controller)
{
  return controller ? strcmp(m->type, "cgroup") == 0 && has_word(m->options, controller)
                    : strcmp(m->type, "cgroup2") == 0;
}

// The group's path as seen from a mount whose root is `top`; NULL if it does not lie under it.
static const char *below(const char *group, const char *top)
{
  size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
  if (strncmp(group, top, n) != 0 || (group[n] != '/' && group[n] != 0) || strstr(group, "/.."))
    return NULL;
  return strcmp(group + n, "/") == 0 ? "" : group + n;
}

// True if the mount shows the group itself, so that no better one need be looked for.
static bool try_mount(const struct mount *m, const char *root, const char *group,
                      struct cgroup_place *p)
{
  const char *rel = below(group, m->root);
  if (!rel && p->dir[0])
    return false;
  int top = snprintf(p->dir, sizeof p->dir, "%s%s", root, m->point);
  int all = snprintf(p->dir, sizeof p->dir, "%s%s%s", root, m->point, rel ? rel : "");
  if (top < 0 || all < 0 || (size_t)all >= sizeof p->dir) {
    p->dir[0] = 0;
    return false;
  }
  p->top = (size_t)top;
  return rel != NULL;
}

static bool find_place(const char *root, const char *controller, struct cgroup_place *p)
{
  char group[LINE_MAX_], line[LINE_MAX_];
  struct cgroup_reader r;
  p->dir[0] = 0;
  if (!find_group(root, controller, group) || !reader_open(&r, root, "/proc/self/mountinfo"))
    return false;
  bool done = false;
  struct mount m;
  while (!done && next_line(&r, line))
    if (read_mount(line, &m) && mount_is(&m, controller))
      done = try_mount(&m, root, group, p);
  close(r.fd);
  return p->dir[0] != 0;
}

// --- Reading the files of one group --------------------------------------------------------------

static bool read_in(const struct cgroup_place *p, const char *name, char *buf, size_t size)
{
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/%s", p->dir, name);
  return n > 0 && (size_t)n < sizeof path && manta__host_text("", path, buf, size);
}

// "max" and -1 are no number above zero, and so no limit.
static int64_t number_in(const struct cgroup_place *p, const char *name)
{
  char text[64];
  long long n = read_in(p, name, text, sizeof text) ? strtoll(text, NULL, 10) : 0;
  return n > 0 && n < NO_LIMIT ? n : 0;
}

static void tighten_quota(struct manta__cgroup *c, int64_t quota, int64_t period)
{
  if (quota <= 0 || period <= 0)
    return;
  double cpus = (double)quota / (double)period;
  if (c->quota == 0 || cpus < c->quota)
    c->quota = cpus;
}

static void cpu_v1(const struct cgroup_place *p, struct manta__cgroup *c)
{
  tighten_quota(c, number_in(p, "cpu.cfs_quota_us"), number_in(p, "cpu.cfs_period_us"));
}

static void cpu_v2(const struct cgroup_place *p, struct manta__cgroup *c)
{
  char text[64];
  long long quota, period;
  if (read_in(p, "cpu.max", text, sizeof text) && sscanf(text, "%lld %lld", &quota, &period) == 2)
    tighten_quota(c, quota, period);
}

static void tighten_memory(struct manta__cgroup *c, int64_t limit, int64_t used)
{
  if (limit <= 0 || (c->mem_limit && limit >= c->mem_limit))
    return;
  c->mem_limit = limit;
  c->mem_used = used;
}

static void memory_v1(const struct cgroup_place *p, struct manta__cgroup *c)
{
  tighten_memory(c, number_in(p, "memory.limit_in_bytes"), number_in(p, "memory.usage_in_bytes"));
}

static void memory_v2(const struct cgroup_place *p, struct manta__cgroup *c)
{
  tighten_memory(c, number_in(p, "memory.max"), number_in(p, "memory.current"));
}

static void both_v2(const struct cgroup_place *p, struct manta__cgroup *c)
{
  cpu_v2(p, c);
  memory_v2(p, c);
}

// --- All of it -----------------------------------------------------------------------------------

static void walk_up(const char *root, const char *controller,
                    void (*look)(const struct cgroup_place *, struct manta__cgroup *),
                    struct manta__cgroup *c)
{
  struct cgroup_place p;
  if (!find_place(root, controller, &p))
    return;
  for (;;) {
    look(&p, c);
    char *slash = strrchr(p.dir, '/');
    if (!slash || (size_t)(slash - p.dir) < p.top)
      return;
    *slash = 0;
  }
}

void manta__cgroup_read(struct manta__cgroup *out, const char *root)
{
  *out = (struct manta__cgroup){0};
  walk_up(root, NULL, both_v2, out);
  walk_up(root, "cpu", cpu_v1, out);
  walk_up(root, "memory", memory_v1, out);
}
