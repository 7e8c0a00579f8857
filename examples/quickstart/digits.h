/* SPDX-License-Identifier: Apache-2.0
 *
 * quickstart/digits.h - hand-drawn-looking digits, 28 x 28 grey, made by a seeded generator.
 *
 * A set is endless and depends on its seed alone; digit i of it is drawn without the others. Its
 * digits are written by many hands, each with a habit of its own: the form it gives to a digit, its
 * slant, its pen. Another seed has other hands.
 */
#ifndef QUICKSTART_DIGITS_H
#define QUICKSTART_DIGITS_H

#include <stdint.h>

enum { DIGIT_SIDE = 28, DIGIT_PIXELS = DIGIT_SIDE * DIGIT_SIDE, DIGIT_HANDS = 500 };

struct digit {
  uint8_t label;                /* 0 … 9 */
  uint8_t pixels[DIGIT_PIXELS]; /* row by row; 0: paper, 255: ink */
};

/* Draws digit `index` of the set `seed`: hand and label go round with the index. The same bits on
 * every machine: only + - * / and square roots are used, and they are exact. */
void digits_draw(struct digit *d, uint64_t seed, uint64_t index);

/* The first n digits of the set. */
void digits_fill(struct digit *d, int n, uint64_t seed);

#endif
