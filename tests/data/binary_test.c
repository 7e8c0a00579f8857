/* SPDX-License-Identifier: Apache-2.0
 *
 * numpy arrays and zip files of them, TFRecords, records of fixed size, whole files.
 */
#include "cells.h"
#include "folder.h"
#include "make_binary.h"

static const char *npy(const char *name, const char *descr, bool fortran, const char *shape,
                       const void *data, size_t n)
{
  manta__buf b;
  manta__buf_init(&b, 1 << 24);
  put_npy(&b, descr, fortran, shape, data, n);
  const char *path = file_write(dir, name, b.data, b.len);
  manta__buf_fini(&b);
  return path;
}

// --- checksums ----------------------------------------------------------------------------------

static void checksums_are_the_known_ones(void **state)
{
  static const char nine[] = "123456789";
  char zeros[32] = {0};
  assert_int_equal(manta__crc32(0, nine, 9), 0xcbf43926);
  assert_int_equal(manta__crc32c(0, nine, 9), 0xe3069283);
  assert_int_equal(manta__crc32c(0, zeros, 32), 0x8a9136aa);
  assert_int_equal(manta__crc32c(manta__crc32c(0, nine, 4), nine + 4, 5), 0xe3069283);
  assert_int_equal(manta__crc32(manta__crc32(0, nine, 1), nine + 1, 8), 0xcbf43926);
}

// --- numpy --------------------------------------------------------------------------------------

static void arrays_are_the_column_data(void **state)
{
  static const float f[] = {0, 1, 2, 3, 4, 5};
  static const uint8_t big[] = {0, 0, 1, 0, 0xff, 0xff, 0xff, 0xfe}, flags[] = {1, 0, 1, 1};
  static const uint32_t text[] = {'h', 0xe4, 't', 0x1f600, 0, 0};
  static const int16_t columns[] = {0, 2, 4, 1, 3, 5}; // two columns of three
  static const uint16_t half[] = {0x3c00, 0x3f80};
  static const int64_t time[] = {5};
  assert_reads(npy("a.npy", "<f4", false, "(3, 2)", f, sizeof f), NULL,
               "data:f32[2]\n0 1\n2 3\n4 5");
  assert_reads(npy("a.npy", "<f4", false, "(6,)", f, sizeof f), NULL, "data:f32\n0\n1\n2\n3\n4\n5");
  assert_reads(npy("a.npy", "<f4", false, "()", f, 4), NULL, "data:f32\n0");
  assert_reads(npy("a.npy", "<f4", false, "(0, 2)", f, 0), NULL, "data:f32[2]");
  assert_reads(npy("a.npy", "<f4", false, "(1, 2, 3)", f, sizeof f), NULL,
               "data:f32[2,3]\n0 1 2 3 4 5");
  assert_reads(npy("a.npy", ">i4", false, "(2,)", big, sizeof big), NULL, "data:i32\n256\n-2");
  assert_reads(npy("a.npy", "|b1", false, "(4,)", flags, 4), NULL,
               "data:bool\ntrue\nfalse\ntrue\ntrue");
  assert_reads(npy("a.npy", "|b1", false, "(2, 2)", flags, 4), NULL, "data:u8[2]\n1 0\n1 1");
  assert_reads(npy("a.npy", "<i2", true, "(3, 2)", columns, sizeof columns), NULL,
               "data:i16[2]\n0 1\n2 3\n4 5");
  assert_reads(npy("a.npy", "<i2", true, "(6,)", columns, sizeof columns), NULL,
               "data:i16\n0\n2\n4\n1\n3\n5");
  assert_reads(npy("a.npy", "<U3", false, "(2,)", text, sizeof text), NULL,
               "data:string\n'h\xc3\xa4t'\n'\xf0\x9f\x98\x80'");
  assert_reads(npy("a.npy", "|S3", false, "(2,)", "ab\0cde", 6), NULL, "data:bytes\n'ab'\n'cde'");
  assert_reads(npy("a.npy", "<f2", false, "(1,)", half, 2), NULL, "data:f16\n1");
  assert_reads(npy("a.npy", "<M8[ns]", false, "(1,)", time, 8), NULL, "data:i64\n5");
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"data\":\"bf16\"}");
  c.types = &types;
  assert_reads(npy("a.npy", "<V2", false, "(2,)", half, 4), &c, "data:bf16\n0.0078125\n1");
  manta_value_fini(&types);
  types = tree_of("{\"data\":\"f32[3,1,2]\"}");
  assert_reads(npy("a.npy", "<f4", false, "(1, 6)", f, sizeof f), &c,
               "data:f32[3,1,2]\n0 1 2 3 4 5");
  manta_value_fini(&types);
  types = tree_of("{\"data\":\"f64\"}");
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_status(read_path(npy("a.npy", "<f4", false, "(6,)", f, sizeof f), &c, &got, &err),
                MANTA_EINVAL);
  assert_has(err.message, "column \"data\" is f32 in the file, and cannot be read as f64");
  manta_value_fini(&types);
}

