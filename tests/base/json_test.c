/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "base/value.h"
#include "comma.h"
#include "random_value.h"

static void assert_writes(manta_value v, int indent, const char *want)
{
  char *text = NULL;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_to_json(&v, indent, &text, &err), &err);
  assert_string_equal(text, want);
  manta_free(text);
}

// Gives the value, which the caller frees.
static manta_value parse(const char *text)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_from_json(&v, text, strlen(text), &err), &err);
  return v;
}

static void assert_reads(const char *text, manta_value want)
{
  manta_value v = parse(text);
  if (!manta_value_equal(&v, &want))
    fail_msg("%s reads as something else", text);
  manta_value_fini(&v);
}

static void assert_refused(const char *text, manta_status want, const char *message)
{
  manta_value out = manta_value_int(42);
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta_value_from_json(&out, text, strlen(text), &err), want);
  assert_status(manta_value_from_json(&out, text, strlen(text), NULL), want);
  assert_string_equal(err.message, message);
  assert_int_equal(out.u.i, 42);
}

static manta_value list_of(manta_value *items, uint32_t n)
{
  return (manta_value){.type = MANTA_LIST, .count = n, .u.items = items};
}

static void every_type_is_written(void **state)
{
  manta_value items[] = {manta_value_int(-5), {0}, manta_value_bool(true), manta_value_bool(false)};
  assert_writes(list_of(items, 4), -1, "[-5,null,true,false]");
  assert_writes(manta_value_int(INT64_MIN), -1, "-9223372036854775808");
  assert_writes(manta_value_int(INT64_MAX), -1, "9223372036854775807");
  assert_writes(MANTA_MAP(MANTA_KV_INT("a", 0), MANTA_KV_STR("b", "x")), -1,
                "{\"a\":0,\"b\":\"x\"}");
  assert_writes((manta_value){.type = MANTA_LIST}, -1, "[]");
  assert_writes((manta_value){.type = MANTA_MAP}, -1, "{}");
}

static void indent_gives_each_entry_a_line(void **state)
{
  manta_value items[] = {manta_value_int(1), {.type = MANTA_LIST}};
  manta_value map = MANTA_MAP(MANTA_KV("l", list_of(items, 2)), MANTA_KV_BOOL("b", true));
  assert_writes(map, 2, "{\n  \"l\": [\n    1,\n    []\n  ],\n  \"b\": true\n}");
  assert_writes(map, 0, "{\n\"l\": [\n1,\n[]\n],\n\"b\": true\n}");
  assert_writes((manta_value){.type = MANTA_MAP}, 4, "{}");
}

static void reals_take_the_fewest_digits_and_stay_reals(void **state)
{
  static const struct {
    double r;
    const char *text;
  } rows[] = {{1.0, "1.0"},
              {0.0, "0.0"},
              {-0.0, "-0.0"},
              {-3.0, "-3.0"},
              {0.1, "0.1"},
              {0.1 + 0.2, "0.30000000000000004"},
              {1.0 / 3, "0.3333333333333333"},
              {999999999999999.0, "999999999999999.0"},
              {1e15, "1e+15"},
              {1e22, "1e+22"},
              {123456789012345678.0, "1.2345678901234568e+17"},
              {0x1p53, "9007199254740992.0"},
              {5e-324, "5e-324"},
              {-1.5e-310, "-1.5e-310"},
              {2.2250738585072014e-308, "2.2250738585072014e-308"},
              {1.7976931348623157e308, "1.7976931348623157e+308"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_writes(manta_value_real(rows[i].r), -1, rows[i].text);
    assert_reads(rows[i].text, manta_value_real(rows[i].r));
  }
  manta_value v = parse("-0.0");
  assert_true(signbit(v.u.r));
}

static void nan_and_infinities_go_both_ways(void **state)
{
  manta_value items[] = {manta_value_real(NAN), manta_value_real(INFINITY),
                         manta_value_real(-INFINITY), manta_value_borrow_string("NaN")};
  assert_writes(list_of(items, 4), -1, "[NaN,Infinity,-Infinity,\"NaN\"]");
  assert_reads("[NaN,Infinity,-Infinity,\"NaN\"]", list_of(items, 4));
  assert_reads(" NaN ", items[0]);
  assert_reads(
      "{\"NaN\": -Infinity, \"a\\\"NaN\": \"\\\\\", \"b\": NaN}",
      MANTA_MAP(MANTA_KV("NaN", items[2]), MANTA_KV_STR("a\"NaN", "\\"), MANTA_KV("b", items[0])));
}

static void bytes_go_both_ways(void **state)
{
  static const char *const texts[] = {"", "AA==", "AP8=", "AP8Q", "AP8Q+w=="};
  for (uint32_t n = 0; n < 5; n++) {
    char want[40];
    snprintf(want, sizeof want, "{\"$bytes\":\"%s\"}", texts[n]);
    assert_writes(manta_value_borrow_bytes("\x00\xff\x10\xfb", n), -1, want);
    assert_reads(want, manta_value_borrow_bytes("\x00\xff\x10\xfb", n));
  }
}

static void only_the_exact_shapes_are_special(void **state)
{
  static const char *const plain[] = {"{\"$bytes\":\"AA=\"}",
                                      "{\"$bytes\":\"A===\"}",
                                      "{\"$bytes\":\"====\"}",
                                      "{\"$bytes\":\"AB==\"}",
                                      "{\"$bytes\":\"AAB=\"}",
                                      "{\"$bytes\":\"AA=A\"}",
                                      "{\"$bytes\":5}",
                                      "{\"$bytes\":\"A\\u0000AA\"}",
                                      "{\"$real\":\"nan\"}",
                                      "{\"$real\":\"NaNN\"}",
                                      "{\"$real\":1.5}",
                                      "{\"bytes\":\"AAAA\"}",
                                      "{\"$bytes\":\"AAAA\",\"x\":1}"};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
    manta_value v = parse(plain[i]);
    assert_int_equal(v.type, MANTA_MAP);
    assert_writes(v, -1, plain[i]);
    manta_value_fini(&v);
  }
  assert_reads("{\"$real\":\"-Infinity\"}", manta_value_real(-INFINITY));
}

