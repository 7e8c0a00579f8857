/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/remote.h - a source that lies behind a URL: read in ranges, some of them ahead.
 *
 * (1) Ranges follow each other and are fetched over a few connections at once; at most
 *     MANTA__HTTP_SLOTS of them are in memory. Ahead of what was asked for it fetches only what
 *     manta__source_expect announced.
 * (2) What breaks off is asked for again, from the byte on that is missing; what a busy server
 *     refuses, after a pause. Six tries without a byte are a failure.
 * (3) All bytes are of the object that was opened: another ETag is a failure.
 */
#ifndef MANTA_DATA_SOURCE_REMOTE_H
#define MANTA_DATA_SOURCE_REMOTE_H

#include "data/source/http.h"
#include "data/source/source.h"

/* Where it lies, and how requests are signed. Strings are copied; those that are NULL or "" are not
 * used. */
struct manta__remote_spec {
  const char *url;
  const char *sign, *user, *secret;
  const char *token; /* a header: "x-amz-security-token: ..." */
};

/* Asks for the size, and opens it. Its place uses the functions below. */
manta_status manta__remote_open(struct manta__source **out, const struct manta__place *place,
                                const char *name, const struct manta__remote_spec *spec,
                                manta_error *err);
manta_status manta__remote_read(struct manta__source *s, int64_t at, void *to, size_t n,
                                manta_error *err);
void manta__remote_expect(struct manta__source *s, int64_t from, int64_t to);
void manta__remote_close(struct manta__source *s);
/* The size alone. */
manta_status manta__remote_size(const char *name, const struct manta__remote_spec *spec,
                                int64_t *out, manta_error *err);

#endif
