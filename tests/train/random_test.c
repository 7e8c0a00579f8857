/* SPDX-License-Identifier: Apache-2.0
 *
 * Random states go with the checkpoint: from any host, after a loss, after a resize.
 */
#include "rig.h"

#define COUNTS 30
#define SAVED  10 /* the only save */
#define FAULT  12
#define LARGE  20000

// --- in the workers -----------------------------------------------------------------------------

static void make_state(char *out, int rank, int64_t count)
{
  memset(out, 'a' + rank, LARGE);
  snprintf(out, LARGE, "rank %d at %lld", rank, (long long)count);
}

static manta_status check_state(manta_session *s, manta_error *err)
{
  char want[LARGE];
  void *bytes;
  size_t len;
  int owner, rank = manta_session_rank(s);
  int before = (int)manta_session_config_int(s, "before", 2);
  int64_t from = manta_session_iteration(s);
  MANTA_TRY(manta_session_load_random(s, &bytes, &len, &owner, err));
  int due = from == 0 ? -1 : rank < before ? rank : 0;
  make_state(want, due, from);
  bool same = owner == due && (due < 0 ? !bytes : len == LARGE && !memcmp(bytes, want, LARGE));
  manta_free(bytes);
  board->counts += from > 0;
  return same ? MANTA_OK
              : manta_error_set(err, MANTA_EUSER, "rank %d has %zu bytes of rank %d at %d", rank,
                                len, owner, (int)from);
}

static manta_status save(manta_session *s, manta_error *err)
{
  char state[LARGE];
  void *bytes;
  size_t len;
  int owner;
  manta_state none = {0};
  make_state(state, manta_session_rank(s), manta_session_iteration(s));
  MANTA_TRY(manta_session_save_random(s, state, sizeof state, err));
  MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  MANTA_TRY(manta_session_save(s, &none, err));
  MANTA_TRY(manta_session_load_random(s, &bytes, &len, &owner, err));
  return owner == -1 ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "states of an older one");
}

// The driver asks for a resize while board->hold is 1; it comes with the save.
static manta_status save_for_resize(manta_session *s, manta_error *err)
{
  if (!manta_session_config_bool(s, "resize", false))
    return save(s, err);
  while (board->hold)
    usleep(500);
  MANTA_TRY(save(s, err));
  for (;;) {
    MANTA_TRY(manta_session_check(s, err));
    usleep(500);
  }
}

static manta_status drawing(manta_session *s, manta_value *result, manta_error *err)
{
  if (!board)
    board_open();
  MANTA_TRY(check_state(s, err));
  for (int64_t count = manta_session_iteration(s); count < COUNTS;) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", ++count));
    MANTA_TRY(manta_session_report(s, &row, err));
    if (count == SAVED)
      MANTA_TRY(save_for_resize(s, err));
    MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
    if (count == FAULT && manta_session_attempt(s) == 0 &&
        manta_session_config_int(s, "rank", -1) == manta_session_rank(s)) {
      board->fired++;
      raise(SIGKILL);
    }
  }
  return manta_value_set_int(result, manta_session_world_size(s));
}

// --- in the driver ------------------------------------------------------------------------------

static manta_status resize_to_3(void *ctx, const manta_rows *rows, manta_error *err)
{
  struct rig *r = ctx;
  manta_status st = rows->iteration == 1 ? manta_trainer_resize(r->t, 3, err) : MANTA_OK;
  board->hold = 0;
  return st;
}

static void draw(struct rig *r, int dies, int world)
{
  manta_value cfg =
      MANTA_MAP(MANTA_KV_INT("rank", dies), MANTA_KV_BOOL("resize", board->hold == 1));
  r->rc.config = &cfg;
  rig_make(r);
  assert_ok(manta_trainer_run(r->t, drawing, &r->rc, &r->results, &r->err), &r->err);
  assert_int_equal(manta_value_as_int(manta_value_at(&r->results, 0), -1), world);
  assert_int_equal(board->fired, dies >= 0);
  assert_int_equal(board->counts, world); // each has looked
  rig_fini(r);
  assert_nothing_left();
}

static void ranks_get_theirs_back(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  draw(&r, 1, 2);
}

static void ranks_of_other_hosts_get_theirs_back(void **state)
{
  char command[600];
  manta_host two[2] = {{.name = "a", .slots = 1}, {.name = "b", .command = command, .slots = 1}};
  struct rig r;
  for (int dies = 0; dies < 2; dies++) {
    snprintf(command, sizeof command, "exec %s agent --stdio", getenv("MANTA_BIN"));
    rig_init(&r, 2);
    r.cfg.hosts = two;
    r.cfg.host_count = 2;
    draw(&r, dies, 2);
  }
}

static void a_new_rank_gets_those_of_rank_0(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  manta_callbacks c = {.ctx = &r, .result = resize_to_3};
  r.rc.callbacks = &c;
  r.rc.callback_count = 1;
  board->hold = 1;
  draw(&r, -1, 3);
}

static manta_status misuse(manta_session *s, manta_value *result, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  static char large[MANTA_RANDOM_MAX + 1];
  bool ok = manta_session_save_random(s, large, sizeof large, &why) == MANTA_ETOOBIG &&
            manta_session_save_random(s, large, 0, &why) == MANTA_ETOOBIG &&
            manta_session_save_random(s, large, sizeof large - 1, &why) == MANTA_OK;
  return ok ? manta_value_set_int(result, 1) : manta_error_set(err, MANTA_EUSER, "%s", why.message);
}

static void sizes_have_a_limit(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, misuse, &r.rc, &r.results, &r.err), &r.err);
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      rig_test(ranks_get_theirs_back),
      rig_test(ranks_of_other_hosts_get_theirs_back),
      rig_test(a_new_rank_gets_those_of_rank_0),
      rig_test(sizes_have_a_limit),
  };
  if (manta_init(&argc, &argv) < 0)
    return 1;
  board_open();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