static void strings_are_escaped(void **state)
{
  manta_value v = {.type = MANTA_STRING, .count = 12, .u.s = "\"\\\b\f\n\r\t\x01\0/\x7f\x1f"};
  static const char text[] = "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u0000/\x7f\\u001f\"";
  assert_writes(v, -1, text);
  assert_reads(text, v);
  assert_writes(MANTA_MAP(MANTA_KV_INT("\n", 1)), -1, "{\"\\n\":1}");
  v = manta_value_borrow_string("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x9f \xf4\x8f\xbf\xbf");
  assert_writes(v, -1, "\"h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x9f \xf4\x8f\xbf\xbf\"");
}

static void what_is_no_utf8_becomes_the_replacement(void **state)
{
  static const struct {
    const char *bytes;
    int bad;
  } rows[] = {{"\xff", 1},
              {"\x80", 1},
              {"\xc3", 1},
              {"\xc0\x80", 2},
              {"\xc1\xbf", 2},
              {"\xe0\x80\x80", 3},
              {"\xe2\x82", 2},
              {"\xed\xa0\x80", 3},
              {"\xf0\x80\x80\x80", 4},
              {"\xf4\x90\x80\x80", 4},
              {"\xf5\x80\x80\x80", 4}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char bytes[8], want[40] = "\"";
    snprintf(bytes, sizeof bytes, "%sz", rows[i].bytes);
    size_t n = 1;
    for (int k = 0; k < rows[i].bad; k++)
      n += (size_t)snprintf(want + n, sizeof want - n, "\\ufffd");
    snprintf(want + n, sizeof want - n, "z\"");
    assert_writes(manta_value_borrow_string(bytes), -1, want);
    manta_value_fini(&(manta_value[]){parse(want)}[0]);
  }
}

static void a_sequence_cut_by_the_length_is_no_utf8(void **state)
{
  manta_value v = {.type = MANTA_STRING, .count = 2, .u.s = "\xe2\x82\xac"};
  assert_writes(v, -1, "\"\\ufffd\\ufffd\"");
}

static void maps_keep_their_order_and_the_last_of_a_key(void **state)
{
  manta_value v = parse("{\"z\":1,\"a\":2,\"m\":3,\"a\":4}");
  assert_int_equal(v.count, 3);
  assert_string_equal(v.u.pairs[0].key, "z");
  assert_int_equal(manta_value_as_int(manta_value_get(&v, "a"), 0), 4);
  manta_value_fini(&v);
}

static void a_parsed_value_is_one_block_and_can_be_changed(void **state)
{
  manta__alloc_fail_after(-1);
  manta_value v = parse("{\"a\":[1,{\"b\":\"text\"}],\"raw\":{\"$bytes\":\"aGk=\"}}");
  assert_int_equal(manta__alloc_fail_after(-1), 1);
  assert_status(manta_value_put_int(&v, "new", 1), MANTA_OK);
  assert_writes(v, -1, "{\"a\":[1,{\"b\":\"text\"}],\"raw\":{\"$bytes\":\"aGk=\"},\"new\":1}");
  manta_value_fini(&v);
}

