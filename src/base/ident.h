/* SPDX-License-Identifier: Apache-2.0
 *
 * base/ident.h - who a message, row, snapshot or record belongs to. Whatever carries an older
 * attempt than the current one is dropped.
 */
#ifndef MANTA_BASE_IDENT_H
#define MANTA_BASE_IDENT_H

#include <assert.h>
#include <stdint.h>

struct manta__ident {
  uint64_t run;     /* random, one per run directory */
  uint32_t attempt; /* from 0; rises at each revival or resize */
  int32_t rank;     /* -1: not of a rank */
  uint64_t seq;     /* of the sender, rising */
};
static_assert(sizeof(struct manta__ident) == 24, "on the wire and on disk");

#endif
