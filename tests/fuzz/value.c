/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/value.c - both readers of values, with the libraries as second opinion.
 *
 * The first byte chooses: even is JSON (and its next bits the indent), odd is MessagePack.
 * (1) What is accepted can be written again and reads back equal, in the same form and in the
 *     other.
 * (2) What msgpack-c accepts and a manta_value can hold, we accept with the same content and
 *     length; what it refuses, we refuse, but for depth: msgpack-c ends at 32 levels.
 * (3) What jansson accepts, we accept unless it is over a limit.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "../base/msgpack_ref.h"
#include "base/pack.h"

#define REF_DEPTH 31

#define REQUIRE(cond)                                                                              \
  do {                                                                                             \
    if (!(cond)) {                                                                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                   \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int depth_of(const manta_value *v)
{
  int most = 0;
  for (uint32_t i = 0; v->type >= MANTA_LIST && i < v->count; i++) {
    int d = depth_of(v->type == MANTA_MAP ? &v->u.pairs[i].value : &v->u.items[i]);
    most = d > most ? d : most;
  }
  return most + (v->type >= MANTA_LIST);
}

static void check_pack(const manta_value *v)
{
  void *p;
  size_t len;
  manta_value back = {0}, copy = {0};
  REQUIRE(manta_value_pack(v, &p, &len, NULL) == MANTA_OK);
  REQUIRE(len == manta__pack_size(v));
  REQUIRE(manta_value_unpack(&back, p, len, NULL) == MANTA_OK);
  REQUIRE(manta_value_equal(v, &back));
  REQUIRE(manta_value_copy(&copy, v) == MANTA_OK);
  REQUIRE(manta_value_equal(&back, &copy));
  manta_free(p);
  manta_value_fini(&copy);
  manta_value_fini(&back);
}

/* The text of a value that came from MessagePack may lose (bytes that are no UTF-8, keys that come
 * twice, maps that look like specials), but it must be read, and then nothing more is lost. */
static void check_json(const manta_value *v, int indent, bool lossless)
{
  char *text, *again;
  manta_value back = {0}, last = {0};
  REQUIRE(manta_value_to_json(v, indent, &text, NULL) == MANTA_OK);
  REQUIRE(manta_value_from_json(&back, text, strlen(text), NULL) == MANTA_OK);
  REQUIRE(!lossless || manta_value_equal(v, &back));
  REQUIRE(manta_value_to_json(&back, indent, &again, NULL) == MANTA_OK);
  REQUIRE(!lossless || !strcmp(text, again));
  REQUIRE(manta_value_from_json(&last, again, strlen(again), NULL) == MANTA_OK);
  REQUIRE(manta_value_equal(&back, &last));
  manta_free(text);
  manta_free(again);
  manta_value_fini(&back);
  manta_value_fini(&last);
}

/* Bytes behind the tag that its length or number takes, and whether it opens `per` entries each. */
static size_t width_of(uint8_t tag)
{
  static const uint8_t widths[32] = {0, 0, 0, 0, 1, 2, 4, 1, 2,  4, 4, 8, 1, 2, 4, 8,
                                     1, 2, 4, 8, 2, 3, 5, 9, 17, 1, 2, 4, 2, 4, 2, 4};
  return tag >= 0xc0 && tag < 0xe0 ? widths[tag - 0xc0] : 0;
}

/* MessagePack is a flat run of heads. msgpack-c allocates what a count claims, so it is asked only
 * about input in which every list and map claims no more entries than bytes are left. */
static bool claims_are_small(const uint8_t *p, size_t n)
{
  for (size_t at = 0; at < n;) {
    uint8_t tag = p[at++];
    size_t width = width_of(tag), count = 0;
    if (width > n - at)
      return true;
    for (size_t i = 0; i < width && width <= 4; i++)
      count = count << 8 | p[at + i];
    at += width;
    if (tag >= 0x80 && tag < 0xa0)
      count = tag & 15;
    bool opens = (tag >= 0x80 && tag < 0xa0) || (tag >= 0xdc && tag < 0xe0);
    bool text =
        (tag >= 0xa0 && tag < 0xc0) || (tag >= 0xc4 && tag <= 0xc9) || (tag >= 0xd9 && tag < 0xdc);
    if (tag >= 0xa0 && tag < 0xc0)
      count = tag & 31;
    if (tag >= 0xc7 && tag <= 0xc9)
      count++; // the type of an extension
    if (opens && count > n - at)
      return false;
    if (text)
      at = count > n - at ? n : at + count;
  }
  return true;
}

static void compare_with_msgpack_c(const uint8_t *p, size_t n, const manta_value *v, size_t used,
                                   manta_status st)
{
  msgpack_unpacked got;
  size_t off = 0;
  msgpack_unpacked_init(&got);
  msgpack_unpack_return ret = msgpack_unpack_next(&got, (const char *)p, n, &off);
  if (ret == MSGPACK_UNPACK_SUCCESS || ret == MSGPACK_UNPACK_EXTRA_BYTES) {
    REQUIRE((st == MANTA_OK) == ref_has_meaning(&got.data));
    REQUIRE(st != MANTA_OK || (used == off && ref_same(v, &got.data)));
  } else {
    REQUIRE(st < 0 || depth_of(v) > REF_DEPTH);
  }
  msgpack_unpacked_destroy(&got);
}

static void fuzz_pack(const uint8_t *p, size_t n)
{
  manta_value v = {0};
  size_t used = 0;
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = manta__unpack(&v, p, n, &used, &err);
  REQUIRE(st == MANTA_OK || st == MANTA_EPROTO || st == MANTA_ETOOBIG);
  REQUIRE((st == MANTA_OK) == (err.message[0] == 0));
  if (claims_are_small(p, n))
    compare_with_msgpack_c(p, n, &v, used, st);
  else
    REQUIRE(st < 0 || used < n); // the lie may stand behind the value
  if (st == MANTA_OK) {
    check_pack(&v);
    check_json(&v, -1, false);
  }
  manta_value_fini(&v);
}

static void fuzz_json(const char *text, size_t n, int indent)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = manta_value_from_json(&v, text, n, &err);
  REQUIRE(st == MANTA_OK || st == MANTA_EPROTO || st == MANTA_ETOOBIG);
  REQUIRE((st == MANTA_OK) == (err.message[0] == 0));
  json_t *j = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
  REQUIRE(!j || st == MANTA_OK || st == MANTA_ETOOBIG);
  json_decref(j);
  if (st == MANTA_OK) {
    check_json(&v, indent, true);
    check_pack(&v);
  }
  manta_value_fini(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size == 0)
    return 0;
  if (data[0] & 1)
    fuzz_pack(data + 1, size - 1);
  else
    fuzz_json((const char *)data + 1, size - 1, (data[0] >> 1 & 3) - 1);
  return 0;
}
