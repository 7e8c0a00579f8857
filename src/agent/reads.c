/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/reads.c - the reader of a run on this host: started when a worker first asks for it, and
 * again if it has died; ended with the run. Processes that call functions for it are forked by the
 * zygote of the workers that it reads for.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/reader.h"
#include "sys/sock.h"

// Without a zygote the descriptors are closed, which the reader sees.
static void pass_caller(struct manta__agent_group *g, const struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__agent_zygote *z = manta__agent_zygote(g->agent, g->reader_program, &err);
  struct manta__msg down = *m;
  if (z)
    manta__agent_send(z->now.conn, &down);
  else
    manta__agent_warn(g->agent, g->id, "no process for the functions of a data set: %s",
                      err.message);
}

static void on_reader_msg(struct manta__loop_conn *l, struct manta__msg *m)
{
  struct manta__agent_group *g = l->owner;
  struct manta__msg up = *m;
  if (m->kind == MANTA__M_CALLER)
    pass_caller(g, m);
  if (m->kind != MANTA__M_WARN)
    return;
  up.group = g->id;
  up.id = g->run;
  up.fds = 0;
  manta__agent_send(g->agent->driver, &up);
}

// Its workers see the end of their connections, and ask for another one.
static void on_reader_end(struct manta__loop_conn *l)
{
  struct manta__agent_group *g = l->owner;
  g->reader = NULL;
  manta__fd_close(&g->reader_lifeline);
}

void manta__agent_reads_end(struct manta__agent_group *g)
{
  manta__agent_disconnect(g->reader);
  g->reader = NULL;
  manta__fd_close(&g->reader_lifeline); // kills it
}

bool manta__agent_reader_exited(struct manta__agent *a, pid_t pid)
{
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    if (g->reader_pid == pid) {
      g->reader_pid = 0; // its link's end says the rest
      return true;
    }
  return false;
}

static manta_status have_reader(struct manta__agent_group *g, manta_error *err)
{
  int sock;
  if (g->reader)
    return MANTA_OK;
  MANTA_TRY(manta__reader_start(&sock, &g->reader_lifeline, &g->reader_pid, err));
  g->reader = manta__agent_connect(g->agent, sock, MANTA__AGENT_TO_READER, on_reader_msg,
                                   on_reader_end, g, err);
  if (g->reader)
    return MANTA_OK;
  close(sock);
  manta__fd_close(&g->reader_lifeline);
  return err->status < 0 ? err->status : MANTA_ENOMEM;
}

static manta_status connect_both(struct manta__agent_group *g, int *worker, manta_error *err)
{
  int end[2];
  MANTA_TRY(have_reader(g, err));
  MANTA_TRY(manta__sock_packets(end, err));
  struct manta__msg m = {.kind = MANTA__M_CLIENT, .id = g->run, .fd = {end[0]}, .fds = 1};
  manta__agent_send(g->reader, &m);
  close(end[0]);
  *worker = end[1];
  return MANTA_OK;
}

void manta__agent_read(struct manta__agent_worker *w, struct manta__msg *m)
{
  struct manta__reading_msg how = {0};
  manta_error err = MANTA_ERROR_INIT;
  int sock = -1;
  w->group->reader_program = w->zygote->key;
  how.status = connect_both(w->group, &sock, &err);
  snprintf(how.message, sizeof how.message, "%.199s", err.message);
  struct manta__msg reply = {.kind = MANTA__M_READING,
                             .id = m->id,
                             .call = m->call,
                             .data = &how,
                             .len = sizeof how,
                             .fd = {sock},
                             .fds = sock >= 0};
  manta__agent_send(w->conn, &reply);
  manta__fd_close(&sock);
}
