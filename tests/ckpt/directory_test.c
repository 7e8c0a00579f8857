/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/ckpt/directory_test.c - directories of the user's that belong to checkpoints.
 */
#include "ckpt/ckdir.h"
#include "store_fixture.h"

// All samples are of attempt 3, and of iteration 10 x seed.
static void make_user(struct fixture *f, const char *name)
{
  char path[192];
  snprintf(path, sizeof path, "%s/checkpoints/%s", f->path, name);
  assert_int_equal(mkdir(path, 0700), 0);
  snprintf(path, sizeof path, "%s/checkpoints/%s/sub", f->path, name);
  assert_int_equal(mkdir(path, 0700), 0);
  snprintf(path, sizeof path, "%s/checkpoints/%s/sub/model.pt", f->path, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  assert_int_equal(write(fd, "model", 5), 5);
  close(fd);
  snprintf(path, sizeof path, "%s/checkpoints/%s/link", f->path, name);
  assert_int_equal(symlink("/nowhere", path), 0);
}

static manta_status write_with_user(struct fixture *f, manta__store *s, uint64_t seed,
                                    struct manta__manifest *m, manta_error *err)
{
  int fd = save(f, seed);
  f->slots.slot[f->slot].meta->directory = 1;
  return manta__store_write(s, fd, m, err);
}

static struct manta__manifest put_with_user(struct fixture *f, manta__store *s, uint64_t seed)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  assert_ok(write_with_user(f, s, seed, &m, &err), &err);
  assert_ok(manta__store_commit(s, &m, &err), &err);
  return m;
}

static void it_stays_and_goes_with_its_checkpoint(void **ctx)
{
  struct fixture *f = *ctx;
  struct manta__manifest *list;
  size_t count;
  manta_error err = MANTA_ERROR_INIT;
  manta__store *s = open_store(f, &(struct manta__retention){.keep_last = 1});
  make_user(f, "checkpoint_000060-3");
  put_with_user(f, s, 6);
  assert_string_equal(names(f), "000001 checkpoint_000060-3");
  manta__store_close(s);
  assert_ok(manta__store_list(f->run, true, &list, &count, &err), &err);
  assert_int_equal(count, 1);
  assert_true(list[0].directory);
  manta_free(list);
  s = open_store(f, &(struct manta__retention){.keep_last = 1}); // as after a restart
  make_user(f, "checkpoint_000070-3");
  put_with_user(f, s, 7);
  assert_string_equal(names(f), "000002 checkpoint_000070-3");
  put(f, s, 8);
  assert_string_equal(names(f), "000003");
  assert_int_equal(f->warnings, 0);
  manta__store_close(s);
}

static void what_no_checkpoint_claims_is_swept(void **ctx)
{
  struct fixture *f = *ctx;
  manta__store *s = open_store(f, &keep_all);
  make_user(f, "checkpoint_000050-3"); // of a snapshot that was never made
  make_user(f, "checkpoint_000090-2"); // of an attempt before
  make_user(f, "checkpoint_000060-3");
  make_user(f, "checkpoint_000070-3"); // still to come
  make_user(f, "checkpoint_mine");     // not one of ours
  put_with_user(f, s, 6);
  assert_string_equal(names(f), "000001 checkpoint_000060-3 checkpoint_000070-3 checkpoint_mine");
  put_with_user(f, s, 7);
  assert_string_equal(names(f),
                      "000001 000002 checkpoint_000060-3 checkpoint_000070-3 checkpoint_mine");
  manta__store_close(s);
}

static void a_checkpoint_without_its_directory_is_not_whole(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  manta__store *s = open_store(f, &keep_all);
  put(f, s, 1);
  assert_status(write_with_user(f, s, 2, &m, &err), MANTA_EIO);
  assert_has(err.message, "checkpoint_000020-3");
  assert_string_equal(names(f), "000001");
  make_user(f, "checkpoint_000030-3");
  put_with_user(f, s, 3);
  assert_newest(f, "000002", 3);
  char from[160], to[160];
  snprintf(from, sizeof from, "%s/checkpoints/checkpoint_000030-3", f->path);
  snprintf(to, sizeof to, "%s/elsewhere", f->path);
  assert_int_equal(rename(from, to), 0);
  assert_newest(f, "000001", 1);
  assert_int_equal(f->warnings, 1);
  manta__store_close(s);
}

static void names_say_attempt_and_iteration(void **ctx)
{
  uint32_t attempt;
  int64_t iteration;
  char name[48];
  manta__ckdir_user_name(name, 0, 12);
  assert_string_equal(name, "checkpoint_000012");
  assert_true(manta__ckdir_user_parse(name, &attempt, &iteration));
  assert_int_equal(attempt, 0);
  assert_int_equal(iteration, 12);
  assert_true(manta__ckdir_user_parse("checkpoint_1234567-2", &attempt, &iteration));
  assert_int_equal(attempt, 2);
  static const char *const others[] = {"checkpoint_12",      "checkpoint_000012-0",  "checkpoint_",
                                       "checkpoint_000012x", "checkpoint_000012-2 ", "000012"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_false(manta__ckdir_user_parse(others[i], &attempt, &iteration));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(it_stays_and_goes_with_its_checkpoint),
      TEST(what_no_checkpoint_claims_is_swept),
      TEST(a_checkpoint_without_its_directory_is_not_whole),
      cmocka_unit_test(names_say_attempt_and_iteration),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
