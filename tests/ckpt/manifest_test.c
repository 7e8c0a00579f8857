/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests: what is written is read, and nothing else is.
 */
#include "base/hash.h"
#include "ckpt/ckdir.h"
#include "test.h"

static struct manta__manifest sample(void)
{
  return (struct manta__manifest){
      .name = "000012",
      .id = {UINT64_MAX, UINT32_MAX, -1, UINT64_MAX - 1},
      .iteration = 120,
      .wall_ns = 1794719196055419078,
      .world = 4,
      .has_score = true,
      .score = 0.1,
      .bytes = 1ull << 40,
      .files = {{"state.safetensors", (1ull << 40) - 7, UINT64_MAX}, {"value.msgpack", 7, 0}},
      .file_count = 2};
}

static void assert_same(const struct manta__manifest *a, const struct manta__manifest *b)
{
  assert_string_equal(a->name, b->name);
  assert_memory_equal(&a->id, &b->id, sizeof a->id);
  assert_true(a->iteration == b->iteration && a->wall_ns == b->wall_ns && a->world == b->world);
  assert_true(a->has_score == b->has_score && a->bytes == b->bytes);
  if (a->has_score)
    assert_memory_equal(&a->score, &b->score, sizeof a->score);
  assert_int_equal(a->file_count, b->file_count);
  for (int i = 0; i < a->file_count; i++) {
    assert_string_equal(a->files[i].name, b->files[i].name);
    assert_true(a->files[i].bytes == b->files[i].bytes && a->files[i].hash == b->files[i].hash);
  }
}

static void what_is_written_is_read(void **ctx)
{
  static const double scores[] = {0.1,     -0.0,     0,         3,    1e300,
                                  -1e-300, INFINITY, -INFINITY, 1e22, 5e-324};
  for (size_t i = 0; i <= sizeof scores / sizeof *scores; i++) {
    struct manta__manifest m = sample(), back = {0};
    manta_error err = MANTA_ERROR_INIT;
    char *text = NULL;
    size_t len = 0;
    m.has_score = i < sizeof scores / sizeof *scores;
    m.score = m.has_score ? scores[i] : 0;
    m.file_count = (int)(i % 3);
    assert_ok(manta__manifest_write(&m, NULL, &text, &len, &err), &err);
    assert_int_equal(strlen(text), len);
    assert_ok(manta__manifest_parse(&back, NULL, text, len, &err), &err);
    assert_same(&m, &back);
    manta_free(text);
  }
}

static void the_text_is_this(void **ctx)
{
  static const char want[] =
      "{\"manta\":1,\"name\":\"000012\",\"run\":\"ffffffffffffffff\",\"attempt\":4294967295,"
      "\"rank\":-1,\"seq\":\"fffffffffffffffe\",\"iteration\":120,"
      "\"wall_ns\":\"1794719196055419078\",\"world\":4,"
      "\"score\":0.1,\"bytes\":1099511627776,\"files\":[{\"name\":\"state.safetensors\","
      "\"bytes\":1099511627769,\"hash\":\"ffffffffffffffff\"},"
      "{\"name\":\"value.msgpack\",\"bytes\":7,\"hash\":\"0000000000000000\"}],\"check\":\"";
  struct manta__manifest m = sample();
  manta_error err = MANTA_ERROR_INIT;
  char *text = NULL, check[32];
  size_t len = 0;
  assert_ok(manta__manifest_write(&m, NULL, &text, &len, &err), &err);
  assert_int_equal(len, sizeof want - 1 + 16 + 3);
  assert_memory_equal(text, want, sizeof want - 1);
  snprintf(check, sizeof check, "%016llx\"}\n",
           (unsigned long long)manta__hash(text, sizeof want - 1 - strlen(",\"check\":\"")));
  assert_string_equal(text + sizeof want - 1, check);
  manta_free(text);
}

