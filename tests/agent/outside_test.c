/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes from outside, over the agent's named socket or over a bridge, and does not keep to the
 * protocol: it is refused with an error, and nobody else is harmed.
 */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "group/proto.h"
#include "scratch.h"
#include "sys/sock.h"
#include "wire/stream.h"

#define WAIT_S 20.0

static char *results;

static manta_status nothing(manta_session *s, manta_value *result, manta_error *err)
{
  return MANTA_OK;
}
MANTA_TRAIN("nothing", nothing)

static manta_trainer *make(const manta_host *host)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t = NULL;
  c.workers = 1;
  c.quiet = true;
  c.logdir = results;
  c.hosts = host;
  c.host_count = host ? 1 : 0;
  assert_ok(manta_trainer_create(&t, &c, &err), &err);
  return t;
}

// --- the named socket ----------------------------------------------------------------------------

static int knock(void)
{
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  char pattern[512];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%s/manta/agent-*.sock", results);
  assert_int_equal(glob(pattern, 0, NULL, &found), 0);
  assert_int_equal(found.gl_pathc, 1);
  snprintf(to.sun_path, sizeof to.sun_path, "%s", found.gl_pathv[0]);
  globfree(&found);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

static manta__conn *visit(void)
{
  manta__conn *c;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__conn_create(&c, knock(), NULL, &err), &err);
  return c;
}

static void turned_away(const struct manta__msg *m, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg reply;
  manta__conn *c = visit();
  assert_ok(v ? manta__conn_send_value(c, m, v, &err) : manta__conn_send(c, m, &err), &err);
  assert_status(manta__conn_wait(c, manta__deadline(WAIT_S), &reply, &err), MANTA_ECLOSED);
  manta__conn_destroy(c);
}

static void ask_ps(struct manta__ask_reply *out, manta_value *hold)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg reply;
  manta__conn *c = visit();
  manta_value v = MANTA__PACK(ask_msg, .what = "ps");
  struct manta__msg m = {.kind = MANTA__M_ASK, .call = 7};
  assert_ok(manta__conn_send_value(c, &m, &v, &err), &err);
  assert_int_equal(manta__conn_wait(c, manta__deadline(WAIT_S), &reply, &err), 1);
  assert_int_equal(reply.call, 7);
  assert_ok(manta__ask_reply_unpack(&reply, hold, out, &err), &err);
  manta__conn_destroy(c);
}

static void strangers_at_the_door_are_turned_away(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ask_reply out;
  struct manta__ps_run run;
  manta_value hold = {0};
  manta_trainer *t = make(NULL);
  assert_ok(manta_trainer_start(t, &err), &err);
  int fd = knock();
  char c;
  assert_int_equal(write(fd, "GET / HTTP/1.1\r\n\r\n", 18), 18);
  assert_int_equal(read(fd, &c, 1), 0);
  close(fd);
  manta_value none = {0}, wrong = MANTA_MAP(MANTA_KV_INT("what", 1));
  manta_value kill = MANTA__PACK(kill_msg, .wids = &(manta_value){.type = MANTA_LIST}, .cause = "");
  turned_away(&(struct manta__msg){.kind = MANTA__M_ASK, .call = 1}, &none);
  turned_away(&(struct manta__msg){.kind = MANTA__M_ASK, .call = 1}, &wrong);
  turned_away(&(struct manta__msg){.kind = MANTA__M_KILL}, &kill);
  turned_away(&(struct manta__msg){.kind = MANTA__M_DISBAND}, NULL);
  turned_away(&(struct manta__msg){.kind = 9999}, NULL);
  ask_ps(&out, &hold);
  assert_int_equal(out.driver, getpid());
  assert_int_equal(out.runs->count, 1);
  assert_ok(manta__proto_read(MANTA__MAP_ps_run, manta_value_at(out.runs, 0), &run, &err), &err);
  assert_int_equal(run.workers->count, 1);
  manta_value_fini(&hold);
  manta_trainer_destroy(t);
}

// --- a far half that lies ------------------------------------------------------------------------

static const struct lie {
  const char *name, *why;
} lies[] = {
    {"missing", "WORKER: key \"seat\" is missing"},
    {"unknown", "NOROOM: key \"massage\" is not in the table"},
    {"struct", "WRITE with"},
    {"rows", "ROWS with"},
    {"way", "NOTICE does not go that way"},
};

