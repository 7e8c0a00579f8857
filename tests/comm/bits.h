/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/bits.h - an element of any type, as the lowest bytes of a word. The sizes are written
 * out: memcpy of a size that only the caller knows is a call per element under AddressSanitizer.
 */
#ifndef MANTA_TEST_BITS_H
#define MANTA_TEST_BITS_H

#include <stdint.h>
#include <string.h>

static inline void put_bits(void *to, uint64_t bits, size_t size)
{
  if (size == 1)
    memcpy(to, &bits, 1);
  else if (size == 2)
    memcpy(to, &bits, 2);
  else if (size == 4)
    memcpy(to, &bits, 4);
  else
    memcpy(to, &bits, 8);
}

#endif
