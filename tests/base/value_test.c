/* SPDX-License-Identifier: Apache-2.0 */
#include "base/value.h"
#include "random_value.h"

static void nil_is_zero_and_fini_twice_is_harmless(void **state)
{
  manta_value v = {0};
  assert_int_equal(v.type, MANTA_NIL);
  assert_int_equal(sizeof v, 16);
  assert_ok(manta_value_set_string(&v, "x"), &(manta_error){0});
  manta_value_fini(&v);
  assert_int_equal(v.type, MANTA_NIL);
  assert_null(v.u.s);
  manta_value_fini(&v);
  manta_value_fini(NULL);
}

static void scalars_hold_what_they_are_given(void **state)
{
  manta_value v = manta_value_int(INT64_MIN);
  assert_int_equal(v.type, MANTA_INT);
  assert_true(v.u.i == INT64_MIN);
  v = manta_value_real(-2.5);
  assert_int_equal(v.type, MANTA_REAL);
  assert_near(v.u.r, -2.5, 0);
  v = manta_value_bool(true);
  assert_int_equal(v.type, MANTA_BOOL);
  assert_true(v.u.b);
  v = manta_value_borrow_bytes("a\0b", 3);
  assert_int_equal(v.type, MANTA_BYTES);
  assert_int_equal(v.count, 3);
}

static void a_borrowed_string_is_the_callers(void **state)
{
  char text[] = "text";
  manta_value v = manta_value_borrow_string(text);
  assert_ptr_equal(v.u.s, text);
  assert_int_equal(v.count, 4);
  manta_value_fini(&v);
  assert_string_equal(text, "text");
  assert_int_equal(manta_value_borrow_string(NULL).type, MANTA_NIL);
}

static void set_replaces_and_may_read_what_it_replaces(void **state)
{
  manta_value v = {0};
  assert_status(manta_value_set_string(&v, "hello"), MANTA_OK);
  assert_status(manta_value_set_string(&v, v.u.s + 1), MANTA_OK);
  assert_string_equal(v.u.s, "ello");
  assert_status(manta_value_set_bytes(&v, v.u.s, 2), MANTA_OK);
  assert_int_equal(v.type, MANTA_BYTES);
  assert_memory_equal(v.u.s, "el", 2);
  assert_status(manta_value_set_real(&v, 1.5), MANTA_OK);
  assert_near(v.u.r, 1.5, 0);
  assert_status(manta_value_set_map(&v), MANTA_OK);
  assert_status(manta_value_set_bool(&v, true), MANTA_OK);
  assert_true(v.u.b);
  assert_status(manta_value_set_string(&v, "again"), MANTA_OK);
  assert_status(manta_value_set_string(&v, NULL), MANTA_OK);
  assert_int_equal(v.type, MANTA_NIL);
  manta_value_fini(&v);
}

static void set_refuses_what_is_too_long(void **state)
{
  manta_value v = manta_value_int(7);
  assert_status(manta_value_set_bytes(&v, "", (size_t)MANTA_VALUE_MAX_BYTES + 1), MANTA_ETOOBIG);
  assert_status(manta_value_set_bytes(&v, "", SIZE_MAX), MANTA_ETOOBIG);
  assert_int_equal(v.u.i, 7);
}

static void append_moves_the_item_in(void **state)
{
  manta_value list = {0}, item = {0};
  manta_value_set_list(&list);
  for (int i = 0; i < 100; i++) {
    char text[8];
    snprintf(text, sizeof text, "i%d", i);
    assert_status(manta_value_set_string(&item, text), MANTA_OK);
    assert_status(manta_value_append(&list, &item), MANTA_OK);
    assert_int_equal(item.type, MANTA_NIL);
  }
  assert_int_equal(list.count, 100);
  assert_string_equal(manta_value_as_string(manta_value_at(&list, 99), ""), "i99");
  assert_string_equal(manta_value_as_string(manta_value_at(&list, 0), ""), "i0");
  assert_null(manta_value_at(&list, 100));
  manta_value_fini(&list);
}

static void growth_is_amortised(void **state)
{
  manta_value list = {0};
  manta_value_set_list(&list);
  manta__alloc_fail_after(-1);
  for (int i = 0; i < 10000; i++) {
    manta_value item = manta_value_int(i);
    assert_status(manta_value_append(&list, &item), MANTA_OK);
  }
  long made = manta__alloc_fail_after(-1);
  assert_true(made > 0 && made < 20);
  manta_value_fini(&list);
}

