/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce_scalar.c - the kernels for any CPU of the architecture (16-byte vectors: SSE2, NEON).
 */
#include <stdint.h>
#include <string.h>

#include "comm/reduce_isa.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif

#define ISA    scalar
#define VBYTES 16
#include "comm/reduce_kernels.h"
