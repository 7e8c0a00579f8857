/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as gzip, deflate and zstd, in pieces of any size. A decoder ends, stays inside the room
 * that it is given, and makes the same bytes however the input is cut.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/source/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const struct manta__codec *const linked_zlib_entry;
extern const struct manta__codec *const linked_zstd_entry;

#define OUT_MAX (1 << 20) // of what is made: a few bytes can stand for gigabytes

static void need(bool ok)
{
  if (!ok)
    abort();
}

struct decoded {
  bool ok, whole;
  size_t made;
  uint64_t hash;
};

static struct decoded decode(const struct manta__codec *codec, enum manta__compression form,
                             const uint8_t *p, size_t n, size_t piece, size_t room)
{
  static const struct manta__codec_host host = {manta__calloc, manta__free};
  struct manta__decoder *d;
  struct decoded r = {.ok = true};
  const uint8_t *end = p + n, *limit = p;
  uint8_t *out = malloc(room);
  need(out && codec->create(&d, &host, form, NULL) == MANTA_OK);
  while (r.ok && r.made < OUT_MAX) {
    const uint8_t *before = p;
    uint8_t *to = out;
    manta_error err = MANTA_ERROR_INIT;
    if (p == limit)
      limit = (size_t)(end - p) < piece ? end : p + piece;
    r.ok = codec->step(d, &p, limit, &to, out + room, &r.whole, &err) == MANTA_OK;
    need(p >= before && p <= limit && to >= out && to <= out + room && (r.ok || err.message[0]));
    for (const uint8_t *b = out; b < to; b++) // byte by byte: pieces must not matter
      r.hash = manta__hash_seed(b, 1, r.hash);
    r.made += (size_t)(to - out);
    if (p == before && to == out && (limit == end || r.whole))
      break;
  }
  codec->destroy(d);
  free(out);
  return r;
}

static void compare(const struct manta__codec *codec, enum manta__compression form,
                    const uint8_t *p, size_t n)
{
  struct decoded a = decode(codec, form, p, n, 1 << 16, 1 << 16);
  struct decoded b = decode(codec, form, p, n, 7, 13);
  // what is not whole may be seen to be wrong sooner or later
  if (a.made < OUT_MAX && b.made < OUT_MAX && a.ok && b.ok)
    need(a.whole == b.whole && a.made == b.made && a.hash == b.hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  compare(linked_zlib_entry, MANTA__GZIP, data, size);
  compare(linked_zlib_entry, MANTA__DEFLATE, data, size);
  compare(linked_zstd_entry, MANTA__ZSTD, data, size);
  return 0;
}
