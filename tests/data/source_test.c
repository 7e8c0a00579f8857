/* SPDX-License-Identifier: Apache-2.0
 *
 * Files by path, pattern and folder; reads that are whole or fail; what is compressed.
 */
#include "data/source/input.h"

#include "cells.h"
#include "folder.h"

// --- listings -----------------------------------------------------------------------------------

static manta_status list(struct manta__listing *l, const char *below, manta_error *err)
{
  char path[PATH_MAX];
  const char *names[] = {path};
  snprintf(path, sizeof path, "%s/%s", dir, below);
  return manta__listing_make(l, names, 1, err);
}

static void assert_listed(const struct manta__listing *l, const char *const *want, size_t n)
{
  assert_int_equal(l->count, n);
  for (size_t i = 0; i < n; i++)
    assert_string_equal(l->found[i].name + strlen(dir) + 1, want[i]);
}

static void folders_and_patterns_are_sorted(void **state)
{
  struct manta__listing l;
  manta_error err = MANTA_ERROR_INIT;
  static const char *const all[] = {"f/a.csv", "f/b.csv", "f/b.txt", "f/sub/c.csv"};
  static const char *const csv[] = {"f/a.csv", "f/b.csv"};
  scratch_write(dir, "f/b.csv", "22");
  scratch_write(dir, "f/a.csv", "1");
  scratch_write(dir, "f/b.txt", "");
  scratch_write(dir, "f/sub/c.csv", "333");
  scratch_write(dir, "f/_SUCCESS", "");
  scratch_write(dir, "f/.hidden", "");
  char back[PATH_MAX], to[PATH_MAX];
  snprintf(back, sizeof back, "%s/f/sub/back", dir);
  snprintf(to, sizeof to, "%s/f", dir);
  assert_int_equal(symlink(to, back), 0); // a folder that holds itself
  assert_ok(list(&l, "f", &err), &err);
  assert_listed(&l, all, 4);
  assert_int_equal(l.found[3].size, 3);
  manta__listing_fini(&l);
  assert_ok(list(&l, "f/*.csv", &err), &err);
  assert_listed(&l, csv, 2);
  manta__listing_fini(&l);
  const char *two[] = {to, to};
  assert_ok(manta__listing_make(&l, two, 2, &err), &err);
  assert_int_equal(l.count, 8);
  manta__listing_fini(&l);
  FOR_EACH_OOM(list(&l, "f", NULL), manta__listing_fini(&l));
}

static void nothing_found_is_said(void **state)
{
  struct manta__listing l;
  manta_error err = MANTA_ERROR_INIT;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/empty", dir);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_status(list(&l, "empty", &err), MANTA_ENOENT);
  assert_has(err.message, "/empty: there is no file in it\nhint: names that begin with . or _");
  assert_status(list(&l, "no*match", &err), MANTA_ENOENT);
  assert_has(err.message, "no*match: no file matches this pattern\nhint: * and ?");
  assert_status(list(&l, "missing.csv", &err), MANTA_ENOENT);
  assert_has(err.message, "missing.csv: No such file");
  assert_null(strstr(err.message, "hint"));
  file_text(dir, "missling.csv", "a\n");
  assert_status(list(&l, "missing.csv", &err), MANTA_ENOENT);
  assert_has(err.message,
             "missing.csv: No such file or directory\nhint: there is \"missling.csv\"");
  assert_status(list(&l, "nowhere/x.csv", &err), MANTA_ENOENT);
  assert_has(err.message, "hint: its folder is not there either");
  const char *ftp[] = {"ftp://host/x"};
  assert_status(manta__listing_make(&l, ftp, 1, &err), MANTA_EUNSUPPORTED);
  assert_has(err.message, "ftp://");
  assert_status(manta__listing_make(&l, NULL, 0, &err), MANTA_EINVAL);
}

// --- reading ------------------------------------------------------------------------------------

