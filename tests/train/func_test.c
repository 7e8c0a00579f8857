/* SPDX-License-Identifier: Apache-2.0
 *
 * How a train function travels: by name, or as a place in an object that every worker has.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "train/func.h"

static manta_status by_name(manta_session *s, manta_value *result, manta_error *err)
{
  return MANTA_OK;
}
MANTA_TRAIN("by name", by_name)

static manta_status by_place(manta_session *s, manta_value *result, manta_error *err)
{
  return MANTA_EUSER;
}

static manta_value described(manta_train_fn fn)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  assert_ok(manta_value_set_map(&v), &err);
  assert_ok(manta__func_describe(&v, fn, &err), &err);
  return v;
}

static void a_registered_function_travels_by_its_name(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_train_fn fn = NULL;
  manta_value v = described(by_name);
  assert_string_equal(manta_value_as_string(manta_value_get(&v, "fn"), ""), "by name");
  assert_null(manta_value_get(&v, "fn_offset"));
  assert_ok(manta__func_find(&fn, &v, &err), &err);
  assert_true(fn == by_name);
  // Another build may take it: only the name counts.
  assert_ok(manta_value_put_int(&v, "build", 1), &err);
  assert_ok(manta__func_find(&fn, &v, &err), &err);
  manta_value_fini(&v);
}

static void a_pointer_travels_as_a_place(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_train_fn fn = NULL;
  manta_value v = described(by_place);
  assert_null(manta_value_get(&v, "fn"));
  assert_string_equal(manta_value_as_string(manta_value_get(&v, "fn_object"), "?"), "");
  assert_ok(manta__func_find(&fn, &v, &err), &err);
  assert_true(fn == by_place);
  assert_int_equal(fn(NULL, NULL, NULL), MANTA_EUSER);
  assert_ok(manta_value_put_int(&v, "build", 1), &err);
  assert_status(manta__func_find(&fn, &v, &err), MANTA_ENOENT);
  assert_has(err.message, "another build of the program\nhint: MANTA_TRAIN");
  manta_value_fini(&v);
}

static void the_build_is_told_from_another(void **ctx)
{
  manta_value v = described(by_place), w = described(by_name);
  int64_t build = manta_value_as_int(manta_value_get(&v, "build"), 0);
  assert_true(build != 0); // of the build id, which the linker is asked for
  assert_int_equal(manta_value_as_int(manta_value_get(&w, "build"), 0), build);
  manta_value_fini(&v);
  manta_value_fini(&w);
}

static void an_object_loaded_later_is_refused_with_a_hint(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  manta_train_fn fn, found = NULL;
  void *object = dlopen(LATE_OBJECT, RTLD_NOW | RTLD_LOCAL);
  assert_non_null(object);
  *(void **)&fn = dlsym(object, "late_train");
  assert_non_null(fn);
  assert_ok(manta_value_set_map(&v), &err);
  assert_status(manta__func_describe(&v, fn, &err), MANTA_EINVAL);
  assert_has(err.message, LATE_OBJECT);
  assert_has(err.message, "loaded after manta_init");
  assert_has(err.message, "\nhint: ");
  assert_int_equal(v.count, 0);
  manta__func_note_objects(); // now it is one that every worker has
  assert_ok(manta__func_describe(&v, fn, &err), &err);
  assert_string_equal(manta_value_as_string(manta_value_get(&v, "fn_object"), ""), LATE_OBJECT);
  assert_ok(manta__func_find(&found, &v, &err), &err);
  assert_true(found == fn);
  manta_value_fini(&v);
  dlclose(object);
}

static void what_is_no_code_is_refused(void **ctx)
{
  static int data;
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  void *places[] = {&data, &err, (void *)16};
  assert_ok(manta_value_set_map(&v), &err);
  for (int i = 0; i < 3; i++) {
    manta_train_fn fn;
    memcpy(&fn, &places[i], sizeof fn);
    assert_status(manta__func_describe(&v, fn, &err), MANTA_EINVAL);
    assert_has(err.message, "is not code of this program");
  }
  assert_status(manta__func_describe(&v, NULL, &err), MANTA_EINVAL);
  assert_int_equal(v.count, 0);
  manta_value_fini(&v);
}

static void what_nobody_registered_is_not_found(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_train_fn fn = NULL;
  manta_value v = MANTA_MAP(MANTA_KV_STR("fn", "nobody")), empty = {0};
  assert_status(manta__func_find(&fn, &v, &err), MANTA_ENOENT);
  assert_has(err.message, "\"nobody\"");
  assert_status(manta__func_find(&fn, &empty, &err), MANTA_ENOENT);
  manta_value gone = MANTA_MAP(MANTA_KV_STR("fn_object", "/no/such/object.so"),
                               MANTA_KV_INT("fn_offset", 64), MANTA_KV_INT("build", 0));
  assert_status(manta__func_find(&fn, &gone, &err), MANTA_ENOENT);
  assert_has(err.message, "/no/such/object.so");
  assert_null(fn);
}

// A place beyond the code of its object (a damaged or foreign spec) must not be jumped to.
static void a_place_outside_of_the_code_is_refused(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_train_fn fn = NULL;
  manta_value v = described(by_place);
  assert_ok(manta_value_put_int(&v, "fn_offset", INT64_C(1) << 40), &err);
  assert_status(manta__func_find(&fn, &v, &err), MANTA_ENOENT);
  assert_null(fn);
  manta_value_fini(&v);
}

static int in_child(const char *name, manta_train_fn fn, char *said, size_t size)
{
  int p[2], status;
  assert_int_equal(pipe(p), 0);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(p[1], STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    manta_register(name, fn);
    _exit(0);
  }
  close(p[1]);
  ssize_t n = read(p[0], said, size - 1);
  said[n > 0 ? n : 0] = 0;
  close(p[0]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

static void two_functions_of_one_name_abort(void **ctx)
{
  char said[256];
  int status = in_child("by name", by_place, said, sizeof said);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  assert_has(said, "two train functions are registered as \"by name\"");
  assert_int_equal(in_child("by name", by_name, said, sizeof said), 0); // the same again
  assert_int_equal(in_child("another", by_name, said, sizeof said), 0);
}

int main(int argc, char **argv)
{
  manta__func_note_objects();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_registered_function_travels_by_its_name),
      cmocka_unit_test(a_pointer_travels_as_a_place),
      cmocka_unit_test(the_build_is_told_from_another),
      cmocka_unit_test(an_object_loaded_later_is_refused_with_a_hint),
      cmocka_unit_test(what_is_no_code_is_refused),
      cmocka_unit_test(what_nobody_registered_is_not_found),
      cmocka_unit_test(a_place_outside_of_the_code_is_refused),
      cmocka_unit_test(two_functions_of_one_name_abort),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
