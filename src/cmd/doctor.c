/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/doctor.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <manta/manta.h>

#include "base/buf.h"
#include "base/knob.h"
#include "cmd/probe.h"
#include "cmd/python.h"
#include "sys/amx.h"
#include "sys/gpu.h"
#include "sys/host.h"
#include "sys/lease.h"
#include "sys/runtime.h"

#define GIB           (1024.0 * 1024 * 1024)
#define PYTHON_S      10.0
#define WORKERS       256
#define FILES_EACH    8  // of the agent: control, lifeline, pidfd, output, snapshot slots
#define FILES_BESIDES 64 // of the agent, whatever the number of workers

struct exam {
  manta_value *rows;
  const char *root;
  struct manta__host host;
  manta_status st; // the first failure to write a row
};

// --- Rows ----------------------------------------------------------------------------------------

static manta_status add_row(manta_value *rows, const char *check, const char *state,
                            const char *text)
{
  manta_value row = {0};
  manta_status st = manta_value_set_map(&row);
  if (st >= 0)
    st = manta_value_put_string(&row, "check", check);
  if (st >= 0)
    st = manta_value_put_string(&row, "state", state);
  if (st >= 0)
    st = manta_value_put_string(&row, "text", text);
  if (st >= 0)
    st = manta_value_append(rows, &row);
  manta_value_fini(&row);
  return st;
}

__attribute__((format(printf, 4, 5))) static void row(struct exam *e, const char *check,
                                                      const char *state, const char *fmt, ...)
{
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  for (char *p = text; (p = strchr(p, '\n'));) // hints of messages are lines of their own
    *p = ';';
  if (e->st >= 0)
    e->st = add_row(e->rows, check, state, text);
}

#define ok(e, check, ...)   row(e, check, "ok", __VA_ARGS__)
#define warn(e, check, ...) row(e, check, "warn", __VA_ARGS__)
#define fail(e, check, ...) row(e, check, "fail", __VA_ARGS__)

// --- The kernel ----------------------------------------------------------------------------------

static void check_kernel(struct exam *e)
{
  int major = 0, minor = 0;
  const char *release = e->host.release;
  if (sscanf(release, "%d.%d", &major, &minor) != 2)
    warn(e, "kernel", "cannot parse the version \"%s\"; 5.4 or later is needed", release);
  else if (major < 5 || (major == 5 && minor < 4))
    fail(e, "kernel", "%s is too old: 5.4 or later is needed", release);
  else
    ok(e, "kernel", "%s", release);
}

static void check_memfd(struct exam *e)
{
  struct manta__probe p;
  manta__probe_memfd(&p);
  if (p.works)
    ok(e, "shared memory", "memfd with sealed size works");
  else
    fail(e, "shared memory", "%s; manta cannot run: allow memfd_create in this container", p.why);
}

static void check_robust(struct exam *e)
{
  struct manta__probe p;
  manta__probe_robust(&p);
  if (!p.works)
    fail(e, "death notice", "%s; manta cannot see workers die on this kernel", p.why);
  else if (p.ms > 50)
    warn(e, "death notice", "a killed worker was noticed after %.1f ms; is the host overloaded?",
         p.ms);
  else
    ok(e, "death notice", "a killed worker is noticed after %.2f ms", p.ms);
}

static void check_lifeline(struct exam *e)
{
  struct manta__probe p;
  manta__probe_lifeline(&p);
  if (p.works)
    ok(e, "lifeline", "a process dies %.2f ms after its supervisor", p.ms);
  else
    fail(e, "lifeline", "%s; workers could outlive their run", p.why);
}

static void check_plain(struct exam *e, const char *check, void (*probe)(struct manta__probe *),
                        const char *good, const char *bad)
{
  struct manta__probe p;
  probe(&p);
  if (p.works)
    ok(e, check, "%s", good);
  else
    fail(e, check, "%s; %s", p.why, bad);
}

// --- What is there -------------------------------------------------------------------------------

