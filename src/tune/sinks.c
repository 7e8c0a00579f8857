/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/sinks.c - the process that takes what trials report to files and trackers, out of the
 * experiment's log (sink/trials.h). It can neither stop nor slow the experiment.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "sink/setup.h"
#include "sys/sock.h"
#include "tune/experiment.h"

#define LOOK_NS      100000000LL
#define DRAIN_S      600.0 /* files may be behind by as much as a slow disk makes them */
#define DRAIN_STOP_S 0.5

static void warn(void *ctx, const char *text)
{
  (void)ctx;
  manta__warn("%s", text);
}

static manta_status collect(const manta_tune_config *c, manta_value *sinks, manta_error *err)
{
  for (size_t i = 0; i < c->sink_count; i++)
    MANTA_TRY(manta__setup_add(sinks, &c->sinks[i], err));
  return MANTA_OK;
}

manta_status manta__experiment_check_sinks(const manta_tune_config *c, manta_error *err)
{
  manta_value sinks = {0};
  manta_status st = collect(c, &sinks, err);
  manta_value_fini(&sinks);
  return st;
}

void manta__experiment_start_sinks(manta_tune *t, const manta_tune_config *c)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value sinks = {0}, none = {.type = MANTA_MAP};
  char id[20];
  if (c->sink_count == 0 || t->over)
    return;
  snprintf(id, sizeof id, "%016llx", (unsigned long long)t->journal.id);
  manta_status st = collect(c, &sinks, &err);
  if (st == MANTA_OK)
    st = manta__setup_write(t->dirfd, id, &none, &sinks, &err);
  if (st == MANTA_OK)
    st = manta__sink_child_start(&t->sink, t->dirfd, &err);
  if (st < 0)
    manta__warn("the experiment has no sinks: %s", err.message);
  manta_value_fini(&sinks);
}

void manta__experiment_step_sinks(manta_tune *t)
{
  if (manta__sink_child_over(&t->sink))
    return;
  int64_t now = manta__now();
  if (now < t->sink_ns)
    return;
  t->sink_ns = now + LOOK_NS;
  manta__sink_child_step(&t->sink, t->dirfd, now, warn, NULL);
}

void manta__experiment_end_sinks(manta_tune *t, bool now)
{
  if (!manta__sink_child_over(&t->sink))
    manta__sink_child_finish(&t->sink, now ? DRAIN_STOP_S : DRAIN_S);
  while (!manta__sink_child_over(&t->sink)) {
    int64_t by = manta__sink_child_step(&t->sink, t->dirfd, manta__now(), warn, NULL);
    if (!manta__sink_child_over(&t->sink) && t->sink.sock >= 0)
      manta__fd_wait(t->sink.sock, false, by);
  }
  manta__sink_child_leave(&t->sink);
}
