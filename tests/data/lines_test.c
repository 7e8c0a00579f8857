/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of lines: text, and JSON with its types, its shapes and its mistakes.
 */
#include "cells.h"
#include "data/lines/json.h"
#include "folder.h"

// --- text ---------------------------------------------------------------------------------------

static void lines_of_text_are_rows(void **state)
{
  assert_reads(file_text(dir, "x.txt", "one\ntwo\r\n\nthree, \"3\""), NULL,
               "text:string\n'one'\n'two'\n''\n'three, \"3\"'");
  assert_reads(file_text(dir, "x.txt", ""), NULL, "text:string");
  assert_reads(file_text(dir, "x.txt", "\n"), NULL, "text:string\n''");
  assert_refuses(file_text(dir, "x.txt", "ok\ngr\xfc\n"), NULL, MANTA_EINVAL,
                 "x.txt:2: is not UTF-8\nhint: types = {\"text\": \"bytes\"}");
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"text\":\"bytes\"}");
  c.types = &types;
  assert_reads(file_text(dir, "x.txt", "ok\ngr\xfc\n"), &c, "text:bytes\n'ok'\n'gr\xfc'");
  manta_value_fini(&types);
  types = tree_of("{\"text\":\"i64\"}");
  assert_refuses(file_text(dir, "x.txt", "1\n"), &c, MANTA_EINVAL, "a string, or bytes");
  manta_value_fini(&types);
  c.types = NULL;
  c.skip_errors = true;
  assert_reads(file_text(dir, "x.txt", "ok\ngr\xfc\nfine\n"), &c, "text:string\n'ok'\n'fine'");
  c.format = "text";
  assert_reads(file_text(dir, "x.log", "any name\n"), &c, "text:string\n'any name'");
}

static void text_is_cut_at_lines(void **state)
{
  uint64_t seed = 80;
  char *text = malloc(30000), *whole, *parts;
  for (int round = 0; round < 30; round++) {
    manta_data_config c = MANTA_DATA_CONFIG_INIT;
    manta_error err = MANTA_ERROR_INIT;
    size_t n = cells_random(&seed) % 30000;
    for (size_t i = 0; i < n; i++)
      text[i] = cells_random(&seed) % 20 ? 'x' : cells_random(&seed) % 2 ? '\n' : '\r';
    const char *path = file_write(dir, "cut.txt", text, n);
    assert_ok(read_path(path, &c, &whole, &err), &err);
    c.block_bytes = 1 + cells_random(&seed) % 500;
    c.batch_rows = 7;
    assert_ok(read_path(path, &c, &parts, &err), &err);
    assert_string_equal(whole, parts);
    manta_free(whole);
    manta_free(parts);
  }
  free(text);
}

// --- JSON ---------------------------------------------------------------------------------------

