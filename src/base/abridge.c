/* SPDX-License-Identifier: Apache-2.0
 *
 * base/abridge.c - a value for a record that people read: what is long in it is told by its length.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pack.h"
#include "base/value.h"

#define ENOUGH  (64u << 10) /* packed bytes of a value that stays as it is */
#define TEXT    1024u       /* bytes of one string or of bytes */
#define ENTRIES 256u        /* of one list or map */
#define DEPTH   8

static manta_status say(manta_value *out, const char *what, uint32_t count)
{
  char text[64];
  snprintf(text, sizeof text, "(%" PRIu32 " %s)", count, what);
  return manta_value_set_string(out, text);
}

// Cut between characters: a byte 10xxxxxx goes on with one.
static manta_status cut(manta_value *out, const manta_value *v)
{
  char text[TEXT + 64];
  size_t n = TEXT;
  while (n > 0 && ((unsigned char)v->u.s[n] & 0xc0) == 0x80)
    n--;
  memcpy(text, v->u.s, n);
  snprintf(text + n, sizeof text - n, "… (%" PRIu32 " bytes)", v->count);
  return manta_value_set_string(out, text);
}

static manta_status shorten(manta_value *out, const manta_value *v, int depth);

static manta_status shorten_entries(manta_value *out, const manta_value *v, int depth)
{
  bool map = v->type == MANTA_MAP;
  MANTA_TRY(map ? manta_value_set_map(out) : manta_value_set_list(out));
  for (uint32_t i = 0; i < v->count && i <= ENTRIES; i++) {
    manta_value one = {0};
    bool rest = i == ENTRIES;
    const char *key = !map ? NULL : rest ? "…" : v->u.pairs[i].key;
    manta_status st = rest  ? say(&one, "entries", v->count)
                      : map ? shorten(&one, &v->u.pairs[i].value, depth - 1)
                            : shorten(&one, &v->u.items[i], depth - 1);
    if (st == MANTA_OK)
      st = map ? manta_value_put(out, key, &one) : manta_value_append(out, &one);
    manta_value_fini(&one);
    MANTA_TRY(st);
  }
  return MANTA_OK;
}

static manta_status shorten(manta_value *out, const manta_value *v, int depth)
{
  if (v->type == MANTA_STRING && v->count > TEXT)
    return cut(out, v);
  if (v->type == MANTA_BYTES && v->count > TEXT)
    return say(out, "bytes", v->count);
  if (v->type < MANTA_LIST)
    return manta_value_copy(out, v);
  return depth > 0 ? shorten_entries(out, v, depth) : say(out, "entries", v->count);
}

manta_status manta__value_abridge(manta_value *out, const manta_value *v)
{
  size_t n = manta__pack_size(v);
  return n > 0 && n <= ENOUGH ? manta_value_copy(out, v) : shorten(out, v, DEPTH);
}
