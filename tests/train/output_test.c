/* SPDX-License-Identifier: Apache-2.0
 *
 * What workers print: where it goes, and that its end is not lost.
 */
#include "rig.h"
#include "sys/proc.h"

struct ears {
  char text[2][65536];
  size_t len[2];
};

static void on_write(void *ctx, int stream, const char *text, size_t len)
{
  struct ears *e = ctx;
  size_t *n = &e->len[stream - 1];
  if (len > sizeof e->text[0] - 1 - *n)
    len = sizeof e->text[0] - 1 - *n;
  memcpy(e->text[stream - 1] + *n, text, len);
  *n += len;
}

static manta_status talk(manta_session *s, manta_value *result, manta_error *err)
{
  const char *end = manta_session_config_string(s, "end", "");
  printf("to stdout\n");
  fprintf(stderr, "to stderr\n");
  for (int i = 0; i <= 1000; i++) {
    printf("\r%d of 1000", i);
    fflush(stdout);
    fprintf(stderr, "\r%d in all", i);
  }
  fprintf(stderr, "\n");
  printf("\nlast of stdout");
  fflush(stdout);
  fprintf(stderr, "last of stderr");
  if (!strcmp(end, "kill"))
    manta__proc_signal(getpid(), SIGKILL);
  if (!strcmp(end, "exit"))
    _exit(3);
  if (!strcmp(end, "abort"))
    abort();
  return MANTA_OK;
}

static char *read_log(const struct rig *r, int rank)
{
  static char text[65536];
  char path[1024];
  snprintf(path, sizeof path, "%s/logs/rank-%d.log", manta_trainer_run_dir(r->t), rank);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  assert_true(n >= 0);
  close(fd);
  text[n] = 0;
  return text;
}

static void check_log(const char *log)
{
  const char *bar = strstr(log, "1000 of 1000\n");
  assert_has(log, "to stdout\n");
  assert_has(log, "to stderr\n");
  assert_has(log, "last of stdout\n");
  assert_has(log, "last of stderr"); // the trace of a crash may follow
  assert_true(bar && strstr(log, "to stdout\n") < bar && bar < strstr(log, "last of stdout\n"));
  assert_null(strchr(log, '\r')); // of a thousand states the last
  assert_null(strstr(log, "999"));
}

static void streams_and_last_lines(void **state)
{
  static const char *const ends[] = {"", "kill", "exit", "abort"};
  for (int k = 0; k < 4; k++) {
    struct rig r;
    struct ears e = {0};
    manta_display d = {.ctx = &e, .write = on_write};
    rig_init(&r, 2);
    r.cfg.callbacks = NULL;
    r.cfg.callback_count = 0;
    r.cfg.quiet = false;
    r.cfg.max_retries = -2;
    rig_make(&r);
    manta_value c = MANTA_MAP(MANTA_KV_STR("end", ends[k]));
    r.rc.config = &c;
    r.rc.display = &d;
    manta_status st = manta_trainer_run(r.t, talk, &r.rc, &r.results, &r.err);
    assert_int_equal(st, k ? MANTA_EWORKER : MANTA_OK);
    assert_string_equal(e.text[0],
                        "(rank 0) to stdout\n(rank 0) 1000 of 1000\n(rank 0) last of stdout\n");
    assert_has(e.text[1], "(rank 0) to stderr\n(rank 0) 1000 in all\n(rank 0) last of stderr");
    for (int rank = 0; rank < (k ? 1 : 2); rank++)
      check_log(read_log(&r, rank));
    rig_fini(&r);
  }
  assert_nothing_left();
}

static void all_ranks_are_shown_on_request(void **state)
{
  struct rig r;
  struct ears e = {0};
  manta_display d = {
      .ctx = &e, .write = on_write, .kind = {MANTA_DISPLAY_PLAIN, MANTA_DISPLAY_LINE}};
  rig_init(&r, 2);
  r.cfg.callbacks = NULL;
  r.cfg.callback_count = 0;
  r.cfg.quiet = false;
  r.cfg.show_all_output = true;
  rig_make(&r);
  r.rc.display = &d;
  assert_ok(manta_trainer_run(r.t, talk, &r.rc, NULL, &r.err), &r.err);
  for (int rank = 0; rank < 2; rank++) {
    char want[64];
    snprintf(want, sizeof want, "(rank %d) last of stdout\n", rank);
    assert_has(e.text[0], want);
    snprintf(want, sizeof want, "(rank %d) last of stderr\n", rank);
    assert_has(e.text[1], want);
  }
  rig_fini(&r);
}

// Rank 1 never stops printing; rank 0 goes on as if nothing were, and ends the run.
static manta_status shout(manta_session *s, manta_value *result, manta_error *err)
{
  static char line[512];
  if (!board)
    board_open();
  memset(line, 'x', sizeof line - 1);
  line[sizeof line - 1] = '\n';
  while (manta_session_rank(s) == 1)
    if (write(1 + (board->fired++ & 1), line, sizeof line) < 0)
      return manta_error_set(err, MANTA_EIO, "write: %m");
  for (int i = 0; i < 200; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("i", i));
    MANTA_TRY(manta_session_report(s, &row, err));
    usleep(1000);
  }
  return manta_error_set(err, MANTA_EUSER, "enough");
}

static void a_flood_starves_nobody(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.callbacks = NULL;
  r.cfg.callback_count = 0;
  r.cfg.log_limit = 1 << 20;
  r.cfg.max_retries = -2;
  rig_make(&r);
  manta_status st = manta_trainer_run(r.t, shout, &r.rc, NULL, &r.err);
  if (st != MANTA_EUSER)
    fail_msg("%s", r.err.message);
  assert_true(board->fired > 1000); // it did print
  rig_fini(&r);
  assert_nothing_left();
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(streams_and_last_lines),
      rig_test(all_ranks_are_shown_on_request),
      rig_test(a_flood_starves_nobody),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
