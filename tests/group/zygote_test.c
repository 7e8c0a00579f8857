/* SPDX-License-Identifier: Apache-2.0
 *
 * Zygote and workers, with the test as their agent. The zygote is this program started anew, as the
 * agent does it; in that role manta_init never returns.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/orphans.h"
#include "base/clock.h"
#include "group/proto.h"
#include "group/zygote.h"
#include "sys/lifeline.h"
#include "sys/proc.h"
#include "sys/robust.h"
#include "sys/shm.h"
#include "sys/sock.h"
#include "test.h"

#define WAIT_S 10.0

extern char **environ;

// --- what runs in the workers -------------------------------------------------------------------

static manta_status echo(manta_session *s, manta_value *result, manta_error *err)
{
  char cwd[256];
  manta_value row = MANTA_MAP(MANTA_KV_INT("x", 5));
  printf("rank %d of %d\n", manta_session_rank(s), manta_session_world_size(s)); // not flushed
  if (!getcwd(cwd, sizeof cwd) || manta_session_report(s, &row, err) < 0 ||
      manta_value_set_map(result) < 0 ||
      manta_value_put_string(result, "env", getenv("ZYGOTE_TEST") ? getenv("ZYGOTE_TEST") : "") ||
      manta_value_put_string(result, "RANK", getenv("RANK")) < 0 ||
      manta_value_put_string(result, "cwd", cwd) < 0 ||
      manta_value_put_int(result, "sid_is_pid", getsid(0) == getpid()) < 0 ||
      manta_value_put_int(result, "threads", manta__proc_threads()) < 0)
    return MANTA_ENOMEM;
  return MANTA_OK;
}
MANTA_TRAIN("echo", echo)

static manta_status give_up(manta_session *s, manta_value *result, manta_error *err)
{
  return manta_error_set(err, MANTA_EUSER, "it did not work out");
}
MANTA_TRAIN("fail", give_up)

static manta_status hang(manta_session *s, manta_value *result, manta_error *err)
{
  printf("a line and a half\nhalf");
  for (;;)
    pause();
  return MANTA_OK;
}
MANTA_TRAIN("hang", hang)

static manta_status quit(manta_session *s, manta_value *result, manta_error *err)
{
  printf("last words\n");
  _exit(42);
}
MANTA_TRAIN("quit", quit)

/* Leaves a process in a session of its own that never calls exec; says its number. */
static manta_status daemonize(manta_session *s, manta_value *result, manta_error *err)
{
  int p[2];
  pid_t pid = 0;
  if (pipe(p) < 0)
    return MANTA_EIO;
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      pid = getpid();
      if (write(p[1], &pid, sizeof pid) == sizeof pid)
        alarm(60);
      for (;;)
        pause();
    }
    _exit(0);
  }
  wait(NULL);
  if (read(p[0], &pid, sizeof pid) != sizeof pid)
    return MANTA_EIO;
  *result = manta_value_int(pid);
  return MANTA_OK;
}
MANTA_TRAIN("daemonize", daemonize)

/* As a library may do before main: workers must not be forked from such a program. */
static void *idle(void *p)
{
  for (;;)
    pause();
  return p;
}

__attribute__((constructor)) static void start_a_thread(void)
{
  pthread_t t;
  if (getenv("ZYGOTE_TEST_THREAD"))
    pthread_create(&t, NULL, idle, NULL);
}

static void sleep_a_while(void)
{
  usleep(300000);
}

// --- the test as agent --------------------------------------------------------------------------

struct zygote {
  pid_t pid;
  int lifeline;
  manta__conn *conn;
};

struct worker {
  pid_t pid;
  int pidfd, lifeline, output, ring_fd, wake, threads;
  manta__conn *conn;
};

static void zygote_start(struct zygote *z, const char *extra)
{
  manta_error err = MANTA_ERROR_INIT;
  char *env[512], *argv[] = {"zygote-test", NULL};
  int sock[2], life[2], n = 0;
  for (; environ[n] && n < 500; n++)
    env[n] = environ[n];
  env[n++] = (char *)manta__role_env(MANTA__ROLE_ZYGOTE);
  env[n++] = MANTA__MARK_ENV "=" MANTA__MARK_ROOM;
  env[n++] = (char *)extra;
  env[n] = NULL;
  assert_ok(manta__sock_pair(sock, &err), &err);
  assert_ok(manta__lifeline_create(life, &err), &err);
  int fds[] = {sock[1], life[1]};
  assert_ok(manta__proc_spawn(&z->pid, "/proc/self/exe", argv, env, fds, 2, -1, &err), &err);
  close(sock[1]);
  close(life[1]);
  z->lifeline = life[0];
  assert_ok(manta__conn_create(&z->conn, sock[0], manta__proto_end(MANTA__AGENT_TO_ZYGOTE), &err),
            &err);
}

