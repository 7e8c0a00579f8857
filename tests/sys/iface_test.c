/* SPDX-License-Identifier: Apache-2.0
 *
 * Interfaces are those of a network namespace of our own, so that their names and routes are known.
 */
#include "sys/iface.h"

#include <sched.h>

#include "test.h"

static struct manta__iface got;
static manta_error err;

// The namespace of this process, which is empty but for a loopback that is down.
static bool alone;

#define NEEDS_NAMESPACE()                                                                          \
  if (!alone)                                                                                      \
  skip_because("network namespaces need root and the command ip")

static int ip(const char *fmt, ...)
{
  char text[500] = "ip ";
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text + 3, sizeof text - 3, fmt, ap);
  va_end(ap);
  return system(text);
}

static int set_up(void **state)
{
  err = (manta_error)MANTA_ERROR_INIT;
  got = (struct manta__iface){0};
  alone = system("ip -V >/dev/null 2>&1") == 0 && unshare(CLONE_NEWNET) == 0;
  return 0;
}

static void cable(const char *name, const char *address)
{
  assert_int_equal(ip("link add %s type veth peer name %s-far", name, name), 0);
  assert_int_equal(ip("addr add %s dev %s", address, name), 0);
  assert_int_equal(ip("link set %s-far up && ip link set %s up", name, name), 0);
}

static void assert_choice(const char *told, const char *other, const char *name,
                          const char *address)
{
  const char *others[] = {NULL, "", other};
  assert_ok(manta__iface_choose(&got, told, others, 3, &err), &err);
  assert_string_equal(got.name, name);
  assert_string_equal(got.address, address);
}

static void by_name_and_by_address(void **state)
{
  NEEDS_NAMESPACE();
  cable("slow", "10.1.0.1/24");
  cable("fast", "10.2.0.1/24");
  assert_int_equal(ip("addr add fd77::1/64 dev fast nodad"), 0);
  assert_choice("fast", NULL, "fast", "10.2.0.1");
  assert_choice("10.2.0.1", NULL, "fast", "10.2.0.1");
  assert_choice("fd77::1", NULL, "fast", "fd77::1");
  assert_choice("slow", "10.2.0.2", "slow", "10.1.0.1"); // what was told counts more
}

static void what_nothing_has_is_an_error(void **state)
{
  static const char *const wrong[] = {"nosuch0", "10.9.9.9", "fe80::1", "node7", "10.1.0.1 "};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(manta__iface_choose(&got, wrong[i], NULL, 0, &err), MANTA_ENOENT);
    assert_non_null(strstr(err.message, wrong[i]));
  }
}

static void by_the_way_to_another_host(void **state)
{
  NEEDS_NAMESPACE();
  cable("slow", "10.1.0.1/24");
  cable("fast", "10.2.0.1/24");
  cable("six", "fd77::1/64 nodad");
  assert_int_equal(ip("route add default via 10.1.0.254"), 0);
  assert_choice(NULL, "10.2.0.2", "fast", "10.2.0.1");
  assert_choice("", "fd77::2", "six", "fd77::1");
  assert_choice(NULL, "10.3.0.1", "slow", "10.1.0.1"); // over the router
  assert_choice(NULL, "a.name", "slow", "10.1.0.1");
  assert_choice(NULL, NULL, "slow", "10.1.0.1");
}

static void without_a_route_the_first_that_is_up(void **state)
{
  NEEDS_NAMESPACE();
  assert_int_equal(manta__iface_choose(&got, NULL, NULL, 0, &err), MANTA_ENOENT);
  assert_int_equal(ip("link set lo up"), 0);
  assert_choice(NULL, "10.2.0.2", "lo", "127.0.0.1");
  cable("off", "10.1.0.1/24");
  assert_int_equal(ip("link set off down"), 0);
  cable("fast", "10.2.0.1/24");
  assert_choice(NULL, NULL, "fast", "10.2.0.1");
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(by_name_and_by_address, set_up),
      cmocka_unit_test_setup(what_nothing_has_is_an_error, set_up),
      cmocka_unit_test_setup(by_the_way_to_another_host, set_up),
      cmocka_unit_test_setup(without_a_route_the_first_that_is_up, set_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
