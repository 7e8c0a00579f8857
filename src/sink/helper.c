/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/helper.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/knob.h"
#include "base/value.h"
#include "sys/proc.h"
#include "sys/sock.h"

#define ANSWER_MAX (4u << 20)
#define SLICE_S    0.1 /* how often `quit` is looked at */

extern char **environ;

struct manta__helper {
  pid_t pid;
  int sock; // -1: it is gone
  const atomic_bool *quit;
  manta__buf in; // what has come of the answer
  char what[32];
  bool spoke; // it has answered once
};

manta_status manta__helper_start(manta__helper **out, const char *python, const char *what,
                                 const atomic_bool *quit, manta_error *err)
{
  int pair[2];
  manta__helper *h = manta__calloc(1, sizeof *h);
  if (!h)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a helper");
  const char *name = python && *python ? python : manta__knob_text(MANTA__KNOB_PYTHON);
  char *argv[] = {(char *)"env",
                  (char *)(uintptr_t)(name ? name : "python3"),
                  (char *)"-m",
                  (char *)"manta._trackers",
                  (char *)(uintptr_t)what,
                  NULL};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
    manta__free(h);
    return manta_error_set(err, MANTA_EIO, "socketpair: %m");
  }
  manta_status st = manta__proc_spawn(&h->pid, "/usr/bin/env", argv, environ, &pair[1], 1, -1, err);
  close(pair[1]);
  h->sock = pair[0];
  h->quit = quit;
  snprintf(h->what, sizeof h->what, "%s", what);
  manta__buf_init(&h->in, ANSWER_MAX);
  if (st < 0) {
    close(h->sock);
    manta__free(h);
    return st;
  }
  *out = h;
  return MANTA_OK;
}

bool manta__helper_gone(const manta__helper *h)
{
  return h->sock < 0;
}

// --- asking --------------------------------------------------------------------------------------

// How it ended, if it has.
static manta_status tell_end(manta__helper *h, manta_error *err)
{
  char how[64] = "closed its connection";
  int status;
  manta__fd_close(&h->sock);
  for (int i = 0; i < 20 && h->pid > 0; i++) {
    if (waitpid(h->pid, &status, WNOHANG) == h->pid) {
      manta__proc_explain(status, how, sizeof how);
      h->pid = 0;
    }
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  return manta_error_set(err, h->spoke ? MANTA_EIO : MANTA_EUNSUPPORTED,
                         "the helper process for %s ended: %s\nhint: its Python needs the packages "
                         "manta and %s",
                         h->what, how, h->what);
}

static manta_status wait_for(manta__helper *h, bool to_write, int64_t by, manta_error *err)
{
  while (!manta__fd_wait(h->sock, to_write, manta__deadline(SLICE_S))) {
    bool quit = atomic_load(h->quit);
    if (!quit && manta__now() < by)
      continue;
    manta__fd_close(&h->sock);
    return quit ? manta_error_set(err, MANTA_ECANCELED, "was told to stop")
                : manta_error_set(err, MANTA_ETIMEDOUT, "%s does not answer", h->what);
  }
  return MANTA_OK;
}

static manta_status send_all(manta__helper *h, const uint8_t *p, size_t n, int64_t by,
                             manta_error *err)
{
  while (n > 0) {
    ssize_t k = send(h->sock, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (k < 0 && errno != EAGAIN && errno != EINTR)
      return tell_end(h, err);
    p += k > 0 ? k : 0;
    n -= k > 0 ? (size_t)k : 0;
    if (k < 0)
      MANTA_TRY(wait_for(h, true, by, err));
  }
  return MANTA_OK;
}

static manta_status receive_line(manta__helper *h, int64_t by, manta_error *err)
{
  h->in.len = 0;
  while (h->in.len == 0 || h->in.data[h->in.len - 1] != '\n') {
    uint8_t part[4096];
    MANTA_TRY(wait_for(h, false, by, err));
    ssize_t k = recv(h->sock, part, sizeof part, MSG_DONTWAIT);
    if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR))
      return tell_end(h, err);
    if (k > 0 && manta__buf_append(&h->in, part, (size_t)k) < 0)
      return manta_error_set(err, MANTA_ETOOBIG, "%s answers too much", h->what);
  }
  return MANTA_OK;
}

manta_status manta__helper_ask(manta__helper *h, const manta_value *question, manta_value *answer,
                               double limit_s, manta_error *err)
{
  int64_t by = manta__deadline(limit_s);
  manta__buf out;
  if (h->sock < 0)
    return manta_error_set(err, MANTA_EIO, "the helper process for %s is gone", h->what);
  manta__buf_init(&out, MANTA__JSON_MAX);
  manta_status st = manta__json_append(&out, question, NULL);
  if (st == MANTA_OK)
    st = manta__buf_putc(&out, '\n');
  if (st < 0)
    manta_error_set(err, st, "no memory for a question to %s", h->what);
  else
    st = send_all(h, out.data, out.len, by, err);
  manta__buf_fini(&out);
  MANTA_TRY(st);
  MANTA_TRY(receive_line(h, by, err));
  MANTA_TRY(manta_value_from_json(answer, (const char *)h->in.data, h->in.len, err));
  h->spoke = true;
  const char *error = manta_value_as_string(manta_value_get(answer, "error"), NULL);
  bool final = manta_value_as_bool(manta_value_get(answer, "final"), false);
  return error ? manta_error_set(err, final ? MANTA_EUNSUPPORTED : MANTA_EIO, "%s", error)
               : MANTA_OK;
}

void manta__helper_end(manta__helper *h, double limit_s)
{
  if (!h)
    return;
  manta__fd_close(&h->sock);
  int64_t by = manta__deadline(limit_s);
  while (h->pid > 0 && waitpid(h->pid, NULL, WNOHANG) == 0) {
    if (manta__now() > by)
      manta__proc_signal(h->pid, SIGKILL);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  manta__buf_fini(&h->in);
  manta__free(h);
}