static void put_replaces_the_value_of_a_key(void **state)
{
  manta_value map = {0};
  manta_value_set_map(&map);
  assert_status(manta_value_put_string(&map, "a", "one"), MANTA_OK);
  assert_status(manta_value_put_int(&map, "b", 2), MANTA_OK);
  assert_status(manta_value_put_real(&map, "a", 0.5), MANTA_OK);
  assert_status(manta_value_put_bool(&map, "c", true), MANTA_OK);
  assert_status(manta_value_put_string(&map, "n", NULL), MANTA_OK);
  assert_int_equal(map.count, 4);
  assert_string_equal(map.u.pairs[0].key, "a");
  assert_near(manta_value_as_real(manta_value_get(&map, "a"), 0), 0.5, 0);
  assert_int_equal(manta_value_as_int(manta_value_get(&map, "b"), 0), 2);
  assert_true(manta_value_as_bool(manta_value_get(&map, "c"), false));
  assert_int_equal(manta_value_get(&map, "n")->type, MANTA_NIL);
  assert_null(manta_value_get(&map, "d"));
  manta_value_fini(&map);
}

static void changing_the_wrong_type_leaves_the_item(void **state)
{
  manta_value map = {0}, list = {0}, item = {0}, nil = {0};
  manta_value_set_map(&map);
  manta_value_set_list(&list);
  manta_value_set_string(&item, "mine");
  assert_status(manta_value_append(&map, &item), MANTA_ETYPE);
  assert_status(manta_value_put(&list, "k", &item), MANTA_ETYPE);
  assert_status(manta_value_put(&nil, "k", &item), MANTA_ETYPE);
  assert_status(manta_value_put(&map, NULL, &item), MANTA_EINVAL);
  assert_status(manta_value_put(&map, "k", &map), MANTA_EINVAL);
  assert_status(manta_value_append(&list, &list), MANTA_EINVAL);
  assert_string_equal(item.u.s, "mine");
  assert_int_equal(map.count + list.count, 0);
  manta_value_fini(&item);
  manta_value_fini(&map);
  manta_value_fini(&list);
}

static void changing_a_borrowed_map_copies_it(void **state)
{
  char text[] = "text";
  manta_value inner[] = {manta_value_int(1), manta_value_borrow_string(text)};
  manta_value list = {.type = MANTA_LIST, .count = 2, .u.items = inner};
  manta_value map = MANTA_MAP(MANTA_KV("list", list), MANTA_KV_STR("s", text));
  const manta_pair *was = map.u.pairs;
  assert_status(manta_value_put_int(&map, "s", 3), MANTA_OK);
  assert_ptr_not_equal(map.u.pairs, was);
  memset(text, '#', 4);
  inner[0] = manta_value_int(9);
  const manta_value *copied = manta_value_get(&map, "list");
  assert_int_equal(manta_value_as_int(manta_value_at(copied, 0), 0), 1);
  assert_string_equal(manta_value_as_string(manta_value_at(copied, 1), ""), "text");
  assert_int_equal(manta_value_as_int(manta_value_get(&map, "s"), 0), 3);
  manta_value_fini(&map);
}

static void a_copy_is_one_block_and_can_be_changed(void **state)
{
  manta_value map = MANTA_MAP(MANTA_KV_STR("a", "one"), MANTA_KV_STR("b", "two"),
                              MANTA_KV("m", MANTA_MAP(MANTA_KV_INT("x", 1))));
  manta_value copy = {0}, list = {0};
  manta__alloc_fail_after(-1);
  assert_status(manta_value_copy(&copy, &map), MANTA_OK);
  assert_int_equal(manta__alloc_fail_after(-1), 1);
  assert_true(manta_value_equal(&copy, &map));
  assert_status(manta_value_put_string(&copy, "a", "three"), MANTA_OK);
  assert_status(manta_value_put_int(&copy, "c", 4), MANTA_OK);
  assert_string_equal(manta_value_as_string(manta_value_get(&copy, "b"), ""), "two");
  assert_string_equal(manta_value_as_string(manta_value_get(&copy, "a"), ""), "three");
  assert_false(manta_value_equal(&copy, &map));
  manta_value_set_list(&list);
  assert_status(manta_value_append(&list, &copy), MANTA_OK);
  assert_status(manta_value_copy(&copy, &list), MANTA_OK);
  manta_value_fini(&list);
  assert_int_equal(manta_value_as_int(manta_value_get(manta_value_at(&copy, 0), "c"), 0), 4);
  manta_value_fini(&copy);
}

