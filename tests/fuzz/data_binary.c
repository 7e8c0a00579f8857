/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as numpy arrays, zip files of them, TFRecords and records of fixed size. No mutation
 * would ever hit a checksum, so the first byte says whether those of TFRecords are made right.
 */
#include <manta/manta.h>

#include "base/crc.h"
#include "data_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void no_warnings(void *ctx, manta_log_level level, const char *text)
{
}

// Walks over the bytes as records and gives each one that fits its checksums.
static void mend(uint8_t *p, size_t n)
{
  for (size_t at = 0; n - at >= 16;) {
    uint64_t len;
    memcpy(&len, p + at, 8);
    len &= 255;
    len = len <= n - at - 16 ? len : n - at - 16;
    memcpy(p + at, &len, 8);
    uint32_t crc = manta__crc32c_masked(p + at, 8);
    memcpy(p + at + 8, &crc, 4);
    crc = manta__crc32c_masked(p + at + 12, (size_t)len);
    memcpy(p + at + 12 + len, &crc, 4);
    at += 16 + (size_t)len;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_pair fields[] = {{"a", manta_value_borrow_string("i16")},
                         {"b", manta_value_borrow_string("u8[3]")}};
  manta_value types = {.type = MANTA_MAP, .count = 2, .u.pairs = fields};
  if (size == 0)
    return 0;
  manta_set_log(no_warnings, NULL);
  uint8_t how = *data++, *copy = malloc(size);
  need(copy != NULL);
  memcpy(copy, data, --size);
  if (how & 1)
    mend(copy, size);
  fuzz_format(&manta__format_tfrecord, "x.tfrecord", copy, size, c, MANTA__PLAIN, NULL);
  fuzz_format(&manta__format_npy, "x.npy", data, size, c, MANTA__PLAIN, NULL);
  fuzz_format(&manta__format_npz, "x.npz", data, size, c, MANTA__PLAIN, NULL);
  c.types = &types;
  c.skip_bytes = how >> 4;
  fuzz_format(&manta__format_fixed, "x.dat", data, size, c, MANTA__PLAIN, NULL);
  free(copy);
  return 0;
}
