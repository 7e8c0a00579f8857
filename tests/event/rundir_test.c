/* SPDX-License-Identifier: Apache-2.0
 *
 * Run directories: made with a number of their own, found by what a user types, listed by age.
 */
#include <dirent.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "bed.h"
#include "event/rundir.h"

#define SECOND 1000000000ll
#define DAY    (86400 * SECOND)

static const char *base_of(const char *path)
{
  return strrchr(path, '/') + 1;
}

// Makes a run directory under logdir; with a first record unless when is 0.
static char *make_run(const char *logdir, const char *name, int64_t when, int64_t session,
                      int ordinal)
{
  manta_error err = MANTA_ERROR_INIT;
  int fd;
  char *path = NULL;
  assert_ok(manta__rundir_create(logdir, name, &fd, &path, &err), &err);
  manta__log_writer *w;
  assert_ok(manta__log_writer_open(&w, fd, true, &err), &err);
  if (when) {
    manta_value v = MANTA_MAP(MANTA_KV_INT("session", session), MANTA_KV_INT("ordinal", ordinal));
    void *p;
    size_t n;
    struct manta__ident id = ident(0, -1, 1);
    assert_ok(manta_value_pack(&v, &p, &n, &err), &err);
    assert_ok(manta__log_add(w, MANTA__EV_RUN, &id, when, p, n, &err), &err);
    manta_free(p);
  }
  manta__log_writer_close(w);
  close(fd);
  return path;
}

