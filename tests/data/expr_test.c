/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions: a table of what they give, row by row, and of what they refuse.
 */
#include "data/expr/expr.h"

#include "cells.h"

#define ROWS   6
#define REPEAT 500 // times over, so that there are several chunks

// The six rows of the test, as text: "" is null.
static const struct {
  const char *name, *type;
  const char *value[ROWS];
} table[] = {
    {"i", "i64", {"1", "-7", "", "0", "9223372036854775807", "30"}},
    {"f", "f64", {"0.5", "-2.5", "", "nan", "1e300", "4"}},
    {"g", "f32", {"0.1", "3", "", "0.25", "16777216", "-1"}},
    {"u", "u64", {"1", "18446744073709551615", "", "0", "7", "2"}},
    {"t", "i8", {"-128", "127", "", "5", "0", "1"}},
    {"s", "string", {"Abc", "xyz", "", "h\xc3\xa4t", "  pad ", "12"}},
    {"b", "bool", {"true", "false", "", "true", "false", ""}},
    {"y", "bytes", {"Abc", "q", "", "h\xc3\xa4t", "", "12"}},
};
#define COLUMNS (int)(sizeof table / sizeof *table)

static manta_value parse(const char *json)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_from_json(&v, json, strlen(json), &err), &err);
  return v;
}

static void put(struct manta__build *b, const char *type, const char *text)
{
  union {
    int64_t i;
    uint64_t u;
    double d;
    float f;
  } v = {0};
  if (!*text)
    assert_status(manta__build_null(b, NULL), MANTA_OK);
  else if (b->type.kind == MANTA_KIND_BOOL)
    manta__build_bool(b, *text == 't');
  else if (b->type.kind != MANTA_KIND_NUMBER)
    assert_status(manta__build_text(b, text, strlen(text), NULL), MANTA_OK);
  else {
    if (!strcmp(type, "f64"))
      v.d = strtod(text, NULL);
    else if (!strcmp(type, "f32"))
      v.f = strtof(text, NULL);
    else if (!strcmp(type, "u64"))
      v.u = strtoull(text, NULL, 10);
    else
      v.i = strtoll(text, NULL, 10);
    manta__build_number(b, &v);
  }
}

static manta_batch *make_batch(int repeat)
{
  struct manta__schema_field f[COLUMNS + 1];
  struct manta__schema *s;
  manta_batch *b;
  for (int c = 0; c < COLUMNS; c++) {
    f[c].name = table[c].name;
    assert_status(manta__type_parse(&f[c].type, table[c].type, NULL), MANTA_OK);
  }
  f[COLUMNS].name = "array";
  assert_status(manta__type_parse(&f[COLUMNS].type, "f32[3]", NULL), MANTA_OK);
  assert_status(manta__schema_create(&s, f, COLUMNS + 1, NULL), MANTA_OK);
  assert_status(manta__batch_create(&b, s, ROWS * repeat, NULL), MANTA_OK);
  for (int c = 0; c < COLUMNS; c++) {
    struct manta__build build;
    assert_status(manta__build_begin(&build, &f[c].type, ROWS * repeat, 1 << 20, NULL, NULL),
                  MANTA_OK);
    for (int r = 0; r < ROWS * repeat; r++)
      put(&build, table[c].type, table[c].value[r % ROWS]);
    manta__build_finish(&build, &b->column[c]);
  }
  manta__schema_unref(s);
  return b;
}

