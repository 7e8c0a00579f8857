/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests. The input is parsed as it is, and once more with a right check behind it, so that the
 * parser behind the checksum is reached too. What is accepted, fields apart that nobody knows, must
 * be what the writer writes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const char *text, size_t len)
{
  struct manta__manifest m, back;
  struct manta__extras extras = {0}, more = {0};
  manta_error err = MANTA_ERROR_INIT;
  char *again = NULL, *third = NULL;
  size_t n = 0, k = 0;
  manta_status st = manta__manifest_parse(&m, &extras, text, len, &err);
  if (st == MANTA_ECORRUPT && err.message[0])
    return;
  if (st != MANTA_OK || manta__manifest_write(&m, &extras, &again, &n, &err) != MANTA_OK || n > len)
    abort();
  if (manta__manifest_parse(&back, &more, again, n, &err) != MANTA_OK ||
      manta__manifest_write(&back, &more, &third, &k, &err) != MANTA_OK || k != n ||
      memcmp(again, third, n) != 0)
    abort();
  manta__extras_fini(&extras);
  manta__extras_fini(&more);
  manta_free(again);
  manta_free(third);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  parse((const char *)data, size);
  char *text = malloc(size + 64);
  if (!text)
    return 0;
  if (size)
    memcpy(text, data, size);
  int n = snprintf(text + size, 64, ",\"check\":\"%016" PRIx64 "\"}\n", manta__hash(text, size));
  char *exact = realloc(text, size + (size_t)n); // without the NUL
  parse(exact, size + (size_t)n);
  free(exact);
  return 0;
}
