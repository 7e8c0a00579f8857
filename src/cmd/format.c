/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/format.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/options.h"

#define TABLE_MAX  (16u << 20)
#define LAST_LEAST 12 /* columns of the last cell of a row, where the terminal cuts it */

// --- Looks ---------------------------------------------------------------------------------------

static bool wants_colour(FILE *to)
{
  const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
  return !(no && *no) && term && strcmp(term, "dumb") != 0 && isatty(fileno(to));
}

const char *manta__paint(FILE *to, int look)
{
  static char text[4][16];
  static unsigned next;
  char *t = text[next++ % 4]; // so that a begin and an end fit into one printf
  snprintf(t, sizeof text[0], "\033[%dm", look);
  return wants_colour(to) ? t : "";
}

// --- Tables --------------------------------------------------------------------------------------

void manta__grid_init(struct manta__grid *g, const char *const *titles, int columns, uint32_t right)
{
  *g = (struct manta__grid){.titles = titles, .columns = columns, .right = right};
  manta__buf_init(&g->cells, TABLE_MAX);
}

void manta__grid_cell(struct manta__grid *g, const char *fmt, ...)
{
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  manta__text_safe(text);
  if (manta__buf_append(&g->cells, text, strlen(text) + 1) < 0)
    g->failed = true;
  else
    g->count++;
}

// At most `room` columns of it.
static void print_begin(const char *text, size_t room, FILE *to)
{
  size_t all = manta__text_columns(text), used = 0, at = 0, wide;
  for (size_t n = strlen(text), k; all > room && at < n; at += k, used += wide) {
    k = manta__text_step(text + at, n - at, &wide);
    if (used + wide > room - 1)
      break;
  }
  fprintf(to, "%.*s%s", (int)(all > room ? at : strlen(text)), text, all > room ? "…" : "");
}

static void print_cell(const struct manta__grid *g, int c, const char *text, int wide, FILE *to)
{
  int pad = wide - (int)manta__text_columns(text);
  bool right = (g->right >> c & 1) != 0, last = c == g->columns - 1;
  if (last && !*text) { // no blanks at the end of a line
    fputc('\n', to);
    return;
  }
  fprintf(to, "%s%*s", c ? "  " : "", right && pad > 0 ? pad : 0, "");
  print_begin(text, (size_t)wide, to);
  if (last)
    fputc('\n', to);
  else if (!right)
    fprintf(to, "%*s", pad, "");
}

// On a terminal the last column ends where the line does, if something is left of it then.
static void fit(int *wide, int columns, FILE *to)
{
  struct winsize w;
  int used = 0;
  if (ioctl(fileno(to), TIOCGWINSZ, &w) < 0 || w.ws_col == 0)
    return;
  for (int c = 0; c < columns - 1; c++)
    used += wide[c] + 2;
  int left = (int)w.ws_col - used, *last = &wide[columns - 1];
  if (left >= LAST_LEAST && left < *last)
    *last = left;
}

void manta__grid_print(struct manta__grid *g, FILE *to)
{
  int wide[32] = {0};
  const char *p = (const char *)g->cells.data;
  if (g->failed) {
    manta__say("no memory for a table");
    return;
  }
  for (int c = 0; c < g->columns; c++)
    wide[c] = (int)manta__text_columns(g->titles[c]);
  for (size_t i = 0; i < g->count; i++, p += strlen(p) + 1)
    if ((int)manta__text_columns(p) > wide[i % (size_t)g->columns])
      wide[i % (size_t)g->columns] = (int)manta__text_columns(p);
  fit(wide, g->columns, to);
  fputs(manta__paint(to, 1), to);
  for (int c = 0; c < g->columns; c++)
    print_cell(g, c, g->titles[c], wide[c], to);
  fputs(manta__paint(to, 0), to);
  p = (const char *)g->cells.data;
  for (size_t i = 0; i < g->count; i++, p += strlen(p) + 1) {
    int c = (int)(i % (size_t)g->columns);
    print_cell(g, c, p, wide[c], to);
  }
}

void manta__grid_fini(struct manta__grid *g)
{
  manta__buf_fini(&g->cells);
  *g = (struct manta__grid){0};
}

// --- Lines ---------------------------------------------------------------------------------------

void manta__line(const char *name, const char *fmt, ...)
{
  va_list ap;
  printf("%-12s", name);
  va_start(ap, fmt);
  vprintf(fmt, ap);
  va_end(ap);
  putchar('\n');
}

int manta__print_json(const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  char *text = NULL;
  if (manta_value_to_json(v, 2, &text, &err) < 0)
    return manta__complain(&err);
  puts(text);
  manta_free(text);
  return MANTA__EXIT_OK;
}

int manta__complain(const manta_error *err)
{
  fflush(stdout);
  fprintf(stderr, "manta: %s\n", err->message[0] ? err->message : manta_status_text(err->status));
  if (err->status == MANTA_ENOENT)
    return MANTA__EXIT_NOT_FOUND;
  return err->status == MANTA_EINVAL ? MANTA__EXIT_USAGE : MANTA__EXIT_FAILED;
}

void manta__say(const char *fmt, ...)
{
  char text[2048];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  fflush(stdout);
  fprintf(stderr, "manta: %s\n", text);
}
