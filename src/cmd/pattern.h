/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/pattern.h - buffers whose contents are known: a small number per rank and place.
 *
 * The numbers repeat after a prime number of places, so that data that lands where it should not is
 * seen, and are small enough that sums over MANTA__PATTERN_RANKS ranks are exact in every type.
 */
#ifndef MANTA_CMD_PATTERN_H
#define MANTA_CMD_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include <manta/ckpt.h>

#define MANTA__PATTERN_PERIOD 1021
#define MANTA__PATTERN_RANKS  64

struct manta__pattern {
  manta_dtype type;
  size_t size; /* of an element */
  _Alignas(64) uint8_t period[MANTA__PATTERN_PERIOD * 8];
};

/* What rank `rank` sends, or the sum of what the first `ranks` ranks send. Sums that an integer
 * type does not hold are cut to it. */
void manta__pattern_of_rank(struct manta__pattern *p, manta_dtype type, int rank);
void manta__pattern_of_sum(struct manta__pattern *p, manta_dtype type, int ranks);

/* Writes `count` elements, beginning at place `first` of the pattern. */
void manta__pattern_write(const struct manta__pattern *p, void *buf, size_t count, size_t first);
/* How many of them differ from it. */
size_t manta__pattern_wrong(const struct manta__pattern *p, const void *buf, size_t count,
                            size_t first);

#endif
