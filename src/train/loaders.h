/* SPDX-License-Identifier: Apache-2.0
 *
 * train/loaders.h - the loaders of a session by their names, whose positions go with its
 * checkpoints.
 *
 * (1) A name has a position from its first loader on, or from the checkpoint that the attempt began
 *     from: a name that nobody opens again keeps what it had there.
 * (2) All of it happens inside of the gate `save` (train/gate.h), or while no function runs.
 */
#ifndef MANTA_TRAIN_LOADERS_H
#define MANTA_TRAIN_LOADERS_H

#include <manta/data.h>

struct manta__track;

#define MANTA__LOADER_NAME 64 /* bytes of a name, with its end */

struct manta__loaders_entry {
  char name[MANTA__LOADER_NAME];
  struct manta__track *track; /* of its loader, open or not; NULL: not opened yet */
  manta_value restored;       /* by the checkpoint, until it is opened; nil: nothing */
};

/* {0} is empty. */
struct manta__loaders {
  struct manta__loaders_entry *entry;
  int count;
};

void manta__loaders_fini(struct manta__loaders *l); /* twice is harmless */
/* The positions of a checkpoint: what manta__loaders_save gave, or nil. */
manta_status manta__loaders_restore(struct manta__loaders *l, const manta_value *positions,
                                    manta_error *err);
/* A map of all names, or nil if there is none. `out` must be {0}. */
manta_status manta__loaders_save(const struct manta__loaders *l, manta_value *out,
                                 manta_error *err);
/* A loader that was opened by this name: sends it where the checkpoint says, if there is one. */
manta_status manta__loaders_enter(struct manta__loaders *l, const char *name, manta_loader *loader,
                                  manta_error *err);

#endif