static void what_lies_within_a_copy_borrows(void **state)
{
  manta_value list = {0}, item = {0}, copy = {0};
  manta_value_set_list(&list);
  assert_status(manta_value_set_string(&item, "text"), MANTA_OK);
  assert_status(manta_value_append(&list, &item), MANTA_OK);
  assert_status(manta_value_copy(&copy, &list), MANTA_OK);
  manta_value_fini(&list);
  item = *manta_value_at(&copy, 0);
  manta_value_fini(&item); // must not free what is the list's
  assert_string_equal(manta_value_as_string(manta_value_at(&copy, 0), ""), "text");
  manta_value_fini(&copy);
}

static void move_empties_the_source(void **state)
{
  manta_value a = {0}, b = {0};
  manta_value_set_string(&a, "a");
  manta_value_set_string(&b, "b");
  manta_value_move(&a, &b);
  assert_string_equal(a.u.s, "b");
  assert_int_equal(b.type, MANTA_NIL);
  manta_value_move(&a, &a);
  assert_string_equal(a.u.s, "b");
  manta_value_set_list(&b);
  assert_status(manta_value_append(&b, &a), MANTA_OK);
  manta_value_move(&b, &b.u.items[0]);
  assert_string_equal(b.u.s, "b");
  manta_value_fini(&b);
}

static void numbers_convert_only_without_loss(void **state)
{
  manta_value v = manta_value_real(3.0);
  assert_int_equal(manta_value_as_int(&v, -1), 3);
  v = manta_value_real(2.5);
  assert_int_equal(manta_value_as_int(&v, -1), -1);
  static const double outside[] = {0x1p63, -0x1.0000000000001p63, NAN, INFINITY, -INFINITY, 1e300};
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
    v = manta_value_real(outside[i]);
    assert_int_equal(manta_value_as_int(&v, -1), -1);
  }
  v = manta_value_real(-0x1p63);
  assert_true(manta_value_as_int(&v, -1) == INT64_MIN);
  v = manta_value_int((1LL << 53) + 1);
  assert_near(manta_value_as_real(&v, -1), -1, 0);
  v = manta_value_int(INT64_MAX);
  assert_near(manta_value_as_real(&v, -1), -1, 0);
  v = manta_value_int(INT64_MIN);
  assert_near(manta_value_as_real(&v, -1), -0x1p63, 0);
  v = manta_value_int(1LL << 53);
  assert_near(manta_value_as_real(&v, -1), 0x1p53, 0);
}

static void other_kinds_give_the_default(void **state)
{
  manta_value b = manta_value_bool(true), s = manta_value_borrow_string("1"),
              i = manta_value_int(1);
  manta_value raw = manta_value_borrow_bytes("x", 1);
  assert_int_equal(manta_value_as_int(&b, 9), 9);
  assert_int_equal(manta_value_as_int(&s, 9), 9);
  assert_int_equal(manta_value_as_int(NULL, 9), 9);
  assert_near(manta_value_as_real(&b, 9), 9, 0);
  assert_near(manta_value_as_real(NULL, 9), 9, 0);
  assert_false(manta_value_as_bool(&i, false));
  assert_true(manta_value_as_bool(NULL, true));
  assert_string_equal(manta_value_as_string(&i, "d"), "d");
  assert_string_equal(manta_value_as_string(&raw, "d"), "d");
  assert_null(manta_value_as_string(NULL, NULL));
  assert_null(manta_value_get(NULL, "k"));
  assert_null(manta_value_get(&i, "k"));
  assert_null(manta_value_at(NULL, 0));
  assert_null(manta_value_at(&s, 0));
}

static void equality_is_by_type_and_content(void **state)
{
  manta_value values[] = {{0},
                          manta_value_bool(false),
                          manta_value_bool(true),
                          manta_value_int(0),
                          manta_value_int(1),
                          manta_value_real(1),
                          manta_value_real(NAN),
                          manta_value_real(INFINITY),
                          manta_value_borrow_string(""),
                          manta_value_borrow_string("a"),
                          manta_value_borrow_string("b"),
                          manta_value_borrow_bytes("a", 1),
                          {.type = MANTA_LIST},
                          {.type = MANTA_MAP}};
  size_t n = sizeof values / sizeof *values;
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < n; k++)
      assert_int_equal(manta_value_equal(&values[i], &values[k]), i == k);
  manta_value quiet = manta_value_real(-NAN);
  assert_true(manta_value_equal(&values[6], &quiet));
}