static void receive(manta__conn *c, struct manta__msg *m, uint16_t kind)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__conn_wait(c, manta__deadline(WAIT_S), m, &err), &err);
  assert_int_equal(m->kind, kind);
}

static int reap(pid_t pid)
{
  int status = -1;
  int64_t by = manta__deadline(WAIT_S);
  while (waitpid(pid, &status, WNOHANG) == 0) {
    assert_true(manta__now() < by);
    usleep(500);
  }
  return status;
}

static void zygote_end(struct zygote *z)
{
  close(z->lifeline);
  int status = reap(z->pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  manta__conn_destroy(z->conn);
}

static void worker_start(struct worker *w, struct zygote *z, int64_t wid)
{
  manta_error err = MANTA_ERROR_INIT;
  int sock[2], life[2], out[2];
  assert_ok(manta__sock_pair(sock, &err), &err);
  assert_ok(manta__lifeline_create(life, &err), &err);
  assert_int_equal(pipe2(out, O_CLOEXEC), 0);
  assert_ok(manta__ring_create(&w->ring_fd, &err), &err);
  w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  w->lifeline = life[0];
  w->output = out[0];
  assert_ok(manta__conn_create(&w->conn, sock[0], manta__proto_end(MANTA__AGENT_TO_WORKER), &err),
            &err);
  struct manta__fork_msg f = {wid};
  struct manta__msg m = {.kind = MANTA__M_FORK,
                         .data = &f,
                         .len = sizeof f,
                         .fd = {sock[1], life[1], out[1], out[1], w->ring_fd, w->wake},
                         .fds = MANTA__W_FDS};
  assert_ok(manta__conn_send(z->conn, &m, &err), &err);
  close(sock[1]);
  close(life[1]);
  close(out[1]);
  struct manta__forked_msg forked;
  receive(z->conn, &m, MANTA__M_FORKED);
  assert_int_equal(m.len, sizeof forked);
  memcpy(&forked, m.data, sizeof forked);
  assert_int_equal(forked.wid, wid);
  assert_int_equal(forked.error, 0);
  assert_true(forked.pid > 0);
  w->pid = forked.pid;
  w->threads = forked.threads;
  w->pidfd = manta__msg_take_fd(&m, 0);
  assert_true(w->pidfd >= 0);
}

static void worker_close(struct worker *w)
{
  manta__conn_destroy(w->conn);
  manta__fd_close(&w->pidfd);
  manta__fd_close(&w->lifeline);
  manta__fd_close(&w->output);
  manta__fd_close(&w->ring_fd);
  manta__fd_close(&w->wake);
}

/* Sends a job for `fn` to rank `rank`; the control segment it shares is mapped for the test. */
static void send_job(struct worker *w, const char *fn, int rank, int world, struct manta__ctl **ctl)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value env[] = {manta_value_borrow_string("ZYGOTE_TEST=of this run"),
                       manta_value_borrow_string("PATH=/bin"), manta_value_borrow_string("=odd"),
                       manta_value_borrow_string("odd")};
  manta_value list = {.type = MANTA_LIST, .count = 4, .u.items = env};
  manta_value spec =
      MANTA_MAP(MANTA_KV_STR("fn", fn), MANTA_KV("env", list), MANTA_KV_STR("cwd", "/"));
  void *packed, *p;
  size_t n, bytes;
  int ctl_fd, job_fd;
  assert_ok(manta__ctl_create(&ctl_fd, 99, 4, world, "here", &err), &err);
  assert_ok(manta_value_pack(&spec, &packed, &n, &err), &err);
  struct manta__job_head before = {.spec = n};
  assert_ok(manta__shm_create("job", sizeof before + n, &job_fd, &err), &err);
  assert_ok(manta__shm_map(job_fd, &p, &bytes, &err), &err);
  memcpy(p, &before, sizeof before);
  memcpy((char *)p + sizeof before, packed, n);
  manta__shm_unmap(p, bytes);
  manta_free(packed);
  manta_value head = MANTA__PACK(job_msg, .world = world, .local_rank = rank, .local_world = world,
                                 .mark = "12.34", .threads = 1, .host = "here");
  struct manta__msg m = {.kind = MANTA__M_JOB,
                         .id = {.run = 99, .attempt = 4, .rank = rank},
                         .fd = {ctl_fd, job_fd, ctl_fd}, // no job looks at its heap
                         .fds = 3};
  assert_ok(manta__conn_send_value(w->conn, &m, &head, &err), &err);
  assert_ok(manta__ctl_map(ctl, &bytes, ctl_fd, &err), &err);
  close(ctl_fd);
  close(job_fd);
}

