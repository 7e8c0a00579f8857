/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/format.h - how the command speaks: tables, JSON, complaints.
 */
#ifndef MANTA_CMD_FORMAT_H
#define MANTA_CMD_FORMAT_H

#include <stdbool.h>
#include <stdio.h>

#include <manta/value.h>

#include "base/buf.h"
#include "view/text.h"

/* The escape that begins a look (bold 1, red 31, green 32, yellow 33; 0 ends it), or "" unless `to`
 * is a terminal that wants colours. */
const char *manta__paint(FILE *to, int look);

/* A table: cells are added row by row, columns become as wide as their widest cell. {0} is none. */
struct manta__grid {
  const char *const *titles;
  int columns;
  uint32_t right;   /* bit c: column c is aligned to the right */
  manta__buf cells; /* NUL-terminated, one behind the other */
  size_t count;
  bool failed; /* out of memory: nothing is printed */
};
void manta__grid_init(struct manta__grid *g, const char *const *titles, int columns,
                      uint32_t right);
void manta__grid_cell(struct manta__grid *g, const char *fmt, ...) MANTA_PRINTF(2, 3);
void manta__grid_print(struct manta__grid *g, FILE *to);
void manta__grid_fini(struct manta__grid *g);

/* "name        text": one line of a description. */
void manta__line(const char *name, const char *fmt, ...) MANTA_PRINTF(2, 3);

/* Prints one JSON value, indented, and gives the exit code. */
int manta__print_json(const manta_value *v);

/* "manta: message" to standard error; further lines of a message are hints and stay lines. Gives
 * the exit code that fits the status. */
int manta__complain(const manta_error *err);
/* "manta: text" to standard error. */
void manta__say(const char *fmt, ...) MANTA_PRINTF(1, 2);

#endif