// A value as text: numbers with all their digits.
static const char *show(const struct manta__column *c, int64_t i, char *out)
{
  size_t n;
  if (manta__column_is_null(c, i))
    return "null";
  if (c->type.kind == MANTA_KIND_BOOL)
    return manta__column_bit(c, i) ? "true" : "false";
  if (manta__type_varies(&c->type)) {
    const char *p = manta__column_text(c, i, &n);
    snprintf(out, CELL_MAX, "'%.*s'", (int)n, p);
    return out;
  }
  const void *p = manta__column_at(c, i);
  int64_t v = 0;
  memcpy(&v, p, manta__type_width(&c->type));
  if (c->type.dtype == MANTA_F64)
    snprintf(out, CELL_MAX, "%.17g", *(const double *)p);
  else if (c->type.dtype == MANTA_F32)
    snprintf(out, CELL_MAX, "%.9gf", (double)*(const float *)p);
  else if (c->type.dtype == MANTA_U64)
    snprintf(out, CELL_MAX, "%llu", (unsigned long long)v);
  else if (c->type.dtype == MANTA_I8)
    snprintf(out, CELL_MAX, "%d", *(const int8_t *)p);
  else if (c->type.dtype == MANTA_F16)
    snprintf(out, CELL_MAX, "0x%04llx", (unsigned long long)v);
  else
    snprintf(out, CELL_MAX, "%lld", (long long)v);
  return out;
}

