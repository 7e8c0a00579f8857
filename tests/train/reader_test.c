/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader process of a host: it parses for all workers, is started again when it dies, and dies
 * with its run.
 */
#include "data/numbered.h"
#include "data/plan/dataset.h"
#include "rig.h"
#include "sys/proc.h"

#define FILES 6
#define EACH  2000
#define ALL   (FILES * EACH + 20)

static char *dir;

// --- in the workers -----------------------------------------------------------------------------

// board->at[0] is the agent.
static pid_t reader_pid(void)
{
  return child_named((pid_t)board->at[0], "manta-reader");
}

static manta_status open_data(manta_session *s, manta_dataset **d, manta_loader **l,
                              manta_error *err)
{
  const char *path = manta_session_config_string(s, "path", "");
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_loader_config lc = MANTA_LOADER_CONFIG_INIT;
  c.block_bytes = 8000;
  lc.batch_rows = 300;
  lc.threads = 2;
  MANTA_TRY(manta_dataset_open(d, &path, 1, &c, err));
  if (!l)
    return MANTA_OK;
  return manta_session_loader(l, s, "train", *d, &lc, err);
}

// Rows that come, and their sum, by rank; no rank waits for another.
static manta_status sum_up(manta_session *s, manta_loader *l, int64_t *sum, manta_error *err)
{
  int64_t kill_at = manta_session_config_int(s, "kill_reader_at", -1), n = 0;
  bool stops = manta_session_config_int(s, "stops", -1) == manta_session_rank(s);
  manta_batch *b;
  manta_status st;
  while ((st = manta_loader_next(l, &b, err)) == 1) {
    manta_column c;
    MANTA_TRY(manta_batch_column_named(b, "n", &c, err));
    for (int64_t i = 0; i < c.rows; i++)
      *sum += ((const int64_t *)c.data)[c.offset + i];
    manta_batch_destroy(b);
    if (manta_session_rank(s) == 0 && ++n == kill_at) {
      int how = manta_session_config_bool(s, "freeze", false) ? SIGSTOP : SIGKILL;
      pid_t pid = board->fired ? 0 : reader_pid();
      board->orphan = pid > 0 ? pid : board->orphan;
      board->fired += pid > 0 && manta__proc_signal(pid, how) == 0;
    }
    if (stops)
      break;
  }
  return st;
}

static manta_status summing(manta_session *s, manta_value *result, manta_error *err)
{
  manta_dataset *d;
  manta_loader *l;
  manta_data_stats stats;
  int64_t sum = 0;
  if (!board)
    board_open();
  if (manta_session_attempt(s) > board->attempts)
    board->attempts = manta_session_attempt(s);
  MANTA_TRY(open_data(s, &d, &l, err));
  manta_status st = sum_up(s, l, &sum, err);
  MANTA_TRY(st);
  if (manta_session_rank(s) == 0)
    board->pid[63] = reader_pid();
  board->born[manta_session_rank(s)] = sum;
  manta_dataset_stats(d, &stats);
  manta_loader_close(l);
  manta_dataset_close(d);
  MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err)); // others still read
  return manta_value_set_int(result, stats.bytes);
}

// --- in the driver ------------------------------------------------------------------------------

static int64_t bytes_of_set(void)
{
  const char *path = numbered_write(dir, "set", FILES, EACH);
  manta_data_stats stats;
  manta_error err = MANTA_ERROR_INIT;
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_dataset *d;
  manta_loader *l;
  manta_batch *b;
  c.block_bytes = 8000;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_ok(manta_loader_open(&l, d, NULL, &err), &err);
  while (manta_loader_next(l, &b, &err) == 1)
    manta_batch_destroy(b);
  manta_dataset_stats(d, &stats);
  manta_loader_close(l);
  manta_dataset_close(d);
  return stats.bytes;
}

static double step_timeout; // of the trainers, or 0

static void run(struct rig *r, int workers, manta_train_fn fn, const manta_value *config)
{
  rig_init(r, workers);
  r->cfg.step_timeout_s = step_timeout;
  rig_make(r);
  r->rc.config = config;
  assert_ok(manta_trainer_start(r->t, &r->err), &r->err);
  board->at[0] = child_named(getpid(), "manta-agent");
  assert_true(board->at[0] > 0);
  assert_ok(manta_trainer_run(r->t, fn, &r->rc, &r->results, &r->err), &r->err);
}

static int64_t sum_of(int ranks)
{
  int64_t sum = 0;
  for (int i = 0; i < ranks; i++)
    sum += board->born[i];
  return sum;
}

static int64_t read_most(const struct rig *r, int ranks)
{
  int64_t most = 0;
  for (int i = 0; i < ranks; i++) {
    int64_t n = manta_value_as_int(manta_value_at(&r->results, (size_t)i), -1);
    most = n > most ? n : most;
  }
  return most;
}

