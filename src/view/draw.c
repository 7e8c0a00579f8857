/* SPDX-License-Identifier: Apache-2.0
 *
 * view/draw.c - a plot on a canvas.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "view/plot.h"

#define WIDTH  860.0
#define LEFT   74.0
#define RIGHT  24.0
#define TOP    44.0 /* the title */
#define HEAD   26.0 /* above a panel: its name and its legend */
#define ROW    17.0 /* of a legend that does not fit beside the name */
#define PANEL  210.0
#define BELOW  24.0 /* a panel: tick labels */
#define BOTTOM 24.0 /* the x axis's name */
#define SMALL  11.0
#define TITLE  86  /* columns of the title, at most */
#define LETTER 6.4 /* the width of a letter of that size, about */
#define SWATCH 26.0
#define GAP    10.0

#define INK  0x222222u
#define GREY 0x666666u
#define GRID 0xe4e4e4u
#define LOSS 0xc02020u

static const uint32_t colours[] = {0x0b62a4, 0xd9730d, 0x2a8a3e, 0x8a3fb0,
                                   0xc2185b, 0x00838f, 0x7a5c00, 0x5d6d7e};

struct drawing {
  const struct manta__plot *p;
  const struct manta__canvas_kind *on;
  void *c;
  const struct manta__plot_panel *panel;
  double top, bottom, right; /* of the panel */
};

static uint32_t colour_of(const struct manta__plot_line *l)
{
  return colours[(size_t)l->colour % (sizeof colours / sizeof *colours)];
}

static double at_x(const struct drawing *d, double x)
{
  return LEFT + manta__axis_place(&d->p->x, x) * (d->right - LEFT);
}

static double at_y(const struct drawing *d, double y)
{
  return d->bottom - manta__axis_place(&d->panel->y, y) * (d->bottom - d->top);
}

static void line(const struct drawing *d, double x1, double y1, double x2, double y2,
                 struct manta__pen pen)
{
  const struct manta__spot p[] = {{x1, y1}, {x2, y2}};
  d->on->lines(d->c, p, 2, pen);
}

static void text(const struct drawing *d, double x, double y, enum manta__anchor anchor,
                 struct manta__pen pen, const char *s)
{
  d->on->text(d->c, (struct manta__spot){x, y}, s, anchor, pen);
}

// --- axes ----------------------------------------------------------------------------------------

static void draw_axes(const struct drawing *d, bool labels)
{
  char label[MANTA__TEXT];
  const struct manta__pen grid = {GRID, 1, 1, false, false}, ink = {INK, 1, 1, false, false},
                          small = {GREY, SMALL, 1, false, false};
  for (int i = 0; i < d->panel->y.count; i++) {
    double y = at_y(d, d->panel->y.tick[i]);
    line(d, LEFT, y, d->right, y, grid);
    text(d, LEFT - 8, y + 4, MANTA__ANCHOR_END, small, manta__axis_label(&d->panel->y, i, label));
  }
  for (int i = 0; i < d->p->x.count; i++) {
    double x = at_x(d, d->p->x.tick[i]);
    line(d, x, d->top, x, d->bottom, grid);
    line(d, x, d->bottom, x, d->bottom + 4, ink);
    text(d, x, d->bottom + 17, MANTA__ANCHOR_MIDDLE, small, manta__axis_label(&d->p->x, i, label));
  }
  line(d, LEFT, d->top, LEFT, d->bottom, ink);
  line(d, LEFT, d->bottom, d->right, d->bottom, ink);
  if (labels)
    text(d, (LEFT + d->right) / 2, d->bottom + 36, MANTA__ANCHOR_MIDDLE,
         (struct manta__pen){INK, 12, 1, false, false}, d->p->x_label);
}

// --- the legend ----------------------------------------------------------------------------------

/* A piece of a line, and what it is. */
struct legend_entry {
  char label[2 * MANTA__ROW_NAME + 8];
  struct manta__pen pen;
  double wide;
};

