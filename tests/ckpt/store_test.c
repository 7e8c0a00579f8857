/* SPDX-License-Identifier: Apache-2.0
 *
 * The store: what is written and committed is found again, retention keeps what it should, and
 * leftovers go.
 */
#include <inttypes.h>
#include <sys/mman.h>

#include "ckpt/ckdir.h"
#include "ckpt/origin.h"
#include "store_fixture.h"

/* --- The plain way --- */

static void what_is_committed_is_found(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest *list = NULL, m;
  size_t count = 0;
  int dir;
  assert_status(manta__store_newest(f->run, &dir, &m, &err), MANTA_ENOENT);
  assert_ok(manta__store_list(f->run, true, &list, &count, &err), &err);
  assert_int_equal(count, 0);
  manta_free(list);
  manta__store *s = open_store(f, &keep_all);
  for (uint64_t seed = 1; seed <= 3; seed++)
    put(f, s, seed);
  assert_string_equal(names(f), "000001 000002 000003");
  assert_newest(f, "000003", 3);
  assert_ok(manta__store_list(f->run, true, &list, &count, &err), &err);
  assert_int_equal(count, 3);
  assert_string_equal(list[0].name, "000001");
  assert_int_equal(list[2].id.seq, 3);
  assert_int_equal(list[2].id.run, 0xfedcba9876543210ull);
  assert_int_equal(list[2].world, 4);
  manta_free(list);
  manta__store_close(s);
  s = open_store(f, &keep_all);
  assert_string_equal(put(f, s, 4).name, "000004");
  manta__store_close(s);
  manta__store_close(NULL);
  assert_int_equal(f->warnings, 0);
}

static void count_tick(void *ctx)
{
  ++*(int *)ctx;
}

// For a host that does not have the directory.
static void a_checkpoint_on_disk_becomes_a_slot(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  struct manta__manifest m;
  struct manta__slot_meta *meta;
  struct manta__origin o = {0};
  int dir, slot = -1, ticks = 0;
  manta__store *s = open_store(f, &keep_all);
  put(f, s, 7);
  assert_ok(manta__store_newest(f->run, &dir, &m, &err), &err);
  assert_ok(manta__origin_open(&o, dir, &err), &err);
  assert_ok(manta__checkpoint_to_slot(o.fd, count_tick, &ticks, &slot, &err), &err);
  assert_true(ticks >= 2);
  assert_ok(manta__slot_map_meta(slot, &meta, &err), &err);
  assert_memory_equal(&meta->id, &m.id, sizeof m.id);
  assert_int_equal(meta->state, MANTA__SLOT_RETIRED);
  munmap(meta, MANTA__SLOT_META);
  assert_ok(manta__checkpoint_from_fd(&c, slot, false, &err), &err);
  assert_true(sample_matches(&f->s, c, 7));
  assert_int_equal(manta_checkpoint_iteration(c), m.iteration);
  manta_checkpoint_close(c);
  close(slot);
  manta__origin_close(&o);
  close(dir);
  manta__store_close(s);
}

static void assert_extras(int fd, uint64_t seed, uint64_t extras)
{
  manta_error err = MANTA_ERROR_INIT;
  struct sample s;
  manta_checkpoint *c = NULL;
  sample_init(&s, 1500);
  assert_ok(manta__checkpoint_from_fd(&c, fd, true, &err), &err);
  assert_true(sample_matches(&s, c, seed));
  assert_true(sample_extras_match(c, extras));
  manta_checkpoint_close(c);
  sample_fini(&s);
}

static int save_extras(struct fixture *f, uint64_t seed)
{
  sample_free_others(&f->slots, -1);
  return f->slots.slot[sample_save_extras(&f->slots, &f->s, seed)].fd;
}