static void the_files_are_parsed_once_for_all_workers(void **state)
{
  int64_t once = bytes_of_set();
  char path[PATH_MAX];
  struct rig r;
  snprintf(path, sizeof path, "%s/set", dir);
  run(&r, 3, summing, &MANTA_MAP(MANTA_KV_STR("path", path)));
  assert_int_equal(sum_of(3), (int64_t)ALL * (ALL - 1) / 2);
  assert_true(board->pid[63] > 0);
  assert_int_equal(read_most(&r, 3), once);
  assert_true(within(5, !alive((pid_t)board->pid[63]))); // the run is over, the trainer is not
  rig_fini(&r);
  assert_nothing_left();
}

// Rank 1 takes one batch and no more.
static void a_worker_that_stops_holds_up_nobody(void **state)
{
  char path[PATH_MAX];
  struct rig r;
  bytes_of_set();
  snprintf(path, sizeof path, "%s/set", dir);
  run(&r, 2, summing, &MANTA_MAP(MANTA_KV_STR("path", path), MANTA_KV_INT("stops", 1)));
  assert_true(board->born[0] > board->born[1] && board->born[1] > 0);
  rig_fini(&r);
  assert_nothing_left();
}

static void a_reader_that_is_killed_is_replaced(void **state)
{
  char path[PATH_MAX];
  struct rig r;
  bytes_of_set();
  snprintf(path, sizeof path, "%s/set", dir);
  run(&r, 2, summing, &MANTA_MAP(MANTA_KV_STR("path", path), MANTA_KV_INT("kill_reader_at", 3)));
  assert_int_equal(board->fired, 1);
  assert_true(board->pid[63] > 0 && board->pid[63] != board->orphan);
  assert_int_equal(sum_of(2), (int64_t)ALL * (ALL - 1) / 2);
  assert_int_equal(board->attempts, 0);
  rig_fini(&r);
  assert_nothing_left();
}

// The clock of a rank that waits for it finds that; the next attempt does not wait for it again.
static void a_reader_that_hangs_is_replaced(void **state)
{
  char path[PATH_MAX];
  struct rig r;
  bytes_of_set();
  snprintf(path, sizeof path, "%s/set", dir);
  step_timeout = 1;
  run(&r, 2, summing,
      &MANTA_MAP(MANTA_KV_STR("path", path), MANTA_KV_INT("kill_reader_at", 3),
                 MANTA_KV_BOOL("freeze", true)));
  step_timeout = 0;
  assert_int_equal(board->fired, 1);
  assert_false(alive((pid_t)board->orphan));
  assert_true(board->attempts >= 1);
  assert_int_equal(sum_of(2), (int64_t)ALL * (ALL - 1) / 2);
  rig_fini(&r);
  assert_nothing_left();
}

// --- without one --------------------------------------------------------------------------------

static const struct manta__step by_hand = {.name = "by hand"};

static manta_status with_own_step(manta_session *s, manta_value *result, manta_error *err)
{
  manta_loader_config lc = MANTA_LOADER_CONFIG_INIT;
  manta_dataset *d, *own;
  manta_loader *l;
  int64_t sum = 0;
  if (!board)
    board_open();
  lc.batch_rows = 300;
  MANTA_TRY(open_data(s, &d, NULL, err));
  MANTA_TRY(manta__dataset_create(&own, sizeof *own, &by_hand, &d, 1, err));
  MANTA_TRY(manta_session_loader(&l, s, "train", own, &lc, err));
  MANTA_TRY(sum_up(s, l, &sum, err));
  board->born[manta_session_rank(s)] = sum;
  board->fired += reader_pid() > 0;
  manta_loader_close(l);
  manta_dataset_close(own);
  manta_dataset_close(d);
  return manta_value_set_int(result, 0);
}

static void a_step_that_cannot_be_sent_is_done_in_the_workers(void **state)
{
  char path[PATH_MAX];
  struct rig r;
  bytes_of_set();
  snprintf(path, sizeof path, "%s/set", dir);
  run(&r, 2, with_own_step, &MANTA_MAP(MANTA_KV_STR("path", path)));
  assert_int_equal(sum_of(2), (int64_t)ALL * (ALL - 1) / 2);
  assert_int_equal(board->fired, 0);
  rig_fini(&r);
  assert_nothing_left();
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      rig_test(the_files_are_parsed_once_for_all_workers),
      rig_test(a_worker_that_stops_holds_up_nobody),
      rig_test(a_reader_that_is_killed_is_replaced),
      rig_test(a_reader_that_hangs_is_replaced),
      rig_test(a_step_that_cannot_be_sent_is_done_in_the_workers),
  };
  if (manta_init(&argc, &argv) < 0)
    return 1;
  board_open();
  dir = scratch_make();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  scratch_remove(dir);
  board_close();
  return failed;
}
