/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/ckdir.h - one checkpoint's directory: its number, its manifest, its files, its end.
 */
#ifndef MANTA_CKPT_CKDIR_H
#define MANTA_CKPT_CKDIR_H

#include "ckpt/store.h"

#define MANTA__CKPT_MANIFEST     "manifest.json"
#define MANTA__CKPT_TENSORS      "state.safetensors"
#define MANTA__CKPT_VALUE        "value.msgpack"
#define MANTA__CKPT_MANIFEST_MAX (256u << 10)
#define MANTA__CKPT_TEMP         ".tmp-"
#define MANTA__CKPT_FILES        ".files-"
#define MANTA__CKPT_USER         "checkpoint_"

/* Number of a checkpoint's directory ("000012"), or -1 if it is not such a name; and the name. */
int64_t manta__ckdir_number(const char *name);
void manta__ckdir_name(char out[32], int64_t number);

/* The directory of a rank's own files until they are a checkpoint's: ".files-ATTEMPT-NUMBER".
 * False: it is not such a name. */
void manta__ckdir_files_name(char out[48], uint32_t attempt, uint64_t number);
bool manta__ckdir_files_parse(const char *name, uint32_t *attempt, uint64_t *number);

/* Of what goes with a checkpoint: PREFIX, the iteration, and the attempt unless it is the first. */
void manta__ckdir_beside_name(char out[48], const char *prefix, uint32_t attempt,
                              int64_t iteration);
bool manta__ckdir_beside_parse(const char *name, const char *prefix, uint32_t *attempt,
                               int64_t *iteration);

/* The directory of the user's that belongs to an iteration: "checkpoint_000012", and "-ATTEMPT"
 * behind it in all attempts but the first. False: it is not such a name. */
void manta__ckdir_user_name(char out[48], uint32_t attempt, int64_t iteration);
bool manta__ckdir_user_parse(const char *name, uint32_t *attempt, int64_t *iteration);
/* That of a checkpoint; true if it has none, or if it is there. */
bool manta__ckdir_user_there(int parent, const struct manta__manifest *m);

/* Calls fn for each name in the directory, except . and ..; a negative result ends the walk. */
manta_status manta__ckdir_each(int dirfd, manta_status (*fn)(void *ctx, const char *name),
                               void *ctx, manta_error *err);

/* The manifest in an open directory. MANTA_ENOENT: there is none, so there is no checkpoint. */
manta_status manta__ckdir_manifest(int dir, struct manta__manifest *out, manta_error *err);
/* The same out of the open file itself, and the extras ({0} before; fini them). */
manta_status manta__ckdir_manifest_of(int fd, struct manta__manifest *out,
                                      struct manta__extras *extras, manta_error *err);
/* The same for name under parent; the manifest must be of that name. */
manta_status manta__ckdir_read(int parent, const char *name, struct manta__manifest *out,
                               manta_error *err);
/* Hashes every file: MANTA_ECORRUPT names the one that is not what the manifest says. */
manta_status manta__ckdir_verify(int parent, const struct manta__manifest *m, manta_error *err);

/* Writes one file of a checkpoint and syncs it. */
manta_status manta__ckdir_put(int dir, const char *name, const uint8_t *p, size_t n,
                              struct manta__manifest_file *out, manta_error *err);
/* Moves every file of `name` under parent into `dir`, and removes it. */
manta_status manta__ckdir_adopt(int parent, const char *name, int dir, manta_error *err);
/* Removes a checkpoint, the manifest first. 0, or -1 with errno if something is left. */
int manta__ckdir_remove(int parent, const char *name);

#endif
