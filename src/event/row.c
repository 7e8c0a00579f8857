/* SPDX-License-Identifier: Apache-2.0 */
#include "event/row.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/pack.h"

#define HASHED 9 /* bytes of "~" and a hash, behind a name that is cut */

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

// --- walking -------------------------------------------------------------------------------------

// Enters the map at w->at, if it is one.
static bool enter(struct manta__row_walk *w)
{
  uint64_t more = 0;
  uint8_t c = w->at < w->len ? w->bytes[w->at] : 0;
  bool map = (c & 0xf0) == 0x80 || c == 0xde || c == 0xdf;
  size_t k = map ? skip_head(w->bytes + w->at, w->len - w->at, &more) : 0;
  if (k == 0 || w->depth == MANTA__ROW_DEPTH)
    return false;
  w->at += k;
  w->left[w->depth] = more / 2;
  w->prefix[w->depth++] = w->name_len;
  return true;
}

void manta__row_walk(struct manta__row_walk *w, const void *row, size_t len)
{
  *w = (struct manta__row_walk){.bytes = row, .len = len};
  enter(w);
}

static bool read_text(struct manta__row_walk *w, const char **text, size_t *n)
{
  uint64_t more = 0;
  const uint8_t *p = w->bytes + w->at;
  size_t k = skip_head(p, w->len - w->at, &more);
  if (k == 0 || !((p[0] & 0xe0) == 0xa0 || (p[0] >= 0xd9 && p[0] <= 0xdb)))
    return false;
  size_t head = (p[0] & 0xe0) == 0xa0 ? 1 : 1u + forms[p[0] - 0xc0].size;
  *text = (const char *)p + head;
  *n = k - head;
  w->at += k;
  return true;
}

// The key behind the names of the maps around it; false: there is no room even for a part of it.
static bool name_it(struct manta__row_walk *w, const char *key, size_t n)
{
  size_t at = w->prefix[w->depth - 1], kept = n;
  bool cut = at + n + 2 > sizeof w->name;
  if (cut && at + 2 + HASHED > sizeof w->name)
    return false;
  if (at > 0)
    w->name[at++] = '/';
  if (cut)
    kept = sizeof w->name - 1 - HASHED - at;
  while (cut && kept > 0 && ((unsigned char)key[kept] & 0xc0) == 0x80)
    kept--; // not within a character
  memcpy(w->name + at, key, kept);
  w->name_len = at + kept;
  w->name[w->name_len] = 0;
  if (cut)
    w->name_len +=
        (size_t)snprintf(w->name + w->name_len, HASHED + 1, "~%08x", (unsigned)manta__hash(key, n));
  return true;
}

static bool is_number(uint8_t c)
{
  return c <= 0x7f || c >= 0xe0 || (c >= 0xca && c <= 0xd3);
}

bool manta__row_next(struct manta__row_walk *w, double *value)
{
  while (w->depth > 0) {
    const char *key;
    size_t n, k;
    if (w->left[w->depth - 1]-- == 0) {
      w->depth--;
      continue;
    }
    if (!read_text(w, &key, &n))
      break;
    bool named = name_it(w, key, n);
    if (named && enter(w))
      continue;
    if ((k = skip(w->bytes + w->at, w->len - w->at)) == 0)
      break;
    const uint8_t *p = w->bytes + w->at;
    w->at += k;
    manta_value v = {0};
    if (named && is_number(p[0]) && manta__unpack(&v, p, k, NULL, NULL) == MANTA_OK) {
      *value = v.type == MANTA_INT ? (double)v.u.i : v.u.r;
      return true;
    }
  }
  w->depth = 0; // what is behind bytes that cannot be is not looked at
  return false;
}
