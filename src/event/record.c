/* SPDX-License-Identifier: Apache-2.0 */
#include "event/record.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/pack.h"

static const struct manta__event_info kinds[] = {
    {MANTA__EV_RUN, "run", "id name function build argv cwd config session ordinal",
     "the run begins; session: random id of the program's invocation, ordinal: from 1 in it"},
    {MANTA__EV_ATTEMPT, "attempt", "world from cause",
     "an attempt begins with `world` ranks after iteration `from`"},
    {MANTA__EV_ROW, "row", "", "a report of one rank: the row itself, with _training_iteration"},
    {MANTA__EV_REWIND, "rewind", "to", "rows after iteration `to` of earlier attempts are void"},
    {MANTA__EV_CKPT, "ckpt", "dir iteration bytes score", "a checkpoint is on disk"},
    {MANTA__EV_LOST, "lost", "rank host pid cause", "a worker was lost"},
    {MANTA__EV_NOTE, "note", "text", "a warning shown to the user"},
    {MANTA__EV_FINISH, "finish", "status message results files start",
     "the run ended; status: the name of a manta_status, \"OK\" for success"},
};

const struct manta__event_info *manta__event_info(uint32_t kind)
{
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if ((uint32_t)kinds[i].kind == kind)
      return &kinds[i];
  return NULL;
}

uint64_t manta__record_hash(const struct manta__record *h, const void *payload)
{
  uint64_t seed = manta__hash(h, offsetof(struct manta__record, hash));
  return manta__hash_seed(payload, h->len, seed);
}

bool manta__record_head_ok(const struct manta__record *h)
{
  return h->magic == MANTA__LOG_MAGIC && h->zero == 0 && h->len <= MANTA__LOG_MAX_PAYLOAD;
}

void manta__segment_name(char name[MANTA__SEGMENT_NAME_MAX], int segment)
{
  if (segment == 1)
    snprintf(name, MANTA__SEGMENT_NAME_MAX, "run.log");
  else
    snprintf(name, MANTA__SEGMENT_NAME_MAX, "run.log.%d", segment);
}

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
