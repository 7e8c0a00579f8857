/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/replica.h - a run directory and its copy in a store: URI/run.log, URI/checkpoints/000012/….
 *
 * The run lives in a directory of this host, the staging directory; another process sends what is
 * new there, pass by pass. Nothing that goes wrong with the store touches the run.
 *
 * (1) A manifest goes up after all files of its checkpoint, and after run.log: whoever reads from
 *     the store finds whole checkpoints only. Random states that are there by then go before it,
 *     too; those of ranks that come later follow.
 * (2) The newest checkpoint goes first. One whose upload has begun is finished, also if retention
 *     removes it meanwhile: links in .upload-PID/ hold its files. Those that retention removes
 *     before their turn are passed over.
 * (3) What retention has removed here is removed there, manifests first, but the newest one there
 *     stays until a newer one is whole.
 * (4) Other files go up when they have changed, at most every 10 s and never for more than a
 *     twentieth of the time; logs of ranks at the end only.
 * (5) Names that begin with "." stay here, except inside of checkpoints. URI/.session-S-N says
 *     whose run it is: the first that is stored, and it is not overwritten.
 */
#ifndef MANTA_CKPT_REPLICA_H
#define MANTA_CKPT_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

#define MANTA__STORAGE_FILE ".storage" /* in a run directory: the URI of its copy */
#define MANTA__FETCHED_FILE ".fetched" /* … it came from there: written by others, perhaps */

/* The staging directory of a URI: MANTA_STAGING/SCHEME/BUCKET/…. The caller frees it. */
manta_status manta__staging_path(const char *uri, char **out, manta_error *err);

/* A run is going to lie there: stores its first object, and fails if the URI cannot be written
 * (MANTA_EDENIED, MANTA_ENOENT, MANTA_EIO) or is another run's (MANTA_ESTATE). Notes the URI in the
 * directory. */
manta_status manta__replica_claim(int rundir, const char *uri, uint64_t session, int ordinal,
                                  manta_error *err);
/* The URI that is noted there; MANTA_ENOENT: none. The caller frees it. */
manta_status manta__replica_uri(int rundir, char **out, manta_error *err);

/* --- sending --- */

struct manta__replica;

/* Looks at what is there. rundir: dup'ed. */
manta_status manta__replica_open(struct manta__replica **out, int rundir, const char *uri,
                                 manta_error *err);
void manta__replica_close(struct manta__replica *m); /* NULL is fine */
/* Sends what is new and removes what is gone. all: also what would have to wait, see (4). A failure
 * is one of the store; the next pass goes on where this one ended. */
manta_status manta__replica_pass(struct manta__replica *m, bool all, manta_error *err);

/* --- fetching --- */

/* Brings the run, or all below a folder of runs, to its staging directory, whose path the caller
 * frees. What is newer here stays. MANTA_ENOENT: there is nothing. */
manta_status manta__replica_fetch(const char *uri, char **dir_out, manta_error *err);
/* The other runs of the same session, which lie beside it. */
manta_status manta__replica_fetch_session(const char *uri, manta_error *err);

/* --- files and folders of any kind --- */

/* A file, or all that is in a directory (manifests last), to a URI. */
manta_status manta__replica_upload(const char *path, const char *uri, manta_error *err);
/* All objects below a URI, or the object itself, into a directory, which is made. MANTA_ENOENT:
 * there are none. */
manta_status manta__replica_download(const char *uri, const char *dir, manta_error *err);

#endif
