/* SPDX-License-Identifier: Apache-2.0 */
#include "train/muster.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/form.h"
#include "train/run.h"
#include "train/trainer.h"

#define WAIT_S 5.0 /* for a lost host to come back, when others could go on */

static bool present(const struct manta__trainer_host *p)
{
  return p->link->conn && p->link->spoke;
}

// --- shares --------------------------------------------------------------------------------------

static int capacity(const struct manta__trainer_host *p)
{
  int n = p->slots > 0 ? p->slots : p->link->cpus >= 1 ? (int)p->link->cpus : 1;
  return n < p->limit ? n : p->limit;
}

// Blockwise, in the order given. What is left goes evenly to hosts whose number of places was not
// said: more workers than CPUs is no error there, as it is none on one host.
static void share_out(manta_trainer *t, int want)
{
  int left = want, open = 0;
  for (int i = 0; i < t->hosts; i++) {
    struct manta__trainer_host *p = &t->host[i];
    int n = present(p) ? capacity(p) : 0;
    p->share = n < left ? n : left;
    left -= p->share;
    open += present(p) && p->slots == 0 && p->limit == INT_MAX;
  }
  for (int i = 0; i < t->hosts && left > 0 && open > 0; i++) {
    struct manta__trainer_host *p = &t->host[i];
    if (!present(p) || p->slots > 0 || p->limit < INT_MAX)
      continue;
    int more = (left + open - 1) / open;
    p->share += more;
    left -= more;
    open--;
  }
}

int manta__muster_spare(manta_trainer *t, int host, int want)
{
  share_out(t, want);
  int more = t->host[host].share - t->host[host].count;
  return more > 0 ? more : 0;
}

// --- asking --------------------------------------------------------------------------------------

void manta__muster_tend(manta_trainer *t, int64_t now)
{
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < t->hosts; i++) {
    struct manta__link *n = t->host[i].link;
    if (!n->conn && now >= n->retry_ns && manta__link_up(n, &err) < 0)
      manta__warn("host %s: %s", manta__link_name(n), err.message);
  }
}

static void drop_ready(struct manta__trainer_host *p)
{
  manta__free(p->wids);
  p->wids = NULL;
  p->ready = 0;
}

void manta__muster_end(manta_trainer *t)
{
  t->muster.phase = MANTA__MUSTER_NONE;
  for (int i = 0; i < t->hosts; i++)
    drop_ready(&t->host[i]);
}

manta_status manta__muster_begin(manta_trainer *t, manta_error *err)
{
  int64_t now = manta__now();
  struct manta__link *due[MANTA_MAX_HOSTS];
  int count = 0;
  manta__muster_end(t);
  for (int i = 0; i < t->hosts; i++) {
    struct manta__trainer_host *p = &t->host[i];
    p->asked = p->share = p->count = 0;
    p->limit = INT_MAX;
    if (!p->link->conn && (now >= p->link->retry_ns || !p->link->known))
      due[count++] = p->link;
  }
  MANTA_TRY(manta__links_up(due, count, err));
  t->muster.phase = MANTA__MUSTER_HELLO;
  t->muster.by = manta__deadline(WAIT_S);
  manta__driver_wake();
  return MANTA_OK;
}

static manta_status ask(manta_trainer *t, struct manta__trainer_host *p, manta_error *err)
{
  manta_run *r = t->run;
  uint64_t key;
  struct manta__msg m = {.kind = MANTA__M_SPAWN, .group = t->group};
  if (r && !t->spawning) {
    m.id = (struct manta__ident){r->id, r->membership.attempt, -1, 0};
    MANTA_TRY(manta__form_announce(r, p, err));
  }
  MANTA_TRY(manta__link_program(p->link, &t->program, t->threads, &key, err));
  manta_value v = MANTA__PACK(spawn_msg, .order = manta__form_order(t, key, p->share, 0));
  p->asked = p->share;
  p->answered = false;
  return manta__link_send(p->link, &m, &v, err);
}

static int wanted(const manta_trainer *t)
{
  return t->spawning ? t->workers : t->run->membership.policy.want;
}

// True: somebody was asked, and the answers are to be waited for.
static bool ask_all(manta_trainer *t, manta_status *st, manta_error *err)
{
  bool asked = false;
  share_out(t, wanted(t));
  for (int i = 0; i < t->hosts && *st == MANTA_OK; i++)
    if (t->host[i].share > t->host[i].asked) {
      *st = ask(t, &t->host[i], err);
      asked = true;
    }
  return asked;
}

