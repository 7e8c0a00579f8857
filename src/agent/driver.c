/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/driver.c - the driver's messages: who deals with which.
 *
 * Behind a bridge the far half is the driver. What does not fit the protocol is dropped with a
 * warning; a request for workers that does not is answered by NOROOM.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/log.h"
#include "sys/sock.h"

// --- the agent's own -----------------------------------------------------------------------------

// "client port server port": where the host was reached, if SSH led here. On the driver's own host
// it tells how the user came there, which is another matter.
static const char *own_address(const struct manta__agent *a, char *buf, size_t size)
{
  const char *s = a->far ? getenv("SSH_CONNECTION") : NULL;
  buf[0] = 0;
  for (int i = 0; s && i < 2; i++)
    s = strchr(s, ' ') ? strchr(s, ' ') + 1 : NULL;
  if (s)
    snprintf(buf, size, "%.*s", (int)strcspn(s, " "), s);
  return buf;
}

static bool agrees(struct manta__agent *a, int version)
{
  char text[160];
  if (version == MANTA__PROTO_VERSION)
    return true;
  snprintf(text, sizeof text, MANTA__PROTO_DIFFERS, MANTA__PROTO_VERSION, version);
  manta_value v = MANTA__PACK(refused_msg, .status = MANTA_EUNSUPPORTED, .message = text);
  manta__agent_send_value(a->driver, &(struct manta__msg){.kind = MANTA__M_REFUSED}, &v);
  return false;
}

static void hello(struct manta__agent *a, struct manta__msg *m)
{
  char address[64];
  manta_value v = {0};
  struct manta__hello_msg in;
  struct manta__ledger_totals t = {0};
  if (manta__hello_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  a->wake_fd = manta__msg_take_fd(m, 0);
  a->wids = in.wids;
  a->far = in.far;
  if (in.name)
    snprintf(a->host, sizeof a->host, "%s", in.name);
  bool ok = agrees(a, in.version);
  manta_value_fini(&v);
  if (!ok)
    return;
  if (a->ledger)
    manta__ledger_totals(a->ledger, &t);
  manta_value out = MANTA__PACK(hello_reply, .version = MANTA__PROTO_VERSION, .pid = getpid(),
                                .host = a->host, .address = own_address(a, address, sizeof address),
                                .cpus = t.cpus, .gpus = t.gpus);
  manta__agent_reply(a->driver, m, &out);
}

static void lost(struct manta__agent *a, struct manta__msg *m)
{
  manta__agent_driver_lost(a);
}

// --- a trainer's ---------------------------------------------------------------------------------

static void take_run(struct manta__agent_group *g, const struct manta__run_msg *in,
                     struct manta__msg *m)
{
  manta__agent_snap_run_ended(g);
  manta__agent_reads_end(g);
  manta__agent_output_close_files(g);
  manta__fd_close(&g->rundir);
  manta__fd_close(&g->logdir);
  manta__fd_close(&g->tty);
  manta__free(g->path);
  g->rundir = manta__msg_take_fd(m, 0);
  g->logdir = manta__msg_take_fd(m, 1);
  g->tty = manta__msg_take_fd(m, 2);
  g->tty_rank = in->pdb;
  g->path = manta__strdup(in->path);
  g->log_limit = in->log_limit;
  g->keep_last = in->keep_last;
  g->keep_best = in->keep_best;
  g->score_min = in->score_min;
  g->light = in->light;
}

static void begin_run(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__run_msg in;
  if (manta__run_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  g->run = m->id;
  g->rest_ns = 0;
  g->show_all = in.show_all;
  g->live = in.live;
  if (!in.exec) // else a call between runs, or between two attempts of one
    take_run(g, &in, m);
  manta_value_fini(&v);
}

static void kill_workers(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__kill_msg in;
  if (manta__kill_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  for (size_t i = 0; i < in.wids->count; i++) {
    struct manta__agent_worker *w = manta__agent_worker_find(g->agent, in.wids->u.items[i].u.i);
    if (w && w->group == g)
      manta__agent_worker_kill(w, in.cause);
  }
  manta_value_fini(&v);
}

static void notice(struct manta__agent_group *g, struct manta__msg *m)
{
  if (g->ctl)
    atomic_store(&g->ctl->notice, 1);
}

static void disband(struct manta__agent_group *g, struct manta__msg *m)
{
  manta__agent_group_disband(g);
}

static void note_elsewhere(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__elsewhere_msg in;
  if (manta__elsewhere_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  if (manta_value_copy(&g->elsewhere, in.workers) < 0)
    manta_value_set_nil(&g->elsewhere);
  manta_value_fini(&v);
}

static void written(struct manta__agent_group *g, struct manta__msg *m)
{
  manta__agent_snap_written(g);
}

static void tell_all(struct manta__agent_group *g, struct manta__msg *m)
{
  manta__agent_worker_tell_all(g, m);
}

// --- who deals with which ------------------------------------------------------------------------

static const struct {
  void (*agent)(struct manta__agent *a, struct manta__msg *m);
  void (*group)(struct manta__agent_group *g, struct manta__msg *m); // … of the trainer
  bool first; // may be the first that is heard of the trainer
} handlers[MANTA__M_KINDS] = {
    [MANTA__M_HELLO] = {.agent = hello},
    [MANTA__M_PROGRAM] = {.agent = manta__agent_program},
    [MANTA__M_WARM] = {.agent = manta__agent_warm},
    [MANTA__M_LOST] = {.agent = lost},
    [MANTA__M_RUN] = {.group = begin_run, .first = true},
    [MANTA__M_SPAWN] = {.group = manta__agent_spawn, .first = true},
    [MANTA__M_ATTEMPT] = {.group = manta__agent_attempt, .first = true},
    [MANTA__M_DRAIN] = {.group = manta__agent_drain, .first = true},
    [MANTA__M_PROBE] = {.group = manta__agent_probe, .first = true},
    [MANTA__M_ABORT] = {.group = manta__agent_attempt_end},
    [MANTA__M_KILL] = {.group = kill_workers},
    [MANTA__M_NOTICE] = {.group = notice},
    [MANTA__M_RENEW] = {.group = manta__agent_renew},
    [MANTA__M_DISBAND] = {.group = disband},
    [MANTA__M_REST] = {.group = manta__agent_room_rest},
    [MANTA__M_ELSEWHERE] = {.group = note_elsewhere},
    [MANTA__M_WRITTEN] = {.group = written},
    [MANTA__M_GIVEN] = {.group = tell_all},
    [MANTA__M_AGREED] = {.group = tell_all},
    [MANTA__M_FETCH] = {.group = manta__agent_fetch},
    [MANTA__M_FETCHED] = {.group = manta__agent_fetched},
    [MANTA__M_RECALLED] = {.group = manta__agent_fetched},
};

void manta__agent_on_driver(struct manta__loop_conn *l, struct manta__msg *m)
{
  struct manta__agent *a = l->owner;
  if (m->kind >= MANTA__M_KINDS || (!handlers[m->kind].agent && !handlers[m->kind].group)) {
    manta__warn("agent: message of kind %u (%s) from the driver", m->kind,
                manta__proto_name(m->kind));
    return;
  }
  if (handlers[m->kind].agent) {
    handlers[m->kind].agent(a, m);
    return;
  }
  struct manta__agent_group *g = manta__agent_group(a, m->group, handlers[m->kind].first);
  if (g)
    handlers[m->kind].group(g, m);
}
