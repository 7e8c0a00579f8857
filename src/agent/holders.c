/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/holders.c - who holds what a request waits for.
 *
 * Leases do not tell whose they are. The other agents of this user are asked over their named
 * sockets, as `manta ps` does; one that does not answer within ANSWER_S is left out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/log.h"
#include "sys/runtime.h"
#include "sys/sock.h"

#define ANSWER_S   0.5
#define MAX_AGENTS 32

struct manta__holders {
  struct manta__agent_group *group;
  struct manta__loop_conn *conn[MAX_AGENTS];
  int conns, open;
  uv_timer_t *limit;
  manta_error err; /* what is to be answered, with a line for each that holds something */
};

// --- one group -----------------------------------------------------------------------------------

static int count_workers(const struct manta__agent_group *g, const struct manta__agent_worker **one,
                         bool *running)
{
  int n = 0;
  *one = NULL;
  *running = false;
  for (const struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->state != WORKER_GONE && w->grant) {
      n++;
      *one = w;
      *running |= w->state == WORKER_RUNNING;
    }
  return n;
}

static const char *user_name(void)
{
  const char *name = getenv("USER");
  return name && name[0] ? name : getenv("LOGNAME") ? getenv("LOGNAME") : "?";
}

void manta__agent_holders_own(const struct manta__agent_group *g, char *out, size_t size)
{
  const struct manta__agent_worker *one;
  bool running;
  char what[160];
  int n = count_workers(g, &one, &running);
  out[0] = 0;
  if (n == 0)
    return;
  manta__ledger_tell(g->agent->ledger, one->grant, n, what, sizeof what);
  const char *state = running ? "running" : g->hold ? "idle, kept for its instance" : "idle";
  const char *path = g->path && g->path[0] ? g->path : "no run yet";
  snprintf(out, size, "trainer %s (%s), driver pid %d, user %s: %d worker%s %s, %s%s",
           g->name ? g->name : "?", path, (int)g->agent->driver_pid, user_name(), n,
           n == 1 ? "" : "s", state, what, !running && g->hold ? "; shutdown() ends them" : "");
}

// --- other agents --------------------------------------------------------------------------------

static void finish(struct manta__holders *h)
{
  struct manta__agent_group *g = h->group;
  manta_error err = h->err;
  manta__agent_holders_forget(g);
  manta__agent_attempt_noroom(g, &err);
}

static void on_limit(uv_timer_t *t)
{
  finish(t->data);
}

static void add_lines(struct manta__holders *h, const manta_value *runs)
{
  for (size_t i = 0; runs && i < runs->count; i++) {
    struct manta__ps_run run;
    size_t n = strlen(h->err.message);
    if (manta__proto_read(MANTA__MAP_ps_run, manta_value_at(runs, i), &run, NULL) == MANTA_OK &&
        run.holds[0])
      snprintf(h->err.message + n, sizeof h->err.message - n, "\nheld by %s", run.holds);
  }
}

static void close_conn(struct manta__holders *h, struct manta__loop_conn *l)
{
  for (int i = 0; i < h->conns; i++)
    if (h->conn[i] == l)
      h->conn[i] = NULL;
  if (--h->open == 0)
    finish(h);
}

static void on_answer(struct manta__loop_conn *l, struct manta__msg *m)
{
  struct manta__holders *h = l->owner;
  manta_value v = {0};
  struct manta__ask_reply in;
  if (manta__ask_reply_unpack(m, &v, &in, NULL) == MANTA_OK)
    add_lines(h, in.runs);
  manta_value_fini(&v);
  manta__agent_disconnect(l);
  close_conn(h, l);
}

static void on_end(struct manta__loop_conn *l)
{
  close_conn(l->owner, l);
}

static int connect_to(int dirfd, const char *name)
{
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/%.60s", dirfd, name);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
    manta__fd_close(&fd);
  return fd;
}

static void ask_one(struct manta__holders *h, int dirfd, const char *name)
{
  int fd = connect_to(dirfd, name);
  struct manta__loop_conn *l =
      fd >= 0 ? manta__agent_connect(h->group->agent, fd, MANTA__COMMAND_TO_AGENT, on_answer,
                                     on_end, h, NULL)
              : NULL;
  if (!l) {
    manta__fd_close(&fd);
    return;
  }
  h->conn[h->conns++] = l;
  h->open++;
  manta_value ask = MANTA__PACK(ask_msg, .what = "ps");
  manta__agent_send_value(l, &(struct manta__msg){.kind = MANTA__M_ASK, .call = 1}, &ask);
}

static bool is_other_agent(const char *name)
{
  char own[64];
  snprintf(own, sizeof own, "agent-%d.sock", (int)getpid());
  return !strncmp(name, "agent-", 6) && strcmp(name, own) != 0;
}

static void ask_all(struct manta__holders *h)
{
  int dirfd;
  if (manta__runtime_dir(&dirfd, NULL, 0, NULL) < 0)
    return;
  DIR *d = fdopendir(dirfd);
  for (struct dirent *e; d && h->conns < MAX_AGENTS && (e = readdir(d));)
    if (is_other_agent(e->d_name))
      ask_one(h, dirfd, e->d_name);
  if (d)
    closedir(d);
  else
    close(dirfd);
}

bool manta__agent_holders_ask(struct manta__agent_group *g, const manta_error *err)
{
  struct manta__holders *h = manta__calloc(1, sizeof *h);
  if (!h)
    return false;
  h->group = g;
  h->err = *err;
  g->holders = h;
  ask_all(h);
  if (h->open > 0 && (h->limit = manta__agent_timer(g->agent, ANSWER_S, 0, on_limit, h)))
    return true;
  manta__agent_holders_forget(g);
  return false;
}

void manta__agent_holders_forget(struct manta__agent_group *g)
{
  struct manta__holders *h = g->holders;
  if (!h)
    return;
  g->holders = NULL;
  for (int i = 0; i < h->conns; i++)
    manta__agent_disconnect(h->conn[i]);
  manta__agent_timer_stop(&h->limit);
  manta__free(h);
}
