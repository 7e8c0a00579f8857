/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving in other ways than rank 0's memory: parts of all ranks, what the caller fills in, files.
 */
#include "rig.h"

#define PART 30000

// --- parts ---------------------------------------------------------------------------------------

static manta_status save_part(manta_session *s, int32_t *w, int64_t step, manta_error *err)
{
  int rank = manta_session_rank(s);
  for (int i = 0; i < PART + rank; i++)
    w[i] = (int32_t)(step * 1000 + rank);
  manta_tensor tensors[] = {{"w", MANTA_I32, 1, {PART + rank}, w},
                            {"nothing", MANTA_F32, 2, {0, 3}, NULL}};
  manta_value value = MANTA_MAP(MANTA_KV_INT("rank", rank), MANTA_KV_INT("step", step));
  manta_state state = {tensors, 2, &value};
  return manta_session_save_sharded(s, &state, err);
}

// The parts are those of one step, whoever reads them; gives the step.
static manta_status check_parts(const manta_checkpoint *c, int64_t *step, manta_error *err)
{
  const manta_value *v = manta_checkpoint_value(c), *parts = manta_value_get(v, "parts");
  int64_t world = manta_value_as_int(manta_value_get(v, "sharded"), -1);
  *step = manta_value_as_int(manta_value_get(manta_value_at(parts, 0), "step"), -1);
  for (int r = 0; r < world; r++) {
    char name[32];
    snprintf(name, sizeof name, "rank%d.w", r);
    const manta_tensor *t = manta_checkpoint_tensor(c, name);
    const manta_value *part = manta_value_at(parts, (size_t)r);
    if (!t || t->shape[0] != PART + r || manta_value_as_int(manta_value_get(part, "rank"), -1) != r)
      return manta_error_set(err, MANTA_EUSER, "the part of rank %d is not there", r);
    for (int i = 0; i < PART + r; i++)
      if (((const int32_t *)t->data)[i] != *step * 1000 + r)
        return manta_error_set(err, MANTA_EUSER, "the part of rank %d is of another step", r);
  }
  return world == 3 ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "world %d", (int)world);
}

// What this rank saved is there for itself at once, and stays as it is while it is open.
static manta_status check_own(manta_session *s, manta_checkpoint **open, int64_t step,
                              manta_error *err)
{
  char name[32];
  int rank = manta_session_rank(s);
  const manta_checkpoint *before = *open;
  snprintf(name, sizeof name, "rank%d.w", rank);
  const manta_tensor *t = before ? manta_checkpoint_tensor(before, name) : NULL;
  if (before && (!t || ((const int32_t *)t->data)[PART - 1] !=
                           manta_checkpoint_iteration(before) * 1000 + rank))
    return manta_error_set(err, MANTA_EUSER, "what was loaded has changed");
  manta_checkpoint_close(*open);
  MANTA_TRY(manta_session_load(s, open, err));
  t = *open ? manta_checkpoint_tensor(*open, name) : NULL;
  const manta_value *v = *open ? manta_checkpoint_value(*open) : NULL;
  const manta_value *part = manta_value_at(manta_value_get(v, "parts"), (size_t)rank);
  if (!t || t->shape[0] != PART + rank || ((const int32_t *)t->data)[0] != step * 1000 + rank ||
      manta_value_as_int(manta_value_get(part, "step"), -1) != step ||
      manta_value_as_int(manta_value_get(v, "sharded"), -1) != 3)
    return manta_error_set(err, MANTA_EUSER, "rank %d has not its part of step %d", rank,
                           (int)step);
  return manta_checkpoint_iteration(*open) == step
             ? MANTA_OK
             : manta_error_set(err, MANTA_EUSER, "the part has another iteration");
}

// Dies while the others already are inside of the save.
static void strike(manta_session *s, int64_t step)
{
  if (manta_session_rank(s) != manta_session_config_int(s, "victim", -1) ||
      manta_session_attempt(s) > 0 || step != 5)
    return;
  board->fired++;
  usleep(30000);
  raise(SIGKILL);
}

static manta_status save_steps(manta_session *s, int64_t step, manta_checkpoint **open,
                               manta_error *err)
{
  static int32_t w[PART + 8];
  while (++step <= 8) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("step", step));
    MANTA_TRY(manta_session_report(s, &row, err));
    strike(s, step);
    MANTA_TRY(save_part(s, w, step, err));
    if (step % 3) // so that a part also takes the place of one that nobody has loaded
      MANTA_TRY(check_own(s, open, step, err));
  }
  return MANTA_OK;
}

static manta_status parted(manta_session *s, manta_value *result, manta_error *err)
{
  manta_checkpoint *c;
  int64_t step = 0;
  board_open();
  MANTA_TRY(manta_session_load(s, &c, err));
  manta_status st = c ? check_parts(c, &step, err) : MANTA_OK;
  manta_checkpoint_close(c);
  MANTA_TRY(st);
  c = NULL;
  st = save_steps(s, step, &c, err);
  manta_checkpoint_close(c);
  MANTA_TRY(st);
  return manta_value_set_int(result, step);
}

static void run_parted(int victim, int64_t from)
{
  struct rig r;
  manta_checkpoint *c = NULL;
  int64_t step = 0;
  manta_value config = MANTA_MAP(MANTA_KV_INT("victim", victim));
  rig_init(&r, 3);
  rig_make(&r);
  r.rc.config = &config;
  assert_ok(manta_trainer_run(r.t, parted, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, victim >= 0);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, i), -1), from);
  assert_ok(manta_trainer_checkpoint(r.t, &c, &r.err), &r.err);
  assert_ok(check_parts(c, &step, &r.err), &r.err);
  assert_int_equal(step, 8);
  manta_checkpoint_close(c);
  rig_fini(&r);
}

