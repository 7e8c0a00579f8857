/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/ckpt/store_fixture.h - a run directory, slots to save into, and a count of warnings.
 */
#ifndef MANTA_TESTS_CKPT_STORE_FIXTURE_H
#define MANTA_TESTS_CKPT_STORE_FIXTURE_H

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>

#include "ckpt/store.h"
#include "sample.h"
#include "sys/file.h"

static const struct manta__retention keep_all = {-1, 0, false};

struct fixture {
  char path[64];
  int run;
  struct manta__slots slots;
  struct sample s;
  int slot; /* the one saved last */
  int warnings;
};

static inline void count_warning(void *ctx, manta_log_level level, const char *text)
{
  ((struct fixture *)ctx)->warnings += level == MANTA_LOG_WARN;
}

static inline int setup(void **ctx)
{
  struct fixture *f = calloc(1, sizeof *f);
  f->run = temp_dir(f->path);
  manta__slots_init(&f->slots);
  sample_init(&f->s, 1500);
  manta_set_log(count_warning, f);
  *ctx = f;
  return 0;
}

static inline int teardown(void **ctx)
{
  struct fixture *f = *ctx;
  manta_set_log(NULL, NULL);
  manta__file_fault(0, 0, 0);
  manta__slots_fini(&f->slots);
  sample_fini(&f->s);
  close(f->run);
  temp_dir_drop(f->path);
  free(f);
  return 0;
}

static inline manta__store *open_store(struct fixture *f, const struct manta__retention *keep)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__store *s = NULL;
  assert_ok(manta__store_open(&s, f->run, keep, &err), &err);
  return s;
}

static inline int save(struct fixture *f, uint64_t seed)
{
  sample_free_others(&f->slots, -1);
  f->slot = sample_save(&f->slots, &f->s, seed);
  return f->slots.slot[f->slot].fd;
}

static inline struct manta__manifest put(struct fixture *f, manta__store *s, uint64_t seed)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  assert_ok(manta__store_write(s, save(f, seed), &m, &err), &err);
  assert_ok(manta__store_commit(s, &m, &err), &err);
  return m;
}

static inline struct manta__manifest put_scored(struct fixture *f, manta__store *s, uint64_t seed,
                                                double score)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  int fd = save(f, seed);
  f->slots.slot[f->slot].meta->has_score = 1;
  f->slots.slot[f->slot].meta->score = score;
  assert_ok(manta__store_write(s, fd, &m, &err), &err);
  assert_ok(manta__store_commit(s, &m, &err), &err);
  return m;
}

// Names under checkpoints/ (sorted, spaces between), hidden ones too.
static inline const char *names(struct fixture *f)
{
  static char text[1024];
  char path[128];
  struct dirent **list;
  size_t len = 0;
  snprintf(path, sizeof path, "%s/checkpoints", f->path);
  int n = scandir(path, &list, NULL, alphasort);
  assert_true(n >= 2);
  text[0] = 0;
  for (int i = 0; i < n; i++) {
    if (strcmp(list[i]->d_name, ".") != 0 && strcmp(list[i]->d_name, "..") != 0)
      len +=
          (size_t)snprintf(text + len, sizeof text - len, "%s%s", len ? " " : "", list[i]->d_name);
    free(list[i]);
  }
  free(list);
  return text;
}

static inline void assert_newest(struct fixture *f, const char *name, uint64_t seed)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m;
  manta_checkpoint *c = NULL;
  int dir = -1;
  assert_ok(manta__store_newest(f->run, &dir, &m, &err), &err);
  assert_string_equal(m.name, name);
  assert_ok(manta__checkpoint_from_fd(&c, dir, true, &err), &err);
  assert_true(sample_matches(&f->s, c, seed));
  assert_int_equal(manta_checkpoint_iteration(c), (int64_t)seed * 10);
  manta_checkpoint_close(c);
  close(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
