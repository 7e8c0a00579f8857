/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "test.h"

static void zero_is_an_empty_buffer_of_limit_zero(void **state)
{
  manta__buf b = {0};
  assert_status(manta__buf_append(&b, "", 0), MANTA_OK);
  assert_status(manta__buf_putc(&b, 'x'), MANTA_ETOOBIG);
  manta__buf_fini(&b);
  manta__buf_fini(&b);
}

static void bytes_come_out_as_they_went_in(void **state)
{
  manta__buf b;
  size_t len = 0;
  manta__buf_init(&b, 1 << 20);
  for (int i = 0; i < 5000; i++)
    assert_status(manta__buf_putc(&b, (char)(i * 7)), MANTA_OK);
  assert_status(manta__buf_puts(&b, "end"), MANTA_OK);
  char *p = manta__buf_release(&b, &len);
  assert_int_equal(len, 5003);
  for (int i = 0; i < 5000; i++)
    assert_int_equal(p[i], (char)(i * 7));
  assert_memory_equal(p + 5000, "end", 3);
  assert_null(b.data);
  assert_int_equal(b.len + b.cap, 0);
  assert_status(manta__buf_puts(&b, "again"), MANTA_OK); // the limit stays
  manta_free(p);
  manta__buf_fini(&b);
}

static void the_limit_is_kept_to_the_byte(void **state)
{
  manta__buf b;
  manta__buf_init(&b, 100);
  char chunk[99] = {0};
  assert_status(manta__buf_append(&b, chunk, 99), MANTA_OK);
  assert_status(manta__buf_append(&b, "ab", 2), MANTA_ETOOBIG);
  assert_status(manta__buf_reserve(&b, SIZE_MAX), MANTA_ETOOBIG);
  assert_int_equal(b.len, 99);
  assert_status(manta__buf_putc(&b, 'a'), MANTA_OK);
  assert_status(manta__buf_terminate(&b), MANTA_ETOOBIG);
  assert_true(b.cap <= 100);
  manta__buf_fini(&b);
}

static void printf_writes_all_or_nothing(void **state)
{
  manta__buf b;
  manta__buf_init(&b, 12);
  assert_status(manta__buf_printf(&b, "%s-%d", "abc", 42), MANTA_OK);
  assert_int_equal(b.len, 6);
  assert_status(manta__buf_printf(&b, "%s", "1234567"), MANTA_ETOOBIG);
  assert_int_equal(b.len, 6);
  assert_status(manta__buf_printf(&b, "%s", "12345"), MANTA_OK);
  assert_status(manta__buf_terminate(&b), MANTA_OK);
  assert_int_equal(b.len, 11);
  assert_string_equal((char *)b.data, "abc-4212345");
  manta__buf_fini(&b);
}

static void consume_drops_from_the_front(void **state)
{
  manta__buf b;
  manta__buf_init(&b, 100);
  assert_status(manta__buf_puts(&b, "abcdef"), MANTA_OK);
  manta__buf_consume(&b, 0);
  assert_int_equal(b.len, 6);
  manta__buf_consume(&b, 2);
  assert_int_equal(b.len, 4);
  assert_memory_equal(b.data, "cdef", 4);
  manta__buf_consume(&b, 100);
  assert_int_equal(b.len, 0);
  manta__buf_fini(&b);
}

static void any_oom_keeps_the_content(void **state)
{
  manta__buf b;
  manta__buf_init(&b, 10000);
  FOR_EACH_OOM(manta__buf_puts(&b, "kept"), );
  char more[5000] = {0};
  FOR_EACH_OOM(manta__buf_append(&b, more, sizeof more), );
  assert_memory_equal(b.data, "kept", 4);
  assert_int_equal(b.len, 5004);
  manta__buf_fini(&b);
  manta__buf_init(&b, 100);
  FOR_EACH_OOM(manta__buf_printf(&b, "%d", 5), );
  assert_int_equal(b.len, 1);
  manta__buf_fini(&b);
}

static void strings_are_copied_and_starved(void **state)
{
  char *p = manta__strndup("abcdef", 3);
  assert_string_equal(p, "abc");
  manta__free(p);
  p = manta__asprintf("%d%%", 7);
  assert_string_equal(p, "7%");
  manta__free(p);
  manta__alloc_fail_after(1);
  p = manta__strdup("first");
  assert_non_null(p);
  assert_null(manta__strdup("second"));
  void *q = manta__calloc(2, 2); // only the one fails
  assert_non_null(q);
  assert_int_equal(manta__alloc_fail_after(-1), 3);
  assert_null(manta__calloc(SIZE_MAX / 2, 4));
  manta__free(p);
  manta__free(q);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(zero_is_an_empty_buffer_of_limit_zero),
      cmocka_unit_test(bytes_come_out_as_they_went_in),
      cmocka_unit_test(the_limit_is_kept_to_the_byte),
      cmocka_unit_test(printf_writes_all_or_nothing),
      cmocka_unit_test(consume_drops_from_the_front),
      cmocka_unit_test(any_oom_keeps_the_content),
      cmocka_unit_test(strings_are_copied_and_starved),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
