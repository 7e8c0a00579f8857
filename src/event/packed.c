/* SPDX-License-Identifier: Apache-2.0
 *
 * event/packed.c - rows of run.log as they are packed: one value, or all numbers, without an
 * allocation. Lengths are believed only as far as there are bytes.
 */
#include "event/packed.h"

#include <assert.h>
#include <string.h>

#include "base/pack.h"
#include "event/record.h"

#define MAX_NESTED 8   /* maps inside maps whose numbers have names */
#define MAX_NAME   256 /* bytes of a name with all that it is nested in */

/* MessagePack types 0xc0 to 0xdf: after the type byte come `size` bytes of length and `body` bytes.
 * `items` says what the length counts: 0 bytes, 1 items of a list, 2 pairs of a map. */
static const struct form {
  uint8_t size, body, items, bad;
} forms[32] = {
    [0x01] = {.bad = 1},    [0x04] = {1, 0, 0, 0},                        // bin
    [0x05] = {2, 0, 0, 0},  [0x06] = {4, 0, 0, 0}, [0x07] = {1, 1, 0, 0}, // ext
    [0x08] = {2, 1, 0, 0},  [0x09] = {4, 1, 0, 0}, [0x0a] = {0, 4, 0, 0}, // float
    [0x0b] = {0, 8, 0, 0},  [0x0c] = {0, 1, 0, 0},                        // uint
    [0x0d] = {0, 2, 0, 0},  [0x0e] = {0, 4, 0, 0}, [0x0f] = {0, 8, 0, 0},
    [0x10] = {0, 1, 0, 0}, // int
    [0x11] = {0, 2, 0, 0},  [0x12] = {0, 4, 0, 0}, [0x13] = {0, 8, 0, 0},
    [0x14] = {0, 2, 0, 0}, // fixext
    [0x15] = {0, 3, 0, 0},  [0x16] = {0, 5, 0, 0}, [0x17] = {0, 9, 0, 0},
    [0x18] = {0, 17, 0, 0}, [0x19] = {1, 0, 0, 0},                        // str
    [0x1a] = {2, 0, 0, 0},  [0x1b] = {4, 0, 0, 0}, [0x1c] = {2, 0, 1, 0}, // list
    [0x1d] = {4, 0, 1, 0},  [0x1e] = {2, 0, 2, 0},                        // map
    [0x1f] = {4, 0, 2, 0},
};

// Bytes of the object at p without its children, whose number is added to *more; 0: cut off or bad.
static size_t skip_head(const uint8_t *p, size_t n, uint64_t *more)
{
  if (n == 0)
    return 0;
  uint8_t c = p[0];
  if (c <= 0x7f || c >= 0xe0)
    return 1;
  if (c <= 0x9f) {
    *more += (uint64_t)(c & 15) * (c <= 0x8f ? 2 : 1);
    return 1;
  }
  if (c <= 0xbf)
    return 1u + (c & 31) <= n ? 1u + (c & 31) : 0;
  const struct form *f = &forms[c - 0xc0];
  if (f->bad || n < 1u + f->size)
    return 0;
  uint64_t len = 0;
  for (int i = 0; i < f->size; i++)
    len = len << 8 | p[1 + i];
  *more += len * f->items;
  uint64_t own = 1u + f->size + f->body + (f->items ? 0 : len);
  return own <= n ? (size_t)own : 0;
}

// Bytes of the whole object at p, or 0.
static size_t skip(const uint8_t *p, size_t n)
{
  size_t at = 0;
  for (uint64_t left = 1; left > 0; left--) {
    size_t k = skip_head(p + at, n - at, &left);
    if (k == 0)
      return 0;
    at += k;
  }
  return at;
}

int64_t manta__row_iteration(const uint8_t *p, size_t n)
{
  static const char key[] = "\xb3_training_iteration"; // as packed: a short string
  static_assert(sizeof key == 21, "one byte of type, 19 of text");
  uint64_t left = 0;
  size_t at = skip_head(p, n, &left);
  if (at == 0 || !((p[0] & 0xf0) == 0x80 || p[0] >= 0xde) || p[0] > 0xdf)
    return 0;
  for (; left > 0; left -= 2) {
    bool found = n - at > 20 && !memcmp(p + at, key, 20);
    size_t k = skip(p + at, n - at);
    if (k == 0)
      return 0;
    at += k;
    if (found) {
      manta_value v = {0};
      int64_t i = manta__unpack(&v, p + at, n - at, NULL, NULL) < 0 ? 0 : manta_value_as_int(&v, 0);
      manta_value_fini(&v);
      return i;
    }
    if ((k = skip(p + at, n - at)) == 0)
      return 0;
    at += k;
  }
  return 0;
}

