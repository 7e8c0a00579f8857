/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/ranges.h - what lies behind a URL: read in ranges, some of them ahead.
 *
 * (1) Ranges follow each other and are fetched over a few connections at once; at most
 *     MANTA__HTTP_SLOTS of them are in memory, of 2 MB each, or 8 MB where a long one is announced.
 *     Ahead of what was asked for it fetches only what manta__ranges_expect announced.
 * (2) What breaks off is asked for again, from the byte on that is missing; what a busy server
 *     refuses, after a pause. Six tries without a byte are a failure.
 * (3) All bytes are of the object that was opened: another ETag is a failure.
 * (4) A server that sends the whole where a range is asked for is read as one stream, and the facts
 *     say so from then on. Going back means to begin again: that is slow, but it works, and the
 *     memory is the same.
 */
#ifndef MANTA_REMOTE_RANGES_H
#define MANTA_REMOTE_RANGES_H

#include "remote/http.h"

/* Where it lies, and how requests are signed. Strings are copied; those that are NULL or "" are not
 * used. */
struct manta__remote_spec {
  const char *url;
  const char *sign, *user, *secret;
  const char *token; /* a header: "x-amz-security-token: ..." */
};

/* A request to it. */
struct manta__http_call manta__remote_call(const struct manta__remote_spec *spec,
                                           const char *method);

/* What is known of an object without reading it. */
struct manta__remote_facts {
  int64_t size;   /* -1: the server does not tell */
  bool whole;     /* the server is known to give it only as a whole */
  char etag[128]; /* "": not known; that of the first reply counts then */
};
/* One request. MANTA_ENOENT, MANTA_EDENIED, MANTA_EIO; messages begin with the name. */
manta_status manta__remote_look(const char *name, const struct manta__remote_spec *spec,
                                struct manta__remote_facts *out, manta_error *err);

typedef struct manta__ranges manta__ranges;

/* Copies all that it is given, and asks nobody. Close it. */
manta_status manta__ranges_open(manta__ranges **out, const char *name,
                                const struct manta__remote_spec *spec,
                                const struct manta__remote_facts *facts, manta_error *err);
void manta__ranges_close(manta__ranges *r); /* NULL is fine */
/* n bytes at `at`, both inside the size; by several threads, one after the other. */
manta_status manta__ranges_read(manta__ranges *r, int64_t at, void *to, size_t n, manta_error *err);
/* What it was given, with the ETag of what was read. */
const struct manta__remote_facts *manta__ranges_facts(const manta__ranges *r);
/* These bytes will be read, in order. */
void manta__ranges_expect(manta__ranges *r, int64_t from, int64_t to);

#endif
