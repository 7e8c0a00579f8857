/* SPDX-License-Identifier: Apache-2.0
 *
 * train/ending.c - the end of a run: its results or its error, the last checkpoint, the record.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "train/form.h"
#include "train/light.h"
#include "train/rows.h"
#include "train/run.h"
#include "train/say.h"
#include "train/sinks.h"
#include "train/trainer.h"

#define SETTLE_S      600.0 /* the last checkpoint may take so long to reach the disk */
#define SETTLE_STOP_S 0.5

static void gather_results(manta_run *r)
{
  if (manta_value_set_list(&r->results) < 0)
    return;
  for (int i = 0; i < r->membership.world; i++)
    manta_value_append(&r->results, &r->result[i]);
}

static void log_finish(manta_run *r)
{
  manta_value none = {0}, files = {0};
  if (r->error.status == MANTA_EPREEMPTED || r->error.status == MANTA_ECANCELED) {
    manta_value note =
        MANTA_MAP(MANTA_KV_STR("text", r->error.message)); // not the end: it can go on
    manta__run_log(r, MANTA__EV_NOTE, &note);
    return;
  }
  manta_value start = MANTA_MAP(MANTA_KV_REAL("formed_s", (double)r->timeline.formed / 1e9),
                                MANTA_KV_REAL("first_row_s", (double)r->timeline.first_row / 1e9));
  if (r->error.status == 0 && manta__results_files(r, &files) < 0)
    manta__run_warn(r->trainer, "no memory to name the files of the results");
  manta_value v = MANTA_MAP(
      MANTA_KV("start", start), MANTA_KV_STR("status", manta_status_name(r->error.status)),
      MANTA_KV_STR("message", r->error.message),
      MANTA_KV("results", r->error.status == 0 ? r->results : none), MANTA_KV("files", files));
  manta__run_log(r, MANTA__EV_FINISH, &v);
  manta_value_fini(&files);
}

// Its workers may be ended from now on when another trainer needs their room.
static void rest(manta_trainer *t, bool left)
{
  struct manta__msg m = {.kind = MANTA__M_REST, .group = t->group};
  manta_value v = MANTA__PACK(rest_msg, .hold = t->hold, .left = left);
  manta__run_tell_all(t, &m, &v);
}

static void over(manta_run *r)
{
  rest(r->trainer, r->light);
  manta__run_tell_door(r->trainer, true);
  if (!r->exec) {
    log_finish(r);
    if (r->log)
      manta__log_flush(r->log, NULL);
  }
  manta__run_sinks_finish(r);
}

static void on_settled(void *ctx, manta_status st, struct manta__msg *reply)
{
  manta_run *r = ctx;
  if (st == MANTA_ETIMEDOUT && r->error.status == 0)
    manta__run_warn(r->trainer, "the last checkpoint is still being written");
  if (--r->settling == 0)
    over(r);
}

// Then nobody needs to be asked. What a host behind a bridge has saved may be on its way.
static bool wrote_nothing(const manta_run *r)
{
  const manta_trainer *t = r->trainer;
  bool none = t->newest.fd < 0 && !t->newest.disowned;
  return r->exec || (r->light && none && t->hosts == 1 && !manta__link_remote(t->host[0].link));
}

// Asks all agents to say when nothing waits to be written any more.
static void settle(manta_run *r)
{
  manta_trainer *t = r->trainer;
  manta_error err = MANTA_ERROR_INIT;
  // A trial that is stopped has done enough, most often: its last checkpoint counts.
  double limit = r->error.status == MANTA_ECANCELED && !r->light ? SETTLE_STOP_S : SETTLE_S;
  r->settling = 1 + r->storing.busy; // ours: none of the answers comes before all were asked
  for (int i = 0; i < t->hosts && !wrote_nothing(r); i++) {
    struct manta__link *n = t->host[i].link;
    struct manta__msg m = {.kind = MANTA__M_DRAIN, .group = t->group};
    if (n->conn && manta__rpc_call(&n->rpc, n->conn, &m, NULL, manta__deadline(limit), on_settled,
                                   r, &err) == MANTA_OK)
      r->settling++;
  }
  on_settled(r, MANTA_OK, NULL);
}

// The message a user reads first: the root, then how often it was tried.
static void compose_error(manta_run *r)
{
  r->error = r->membership.root;
  if (r->error.status == MANTA_EPREEMPTED && r->dir && !r->light)
    snprintf(r->error.message, sizeof r->error.message,
             "asked to stop; `manta resume %s` continues from the newest checkpoint", r->dir);
  if (manta_status_harm(r->error.status) == MANTA_HARM_RANK && r->membership.retries > 0) {
    size_t n = strlen(r->error.message);
    snprintf(r->error.message + n, sizeof r->error.message - n, "\nretries used up: %d",
             r->membership.retries);
  }
}

void manta__run_finish(manta_run *r)
{
  r->finishing = true;
  compose_error(r);
  if (r->error.status == 0 && !r->exec)
    manta__align_check(&r->align, r->strict_reports, &r->error);
  manta__rows_queue(r);
  if (r->error.status == 0) {
    manta__results_store(r);
    gather_results(r);
  }
  manta__form_renew(r);
  manta__light_finish(r);
  settle(r);
}

bool manta__ending_step(manta_run *r)
{
  if (manta__results_step(r))
    return true;
  on_settled(r, MANTA_OK, NULL);
  return false;
}
