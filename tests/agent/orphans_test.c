/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker leaves behind is ended, however it hid; what is not its own stays.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/orphans.h"
#include "base/clock.h"
#include "sys/oom.h"
#include "sys/proc.h"
#include "test.h"

#define AGENT 4711 /* whatever the agent's number is: it is part of the mark */

/* Where a process of the test says its number, and what is to be seen of it later. */
static int said[2];

static void say_and_stay(void)
{
  pid_t me = getpid();
  signal(SIGHUP, SIG_IGN);
  if (write(said[1], &me, sizeof me) != sizeof me)
    _exit(1);
  alarm(60); // whatever goes wrong, nobody stays for ever
  for (;;)
    pause();
}

/* Becomes another program that carries the mark and does the same. */
static void exec_marked(const char *mark)
{
  char fd[12], env[80];
  snprintf(fd, sizeof fd, "%d", said[1]);
  snprintf(env, sizeof env, "MANTA_WORKER=%s", mark);
  char *argv[] = {"orphan", fd, NULL}, *envp[] = {"A=b", env, "C=d", NULL};
  execve("/proc/self/exe", argv, envp);
  _exit(127);
}

static pid_t heard(void)
{
  pid_t pid = 0;
  struct pollfd f = {said[0], POLLIN, 0};
  assert_int_equal(poll(&f, 1, 10000), 1);
  assert_int_equal(read(said[0], &pid, sizeof pid), sizeof pid);
  return pid;
}

enum hiding { IN_SESSION, IN_GROUP_OF_ITS_OWN, DAEMON, DAEMON_WITH_CHILD };

/* A worker (a session of its own) that starts one process in this way and ends. Gives that process,
 * which is now ours, and the worker's session. */
static pid_t left_behind(enum hiding how, const char *mark, pid_t *sid)
{
  *sid = fork();
  assert_true(*sid >= 0);
  if (*sid == 0) {
    setsid();
    if (fork() == 0) {
      if (how == IN_GROUP_OF_ITS_OWN)
        setpgid(0, 0);
      if (how >= DAEMON && (setsid() < 0 || fork() != 0))
        _exit(0);
      if (how == DAEMON_WITH_CHILD && fork() == 0) {
        setsid();
        say_and_stay();
      }
      if (mark)
        exec_marked(mark);
      say_and_stay();
    }
    if (how >= DAEMON)
      wait(NULL);
    _exit(0);
  }
  pid_t pid = heard();
  assert_int_equal(waitpid(*sid, NULL, 0), *sid);
  return pid; // a parent that can be reaped has given its children away
}

static void assert_killed(pid_t pid)
{
  int status = -1;
  int64_t by = manta__deadline(5);
  pid_t rc;
  while ((rc = waitpid(pid, &status, WNOHANG)) == 0 && manta__now() < by)
    usleep(200);
  assert_int_equal(rc, pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void assert_alive_then_end(pid_t pid)
{
  assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
  manta__proc_signal(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void the_mark_says_agent_and_worker(void **ctx)
{
  char mark[48];
  manta__orphans_mark(mark, sizeof mark, 12, 345);
  assert_string_equal(mark, "12.345");
}

static void who_stays_in_the_session_is_ended(void **ctx)
{
  for (int how = IN_SESSION; how <= IN_GROUP_OF_ITS_OWN; how++) {
    pid_t sid, pid = left_behind((enum hiding)how, NULL, &sid);
    assert_int_equal(manta__orphans_end(AGENT, 7, sid), 1);
    assert_killed(pid);
    assert_int_equal(manta__orphans_end(AGENT, 7, sid), 0);
  }
}

static void a_daemon_with_the_mark_is_ended(void **ctx)
{
  pid_t sid, pid = left_behind(DAEMON, "4711.7", &sid);
  assert_true(getsid(pid) != sid); // it hid well
  assert_int_equal(manta__orphans_end(AGENT, 7, sid), 1);
  assert_killed(pid);
}

// Its child has no mark and a session of its own, and is not yet ours when the daemon is killed.
static void the_children_of_a_daemon_are_ended(void **ctx)
{
  pid_t sid, pid[2] = {left_behind(DAEMON_WITH_CHILD, "4711.7", &sid), heard()};
  assert_int_equal(manta__orphans_end(AGENT, 7, sid), 2);
  for (int i = 0; i < 2; i++) {
    int64_t by = manta__deadline(5);
    while (manta__proc_signal(pid[i], 0) == 0 && manta__now() < by)
      if (waitpid(-1, NULL, WNOHANG) <= 0)
        usleep(200);
    assert_int_equal(manta__proc_signal(pid[i], 0), -1);
    assert_int_equal(errno, ESRCH);
  }
}

static void others_are_left_alone(void **ctx)
{
  static const char *marks[] = {"4711.77", "4711.", "4711", "471.7", "14711.7", "4712.7", ""};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    pid_t sid, pid = left_behind(DAEMON, marks[i], &sid);
    assert_int_equal(manta__orphans_end(AGENT, 7, sid), 0);
    assert_alive_then_end(pid);
  }
  pid_t sid, pid = left_behind(IN_SESSION, NULL, &sid);
  assert_int_equal(manta__orphans_end(AGENT, 7, 1), 0);
  assert_alive_then_end(pid);
  assert_int_equal(manta__orphans_end(AGENT, 7, getsid(0)), 0); // no children at all
}

static void many_are_ended_at_once(void **ctx)
{
  pid_t all[20], sid = 0;
  for (int i = 0; i < 20; i++)
    all[i] = left_behind(DAEMON, i % 2 ? "4711.7" : "4711.8", &sid);
  assert_int_equal(manta__orphans_end(AGENT, 7, sid), 10);
  for (int i = 0; i < 20; i++)
    if (i % 2)
      assert_killed(all[i]);
    else
      assert_alive_then_end(all[i]);
}

static void an_oom_kill_is_news_once(void **ctx)
{
  uint64_t seen = 0;
  manta__oom_happened(&seen); // whatever happened before
  assert_false(manta__oom_happened(&seen));
}

int main(int argc, char **argv)
{
  if (argc == 2 && !strcmp(argv[0], "orphan")) {
    said[1] = (int)strtol(argv[1], NULL, 10);
    say_and_stay();
  }
  if (pipe(said) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_mark_says_agent_and_worker),
      cmocka_unit_test(who_stays_in_the_session_is_ended),
      cmocka_unit_test(a_daemon_with_the_mark_is_ended),
      cmocka_unit_test(the_children_of_a_daemon_are_ended),
      cmocka_unit_test(others_are_left_alone),
      cmocka_unit_test(many_are_ended_at_once),
      cmocka_unit_test(an_oom_kill_is_news_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