static void names_are_numbered_and_clean(void **state)
{
  struct bed *b = *state;
  char logdir[PATH_MAX];
  snprintf(logdir, sizeof logdir, "%s/not/there/yet", b->path);
  manta_error err = MANTA_ERROR_INIT;
  static char longest[1000];
  memset(longest, 'n', sizeof longest - 1);
  const struct {
    const char *name, *begin;
  } rows[] = {{"mnist", "mnist_0001_20"},
              {"mnist", "mnist_0002_20"},
              {"other", "other_0001_20"},
              {"mnist", "mnist_0003_20"},
              {"mnist_0007", "mnist_0007_0001_20"}, // not number 7 of "mnist"
              {"mnist", "mnist_0004_20"},
              {"../a b/c\n\xc3\xa4%s", "..-a-b-c----s_0001_20"},
              {"", "run_0001_20"},
              {NULL, "run_0002_20"},
              {longest, "nnnnnnnn"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int fd;
    char *path;
    struct stat sb;
    assert_ok(manta__rundir_create(logdir, rows[i].name, &fd, &path, &err), &err);
    assert_true(path[0] == '/');
    assert_int_equal(strncmp(base_of(path), rows[i].begin, strlen(rows[i].begin)), 0);
    assert_int_equal(fstat(fd, &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0700);
    manta__free(path);
    close(fd);
  }
  snprintf(logdir, sizeof logdir, "%s/not/there/yet/mnist_0041_2020-01-02_03-04-05", b->path);
  assert_int_equal(mkdir(logdir, 0700), 0);
  snprintf(logdir, sizeof logdir, "%s/not/there/yet/mnist_0099_2020-01-02", b->path); // no time
  assert_int_equal(mkdir(logdir, 0700), 0);
  snprintf(logdir, sizeof logdir, "%s/not/there/yet", b->path);
  char *path = make_run(logdir, "mnist", 1, 1, 1);
  assert_int_equal(strncmp(base_of(path), "mnist_0042_20", 13), 0);
  manta__free(path);
}

static void a_logdir_that_cannot_be_is_refused(void **state)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  char logdir[PATH_MAX];
  int fd;
  char *path;
  scratch_write(b->path, "file", "x");
  snprintf(logdir, sizeof logdir, "%s/file/deeper", b->path);
  assert_status(manta__rundir_create(logdir, "a", &fd, &path, &err), MANTA_EIO);
  assert_has(err.message, "file/deeper: Not a directory\nhint: ");
  assert_has(err.message, "MANTA_RESULTS");
  assert_status(manta__rundir_create("/proc/self", "a", &fd, &path, &err), MANTA_EIO);
  assert_has(err.message, "cannot make the directory /proc/self/a_0001_");
}

// Makes directories over the turn of a second, when equal numbers get unequal names.
static int make_many(const char *logdir, int most)
{
  int64_t turn = (manta__wall() / SECOND + 2) * SECOND;
  while (manta__wall() < turn - SECOND / 100)
    usleep(1000);
  for (int i = 0; i < most && manta__wall() < turn + SECOND / 50; i++) {
    int fd;
    char *path;
    if (manta__rundir_create(logdir, "race", &fd, &path, NULL) < 0)
      return 1;
    manta__free(path);
    close(fd);
  }
  return 0;
}

static void processes_at_once_get_different_numbers(void **state)
{
  struct bed *b = *state;
  enum { PROCS = 6, MOST = 100 };
  for (int p = 0; p < PROCS; p++)
    if (fork() == 0)
      _exit(make_many(b->path, MOST));
  for (int p = 0, status; p < PROCS; p++) {
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  bool seen[PROCS * MOST + 1] = {false};
  int count = 0, highest = 0;
  DIR *d = opendir(b->path);
  for (struct dirent *e; (e = readdir(d));) {
    int k;
    if (sscanf(e->d_name, "race_%d_", &k) != 1)
      continue;
    assert_in_range(k, 1, PROCS * MOST);
    assert_false(seen[k]);
    seen[k] = true;
    count++;
    highest = k > highest ? k : highest;
  }
  closedir(d);
  assert_true(count >= PROCS);
  assert_int_equal(highest, count); // none twice, none left out
}

static void the_default_logdir(void **state)
{
  char *out;
  setenv("MANTA_RESULTS", "/some/where", 1);
  assert_status(manta__rundir_default(&out, NULL), MANTA_OK);
  assert_string_equal(out, "/some/where");
  manta__free(out);
  unsetenv("MANTA_RESULTS");
  setenv("HOME", "/me", 1);
  assert_status(manta__rundir_default(&out, NULL), MANTA_OK);
  assert_string_equal(out, "/me/manta_results");
  manta__free(out);
}

static void found(const char *what, const char *want)
{
  manta_error err = MANTA_ERROR_INIT;
  int fd;
  char *path;
  struct stat a, b;
  assert_ok(manta__rundir_find(what, &fd, &path, &err), &err);
  assert_string_equal(path, want);
  assert_int_equal(fstat(fd, &a), 0);
  assert_int_equal(stat(want, &b), 0);
  assert_true(a.st_ino == b.st_ino);
  close(fd);
  manta__free(path);
}

static void runs_are_found_by_what_a_user_types(void **state)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  int fd;
  char *path;
  setenv("MANTA_RESULTS", b->path, 1);
  assert_status(manta__rundir_find(NULL, &fd, &path, &err), MANTA_ENOENT);
  assert_has(err.message, b->path);
  char *a1 = make_run(b->path, "alpha", 3 * DAY, 1, 1);
  char *a2 = make_run(b->path, "alpha", 1 * DAY, 1, 2); // older, whatever its number says
  char *be = make_run(b->path, "beta", 2 * DAY, 1, 3);
  found(NULL, a1);
  found("latest", a1);
  found(a2, a2);
  found("beta", be);
  found("alpha_0002", a2);
  found(base_of(a1), a1);
  assert_int_equal(chdir(b->path), 0);
  found(base_of(be), be);
  char dotted[PATH_MAX];
  snprintf(dotted, sizeof dotted, "./%s/../%s", base_of(be), base_of(be));
  found(dotted, be);
  assert_int_equal(chdir("/"), 0);
  assert_status(manta__rundir_find("alpha", &fd, &path, &err), MANTA_EINVAL);
  assert_has(err.message, base_of(a1));
  assert_has(err.message, base_of(a2));
  assert_null(strstr(err.message, "beta"));
  assert_status(manta__rundir_find("gamma", &fd, &path, &err), MANTA_ENOENT);
  assert_has(err.message, "gamma");
  assert_has(err.message, b->path);
  assert_status(manta__rundir_find("/no/such/run", &fd, &path, &err), MANTA_ENOENT);
  assert_has(err.message, "/no/such/run");
  assert_status(manta__rundir_find(b->path, &fd, &path, &err), MANTA_ENOENT);
  assert_has(err.message, "holds no run.log");
  for (int i = 0; i < 10; i++)
    manta__free(make_run(b->path, "alpha", DAY, 1, 9));
  assert_status(manta__rundir_find("alpha", &fd, &path, &err), MANTA_EINVAL);
  assert_has(err.message, "and 7 more");
  manta__free(a1);
  manta__free(a2);
  manta__free(be);
}

static void free_list(char **list, size_t n)
{
  for (size_t i = 0; i < n; i++)
    manta__free(list[i]);
  manta__free(list);
}

static void runs_are_listed_newest_first(void **state)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  char **list;
  size_t n;
  assert_ok(manta__rundir_list("/no/such/logdir", &list, &n, &err), &err);
  assert_int_equal(n, 0);
  manta__free(list);
  char *run[4] = {make_run(b->path, "z", 1 * DAY, 1, 1), make_run(b->path, "a", 4 * DAY, 1, 2),
                  make_run(b->path, "m", 3 * DAY, 1, 3),
                  make_run(b->path, "b", 0, 0, 0)}; // no record: as old as its directory, so new
  scratch_write(b->path, "no-run/file", "x");
  scratch_write(b->path, "run.log", "x");
  const int order[4] = {3, 1, 2, 0};
  assert_ok(manta__rundir_list(b->path, &list, &n, &err), &err);
  assert_int_equal(n, 4);
  for (int i = 0; i < 4; i++)
    assert_string_equal(list[i], run[order[i]]);
  free_list(list, n);
  for (int i = 0; i < 4; i++)
    manta__free(run[i]);
}

