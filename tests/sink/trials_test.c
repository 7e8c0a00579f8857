/* SPDX-License-Identifier: Apache-2.0
 *
 * Sinks of an experiment: each trial has its rows once, in its own directory, whatever happens to
 * the trials, the sink or the disk.
 */
#include <dirent.h>
#include <errno.h>

#include "pot.h"
#include "sink/sink.h"

struct lab {
  struct bed *bed;
  manta__log_writer *w;
  uint64_t seq;
};

static struct lab lab_begin(struct bed *b, const manta_sink *sinks, size_t count)
{
  manta_error err = MANTA_ERROR_INIT;
  struct lab l = {.bed = b};
  int folder;
  pot_sinks(b, sinks, count);
  assert_ok(manta__dir_makeat(b->dir, "experiment", &folder, &err), &err);
  assert_ok(manta__log_writer_open(&l.w, folder, true, &err), &err);
  close(folder);
  return l;
}

static void happens(struct lab *l, int trial, const char *what, const char *state,
                    const manta_value *value)
{
  manta_value none = {0};
  bed_add(l->w, MANTA__EV_TRIAL, ident(0, trial, ++l->seq),
          MANTA_MAP(MANTA_KV_STR("what", what), MANTA_KV_STR("state", state),
                    MANTA_KV("value", value ? *value : none)));
}

static void begins(struct lab *l, int trial)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("x", trial));
  happens(l, trial, "new", "", &config);
  happens(l, trial, "began", "", NULL);
}

static void reports(struct lab *l, int trial, int64_t iteration)
{
  bed_add(l->w, MANTA__EV_ROW, ident(0, trial, ++l->seq),
          MANTA_MAP(MANTA_KV_REAL("loss", (double)trial),
                    MANTA_KV_INT("_training_iteration", iteration)));
}

static void feed(struct lab *l)
{
  bed_flush(l->w);
  pot_feed(l->bed);
}

// results.json of the trial has exactly the iterations 1 to n.
static void assert_rows(struct lab *l, int trial, size_t n)
{
  char name[64];
  snprintf(name, sizeof name, "trial_%05d/results.json", trial);
  manta_value v = pot_json(l->bed, name);
  assert_int_equal(v.count, n);
  for (size_t i = 0; i < n; i++)
    assert_int_equal(manta_value_as_int(pot_cell(&v, i, 0, "_training_iteration"), -1), i + 1);
  manta_value_fini(&v);
}

static int64_t param(struct lab *l, int trial)
{
  char name[64];
  snprintf(name, sizeof name, "trial_%05d/params.json", trial);
  manta_value v = pot_json(l->bed, name);
  int64_t x = manta_value_as_int(manta_value_get(&v, "x"), -1);
  manta_value_fini(&v);
  return x;
}

static const manta_sink json = {"json", NULL};

// A name out of a damaged log leads nowhere else.
static void a_trial_writes_into_its_own_folder(void **state)
{
  static const char *const names[] = {"mine", "experiment", "../up", ".hid", "a\nb"};
  struct lab l = lab_begin(*state, &json, 1);
  manta_value config = MANTA_MAP(MANTA_KV_INT("x", 1));
  for (int t = 0; t < 5; t++) {
    bed_add(l.w, MANTA__EV_TRIAL, ident(0, t, ++l.seq),
            MANTA_MAP(MANTA_KV_STR("what", "new"), MANTA_KV_STR("message", names[t]),
                      MANTA_KV("value", config)));
    happens(&l, t, "began", "", NULL);
    reports(&l, t, 1);
  }
  feed(&l);
  assert_int_equal(faccessat(l.bed->dir, "mine/results.json", F_OK, 0), 0);
  for (int t = 1; t < 5; t++)
    assert_rows(&l, t, 1); // in the usual one
  assert_int_equal(faccessat(l.bed->dir, "experiment/results.json", F_OK, 0), -1);
  manta__log_writer_close(l.w);
}

static void each_trial_has_its_rows_once(void **state)
{
  struct lab l = lab_begin(*state, &json, 1);
  enum { TRIALS = 150, ROWS = 4 }; // more than are open at once
  for (int t = 0; t < TRIALS; t++)
    begins(&l, t);
  for (int i = 1; i <= ROWS; i++) {
    for (int t = 0; t < TRIALS; t++)
      reports(&l, t, i);
    feed(&l);
  }
  happens(&l, 0, "closed", "", NULL);
  for (int t = 0; t < TRIALS; t++)
    happens(&l, t, "ended", t % 2 ? "finished" : "stopped", NULL);
  feed(&l);
  happens(&l, 0, "closed", "", NULL); // of no trial, although its number is that of one
  feed(&l);
  for (int t = 0; t < TRIALS; t++) {
    assert_rows(&l, t, ROWS);
    assert_int_equal(param(&l, t), t);
  }
  manta_value memo = pot_json(l.bed, ".sinks/0-json");
  assert_int_equal(manta_value_get(&memo, "memo")->count, 0); // nothing is kept of what is over
  manta_value_fini(&memo);
  manta__log_writer_close(l.w);
}

