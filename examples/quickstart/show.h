/* SPDX-License-Identifier: Apache-2.0
 *
 * quickstart/show.h - what a person sees on the way. On a terminal the line of the newest epoch is
 * written over the one before; elsewhere every line stays, and no control character is used.
 */
#ifndef QUICKSTART_SHOW_H
#define QUICKSTART_SHOW_H

#include <stdbool.h>
#include <stdint.h>

#include "digits.h"

/* loss; the share of held-out digits that are read right; digits per second of all workers. */
void show_epoch(int epoch, int epochs, double loss, double held_out, double speed);

/* A line that stays. */
__attribute__((format(printf, 1, 2))) void show_note(const char *format, ...);

/* A line of the last table: what it is, and the figure. */
__attribute__((format(printf, 2, 3))) void show_row(const char *name, const char *format, ...);

/* Writes into text which digits are mistaken most often: "9 read as 4 (12 times), …". */
void describe_mistakes(char *text, int size, const struct digit *digits, const uint8_t *guess,
                       int n);

#endif
