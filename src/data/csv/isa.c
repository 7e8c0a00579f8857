/* SPDX-License-Identifier: Apache-2.0 */
#include "data/csv/isa.h"

#include <stdatomic.h>
#include <string.h>

#include "base/knob.h"

#if defined(__x86_64__)
static bool has_avx2(void)
{
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("popcnt");
}

static bool has_avx512(void)
{
  return has_avx2() && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

// The widest first.
static const struct manta__csv_isa *sets(int i)
{
  __builtin_cpu_init();
  return i == 0   ? has_avx512() ? &manta__csv_avx512 : NULL
         : i == 1 ? has_avx2() ? &manta__csv_avx2 : NULL
                  : &manta__csv_scalar;
}
#define SETS 3
#else
static const struct manta__csv_isa *sets(int i)
{
  return &manta__csv_scalar;
}
#define SETS 1
#endif

const struct manta__csv_isa *manta__csv_isa_named(const char *name)
{
  for (int i = 0; i < SETS; i++)
    if (sets(i) && !strcmp(sets(i)->name, name))
      return sets(i);
  return NULL;
}

static const struct manta__csv_isa *choose(const char *limit)
{
  const struct manta__csv_isa *named = limit ? manta__csv_isa_named(limit) : NULL;
  for (int i = 0; i < SETS && !named; i++)
    named = sets(i);
  return named;
}

const struct manta__csv_isa *manta__csv_isa(void)
{
  static const struct manta__csv_isa *_Atomic chosen; // threads that race find the same answer
  const struct manta__csv_isa *i = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (!i) {
    i = choose(manta__knob_text(MANTA__KNOB_DATA_ISA));
    atomic_store_explicit(&chosen, i, memory_order_relaxed);
  }
  return i;
}
