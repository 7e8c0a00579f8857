/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"

static char *root;
static int top;
static manta_error err;

static int setup(void **state)
{
  root = scratch_make();
  err = (manta_error)MANTA_ERROR_INIT;
  scratch_write(root, "outside/kept", "x");
  scratch_write(root, "run/run.log", "log");
  scratch_write(root, "run/a/b/c", "1");
  scratch_write(root, "run/a/d", "2");
  top = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return top < 0;
}

static int teardown(void **state)
{
  close(top);
  scratch_remove(root);
  return 0;
}

static int run_dir(void)
{
  int fd = openat(top, "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert_true(fd >= 0);
  return fd;
}

static bool there(const char *name)
{
  return faccessat(top, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_log(const char *name)
{
  return strcmp(name, "run.log") == 0;
}

static void all_but_what_is_kept_goes(void **state)
{
  int fd = run_dir();
  assert_ok(manta__tree_empty(fd, is_log, &err), &err);
  assert_true(there("run/run.log") && !there("run/a"));
  assert_ok(manta__tree_empty(fd, NULL, &err), &err);
  assert_ok(manta__tree_empty(fd, NULL, &err), &err); // there is nothing left
  assert_true(there("run") && !there("run/run.log") && there("outside/kept"));
  close(fd);
}

static void links_are_removed_and_not_followed(void **state)
{
  int fd = run_dir();
  assert_int_equal(symlinkat("../../outside", fd, "a/link"), 0);
  assert_int_equal(symlinkat("../outside/kept", fd, "file"), 0);
  assert_ok(manta__tree_empty(fd, NULL, &err), &err);
  assert_true(there("outside/kept") && !there("run/a") && !there("run/file"));
  close(fd);
}

static void what_is_linked_to_outlives_its_tree(void **state)
{
  struct stat sb;
  assert_int_equal(symlinkat("../outside/kept", top, "run/a/link"), 0);
  assert_int_equal(mkdirat(top, "other", 0755), 0);
  int other = openat(top, "other", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert_true(manta__tree_link(top, "run", other));
  assert_false(manta__tree_link(top, "run", other)); // is there
  assert_false(manta__tree_link(top, "none", other));
  assert_ok(manta__tree_remove(top, "run", &err), &err);
  assert_true(there("other/run/run.log") && there("other/run/a/b/c") && there("other/run/a/d"));
  assert_int_equal(fstatat(other, "run/a/link", &sb, AT_SYMLINK_NOFOLLOW), 0);
  assert_true(S_ISLNK(sb.st_mode));
  close(other);
}

static void many_entries_go(void **state)
{
  char name[32];
  int fd = run_dir();
  for (int i = 0; i < 3000; i++) {
    snprintf(name, sizeof name, "a/%d", i);
    int f = openat(fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(f >= 0);
    close(f);
  }
  assert_ok(manta__tree_empty(fd, NULL, &err), &err);
  assert_false(there("run/a"));
  close(fd);
}

static void what_is_too_deep_is_an_error(void **state)
{
  char path[256] = "run", *end = path + 3;
  for (int i = 0; i < 70; i++, end += 2) {
    memcpy(end, "/d", 3);
    assert_int_equal(mkdirat(top, path, 0700), 0);
  }
  int fd = run_dir();
  assert_status(manta__tree_empty(fd, NULL, &err), MANTA_ETOOBIG);
  assert_has(err.message, "more than 64 deep");
  assert_true(manta__tree_bytes(fd) >= 0);
  close(fd);
}

static void the_size_is_that_on_disk(void **state)
{
  char block[65536];
  int fd = run_dir();
  int64_t before = manta__tree_bytes(fd);
  memset(block, 'x', sizeof block);
  int f = openat(fd, "a/b/large", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  assert_int_equal(write(f, block, sizeof block), sizeof block);
  assert_int_equal(fsync(f), 0);
  close(f);
  assert_int_equal(symlinkat("/usr", fd, "a/far"), 0); // counts as a link
  int64_t more = manta__tree_bytes(fd) - before;
  assert_true(more >= 65536 && more < 2 * 65536);
  close(fd);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(all_but_what_is_kept_goes),           T(links_are_removed_and_not_followed),
      T(what_is_linked_to_outlives_its_tree), T(many_entries_go),
      T(what_is_too_deep_is_an_error),        T(the_size_is_that_on_disk),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