static void runs_are_found_by_session(void **state)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  int64_t session = INT64_MAX - 5;
  char *path, *one = make_run(b->path, "a", DAY, session, 1),
              *two = make_run(b->path, "a", DAY, session, 2),
              *other = make_run(b->path, "a", DAY, 17, 1), *none = make_run(b->path, "a", 0, 0, 0);
  assert_ok(manta__rundir_of_session(b->path, (uint64_t)session, 1, &path, &err), &err);
  assert_string_equal(path, one);
  manta__free(path);
  assert_ok(manta__rundir_of_session(b->path, (uint64_t)session, 2, &path, &err), &err);
  assert_string_equal(path, two);
  manta__free(path);
  assert_status(manta__rundir_of_session(b->path, (uint64_t)session, 3, &path, &err), MANTA_ENOENT);
  assert_has(err.message, b->path);
  assert_status(manta__rundir_of_session(b->path, 18, 1, &path, &err), MANTA_ENOENT);
  assert_status(manta__rundir_of_session(b->path, UINT64_MAX, -1, &path, &err), MANTA_ENOENT);
  manta__free(one);
  manta__free(two);
  manta__free(other);
  manta__free(none);
}

static void any_oom_is_survived(void **state)
{
  struct bed *b = *state;
  int fd;
  char *path, **list;
  size_t n;
  setenv("MANTA_RESULTS", b->path, 1);
  FOR_EACH_OOM(manta__rundir_create(b->path, "oom", &fd, &path, NULL), {
    assert_non_null(strstr(path, "oom_0001_")); // a failed one leaves no directory
    manta__free(path);
    close(fd);
  });
  manta__free(make_run(b->path, "a", DAY, 7, 1));
  manta__free(make_run(b->path, "b", DAY, 7, 2));
  FOR_EACH_OOM(manta__rundir_default(&path, NULL), manta__free(path));
  FOR_EACH_OOM(manta__rundir_list(b->path, &list, &n, NULL), free_list(list, n));
  FOR_EACH_OOM(manta__rundir_of_session(b->path, 7, 2, &path, NULL), manta__free(path));
  FOR_EACH_OOM(manta__rundir_find("b_", &fd, &path, NULL), {
    manta__free(path);
    close(fd);
  });
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(names_are_numbered_and_clean),
      TEST(a_logdir_that_cannot_be_is_refused),
      TEST(processes_at_once_get_different_numbers),
      TEST(the_default_logdir),
      TEST(runs_are_found_by_what_a_user_types),
      TEST(runs_are_listed_newest_first),
      TEST(runs_are_found_by_session),
      TEST(any_oom_is_survived),
  };
  return cmocka_run_group_tests_name("event_rundir", tests, NULL, NULL);
}
