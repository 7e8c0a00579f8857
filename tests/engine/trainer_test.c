/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers on engines that only this test knows: what a trainer wants of a host, it asks of the
 * table and of nothing else.
 *
 *   wrap   this host: a shell notes that it was here and becomes the agent
 *   far    another host, as bridges see it; "far:down" cannot be started
 */
#include <signal.h>

#include "../train/rig.h"
#include "engine/engine.h"
#include "sys/proc.h"
#include "sys/sock.h"

static int starts, hosts_started, ends;
static char note[] = "/tmp/manta-wrap-XXXXXX";

static manta_status take_text(struct manta__engine_host *h, const char *text, manta_error *err)
{
  h->target = manta__strdup(text);
  return h->target ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory");
}

static int count_end(pid_t pid, bool at_once)
{
  ends++;
  return manta__engine_end(pid, at_once);
}

// --- wrap ----------------------------------------------------------------------------------------

static manta_status wrap(const char *target, int *sock, pid_t *pid, manta_error *err)
{
  char script[700], *argv[] = {(char *)"sh", (char *)"-c", script, NULL};
  char *env[512] = {(char *)manta__role_env(MANTA__ROLE_AGENT)};
  int end[2];
  for (int i = 0; environ[i] && i < 510; i++)
    env[i + 1] = environ[i];
  snprintf(script, sizeof script, "echo %s >> %s; exec \"$MANTA_BIN\"", target, note);
  MANTA_TRY(manta__sock_pair(end, err));
  manta_status st = manta__proc_spawn(pid, "/bin/sh", argv, env, &end[1], 1, -1, err);
  close(end[1]);
  if (st < 0)
    close(end[0]);
  else
    *sock = end[0];
  return st;
}

static void wrap_start(struct manta__engine_start *const *s, size_t count)
{
  starts++;
  hosts_started += (int)count;
  for (size_t i = 0; i < count; i++)
    wrap(s[i]->host->target, &s[i]->sock, &s[i]->pid, &s[i]->why);
}

static const struct manta__engine wrap_engine = {
    .name = "wrap", .parse = take_text, .start_many = wrap_start, .end = count_end};

// --- far -----------------------------------------------------------------------------------------

static void far_start(struct manta__engine_start *const *s, size_t count)
{
  char command[600], timeout[32];
  starts++;
  hosts_started += (int)count;
  snprintf(command, sizeof command, "exec %s agent --stdio", getenv("MANTA_BIN"));
  for (size_t i = 0; i < count; i++) {
    char *argv[] = {(char *)"manta-bridge", s[i]->host->name, command, timeout, NULL};
    snprintf(timeout, sizeof timeout, "%.3f", s[i]->host->timeout_s);
    if (!strcmp(s[i]->host->target, "down"))
      manta_error_set(&s[i]->why, MANTA_EAGENT, "node %s is down", s[i]->host->name);
    else
      manta__engine_start_role(MANTA__ROLE_BRIDGE, argv, &s[i]->sock, &s[i]->pid, &s[i]->why);
  }
}

static const struct manta__engine far_engine = {
    .name = "far", .remote = true, .parse = take_text, .start_many = far_start, .end = count_end};

// -------------------------------------------------------------------------------------------------

static int forget(void **state)
{
  starts = hosts_started = ends = 0;
  return truncate(note, 0);
}

static void a_run_goes_through_a_wrapper(void **state)
{
  struct rig r;
  char text[64] = "";
  manta_host host = {.name = "w", .command = "wrap:was-here"};
  rig_init(&r, 3);
  r.cfg.hosts = &host;
  r.cfg.host_count = 1;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 40), MANTA_KV_STR("fault", "kill"),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 20));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(r.last, 40);
  assert_int_equal(board->fired, 1);
  rig_fini(&r);
  int fd = open(note, O_RDONLY | O_CLOEXEC);
  assert_true(read(fd, text, sizeof text - 1) > 0);
  close(fd);
  assert_string_equal(text, "was-here\n");
  assert_true(starts == 1 && hosts_started == 1 && ends == 1);
  assert_nothing_left();
}

