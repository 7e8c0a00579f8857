/* SPDX-License-Identifier: Apache-2.0
 *
 * view/blocks.c - a plot as text: every cell shows 2 x 2 dots by a block character.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "view/plot.h"

#define MARGIN 10 /* columns of the y labels, and the axis */
#define DEATH  16 /* a flag beside the four dots of a cell */

// By the dots that are set: 1 upper left, 2 upper right, 4 lower left, 8 lower right.
static const char *const shapes[16] = {" ", "▘", "▝", "▀", "▖", "▌", "▞", "▛",
                                       "▗", "▚", "▐", "▜", "▄", "▙", "▟", "█"};
static const int looks[] = {34, 33, 32, 35, 31, 36};

struct cell {
  uint8_t dots;
  int8_t line; /* whose; 0: nobody's */
};

struct sheet {
  const struct manta__plot *p;
  const struct manta__plot_panel *panel;
  struct cell *cells;
  int columns, rows; /* of cells */
  bool colours;
};

static void set_dot(struct sheet *s, int x, int y, int line)
{
  if (x < 0 || y < 0 || x >= 2 * s->columns || y >= 2 * s->rows)
    return;
  struct cell *c = &s->cells[y / 2 * s->columns + x / 2];
  if (c->line != line)
    c->dots &= DEATH;
  c->dots |= (uint8_t)(1u << (x % 2 + 2 * (y % 2)));
  c->line = (int8_t)line;
}

static int dot_y(const struct sheet *s, double value)
{
  return (int)lround((1 - manta__axis_place(&s->panel->y, value)) * (2 * s->rows - 1));
}

static int dot_x(const struct sheet *s, double x)
{
  return (int)lround(manta__axis_place(&s->p->x, x) * (2 * s->columns - 1));
}

static void put_line(struct sheet *s, int number)
{
  const struct manta__plot_line *l = &s->panel->lines[number];
  int before_x = -1, before_y = 0;
  for (size_t i = 0; i < l->series->count; i++) {
    const struct manta__bin *b = &l->series->bins[i];
    int x = dot_x(s, manta__plot_x(s->p, l->run, (b->first + b->last) / 2, b->wall_ns));
    int y = dot_y(s, manta__bin_mean(b));
    int steps = before_x < 0 ? 0 : (int)fmax(abs(x - before_x), abs(y - before_y));
    for (int k = 1; k < steps; k++)
      set_dot(s, before_x + (x - before_x) * k / steps, before_y + (y - before_y) * k / steps,
              number + 1);
    set_dot(s, x, y, number + 1);
    before_x = x;
    before_y = y;
  }
}

static void put_losses(struct sheet *s)
{
  for (size_t r = 0; r < s->p->run_count; r++) {
    const struct manta__stats *t = &s->p->runs[r].stats;
    for (int i = 0; i < t->stop_count; i++) {
      double at = manta__plot_x(s->p, r, t->stops[i].iteration, t->stops[i].wall_ns);
      int x = dot_x(s, fmin(fmax(at, s->p->x.low), s->p->x.high)) / 2;
      for (int y = 0; y < s->rows; y++)
        s->cells[y * s->columns + x].dots |= DEATH;
    }
  }
}

// --- as text -------------------------------------------------------------------------------------

static void put_look(const struct sheet *s, manta__buf *out, int look)
{
  if (s->colours)
    manta__buf_printf(out, "\033[%dm", look);
}

static void put_row(const struct sheet *s, int row, manta__buf *out)
{
  char label[MANTA__TEXT] = "";
  for (int i = 0; i < s->panel->y.count; i++)
    if (dot_y(s, s->panel->y.tick[i]) / 2 == row)
      manta__axis_label(&s->panel->y, i, label);
  manta__buf_printf(out, "%*s %s", MARGIN - 2, label, label[0] ? "┤" : "│");
  int look = 0;
  for (int x = 0; x < s->columns; x++) {
    const struct cell *c = &s->cells[row * s->columns + x];
    bool death = !(c->dots & 15) && (c->dots & DEATH);
    int want = death ? 31 : c->dots & 15 ? looks[(c->line - 1) % 6] : look;
    if (want != look)
      put_look(s, out, want);
    look = want;
    manta__buf_puts(out, death ? "┊" : shapes[c->dots & 15]);
  }
  if (look)
    put_look(s, out, 0);
  manta__buf_putc(out, '\n');
}

