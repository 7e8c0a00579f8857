/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV: what RFC 4180 allows and what it does not, types, missing values, cuts, filters, and every
 * number bit-equal to strtod's.
 */
#include "data/csv/csv.h"

#include "cells.h"
#include "folder.h"

// --- form ---------------------------------------------------------------------------------------

static void rows_and_quotes_are_those_of_the_standard(void **state)
{
  static const struct {
    const char *text, *want;
  } cases[] = {
      {"a,b\n1,2\n3,4\n", "a:i64|b:i64\n1|2\n3|4"},
      {"a,b\r\n1,2\r\n3,4", "a:i64|b:i64\n1|2\n3|4"},
      {"a,b\n1,x\n", "a:i64|b:string\n1|'x'"},
      {"a\n\"x,y\"\n\"x\ny\"\n\"say \"\"hi\"\"\"\n\"\"\n",
       "a:string\n'x,y'\n'x\ny'\n'say \"hi\"'\n''"},
      {"a,b\n\"1\",\"2.5\"\n", "a:i64|b:f64\n1|2.5"},
      {"a,b\n\n1,2\n\r\n\n3,4\n\n", "a:i64|b:i64\n1|2\n3|4"},
      {"a\n1\n\n2\n\r\n3", "a:i64\n1\n2\n3"},
      {"\xef\xbb\xbf"
       "a,b\n1,2\n",
       "a:i64|b:i64\n1|2"},
      {"a,a,,a\n1,2,3,4\n", "a:i64|a.1:i64|c2:i64|a.2:i64\n1|2|3|4"},
      {"\"a b\",\"c\"\"d\"\n1,2\n", "a b:i64|c\"d:i64\n1|2"},
      {"a,b\r\n\"x\",\"y\"\r\n", "a:string|b:string\n'x'|'y'"},
      {"a\n\"\"\"\"\n\"\"\"\"\"\"\n", "a:string\n'\"'\n'\"\"'"},
      {"a,b\n1,2", "a:i64|b:i64\n1|2"},
      {"a,b\n", "a:f64|b:f64"},
      {"a,b", "a:f64|b:f64"},
      {"h\xc3\xa4t\n1\n", "h\xc3\xa4t:i64\n1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_reads(file_text(dir, "x.csv", cases[i].text), NULL, cases[i].want);
}

static void types_are_found_in_the_values(void **state)
{
  static const struct {
    const char *text, *want;
  } cases[] = {
      {"a\n1\n-5\n", "a:i64\n1\n-5"},
      {"a\n1\n2.5\n", "a:f64\n1\n2.5"},
      {"a\n1\n1e3\n", "a:f64\n1\n1000"},
      {"a\n9223372036854775807\n9223372036854775808\n",
       "a:u64\n9223372036854775807\n9223372036854775808"},
      {"a\n-1\n9223372036854775808\n", "a:f64\n-1\n9.2233720368547758e+18"},
      {"a\ntrue\nFALSE\n", "a:bool\ntrue\nfalse"},
      {"a\ntrue\n1\n", "a:string\n'true'\n'1'"},
      {"a,b\n,1\nNA,2\n", "a:f64|b:i64\nnull|1\nnull|2"},
      {"a,b\n1,x\n,y\nnan,NA\n", "a:i64|b:string\n1|'x'\nnull|'y'\nnull|'NA'"},
      {"a\n1.5\ninf\n-Infinity\nNaN\n", "a:f64\n1.5\ninf\n-inf\nnull"},
      {"a\n 1\n2 \n", "a:i64\n1\n2"},
      {"a\n0x10\n", "a:string\n'0x10'"},
      {"a\n007\n", "a:i64\n7"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_reads(file_text(dir, "x.csv", cases[i].text), NULL, cases[i].want);
}

static void options_say_how(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  c.separator = ';';
  c.quote = '\'';
  assert_reads(file_text(dir, "x.csv", "a;b\n'x;y';1\n"), &c, "a:string|b:i64\n'x;y'|1");
  c = (manta_data_config)MANTA_DATA_CONFIG_INIT;
  assert_reads(file_text(dir, "x.tsv", "a\tb\n1\t2\n"), &c, "a:i64|b:i64\n1|2");
  c.no_header = true;
  assert_reads(file_text(dir, "x.csv", "1,2\n3,4\n"), &c, "c0:i64|c1:i64\n1|2\n3|4");
  static const char *const names[] = {"u", "v"};
  c.names = names;
  c.name_count = 2;
  assert_reads(file_text(dir, "x.csv", "1,2\n3,4\n"), &c, "u:i64|v:i64\n1|2\n3|4");
  c.name_count = 1;
  assert_refuses(file_text(dir, "x.csv", "1,2\n"), &c, MANTA_EINVAL, "1 names for 2 columns");
  c = (manta_data_config)MANTA_DATA_CONFIG_INIT;
  c.no_quotes = true;
  assert_reads(file_text(dir, "x.csv", "a,b\n5\" pipe,\"x\n"), &c,
               "a:string|b:string\n'5\" pipe'|'\"x'");
  c = (manta_data_config)MANTA_DATA_CONFIG_INIT;
  static const char *const missing[] = {"?", "-"};
  c.missing = missing;
  c.missing_count = 2;
  assert_reads(file_text(dir, "x.csv", "a,b\n1,?\n-,\"?\"\n,x\n"), &c,
               "a:i64|b:string\n1|null\nnull|'?'\nnull|'x'");
}

static void given_types_are_taken(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types =
      tree_of("{\"a\":\"f32\",\"b\":\"i8\",\"c\":\"string\",\"d\":\"u64\",\"e\":\"f16\","
              "\"f\":\"bytes\",\"g\":\"bf16\"}");
  c.types = &types;
  const char *path = file_text(dir, "x.csv",
                               "a,b,c,d,e,f,g\n0.1,-128,007,18446744073709551615,0.1,\xff,0.1\n"
                               ",,,,,,\n16777217,127,x,0,65520,y,3e38\n");
  assert_reads(path, &c,
               "a:f32|b:i8|c:string|d:u64|e:f16|f:bytes|g:bf16\n"
               "0.100000001|-128|'007'|18446744073709551615|0.0999755859|'\xff'|0.100097656\n"
               "null|null|''|null|null|''|null\n16777216|127|'x'|0|inf|'y'|3.00405527e+38");
  manta_value_fini(&types);
  types = tree_of("{\"bb\":\"f32\"}");
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_status(read_path(path, &c, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "types: there is no column \"bb\"\nhint: the nearest names are \"b\"");
  manta_value_fini(&types);
  types = tree_of("{\"b\":\"f33\"}");
  assert_status(read_path(path, &c, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "column \"b\": \"f33\" is no type");
  manta_value_fini(&types);
  types = tree_of("{\"b\":\"f32[2]\"}");
  assert_status(read_path(path, &c, &got, &err), MANTA_EUNSUPPORTED);
  manta_value_fini(&types);
}

// --- what is wrong ------------------------------------------------------------------------------

static void wrong_files_are_named_with_line_and_remedy(void **state)
{
  manta_data_config typed = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"a\":\"u8\"}");
  typed.types = &types;
  static const struct {
    const char *text, *says;
    bool typed;
  } cases[] = {
      {"a,b\n1,2\n3\n", ":3: a row of 1 fields; the others have 2", false},
      {"a,b\n1,2\n3,4,5\n", ":3: a row of 3 fields; the others have 2", false},
      {"a,b\n1,2\n\"x\ny\",2\n1,2,3\n", ":5: a row of 3 fields", false},
      {"a\n5\" pipe\n", ":2: a quote (\") in the middle of a field", false},
      {"a\n\"x\"y\n", ":2: a quote (\") in the middle", false},
      {"a,b\n1,2\n\"x,3\n4,5\n", ":3: a quote (\") in this row or behind it is never closed",
       false},
      {"a,b\n1,2\n300,2\n", ":3: column 1 (\"a\"): \"300\" is no u8", true},
      {"a,b\n1,2\n-1,2\n", ":3: column 1 (\"a\"): \"-1\" is no u8", true},
      {"a,b\n1,2\nhello,2\n",
       ":3: column 1 (\"a\"): \"hello\" is no u8\nhint: types = {\"a\": \"string\"}", true},
      {"", "is empty: it has no columns", false},
      {"\n\n", "is empty", false},
      {"\x1f\x8b"
       "abc",
       "is gzip", false},
      {"\xff\xfe"
       "a\0",
       "is UTF-16", false},
      {"a\xff,b\n1,2\n", ":1: the name of column 1", false},
      {"PAR1...", "is Parquet", false},
      {"a,b\r1,2\r3,4\r", ":1: a CR in the middle of a field: do its lines end in CR alone?",
       false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path = file_text(dir, "x.csv", cases[i].text);
    assert_refuses(path, cases[i].typed ? &typed : NULL, MANTA_EINVAL, cases[i].says);
  }
  manta_value_fini(&types);
  static const char wide[] = "a\0,\0b\0\n\0", high[] = "\0a\0,\0b\0\n";
  assert_refuses(file_write(dir, "x.csv", wide, sizeof wide - 1), NULL, MANTA_EINVAL,
                 "looks like UTF-16\nhint: convert it: iconv");
  assert_refuses(file_write(dir, "x.csv", high, sizeof high - 1), NULL, MANTA_EINVAL,
                 "looks like UTF-16");
}

static void empty_files_stand_beside_others(void **state)
{
  size_t n;
  void *packed = deflate_bytes("", 0, 31, &n);
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  const char *paths[] = {file_text(dir, "0.csv", ""), file_write(dir, "1.csv.gz", packed, n),
                         file_text(dir, "2.csv", "a\n1\n"), file_text(dir, "3.csv", "")};
  assert_ok(read_paths(paths, 4, NULL, &got, &err), &err);
  assert_string_equal(got, "a:i64\n1");
  manta_free(got);
  assert_status(read_paths(paths, 2, NULL, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "0.csv: is empty: it has no columns, and so are the other files");
  free(packed);
}

// Wider than the first file alone would have them, in whatever order the others have their columns.
static void types_fit_the_other_files(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  const char *paths[] = {file_text(dir, "0.csv", "a,b,c,d,e\n1,2,,true,5\n"),
                         file_text(dir, "1.csv", "b,a,c,e,d\n2.5,3,x,6,false\n"),
                         file_text(dir, "2.csv", "a,b,c,d,e\n"),
                         file_text(dir, "3.csv", "a,b,c,d,e\n4,5,,7,18446744073709551615\n")};
  assert_ok(read_paths(paths, 4, NULL, &got, &err), &err);
  assert_string_equal(got, "a:i64|b:f64|c:string|d:string|e:u64\n1|2|''|'true'|5\n"
                           "3|2.5|'x'|'false'|6\n4|5|''|'7'|18446744073709551615");
  manta_free(got);
}

// Of many files some are looked at, the last among them; what is wrong with one its reader tells.
static void a_sample_of_many_files_is_looked_at(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  char name[16], all[PATH_MAX], *got;
  snprintf(all, sizeof all, "%s/n*.csv", dir);
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof name, "n%02d.csv", i);
    file_text(dir, name, i < 99 ? "a\n1\n" : "a\n0.5\n");
  }
  assert_ok(read_path(all, NULL, &got, &err), &err);
  assert_has(got, "a:f64\n1\n1\n");
  assert_has(got, "\n1\n0.5");
  manta_free(got);
  file_text(dir, "n99.csv", "a\n\"\n");
  assert_status(read_path(all, NULL, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "n99.csv:2: ");
  file_text(dir, "n01.csv", "a\n1.5\n"); // not one of them
  assert_status(read_path(all, NULL, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "n01.csv:2: column 1 (\"a\"): \"1.5\"");
}

// Whatever is asked for: a row that cannot be read is in no count, and in no column.
static void a_skipped_row_is_no_row_of_any_column(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"a\":\"i64\"}");
  const char *path = file_text(dir, "x.csv", "a,b\n1,x\nbad,y\n3,z\n"), *b[] = {"b"};
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  c.types = &types;
  c.skip_errors = true;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_is(d, "a:i64|b:string\n1|'x'\n3|'z'");
  manta_dataset *one;
  assert_ok(manta_dataset_select(&one, d, b, 1, &err), &err);
  assert_was(one, "b:string\n'x'\n'z'");
  manta_dataset_close(d);
  manta_value_fini(&types);
}

static void text_that_is_not_utf8_is_refused(void **state)
{
  assert_refuses(
      file_text(dir, "x.csv", "a,b\n1,gr\xfc\xdf\n"), NULL, MANTA_EINVAL,
      ":2: column 2 (\"b\"): \"gr??\" is no text in UTF-8\nhint: types = {\"b\": \"bytes\"}");
}

// Row a million has a word where there are numbers; the sample does not see it.
static void a_wrong_type_in_row_a_million_is_found(void **state)
{
  enum { ROWS = 1000000 };
  char *text = malloc(ROWS * 8 + 64);
  size_t at = (size_t)snprintf(text, 16, "x,y\n");
  for (int i = 1; i < ROWS; i++)
    at += (size_t)snprintf(text + at, 16, "%d,1\n", i % 10000);
  at += (size_t)snprintf(text + at, 16, "oops,1\n5,1\n");
  const char *path = file_write(dir, "big.csv", text, at);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_status(read_path(path, NULL, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "big.csv:1000001: column 1 (\"x\"): \"oops\" is no i64");
  manta_dataset *d;
  c.skip_errors = true;
  c.block_bytes = 1 << 20;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_true(manta_dataset_blocks(d) > 3);
  assert_ok(read_blocks(d, &got, &err), &err);
  manta_data_stats s;
  manta_dataset_stats(d, &s);
  assert_int_equal(s.rows, ROWS);
  assert_int_equal(s.skipped, 1);
  assert_int_equal(s.bytes, at - 4); // all but the header
  assert_has(s.first_skip, ":1000001:");
  manta_free(got);
  manta_dataset_close(d);
  free(text);
}

static void rows_that_cannot_be_read_are_skipped_and_counted(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"a\":\"i64\",\"b\":\"i64\",\"s\":\"string\"}");
  c.types = &types;
  c.skip_errors = true;
  static const struct {
    const char *text, *want;
    int64_t skipped;
  } cases[] = {
      {"a,b,s\n1,2,x\n3\n4,5,y\n6,7,z,w\n8,9,v\n", "\n1|2|'x'\n4|5|'y'\n8|9|'v'", 2},
      {"a,b,s\n1,x,x\n3,4,y\nz,z,z\n5,6,\xff\n7,8,w\n", "\n3|4|'y'\n7|8|'w'", 3},
      {"a,b,s\n1,2,5\" by 6\" pipe\n3,4,\"y\"\n5,6,z\n", "\n3|4|'y'\n5|6|'z'", 1},
      {"a,b,s\n1,2,x\n3,4,\"unclosed\n5,6,z\n", "\n1|2|'x'\n5|6|'z'", 1},
      {"a,b,s\n1,2,5\" pipe\n3,4,y\n5,6,z", "\n3|4|'y'\n5|6|'z'", 1},
      {"a,b,s\n1,2,\"un\n3,4,y\n5,6,\"z\"\n7,8,v\n", "\n7|8|'v'", 1}, // up to the odd quote
      {"a,b,s\n1,2,\"5\" pipe\"\n3,4,\"a\nb\"\n5,\"6\",7\"\n8,9,v\n", "\n3|4|'a\nb'\n8|9|'v'", 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path = file_text(dir, "x.csv", cases[i].text);
    manta_dataset *d;
    manta_data_stats s;
    manta_error err = MANTA_ERROR_INIT;
    char *got;
    assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
    assert_ok(read_blocks(d, &got, &err), &err);
    assert_string_equal(strchr(got, '\n') ? strchr(got, '\n') : "", cases[i].want);
    manta_dataset_stats(d, &s);
    assert_int_equal(s.skipped, cases[i].skipped);
    assert_has(s.first_skip, "x.csv:");
    manta_free(got);
    manta_dataset_close(d);
  }
  manta_value_fini(&types);
}

static void files_that_shrink_or_differ_are_told(void **state)
{
  char text[4000], *got;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  for (int i = 0; i < 1000; i++)
    memcpy(text + 4 * i, i ? "1,2\n" : "a,b\n", 4);
  const char *path = file_write(dir, "x.csv", text, sizeof text);
  assert_ok(manta_dataset_open(&d, &path, 1, NULL, &err), &err);
  assert_int_equal(truncate(path, 2000), 0);
  assert_status(read_blocks(d, &got, &err), MANTA_EIO);
  assert_has(err.message, "x.csv: has 2000 bytes, but had 4000");
  manta_dataset_close(d);
  const char *two[] = {file_text(dir, "1.csv", "a,b\n1,2\n"), file_text(dir, "2.csv", "b,a\n3,4\n"),
                       file_text(dir, "3.csv", ""), file_text(dir, "4.csv", "b,z,a\n5,x,6\n")};
  assert_ok(read_paths(two, 4, NULL, &got, &err), &err);
  assert_string_equal(got,
                      "a:i64|b:i64\n1|2\n4|3\n6|5"); // by name; what only one has is passed over
  manta_free(got);
  const char *missing[] = {two[0], file_text(dir, "2.csv", "b,c\n3,4\n")};
  assert_status(read_paths(missing, 2, NULL, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "2.csv: has no column \"a\", which the first file has");
}

static void a_file_that_is_cut_while_it_is_read_ends_in_an_error(void **state)
{
  enum { ROWS = 200000 };
  char *text = malloc(ROWS * 4);
  for (int i = 0; i < ROWS; i++)
    memcpy(text + 4 * i, i ? "1,2\n" : "a,b\n", 4);
  const char *path = file_write(dir, "x.csv", text, ROWS * 4);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  manta_reader *r;
  manta_batch *b;
  manta_status st;
  c.batch_rows = 1000;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_ok(manta_reader_open(&r, d, 0, 1, &err), &err);
  assert_status(manta_reader_next(r, &b, &err), 1);
  manta_batch_destroy(b);
  assert_int_equal(truncate(path, 300000), 0);
  while ((st = manta_reader_next(r, &b, &err)) == 1)
    manta_batch_destroy(b);
  assert_status(st, MANTA_EIO);
  assert_has(err.message, "it was cut while it was read");
  manta_reader_close(r);
  manta_dataset_close(d);
  free(text);
}

// --- cuts ---------------------------------------------------------------------------------------

// Rows with quotes, newlines inside of them, CRs, empty lines.
static size_t random_file(char *text, size_t most, uint64_t *seed)
{
  static const char *const fields[] = {"1",    "22",   "\"a\nb\"", "\"\"", "\"x,\"\"y\"\"\n\"",
                                       "-3.5", "word", "\"\r\n\""};
  size_t at = (size_t)snprintf(text, 16, "a,b\n");
  while (at + 64 < most) {
    uint64_t x = cells_random(seed);
    if (x % 11 == 0)
      at += (size_t)snprintf(text + at, 8, "\n");
    at += (size_t)snprintf(text + at, 60, "%s,%s%s", fields[x >> 8 & 7], fields[x >> 16 & 7],
                           x & 64 ? "\r\n" : "\n");
  }
  if (*seed & 1)
    at--; // the last row without its newline
  return at;
}

static void cuts_never_fall_into_a_row(void **state)
{
  enum { BYTES = 20000 };
  uint64_t seed = 70;
  manta_value types = tree_of("{\"a\":\"string\",\"b\":\"string\"}");
  char *text = malloc(BYTES + 100), *whole, *parts;
  for (int round = 0; round < 40; round++) {
    manta_data_config c = MANTA_DATA_CONFIG_INIT;
    manta_error err = MANTA_ERROR_INIT;
    manta_dataset *d;
    size_t n = random_file(text, 200 + cells_random(&seed) % BYTES, &seed);
    const char *path = file_write(dir, "cut.csv", text, n);
    c.types = &types;
    assert_ok(read_path(path, &c, &whole, &err), &err);
    c.block_bytes = 10 + cells_random(&seed) % 3000;
    c.batch_rows = 1 + (int64_t)(cells_random(&seed) % 50);
    assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
    assert_true(n < 2 * c.block_bytes || manta_dataset_blocks(d) > 1);
    assert_ok(read_blocks(d, &parts, &err), &err);
    assert_string_equal(whole, parts);
    manta_free(whole);
    manta_free(parts);
    manta_dataset_close(d);
  }
  free(text);
  manta_value_fini(&types);
}

// Cuts of which only the surroundings are looked at: the parts are the rows of the whole.
static void assert_cuts(const char *path, size_t block_bytes, int least)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  char *whole, *parts;
  c.block_bytes = (size_t)1 << 40;
  assert_ok(read_path(path, &c, &whole, &err), &err);
  c.block_bytes = block_bytes;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_in_range(manta_dataset_blocks(d), least, 2 * least);
  assert_ok(read_blocks(d, &parts, &err), &err);
  assert_string_equal(whole, parts);
  manta_free(whole);
  manta_free(parts);
  manta_dataset_close(d);
}

static void large_files_are_cut_by_what_lies_around(void **state)
{
  enum { BYTES = 3 << 20, BLOCK = 300000 };
  static const char *const rows[] = {
      "1,2\n",                       // nothing quotes
      "\"\",\"\"\n",                 // each quote could open or close
      "x,\"a\nb\nc\"\r\n",           // lines that are no rows
      "x,\"a\n1,2\n3,4\n\"\n",       // lines that look like rows
      "\",\"\"\",\",\n1,\n\"\"\"\n", // quotes beside separators
  };
  uint64_t seed = 81;
  char *text = malloc(BYTES + 256);
  for (size_t k = 0; k <= sizeof rows / sizeof *rows; k++) {
    size_t n = (size_t)snprintf(text, 16, "a,b\n");
    if (k == sizeof rows / sizeof *rows)
      n = random_file(text, BYTES, &seed);
    while (n < BYTES - 100)
      n += (size_t)snprintf(text + n, 64, "%s", rows[k % (sizeof rows / sizeof *rows)]);
    assert_cuts(file_write(dir, "large.csv", text, n), BLOCK, BYTES / BLOCK - 2);
  }
  size_t n = (size_t)snprintf(text, 16, "a\n"); // one column: any line has its form
  while (n < BYTES - 100)
    n += (size_t)snprintf(text + n, 64, "%s", n % 200000 < 100000 ? "\"x\ny\"\n" : "z\n");
  assert_cuts(file_write(dir, "large.csv", text, n), BLOCK, BYTES / BLOCK - 2);
  free(text);
}

// A field that holds many lines of the form of rows: where it is cut, the block in front tells.
static void a_cut_inside_of_quotes_is_told(void **state)
{
  enum { BYTES = 1 << 20 };
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  char *text = malloc(BYTES + 256);
  size_t n = (size_t)snprintf(text, 64, "a,b\n1,x\n2,\"\n");
  while (n < BYTES - 100)
    n += (size_t)snprintf(text + n, 64, "5,6\n");
  n += (size_t)snprintf(text + n, 64, "\"\n3,y\n");
  const char *path = file_write(dir, "inner.csv", text, n);
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_ok(read_path(path, &c, &got, &err), &err); // in one block
  manta_free(got);
  c.block_bytes = 300000;
  assert_refuses(path, &c, MANTA_EINVAL,
                 "inner.csv:3: a quote (\") in this row or behind it is not "
                 "closed at byte 300000, where a block ends");
  assert_refuses(path, &c, MANTA_EINVAL, "block_bytes must be more than the file has");
  free(text);
}

// Empty lines and a header that are longer than a block: the blocks they fill have no rows.
static void a_head_may_fill_blocks(void **state)
{
  static const char text[] = "\n\n\n\n\n\n\n\n\n\n\n\nfirst column,second column\n1,2\n3,4\n";
  const char *path = file_text(dir, "head.csv", text);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  char *whole, *parts;
  assert_ok(read_path(path, &c, &whole, &err), &err);
  for (c.block_bytes = 1; c.block_bytes < sizeof text; c.block_bytes++) {
    int64_t rows;
    assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
    assert_ok(read_blocks(d, &parts, &err), &err);
    assert_string_equal(whole, parts);
    assert_ok(manta_dataset_count(d, &rows, &err), &err);
    assert_int_equal(rows, 2);
    manta_free(parts);
    manta_dataset_close(d);
  }
  manta_free(whole);
}

// --- numbers ------------------------------------------------------------------------------------

static size_t random_number(char *to, uint64_t *seed)
{
  uint64_t x = cells_random(seed), form = cells_random(seed) % 8;
  double d;
  memcpy(&d, &x, sizeof d);
  if (form < 6 || !isfinite(d)) // else of any size
    d = (double)(int64_t)x / 0x1p63 * (form & 1 ? 1 : 1e6);
  return (size_t)snprintf(to, 40, form < 3 ? "%.6f" : form & 1 ? "%.17g" : "%.9g", d);
}

static void every_number_is_that_of_strtod(void **state)
{
  enum { ROWS = 20000, COLUMNS = 5 };
  uint64_t seed = 72;
  char *text = malloc(ROWS * COLUMNS * 32), one[64];
  double *want = malloc(sizeof *want * ROWS * COLUMNS);
  size_t at = (size_t)snprintf(text, 32, "a,b,c,d,e\n"), seen = 0;
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    size_t n = random_number(one, &seed);
    want[i] = strtod(one, NULL);
    memcpy(text + at, one, n);
    at += n;
    text[at++] = i % COLUMNS == COLUMNS - 1 ? '\n' : ',';
  }
  const char *path = file_write(dir, "n.csv", text, at);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  manta_reader *r;
  manta_batch *b;
  c.block_bytes = 300000;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_ok(manta_reader_open(&r, d, 0, manta_dataset_blocks(d), &err), &err);
  manta_status st;
  while ((st = manta_reader_next(r, &b, &err)) == 1) {
    for (int k = 0; k < COLUMNS; k++) {
      manta_column col;
      assert_ok(manta_batch_column(b, k, &col, &err), &err);
      assert_int_equal(col.field.dtype, MANTA_F64);
      for (int64_t i = 0; i < col.rows; i++)
        assert_memory_equal((const double *)col.data + i,
                            &want[(seen + (size_t)i) * COLUMNS + (size_t)k], sizeof(double));
    }
    seen += (size_t)manta_batch_rows(b);
    manta_batch_destroy(b);
  }
  assert_ok(st, &err);
  assert_int_equal(seen, ROWS);
  manta_reader_close(r);
  manta_dataset_close(d);
  free(text);
  free(want);
}

// --- filters and columns ------------------------------------------------------------------------

static void only_what_is_wanted_is_read(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  static const char *const columns[] = {"s", "x"};
  manta_value filter = tree_of("[\">\",[\"col\",\"y\"],1.5]");
  c.columns = columns;
  c.column_count = 2;
  const char *path =
      file_text(dir, "x.csv", "x,y,z,s\n1,1,bad,a\n2,2,7,b\n3,,8,c\n4,4,9,d\n5,1.4,10,e\n");
  assert_reads(path, &c, "s:string|x:i64\n'a'|1\n'b'|2\n'c'|3\n'd'|4\n'e'|5");
  c.filter = &filter;
  assert_reads(path, &c, "s:string|x:i64\n'b'|2\n'd'|4");
  manta_value types = tree_of("{\"x\":\"i8\",\"z\":\"i64\"}"); // z is wrong, and nobody looks at it
  c.types = &types;
  assert_reads(path, &c, "s:string|x:i8\n'b'|2\n'd'|4");
  manta_value_fini(&filter);
  filter = tree_of("[\"is_null\",[\"col\",\"y\"]]");
  assert_reads(path, &c, "s:string|x:i8\n'c'|3");
  manta_value_fini(&filter);
  filter = tree_of("[\">\",[\"col\",\"x\"],100]");
  assert_reads(path, &c, "s:string|x:i8");
  manta_value_fini(&filter);
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  filter = tree_of("[\">\",[\"col\",\"xx\"],100]");
  assert_status(read_path(path, &c, &got, &err), MANTA_ENOENT);
  assert_has(err.message, "there is no column \"xx\"");
  manta_value_fini(&filter);
  filter = tree_of("[\"col\",\"x\"]");
  assert_status(read_path(path, &c, &got, &err), MANTA_ETYPE);
  manta_value_fini(&filter);
  c.filter = NULL;
  static const char *const wrong[] = {"ss"};
  c.columns = wrong;
  c.column_count = 1;
  assert_status(read_path(path, &c, &got, &err), MANTA_ENOENT);
  assert_has(err.message, "nearest names are \"s\"");
  manta_value_fini(&types);
}

// Rows know their numbers in the block, whatever was left out.
static void batches_know_their_source_rows(void **state)
{
  enum { ROWS = 5000 };
  char *text = malloc(ROWS * 16);
  size_t at = (size_t)snprintf(text, 16, "x,y\n");
  for (int i = 0; i < ROWS; i++)
    at += (size_t)snprintf(text + at, 16, i % 50 == 7 ? "%d\n" : "%d,1\n", i);
  const char *path = file_write(dir, "x.csv", text, at);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value filter = tree_of("[\"==\",[\"%\",[\"col\",\"x\"],3],0]");
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  manta_reader *r;
  manta_batch *b;
  c.filter = &filter;
  c.skip_errors = true;
  c.batch_rows = 700;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_ok(manta_reader_open(&r, d, 0, 1, &err), &err);
  int64_t seen = 0, next = 0;
  while (manta_reader_next(r, &b, &err) == 1) {
    assert_int_equal(b->first, next);
    next += b->source_rows;
    for (int64_t i = 0; i < b->rows; i++, seen++) {
      int64_t x = ((const int64_t *)b->column[0].data)[i];
      assert_int_equal(manta__batch_source(b, i), x);
    }
    manta_batch_destroy(b);
  }
  int64_t want = 0;
  for (int i = 0; i < ROWS; i += 3)
    want += i % 50 != 7;
  assert_int_equal(seen, want);
  assert_int_equal(next, ROWS);
  manta_reader_close(r);
  manta_dataset_close(d);
  manta_value_fini(&filter);
  free(text);
}

// --- sizes --------------------------------------------------------------------------------------

static void long_rows_and_many_columns_are_read(void **state)
{
  enum { COLUMNS = 3000, LONG = 1000000 };
  char *text = malloc(3 * LONG);
  size_t at = 0;
  for (int row = 0; row < 3; row++)
    for (int i = 0; i < COLUMNS; i++)
      at += (size_t)snprintf(text + at, 16, "%s%d%s", row ? "" : "c", i,
                             i + 1 < COLUMNS ? "," : "\n");
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_ok(read_path(file_write(dir, "wide.csv", text, at), NULL, &got, &err), &err);
  assert_has(got, "|c2999:i64\n0|1|2|");
  manta_free(got);
  at = (size_t)snprintf(text, 16, "a,b\n1,");
  memset(text + at, 'x', LONG);
  at += LONG;
  at += (size_t)snprintf(text + at, 16, "\n2,y\n");
  const char *path = file_write(dir, "long.csv", text, at);
  assert_ok(read_path(path, NULL, &got, &err), &err);
  assert_int_equal(strlen(got), LONG + strlen("a:i64|b:string\n1|''\n2|'y'"));
  manta_free(got);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  c.row_bytes = 500000;
  assert_status(read_path(path, &c, &got, &err), MANTA_ETOOBIG);
  assert_has(err.message, "long.csv:2: a row of more than 500000 bytes\nhint: do its lines end");
  assert_has(err.message, "row_bytes sets another limit");
  c.skip_errors = true; // what is left of the row is no other row, even if it looks like one
  memcpy(text + at - strlen("x\n2,y\n"), ",", 1);
  manta_dataset *d;
  manta_data_stats s;
  path = file_write(dir, "long.csv", text, at);
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_ok(read_blocks(d, &got, &err), &err);
  assert_string_equal(got, "a:i64|b:string\n2|'y'");
  manta_dataset_stats(d, &s);
  assert_int_equal(s.skipped, 1);
  assert_int_equal(s.bytes, at - 4);
  manta_free(got);
  manta_dataset_close(d);
  free(text);
}

static void compressed_files_are_one_block(void **state)
{
  enum { ROWS = 30000 };
  char *text = malloc(ROWS * 16), *want, *got;
  size_t at = (size_t)snprintf(text, 16, "x,y\n"), n;
  for (int i = 0; i < ROWS; i++)
    at += (size_t)snprintf(text + at, 16, "%d,%d.5\n", i, i % 7);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  c.block_bytes = 10000;
  assert_ok(read_path(file_write(dir, "x.csv", text, at), &c, &want, &err), &err);
  void *packed = deflate_bytes(text, at, 31, &n);
  const char *gz = file_write(dir, "x.csv.gz", packed, n);
  assert_ok(read_path(gz, &c, &got, &err), &err);
  assert_string_equal(want, got);
  manta_free(got);
  free(packed);
  packed = zstd_bytes(text, at, &n);
  assert_ok(read_path(file_write(dir, "x.csv.zst", packed, n), &c, &got, &err), &err);
  assert_string_equal(want, got);
  manta_free(got);
  free(packed);
  memcpy(text + at, "oops,1\n", 7);
  packed = deflate_bytes(text, at + 7, 31, &n);
  manta_value types = tree_of("{\"x\":\"i64\"}");
  c.types = &types;
  assert_refuses(file_write(dir, "bad.csv.gz", packed, n), &c, MANTA_EINVAL,
                 "bad.csv.gz:30002: column 1 (\"x\"): \"oops\"");
  manta_value_fini(&types);
  free(packed);
  manta_free(want);
  free(text);
}

static void every_allocation_may_fail(void **state)
{
  const char *path = file_text(dir, "x.csv", "a,b,c\n1,x,\n2,\"y\"\"z\",5\n,w,7\n");
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value filter = tree_of("[\"!=\",[\"col\",\"b\"],\"w\"]");
  static const char *const columns[] = {"c", "b"}, *const missing[] = {""};
  manta_dataset *d = NULL;
  c.filter = &filter;
  c.columns = columns;
  c.column_count = 2;
  c.missing = missing;
  c.missing_count = 1;
  FOR_EACH_OOM(manta_dataset_open(&d, &path, 1, &c, NULL), (void)0);
  long failed = 0;
  for (long n = 0;; n++) {
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
    failed++;
  }
  assert_true(failed > 10);
  manta_dataset_close(d);
  manta_value_fini(&filter);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_and_quotes_are_those_of_the_standard),
      cmocka_unit_test(types_are_found_in_the_values),
      cmocka_unit_test(options_say_how),
      cmocka_unit_test(types_fit_the_other_files),
      cmocka_unit_test(a_sample_of_many_files_is_looked_at),
      cmocka_unit_test(given_types_are_taken),
      cmocka_unit_test(wrong_files_are_named_with_line_and_remedy),
      cmocka_unit_test(empty_files_stand_beside_others),
      cmocka_unit_test(a_skipped_row_is_no_row_of_any_column),
      cmocka_unit_test(text_that_is_not_utf8_is_refused),
      cmocka_unit_test(a_wrong_type_in_row_a_million_is_found),
      cmocka_unit_test(rows_that_cannot_be_read_are_skipped_and_counted),
      cmocka_unit_test(files_that_shrink_or_differ_are_told),
      cmocka_unit_test(a_file_that_is_cut_while_it_is_read_ends_in_an_error),
      cmocka_unit_test(cuts_never_fall_into_a_row),
      cmocka_unit_test(large_files_are_cut_by_what_lies_around),
      cmocka_unit_test(a_cut_inside_of_quotes_is_told),
      cmocka_unit_test(a_head_may_fill_blocks),
      cmocka_unit_test(every_number_is_that_of_strtod),
      cmocka_unit_test(only_what_is_wanted_is_read),
      cmocka_unit_test(batches_know_their_source_rows),
      cmocka_unit_test(long_rows_and_many_columns_are_read),
      cmocka_unit_test(compressed_files_are_one_block),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
