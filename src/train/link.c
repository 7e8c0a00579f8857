/* SPDX-License-Identifier: Apache-2.0
 *
 * train/link.c - the agents of the driver: start, messages, loss.
 *
 * (1) An agent on this host is lost when its socket closes; one behind a bridge also when nothing
 *     has come from it for its host's time-out. It beats while there is nothing else to say.
 * (2) One that never answered is a mistake in the settings, and final; a later loss is not: it is
 *     started again when the next attempt forms, and then from time to time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "sys/proc.h"
#include "sys/sock.h"
#include "train/run.h"
#include "train/trainer.h"

#define HELLO_S       20.0
#define RETRY_FIRST_S 0.5
#define RETRY_MAX_S   10.0

#define drv manta__drv

// --- which there are -----------------------------------------------------------------------------

static struct manta__link *find(const struct manta__engine_host *h)
{
  for (struct manta__link *n = drv.nodes; n; n = n->next)
    if (manta__engine_same_host(&n->where, h))
      return n;
  return NULL;
}

static void node_free(struct manta__link *n)
{
  manta__engine_host_fini(&n->where);
  manta__rpc_fini(&n->rpc);
  manta__free(n);
}

static struct manta__link *make(const struct manta__engine_host *h)
{
  struct manta__link *n = manta__calloc(1, sizeof *n);
  if (n && manta__engine_host_copy(&n->where, h) == MANTA_OK)
    return n;
  manta__free(n);
  return NULL;
}

bool manta__link_remote(const struct manta__link *n)
{
  return n->where.engine->remote;
}

static bool is_only_kept(const struct manta__link *n)
{
  return manta__link_remote(n) && n->kept && n->users == 1;
}

static void unkeep(struct manta__link *n)
{
  n->kept = false;
  manta__link_drop(n);
}

// One that no trainer uses gives way: to a host of the same name with another time-out, which its
// bridge was told when it was started, or to any if there are too many.
static int make_way(const struct manta__engine_host *h)
{
  struct manta__link *n = find(h);
  int count = 0;
  if (n && is_only_kept(n) && n->where.timeout_s != h->timeout_s)
    unkeep(n);
  for (n = drv.nodes; n; n = n->next)
    count++;
  for (n = find(h) ? NULL : drv.nodes; n && count >= MANTA_MAX_HOSTS; n = n->next)
    if (is_only_kept(n)) {
      unkeep(n);
      return count - 1;
    }
  return count;
}

struct manta__link *manta__link_use(const struct manta__engine_host *h, manta_error *err)
{
  int count = make_way(h);
  struct manta__link *n = find(h), **last = &drv.nodes;
  while (*last)
    last = &(*last)->next;
  if (!n && count >= MANTA_MAX_HOSTS) {
    manta_error_set(err, MANTA_ETOOBIG, "more than %d hosts", MANTA_MAX_HOSTS);
    return NULL;
  }
  if (!n && !(*last = n = make(h))) {
    manta_error_set(err, MANTA_ENOMEM, "no memory for a host");
    return NULL;
  }
  n->users++;
  return n;
}

const char *manta__link_name(const struct manta__link *n)
{
  return n->where.name[0] ? n->where.name : n->host[0] ? n->host : "localhost";
}

// --- starting ------------------------------------------------------------------------------------

static void on_hello(void *ctx, manta_status st, struct manta__msg *reply)
{
  struct manta__link *n = ctx;
  manta_value v = {0};
  struct manta__hello_reply in;
  if (st == MANTA_ETIMEDOUT)
    manta_error_set(&n->refusal, MANTA_EAGENT, "the agent on %s did not answer within %.0f s",
                    manta__link_name(n), HELLO_S);
  if (st != MANTA_OK || manta__hello_reply_unpack(reply, &v, &in, NULL) < 0)
    return;
  if (in.version != MANTA__PROTO_VERSION) {
    manta_error_set(&n->refusal, MANTA_EUNSUPPORTED, MANTA__PROTO_DIFFERS, in.version,
                    MANTA__PROTO_VERSION);
    manta_value_fini(&v);
    return;
  }
  n->spoke = n->known = true;
  n->failures = 0;
  snprintf(n->host, sizeof n->host, "%s", in.host);
  snprintf(n->addr, sizeof n->addr, "%s", in.address);
  n->cpus = in.cpus;
  n->gpus = in.gpus;
  manta_value_fini(&v);
}

// The answer is not waited for: what follows can be sent at once.
static manta_status say_hello(struct manta__link *n, manta_error *err)
{
  struct manta__msg m = {.kind = MANTA__M_HELLO, .fd = {drv.ring_fd}, .fds = 1};
  manta_value v =
      MANTA__PACK(hello_msg, .version = MANTA__PROTO_VERSION, .wids = (int64_t)drv.starts++ << 32,
                  .name = n->where.name[0] ? n->where.name : NULL);
  return manta__rpc_call(&n->rpc, n->conn, &m, &v, manta__deadline(HELLO_S), on_hello, n, err);
}

// What its engine has started is an agent to be spoken with.
static manta_status greet(struct manta__link *n, const struct manta__engine_start *s,
                          manta_error *err)
{
  if (s->why.status < 0)
    return manta_error_set(err, s->why.status, "%s", s->why.message);
  manta_status st =
      manta__conn_create(&n->conn, s->sock, manta__proto_end(MANTA__DRIVER_TO_AGENT), err);
  if (st < 0) {
    close(s->sock);
    n->where.engine->end(s->pid, true);
    return st;
  }
  n->pid = s->pid;
  n->program_sent = 0;
  n->spoke = false;
  n->refusal = (manta_error)MANTA_ERROR_INIT;
  n->heard_ns = manta__now();
  st = say_hello(n, err);
  manta__driver_wake();
  return st == MANTA_ECLOSED ? MANTA_OK : st; // gone already: that is noticed as any loss
}

manta_status manta__links_up(struct manta__link *const *links, int count, manta_error *err)
{
  struct manta__engine_start *start, *todo[MANTA_MAX_HOSTS];
  size_t down = 0;
  MANTA_TRY(manta__driver_up(err));
  if (!(start = manta__calloc((size_t)count, sizeof *start)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory to start agents on %d hosts", count);
  for (int i = 0; i < count; i++)
    if (!links[i]->conn) {
      start[i].host = &links[i]->where;
      todo[down++] = &start[i];
    }
  manta__engine_start_many(todo, down);
  manta_status st = MANTA_OK;
  for (int i = 0; i < count; i++)
    if (start[i].host) {
      manta_status one = greet(links[i], &start[i], st < 0 ? NULL : err);
      st = st < 0 ? st : one;
    }
  manta__free(start);
  return st;
}

manta_status manta__link_up(struct manta__link *n, manta_error *err)
{
  return n->conn ? manta__driver_up(err) : manta__links_up(&n, 1, err);
}

// --- the end -------------------------------------------------------------------------------------

static void on_refused(struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__refused_msg in;
  if (manta__refused_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  manta_error_set(&n->refusal, (manta_status)in.status, "%s", in.message);
  manta_value_fini(&v);
}

static int end(struct manta__link *n, bool at_once)
{
  manta__conn_destroy(n->conn); // its end of file tells the agent to leave
  n->conn = NULL;
  manta__driver_wake(); // the thread's poll would keep the socket open
  int status = n->where.engine->end(n->pid, at_once);
  n->pid = 0;
  return status;
}

static void explain(struct manta__link *n, int pid, int status, manta_error *why)
{
  char how[64] = "cause unknown";
  *why = n->refusal;
  if (status >= 0)
    manta__proc_explain(status, how, sizeof how);
  if (why->status != MANTA_OK)
    return;
  if (manta__link_remote(n))
    manta_error_set(why, MANTA_EAGENT, "host %s was lost: its bridge (pid %d): %s", n->where.name,
                    pid, how);
  else
    manta_error_set(why, MANTA_EAGENT, "the agent (pid %d) %s: %s%s", pid,
                    n->spoke ? "died" : "did not start", how,
                    n->spoke ? "" : "\nhint: does MANTA_BIN name the command manta?");
}

// At once after it had worked, then less and less often.
static void plan_retry(struct manta__link *n)
{
  double pause = n->spoke ? 0 : RETRY_FIRST_S;
  for (int i = 0; i < n->failures && pause < RETRY_MAX_S; i++)
    pause *= 2;
  n->failures += !n->spoke;
  n->retry_ns = manta__now() + (int64_t)(pause * 1e9);
  n->spoke = false;
}

// One that ended without a word will not speak the next time either: no loss, but an error.
static void lost(struct manta__link *n, bool at_once)
{
  manta_error why;
  int pid = (int)n->pid, status = end(n, at_once);
  bool killed = !at_once && status >= 0 && WIFSIGNALED(status);
  explain(n, pid, status, &why);
  bool final = !n->known && !killed;
  plan_retry(n);
  manta__rpc_abandon(&n->rpc, MANTA_ECLOSED);
  for (manta_trainer *t = drv.trainers; t; t = t->next)
    manta__run_link_lost(t, n, &why, final);
}

void manta__link_drop(struct manta__link *n)
{
  if (!n || --n->users > 0 || !manta__link_remote(n))
    return;
  for (struct manta__link **p = &drv.nodes; *p; p = &(*p)->next)
    if (*p == n) {
      *p = n->next;
      break;
    }
  manta__rpc_abandon(&n->rpc, MANTA_ECANCELED);
  if (n->conn)
    end(n, false);
  node_free(n);
}

bool manta__links_kept(void)
{
  for (const struct manta__link *n = drv.nodes; n; n = n->next)
    if (n->kept)
      return true;
  return false;
}

static bool is_resting(const manta_trainer *t)
{
  return !t->peers && !t->spawning && (!t->run || t->run->over);
}

// Of trainers that have no workers the agents end, too: they are started again when needed.
void manta__links_release(void)
{
  bool resting = true;
  for (const manta_trainer *t = drv.trainers; t; t = t->next)
    resting = resting && is_resting(t);
  for (struct manta__link *n = drv.nodes, *next; n; n = next) {
    next = n->next;
    if (resting && n->conn) {
      manta__rpc_abandon(&n->rpc, MANTA_ECANCELED);
      end(n, false);
    }
    if (n->kept)
      unkeep(n);
  }
}

void manta__links_end(void)
{
  for (struct manta__link *n = drv.nodes, *next; n; n = next) {
    next = n->next;
    manta__rpc_abandon(&n->rpc, MANTA_ECANCELED);
    if (n->conn)
      end(n, false);
    node_free(n);
  }
  drv.nodes = NULL;
}

// --- messages ------------------------------------------------------------------------------------

manta_status manta__link_send(struct manta__link *n, const struct manta__msg *m,
                              const manta_value *v, manta_error *err)
{
  if (!n->conn)
    return manta_error_set(err, MANTA_EAGENT, "there is no agent");
  manta_status st =
      v ? manta__conn_send_value(n->conn, m, v, err) : manta__conn_send(n->conn, m, err);
  if (manta__conn_pending(n->conn))
    manta__driver_wake();                     // the thread polls for writing
  return st == MANTA_ECLOSED ? MANTA_OK : st; // its loss is noticed by the thread, once
}

static void take(struct manta__link *n, struct manta__msg *m)
{
  if (n->refusal.status < 0 && !n->spoke)
    return; // what it says to the rest follows from that
  if (m->kind == MANTA__M_REFUSED) {
    on_refused(n, m);
  } else if (m->kind != MANTA__M_BEAT && !manta__rpc_take(&n->rpc, m)) {
    manta_trainer *t = drv.trainers;
    while (t && t->group != m->group)
      t = t->next;
    if (t)
      manta__run_on_msg(t, n, m);
  }
}

// The time by which something must have come from it.
static int64_t silent_at(const struct manta__link *n)
{
  return manta__link_remote(n) && n->spoke ? n->heard_ns + (int64_t)(n->where.timeout_s * 1e9)
                                           : MANTA__NEVER;
}

static void tell_silence(struct manta__link *n, int64_t now)
{
  if (n->refusal.status == MANTA_OK)
    manta_error_set(&n->refusal, MANTA_EAGENT, "host %s was lost: silent for %.1f s", n->where.name,
                    (double)(now - n->heard_ns) * 1e-9);
}

int64_t manta__link_read(struct manta__link *n, int64_t now)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int rc = 0;
  while (n->conn && (rc = manta__conn_recv(n->conn, &m, &err)) == 1) {
    n->heard_ns = now;
    take(n, &m);
    manta__msg_close(&m);
  }
  int64_t next = manta__rpc_expire(&n->rpc, now);
  if (n->conn && rc < 0) {
    lost(n, false);
  } else if (n->conn && (now >= silent_at(n) || (!n->spoke && n->refusal.status < 0))) {
    tell_silence(n, now);
    lost(n, true);
  }
  int64_t silent = n->conn ? silent_at(n) : MANTA__NEVER;
  return silent < next ? silent : next;
}

// --- the program ---------------------------------------------------------------------------------

// Another host knows the program by what is in its file, and the directory by its path.
static manta_status describe_for_afar(struct manta__program_msg *p, char *cwd, size_t size,
                                      manta_error *err)
{
  MANTA_TRY(manta__exe_hash(p->path, &p->hash, err));
  p->hash >>= 1;
  p->cwd = getcwd(cwd, size);
  return MANTA_OK;
}

manta_status manta__link_program(struct manta__link *n, const struct manta__program *p, int threads,
                                 uint64_t *key_out, manta_error *err)
{
  struct manta__exe exe;
  struct manta__program_msg body;
  manta_value argv = {0}, env = {0};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  char path[4096];
  MANTA_TRY(manta__exe_self(&exe, err));
  uint64_t key = manta__program_key(p, &exe, threads);
  *key_out = key;
  if (n->program_sent == key)
    return MANTA_OK;
  int cwd = manta__link_remote(n) ? -1 : open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct manta__msg m = {.kind = MANTA__M_PROGRAM, .fd = {cwd}, .fds = cwd >= 0};
  manta_status st = manta__program_describe(p, key, &exe, threads, &body, &argv, &env, err);
  if (st == MANTA_OK && manta__link_remote(n))
    st = describe_for_afar(&body, path, sizeof path, err);
  if (st == MANTA_OK) {
    manta_value v = manta__program_msg_map(pairs, &body);
    st = manta__link_send(n, &m, &v, err);
  }
  if (st == MANTA_OK)
    n->program_sent = key;
  manta__fd_close(&cwd);
  manta_value_fini(&argv);
  manta_value_fini(&env);
  return st;
}

manta_status manta__link_warm(struct manta__link *n, uint64_t key, manta_error *err)
{
  struct manta__msg m = {.kind = MANTA__M_WARM};
  manta_value v = MANTA__PACK(warm_msg, .key = key);
  return manta__link_send(n, &m, &v, err);
}

manta_status manta__link_keep(struct manta__link *n, const struct manta__program *p, int threads,
                              manta_error *err)
{
  uint64_t key;
  MANTA_TRY(manta__link_up(n, err));
  MANTA_TRY(manta__link_program(n, p, threads, &key, err));
  MANTA_TRY(manta__link_warm(n, key, err));
  n->users += !n->kept;
  n->kept = true;
  return MANTA_OK;
}