static void arrays_that_make_no_sense_are_refused(void **state)
{
  static const char data[64];
  assert_refuses(npy("a.npy", "|O", false, "(2,)", data, 16), NULL, MANTA_EUNSUPPORTED,
                 "holds Python objects, which are pickles and may run code");
  assert_refuses(npy("a.npy", "<c8", false, "(2,)", data, 16), NULL, MANTA_EUNSUPPORTED, "complex");
  assert_refuses(npy("a.npy", "<f16", false, "(2,)", data, 32), NULL, MANTA_EUNSUPPORTED, "'<f16'");
  assert_refuses(npy("a.npy", "<f4", false, "(9,)", data, 16), NULL, MANTA_ECORRUPT,
                 "its 9 rows need 164 bytes, but it has 144");
  assert_refuses(npy("a.npy", "<f4", false, "(2, 0)", data, 0), NULL, MANTA_EINVAL,
                 "a dimension is 0");
  assert_refuses(npy("a.npy", "<f4", false, "(1,1,1,1,1,1,1,1,1)", data, 4), NULL, MANTA_EINVAL,
                 "not understood");
  assert_refuses(npy("a.npy", "<f4", false, "(99999999999999999999,)", data, 4), NULL, MANTA_EINVAL,
                 "not understood");
  assert_refuses(npy("a.npy", "<f4", false, "(2305843009213693952, 2)", data, 4), NULL,
                 MANTA_EINVAL, "impossible shape");
  assert_refuses(npy("a.npy", "<U1", false, "(2, 2)", data, 16), NULL, MANTA_EUNSUPPORTED, "'<U1'");
  assert_refuses(file_text(dir, "a.npy", "hello, this is text"), NULL, MANTA_EINVAL,
                 "is no numpy array");
  assert_refuses(file_text(dir, "a.npy", "short"), NULL, MANTA_ECORRUPT, "ends in the header");
  assert_refuses(file_text(dir, "a.npy", ""), NULL, MANTA_ECORRUPT, "ends in the header");
  static const uint32_t wrong[] = {0xd800};
  assert_refuses(npy("a.npy", "<U1", false, "(1,)", wrong, 4), NULL, MANTA_EINVAL,
                 "row 0 holds no Unicode");
}

static void arrays_are_cut_between_rows(void **state)
{
  enum { ROWS = 1000 };
  int32_t *data = malloc(ROWS * 3 * sizeof *data);
  char *whole, *parts;
  for (int i = 0; i < ROWS * 3; i++)
    data[i] = i;
  for (int fortran = 0; fortran <= 1; fortran++) {
    manta_data_config c = MANTA_DATA_CONFIG_INIT;
    manta_error err = MANTA_ERROR_INIT;
    manta_dataset *d;
    const char *path = npy("cut.npy", "<i4", fortran, "(1000, 3)", data, ROWS * 12);
    assert_ok(read_path(path, NULL, &whole, &err), &err);
    c.block_bytes = 500;
    c.batch_rows = 17;
    assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
    assert_true(fortran ? manta_dataset_blocks(d) == 1 : manta_dataset_blocks(d) > 15);
    assert_ok(read_blocks(d, &parts, &err), &err);
    assert_string_equal(whole, parts);
    manta_free(whole);
    manta_free(parts);
    manta_dataset_close(d);
  }
  free(data);
}

static void compressed_arrays_are_read(void **state)
{
  static const float f[] = {0, 1, 2, 3};
  manta__buf b;
  size_t n;
  manta__buf_init(&b, 1 << 20);
  put_npy(&b, "<f4", false, "(2, 2)", f, sizeof f);
  void *packed = deflate_bytes(b.data, b.len, 31, &n);
  assert_reads(file_write(dir, "a.npy.gz", packed, n), NULL, "data:f32[2]\n0 1\n2 3");
  free(packed);
  b.len = 0;
  put_npy(&b, "<f4", true, "(2, 2)", f, sizeof f);
  packed = deflate_bytes(b.data, b.len, 31, &n);
  assert_refuses(file_write(dir, "a.npy.gz", packed, n), NULL, MANTA_EUNSUPPORTED, "Fortran order");
  free(packed);
  manta__buf_fini(&b);
}

