/* SPDX-License-Identifier: Apache-2.0
 *
 * base/config.c - a program built against an older header has a shorter struct.
 */
#include "base/config.h"

#include <string.h>

manta_status manta__config_take(void *out, size_t size, const void *given, const char *macro,
                                manta_error *err)
{
  size_t theirs;
  memcpy(&theirs, given, sizeof theirs);
  if (theirs < sizeof theirs || theirs > size)
    return manta_error_set(err, MANTA_EINVAL,
                           "a config is not initialised, or made for a newer libmanta: use %s",
                           macro);
  memset(out, 0, size);
  memcpy(out, given, theirs);
  return MANTA_OK;
}
