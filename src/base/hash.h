/* SPDX-License-Identifier: Apache-2.0
 *
 * base/hash.h - XXH3, the one checksum of manta.
 */
#ifndef MANTA_BASE_HASH_H
#define MANTA_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include <xxhash.h>

static inline uint64_t manta__hash(const void *p, size_t n)
{
  return XXH3_64bits(p, n);
}

static inline uint64_t manta__hash_seed(const void *p, size_t n, uint64_t seed)
{
  return XXH3_64bits_withSeed(p, n, seed);
}

#endif