// Bytes that are no packed values: a manifest does not look into them.
static struct manta__extras sample_extras(void)
{
  struct manta__extras e = {0};
  assert_status(manta__extras_put(&e, MANTA__EXTRA_RANDOM, "\xff", 1, NULL), MANTA_OK);
  assert_status(manta__extras_put(&e, MANTA__EXTRA_DATA, "xyz", 3, NULL), MANTA_OK);
  assert_status(manta__extras_put(&e, MANTA__EXTRA_DATA, "abc", 3, NULL), MANTA_OK); // instead
  return e;
}

static void extras_go_along(void **ctx)
{
  struct manta__manifest m = sample(), back;
  struct manta__extras e = sample_extras(), got = {0};
  manta_error err = MANTA_ERROR_INIT;
  char *text = NULL;
  size_t len = 0;
  assert_ok(manta__manifest_write(&m, &e, &text, &len, &err), &err);
  assert_has(text, "],\"data\":{\"$bytes\":\"YWJj\"},\"random\":{\"$bytes\":\"/w==\"},\"check\":");
  assert_ok(manta__manifest_parse(&back, &got, text, len, &err), &err);
  assert_same(&m, &back);
  assert_int_equal(got.item[MANTA__EXTRA_DATA].len, 3);
  assert_memory_equal(got.item[MANTA__EXTRA_DATA].bytes, "abc", 3);
  assert_int_equal(got.item[MANTA__EXTRA_RANDOM].len, 1);
  manta__extras_fini(&got);
  assert_ok(manta__manifest_parse(&back, NULL, text, len, &err), &err); // nobody has to want them
  manta_free(text);
  manta__extras_fini(&e);
  manta__extras_fini(&e);
}

static void large_extras_are_read_again(void **ctx)
{
  static uint8_t big[MANTA__EXTRA_MAX + 1];
  struct manta__manifest m = sample(), back;
  struct manta__extras e = {0}, got = {0};
  char *text = NULL;
  size_t len = 0;
  memset(big, 0xa5, sizeof big);
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++)
    assert_status(manta__extras_put(&e, (enum manta__extra)i, big, MANTA__EXTRA_MAX, NULL), 0);
  assert_status(manta__manifest_write(&m, &e, &text, &len, NULL), MANTA_OK);
  assert_true(len <= MANTA__CKPT_MANIFEST_MAX);
  assert_status(manta__manifest_parse(&back, &got, text, len, NULL), MANTA_OK);
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    assert_int_equal(got.item[i].len, MANTA__EXTRA_MAX);
    assert_memory_equal(got.item[i].bytes, big, MANTA__EXTRA_MAX);
  }
  manta__extras_fini(&got);
  manta_free(text);
  text = NULL;
  assert_status(manta__extras_put(&e, MANTA__EXTRA_DATA, big, sizeof big, NULL), MANTA_OK);
  assert_status(manta__manifest_write(&m, &e, &text, &len, NULL), MANTA_EINVAL);
  assert_null(text);
  manta__extras_fini(&e);
}

static void every_flip_and_cut_is_refused(void **ctx)
{
  struct manta__manifest m = sample(), back;
  struct manta__extras e = sample_extras();
  manta_error err = MANTA_ERROR_INIT;
  char *text = NULL;
  size_t len = 0;
  assert_ok(manta__manifest_write(&m, &e, &text, &len, &err), &err);
  manta__extras_fini(&e);
  for (size_t i = 0; i < len; i++)
    for (int bit = 0; bit < 8; bit++) {
      text[i] ^= (char)(1 << bit);
      assert_status(manta__manifest_parse(&back, NULL, text, len, &err), MANTA_ECORRUPT);
      text[i] ^= (char)(1 << bit);
    }
  for (size_t n = 0; n < len; n++) {
    char *cut = malloc(n ? n : 1);
    memcpy(cut, text, n);
    assert_status(manta__manifest_parse(&back, NULL, cut, n, &err), MANTA_ECORRUPT);
    free(cut);
  }
  assert_status(manta__manifest_parse(&back, NULL, text, len + 1, &err),
                MANTA_ECORRUPT); // its NUL, too
  assert_ok(manta__manifest_parse(&back, NULL, text, len, &err), &err);
  manta_free(text);
}