// --- Numbers -------------------------------------------------------------------------------------

struct walk {
  const uint8_t *p;
  size_t n, at;
  manta__packed_number_fn *fn;
  void *ctx;
  char name[MAX_NAME];
};

static uint64_t read_big(const uint8_t *p, int bytes)
{
  uint64_t x = 0;
  for (int i = 0; i < bytes; i++)
    x = x << 8 | p[i];
  return x;
}

// The number whose type byte is at p (all of it is there); false if it is something else.
static bool read_number(const uint8_t *p, double *out)
{
  uint8_t c = p[0];
  uint64_t x;
  uint32_t half;
  float f;
  if (c <= 0x7f || c >= 0xe0) {
    *out = (int8_t)c;
  } else if (c == 0xc2 || c == 0xc3) {
    *out = c == 0xc3;
  } else if (c == 0xca) {
    half = (uint32_t)read_big(p + 1, 4);
    memcpy(&f, &half, 4);
    *out = (double)f;
  } else if (c == 0xcb) {
    x = read_big(p + 1, 8);
    memcpy(out, &x, 8);
  } else if (c >= 0xcc && c <= 0xcf) {
    *out = (double)read_big(p + 1, 1 << (c - 0xcc));
  } else if (c >= 0xd0 && c <= 0xd3) {
    int bytes = 1 << (c - 0xd0), shift = 64 - 8 * bytes;
    *out = (double)((int64_t)(read_big(p + 1, bytes) << shift) >> shift);
  } else {
    return false;
  }
  return true;
}

// The string at w->at; gives where its bytes are and steps over it. False: it is none, or cut off.
static bool read_key(struct walk *w, const char **key, size_t *len)
{
  const uint8_t *p = w->p + w->at;
  uint64_t more = 0;
  size_t whole = skip_head(p, w->n - w->at, &more);
  if (whole == 0)
    return false;
  size_t head;
  if ((p[0] & 0xe0) == 0xa0)
    head = 1;
  else if (p[0] >= 0xd9 && p[0] <= 0xdb)
    head = 1u + (1u << (p[0] - 0xd9));
  else
    return false;
  *key = (const char *)p + head;
  *len = whole - head;
  w->at += whole;
  return true;
}

static bool is_map(uint8_t c)
{
  return (c & 0xf0) == 0x80 || c == 0xde || c == 0xdf;
}

static bool walk_map(struct walk *w, size_t prefix, int depth);

static bool walk_value(struct walk *w, const char *key, size_t len, size_t prefix, int depth)
{
  const uint8_t *p = w->p + w->at;
  size_t left = w->n - w->at;
  double x;
  bool room = prefix + len + 1 < MAX_NAME;
  if (left == 0)
    return false;
  if (prefix > 0 && room) {
    memcpy(w->name + prefix, key, len);
    key = w->name;
  }
  if (is_map(p[0]) && depth < MAX_NESTED && room) {
    if (prefix == 0)
      memcpy(w->name, key, len);
    w->name[prefix + len] = '/';
    return walk_map(w, prefix + len + 1, depth + 1);
  }
  size_t k = skip(p, left);
  if (k == 0)
    return false;
  w->at += k;
  if (room && read_number(p, &x))
    w->fn(w->ctx, key, prefix + len, x);
  return true;
}

static bool walk_map(struct walk *w, size_t prefix, int depth)
{
  uint64_t left = 0;
  size_t k = skip_head(w->p + w->at, w->n - w->at, &left);
  if (k == 0)
    return false;
  w->at += k;
  for (; left > 0; left -= 2) {
    const char *key;
    size_t len;
    if (!read_key(w, &key, &len) || !walk_value(w, key, len, prefix, depth))
      return false;
  }
  return true;
}

bool manta__packed_numbers(const uint8_t *p, size_t n, manta__packed_number_fn *fn, void *ctx)
{
  struct walk w = {.p = p, .n = n, .fn = fn, .ctx = ctx};
  return n > 0 && is_map(p[0]) && walk_map(&w, 0, 0);
}
