/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce/avx2.c - the kernels for AVX2 and F16C. Runs only where reduce.c found both.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "comm/reduce/isa.h"

// Pragmas, not compiler flags: the inline functions of the headers above must stay baseline code.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC optimize("O3", "fp-contract=off")
#pragma GCC target("avx2,f16c")
#endif

#define ISA      avx2
#define VBYTES   32
#define INTEGERS 0
#include "comm/reduce/kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
