/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define AMX_BITS ((1u << 22) | (1u << 24) | (1u << 25)) // bf16, tile, int8
#define TILES    0x1du

struct manta__amx manta__amx_read(void)
{
  struct manta__amx a = {0};
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
