/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/ckpt/sample.h - a state whose every byte follows from a number, and a directory to write
 * into.
 */
#ifndef MANTA_TESTS_CKPT_SAMPLE_H
#define MANTA_TESTS_CKPT_SAMPLE_H

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ckpt/slot.h"
#include "ckpt/store.h"
#include "test.h"

#define SAMPLE_TENSORS 8

/* All awkward kinds: odd sizes, no elements, no dimensions, a name that needs escaping. */
struct sample {
  size_t n;
  uint64_t *w; /* n */
  float f[33];
  int8_t odd[7];
  uint16_t half[3];
  double scalar;
  char text[16];
  manta_tensor tensors[SAMPLE_TENSORS];
  manta_pair pairs[1];
  manta_value value;
  manta_state state;
};

static inline uint64_t sample_word(uint64_t seed, size_t i)
{
  return (seed + 1) * 0x9e3779b97f4a7c15ull + i * 0x2545f4914f6cdd1dull;
}

static inline void sample_fill(struct sample *s, uint64_t seed)
{
  for (size_t i = 0; i < s->n; i++)
    s->w[i] = sample_word(seed, i);
  for (size_t i = 0; i < 33; i++)
    s->f[i] = (float)(sample_word(seed, i) >> 40);
  for (size_t i = 0; i < 7; i++)
    s->odd[i] = (int8_t)sample_word(seed, i);
  for (size_t i = 0; i < 3; i++)
    s->half[i] = (uint16_t)sample_word(seed, i);
  s->scalar = (double)seed + 0.5;
  s->pairs[0] = MANTA_KV_INT("seed", (int64_t)seed);
}

static inline void sample_init(struct sample *s, size_t n)
{
  *s = (struct sample){.n = n, .w = calloc(n ? n : 1, 8)};
  assert_non_null(s->w);
  s->tensors[0] = MANTA_VECTOR("odd", MANTA_I8, s->odd, 7);
  s->tensors[1] = MANTA_VECTOR("layer.0.w", MANTA_U64, s->w, n);
  s->tensors[2] = (manta_tensor){"f", MANTA_F32, 2, {3, 11}, s->f};
  s->tensors[3] = (manta_tensor){"scalar", MANTA_F64, 0, {0}, &s->scalar};
  s->tensors[4] = (manta_tensor){"nothing", MANTA_I64, 3, {4, 0, 2}, NULL};
  s->tensors[5] = MANTA_VECTOR("half \"\\\n\xc3\xa9\xf0\x9f\x90\x99", MANTA_BF16, s->half, 3);
  s->tensors[6] = MANTA_VECTOR("flag", MANTA_BOOL8, s->odd, 0);
  s->tensors[7] = MANTA_VECTOR("layer.0.m", MANTA_U64, s->w, n);
  s->value = (manta_value){.type = MANTA_MAP, .count = 1, .u.pairs = s->pairs};
  s->state = (manta_state){s->tensors, SAMPLE_TENSORS, &s->value};
  sample_fill(s, 0);
}

static inline void sample_fini(struct sample *s)
{
  free(s->w);
}

/* True if the checkpoint holds exactly the sample of this seed. Uses s as scratch. */
static inline bool sample_matches(struct sample *s, const manta_checkpoint *c, uint64_t seed)
{
  sample_fill(s, seed);
  if (manta_checkpoint_count(c) != SAMPLE_TENSORS ||
      !manta_value_equal(manta_checkpoint_value(c), &s->value))
    return false;
  for (int i = 0; i < SAMPLE_TENSORS; i++) {
    const manta_tensor *want = &s->tensors[i], *got = manta_checkpoint_tensor(c, want->name);
    if (!got || got != manta_checkpoint_at(c, (size_t)i) || got->dtype != want->dtype ||
        got->ndim != want->ndim || memcmp(got->shape, want->shape, sizeof got->shape) != 0)
      return false;
    size_t bytes = (size_t)manta_tensor_bytes(want);
    if (bytes && memcmp(got->data, want->data, bytes) != 0)
      return false;
  }
  return true;
}