// Takes the first two messages as a far half would, and says something else.
static int lie(const char *name)
{
  manta__stream *s;
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  manta_value worker = MANTA_MAP(MANTA_KV_INT("wid", 1));
  manta_value noroom = MANTA_MAP(MANTA_KV_INT("status", -1), MANTA_KV_STR("massage", "no"));
  int heard = 0, rc = 0;
  if (manta__stream_create(&s, dup(STDIN_FILENO), dup(STDOUT_FILENO), NULL, &err) < 0)
    return 1;
  while (heard < 2 && (rc = manta__stream_recv(s, &m, NULL, &err)) >= 0) {
    heard += rc;
    if (rc == 1)
      manta__msg_close(&m);
    else
      usleep(1000);
  }
  m = (struct manta__msg){.data = "12345", .len = 5};
  m.kind = !strcmp(name, "struct") ? MANTA__M_WRITE : MANTA__M_ROWS;
  if (!strcmp(name, "missing"))
    manta__stream_send_value(s, &(struct manta__msg){.kind = MANTA__M_WORKER}, 0, &worker, &err);
  else if (!strcmp(name, "unknown"))
    manta__stream_send_value(s, &(struct manta__msg){.kind = MANTA__M_NOROOM}, 0, &noroom, &err);
  else if (!strcmp(name, "way"))
    manta__stream_send(s, &(struct manta__msg){.kind = MANTA__M_NOTICE}, 0, &err);
  else
    manta__stream_send(s, &m, 0, &err);
  while (manta__stream_recv(s, &m, NULL, &err) >= 0) // until it is closed
    usleep(1000);
  manta__stream_destroy(s);
  return 0;
}

static void a_host_that_lies_is_refused(void **state)
{
  char self[4096] = "", command[4200];
  assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    manta_error err = MANTA_ERROR_INIT;
    snprintf(command, sizeof command, "exec %s --lie %s", self, lies[i].name);
    manta_host host = {.name = "liar", .command = command};
    manta_trainer *t = make(&host);
    assert_status(manta_trainer_run(t, nothing, NULL, NULL, &err), MANTA_EPROTO);
    assert_has(err.message, "host liar cannot be used");
    assert_has(err.message, lies[i].why);
    manta_trainer_destroy(t);
  }
}

// --- a near half that lies -----------------------------------------------------------------------

struct far {
  manta__stream *stream;
  pid_t pid;
};

static struct far start_far(void)
{
  struct far f;
  int io[2];
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__sock_pair(io, &err), &err);
  f.pid = fork();
  if (f.pid == 0) {
    dup2(io[1], STDIN_FILENO);
    dup2(io[1], STDOUT_FILENO);
    execl(getenv("MANTA_BIN"), "manta", "agent", "--stdio", (char *)NULL);
    _exit(127);
  }
  close(io[1]);
  assert_ok(manta__stream_create(&f.stream, io[0], io[0], NULL, &err), &err);
  manta_value v = MANTA__PACK(open_msg, .version = manta_version(),
                              .protocol = MANTA__PROTO_VERSION, .timeout = 60);
  assert_ok(
      manta__stream_send_value(f.stream, &(struct manta__msg){.kind = MANTA__M_OPEN}, 0, &v, &err),
      &err);
  return f;
}

// What it says last, which is REFUSED; then it ends.
static void expect_refusal(struct far *f, const char *why)
{
  struct manta__msg m = {0};
  struct manta__refused_msg in;
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  int64_t by = manta__deadline(WAIT_S);
  int rc = 0;
  for (; m.kind != MANTA__M_REFUSED && rc >= 0 && manta__now() < by;) {
    if ((rc = manta__stream_recv(f->stream, &m, NULL, &err)) == 0)
      usleep(1000);
  }
  assert_int_equal(m.kind, MANTA__M_REFUSED);
  assert_ok(manta__refused_msg_unpack(&m, &v, &in, &err), &err);
  assert_int_equal(in.status, MANTA_EPROTO);
  assert_has(in.message, why);
  manta_value_fini(&v);
  manta__stream_destroy(f->stream);
  assert_int_equal(waitpid(f->pid, NULL, 0), f->pid);
}

static void a_driver_that_lies_is_refused(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = MANTA_MAP(MANTA_KV_INT("wids", 3), MANTA_KV_STR("cause", "why not"));
  struct far f = start_far();
  struct manta__msg m = {.kind = MANTA__M_KILL};
  assert_ok(manta__stream_send_value(f.stream, &m, 0, &v, &err), &err);
  expect_refusal(&f, "KILL: key \"wids\" is not a list of integers");
  f = start_far();
  m.kind = MANTA__M_ATTEMPT;
  assert_ok(manta__stream_send_value(f.stream, &m, 0, &v, &err), &err);
  expect_refusal(&f, "ATTEMPT with 0 descriptors");
  f = start_far();
  m.kind = MANTA__M_GONE;
  assert_ok(manta__stream_send_value(f.stream, &m, 0, &v, &err), &err);
  expect_refusal(&f, "GONE does not go that way");
}

static int set_up(void **state)
{
  results = scratch_make();
  return setenv("XDG_RUNTIME_DIR", results, 1); // sockets of our own
}

static int tear_down(void **state)
{
  scratch_remove(results);
  return 0;
}

int main(int argc, char **argv)
{
  if (argc == 3 && !strcmp(argv[1], "--lie"))
    return lie(argv[2]);
  if (manta_init(&argc, &argv) < 0)
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(strangers_at_the_door_are_turned_away),
      cmocka_unit_test(a_host_that_lies_is_refused),
      cmocka_unit_test(a_driver_that_lies_is_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
