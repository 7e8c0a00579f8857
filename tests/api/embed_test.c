/* SPDX-License-Identifier: Apache-2.0
 *
 * An interpreter in small: a driver that never calls manta_init, whose workers are forked by the
 * same executable with other arguments, after it has said that it is ready.
 */
#include <signal.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <manta/embed.h>

#include "scratch.h"
#include "sys/proc.h"
#include "test.h"

#define CODE   "serve-workers" /* what our zygote is told to do */
#define SLOW   "serve-late"    /* … or after LATE_S seconds, as if it had much to import */
#define LATE_S 60
#define PLAIN  "serve-plain" /* … and has no successor */
#define CRASH  "serve-crash" /* … and its successor dies while it warms up */
#define STUCK  "serve-stuck" /* … or never comes to an end of it */

static int befores, parents, children, warms; // calls of the hooks, in this process
static pid_t zygote;                          // that forked us
static const char *how = CODE;                // what our zygote was told

static void before(void)
{
  befores++;
}
static void parent(void)
{
  parents++;
}
static void child(void)
{
  children++;
  zygote = getppid();
}

// Leaves its number, so that the driver knows that it was called.
static bool warm(void)
{
  char path[600];
  snprintf(path, sizeof path, "%s/%s", getenv("MANTA_RESULTS"), how);
  FILE *f = fopen(path, "we");
  if (f) {
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
  }
  if (!strcmp(how, CRASH))
    raise(SIGKILL);
  if (!strcmp(how, STUCK))
    sleep(10 * LATE_S);
  warms++;
  return true;
}

// --- in the workers ------------------------------------------------------------------------------

static manta_status probe(manta_session *s, manta_value *result, manta_error *err)
{
  size_t n;
  const char *payload = manta_session_payload(s, &n);
  char text[64];
  snprintf(text, sizeof text, "%.*s", (int)n, payload ? payload : "");
  MANTA_TRY(manta_value_set_map(result));
  MANTA_TRY(manta_value_put_string(result, "payload", text));
  MANTA_TRY(manta_value_put_bool(result, "none", payload == NULL));
  MANTA_TRY(manta_value_put_string(result, "ours", getenv("EMBED_OURS")));
  MANTA_TRY(manta_value_put_string(result, "both", getenv("EMBED_BOTH")));
  MANTA_TRY(manta_value_put_int(result, "zygote", zygote));
  MANTA_TRY(manta_value_put_int(result, "warms", warms));
  MANTA_TRY(manta_value_put_int(result, "befores", befores));
  MANTA_TRY(manta_value_put_int(result, "parents", parents));
  return manta_value_put_int(result, "children", children);
}

static manta_status explain(manta_session *s, manta_value *result, manta_error *err)
{
  MANTA_TRY(manta_value_set_string(result, "all that a message cannot hold"));
  return manta_error_set(err, MANTA_EUSER, "in short");
}

// Not tried again: what it says is that the arguments are wrong.
static manta_status refuse(manta_session *s, manta_value *result, manta_error *err)
{
  MANTA_TRY(manta_value_set_int(result, manta_session_attempt(s)));
  return manta_error_set(err, MANTA_EINVAL, "no");
}

// The first attempt ends with a death, the second says how it was made.
static manta_status die_once(manta_session *s, manta_value *result, manta_error *err)
{
  if (manta_session_attempt(s) == 0)
    raise(SIGKILL);
  return probe(s, result, err);
}

// --- the driver ----------------------------------------------------------------------------------

static const char *const argv[] = {"interpreter", CODE, NULL};
static const char *const env[] = {"EMBED_OURS=1", "EMBED_BOTH=program", NULL};
static const manta_program program = {sizeof program, argv, env};

static manta_trainer *make_trainer(int workers)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t = NULL;
  c.workers = workers;
  c.quiet = true;
  c.program = &program;
  assert_ok(manta_trainer_create(&t, &c, &err), &err);
  return t;
}

static int64_t entry(const manta_value *results, size_t rank, const char *key)
{
  return manta_value_as_int(manta_value_get(manta_value_at(results, rank), key), -1);
}

static const char *text(const manta_value *results, size_t rank, const char *key)
{
  return manta_value_as_string(manta_value_get(manta_value_at(results, rank), key), "");
}

