/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as CSV. The first byte chooses options.
 */
#include "data_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const char *const missing[] = {"", "?"};
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value name = manta_value_borrow_string("is_null"), col = {0}, filter = {0};
  if (size == 0)
    return 0;
  uint8_t how = *data++;
  c.no_header = how & 1;
  c.no_quotes = how & 2;
  c.separator = how & 4 ? ';' : 0;
  c.missing = how & 8 ? missing : NULL;
  c.missing_count = 2;
  // ["is_null", ["col", "a"]]
  manta_value word = manta_value_borrow_string("col");
  manta_value column = manta_value_borrow_string(c.no_header ? "c0" : "a");
  need(manta_value_set_list(&col) == MANTA_OK && manta_value_append(&col, &word) == MANTA_OK);
  need(manta_value_append(&col, &column) == MANTA_OK);
  need(manta_value_set_list(&filter) == MANTA_OK && manta_value_append(&filter, &name) == MANTA_OK);
  need(manta_value_append(&filter, &col) == MANTA_OK);
  fuzz_format(&manta__format_csv, how & 16 ? "x.tsv" : "x.csv", data, size - 1, c, MANTA__PLAIN,
              how & 32 ? &filter : NULL);
  manta_value_fini(&filter);
  return 0;
}
