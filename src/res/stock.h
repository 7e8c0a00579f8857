/* SPDX-License-Identifier: Apache-2.0
 *
 * res/stock.h - what the host has and how much of it is out: the shelves behind the ledger.
 *
 * Every take is all or nothing and has its give. Amounts are thousandths.
 */
#ifndef MANTA_RES_STOCK_H
#define MANTA_RES_STOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "res/ledger.h"
#include "sys/lease.h"

struct manta__stock_gpu {
  int index;   /* its lease */
  char id[96]; /* in CUDA_VISIBLE_DEVICES */
  int64_t used;
};

struct manta__stock_named {
  char *name;
  int64_t total, used;
};

struct manta__stock {
  int64_t cpus, cpus_used; /* used: soft ones counted in */
  int *cores;
  bool *core_used;
  int core_count;
  struct manta__stock_gpu *gpus;
  int gpu_count;
  struct manta__stock_named named[MANTA__LEDGER_MAX_NAMED];
  int named_count;
  manta__lease *lease; /* NULL: none */
  char cpu_note[96];   /* where the figures come from, for messages */
  char gpu_note[200];
};

manta_status manta__stock_init(struct manta__stock *s, const struct manta__ledger_config *cfg,
                               manta_error *err);
/* {0} and twice are fine. */
void manta__stock_fini(struct manta__stock *s);

/* MANTA_ENOROOM if there is not so much; soft ones always succeed. */
manta_status manta__stock_take_cpus(struct manta__stock *s, int64_t n, bool strict);
void manta__stock_give_cpus(struct manta__stock *s, int64_t n, bool strict);
/* Lowest free cores first. */
bool manta__stock_take_cores(struct manta__stock *s, int n, int *ids);
void manta__stock_give_cores(struct manta__stock *s, const int *ids, int n);
/* How many GPUs a worker with this figure touches. */
int manta__stock_gpus_of(int64_t units);
/* Puts the GPUs of `cfg` into a stock that has none yet. */
manta_status manta__stock_add_gpus(struct manta__stock *s, const struct manta__ledger_config *cfg,
                                   manta_error *err);
/* `at` gets the places in s->gpus. A part is put beside other parts first, so that whole GPUs stay
 * free. */
bool manta__stock_take_gpus(struct manta__stock *s, int64_t units, int *at);
void manta__stock_give_gpus(struct manta__stock *s, int64_t units, const int *at);

/* Place of a named resource, or -1. */
int manta__stock_find(const struct manta__stock *s, const char *name);

/* What can be had now, other runs considered. */
int64_t manta__stock_free_cpus(const struct manta__stock *s);
int manta__stock_free_cores(const struct manta__stock *s);
int64_t manta__stock_free_gpus(const struct manta__stock *s);
/* CPUs that other runs hold. */
int64_t manta__stock_others_cpus(const struct manta__stock *s);

#endif
