/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/chooser.h - which way a large call goes, by what each way took.
 *
 * Which way is fastest depends on the CPU, on where the ranks run and on what else they do, and no
 * number that a program can look up says so. On an EPYC a line from another core's cache and a line
 * that others have read are cheap, and a system call per 64 pages is not; on a Xeon with a cache
 * that does not include the smaller ones it is the other way round from a megabyte on. So the first
 * rank times whole calls and tries the other ways for a while now and then.
 *
 * (1) Ways differ in speed only: results have the same bits (comm/reduce/reduce.h).
 * (2) A choice is made for each kind of call and each size, by powers of two. Sizes that were never
 *     called begin with the way of the next smaller one, and stay with it for some calls.
 * (3) The first rank tells its choices with its description, and they hold from the call behind
 *     that one on: what must be prepared before a description is published is prepared by all. So a
 *     call may have gone another way than the one being tried, and does not count then.
 */
#ifndef MANTA_COMM_SHM_CHOOSER_H
#define MANTA_COMM_SHM_CHOOSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

enum manta__comm_way {
  MANTA__WAY_CACHED, /* staged through the caches */
  MANTA__WAY_PAST,   /* staged past them: what a far core has read is slow to write */
  MANTA__WAY_REMOTE, /* by the kernel, from process to process: see comm/shm/remote.h */
  MANTA__COMM_WAYS
};
#define MANTA__WAY_BITS 2 /* of a told choice */

#define MANTA__CHOICE_SIZES 16 /* from 8 KB on, by powers of two: less is not worth the clock */
#define MANTA__CHOICES      (2 * MANTA__CHOICE_SIZES) /* of all-reduces, and of all others */

struct manta__choice {
  uint8_t way;                    /* the best so far */
  uint8_t tried;                  /* what calls go now: that one, or another for a while */
  uint8_t last;                   /* that other one, now or the last time */
  uint16_t left;                  /* calls until that changes */
  int64_t best;                   /* ns per 64 KB since it last did; 0: none yet */
  int64_t cost[MANTA__COMM_WAYS]; /* the best of each when it was last tried; 0: never */
};

struct manta__chooser {
  uint64_t now;  /* told: the way of each choice */
  uint64_t next; /* on the first rank: to be told */
  uint8_t fixed; /* 1 + the way that all go, whatever it takes; 0: by measuring */
  bool barred;   /* the remote way does not work here */
  struct manta__choice of[MANTA__CHOICES];
};

/* Takes the way that MANTA_COMM_WAY fixes, if it is set. */
manta_status manta__chooser_init(struct manta__chooser *s, manta_error *err);
/* The choice for a call, or -1 if it is too small to matter. */
int manta__chooser_find(bool allreduce, size_t bytes);
/* The way that was told for a call. */
static inline enum manta__comm_way manta__chooser_way(const struct manta__chooser *s, int choice)
{
  return choice < 0 ? MANTA__WAY_CACHED
                    : (enum manta__comm_way)(s->now >> choice * MANTA__WAY_BITS & 3);
}
/* On the first rank: a call took so long this way; ring: bytes of a staging buffer. */
void manta__chooser_note(struct manta__chooser *s, int choice, enum manta__comm_way way, int64_t ns,
                         size_t bytes, size_t ring);
/* A call could not go this way. */
void manta__chooser_miss(struct manta__chooser *s, int choice, enum manta__comm_way way);
/* No call can go the remote way. */
void manta__chooser_bar(struct manta__chooser *s);

#endif