// Memory, disk, and a slot out of what is on disk.
static void extras_stay_with_their_checkpoint(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  struct manta__origin o = {0};
  int dir, slot = -1, ticks = 0;
  manta__store *s = open_store(f, &keep_all);
  int fd = save_extras(f, 7);
  assert_extras(fd, 7, 7);
  assert_ok(manta__store_write(s, fd, &m, &err), &err);
  assert_ok(manta__store_commit(s, &m, &err), &err);
  assert_int_equal(m.file_count, 2);
  assert_ok(manta__store_newest(f->run, &dir, &m, &err), &err);
  assert_extras(dir, 7, 7);
  manta_checkpoint *c = NULL;
  FOR_EACH_OOM(manta__checkpoint_from_fd(&c, dir, false, NULL), manta_checkpoint_close(c));
  assert_ok(manta__origin_open(&o, dir, &err), &err);
  assert_ok(manta__checkpoint_to_slot(o.fd, count_tick, &ticks, &slot, &err), &err);
  assert_extras(slot, 7, 7);
  close(slot);
  manta__origin_close(&o);
  close(dir);
  put(f, s, 8); // the next one has none, also in the same slot
  assert_ok(manta__store_newest(f->run, &dir, &m, &err), &err);
  assert_extras(dir, 8, 0);
  close(dir);
  manta__store_close(s);
  s = open_store(f, &keep_all); // that reads all manifests
  manta__store_close(s);
  assert_int_equal(f->warnings, 0);
}

// What is written is not mixed up before it is committed, and given up with its checkpoint.
static void extras_wait_for_their_commit(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m[4], newest;
  int dir;
  manta__store *s = open_store(f, &keep_all);
  assert_ok(manta__store_write(s, save_extras(f, 1), &m[0], &err), &err);
  assert_ok(manta__store_write(s, save(f, 2), &m[1], &err), &err);
  assert_ok(manta__store_write(s, save_extras(f, 3), &m[2], &err), &err);
  assert_ok(manta__store_write(s, save_extras(f, 4), &m[3], &err), &err);
  for (uint64_t i = 0; i < 3; i++) {
    assert_ok(manta__store_commit(s, &m[i], &err), &err);
    assert_ok(manta__store_newest(f->run, &dir, &newest, &err), &err);
    assert_extras(dir, i + 1, i == 1 ? 0 : i + 1);
    close(dir);
  }
  manta__store_discard(s, &m[3]);
  manta__store_discard(s, &m[3]);
  assert_ok(manta__store_write(s, save_extras(f, 5), &m[3], &err), &err); // never committed
  manta__store_close(s);
}

static void an_extra_without_sense_is_not_stored(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  manta__store *s = open_store(f, &keep_all);
  sample_free_others(&f->slots, -1);
  struct manta__slot *slot = &f->slots.slot[sample_save_extras(&f->slots, &f->s, 1)];
  ((uint8_t *)slot->meta)[slot->meta->extra[MANTA__EXTRA_RANDOM].off] = 0xc1;
  assert_status(manta__store_write(s, slot->fd, &m, &err), MANTA_EPROTO);
  assert_string_equal(names(f), "");
  manta__store_close(s);
}

// A rank that comes late finds what its attempt began from, whatever became of the directory.
static void an_origin_outlives_its_files(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__retention last = {.keep_last = 1};
  struct manta__manifest m;
  struct manta__origin o = {0}, again = {0};
  manta_checkpoint *c = NULL;
  int dir, slot = -1, ticks = 0;
  manta__store *s = open_store(f, &last);
  put(f, s, 7);
  assert_ok(manta__store_newest(f->run, &dir, &m, &err), &err);
  assert_ok(manta__origin_open(&o, dir, &err), &err);
  put(f, s, 8); // retention deletes what is open
  assert_status(manta__origin_open(&again, dir, &err), MANTA_ENOENT);
  assert_int_equal(again.count, 0);
  o.given = true;
  assert_ok(manta__origin_dup(&again, &o, &err), &err);
  manta__origin_close(&o);
  manta__origin_close(&o);
  assert_ok(manta__origin_load(&c, &again, true, &err), &err);
  assert_true(sample_matches(&f->s, c, 7));
  assert_true(manta_checkpoint_given(c));
  manta_checkpoint_close(c);
  assert_ok(manta__checkpoint_to_slot(again.fd, count_tick, &ticks, &slot, &err), &err);
  close(slot);
  manta__origin_close(&again);
  assert_status(manta__origin_load(&c, &again, true, &err), MANTA_ENOENT);
  close(dir);
  manta__store_close(s);
}

static void a_directory_that_lacks_a_file_is_no_origin(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  struct manta__origin o = {0};
  int dir;
  manta__store *s = open_store(f, &keep_all);
  put(f, s, 7);
  assert_ok(manta__store_newest(f->run, &dir, &m, &err), &err);
  assert_int_equal(unlinkat(dir, "value.msgpack", 0), 0);
  assert_status(manta__origin_open(&o, dir, &err), MANTA_ECORRUPT);
  assert_has(err.message, "value.msgpack");
  assert_int_equal(o.count, 0);
  close(dir);
  manta__store_close(s);
}

