/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders in a run, over real processes: whatever dies, and however many workers go on, each row of
 * an epoch is seen once over the steps that survive.
 *
 * The state that is saved says how often each row was seen, by all ranks. DATA_ROUNDS is how many
 * runs with a kill and two resizes are made.
 */
#include "data/cells.h"
#include "data/numbered.h"
#include "rig.h"
#include "sys/proc.h"

#define FILES  5
#define EACH   61
#define ALL    (FILES * EACH + 10)
#define EPOCHS 2

#define RESIZE_WITHIN_S 60.0

static char *dir;

// --- in the workers -----------------------------------------------------------------------------

struct reading {
  manta_session *s;
  manta_loader *l;
  int32_t seen[EPOCHS][ALL]; // by all ranks, in the steps that survived
  int64_t step;
};

static manta_status config_filter(manta_dataset **d, int64_t modulus, manta_error *err)
{
  char text[80];
  manta_value tree = {0};
  manta_dataset *out;
  if (!modulus)
    return MANTA_OK;
  snprintf(text, sizeof text, "[\"==\", [\"%%\", [\"col\", \"n\"], %d], 0]", (int)modulus);
  MANTA_TRY(manta_value_from_json(&tree, text, strlen(text), err));
  manta_status st = manta_dataset_filter(&out, *d, &tree, err);
  manta_value_fini(&tree);
  MANTA_TRY(st);
  manta_dataset_close(*d);
  *d = out;
  return MANTA_OK;
}

static manta_status config_shuffle(manta_dataset **d, int64_t window, int64_t seed,
                                   manta_error *err)
{
  manta_dataset *out;
  if (!window)
    return MANTA_OK;
  MANTA_TRY(manta_dataset_shuffle(&out, *d, (uint64_t)seed, window, err));
  manta_dataset_close(*d);
  *d = out;
  return MANTA_OK;
}

static manta_status open_data(struct reading *r, manta_error *err)
{
  const char *path = manta_session_config_string(r->s, "path", "");
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_loader_config lc = MANTA_LOADER_CONFIG_INIT;
  manta_dataset *d;
  c.block_bytes = 700;
  c.batch_rows = 50;
  lc.batch_rows = manta_session_config_int(r->s, "batch", 10);
  lc.threads = 2;
  lc.memory_limit = 4 << 20;
  MANTA_TRY(manta_dataset_open(&d, &path, 1, &c, err));
  manta_status st = config_filter(&d, manta_session_config_int(r->s, "modulus", 0), err);
  if (st == MANTA_OK)
    st = config_shuffle(&d, manta_session_config_int(r->s, "window", 0),
                        manta_session_config_int(r->s, "seed", 0), err);
  if (st == MANTA_OK)
    st = manta_session_loader(&r->l, r->s, "train", d, &lc, err);
  manta_dataset_close(d);
  return st;
}

static manta_status restore(struct reading *r, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(r->s, &c, err));
  if (!c)
    return MANTA_OK;
  r->step = manta_value_as_int(manta_value_get(manta_checkpoint_value(c), "step"), -1);
  manta_status st = manta_checkpoint_copy(c, "seen", r->seen, sizeof r->seen, err);
  manta_checkpoint_close(c);
  return st;
}

static void maybe_die(struct reading *r, int point)
{
  manta_session *s = r->s;
  bool due = manta_session_config_int(s, "kill_point", -1) == point &&
             manta_session_config_int(s, "kill_step", 0) <= r->step &&
             manta_session_config_int(s, "kill_rank", 0) % manta_session_world_size(s) ==
                 manta_session_rank(s);
  if (!due || board->fired)
    return;
  board->fired++;
  raise(SIGKILL);
}

// Of a host with several workers, which have one. board->born[0] is the agent.
static void maybe_kill_reader(const struct reading *r)
{
  bool due = manta_session_config_bool(r->s, "kill_reader", false) &&
             r->step >= manta_session_config_int(r->s, "kill_step", 0) &&
             manta_session_rank(r->s) == 0;
  pid_t reader = due && !board->reused ? child_named((pid_t)board->born[0], "manta-reader") : 0;
  if (reader > 0 && manta__proc_signal(reader, SIGKILL) == 0)
    board->reused++;
}

