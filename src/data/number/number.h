/* SPDX-License-Identifier: Apache-2.0
 *
 * data/number/number.h - numbers out of text, one at a time.
 *
 * (1) A real is bit-equal to what strtod gives for the same text in the C locale, for every text
 *     that is taken at all: [blanks] [+-] (digits [. digits] | . digits) [e [+-] digits] [blanks],
 *     and inf, infinity and nan in any case of letters. Hexadecimal floats and nan(...) are not.
 * (2) An integer is [blanks] [+-] digits [blanks]; one that does not fit its type is no number.
 * (3) Nothing in front of p or behind p + n is read. No allocation, no locale, no errno.
 */
#ifndef MANTA_DATA_NUMBER_NUMBER_H
#define MANTA_DATA_NUMBER_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False: the n bytes at p are no such number, and *out is as it was. */
bool manta__number_f64(const char *p, size_t n, double *out);
bool manta__number_i64(const char *p, size_t n, int64_t *out);
bool manta__number_u64(const char *p, size_t n, uint64_t *out);

/* A decimal: 0.DIGITS or DIGITS, as m * 10^exponent. */
struct manta__decimal {
  uint64_t m; /* the first 19 significant digits at most */
  int64_t exponent;
  bool negative;
  bool more; /* digits behind those of m were dropped, and not all of them were 0 */
};

/* The double that is nearest to the decimal, ties to even; false if the 128 bits that this looks at
 * do not decide it, which happens for few. */
bool manta__decimal_f64(const struct manta__decimal *d, double *out);

#endif
