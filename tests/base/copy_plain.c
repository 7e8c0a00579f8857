/* SPDX-License-Identifier: Apache-2.0
 *
 * base/copy.c as a processor without stores past the caches runs it.
 */
#include <stdint.h>
#include <string.h>

#include "copy_ways.h"

#define manta__copy       plain_copy
#define manta__copy_past  plain_copy_past
#define manta__copy_fence plain_copy_fence
#undef __x86_64__
#include "base/copy.c"