struct legend {
  struct legend_entry entry[MANTA__PLOT_LINES + 1];
  size_t count;
  int rows; /* of its own; 0: it is beside the panel's name */
};

static void add_entry(const struct drawing *d, struct legend *g, const char *label,
                      struct manta__pen pen)
{
  struct legend_entry *e = &g->entry[g->count];
  size_t fits = (size_t)((d->right - LEFT - SWATCH) / LETTER);
  if (!label[0])
    return;
  manta__text_cut(e->label, sizeof e->label, label, fits);
  e->wide = SWATCH + (double)manta__text_columns(e->label) * LETTER + GAP;
  e->pen = pen;
  g->count++;
}

// Where an entry goes that would begin at x of its row: there, or at the beginning of the next.
static double place_entry(const struct drawing *d, const struct legend_entry *e, double x, int *row)
{
  bool fits = x == LEFT || x + e->wide - GAP <= d->right;
  *row += fits ? 0 : 1;
  return fits ? x : LEFT;
}

// All entries, in one row on the right if they fit there beside the name, else in rows below it.
static void make_legend(const struct drawing *d, const struct manta__plot_panel *panel,
                        struct legend *g)
{
  bool losses = false;
  double all = 0, x = LEFT;
  *g = (struct legend){0};
  for (size_t i = 0; i < panel->count; i++)
    add_entry(d, g, panel->lines[i].label,
              (struct manta__pen){colour_of(&panel->lines[i]), 2.4, 1, false, false});
  for (size_t i = 0; i < d->p->run_count; i++)
    losses |= d->p->runs[i].stats.stop_count > 0;
  if (losses)
    add_entry(d, g, "worker lost", (struct manta__pen){LOSS, 1.2, 1, true, false});
  for (size_t i = 0; i < g->count; i++)
    all += g->entry[i].wide;
  double name = 20 + (double)manta__text_columns(panel->title) * 8;
  if (all - GAP <= d->right - LEFT - name)
    return;
  g->rows = 1;
  for (size_t i = 0; i < g->count; i++)
    x = place_entry(d, &g->entry[i], x, &g->rows) + g->entry[i].wide;
}

static void draw_legend(const struct drawing *d, const struct legend *g)
{
  double x = d->right + GAP;
  int row = 1;
  for (size_t i = 0; i < g->count; i++)
    x -= g->entry[i].wide;
  x = g->rows ? LEFT : x;
  for (size_t i = 0; i < g->count; i++) {
    const struct legend_entry *e = &g->entry[i];
    if (g->rows)
      x = place_entry(d, e, x, &row);
    double y = d->top - 9 - (g->rows ? (g->rows - row) * ROW : 0);
    line(d, x, y - 4, x + SWATCH - 7, y - 4, e->pen);
    text(d, x + SWATCH, y, MANTA__ANCHOR_START, (struct manta__pen){INK, SMALL, 1, false, false},
         e->label);
    x += e->wide;
  }
}

// --- values --------------------------------------------------------------------------------------

static void draw_losses(const struct drawing *d)
{
  for (size_t r = 0; r < d->p->run_count; r++) {
    const struct manta__stats *s = &d->p->runs[r].stats;
    for (int i = 0; i < s->stop_count; i++) {
      double x = at_x(d, manta__plot_x(d->p, r, s->stops[i].iteration, s->stops[i].wall_ns));
      x = fmin(fmax(x, LEFT), d->right);
      line(d, x, d->top, x, d->bottom, (struct manta__pen){LOSS, 1.2, 0.9, true, false});
    }
  }
}