// A body with a right check, whatever it says.
static manta_status parse_body(struct manta__manifest *m, struct manta__extras *e, const char *body,
                               manta_error *err)
{
  char text[2048];
  snprintf(text, sizeof text, "%s,\"check\":\"%016llx\"}\n", body,
           (unsigned long long)manta__hash(body, strlen(body)));
  return manta__manifest_parse(m, e, text, strlen(text), err);
}

static void refused(const char *body)
{
  struct manta__manifest m;
  struct manta__extras e = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_status(parse_body(&m, &e, body, &err), MANTA_ECORRUPT);
  assert_has(err.message, "manifest.json: ");
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++)
    assert_null(e.item[i].bytes);
}

// The body of the sample, with one piece of it replaced.
static void swap_in(char body[2048], const char *piece, const char *by)
{
  struct manta__manifest m = sample();
  struct manta__extras e = sample_extras();
  char *text = NULL;
  size_t len = 0;
  assert_status(manta__manifest_write(&m, &e, &text, &len, NULL), MANTA_OK);
  *strstr(text, ",\"check\"") = 0;
  const char *at = strstr(text, piece);
  assert_non_null(at);
  snprintf(body, 2048, "%.*s%s%s", (int)(at - text), text, by, at + strlen(piece));
  manta_free(text);
  manta__extras_fini(&e);
}

// A later version may write more; what it says besides is not for us.
static void unknown_fields_are_passed_over(void **ctx)
{
  static const char *const more[][2] = {
      {"\"files\":[", "\"more\":[1,{\"a\":null}],\"files\":["},
      {"{\"manta\":1", "{\"zeroth\":0.5,\"manta\":1"},
      {"\"bytes\":7,", "\"bytes\":7,\"kind\":\"small\","},
      {"\"data\":", "\"between\":{\"$bytes\":\"AAAA\"},\"data\":"},
      {"{\"$bytes\":\"/w==\"}", "{\"$bytes\":\"/w==\"},\"last\":\"\""}};
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
    struct manta__manifest m = sample(), back;
    struct manta__extras e = {0};
    manta_error err = MANTA_ERROR_INIT;
    char body[2048];
    swap_in(body, more[i][0], more[i][1]);
    assert_ok(parse_body(&back, &e, body, &err), &err);
    assert_same(&m, &back);
    assert_int_equal(e.item[MANTA__EXTRA_DATA].len, 3);
    assert_int_equal(e.item[MANTA__EXTRA_RANDOM].len, 1);
    manta__extras_fini(&e);
  }
}

// As it was written before there were extras.
static void an_old_manifest_is_read(void **ctx)
{
  static const char text[] =
      "{\"manta\":1,\"name\":\"000001\",\"run\":\"fedcba9876543210\",\"attempt\":3,\"rank\":0,"
      "\"seq\":\"0000000000000007\",\"iteration\":70,\"wall_ns\":\"1794719196055419078\","
      "\"world\":4,\"score\":null,\"bytes\":15,\"files\":[{\"name\":\"state.safetensors\","
      "\"bytes\":8,\"hash\":\"0123456789abcdef\"},{\"name\":\"value.msgpack\",\"bytes\":7,"
      "\"hash\":\"fedcba9876543210\"}]";
  struct manta__manifest m;
  struct manta__extras e = {0};
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(parse_body(&m, &e, text, &err), &err);
  assert_int_equal(m.iteration, 70);
  assert_int_equal(m.file_count, 2);
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    assert_ok(manta__extras_value(&e, (enum manta__extra)i, &v, &err), &err);
    assert_int_equal(v.type, MANTA_NIL);
  }
}