// Labels under their ticks; one that would touch its neighbour is left out.
static void put_x(const struct sheet *s, manta__buf *out)
{
  char label[MANTA__TEXT];
  int at = 0;
  manta__buf_printf(out, "%*s└", MARGIN - 1, "");
  for (int x = 0; x < s->columns; x++) {
    bool tick = false;
    for (int i = 0; i < s->p->x.count; i++)
      tick |= dot_x(s, s->p->x.tick[i]) / 2 == x;
    manta__buf_puts(out, tick ? "┴" : "─");
  }
  manta__buf_printf(out, "\n%*s", MARGIN, "");
  for (int i = 0; i < s->p->x.count; i++) {
    manta__axis_label(&s->p->x, i, label);
    int n = (int)strlen(label), from = dot_x(s, s->p->x.tick[i]) / 2 - n / 2;
    from = from + n > s->columns ? s->columns - n : from;
    from = from < 0 ? 0 : from;
    if (from < at + (at > 0) || from + n > s->columns)
      continue;
    manta__buf_printf(out, "%*s%s", from - at, "", label);
    at = from + n;
  }
  manta__buf_putc(out, '\n');
  if (s->panel + 1 != s->p->panels + s->p->panel_count) // the last one has it for all
    return;
  int before = MARGIN + (s->columns - (int)strlen(s->p->x_label)) / 2;
  manta__buf_printf(out, "%*s%s\n", before, "", s->p->x_label);
}

// The name and the legend; what does not fit beside it goes into lines of its own.
static void put_head(const struct sheet *s, manta__buf *out)
{
  char text[2 * MANTA__ROW_NAME + 8];
  size_t room = (size_t)s->columns;
  put_look(s, out, 1);
  manta__buf_printf(out, "%*s%s", MARGIN, "",
                    manta__text_cut(text, sizeof text, s->panel->title, room));
  put_look(s, out, 0);
  size_t used = manta__text_columns(text);
  for (size_t i = 0; i < s->panel->count; i++) {
    if (!s->panel->lines[i].label[0])
      continue;
    manta__text_cut(text, sizeof text, s->panel->lines[i].label, room - 2);
    size_t more = 5 + manta__text_columns(text);
    bool fits = used + more <= room;
    if (!fits)
      manta__buf_putc(out, '\n');
    manta__buf_printf(out, "%*s", fits ? 3 : MARGIN, "");
    used = fits ? used + more : more - 3;
    put_look(s, out, looks[i % 6]);
    manta__buf_puts(out, "▬");
    put_look(s, out, 0);
    manta__buf_printf(out, " %s", text);
  }
  manta__buf_putc(out, '\n');
}

manta_status manta__plot_print(const struct manta__plot *p, int columns, int rows, bool colours,
                               manta__buf *out)
{
  struct sheet s = {.p = p, .columns = columns - MARGIN - 1, .rows = rows, .colours = colours};
  if (s.columns < 20)
    s.columns = 20;
  if (!(s.cells = manta__malloc((size_t)(s.columns * rows) * sizeof *s.cells)))
    return MANTA_ENOMEM;
  for (size_t k = 0; k < p->panel_count; k++) {
    s.panel = &p->panels[k];
    memset(s.cells, 0, (size_t)(s.columns * rows) * sizeof *s.cells);
    put_losses(&s);
    for (size_t i = 0; i < s.panel->count; i++)
      put_line(&s, (int)i);
    put_head(&s, out);
    for (int y = 0; y < rows; y++)
      put_row(&s, y, out);
    put_x(&s, out);
  }
  manta__free(s.cells);
  return MANTA_OK;
}