static const struct {
  const char *tree, *want; // the six rows, with blanks between
} cases[] = {
    {"[\"+\",[\"col\",\"i\"],1]", "2 -6 null 1 -9223372036854775808 31"},
    {"[\"-\",[\"col\",\"t\"],[\"col\",\"i\"]]", "-129 134 null 5 -9223372036854775807 -29"},
    {"[\"*\",[\"col\",\"i\"],2]", "2 -14 null 0 -2 60"},
    {"[\"/\",[\"col\",\"i\"],2]", "0.5 -3.5 null 0 4.6116860184273879e+18 15"},
    {"[\"//\",[\"col\",\"i\"],2]", "0 -4 null 0 4611686018427387903 15"},
    {"[\"%\",[\"col\",\"i\"],4]", "1 1 null 0 3 2"},
    {"[\"//\",[\"col\",\"i\"],0]", "null null null null null null"},
    {"[\"//\",7,[\"col\",\"t\"]]", "-1 0 null 1 null 7"},
    {"[\"%\",[\"col\",\"f\"],3]", "0.5 0.5 null nan 0 1"},
    {"[\"//\",[\"col\",\"f\"],2]", "0 -2 null nan 5.0000000000000003e+299 2"},
    {"[\"**\",[\"col\",\"t\"],2]", "16384 16129 null 25 0 1"},
    {"[\"neg\",[\"col\",\"i\"]]", "-1 7 null 0 -9223372036854775807 -30"},
    {"[\"abs\",[\"col\",\"t\"]]", "128 127 null 5 0 1"},
    {"[\"abs\",[\"col\",\"f\"]]", "0.5 2.5 null nan 1.0000000000000001e+300 4"},
    {"[\"sqrt\",[\"col\",\"f\"]]", "0.70710678118654757 -nan null nan 9.9999999999999998e+149 2"},
    {"[\"floor\",[\"col\",\"f\"]]", "0 -3 null nan 1.0000000000000001e+300 4"},
    {"[\"round\",[\"col\",\"f\"]]", "0 -2 null nan 1.0000000000000001e+300 4"},
    // f32 stays f32 with literals, and rounds after each step; with an i64 it is f64
    {"[\"+\",[\"col\",\"g\"],1]", "1.10000002f 4f null 1.25f 16777216f 0f"},
    {"[\"==\",[\"col\",\"g\"],0.1]", "true false null false false false"},
    {"[\"-\",[\"+\",[\"col\",\"g\"],1],1]", "0.100000024f 3f null 0.25f 16777215f -1f"},
    {"[\"+\",[\"col\",\"g\"],[\"col\",\"t\"]]", "-127.89999999850988 130 null 5.25 16777216 0"},
    // unsigned among its own, as f64 with others
    {"[\"+\",[\"col\",\"u\"],1]", "2 0 null 1 8 3"},
    {"[\">\",[\"col\",\"u\"],9223372036854775807]", "false true null false false false"},
    {"[\"+\",[\"col\",\"u\"],-1]", "0 1.8446744073709552e+19 null -1 6 1"},
    {"[\"+\",[\"col\",\"u\"],[\"col\",\"u\"]]", "2 18446744073709551614 null 0 14 4"},
    // comparisons
    {"[\">\",[\"col\",\"i\"],0]", "true false null false true true"},
    {"[\"<=\",[\"col\",\"f\"],[\"col\",\"i\"]]", "true false null false false true"},
    {"[\"!=\",[\"col\",\"f\"],[\"col\",\"f\"]]", "false false null true false false"},
    {"[\"==\",[\"col\",\"s\"],\"xyz\"]", "false true null false false false"},
    {"[\"<\",[\"col\",\"s\"],\"a\"]", "true false null false true true"},
    {"[\"==\",[\"col\",\"b\"],true]", "true false null true false null"},
    {"[\"==\",[\"col\",\"i\"],null]", "null null null null null null"},
    {"[\"==\",[\"col\",\"s\"],[\"col\",\"y\"]]", "true false null true null true"},
    // three values
    {"[\"and\",[\"col\",\"b\"],[\">\",[\"col\",\"i\"],0]]", "true false null false false null"},
    {"[\"or\",[\"col\",\"b\"],[\">\",[\"col\",\"i\"],0]]", "true false null true true true"},
    {"[\"and\",[\"col\",\"b\"],false]", "false false false false false false"},
    {"[\"or\",[\"col\",\"b\"],null]", "true null null true null null"},
    {"[\"not\",[\"col\",\"b\"]]", "false true null false true null"},
    // nulls and choices
    {"[\"is_null\",[\"col\",\"s\"]]", "false false true false false false"},
    {"[\"is_null\",[\"//\",1,[\"col\",\"i\"]]]", "false false true true false false"},
    {"[\"is_nan\",[\"col\",\"f\"]]", "false false null true false false"},
    {"[\"fill_null\",[\"col\",\"i\"],5]", "1 -7 5 0 9223372036854775807 30"},
    {"[\"fill_null\",[\"col\",\"s\"],\"none\"]", "'Abc' 'xyz' 'none' 'h\xc3\xa4t' '  pad ' '12'"},
    {"[\"fill_null\",[\"col\",\"g\"],0.1]", "0.100000001f 3f 0.100000001f 0.25f 16777216f -1f"},
    {"[\"where\",[\"col\",\"b\"],[\"col\",\"i\"],null]", "1 null null 0 null null"},
    {"[\"where\",[\">\",[\"col\",\"i\"],0],\"pos\",[\"col\",\"s\"]]",
     "'pos' 'xyz' null 'h\xc3\xa4t' 'pos' 'pos'"},
    {"[\"where\",true,[\"col\",\"t\"],0.5]", "-128 127 null 5 0 1"},
    {"[\"is_in\",[\"col\",\"i\"],[30,-7,2.5,1.0]]", "true true null false false true"},
    {"[\"is_in\",[\"col\",\"s\"],[\"12\",\"xyz\"]]", "false true null false false true"},
    {"[\"is_in\",[\"col\",\"f\"],[4,0.5]]", "true false null false false true"},
    {"[\"is_in\",[\"col\",\"b\"],[true]]", "true false null true false null"},
    {"[\"is_in\",[\"col\",\"u\"],[-1,7,2]]", "false false null false true true"},
    {"[\"is_in\",[\"col\",\"i\"],[]]", "false false null false false false"},
    // strings
    {"[\"length\",[\"col\",\"s\"]]", "3 3 null 3 6 2"},
    {"[\"length\",[\"col\",\"y\"]]", "3 1 null 4 null 2"},
    {"[\"lower\",[\"col\",\"s\"]]", "'abc' 'xyz' null 'h\xc3\xa4t' '  pad ' '12'"},
    {"[\"upper\",[\"col\",\"s\"]]", "'ABC' 'XYZ' null 'H\xc3\xa4T' '  PAD ' '12'"},
    {"[\"strip\",[\"col\",\"s\"]]", "'Abc' 'xyz' null 'h\xc3\xa4t' 'pad' '12'"},
    {"[\"concat\",[\"col\",\"s\"],\"-\",[\"lower\",[\"col\",\"s\"]]]",
     "'Abc-abc' 'xyz-xyz' null 'h\xc3\xa4t-h\xc3\xa4t' '  pad -  pad ' '12-12'"},
    {"[\"+\",[\"col\",\"s\"],\"!\"]", "'Abc!' 'xyz!' null 'h\xc3\xa4t!' '  pad !' '12!'"},
    {"[\"contains\",[\"col\",\"s\"],\"a\"]", "false false null false true false"},
    {"[\"contains\",[\"col\",\"s\"],\"\"]", "true true null true true true"},
    {"[\"starts_with\",[\"col\",\"s\"],\"x\"]", "false true null false false false"},
    {"[\"ends_with\",[\"col\",\"s\"],\"c\"]", "true false null false false false"},
    // casts
    {"[\"cast\",[\"col\",\"s\"],\"f64\"]", "null null null null null 12"},
    {"[\"cast\",[\"col\",\"f\"],\"i64\"]", "0 -2 null null null 4"},
    {"[\"cast\",[\"col\",\"i\"],\"i8\"]", "1 -7 null 0 null 30"},
    {"[\"cast\",[\"col\",\"i\"],\"u64\"]", "1 null null 0 9223372036854775807 30"},
    {"[\"cast\",[\"col\",\"u\"],\"i64\"]", "1 null null 0 7 2"},
    {"[\"cast\",[\"col\",\"u\"],\"f64\"]", "1 1.8446744073709552e+19 null 0 7 2"},
    {"[\"cast\",[\"col\",\"f\"],\"f32\"]", "0.5f -2.5f null nanf inff 4f"},
    {"[\"cast\",[\"col\",\"f\"],\"f16\"]", "0x3800 0xc100 null 0x7e00 0x7c00 0x4400"},
    {"[\"cast\",[\"col\",\"b\"],\"i64\"]", "1 0 null 1 0 null"},
    {"[\"cast\",[\"col\",\"t\"],\"bool\"]", "true true null true false true"},
    {"[\"cast\",[\"col\",\"i\"],\"string\"]", "'1' '-7' null '0' '9223372036854775807' '30'"},
    {"[\"cast\",[\"col\",\"b\"],\"string\"]", "'true' 'false' null 'true' 'false' null"},
    {"[\"cast\",[\"col\",\"f\"],\"string\"]", "'0.5' '-2.5' null 'NaN' '1e+300' '4.0'"},
    // what stands alone
    {"[\"col\",\"t\"]", "-128 127 null 5 0 1"},
    {"[\"lit\",7]", "7 7 7 7 7 7"},
    {"[\"*\",2,[\"+\",3,4]]", "14 14 14 14 14 14"},
};

