/* SPDX-License-Identifier: Apache-2.0 */
#include "train/sinks.h"

#include <stdio.h>

#include "base/clock.h"
#include "sink/setup.h"
#include "train/run.h"
#include "train/say.h"
#include "train/trainer.h"

#define DRAIN_S      600.0 /* files may be behind by as much as a slow disk makes them */
#define DRAIN_STOP_S 0.5

manta_status manta__run_sinks_collect(manta_run *r, const manta_run_config *rc, manta_error *err)
{
  const manta_value *before = &r->trainer->sinks;
  if (before->type == MANTA_LIST && manta_value_copy(&r->sinks, before) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the sinks of a run");
  for (size_t i = 0; i < rc->sink_count; i++)
    MANTA_TRY(manta__setup_add(&r->sinks, &rc->sinks[i], err));
  return MANTA_OK;
}

static void warn(void *ctx, const char *text)
{
  manta_run *r = ctx;
  manta__run_warn(r->trainer, "%s", text);
}

void manta__run_sinks_start(manta_run *r)
{
  manta_error err = MANTA_ERROR_INIT;
  char id[20];
  if (r->sinks.count == 0 || r->replayed)
    return;
  snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
  manta_status st = manta__setup_write(r->rundir, id, &r->config, &r->sinks, &err);
  if (st == MANTA_OK)
    st = manta__sink_child_start(&r->sink, r->rundir, &err);
  if (st < 0)
    manta__run_warn(r->trainer, "the run has no sinks: %s", err.message);
}

static void end_if_drained(manta_run *r)
{
  if (r->draining && manta__sink_child_over(&r->sink))
    r->over = true;
}

int64_t manta__run_sinks_step(manta_run *r, int64_t now)
{
  if (r->exec || r->over)
    return MANTA__NEVER;
  int64_t next = manta__sink_child_step(&r->sink, r->rundir, now, warn, r);
  end_if_drained(r);
  return next;
}

void manta__run_sinks_finish(manta_run *r)
{
  r->draining = true;
  if (!manta__sink_child_over(&r->sink))
    manta__sink_child_finish(&r->sink, r->error.status == MANTA_ECANCELED ? DRAIN_STOP_S : DRAIN_S);
  end_if_drained(r);
}
