/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/leaves.h - a row without its nesting: {"a": {"b": 1}} is "a/b" and 1.
 */
#ifndef MANTA_SINK_LEAVES_H
#define MANTA_SINK_LEAVES_H

#include <manta/value.h>

#include "base/buf.h"

/* Gets each entry that is no map, in the order of the row. name: UTF-8 whatever the keys were, and
 * borrowed for the call. A failure ends it. */
typedef manta_status (*manta__leaf)(void *ctx, const char *name, const manta_value *v);

/* path: memory for names, kept by the caller from row to row. MANTA_ENOMEM, MANTA_ETOOBIG past its
 * limit, or what `leaf` gave. */
manta_status manta__leaves(const manta_value *row, manta__buf *path, manta__leaf leaf, void *ctx);

/* Appends n bytes of text as UTF-8: a byte that is none becomes U+FFFD. */
manta_status manta__utf8_append(manta__buf *b, const char *s, size_t n);

#endif
