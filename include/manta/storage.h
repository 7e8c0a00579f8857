/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/storage.h - storage outside of this host: s3://BUCKET/PREFIX.
 *
 * A trainer whose logdir is such a URI (manta_trainer_config) keeps the directories of its runs in
 * the staging directory of the URI, MANTA_STAGING/s3/BUCKET/PREFIX, and stores a copy of each under
 * the URI: finished checkpoints as they come, run.log, results and other files. A process of its
 * own does that; what goes wrong there neither stops nor slows the run. The calls here are for what
 * lies under a URI already, or is to be put there by hand. They wait, and try again what a busy
 * server refuses.
 *
 * Accounts and servers are found as other programs find them: AWS_ACCESS_KEY_ID,
 * AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL,
 * ~/.aws/credentials, ~/.aws/config, a web identity, or the service of the machine. Needs libcurl,
 * which is loaded when it is used.
 */
#ifndef MANTA_STORAGE_H
#define MANTA_STORAGE_H

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* MANTA_OK: something can be stored under this URI, as far as its form says; nobody is asked.
 * MANTA_EUNSUPPORTED names what there is; MANTA_EINVAL: no bucket. */
MANTA_API manta_status manta_storage_check(const char *uri, manta_error *err);
/* The staging directory of a URI, which need not exist; manta_free it. */
MANTA_API manta_status manta_storage_local(const char *uri, char **out, manta_error *err);
/* Whether an object `name` lies below the URI: 1, 0, or an error. */
MANTA_API int manta_storage_has(const char *uri, const char *name, manta_error *err);
/* Brings a run, or a folder of runs, to its staging directory, whose path is given: manta_free it.
 * What is newer there stays. MANTA_ENOENT: there is nothing under the URI. */
MANTA_API manta_status manta_storage_fetch(const char *uri, char **out, manta_error *err);
/* A file, or all that is in a directory, to the URI; manifests of checkpoints come last. */
MANTA_API manta_status manta_storage_upload(const char *path, const char *uri, manta_error *err);
/* All that lies below the URI into a directory, which is made. MANTA_ENOENT: there is nothing. */
MANTA_API manta_status manta_storage_download(const char *uri, const char *dir, manta_error *err);
/* Stores what is missing of a run whose directory this is, under the URI that it is meant for.
 * MANTA_ENOENT: it is meant for none. */
MANTA_API manta_status manta_storage_complete(const char *dir, manta_error *err);

#ifdef __cplusplus
}
#endif

#endif
