/* SPDX-License-Identifier: Apache-2.0
 *
 * Several threads of a rank in its session at once: rows and snapshots stay whole and in order, and
 * every call ends.
 */
#include "rig.h"

#include <sched.h>

#include <manta/embed.h>

#define THREADS 6
#define FLOATS  5000

/* One thread of a train function, and how it ended. */
struct hand {
  pthread_t thread;
  manta_session *s;
  int index;
  int64_t n;
  manta_status st;
  manta_error err;
};

static manta_status gather(struct hand *hands, int count, manta_error *err)
{
  manta_status st = MANTA_OK;
  for (int i = 0; i < count; i++) {
    pthread_join(hands[i].thread, NULL);
    if (hands[i].st < 0 && st == MANTA_OK) {
      st = hands[i].st;
      *err = hands[i].err;
    }
  }
  return st;
}

static void begin(struct hand *h, int index, manta_session *s, void *(*work)(void *))
{
  *h = (struct hand){.s = s, .index = index, .n = manta_session_config_int(s, "n", 1000)};
  h->err = (manta_error)MANTA_ERROR_INIT;
  if (pthread_create(&h->thread, NULL, work, h) != 0)
    abort();
}

// --- rows ----------------------------------------------------------------------------------------

static manta_status report_one(struct hand *h, int64_t i)
{
  static const char pad[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  manta_value row =
      MANTA_MAP(MANTA_KV_INT("thread", h->index), MANTA_KV_INT("i", i),
                MANTA_KV_INT("sum", h->index * 1000000 + i), MANTA_KV_STR("pad", pad + i * 7 % 60));
  return manta_session_report(h->s, &row, &h->err);
}

static void *report_all(void *arg)
{
  struct hand *h = arg;
  for (int64_t i = 1; i <= h->n && h->st == MANTA_OK; i++)
    h->st = report_one(h, i);
  return NULL;
}

static manta_status rows_of_all(manta_session *s, manta_value *result, manta_error *err)
{
  struct hand hands[THREADS];
  for (int i = 0; i < THREADS; i++)
    begin(&hands[i], i, s, report_all);
  MANTA_TRY(gather(hands, THREADS, err));
  return manta_value_set_int(result, manta_session_iteration(s));
}

/* What came out, by thread; one per rank. */
struct seen {
  int64_t last[THREADS], rows, iteration;
};

static int64_t int_of(const manta_value *row, const char *key)
{
  return manta_value_as_int(manta_value_get(row, key), -1);
}

// A row is whole, and the next one of its thread.
static void check_row(struct seen *seen, const manta_value *row, int64_t iteration)
{
  int64_t k = int_of(row, "thread"), i = int_of(row, "i");
  assert_true(k >= 0 && k < THREADS);
  assert_int_equal(i, ++seen->last[k]);
  assert_int_equal(int_of(row, "sum"), k * 1000000 + i);
  assert_int_equal(strlen(manta_value_as_string(manta_value_get(row, "pad"), "")),
                   64 - (size_t)(i * 7 % 60));
  assert_int_equal(int_of(row, "_training_iteration"), iteration);
  seen->rows++;
}

static void rows_stay_whole_and_in_order(void **state)
{
  struct rig r;
  manta_run *run;
  manta_rows rows;
  struct seen seen[2] = {{.rows = 0}};
  int64_t n = SANITIZED ? 500 : 4000;
  int st;
  rig_init(&r, 2);
  r.cfg.callback_count = 0;
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", n));
  r.rc.config = &c;
  assert_ok(manta_run_start(&run, r.t, rows_of_all, &r.rc, &r.err), &r.err);
  for (int64_t last = 0; (st = manta_run_next(run, 60, &rows, &r.err)) == 1;) {
    assert_int_equal(rows.iteration, ++last);
    for (int k = 0; k < 2; k++)
      if (rows.rows[k].type != MANTA_NIL) // a rank may be far behind the other
        check_row(&seen[k], &rows.rows[k], last);
  }
  assert_ok(st, &r.err);
  for (size_t k = 0; k < 2; k++)
    assert_int_equal(manta_value_as_int(manta_value_at(manta_run_results(run), k), -1),
                     n * THREADS);
  assert_true(seen[0].rows == n * THREADS || seen[1].rows == n * THREADS);
  manta_run_close(run);
  rig_fini(&r);
}

// --- snapshots -----------------------------------------------------------------------------------

static manta_status save_one(struct hand *h, int64_t i)
{
  float w[FLOATS];
  int64_t sum = h->index * 1000000 + i;
  size_t n = FLOATS / (size_t)(h->index + 1); // sets of different sizes
  for (size_t k = 0; k < n; k++)
    w[k] = (float)sum;
  manta_tensor t = MANTA_VECTOR("w", MANTA_F32, w, (int64_t)n);
  manta_value v = MANTA_MAP(MANTA_KV_INT("sum", sum));
  manta_state state = {&t, 1, &v};
  return manta_session_save(h->s, &state, &h->err);
}

static manta_status check_whole(const manta_checkpoint *c, int64_t *sum, manta_error *err)
{
  const manta_tensor *t = manta_checkpoint_tensor(c, "w");
  *sum = int_of(manta_checkpoint_value(c), "sum");
  for (int64_t k = 0; t && k < t->shape[0]; k++)
    if (((const float *)t->data)[k] != (float)*sum)
      return manta_error_set(err, MANTA_EUSER, "a snapshot of %lld has a part of another",
                             (long long)*sum);
  return t && t->shape[0] == FLOATS / (*sum / 1000000 + 1)
             ? MANTA_OK
             : manta_error_set(err, MANTA_EUSER, "a snapshot has lost its tensor");
}

static void *save_and_load(void *arg)
{
  struct hand *h = arg;
  manta_checkpoint *c;
  int64_t sum;
  for (int64_t i = 1; i <= h->n && h->st == MANTA_OK; i++) {
    if ((h->st = save_one(h, i)) < 0 || (h->st = manta_session_load(h->s, &c, &h->err)) < 0)
      break;
    h->st = check_whole(c, &sum, &h->err);
    manta_checkpoint_close(c);
  }
  return NULL;
}

// Nobody else saves: what is loaded belongs to a moment of this save.
static void *save_counting(void *arg)
{
  struct hand *h = arg;
  manta_checkpoint *c;
  for (int64_t i = 1; i <= h->n && h->st == MANTA_OK; i++) {
    int64_t before = manta_session_iteration(h->s), at;
    if ((h->st = save_one(h, i)) < 0 || (h->st = manta_session_load(h->s, &c, &h->err)) < 0)
      break;
    at = manta_checkpoint_iteration(c);
    if (at < before || at > manta_session_iteration(h->s))
      h->st = manta_error_set(&h->err, MANTA_EUSER, "saved between %lld and later, not at %lld",
                              (long long)before, (long long)at);
    manta_checkpoint_close(c);
  }
  return NULL;
}

static manta_status save_and_report(manta_session *s, manta_value *result, manta_error *err)
{
  bool alone = manta_session_config_bool(s, "alone", false);
  int savers = alone ? 1 : 3;
  struct hand hands[THREADS];
  for (int i = 0; i < THREADS; i++)
    begin(&hands[i], i, s, i >= savers ? report_all : alone ? save_counting : save_and_load);
  MANTA_TRY(gather(hands, THREADS, err));
  return manta_value_set_int(result, manta_session_iteration(s));
}

static void snapshots_stay_whole(void **state)
{
  struct rig r;
  manta_checkpoint *ckpt;
  int64_t sum;
  for (int alone = 0; alone < 2; alone++) {
    rig_init(&r, 1);
    rig_make(&r);
    manta_value c =
        MANTA_MAP(MANTA_KV_INT("n", SANITIZED ? 30 : 60), MANTA_KV_BOOL("alone", alone));
    r.rc.config = &c;
    assert_ok(manta_trainer_run(r.t, save_and_report, &r.rc, &r.results, &r.err), &r.err);
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 0), -1), r.rows);
    assert_ok(manta_trainer_checkpoint(r.t, &ckpt, &r.err), &r.err);
    assert_ok(check_whole(ckpt, &sum, &r.err), &r.err);
    assert_in_range(manta_checkpoint_iteration(ckpt), 0, r.rows);
    manta_checkpoint_close(ckpt);
    rig_fini(&r);
  }
}

