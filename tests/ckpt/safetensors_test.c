/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors' format: what the writer writes to the byte, what the reference implementation wrote,
 * and all that the reader refuses.
 */
#include "base/clock.h"
#include "ckpt/safetensors.h"
#include "test.h"

/* --- Writing --- */

static void the_header_is_this(void **ctx)
{
  static const char want[] =
      "{\"__metadata__\":{\"format\":\"manta\",\"iteration\":\"12\"                  },"
      "\"b\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[128,131]},"
      "\"a\\\"\\\\\\u000a\":{\"dtype\":\"F32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
      "\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[131,132]}}";
  uint8_t data[128] = {0};
  manta_tensor t[] = {MANTA_VECTOR("b", MANTA_I8, data, 3),
                      {"a\"\\\n", MANTA_F32, 2, {4, 8}, data},
                      {"s", MANTA_U8, 0, {0}, data}};
  manta_state state = {t, 3, NULL};
  struct manta__layout l = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__layout_make(&l, &state, &err), &err);
  manta__layout_stamp(l.header, 12);
  assert_int_equal(l.header_len % 64, 0);
  assert_int_equal(l.header[0] | l.header[1] << 8, l.header_len - 8);
  assert_memory_equal(l.header + 8, want, sizeof want - 1);
  for (size_t i = 8 + sizeof want - 1; i < l.header_len; i++)
    assert_int_equal(l.header[i], ' ');
  assert_int_equal(l.data_len, 132);
  manta__layout_fini(&l);
  manta__layout_fini(&l);
}

static void a_layout_knows_its_state(void **ctx)
{
  float x[8];
  manta_tensor t[] = {MANTA_VECTOR("a", MANTA_F32, x, 8), MANTA_VECTOR("b", MANTA_F32, x, 8)}, u[2];
  manta_state state = {t, 2, NULL}, other = {u, 2, NULL}, fewer = {t, 1, NULL};
  struct manta__layout l = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_false(manta__layout_fits(&l, &fewer));
  assert_ok(manta__layout_make(&l, &state, &err), &err);
  assert_true(manta__layout_fits(&l, &state));
  assert_false(manta__layout_fits(&l, &fewer));
  for (int k = 0; k < 5; k++) {
    memcpy(u, t, sizeof u);
    u[1].data = NULL;
    assert_true(manta__layout_fits(&l, &other));
    if (k == 0)
      u[1].name = "c";
    if (k == 1)
      u[1].dtype = MANTA_I32;
    if (k == 2)
      u[1] = (manta_tensor){"b", MANTA_F32, 2, {8, 1}, x};
    if (k == 3)
      u[1].shape[0] = 7;
    if (k == 4)
      u[1].name = NULL;
    assert_false(manta__layout_fits(&l, &other));
  }
  manta__layout_fini(&l);
}

static void stamps_of_any_width(void **ctx)
{
  static const int64_t its[] = {INT64_MIN, -1, 0, 9, INT64_MAX};
  manta_state state = {0};
  struct manta__layout l = {0};
  struct manta__st s = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__layout_make(&l, &state, &err), &err);
  for (int i = 0; i < 5; i++) {
    manta__layout_stamp(l.header, its[i]);
    assert_ok(manta__st_open(&s, l.header, l.header_len, &err), &err);
    manta__st_fini(&s);
  }
  manta__layout_fini(&l);
}

/* --- Reading --- */

/* A file with this header and `data` bytes behind it; free it. The header's text says its length.
 */
static uint8_t *file_of(const char *header, size_t data, size_t *len)
{
  size_t n = strlen(header);
  *len = 8 + n + data;
  uint8_t *p = calloc(1, *len); // to the byte, so that a sanitizer sees any step beyond
  for (int i = 0; i < 8; i++)
    p[i] = (uint8_t)((uint64_t)n >> 8 * i);
  memcpy(p + 8, header, n);
  return p;
}

