/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source/codec.h"

#include <string.h>

#include "sys/module.h"

manta_status manta__codec_load(enum manta__compression form, const struct manta__codec **out,
                               manta_error *err)
{
  const char *module = form == MANTA__ZSTD ? "zstd" : "zlib";
  void *symbol;
  MANTA_TRY(manta__module_symbol(module, MANTA__CODEC_ENTRY,
                                 form == MANTA__ZSTD ? "libzstd" : "zlib", &symbol, err));
  const struct manta__codec *const *entry = symbol;
  if ((*entry)->version != MANTA__CODEC_VERSION)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "the module libmanta-%s.so has version %u, this library wants %d",
                           module, (*entry)->version, MANTA__CODEC_VERSION);
  *out = *entry;
  return MANTA_OK;
}

static bool ends_in(const char *name, const char *end)
{
  size_t n = strlen(name), k = strlen(end);
  return n > k && !strcmp(name + n - k, end);
}

enum manta__compression manta__compression_of(const char *name)
{
  return ends_in(name, ".gz") ? MANTA__GZIP : ends_in(name, ".zst") ? MANTA__ZSTD : MANTA__PLAIN;
}

bool manta__compression_parse(enum manta__compression *out, const char *text)
{
  static const char *const names[] = {"none", "gzip", "zstd"};
  for (int i = 0; i < 3; i++)
    if (!strcmp(text, names[i])) {
      *out = (enum manta__compression)i;
      return true;
    }
  return false;
}
