/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/runtime.h"

#include "scratch.h"

static char *dir; // stands for /tmp
static char path[PATH_MAX];
static manta_error err;

static int setup(void **state)
{
  dir = scratch_make();
  err = (manta_error)MANTA_ERROR_INIT;
  return 0;
}

static int teardown(void **state)
{
  scratch_remove(dir);
  return 0;
}

static const char *under(const char *name)
{
  static char full[PATH_MAX];
  snprintf(full, sizeof full, "%s/%s", dir, name);
  return full;
}

static const char *ours(void)
{
  char name[32];
  snprintf(name, sizeof name, "manta-%u", (unsigned)geteuid());
  return under(name);
}

static manta_status open_it(const char *xdg, int *fd)
{
  return manta__runtime_dir_in(xdg, dir, geteuid(), fd, path, sizeof path, &err);
}

static void assert_private(int fd)
{
  struct stat sb;
  assert_int_equal(fstat(fd, &sb), 0);
  assert_int_equal(sb.st_mode & 07777, 0700);
  assert_int_equal(sb.st_uid, geteuid());
  assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

static void without_xdg_it_is_in_tmp(void **state)
{
  int fd = -1;
  assert_ok(open_it(NULL, &fd), &err);
  assert_string_equal(path, ours());
  assert_private(fd);
  close(fd);
  assert_ok(open_it(NULL, &fd), &err); // and again when it is there
  close(fd);
}

static void xdg_comes_first_if_it_is_ours(void **state)
{
  int fd = -1;
  assert_int_equal(mkdir(under("xdg"), 0700), 0);
  assert_ok(open_it(under("xdg"), &fd), &err);
  assert_string_equal(path, under("xdg/manta"));
  assert_private(fd);
  close(fd);
}

static void xdg_that_is_missing_or_relative_is_passed_over(void **state)
{
  char gone[PATH_MAX], cwd[PATH_MAX];
  snprintf(gone, sizeof gone, "%s", under("gone"));
  assert_int_equal(mkdir(under("relative"), 0700), 0);
  assert_non_null(getcwd(cwd, sizeof cwd));
  assert_int_equal(chdir(dir), 0); // it is there and ours, and still not to be used
  const char *bad[] = {gone, "", "relative"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int fd = -1;
    assert_ok(open_it(bad[i], &fd), &err);
    assert_string_equal(path, ours());
    close(fd);
  }
  assert_int_equal(chdir(cwd), 0);
}

// To be somebody else it is enough to ask in another user's name.
static void xdg_of_somebody_else_is_passed_over(void **state)
{
  int fd = -1;
  assert_int_equal(mkdir(under("xdg"), 0700), 0);
  assert_status(
      manta__runtime_dir_in(under("xdg"), dir, geteuid() + 1, &fd, path, sizeof path, &err),
      MANTA_EDENIED); // made in tmp by us, which "they" do not own
  assert_int_equal(access(under("xdg/manta"), F_OK), -1);
  assert_int_equal(fd, -1);
}

static void a_directory_of_somebody_else_is_refused(void **state)
{
  int fd = -1;
  char name[32], want[64];
  unsigned other = (unsigned)geteuid() + 1;
  snprintf(name, sizeof name, "manta-%u", other);
  assert_int_equal(mkdir(under(name), 0700), 0);
  assert_status(manta__runtime_dir_in(NULL, dir, other, &fd, path, sizeof path, &err),
                MANTA_EDENIED);
  assert_int_equal(fd, -1);
  snprintf(want, sizeof want, "belongs to user %u, not to this user (%u)", (unsigned)geteuid(),
           other);
  assert_has(err.message, want);
  assert_has(err.message, "XDG_RUNTIME_DIR");
}

static void a_link_is_refused(void **state)
{
  int fd = -1;
  assert_int_equal(mkdir(under("elsewhere"), 0700), 0);
  char target[PATH_MAX];
  snprintf(target, sizeof target, "%s", under("elsewhere"));
  assert_int_equal(symlink(target, ours()), 0);
  assert_status(open_it(NULL, &fd), MANTA_EDENIED);
  assert_has(err.message, "symbolic link");
  assert_int_equal(fd, -1);
}

static void one_open_to_others_is_refused(void **state)
{
  int fd = -1;
  assert_int_equal(mkdir(ours(), 0700), 0);
  assert_int_equal(chmod(ours(), 0750), 0);
  assert_status(open_it(NULL, &fd), MANTA_EDENIED);
  assert_has(err.message, "mode 0750");
  assert_has(err.message, "chmod 700");
  assert_int_equal(chmod(ours(), 0700), 0);
  assert_ok(open_it(NULL, &fd), &err);
  close(fd);
}

static void a_short_path_buffer_is_told(void **state)
{
  int fd = -1;
  char small[8];
  assert_status(manta__runtime_dir_in(NULL, dir, geteuid(), &fd, small, sizeof small, &err),
                MANTA_ETOOBIG);
  assert_int_equal(fd, -1);
  assert_ok(manta__runtime_dir_in(NULL, dir, geteuid(), &fd, NULL, 0, &err), &err);
  close(fd);
}

static void the_environment_is_read(void **state)
{
  int fd = -1;
  assert_int_equal(setenv("XDG_RUNTIME_DIR", dir, 1), 0);
  assert_ok(manta__runtime_dir(&fd, path, sizeof path, &err), &err);
  assert_string_equal(path, under("manta"));
  close(fd);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(without_xdg_it_is_in_tmp),
      T(xdg_comes_first_if_it_is_ours),
      T(xdg_that_is_missing_or_relative_is_passed_over),
      T(xdg_of_somebody_else_is_passed_over),
      T(a_directory_of_somebody_else_is_refused),
      T(a_link_is_refused),
      T(one_open_to_others_is_refused),
      T(a_short_path_buffer_is_told),
      T(the_environment_is_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
