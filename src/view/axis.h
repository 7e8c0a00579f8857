/* SPDX-License-Identifier: Apache-2.0
 *
 * view/axis.h - a range of values, its ticks, and their labels.
 */
#ifndef MANTA_VIEW_AXIS_H
#define MANTA_VIEW_AXIS_H

#include <stdbool.h>

#include "view/text.h"

#define MANTA__TICKS_MAX 12

struct manta__axis {
  double low, high; /* low < high; both > 0 with `log` */
  bool log;
  int count;
  double tick[MANTA__TICKS_MAX];
  bool whole; /* there is nothing between two whole numbers */
  int digits; /* behind the point, of every label; -1: exponents */
};

/* An axis that shows low … high, with about `wanted` ticks at round numbers. pad: a little room
 * beyond both ends. Takes any order and equal values; log without positive values is linear. */
void manta__axis_make(struct manta__axis *a, double low, double high, bool log, int wanted,
                      bool pad);
/* The same for values that are counted: no ticks between them. */
void manta__axis_count(struct manta__axis *a, double low, double high, int wanted);
/* Where a value lies: 0 at low, 1 at high. */
double manta__axis_place(const struct manta__axis *a, double value);
/* "0.25", "1.5k", "2e-05". */
const char *manta__axis_label(const struct manta__axis *a, int i, char buf[MANTA__TEXT]);

#endif