static void ctl_unmap(struct manta__ctl *c)
{
  manta__shm_unmap(c, sizeof *c + c->cells * sizeof(struct manta__cell));
}

/* The DONE message; gives its value. */
static manta_status take_done(struct worker *w, manta_value *done)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m;
  receive(w->conn, &m, MANTA__M_DONE);
  assert_true(m.id.run == 99 && m.id.attempt == 4);
  assert_ok(manta__msg_value(&m, done, &err), &err);
  manta__msg_close(&m);
  return (manta_status)manta_value_as_int(manta_value_get(done, "status"), 1);
}

static void take_ready(struct worker *w)
{
  struct manta__msg m;
  receive(w->conn, &m, MANTA__M_READY);
  manta__msg_close(&m);
}

static char got[4096]; /* what expect_output read last */

/* Reads the worker's output until it contains `text`. */
static void expect_output(struct worker *w, const char *text)
{
  size_t n = 0;
  got[0] = 0;
  while (!strstr(got, text)) {
    struct pollfd f = {w->output, POLLIN, 0};
    assert_int_equal(poll(&f, 1, (int)(WAIT_S * 1000)), 1);
    ssize_t k = read(w->output, got + n, sizeof got - 1 - n);
    if (k <= 0)
      fail_msg("the output ended without \"%s\": \"%s\"", text, got);
    n += (size_t)k;
    got[n] = 0;
  }
}

static int exit_status(struct zygote *z, pid_t pid)
{
  struct manta__msg m;
  struct manta__exited_msg e;
  receive(z->conn, &m, MANTA__M_EXITED);
  assert_true(manta__msg_copy(&m, &e, sizeof e));
  assert_int_equal(e.pid, pid);
  return e.status;
}

static void ask_exit(struct worker *w)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = MANTA__M_EXIT};
  assert_ok(manta__conn_send(w->conn, &m, &err), &err);
}

static bool is_gone(const struct worker *w, double s)
{
  struct pollfd f = {w->pidfd, POLLIN, 0};
  return poll(&f, 1, (int)(s * 1000)) == 1;
}

// --- tests --------------------------------------------------------------------------------------

static void check_echo(struct worker *w, int rank, int world)
{
  struct manta__ctl *ctl;
  manta_value done = {0};
  manta_status st;
  char line[40];
  send_job(w, "echo", rank, world, &ctl);
  take_ready(w);
  assert_status(take_done(w, &done), MANTA_OK);
  const manta_value *r = manta_value_get(&done, "result");
  snprintf(line, sizeof line, "%d", rank);
  assert_string_equal(manta_value_as_string(manta_value_get(r, "env"), ""), "of this run");
  assert_string_equal(manta_value_as_string(manta_value_get(r, "RANK"), ""), line);
  assert_string_equal(manta_value_as_string(manta_value_get(r, "cwd"), ""), "/");
  assert_int_equal(manta_value_as_int(manta_value_get(r, "sid_is_pid"), 0), 1);
  snprintf(line, sizeof line, "rank %d of %d\n", rank, world);
  expect_output(w, line);
  struct manta__ring ring;
  assert_ok(manta__ring_open(&ring, dup(w->ring_fd), NULL), &(manta_error){0});
  const struct manta__ring_rec *rec = manta__ring_next(&ring, &st);
  assert_non_null(rec);
  assert_int_equal(rec->id.rank, rank);
  assert_int_equal(rec->iteration, 1);
  manta__ring_release(&ring);
  manta__ring_close(&ring);
  // Its life is not held any more: that was no death.
  assert_int_equal(manta__robust_hold(&ctl->cell[rank].life), 0);
  manta__robust_release(&ctl->cell[rank].life);
  ctl_unmap(ctl);
  manta_value_fini(&done);
}