// The least and the largest value of what a bin stands for, as a band.
static void draw_band(const struct drawing *d, const struct manta__plot_line *l,
                      struct manta__spot *spots)
{
  const struct manta__plot_series *s = l->series;
  bool wide = false;
  for (size_t i = 0; i < s->count; i++) {
    const struct manta__bin *b = &s->bins[i];
    double x = at_x(d, manta__plot_x(d->p, l->run, (b->first + b->last) / 2, b->wall_ns));
    spots[i] = (struct manta__spot){x, at_y(d, b->most)};
    spots[2 * s->count - 1 - i] = (struct manta__spot){x, at_y(d, b->least)};
    wide |= b->most > b->least;
  }
  if (wide)
    d->on->area(d->c, spots, 2 * s->count,
                (struct manta__pen){colour_of(l), 0, 0.18, false, false});
}

static void draw_line(const struct drawing *d, const struct manta__plot_line *l,
                      struct manta__spot *spots)
{
  const struct manta__plot_series *s = l->series;
  struct manta__pen pen = {colour_of(l), 1.8, 1, false, false};
  draw_band(d, l, spots);
  for (size_t i = 0; i < s->count; i++) {
    const struct manta__bin *b = &s->bins[i];
    spots[i].x = at_x(d, manta__plot_x(d->p, l->run, (b->first + b->last) / 2, b->wall_ns));
    spots[i].y = at_y(d, manta__bin_mean(b));
  }
  d->on->lines(d->c, spots, s->count, pen);
  for (size_t i = 0; s->count <= 40 && i < s->count; i++)
    d->on->ring(d->c, spots[i], 2.4, pen);
}

static void draw_panel(struct drawing *d, size_t k, const struct legend *legend,
                       struct manta__spot *spots)
{
  char title[MANTA__ROW_NAME + 8];
  double below = legend->rows * ROW;
  d->panel = &d->p->panels[k];
  d->top = (k ? d->bottom + BELOW : TOP) + HEAD + below;
  d->bottom = d->top + PANEL;
  draw_axes(d, k + 1 == d->p->panel_count);
  text(d, LEFT, d->top - 9 - below, MANTA__ANCHOR_START,
       (struct manta__pen){INK, 12.5, 1, false, true},
       manta__text_cut(title, sizeof title, d->panel->title, 80));
  draw_legend(d, legend);
  const struct manta__spot frame[] = {{LEFT, d->top - 3}, {d->right + 3, d->bottom + 3}};
  d->on->clip(d->c, frame);
  draw_losses(d);
  for (size_t i = 0; i < d->panel->count; i++)
    draw_line(d, &d->panel->lines[i], spots);
  d->on->clip(d->c, NULL);
}

manta_status manta__plot_draw(const struct manta__plot *p, const struct manta__canvas_kind *kind,
                              manta__buf *out, manta_error *err)
{
  struct drawing d = {.p = p, .on = kind, .right = WIDTH - RIGHT};
  double height = TOP + (double)p->panel_count * (HEAD + PANEL + BELOW) + BOTTOM;
  struct manta__spot *spots = manta__malloc(2 * MANTA__BINS * sizeof *spots);
  struct legend *legends = manta__calloc(p->panel_count, sizeof *legends);
  char title[sizeof p->title + 8];
  manta_status st = spots && legends ? MANTA_OK : MANTA_ENOMEM;
  if (st < 0)
    manta_error_set(err, st, "no memory for a plot");
  for (size_t k = 0; st == MANTA_OK && k < p->panel_count; k++) {
    make_legend(&d, &p->panels[k], &legends[k]);
    height += legends[k].rows * ROW;
  }
  if (st == MANTA_OK)
    st = kind->begin(&d.c, WIDTH, height, err);
  if (st == MANTA_OK) {
    text(&d, WIDTH / 2, 27, MANTA__ANCHOR_MIDDLE, (struct manta__pen){INK, 15, 1, false, true},
         manta__text_cut(title, sizeof title, p->title, TITLE));
    for (size_t k = 0; k < p->panel_count; k++)
      draw_panel(&d, k, &legends[k], spots);
    st = kind->end(d.c, out, err);
  }
  manta__free(legends);
  manta__free(spots);
  return st;
}
