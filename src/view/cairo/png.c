/* SPDX-License-Identifier: Apache-2.0
 *
 * view/cairo/png.c - a canvas whose file is a PNG, drawn by cairo at twice the resolution: a
 * module, for cairo brings fonts and much else along.
 */
#include <cairo.h>

#include "base/alloc.h"
#include "view/canvas.h"

#define SCALE 2.0

struct pixels {
  cairo_surface_t *surface;
  cairo_t *cr;
};

static void set_colour(struct pixels *c, struct manta__pen pen)
{
  cairo_set_source_rgba(c->cr, (pen.colour >> 16 & 255) / 255.0, (pen.colour >> 8 & 255) / 255.0,
                        (pen.colour & 255) / 255.0, pen.alpha);
}

static manta_status begin(void **out, double width, double height, manta_error *err)
{
  struct pixels *c = manta__calloc(1, sizeof *c);
  if (!c)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a plot");
  c->surface =
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(SCALE * width), (int)(SCALE * height));
  c->cr = cairo_create(c->surface); // a failure is kept by both, and told at the end
  cairo_scale(c->cr, SCALE, SCALE);
  cairo_set_source_rgb(c->cr, 1, 1, 1);
  cairo_paint(c->cr);
  cairo_set_line_join(c->cr, CAIRO_LINE_JOIN_ROUND);
  *out = c;
  return MANTA_OK;
}

static void put_path(struct pixels *c, const struct manta__spot *p, size_t n)
{
  cairo_new_path(c->cr);
  for (size_t i = 0; i < n; i++)
    cairo_line_to(c->cr, p[i].x, p[i].y);
}

static void stroke(struct pixels *c, struct manta__pen pen)
{
  static const double dashes[] = {4, 3};
  set_colour(c, pen);
  cairo_set_line_width(c->cr, pen.width);
  cairo_set_dash(c->cr, dashes, pen.dashed ? 2 : 0, 0);
  cairo_stroke(c->cr);
}

static void lines(void *canvas, const struct manta__spot *p, size_t n, struct manta__pen pen)
{
  struct pixels *c = canvas;
  put_path(c, p, n);
  stroke(c, pen);
}

static void area(void *canvas, const struct manta__spot *p, size_t n, struct manta__pen pen)
{
  struct pixels *c = canvas;
  put_path(c, p, n);
  cairo_close_path(c->cr);
  set_colour(c, pen);
  cairo_fill(c->cr);
}

static void ring(void *canvas, struct manta__spot at, double radius, struct manta__pen pen)
{
  struct pixels *c = canvas;
  cairo_new_path(c->cr);
  cairo_arc(c->cr, at.x, at.y, radius, 0, 6.2831853071795865);
  cairo_set_source_rgb(c->cr, 1, 1, 1);
  cairo_fill_preserve(c->cr);
  stroke(c, pen);
}

static void text(void *canvas, struct manta__spot at, const char *s, enum manta__anchor anchor,
                 struct manta__pen pen)
{
  struct pixels *c = canvas;
  cairo_text_extents_t e;
  cairo_select_font_face(c->cr, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                         pen.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(c->cr, pen.width);
  cairo_text_extents(c->cr, s, &e);
  set_colour(c, pen);
  cairo_move_to(c->cr, at.x - e.x_advance * (double)anchor / 2, at.y);
  cairo_show_text(c->cr, s);
}

static void clip(void *canvas, const struct manta__spot corner[2])
{
  struct pixels *c = canvas;
  cairo_reset_clip(c->cr);
  if (!corner)
    return;
  cairo_rectangle(c->cr, corner[0].x, corner[0].y, corner[1].x - corner[0].x,
                  corner[1].y - corner[0].y);
  cairo_clip(c->cr);
}

static cairo_status_t append(void *to, const unsigned char *p, unsigned n)
{
  return manta__buf_append(to, p, n) < 0 ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static manta_status end(void *canvas, manta__buf *out, manta_error *err)
{
  struct pixels *c = canvas;
  manta_status st = MANTA_OK;
  cairo_status_t why = cairo_status(c->cr);
  if (why == CAIRO_STATUS_SUCCESS)
    why = cairo_surface_write_to_png_stream(c->surface, append, out);
  if (why != CAIRO_STATUS_SUCCESS)
    st = manta_error_set(err, why == CAIRO_STATUS_NO_MEMORY ? MANTA_ENOMEM : MANTA_EINVAL,
                         "cairo: %s", cairo_status_to_string(why));
  cairo_destroy(c->cr);
  cairo_surface_destroy(c->surface);
  manta__free(c);
  return st;
}

static const struct manta__canvas_kind png = {
    MANTA__CANVAS_VERSION, begin, lines, area, ring, text, clip, end};
extern MANTA_API const struct manta__canvas_kind *const manta_canvas_entry;
const struct manta__canvas_kind *const manta_canvas_entry = &png;