// "0-3,5" of a rising list, cut with dots if it is long.
static void list_text(const int *ids, int n, char *buf, size_t size)
{
  size_t at = 0;
  for (int i = 0; i < n;) {
    int last = i;
    while (last + 1 < n && ids[last + 1] == ids[last] + 1)
      last++;
    if (size - at < 32) {
      snprintf(buf + at, size - at, ",...");
      return;
    }
    at += (size_t)snprintf(buf + at, size - at, "%s%d", i ? "," : "", ids[i]);
    if (last > i)
      at += (size_t)snprintf(buf + at, size - at, "-%d", ids[last]);
    i = last + 1;
  }
}

static void check_cpus(struct exam *e)
{
  const struct manta__host *h = &e->host;
  char list[128] = "";
  list_text(h->cpu_ids, h->cpu_count, list, sizeof list);
  ok(e, "CPUs", "%.4g to use; the affinity mask has %d (%s)", h->cpus, h->cpu_count, list);
  if (h->quota > 0)
    ok(e, "cgroup quota", "%.4g CPUs; strict requests beyond it are refused", h->quota);
  else
    ok(e, "cgroup quota", "none");
}

static void check_memory(struct exam *e)
{
  const struct manta__host *h = &e->host;
  double left = (double)h->mem_available / GIB;
  char limit[96] = "no cgroup limit";
  if (h->mem_limit) {
    double room = (double)(h->mem_limit - h->mem_used) / GIB;
    left = room < left ? room : left;
    snprintf(limit, sizeof limit, "cgroup limit %.1f GiB, %.1f in use", (double)h->mem_limit / GIB,
             (double)h->mem_used / GIB);
  }
  const char *state = left < 1 ? "warn" : "ok";
  row(e, "memory", state, "%.1f of %.1f GiB available (%s)%s", (double)h->mem_available / GIB,
      (double)h->mem_total / GIB, limit,
      left < 1 ? "; snapshots take three times the saved state: free some" : "");
}

static bool there(const struct exam *e, const char *path)
{
  char full[PATH_MAX];
  int n = snprintf(full, sizeof full, "%s%s", e->root, path);
  return n > 0 && (size_t)n < sizeof full && access(full, F_OK) == 0;
}

static void check_gpus(struct exam *e)
{
  static struct manta__gpus g;
  manta__gpu_list(&g);
  if (g.count > 0)
    ok(e, "GPUs", "%d, the first is %s with %.0f GiB%s%s", g.count, g.gpu[0].name,
       (double)g.gpu[0].memory / GIB, g.why[0] ? "; " : "", g.why);
  else if (there(e, "/dev/nvidia0") && !getenv("CUDA_VISIBLE_DEVICES"))
    warn(e, "GPUs",
         "there is /dev/nvidia0 but no GPU (%s); is the driver's library in this container?",
         g.why);
  else
    ok(e, "GPUs", "none (%s)", g.why);
}

// --- Settings ------------------------------------------------------------------------------------

static void check_leases(struct exam *e, int dirfd)
{
  manta__lease *l = NULL;
  manta_error err = MANTA_ERROR_INIT;
  const struct manta__host *h = &e->host;
  manta_status st = manta__lease_open(&l, dirfd, &err);
  if (st == MANTA_ENOMEM)
    e->st = st;
  if (st < 0) {
    fail(e, "leases", "%s", err.message);
    return;
  }
  struct manta__lease_pool pool = {h->cpu_ids, h->cpu_count,
                                   (int64_t)(h->cpus * MANTA__LEASE_UNIT)};
  ok(e, "leases", "no strict run holds %.4g of %.4g CPUs, no pinned one %d of %d cores",
     (double)manta__lease_count_free(l, &pool) / MANTA__LEASE_UNIT, h->cpus,
     manta__lease_count_free_cpus(l, h->cpu_ids, h->cpu_count), h->cpu_count);
  manta__lease_close(l);
}

static void check_runtime(struct exam *e)
{
  int fd;
  char path[PATH_MAX];
  manta_error err = MANTA_ERROR_INIT;
  if (manta__runtime_dir(&fd, path, sizeof path, &err) < 0) {
    fail(e, "runtime directory", "%s", err.message);
    return;
  }
  ok(e, "runtime directory", "%s", path);
  check_leases(e, fd);
  close(fd);
}

