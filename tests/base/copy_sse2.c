/* SPDX-License-Identifier: Apache-2.0
 *
 * base/copy.c as an x86-64 without AVX2 runs it.
 */
#include <stdint.h>
#include <string.h>

#include "copy_ways.h"

#define manta__copy       sse2_copy
#define manta__copy_past  sse2_copy_past
#define manta__copy_fence sse2_copy_fence
#if defined(__x86_64__)
#include <immintrin.h>
#define __builtin_cpu_supports(what) 0
#endif
#include "base/copy.c"
