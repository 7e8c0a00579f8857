/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pack.h"

#include <sys/mman.h>

#include "msgpack_ref.h"
#include "random_value.h"

static void assert_packs_to(manta_value v, const char *bytes, size_t n)
{
  void *p = NULL;
  size_t len = 0;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_pack(&v, &p, &len, &err), &err);
  assert_int_equal(len, n);
  assert_memory_equal(p, bytes, n);
  assert_int_equal(manta__pack_size(&v), n);
  manta_free(p);
}

static void assert_refused(const char *bytes, size_t n, manta_status want, const char *message)
{
  manta_value out = manta_value_int(42);
  manta_error err = MANTA_ERROR_INIT;
  uint8_t *copy = manta__malloc(n); // so that a read past the end is caught
  memcpy(copy, bytes, n);
  assert_status(manta_value_unpack(&out, copy, n, &err), want);
  assert_status(manta_value_unpack(&out, copy, n, NULL), want);
  assert_string_equal(err.message, message);
  assert_int_equal(err.status, want);
  assert_int_equal(out.u.i, 42);
  manta__free(copy);
}

#define PACKS(v, bytes)             assert_packs_to(v, bytes, sizeof bytes - 1)
#define REFUSED(bytes, st, message) assert_refused(bytes, sizeof bytes - 1, st, message)

static void every_type_has_its_bytes(void **state)
{
  manta_value items[] = {manta_value_int(1), manta_value_bool(true)};
  PACKS((manta_value){0}, "\xc0");
  PACKS(manta_value_bool(false), "\xc2");
  PACKS(manta_value_bool(true), "\xc3");
  PACKS(manta_value_int(127), "\x7f");
  PACKS(manta_value_int(128), "\xcc\x80");
  PACKS(manta_value_int(65536), "\xce\x00\x01\x00\x00");
  PACKS(manta_value_int(-32), "\xe0");
  PACKS(manta_value_int(-33), "\xd0\xdf");
  PACKS(manta_value_int(INT64_MIN), "\xd3\x80\x00\x00\x00\x00\x00\x00\x00");
  PACKS(manta_value_real(1.5), "\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00");
  PACKS(manta_value_borrow_string("hi"), "\xa2hi");
  PACKS(manta_value_borrow_bytes("h\0", 2), "\xc4\x02h\x00");
  PACKS(((manta_value){.type = MANTA_LIST, .count = 2, .u.items = items}), "\x92\x01\xc3");
  PACKS(MANTA_MAP(MANTA_KV_INT("a", 1)), "\x81\xa1\x61\x01");
}

static void unpack_then_compare(const manta_value *v, const void *p, size_t len)
{
  manta_value back = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_unpack(&back, p, len, &err), &err);
  assert_true(manta_value_equal(v, &back));
  manta_value_fini(&back);
}

// Packs with both codecs, which must agree to the byte, and reads with both, which must agree too.
static void assert_agrees(const manta_value *v)
{
  void *p = NULL;
  size_t len = 0;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_pack(v, &p, &len, &err), &err);
  assert_int_equal(manta__pack_size(v), len);
  msgpack_sbuffer ref;
  msgpack_packer pk;
  msgpack_sbuffer_init(&ref);
  msgpack_packer_init(&pk, &ref, msgpack_sbuffer_write);
  ref_pack(&pk, v);
  assert_int_equal(len, ref.size);
  assert_memory_equal(p, ref.data, len);
  msgpack_unpacked got;
  msgpack_unpacked_init(&got);
  assert_int_equal(msgpack_unpack_next(&got, p, len, NULL), MSGPACK_UNPACK_SUCCESS);
  assert_true(ref_same(v, &got.data));
  assert_true(ref_has_meaning(&got.data));
  msgpack_unpacked_destroy(&got);
  unpack_then_compare(v, ref.data, ref.size);
  msgpack_sbuffer_destroy(&ref);
  manta_free(p);
}

static void random_values_agree_with_msgpack_c(void **state)
{
  struct gen g = {.state = 4711};
  for (int i = 0; i < 5000; i++) {
    manta_value v = {0};
    gen_value(&g, 5, &v);
    assert_agrees(&v);
    manta_value_fini(&v);
  }
}

