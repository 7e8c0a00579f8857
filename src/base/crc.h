/* SPDX-License-Identifier: Apache-2.0
 *
 * base/crc.h - the two checksums of file formats: CRC-32 (zip) and CRC-32C (TFRecord).
 */
#ifndef MANTA_BASE_CRC_H
#define MANTA_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Of n bytes behind those that `crc` is of; 0 at the beginning. */
uint32_t manta__crc32(uint32_t crc, const void *p, size_t n);
uint32_t manta__crc32c(uint32_t crc, const void *p, size_t n);

/* What TFRecord stores: a checksum of bytes that hold checksums would be weak. */
static inline uint32_t manta__crc32c_masked(const void *p, size_t n)
{
  uint32_t crc = manta__crc32c(0, p, n);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

#endif