// A crash is announced to the peers only when the dump is written: gigabytes take seconds.
static void check_core(struct exam *e)
{
  char pattern[256];
  struct rlimit r = {0};
  manta__host_text(e->root, "/proc/sys/kernel/core_pattern", pattern, sizeof pattern);
  getrlimit(RLIMIT_CORE, &r);
  if (pattern[0] == '|')
    warn(e, "core dumps",
         "a crashed worker is first piped into \"%.100s\", and its peers wait for that",
         pattern + 1);
  else if (r.rlim_cur > 0 && pattern[0])
    warn(e, "core dumps",
         "a crashed worker first writes \"%.100s\", and its peers wait for that; else: ulimit -c 0",
         pattern);
  else
    ok(e, "core dumps", "off");
}

static void check_overcommit(struct exam *e)
{
  char text[32];
  manta__host_text(e->root, "/proc/sys/vm/overcommit_memory", text, sizeof text);
  if (strcmp(text, "2") == 0)
    warn(e, "overcommit",
         "vm.overcommit_memory is 2: forking a big program may fail; 0 is the usual setting");
  else
    ok(e, "overcommit", "vm.overcommit_memory is %s", text[0] ? text : "unknown");
}

// The agent raises its soft limit to the hard one, so the hard one counts.
static void check_files(struct exam *e)
{
  struct rlimit r = {0};
  long long need = FILES_BESIDES + (long long)FILES_EACH * WORKERS, have;
  getrlimit(RLIMIT_NOFILE, &r);
  have = r.rlim_max == RLIM_INFINITY ? LLONG_MAX : (long long)r.rlim_max;
  if (have >= need)
    ok(e, "open files", "%d workers need %lld, which ulimit -Hn allows", WORKERS, need);
  else
    warn(e, "open files",
         "ulimit -Hn is %lld, enough for about %lld workers: %d need %lld, which root can allow in "
         "/etc/security/limits.conf",
         have, have > FILES_BESIDES ? (have - FILES_BESIDES) / FILES_EACH : 0, WORKERS, need);
}

#define SHMEM_HUGE "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

static void check_huge_pages(struct exam *e)
{
  char text[128];
  manta__host_text(e->root, SHMEM_HUGE, text, sizeof text);
  char *chosen = strchr(text, '['), *end = chosen ? strchr(chosen, ']') : NULL;
  if (!end) {
    ok(e, "huge pages", "this kernel has none for shared memory");
    return;
  }
  *end = 0;
  if (strcmp(chosen + 1, "never") == 0 || strcmp(chosen + 1, "deny") == 0)
    ok(e, "huge pages", "%s for shared memory; to try them: echo advise > " SHMEM_HUGE, chosen + 1);
  else
    ok(e, "huge pages", "%s for shared memory", chosen + 1);
}

static void check_amx(struct exam *e)
{
  struct manta__amx a = manta__amx_read();
  const char *set = getenv(MANTA__AMX_CURE_NAME);
  if (!manta__amx_is_trap(a))
    ok(e, "AMX", manta__amx_advertised(a) ? "there and described" : "not on this CPU");
  else if (set && *set)
    ok(e, "AMX", "advertised but not described by this CPU; " MANTA__AMX_CURE_NAME "=%s is set",
       set);
  else
    warn(e, "AMX",
         "advertised (CPUID leaf 7) but not described (no leaf 0x1d): oneDNN, and so PyTorch, dies "
         "with SIGILL on bf16; cure: export " MANTA__AMX_CURE_NAME "=" MANTA__AMX_CURE_VALUE);
}

static void tell_unknown(void *exam, const char *name, const char *like)
{
  warn((struct exam *)exam, "variables", "unknown variable %s; did you mean %s?", name, like);
}

// A row for each that is wrong.
static void check_variables(struct exam *e)
{
  int set = 0, wrong = 0;
  for (int i = 0; i < MANTA__KNOBS; i++) {
    manta_error err = MANTA_ERROR_INIT;
    set += manta__knob_is_set(i);
    if (manta__knob_check(i, &err) < 0) {
      fail(e, "variables", "%s", err.message);
      wrong++;
    }
  }
  manta__knobs_tell_unknown(tell_unknown, e);
  if (!wrong)
    ok(e, "variables", "none wrong, %d of %d set; manta info --params lists them", set,
       MANTA__KNOBS);
}

// --- All of it -----------------------------------------------------------------------------------

