/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/remote.h - sources that lie behind a URL (remote/ranges.h), and what is remembered of
 * them.
 *
 * A data set opens a file once for each of its blocks. What a listing or the first opening has told
 * of an object is remembered, so that its server is asked once; an object that has changed since
 * then is noticed by its ETag when it is read, and is forgotten. What a server gives only as a
 * whole is copied (spool.h).
 */
#ifndef MANTA_DATA_SOURCE_REMOTE_H
#define MANTA_DATA_SOURCE_REMOTE_H

#include "data/source/source.h"
#include "remote/ranges.h"

/* Opens it, asking for its size if that is not known. Its place uses the functions below. */
manta_status manta__remote_open(struct manta__source **out, const struct manta__place *place,
                                const char *name, const struct manta__remote_spec *spec,
                                manta_error *err);
manta_status manta__remote_read(struct manta__source *s, int64_t at, void *to, size_t n,
                                manta_error *err);
void manta__remote_expect(struct manta__source *s, int64_t from, int64_t to);
void manta__remote_close(struct manta__source *s);
/* The size alone, asked for anew. */
manta_status manta__remote_size(const char *name, const struct manta__remote_spec *spec,
                                int64_t *out, manta_error *err);

/* What is known of an object from now on; NULL: nothing. */
void manta__remote_know(const char *name, const struct manta__remote_facts *facts);

#endif