static manta_status save(struct reading *r, manta_error *err)
{
  manta_tensor t = {"seen", MANTA_I32, 2, {EPOCHS, ALL}, r->seen};
  manta_value v = MANTA_MAP(MANTA_KV_INT("step", r->step));
  manta_state state = {&t, 1, &v};
  return manta_session_save(r->s, &state, err);
}

// What the other ranks saw in this step is a part of the state.
static manta_status learn(struct reading *r, const manta_batch *b, manta_error *err)
{
  static int32_t now[ALL];
  int64_t epoch = manta_loader_epoch(r->l);
  manta_column n;
  MANTA_TRY(manta_batch_column_named(b, "n", &n, err));
  memset(now, 0, sizeof now);
  for (int64_t i = 0; i < n.rows; i++)
    now[((const int64_t *)n.data)[n.offset + i]]++;
  MANTA_TRY(
      manta_comm_allreduce(manta_session_comm(r->s), now, now, ALL, MANTA_I32, MANTA_SUM, err));
  for (int i = 0; i < ALL && epoch < EPOCHS; i++)
    r->seen[epoch][i] += now[i];
  return MANTA_OK;
}

// The driver has seen the step that it resizes at, or will: that comes with a save.
static manta_status await_resize(struct reading *r, manta_error *err)
{
  int world = manta_session_world_size(r->s);
  int64_t at = manta_session_config_int(r->s, world == 2 ? "leave_2" : "leave_1", 0);
  int64_t by = manta__deadline(RESIZE_WITHIN_S);
  if (world == 3 || !at || r->step < at)
    return MANTA_OK;
  for (int i = 0; manta__now() < by; i++) {
    if (i % 10 == 0)
      MANTA_TRY(save(r, err));
    MANTA_TRY(manta_session_check(r->s, err));
    usleep(2000);
  }
  return manta_error_set(err, MANTA_ETIMEDOUT, "still %d workers at step %d", world, (int)r->step);
}

static manta_status step(struct reading *r, const manta_batch *b, manta_error *err)
{
  maybe_die(r, 0);
  maybe_kill_reader(r);
  MANTA_TRY(learn(r, b, err));
  r->step++;
  maybe_die(r, 1);
  manta_value row = MANTA_MAP(MANTA_KV_INT("count", r->step));
  MANTA_TRY(manta_session_report(r->s, &row, err));
  if (r->step % manta_session_config_int(r->s, "every", 1) == 0)
    MANTA_TRY(save(r, err));
  maybe_die(r, 2);
  return await_resize(r, err);
}

static manta_status go_through(struct reading *r, manta_error *err)
{
  while (manta_loader_epoch(r->l) < EPOCHS) {
    manta_batch *b;
    manta_status st;
    while ((st = manta_loader_next(r->l, &b, err)) == 1) {
      st = step(r, b, err);
      manta_batch_destroy(b);
      MANTA_TRY(st);
    }
    MANTA_TRY(st);
    MANTA_TRY(manta_loader_begin(r->l, manta_loader_epoch(r->l) + 1, err));
  }
  return MANTA_OK;
}

static manta_status check_seen(const struct reading *r, manta_error *err)
{
  int64_t modulus = manta_session_config_int(r->s, "modulus", 0);
  for (int e = 0; e < EPOCHS; e++)
    for (int i = 0; i < ALL; i++)
      if (r->seen[e][i] != (modulus == 0 || i % modulus == 0))
        return manta_error_set(err, MANTA_EINVAL, "epoch %d: row %d was seen %d times", e, i,
                               r->seen[e][i]);
  return MANTA_OK;
}

static manta_status reading(manta_session *s, manta_value *result, manta_error *err)
{
  static struct reading r;
  if (!board)
    board_open();
  r = (struct reading){.s = s};
  board->at[manta_session_world_size(s)]++;
  if (manta_session_attempt(s) > board->attempts)
    board->attempts = manta_session_attempt(s);
  MANTA_TRY(restore(&r, err));
  MANTA_TRY(open_data(&r, err));
  manta_status st = go_through(&r, err);
  manta_loader_close(r.l);
  MANTA_TRY(st);
  MANTA_TRY(check_seen(&r, err));
  return manta_value_set_int(result, r.step);
}