static manta_status open_text(struct manta__st *s, const char *header, size_t data,
                              manta_error *err)
{
  size_t len;
  uint8_t *p = file_of(header, data, &len);
  manta_status st = manta__st_open(s, p, len, err);
  free(p); // names are copies
  return st;
}

static void what_the_reference_wrote_is_read(void **ctx)
{
  // safetensors 0.8.0, numpy: {"w": arange(3, f32), "é": zeros((2, 0), i64), "s": array(7, u8)}
  static const char file[] =
      "\xc0\0\0\0\0\0\0\0{\"__metadata__\":{\"k\":\"v\"},"
      "\"\xc3\xa9\":{\"dtype\":\"I64\",\"shape\":[2,0],\"data_offsets\":[0,0]},"
      "\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
      "\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[12,13]}}   "
      "\0\0\0\0\0\0\x80?\0\0\0@\x07";
  assert_int_equal(sizeof file - 1, 213);
  struct manta__st s = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__st_open(&s, file, sizeof file - 1, &err), &err);
  assert_int_equal(s.count, 3);
  int64_t w = manta__st_index_find(&s.index, s.tensors, "w");
  int64_t e = manta__st_index_find(&s.index, s.tensors, "\xc3\xa9");
  int64_t u = manta__st_index_find(&s.index, s.tensors, "s");
  assert_true(w >= 0 && e >= 0 && u >= 0);
  float want[3] = {0, 1, 2};
  assert_memory_equal(s.tensors[w].data, want, sizeof want);
  assert_int_equal(s.tensors[e].ndim, 2);
  assert_int_equal(manta_tensor_bytes(&s.tensors[e]), 0);
  assert_int_equal(s.tensors[u].ndim, 0);
  assert_int_equal(*(uint8_t *)s.tensors[u].data, 7);
  assert_int_equal(manta__st_index_find(&s.index, s.tensors, "x"), -1);
  manta__st_fini(&s);
}

#define T(name, dtype, shape, from, to)                                                            \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

static void good_headers(void **ctx)
{
  static const struct {
    const char *header;
    size_t data, count;
  } good[] = {
      {"{}", 0, 0},
      {" { } \t\r\n", 0, 0},
      {"{\"__metadata__\":{}}", 0, 0},
      {"{" T("a", "F32", "2", "0", "8") "}", 8, 1},
      {"{" T("a", "F32", "2", "8", "16") "," T("b", "F64", "", "0", "8") "}", 16, 2},
      {"{" T("a", "F32", "0", "0", "0") "," T("b", "U8", "3,0,9", "0", "0") "}", 0, 2},
      {"{" T("a", "U8", "1,1,1,1,1,1,1,4", "0", "4") "," T("z", "U8", "0", "4", "4") "}", 4, 2},
      {"{\"a\" : {\"data_offsets\" : [ 0 , 1 ] , \"shape\" : [ ] , \"dtype\" : \"BOOL\"} }", 1, 1},
      {"{" T("\\ud83d\\udc19\\u00e9\\/\\b\\f\\n\\r\\t\\\"\\\\", "U8", "0", "0", "0") "}", 0, 1},
  };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    struct manta__st s = {0};
    manta_error err = MANTA_ERROR_INIT;
    assert_ok(open_text(&s, good[i].header, good[i].data, &err), &err);
    assert_int_equal(s.count, good[i].count);
    if (i == sizeof good / sizeof *good - 1)
      assert_string_equal(s.tensors[0].name, "\xf0\x9f\x90\x99\xc3\xa9/\b\f\n\r\t\"\\");
    manta__st_fini(&s);
  }
}

