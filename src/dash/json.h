/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/json.h - JSON that browsers take, written piece by piece into a buffer.
 *
 * manta_value_to_json writes NaN and Infinity as bare words, which JSON.parse refuses; here they
 * are null. A failure (memory, the buffer's limit) is kept: the pieces after it do nothing.
 */
#ifndef MANTA_DASH_JSON_H
#define MANTA_DASH_JSON_H

#include <stdbool.h>

#include <manta/value.h>

#include "base/buf.h"

struct manta__dash_json {
  manta__buf *to;
  bool follows; /* an entry was written at this level: a comma comes first */
  manta_status st;
};

/* Opens and closes: '{' '}' '[' ']'. key NULL: an entry of a list, or the whole. */
void manta__dash_open(struct manta__dash_json *j, const char *key, char bracket);
void manta__dash_close(struct manta__dash_json *j, char bracket);
void manta__dash_string(struct manta__dash_json *j, const char *key, const char *s);
void manta__dash_int(struct manta__dash_json *j, const char *key, int64_t i);
void manta__dash_bool(struct manta__dash_json *j, const char *key, bool b);
/* With `digits` significant digits (at most 17). */
void manta__dash_real(struct manta__dash_json *j, const char *key, double r, int digits);
/* Any value; what is nested deeper than it may be is null. */
void manta__dash_value(struct manta__dash_json *j, const char *key, const manta_value *v);

#endif