static void integers_agree_around_every_power_of_two(void **state)
{
  for (int shift = 0; shift < 64; shift++)
    for (int near = -2; near <= 2; near++) {
      manta_value v = manta_value_int((int64_t)((1ULL << shift) + (uint64_t)near));
      assert_agrees(&v);
      v = manta_value_int((int64_t)(0 - (1ULL << shift) + (uint64_t)near));
      assert_agrees(&v);
    }
}

static void lengths_agree_around_every_boundary(void **state)
{
  static const uint32_t lengths[] = {0, 15, 16, 31, 32, 255, 256, 503, 512, 65535, 65536, 70000};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    uint32_t n = lengths[i];
    char *text = manta__malloc(n + 1);
    memset(text, 'x', n);
    text[n] = 0;
    manta_value s = manta_value_borrow_string(text), b = manta_value_borrow_bytes(text, n);
    assert_agrees(&s);
    assert_agrees(&b);
    manta_value m = MANTA_MAP(MANTA_KV_INT(text, 1), MANTA_KV_STR("k", text));
    assert_agrees(&m);
    manta_value *items = manta__calloc(n, sizeof *items);
    manta_value list = {.type = MANTA_LIST, .count = n, .u.items = items};
    assert_agrees(&list);
    manta_pair *pairs = manta__calloc(n, sizeof *pairs);
    for (uint32_t k = 0; k < n; k++)
      pairs[k].key = "key";
    manta_value map = {.type = MANTA_MAP, .count = n, .u.pairs = pairs};
    assert_agrees(&map);
    manta__free(pairs);
    manta__free(items);
    manta__free(text);
  }
}

// Every form that another writer may choose, not only the shortest.
static void long_forms_are_read(void **state)
{
  static const struct {
    const char *bytes;
    size_t n;
    int64_t want;
  } ints[] = {{"\xcc\x01", 2, 1},
              {"\xcd\x00\x01", 3, 1},
              {"\xce\x00\x00\x00\x01", 5, 1},
              {"\xcf\x00\x00\x00\x00\x00\x00\x00\x01", 9, 1},
              {"\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", 9, INT64_MAX},
              {"\xd0\xff", 2, -1},
              {"\xd0\x7f", 2, 127},
              {"\xd1\xff\xff", 3, -1},
              {"\xd2\xff\xff\xff\xff", 5, -1},
              {"\xd3\xff\xff\xff\xff\xff\xff\xff\xff", 9, -1}};
  manta_value v = {0};
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
    assert_status(manta_value_unpack(&v, ints[i].bytes, ints[i].n, NULL), MANTA_OK);
    assert_int_equal(v.type, MANTA_INT);
    assert_true(v.u.i == ints[i].want);
  }
  assert_status(manta_value_unpack(&v, "\xca\x3f\xc0\x00\x00", 5, NULL), MANTA_OK);
  assert_int_equal(v.type, MANTA_REAL);
  assert_near(v.u.r, 1.5, 0);
  assert_status(manta_value_unpack(
                    &v, "\xdf\x00\x00\x00\x01\xdb\x00\x00\x00\x01k\xdd\x00\x00\x00\x00", 16, NULL),
                MANTA_OK);
  assert_int_equal(manta_value_get(&v, "k")->type, MANTA_LIST);
  manta_value_fini(&v);
}

static void text_keeps_nuls_and_ends_in_one(void **state)
{
  manta_value v = {0};
  assert_status(manta_value_unpack(&v,
                                   "\x92\xa3"
                                   "a\0b\xc4\x02\0\0",
                                   9, NULL),
                MANTA_OK);
  assert_int_equal(v.u.items[0].count, 3);
  assert_memory_equal(v.u.items[0].u.s, "a\0b", 4);
  assert_int_equal(v.u.items[1].count, 2);
  assert_memory_equal(v.u.items[1].u.s, "\0\0", 2);
  manta_value_fini(&v);
}