// --- in the driver ------------------------------------------------------------------------------

/* Resizes when these iterations are seen, each when the one before has been made. */
struct resizes {
  struct rig *rig;
  int64_t at[2];
  int to[2];
  int asked;
};

static manta_status resize(void *ctx, const manta_rows *rows, manta_error *err)
{
  struct resizes *z = ctx;
  int i = z->asked;
  if (i == 2 || rows->iteration < z->at[i] || (i > 0 && rows->count != z->to[i - 1]))
    return MANTA_OK;
  z->asked++;
  return manta_trainer_resize(z->rig->t, z->to[i], err);
}

static int64_t run_reading(struct rig *r, const manta_value *config, struct resizes *z)
{
  manta_callbacks c = {.ctx = z, .result = resize};
  r->rc.config = config;
  r->rc.callbacks = &c;
  r->rc.callback_count = z != NULL;
  assert_ok(manta_trainer_run(r->t, reading, &r->rc, &r->results, &r->err), &r->err);
  return manta_value_as_int(manta_value_at(&r->results, 0), -1);
}

static int rounds(void)
{
  const char *n = getenv("DATA_ROUNDS");
  return n ? atoi(n) : SANITIZED ? 4 : 20; // style: of the test's own
}

// Two workers, then one, then three; one of them dies at any step, before or after it is saved, and
// in some rounds the process that reads for them, too.
static void every_row_once_whatever_dies(void **state)
{
  const char *path = numbered_write(dir, "set", FILES, EACH);
  uint64_t noise = 99;
  for (int round = 0, all = rounds(); round < all; round++) {
    int64_t batch = 8 + (int64_t)(cells_random(&noise) % 12), steps = 2 * (ALL / batch);
    struct rig r;
    rig_init(&r, 2);
    r.cfg.max_retries = -1;
    manta_value cfg = MANTA_MAP(
        MANTA_KV_STR("path", path), MANTA_KV_INT("batch", batch),
        MANTA_KV_INT("every", 1 + (int64_t)(cells_random(&noise) % 4)),
        MANTA_KV_INT("window", round % 3 ? 1 + (int64_t)(cells_random(&noise) % 120) : 0),
        MANTA_KV_INT("seed", round), MANTA_KV_INT("modulus", round % 5 == 4 ? 3 : 0),
        MANTA_KV_INT("kill_step", 1 + (int64_t)(cells_random(&noise) % (uint64_t)(steps / 3))),
        MANTA_KV_INT("kill_point", (int64_t)(cells_random(&noise) % 3)),
        MANTA_KV_INT("kill_rank", (int64_t)(cells_random(&noise) % 6)),
        MANTA_KV_INT("leave_2", steps / 9), MANTA_KV_INT("leave_1", steps / 5),
        MANTA_KV_BOOL("kill_reader", round % 4 == 3));
    struct resizes z = {.rig = &r, .at = {steps / 12, steps / 6}, .to = {1, 3}};
    rig_make(&r);
    assert_ok(manta_trainer_start(r.t, &r.err), &r.err);
    board->born[0] = child_named(getpid(), "manta-agent");
    assert_true(run_reading(&r, &cfg, &z) > 0);
    assert_int_equal(board->fired, 1);
    assert_int_equal(board->reused, round % 4 == 3);
    for (int w = 1; w <= 3; w++)
      assert_true(board->at[w] > 0);
    rig_fini(&r);
  }
  assert_nothing_left();
}

// --- names and checkpoints ----------------------------------------------------------------------

