/* SPDX-License-Identifier: Apache-2.0
 *
 * A run on several hosts. Here a host is a command on this machine: `manta agent --stdio`, which
 * goes the whole way (bridge, stream, far agent, workers) but for a network.
 */
#include "rig.h"
#include "train/session.h"

#define SOON 20.0

static char command[2][600];
static manta_host two[2];

// Both hosts are reached by a command, 2 workers each; or the first is this one.
static void rig_hosts(struct rig *r, int workers, bool here)
{
  rig_init(r, workers);
  for (int i = 0; i < 2; i++) {
    snprintf(command[i], sizeof command[i], "exec %s agent --stdio", getenv("MANTA_BIN"));
    two[i] = (manta_host){.name = i ? "b" : "a", .command = command[i], .slots = 2};
  }
  if (here)
    two[0].command = NULL;
  r->cfg.hosts = two;
  r->cfg.host_count = 2;
}

static void assert_all(const struct rig *r, int workers, int64_t n)
{
  assert_int_equal(r->results.count, workers);
  for (int i = 0; i < workers; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r->results, (size_t)i), -1), n);
  assert_int_equal(r->last, n);
}

static void ranks_on_two_hosts_report_and_save(void **state)
{
  for (int here = 0; here < 2; here++) {
    struct rig r;
    rig_hosts(&r, 4, here);
    manta_value c = MANTA_MAP(MANTA_KV_INT("n", 50));
    assert_ok(rig_run(&r, &c), &r.err);
    assert_all(&r, 4, 50);
    assert_int_equal(r.rows, 50);
    assert_int_equal(r.incomplete, 0);
    manta_checkpoint *k;
    assert_ok(manta_trainer_checkpoint(r.t, &k, &r.err), &r.err);
    assert_non_null(k);
    assert_int_equal(manta_checkpoint_iteration(k), 50);
    manta_checkpoint_close(k);
    rig_fini(&r);
    assert_nothing_left();
  }
}

// --- places -------------------------------------------------------------------------------------

static manta_status telling(manta_session *s, manta_value *result, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  manta_value list = {0};
  MANTA_TRY(manta_value_set_map(result));
  MANTA_TRY(manta_value_put_int(result, "rank", manta_session_rank(s)));
  MANTA_TRY(manta_value_put_int(result, "world", manta_session_world_size(s)));
  MANTA_TRY(manta_value_put_int(result, "local", manta_session_local_rank(s)));
  MANTA_TRY(manta_value_put_int(result, "locals", manta_session_local_world_size(s)));
  MANTA_TRY(manta_value_put_int(result, "node", manta_session_node_rank(s)));
  MANTA_TRY(manta_value_set_list(&list));
  for (int r = 0; r < job->world; r++) {
    manta_value name = manta_value_borrow_string(job->host_name[job->host_of[r]]);
    MANTA_TRY(manta_value_append(&list, &name));
  }
  return manta_value_put(result, "hosts", &list);
}

static int64_t number(const manta_value *v, const char *key)
{
  return manta_value_as_int(manta_value_get(v, key), -1);
}

static void ranks_are_given_out_host_by_host(void **state)
{
  static const int slots[][2] = {{2, 2}, {1, 3}, {3, 1}, {4, 0}};
  for (size_t k = 0; k < sizeof slots / sizeof *slots; k++) {
    struct rig r;
    rig_hosts(&r, 4, k == 1);
    two[0].slots = slots[k][0];
    two[1].slots = slots[k][1];
    rig_make(&r);
    assert_ok(manta_trainer_execute(r.t, telling, NULL, &r.results, &r.err), &r.err);
    assert_int_equal(r.results.count, 4);
    for (int i = 0; i < 4; i++) {
      const manta_value *v = manta_value_at(&r.results, (size_t)i);
      int first = slots[k][0], node = i >= first;
      assert_int_equal(number(v, "rank"), i);
      assert_int_equal(number(v, "world"), 4);
      assert_int_equal(number(v, "node"), node);
      assert_int_equal(number(v, "local"), node ? i - first : i);
      assert_int_equal(number(v, "locals"), node ? 4 - first : first);
      for (int q = 0; q < 4; q++)
        assert_string_equal(
            manta_value_as_string(manta_value_at(manta_value_get(v, "hosts"), (size_t)q), "?"),
            q >= first ? "b" : "a");
    }
    rig_fini(&r);
  }
}

// --- losses -------------------------------------------------------------------------------------

static void a_killed_worker_is_revived(void **state)
{
  for (int rank = 0; rank < 4; rank++) {
    struct rig r;
    rig_hosts(&r, 4, rank % 2);
    manta_value c = MANTA_MAP(MANTA_KV_INT("n", 60), MANTA_KV_STR("fault", "kill"),
                              MANTA_KV_INT("rank", rank), MANTA_KV_INT("at", 37));
    assert_ok(rig_run(&r, &c), &r.err);
    assert_int_equal(board->fired, 1);
    assert_int_equal(board->attempts, 1);
    assert_int_equal(r.rewinds, 1);
    assert_all(&r, 4, 60);
    for (int i = 0; i < 4; i++) // survivors keep their process, also on the other host
      assert_true((board->born[i] == board->pid[i]) == (i != rank));
    rig_fini(&r);
    assert_nothing_left();
  }
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(ranks_on_two_hosts_report_and_save),
      rig_test(ranks_are_given_out_host_by_host),
      rig_test(a_killed_worker_is_revived),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