static void objects_are_rows(void **state)
{
  static const struct {
    const char *text, *want;
  } cases[] = {
      {"{\"a\":1,\"b\":\"x\"}\n{\"b\":\"y\",\"a\":2}\n", "a:i64|b:string\n1|'x'\n2|'y'"},
      {"{\"a\":1}\n\n  \n{\"a\":null}\n{}\n", "a:i64\n1\nnull\nnull"},
      {"{\"a\":1}\n{\"a\":2.5}", "a:f64\n1\n2.5"},
      {"{\"a\":true}\n{\"a\":false}\r\n", "a:bool\ntrue\nfalse"},
      {"{\"a\":1}\n{\"c\":\"late\"}\n", "a:i64|c:string\n1|null\nnull|'late'"},
      {"{\"a\":NaN}\n{\"a\":-Infinity}\n{\"a\":1e3}\n", "a:f64\nnan\n-inf\n1000"},
      {"{\"a\":[1,2]}\n{\"a\":[3,4]}\n", "a:i64[2]\n1 2\n3 4"},
      {"{\"a\":[[1,2.5],[3,4]]}\n{\"a\":null}\n", "a:f64[2,2]\n1 2.5 3 4\nnull"},
      {"{\"a\":[1,2]}\n{\"a\":[3]}\n", "a:string\n'[1,2]'\n'[3]'"},
      {"{\"a\":[]}\n", "a:string\n'[]'"},
      {"{\"a\":{\"b\":[1, \"}\"]}}\n", "a:string\n'{\"b\":[1, \"}\"]}'"},
      {"{\"a\":1}\n{\"a\":\"x\"}\n", "a:string\n'1'\n'x'"},
      {"{\"a\":[1,\"x\"]}\n", "a:string\n'[1,\"x\"]'"},
      {"{\"a\":\"q\\\"\\n\\u00e4\\ud83d\\ude00\\/\"}\n",
       "a:string\n'q\"\n\xc3\xa4\xf0\x9f\x98\x80/'"},
      {"{\"k\\u0061\":1}\n{\"ka\":2}\n", "ka:i64\n1\n2"},
      {"{\"a\":1,\"a\":2}\n", "a:i64\n2"},
      {"{\"a\":null}\n", "a:f64\nnull"},
      {" { \"a\" : 1 , \"b\" : [ 1 , 2 ] } \n", "a:i64|b:i64[2]\n1|1 2"},
      {"{\"a\":12345678901234567890}\n", "a:f64\n1.2345678901234567e+19"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_reads(file_text(dir, "x.jsonl", cases[i].text), NULL, cases[i].want);
}

// A key that the first file has not is a column, too.
static void types_fit_the_other_files(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  const char *paths[] = {file_text(dir, "0.jsonl", "{\"a\": 1, \"b\": null}\n"),
                         file_text(dir, "1.jsonl", "{\"b\": \"x\", \"a\": 2.5, \"c\": true}\n")};
  assert_ok(read_paths(paths, 2, NULL, &got, &err), &err);
  assert_string_equal(got, "a:f64|b:string|c:bool\n1|null|null\n2.5|'x'|true");
  manta_free(got);
}

static void given_types_are_taken(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types =
      tree_of("{\"a\":\"i8\",\"b\":\"f32[2]\",\"c\":\"string\",\"d\":\"u64\",\"e\":\"bytes\"}");
  c.types = &types;
  assert_reads(
      file_text(dir, "x.jsonl",
                "{\"a\":3.0,\"b\":[1,0.1],\"c\":5,\"d\":18446744073709551615,\"e\":\"x\"}\n"),
      &c, "a:i8|b:f32[2]|c:string|d:u64|e:bytes\n3|1 0.100000001|'5'|18446744073709551615|'x'");
  static const char *const wrong[] = {"{\"a\":300,\"b\":[1,2],\"c\":5,\"d\":1,\"e\":\"\"}",
                                      "{\"a\":1.5,\"b\":[1,2],\"c\":5,\"d\":1,\"e\":\"\"}",
                                      "{\"a\":1,\"b\":[1],\"c\":5,\"d\":1,\"e\":\"\"}",
                                      "{\"a\":1,\"b\":[1,2,3],\"c\":5,\"d\":1,\"e\":\"\"}",
                                      "{\"a\":1,\"b\":[[1],[2]],\"c\":5,\"d\":1,\"e\":\"\"}",
                                      "{\"a\":1,\"b\":[1,2],\"c\":5,\"d\":-1,\"e\":\"\"}",
                                      "{\"a\":\"1\",\"b\":[1,2],\"c\":5,\"d\":1,\"e\":\"\"}"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_refuses(file_text(dir, "x.jsonl", wrong[i]), &c, MANTA_EINVAL, "x.jsonl:1: \"");
  manta_value_fini(&types);
}

static void mistakes_are_told_with_their_places(void **state)
{
  static const struct {
    const char *text, *says;
  } cases[] = {
      {"{\"a\":1}\n{\"a\":1\n", ":2: character 7: no comma between two values"},
      {"{\"a\":1}\n[1,2]\n", ":2: character 1: an array\nhint: a line is one object"},
      {"{\"a\":1}\n7\n", ":2: character 1: no object"},
      {"{\"a\":1}\n{\"a\":1} x\n", ":2: character 9: something behind the value"},
      {"{\"a\":1}\n{\"a\":01}\n", ":2: character 7: no comma"},
      {"{\"a\":1}\n{\"a\":.5}\n", ":2: character 6: no value"},
      {"{\"a\":1}\n{\"a\":1.}\n", "without digits behind its dot"},
      {"{\"a\":1}\n{\"a\" 1}\n", "no colon"},
      {"{\"a\":1}\n{a:1}\n", "no key"},
      {"{\"a\":1}\n{\"a\":1,}\n", "no key"},
      {"{\"a\":1}\n{\"a\":\"x\n", "a string that does not end"},
      {"{\"a\":1}\n{\"b\":\"\\x\"}\n", "unknown escape"},
      {"{\"a\":1}\n{\"b\":\"\t\"}\n", "control character"},
      {"{\"a\":1}\n{\"b\":[1,[2}}\n", "no comma"},
      {"[1,2]\n", "has no columns"},
      {"", "has no columns"},
      {"{}\n", "has no columns"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_refuses(file_text(dir, "x.jsonl", cases[i].text), NULL, MANTA_EINVAL, cases[i].says);
  }
  // a word where the sample has numbers, far behind it
  char *text = malloc(2000000);
  size_t at = 0;
  for (int i = 0; i < 120000; i++)
    at += (size_t)snprintf(text + at, 16, "{\"a\":%d}\n", i % 1000);
  snprintf(text + at, 32, "{\"a\":\"oops\"}\n{\"a\":7}\n");
  assert_refuses(file_text(dir, "x.jsonl", text), NULL, MANTA_EINVAL,
                 ":120001: \"a\": oops is no i64\nhint: types = {\"a\": \"string\"}");
  free(text);
}

static void lines_that_are_wrong_are_skipped(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"a\":\"i64\",\"s\":\"string\"}");
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  manta_data_stats s;
  char *got;
  c.types = &types;
  c.skip_errors = true;
  const char *path =
      file_text(dir, "x.jsonl",
                "{\"a\":1,\"s\":\"x\"}\nnonsense\n{\"s\":\"long text\",\"a\":\"b\"}\n"
                "{\"a\":2,\"s\":null}\n{\"a\":3,\"s\":\"\xff\"}\n"
                "{\"a\":4,\"s\":\"\\ud800\"}\n{\"a\":5,\"s\":\"y\"}\n");
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_ok(read_blocks(d, &got, &err), &err);
  assert_string_equal(got, "a:i64|s:string\n1|'x'\n2|null\n5|'y'");
  manta_dataset_stats(d, &s);
  assert_int_equal(s.skipped, 4);
  assert_has(s.first_skip, "x.jsonl:2: character 1: no object");
  manta_free(got);
  manta_dataset_close(d);
  manta_value_fini(&types);
}

static void columns_and_filters_work(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  static const char *const columns[] = {"s"};
  manta_value filter = tree_of("[\"and\",[\">\",[\"col\",\"a\"],1],[\"is_null\",[\"col\",\"b\"]]]");
  c.columns = columns;
  c.column_count = 1;
  c.filter = &filter;
  assert_reads(file_text(dir, "x.json",
                         "{\"a\":1,\"s\":\"p\"}\n{\"a\":2,\"s\":\"q\"}\n"
                         "{\"a\":3,\"s\":\"r\",\"b\":true}\n{\"a\":4,\"s\":\"t\",\"b\":null}\n"),
               &c, "s:string\n'q'\n't'");
  manta_value_fini(&filter);
  filter = tree_of("[\">\",[\"col\",\"a\"],100]");
  assert_reads(file_text(dir, "x.json", "{\"a\":1,\"s\":\"p\"}\n"), &c, "s:string");
  manta_value_fini(&filter);
}

static void deep_values_have_a_limit(void **state)
{
  char text[300];
  int at = 0;
  for (int depth = 60; depth <= 70; depth += 10) {
    at = snprintf(text, sizeof text, "{\"a\":1}\n{\"b\":");
    for (int i = 0; i < depth; i++)
      text[at++] = '[';
    for (int i = 0; i < depth; i++)
      text[at++] = ']';
    snprintf(text + at, 8, "}\n");
    const char *path = file_text(dir, "x.jsonl", text);
    if (depth <= MANTA__JSON_DEPTH)
      assert_reads(path,
                   &(manta_data_config){.size = sizeof(manta_data_config),
                                        .columns = (const char *const[]){"a"},
                                        .column_count = 1},
                   "a:i64\n1\nnull");
    else
      assert_refuses(path, NULL, MANTA_EINVAL, "nested too deeply");
  }
}

static void compressed_lines_are_read(void **state)
{
  const char *text = "{\"a\":1}\n{\"a\":2}\n";
  size_t n;
  void *packed = zstd_bytes(text, strlen(text), &n);
  assert_reads(file_write(dir, "x.jsonl.zst", packed, n), NULL, "a:i64\n1\n2");
  free(packed);
}

static void every_allocation_may_fail(void **state)
{
  const char *paths[] = {
      file_text(dir, "x.jsonl", "{\"a\":[1,2],\"b\":\"x\\ny\",\"c\":{}}\n{\"b\":null}\n"),
      file_text(dir, "x.txt", "one\ntwo\n")};
  for (int k = 0; k < 2; k++) {
    manta_dataset *d = NULL;
    long failed = 0;
    FOR_EACH_OOM(manta_dataset_open(&d, &paths[k], 1, NULL, NULL), (void)0);
    for (long n = 0;; n++, failed++) {
      manta_reader *r = NULL;
      manta_batch *b = NULL;
      manta__alloc_fail_after(n);
      manta_status st = manta_reader_open(&r, d, 0, 1, NULL);
      if (st == MANTA_OK)
        st = manta_reader_next(r, &b, NULL);
      manta__alloc_fail_after(-1);
      manta_batch_destroy(b);
      manta_reader_close(r);
      if (st == 1)
        break;
      assert_status(st, MANTA_ENOMEM);
    }
    assert_true(failed > 5);
    manta_dataset_close(d);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_text_are_rows),
      cmocka_unit_test(text_is_cut_at_lines),
      cmocka_unit_test(objects_are_rows),
      cmocka_unit_test(types_fit_the_other_files),
      cmocka_unit_test(given_types_are_taken),
      cmocka_unit_test(mistakes_are_told_with_their_places),
      cmocka_unit_test(lines_that_are_wrong_are_skipped),
      cmocka_unit_test(columns_and_filters_work),
      cmocka_unit_test(deep_values_have_a_limit),
      cmocka_unit_test(compressed_lines_are_read),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
