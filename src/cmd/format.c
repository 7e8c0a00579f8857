/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/format.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/options.h"

#define TABLE_MAX (16u << 20)

// --- Figures -------------------------------------------------------------------------------------

const char *manta__text_duration(char buf[MANTA__TEXT], int64_t ns)
{
  long long s = ns > 0 ? ns / 1000000000 : 0;
  if (s < 10)
    snprintf(buf, MANTA__TEXT, "%.1fs", ns > 0 ? (double)(ns / 100000000) / 10 : 0.0);
  else if (s < 60)
    snprintf(buf, MANTA__TEXT, "%llds", s);
  else if (s < 3600)
    snprintf(buf, MANTA__TEXT, "%lldm %02llds", s / 60, s % 60);
  else if (s < 86400)
    snprintf(buf, MANTA__TEXT, "%lldh %02lldm", s / 3600, s / 60 % 60);
  else
    snprintf(buf, MANTA__TEXT, "%lldd %lldh", s / 86400, s / 3600 % 24);
  return buf;
}

const char *manta__text_size(char buf[MANTA__TEXT], uint64_t bytes)
{
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double x = (double)bytes;
  int u = 0;
  while (x >= 999.5 && u < 6) {
    x /= 1000;
    u++;
  }
  snprintf(buf, MANTA__TEXT, u > 0 && x < 9.95 ? "%.1f %s" : "%.0f %s", x, units[u]);
  return buf;
}

const char *manta__text_time(char buf[MANTA__TEXT], int64_t wall_ns)
{
  time_t t = (time_t)(wall_ns / 1000000000);
  struct tm tm;
  localtime_r(&t, &tm);
  strftime(buf, MANTA__TEXT, "%Y-%m-%d %H:%M:%S", &tm);
  return buf;
}

const char *manta__text_value(char *buf, size_t size, const manta_value *v)
{
  char *json = NULL;
  if (v && v->type == MANTA_REAL)
    snprintf(buf, size, "%.6g", v->u.r);
  else if (v && v->type == MANTA_STRING)
    snprintf(buf, size, "%s", v->u.s);
  else if (v && manta_value_to_json(v, -1, &json, NULL) == MANTA_OK)
    snprintf(buf, size, "%s", json);
  else
    snprintf(buf, size, "?");
  manta_free(json);
  return manta__text_safe(buf);
}

// It must not reach the terminal as commands to it.
char *manta__text_safe(char *s)
{
  for (char *p = s; *p; p++)
    if ((unsigned char)*p < ' ' || *p == 127)
      *p = '?';
  return s;
}

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

static int width(const char *s)
{
  int n = 0;
  for (; *s; s++)
    n += ((unsigned char)*s & 0xc0) != 0x80; // bytes that begin a character
  return n;
}

static void print_cell(const struct manta__grid *g, int c, const char *text, int wide, FILE *to)
{
  int pad = wide - width(text);
  bool right = (g->right >> c & 1) != 0, last = c == g->columns - 1;
  if (last && !*text) { // no blanks at the end of a line
    fputc('\n', to);
    return;
  }
  fprintf(to, "%s%*s%s", c ? "  " : "", right ? pad : 0, "", text);
  if (last)
    fputc('\n', to);
  else if (!right)
    fprintf(to, "%*s", pad, "");
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
    wide[c] = width(g->titles[c]);
  for (size_t i = 0; i < g->count; i++, p += strlen(p) + 1)
    if (width(p) > wide[i % (size_t)g->columns])
      wide[i % (size_t)g->columns] = width(p);
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