static void check_all(struct exam *e)
{
  check_kernel(e);
  check_memfd(e);
  check_robust(e);
  check_plain(e, "pidfd", manta__probe_pidfd, "works", "exits of workers cannot be explained");
  check_plain(e, "futex", manta__probe_futex, "works between processes", "manta cannot run");
  check_lifeline(e);
  check_plain(e, "subreaper", manta__probe_subreaper, "orphans come to the agent",
              "what workers start may outlive them");
  check_cpus(e);
  check_memory(e);
  check_gpus(e);
  check_runtime(e);
  check_core(e);
  check_overcommit(e);
  check_files(e);
  check_huge_pages(e);
  check_amx(e);
  check_variables(e);
}

manta_status manta__doctor_examine(manta_value *rows, const char *root, manta_error *err)
{
  struct exam e = {.rows = rows, .root = root};
  MANTA_TRY(manta__host_read(&e.host, root, err));
  e.st = manta_value_set_list(rows);
  check_all(&e);
  manta__host_fini(&e.host);
  if (e.st < 0)
    return manta_error_set(err, e.st, "no memory for the examination");
  return MANTA_OK;
}

// --- Python --------------------------------------------------------------------------------------

static const char *or_none(const char *version)
{
  return version[0] ? version : "none";
}

// Who writes C needs none of it.
static void check_python(struct exam *e)
{
  struct manta__python p;
  manta_error err = MANTA_ERROR_INIT;
  const char *name = manta__python_name();
  if (manta__python_ask(&p, PYTHON_S, &err) < 0)
    row(e, "Python", err.status == MANTA_ENOENT ? "ok" : "warn", "%s", err.message);
  else if (p.manta[0] && p.manta[0] != '?' && strcmp(p.manta, MANTA_VERSION) != 0)
    warn(e, "Python", "%s (%s) has manta %s, and this command is " MANTA_VERSION, p.version, name,
         p.manta);
  else
    ok(e, "Python", "%s (%s): manta %s, torch %s", p.version, name, or_none(p.manta),
       or_none(p.torch));
}

manta_status manta__doctor_examine_python(manta_value *rows, manta_error *err)
{
  struct exam e = {.rows = rows, .root = ""};
  check_python(&e);
  return e.st < 0 ? manta_error_set(err, e.st, "no memory for the examination") : MANTA_OK;
}

// --- Telling -------------------------------------------------------------------------------------

static const char *text_of(const manta_value *map, const char *key)
{
  return manta_value_as_string(manta_value_get(map, key), "?");
}

static int count(const manta_value *rows, const char *state)
{
  int n = 0;
  for (size_t i = 0; i < rows->count; i++)
    n += strcmp(text_of(manta_value_at(rows, i), "state"), state) == 0;
  return n;
}

static void print_text(const manta_value *rows, FILE *out)
{
  for (size_t i = 0; i < rows->count; i++) {
    const manta_value *r = manta_value_at(rows, i);
    fprintf(out, "%-4s  %-17s  %s\n", text_of(r, "state"), text_of(r, "check"), text_of(r, "text"));
  }
  int warnings = count(rows, "warn"), failed = count(rows, "fail");
  if (failed)
    fprintf(out, "\n%d of %u checks failed: manta does not work here as it should.\n", failed,
            rows->count);
  else
    fprintf(out, "\nmanta works here%s.\n", warnings ? "; see the warnings above" : "");
}

static manta_status print_json(const manta_value *rows, FILE *out, manta_error *err)
{
  char *text = NULL;
  MANTA_TRY(manta_value_to_json(rows, 2, &text, err));
  fprintf(out, "%s\n", text);
  manta_free(text);
  return MANTA_OK;
}

int manta__doctor(bool json, FILE *out)
{
  manta_value rows = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = manta__doctor_examine(&rows, "", &err);
  if (st >= 0)
    st = manta__doctor_examine_python(&rows, &err);
  if (st >= 0 && json)
    st = print_json(&rows, out, &err);
  else if (st >= 0)
    print_text(&rows, out);
  int failed = count(&rows, "fail");
  manta_value_fini(&rows);
  if (st < 0)
    fprintf(stderr, "manta doctor: %s\n", err.message);
  return st < 0 || failed ? 1 : 0;
}
