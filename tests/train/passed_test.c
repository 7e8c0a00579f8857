/* SPDX-License-Identifier: Apache-2.0
 *
 * What users pass, whatever its size: config, payload, results and where they are kept; and what
 * load gives to ranks that have saved in the same attempt. On one host, and on two.
 */
#include <errno.h>

#include "rig.h"
#include "train/session.h"

#define MB     ((size_t)1 << 20)
#define SMALL  (3 * MB)  /* over a frame */
#define LARGE  (65 * MB) /* over a record of run.log, too */
#define BEHIND 0.2       /* seconds that rank 0 comes late */

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
  assert_has(r.err.message, "results/rank-1.bin: it does not match the hash in run.log");
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

// --- load after save ----------------------------------------------------------------------------

static manta_status save_step(manta_session *s, int64_t step, manta_error *err)
{
  int32_t w[5000];
  for (int i = 0; i < 5000; i++)
    w[i] = (int32_t)(step * 10 + manta_session_rank(s));
  manta_tensor t = {"w", MANTA_I32, 1, {5000}, w};
  manta_value v = MANTA_MAP(MANTA_KV_INT("step", step));
  manta_state state = {&t, 1, &v};
  return manta_session_save(s, &state, err);
}

// That of rank 0, whole; -1 in *step: there is none.
static manta_status load_step(manta_session *s, int64_t *step, manta_error *err)
{
  manta_checkpoint *c;
  *step = -1;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (!c)
    return MANTA_OK;
  const manta_tensor *t = manta_checkpoint_tensor(c, "w");
  *step = manta_value_as_int(manta_value_get(manta_checkpoint_value(c), "step"), -2);
  for (int i = 0; t && i < 5000; i++)
    if (((const int32_t *)t->data)[i] != *step * 10)
      t = NULL;
  bool given = manta_checkpoint_given(c);
  manta_checkpoint_close(c);
  return t && !given ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "it is not rank 0's");
}

static manta_status expect_step(manta_session *s, int64_t want, manta_error *err)
{
  int64_t step;
  MANTA_TRY(load_step(s, &step, err));
  return step == want ? MANTA_OK
                      : manta_error_set(err, MANTA_EUSER, "rank %d: step %d, not %d",
                                        manta_session_rank(s), (int)step, (int)want);
}

// Between hosts there may be no collectives here.
static manta_status barrier(manta_session *s, manta_error *err)
{
  struct manta__blobs all;
  if (manta_session_local_world_size(s) == manta_session_world_size(s))
    return manta_comm_barrier(manta_session_comm(s), err);
  MANTA_TRY(manta__worker_exchange(manta__session_job(s), "", 1, &all, manta__deadline(60), err));
  manta__blobs_fini(&all);
  return MANTA_OK;
}

// Rank 0 saves alone, more often than there are slots; the others have not saved since.
static manta_status save_alone(manta_session *s, manta_error *err)
{
  for (int64_t step = 2; step < 9; step++) {
    if (manta_session_rank(s) == 0)
      MANTA_TRY(save_step(s, step, err));
    MANTA_TRY(barrier(s, err));
    MANTA_TRY(expect_step(s, step, err));
    MANTA_TRY(barrier(s, err));
  }
  return MANTA_OK;
}

static manta_status loading(manta_session *s, manta_value *result, manta_error *err)
{
  int rank = manta_session_rank(s);
  bool one_host = manta_session_local_world_size(s) == manta_session_world_size(s);
  MANTA_TRY(expect_step(s, -1, err));
  MANTA_TRY(expect_step(s, -1, err));
  if (rank == 0)
    usleep((useconds_t)(BEHIND * 1e6)); // the others' save comes first, and they wait
  MANTA_TRY(save_step(s, 1, err));
  MANTA_TRY(expect_step(s, 1, err));
  MANTA_TRY(barrier(s, err));
  for (int64_t step = 11; step < 15; step++) { // every rank saves, in step
    MANTA_TRY(save_step(s, step, err));
    MANTA_TRY(expect_step(s, step, err));
    MANTA_TRY(barrier(s, err));
  }
  if (one_host)
    MANTA_TRY(save_alone(s, err));
  return manta_value_set_bool(result, true);
}

static void load_on(int hosts)
{
  struct rig r;
  rig_places(&r, 4, hosts);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, loading, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(r.results.count, 4);
  rig_fini(&r);
  assert_nothing_left();
}

static void load_is_the_same_on_every_rank(void **state)
{
  load_on(1);
}

static void load_is_the_same_on_every_host(void **state)
{
  load_on(2);
  load_on(3);
}

// A save of rank 0 that fails counts: nobody waits for it for ever.
static manta_status missing_one(manta_session *s, manta_value *result, manta_error *err)
{
  manta_tensor t = {"w", MANTA_I32, 1, {-1}, NULL};
  manta_state bad = {&t, 1, NULL};
  manta_status st = manta_session_save(s, &bad, err);
  if (st != (manta_session_rank(s) ? MANTA_OK : MANTA_EINVAL))
    return manta_error_set(err, MANTA_EUSER, "save gave %s", manta_status_name(st));
  return expect_step(s, -1, err);
}

