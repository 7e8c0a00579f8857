/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/cells.h - columns of random values, and values as text, so that any two can be
 * compared whatever they lie in.
 */
#ifndef MANTA_TEST_CELLS_H
#define MANTA_TEST_CELLS_H

#include "data/column/build.h"
#include "test.h"

#define CELL_MAX 256

static inline uint64_t cells_random(uint64_t *state)
{
  uint64_t x = *state += 0x9e3779b97f4a7c15; // splitmix64
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/* Value i: "null", "true", the hex of a number, or "text:" and the bytes. */
static inline const char *cell(const struct manta__column *c, int64_t i, char *out)
{
  size_t n;
  assert_in_range(i, 0, c->length - 1);
  if (manta__column_is_null(c, i))
    return "null";
  if (c->type.kind == MANTA_KIND_BOOL)
    return manta__column_bit(c, i) ? "true" : "false";
  if (manta__type_varies(&c->type)) {
    const char *p = manta__column_text(c, i, &n);
    snprintf(out, CELL_MAX, "text:%.*s", (int)n, p);
    return out;
  }
  const uint8_t *p = manta__column_at(c, i);
  n = manta__type_width(&c->type);
  for (size_t b = 0; b < n && b < CELL_MAX / 2 - 1; b++)
    snprintf(out + 2 * b, 3, "%02x", p[b]);
  return out;
}

static inline void assert_same_cell(const struct manta__column *a, int64_t i,
                                    const struct manta__column *b, int64_t k)
{
  char x[CELL_MAX], y[CELL_MAX];
  assert_string_equal(cell(a, i, x), cell(b, k, y));
}

/* Every kind of type once. */
#define CELL_TYPES 17
static inline struct manta__type cell_type(int which)
{
  static const char *const names[CELL_TYPES] = {
      "bool", "i8",  "u8",   "i16", "u16",    "i32",   "u32",    "i64",    "u64",
      "f16",  "f32", "bf16", "f64", "string", "bytes", "f32[3]", "u8[2,2]"};
  struct manta__type t;
  assert_status(manta__type_parse(&t, names[which], NULL), MANTA_OK);
  return t;
}

/* n values, about one in `nulls` of them null (0: none). */
static inline void cells_make(struct manta__column *out, const struct manta__type *type, int64_t n,
                              int nulls, uint64_t *state)
{
  struct manta__build b;
  uint64_t noise[4];
  assert_status(manta__build_begin(&b, type, n, 1 << 20, NULL, NULL), MANTA_OK);
  for (int64_t i = 0; i < n; i++) {
    for (int k = 0; k < 4; k++)
      noise[k] = cells_random(state);
    if (nulls && noise[3] % (unsigned)nulls == 0)
      assert_status(manta__build_null(&b, NULL), MANTA_OK);
    else if (type->kind == MANTA_KIND_BOOL)
      manta__build_bool(&b, noise[0] & 1);
    else if (type->kind == MANTA_KIND_NUMBER)
      manta__build_number(&b, noise);
    else {
      char text[32];
      int len = snprintf(text, sizeof text, "%.*s", (int)(noise[1] % 12), "abcdefghijkl");
      assert_status(manta__build_text(&b, text, (size_t)len, NULL), MANTA_OK);
    }
  }
  manta__build_finish(&b, out);
}

#endif
