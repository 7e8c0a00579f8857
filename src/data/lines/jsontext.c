/* SPDX-License-Identifier: Apache-2.0
 *
 * data/lines/jsontext.c - JSON, character by character.
 */
#include <string.h>

#include "base/utf8.h"
#include "data/lines/json.h"

static void skip_blanks(struct manta__json *j)
{
  while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\r' || *j->p == '\n'))
    j->p++;
}

static bool fail(struct manta__json *j, const char *wrong)
{
  if (!j->wrong)
    j->wrong = wrong;
  return false;
}

static bool take(struct manta__json *j, char c)
{
  skip_blanks(j);
  if (j->p == j->end || *j->p != c)
    return false;
  j->p++;
  return true;
}

// --- scalars ------------------------------------------------------------------------------------

static bool is_hex(char c)
{
  return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

static bool skip_escape(struct manta__json *j)
{
  if (j->end - j->p < 2 || !strchr("\"\\/bfnrtu", j->p[1]) || !j->p[1])
    return fail(j, "an unknown escape");
  if (j->p[1] != 'u') {
    j->p += 2;
    return true;
  }
  for (int i = 2; i < 6; i++)
    if (j->end - j->p <= i || !is_hex(j->p[i]))
      return fail(j, "an unknown escape");
  j->p += 6;
  return true;
}

// Behind the opening quote; ends behind the closing one.
static bool skip_string(struct manta__json *j, struct manta__json_value *out)
{
  out->kind = MANTA__JSON_STRING;
  out->p = j->p;
  for (;;) {
    if (j->p == j->end)
      return fail(j, "a string that does not end");
    unsigned char c = (unsigned char)*j->p;
    if (c == '"')
      break;
    if (c < 0x20)
      return fail(j, "a control character in a string");
    if (c == '\\') {
      out->escaped = true;
      if (!skip_escape(j))
        return false;
    } else
      j->p++;
  }
  out->n = (size_t)(j->p - out->p);
  j->p++;
  return true;
}

static bool skip_digits(struct manta__json *j)
{
  const char *from = j->p;
  while (j->p < j->end && *j->p >= '0' && *j->p <= '9')
    j->p++;
  return j->p > from;
}

static bool skip_word(struct manta__json *j, const char *word)
{
  size_t n = strlen(word);
  if ((size_t)(j->end - j->p) < n || memcmp(j->p, word, n) != 0)
    return false;
  j->p += n;
  return true;
}

static bool skip_number(struct manta__json *j)
{
  if (j->p < j->end && *j->p == '-')
    j->p++;
  if (skip_word(j, "Infinity"))
    return true;
  if (j->p < j->end && *j->p == '0')
    j->p++;
  else if (!skip_digits(j))
    return fail(j, "no value");
  if (j->p < j->end && *j->p == '.') {
    j->p++;
    if (!skip_digits(j))
      return fail(j, "a number without digits behind its dot");
  }
  if (j->p < j->end && (*j->p | 32) == 'e') {
    j->p++;
    if (j->p < j->end && (*j->p == '+' || *j->p == '-'))
      j->p++;
    if (!skip_digits(j))
      return fail(j, "a number without digits in its exponent");
  }
  return true;
}

static bool skip_scalar(struct manta__json *j, struct manta__json_value *out)
{
  out->p = j->p;
  if (skip_word(j, "null"))
    out->kind = MANTA__JSON_NULL;
  else if (skip_word(j, "true") || skip_word(j, "false"))
    out->kind = MANTA__JSON_BOOL;
  else {
    out->kind = MANTA__JSON_NUMBER;
    if (!skip_word(j, "NaN") && !skip_number(j))
      return false;
  }
  out->n = (size_t)(j->p - out->p);
  return true;
}

// --- what holds others --------------------------------------------------------------------------

static bool skip_key(struct manta__json *j, struct manta__json_value *key)
{
  *key = (struct manta__json_value){0};
  if (!take(j, '"'))
    return fail(j, "no key");
  if (!skip_string(j, key))
    return false;
  return take(j, ':') || fail(j, "no colon behind a key");
}

// Passes over an object or an array. What is open is kept as bits: 1 is an object.
static bool skip_nested(struct manta__json *j, struct manta__json_value *out)
{
  uint64_t objects = 0;
  int depth = 0;
  bool value_comes = true;
  struct manta__json_value ignored;
  out->kind = *j->p == '{' ? MANTA__JSON_OBJECT : MANTA__JSON_ARRAY;
  out->p = j->p;
  do {
    skip_blanks(j);
    if (j->p == j->end)
      return fail(j, "an object or array that does not end");
    char c = *j->p;
    if (value_comes && (c == '{' || c == '[')) {
      if (++depth > MANTA__JSON_DEPTH)
        return fail(j, "nested too deeply");
      objects = objects << 1 | (c == '{');
      j->p++;
      value_comes = !take(j, c == '{' ? '}' : ']');
      if (!value_comes) {
        objects >>= 1;
        depth--;
      } else if (c == '{' && !skip_key(j, &ignored))
        return false;
    } else if (value_comes) {
      ignored = (struct manta__json_value){0};
      bool string = c == '"';
      j->p += string;
      if (string ? !skip_string(j, &ignored) : !skip_scalar(j, &ignored))
        return false;
      value_comes = false;
    } else if (c == (objects & 1 ? '}' : ']')) {
      j->p++;
      objects >>= 1;
      depth--;
    } else if (c == ',') {
      j->p++;
      value_comes = true;
      if (objects & 1 && !skip_key(j, &ignored))
        return false;
    } else
      return fail(j, "no comma between two values");
  } while (depth > 0);
  out->n = (size_t)(j->p - out->p);
  return true;
}

bool manta__json_value(struct manta__json *j, struct manta__json_value *out)
{
  *out = (struct manta__json_value){0};
  skip_blanks(j);
  if (j->p == j->end)
    return fail(j, "no value");
  if (*j->p == '"') {
    j->p++;
    return skip_string(j, out);
  }
  return *j->p == '{' || *j->p == '[' ? skip_nested(j, out) : skip_scalar(j, out);
}

bool manta__json_open(struct manta__json *j, char bracket)
{
  return take(j, bracket);
}

int manta__json_member(struct manta__json *j, bool first, struct manta__json_value *key,
                       struct manta__json_value *value)
{
  if (take(j, '}'))
    return 0;
  if (!first && !take(j, ','))
    return fail(j, "no comma between two values") ? 1 : -1;
  return skip_key(j, key) && manta__json_value(j, value) ? 1 : -1;
}

int manta__json_item(struct manta__json *j, bool first, struct manta__json_value *value)
{
  if (take(j, ']'))
    return 0;
  if (!first && !take(j, ','))
    return fail(j, "no comma between two values") ? 1 : -1;
  return manta__json_value(j, value) ? 1 : -1;
}

bool manta__json_ends(struct manta__json *j)
{
  skip_blanks(j);
  return j->p == j->end || fail(j, "something behind the value");
}

// --- escapes ------------------------------------------------------------------------------------

static uint32_t hex_of(const char *p)
{
  uint32_t v = 0;
  for (int i = 0; i < 4; i++)
    v = v << 4 | (uint32_t)(p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
  return v;
}

// Goes behind \uXXXX, or behind two of them that are one character; false: half of one.
static bool take_code(const char **p, const char *end, uint32_t *out)
{
  uint32_t c = hex_of(*p + 2);
  *p += 6;
  if (c >= 0xd800 && c < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
    uint32_t low = hex_of(*p + 2);
    if (low >= 0xdc00 && low < 0xe000) {
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
      *p += 6;
    }
  }
  *out = c;
  return c < 0xd800 || c >= 0xe000;
}

int64_t manta__json_unescape(const struct manta__json_value *value, char *to)
{
  static const char from[] = "\"\\/bfnrt", become[] = "\"\\/\b\f\n\r\t";
  const char *p = value->p, *end = p + value->n;
  char *start = to;
  while (p < end) {
    const char *slash = memchr(p, '\\', (size_t)(end - p));
    size_t n = (size_t)((slash ? slash : end) - p);
    memcpy(to, p, n);
    to += n;
    p += n;
    if (!slash)
      break;
    uint32_t c;
    if (p[1] == 'u') {
      if (!take_code(&p, end, &c))
        return -1;
      to += manta__utf8_put(c, to);
    } else {
      *to++ = become[strchr(from, p[1]) - from];
      p += 2;
    }
  }
  return to - start;
}