static void bad_headers(void **ctx)
{
  static const struct {
    const char *header;
    size_t data;
    const char *says;
  } bad[] = {
      {"[]", 0, "'{'"},
      {"{} x", 0, "behind its end"},
      {"{\"a\"", 0, "':'"},
      {"{\"a\":1}", 0, "'{'"},
      {"{\"a\":{}}", 0, ""},
      {"{,}", 0, ""},
      {"{\"__metadata__\":{\"a\":1}}", 0, ""},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
      {"{" T("a", "F31", "2", "0", "8") "}", 8, "F31"},
      {"{" T("a", "F8_E4M3", "2", "0", "2") "}", 2, "F8_E4M3"},
      {"{" T("a", "F32", "2", "0", "8") "," T("a", "F32", "2", "8", "16") "}", 16, "twice"},
      {"{" T("a", "F32", "2", "0", "9") "}", 9, "\"a\""},
      {"{" T("a", "F32", "2", "8", "0") "}", 8, "\"a\""},
      {"{" T("a", "F32", "2", "0", "8") "}", 7, "\"a\""},
      {"{" T("a", "F32", "2", "0", "8") "}", 9, "9 bytes"},
      {"{" T("a", "F32", "2", "4", "12") "}", 12, "\"a\""},
      {"{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "2", "4", "12") "}", 12, "\"b\""},
      {"{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "2", "12", "20") "}", 20, "\"b\""},
      {"{" T("a", "U8", "9223372036854775807,3", "0", "8") "}", 8, "\"a\""},
      {"{" T("a", "U8", "9223372036854775808", "0", "8") "}", 8, "too big"},
      {"{" T("a", "U8", "-1", "0", "8") "}", 8, "number"},
      {"{" T("a", "U8", "08", "0", "8") "}", 8, "number"},
      {"{" T("a", "U8", "8.0", "0", "8") "}", 8, ""},
      {"{" T("a", "U8", "1,1,1,1,1,1,1,1,1", "0", "1") "}", 1, "too long"},
      {"{" T("a", "U8", "8,", "0", "8") "}", 8, "number"},
      {"{" T("", "U8", "8", "0", "8") "}", 8, "name"},
      {"{" T("a\\u0000b", "U8", "8", "0", "8") "}", 8, "NUL"},
      {"{" T("a\\ud800", "U8", "8", "0", "8") "}", 8, "surrogate"},
      {"{" T("a\\udc00", "U8", "8", "0", "8") "}", 8, "surrogate"},
      {"{" T("a\\ud800\\u0041", "U8", "8", "0", "8") "}", 8, "surrogate"},
      {"{" T("a\\u00zz", "U8", "8", "0", "8") "}", 8, "escape"},
      {"{" T("a\\x", "U8", "8", "0", "8") "}", 8, "escape"},
      {"{" T("a\xff", "U8", "8", "0", "8") "}", 8, "UTF-8"},
      {"{" T("a\xc0\xaf", "U8", "8", "0", "8") "}", 8, "UTF-8"},
      {"{" T("a\xed\xa0\x80", "U8", "8", "0", "8") "}", 8, "UTF-8"},
      {"{" T("a\n", "U8", "8", "0", "8") "}", 8, "string"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8]}}", 8, "without"},
      {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[8]}}", 8, "twice"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8]}}", 8, "end"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8],\"x\":1}}", 8, "unknown"},
      {"{\"\\", 0, ""},
      {"{\"\\u", 0, ""},
      {"{\"\\u00", 0, ""},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct manta__st s = {0};
    manta_error err = MANTA_ERROR_INIT;
    manta_status st = open_text(&s, bad[i].header, bad[i].data, &err);
    if (st != MANTA_ECORRUPT || err.status != MANTA_ECORRUPT || s.tensors)
      fail_msg("header %zu (%s) gave %s", i, bad[i].header, manta_status_name(st));
    assert_has(err.message, bad[i].says);
  }
}

static void every_cut_is_refused(void **ctx)
{
  static const char header[] =
      "{\"__metadata__\":{\"k\":\"v\"}," T("a\\u00e9", "F32", "2,1", "0", "8") "}";
  size_t len;
  uint8_t *p = file_of(header, 8, &len);
  struct manta__st s = {0};
  for (size_t n = 0; n < len; n++) {
    uint8_t *cut = malloc(n ? n : 1);
    memcpy(cut, p, n);
    assert_status(manta__st_open(&s, cut, n, NULL), MANTA_ECORRUPT);
    free(cut);
  }
  for (size_t n = 1; n < sizeof header - 1; n++) { // the header's length says less than there is
    p[0] = (uint8_t)n;
    assert_status(manta__st_open(&s, p, len, NULL), MANTA_ECORRUPT);
  }
  memset(p, 0xff, 8);
  assert_status(manta__st_open(&s, p, len, NULL), MANTA_ECORRUPT);
  free(p);
}

