/* SPDX-License-Identifier: Apache-2.0 */
#include "view/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"

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

// It must not reach the terminal as commands to it, which U+0080 to U+009F are, too.
char *manta__text_safe(char *s)
{
  for (uint8_t *p = (uint8_t *)s, *end = p + strlen(s); *p;) {
    size_t n = manta__utf8_step(p, (size_t)(end - p));
    if (n == 0 || *p < ' ' || *p == 127 || (n == 2 && p[0] == 0xc2 && p[1] < 0xa0))
      memset(p, '?', n ? n : 1);
    p += n ? n : 1;
  }
  return s;
}

// Not wcwidth: that one knows only what the locale knows.
static size_t columns_of(uint32_t c)
{
  static const struct range {
    uint32_t from, to;
    size_t columns;
  } others[] = {{0x300, 0x36f, 0},     {0x1100, 0x115f, 2},   {0x200b, 0x200f, 0},
                {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},
                {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},
                {0xffe0, 0xffe6, 2},   {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1f6ff, 2},
                {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (c >= others[i].from && c <= others[i].to)
      return others[i].columns;
  return 1;
}

size_t manta__text_step(const char *s, size_t n, size_t *columns)
{
  const unsigned char *p = (const unsigned char *)s;
  size_t more = p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : 3, i = 1;
  uint32_t c = more == 0 ? p[0] : p[0] & (0x3fu >> more);
  for (; i <= more && i < n && (p[i] & 0xc0) == 0x80; i++)
    c = c << 6 | (p[i] & 0x3f);
  *columns = columns_of(c);
  return i;
}

size_t manta__text_columns(const char *s)
{
  size_t all = 0, wide;
  for (size_t n = strlen(s), k; n > 0; s += k, n -= k, all += wide)
    k = manta__text_step(s, n, &wide);
  return all;
}

// Behind the characters of s that fit into so many columns.
static const char *skip_columns(const char *s, size_t columns)
{
  size_t wide;
  for (size_t n = strlen(s), k; n > 0; s += k, n -= k, columns -= wide) {
    k = manta__text_step(s, n, &wide);
    if (wide > columns)
      break;
  }
  return s;
}

const char *manta__text_cut(char *out, size_t size, const char *s, size_t columns)
{
  size_t all = manta__text_columns(s), rest = columns - columns / 2 - 1, wide;
  if (all <= columns || columns < 3) {
    snprintf(out, size, "%s", s);
    return out;
  }
  const char *head = skip_columns(s, columns / 2);
  const char *tail = skip_columns(s, all - rest);
  if (manta__text_columns(tail) > rest) // half of a wide one
    tail += manta__text_step(tail, strlen(tail), &wide);
  snprintf(out, size, "%.*s…%s", (int)(head - s), s, tail);
  return out;
}

const char *manta__text_number(char buf[MANTA__TEXT], double x)
{
  double a = fabs(x);
  if (a >= 1e15 || (a > 0 && a < 1e-4))
    snprintf(buf, MANTA__TEXT, "%.3g", x);
  else if (a >= 1e5 || x == floor(x))
    snprintf(buf, MANTA__TEXT, "%.0f", x);
  else
    snprintf(buf, MANTA__TEXT, "%.5g", x);
  return buf;
}

const char *manta__text_rate(char buf[MANTA__TEXT], double per_s)
{
  if (per_s >= 9999.5)
    snprintf(buf, MANTA__TEXT, "%.0fk it/s", per_s / 1000);
  else if (per_s >= 99.95)
    snprintf(buf, MANTA__TEXT, "%.0f it/s", per_s);
  else if (per_s >= 0.995)
    snprintf(buf, MANTA__TEXT, "%.1f it/s", per_s);
  else if (per_s > 0)
    snprintf(buf, MANTA__TEXT, "%.1f s/it", 1 / per_s);
  else
    snprintf(buf, MANTA__TEXT, "- it/s");
  return buf;
}
