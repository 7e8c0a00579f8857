/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/origin.h - what an attempt begins from, as descriptors that every rank is handed.
 *
 * (1) A snapshot in memory is one descriptor, a checkpoint on disk those of its three files. They
 *     are opened once, by the driver: what retention deletes afterwards, or somebody puts in the
 *     directory instead, makes no difference to a rank that comes late.
 */
#ifndef MANTA_CKPT_ORIGIN_H
#define MANTA_CKPT_ORIGIN_H

#include "ckpt/store.h"

#define MANTA__ORIGIN_FDS 3

struct manta__origin {       /* {0}: nothing */
  int fd[MANTA__ORIGIN_FDS]; /* a slot; or manifest, tensors, value */
  int count;                 /* 0, 1 or 3 of them */
  bool given;                /* not saved by the run: the user named it */
  bool memory;               /* the driver's: it is the newest slot of a worker */
};

/* The files of a checkpoint's directory. MANTA_ENOENT: there is no checkpoint any more. */
manta_status manta__origin_open(struct manta__origin *out, int dir, manta_error *err);
/* A descriptor more of each. */
manta_status manta__origin_dup(struct manta__origin *out, const struct manta__origin *from,
                               manta_error *err);
void manta__origin_close(struct manta__origin *o); /* {0} and twice are fine */
/* Opens the checkpoint; as manta__checkpoint_from_fd. There must be one. */
manta_status manta__origin_load(manta_checkpoint **out, const struct manta__origin *o, bool verify,
                                manta_error *err);

#endif
