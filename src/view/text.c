/* SPDX-License-Identifier: Apache-2.0 */
#include "view/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

size_t manta__text_columns(const char *s)
{
  size_t n = 0;
  for (; *s; s++)
    n += ((unsigned char)*s & 0xc0) != 0x80; // bytes that begin a character
  return n;
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