static manta_status misuse(manta_session *s, manta_value *result, manta_error *err)
{
  const char *path = manta_session_config_string(s, "path", "");
  manta_error why = MANTA_ERROR_INIT;
  manta_dataset *d;
  manta_loader *l, *other;
  MANTA_TRY(manta_dataset_open(&d, &path, 1, NULL, err));
  MANTA_TRY(manta_session_loader(&l, s, "a", d, NULL, err));
  if (manta_session_loader(&other, s, "a", d, NULL, &why) != MANTA_EINVAL ||
      !strstr(why.message, "\"a\" is open"))
    return manta_error_set(err, MANTA_EINVAL, "a second loader of a name: %s", why.message);
  if (manta_session_loader(&other, s, "", d, NULL, &why) != MANTA_EINVAL ||
      manta_session_loader(&other, s, NULL, d, NULL, &why) != MANTA_EINVAL)
    return manta_error_set(err, MANTA_EINVAL, "a loader without a name: %s", why.message);
  manta_loader_close(l);
  MANTA_TRY(manta_session_loader(&l, s, "a", d, NULL, err));
  manta_loader_close(l);
  manta_dataset_close(d);
  return manta_value_set_int(result, 1);
}

static void names_are_for_one_loader_at_a_time(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  rig_make(&r);
  manta_value cfg = MANTA_MAP(MANTA_KV_STR("path", numbered_write(dir, "set", FILES, EACH)));
  r.rc.config = &cfg;
  assert_ok(manta_trainer_run(r.t, misuse, &r.rc, &r.results, &r.err), &r.err);
  rig_fini(&r);
}

// Two steps of an epoch, saved; how many rows of it the loader had gone through before.
static manta_status two_steps(manta_session *s, manta_value *result, manta_error *err)
{
  const char *path = manta_session_config_string(s, "path", "");
  manta_loader_config lc = MANTA_LOADER_CONFIG_INIT;
  manta_value at = {0};
  manta_dataset *d;
  manta_loader *l;
  manta_batch *b;
  lc.batch_rows = 10;
  MANTA_TRY(manta_dataset_open(&d, &path, 1, NULL, err));
  MANTA_TRY(manta_session_loader(&l, s, "train", d, &lc, err));
  MANTA_TRY(manta_loader_save(l, &at, err));
  for (int i = 0; i < 2; i++) {
    if (manta_loader_next(l, &b, err) != 1)
      return manta_error_set(err, MANTA_EINVAL, "no batch %d", i);
    manta_batch_destroy(b);
  }
  manta_loader_close(l); // where it was is saved all the same
  manta_dataset_close(d);
  manta_tensor t = MANTA_VECTOR("x", MANTA_I64, &(int64_t){1}, 1);
  manta_state state = {&t, 1, NULL};
  MANTA_TRY(manta_session_report(
      s, &MANTA_MAP(MANTA_KV_INT("count", 1 + manta_session_iteration(s))), err));
  MANTA_TRY(manta_session_save(s, &state, err));
  if (manta_session_attempt(s) == 0 && manta_session_config_bool(s, "die", false)) {
    board_open();
    board->fired++;
    raise(SIGKILL);
  }
  manta_status st =
      manta_value_set_int(result, manta_value_as_int(manta_value_get(&at, "rows"), -1));
  manta_value_fini(&at);
  return st;
}

static void only_checkpoints_of_the_run_have_a_position(void **state)
{
  char given[PATH_MAX];
  struct rig r;
  rig_init(&r, 1);
  r.rc.keep_best = 1;
  r.rc.score = "count";
  rig_make(&r);
  const char *path = numbered_write(dir, "set", FILES, EACH);
  manta_value cfg = MANTA_MAP(MANTA_KV_STR("path", path), MANTA_KV_BOOL("die", true));
  r.rc.config = &cfg;
  assert_ok(manta_trainer_run(r.t, two_steps, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 0), -1), 20);
  assert_ok(manta_trainer_best_checkpoint(r.t, given, sizeof given, &r.err), &r.err);
  r.rc.checkpoint = given;
  cfg = MANTA_MAP(MANTA_KV_STR("path", path));
  r.rc.config = &cfg;
  assert_ok(manta_trainer_run(r.t, two_steps, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 0), -1), 0);
  rig_fini(&r);
  assert_nothing_left();
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      rig_test(every_row_once_whatever_dies),
      rig_test(names_are_for_one_loader_at_a_time),
      rig_test(only_checkpoints_of_the_run_have_a_position),
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
