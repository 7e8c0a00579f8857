/* SPDX-License-Identifier: Apache-2.0
 *
 * quickstart/sheet.h - a contact sheet: digits and what the network took them for, as a PNG file.
 */
#ifndef QUICKSTART_SHEET_H
#define QUICKSTART_SHEET_H

#include <stdint.h>

#include "digits.h"

/* Writes `path`: ten rows of digits, 0 … 9, then the ones for which guess[i] is not the label, in
 * red, the guess in the corner. 0, or -1 with errno set. */
int sheet_write(const char *path, const struct digit *digits, const uint8_t *guess, int n);

#endif