static void malformed_text_is_refused_with_its_place(void **state)
{
  assert_refused("", MANTA_EPROTO, "json: line 1 column 0: unexpected token near end of file");
  assert_refused("[1,\n 2,\n x]", MANTA_EPROTO, "json: line 3 column 2: invalid token near 'x'");
  assert_refused("{\"a\":1", MANTA_EPROTO, "json: line 1 column 6: '}' expected near end of file");
  assert_refused("1 2", MANTA_EPROTO, "json: line 1 column 3: end of file expected near '2'");
  assert_refused("9223372036854775808", MANTA_EPROTO,
                 "json: line 1 column 19: too big integer near '9223372036854775808'");
  assert_refused("1e999", MANTA_EPROTO, "json: line 1 column 5: real number overflow near '1e999'");
  assert_refused("\"\xff\"", MANTA_EPROTO,
                 "json: line 1 column 1: unable to decode byte 0xff near '\"'");
  assert_refused(
      "{\"a\\u0000\":1}", MANTA_EPROTO,
      "json: line 1 column 10: NUL byte in object key not supported near '\"a\\u0000\"'");
}

static void the_place_is_right_behind_bare_words(void **state)
{
  assert_refused("[NaN, x]", MANTA_EPROTO, "json: line 1 column 7: invalid token near 'x'");
  assert_refused("[NaN,\n Infinity, -Infinity, x]", MANTA_EPROTO,
                 "json: line 2 column 23: invalid token near 'x'");
  assert_refused("[NaN,\n 10, x, NaN]", MANTA_EPROTO,
                 "json: line 2 column 6: invalid token near 'x'");
  assert_refused("[1, 2, 3, 4, 5, 6 NaN]", MANTA_EPROTO,
                 "json: line 1 column 19: ']' expected near '{'");
}

static void bare_words_stand_only_where_values_do(void **state)
{
  static const char *const bad[] = {"{NaN:1}", "[NaN NaN]", "NaNx",   "-NaN", "- Infinity",
                                    "Infinit", "+Infinity", "[1NaN]", "NaN,"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    manta_value v = {0};
    assert_status(manta_value_from_json(&v, bad[i], strlen(bad[i]), NULL), MANTA_EPROTO);
  }
}

static void no_byte_behind_the_text_is_read(void **state)
{
  static const char *const texts[] = {"[-I", "\"a\\", "NaN", "-Infinit", "[1,\"NaN"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    size_t n = strlen(texts[i]);
    char *cut = manta__malloc(n); // no NUL: a read past the end is caught
    manta_value v = {0};
    memcpy(cut, texts[i], n);
    assert_status(manta_value_from_json(&v, cut, n, NULL), i == 2 ? MANTA_OK : MANTA_EPROTO);
    manta__free(cut);
  }
}

static char *nested_text(int levels, const char *core)
{
  char *text = manta__calloc(1, (size_t)levels * 2 + strlen(core) + 1);
  memset(text, '[', (size_t)levels);
  memcpy(text + levels, core, strlen(core));
  memset(text + levels + strlen(core), ']', (size_t)levels);
  return text;
}

static void assert_depth(int levels, const char *core, manta_status want)
{
  char *text = nested_text(levels, core), *again = NULL;
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta_value_from_json(&v, text, strlen(text), &err), want);
  if (want == MANTA_OK) {
    assert_ok(manta_value_to_json(&v, -1, &again, &err), &err);
    assert_string_equal(again, text);
  } else {
    assert_string_equal(err.message, "json: nested deeper than 64 levels");
  }
  manta_free(again);
  manta__free(text);
  manta_value_fini(&v);
}

static void depth_is_limited_both_ways(void **state)
{
  assert_depth(64, "", MANTA_OK);
  assert_depth(65, "", MANTA_ETOOBIG);
  assert_depth(64, "{}", MANTA_ETOOBIG);
  assert_depth(64, "NaN", MANTA_OK); // a special is no level
  assert_depth(64, "{\"$bytes\":\"AAAA\"}", MANTA_OK);
  assert_depth(100000, "", MANTA_ETOOBIG);
  manta_value v = {0};
  char *text = NULL;
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < 65; i++) {
    manta_value outer = {0};
    manta_value_set_list(&outer);
    assert_status(manta_value_append(&outer, &v), MANTA_OK);
    manta_value_move(&v, &outer);
  }
  assert_status(manta_value_to_json(&v, 0, &text, &err), MANTA_ETOOBIG);
  assert_string_equal(err.message, "value is nested deeper than 64 levels");
  assert_null(text);
  manta_value_fini(&v);
}

