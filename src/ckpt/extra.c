/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/extra.h"

#include <string.h>

#include "base/alloc.h"

const char *manta__extra_name(enum manta__extra which)
{
  static const char *const names[MANTA__EXTRA_COUNT] = {
      [MANTA__EXTRA_DATA] = "data", [MANTA__EXTRA_RANDOM] = "random"};
  return names[which];
}

manta_status manta__extras_put(struct manta__extras *e, enum manta__extra which, const void *bytes,
                               size_t len, manta_error *err)
{
  uint8_t *copy = manta__malloc(len);
  if (!copy)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for \"%s\" of a checkpoint",
                           manta__extra_name(which));
  memcpy(copy, bytes, len);
  manta__free(e->item[which].bytes);
  e->item[which] = (struct manta__extra_bytes){copy, len};
  return MANTA_OK;
}

manta_status manta__extras_value(const struct manta__extras *e, enum manta__extra which,
                                 manta_value *out, manta_error *err)
{
  const struct manta__extra_bytes *b = &e->item[which];
  return b->len ? manta_value_unpack(out, b->bytes, b->len, err) : MANTA_OK;
}

void manta__extras_fini(struct manta__extras *e)
{
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++)
    manta__free(e->item[i].bytes);
  *e = (struct manta__extras){0};
}