static void take_ready(struct manta__trainer_host *p, const manta_value *list)
{
  drop_ready(p);
  uint32_t n = list ? list->count : 0;
  p->wids = manta__calloc(n + 1, sizeof *p->wids);
  for (uint32_t i = 0; p->wids && i < n && i < (uint32_t)p->share; i++)
    p->wids[p->ready++] = manta_value_as_int(manta_value_at(list, i), -1);
  p->limit = p->ready < p->share ? p->ready : p->limit;
}

// An attempt that an agent could not start after all: what was to run there is lost.
static void lose_place(manta_trainer *t, struct manta__trainer_host *p, const manta_error *why)
{
  for (int i = 0; t->run && i < p->count; i++)
    manta__membership_gone(&t->run->membership, t->wids[p->first + i], why, manta__now());
}

void manta__muster_answer(manta_trainer *t, const struct manta__link *n, const manta_value *ready,
                          const manta_error *why)
{
  for (int i = 0; i < t->hosts; i++) {
    struct manta__trainer_host *p = &t->host[i];
    if (p->link != n)
      continue;
    if (t->muster.phase != MANTA__MUSTER_ASKED || p->answered) {
      if (why)
        lose_place(t, p, why);
      continue;
    }
    p->answered = true;
    take_ready(p, ready);
    if (why && t->muster.error.status == MANTA_OK)
      manta_error_set(&t->muster.error, why->status, "host %s: %s", manta__link_name(n),
                      why->message);
  }
}

void manta__muster_gone(manta_trainer *t, int64_t wid)
{
  for (int i = 0; i < t->hosts; i++) {
    struct manta__trainer_host *p = &t->host[i];
    for (int k = 0; k < p->ready; k++)
      if (p->wids[k] == wid)
        p->wids[k--] = p->wids[--p->ready];
  }
}

void manta__muster_link_lost(manta_trainer *t, const struct manta__link *n)
{
  for (int i = 0; i < t->hosts; i++) {
    struct manta__trainer_host *p = &t->host[i];
    if (p->link != n)
      continue;
    p->answered = true;
    p->announced = false;
    p->asked = 0;
    drop_ready(p);
  }
}

// --- giving out ranks ----------------------------------------------------------------------------

static int give_counts(manta_trainer *t)
{
  int world = 0;
  for (int i = 0; i < t->hosts; i++) {
    struct manta__trainer_host *p = &t->host[i];
    p->count = p->ready < p->share ? p->ready : p->share;
    p->first = world;
    world += p->count;
  }
  return world;
}

static bool is_ready(const struct manta__trainer_host *p, int64_t wid, int *at)
{
  for (*at = 0; *at < p->ready; ++*at)
    if (p->wids[*at] == wid)
      return true;
  return false;
}

// Workers keep the rank they had if it is still on their host; the rest fill the gaps.
static void give_ranks(const manta_trainer *t, struct manta__trainer_host *p, int64_t *rank)
{
  int at;
  for (int r = p->first; r < p->first + p->count; r++)
    if (r < t->world && is_ready(p, t->wids[r], &at)) {
      rank[r] = t->wids[r];
      p->wids[at] = p->wids[--p->ready];
    }
  for (int r = p->first; r < p->first + p->count; r++)
    if (!rank[r])
      rank[r] = p->wids[--p->ready];
}

static manta_status add(manta_value *list, manta_value item)
{
  return manta_value_append(list, &item);
}

struct hosts { // lists, for the workers: what each is called and where its ranks begin
  manta_value name, address, first;
};

static void hosts_fini(struct hosts *h)
{
  manta_value_fini(&h->name);
  manta_value_fini(&h->address);
  manta_value_fini(&h->first);
}

// Hosts that have no rank are not counted.
static manta_status describe_hosts(const manta_trainer *t, struct hosts *out)
{
  MANTA_TRY(manta_value_set_list(&out->name));
  MANTA_TRY(manta_value_set_list(&out->address));
  MANTA_TRY(manta_value_set_list(&out->first));
  for (int i = 0; i < t->hosts; i++) {
    const struct manta__trainer_host *p = &t->host[i];
    if (p->count == 0)
      continue;
    const char *address = p->address ? p->address : p->link->addr;
    MANTA_TRY(add(&out->name, manta_value_borrow_string(manta__link_name(p->link))));
    MANTA_TRY(add(&out->address, manta_value_borrow_string(address)));
    MANTA_TRY(add(&out->first, manta_value_int(p->first)));
  }
  return MANTA_OK;
}

static manta_status list_wids(manta_value *out, const int64_t *wid, int n)
{
  MANTA_TRY(manta_value_set_list(out));
  for (int i = 0; i < n; i++)
    MANTA_TRY(add(out, manta_value_int(wid[i])));
  return MANTA_OK;
}

