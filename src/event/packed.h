/* SPDX-License-Identifier: Apache-2.0
 *
 * event/packed.h - the numbers of a row, straight from its packed form.
 */
#ifndef MANTA_EVENT_PACKED_H
#define MANTA_EVENT_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `name` is not NUL-terminated, and borrowed for the call. */
typedef void manta__packed_number_fn(void *ctx, const char *name, size_t len, double value);

/* Calls fn for every number and flag (0 or 1) of a packed map, in order; those of maps inside it
 * under "outer/inner". Lists, text and what is nested too deeply are passed over. False: it is no
 * map, or is cut off; what came before has been given. */
bool manta__packed_numbers(const uint8_t *p, size_t n, manta__packed_number_fn *fn, void *ctx);

#endif
