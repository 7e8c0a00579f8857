/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/ckpt.h - what the parts of `manta ckpt` share.
 */
#ifndef MANTA_CMD_CKPT_H
#define MANTA_CMD_CKPT_H

#include "ckpt/store.h"
#include "cmd/options.h"
#include "cmd/runref.h"

/* The checkpoint that a user means: "000012", "12", "best", or NULL, "newest" or "latest" for the
 * newest. MANTA_ENOENT says what there is. */
manta_status manta__ckpt_pick(const struct manta__runref *r, const char *what,
                              struct manta__manifest *out, manta_error *err);
/* Its directory, open; -1 with a message. */
int manta__ckpt_dir(const struct manta__runref *r, const char *name, manta_error *err);

/* Copies the checkpoint out: to --to FILE.safetensors or --dir DIR. */
manta_status manta__ckpt_export(const struct manta__runref *r, const struct manta__manifest *m,
                                const struct manta__args *a, manta_error *err);

#endif