static void ranges_are_read_whole_or_not_at_all(void **state)
{
  struct manta__source *s;
  manta_error err = MANTA_ERROR_INIT;
  char got[16] = {0};
  const char *path = file_text(dir, "x", "0123456789");
  char url[PATH_MAX + 8];
  snprintf(url, sizeof url, "file://%s", path);
  assert_ok(manta__source_open(&s, url, &err), &err);
  assert_int_equal(s->size, 10);
  assert_string_equal(s->name, path);
  assert_ok(manta__source_read(s, 3, got, 4, &err), &err);
  assert_string_equal(got, "3456");
  assert_ok(manta__source_read(s, 10, got, 0, &err), &err);
  assert_status(manta__source_read(s, 8, got, 3, &err), MANTA_EINVAL);
  assert_status(manta__source_read(s, -1, got, 1, &err), MANTA_EINVAL);
  assert_int_equal(truncate(path, 5), 0);
  assert_status(manta__source_read(s, 3, got, 4, &err), MANTA_EIO);
  assert_has(err.message, "ends at byte 5, but had 10 bytes when it was opened");
  manta__source_close(s);
  FOR_EACH_OOM(manta__source_open(&s, path, NULL), manta__source_close(s));
}

static void what_is_no_file_is_refused(void **state)
{
  struct manta__source *s;
  manta_error err = MANTA_ERROR_INIT;
  char path[PATH_MAX];
  assert_status(manta__source_open(&s, dir, &err), MANTA_EINVAL);
  assert_has(err.message, "no regular file");
  snprintf(path, sizeof path, "%s/pipe", dir);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_status(manta__source_open(&s, path, &err), MANTA_EINVAL);
  assert_status(manta__source_open(&s, "/proc/none/such", &err), MANTA_ENOENT);
}

// --- inputs -------------------------------------------------------------------------------------

#define TEXT_BYTES 300000

static char *make_text(void)
{
  char *text = malloc(TEXT_BYTES + 1);
  uint64_t seed = 30;
  for (int i = 0; i < TEXT_BYTES; i++)
    text[i] = (char)('a' + cells_random(&seed) % (i % 3 ? 4 : 26));
  text[TEXT_BYTES] = 0;
  return text;
}

// Reads it in pieces of odd sizes and compares.
static manta_status read_back(const char *path, enum manta__compression form, const char *want,
                              size_t want_n, manta_error *err)
{
  struct manta__source *s;
  struct manta__input in;
  uint64_t seed = 31;
  char *got = malloc(want_n + 100);
  size_t at = 0, n, asked;
  MANTA_TRY(manta__source_open(&s, path, err));
  manta_status st = manta__input_open(&in, s, 0, s->size, form, err);
  while (st == MANTA_OK) {
    asked = cells_random(&seed) % 20000 + 1;
    asked = asked < want_n + 100 - at ? asked : want_n + 100 - at;
    st = manta__input_read(&in, got + at, asked, &n, err);
    at += st == MANTA_OK ? n : 0;
    if (st == MANTA_OK && n < asked)
      break;
  }
  if (st == MANTA_OK) {
    assert_int_equal(at, want_n);
    assert_memory_equal(got, want, want_n);
  }
  manta__input_close(&in);
  manta__source_close(s);
  free(got);
  return st;
}

static void compressed_files_read_as_plain_ones(void **state)
{
  char *text = make_text();
  size_t n, m;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(read_back(file_write(dir, "t", text, TEXT_BYTES), MANTA__PLAIN, text, TEXT_BYTES, &err),
            &err);
  char *one = deflate_bytes(text, 100000, 31, &n),
       *two = deflate_bytes(text + 100000, 200000, 31, &m);
  char *both = malloc(n + m);
  memcpy(both, one, n);
  memcpy(both + n, two, m); // as two members
  assert_ok(read_back(file_write(dir, "t.gz", both, n + m), MANTA__GZIP, text, TEXT_BYTES, &err),
            &err);
  for (size_t cut = 1; cut < n + m; cut += (n + m) / 7) {
    if (cut == n)
      continue;
    const char *path = file_write(dir, "cut.gz", both, cut);
    assert_status(read_back(path, MANTA__GZIP, text, TEXT_BYTES, &err), MANTA_ECORRUPT);
    assert_has(err.message, "cut.gz");
  }
  free(one);
  free(two);
  free(both);
  one = zstd_bytes(text, 1000, &n);
  two = zstd_bytes(text + 1000, TEXT_BYTES - 1000, &m);
  both = malloc(n + m);
  memcpy(both, one, n);
  memcpy(both + n, two, m);
  assert_ok(read_back(file_write(dir, "t.zst", both, n + m), MANTA__ZSTD, text, TEXT_BYTES, &err),
            &err);
  assert_status(
      read_back(file_write(dir, "cut.zst", both, n + m - 3), MANTA__ZSTD, text, TEXT_BYTES, &err),
      MANTA_ECORRUPT);
  free(one);
  free(two);
  free(both);
  assert_status(read_back(file_text(dir, "no.gz", "hello"), MANTA__GZIP, text, TEXT_BYTES, &err),
                MANTA_ECORRUPT);
  assert_has(err.message, "no.gz: near byte");
  assert_status(read_back(file_text(dir, "no.zst", "hello"), MANTA__ZSTD, text, TEXT_BYTES, &err),
                MANTA_ECORRUPT);
  one = deflate_bytes(text, TEXT_BYTES, -15, &n);
  assert_ok(read_back(file_write(dir, "d", one, n), MANTA__DEFLATE, text, TEXT_BYTES, &err), &err);
  free(one);
  free(text);
}

