/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/ckpt/write_test.c - a state as a checkpoint directory, outside of any run.
 */
#include "store_fixture.h"

static void what_is_written_is_opened(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  char path[128];
  snprintf(path, sizeof path, "%s/a/b", f->path);
  sample_fill(&f->s, 9);
  assert_ok(manta_checkpoint_write(path, &f->s.state, &err), &err);
  assert_ok(manta_checkpoint_open(&c, path, true, &err), &err);
  assert_true(sample_matches(&f->s, c, 9));
  assert_int_equal(manta_checkpoint_iteration(c), 0);
  manta_checkpoint_close(c);
  assert_status(manta_checkpoint_write(path, &f->s.state, &err), MANTA_EINVAL);
  assert_has(err.message, "has a checkpoint already");
}

static void a_state_without_sense_is_not_written(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  char path[128];
  snprintf(path, sizeof path, "%s/a", f->path);
  f->s.tensors[3].name = "odd"; // twice
  assert_status(manta_checkpoint_write(path, &f->s.state, &err), MANTA_EINVAL);
  assert_has(err.message, "odd");
  assert_status(manta_checkpoint_open(&c, path, true, &err), MANTA_ENOENT);
}

static void a_full_disk_leaves_no_checkpoint(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  char path[128];
  snprintf(path, sizeof path, "%s/a", f->path);
  manta__file_fault(5000, ENOSPC, 0);
  assert_status(manta_checkpoint_write(path, &f->s.state, &err), MANTA_EIO);
  assert_true(manta__file_fault(0, 0, 0) > 0);
  assert_status(manta_checkpoint_open(&c, path, true, &err), MANTA_ENOENT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(what_is_written_is_opened),
      TEST(a_state_without_sense_is_not_written),
      TEST(a_full_disk_leaves_no_checkpoint),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
