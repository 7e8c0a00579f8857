/* SPDX-License-Identifier: Apache-2.0
 *
 * base/config.h - config structs of whatever age.
 */
#ifndef MANTA_BASE_CONFIG_H
#define MANTA_BASE_CONFIG_H

#include <stddef.h>

#include <manta/status.h>

/* Copies a config that the caller gave into one of ours, of `size` bytes: what an older header does
 * not have is zero, the default. MANTA_EINVAL names the macro that initialises it. */
manta_status manta__config_take(void *out, size_t size, const void *given, const char *macro,
                                manta_error *err);

#endif
