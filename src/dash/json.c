/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void put(struct manta__dash_json *j, const void *p, size_t n)
{
  if (j->st == MANTA_OK)
    j->st = manta__buf_append(j->to, p, n);
}

static void put_text(struct manta__dash_json *j, const char *s)
{
  put(j, s, strlen(s));
}

static void put_escape(struct manta__dash_json *j, uint8_t c)
{
  char text[8];
  if (c >= 0x80) // no UTF-8
    snprintf(text, sizeof text, "\\ufffd");
  else if (c == '"' || c == '\\')
    snprintf(text, sizeof text, "\\%c", c);
  else
    snprintf(text, sizeof text, "\\u%04x", c);
  put_text(j, text);
}

static void put_quoted(struct manta__dash_json *j, const char *text, size_t n)
{
  const uint8_t *s = (const uint8_t *)text;
  size_t from = 0, i = 0;
  put(j, "\"", 1);
  while (i < n) {
    bool plain = s[i] >= 0x20 && s[i] != '"' && s[i] != '\\' && s[i] != 0x7f;
    size_t len = plain ? manta__utf8_step(s + i, n - i) : 0;
    i += len;
    if (len)
      continue;
    put(j, s + from, i - from);
    put_escape(j, s[i]);
    from = ++i;
  }
  put(j, s + from, n - from);
  put(j, "\"", 1);
}

static void begin(struct manta__dash_json *j, const char *key)
{
  if (j->follows)
    put(j, ",", 1);
  j->follows = true;
  if (key) {
    put_quoted(j, key, strlen(key));
    put(j, ":", 1);
  }
}

void manta__dash_open(struct manta__dash_json *j, const char *key, char bracket)
{
  begin(j, key);
  put(j, &bracket, 1);
  j->follows = false;
}

void manta__dash_close(struct manta__dash_json *j, char bracket)
{
  put(j, &bracket, 1);
  j->follows = true;
}

void manta__dash_string(struct manta__dash_json *j, const char *key, const char *s)
{
  begin(j, key);
  if (s)
    put_quoted(j, s, strlen(s));
  else
    put_text(j, "null");
}

void manta__dash_int(struct manta__dash_json *j, const char *key, int64_t i)
{
  char text[24];
  begin(j, key);
  snprintf(text, sizeof text, "%" PRId64, i);
  put_text(j, text);
}

void manta__dash_bool(struct manta__dash_json *j, const char *key, bool b)
{
  begin(j, key);
  put_text(j, b ? "true" : "false");
}

void manta__dash_real(struct manta__dash_json *j, const char *key, double r, int digits)
{
  char text[40] = "null";
  begin(j, key);
  if (isfinite(r))
    snprintf(text, sizeof text, "%.*g", digits, r);
  put_text(j, text);
}

static void put_entries(struct manta__dash_json *j, const char *key, const manta_value *v,
                        int depth);

static void put_value(struct manta__dash_json *j, const char *key, const manta_value *v, int depth)
{
  switch (v->type) {
  case MANTA_BOOL:
    manta__dash_bool(j, key, v->u.b);
    break;
  case MANTA_INT:
    manta__dash_int(j, key, v->u.i);
    break;
  case MANTA_REAL:
    manta__dash_real(j, key, v->u.r, 17);
    break;
  case MANTA_STRING:
    begin(j, key);
    put_quoted(j, v->u.s, v->count);
    break;
  case MANTA_LIST:
  case MANTA_MAP:
    put_entries(j, key, v, depth);
    break;
  default: // bytes have no meaning here
    manta__dash_string(j, key, NULL);
  }
}

static void put_entries(struct manta__dash_json *j, const char *key, const manta_value *v,
                        int depth)
{
  bool map = v->type == MANTA_MAP;
  if (depth == MANTA_VALUE_MAX_DEPTH) {
    manta__dash_string(j, key, NULL);
    return;
  }
  manta__dash_open(j, key, map ? '{' : '[');
  for (uint32_t i = 0; i < v->count; i++)
    if (map)
      put_value(j, v->u.pairs[i].key, &v->u.pairs[i].value, depth + 1);
    else
      put_value(j, NULL, &v->u.items[i], depth + 1);
  manta__dash_close(j, map ? '}' : ']');
}

void manta__dash_value(struct manta__dash_json *j, const char *key, const manta_value *v)
{
  if (v)
    put_value(j, key, v, 0);
  else
    manta__dash_string(j, key, NULL);
}
