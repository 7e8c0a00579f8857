/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

struct heard {
  int count, level;
  char text[2048];
};

static void hear(void *ctx, manta_log_level level, const char *text)
{
  struct heard *h = ctx;
  h->count++;
  h->level = (int)level;
  snprintf(h->text, sizeof h->text, "%s", text);
  errno = EPERM; // a sink may spoil it; the caller must not notice
}

// What a child with this MANTA_LOG writes to standard error; the level is read once per process.
static void stderr_of(const char *env, void (*say)(void), char *to, size_t room)
{
  int fd[2], status;
  assert_int_equal(pipe(fd), 0);
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    dup2(fd[1], STDERR_FILENO);
    env ? setenv("MANTA_LOG", env, 1) : unsetenv("MANTA_LOG");
    say();
    _exit(0);
  }
  close(fd[1]);
  size_t n = 0;
  ssize_t got;
  while ((got = read(fd[0], to + n, room - 1 - n)) > 0)
    n += (size_t)got;
  to[n] = 0;
  close(fd[0]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

static void say_all(void)
{
  manta__error("e %d", 1);
  manta__warn("w");
  manta__info("i");
  manta__debug("d");
}

static void say_long(void)
{
  char text[5000];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = 0;
  manta__error("%s", text);
}

// First, while the level of this process is still unread.
static void the_environment_sets_the_level(void **state)
{
  static const struct {
    const char *env, *want;
  } rows[] = {{NULL, "manta: error: e 1\nmanta: warn: w\n"},
              {"nonsense", "manta: warn: MANTA_LOG must be error, warn, info or debug, not "
                           "\"nonsense\"\n"
                           "manta: error: e 1\nmanta: warn: w\n"},
              {"error", "manta: error: e 1\n"},
              {"warn", "manta: error: e 1\nmanta: warn: w\n"},
              {"info", "manta: error: e 1\nmanta: warn: w\nmanta: i\n"},
              {"debug", "manta: error: e 1\nmanta: warn: w\nmanta: i\nmanta: debug: d\n"}};
  char text[4096];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    stderr_of(rows[i].env, say_all, text, sizeof text);
    assert_string_equal(text, rows[i].want);
  }
}

static void a_long_message_is_cut_to_one_line(void **state)
{
  char text[8192];
  stderr_of(NULL, say_long, text, sizeof text);
  size_t n = strlen(text);
  assert_true(n > 1000 && n <= 2048);
  assert_ptr_equal(strchr(text, '\n'), text + n - 1);
}

static void messages_go_to_the_function_that_was_set(void **state)
{
  struct heard h = {0};
  setenv("MANTA_LOG", "info", 1); // read by the first message of this process
  manta_set_log(hear, &h);
  errno = ENOENT;
  manta__warn("open %s: %m", "x");
  assert_int_equal(errno, ENOENT);
  assert_int_equal(h.count, 1);
  assert_int_equal(h.level, MANTA_LOG_WARN);
  assert_string_equal(h.text, "open x: No such file or directory");
  manta__debug("not shown");
  assert_int_equal(h.count, 1);
  manta__info("shown");
  assert_int_equal(h.count, 2);
  manta_set_log(NULL, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_environment_sets_the_level),
      cmocka_unit_test(a_long_message_is_cut_to_one_line),
      cmocka_unit_test(messages_go_to_the_function_that_was_set),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
