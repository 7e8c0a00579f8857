/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/store.h - where a snapshot becomes durable: run directory/checkpoints/.
 *
 *   checkpoints/000012/   state.safetensors  value.msgpack  manifest.json, and the rank's own files
 *   checkpoints/.files-ATTEMPT-NUMBER/   those, until the snapshot that names them is written
 *   checkpoints/checkpoint_000012/   a directory of the user's that belongs to iteration 12; it
 *                                    stays where it is, since train functions know its path
 *
 * (1) A manifest appears, by rename, only after every file it names is fsync'd, and run.log is
 *     synced up to the snapshot's iteration.
 * (2) Readers look at manifests only; a directory without a valid one does not exist.
 * (3) Deletion removes the manifest first (and syncs), the files after.
 * (4) A rank's own files are in no manifest: a checkpoint is whole without them. Those that are
 *     older than a checkpoint that was committed belong to no snapshot any more and are removed.
 * (5) A user's directory is as durable as the manifest that claims it, and a checkpoint without it
 *     is not whole. It goes with its checkpoint; one that no checkpoint claims any more is removed
 *     like (4).
 * (6) A failure (disk full, read-only) leaves earlier checkpoints as they were and removes what
 *     it made.
 */
#ifndef MANTA_CKPT_STORE_H
#define MANTA_CKPT_STORE_H

#include <manta/ckpt.h>

#include "base/ident.h"
#include "ckpt/extra.h"

/* What is kept. keep_last < 0: all. */
struct manta__retention {
  int keep_last, keep_best;
  bool score_min;
  double lock_wait_s; /* for another process that still writes there; 0: it is not waited for */
};

/* A checkpoint on disk, as its manifest says. */
struct manta__manifest {
  char name[32]; /* of its directory: "000012" */
  struct manta__ident id;
  int64_t iteration, wall_ns;
  int32_t world;
  bool has_score;
  double score;
  uint64_t bytes; /* of all files */
  struct manta__manifest_file {
    char name[64];
    uint64_t bytes, hash;
  } files[8];
  int file_count;
  bool directory; /* the user's own goes with it: checkpoint_ITERATION (ckdir.h) */
};

/* JSON text with a checksum over itself in its last field ("check"). extras: NULL: none. */
manta_status manta__manifest_write(const struct manta__manifest *m,
                                   const struct manta__extras *extras, char **out, size_t *len,
                                   manta_error *err);
/* MANTA_ECORRUPT with the reason for anything that manifest_write would not write, but for fields
 * of a name that it does not know: they are passed over. extras ({0}, or NULL) are to be fini'd. */
manta_status manta__manifest_parse(struct manta__manifest *out, struct manta__extras *extras,
                                   const char *text, size_t len, manta_error *err);

typedef struct manta__store manta__store;

/* rundir: descriptor of the run directory (dup'ed). Makes checkpoints/, removes leftovers of writes
 * that did not finish (unless another process has the store open: they may be its own), reads the
 * manifests that are there. A directory whose manifest is damaged is warned about, left alone and
 * not counted. */
manta_status manta__store_open(manta__store **out, int rundir, const struct manta__retention *keep,
                               manta_error *err);
void manta__store_close(manta__store *s);

/* Writes the files of the snapshot in `slot_fd` and syncs them; no manifest yet. */
manta_status manta__store_write(manta__store *s, int slot_fd, struct manta__manifest *out,
                                manta_error *err);
/* The manifest, by rename; then retention deletes what it does not keep. Commits come in the order
 * of the writes. If it fails (MANTA_EINVAL apart), what was written is discarded. */
manta_status manta__store_commit(manta__store *s, const struct manta__manifest *m,
                                 manta_error *err);
/* Takes back what manta__store_write wrote; twice is harmless. */
void manta__store_discard(manta__store *s, const struct manta__manifest *m);

/* All manifests under rundir/checkpoints, oldest first (manta_free the array). Invalid ones are
 * left out, each with a warning that names the file. verify: also hash every file. */
manta_status manta__store_list(int rundir, bool verify, struct manta__manifest **out, size_t *count,
                               manta_error *err);
/* The newest usable checkpoint as a directory descriptor, verified; an unusable one is warned about
 * and the one before it taken. MANTA_ENOENT if there is none. */
manta_status manta__store_newest(int rundir, int *dir_out, struct manta__manifest *m_out,
                                 manta_error *err);
/* The best kept by score; MANTA_ENOENT if none has one. */
manta_status manta__store_best(int rundir, bool score_min, struct manta__manifest *m_out,
                               manta_error *err);

/* Opens a checkpoint out of a slot's memfd or a checkpoint directory's descriptor (dup'ed as
 * needed). Maps read-only. verify: as in manta_checkpoint_open; a slot has no hashes to compare. */
manta_status manta__checkpoint_from_fd(manta_checkpoint **out, int fd, bool verify,
                                       manta_error *err);

/* The same for the open files of one: manifest, tensors, value (ckpt/origin.h). */
manta_status manta__checkpoint_from_files(manta_checkpoint **out, const int fd[3], bool verify,
                                          manta_error *err);
/* What it carries besides the state; nil if it does not. Borrowed. */
const manta_value *manta__checkpoint_extra(const manta_checkpoint *c, enum manta__extra which);
/* Says where it comes from: manta_checkpoint_given. */
void manta__checkpoint_mark(manta_checkpoint *c, bool given);

/* The checkpoint in those files as a slot of its own (RETIRED), for hosts that do not have them.
 * Close it. `tick` is called again and again while bytes are copied. */
manta_status manta__checkpoint_to_slot(const int fd[3], void (*tick)(void *ctx), void *ctx,
                                       int *slot_out, manta_error *err);

#endif