static void unpack_allocates_once_and_scalars_not_at_all(void **state)
{
  manta_value v = {0};
  static const char tree[] = "\x82\xa1m\x81\xa1k\xa4text\xa1l\x93\x01\xc0\xa1x";
  manta__alloc_fail_after(-1);
  assert_status(manta_value_unpack(&v, tree, sizeof tree - 1, NULL), MANTA_OK);
  assert_int_equal(manta__alloc_fail_after(-1), 1);
  assert_string_equal(manta_value_get(manta_value_get(&v, "m"), "k")->u.s, "text");
  assert_status(manta_value_unpack(&v, "\x05", 1, NULL), MANTA_OK);
  assert_status(manta_value_unpack(&v, "\x90", 1, NULL), MANTA_OK);
  assert_int_equal(manta__alloc_fail_after(-1), 0);
  manta_value item = manta_value_int(1);
  assert_status(manta_value_append(&v, &item), MANTA_OK);
  assert_int_equal(v.count, 1);
  manta_value_fini(&v);
}

static void malformed_bytes_are_refused(void **state)
{
  REFUSED("", MANTA_EPROTO, "messagepack: no bytes");
  REFUSED("\xc1", MANTA_EPROTO, "messagepack: at byte 1: 0xc1 is not a type");
  REFUSED("\x01\x02\x03", MANTA_EPROTO, "messagepack: 2 bytes behind the value");
  REFUSED("\xa3"
          "ab",
          MANTA_EPROTO, "messagepack: at byte 1: ends early");
  REFUSED("\xcb\x01", MANTA_EPROTO, "messagepack: at byte 1: ends early");
  REFUSED("\x92\x01", MANTA_EPROTO, "messagepack: at byte 1: ends early");
  REFUSED("\x81\xa1k", MANTA_EPROTO, "messagepack: at byte 3: ends early");
  REFUSED("\x81\x01\x02", MANTA_EPROTO, "messagepack: at byte 2: a map key is not a string");
  REFUSED("\x81\xc4\x01k\x02", MANTA_EPROTO, "messagepack: at byte 4: a map key is not a string");
  REFUSED("\x81\xa2k\0\x02", MANTA_EPROTO, "messagepack: at byte 4: a map key holds a NUL");
  REFUSED("\xcf\x80\0\0\0\0\0\0\0", MANTA_EPROTO,
          "messagepack: at byte 9: an integer is over 9223372036854775807");
}

static void extension_types_are_refused(void **state)
{
  static const char message[] = "messagepack: at byte 1: extension types are not supported";
  REFUSED("\xd4\x01\x00", MANTA_EPROTO, message);
  REFUSED("\xd5\x01\x00\x00", MANTA_EPROTO, message);
  REFUSED("\xd6\xff\x00\x00\x00\x00", MANTA_EPROTO, message); // a timestamp
  REFUSED("\xd7\xff\x00\x00\x00\x00\x00\x00\x00\x00", MANTA_EPROTO, message);
  REFUSED("\xd8\x01", MANTA_EPROTO, message);
  REFUSED("\xc7\x01\x01\x00", MANTA_EPROTO, message);
  REFUSED("\xc8\x00\x01\x01\x00", MANTA_EPROTO, message);
  REFUSED("\xc9\x00\x00\x00\x01\x01\x00", MANTA_EPROTO, message);
}

static void a_claimed_count_costs_nothing(void **state)
{
  static const char *const bombs[] = {"\xdd\xff\xff\xff\xff\x01", "\xdf\xff\xff\xff\xff\xa0\x01",
                                      "\xdb\xff\xff\xff\xff\x01", "\xc6\xff\xff\xff\xff\x01"};
  for (size_t i = 0; i < 4; i++) {
    manta_value v = {0};
    manta__alloc_fail_after(-1);
    assert_status(manta_value_unpack(&v, bombs[i], strlen(bombs[i]), NULL), MANTA_EPROTO);
    assert_int_equal(manta__alloc_fail_after(-1), 0);
  }
}