static void a_save_that_failed_is_not_waited_for(void **state)
{
  struct rig r;
  rig_init(&r, 3);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, missing_one, &r.rc, &r.results, &r.err), &r.err);
  rig_fini(&r);
}

// Rank 0 returns without a save, or dies, while another waits for it.
static manta_status abandoning(manta_session *s, manta_value *result, manta_error *err)
{
  board_open();
  if (manta_session_rank(s) == 1)
    MANTA_TRY(save_step(s, 1, err));
  if (manta_session_rank(s) == 1)
    return expect_step(s, 1, err);
  usleep((useconds_t)(BEHIND * 1e6));
  board->fired++;
  if (manta_session_config_bool(s, "die", false))
    raise(SIGKILL);
  return MANTA_OK;
}

static void the_wait_ends_with_rank_0(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.max_retries = -2;
  rig_make(&r);
  assert_status(manta_trainer_run(r.t, abandoning, &r.rc, &r.results, &r.err), MANTA_ESTATE);
  assert_has(r.err.message, "rank 0 has left its train function");
  assert_int_equal(r.err.rank, 1);
  assert_int_equal(board->fired, 1);
  manta_value die = MANTA_MAP(MANTA_KV_BOOL("die", true));
  r.rc.config = &die;
  assert_status(manta_trainer_run(r.t, abandoning, &r.rc, &r.results, &r.err), MANTA_EWORKER);
  assert_int_equal(r.err.rank, 0);
  assert_int_equal(board->fired, 2);
  rig_fini(&r);
}

// --- gigabytes ----------------------------------------------------------------------------------

#define GB ((size_t)1 << 30)

static bool has_memory(size_t bytes)
{
  char line[128];
  unsigned long long kb = 0;
  FILE *f = fopen("/proc/meminfo", "re");
  while (f && fgets(line, sizeof line, f))
    sscanf(line, "MemAvailable: %llu", &kb);
  if (f)
    fclose(f);
  if (kb * 1024 < bytes)
    print_message("# skipped: %llu MB of memory\n", kb / 1024);
  return kb * 1024 >= bytes;
}

static uint8_t *touched(size_t n)
{
  uint8_t *p = calloc(n, 1);
  for (size_t i = 0; p && i < n; i += MB)
    p[i] = byte_at(i / MB, 1);
  return p;
}

static bool is_touched(const uint8_t *p, size_t n)
{
  for (size_t i = 0; i < n; i += MB)
    if (p[i] != byte_at(i / MB, 1))
      return false;
  return true;
}

static manta_status return_huge(manta_session *s, manta_value *result, manta_error *err)
{
  size_t n = 12 * GB / 10;
  uint8_t *p = touched(n);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory");
  manta_status st = manta_session_rank(s) == 0 ? manta_value_set_bytes(result, p, n)
                                               : give_file(s, p, n, true, err);
  free(p);
  return st;
}

static void results_of_gigabytes_come_back(void **state)
{
  struct rig r;
  size_t n = 12 * GB / 10;
  if (!has_memory(14 * GB))
    return;
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, return_huge, &r.rc, &r.results, &r.err), &r.err);
  for (size_t i = 0; i < 2; i++) {
    const manta_value *v = manta_value_at(&r.results, i);
    assert_int_equal(v->count, n);
    assert_true(is_touched((const uint8_t *)v->u.s, n));
  }
  rig_fini(&r);
}

static manta_status save_huge(manta_session *s, manta_value *result, manta_error *err)
{
  size_t n = 22 * GB / 10;
  manta_checkpoint *c = NULL;
  uint8_t *p = manta_session_rank(s) == 0 ? touched(n) : NULL;
  manta_tensor t = {"w", MANTA_U8, 1, {(int64_t)n}, p};
  manta_state whole = {&t, 1, NULL}, none = {NULL, 0, NULL};
  manta_status st = manta_session_save(s, p ? &whole : &none, err);
  free(p);
  MANTA_TRY(st);
  MANTA_TRY(manta_session_load(s, &c, err));
  const manta_tensor *w = c ? manta_checkpoint_tensor(c, "w") : NULL;
  bool same = w && w->shape[0] == (int64_t)n && is_touched(w->data, n);
  manta_checkpoint_close(c);
  return same ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "another state");
}

static void checkpoints_of_gigabytes_are_loaded(void **state)
{
  struct rig r;
  if (!has_memory(16 * GB))
    return;
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, save_huge, &r.rc, &r.results, &r.err), &r.err);
  rig_fini(&r);
}

static int test_large(void)
{
  const struct CMUnitTest tests[] = {
      rig_test(results_of_gigabytes_come_back),
      rig_test(checkpoints_of_gigabytes_are_loaded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  if (getenv("LARGE")) {
    int wrong = test_large();
    board_close();
    return wrong;
  }
  const struct CMUnitTest tests[] = {
      rig_test(large_things_pass_on_one_host),        rig_test(large_things_pass_between_hosts),
      rig_test(the_words_of_a_failure_may_be_many),   rig_test(what_cannot_be_a_result_is_refused),
      rig_test(load_is_the_same_on_every_rank),       rig_test(load_is_the_same_on_every_host),
      rig_test(a_save_that_failed_is_not_waited_for), rig_test(the_wait_ends_with_rank_0),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