static void maps_are_equal_in_any_order(void **state)
{
  manta_value a = MANTA_MAP(MANTA_KV_INT("x", 1), MANTA_KV_INT("y", 2), MANTA_KV_REAL("z", NAN));
  manta_value b = MANTA_MAP(MANTA_KV_REAL("z", NAN), MANTA_KV_INT("x", 1), MANTA_KV_INT("y", 2));
  manta_value c = MANTA_MAP(MANTA_KV_REAL("z", NAN), MANTA_KV_INT("x", 2), MANTA_KV_INT("y", 1));
  manta_value d = MANTA_MAP(MANTA_KV_INT("x", 1), MANTA_KV_INT("y", 2));
  manta_value e = MANTA_MAP(MANTA_KV_INT("x", 1), MANTA_KV_INT("y", 2), MANTA_KV_REAL("w", NAN));
  assert_true(manta_value_equal(&a, &b));
  assert_true(manta_value_equal(&b, &a));
  assert_false(manta_value_equal(&a, &c));
  assert_false(manta_value_equal(&a, &d));
  assert_false(manta_value_equal(&d, &a));
  assert_false(manta_value_equal(&a, &e));
}

static void keys_that_come_twice_are_matched_in_turn(void **state)
{
  manta_value a = MANTA_MAP(MANTA_KV_INT("k", 1), MANTA_KV_INT("x", 0), MANTA_KV_INT("k", 2));
  manta_value b = MANTA_MAP(MANTA_KV_INT("x", 0), MANTA_KV_INT("k", 1), MANTA_KV_INT("k", 2));
  manta_value c = MANTA_MAP(MANTA_KV_INT("x", 0), MANTA_KV_INT("k", 2), MANTA_KV_INT("k", 1));
  manta_value d = MANTA_MAP(MANTA_KV_INT("x", 0), MANTA_KV_INT("x", 0), MANTA_KV_INT("k", 1));
  assert_true(manta_value_equal(&a, &a));
  assert_true(manta_value_equal(&a, &b));
  assert_false(manta_value_equal(&a, &c));
  assert_false(manta_value_equal(&a, &d));
  assert_false(manta_value_equal(&d, &a));
  assert_int_equal(manta_value_as_int(manta_value_get(&a, "k"), 0), 1);
}

static void random_trees_equal_their_copies(void **state)
{
  struct gen g = {.state = 11};
  for (int i = 0; i < 2000; i++) {
    manta_value v = {0}, copy = {0}, extra = manta_value_int(i);
    gen_value(&g, 4, &v);
    assert_status(manta_value_copy(&copy, &v), MANTA_OK);
    assert_true(manta_value_equal(&v, &copy));
    if (v.type == MANTA_LIST)
      assert_status(manta_value_append(&copy, &extra), MANTA_OK);
    else if (v.type == MANTA_MAP)
      assert_status(manta_value_put(&copy, "~", &extra), MANTA_OK);
    assert_int_equal(manta_value_equal(&v, &copy), v.type < MANTA_LIST);
    manta_value_fini(&v);
    manta_value_fini(&copy);
  }
}

static void any_oom_leaves_the_value_as_it_was(void **state)
{
  manta_value v = manta_value_int(5), copy = {0};
  manta_value map =
      MANTA_MAP(MANTA_KV_STR("a", "one"), MANTA_KV("m", MANTA_MAP(MANTA_KV_INT("x", 1))));
  FOR_EACH_OOM(manta_value_set_string(&v, "text"), manta_value_set_int(&v, 5));
  FOR_EACH_OOM(manta_value_set_bytes(&v, "text", 4), manta_value_set_int(&v, 5));
  FOR_EACH_OOM(manta_value_copy(&v, &map), manta_value_set_int(&v, 5));
  manta__alloc_fail_after(0);
  assert_status(manta_value_copy(&v, &map), MANTA_ENOMEM);
  manta__alloc_fail_after(-1);
  assert_int_equal(v.u.i, 5);
  assert_status(manta_value_copy(&copy, &map), MANTA_OK);
  FOR_EACH_OOM(manta_value_put_string(&copy, "new", "text"), );
  assert_int_equal(copy.count, 3);
  assert_string_equal(manta_value_as_string(manta_value_get(&copy, "new"), ""), "text");
  FOR_EACH_OOM(manta_value_put_string(&copy, "new", "other"), );
  manta_value_fini(&copy);
}

