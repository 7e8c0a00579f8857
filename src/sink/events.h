/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/events.h - what the module "tensorboard" does for manta_events_* of manta/sink.h.
 */
#ifndef MANTA_SINK_EVENTS_H
#define MANTA_SINK_EVENTS_H

#include <manta/sink.h>

#define MANTA__EVENTS_ENTRY "manta_events_entry"

/* Each as the public call of that name; wall_s is given. */
struct manta__events_ops {
  manta_status (*open)(void **out, const char *dir, manta_error *err);
  manta_status (*row)(void *e, int64_t step, double wall_s, const manta_value *row,
                      manta_error *err);
  manta_status (*text)(void *e, int64_t step, double wall_s, const char *tag, const char *text,
                       manta_error *err);
  manta_status (*hparams)(void *e, double wall_s, const manta_value *hparams,
                          const manta_value *metrics, const char *group, manta_error *err);
  manta_status (*end)(void *e, double wall_s, bool ok, manta_error *err);
  manta_status (*restart)(void *e, int64_t step, double wall_s, manta_error *err);
  manta_status (*flush)(void *e, manta_error *err);
  void (*close)(void *e);
};

#endif