static void workers_are_forked_by_the_program(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_trainer *t = make_trainer(2);
  rc.payload = "abc";
  rc.payload_bytes = 3;
  assert_ok(manta_trainer_run(t, probe, &rc, &results, &err), &err);
  assert_int_equal(results.count, 2);
  for (size_t r = 0; r < 2; r++) {
    assert_string_equal(text(&results, r, "payload"), "abc");
    assert_string_equal(text(&results, r, "ours"), "1");
    assert_string_equal(text(&results, r, "both"), "driver"); // what the user set wins
    assert_int_equal(entry(&results, r, "children"), 1);
    assert_int_equal(entry(&results, r, "befores"),
                     entry(&results, r, "parents") + 1 + entry(&results, r, "warms"));
    assert_int_not_equal(entry(&results, r, "zygote"), getpid());
  }
  manta_value_fini(&results);
  manta_trainer_destroy(t);
}

static int64_t zygote_of_a_run(manta_trainer *t, int64_t *warm_calls)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  assert_ok(manta_trainer_run(t, probe, NULL, &results, &err), &err);
  int64_t pid = entry(&results, 0, "zygote");
  *warm_calls = entry(&results, 0, "warms");
  assert_true(manta_value_as_bool(manta_value_get(manta_value_at(&results, 0), "none"), false));
  manta_value_fini(&results);
  return pid;
}

static void assert_gone(int64_t pid)
{
  for (int i = 0; i < 1000 && manta__proc_signal((pid_t)pid, 0) == 0; i++)
    usleep(10000);
  assert_int_equal(manta__proc_signal((pid_t)pid, 0), -1);
}

// Runs on new trainers until a worker comes from a successor; its pid.
static int64_t successor(void)
{
  int64_t warm_calls = 0, pid = 0;
  for (int i = 0; i < 1000 && warm_calls == 0; i++) {
    manta_trainer *t = make_trainer(1);
    pid = zygote_of_a_run(t, &warm_calls);
    manta_trainer_destroy(t);
    usleep(10000);
  }
  assert_int_equal(warm_calls, 1);
  return pid;
}

static void a_prestarted_program_outlives_its_trainers(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_prestart(&program, 1, &err), &err);
  int64_t ignored, warmed = successor();
  manta_trainer *t = make_trainer(1);
  assert_int_equal(zygote_of_a_run(t, &ignored), warmed);
  manta_trainer_destroy(t);
  manta_release();
  assert_gone(warmed);
  manta_release(); // harmless
}

// The pid that a warm-up has left; it has begun.
static int64_t warm_up_of(const char *code)
{
  char path[600];
  int pid = 0;
  snprintf(path, sizeof path, "%s/%s", getenv("MANTA_RESULTS"), code);
  for (int i = 0; i < 1000 && pid == 0; i++) {
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%d", &pid) != 1)
      usleep(10000);
    if (f)
      fclose(f);
  }
  assert_true(pid > 0);
  return pid;
}

static manta_trainer *make_restarting(const manta_program *p)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t = NULL;
  c.workers = 1;
  c.max_retries = 1;
  c.quiet = true;
  c.program = p;
  assert_ok(manta_trainer_create(&t, &c, &err), &err);
  assert_ok(manta_trainer_start(t, &err), &err);
  return t;
}

// A worker that outlives the process it was forked by is seen when it dies, and the next one comes
// from the successor.
static void a_warm_successor_takes_over(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  assert_ok(manta_prestart(&program, 1, &err), &err);
  manta_trainer *t = make_restarting(&program);
  int64_t ignored, first = zygote_of_a_run(t, &ignored), second = successor();
  if (first != second)
    assert_gone(first);
  assert_ok(manta_trainer_run(t, die_once, NULL, &results, &err), &err);
  assert_int_equal(entry(&results, 0, "zygote"), second);
  assert_int_equal(entry(&results, 0, "warms"), 1);
  manta_value_fini(&results);
  manta_trainer_destroy(t);
  manta_release();
  assert_gone(second);
}

// Whatever becomes of the warm-up, workers come, and all ends with the driver's last trainer.
static void a_failed_warm_up_changes_nothing(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  const char *const codes[] = {CRASH, STUCK};
  for (size_t i = 0; i < 2; i++) {
    const char *const line[] = {"interpreter", codes[i], NULL};
    const manta_program p = {sizeof p, line, env};
    manta_value results = {0};
    assert_ok(manta_prestart(&p, 1, &err), &err);
    manta_trainer *t = make_restarting(&p);
    int64_t ignored, first = zygote_of_a_run(t, &ignored), warming = warm_up_of(codes[i]);
    assert_int_not_equal(first, warming);
    if (codes[i] == codes[0])
      assert_gone(warming);
    assert_ok(manta_trainer_run(t, die_once, NULL, &results, &err), &err);
    assert_int_equal(entry(&results, 0, "zygote"), first);
    assert_int_equal(entry(&results, 0, "warms"), 0);
    manta_value_fini(&results);
    manta_trainer_destroy(t);
    manta_release();
    assert_gone(first);
    assert_gone(warming);
  }
}

