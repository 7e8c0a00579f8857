/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/guard.h - who may ask: the token, and the headers by which a browser says for whom it asks.
 *
 * (1) Nothing is answered without the token, whatever is asked for.
 * (2) The Host must be a name of ours or an IP address: a page of somebody else whose name was
 *     made to point here (DNS rebinding) has another one.
 * (3) An Origin, if there is one, must be ours: scheme and Host of this very request.
 */
#ifndef MANTA_DASH_GUARD_H
#define MANTA_DASH_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/status.h>

#define MANTA__TOKEN_MIN 16 /* characters of one that the user gives */
#define MANTA__TOKEN_MAX 128

struct manta__guard {
  char token[MANTA__TOKEN_MAX + 1];
  bool tls;
  char own[256];       /* the name of this host */
  const char *allowed; /* one that the user gave, or NULL; borrowed */
};

/* A token of 128 random bits. */
manta_status manta__guard_make_token(struct manta__guard *g, manta_error *err);
/* The first line of a file that belongs to this user, and that nobody else may read. */
manta_status manta__guard_read_token(struct manta__guard *g, const char *path, manta_error *err);

/* Takes as long whatever differs. NULL: no. */
bool manta__guard_token_ok(const struct manta__guard *g, const char *given);
/* "Bearer TOKEN" */
bool manta__guard_bearer_ok(const struct manta__guard *g, const char *header);
/* Host: with or without a port. NULL: no. */
bool manta__guard_host_ok(const struct manta__guard *g, const char *host);
/* Origin and Sec-Fetch-Site, each NULL where there is none. */
bool manta__guard_origin_ok(const struct manta__guard *g, const char *origin, const char *site,
                            const char *host);

#endif