static void a_checkpoint_is_opened_by_path(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  char path[128];
  double scalar;
  manta__store *s = open_store(f, &keep_all);
  put(f, s, 7);
  snprintf(path, sizeof path, "%s/checkpoints/000001", f->path);
  assert_ok(manta_checkpoint_open(&c, path, false, &err), &err);
  assert_true(sample_matches(&f->s, c, 7));
  assert_ok(manta_checkpoint_copy(c, "scalar", &scalar, 8, &err), &err);
  assert_near(scalar, 7.5, 0);
  assert_ok(manta_checkpoint_copy(c, "nothing", NULL, 0, &err), &err);
  assert_status(manta_checkpoint_copy(c, "scalar", &scalar, 4, &err), MANTA_ETYPE);
  assert_has(err.message, "\"scalar\"");
  assert_status(manta_checkpoint_copy(c, "scaler", &scalar, 8, &err), MANTA_ENOENT);
  assert_has(err.message, "\"scaler\"");
  manta_checkpoint_close(c);
  manta_checkpoint_close(NULL);
  assert_status(manta_checkpoint_open(&c, "/nowhere/at/all", false, &err), MANTA_ENOENT);
  assert_status(manta_checkpoint_open(&c, f->path, false, &err), MANTA_ENOENT);
  manta__store_close(s);
}

static void uncommitted_does_not_exist(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  manta__store *s = open_store(f, &keep_all);
  put(f, s, 1);
  assert_ok(manta__store_write(s, save(f, 2), &m, &err), &err);
  assert_newest(f, "000001", 1);
  manta__store_discard(s, &m);
  manta__store_discard(s, &m);
  assert_string_equal(names(f), "000001");
  assert_status(manta__store_commit(s, &m, &err), MANTA_EIO);
  assert_string_equal(put(f, s, 3).name, "000003"); // a number is used once
  manta__store_close(s);
}

static void a_slot_without_sense_is_not_stored(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  manta__store *s = open_store(f, &keep_all);
  int fd = save(f, 1);
  struct manta__slot *slot = &f->slots.slot[f->slot];
  uint8_t *base = (uint8_t *)slot->meta;
  base[MANTA__SLOT_META + 8] ^= 1; // the header's brace
  assert_status(manta__store_write(s, fd, &m, &err), MANTA_ECORRUPT);
  base[MANTA__SLOT_META + 8] ^= 1;
  base[slot->meta->value_off] = 0xc1; // never used in MessagePack
  assert_true(manta__store_write(s, fd, &m, &err) < 0);
  atomic_store(&slot->meta->state, MANTA__SLOT_FILLING);
  assert_status(manta__store_write(s, fd, &m, &err), MANTA_ESTATE);
  assert_status(manta__store_write(s, f->run, &m, &err), MANTA_EINVAL);
  assert_string_equal(names(f), "");
  manta__store_close(s);
}

/* --- Retention --- */

static void retention_keeps_the_last_and_the_best(void **ctx)
{
  static const struct {
    struct manta__retention keep;
    double score[6];
    const char *left;
  } rows[] = {
      {{-1, 0, false}, {1, 2, 3, 4, 5, 6}, "000001 000002 000003 000004 000005 000006"},
      {{0, 0, false}, {1, 2, 3, 4, 5, 6}, "000006"},
      {{2, 0, false}, {1, 2, 3, 4, 5, 6}, "000005 000006"},
      {{1, 1, false}, {1, 9, 3, 4, 5, 6}, "000002 000006"},
      {{1, 1, true}, {5, 9, 1, 4, 5, 6}, "000003 000006"},
      {{1, 2, false}, {7, 7, 7, 1, 1, 1}, "000002 000003 000006"}, // of equals the newer
      {{1, 2, true}, {-1, 0, -2, 4, 5, 6}, "000001 000003 000006"},
      {{2, 1, false}, {1, 2, 3, 4, 5, 9}, "000005 000006"}, // the best is among the last
  };
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    void *inner = NULL;
    setup(&inner);
    struct fixture *f = inner;
    manta__store *s = open_store(f, &rows[k].keep);
    for (int i = 0; i < 6; i++)
      put_scored(f, s, (uint64_t)i + 1, rows[k].score[i]);
    assert_string_equal(names(f), rows[k].left);
    assert_newest(f, "000006", 6);
    manta__store_close(s);
    teardown(&inner);
  }
  manta_set_log(count_warning, *ctx);
}

