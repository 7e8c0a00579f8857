/* SPDX-License-Identifier: Apache-2.0
 *
 * base/typo.h - how far a word is from the one that was meant.
 */
#ifndef MANTA_BASE_TYPO_H
#define MANTA_BASE_TYPO_H

#define MANTA__TYPO_MAX 32 /* longer words are far from everything */

/* Letters to insert, delete, replace or swap with their neighbour, to make b of a; MANTA__TYPO_MAX
 * if either is longer than that. */
int manta__typo_distance(const char *a, const char *b);

#endif