static void every_prefix_is_refused(void **state)
{
  struct gen g = {.state = 99};
  for (int i = 0; i < 200; i++) {
    manta_value v = {0}, out = {0};
    void *p;
    size_t len;
    gen_value(&g, 3, &v);
    assert_status(manta_value_pack(&v, &p, &len, NULL), MANTA_OK);
    for (size_t n = 0; n < len; n += 1 + len / 100) {
      uint8_t *cut = manta__malloc(n);
      memcpy(cut, p, n);
      assert_status(manta_value_unpack(&out, cut, n, NULL), MANTA_EPROTO);
      manta__free(cut);
    }
    manta_free(p);
    manta_value_fini(&v);
  }
}

static void nest(manta_value *v, int levels, bool maps)
{
  manta_value_set_nil(v);
  for (int i = 0; i < levels; i++) {
    manta_value outer = {0};
    maps ? manta_value_set_map(&outer) : manta_value_set_list(&outer);
    if (i > 0) // the innermost stays empty: an empty list is a level too
      assert_status(maps ? manta_value_put(&outer, "k", v) : manta_value_append(&outer, v),
                    MANTA_OK);
    manta_value_move(v, &outer);
  }
}

static void depth_is_limited_both_ways(void **state)
{
  for (int maps = 0; maps < 2; maps++) {
    manta_value v = {0};
    void *p = NULL;
    size_t len;
    manta_error err = MANTA_ERROR_INIT;
    nest(&v, MANTA_VALUE_MAX_DEPTH, maps);
    assert_ok(manta_value_pack(&v, &p, &len, &err), &err);
    unpack_then_compare(&v, p, len);
    manta_free(p);
    nest(&v, MANTA_VALUE_MAX_DEPTH + 1, maps);
    assert_status(manta_value_pack(&v, &p, &len, &err), MANTA_ETOOBIG);
    assert_string_equal(err.message, "value is nested deeper than 64 levels");
    assert_int_equal(manta__pack_size(&v), 0);
    manta_value_fini(&v);
  }
  char deep[66];
  memset(deep, '\x91', 65);
  deep[65] = '\xc0';
  assert_refused(deep, 66, MANTA_ETOOBIG, "messagepack: nested deeper than 64 levels");
  assert_refused(deep, 64, MANTA_EPROTO, "messagepack: at byte 64: ends early");
  manta_value v = {0};
  assert_status(manta_value_unpack(&v, deep + 1, 65, NULL), MANTA_OK);
  manta_value_fini(&v);
}

// The size of a whole is limited by memory alone; this one is only measured.
static void a_value_may_pack_to_more_than_4_gb(void **state)
{
  manta_value s = {.type = MANTA_STRING, .count = MANTA_VALUE_MAX_BYTES, .u.s = ""};
  size_t one = (size_t)MANTA_VALUE_MAX_BYTES + 5;
  assert_int_equal(manta__pack_size(&s), one);
  manta_value two[] = {s, s};
  manta_value list = {.type = MANTA_LIST, .count = 2, .u.items = two};
  assert_int_equal(manta__pack_size(&list), 1 + 2 * one);
  manta_value map = MANTA_MAP(MANTA_KV("k", s));
  assert_int_equal(manta__pack_size(&map), 3 + one);
  two[1].count++; // what does not fit into the format is refused, not cut
  void *p = NULL;
  size_t len;
  manta_error err = MANTA_ERROR_INIT;
  assert_int_equal(manta__pack_size(&list), 0);
  assert_status(manta_value_pack(&list, &p, &len, &err), MANTA_ETOOBIG);
  assert_string_equal(err.message, "a string of the value is over 4294967280 bytes");
}

static void what_lies_behind_a_value_is_not_read(void **state)
{
  size_t len = (size_t)MANTA_VALUE_MAX_BYTES + 100;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE; // pages nobody reads cost nothing
  uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
  assert_ptr_not_equal(p, MAP_FAILED);
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  size_t used = 0;
  p[0] = 0x05;
  assert_ok(manta__unpack(&v, p, len, &used, &err), &err);
  assert_int_equal(used, 1);
  munmap(p, len);
}

