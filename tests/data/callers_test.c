/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions over rows in processes of the reader: the same rows as without, each function called
 * once for all loaders, and what happens when it fails, dies or hangs.
 */
#include "data/share/callers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "cells.h"
#include "numbered.h"
#include "sys/proc.h"
#include "threadreader.h"

#define PLACE_ENV "MANTA_TEST_PLACE" /* a directory, for what functions leave behind */

static char *dir;

// --- functions, by their first letters ----------------------------------------------------------

static int64_t number_at(const manta_batch *b, int64_t i)
{
  manta_column c;
  assert_status(manta_batch_column_named(b, "n", &c, NULL), MANTA_OK);
  return ((const int64_t *)c.data)[c.offset + i];
}

// A byte more in a file; its length, with it.
static int64_t leave(const char *name)
{
  char path[PATH_MAX];
  struct stat sb = {0};
  snprintf(path, sizeof path, "%s/%s", getenv(PLACE_ENV), name);
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  bool ok = fd >= 0 && write(fd, "x", 1) == 1 && fstat(fd, &sb) == 0;
  close(fd);
  return ok ? sb.st_size : -1;
}

static int64_t left(const char *name)
{
  char path[PATH_MAX];
  struct stat sb = {0};
  snprintf(path, sizeof path, "%s/%s", getenv(PLACE_ENV), name);
  return stat(path, &sb) < 0 ? 0 : sb.st_size;
}

static manta_status keep_thirds(const manta_batch *in, manta_applied *out, manta_error *err)
{
  uint32_t rows[1024];
  int64_t n = 0;
  for (int64_t i = 0; i < manta_batch_rows(in); i++)
    if (number_at(in, i) % 3 == 0)
      rows[n++] = (uint32_t)i;
  return manta_applied_rows(out, rows, n, err);
}

// Row n becomes n % 3 rows.
static manta_status copy_some(const manta_batch *in, manta_applied *out, manta_error *err)
{
  int64_t n[2048], at = 0;
  uint32_t rows[2048];
  for (int64_t i = 0; i < manta_batch_rows(in); i++)
    for (int64_t k = 0; k < number_at(in, i) % 3; k++, at++) {
      n[at] = number_at(in, i);
      rows[at] = (uint32_t)i;
    }
  manta_column c = {
      .field = {.name = "n", .kind = MANTA_KIND_NUMBER, .dtype = MANTA_I64}, .rows = at, .data = n};
  MANTA_TRY(manta_batch_create(&out->batch, &c, 1, err));
  return manta_applied_rows(out, rows, at, err);
}

static manta_status add_square(const manta_batch *in, manta_applied *out, manta_error *err)
{
  int64_t square[2048], rows = manta_batch_rows(in);
  for (int64_t i = 0; i < rows; i++)
    square[i] = number_at(in, i) * number_at(in, i);
  manta_column c = {.field = {.name = "square", .kind = MANTA_KIND_NUMBER, .dtype = MANTA_I64},
                    .rows = rows,
                    .data = square};
  return manta_batch_create(&out->batch, &c, 1, err);
}

static manta_status do_as(char what, const manta_batch *in, manta_applied *out, manta_error *err)
{
  leave("calls");
  if (what == 'd' && number_at(in, 0) >= 300 && leave("deaths") <= 2)
    manta__proc_signal(getpid(), SIGKILL);
  if (what == 'D') {
    for (int i = 0; i < 2000; i++) // more than there is room for
      printf("last words\n");
    fflush(stdout);
    manta__proc_signal(getpid(), SIGKILL);
  }
  if (what == 'h') {
    leave("hangs");
    pause();
  }
  if (what == 'p')
    dprintf(STDOUT_FILENO, "row %lld\n", (long long)number_at(in, 0));
  if (what == 'f')
    return manta_error_set(err, MANTA_EUSER, "it does not like row %lld",
                           (long long)number_at(in, 0));
  return what == 'c'   ? copy_some(in, out, err)
         : what == 's' ? add_square(in, out, err)
                       : keep_thirds(in, out, err);
}

// --- here and there -----------------------------------------------------------------------------

static manta_status call_here(void *ctx, const manta_batch *in, manta_applied *out,
                              manta_error *err)
{
  return do_as(((const char *)ctx)[0], in, out, err);
}

static manta_status pack_name(void *ctx, manta_value *code, manta_error *err)
{
  return manta_value_set_bytes(code, ctx, strlen(ctx) + 1);
}

static char told[MANTA_ERROR_MESSAGE_MAX + 64];

static void note_raised(void *ctx, const void *detail, size_t bytes, const manta_error *err)
{
  snprintf(told, sizeof told, "%.*s: %s", bytes < 32 ? (int)bytes : 32, (const char *)detail,
           err->message);
}

static manta_status load(const void *code, size_t bytes, void **function, manta_error *err)
{
  *function = strdup(code);
  return MANTA_OK;
}

