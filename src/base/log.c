/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/knob.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static manta_log_fn log_fn;
static void *log_ctx;
static int shown = -1;

static const char *const names[] = {"error", "warn", "info", "debug"};

// One write per message, so that messages of several processes never mix within a line.
static void to_stderr(manta_log_level level, const char *text)
{
  char line[2048];
  int n =
      snprintf(line, sizeof line, "manta: %s%s%s\n", level == MANTA_LOG_INFO ? "" : names[level],
               level == MANTA_LOG_INFO ? "" : ": ", text);
  if (n >= (int)sizeof line) {
    n = sizeof line;
    line[n - 1] = '\n';
  }
  ssize_t w = write(STDERR_FILENO, line, (size_t)n);
  (void)w;
}

static int level_from_env(void)
{
  manta_error err = MANTA_ERROR_INIT;
  if (manta__knob_check(MANTA__KNOB_LOG, &err) == MANTA_OK)
    return manta__knob_word(MANTA__KNOB_LOG);
  to_stderr(MANTA_LOG_WARN, err.message); // a getter's warning would ask for the level
  return MANTA_LOG_WARN;
}

void manta_set_log(manta_log_fn fn, void *ctx)
{
  pthread_mutex_lock(&lock);
  log_fn = fn;
  log_ctx = ctx;
  pthread_mutex_unlock(&lock);
}

bool manta__log_shows(manta_log_level level)
{
  int limit = __atomic_load_n(&shown, __ATOMIC_RELAXED);
  if (limit < 0) {
    limit = level_from_env();
    __atomic_store_n(&shown, limit, __ATOMIC_RELAXED);
  }
  return (int)level <= limit;
}

static void hand_out(manta_log_level level, const char *text)
{
  pthread_mutex_lock(&lock);
  manta_log_fn fn = log_fn;
  void *ctx = log_ctx;
  pthread_mutex_unlock(&lock);
  if (fn)
    fn(ctx, level, text);
  else
    to_stderr(level, text);
}

void manta__note(const char *text)
{
  if (manta__log_shows(MANTA_LOG_WARN))
    hand_out(MANTA_LOG_INFO, text);
}

void manta__log(manta_log_level level, const char *fmt, ...)
{
  int saved = errno;
  if (!manta__log_shows(level))
    return;
  char text[1900];
  va_list ap;
  va_start(ap, fmt);
  errno = saved;
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  hand_out(level, text);
  errno = saved;
}