static void a_worker_runs_jobs_and_ends_when_asked(void **ctx)
{
  struct zygote z;
  struct worker w[2];
  zygote_start(&z, NULL);
  for (int i = 0; i < 2; i++) {
    worker_start(&w[i], &z, 70 + i);
    assert_int_equal(w[i].threads, 1);
  }
  for (int round = 0; round < 3; round++) // the same process, job after job
    for (int i = 0; i < 2; i++)
      check_echo(&w[i], i, 2);
  for (int i = 0; i < 2; i++) {
    ask_exit(&w[i]);
    assert_int_equal(exit_status(&z, w[i].pid), 0);
    assert_true(is_gone(&w[i], WAIT_S));
    worker_close(&w[i]);
  }
  zygote_end(&z);
}

static void an_error_is_told_and_the_worker_goes_on(void **ctx)
{
  struct zygote z;
  struct worker w;
  struct manta__ctl *ctl;
  manta_value done = {0};
  zygote_start(&z, NULL);
  worker_start(&w, &z, 1);
  send_job(&w, "fail", 0, 1, &ctl);
  take_ready(&w);
  assert_status(take_done(&w, &done), MANTA_EUSER);
  assert_string_equal(manta_value_as_string(manta_value_get(&done, "message"), ""),
                      "it did not work out");
  ctl_unmap(ctl);
  send_job(&w, "no such function", 0, 1, &ctl);
  take_ready(&w);
  assert_status(take_done(&w, &done), MANTA_ENOENT);
  ctl_unmap(ctl);
  send_job(&w, "echo", 7, 2, &ctl); // no such rank
  assert_status(take_done(&w, &done), MANTA_EPROTO);
  ctl_unmap(ctl);
  manta_value_fini(&done);
  check_echo(&w, 0, 1);
  manta__proc_signal(w.pid, SIGKILL);
  assert_int_equal(exit_status(&z, w.pid), SIGKILL);
  worker_close(&w);
  zygote_end(&z);
}