// --- zip files ----------------------------------------------------------------------------------

static void add_array(struct zip_writer *z, const char *name, const char *descr, const char *shape,
                      const void *data, size_t n, bool deflated, bool wide)
{
  manta__buf b;
  manta__buf_init(&b, 1 << 24);
  put_npy(&b, descr, false, shape, data, n);
  zip_add(z, name, b.data, b.len, deflated, wide);
  manta__buf_fini(&b);
}

static void arrays_of_a_zip_file_are_columns(void **state)
{
  enum { ROWS = 5000 };
  struct zip_writer z;
  int32_t *ints = malloc(ROWS * sizeof *ints);
  double *reals = malloc(ROWS * 2 * sizeof *reals);
  manta_error err = MANTA_ERROR_INIT;
  char *got, shape[2][32];
  snprintf(shape[0], 32, "(%d,)", ROWS);
  snprintf(shape[1], 32, "(%d, 2)", ROWS);
  for (int i = 0; i < ROWS; i++) {
    ints[i] = i;
    reals[2 * i] = reals[2 * i + 1] = i / 2.0;
  }
  for (int form = 0; form < 4; form++) {
    zip_begin(&z);
    add_array(&z, "x.npy", "<i4", shape[0], ints, ROWS * 4, form & 1, form & 2);
    zip_add(&z, "readme.txt", "hello", 5, false, false);
    add_array(&z, "y.npy", "<f8", shape[1], reals, ROWS * 16, form & 1, form & 2);
    const char *path = zip_end(&z, dir, "a.npz");
    assert_ok(read_path(path, NULL, &got, &err), &err);
    assert_ptr_equal(strstr(got, "x:i32|y:f64[2]\n0|0 0\n1|0.5 0.5\n2|1 1\n"), got);
    assert_has(got, "\n4999|2499.5 2499.5");
    manta_free(got);
  }
  free(ints);
  free(reals);
}

static void zip_files_that_are_damaged_are_told(void **state)
{
  static const int32_t three[] = {1, 2, 3};
  struct zip_writer z;
  char bytes[4096];
  manta_error err = MANTA_ERROR_INIT;
  zip_begin(&z);
  add_array(&z, "x.npy", "<i4", "(3,)", three, 12, false, false);
  add_array(&z, "y.npy", "<i4", "(2,)", three, 8, false, false);
  assert_refuses(zip_end(&z, dir, "a.npz"), NULL, MANTA_EINVAL,
                 "array \"y\" has 2 rows, but \"x\" has 3");
  zip_begin(&z);
  zip_add(&z, "x.txt", "hello", 5, false, false);
  assert_refuses(zip_end(&z, dir, "a.npz"), NULL, MANTA_EINVAL, "has no arrays");
  zip_begin(&z);
  add_array(&z, "x.npy", "<i4", "(3,)", three, 12, false, false);
  const char *path = zip_end(&z, dir, "a.npz");
  assert_reads(path, NULL, "x:i32\n1\n2\n3");
  int fd = open(path, O_RDWR | O_CLOEXEC);
  ssize_t n = read(fd, bytes, sizeof bytes);
  close(fd);
  char *payload = memmem(bytes, (size_t)n, three, sizeof three);
  assert_non_null(payload);
  *payload ^= 4;
  assert_refuses(file_write(dir, "b.npz", bytes, (size_t)n), NULL, MANTA_ECORRUPT,
                 "checksum is wrong");
  *payload ^= 4;
  manta_status seen = MANTA_OK;
  for (ssize_t cut = 0; cut < n; cut += 7) { // wherever it ends, it is no zip file
    char *got;
    seen = read_path(file_write(dir, "c.npz", bytes, (size_t)cut), NULL, &got, &err);
    assert_status(seen, MANTA_ECORRUPT);
  }
}

// --- TFRecord -----------------------------------------------------------------------------------