static void size_is_limited_both_ways(void **state)
{
  manta_value v = manta_value_int(1), one = list_of(&v, 1);
  manta_error err = MANTA_ERROR_INIT;
  char *text = NULL;
  assert_status(manta_value_from_json(&v, "", (size_t)MANTA__JSON_MAX + 1, &err), MANTA_ETOOBIG);
  assert_string_equal(err.message, "json text of more than 1073741824 bytes");
  assert_status(manta_value_to_json(&one, INT32_MAX, &text, &err), MANTA_ETOOBIG);
  assert_string_equal(err.message, "value takes more than 1073741824 bytes of json");
  assert_null(text);
}

static void assert_round_trip(const manta_value *v, int indent)
{
  char *text = NULL, *again = NULL;
  manta_value back = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_to_json(v, indent, &text, &err), &err);
  assert_ok(manta_value_from_json(&back, text, strlen(text), &err), &err);
  if (!manta_value_equal(v, &back))
    fail_msg("%s reads back as something else", text);
  assert_ok(manta_value_to_json(&back, indent, &again, &err), &err);
  assert_string_equal(text, again); // also the sign of zero and the order of keys
  manta_free(text);
  manta_free(again);
  manta_value_fini(&back);
}

static void random_values_read_back(void **state)
{
  struct gen g = {.state = 77, .utf8 = true};
  for (int i = 0; i < 3000; i++) {
    manta_value v = {0};
    gen_value(&g, 4, &v);
    assert_round_trip(&v, i % 4 - 1);
    manta_value_fini(&v);
  }
}

static void random_reals_read_back_bit_by_bit(void **state)
{
  struct gen g = {.state = 123};
  for (int i = 0; i < 20000; i++) {
    manta_value v = manta_value_real(gen_real(&g));
    char *text = NULL;
    assert_status(manta_value_to_json(&v, -1, &text, NULL), MANTA_OK);
    manta_value back = parse(text);
    assert_int_equal(back.type, MANTA_REAL);
    if (!isnan(v.u.r))
      assert_memory_equal(&back.u.r, &v.u.r, sizeof v.u.r);
    assert_int_equal(isnan(back.u.r), isnan(v.u.r));
    manta_free(text);
  }
}

static void write_and_read(void)
{
  assert_writes(manta_value_real(0.25), -1, "0.25");
  assert_reads("0.25", manta_value_real(0.25));
}

static void a_locale_with_a_comma_changes_nothing(void **state)
{
  with_comma(write_and_read);
}

static void any_oom_is_told(void **state)
{
  manta_value v = MANTA_MAP(MANTA_KV_STR("a", "text"), MANTA_KV_REAL("r", NAN)), out = {0};
  manta_error err = MANTA_ERROR_INIT;
  char *text = NULL;
  FOR_EACH_OOM(manta_value_to_json(&v, 8, &text, &err), );
  assert_string_equal(err.message, "no memory for the json text of a value");
  FOR_EACH_OOM(manta_value_from_json(&out, text, strlen(text), &err), );
  assert_string_equal(err.message, "no memory for a value of 57 bytes");
  manta__alloc_fail_after(0);
  assert_status(manta_value_from_json(&out, text, strlen(text), &err), MANTA_ENOMEM);
  manta__alloc_fail_after(-1);
  assert_true(manta_value_equal(&out, &v));
  manta_value_fini(&out);
  manta_free(text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_is_written),
      cmocka_unit_test(indent_gives_each_entry_a_line),
      cmocka_unit_test(reals_take_the_fewest_digits_and_stay_reals),
      cmocka_unit_test(nan_and_infinities_go_both_ways),
      cmocka_unit_test(bytes_go_both_ways),
      cmocka_unit_test(only_the_exact_shapes_are_special),
      cmocka_unit_test(strings_are_escaped),
      cmocka_unit_test(what_is_no_utf8_becomes_the_replacement),
      cmocka_unit_test(a_sequence_cut_by_the_length_is_no_utf8),
      cmocka_unit_test(maps_keep_their_order_and_the_last_of_a_key),
      cmocka_unit_test(a_parsed_value_is_one_block_and_can_be_changed),
      cmocka_unit_test(malformed_text_is_refused_with_its_place),
      cmocka_unit_test(the_place_is_right_behind_bare_words),
      cmocka_unit_test(bare_words_stand_only_where_values_do),
      cmocka_unit_test(no_byte_behind_the_text_is_read),
      cmocka_unit_test(depth_is_limited_both_ways),
      cmocka_unit_test(size_is_limited_both_ways),
      cmocka_unit_test(random_values_read_back),
      cmocka_unit_test(random_reals_read_back_bit_by_bit),
      cmocka_unit_test(a_locale_with_a_comma_changes_nothing),
      cmocka_unit_test(any_oom_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
