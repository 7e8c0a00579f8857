/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/slot.h - a snapshot in shared memory.
 *
 * A slot is a memfd of sealed size: one page of meta data, then the bytes of a safetensors file,
 * then the packed small value, then the extras (extra.h). The saving rank has three of them; the
 * agent and the driver hold dups.
 *
 *   FREE ──worker──► FILLING ──worker──► READY ──agent──► WRITING ──agent──► READY or FREE
 *                                          └──agent──► FREE (superseded)   └──► RETIRED
 *
 * (1) Only the saving worker moves a slot out of FREE, only the agent moves it into FREE (but for a
 *     worker that gives up FILLING one).
 * (2) The content is constant while the state is READY, WRITING or RETIRED.
 * (3) A slot handed out for loading is RETIRED: it is never written again.
 *     Only `unreported` is set then, once: such a snapshot is not written and not loaded.
 * (4) READY is stored (release) after the last byte: a worker killed at any moment leaves either a
 *     whole snapshot or none. Between two READY slots the larger (attempt, seq) is newer.
 */
#ifndef MANTA_CKPT_SLOT_H
#define MANTA_CKPT_SLOT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/ckpt.h>

#include "base/ident.h"
#include "ckpt/extra.h"

#define MANTA__SLOTS      3
#define MANTA__SLOT_META  4096
#define MANTA__SLOT_MAGIC 0x31746f6c536e616dull /* "manSlot1" */

enum manta__slot_state {
  MANTA__SLOT_FREE = 0,
  MANTA__SLOT_FILLING,
  MANTA__SLOT_READY,
  MANTA__SLOT_WRITING,
  MANTA__SLOT_RETIRED
};

struct manta__slot_meta {
  uint64_t magic;
  _Atomic uint32_t state; /* also a futex: the worker waits on it when no slot is free */
  uint32_t has_score;
  struct manta__ident id; /* seq: of the hand-over, in the rank's one sequence */
  int64_t iteration;      /* c: reports made by rank 0 */
  int64_t wall_ns;
  double score;
  uint64_t tensors_off, tensors_len; /* a safetensors file */
  uint64_t value_off, value_len;     /* MessagePack */
  uint64_t capacity;                 /* bytes of the whole slot */
  int32_t world;
  uint32_t directory;          /* 1: a directory of the user's goes along (ckdir.h) */
  uint64_t files;              /* number of the directory whose files go along (ckdir.h), or 0 */
  _Atomic uint32_t unreported; /* 1, by the driver: the report that it belongs to never came */
  uint32_t zero;
  struct manta__slot_part {
    uint64_t off, len; /* MessagePack; len 0: there is none */
  } extra[MANTA__EXTRA_COUNT];
};
static_assert(sizeof(struct manta__slot_meta) <= MANTA__SLOT_META, "fits its page");

/* --- The saving worker's side --- */

/* One slot as its worker holds it. fd < 0: not made yet. */
struct manta__slot {
  int fd;
  bool announced; /* the agent has its descriptor; false again when it was replaced */
  struct manta__slot_meta *meta; /* the whole slot is mapped from here */
  uint64_t capacity; /* what is mapped: the word in the meta page is for others to read */
  uint64_t serial;   /* from 1, of all that this process made */
};

/* Makes a slot of `capacity` bytes (whole pages): FREE, sealed, every page in memory and mapped.
 * The mapping does not reach forked children. */
manta_status manta__slot_make(struct manta__slot *out, uint64_t capacity, manta_error *err);
/* Makes one out of a FREE slot of another process, which must be gone; fd is taken. Every page is
 * mapped afterwards. */
manta_status manta__slot_adopt(struct manta__slot *out, int fd, manta_error *err);
/* Unmaps and closes; the slot is empty again. Twice is harmless. */
void manta__slot_drop(struct manta__slot *s);
/* Sleeps while *word is `value`, at most `ms` milliseconds; wakes who sleeps there. */
void manta__slot_wait(const _Atomic uint32_t *word, uint32_t value, int ms);
void manta__slot_wake(_Atomic uint32_t *word);

/* One thread at a time. A forked child may only call fini. */
struct manta__slots {
  struct manta__slot slot[MANTA__SLOTS];
  int count;                 /* of slots that are used */
  int adopted[MANTA__SLOTS]; /* descriptors that were taken over and are not mapped yet, or -1 */
  struct manta__slots_warmer *warmer; /* makes further slots warm, behind a save */
  struct manta__layout *layout;       /* of the last state */
  int owner;                          /* the process that made the slots */
};

/* What goes along with a state. */
struct manta__snapshot {
  struct manta__ident id;
  int64_t iteration;
  int32_t world;
  bool has_score;
  double score;
  uint64_t files;
  bool directory;
  const manta_value *extra[MANTA__EXTRA_COUNT]; /* borrowed; NULL or nil: none */
  manta_fill_fn fill;                           /* or NULL: all tensors have data */
  void *fill_ctx;
};

/* Copies `state` into a free slot (made or grown as needed, pre-faulted) and marks it READY; gives
 * its index. Waits for a free slot until `by`; `stop` (may be NULL) is polled while waiting and
 * ends the wait with the failure it returns. MANTA_EINVAL names a tensor that makes no sense (bad
 * shape, name twice, NULL data); nothing has changed then, nor if the snapshot's `fill` failed. */
manta_status manta__slots_save(struct manta__slots *s, const manta_state *state,
                               const struct manta__snapshot *snap, int64_t by,
                               manta_status (*stop)(void *ctx, manta_error *err), void *ctx,
                               int *index_out, manta_error *err);
/* Takes over a FREE slot of another process, which must be gone, as the one with that index; fd is
 * taken. A thread that warm_adopted starts maps what was taken over; what cannot be mapped is made
 * anew by the save that needs it. */
void manta__slots_adopt(struct manta__slots *s, int index, int fd);
void manta__slots_warm_adopted(struct manta__slots *s);
void manta__slots_init(struct manta__slots *s);
/* For a state that stays with this process: one slot, of which the next save needs that the caller
 * has moved it to FREE or RETIRED. */
void manta__slots_init_one(struct manta__slots *s);
void manta__slots_fini(struct manta__slots *s);

/* --- Those who hold a dup --- */

/* Maps the meta page of a slot (shared, writable) after checking seals, size, magic and, where
 * there is content, that it lies within the slot. Unmap with munmap of MANTA__SLOT_META bytes. */
manta_status manta__slot_map_meta(int fd, struct manta__slot_meta **out, manta_error *err);
/* Maps a whole slot, privately. A page that is shared can change after it was checked, so what was
 * checked is copied: *copy holds it, and only *copy may be believed. Unmap with munmap of *size. */
manta_status manta__slot_map(int fd, const uint8_t **base, size_t *size,
                             struct manta__slot_meta *copy, manta_error *err);
/* True if there is content: READY, WRITING or RETIRED. */
bool manta__slot_filled(uint32_t state);
/* Moves the state, waking a waiting worker if it becomes FREE; false if it was not `from`. */
bool manta__slot_move(struct manta__slot_meta *m, uint32_t from, uint32_t to);

#endif