static const char *examples(const char *name, int form)
{
  manta__buf file, features;
  manta__buf_init(&file, 1 << 24);
  manta__buf_init(&features, 1 << 20);
  for (int i = 0; i < 3; i++) {
    int64_t ints[] = {i, -i, INT64_MIN + i};
    float reals[] = {(float)i + 0.5f, -1};
    const char *text[] = {i == 1 ? "b\xc3\xa4" : "a", "second"};
    if (i < 2)
      put_feature(&features, "label", 3, ints, 1, form & 1);
    put_feature(&features, "x", 2, reals, 2, form & 1);
    put_feature(&features, "name", 1, text, 1, false);
    put_feature(&features, "ids", 3, ints, 3, form & 1);
    put_feature(&features, "ragged", 3, ints, (size_t)i + 1, form & 1);
    put_feature(&features, "empty", 2, NULL, 0, true);
    put_example(&file, &features);
  }
  const char *path = file_write(dir, name, file.data, file.len);
  manta__buf_fini(&file);
  manta__buf_fini(&features);
  return path;
}

static void no_log(void *ctx, manta_log_level level, const char *text)
{
  snprintf(ctx, 512, "%s", text);
}

static void features_are_columns(void **state)
{
  char said[512] = "";
  manta_set_log(no_log, said);
  for (int form = 0; form < 2; form++) // packed, or one by one
    assert_reads(examples("a.tfrecord", form), NULL,
                 "label:i64|x:f32[2]|name:bytes|ids:i64[3]|empty:f32\n"
                 "0|0.5 -1|'a'|0 0 -9223372036854775808|null\n"
                 "1|1.5 -1|'b\xc3\xa4'|1 -1 -9223372036854775807|null\n"
                 "null|2.5 -1|'a'|2 -2 -9223372036854775806|null");
  assert_has(said, "feature \"ragged\" is left out");
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types =
      tree_of("{\"label\":\"i8\",\"x\":\"f64[2,1]\",\"name\":\"string\",\"ragged\":\"bytes\"}");
  static const char *const columns[] = {"name", "x", "label"};
  c.types = &types;
  c.columns = columns;
  c.column_count = 3;
  assert_reads(
      examples("a.tfrecord", 0), &c,
      "name:string|x:f64[2,1]|label:i8\n'a'|0.5 -1|0\n'b\xc3\xa4'|1.5 -1|1\n'a'|2.5 -1|null");
  static const char *const ragged[] = {"ragged"};
  manta_dataset *d;
  manta_reader *r;
  manta_batch *b;
  manta_column col;
  manta_error err = MANTA_ERROR_INIT;
  const char *path = examples("a.tfrecord", 0);
  c.columns = ragged;
  c.column_count = 1;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  assert_ok(manta_reader_open(&r, d, 0, 1, &err), &err);
  assert_status(manta_reader_next(r, &b, &err), 1);
  assert_ok(manta_batch_column(b, 0, &col, &err), &err);
  assert_int_equal(col.offsets[1], 8);
  assert_int_equal(col.offsets[3], 48);
  manta_batch_destroy(b);
  manta_reader_close(r);
  manta_dataset_close(d);
  manta_value_fini(&types);
  types = tree_of("{\"x\":\"f32[3]\"}");
  c.column_count = 0;
  assert_refuses(path, &c, MANTA_EINVAL,
                 "the record at byte 0: feature \"x\" has 2 floats, which are no f32[3]");
  manta_value_fini(&types);
  manta_set_log(NULL, NULL);
}

static void damaged_records_are_told_or_skipped(void **state)
{
  char bytes[4096], said[512], *got;
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  static const char *const columns[] = {"label"};
  manta_set_log(no_log, said);
  const char *path = examples("a.tfrecord", 0);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t n = (size_t)read(fd, bytes, sizeof bytes), first = 0;
  close(fd);
  memcpy(&first, bytes, 8);
  first += 16; // where the second begins
  c.columns = columns;
  c.column_count = 1;
  bytes[first + 20] ^= 1; // its bytes
  path = file_write(dir, "b.tfrecord", bytes, n);
  assert_status(read_path(path, &c, &got, &err), MANTA_ECORRUPT);
  assert_has(err.message, "b.tfrecord: the record at byte");
  assert_has(err.message, "its checksum is wrong");
  c.skip_errors = true;
  assert_reads(path, &c, "label:i64\n0\nnull");
  bytes[first + 20] ^= 1;
  bytes[first] ^= 1; // its length
  path = file_write(dir, "b.tfrecord", bytes, n);
  assert_reads(path, &c, "label:i64\n0");
  c.skip_errors = false;
  assert_status(read_path(path, &c, &got, &err), MANTA_ECORRUPT);
  assert_has(err.message, "the checksum of its length is wrong");
  bytes[first] ^= 1;
  path = file_write(dir, "b.tfrecord", bytes, n - 3);
  assert_status(read_path(path, &c, &got, &err), MANTA_ECORRUPT);
  assert_has(err.message, "the file ends in it");
  manta_set_log(NULL, NULL);
  assert_refuses(file_text(dir, "b.tfrecord", "this is no TFRecord at all"), NULL, MANTA_ECORRUPT,
                 "the checksum of its length is wrong");
  manta__buf b;
  manta__buf_init(&b, 1 << 20);
  put_record(&b, "\x0a\xff", 2);
  assert_refuses(file_write(dir, "b.tfrecord", b.data, b.len), NULL, MANTA_EINVAL,
                 "has no columns");
  manta__buf_fini(&b);
}

