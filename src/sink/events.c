/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/events.c - event files for programs: the public calls, over the module that writes them.
 */
#include "sink/events.h"

#include <time.h>

#include "base/alloc.h"
#include "sys/module.h"

struct manta_events {
  const struct manta__events_ops *ops;
  void *file;
};

static double now_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

manta_status manta_events_open(manta_events **out, const char *dir, manta_error *err)
{
  void *entry;
  MANTA_TRY(manta__module_symbol("tensorboard", MANTA__EVENTS_ENTRY, "libprotobuf-c", &entry, err));
  manta_events *e = manta__calloc(1, sizeof *e);
  if (!e)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an event file");
  e->ops = entry;
  manta_status st = e->ops->open(&e->file, dir, err);
  if (st < 0)
    manta__free(e);
  else
    *out = e;
  return st;
}

manta_status manta_events_add(manta_events *e, int64_t step, const manta_value *row,
                              manta_error *err)
{
  return e->ops->row(e->file, step, now_s(), row, err);
}

manta_status manta_events_text(manta_events *e, int64_t step, const char *tag, const char *text,
                               manta_error *err)
{
  return e->ops->text(e->file, step, now_s(), tag, text, err);
}

manta_status manta_events_hparams(manta_events *e, const manta_value *hparams,
                                  const manta_value *metrics, const char *group, manta_error *err)
{
  return e->ops->hparams(e->file, now_s(), hparams, metrics, group, err);
}

manta_status manta_events_end(manta_events *e, bool ok, manta_error *err)
{
  return e->ops->end(e->file, now_s(), ok, err);
}

manta_status manta_events_restart(manta_events *e, int64_t step, manta_error *err)
{
  return e->ops->restart(e->file, step, now_s(), err);
}

manta_status manta_events_flush(manta_events *e, manta_error *err)
{
  return e->ops->flush(e->file, err);
}

void manta_events_close(manta_events *e)
{
  if (!e)
    return;
  e->ops->close(e->file);
  manta__free(e);
}