static void hosts_of_one_engine_start_together(void **state)
{
  struct rig r;
  manta_host hosts[] = {{.name = "here", .slots = 1},
                        {.name = "n1", .command = "far:1", .slots = 2},
                        {.name = "n2", .command = "far:2", .slots = 1}};
  rig_init(&r, 4);
  r.cfg.hosts = hosts;
  r.cfg.host_count = 3;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 30));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(r.last, 30);
  assert_int_equal(r.results.count, 4);
  assert_true(starts == 1 && hosts_started == 2);
  rig_fini(&r);
  assert_int_equal(ends, 2);
  assert_nothing_left();
}

static void *stop_the_bridge(void *arg)
{
  pid_t *bridge = arg;
  if (within(20, board->at[1] > 10 && (*bridge = child_named(getpid(), "manta-bridge")) > 0))
    board->fired += manta__proc_signal(*bridge, SIGSTOP) == 0;
  return NULL;
}

// That silence is a loss, a remote engine's table says, and nothing else.
static void a_silent_host_is_started_again(void **state)
{
  struct rig r;
  pthread_t thread;
  pid_t bridge = 0;
  manta_host hosts[] = {{.name = "here", .slots = 1}, {.name = "n1", .command = "far:1"}};
  rig_init(&r, 2);
  r.cfg.hosts = hosts;
  r.cfg.host_count = 2;
  r.cfg.host_timeout_s = 1.5;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 300), MANTA_KV_INT("pause_us", 1000));
  pthread_create(&thread, NULL, stop_the_bridge, &bridge);
  manta_status st = rig_run(&r, &c);
  pthread_join(thread, NULL);
  assert_ok(st, &r.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(r.last, 300);
  assert_true(starts >= 2);
  assert_logged(&r, "host n1 was lost: silent for");
  rig_fini(&r);
  assert_int_equal(ends, hosts_started);
  assert_nothing_left();
}

static void a_host_that_is_down_is_told(void **state)
{
  struct rig r;
  manta_host hosts[] = {{.name = "n1", .command = "far:1"},
                        {.name = "n2", .command = "far:down"},
                        {.name = "n3", .command = "far:3"}};
  rig_init(&r, 3);
  r.cfg.hosts = hosts;
  r.cfg.host_count = 3;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 5));
  assert_status(rig_run(&r, &c), MANTA_EAGENT);
  assert_has(r.err.message, "node n2 is down");
  rig_fini(&r);
  assert_int_equal(ends, 2); // the others had been started, and were let go
  assert_nothing_left();
}

static void the_same_host_twice_is_refused(void **state)
{
  struct rig r;
  manta_host hosts[] = {{.name = "a", .command = "wrap:1"}, {.name = "b", .command = "wrap:2"}};
  rig_init(&r, 2);
  r.cfg.hosts = hosts;
  r.cfg.host_count = 2;
  manta_trainer *t;
  assert_status(manta_trainer_create(&t, &r.cfg, &r.err), MANTA_EINVAL);
  assert_has(r.err.message, "hosts[1] is the same as hosts[0]"); // it is not remote
  rig_fini(&r);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, forget, rig_teardown)

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  if (manta__engine_add(&wrap_engine, NULL) < 0 || manta__engine_add(&far_engine, NULL) < 0)
    return 1;
  board_open();
  int fd = mkstemp(note);
  const struct CMUnitTest tests[] = {
      TEST(a_run_goes_through_a_wrapper),   TEST(hosts_of_one_engine_start_together),
      TEST(a_silent_host_is_started_again), TEST(a_host_that_is_down_is_told),
      TEST(the_same_host_twice_is_refused),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  int failed = cmocka_run_group_tests_name("engine_trainer", tests, NULL, NULL);
  board_close();
  close(fd);
  unlink(note);
  return failed;
}
