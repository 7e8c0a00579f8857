/* SPDX-License-Identifier: Apache-2.0
 *
 * What users pass, whatever its size: config, payload, results and where they are kept. On
 * one host, and on two.
 */
#include <errno.h>

#include "rig.h"

#define MB    ((size_t)1 << 20)
#define SMALL (3 * MB)  /* over a frame */
#define LARGE (65 * MB) /* over a record of run.log, too */

static manta_host two[2];
static char command[600];

static void rig_places(struct rig *r, int workers, int hosts)
{
  rig_init(r, workers);
  if (hosts < 2)
    return;
  snprintf(command, sizeof command, "exec %s agent --stdio", getenv("MANTA_BIN"));
  for (int i = 0; i < 2; i++)
    two[i] = (manta_host){.name = i ? "b" : "a", .command = command, .slots = 2};
  if (hosts == 3) // the first is this one
    two[0].command = NULL;
  r->cfg.hosts = two;
  r->cfg.host_count = 2;
}

static uint8_t byte_at(size_t i, int rank)
{
  return (uint8_t)(i * 7 + (i >> 12) + (size_t)rank);
}

static uint8_t *pattern(size_t n, int rank)
{
  uint8_t *p = malloc(n);
  for (size_t i = 0; p && i < n; i++)
    p[i] = byte_at(i, rank);
  return p;
}

static bool is_pattern(const uint8_t *p, size_t n, int rank)
{
  for (size_t i = 0; i < n; i++)
    if (p[i] != byte_at(i, rank))
      return false;
  return true;
}

// --- sizes --------------------------------------------------------------------------------------

static manta_status give_file(manta_session *s, const uint8_t *p, size_t n, bool memory,
                              manta_error *err)
{
  char path[] = "/tmp/manta-passed-XXXXXX";
  int fd = memory ? memfd_create("given", MFD_CLOEXEC | MFD_ALLOW_SEALING) : mkstemp(path);
  if (!memory)
    unlink(path);
  if (fd < 0 || write(fd, p, n) != (ssize_t)n)
    return manta_error_set(err, MANTA_EIO, "%m");
  manta_status st = manta_session_result(s, fd, "bin", err);
  close(fd);
  return st;
}

// Rank 0: a value; 1: a memory file; 2: a file; 3: something small.
static manta_status returning(manta_session *s, manta_value *result, manta_error *err)
{
  int rank = manta_session_rank(s);
  size_t n = (size_t)manta_session_config_int(s, "bytes", 0), got;
  const uint8_t *payload = manta_session_payload(s, &got);
  const manta_value *v = manta_value_get(manta_session_config(s), "data");
  board_open();
  board->fired++;
  if (got != SMALL || !is_pattern(payload, got, 77))
    return manta_error_set(err, MANTA_EUSER, "the payload is another");
  if (!v || v->count != n || !is_pattern((const uint8_t *)v->u.s, n, 78))
    return manta_error_set(err, MANTA_EUSER, "the config is another");
  if (rank == 3)
    return manta_value_set_int(result, 3);
  uint8_t *p = pattern(n, rank);
  manta_status st =
      rank == 0 ? manta_value_set_bytes(result, p, n) : give_file(s, p, n, rank == 1, err);
  if (st == MANTA_OK && rank > 0)
    st = manta_value_set_string(result, "in its place");
  free(p);
  return st;
}

static void check_results(const manta_run *run, const struct rig *r, size_t n)
{
  const manta_value *all = manta_run_results(run);
  const void *bytes;
  size_t count;
  assert_non_null(all);
  assert_int_equal(all->count, 4);
  assert_int_equal(manta_value_as_int(manta_value_at(all, 3), -1), 3);
  for (int i = 0; i < 3; i++) {
    const manta_value *v = manta_value_at(all, (size_t)i);
    assert_int_equal(v->type, MANTA_BYTES);
    assert_int_equal(v->count, n);
    assert_true(is_pattern((const uint8_t *)v->u.s, n, i));
    char path[256];
    snprintf(path, sizeof path, "%s/results/rank-%d.%s", manta_trainer_run_dir(r->t), i,
             i ? "bin" : "msgpack");
    assert_string_equal(manta_run_result_file(run, i), path);
    assert_int_equal(access(path, R_OK), 0);
    manta_status st = manta_run_result_bytes(run, i, &bytes, &count, NULL);
    assert_status(st, i ? MANTA_OK : MANTA_ENOENT);
    assert_true(i == 0 || (count == n && is_pattern(bytes, n, i)));
  }
  assert_string_equal(manta_run_result_file(run, 3), "");
  assert_string_equal(manta_run_result_file(run, 9), "");
}

static manta_run *finish(struct rig *r)
{
  manta_run *run = NULL;
  int rc;
  assert_ok(manta_run_start(&run, r->t, returning, &r->rc, &r->err), &r->err);
  while ((rc = manta_run_next(run, 60, NULL, &r->err)) == 1)
    ;
  assert_ok((manta_status)rc, &r->err);
  return run;
}

