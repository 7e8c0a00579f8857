/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <manta/manta.h>

#include "cmd/probe.h"
#include "scratch.h"

static char *root;
static char run_dir[PATH_MAX];
static manta_value rows;
static manta_error err;

// A host in which nothing is wrong; tests break one thing each.
static int setup(void **state)
{
  root = scratch_make();
  err = (manta_error)MANTA_ERROR_INIT;
  scratch_write(root, "proc/self/status", "Cpus_allowed_list:\t0-3,8\n");
  scratch_write(root, "proc/sys/kernel/osrelease", "5.4.0-42-generic\n");
  scratch_write(root, "proc/sys/kernel/core_pattern", "core\n");
  scratch_write(root, "proc/sys/vm/overcommit_memory", "0\n");
  scratch_write(root, "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
  snprintf(run_dir, sizeof run_dir, "%s/run", root);
  assert_int_equal(mkdir(run_dir, 0700), 0);
  setenv("XDG_RUNTIME_DIR", run_dir, 1);
  setenv("MANTA_NVML", "/nowhere/nvml.so", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  setenv("MANTA_AMX", "none", 1);
  unsetenv("ONEDNN_MAX_CPU_ISA");
  struct rlimit core;
  assert_int_equal(getrlimit(RLIMIT_CORE, &core), 0);
  core.rlim_cur = 0;
  assert_int_equal(setrlimit(RLIMIT_CORE, &core), 0);
  return 0;
}

static int teardown(void **state)
{
  manta_value_fini(&rows);
  scratch_remove(root);
  return 0;
}

static const manta_value *find(const char *check)
{
  for (size_t i = 0; i < rows.count; i++) {
    const manta_value *r = manta_value_at(&rows, i);
    if (strcmp(manta_value_as_string(manta_value_get(r, "check"), ""), check) == 0)
      return r;
  }
  fail_msg("no check \"%s\"", check);
  return NULL;
}

static void assert_row(const char *check, const char *state, const char *text)
{
  const manta_value *r = find(check);
  assert_string_equal(manta_value_as_string(manta_value_get(r, "state"), ""), state);
  assert_has(manta_value_as_string(manta_value_get(r, "text"), ""), text);
}

static void examine(void)
{
  assert_ok(manta__doctor_examine(&rows, root, &err), &err);
}

static char *print(bool json, int *code)
{
  static char text[1 << 16];
  memset(text, 0, sizeof text);
  FILE *f = fmemopen(text, sizeof text - 1, "w");
  assert_non_null(f);
  *code = manta__doctor(json, f);
  fclose(f);
  return text;
}

// --- The experiments -----------------------------------------------------------------------------

static int open_files(void)
{
  DIR *d = opendir("/proc/self/fd");
  int n = 0;
  assert_non_null(d);
  while (readdir(d))
    n++;
  closedir(d);
  return n;
}

// On a kernel that manta runs on every one works, is quick, and leaves nothing behind.
static void experiments_work_and_clean_up(void **state)
{
  void (*const probes[])(struct manta__probe *) = {
      manta__probe_memfd, manta__probe_robust,   manta__probe_pidfd,
      manta__probe_futex, manta__probe_lifeline, manta__probe_subreaper,
  };
  int before = open_files();
  for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
    struct manta__probe p = {.why = "nothing was written"};
    probes[i](&p);
    assert_string_equal(p.why, "");
    assert_true(p.works);
    assert_true(p.ms >= 0 && p.ms < 1500);
  }
  assert_int_equal(open_files(), before);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
}

static void times_are_measured(void **state)
{
  struct manta__probe p;
  manta__probe_robust(&p);
  assert_true(p.ms > 0);
  manta__probe_lifeline(&p);
  assert_true(p.ms > 0);
}

// --- Rows over a host that is made up ------------------------------------------------------------

static void a_good_host_has_no_complaint(void **state)
{
  examine();
  for (size_t i = 0; i < rows.count; i++) {
    const manta_value *r = manta_value_at(&rows, i);
    const char *check = manta_value_as_string(manta_value_get(r, "check"), "");
    if (strcmp(check, "open files") != 0) // looks at the real one
      assert_row(check, "ok", "");
  }
  assert_row("kernel", "ok", "5.4.0");
  assert_row("CPUs", "ok", "5 to use; the affinity mask has 5 (0-3,8)");
  assert_row("cgroup quota", "ok", "none");
  assert_row("memory", "ok", "4.0 of 8.0 GiB available (no cgroup limit)");
  assert_row("GPUs", "ok", "none (no /nowhere/nvml.so)");
  assert_row("runtime directory", "ok", run_dir);
  assert_row("leases", "ok", "5 of 5 CPUs");
}

static void an_old_kernel_fails(void **state)
{
  static const struct {
    const char *release, *state;
  } t[] = {{"5.3.18", "fail"}, {"4.19.0-21", "fail"}, {"5.4.0", "ok"},
           {"5.10.1", "ok"},   {"6.1.0", "ok"},       {"strange", "warn"}};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
    scratch_write(root, "proc/sys/kernel/osrelease", t[i].release);
    examine();
    assert_row("kernel", t[i].state, t[i].release);
  }
}