static void joined(const struct manta__column *c, char *out, size_t size)
{
  char one[CELL_MAX];
  size_t at = 0;
  for (int i = 0; i < ROWS; i++)
    at += (size_t)snprintf(out + at, size - at, "%s%s", i ? " " : "", show(c, i, one));
}

static void expressions_give_what_they_say(void **state)
{
  manta_batch *b = make_batch(REPEAT);
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    manta_value tree = parse(cases[k].tree);
    struct manta__expr *e;
    struct manta__column c = {0};
    manta_error err = MANTA_ERROR_INIT;
    char got[1024], x[CELL_MAX], y[CELL_MAX];
    assert_ok(manta__expr_compile(&e, &tree, b->schema, &err), &err);
    manta_value_fini(&tree); // it is only looked at
    assert_ok(manta__expr_column(e, b, &c, NULL, &err), &err);
    assert_true(manta__type_equal(manta__expr_type(e), &c.type));
    joined(&c, got, sizeof got);
    if (strcmp(got, cases[k].want) != 0)
      fail_msg("%s gives\n  %s\nnot\n  %s", cases[k].tree, got, cases[k].want);
    assert_int_equal(c.length, ROWS * REPEAT);
    for (int64_t i = ROWS; i < c.length; i++)
      if (strcmp(show(&c, i, x), show(&c, i % ROWS, y)) != 0)
        fail_msg("%s: row %lld gives %s, not %s", cases[k].tree, (long long)i, x, y);
    manta__column_fini(&c);
    manta__expr_destroy(e);
  }
  manta_batch_destroy(b);
}

