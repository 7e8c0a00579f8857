/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce/scalar.c - the kernels for any CPU of the architecture (16-byte vectors: SSE2, NEON).
 */
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "comm/reduce/isa.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif

#define ISA      scalar
#define VBYTES   16
#define INTEGERS 1
#include "comm/reduce/kernels.h"