static void records_are_cut_where_they_begin(void **state)
{
  manta__buf file, features;
  uint64_t seed = 90;
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  char *whole, *parts, *text = malloc(3000);
  memset(text, 'x', 2999);
  manta__buf_init(&file, 1 << 26);
  manta__buf_init(&features, 1 << 20);
  for (int64_t i = 0; i < 500; i++) {
    const char *one[] = {text + 2999 - cells_random(&seed) % 2999};
    text[2999] = 0;
    put_feature(&features, "i", 3, &i, 1, true);
    put_feature(&features, "s", 1, one, 1, false);
    put_example(&file, &features);
  }
  const char *path = file_write(dir, "cut.tfrecord", file.data, file.len);
  assert_ok(read_path(path, NULL, &whole, &err), &err);
  for (size_t block = 100; block < 1000000; block *= 3) {
    c.block_bytes = block;
    assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
    assert_ok(read_blocks(d, &parts, &err), &err);
    assert_string_equal(whole, parts);
    manta_free(parts);
    manta_dataset_close(d);
  }
  manta_free(whole);
  free(text);
  manta__buf_fini(&file);
  manta__buf_fini(&features);
}

// --- fixed size, whole files --------------------------------------------------------------------

static void records_of_fixed_size_are_split_into_columns(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"label\":\"u8\",\"image\":\"u8[2,2]\",\"id\":\"i16\"}");
  static const char data[] = "HEAD\x01"
                             "abcd\x05\x00\x02"
                             "efgh\xff\xff\x03"
                             "ijkl\x00\x01";
  char *whole, *parts;
  manta_error err = MANTA_ERROR_INIT;
  c.format = "fixed";
  c.types = &types;
  c.skip_bytes = 4;
  const char *path = file_write(dir, "x.dat", data, sizeof data - 1);
  assert_reads(path, &c,
               "label:u8|image:u8[2,2]|id:i16\n1|97 98 99 100|5\n2|101 102 103 104|-1\n"
               "3|105 106 107 108|256");
  static const char *const columns[] = {"id"};
  c.columns = columns;
  c.column_count = 1;
  assert_reads(path, &c, "id:i16\n5\n-1\n256");
  path = file_write(dir, "x.dat", data, sizeof data - 3);
  assert_refuses(path, &c, MANTA_EINVAL, "5 bytes are left behind the last record of 7");
  c.skip_errors = true;
  assert_reads(path, &c, "id:i16\n5\n-1");
  manta_value_fini(&types);
  types = tree_of("{\"a\":\"string\"}");
  c.column_count = 0;
  assert_status(read_path(path, &c, &whole, &err), MANTA_EINVAL);
  assert_has(err.message, "numbers and arrays");
  manta_value_fini(&types);
  c.types = NULL;
  assert_status(read_path(path, &c, &whole, &err), MANTA_EINVAL);
  assert_has(err.message, "need types");
  types = tree_of("{\"a\":\"i32\",\"b\":\"f32[3]\"}");
  c.types = &types;
  c.skip_errors = false;
  c.skip_bytes = 100;
  char *many = calloc(17, 1000);
  path = file_write(dir, "x.dat", many, 16 * 999 + 100);
  assert_ok(read_path(path, &c, &whole, &err), &err);
  c.block_bytes = 333;
  c.batch_rows = 7;
  assert_ok(read_path(path, &c, &parts, &err), &err);
  assert_string_equal(whole, parts);
  manta_free(whole);
  manta_free(parts);
  free(many);
  manta_value_fini(&types);
}