static void filters_keep_what_is_true(void **state)
{
  manta_batch *b = make_batch(REPEAT);
  manta_value tree = parse("[\"or\",[\"col\",\"b\"],[\">\",[\"col\",\"i\"],20]]");
  uint32_t *rows = malloc(sizeof *rows * ROWS * REPEAT);
  static const uint32_t want[] = {0, 3, 4, 5};
  struct manta__expr *e;
  int64_t n;
  bool used[COLUMNS + 1] = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__expr_compile(&e, &tree, b->schema, &err), &err);
  manta__expr_columns(e, used);
  for (int c = 0; c <= COLUMNS; c++)
    assert_int_equal(used[c],
                     c < COLUMNS && (!strcmp(table[c].name, "b") || !strcmp(table[c].name, "i")));
  assert_ok(manta__expr_filter(e, b, rows, &n, &err), &err);
  assert_int_equal(n, 4 * REPEAT);
  for (int64_t i = 0; i < n; i++)
    assert_int_equal(rows[i], want[i % 4] + (uint32_t)(i / 4) * ROWS);
  manta__expr_destroy(e);
  manta_value_fini(&tree);
  tree = parse("null");
  assert_ok(manta__expr_compile(&e, &tree, b->schema, &err), &err);
  assert_ok(manta__expr_filter(e, b, rows, &n, &err), &err);
  assert_int_equal(n, 0);
  manta__expr_destroy(e);
  tree = parse("[\"col\",\"i\"]");
  assert_ok(manta__expr_compile(&e, &tree, b->schema, &err), &err);
  assert_status(manta__expr_filter(e, b, rows, &n, &err), MANTA_ETYPE);
  assert_has(err.message, "true or false");
  manta__expr_destroy(e);
  manta_value_fini(&tree);
  manta_batch_destroy(b);
  free(rows);
}

static void what_makes_no_sense_is_named(void **state)
{
  static const struct {
    const char *tree;
    manta_status st;
    const char *says;
  } wrong[] = {
      {"[\"col\",\"ii\"]", MANTA_ENOENT, "nearest names are \"i\""},
      {"[\"col\",3]", MANTA_EINVAL, "name of a column"},
      {"[\"col\"]", MANTA_EINVAL, "0 arguments"},
      {"[\"+\",[\"col\",\"i\"]]", MANTA_EINVAL, "\"+\" has 1 arguments; it wants 2"},
      {"[\"+\",[\"col\",\"i\"],[\"col\",\"s\"]]", MANTA_ETYPE, "\"+\" of i64 and string: numbers"},
      {"[\"==\",[\"col\",\"i\"],\"1\"]", MANTA_ETYPE, "one kind"},
      {"[\"and\",[\"col\",\"i\"],true]", MANTA_ETYPE, "\"and\" of i64 and bool: true or false"},
      {"[\"lower\",[\"col\",\"i\"]]", MANTA_ETYPE, "strings"},
      {"[\"sqrt\",[\"col\",\"s\"]]", MANTA_ETYPE, "numbers"},
      {"[\"cast\",[\"col\",\"i\"],\"i65\"]", MANTA_EINVAL, "no type"},
      {"[\"cast\",[\"col\",\"i\"],7]", MANTA_EINVAL, "wants a type"},
      {"[\"cast\",[\"col\",\"i\"],\"f32[3]\"]", MANTA_ETYPE, "nothing can be cast"},
      {"[\"is_in\",[\"col\",\"i\"],[\"a\"]]", MANTA_ETYPE, "literals"},
      {"[\"is_in\",[\"col\",\"i\"],7]", MANTA_ETYPE, "literals"},
      {"[\"containz\",[\"col\",\"s\"],\"a\"]", MANTA_EINVAL, "nearest name is \"contains\""},
      {"[]", MANTA_EINVAL, "begins with its name"},
      {"[[1],2]", MANTA_EINVAL, "begins with its name"},
      {"{\"a\":1}", MANTA_EINVAL, "map"},
      {"[\"col\",\"array\"]", MANTA_ETYPE, "f32[3]"},
      {"[\"where\",1,2,3]", MANTA_ETYPE, "true or false"},
  };
  manta_batch *b = make_batch(1);
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
    manta_value tree = parse(wrong[k].tree);
    struct manta__expr *e;
    manta_error err = MANTA_ERROR_INIT;
    assert_status(manta__expr_compile(&e, &tree, b->schema, &err), wrong[k].st);
    assert_has(err.message, wrong[k].says);
    manta_value_fini(&tree);
  }
  manta_batch_destroy(b);
}