// --- ends ----------------------------------------------------------------------------------------

static void *report_until_told(void *arg)
{
  struct hand *h = arg;
  char text[4000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  manta_value row = MANTA_MAP(MANTA_KV_STR("text", text));
  while (h->st == MANTA_OK) {
    h->st = h->index % 3 == 2 ? save_one(h, 1) : manta_session_report(h->s, &row, &h->err);
    board->counts++;
  }
  if (h->st == MANTA_EABORTED || h->st == MANTA_EPEERLOST)
    board->fired++;
  return NULL;
}

static manta_status report_endlessly(manta_session *s, manta_value *result, manta_error *err)
{
  struct hand hands[THREADS];
  if (!board)
    board_open();
  for (int i = 0; i < THREADS; i++)
    begin(&hands[i], i, s, report_until_told);
  return gather(hands, THREADS, err);
}

// The ring is full and one thread waits for room; the others wait for that one.
static void all_leave_at_an_abort(void **state)
{
  struct rig r;
  manta_run *run;
  rig_init(&r, 1);
  r.cfg.callback_count = 0;
  r.cfg.grace_s = 20;
  rig_make(&r);
  assert_ok(manta_run_start(&run, r.t, report_endlessly, &r.rc, &r.err), &r.err);
  int64_t before = -1;
  assert_true(within(30, ({ // nobody takes rows: it comes to a stop
                       int64_t now = board->counts;
                       bool stopped = now > 1000 && now == before;
                       before = now;
                       usleep(100000);
                       stopped;
                     })));
  manta_run_close(run);
  assert_int_equal(board->fired, THREADS);
  rig_fini(&r);
  assert_nothing_left();
}

static void *report_too_long(void *arg)
{
  struct hand *h = arg;
  while (h->st == MANTA_OK)
    h->st = report_one(h, 1);
  return NULL;
}

static manta_status outlived(manta_session *s, manta_value *result, manta_error *err)
{
  struct hand h;
  begin(&h, 0, s, report_too_long);
  while (manta_session_iteration(s) < 100)
    sched_yield();
  manta_session_settle(s);
  pthread_join(h.thread, NULL);
  manta_session_settle(s);
  if (h.st != MANTA_ESTATE || !strstr(h.err.message, "after it returned"))
    return manta_error_set(err, MANTA_EUSER, "a late report gave %d: %s", h.st, h.err.message);
  return manta_value_set_int(result, manta_session_iteration(s));
}

static void late_calls_are_refused(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  rig_make(&r);
  for (int i = 0; i < 2; i++) {
    r.last = r.rows = 0;
    assert_ok(manta_trainer_run(r.t, outlived, &r.rc, &r.results, &r.err), &r.err);
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 0), -1), r.rows);
  }
  rig_fini(&r);
}

