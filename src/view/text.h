/* SPDX-License-Identifier: Apache-2.0
 *
 * view/text.h - numbers, times and sizes as people read them.
 */
#ifndef MANTA_VIEW_TEXT_H
#define MANTA_VIEW_TEXT_H

#include <manta/value.h>

#define MANTA__TEXT 64 /* enough for each of these */

/* "0.4s", "12s", "3m 12s", "2h 05m", "3d 4h". */
const char *manta__text_duration(char buf[MANTA__TEXT], int64_t ns);
/* "812 B", "1.2 kB", "100 MB": powers of ten. */
const char *manta__text_size(char buf[MANTA__TEXT], uint64_t bytes);
/* "2026-11-15 04:46:27", local time. */
const char *manta__text_time(char buf[MANTA__TEXT], int64_t wall_ns);
/* A metric within five digits: "0.12346", "1200", "3.1e-07", "nan". */
const char *manta__text_number(char buf[MANTA__TEXT], double x);
/* "12k it/s", "3.1 it/s", "4.2 s/it"; "- it/s" for 0. */
const char *manta__text_rate(char buf[MANTA__TEXT], double per_s);
/* A number as short as it can be read back within six digits, or the JSON of anything else. Cut to
 * the buffer. */
const char *manta__text_value(char *buf, size_t size, const manta_value *v);

/* What a program named or printed, made safe to show: control characters and bytes that are not
 * UTF-8 become "?". In place. */
char *manta__text_safe(char *s);
/* The columns of a terminal that it takes: two for what is wide in East Asia and for pictures, none
 * for accents of their own. */
size_t manta__text_columns(const char *s);
/* Bytes of the character at s, of which n > 0 are there; one that begins none is a character. */
size_t manta__text_step(const char *s, size_t n, size_t *columns);
/* The same text within so many columns (3 at least): what is too long has "…" in its middle. */
const char *manta__text_cut(char *out, size_t size, const char *s, size_t columns);

#endif
