/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/amx.h - a CPU that says it has AMX but does not say which.
 *
 * Some hypervisors pass CPUID leaf 7 through, which advertises AMX, and end the leaves before 0x1D,
 * which describes its tiles. oneDNN, and so PyTorch, then sets up tiles of zero size and dies with
 * SIGILL on any bf16 work. ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16, set before it is loaded, cures it.
 */
#ifndef MANTA_SYS_AMX_H
#define MANTA_SYS_AMX_H

#include <stdbool.h>
#include <stdint.h>

#define MANTA__AMX_CURE_NAME  "ONEDNN_MAX_CPU_ISA"
#define MANTA__AMX_CURE_VALUE "AVX512_CORE_FP16"

/* What CPUID says: the highest leaf, EDX of leaf 7, and the highest palette (EAX of leaf 0x1D; 0 if
 * there is no such leaf). */
struct manta__amx {
  uint32_t max_leaf, leaf7_edx, palettes;
};
/* Of this CPU; all 0 where there is no CPUID. MANTA_AMX=none, ok or trap (not described) answers
 * instead, for a CPU that is judged wrongly and for tests on any CPU. */
struct manta__amx manta__amx_read(void);
bool manta__amx_advertised(struct manta__amx a);
/* AMX is advertised and its tiles are not described. */
bool manta__amx_is_trap(struct manta__amx a);

#endif
