/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/proto.c - what messages hold.
 *
 * The first bytes choose a map of the protocol and how it is made: out of the input as it is, or
 * out of a struct whose fields the input fills, and then with bytes that the input changes.
 * (1) Whatever comes is either refused with a reason, or makes a struct.
 * (2) What made a struct is a map that makes the same struct again, and so on.
 * (3) A message is unpacked exactly if its payload passes the check of whole messages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond)                                                                              \
  do {                                                                                             \
    if (!(cond)) {                                                                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                   \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)

#define MAP(kind, number, ways, call, fds, name) struct manta__##name name;
#define REPLY(kind, name)                        struct manta__##name name;
#define PART(name)                               struct manta__##name name;
union body {
#include "group/proto.def"
};

static const struct {
  uint16_t kind;
  bool reply;
} maps[] = {
#define MAP(kind, number, ways, call, fds, name) {MANTA__M_##kind, false},
#define REPLY(kind, name)                        {MANTA__M_##kind, true},
#define PART(name)                               {0, false},
#include "group/proto.def"
};

// --- a struct out of the input -------------------------------------------------------------------

static const uint8_t *input;
static size_t left;

static uint64_t take(size_t n)
{
  uint64_t x = 0;
  n = n < left ? n : left;
  memcpy(&x, input, n);
  input += n;
  left -= n;
  return x;
}

static double take_real(void)
{
  uint64_t bits = take(8);
  double r;
  memcpy(&r, &bits, sizeof r);
  return r;
}

static const char *const texts[] = {"", "a", "some text", "\xff\xfe", "/a/path/of/some/length"};

static const char *take_text(void)
{
  return texts[take(1) % 5];
}

static const manta_value *take_list(bool strings)
{
  static manta_value text[8], number[8], lists[16];
  static int used;
  manta_value *v = &lists[used++ % 16]; // more than one struct has
  for (int i = 0; i < 8; i++) {
    text[i] = manta_value_borrow_string(texts[i % 5]);
    number[i] = manta_value_int(i - 4);
  }
  *v = (manta_value){
      .type = MANTA_LIST, .count = (uint32_t)(take(1) % 9), .u.items = strings ? text : number};
  return v;
}

static const manta_value *take_dict(void)
{
  static manta_pair pair;
  static manta_value v = {.type = MANTA_MAP, .count = 1, .u.pairs = &pair};
  pair = MANTA_KV_REAL("licences", take_real());
  return &v;
}

// clang-format off
#define TAKE_I32  (int)take(4)
#define TAKE_I64  (int64_t)take(8)
#define TAKE_U64  take(8)
#define TAKE_REAL take_real()
#define TAKE_BOOL (bool)(take(1) & 1)
#define TAKE_STR  take_text()
#define TAKE_STRS take_list(true)
#define TAKE_INTS take_list(false)
#define TAKE_LIST take_list(true)
#define TAKE_DICT take_dict()
#define TAKE_ANY  take_dict()
#define MAP(kind, number, ways, call, fds, name) PART(name)
#define REPLY(kind, name)                        PART(name)
#define PART(name)     static void fill_##name(struct manta__##name *s) {
#define KEY(type, key)   s->key = TAKE_##type;
#define OPT(type, key)   s->key = TAKE_##type;
#define SUB(part, key)   fill_##part(&s->key);
#define END            }
#include "group/proto.def"
// clang-format on

static void fill(enum manta__proto_map map, union body *b)
{
  switch (map) {
#define MAP(kind, number, ways, call, fds, name) PART(name)
#define REPLY(kind, name)                        PART(name)
#define PART(name)                                                                                 \
  case MANTA__MAP_##name:                                                                          \
    fill_##name(&b->name);                                                                         \
    break;
#include "group/proto.def"
  default:
    break;
  }
}

// --- there and back ------------------------------------------------------------------------------

static void again(enum manta__proto_map map, const union body *b)
{
  manta_pair pairs[2][MANTA__PROTO_PAIRS];
  manta_value hold = {0}, v = manta__proto_map(pairs[0], map, b);
  struct manta__msg m = {.kind = maps[map].kind, .flags = maps[map].reply ? MANTA__FRAME_REPLY : 0};
  union body back;
  void *bytes;
  manta_error err = MANTA_ERROR_INIT;
  REQUIRE(manta_value_pack(&v, &bytes, &m.len, &err) == MANTA_OK);
  m.data = bytes;
  REQUIRE(manta__proto_unpack(map, &m, &hold, &back, &err) == MANTA_OK);
  manta_value w = manta__proto_map(pairs[1], map, &back);
  REQUIRE(manta_value_equal(&v, &w));
  manta_value_fini(&hold);
  manta_free(bytes);
}

// On the way and with the number that the table has for it, what remains is the payload.
static bool passes(struct manta__msg m)
{
  bool ok = false;
  m.fds = 0;
  for (int way = 0; way < MANTA__WAYS && !ok; way++)
    for (m.call = 0; m.call < 2; m.call++)
      for (int fds = 0; fds < MANTA__MSG_FDS; fds++) {
        m.fds = fds;
        ok |= manta__proto_check(&m, (enum manta__way)way, NULL) == MANTA_OK;
      }
  return ok;
}

static void unpack(enum manta__proto_map map, const uint8_t *p, size_t n)
{
  struct manta__msg m = {.kind = maps[map].kind,
                         .flags = maps[map].reply ? MANTA__FRAME_REPLY : 0,
                         .data = p,
                         .len = n};
  union body b;
  manta_value hold = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = manta__proto_unpack(map, &m, &hold, &b, &err);
  REQUIRE((st == MANTA_OK) == passes(m));
  REQUIRE(st == MANTA_OK || err.message[0]);
  if (st == MANTA_OK)
    again(map, &b);
  manta_value_fini(&hold);
}

static void unpack_changed(enum manta__proto_map map)
{
  manta_pair pairs[MANTA__PROTO_PAIRS];
  union body b = {0};
  void *bytes;
  size_t n;
  fill(map, &b);
  manta_value v = manta__proto_map(pairs, map, &b);
  REQUIRE(manta_value_pack(&v, &bytes, &n, NULL) == MANTA_OK);
  unpack(map, bytes, n);
  while (left > 0) {
    size_t at = take(2) % n;
    ((uint8_t *)bytes)[at] = (uint8_t)take(1);
  }
  unpack(map, bytes, n);
  manta_free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 2)
    return 0;
  enum manta__proto_map map = (enum manta__proto_map)(data[0] % MANTA__MAPS);
  input = data + 2;
  left = size - 2;
  if (maps[map].kind == 0)
    return 0; // a part is read with the map it is in
  if (data[1] & 1)
    unpack(map, input, left);
  else
    unpack_changed(map);
  return 0;
}
