/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels as a processor without SSE2 gets them: plain vectors of the compiler, no stores past
 * the caches. reduce_test.c holds them against the truth.
 */
#include <stdint.h>
#include <string.h>

#include "comm/reduce/isa.h"

#undef __x86_64__
#undef __SSE2__

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif

extern const struct manta__reduce_isa manta__reduce_generic;

#define ISA      generic
#define VBYTES   16
#define INTEGERS 1
#include "comm/reduce/kernels.h"