static void large_expressions_have_a_limit(void **state)
{
  manta_batch *b = make_batch(1);
  manta_value list = {0}, name = manta_value_borrow_string("concat");
  struct manta__expr *e;
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta_value_set_list(&list), MANTA_OK);
  assert_status(manta_value_append(&list, &name), MANTA_OK);
  for (int i = 0; i < 20; i++) {
    manta_value item = manta_value_borrow_string("x");
    assert_status(manta_value_append(&list, &item), MANTA_OK);
  }
  assert_status(manta__expr_compile(&e, &list, b->schema, &err), MANTA_EINVAL);
  manta_value_fini(&list);
  manta_batch_destroy(b);
}

static void every_allocation_may_fail(void **state)
{
  manta_batch *b = make_batch(1);
  manta_value tree =
      parse("[\"concat\",[\"lower\",[\"col\",\"s\"]],[\"cast\",[\"+\",[\"col\",\"f\"],1],"
            "\"string\"],[\"where\",[\"is_in\",[\"col\",\"s\"],[\"a\"]],\"x\",\"y\"]]");
  struct manta__expr *e;
  struct manta__column c = {0};
  FOR_EACH_OOM(manta__expr_compile(&e, &tree, b->schema, NULL), (void)0);
  FOR_EACH_OOM(manta__expr_column(e, b, &c, NULL, NULL), manta__column_fini(&c));
  manta__expr_destroy(e);
  manta_value_fini(&tree);
  manta_batch_destroy(b);
}

static void expressions_print_as_they_are_written(void **state)
{
  static const char *const pairs[][2] = {
      {"[\"and\",[\">\",[\"col\",\"age\"],30],[\"not\",[\"is_null\",[\"col\",\"name\"]]]]",
       "(age > 30) and not is_null(name)"},
      {"[\"*\",[\"+\",[\"col\",\"a\"],1],[\"neg\",[\"-\",[\"col\",\"b\"],0.5]]]",
       "(a + 1) * -(b - 0.5)"},
      {"[\"is_in\",[\"col\",\"s\"],[\"lit\",\"x\"]]", "is_in(s, \"x\")"},
      {"[\"cast\",[\"col\",\"s\"],\"f64\"]", "cast(s, \"f64\")"},
      {"[\"is_in\",[\"col\",\"i\"],[1,2]]", "is_in(i, (1, 2))"},
      {"null", "null"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    manta_value tree = parse(pairs[i][0]);
    char *text;
    assert_status(manta__expr_print(&tree, &text, NULL), MANTA_OK);
    assert_string_equal(text, pairs[i][1]);
    manta_free(text);
    FOR_EACH_OOM(manta__expr_print(&tree, &text, NULL), manta_free(text));
    manta_value_fini(&tree);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(expressions_give_what_they_say),
      cmocka_unit_test(filters_keep_what_is_true),
      cmocka_unit_test(what_makes_no_sense_is_named),
      cmocka_unit_test(large_expressions_have_a_limit),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(expressions_print_as_they_are_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