static void exit_statuses_are_forwarded(void **ctx)
{
  struct zygote z;
  struct worker w;
  struct manta__ctl *ctl;
  zygote_start(&z, NULL);
  worker_start(&w, &z, 1);
  send_job(&w, "quit", 0, 1, &ctl);
  take_ready(&w);
  int status = exit_status(&z, w.pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
  expect_output(&w, "last words\n"); // line-buffered: _exit loses no whole line
  assert_int_equal(manta__robust_hold(&ctl->cell[0].life), 1);
  manta__robust_release(&ctl->cell[0].life); // else the next segment at its address is spoilt
  ctl_unmap(ctl);
  worker_close(&w);
  zygote_end(&z);
}

static void a_closed_lifeline_kills_a_worker(void **ctx)
{
  struct zygote z;
  struct worker w;
  struct manta__ctl *ctl;
  zygote_start(&z, NULL);
  worker_start(&w, &z, 1);
  send_job(&w, "hang", 0, 1, &ctl);
  take_ready(&w);
  expect_output(&w, "a line and a half\n");
  manta__fd_close(&w.lifeline);
  assert_true(is_gone(&w, WAIT_S));
  assert_int_equal(exit_status(&z, w.pid), SIGKILL);
  assert_int_equal(manta__robust_hold(&ctl->cell[0].life), 1);
  manta__robust_release(&ctl->cell[0].life); // else the next segment at its address is spoilt
  ctl_unmap(ctl);
  worker_close(&w);
  zygote_end(&z);
}

static void a_killed_zygote_leaves_its_workers_alive(void **ctx)
{
  struct zygote z;
  struct worker w;
  prctl(PR_SET_CHILD_SUBREAPER, 1); // as the agent is
  zygote_start(&z, NULL);
  worker_start(&w, &z, 1);
  manta__proc_signal(z.pid, SIGKILL);
  assert_int_equal(reap(z.pid), SIGKILL);
  assert_false(is_gone(&w, 0.02));
  check_echo(&w, 0, 1);
  ask_exit(&w);
  assert_int_equal(reap(w.pid), 0); // ours now
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  worker_close(&w);
  close(z.lifeline);
  manta__conn_destroy(z.conn);
}

// The agent ends the process group of a zygote that has gone: no worker may still be in it.
static void a_retired_zygote_waits_for_its_newborn(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct zygote z;
  struct worker w;
  siginfo_t dead;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  zygote_start(&z, "ZYGOTE_TEST_SLOW_BIRTH=1");
  worker_start(&w, &z, 1);
  assert_int_equal(getpgid(w.pid), z.pid); // it sleeps
  assert_ok(manta__conn_send(z.conn, &(struct manta__msg){.kind = MANTA__M_RETIRE}, &err), &err);
  assert_int_equal(waitid(P_PID, (id_t)z.pid, &dead, WEXITED | WNOWAIT), 0);
  manta__proc_signal_group(z.pid, SIGKILL);
  assert_int_equal(reap(z.pid), 0);
  check_echo(&w, 0, 1);
  ask_exit(&w);
  assert_int_equal(reap(w.pid), 0);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  worker_close(&w);
  close(z.lifeline);
  manta__conn_destroy(z.conn);
}

static void a_zygote_with_threads_starts_workers_by_exec(void **ctx)
{
  struct zygote z;
  struct worker w;
  struct manta__ctl *ctl;
  zygote_start(&z, "ZYGOTE_TEST_THREAD=1");
  worker_start(&w, &z, 1);
  assert_true(w.threads > 1);
  check_echo(&w, 1, 3);
  send_job(&w, "quit", 0, 1, &ctl);
  take_ready(&w);
  int status = exit_status(&z, w.pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
  ctl_unmap(ctl);
  worker_close(&w);
  worker_start(&w, &z, 2);
  manta__fd_close(&w.lifeline);
  assert_int_equal(exit_status(&z, w.pid), SIGKILL);
  worker_close(&w);
  zygote_end(&z);
}

static void a_daemon_of_a_worker_is_known_by_its_mark(void **ctx)
{
  struct zygote z;
  struct worker w;
  struct manta__ctl *ctl;
  manta_value done = {0};
  prctl(PR_SET_CHILD_SUBREAPER, 1); // as the agent is
  for (int threads = 0; threads < 2; threads++) {
    zygote_start(&z, threads ? "ZYGOTE_TEST_THREAD=1" : NULL);
    worker_start(&w, &z, 34);
    check_echo(&w, 0, 1); // the mark stays from job to job
    send_job(&w, "daemonize", 0, 1, &ctl);
    take_ready(&w);
    assert_status(take_done(&w, &done), MANTA_OK);
    pid_t pid = (pid_t)manta_value_as_int(manta_value_get(&done, "result"), 0);
    assert_true(pid > 0 && getsid(pid) != w.pid);
    assert_int_equal(manta__orphans_end(12, 35, w.pid), 0);
    assert_int_equal(manta__orphans_end(12, 34, w.pid), 1);
    assert_int_equal(reap(pid), SIGKILL);
    ctl_unmap(ctl);
    worker_close(&w);
    zygote_end(&z);
  }
  while (wait(NULL) > 0) // the workers: their lifelines are closed
    ;
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  manta_value_fini(&done);
}

static void an_agent_that_goes_takes_its_zygote_along(void **ctx)
{
  struct zygote z;
  zygote_start(&z, NULL);
  manta__conn_destroy(z.conn); // before its lifeline
  assert_int_equal(reap(z.pid), 0);
  close(z.lifeline);
}

// What was printed before manta_init is not said again by every worker.
static void output_before_the_fork_is_not_repeated(void **ctx)
{
  struct zygote z;
  struct worker w;
  zygote_start(&z, "ZYGOTE_TEST_TALK=1");
  worker_start(&w, &z, 1);
  check_echo(&w, 0, 1);
  assert_string_equal(got, "rank 0 of 1\n");
  manta__proc_signal(w.pid, SIGKILL);
  assert_int_equal(exit_status(&z, w.pid), SIGKILL);
  worker_close(&w);
  zygote_end(&z);
}

int main(int argc, char **argv)
{
  if (getenv("ZYGOTE_TEST_TALK"))
    printf("# before the fork");
  if (getenv("ZYGOTE_TEST_SLOW_BIRTH"))
    pthread_atfork(NULL, NULL, sleep_a_while);
  if (manta_init(&argc, &argv) < 0)
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_worker_runs_jobs_and_ends_when_asked),
      cmocka_unit_test(an_error_is_told_and_the_worker_goes_on),
      cmocka_unit_test(exit_statuses_are_forwarded),
      cmocka_unit_test(a_closed_lifeline_kills_a_worker),
      cmocka_unit_test(a_killed_zygote_leaves_its_workers_alive),
      cmocka_unit_test(a_retired_zygote_waits_for_its_newborn),
      cmocka_unit_test(a_zygote_with_threads_starts_workers_by_exec),
      cmocka_unit_test(a_daemon_of_a_worker_is_known_by_its_mark),
      cmocka_unit_test(an_agent_that_goes_takes_its_zygote_along),
      cmocka_unit_test(output_before_the_fork_is_not_repeated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
