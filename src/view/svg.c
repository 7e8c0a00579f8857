/* SPDX-License-Identifier: Apache-2.0
 *
 * view/svg.c - a canvas whose file is SVG text; and where the one of PNG files is.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "sys/module.h"
#include "view/canvas.h"

#define FILE_MAX (64u << 20)

struct svg {
  manta__buf out;
  manta_status st; // the first failure
  int clips;
  bool clipped;
};

static void keep(struct svg *c, manta_status st)
{
  c->st = c->st < 0 ? c->st : st;
}

static manta_status begin(void **out, double width, double height, manta_error *err)
{
  struct svg *c = manta__calloc(1, sizeof *c);
  if (!c)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a plot");
  manta__buf_init(&c->out, FILE_MAX);
  keep(c, manta__buf_printf(&c->out,
                            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                            "viewBox=\"0 0 %g %g\" font-family=\"DejaVu Sans, Verdana, Helvetica, "
                            "Arial, sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" "
                            "fill=\"#ffffff\"/>\n",
                            width, height, width, height));
  *out = c;
  return MANTA_OK;
}

static void put_path(struct svg *c, const struct manta__spot *p, size_t n)
{
  keep(c, manta__buf_puts(&c->out, "<path d=\""));
  for (size_t i = 0; i < n; i++)
    keep(c, manta__buf_printf(&c->out, "%c%.2f %.2f", i ? 'L' : 'M', p[i].x, p[i].y));
}

static void lines(void *canvas, const struct manta__spot *p, size_t n, struct manta__pen pen)
{
  struct svg *c = canvas;
  put_path(c, p, n);
  keep(c, manta__buf_printf(&c->out,
                            "\" fill=\"none\" stroke=\"#%06x\" stroke-width=\"%g\" "
                            "stroke-opacity=\"%g\" stroke-linejoin=\"round\"%s/>\n",
                            pen.colour, pen.width, pen.alpha,
                            pen.dashed ? " stroke-dasharray=\"4 3\"" : ""));
}

static void area(void *canvas, const struct manta__spot *p, size_t n, struct manta__pen pen)
{
  struct svg *c = canvas;
  put_path(c, p, n);
  keep(c, manta__buf_printf(&c->out, "Z\" fill=\"#%06x\" fill-opacity=\"%g\"/>\n", pen.colour,
                            pen.alpha));
}

static void ring(void *canvas, struct manta__spot at, double radius, struct manta__pen pen)
{
  struct svg *c = canvas;
  keep(c, manta__buf_printf(&c->out,
                            "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%g\" fill=\"#ffffff\" "
                            "stroke=\"#%06x\" stroke-width=\"%g\"/>\n",
                            at.x, at.y, radius, pen.colour, pen.width));
}

static void put_escaped(struct svg *c, const char *s)
{
  for (; *s; s++)
    if (*s == '<' || *s == '>' || *s == '&')
      keep(c, manta__buf_puts(&c->out, *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : "&amp;"));
    else
      keep(c, manta__buf_putc(&c->out, (unsigned char)*s < ' ' ? '?' : *s));
}

static void text(void *canvas, struct manta__spot at, const char *s, enum manta__anchor anchor,
                 struct manta__pen pen)
{
  struct svg *c = canvas;
  static const char *const anchors[] = {"start", "middle", "end"};
  keep(c, manta__buf_printf(&c->out,
                            "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%g\" text-anchor=\"%s\" "
                            "fill=\"#%06x\"%s>",
                            at.x, at.y, pen.width, anchors[anchor], pen.colour,
                            pen.bold ? " font-weight=\"bold\"" : ""));
  put_escaped(c, s);
  keep(c, manta__buf_puts(&c->out, "</text>\n"));
}

static void clip(void *canvas, const struct manta__spot corner[2])
{
  struct svg *c = canvas;
  if (c->clipped)
    keep(c, manta__buf_puts(&c->out, "</g>\n"));
  c->clipped = corner != NULL;
  if (!corner)
    return;
  int k = c->clips++;
  keep(c, manta__buf_printf(&c->out,
                            "<clipPath id=\"c%d\"><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                            "height=\"%.2f\"/></clipPath>\n<g clip-path=\"url(#c%d)\">\n",
                            k, corner[0].x, corner[0].y, corner[1].x - corner[0].x,
                            corner[1].y - corner[0].y, k));
}

static manta_status end(void *canvas, manta__buf *out, manta_error *err)
{
  struct svg *c = canvas;
  clip(c, NULL);
  keep(c, manta__buf_puts(&c->out, "</svg>\n"));
  manta_status st = c->st;
  if (st < 0)
    manta_error_set(err, st, "no memory for a plot");
  else
    st = manta__buf_append(out, c->out.data, c->out.len);
  manta__buf_fini(&c->out);
  manta__free(c);
  return st;
}

const struct manta__canvas_kind manta__canvas_svg = {
    MANTA__CANVAS_VERSION, begin, lines, area, ring, text, clip, end};

manta_status manta__canvas_png(const struct manta__canvas_kind **out, manta_error *err)
{
  void *symbol;
  MANTA_TRY(manta__module_symbol("cairo", MANTA__CANVAS_ENTRY, "cairo", &symbol, err));
  const struct manta__canvas_kind *const *entry = symbol;
  if ((*entry)->version != MANTA__CANVAS_VERSION)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "the module libmanta-cairo.so has version %u, this library wants %d",
                           (*entry)->version, MANTA__CANVAS_VERSION);
  *out = *entry;
  return MANTA_OK;
}