// Flips one byte.
static void damage(const char *path)
{
  int fd = open(path, O_RDWR | O_CLOEXEC);
  uint8_t b;
  assert_true(fd >= 0);
  assert_int_equal(pread(fd, &b, 1, 4096), 1);
  b ^= 1;
  assert_int_equal(pwrite(fd, &b, 1, 4096), 1);
  close(fd);
}

static void pass(int hosts, size_t n)
{
  struct rig r;
  uint8_t *payload = pattern(SMALL, 77), *data = pattern(n, 78);
  manta_value c = MANTA_MAP(MANTA_KV_INT("bytes", (int64_t)n),
                            MANTA_KV("data", manta_value_borrow_bytes(data, n)));
  char dir[256], file[300];
  rig_places(&r, 4, hosts);
  rig_make(&r);
  r.rc.config = &c;
  r.rc.payload = payload;
  r.rc.payload_bytes = SMALL;
  manta_run *run = finish(&r);
  check_results(run, &r, n);
  manta_run_close(run);
  assert_int_equal(board->fired, 4);
  snprintf(dir, sizeof dir, "%s", manta_trainer_run_dir(r.t));
  rig_destroy(&r); // an agent keeps the directory of its last run locked
  rig_make(&r);
  r.rc.resume = dir; // it has finished: it is only read again
  run = finish(&r);
  check_results(run, &r, n);
  manta_run_close(run);
  assert_int_equal(board->fired, 4);
  snprintf(file, sizeof file, "%s/results/rank-1.bin", dir);
  damage(file);
  assert_status(manta_run_start(&run, r.t, returning, &r.rc, &r.err), MANTA_ECORRUPT);
  assert_has(r.err.message, "the result of rank 1, ");
  assert_has(r.err.message, "results/rank-1.bin: it is not what run.log says");
  rig_fini(&r);
  free(payload);
  free(data);
  assert_nothing_left();
}

static void large_things_pass_on_one_host(void **state)
{
  pass(1, LARGE);
}

static void large_things_pass_between_hosts(void **state)
{
  pass(3, SMALL);
}

static manta_status many_small(manta_session *s, manta_value *result, manta_error *err)
{
  char text[40001];
  memset(text, 'a' + manta_session_rank(s), 40000);
  text[40000] = 0;
  manta_value one = manta_value_borrow_string(text);
  MANTA_TRY(manta_value_set_list(result));
  for (int i = 0; i < 100; i++) {
    manta_value copy = {0};
    MANTA_TRY(manta_value_copy(&copy, &one));
    MANTA_TRY(manta_value_append(result, &copy));
  }
  return MANTA_OK;
}

// A train function that fails may say more than a message holds.
static manta_status failing(manta_session *s, manta_value *result, manta_error *err)
{
  MANTA_TRY(many_small(s, result, err));
  return manta_error_set(err, MANTA_EUSER, "it failed");
}

static void the_words_of_a_failure_may_be_many(void **state)
{
  struct rig r;
  manta_run *run;
  int rc;
  rig_init(&r, 1);
  rig_make(&r);
  assert_ok(manta_run_start(&run, r.t, failing, &r.rc, &r.err), &r.err);
  while ((rc = manta_run_next(run, 60, NULL, &r.err)) == 1)
    ;
  assert_status(rc, MANTA_EUSER);
  const manta_value *v = manta_run_failure(run);
  assert_non_null(v);
  assert_int_equal(v->count, 100);
  assert_null(manta_run_results(run));
  manta_run_close(run);
  assert_ok(manta_trainer_run(r.t, many_small, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(manta_value_at(&r.results, 0)->count, 100);
  rig_fini(&r);
}

static manta_status refusing(manta_session *s, manta_value *result, manta_error *err)
{
  int fds[2];
  static const char *const bad[] = {"", "a/b", "msgpack", "waytoolongforasuffix", NULL};
  if (pipe(fds) < 0 || manta_session_result(s, fds[0], "bin", err) != MANTA_EINVAL)
    return manta_error_set(err, MANTA_EUSER, "a pipe was taken");
  for (const char *const *k = bad; *k; k++)
    if (manta_session_result(s, STDIN_FILENO, *k, err) != MANTA_EINVAL)
      return manta_error_set(err, MANTA_EUSER, "the kind %s was taken", *k);
  return manta_value_set_bool(result, true);
}

static void what_cannot_be_a_result_is_refused(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, refusing, &r.rc, &r.results, &r.err), &r.err);
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(large_things_pass_on_one_host),
      rig_test(large_things_pass_between_hosts),
      rig_test(the_words_of_a_failure_may_be_many),
      rig_test(what_cannot_be_a_result_is_refused),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
