/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/host.h"

#include <sched.h>
#include <sys/utsname.h>

#include "scratch.h"
#include "sys/cgroup.h"

static char *root;
static struct manta__host h;
static manta_error err;

#define V2_MOUNT                                                                                   \
  "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define NOISE                                                                                      \
  "22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"                                               \
  "23 22 0:21 / /sys rw,nosuid - sysfs sysfs rw\n"

static int setup(void **state)
{
  root = scratch_make();
  err = (manta_error)MANTA_ERROR_INIT;
  scratch_write(root, "proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n");
  return 0;
}

static int teardown(void **state)
{
  manta__host_fini(&h);
  scratch_remove(root);
  return 0;
}

static void put(const char *name, const char *text)
{
  scratch_write(root, name, text);
}

static void look(void)
{
  manta__host_fini(&h);
  assert_ok(manta__host_read(&h, root, &err), &err);
}

// --- The mask ------------------------------------------------------------------------------------

static void the_mask_is_a_list_of_ranges(void **state)
{
  put("proc/self/status", "Cpus_allowed_list:\t1,3-5,64-65,100\nMems_allowed_list:\t0\n");
  look();
  const int want[] = {1, 3, 4, 5, 64, 65, 100};
  assert_int_equal(h.cpu_count, 7);
  assert_memory_equal(h.cpu_ids, want, sizeof want);
  assert_near(h.cpus, 7, 0);
}

static void a_mask_that_cannot_be_read_fails(void **state)
{
  const char *bad[] = {"Name:\tx\n", "Cpus_allowed_list:\t\n", "Cpus_allowed_list:\t3-1\n",
                       "Cpus_allowed_list:\tall\n", "Cpus_allowed_list:\t9999\n"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    put("proc/self/status", bad[i]);
    assert_status(manta__host_read(&h, root, &err), MANTA_EIO);
  }
}

// --- cgroup v2 -----------------------------------------------------------------------------------