static void a_pause_a_copy_and_a_failure_go_on_in_the_same_file(void **state)
{
  struct lab l = lab_begin(*state, &json, 1);
  manta_value copied = MANTA_MAP(MANTA_KV_INT("x", 77));
  begins(&l, 0);
  begins(&l, 1);
  reports(&l, 0, 1);
  happens(&l, 0, "paused", "", NULL);
  feed(&l);
  assert_rows(&l, 0, 1);
  happens(&l, 0, "began", "", NULL);
  reports(&l, 0, 2);
  happens(&l, 0, "copied", "", &copied);
  happens(&l, 0, "began", "", NULL);
  reports(&l, 0, 3);
  reports(&l, 1, 1);
  happens(&l, 1, "failed", "", NULL);
  happens(&l, 1, "began", "", NULL);
  reports(&l, 1, 2);
  happens(&l, 1, "ended", "failed", NULL);
  feed(&l);
  happens(&l, 1, "revived", "", NULL); // by the next driver
  happens(&l, 1, "began", "", NULL);
  reports(&l, 1, 3);
  feed(&l);
  assert_rows(&l, 0, 3);
  assert_int_equal(param(&l, 0), 77);
  assert_rows(&l, 1, 3);
  manta__log_writer_close(l.w);
}

static void what_is_not_remembered_is_read_again(void **state)
{
  struct lab l = lab_begin(*state, &json, 1);
  for (int t = 0; t < 3; t++) {
    begins(&l, t);
    reports(&l, t, 1);
    reports(&l, t, 2);
  }
  happens(&l, 1, "ended", "finished", NULL);
  feed(&l);
  feed(&l);
  scratch_write(l.bed->path, "trial_00000/results.json", "[[]]"); // after a power cut
  reports(&l, 0, 3);
  happens(&l, 1, "revived", "", NULL); // it was over, and forgotten
  happens(&l, 1, "began", "", NULL);
  reports(&l, 1, 3);
  feed(&l);
  assert_rows(&l, 0, 3);
  assert_rows(&l, 1, 3);
  assert_rows(&l, 2, 2);
  unlinkat(l.bed->dir, ".sinks/0-json", 0);
  feed(&l);
  for (int t = 0; t < 3; t++)
    assert_rows(&l, t, t == 2 ? 2 : 3);
  manta__log_writer_close(l.w);
}

static void a_full_disk_is_waited_for(void **state)
{
  struct lab l = lab_begin(*state, &json, 1);
  manta_error err = MANTA_ERROR_INIT;
  for (int t = 0; t < 4; t++)
    begins(&l, t);
  for (int i = 1; i <= 20; i++)
    for (int t = 0; t < 4; t++)
      reports(&l, t, i);
  bed_flush(l.w);
  manta__file_fault(2500, ENOSPC, 0);
  assert_status(manta__sink_replay(l.bed->dir, NULL, &err), MANTA_EIO);
  assert_true(manta__file_fault(0, 0, 0) > 0);
  assert_non_null(strstr(l.bed->warning, "did not get all\nhint: `manta sink"));
  feed(&l);
  for (int t = 0; t < 4; t++)
    assert_rows(&l, t, 20);
  manta__log_writer_close(l.w);
}

static int count_files(struct lab *l, const char *folder, const char *begin)
{
  int n = 0, fd = openat(l->bed->dir, folder, O_RDONLY | O_DIRECTORY);
  DIR *d = fdopendir(fd);
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));)
    n += !strncmp(e->d_name, begin, strlen(begin));
  closedir(d);
  return n;
}

static void a_logdir_has_a_folder_for_each(void **state)
{
  struct bed *b = *state;
  char elsewhere[PATH_MAX];
  snprintf(elsewhere, sizeof elsewhere, "%.100s/elsewhere", b->path);
  manta_value options = MANTA_MAP(MANTA_KV_STR("logdir", elsewhere));
  const manta_sink sinks[] = {{"csv", &options}, {"tensorboard", NULL}};
  const struct manta__sink_kind *kind;
  struct lab l = lab_begin(b, sinks, 2);
  for (int t = 0; t < 2; t++)
    begins(&l, t);
  for (int i = 1; i <= 3; i++) {
    reports(&l, 0, i);
    reports(&l, 1, i);
    feed(&l); // another process goes on in the same event file
  }
  int fd = scratch_open(elsewhere);
  assert_int_equal(faccessat(fd, "trial_00000/progress.csv", R_OK, 0), 0);
  assert_int_equal(faccessat(fd, "trial_00001/progress.csv", R_OK, 0), 0);
  bool built = manta__sink_load("tensorboard", &kind, NULL) == MANTA_OK;
  assert_int_equal(count_files(&l, "trial_00001", "events.out.tfevents."), built);
  close(fd);
  manta__log_writer_close(l.w);
}

#define bed_test(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      bed_test(each_trial_has_its_rows_once),
      bed_test(a_trial_writes_into_its_own_folder),
      bed_test(a_pause_a_copy_and_a_failure_go_on_in_the_same_file),
      bed_test(what_is_not_remembered_is_read_again),
      bed_test(a_full_disk_is_waited_for),
      bed_test(a_logdir_has_a_folder_for_each),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
