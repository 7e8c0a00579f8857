/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/guard.h"

#include "scratch.h"

static struct manta__guard guard(void)
{
  struct manta__guard g = {.own = "box.example", .allowed = "runs.example"};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__guard_make_token(&g, &err), &err);
  return g;
}

static void test_tokens(void **state)
{
  struct manta__guard g = guard(), other = guard();
  char wrong[MANTA__TOKEN_MAX + 2], bearer[MANTA__TOKEN_MAX + 16];
  assert_int_equal(strlen(g.token), 32);
  assert_string_not_equal(g.token, other.token);
  assert_true(manta__guard_token_ok(&g, g.token));
  assert_false(manta__guard_token_ok(&g, other.token));
  assert_false(manta__guard_token_ok(&g, NULL));
  assert_false(manta__guard_token_ok(&g, ""));
  for (size_t i = 0; i < strlen(g.token); i++) {
    snprintf(wrong, sizeof wrong, "%s", g.token);
    wrong[i] ^= 1;
    assert_false(manta__guard_token_ok(&g, wrong));
    wrong[i] = 0; // a beginning of it
    assert_false(manta__guard_token_ok(&g, wrong));
  }
  snprintf(wrong, sizeof wrong, "%s0", g.token);
  assert_false(manta__guard_token_ok(&g, wrong));
  snprintf(bearer, sizeof bearer, "bearer %s", g.token);
  assert_true(manta__guard_bearer_ok(&g, bearer));
  assert_false(manta__guard_bearer_ok(&g, g.token));
  assert_false(manta__guard_bearer_ok(&g, "Bearer "));
  assert_false(manta__guard_bearer_ok(&g, NULL));
  assert_false(manta__guard_token_ok(&(struct manta__guard){0}, "")); // none is not one
}

static void test_token_files(void **state)
{
  struct manta__guard g = {0};
  manta_error err = MANTA_ERROR_INIT;
  char *dir = scratch_make(), path[PATH_MAX + 8];
  snprintf(path, sizeof path, "%s/token", dir);
  assert_status(manta__guard_read_token(&g, path, &err), MANTA_ENOENT);
  scratch_write(dir, "token", "0123456789abcdef-_.~\n");
  assert_ok(manta__guard_read_token(&g, path, &err), &err);
  assert_string_equal(g.token, "0123456789abcdef-_.~");
  assert_int_equal(chmod(path, 0640), 0);
  assert_status(manta__guard_read_token(&g, path, &err), MANTA_EINVAL);
  assert_has(err.message, "chmod 600");
  assert_int_equal(chmod(path, 0600), 0);
  scratch_write(dir, "token", "short\n");
  assert_status(manta__guard_read_token(&g, path, &err), MANTA_EINVAL);
  scratch_write(dir, "token", "0123456789abcdef&run=x\n");
  assert_status(manta__guard_read_token(&g, path, &err), MANTA_EINVAL);
  scratch_remove(dir);
}

static void test_hosts(void **state)
{
  struct manta__guard g = guard();
  static const char *const fine[] = {
      "127.0.0.1", "127.0.0.1:8420", "localhost:1",   "LOCALHOST",   "[::1]:8420",
      "[::1]",     "10.0.0.7:80",    "box.example:9", "Box.Example", "runs.example:443"};
  static const char *const bad[] = {"",
                                    "evil.example",
                                    "evil.example:8420",
                                    "localhost.evil.example",
                                    "127.0.0.1.evil.example",
                                    "127.0.0.1:",
                                    "127.0.0.1:80x",
                                    ":8420",
                                    "[::1",
                                    "[::1]x",
                                    "[]:80",
                                    "user@localhost",
                                    "localhost:80:90",
                                    "box.example.",
                                    "127.1"};
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
    if (!manta__guard_host_ok(&g, fine[i]))
      fail_msg("refused: %s", fine[i]);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (manta__guard_host_ok(&g, bad[i]))
      fail_msg("admitted: %s", bad[i]);
  assert_false(manta__guard_host_ok(&g, NULL));
  char name[400];
  memset(name, 'a', sizeof name - 1);
  name[sizeof name - 1] = 0;
  assert_false(manta__guard_host_ok(&g, name));
  g.own[0] = 0; // unknown
  assert_false(manta__guard_host_ok(&g, ""));
}

static void test_origins(void **state)
{
  struct manta__guard g = guard();
  const char *host = "127.0.0.1:8420";
  assert_true(manta__guard_origin_ok(&g, NULL, NULL, host));
  assert_true(manta__guard_origin_ok(&g, "http://127.0.0.1:8420", "same-origin", host));
  assert_true(manta__guard_origin_ok(&g, NULL, "none", host));
  assert_false(manta__guard_origin_ok(&g, "http://127.0.0.1:9999", NULL, host));
  assert_false(manta__guard_origin_ok(&g, "https://127.0.0.1:8420", NULL, host));
  assert_false(manta__guard_origin_ok(&g, "http://evil.example", NULL, host));
  assert_false(manta__guard_origin_ok(&g, "null", NULL, host));
  assert_false(manta__guard_origin_ok(&g, "", NULL, host));
  assert_false(manta__guard_origin_ok(&g, NULL, "cross-site", host));
  assert_false(manta__guard_origin_ok(&g, NULL, "same-site", host)); // another port of ours
  g.tls = true;
  assert_true(manta__guard_origin_ok(&g, "https://127.0.0.1:8420", NULL, host));
  assert_false(manta__guard_origin_ok(&g, "http://127.0.0.1:8420", NULL, host));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tokens),
      cmocka_unit_test(test_token_files),
      cmocka_unit_test(test_hosts),
      cmocka_unit_test(test_origins),
  };
  return cmocka_run_group_tests_name("dash/guard", tests, NULL, NULL);
}