static void any_oom_leaves_the_item_with_its_owner(void **state)
{
  manta_value items[] = {manta_value_borrow_string("x"), manta_value_int(2)};
  manta_value list = {.type = MANTA_LIST, .count = 2, .u.items = items}, item = {0};
  assert_status(manta_value_set_string(&item, "mine"), MANTA_OK);
  manta__alloc_fail_after(1);
  assert_status(manta_value_append(&list, &item), MANTA_ENOMEM);
  manta__alloc_fail_after(-1);
  assert_string_equal(item.u.s, "mine");
  assert_ptr_equal(list.u.items, items);
  FOR_EACH_OOM(manta_value_append(&list, &item), );
  assert_int_equal(item.type, MANTA_NIL);
  assert_int_equal(list.count, 3);
  manta_value_fini(&list);
}

// --- for people ---------------------------------------------------------------------------------

static void a_small_value_is_not_abridged(void **state)
{
  manta_value v = MANTA_MAP(MANTA_KV_INT("epochs", 3), MANTA_KV_STR("name", "x")), out = {0};
  assert_status(manta__value_abridge(&out, &v), MANTA_OK);
  assert_true(manta_value_equal(&out, &v));
  manta_value_fini(&out);
}

static void what_is_long_is_told_by_its_length(void **state)
{
  static char text[100001];
  manta_value items[300] = {{0}}, out = {0};
  memset(text, 'a', sizeof text - 1);
  memcpy(text + 1023, "ä", 2); // a character that would be cut in two
  manta_value list = {.type = MANTA_LIST, .count = 300, .u.items = items};
  manta_value v =
      MANTA_MAP(MANTA_KV_STR("text", text), MANTA_KV("list", list),
                MANTA_KV("bytes", manta_value_borrow_bytes(text, 2000)), MANTA_KV_INT("epochs", 3));
  assert_status(manta__value_abridge(&out, &v), MANTA_OK);
  const char *s = manta_value_as_string(manta_value_get(&out, "text"), "");
  assert_int_equal(strspn(s, "a"), 1023);
  assert_string_equal(s + 1023, "… (100000 bytes)");
  assert_string_equal(manta_value_as_string(manta_value_get(&out, "bytes"), ""), "(2000 bytes)");
  const manta_value *cut = manta_value_get(&out, "list");
  assert_int_equal(cut->count, 257);
  assert_string_equal(manta_value_as_string(manta_value_at(cut, 256), ""), "(300 entries)");
  assert_int_equal(manta_value_as_int(manta_value_get(&out, "epochs"), -1), 3);
  manta_value_fini(&out);
  FOR_EACH_OOM((manta_value_fini(&out), manta__value_abridge(&out, &v)), );
  manta_value_fini(&out);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nil_is_zero_and_fini_twice_is_harmless),
      cmocka_unit_test(scalars_hold_what_they_are_given),
      cmocka_unit_test(a_borrowed_string_is_the_callers),
      cmocka_unit_test(set_replaces_and_may_read_what_it_replaces),
      cmocka_unit_test(set_refuses_what_is_too_long),
      cmocka_unit_test(append_moves_the_item_in),
      cmocka_unit_test(growth_is_amortised),
      cmocka_unit_test(put_replaces_the_value_of_a_key),
      cmocka_unit_test(changing_the_wrong_type_leaves_the_item),
      cmocka_unit_test(changing_a_borrowed_map_copies_it),
      cmocka_unit_test(a_copy_is_one_block_and_can_be_changed),
      cmocka_unit_test(what_lies_within_a_copy_borrows),
      cmocka_unit_test(move_empties_the_source),
      cmocka_unit_test(numbers_convert_only_without_loss),
      cmocka_unit_test(other_kinds_give_the_default),
      cmocka_unit_test(equality_is_by_type_and_content),
      cmocka_unit_test(maps_are_equal_in_any_order),
      cmocka_unit_test(keys_that_come_twice_are_matched_in_turn),
      cmocka_unit_test(random_trees_equal_their_copies),
      cmocka_unit_test(any_oom_leaves_the_value_as_it_was),
      cmocka_unit_test(any_oom_leaves_the_item_with_its_owner),
      cmocka_unit_test(a_small_value_is_not_abridged),
      cmocka_unit_test(what_is_long_is_told_by_its_length),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
