/* SPDX-License-Identifier: Apache-2.0
 *
 * Every cell is made as text first, then the columns are as wide as their widest cell.
 */
#include "res/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

enum { RANK, HOST, PID, CPUS, GPUS, STATE, COLUMNS };
#define CELL_MAX 64 // longer ones are cut: a table that wraps is none

static const char *const titles[COLUMNS] = {"rank", "host", "pid", "CPUs", "GPUs", "state"};
static const bool right[COLUMNS] = {[RANK] = true, [PID] = true};

struct table_line {
  char cell[COLUMNS][CELL_MAX];
};

// What a frame is drawn with: left, between and right of the top, middle and bottom rule.
struct style {
  const char *bar, *dash, *rule[3][3];
};
static const struct style ascii = {"|", "-", {{"+", "+", "+"}, {"+", "+", "+"}, {"+", "+", "+"}}};
static const struct style boxes = {"│", "─", {{"┌", "┬", "┐"}, {"├", "┼", "┤"}, {"└", "┴", "┘"}}};

// --- Cells ---------------------------------------------------------------------------------------

static bool is_tail(char c) // of a UTF-8 character
{
  return ((unsigned char)c & 0xc0) == 0x80;
}

static int width(const char *s)
{
  int n = 0;
  for (; *s; s++)
    n += !is_tail(*s);
  return n;
}

// Copies text, cut at a character and with control characters made harmless.
static void put(char *cell, const char *text)
{
  size_t n = 0;
  for (; text[n] && n < CELL_MAX - 1; n++)
    cell[n] = (unsigned char)text[n] < ' ' || text[n] == 127 ? '?' : text[n];
  if (text[n])
    while (n > 0 && is_tail(text[n]))
      n--;
  cell[n] = 0;
}

// "2", or "2 (0-1)" with the ids.
static void put_figure(char *cell, double figure, const char *ids)
{
  char text[2 * CELL_MAX];
  if (figure == 0 && !(ids && *ids))
    snprintf(text, sizeof text, "-");
  else if (ids && *ids)
    snprintf(text, sizeof text, "%.6g (%.80s)", figure, ids);
  else
    snprintf(text, sizeof text, "%.6g", figure);
  put(cell, text);
}

static void put_int(char *cell, int i)
{
  snprintf(cell, CELL_MAX, "%d", i);
}

static void fill(struct table_line *l, const struct manta__table_row *r)
{
  if (r->rank >= 0)
    put_int(l->cell[RANK], r->rank);
  else
    put(l->cell[RANK], "-");
  put(l->cell[HOST], r->host ? r->host : "-");
  if (r->pid > 0)
    put_int(l->cell[PID], r->pid);
  else
    put(l->cell[PID], "-");
  put_figure(l->cell[CPUS], r->cpus, r->cores);
  put_figure(l->cell[GPUS], r->gpus, r->gpu_ids);
  put(l->cell[STATE], r->state ? r->state : "-");
}

// --- Lines ---------------------------------------------------------------------------------------

static manta_status draw_rule(manta__buf *out, const struct style *s, int which, const int *wide)
{
  for (int c = 0; c < COLUMNS; c++) {
    MANTA_TRY(manta__buf_puts(out, s->rule[which][c == 0 ? 0 : 1]));
    for (int i = 0; i < wide[c] + 2; i++)
      MANTA_TRY(manta__buf_puts(out, s->dash));
  }
  MANTA_TRY(manta__buf_puts(out, s->rule[which][2]));
  return manta__buf_putc(out, '\n');
}

static manta_status draw_cell(manta__buf *out, const char *text, int wide, bool at_right)
{
  int pad = wide - width(text);
  return manta__buf_printf(out, " %*s%s%*s ", at_right ? pad : 0, "", text, at_right ? 0 : pad, "");
}

static manta_status draw_line(manta__buf *out, const struct style *s, const struct table_line *l,
                              const int *wide)
{
  for (int c = 0; c < COLUMNS; c++) {
    MANTA_TRY(manta__buf_puts(out, s->bar));
    MANTA_TRY(draw_cell(out, l->cell[c], wide[c], right[c]));
  }
  return manta__buf_printf(out, "%s\n", s->bar);
}

static manta_status draw_all(manta__buf *out, const struct style *s, const struct table_line *lines,
                             size_t n, const char *totals)
{
  int wide[COLUMNS] = {0};
  for (size_t i = 0; i < n; i++)
    for (int c = 0; c < COLUMNS; c++)
      if (width(lines[i].cell[c]) > wide[c])
        wide[c] = width(lines[i].cell[c]);
  MANTA_TRY(draw_rule(out, s, 0, wide));
  MANTA_TRY(draw_line(out, s, &lines[0], wide));
  if (n > 1)
    MANTA_TRY(draw_rule(out, s, 1, wide));
  for (size_t i = 1; i < n; i++)
    MANTA_TRY(draw_line(out, s, &lines[i], wide));
  MANTA_TRY(draw_rule(out, s, 2, wide));
  return totals ? manta__buf_printf(out, "used: %s\n", totals) : MANTA_OK;
}

manta_status manta__table_draw(manta__buf *out, const struct manta__table *t, bool utf8)
{
  size_t before = out->len;
  struct table_line *lines = manta__calloc(t->count + 1, sizeof *lines);
  if (!lines)
    return MANTA_ENOMEM;
  for (int c = 0; c < COLUMNS; c++)
    put(lines[0].cell[c], titles[c]);
  for (size_t i = 0; i < t->count; i++)
    fill(&lines[i + 1], &t->rows[i]);
  manta_status st = draw_all(out, utf8 ? &boxes : &ascii, lines, t->count + 1, t->totals);
  manta__free(lines);
  if (st < 0)
    out->len = before;
  return st;
}

// The environment and not setlocale: a guest does not touch its host's locale.
bool manta__table_utf8(void)
{
  static const char *const vars[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  for (size_t i = 0; i < sizeof vars / sizeof *vars; i++) {
    const char *v = getenv(vars[i]);
    if (!v || !*v)
      continue;
    const char *charset = strchr(v, '.');
    charset = charset ? charset + 1 : v;
    return strncasecmp(charset, "UTF-8", 5) == 0 || strncasecmp(charset, "utf8", 4) == 0;
  }
  return false;
}
