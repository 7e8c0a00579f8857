/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/amx.h"

#include "test.h"

#define TILE (1u << 24)

static void a_trap_is_amx_without_its_leaf(void **state)
{
  assert_true(manta__amx_is_trap((struct manta__amx){0x1c, TILE, 0}));
  assert_true(manta__amx_is_trap((struct manta__amx){0x20, TILE, 0})); // there but not filled
  assert_false(manta__amx_is_trap((struct manta__amx){0x20, TILE, 1}));
  assert_false(manta__amx_is_trap((struct manta__amx){0x1c, 0, 0}));
  assert_false(manta__amx_is_trap((struct manta__amx){0x16, 1u << 8, 0})); // another bit
  assert_false(manta__amx_is_trap((struct manta__amx){0, 0, 0}));
}

// The kernel's own list of flags is the independent witness.
static void this_cpu_agrees_with_the_kernel(void **state)
{
  char line[16384];
  bool flag = false;
  FILE *f = fopen("/proc/cpuinfo", "re");
  assert_non_null(f);
  while (!flag && fgets(line, sizeof line, f))
    flag = strncmp(line, "flags", 5) == 0 && strstr(line, " amx_tile");
  fclose(f);
  // the kernel may hide what the CPU has, not the other way round
  assert_true(!flag || manta__amx_advertised(manta__amx_read()));
}

static void the_environment_answers_for_the_cpu(void **state)
{
  struct manta__amx own = manta__amx_read();
  const struct {
    const char *word;
    bool advertised, trap;
  } say[] = {{"none", false, false}, {"ok", true, false}, {"trap", true, true}};
  for (size_t i = 0; i < sizeof say / sizeof *say; i++) {
    setenv("MANTA_AMX", say[i].word, 1);
    assert_int_equal(manta__amx_advertised(manta__amx_read()), say[i].advertised);
    assert_int_equal(manta__amx_is_trap(manta__amx_read()), say[i].trap);
  }
  setenv("MANTA_AMX", "what", 1);
  struct manta__amx again = manta__amx_read();
  assert_memory_equal(&again, &own, sizeof own);
}

int main(void)
{
  unsetenv("MANTA_AMX");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trap_is_amx_without_its_leaf),
      cmocka_unit_test(this_cpu_agrees_with_the_kernel),
      cmocka_unit_test(the_environment_answers_for_the_cpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
