/* SPDX-License-Identifier: Apache-2.0
 *
 * res/ledger.h - who has what of this host: the accounts of an agent.
 *
 * All trainers of a driver share one ledger. It counts CPUs, GPUs and named resources in
 * thousandths, so that no rounding ever adds up. Other runs of the same user are seen through
 * leases.
 *
 * (1) A soft request (no CPU figure was given) counts as 1 CPU per worker and never fails for CPUs:
 *     more workers than CPUs is one warning per ledger.
 * (2) A strict request, a pinned one, GPUs and named resources are never over-committed.
 * (3) What a strict or pinned request takes of CPUs, cores and GPUs is leased; soft CPUs are not.
 * (4) A GPU is leased whole when its first part is given out, and given back with its last.
 * (5) A reservation that fails leaves ledger and leases as they were.
 *
 * One thread at a time.
 */
#ifndef MANTA_RES_LEDGER_H
#define MANTA_RES_LEDGER_H

#include <stdbool.h>

#include <manta/value.h>

#include "base/buf.h"
#include "sys/gpu.h"
#include "sys/host.h"

#define MANTA__LEDGER_MAX_WORKERS 4096 /* of one reservation */
#define MANTA__LEDGER_MAX_NAMED   64   /* named resources of a host */

typedef struct manta__ledger manta__ledger;

struct manta__ledger_config {
  const struct manta__host *host;    /* borrowed for the call, as all of this */
  const struct manta__gpus *gpus;    /* NULL: none */
  int lease_dirfd;                   /* the runtime directory; -1: no leases (a nested agent draws
                                     on what its parent holds) */
  bool declares_cpus, declares_gpus; /* these replace what was detected */
  double num_cpus;                   /* MANTA_NUM_CPUS */
  int64_t num_gpus;                  /* MANTA_NUM_GPUS, at most MANTA__LEASE_GPUS / 2 */
  const char *resources;             /* MANTA_RESOURCES: JSON map of numbers; NULL or "": none */
};

/* What one worker asks for. {0}: one CPU, soft, and nothing else. */
struct manta__request {
  double cpus;               /* 0 and not strict: 1 */
  bool strict;               /* the user gave `cpus` */
  bool pin;                  /* cores of its own: needs a whole number of CPUs, and is strict */
  double gpus;               /* below 1 a part of one, else a whole number */
  const manta_value *custom; /* map of numbers, or NULL; borrowed */
};

/* What one worker got. */
struct manta__share {
  int *cores; /* to pin it to, rising; NULL: not pinned */
  int core_count;
  char *gpus; /* its CUDA_VISIBLE_DEVICES; "": none */
};

/* What a group of workers got. Read-only for the caller. */
struct manta__grant {
  int workers;
  struct manta__share *shares;
  char warning[200]; /* one line to be shown to the user, or "" */
};

/* Reads MANTA_NUM_CPUS, MANTA_NUM_GPUS and MANTA_RESOURCES of this process into `cfg`, which
 * borrows the last from the environment. */
void manta__ledger_config_env(struct manta__ledger_config *cfg);

/* MANTA_EINVAL names the variable that makes no sense. Gives: destroy it. */
manta_status manta__ledger_create(manta__ledger **out, const struct manta__ledger_config *cfg,
                                  manta_error *err);
/* Adds GPUs to a ledger that was made without: listing them takes time, so they are listed when
 * somebody asks for one. Does nothing if it has some. */
manta_status manta__ledger_add_gpus(manta__ledger *l, const struct manta__gpus *gpus,
                                    manta_error *err);
/* Gives all leases back. Grants must have been released. NULL is fine. */
void manta__ledger_destroy(manta__ledger *l);

/* Reserves for as many workers as there is room for, at least `min` and at most `want` (0 < min <=
 * want <= MANTA__LEDGER_MAX_WORKERS). Who wants all or nothing says min = want. *granted (may be
 * NULL) gets the number of workers that fit.
 *
 * MANTA_OK       *out is a grant for *granted >= min workers; release it.
 * MANTA_EINVAL   never: the request makes no sense, or this host as a whole has not enough for
 * `min`. MANTA_ENOROOM  not now: *granted < min would fit; nothing is held. Ask again later, or for
 * less.
 *
 * The messages say what was asked and what is there. */
manta_status manta__ledger_reserve(manta__ledger *l, const struct manta__request *rq, int want,
                                   int min, struct manta__grant **out, int *granted,
                                   manta_error *err);
/* Moves the last worker of `g` into a grant of its own, *out: its resources stay taken all the
 * while. MANTA_ENOMEM, MANTA_ESTATE if there is none. Release both. */
manta_status manta__ledger_split(manta__ledger *l, struct manta__grant *g,
                                 struct manta__grant **out, manta_error *err);
/* Gives back what worker `i` of the grant has and takes it out; those behind it move down by one.
 */
void manta__ledger_drop(manta__ledger *l, struct manta__grant *g, int i);
/* Gives all of it back and frees the grant. NULL is fine. */
void manta__ledger_release(manta__ledger *l, struct manta__grant *g);

/* Whether a request for `workers` workers that has no room would come closer to it if `g` were
 * released: it holds something that the request asks for and that there is too little of. */
bool manta__ledger_eases(const manta__ledger *l, const struct manta__request *rq, int workers,
                         const struct manta__grant *g);
/* What `workers` workers with a share as in `g` hold: "2 CPUs, 1 GPU, 3 disk", in `out`. */
void manta__ledger_tell(const manta__ledger *l, const struct manta__grant *g, int workers,
                        char *out, size_t size);

struct manta__ledger_totals {
  double cpus_used, cpus; /* used may be more than there is: soft workers */
  double gpus_used, gpus;
};
void manta__ledger_totals(const manta__ledger *l, struct manta__ledger_totals *out);

#endif