static void a_right_check_is_not_enough(void **ctx)
{
  static const char *const swaps[][2] = {
      {"\"manta\":1", "\"manta\":2"},
      {"{\"manta\":1", "{\"manta\":1,\"manta\":1"},
      {"\"name\":\"000012\"", "\"name\":\"../x\""},
      {"\"name\":\"000012\"", "\"name\":\"0000000000000000000000000000000000000012\""},
      {"\"name\":\"000012\"", "\"name\": \"000012\""},
      {"\"name\":\"000012\",", ""},
      {"\"run\":\"ffff", "\"run\":\"FFFF"},
      {"\"run\":\"ffff", "\"run\":\"0xffff"},
      {"\"attempt\":4294967295", "\"attempt\":4294967296"},
      {"\"attempt\":4294967295", "\"attempt\":4294967295.0"},
      {"\"wall_ns\":\"1", "\"wall_ns\":\"+1"},
      {"\"wall_ns\":\"1794", "\"wall_ns\":\"999999999999999999991794"},
      {"\"score\":0.1", "\"score\":NaN"},
      {"\"score\":0.1", "\"score\":0.10"},
      {"\"score\":0.1", "\"score\":\"0.1\""},
      {"\"world\":4", "\"world\":null"},
      {"\"bytes\":7", "\"bytes\":-7"},
      {"value.msgpack", "value/msgpack"},
      {"value.msgpack", ".value"},
      {"value.msgpack", ""},
      {"\"hash\":\"0000000000000000\"", "\"hash\":\"0\""},
      {"\"files\":[", "\"files\":[1,"},
      {"\"files\":[", "\"more\":[], \"files\":["},
      {"\"files\":[", "\"more\":1.50,\"files\":["},
      {"\"files\":[", "\"more\":1,\"more\":2,\"files\":["},
      {"{\"$bytes\":\"YWJj\"}", "{\"$bytes\":\"YWJ\"}"},
      {"{\"$bytes\":\"YWJj\"}", "{\"$bytes\":\"\"}"},
      {"{\"$bytes\":\"YWJj\"}", "\"YWJj\""},
      {"{\"$bytes\":\"YWJj\"}", "null"},
      {"{\"$bytes\":\"/w==\"}", "{\"$bytes\":\"/w==\",\"more\":1}"},
  };
  for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++) {
    char body[2048];
    swap_in(body, swaps[i][0], swaps[i][1]);
    refused(body);
  }
  refused("{");
  refused("[1");
  refused("");
}

static void nonsense_is_not_written(void **ctx)
{
  struct manta__manifest m = sample();
  char *text = NULL;
  size_t len;
  m.score = NAN;
  assert_status(manta__manifest_write(&m, NULL, &text, &len, NULL), MANTA_EINVAL);
  m = sample();
  m.file_count = 9;
  assert_status(manta__manifest_write(&m, NULL, &text, &len, NULL), MANTA_EINVAL);
  assert_null(text);
}

static void every_allocation_may_fail(void **ctx)
{
  struct manta__manifest m = sample(), back;
  char *text = NULL;
  size_t len = 0;
  struct manta__extras e = sample_extras(), got = {0};
  FOR_EACH_OOM(manta__manifest_write(&m, &e, &text, &len, NULL), (void)0);
  FOR_EACH_OOM(manta__manifest_parse(&back, &got, text, len, NULL), (void)0);
  assert_int_equal(got.item[MANTA__EXTRA_RANDOM].len, 1);
  manta__extras_fini(&e);
  manta__extras_fini(&got);
  manta_free(text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(the_text_is_this),
      cmocka_unit_test(extras_go_along),
      cmocka_unit_test(large_extras_are_read_again),
      cmocka_unit_test(unknown_fields_are_passed_over),
      cmocka_unit_test(an_old_manifest_is_read),
      cmocka_unit_test(every_flip_and_cut_is_refused),
      cmocka_unit_test(a_right_check_is_not_enough),
      cmocka_unit_test(nonsense_is_not_written),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