// Small values are packed on the stack first: whatever lies at its end, none passes that room.
static void values_near_the_room_on_the_stack_agree(void **state)
{
  enum { ROOM = 512 };
  static char text[ROOM + 16];
  struct gen g = {.state = 5};
  memset(text, 'x', sizeof text - 1);
  for (int i = 0; i < 300; i++) {
    manta_value item[2] = {manta_value_borrow_string(""), {0}};
    manta_value v = {.type = MANTA_LIST, .count = 2, .u.items = item};
    gen_value(&g, 3, &item[1]);
    size_t others = manta__pack_size(&v) + 2; // the string's length takes up to two bytes more
    for (size_t total = ROOM - 4; total <= ROOM + 12 && others < ROOM - 4; total++) {
      item[0] = manta_value_borrow_string(text + sizeof text - 1 - (total - others));
      assert_agrees(&v);
    }
    manta_value_fini(&item[1]);
  }
}

static void values_are_read_one_after_another(void **state)
{
  static const char stream[] = "\x01\xa2hi\x91\xc0";
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  size_t at = 0, used = 0;
  static const uint8_t types[] = {MANTA_INT, MANTA_STRING, MANTA_LIST};
  for (int i = 0; i < 3; i++, at += used) {
    assert_ok(manta__unpack(&v, stream + at, sizeof stream - 1 - at, &used, &err), &err);
    assert_int_equal(v.type, types[i]);
  }
  assert_int_equal(at, sizeof stream - 1);
  assert_ok(manta__unpack(&v, stream, 1, NULL, &err), &err);
  manta_value_fini(&v);
}

static void pieces_make_a_map_by_hand(void **state)
{
  uint8_t row[64], *p = row;
  p = manta__pack_map(p, 2);
  p = manta__pack_string(p, "step", 4);
  p = manta__pack_int(p, 1000);
  p = manta__pack_string(p, "xs", 2);
  p = manta__pack_list(p, 1);
  p = manta__pack_real(p, 0.25);
  manta_value item = manta_value_real(0.25);
  manta_value xs = {.type = MANTA_LIST, .count = 1, .u.items = &item};
  manta_value want = MANTA_MAP(MANTA_KV_INT("step", 1000), MANTA_KV("xs", xs));
  unpack_then_compare(&want, row, (size_t)(p - row));
}

static void any_oom_is_told(void **state)
{
  manta_value v = MANTA_MAP(MANTA_KV_STR("a", "text")), out = manta_value_int(3);
  manta_error err = MANTA_ERROR_INIT;
  void *p = NULL;
  size_t len = 0;
  FOR_EACH_OOM(manta_value_pack(&v, &p, &len, &err), );
  assert_string_equal(err.message, "no memory for a packed value of 8 bytes");
  FOR_EACH_OOM(manta_value_unpack(&out, p, len, &err), manta_value_fini(&out));
  assert_string_equal(err.message, "no memory for a value of 31 bytes");
  manta_free(p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_has_its_bytes),
      cmocka_unit_test(random_values_agree_with_msgpack_c),
      cmocka_unit_test(integers_agree_around_every_power_of_two),
      cmocka_unit_test(lengths_agree_around_every_boundary),
      cmocka_unit_test(long_forms_are_read),
      cmocka_unit_test(text_keeps_nuls_and_ends_in_one),
      cmocka_unit_test(unpack_allocates_once_and_scalars_not_at_all),
      cmocka_unit_test(malformed_bytes_are_refused),
      cmocka_unit_test(extension_types_are_refused),
      cmocka_unit_test(a_claimed_count_costs_nothing),
      cmocka_unit_test(every_prefix_is_refused),
      cmocka_unit_test(depth_is_limited_both_ways),
      cmocka_unit_test(a_value_may_pack_to_more_than_4_gb),
      cmocka_unit_test(what_lies_behind_a_value_is_not_read),
      cmocka_unit_test(values_near_the_room_on_the_stack_agree),
      cmocka_unit_test(values_are_read_one_after_another),
      cmocka_unit_test(pieces_make_a_map_by_hand),
      cmocka_unit_test(any_oom_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