static void many_tensors_are_found_fast(void **ctx)
{
  size_t n = MANTA_STATE_MAX_TENSORS;
  char(*names)[40] = calloc(n, sizeof *names);
  manta_tensor *t = calloc(n, sizeof *t);
  uint16_t *data = calloc(n, 2);
  for (size_t i = 0; i < n; i++) {
    snprintf(names[i], sizeof *names, "model.layers.%zu.mlp.weight", i);
    t[i] = MANTA_VECTOR(names[i], MANTA_U16, &data[i], 1);
  }
  manta_state state = {t, n, NULL};
  struct manta__layout l = {0};
  struct manta__st s = {0};
  manta_error err = MANTA_ERROR_INIT;
  int64_t begin = manta__now();
  assert_ok(manta__layout_make(&l, &state, &err), &err);
  uint8_t *file = calloc(1, l.header_len + l.data_len);
  memcpy(file, l.header, l.header_len);
  assert_ok(manta__st_open(&s, file, l.header_len + l.data_len, &err), &err);
  for (size_t i = 0; i < n; i++)
    assert_int_equal(manta__st_index_find(&s.index, s.tensors, names[i]), (int64_t)i);
  print_message("# %zu tensors: laid out, read and found in %.0f ms\n", n,
                (double)(manta__now() - begin) / 1e6);
  manta__st_fini(&s);
  manta__layout_fini(&l);
  free(file);
  free(names);
  free(t);
  free(data);
}

static void every_allocation_may_fail(void **ctx)
{
  float x[4];
  manta_tensor t[40];
  char names[40][4];
  for (int i = 0; i < 40; i++) {
    snprintf(names[i], 4, "%d", i);
    t[i] = MANTA_VECTOR(names[i], MANTA_F32, x, 4);
  }
  manta_state state = {t, 40, NULL};
  struct manta__layout l = {0};
  struct manta__st s = {0};
  FOR_EACH_OOM(manta__layout_make(&l, &state, NULL), (void)0);
  uint8_t *file = calloc(1, l.header_len + l.data_len);
  memcpy(file, l.header, l.header_len);
  FOR_EACH_OOM(manta__st_open(&s, file, l.header_len + l.data_len, NULL), manta__st_fini(&s));
  manta__layout_fini(&l);
  free(file);
}

static void sizes_and_names_of_types(void **ctx)
{
  manta_tensor t = {"t", MANTA_F64, 2, {3, 5}, NULL};
  assert_int_equal(manta_tensor_bytes(&t), 120);
  assert_int_equal(manta_dtype_bytes(MANTA_BF16), 2);
  assert_string_equal(manta_dtype_name(MANTA_BF16), "BF16");
  assert_int_equal(manta_dtype_bytes(MANTA_DTYPE_COUNT), 0);
  assert_string_equal(manta_dtype_name((manta_dtype)-1), "?");
  t.ndim = 0;
  assert_int_equal(manta_tensor_bytes(&t), 8);
  t.dtype = MANTA_DTYPE_COUNT;
  assert_int_equal(manta_tensor_bytes(&t), -1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_header_is_this),
      cmocka_unit_test(a_layout_knows_its_state),
      cmocka_unit_test(stamps_of_any_width),
      cmocka_unit_test(what_the_reference_wrote_is_read),
      cmocka_unit_test(good_headers),
      cmocka_unit_test(bad_headers),
      cmocka_unit_test(every_cut_is_refused),
      cmocka_unit_test(many_tensors_are_found_fast),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(sizes_and_names_of_types),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