static void whole_files_are_rows(void **state)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  const char *paths[] = {file_text(dir, "1.jpg", "one"), file_text(dir, "2.jpg", ""),
                         file_text(dir, "3.jpg.gz", "\x1f\x8b raw")};
  static const char *const columns[] = {"bytes"};
  manta_error err = MANTA_ERROR_INIT;
  char want[4096], *got;
  c.format = "binary";
  snprintf(want, sizeof want, "bytes:bytes|path:string\n'one'|'%s'\n''|'%s'\n'\x1f\x8b raw'|'%s'",
           paths[0], paths[1], paths[2]);
  assert_ok(read_paths(paths, 3, &c, &got, &err), &err);
  assert_string_equal(got, want);
  manta_free(got);
  c.columns = columns;
  c.column_count = 1;
  size_t n;
  void *packed = deflate_bytes("zipped", 6, 31, &n);
  c.compression = "gzip";
  assert_reads(file_write(dir, "4.gz", packed, n), &c, "bytes:bytes\n'zipped'");
  free(packed);
  c.compression = NULL;
  c.row_bytes = 10;
  assert_reads(file_text(dir, "5", "0123456789"), &c, "bytes:bytes\n'0123456789'");
  assert_refuses(file_text(dir, "5", "0123456789a"), &c, MANTA_ETOOBIG, "has more than 10 bytes");
}

static void names_say_what_files_are(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  char *got;
  assert_refuses(file_text(dir, "x.parquet", "PAR1"), NULL, MANTA_EUNSUPPORTED,
                 "does not read Parquet\nhint: manta.data.read_parquet reads it in Python");
  assert_refuses(file_text(dir, "x.unknown", ""), NULL, MANTA_EINVAL, "set the format");
  c.format = "xml";
  assert_status(read_path(file_text(dir, "x", ""), &c, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "there are csv, json, text, npy, npz, tfrecord, binary, fixed");
  c.format = "parquet";
  assert_status(read_path(file_text(dir, "x", ""), &c, &got, &err), MANTA_EUNSUPPORTED);
  const char *two[] = {file_text(dir, "x.csv", "a\n1\n"), file_text(dir, "x.txt", "a\n")};
  assert_status(read_paths(two, 2, NULL, &got, &err), MANTA_EINVAL);
  assert_has(err.message, "x.csv is csv, but");
}

static void every_allocation_may_fail(void **state)
{
  static const int32_t three[] = {1, 2, 3};
  struct zip_writer z;
  manta_data_config fixed = MANTA_DATA_CONFIG_INIT, plain = MANTA_DATA_CONFIG_INIT;
  manta_value types = tree_of("{\"a\":\"i32\"}");
  char said[512];
  manta_set_log(no_log, said);
  fixed.format = "fixed";
  fixed.types = &types;
  zip_begin(&z);
  add_array(&z, "x.npy", "<i4", "(3,)", three, 12, true, false);
  const char *paths[] = {npy("a.npy", "<U1", false, "(3,)", three, 12), zip_end(&z, dir, "a.npz"),
                         examples("a.tfrecord", 0), file_text(dir, "a.bin", "x"),
                         file_write(dir, "a.dat", three, 12)};
  for (int k = 0; k < 5; k++) {
    manta_dataset *d = NULL;
    long failed = 0;
    FOR_EACH_OOM(manta_dataset_open(&d, &paths[k], 1, k == 4 ? &fixed : &plain, NULL), (void)0);
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
  manta_set_log(NULL, NULL);
  manta_value_fini(&types);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(checksums_are_the_known_ones),
      cmocka_unit_test(arrays_are_the_column_data),
      cmocka_unit_test(arrays_that_make_no_sense_are_refused),
      cmocka_unit_test(arrays_are_cut_between_rows),
      cmocka_unit_test(compressed_arrays_are_read),
      cmocka_unit_test(arrays_of_a_zip_file_are_columns),
      cmocka_unit_test(zip_files_that_are_damaged_are_told),
      cmocka_unit_test(features_are_columns),
      cmocka_unit_test(damaged_records_are_told_or_skipped),
      cmocka_unit_test(records_are_cut_where_they_begin),
      cmocka_unit_test(records_of_fixed_size_are_split_into_columns),
      cmocka_unit_test(whole_files_are_rows),
      cmocka_unit_test(names_say_what_files_are),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
