/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/spool.h - local copies of what a server gives only as a whole: one that does not tell
 * the size of a file, or has no ranges.
 *
 * (1) A copy is fetched once in a process and lies in a file without a name, in TMPDIR or /tmp,
 *     which is gone with the process.
 * (2) All copies together have at most MANTA_DATA_SPOOL MB. Those that nobody reads stay as long as
 *     there is room for them: a data set opens a file once for each of its blocks.
 * (3) What breaks off is fetched again from its beginning. A server that announces no length and
 *     closes the connection too early cannot be told from one that is done.
 */
#ifndef MANTA_DATA_SOURCE_SPOOL_H
#define MANTA_DATA_SOURCE_SPOOL_H

#include "remote/ranges.h"

struct manta__spool;

/* The copy of that name, fetched by this call if there is none, or by the thread that asked first.
 * MANTA_ETOOBIG: there is no room for it. Give it back. */
manta_status manta__spool_take(struct manta__spool **out, const char *name,
                               const struct manta__remote_spec *spec, manta_error *err);
void manta__spool_give(struct manta__spool *s); /* NULL is fine */
/* Its copy is fetched anew by whoever takes it next. */
void manta__spool_forget(const char *name);
int64_t manta__spool_size(const struct manta__spool *s);
/* n bytes at `at`, both inside the size; any thread. */
manta_status manta__spool_read(struct manta__spool *s, int64_t at, void *to, size_t n,
                               manta_error *err);

#endif