static void every_allocation_of_a_decoder_may_fail(void **state)
{
  struct manta__source *s;
  struct manta__input in;
  size_t n;
  void *packed = deflate_bytes("hello", 5, 31, &n);
  assert_status(manta__source_open(&s, file_write(dir, "x.gz", packed, n), NULL), MANTA_OK);
  FOR_EACH_OOM(manta__input_open(&in, s, 0, s->size, MANTA__GZIP, NULL), manta__input_close(&in));
  FOR_EACH_OOM(manta__input_open(&in, s, 0, s->size, MANTA__ZSTD, NULL), manta__input_close(&in));
  manta__source_close(s);
  free(packed);
}

static void names_say_how_they_are_compressed(void **state)
{
  enum manta__compression form;
  assert_int_equal(manta__compression_of("a/b.csv.gz"), MANTA__GZIP);
  assert_int_equal(manta__compression_of("b.zst"), MANTA__ZSTD);
  assert_int_equal(manta__compression_of("b.csv"), MANTA__PLAIN);
  assert_int_equal(manta__compression_of(".gz"), MANTA__PLAIN);
  assert_true(manta__compression_parse(&form, "zstd") && form == MANTA__ZSTD);
  assert_false(manta__compression_parse(&form, "lzma"));
}

// --- windows ------------------------------------------------------------------------------------

static void a_window_moves_over_the_input_and_grows(void **state)
{
  char *text = make_text();
  struct manta__source *s;
  struct manta__window w;
  manta_error err = MANTA_ERROR_INIT;
  uint64_t seed = 32;
  size_t at = 17;
  assert_ok(manta__source_open(&s, file_write(dir, "t", text, TEXT_BYTES), &err), &err);
  assert_ok(manta__window_open(&w, s, 17, TEXT_BYTES - 5, MANTA__PLAIN, 1000, 8000, &err), &err);
  while (!w.last || w.at < w.end) {
    if (w.end == w.at || cells_random(&seed) % 4 == 0)
      assert_ok(manta__window_more(&w, &err), &err);
    assert_int_equal(w.offset + (int64_t)w.at, at - 17);
    assert_memory_equal(w.base + w.at, text + at, w.end - w.at);
    size_t use = cells_random(&seed) % (w.end - w.at + 1);
    w.at += use;
    at += use;
  }
  assert_int_equal(at, TEXT_BYTES - 5);
  assert_true(w.cap > 1000 && w.cap <= 8000);
  manta__window_close(&w);
  assert_ok(manta__window_open(&w, s, 0, TEXT_BYTES, MANTA__PLAIN, 1000, 8000, &err), &err);
  manta_status st = MANTA_OK;
  while (st == MANTA_OK && !w.last)
    st = manta__window_more(&w, &err); // nothing is ever used
  assert_status(st, MANTA_ETOOBIG);
  assert_has(err.message, "8000");
  manta__window_close(&w);
  manta__window_close(&w);
  manta__source_close(s);
  free(text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(folders_and_patterns_are_sorted),
      cmocka_unit_test(nothing_found_is_said),
      cmocka_unit_test(ranges_are_read_whole_or_not_at_all),
      cmocka_unit_test(what_is_no_file_is_refused),
      cmocka_unit_test(compressed_files_read_as_plain_ones),
      cmocka_unit_test(every_allocation_of_a_decoder_may_fail),
      cmocka_unit_test(names_say_how_they_are_compressed),
      cmocka_unit_test(a_window_moves_over_the_input_and_grows),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
