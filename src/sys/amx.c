/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/amx.h"

#include "base/knob.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define AMX_BITS ((1u << 22) | (1u << 24) | (1u << 25)) // bf16, tile, int8
#define TILES    0x1du

// What MANTA_AMX says in CPUID's place.
static bool told(struct manta__amx *out)
{
  static const struct manta__amx says[] = {
      {7, 0, 0}, {TILES, AMX_BITS, 1}, {7, AMX_BITS, 0}}; // none, ok, trap
  int word = manta__knob_word(MANTA__KNOB_AMX);
  if (word >= 0)
    *out = says[word];
  return word >= 0;
}

struct manta__amx manta__amx_read(void)
{
  struct manta__amx a = {0};
  if (told(&a))
    return a;
#if defined(__x86_64__)
  unsigned eax = 0, ebx, ecx, edx = 0;
  a.max_leaf = __get_cpuid_max(0, 0);
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
    a.leaf7_edx = edx;
  eax = 0;
  if (__get_cpuid_count(TILES, 0, &eax, &ebx, &ecx, &edx))
    a.palettes = eax;
#endif
  return a;
}

bool manta__amx_advertised(struct manta__amx a)
{
  return a.max_leaf >= 7 && (a.leaf7_edx & AMX_BITS) != 0;
}

bool manta__amx_is_trap(struct manta__amx a)
{
  return manta__amx_advertised(a) && (a.max_leaf < TILES || a.palettes == 0);
}
