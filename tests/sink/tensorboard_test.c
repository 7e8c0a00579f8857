/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files: whole records, one file whatever happens, nothing of a train function believed.
 * That TensorBoard reads them, the tests in Python see.
 */
#include <dirent.h>

#include "base/crc.h"
#include "pot.h"

// The only event file of the directory.
static void find_file(const char *dir, char *name, size_t size)
{
  DIR *d = opendir(dir);
  int found = 0;
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));)
    if (!strncmp(e->d_name, "events.out.tfevents.", 20)) {
      snprintf(name, size, "%s", e->d_name);
      found++;
    }
  closedir(d);
  assert_int_equal(found, 1);
}

static uint32_t u32(const uint8_t *p)
{
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// Records of the file, with right checksums; how many have this text in them.
static int count_records(const char *dir, const char *with, int *having)
{
  static uint8_t bytes[4 << 20];
  char name[300], path[600];
  find_file(dir, name, sizeof name);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  size_t size = fread(bytes, 1, sizeof bytes, f), at = 0;
  fclose(f);
  int n = 0;
  for (*having = 0; at < size; n++) {
    assert_true(size - at >= 16);
    size_t len = u32(bytes + at);
    assert_int_equal(u32(bytes + at + 8), manta__crc32c_masked(bytes + at, 8));
    assert_true(len <= size - at - 16);
    assert_int_equal(u32(bytes + at + 12 + len), manta__crc32c_masked(bytes + at + 12, len));
    *having += memmem(bytes + at + 12, len, with, strlen(with)) != NULL;
    at += 16 + len;
  }
  return n;
}

static void one_file_for_the_whole_run(void **state)
{
  struct bed *b = *state;
  manta_sink board = {"tensorboard", NULL};
  manta__log_writer *w = bed_writer(b, true);
  int losses;
  pot_sinks(b, &board, 1);
  bed_add(w, MANTA__EV_RUN, ident(0, -1, 1), MANTA_MAP(MANTA_KV_STR("name", "x")));
  pot_attempt(w, 0, 1, 0);
  for (int i = 1; i <= 100; i++) {
    bed_row(w, 0, 0, i);
    if (i % 25 == 0) {
      bed_flush(w);
      pot_feed(b);
    }
  }
  assert_int_equal(count_records(b->path, "loss", &losses), 1 + 2 + 100); // version, config
  assert_int_equal(losses, 100);
  pot_rewind(w, 1, 1, 50);
  bed_row(w, 1, 0, 51);
  bed_flush(w);
  pot_feed(b);
  assert_int_equal(count_records(b->path, "loss", &losses), 103 + 1 + 1); // START, the row
  assert_int_equal(losses, 101);
  manta__log_writer_close(w);
}

// As if the process was killed before it kept the name of the file, some seconds ago.
static void a_file_that_nobody_has_noted_is_the_same(void **state)
{
  struct bed *b = *state;
  manta_sink board = {"tensorboard", NULL};
  manta__log_writer *w = bed_writer(b, true);
  char name[300], older[330];
  int losses;
  pot_sinks(b, &board, 1);
  pot_attempt(w, 0, 1, 0);
  bed_row(w, 0, 0, 1);
  bed_flush(w);
  pot_feed(b);
  find_file(b->path, name, sizeof name);
  snprintf(older, sizeof older, "events.out.tfevents.0000000001.%s", strchr(name + 20, '.') + 1);
  assert_int_equal(renameat(b->dir, name, b->dir, older), 0);
  assert_int_equal(unlinkat(b->dir, ".sinks/0-tensorboard", 0), 0);
  bed_row(w, 0, 0, 2);
  bed_flush(w);
  pot_feed(b);
  find_file(b->path, name, sizeof name);
  assert_string_equal(name, older);
  count_records(b->path, "loss", &losses);
  assert_int_equal(losses, 2);
  manta__log_writer_close(w);
}

static void several_workers_have_tags_of_their_own(void **state)
{
  struct bed *b = *state;
  manta_value all = MANTA_MAP(MANTA_KV_STR("workers", "all"));
  manta_sink board = {"tensorboard", &all};
  manta__log_writer *w = bed_writer(b, true);
  int found;
  pot_sinks(b, &board, 1);
  pot_attempt(w, 0, 2, 0);
  bed_row(w, 0, 1, 1);
  bed_row(w, 0, 0, 1);
  bed_flush(w);
  pot_feed(b);
  count_records(b->path, "loss/rank-1", &found);
  assert_int_equal(found, 1);
  manta__log_writer_close(w);
}

// --- by hand -------------------------------------------------------------------------------------

static manta_events *open_events(const char *dir)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_events *e = NULL;
  assert_ok(manta_events_open(&e, dir, &err), &err);
  return e;
}

static void images_are_looked_at_with_care(void **state)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  manta_events *e = open_events(b->path);
  static const char png[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0abcd";
  static const char jpeg[] = "\xff\xd8\xff\xe0\0\x04"
                             "ab\xff\xc0\0\x0b\x08\0\x05\0\x07\x03";
  static const char gif[] = "GIF89a\x02\0\x03\0\0\0\0";
  const struct {
    const char *p;
    size_t n;
  } images[] = {{png, sizeof png - 1}, {jpeg, sizeof jpeg - 1}, {gif, sizeof gif - 1}};
  int found, step = 0;
  for (size_t k = 0; k < 3; k++)
    for (size_t n = 0; n <= images[k].n; n++) { // cut off anywhere: no image, and no harm
      manta_value v = manta_value_borrow_bytes(images[k].p, n);
      manta_value row = MANTA_MAP(MANTA_KV("picture", v));
      assert_ok(manta_events_add(e, ++step, &row, &err), &err);
    }
  manta_events_close(e);
  count_records(b->path, "picture", &found);
  assert_int_equal(found, 3);
}

static void values_of_all_kinds(void **state)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  manta_events *e = open_events(b->path);
  manta_value row = {0};
  int found;
  const char *text = "{\"a\": 1, \"b\": {\"c\": true}, \"d\": [1, 2.5, -3], \"e\": [1, \"x\"],"
                     " \"f\": \"words\", \"g\": [], \"h\": NaN, \"_hidden\": 1}";
  assert_ok(manta_value_from_json(&row, text, strlen(text), &err), &err);
  assert_ok(manta_events_add(e, 1, &row, &err), &err);
  assert_ok(manta_events_text(e, 1, "note", "text", &err), &err);
  assert_ok(manta_events_hparams(e, &row, NULL, "g", &err), &err);
  assert_ok(manta_events_restart(e, 1, &err), &err);
  assert_ok(manta_events_end(e, true, &err), &err);
  manta_value number = manta_value_int(1);
  assert_status(manta_events_add(e, 1, &number, &err), MANTA_ETYPE);
  manta_value_fini(&row);
  manta_events_close(e);
  assert_int_equal(count_records(b->path, "b/c", &found), 1 + 2 + 1 + 1 + 1 + 1);
  assert_int_equal(found, 2); // the row and the parameters
  count_records(b->path, "[1,2.5,-3]", &found);
  assert_int_equal(found, 1); // a list is a parameter in words
  count_records(b->path, "_hidden", &found);
  assert_int_equal(found, 1); // a parameter, not a curve
}

#define bed_test(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      bed_test(one_file_for_the_whole_run),
      bed_test(a_file_that_nobody_has_noted_is_the_same),
      bed_test(several_workers_have_tags_of_their_own),
      bed_test(images_are_looked_at_with_care),
      bed_test(values_of_all_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
