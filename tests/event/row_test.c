/* SPDX-License-Identifier: Apache-2.0 */
#include "event/row.h"

#include "base/pack.h"
#include "test.h"

struct got {
  char name[32][300];
  double value[32];
  int count;
};

static void walk(const void *row, size_t n, struct got *g)
{
  struct manta__row_walk w;
  double value;
  *g = (struct got){0};
  manta__row_walk(&w, row, n);
  while (manta__row_next(&w, &value)) {
    assert_true(g->count < 32);
    snprintf(g->name[g->count], sizeof g->name[0], "%s", w.name);
    g->value[g->count++] = value;
  }
}

// The numbers of a value, packed exactly into a block of its own, so that a sanitizer sees a byte
// read past it.
static void numbers(const manta_value *v, size_t cut, struct got *g)
{
  size_t n = manta__pack_size(v) - cut;
  uint8_t *whole = malloc(n + cut), *p = malloc(n ? n : 1);
  assert_true(whole && p);
  manta__pack_into(whole, v);
  memcpy(p, whole, n);
  walk(p, n, g);
  free(whole);
  free(p);
}

static void expect(const struct got *g, int i, const char *name, double value)
{
  assert_true(i < g->count);
  assert_string_equal(g->name[i], name);
  assert_near(g->value[i], value, 0);
}

static void test_kinds(void **state)
{
  static const int64_t ints[] = {0,   127, 128,  65536,  1ll << 40,   -1,
                                 -32, -33, -200, -40000, -(1ll << 40)};
  struct got g;
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
    manta_value v =
        MANTA_MAP(MANTA_KV_INT("i", ints[i]), MANTA_KV_REAL("r", 0.1 * (double)ints[i]));
    numbers(&v, 0, &g);
    assert_int_equal(g.count, 2);
    expect(&g, 0, "i", (double)ints[i]);
    expect(&g, 1, "r", 0.1 * (double)ints[i]);
  }
  manta_value v = MANTA_MAP(MANTA_KV_BOOL("yes", true), MANTA_KV_STR("text", "3"),
                            MANTA_KV_BOOL("no", false), MANTA_KV_REAL("nan", NAN));
  numbers(&v, 0, &g);
  assert_int_equal(g.count, 1); // flags and text are no numbers
  assert_true(isnan(g.value[0]));
}

static void test_floats_of_four_bytes(void **state)
{
  static const uint8_t packed[] = {0x81, 0xa1, 'f', 0xca, 0x3f, 0xc0, 0x00, 0x00};
  struct got g;
  walk(packed, sizeof packed, &g);
  expect(&g, 0, "f", 1.5);
}

static void test_maps_inside(void **state)
{
  struct got g;
  manta_value inner = MANTA_MAP(MANTA_KV_INT("b", 1), MANTA_KV_INT("c", 2));
  manta_value items[] = {manta_value_int(7), inner};
  manta_value list = {.type = MANTA_LIST, .count = 2, .u.items = items};
  manta_value v = MANTA_MAP(MANTA_KV("a", inner), MANTA_KV("list", list), MANTA_KV_INT("z", 3));
  numbers(&v, 0, &g);
  assert_int_equal(g.count, 3);
  expect(&g, 0, "a/b", 1);
  expect(&g, 1, "a/c", 2);
  expect(&g, 2, "z", 3);
}

static void test_names_too_long_and_too_deep(void **state)
{
  struct got g;
  char name[400];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = 0;
  char other[sizeof name];
  memcpy(other, name, sizeof name);
  other[sizeof other - 2] = 'y';
  manta_value inner = MANTA_MAP(MANTA_KV_INT(other, 3), MANTA_KV_INT("short", 4));
  manta_value v = MANTA_MAP(MANTA_KV_INT(name, 1), MANTA_KV_INT(other, 2), MANTA_KV("in", inner),
                            MANTA_KV(name, inner));
  numbers(&v, 0, &g);
  assert_int_equal(g.count, 4); // cut, and told apart; none in a map whose own name fills all
  for (int i = 0; i < 3; i++) {
    assert_int_equal(strlen(g.name[i]), MANTA__ROW_NAME - 1);
    assert_int_equal(g.name[i][MANTA__ROW_NAME - 10], '~');
  }
  assert_string_not_equal(g.name[0], g.name[1]);
  expect(&g, 3, "in/short", 4);
  manta_value nest = {0};
  assert_int_equal(manta_value_set_map(&nest), MANTA_OK);
  assert_int_equal(manta_value_put_int(&nest, "n", 5), MANTA_OK);
  for (int i = 0; i < 20; i++) {
    manta_value outer = {0};
    assert_int_equal(manta_value_set_map(&outer), MANTA_OK);
    assert_int_equal(manta_value_put(&outer, "m", &nest), MANTA_OK);
    manta_value_move(&nest, &outer);
  }
  numbers(&nest, 0, &g);
  assert_int_equal(g.count, 0);
  manta_value_fini(&nest);
}

static void test_cut_off_anywhere(void **state)
{
  struct got g;
  manta_value inner = MANTA_MAP(MANTA_KV_INT("b", 100000), MANTA_KV_STR("s", "text"));
  manta_value v = MANTA_MAP(MANTA_KV("a", inner), MANTA_KV_REAL("r", 0.5), MANTA_KV_INT("z", 3));
  for (size_t cut = 1; cut < manta__pack_size(&v); cut++) {
    numbers(&v, cut, &g);
    assert_true(g.count < 3);
  }
  static const struct {
    const char *bytes;
    size_t n;
  } bad[] = {{"", 0}, {"\xdf\xff\xff\xff\xff", 5}, {"\x93\x01\x02\x03", 4}, {"\x81\x01\x02", 3}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    walk(bad[i].bytes, bad[i].n, &g);
    assert_int_equal(g.count, 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kinds),
      cmocka_unit_test(test_floats_of_four_bytes),
      cmocka_unit_test(test_maps_inside),
      cmocka_unit_test(test_names_too_long_and_too_deep),
      cmocka_unit_test(test_cut_off_anywhere),
  };
  return cmocka_run_group_tests_name("event/row", tests, NULL, NULL);
}
