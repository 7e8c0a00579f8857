/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "test.h"

static const struct {
  manta_status st;
  const char *name;
} all[] = {
#define ROW(name, code, harm, text) {MANTA_##name, #name},
    MANTA_STATUS_MAP(ROW)
#undef ROW
};

static void every_status_has_a_name_and_a_text_of_its_own(void **state)
{
  size_t n = sizeof all / sizeof *all;
  assert_true(n >= 23);
  for (size_t i = 0; i < n; i++) {
    assert_true(all[i].st < 0);
    assert_string_equal(manta_status_name(all[i].st), all[i].name);
    for (size_t k = 0; k < i; k++) {
      assert_int_not_equal(all[i].st, all[k].st);
      assert_string_not_equal(manta_status_text(all[i].st), manta_status_text(all[k].st));
    }
  }
  assert_string_equal(manta_status_text(MANTA_ENOMEM), "out of memory");
  assert_string_equal(manta_status_name(MANTA_OK), "OK");
  assert_string_equal(manta_status_text(MANTA_OK), "success");
}

static manta_status wrap(manta_error *err, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  manta_status st = manta_error_setv(err, MANTA_EIO, fmt, ap);
  va_end(ap);
  return st;
}

static void a_wrapper_can_pass_its_arguments_on(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_status(wrap(&err, "%s %d", "x", 7), MANTA_EIO);
  assert_string_equal(err.message, "x 7");
  assert_status(wrap(NULL, "%s", "x"), MANTA_EIO);
}

static void codes_are_part_of_the_abi(void **state)
{
  assert_int_equal(MANTA_ENOMEM, -1);
  assert_int_equal(MANTA_EPROTO, -11);
  assert_int_equal(MANTA_EWORKER, -40);
  assert_int_equal(MANTA_EPEERLOST, -60);
  assert_int_equal(MANTA_ECORRUPT, -80);
  assert_int_equal(MANTA_EUNEVEN, -83); // the number before it has no name any more
}

static void harm_follows_the_range_of_the_code(void **state)
{
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    manta_harm want = all[i].st <= -80   ? MANTA_HARM_RUN
                      : all[i].st <= -60 ? MANTA_HARM_GROUP
                      : all[i].st <= -40 ? MANTA_HARM_RANK
                                         : MANTA_HARM_OP;
    assert_int_equal(manta_status_harm(all[i].st), want);
  }
  assert_int_equal(manta_status_harm(MANTA_OK), MANTA_HARM_NONE);
}

static void unknown_codes_are_named_too(void **state)
{
  assert_string_equal(manta_status_name((manta_status)-99), "E?");
  assert_string_equal(manta_status_text((manta_status)-99), "unknown status");
  assert_int_equal(manta_status_harm((manta_status)-99), MANTA_HARM_OP);
}

static void set_gives_back_the_code_and_knows_errno(void **state)
{
  manta_error err = {.rank = 7};
  errno = ENOENT;
  assert_status(manta_error_set(&err, MANTA_EIO, "open %s: %m", "x"), MANTA_EIO);
  assert_string_equal(err.message, "open x: No such file or directory");
  assert_int_equal(err.status, MANTA_EIO);
  assert_int_equal(err.rank, -1);
  assert_int_equal(errno, ENOENT);
  assert_status(manta_error_set(NULL, MANTA_EINVAL, "%s", "nobody listens"), MANTA_EINVAL);
}

static void a_long_message_is_cut_and_ends(void **state)
{
  struct {
    manta_error err;
    char guard;
  } e = {.guard = '#'};
  char text[3000];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = 0;
  manta_error_set(&e.err, MANTA_EIO, "%s", text);
  assert_int_equal(strlen(e.err.message), MANTA_ERROR_MESSAGE_MAX - 1);
  assert_int_equal(e.guard, '#');
}

static manta_status pass_on(manta_status st)
{
  MANTA_TRY(st);
  return (manta_status)1;
}

static void try_passes_failures_only(void **state)
{
  assert_status(pass_on(MANTA_EHUNG), MANTA_EHUNG);
  assert_int_equal(pass_on(MANTA_OK), 1);
  assert_int_equal(pass_on((manta_status)5), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_status_has_a_name_and_a_text_of_its_own),
      cmocka_unit_test(a_wrapper_can_pass_its_arguments_on),
      cmocka_unit_test(codes_are_part_of_the_abi),
      cmocka_unit_test(harm_follows_the_range_of_the_code),
      cmocka_unit_test(unknown_codes_are_named_too),
      cmocka_unit_test(set_gives_back_the_code_and_knows_errno),
      cmocka_unit_test(a_long_message_is_cut_and_ends),
      cmocka_unit_test(try_passes_failures_only),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