static manta_status call_there(void *function, uint64_t seed, const manta_batch *in,
                               manta_applied *out, manta_value *detail, manta_error *err)
{
  manta_status st = do_as(((const char *)function)[0], in, out, err);
  if (st < 0)
    manta_value_set_bytes(detail, "beside it", 9);
  return st;
}

static const manta_callers there = {load, call_there};

static manta_status start_caller(void *ctx, const int fds[MANTA__C_FDS], manta_error *err)
{
  char *argv[] = {(char *)"caller", NULL};
  pid_t pid;
  leave("starts");
  return manta__proc_spawn(&pid, "/proc/self/exe", argv, environ, fds, MANTA__C_FDS, -1, err);
}

static manta_dataset *with_function(manta_dataset *d, const char *code, manta_apply_kind kind)
{
  manta_apply_config c = MANTA_APPLY_CONFIG_INIT;
  c.name = code;
  c.kind = kind;
  c.call = call_here;
  c.pack = pack_name;
  c.raised = note_raised;
  c.ctx = (void *)(uintptr_t)code;
  STEP(d, manta_dataset_apply(&step_out, d, &c, &step_err));
  return d;
}

static int set_up(void **state)
{
  dir = scratch_make();
  setenv(PLACE_ENV, dir, 1);
  signal(SIGCHLD, SIG_IGN);
  manta__callers_set_up(start_caller, NULL);
  return 0;
}

static int tear_down(void **state)
{
  manta__callers_end();
  scratch_remove(dir);
  return 0;
}

static void forget(const char *name)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  unlink(path);
}

// --- tests --------------------------------------------------------------------------------------

// Both give the same batches and positions, over two epochs of a shuffle.
static void assert_same(manta_loader *here, manta_loader *away, int columns)
{
  manta_error err = MANTA_ERROR_INIT;
  for (int epoch = 0; epoch < 2; epoch++) {
    manta_batch *a, *b;
    manta_value at = {0}, bt = {0};
    while (manta_loader_next(here, &a, &err) == 1) {
      assert_int_equal(manta_loader_next(away, &b, &err), 1);
      assert_ok(manta_loader_save(here, &at, &err), &err);
      assert_ok(manta_loader_save(away, &bt, &err), &err);
      assert_true(manta_value_equal(&at, &bt));
      manta_value_fini(&at);
      manta_value_fini(&bt);
      assert_int_equal(manta_batch_rows(a), manta_batch_rows(b));
      for (int i = 0; i < columns; i++)
        for (int64_t k = 0; k < a->rows; k++)
          assert_same_cell(&a->column[i], k, &b->column[i], k);
      manta_batch_destroy(a);
      manta_batch_destroy(b);
    }
    assert_int_equal(manta_loader_next(away, &b, &err), 0);
    assert_ok(manta_loader_begin(here, epoch + 1, &err), &err);
    assert_ok(manta_loader_begin(away, epoch + 1, &err), &err);
  }
  manta_loader_close(here);
  manta_loader_close(away);
}

static manta_dataset *open_set(const char *code, manta_apply_kind kind)
{
  manta_dataset *d = with_function(numbered_open(dir, "set", 5, 200, 900), code, kind);
  STEP(d, manta_dataset_shuffle(&step_out, d, 4, 300, &step_err));
  return d;
}

static manta_loader_config options(int rank, int ranks)
{
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  c.batch_rows = 64;
  c.rank = rank;
  c.ranks = ranks;
  return c;
}

// `away` in processes of the reader gives what `here` gives without one.
static void assert_same_as(const char *away, const char *here, manta_apply_kind kind, int columns)
{
  struct thread_reader r = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = options(1, 3);
  manta_dataset *near = open_set(here, kind), *far = open_set(away, kind);
  manta_loader *one, *other = thread_reader_open(&r, far, c);
  assert_ok(manta_loader_open(&one, near, &c, &err), &err);
  assert_same(one, other, columns);
  manta_dataset_close(near);
  manta_dataset_close(far);
  thread_reader_join(&r);
}

static void rows_are_the_same_as_without_a_reader(void **state)
{
  assert_same_as("third", "third", MANTA_APPLY_FILTER, 3);
  assert_same_as("copies", "copies", MANTA_APPLY_ROWS, 1);
  assert_same_as("square", "square", MANTA_APPLY_ADD, 4);
}

static void a_caller_that_dies_is_replaced(void **state)
{
  forget("deaths");
  assert_same_as("die twice", "third", MANTA_APPLY_FILTER, 3);
  assert_in_range(left("deaths"), 3, 1000);
}

static int64_t read_all(manta_loader *l)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b;
  int64_t rows = 0;
  for (manta_status st; (st = manta_loader_next(l, &b, &err)) != 0;) {
    assert_int_equal(st, 1);
    rows += b->rows;
    manta_batch_destroy(b);
  }
  return rows;
}

