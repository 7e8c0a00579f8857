/* SPDX-License-Identifier: Apache-2.0 */
#include "group/ledger.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "group/need.h"
#include "group/stock.h"
#include "sys/lease.h"

/* A reservation is made worker by worker: each gets all it needs or the making stops there. That one
 * loop serves all-or-nothing and elastic requests alike, and undoing is releasing. */

// What a grant is made of, behind the part that callers see.
struct account {
  struct manta__grant grant; // first: a grant is cast back to its account
  struct manta__need need;   // .named[].name is not kept: see named_at
  int named_at[MANTA__LEDGER_MAX_NAMED];
  struct manta__stock_gpus *gpus; // of each worker
};

enum kind { KIND_CPU, KIND_CORE, KIND_GPU, KIND_NAMED };

// What there was too little of.
struct shortage {
  enum kind kind;
  int named; // index into need.named
};

struct manta__ledger {
  struct manta__stock stock;
  bool warned;
};
