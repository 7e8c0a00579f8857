/* SPDX-License-Identifier: Apache-2.0
 *
 * data/lines/json.h - JSON, without a tree: values are found, and read only where they are wanted.
 *
 * Grammar is that of RFC 8259, and the words NaN, Infinity and -Infinity, which many programs
 * write.
 */
#ifndef MANTA_DATA_LINES_JSON_H
#define MANTA_DATA_LINES_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANTA__JSON_DEPTH 64

enum manta__json_kind {
  MANTA__JSON_NONE, /* the key is not there */
  MANTA__JSON_NULL,
  MANTA__JSON_BOOL,
  MANTA__JSON_NUMBER,
  MANTA__JSON_STRING, /* p and n: between its quotes */
  MANTA__JSON_ARRAY,
  MANTA__JSON_OBJECT,
};

/* A value where it lies. */
struct manta__json_value {
  enum manta__json_kind kind;
  bool escaped; /* a string with backslashes */
  const char *p;
  size_t n;
};

/* A place in a text, up to its end; `wrong` says what is wrong there. */
struct manta__json {
  const char *p, *end;
  const char *wrong;
};

/* The value at j->p; goes behind it. False: there is none. */
bool manta__json_value(struct manta__json *j, struct manta__json_value *out);
/* Begins an object or an array at j->p; false if there is none. */
bool manta__json_open(struct manta__json *j, char bracket);
/* The next key and value of an object, or value of an array: 1, 0 at its end (which is passed), or
 * -1. `first` for the first call. */
int manta__json_member(struct manta__json *j, bool first, struct manta__json_value *key,
                       struct manta__json_value *value);
int manta__json_item(struct manta__json *j, bool first, struct manta__json_value *value);
/* Nothing but blanks is left. */
bool manta__json_ends(struct manta__json *j);

/* A string without its escapes, into `to`, which has room for value->n bytes: how many it were. -1:
 * an escape that stands for no character. */
int64_t manta__json_unescape(const struct manta__json_value *value, char *to);

#endif
