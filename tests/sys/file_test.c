/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that appear whole or not at all, directories on the way, and the faults that tests inject.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "scratch.h"
#include "sys/file.h"
#include "sys/proc.h"

struct place {
  char *path;
  int dir;
};

static int setup(void **state)
{
  static struct place p;
  p.path = scratch_make();
  p.dir = scratch_open(p.path);
  *state = &p;
  return 0;
}

static int teardown(void **state)
{
  struct place *p = *state;
  manta__file_fault(0, 0, 0);
  close(p->dir);
  scratch_remove(p->path);
  return 0;
}

// Files in the directory, "." and ".." not counted.
static int entries(struct place *p)
{
  DIR *d = opendir(p->path);
  int n = -2;
  while (readdir(d))
    n++;
  closedir(d);
  return n;
}

static void has_content(struct place *p, const char *name, const char *want)
{
  char *text;
  size_t n;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__file_read(p->dir, name, 1 << 20, &text, &n, &err), &err);
  assert_int_equal(n, strlen(want));
  assert_string_equal(text, want); // NUL-terminated
  manta_free(text);
}

static void short_writes_are_joined(void **state)
{
  struct place *p = *state;
  int fd = openat(p->dir, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  char bytes[1000];
  for (size_t i = 0; i < sizeof bytes - 1; i++)
    bytes[i] = (char)('a' + i % 26);
  bytes[sizeof bytes - 1] = 0;
  size_t done = 0;
  manta__file_fault(0, 0, 3);
  assert_int_equal(manta__write_all(fd, bytes, 999, &done), 0);
  assert_int_equal(done, 999);
  assert_int_equal(manta__file_fault(0, 0, 0), 0);
  has_content(p, "f", bytes);
  close(fd);
}

static void a_fault_fires_at_its_byte(void **state)
{
  struct place *p = *state;
  int fd = openat(p->dir, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  for (int64_t at = 0; at <= 20; at++) {
    size_t done = 99;
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    manta__file_fault(at, EDQUOT, at % 2 ? 4 : 0);
    errno = 0;
    int rc = manta__write_all(fd, "0123456789abcdefghi", 19, &done);
    assert_int_equal(rc, at < 19 ? -1 : 0);
    assert_int_equal(done, at < 19 ? at : 19);
    if (rc < 0)
      assert_int_equal(errno, EDQUOT);
    assert_int_equal(manta__file_fault(0, 0, 0), at < 19);
    struct stat sb;
    assert_int_equal(fstat(fd, &sb), 0);
    assert_int_equal(sb.st_size, done);
  }
  close(fd);
  assert_int_equal(manta__write_all(fd, "x", 1, NULL), -1); // a closed descriptor
}

// The disk is full at every byte of the new content: the old one is all that is there.
static void replace_is_all_or_nothing(void **state)
{
  struct place *p = *state;
  manta_error err = MANTA_ERROR_INIT;
  const char *then = "the old content", *now = "the new content, which is longer";
  assert_ok(manta__file_replace(p->dir, "f", then, strlen(then), &err), &err);
  for (int64_t at = 0; at < (int64_t)strlen(now); at++) {
    manta__file_fault(at, ENOSPC, at % 3);
    assert_status(manta__file_replace(p->dir, "f", now, strlen(now), &err), MANTA_EIO);
    assert_int_equal(manta__file_fault(0, 0, 0), 1);
    assert_has(err.message, "No space left");
    has_content(p, "f", then);
    assert_int_equal(entries(p), 1); // and no temp file stays behind
  }
  manta__file_fault((int64_t)strlen(now), ENOSPC, 0);
  assert_ok(manta__file_replace(p->dir, "f", now, strlen(now), &err), &err);
  manta__file_fault(0, 0, 0);
  has_content(p, "f", now);
  assert_ok(manta__file_replace(p->dir, "f", NULL, 0, &err), &err);
  has_content(p, "f", "");
}

// A process that is killed at any moment leaves one content or the other.
static void a_killed_writer_leaves_a_whole_file(void **state)
{
  struct place *p = *state;
  manta_error err = MANTA_ERROR_INIT;
  static char text[2][60000];
  memset(text[0], 'a', sizeof text[0] - 1);
  memset(text[1], 'b', sizeof text[1] - 1);
  assert_ok(manta__file_replace(p->dir, "f", text[0], sizeof text[0] - 1, &err), &err);
  int left_over = 0;
  for (int i = 0; i < 40; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      int k = 0;
      while (manta__file_replace(p->dir, "f", text[++k % 2], sizeof text[0] - 1, NULL) == MANTA_OK)
        ;
      _exit(1);
    }
    usleep(1000 + 137 * (useconds_t)i);
    assert_int_equal(manta__proc_signal(pid, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    left_over = entries(p) - 1;
    char *now;
    size_t n;
    assert_ok(manta__file_read(p->dir, "f", 1 << 20, &now, &n, &err), &err);
    assert_int_equal(n, sizeof text[0] - 1);
    assert_true(!memcmp(now, text[0], n) || !memcmp(now, text[1], n));
    manta_free(now);
  }
  assert_true(left_over > 0); // some were in the middle of it
}

// A temp file that a dead process of the same pid left behind is in nobody's way.
static void a_stale_temp_file_does_not_matter(void **state)
{
  struct place *p = *state;
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < 900; i++) {
    char temp[64];
    snprintf(temp, sizeof temp, ".f.%d.%d.tmp", (int)getpid(), i);
    scratch_write(p->path, temp, "stale");
  }
  assert_ok(manta__file_replace(p->dir, "f", "new", 3, &err), &err);
  has_content(p, "f", "new");
  assert_int_equal(entries(p), 901);
}

static void replace_takes_names_only(void **state)
{
  struct place *p = *state;
  manta_error err = MANTA_ERROR_INIT;
  static char name[300];
  assert_status(manta__file_replace(p->dir, "a/b", "x", 1, &err), MANTA_EINVAL);
  memset(name, 'n', sizeof name - 1);
  assert_status(manta__file_replace(p->dir, name, "x", 1, &err), MANTA_EIO);
  assert_int_equal(entries(p), 0);
}

static void *replace_often(void *arg)
{
  struct place *p = arg;
  static char text[2][5000];
  memset(text[0], 'a', sizeof text[0] - 1);
  memset(text[1], 'b', sizeof text[1] - 1);
  for (int i = 0; i < 100; i++)
    if (manta__file_replace(p->dir, "f", text[i % 2], sizeof text[0] - 1, NULL) < 0)
      return arg;
  return NULL;
}

static void threads_replace_one_file(void **state)
{
  struct place *p = *state;
  replace_often(p);
  pthread_t t[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&t[i], NULL, replace_often, p), 0);
  for (int i = 0; i < 300; i++) {
    char *text;
    size_t n;
    assert_status(manta__file_read(p->dir, "f", 1 << 20, &text, &n, NULL), MANTA_OK);
    assert_int_equal(n, 4999);
    assert_int_equal(text[0], text[4998]); // one content or the other, never of both
    manta_free(text);
  }
  for (int i = 0; i < 4; i++) {
    void *failed;
    assert_int_equal(pthread_join(t[i], &failed), 0);
    assert_null(failed);
  }
  assert_int_equal(entries(p), 1);
}

static void reading_has_limits(void **state)
{
  struct place *p = *state;
  manta_error err = MANTA_ERROR_INIT;
  char *text;
  size_t n;
  scratch_write(p->path, "f", "12345");
  assert_status(manta__file_read(p->dir, "f", 4, &text, &n, &err), MANTA_ETOOBIG);
  assert_has(err.message, "5 bytes, the limit is 4");
  assert_status(manta__file_read(p->dir, "f", 5, &text, &n, &err), MANTA_OK);
  manta_free(text);
  assert_status(manta__file_read(p->dir, "g", 5, &text, &n, &err), MANTA_ENOENT);
  assert_int_equal(mkfifoat(p->dir, "pipe", 0600), 0);
  assert_status(manta__file_read(p->dir, "pipe", 5, &text, &n, &err), MANTA_EIO); // does not hang
  assert_status(manta__file_read(p->dir, ".", 5, &text, &n, &err), MANTA_EIO);
  FOR_EACH_OOM(manta__file_read(p->dir, "f", 5, &text, &n, &err), manta_free(text));
}

static void made(struct place *p, const char *name)
{
  manta_error err = MANTA_ERROR_INIT;
  char path[PATH_MAX];
  int fd = -1;
  struct stat a, b;
  snprintf(path, sizeof path, "%s/%s", p->path, name);
  for (int i = 0; i < 2; i++) { // the second time it is there already
    assert_ok(manta__dir_make(path, &fd, &err), &err);
    assert_int_equal(fstat(fd, &a), 0);
    assert_int_equal(stat(path, &b), 0);
    assert_true(a.st_ino == b.st_ino && S_ISDIR(a.st_mode));
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
  }
}

static void directories_are_made_on_the_way(void **state)
{
  struct place *p = *state;
  manta_error err = MANTA_ERROR_INIT;
  int fd = -1;
  const char *names[] = {"a", "b/c/d", "e/", "f//g///", "./h/../i/.", "b/c/d/e"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    made(p, names[i]);
  assert_int_equal(chdir(p->path), 0);
  assert_ok(manta__dir_make("rel/ative", &fd, &err), &err);
  close(fd);
  assert_ok(manta__dir_make("/", &fd, &err), &err);
  close(fd);
  assert_ok(manta__dir_make("/proc/self", &fd, &err), &err); // nothing can be made there
  close(fd);
  assert_int_equal(chdir("/"), 0);
  assert_int_equal(symlinkat("a", p->dir, "link"), 0);
  made(p, "link/x");
  static char path[2 * PATH_MAX];
  memset(path, 'x', sizeof path - 1);
  assert_status(manta__dir_make(path, &fd, &err), MANTA_EINVAL);
  assert_status(manta__dir_make("", &fd, &err), MANTA_EINVAL);
  assert_status(manta__dir_make("/proc/nothing/here", &fd, &err), MANTA_EIO);
  assert_has(err.message, "mkdir /proc/nothing:");
  scratch_write(p->path, "file", "x");
  snprintf(path, sizeof path, "%s/file", p->path);
  assert_status(manta__dir_make(path, &fd, &err), MANTA_EIO);
  assert_has(err.message, "Not a directory");
}

static void one_directory_under_another(void **state)
{
  struct place *p = *state;
  manta_error err = MANTA_ERROR_INIT;
  int fd = -1;
  for (int i = 0; i < 2; i++) {
    assert_ok(manta__dir_makeat(p->dir, "sub", &fd, &err), &err);
    char path[PATH_MAX], want[PATH_MAX];
    manta__dir_path(fd, path);
    snprintf(want, sizeof want, "%s/sub", p->path);
    assert_string_equal(path, want);
    close(fd);
  }
  assert_status(manta__dir_makeat(p->dir, "no/such", &fd, &err), MANTA_EIO);
  scratch_write(p->path, "file", "x");
  assert_status(manta__dir_makeat(p->dir, "file", &fd, &err), MANTA_EIO);
  char path[PATH_MAX];
  manta__dir_path(-1, path);
  assert_string_equal(path, "?");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(short_writes_are_joined),           TEST(a_fault_fires_at_its_byte),
      TEST(replace_is_all_or_nothing),         TEST(a_killed_writer_leaves_a_whole_file),
      TEST(a_stale_temp_file_does_not_matter), TEST(replace_takes_names_only),
      TEST(threads_replace_one_file),          TEST(reading_has_limits),
      TEST(directories_are_made_on_the_way),   TEST(one_directory_under_another),
  };
  return cmocka_run_group_tests_name("sys_file", tests, NULL, NULL);
}
