/* SPDX-License-Identifier: Apache-2.0
 *
 * res/need.h - a request for resources, checked and in thousandths: the unit of the ledger.
 */
#ifndef MANTA_RES_NEED_H
#define MANTA_RES_NEED_H

#include <stdbool.h>
#include <stdint.h>

#include "res/ledger.h"
#include "sys/lease.h"

#define MANTA__UNIT MANTA__LEASE_UNIT

struct manta__need {
  int64_t cpus;
  bool strict; /* given by the user, or pinned */
  int cores;   /* 0: not pinned */
  int64_t gpus;
  int named_count;
  struct {
    const char *name; /* borrowed from the request */
    int64_t n;
  } named[MANTA__LEDGER_MAX_NAMED];
};

/* MANTA_EINVAL says which figure makes no sense and why. */
manta_status manta__need_read(struct manta__need *out, const struct manta__request *rq,
                              manta_error *err);

/* Thousandths of a figure: false if it is negative, not a number, or too big; what is less than a
 * thousandth but not nothing counts as one. */
bool manta__units(double figure, int64_t *out);
/* "1.5" into `buf`, which it returns. */
char *manta__units_text(int64_t units, char buf[32]);

#endif
