/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/reader.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/writer.h"
#include "base/clock.h"
#include "base/log.h"
#include "data/share/callers.h"
#include "data/share/share.h"
#include "group/proto.h"
#include "sys/lifeline.h"
#include "sys/proc.h"
#include "sys/sock.h"
#include "sys/thread.h"
#include "wire/conn.h"

#define STACK_BYTES  ((size_t)1 << 20)
#define WARN_S       5.0
#define START_S      30.0
#define MAPPED_BYTES (64 << 10) /* buffers of columns from here on are mappings of their own */

static manta__conn *agent;
static pthread_mutex_t speech = PTHREAD_MUTEX_INITIALIZER;

manta_status manta__reader_start(int *sock, int *lifeline, pid_t *pid, manta_error *err)
{
  int end[2], line[2];
  char *argv[] = {(char *)"manta-reader", NULL};
  char *env[MANTA__CHILD_ENV];
  manta__writer_env(env, MANTA__ROLE_READER);
  MANTA_TRY(manta__sock_pair(end, err));
  manta_status st = manta__lifeline_create(line, err);
  if (st < 0) {
    manta__fd_close_all(end, 2);
    return st;
  }
  int fds[] = {end[1], line[1]};
  st = manta__proc_spawn(pid, "/proc/self/exe", argv, env, fds, 2, -1, err);
  close(end[1]);
  close(line[1]);
  if (st < 0) {
    close(end[0]);
    close(line[0]);
    return st;
  }
  *sock = end[0];
  *lifeline = line[0];
  return MANTA_OK;
}

// Its warnings go to the user through the agent. It holds nobody's output open.
static void warn_by_message(void *ctx, manta_log_level level, const char *text)
{
  manta_value v = MANTA__PACK(warn_msg, .text = text);
  struct manta__msg m = {.kind = MANTA__M_WARN};
  pthread_mutex_lock(&speech);
  if (manta__conn_send_value(agent, &m, &v, NULL) == MANTA_OK)
    manta__conn_drain(agent, manta__deadline(WARN_S), NULL);
  pthread_mutex_unlock(&speech);
}

// By the agent, which closes what it cannot pass on.
static manta_status start_caller(void *ctx, const int fds[MANTA__C_FDS], manta_error *err)
{
  struct manta__msg m = {.kind = MANTA__M_CALLER, .fds = MANTA__C_FDS};
  for (int i = 0; i < MANTA__C_FDS; i++)
    m.fd[i] = fds[i];
  pthread_mutex_lock(&speech);
  manta_status st = manta__conn_send(agent, &m, err);
  if (st == MANTA_OK)
    st = manta__conn_drain(agent, manta__deadline(START_S), err);
  pthread_mutex_unlock(&speech);
  return st;
}

static void *serve(void *sock)
{
  manta__giver_serve((int)(intptr_t)sock);
  return NULL;
}

static void take_client(struct manta__msg *m)
{
  pthread_t thread;
  int sock = manta__msg_take_fd(m, 0);
  if (sock < 0)
    return;
  int rc = manta__thread_start(&thread, "manta-give", STACK_BYTES, serve, (void *)(intptr_t)sock);
  if (rc)
    close(sock); // the worker asks again
  else
    pthread_detach(thread);
}

int manta__reader_main(int conn, int lifeline)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m;
  prctl(PR_SET_NAME, "manta-reader");
  mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES); // what is freed is free: threads share no holes
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, SIG_IGN); // a notice to the whole job: the workers still need what we read
  if (manta__lifeline_hang_on(lifeline, &err) < 0 ||
      manta__conn_create(&agent, conn, manta__proto_end(MANTA__READER_TO_AGENT), &err) < 0)
    return 1;
  manta__fd_mute();
  manta_set_log(warn_by_message, NULL);
  manta__callers_set_up(start_caller, NULL);
  while (manta__conn_wait(agent, MANTA__NEVER, &m, &err) == 1) {
    if (m.kind == MANTA__M_CLIENT)
      take_client(&m);
    manta__msg_close(&m);
  }
  _exit(0); // whoever is served is of a run that is over
}
