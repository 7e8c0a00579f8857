/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/cuts.h - the rewinds that are known of a log, for who reads it once more.
 *
 * Rows after iteration `to` of attempts before `attempt` are void. A later rewind that goes back
 * as far or farther takes the place of earlier ones, so both fields rise from one to the next. They
 * may come in any order: a process that goes on from a bookmark does not know those before it.
 */
#ifndef MANTA_SINK_CUTS_H
#define MANTA_SINK_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "event/log.h"

#define MANTA__CUTS_MAX 65536

struct manta__cuts {
  struct manta__rewind {
    uint32_t attempt;
    int64_t to;
  } * cut;
  size_t count;
};

void manta__cuts_fini(struct manta__cuts *c);
/* Whether all that this rewind makes void is known to be. */
bool manta__cuts_has(const struct manta__cuts *c, uint32_t attempt, int64_t to);
manta_status manta__cuts_add(struct manta__cuts *c, uint32_t attempt, int64_t to, manta_error *err);
/* Whether a row is void. */
bool manta__cuts_void(const struct manta__cuts *c, const struct manta__record *h,
                      const uint8_t *payload);

#endif