static inline struct manta__snapshot sample_snapshot(uint64_t seq)
{
  return (struct manta__snapshot){
      .id = {0xfedcba9876543210ull, 3, 0, seq}, .iteration = (int64_t)seq * 10, .world = 4};
}

/* What a sample carries besides the state: maps that follow from the seed. */
struct sample_extras {
  manta_pair pairs[MANTA__EXTRA_COUNT][2];
  manta_value value[MANTA__EXTRA_COUNT];
};

static inline void sample_extras_fill(struct sample_extras *e, uint64_t seed)
{
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    e->pairs[i][0] = MANTA_KV_INT("rows", (int64_t)sample_word(seed, (size_t)i));
    e->pairs[i][1] = MANTA_KV("state", manta_value_borrow_bytes("\0\xff\x01", 3));
    e->value[i] = (manta_value){.type = MANTA_MAP, .count = 2, .u.pairs = e->pairs[i]};
  }
}

/* Whether the checkpoint carries what belongs to the seed; seed 0: nothing. */
static inline bool sample_extras_match(const manta_checkpoint *c, uint64_t seed)
{
  struct sample_extras e;
  sample_extras_fill(&e, seed);
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    const manta_value *got = manta__checkpoint_extra(c, (enum manta__extra)i);
    if (seed ? !manta_value_equal(got, &e.value[i]) : got->type != MANTA_NIL)
      return false;
  }
  return true;
}

/* Saves the sample of this seed with its extras; gives the slot's index. */
static inline int sample_save_extras(struct manta__slots *slots, struct sample *s, uint64_t seed)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__snapshot snap = sample_snapshot(seed);
  struct sample_extras e;
  int i = -1;
  sample_fill(s, seed);
  sample_extras_fill(&e, seed);
  for (int k = 0; k < MANTA__EXTRA_COUNT; k++)
    snap.extra[k] = &e.value[k];
  assert_ok(manta__slots_save(slots, &s->state, &snap, manta__deadline(30), NULL, NULL, &i, &err),
            &err);
  return i;
}

/* Saves the sample of this seed; gives the slot's index. */
static inline int sample_save(struct manta__slots *slots, struct sample *s, uint64_t seed)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__snapshot snap = sample_snapshot(seed);
  int i = -1;
  sample_fill(s, seed);
  assert_ok(manta__slots_save(slots, &s->state, &snap, manta__deadline(30), NULL, NULL, &i, &err),
            &err);
  return i;
}

/* Fails unless the slot or directory holds the sample of this seed. Uses s as scratch. */
static inline void assert_holds(int fd, struct sample *s, uint64_t seed)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  assert_ok(manta__checkpoint_from_fd(&c, fd, false, &err), &err);
  assert_true(sample_matches(s, c, seed));
  assert_int_equal(manta_checkpoint_iteration(c), (int64_t)seed * 10);
  manta_checkpoint_close(c);
}

/* Plays the agent that drops all but slot `keep`. */
static inline void sample_free_others(struct manta__slots *slots, int keep)
{
  for (int i = 0; i < MANTA__SLOTS; i++)
    if (i != keep && slots->slot[i].fd >= 0)
      manta__slot_move(slots->slot[i].meta, MANTA__SLOT_READY, MANTA__SLOT_FREE);
}

static inline int temp_dir_drop_one(const char *path, const struct stat *sb, int kind,
                                    struct FTW *f)
{
  return remove(path);
}

static inline void temp_dir_drop(const char *path)
{
  nftw(path, temp_dir_drop_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes a directory; path must hold 64 bytes. */
static inline int temp_dir(char *path)
{
  const char *base = getenv("TMPDIR");
  snprintf(path, 64, "%.40s/manta-test-XXXXXX", base ? base : "/tmp");
  assert_non_null(mkdtemp(path));
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert_true(fd >= 0);
  return fd;
}

#endif