static void limits_of_the_cgroup_are_told(void **state)
{
  scratch_write(root, "proc/self/cgroup", "0::/job\n");
  scratch_write(root, "proc/self/mountinfo", "31 23 0:28 / /cg rw - cgroup2 cgroup2 rw\n");
  scratch_write(root, "cg/job/cpu.max", "150000 100000\n");
  scratch_write(root, "cg/job/memory.max", "2147483648\n");
  scratch_write(root, "cg/job/memory.current", "1610612736\n");
  examine();
  assert_row("cgroup quota", "ok", "1.5 CPUs");
  assert_row("CPUs", "ok", "1.5 to use");
  assert_row("memory", "warn", "cgroup limit 2.0 GiB, 1.5 in use");
}

static void settings_that_hurt_are_warned_about(void **state)
{
  scratch_write(root, "proc/sys/kernel/core_pattern", "|/usr/lib/dump %p\n");
  scratch_write(root, "proc/sys/vm/overcommit_memory", "2\n");
  examine();
  assert_row("core dumps", "warn", "/usr/lib/dump");
  assert_row("overcommit", "warn", "vm.overcommit_memory is 2");
}

static void core_files_are_warned_about_if_they_are_on(void **state)
{
  struct rlimit r;
  assert_int_equal(getrlimit(RLIMIT_CORE, &r), 0);
  if (r.rlim_max == 0)
    return; // they cannot be on here
  r.rlim_cur = r.rlim_max < 4096 ? r.rlim_max : 4096;
  assert_int_equal(setrlimit(RLIMIT_CORE, &r), 0);
  examine();
  assert_row("core dumps", "warn", "ulimit -c 0");
}

static void huge_pages_are_read(void **state)
{
  const char *file = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  examine();
  assert_row("huge pages", "ok", "this kernel has none");
  scratch_write(root, file, "always within_size advise [never] deny force\n");
  examine();
  assert_row("huge pages", "ok", "never for shared memory; to try them: echo advise > /sys/");
  scratch_write(root, file, "always within_size [advise] never deny force\n");
  examine();
  assert_row("huge pages", "ok", "advise for shared memory");
}

static void a_runtime_directory_that_is_not_safe_fails(void **state)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/run/manta", root);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_equal(chmod(path, 0755), 0);
  examine();
  assert_row("runtime directory", "fail", "chmod 700");
  int code;
  assert_has(print(false, &code), "manta does not work here as it should");
  assert_int_equal(code, 1);
}

static void gpus_are_listed(void **state)
{
  setenv("MANTA_NVML", FAKE_NVML, 1);
  setenv("FAKE_NVML", "GPU-a=H100 GPU-b=H100", 1);
  examine();
  assert_row("GPUs", "ok", "2, the first is H100 with 1 GiB");
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  examine();
  assert_row("GPUs", "ok", "1, the first is H100 with 2 GiB; CUDA_VISIBLE_DEVICES=1 leaves 1 of 2");
}

static void a_gpu_without_its_library_is_warned_about(void **state)
{
  scratch_write(root, "dev/nvidia0", "");
  examine();
  assert_row("GPUs", "warn", "there is /dev/nvidia0 but no GPU (no /nowhere/nvml.so)");
  setenv("CUDA_VISIBLE_DEVICES", "", 1); // who wants none is not warned
  examine();
  assert_row("GPUs", "ok", "none");
}

// Whatever the CPU of this machine says of itself.
static void the_amx_row_follows_the_cpu(void **state)
{
  setenv("MANTA_AMX", "none", 1);
  examine();
  assert_row("AMX", "ok", "not on this CPU");
  setenv("MANTA_AMX", "ok", 1);
  examine();
  assert_row("AMX", "ok", "there and described");
  setenv("MANTA_AMX", "trap", 1);
  examine();
  assert_row("AMX", "warn", "SIGILL");
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", 1);
  examine();
  assert_row("AMX", "ok", "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 is set");
}

static void wrong_variables_fail_and_unknown_ones_are_warned_about(void **state)
{
  examine();
  assert_row("variables", "ok", "none wrong");
  setenv("MANTA_RESULT", "/x", 1);
  examine();
  assert_row("variables", "warn", "unknown variable MANTA_RESULT; did you mean MANTA_RESULTS?");
  unsetenv("MANTA_RESULT");
  setenv("MANTA_GRACE", "long", 1);
  examine();
  assert_row("variables", "fail", "MANTA_GRACE must be a number of seconds");
  unsetenv("MANTA_GRACE");
}