static void nan_is_no_score(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  manta__store *s = open_store(f, &(struct manta__retention){1, 1, false});
  assert_false(put_scored(f, s, 1, NAN).has_score);
  assert_status(manta__store_best(f->run, false, &m, &err), MANTA_ENOENT);
  put_scored(f, s, 2, -5);
  put_scored(f, s, 3, NAN);
  put_scored(f, s, 4, NAN);
  assert_string_equal(names(f), "000002 000004");
  assert_ok(manta__store_best(f->run, false, &m, &err), &err);
  assert_string_equal(m.name, "000002");
  assert_near(m.score, -5, 0);
  manta__store_close(s);
}

static void a_reader_outlives_retention(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  struct manta__manifest m;
  int dir;
  manta__store *s = open_store(f, &(struct manta__retention){1, 0, false});
  put(f, s, 1);
  assert_ok(manta__store_newest(f->run, &dir, &m, &err), &err);
  assert_ok(manta__checkpoint_from_fd(&c, dir, false, &err), &err);
  put(f, s, 2);
  assert_string_equal(names(f), "000002");
  assert_true(sample_matches(&f->s, c, 1));
  manta_checkpoint_close(c);
  close(dir);
  manta__store_close(s);
}

/* --- Leftovers and damage --- */

static void put_file(struct fixture *f, const char *name, const char *text)
{
  char path[192];
  snprintf(path, sizeof path, "%s/checkpoints/%s", f->path, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
}

static void put_dir(struct fixture *f, const char *name)
{
  char path[192];
  snprintf(path, sizeof path, "%s/checkpoints/%s", f->path, name);
  assert_int_equal(mkdir(path, 0700), 0);
}

static void opening_removes_leftovers_only(void **ctx)
{
  struct fixture *f = *ctx;
  manta__store *s = open_store(f, &keep_all);
  put(f, s, 1);
  put(f, s, 2);
  manta__store_close(s);
  put_dir(f, ".tmp-000003");
  put_file(f, ".tmp-000003/state.safetensors", "half");
  put_dir(f, "000004"); // written, not committed
  put_file(f, "000004/state.safetensors", "whole");
  put_file(f, "000004/.manifest.json.77.tmp", "half");
  put_dir(f, "000005"); // damaged
  put_file(f, "000005/manifest.json", "{}");
  put_dir(f, "mine");
  put_file(f, "notes.txt", "mine");
  put_file(f, "000002/manifest.json.bak", "mine");
  s = open_store(f, &(struct manta__retention){1, 0, false});
  assert_string_equal(names(f), "000001 000002 000005 mine notes.txt");
  assert_int_equal(f->warnings, 1);
  assert_string_equal(put(f, s, 3).name, "000006");
  assert_string_equal(names(f), "000005 000006 mine notes.txt");
  manta__store_close(s);
  assert_newest(f, "000006", 3);
}

static void a_second_store_leaves_the_first_ones_write_alone(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m, n;
  manta__store *a = open_store(f, &keep_all);
  assert_ok(manta__store_write(a, save(f, 1), &m, &err), &err);
  manta__store *b = open_store(f, &keep_all);
  assert_ok(manta__store_write(b, save(f, 2), &n, &err), &err);
  assert_string_equal(n.name, "000002");
  assert_ok(manta__store_commit(a, &m, &err), &err);
  assert_ok(manta__store_commit(b, &n, &err), &err);
  assert_newest(f, "000002", 2);
  assert_status(manta__store_commit(b, &m, &err), MANTA_EINVAL); // older than what is there
  assert_string_equal(names(f), "000001 000002");
  manta__store_close(a);
  manta__store_close(b);
}

static void a_renamed_checkpoint_is_not_believed(void **ctx)
{
  struct fixture *f = *ctx;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest *list;
  size_t count;
  char from[128], to[128];
  manta__store *s = open_store(f, &keep_all);
  put(f, s, 1);
  manta__store_close(s);
  snprintf(from, sizeof from, "%s/checkpoints/000001", f->path);
  snprintf(to, sizeof to, "%s/checkpoints/000009", f->path);
  assert_int_equal(rename(from, to), 0);
  assert_ok(manta__store_list(f->run, false, &list, &count, &err), &err);
  assert_int_equal(count, 0);
  assert_int_equal(f->warnings, 1);
  manta_free(list);
}

static void numbers_have_six_digits_or_more(void **ctx)
{
  static const struct {
    const char *name;
    int64_t number;
  } rows[] = {{"000000", 0},
              {"000012", 12},
              {"999999", 999999},
              {"1000000", 1000000},
              {"0000012", -1},
              {"00012", -1},
              {"", -1},
              {"12345x", -1},
              {"-00012", -1},
              {".tmp-000012", -1},
              {"000012 ", -1},
              {"999999999999999999", 999999999999999999},
              {"9999999999999999999", -1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char again[32];
    assert_int_equal(manta__ckdir_number(rows[i].name), rows[i].number);
    manta__ckdir_name(again, rows[i].number);
    if (rows[i].number >= 0)
      assert_string_equal(again, rows[i].name);
  }
}

// The rank's own files of the snapshot with this number, in attempt 3 as all samples are.
static void make_files(struct fixture *f, uint64_t number)
{
  char path[160];
  snprintf(path, sizeof path, "%s/checkpoints", f->path);
  mkdir(path, 0700);
  snprintf(path, sizeof path, "%s/checkpoints/.files-3-%" PRIu64, f->path, number);
  assert_int_equal(mkdir(path, 0700), 0);
  snprintf(path, sizeof path, "%s/checkpoints/.files-3-%" PRIu64 "/model.pt", f->path, number);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  assert_int_equal(write(fd, "model", 5), 5);
  close(fd);
}

static struct manta__manifest put_with_files(struct fixture *f, manta__store *s, uint64_t seed,
                                             uint64_t files)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  int fd = save(f, seed);
  f->slots.slot[f->slot].meta->files = files;
  assert_ok(manta__store_write(s, fd, &m, &err), &err);
  assert_ok(manta__store_commit(s, &m, &err), &err);
  return m;
}

static bool has_model(struct fixture *f, const char *name)
{
  char path[160];
  snprintf(path, sizeof path, "%s/checkpoints/%s/model.pt", f->path, name);
  return access(path, F_OK) == 0;
}

static void files_go_with_their_checkpoint(void **ctx)
{
  struct fixture *f = *ctx;
  manta__store *s = open_store(f, &(struct manta__retention){.keep_last = 1});
  make_files(f, 5);
  put_with_files(f, s, 6, 5);
  assert_string_equal(names(f), "000001");
  assert_true(has_model(f, "000001"));
  put(f, s, 7);
  assert_string_equal(names(f), "000002");
  assert_false(has_model(f, "000002"));
  assert_newest(f, "000002", 7);
  assert_int_equal(f->warnings, 0);
  manta__store_close(s);
}

static void files_of_what_was_dropped_are_swept(void **ctx)
{
  struct fixture *f = *ctx;
  manta__store *s = open_store(f, &keep_all);
  make_files(f, 2); // of a snapshot that was dropped
  make_files(f, 9); // of one that is still to come
  manta__store_close(s);
  s = open_store(f, &keep_all);
  assert_string_equal(names(f), ".files-3-2 .files-3-9"); // what a user was told is on disk stays
  put(f, s, 5);
  assert_string_equal(names(f), ".files-3-9 000001");
  put_with_files(f, s, 10, 9);
  assert_string_equal(names(f), "000001 000002");
  put_with_files(f, s, 11, 11); // somebody has removed them: the checkpoint counts without
  assert_newest(f, "000003", 11);
  assert_int_equal(f->warnings, 1);
  manta__store_close(s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(what_is_committed_is_found),
      TEST(a_checkpoint_on_disk_becomes_a_slot),
      TEST(extras_stay_with_their_checkpoint),
      TEST(extras_wait_for_their_commit),
      TEST(an_extra_without_sense_is_not_stored),
      TEST(an_origin_outlives_its_files),
      TEST(a_directory_that_lacks_a_file_is_no_origin),
      TEST(a_checkpoint_is_opened_by_path),
      TEST(uncommitted_does_not_exist),
      TEST(a_slot_without_sense_is_not_stored),
      TEST(retention_keeps_the_last_and_the_best),
      TEST(nan_is_no_score),
      TEST(a_reader_outlives_retention),
      TEST(opening_removes_leftovers_only),
      TEST(a_second_store_leaves_the_first_ones_write_alone),
      TEST(a_renamed_checkpoint_is_not_believed),
      TEST(files_go_with_their_checkpoint),
      TEST(files_of_what_was_dropped_are_swept),
      cmocka_unit_test(numbers_have_six_digits_or_more),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
