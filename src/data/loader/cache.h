/* SPDX-License-Identifier: Apache-2.0
 *
 * data/loader/cache.h - parsed blocks of a data set, shared by all feeds that go through it.
 *
 * (1) A block that one feed parses the others take, batch by batch, while it is parsed or later: it
 *     is parsed once as long as they come to it at about the same time.
 * (2) Blocks stay when all have taken them, while there is room: another epoch of a data set that
 *     fits parses nothing. Those that no feed waits for give way first, the newest of them before
 *     the others: of a data set that does not fit the same part stays.
 * (3) Nobody waits for a thread that waits for room: who fills a block does not wait. If there is
 *     no room it gives the block up, and those that follow it parse the rest themselves.
 * (4) What is kept and what the feeds of the process hold has at most three quarters of the bytes
 *     that the largest memory limit of a feed allows; the rest is for buffers. What both hold
 *     counts twice.
 */
#ifndef MANTA_DATA_LOADER_CACHE_H
#define MANTA_DATA_LOADER_CACHE_H

#include "data/plan/dataset.h"

struct manta__cache;
struct manta__cached; /* a block */

/* That of a data set, which a feed takes part in until it leaves; NULL: no memory. */
struct manta__cache *manta__cache_join(manta_dataset *d, size_t limit);
void manta__cache_leave(struct manta__cache *c);
/* How many take part. */
int manta__cache_feeds(const struct manta__cache *c);
/* The feeds of the process hold so many bytes more, or fewer. */
void manta__cache_charge(int64_t bytes);

/* The block, with a reference. True: the caller is to fill it; *out may be NULL then: there is no
 * memory, and nobody sees what the caller parses. */
bool manta__cache_take(struct manta__cache *c, int64_t block, struct manta__cached **out);
void manta__cached_drop(struct manta__cached *b); /* NULL is fine */
/* By who fills it. A batch more, of which it takes a copy; false: there is no room, and the block
 * is given up: it has what it had. */
bool manta__cached_add(struct manta__cached *b, const manta_batch *batch, size_t bytes);
/* Nothing more comes: it is whole, or given up. */
void manta__cached_end(struct manta__cached *b, bool whole);
/* By anybody. 1 and batch number k, the caller's, after a wait for it; 0: the block has no more;
 * MANTA_ESTATE: it was given up before that one, or *stop turned true; manta__cache_wake makes all
 * look at that. MANTA_ENOMEM. */
manta_status manta__cached_next(struct manta__cached *b, int k, const _Atomic bool *stop,
                                manta_batch **out, size_t *bytes);
void manta__cache_wake(void);

#endif
