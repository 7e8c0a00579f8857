/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/example.h - tf.train.Example, read straight from its bytes.
 *
 * Its message is small and will not change: Example has Features, these a map from names to
 * Feature, and a Feature a list of bytes, of floats or of integers. Parsed by hand, only the
 * features that are wanted are looked at, and nothing is allocated per record; a protobuf library
 * would build all of it.
 */
#ifndef MANTA_DATA_BINARY_EXAMPLE_H
#define MANTA_DATA_BINARY_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a message; `p` moves on to `end`. */
struct manta__proto {
  const uint8_t *p, *end;
};

enum manta__feature_kind {
  MANTA__FEATURE_NONE, /* no list, or the feature is not there */
  MANTA__FEATURE_BYTES,
  MANTA__FEATURE_FLOATS,
  MANTA__FEATURE_INTS,
};

struct manta__feature {
  enum manta__feature_kind kind;
  struct manta__proto list; /* the message that holds the values */
};

/* The next feature of an Example: 1, 0 at the end, -1: the message makes no sense. Starts with
 * {.example = bytes}. */
struct manta__example {
  struct manta__proto example, features;
};
int manta__example_next(struct manta__example *e, const char **name, size_t *name_n,
                        struct manta__feature *out);

/* How many values a feature has; -1: it makes no sense. */
int64_t manta__feature_count(const struct manta__feature *f);
/* The values, one after the other: 1, 0 at the end, -1. Floats come as their bits. */
struct manta__feature_values {
  struct manta__proto list, packed;
};
int manta__feature_number(struct manta__feature_values *v, enum manta__feature_kind kind,
                          int64_t *out);
int manta__feature_bytes(struct manta__feature_values *v, const char **p, size_t *n);

#endif