// The same on other hosts. With another time-out the agent there has to be another.
static void a_prestarted_host_outlives_its_trainers(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
  char command[700];
  snprintf(command, sizeof command, "exec %s agent --stdio", getenv("MANTA_BIN"));
  manta_host afar = {.name = "afar", .slots = 1, .command = command};
  const char *const line[] = {"interpreter", PLAIN, NULL};
  const manta_program plain = {sizeof plain, line, env};
  int64_t pid[3], ignored;
  c.hosts = &afar;
  c.host_count = 1;
  c.quiet = true;
  c.program = &plain;
  for (int i = 0; i < 3; i++) {
    manta_trainer *t;
    c.host_timeout_s = i < 2 ? 10 : 20;
    assert_ok(manta_trainer_create(&t, &c, &err), &err);
    assert_ok(manta_trainer_prestart(t, &err), &err);
    pid[i] = zygote_of_a_run(t, &ignored);
    manta_trainer_destroy(t);
    assert_int_equal(manta__proc_signal((pid_t)pid[i], 0), 0);
  }
  assert_int_equal(pid[0], pid[1]);
  assert_int_not_equal(pid[1], pid[2]);
  manta_release();
  assert_gone(pid[0]);
  assert_gone(pid[2]);
}

// A command that leads nowhere is the run's error, though it was known before.
static void a_host_that_cannot_be_prestarted_is_an_error_of_the_run(void **state)
{
  for (int hosts = 1; hosts <= 2; hosts++) {
    manta_error err = MANTA_ERROR_INIT;
    manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
    manta_host two[] = {{.name = "here", .slots = 1},
                        {.name = "nowhere", .slots = 1, .command = "echo lost >&2; exit 7"}};
    manta_trainer *t;
    c.hosts = two + (hosts == 1);
    c.host_count = (size_t)hosts;
    c.workers = hosts;
    c.quiet = true;
    c.program = &program;
    assert_ok(manta_trainer_create(&t, &c, &err), &err);
    assert_ok(manta_trainer_prestart(t, &err), &err);
    usleep(300000); // it has failed by now
    assert_status(manta_trainer_run(t, probe, NULL, NULL, &err), MANTA_EAGENT);
    assert_has(err.message, "nowhere");
    assert_has(err.message, "lost");
    manta_trainer_destroy(t);
    manta_release();
  }
}

static void a_failure_may_say_more_than_its_message(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = make_trainer(2);
  manta_run *r;
  assert_ok(manta_run_start(&r, t, explain, NULL, &err), &err);
  assert_null(manta_run_failure(r));
  assert_status(manta_run_next(r, 20, NULL, &err), MANTA_EUSER);
  assert_string_equal(err.message, "in short");
  assert_string_equal(manta_value_as_string(manta_run_failure(r), ""),
                      "all that a message cannot hold");
  manta_run_close(r);
  manta_trainer_destroy(t);
}

static void a_refusal_is_not_tried_again(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t;
  manta_run *r;
  c.quiet = c.retry_errors = true;
  c.program = &program;
  assert_ok(manta_trainer_create(&t, &c, &err), &err);
  assert_ok(manta_run_start(&r, t, refuse, NULL, &err), &err);
  assert_status(manta_run_next(r, 20, NULL, &err), MANTA_EINVAL);
  assert_int_equal(manta_value_as_int(manta_run_failure(r), -1), 0);
  manta_run_close(r);
  manta_trainer_destroy(t);
}

static void a_run_can_be_a_mere_call(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_trainer *t = make_trainer(2);
  manta_run *r;
  rc.execute = rc.single = true;
  rc.payload = "x";
  rc.payload_bytes = 1;
  assert_ok(manta_run_start(&r, t, probe, &rc, &err), &err);
  assert_ok(manta_run_next(r, 20, NULL, &err), &err);
  assert_string_equal(text(manta_run_results(r), 0, "payload"), "x");
  assert_int_equal(manta_value_at(manta_run_results(r), 1)->type, MANTA_NIL);
  manta_run_close(r);
  assert_string_equal(manta_trainer_run_dir(t), ""); // no directory
  manta_trainer_destroy(t);
}