// In a child: the hard limit cannot be raised again.
static void few_open_files_are_warned_about(void **state)
{
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    struct rlimit r = {464, 464};
    if (setrlimit(RLIMIT_NOFILE, &r) < 0 || manta__doctor_examine(&rows, root, &err) < 0)
      _exit(1);
    const char *text = manta_value_as_string(manta_value_get(find("open files"), "text"), "");
    _exit(strstr(text, "ulimit -Hn is 464, enough for about 50 workers: 256 need 2112") ? 0 : 2);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

// --- Python --------------------------------------------------------------------------------------

static void ask_python(const char *script)
{
  char path[PATH_MAX];
  scratch_write(root, "python", script);
  snprintf(path, sizeof path, "%s/python", root);
  assert_int_equal(chmod(path, 0755), 0);
  setenv("MANTA_PYTHON", path, 1);
  examine();
  assert_ok(manta__doctor_examine_python(&rows, &err), &err);
  unsetenv("MANTA_PYTHON");
}

static void python_and_its_packages_are_told(void **state)
{
  ask_python("#!/bin/sh\nprintf '3.12.1\\n" MANTA_VERSION "\\n2.9\\n'\n");
  assert_row("Python", "ok", "3.12.1 (");
  assert_row("Python", "ok", "/python): manta " MANTA_VERSION ", torch 2.9");
  ask_python("#!/bin/sh\nprintf '3.12.1\\n?\\n\\n'\n");
  assert_row("Python", "ok", "manta ?, torch none");
}

static void a_package_of_another_version_is_warned_about(void **state)
{
  ask_python("#!/bin/sh\nprintf '3.12.1\\n0.0.7\\n2.9\\n'\n");
  assert_row("Python", "warn", "has manta 0.0.7, and this command is " MANTA_VERSION);
}

static void a_host_without_python_is_no_problem(void **state)
{
  setenv("MANTA_PYTHON", "/nowhere/python", 1);
  examine();
  assert_ok(manta__doctor_examine_python(&rows, &err), &err);
  unsetenv("MANTA_PYTHON");
  assert_row("Python", "ok", "cannot run /nowhere/python: No such file");
}

// --- What is printed -----------------------------------------------------------------------------

static void text_has_a_line_per_check_and_a_verdict(void **state)
{
  int code;
  char *text = print(false, &code);
  assert_int_equal(code, 0);
  assert_has(text, "\nok    death notice       a killed worker is noticed after ");
  assert_has(text, "\n\nmanta works here");
}

static void json_is_a_list_of_rows(void **state)
{
  int code;
  char *text = print(true, &code);
  assert_int_equal(code, 0);
  assert_ok(manta_value_from_json(&rows, text, strlen(text), &err), &err);
  assert_int_equal(rows.type, MANTA_LIST);
  assert_true(rows.count >= 17);
  for (size_t i = 0; i < rows.count; i++) {
    const manta_value *r = manta_value_at(&rows, i);
    assert_int_equal(r->count, 3);
    assert_non_null(manta_value_as_string(manta_value_get(r, "check"), NULL));
    assert_true(strlen(manta_value_as_string(manta_value_get(r, "text"), "")) > 1);
    const char *word = manta_value_as_string(manta_value_get(r, "state"), "");
    assert_true(strcmp(word, "ok") == 0 || strcmp(word, "warn") == 0);
  }
}

static void every_lack_of_memory_is_survived(void **state)
{
  FOR_EACH_OOM(manta__doctor_examine(&rows, root, &err), (void)0);
  assert_row("leases", "ok", "");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(experiments_work_and_clean_up),
      T(times_are_measured),
      T(a_good_host_has_no_complaint),
      T(an_old_kernel_fails),
      T(limits_of_the_cgroup_are_told),
      T(settings_that_hurt_are_warned_about),
      T(core_files_are_warned_about_if_they_are_on),
      T(huge_pages_are_read),
      T(a_runtime_directory_that_is_not_safe_fails),
      T(gpus_are_listed),
      T(a_gpu_without_its_library_is_warned_about),
      T(the_amx_row_follows_the_cpu),
      T(wrong_variables_fail_and_unknown_ones_are_warned_about),
      T(few_open_files_are_warned_about),
      T(python_and_its_packages_are_told),
      T(a_package_of_another_version_is_warned_about),
      T(a_host_without_python_is_no_problem),
      T(text_has_a_line_per_check_and_a_verdict),
      T(json_is_a_list_of_rows),
      T(every_lack_of_memory_is_survived),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