// What the child may call, in the state in which a fork amid other threads' calls leaves it.
static int child_calls(struct hand *h)
{
  manta_checkpoint *c;
  const char *dir;
  manta_error err = MANTA_ERROR_INIT;
  alarm(20);
  if (report_one(h, 1) != MANTA_ESTATE || !strstr(h->err.message, "child process"))
    return 1;
  if (save_one(h, 1) != MANTA_ESTATE || manta_session_load(h->s, &c, &err) != MANTA_ESTATE)
    return 2;
  return manta_session_files(h->s, &dir, &err) == MANTA_ESTATE ? 0 : 3;
}

static manta_status forks(manta_session *s, manta_value *result, manta_error *err)
{
  struct hand hands[THREADS], me = {.s = s, .err = MANTA_ERROR_INIT};
  int status = 0;
  for (int i = 0; i < THREADS; i++)
    begin(&hands[i], i, s, i == 2 ? save_and_load : report_all);
  for (int i = 0; i < 20 && status == 0; i++) {
    pid_t pid = fork();
    if (pid == 0)
      _exit(child_calls(&me));
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
      return manta_error_set(err, MANTA_EUSER, "fork: %m");
  }
  MANTA_TRY(gather(hands, THREADS, err));
  return status == 0 ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "a child ended by %d", status);
}

static void a_child_is_refused_whoever_is_inside(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", SANITIZED ? 100 : 300));
  rig_make(&r);
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, forks, &r.rc, &r.results, &r.err), &r.err);
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(rows_stay_whole_and_in_order),
      rig_test(snapshots_stay_whole),
      rig_test(all_leave_at_an_abort),
      rig_test(late_calls_are_refused),
      rig_test(a_child_is_refused_whoever_is_inside),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