// Nobody waits for a program that is not ready: neither the end of a run nor that of the driver.
static void an_unborn_worker_can_be_ended(void **state)
{
  static const char *const slow[] = {"interpreter", SLOW, NULL};
  manta_program p = {sizeof p, slow, NULL};
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t;
  manta_run *r;
  time_t began = time(NULL);
  c.workers = 2;
  c.quiet = true;
  c.program = &p;
  assert_ok(manta_trainer_create(&t, &c, &err), &err);
  assert_ok(manta_run_start(&r, t, probe, NULL, &err), &err);
  assert_status(manta_run_next(r, 0.2, NULL, &err), MANTA_ETIMEDOUT);
  manta_trainer_cancel(t);
  assert_status(manta_run_next(r, LATE_S / 2, NULL, &err), MANTA_ECANCELED);
  manta_run_close(r);
  manta_trainer_destroy(t); // takes the agent along, and the agent its zygote
  assert_true(time(NULL) - began < LATE_S / 2);
}

static void wrong_use_is_refused(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
  manta_program nothing = MANTA_PROGRAM_INIT;
  manta_trainer *t;
  char *line[] = {(char *)"x", NULL};
  c.program = &nothing;
  assert_status(manta_trainer_create(&t, &c, &err), MANTA_EINVAL);
  assert_has(err.message, "command line");
  assert_status(manta_serve(line, NULL, &err), MANTA_ESTATE);
  assert_status(manta_embed(0, line, &err), MANTA_EINVAL);
}

static void a_variable_gives_its_value(void **state)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  setenv("MANTA_HOSTS", "here 2", 1);
  assert_ok(manta_knob("MANTA_HOSTS", &v, &err), &err);
  unsetenv("MANTA_HOSTS"); // the value is a copy
  assert_string_equal(manta_value_as_string(&v, ""), "here 2");
  assert_ok(manta_knob("MANTA_HOSTS", &v, &err), &err);
  assert_int_equal(v.type, MANTA_NIL);
  setenv("MANTA_GRACE", "long", 1);
  assert_status(manta_knob("MANTA_GRACE", &v, &err), MANTA_EINVAL);
  assert_has(err.message, "MANTA_GRACE must be a number of seconds");
  unsetenv("MANTA_GRACE");
  assert_ok(manta_knob("MANTA_GRACE", &v, &err), &err);
  assert_near(manta_value_as_real(&v, -1), 30, 0);
  assert_status(manta_knob("MANTA_NOTHING", &v, &err), MANTA_EINVAL);
  setenv("MANTA_HOSTS", "here 2", 1);
  FOR_EACH_OOM(manta_knob("MANTA_HOSTS", &v, &err), manta_value_fini(&v));
  unsetenv("MANTA_HOSTS");
}

static char *results;

static int set_up(void **state)
{
  results = scratch_make();
  return setenv("MANTA_RESULTS", results, 1);
}

static int tear_down(void **state)
{
  scratch_remove(results);
  return 0;
}

static int serve(int argc, char **line)
{
  manta_fork_hooks hooks = {before, parent, child, warm, NULL};
  manta_error err = MANTA_ERROR_INIT;
  if (argc != 2 || strcmp(line[0], "interpreter") != 0 || strncmp(line[1], "serve-", 6) != 0)
    return 3;
  how = line[1];
  if (!strcmp(how, SLOW))
    sleep(LATE_S);
  if (!strcmp(how, PLAIN))
    hooks.warm = NULL;
  return manta_serve(line, &hooks, &err) < 0;
}

int main(int argc, char **line)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(workers_are_forked_by_the_program),
      cmocka_unit_test(a_prestarted_program_outlives_its_trainers),
      cmocka_unit_test(a_warm_successor_takes_over),
      cmocka_unit_test(a_failed_warm_up_changes_nothing),
      cmocka_unit_test(a_prestarted_host_outlives_its_trainers),
      cmocka_unit_test(a_host_that_cannot_be_prestarted_is_an_error_of_the_run),
      cmocka_unit_test(a_failure_may_say_more_than_its_message),
      cmocka_unit_test(a_refusal_is_not_tried_again),
      cmocka_unit_test(a_run_can_be_a_mere_call),
      cmocka_unit_test(an_unborn_worker_can_be_ended),
      cmocka_unit_test(wrong_use_is_refused),
      cmocka_unit_test(a_variable_gives_its_value),
  };
  manta_error err = MANTA_ERROR_INIT;
  manta_register("probe", probe);
  manta_register("explain", explain);
  manta_register("refuse", refuse);
  if (manta_serving())
    return serve(argc, line);
  setenv("EMBED_BOTH", "driver", 1);
  if (manta_embed(argc, line, &err) < 0)
    return 1;
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
