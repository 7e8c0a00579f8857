/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/info.c - `manta info`: what this manta is, what it has found here, and how it is set.
 *
 * It describes and judges nothing; that is what `manta doctor` is for.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <manta/manta.h>

#include "cmd/build.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/params.h"
#include "event/rundir.h"
#include "sys/gpu.h"
#include "sys/host.h"
#include "sys/module.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

static const char *const modules[] = {"nccl", "ucx", "dash"};
#define MODULES (sizeof modules / sizeof *modules)

struct facts {
  struct utsname system;
  struct manta__host host;
  struct manta__gpus gpus;
  char command[PATH_MAX];
  char module[MODULES][PATH_MAX]; // "": not found
  char *results;
  manta_value set; // variables, NAME to text
};

static void find_files(struct facts *f)
{
  ssize_t n = readlink("/proc/self/exe", f->command, sizeof f->command - 1);
  f->command[n > 0 ? n : 0] = 0;
  for (size_t i = 0; i < MODULES; i++) {
    char path[PATH_MAX];
    if (!manta__module_find(modules[i], path, sizeof path) || !realpath(path, f->module[i]))
      f->module[i][0] = 0;
  }
}

static manta_status collect(struct facts *f, manta_error *err)
{
  uname(&f->system);
  find_files(f);
  manta__gpu_list(&f->gpus);
  MANTA_TRY(manta__host_read(&f->host, "", err));
  MANTA_TRY(manta__rundir_default(&f->results, err));
  if (manta__params_set(&f->set) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the variables");
  return MANTA_OK;
}

static void drop(struct facts *f)
{
  manta__host_fini(&f->host);
  manta_free(f->results);
  manta_value_fini(&f->set);
}

// --- For people ----------------------------------------------------------------------------------

static void print_host(const struct facts *f)
{
  const struct manta__host *h = &f->host;
  char total[MANTA__TEXT], left[MANTA__TEXT], quota[32] = "none";
  if (h->quota > 0)
    snprintf(quota, sizeof quota, "%.4g", h->quota);
  manta__line("host", "%s, %s %s", h->name, f->system.sysname, h->release);
  manta__line("CPUs", "%.4g (affinity mask %d, cgroup quota %s)", h->cpus, h->cpu_count, quota);
  manta__line("memory", "%s, %s available", manta__text_size(total, (uint64_t)h->mem_total),
              manta__text_size(left, (uint64_t)h->mem_available));
  if (f->gpus.count == 0)
    manta__line("GPUs", "none (%s)", f->gpus.why);
  for (int i = 0; i < f->gpus.count; i++)
    manta__line(i ? "" : "GPUs", "%s, %s", f->gpus.gpu[i].name,
                manta__text_size(total, (uint64_t)f->gpus.gpu[i].memory));
}

static void print_set(const manta_value *set)
{
  for (uint32_t i = 0; i < set->count; i++) {
    char text[256];
    manta__text_value(text, sizeof text, &set->u.pairs[i].value);
    manta__line(i ? "" : "variables", "%s=%s", set->u.pairs[i].key, text);
  }
  if (set->count == 0)
    manta__line("variables", "none is set; manta info --params lists them");
}

static void print_text(const struct facts *f)
{
  manta__line("version", "%s", manta_version());
  manta__line("build", "%s, %s, id %016llx", f->system.machine, COMPILER,
              (unsigned long long)manta__build_of_file(f->command));
  manta__line("command", "%s", f->command);
  for (size_t i = 0; i < MODULES; i++)
    manta__line(i ? "" : "modules", "%-4s  %s", modules[i],
                f->module[i][0] ? f->module[i] : "not found");
  print_host(f);
  manta__line("results", "%s", f->results);
  print_set(&f->set);
}

// --- For scripts ---------------------------------------------------------------------------------

// Takes `part`, in either case.
static manta_status put_part(manta_value *v, const char *key, manta_status st, manta_value *part)
{
  if (st == MANTA_OK)
    st = manta_value_put(v, key, part);
  manta_value_fini(part);
  return st;
}

static manta_status put_gpus(manta_value *v, const struct manta__gpus *g)
{
  manta_value list = {0};
  manta_status st = manta_value_set_list(&list);
  for (int i = 0; i < g->count && st == MANTA_OK; i++) {
    manta_value borrowed = MANTA_MAP(MANTA_KV_STR("id", g->gpu[i].id),
                                     MANTA_KV_STR("name", g->gpu[i].name),
                                     MANTA_KV_INT("memory", g->gpu[i].memory)),
                gpu = {0};
    st = manta_value_copy(&gpu, &borrowed);
    if (st == MANTA_OK)
      st = manta_value_append(&list, &gpu);
    manta_value_fini(&gpu);
  }
  return put_part(v, "gpus", st, &list);
}

static manta_status put_modules(manta_value *v, const struct facts *f)
{
  manta_value map = {0};
  manta_status st = manta_value_set_map(&map);
  for (size_t i = 0; i < MODULES && st == MANTA_OK; i++) {
    manta_value path = manta_value_borrow_string(f->module[i][0] ? f->module[i] : NULL);
    st = manta_value_put(&map, modules[i], &path);
  }
  return put_part(v, "modules", st, &map);
}

static manta_status fill(manta_value *v, const struct facts *f)
{
  manta_value set = {0};
  manta_value plain = MANTA_MAP(
      MANTA_KV_STR("version", manta_version()), MANTA_KV_STR("machine", f->system.machine),
      MANTA_KV_STR("compiler", COMPILER), MANTA_KV_INT("build", manta__build_of_file(f->command)),
      MANTA_KV_STR("command", f->command), MANTA_KV_STR("host", f->host.name),
      MANTA_KV_STR("kernel", f->host.release), MANTA_KV_REAL("cpus", f->host.cpus),
      MANTA_KV_INT("memory", f->host.mem_total),
      MANTA_KV_INT("memory_available", f->host.mem_available), MANTA_KV_STR("results", f->results));
  MANTA_TRY(manta_value_copy(v, &plain));
  MANTA_TRY(put_modules(v, f));
  MANTA_TRY(put_gpus(v, &f->gpus));
  return put_part(v, "variables", manta_value_copy(&set, &f->set), &set);
}

static int print_json(const struct facts *f)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = fill(&v, f);
  if (st < 0)
    manta_error_set(&err, st, "no memory for the description");
  int code = st < 0 ? manta__complain(&err) : manta__print_json(&v);
  manta_value_fini(&v);
  return code;
}

// -------------------------------------------------------------------------------------------------

int manta__cmd_info(const struct manta__args *a)
{
  static struct facts f; // large
  manta_error err = MANTA_ERROR_INIT;
  bool json = manta__args_has(a, "json");
  int code = MANTA__EXIT_OK;
  if (manta__args_has(a, "params"))
    return manta__params_print(json);
  if (collect(&f, &err) < 0)
    code = manta__complain(&err);
  else if (json)
    code = print_json(&f);
  else
    print_text(&f);
  drop(&f);
  return code;
}