static manta_status start_on(manta_run *r, struct manta__trainer_host *p, int node, int world,
                             const struct hosts *hosts, const struct manta__origin *from,
                             manta_error *err)
{
  manta_trainer *t = r->trainer;
  manta_value wids = {0};
  uint64_t key;
  MANTA_TRY(manta__link_program(p->link, &t->program, t->threads, &key, err));
  if (p->planned == 0)
    p->planned = p->share;
  struct manta__attempt_msg a = {.order = manta__form_order(t, key, p->count, p->count),
                                 .wids = &wids,
                                 .world = world,
                                 .first = p->first,
                                 .node = node,
                                 .hosts = &hosts->name,
                                 .addresses = &hosts->address,
                                 .firsts = &hosts->first};
  manta_status st = list_wids(&wids, t->wids + p->first, p->count);
  if (st < 0)
    manta_error_set(err, st, "no memory for a list of workers");
  else
    st = manta__form_send(r, p, &a, from, err);
  manta_value_fini(&wids);
  return st;
}

static manta_status start_all(manta_run *r, int world, manta_error *err)
{
  manta_trainer *t = r->trainer;
  struct hosts hosts = {0};
  struct manta__origin from;
  int node = 0;
  manta__form_checkpoint(r, &from);
  manta_status st = describe_hosts(t, &hosts);
  if (st < 0)
    manta_error_set(err, st, "no memory for a list of hosts");
  for (int i = 0; i < t->hosts && st == MANTA_OK; i++)
    if (t->host[i].count > 0)
      st = start_on(r, &t->host[i], node++, world, &hosts, &from, err);
  hosts_fini(&hosts);
  manta__origin_close(&from);
  return st;
}

static void start(manta_run *r, int64_t now)
{
  manta_trainer *t = r->trainer;
  manta_error err = MANTA_ERROR_INIT;
  int world = give_counts(t);
  int64_t *rank = manta__calloc((size_t)world + 1, sizeof *rank);
  if (!rank)
    manta_error_set(&err, MANTA_ENOMEM, "no memory for %d workers", world);
  else if (world < r->membership.policy.min || world == 0)
    manta_error_set(&err, MANTA_ENOROOM, "only %d of at least %d workers have started", world,
                    r->membership.policy.min);
  // What cannot be started on a host will not be there the next time either.
  bool mistake = t->muster.error.status < 0 && t->muster.error.status != MANTA_ENOROOM;
  if (mistake || err.status < 0) {
    manta__form_noroom(r, t->muster.error.status < 0 ? &t->muster.error : &err, now);
    manta__free(rank);
    return;
  }
  for (int i = 0; i < t->hosts; i++)
    give_ranks(t, &t->host[i], rank);
  memcpy(t->wids, rank, sizeof *rank * (size_t)world);
  manta__free(rank);
  if (start_all(r, world, &err) < 0)
    manta__form_noroom(r, &err, now);
  else
    manta__form_done(r, world, now);
}

// --- steps ---------------------------------------------------------------------------------------

// Whether a host may still come.
static bool awaited(const manta_trainer *t, int64_t now)
{
  for (int i = 0; i < t->hosts; i++) {
    const struct manta__link *n = t->host[i].link;
    if (n->conn && !n->spoke && (!n->known || now < t->muster.by))
      return true;
  }
  return false;
}

static bool unanswered(const manta_trainer *t)
{
  for (int i = 0; i < t->hosts; i++)
    if (t->host[i].asked > 0 && !t->host[i].answered)
      return true;
  return false;
}

static void finish(manta_trainer *t, manta_status st, const manta_error *err, int64_t now)
{
  if (t->spawning) {
    t->spawning = false;
    t->spawn_error = st < 0 ? *err : t->muster.error;
  } else if (st < 0) {
    manta__form_noroom(t->run, err, now);
  } else {
    start(t->run, now);
  }
  manta__muster_end(t);
}

int64_t manta__muster_step(manta_trainer *t, int64_t now)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = MANTA_OK;
  if (t->muster.phase == MANTA__MUSTER_NONE || (!t->spawning && !t->run))
    return MANTA__NEVER;
  if (t->muster.phase == MANTA__MUSTER_HELLO) {
    if (awaited(t, now))
      return t->muster.by > now ? t->muster.by : MANTA__NEVER;
    t->muster.phase = MANTA__MUSTER_ASKED;
    t->muster.error = (manta_error)MANTA_ERROR_INIT;
    ask_all(t, &st, &err);
  }
  if (st == MANTA_OK && (unanswered(t) || ask_all(t, &st, &err)))
    return MANTA__NEVER;
  finish(t, st, &err, now);
  return MANTA__NEVER;
}