static void v2_quota_may_be_a_fraction(void **state)
{
  put("proc/self/cgroup", "0::/job\n");
  put("proc/self/mountinfo", NOISE V2_MOUNT);
  put("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  look();
  assert_near(h.quota, 1.5, 0);
  assert_near(h.cpus, 1.5, 0);
  assert_int_equal(h.cpu_count, 8);
}

static void a_tighter_quota_above_holds(void **state)
{
  put("proc/self/cgroup", "0::/a/b/c\n");
  put("proc/self/mountinfo", NOISE V2_MOUNT);
  put("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
  put("sys/fs/cgroup/a/cpu.max", "50000 25000\n");
  look();
  assert_near(h.quota, 2, 0);
}

static void a_quota_above_the_mask_changes_nothing(void **state)
{
  put("proc/self/cgroup", "0::/\n");
  put("proc/self/mountinfo", V2_MOUNT);
  put("sys/fs/cgroup/cpu.max", "1600000 100000\n");
  look();
  assert_near(h.quota, 16, 0);
  assert_near(h.cpus, 8, 0);
}

static void no_quota_is_no_quota(void **state)
{
  put("proc/self/cgroup", "0::/job\n");
  put("proc/self/mountinfo", V2_MOUNT);
  put("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/job/memory.max", "max\n");
  put("sys/fs/cgroup/job/memory.current", "4096\n");
  look();
  assert_near(h.quota, 0, 0);
  assert_near(h.cpus, 8, 0);
  assert_int_equal(h.mem_limit, 0);
  assert_int_equal(h.mem_used, 0);
}

static void v2_memory_is_that_of_the_tightest_group(void **state)
{
  put("proc/self/cgroup", "0::/a/b\n");
  put("proc/self/mountinfo", V2_MOUNT);
  put("sys/fs/cgroup/a/b/memory.max", "8589934592\n");
  put("sys/fs/cgroup/a/b/memory.current", "100\n");
  put("sys/fs/cgroup/a/memory.max", "4294967296\n");
  put("sys/fs/cgroup/a/memory.current", "200\n");
  look();
  assert_int_equal(h.mem_limit, 4294967296);
  assert_int_equal(h.mem_used, 200);
}

// --- cgroup v1 -----------------------------------------------------------------------------------

#define V1_MOUNTS                                                                                  \
  "33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"                    \
  "34 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"                              \
  "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"

static void v1_reads_each_controller_in_its_place(void **state)
{
  put("proc/self/cgroup", "5:cpuset:/set\n4:memory:/mem/x\n1:cpu,cpuacct:/job\n");
  put("proc/self/mountinfo", NOISE V1_MOUNTS);
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/memory/mem/x/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/mem/memory.limit_in_bytes", "1073741824\n");
  put("sys/fs/cgroup/memory/mem/memory.usage_in_bytes", "77\n");
  look();
  assert_near(h.quota, 2.5, 0);
  assert_int_equal(h.mem_limit, 1073741824);
  assert_int_equal(h.mem_used, 77);
}

static void v1_writes_no_limit_as_a_huge_one(void **state)
{
  put("proc/self/cgroup", "4:memory:/x\n");
  put("proc/self/mountinfo", V1_MOUNTS);
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "77\n");
  look();
  assert_int_equal(h.mem_limit, 0);
  assert_int_equal(h.mem_used, 0);
}

static void v1_minus_one_is_no_quota(void **state)
{
  put("proc/self/cgroup", "1:cpu,cpuacct:/job\n");
  put("proc/self/mountinfo", V1_MOUNTS);
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  look();
  assert_near(h.quota, 0, 0);
}

// Both hierarchies at once, as older systemd makes them: the tighter limit counts.
static void mixed_hierarchies_take_the_tighter(void **state)
{
  put("proc/self/cgroup", "1:cpu,cpuacct:/job\n0::/unit\n");
  put("proc/self/mountinfo",
      V1_MOUNTS "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/unified/unit/cpu.max", "200000 100000\n");
  look();
  assert_near(h.quota, 2, 0);
}

// --- Containers ----------------------------------------------------------------------------------

// Without a cgroup namespace the path is the host's and the mount shows only its end.
static void a_mount_of_the_own_group_is_understood(void **state)
{
  put("proc/self/cgroup", "1:cpu,cpuacct:/docker/abc\n");
  put("proc/self/mountinfo",
      "33 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "120000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  look();
  assert_near(h.quota, 1.2, 1e-12);
}

static void the_mount_that_shows_the_group_wins(void **state)
{
  put("proc/self/cgroup", "0::/kube/pod\n");
  put("proc/self/mountinfo", "30 31 0:29 /other /mnt/other rw - cgroup2 x rw\n"
                             "31 31 0:29 /kub /mnt/let rw - cgroup2 x rw\n"
                             "33 31 0:29 /kube /mnt/my\\040cgroup rw - cgroup2 x rw\n");
  put("mnt/other/cpu.max", "100000 100000\n");
  put("mnt/let/cpu.max", "200000 100000\n");
  put("mnt/my cgroup/pod/cpu.max", "300000 100000\n");
  look();
  assert_near(h.quota, 3, 0);
}

static void a_path_out_of_the_namespace_falls_back_to_the_mount(void **state)
{
  put("proc/self/cgroup", "0::/../../other\n");
  put("proc/self/mountinfo", V2_MOUNT);
  put("sys/fs/cgroup/cpu.max", "400000 100000\n");
  put("sys/other/cpu.max", "100000 100000\n"); // where following the path would lead
  look();
  assert_near(h.quota, 4, 0);
}

static void nothing_above_the_mount_point_is_read(void **state)
{
  put("proc/self/cgroup", "0::/job\n");
  put("proc/self/mountinfo", V2_MOUNT);
  put("sys/fs/cgroup/job/cpu.max", "400000 100000\n");
  put("sys/fs/cpu.max", "100000 100000\n");
  look();
  assert_near(h.quota, 4, 0);
}

// --- Robustness ----------------------------------------------------------------------------------

static void nonsense_is_no_limit(void **state)
{
  char line[20000];
  memset(line, 'x', sizeof line - 1);
  line[sizeof line - 1] = 0;
  put("proc/self/mountinfo", line);
  put("proc/self/cgroup", "nonsense\n1:cpu\n::\n0::/job\n");
  look();
  assert_near(h.cpus, 8, 0);
  put("proc/self/mountinfo", "1 2 3 - cgroup2\n1 2 3 / - cgroup2\n - \n" V2_MOUNT);
  put("sys/fs/cgroup/job/cpu.max", "lots of\n");
  look();
  assert_near(h.cpus, 8, 0);
  put("sys/fs/cgroup/job/cpu.max", "-5 0\n");
  look();
  assert_near(h.cpus, 8, 0);
}

// What is dropped of a long line is no line of its own either, wherever the cut falls.
static void a_long_line_does_not_hide_the_next(void **state)
{
  char text[20000];
  memset(text, ' ', sizeof text);
  snprintf(text + 9000, 1000, "9 9 0:9 / /bad rw - cgroup2 bad rw\n");
  text[8999] = 'x';
  snprintf(text + strlen(text), 1000, "%s", V2_MOUNT);
  put("proc/self/mountinfo", text);
  put("proc/self/cgroup", "0::/\n");
  put("bad/cpu.max", "200000 100000\n");
  put("sys/fs/cgroup/cpu.max", "100000 100000\n");
  look();
  assert_near(h.quota, 1, 0);
}

static void memory_and_names(void **state)
{
  put("proc/meminfo", "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    1024 kB\n");
  put("proc/sys/kernel/hostname", "box\n");
  put("proc/sys/kernel/osrelease", "5.10.0-8-amd64\n");
  look();
  assert_int_equal(h.mem_total, 16 << 20);
  assert_int_equal(h.mem_available, 1 << 20);
  assert_string_equal(h.name, "box");
  assert_string_equal(h.release, "5.10.0-8-amd64");
}

static void this_host_agrees_with_the_kernel(void **state)
{
  struct utsname u;
  cpu_set_t set;
  manta__host_fini(&h);
  assert_ok(manta__host_read(&h, "", &err), &err);
  assert_int_equal(uname(&u), 0);
  assert_string_equal(h.name, u.nodename);
  assert_string_equal(h.release, u.release);
  assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
  assert_int_equal(h.cpu_count, CPU_COUNT(&set));
  for (int i = 0; i < h.cpu_count; i++)
    assert_true(CPU_ISSET(h.cpu_ids[i], &set));
  assert_true(h.mem_total > 16 << 20);
  assert_true(h.mem_available > 0 && h.mem_available <= h.mem_total);
  assert_true(h.cpus > 0 && h.cpus <= h.cpu_count);
}

static void a_narrowed_mask_is_seen(void **state)
{
  cpu_set_t all, one;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &all))
    last--;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  manta__host_fini(&h);
  manta_status st = manta__host_read(&h, "", &err);
  sched_setaffinity(0, sizeof all, &all);
  assert_ok(st, &err);
  assert_int_equal(h.cpu_count, 1);
  assert_int_equal(h.cpu_ids[0], last);
}

static void every_lack_of_memory_is_survived(void **state)
{
  struct manta__host got = {0};
  FOR_EACH_OOM(manta__host_read(&got, root, &err), manta__host_fini(&got));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(the_mask_is_a_list_of_ranges),
      T(a_mask_that_cannot_be_read_fails),
      T(v2_quota_may_be_a_fraction),
      T(a_tighter_quota_above_holds),
      T(a_quota_above_the_mask_changes_nothing),
      T(no_quota_is_no_quota),
      T(v2_memory_is_that_of_the_tightest_group),
      T(v1_reads_each_controller_in_its_place),
      T(v1_writes_no_limit_as_a_huge_one),
      T(v1_minus_one_is_no_quota),
      T(mixed_hierarchies_take_the_tighter),
      T(a_mount_of_the_own_group_is_understood),
      T(the_mount_that_shows_the_group_wins),
      T(a_path_out_of_the_namespace_falls_back_to_the_mount),
      T(nothing_above_the_mount_point_is_read),
      T(nonsense_is_no_limit),
      T(a_long_line_does_not_hide_the_next),
      T(memory_and_names),
      T(this_host_agrees_with_the_kernel),
      T(a_narrowed_mask_is_seen),
      T(every_lack_of_memory_is_survived),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