// Two workers of a host, and another one later: a block goes through the function once.
static void a_function_is_called_once_for_all_workers(void **state)
{
  struct thread_reader r = {0};
  manta_dataset *d = open_set("third, once", MANTA_APPLY_FILTER);
  manta_data_stats stats;
  manta_loader_config c = options(0, 1);
  manta_error err = MANTA_ERROR_INIT;
  int64_t rows = 0, once;
  manta_loader *alone;
  forget("calls");
  assert_ok(manta_loader_open(&alone, d, &c, &err), &err);
  read_all(alone);
  manta_loader_close(alone);
  once = left("calls");
  forget("calls");
  for (int rank = 0; rank < 2; rank++) {
    manta_loader *l = thread_reader_open(&r, d, options(rank, 2));
    rows += read_all(l);
    manta_loader_close(l);
  }
  assert_int_equal(rows, 337);
  assert_int_equal(left("calls"), once);
  manta_dataset_stats(d, &stats);
  assert_true(stats.step > 0);
  manta_dataset_close(d);
  thread_reader_join(&r);
}

static void a_third_death_over_the_same_rows_is_a_failure(void **state)
{
  struct thread_reader r = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = open_set("Die", MANTA_APPLY_FILTER);
  manta_loader *l = thread_reader_open(&r, d, options(0, 1));
  manta_batch *b;
  assert_status(manta_loader_next(l, &b, &err), MANTA_EWORKER);
  assert_has(err.message, "Die: the process that calls it died 3 times over rows");
  assert_has(err.message, "part-0");
  manta_loader_close(l);
  manta_dataset_close(d);
  thread_reader_join(&r);
  static char text[32 << 10];
  manta__callers_take_output(text, sizeof text);
  assert_has(text, "last words\n");
  assert_has(text, " bytes of output left out)\n");
}

static void a_failure_arrives_with_what_lies_beside_it(void **state)
{
  struct thread_reader r = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d =
      with_function(numbered_open(dir, "one", 1, 50, 900), "fail", MANTA_APPLY_FILTER);
  manta_loader *l = thread_reader_open(&r, d, options(0, 1));
  manta_batch *b;
  assert_status(manta_loader_next(l, &b, &err), MANTA_EUSER);
  assert_string_equal(err.message, "it does not like row 0");
  assert_string_equal(told, "beside it: it does not like row 0");
  manta_loader_close(l);
  manta_dataset_close(d);
  thread_reader_join(&r);
}

static void what_functions_print_comes_out_of_a_worker(void **state)
{
  struct thread_reader r = {0};
  manta_dataset *d =
      with_function(numbered_open(dir, "one", 1, 50, 0), "print", MANTA_APPLY_FILTER);
  manta_loader *l = thread_reader_open(&r, d, options(0, 1));
  char text[64] = "";
  int old = dup(STDOUT_FILENO), file = open(dir, O_TMPFILE | O_RDWR, 0600);
  fflush(stdout);
  dup2(file, STDOUT_FILENO);
  int64_t rows = read_all(l);
  dup2(old, STDOUT_FILENO);
  assert_int_equal(rows, 17);
  assert_int_equal(pread(file, text, sizeof text - 1, 0), 6);
  assert_string_equal(text, "row 0\n");
  close(file);
  close(old);
  manta_loader_close(l);
  manta_dataset_close(d);
  thread_reader_join(&r);
}

static void *ask(void *loader)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b;
  assert_true(manta_loader_next(loader, &b, &err) < 0);
  return NULL;
}

static _Atomic bool over;

static manta_status until_over(void *ctx, manta_error *err)
{
  return over ? manta_error_set(err, MANTA_ESTATE, "over") : MANTA_OK;
}

// The worker stops; so does its reader's thread, and the caller is killed.
static void a_function_that_hangs_ends_with_its_workers(void **state)
{
  struct thread_reader r = {0};
  struct manta__share_source source = {&r, thread_reader_connect, until_over};
  struct manta__supply supply;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader_config c = options(0, 1);
  manta_dataset *d = open_set("hang", MANTA_APPLY_FILTER);
  manta_loader *l;
  pthread_t thread;
  assert_ok(manta__loader_config(&c, &c, &err), &err);
  assert_ok(manta__taker_create(&supply, d, &c, &source, &err), &err);
  assert_ok(manta__loader_open(&l, d, &c, &supply, &err), &err);
  assert_int_equal(pthread_create(&thread, NULL, ask, l), 0);
  while (left("hangs") == 0)
    usleep(1000);
  over = true;
  pthread_join(thread, NULL);
  manta_loader_close(l);
  manta_dataset_close(d);
  thread_reader_join(&r); // hangs if the function's process does not end
}

int main(int argc, char **argv)
{
  if (!strcmp(argv[0], "caller")) {
    manta__caller_main((const int[]){3, 4, 5}, &there);
    return 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_the_same_as_without_a_reader),
      cmocka_unit_test(a_caller_that_dies_is_replaced),
      cmocka_unit_test(a_function_is_called_once_for_all_workers),
      cmocka_unit_test(a_third_death_over_the_same_rows_is_a_failure),
      cmocka_unit_test(a_failure_arrives_with_what_lies_beside_it),
      cmocka_unit_test(what_functions_print_comes_out_of_a_worker),
      cmocka_unit_test(a_function_that_hangs_ends_with_its_workers),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
