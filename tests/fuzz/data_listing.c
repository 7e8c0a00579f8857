/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: listings of S3 buckets. Whatever comes, pages end, and keys are text.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "remote/s3.h"

static manta_status on_key(void *ctx, const struct manta__s3_object *object, manta_error *err)
{
  size_t *all = ctx;
  if ((*all += strlen(object->key) + 1) > *(all + 1))
    abort(); // more than was there
  return MANTA_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
  size_t all[2] = {0, n};
  char *token, *text = malloc(n + 1);
  memcpy(text, data, n); // of just this size: reading on is seen
  manta__s3_page(text, n, on_key, all, &token, NULL);
  manta__free(token);
  free(text);
  return 0;
}
