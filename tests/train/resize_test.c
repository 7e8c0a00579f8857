/* SPDX-License-Identifier: Apache-2.0
 *
 * A resize that comes while an attempt is being formed: the agent is stopped meanwhile, so that it
 * cannot come at any other time.
 */
#include "rig.h"
#include "sys/proc.h"

#define COUNTS 40

static int go_through(struct rig *r, manta_run *run, int *worlds)
{
  manta_rows rows;
  int got;
  while ((got = manta_run_next(run, 60, &rows, &r->err)) == 1)
    worlds[rows.count]++;
  return got;
}

// `to` is asked for while the agent is to start two workers; `saves`: how often a checkpoint is
// made, 0: never.
static void resize_while_forming(int to, int saves)
{
  struct rig r;
  manta_run *run;
  int worlds[5] = {0};
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_start(r.t, &r.err), &r.err);
  pid_t agent = child_named(getpid(), "manta-agent");
  manta_value cfg = MANTA_MAP(MANTA_KV_INT("n", COUNTS), MANTA_KV_INT("every", saves));
  r.rc.config = &cfg;
  assert_int_equal(manta__proc_signal(agent, SIGSTOP), 0);
  assert_ok(manta_run_start(&run, r.t, counting, &r.rc, &r.err), &r.err);
  manta_status st = manta_trainer_resize(r.t, to, &r.err);
  assert_int_equal(manta__proc_signal(agent, SIGCONT), 0);
  assert_ok(st, &r.err);
  assert_int_equal(go_through(&r, run, worlds), 0);
  manta_run_close(run);
  assert_int_equal(worlds[to], COUNTS);
  assert_int_equal(board->attempts, 1);
  assert_false(is_logged(&r, "no room"));
  rig_fini(&r);
  assert_nothing_left();
}

static void fewer_workers_are_had_at_once(void **state)
{
  resize_while_forming(1, 10);
}

static void more_workers_are_had_at_once(void **state)
{
  resize_while_forming(3, 10);
}

static void no_checkpoint_is_needed(void **state)
{
  resize_while_forming(3, 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      rig_test(fewer_workers_are_had_at_once),
      rig_test(more_workers_are_had_at_once),
      rig_test(no_checkpoint_is_needed),
  };
  if (manta_init(&argc, &argv) < 0)
    return 1;
  board_open();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
