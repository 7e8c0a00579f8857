/* SPDX-License-Identifier: Apache-2.0
 *
 * view/canvas.h - something to draw on: an SVG text, or the pixels of a PNG.
 *
 * Lengths are pixels, from the upper left corner. Colours are 0xRRGGBB. A failure stays, and is
 * told by `end`.
 */
#ifndef MANTA_VIEW_CANVAS_H
#define MANTA_VIEW_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#include "base/buf.h"

struct manta__spot {
  double x, y;
};

struct manta__pen {
  uint32_t colour;
  double width; /* of lines; size of text */
  double alpha; /* 1: opaque */
  bool dashed, bold;
};

enum manta__anchor { MANTA__ANCHOR_START, MANTA__ANCHOR_MIDDLE, MANTA__ANCHOR_END };

struct manta__canvas_kind {
  uint32_t version; /* MANTA__CANVAS_VERSION */
  manta_status (*begin)(void **out, double width, double height, manta_error *err);
  void (*lines)(void *canvas, const struct manta__spot *p, size_t n, struct manta__pen pen);
  void (*area)(void *canvas, const struct manta__spot *p, size_t n, struct manta__pen pen);
  void (*ring)(void *canvas, struct manta__spot at, double radius, struct manta__pen pen);
  void (*text)(void *canvas, struct manta__spot at, const char *text, enum manta__anchor anchor,
               struct manta__pen pen);
  /* What is drawn from here on shows inside of this rectangle only; NULL: everywhere. */
  void (*clip)(void *canvas, const struct manta__spot corner[2]);
  /* Gives the file's bytes, and frees the canvas. */
  manta_status (*end)(void *canvas, manta__buf *out, manta_error *err);
};

#define MANTA__CANVAS_VERSION 1
#define MANTA__CANVAS_ENTRY   "manta_canvas_entry" /* of the module: a pointer to its kind */

extern const struct manta__canvas_kind manta__canvas_svg;
/* The module libmanta-cairo.so, loaded when it is first asked for. */
manta_status manta__canvas_png(const struct manta__canvas_kind **out, manta_error *err);

#endif