static void parts_of_all_ranks_are_one_checkpoint(void **state)
{
  run_parted(-1, 0);
}

static void a_death_leaves_the_last_whole_one(void **state)
{
  for (int victim = 0; victim < 3; victim++)
    run_parted(victim, 4);
}

static manta_status senseless(manta_session *s, manta_value *result, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  int rank = manta_session_rank(s);
  int bad = (int)manta_session_config_int(s, "bad", 0);
  manta_tensor t = {"w", MANTA_F32, 1, {4}, rank == bad ? NULL : &(float[4]){0}};
  manta_state state = {&t, 1, NULL};
  manta_status st = manta_session_save_sharded(s, &state, &why);
  if (st != MANTA_EINVAL)
    return manta_error_set(err, MANTA_EUSER, "%s: %s", manta_status_name(st), why.message);
  if (rank != bad && !strchr(why.message, '0' + bad))
    return manta_error_set(err, MANTA_EUSER, "it is not named: %s", why.message);
  int32_t w[PART + 8];
  return save_part(s, w, 8, err); // and the ranks are still in step
}

static void a_part_without_sense_is_told_to_all(void **state)
{
  for (int bad = 0; bad < 3; bad++) {
    struct rig r;
    manta_value config = MANTA_MAP(MANTA_KV_INT("bad", bad));
    rig_init(&r, 3);
    rig_make(&r);
    r.rc.config = &config;
    assert_ok(manta_trainer_run(r.t, senseless, &r.rc, NULL, &r.err), &r.err);
    rig_fini(&r);
  }
}

// Rank 0 finds only once all parts are there that they are too much for one checkpoint.
static manta_status too_much(manta_session *s, manta_value *result, manta_error *err)
{
  static char text[400000];
  manta_error why = MANTA_ERROR_INIT;
  memset(text, 'x', sizeof text - 1);
  manta_value value = manta_value_borrow_string(text);
  manta_state state = {NULL, 0, &value};
  manta_status st = manta_session_save_sharded(s, &state, &why);
  if (st != (manta_session_rank(s) ? MANTA_EINVAL : MANTA_ETOOBIG))
    return manta_error_set(err, MANTA_EUSER, "%s: %s", manta_status_name(st), why.message);
  int32_t w[PART + 8];
  return save_part(s, w, 8, err);
}

static void a_failure_of_rank_0_is_told_to_all(void **state)
{
  struct rig r;
  rig_init(&r, 3);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, too_much, &r.rc, NULL, &r.err), &r.err);
  rig_fini(&r);
}

// --- what the caller fills in, and files ---------------------------------------------------------

static manta_status fill_in(void *ctx, void *const *dst, const manta_slot_memory *memory,
                            manta_error *err)
{
  memset(dst[0], 7, 1000);
  return *(bool *)ctx ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "not this time");
}

static manta_status filling(manta_session *s, manta_value *result, manta_error *err)
{
  manta_tensor t = {"w", MANTA_U8, 1, {1000}, NULL};
  manta_state state = {&t, 1, NULL};
  bool well = false;
  manta_status st = manta_session_save_by(s, &state, fill_in, &well, NULL);
  if (st != (manta_session_rank(s) ? MANTA_OK : MANTA_EUSER))
    return manta_error_set(err, MANTA_EUSER, "a fill that failed: %s", manta_status_name(st));
  well = true;
  return manta_session_save_by(s, &state, fill_in, &well, err);
}

static void what_is_filled_in_is_saved(void **state)
{
  struct rig r;
  uint8_t got[1000], want[1000];
  manta_checkpoint *c = NULL;
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, filling, &r.rc, NULL, &r.err), &r.err);
  assert_ok(manta_trainer_checkpoint(r.t, &c, &r.err), &r.err);
  assert_ok(manta_checkpoint_copy(c, "w", got, sizeof got, &r.err), &r.err);
  memset(want, 7, sizeof want);
  assert_memory_equal(got, want, sizeof got);
  manta_checkpoint_close(c);
  rig_fini(&r);
}

static manta_status with_file(manta_session *s, manta_value *result, manta_error *err)
{
  char path[5000];
  const char *dir = NULL;
  manta_state state = {0};
  manta_status st = manta_session_files(s, &dir, err);
  if (manta_session_rank(s) > 0)
    return st == MANTA_ESTATE ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "files elsewhere");
  MANTA_TRY(st);
  snprintf(path, sizeof path, "%s/notes.txt", dir);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, "note", 4) != 4)
    return manta_error_set(err, MANTA_EIO, "write %s: %m", path);
  close(fd);
  return manta_session_save(s, &state, err);
}

static void files_lie_in_the_checkpoint(void **state)
{
  struct rig r;
  char path[5000];
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, with_file, &r.rc, NULL, &r.err), &r.err);
  snprintf(path, sizeof path, "%s/checkpoints/000001/notes.txt", manta_trainer_run_dir(r.t));
  assert_int_equal(access(path, R_OK), 0);
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(parts_of_all_ranks_are_one_checkpoint),
      rig_test(a_death_leaves_the_last_whole_one),
      rig_test(a_part_without_sense_is_told_to_all),
      rig_test(a_failure_of_rank_0_is_told_to_all),
      rig_test(what_is_filled_in_is_saved),
      rig_test(files_lie_in_the_checkpoint),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
