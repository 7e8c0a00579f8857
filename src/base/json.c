/* SPDX-License-Identifier: Apache-2.0
 *
 * base/json.c - manta_value to JSON and back.
 *
 * Writing is done here; reading is done by jansson, whose tree becomes one flat block.
 * (1) Three things JSON has no form for: NaN, Infinity and -Infinity are written as these bare
 *     words, which most readers take, and bytes as {"$bytes": "<base64>"}.
 * (2) jansson refuses the bare words, so before parsing each becomes {"$real": "<word>"}; such a
 *     map in the text itself reads as that real as well.
 * (3) A map that is not exactly one of these shapes (other keys, a word or base64 that would never
 *     be written) is a map like any other.
 * (4) Text is independent of the locale that the program runs in.
 */
#include <float.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "base/value.h"

/* --- Base64 ---------------------------------------------------------------------------------- */

static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static manta_status put_base64(manta__buf *b, const uint8_t *p, size_t n)
{
  MANTA_TRY(manta__buf_reserve(b, (n + 2) / 3 * 4));
  uint8_t *to = b->data + b->len;
  for (size_t i = 0; i < n; i += 3, to += 4) {
    uint32_t x = (uint32_t)p[i] << 16;
    x |= i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0;
    x |= i + 2 < n ? p[i + 2] : 0;
    to[0] = (uint8_t)base64[x >> 18];
    to[1] = (uint8_t)base64[x >> 12 & 63];
    to[2] = i + 1 < n ? (uint8_t)base64[x >> 6 & 63] : '=';
    to[3] = i + 2 < n ? (uint8_t)base64[x & 63] : '=';
  }
  b->len += (n + 2) / 3 * 4;
  return MANTA_OK;
}

static int digit64(char c)
{
  const char *at = c ? strchr(base64, c) : NULL;
  return at ? (int)(at - base64) : -1;
}

// How many bytes `n` characters stand for, or -1 if put_base64 would not have written them so.
static int64_t base64_length(const char *s, size_t n)
{
  size_t pad = 0;
  if (n % 4)
    return -1;
  while (pad < 2 && pad < n && s[n - 1 - pad] == '=')
    pad++;
  for (size_t i = 0; i < n - pad; i++)
    if (digit64(s[i]) < 0)
      return -1;
  if ((pad == 1 && digit64(s[n - 2]) & 3) || (pad == 2 && digit64(s[n - 3]) & 15))
    return -1;
  return (int64_t)(n / 4 * 3 - pad);
}

static void get_base64(char *to, const char *s, size_t bytes)
{
  uint32_t x = 0;
  for (size_t i = 0, got = 0; got < bytes; i++) {
    x = x << 6 | (uint32_t)(digit64(s[i]) & 63);
    if (i % 4 != 0) // each character but the first of four completes a byte
      to[got++] = (char)(x >> (6 - i % 4 * 2) & 255);
  }
}

/* --- Writing --------------------------------------------------------------------------------- */

struct json_writer {
  manta__buf buf;
  int indent;
  bool strict; // NaN and infinities are null
  bool too_deep, lossy;
};

static manta_status put_escape(manta__buf *b, uint8_t c)
{
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  const char *at = c ? strchr(from, c) : NULL;
  if (c >= 0x80)
    return manta__buf_puts(b, "\\ufffd");
  if (!at)
    return manta__buf_printf(b, "\\u%04x", c);
  char pair[2] = {'\\', to[at - from]};
  return manta__buf_append(b, pair, sizeof pair);
}

static manta_status put_string(manta__buf *b, const char *text, size_t n)
{
  const uint8_t *s = (const uint8_t *)text;
  size_t start = 0, i = 0;
  MANTA_TRY(manta__buf_putc(b, '"'));
  while (i < n) {
    size_t len = s[i] < 0x20 || s[i] == '"' || s[i] == '\\' ? 0 : manta__utf8_step(s + i, n - i);
    i += len;
    if (len)
      continue;
    MANTA_TRY(manta__buf_append(b, s + start, i - start));
    MANTA_TRY(put_escape(b, s[i]));
    start = ++i;
  }
  if (n > start)
    MANTA_TRY(manta__buf_append(b, s + start, n - start));
  return manta__buf_putc(b, '"');
}

static manta_status put_int(manta__buf *b, int64_t i)
{
  char digits[24], *p = digits + sizeof digits;
  uint64_t x = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
  do {
    *--p = (char)('0' + x % 10);
    x /= 10;
  } while (x);
  if (i < 0)
    *--p = '-';
  return manta__buf_append(b, p, (size_t)(digits + sizeof digits - p));
}

// The fewest digits that read back the same, and always a point or an exponent: it stays a real.
static manta_status put_real(manta__buf *b, double r)
{
  char text[40];
  if (isnan(r))
    return manta__buf_puts(b, "NaN");
  if (isinf(r))
    return manta__buf_puts(b, r < 0 ? "-Infinity" : "Infinity");
  if (fabs(r) < 1e15 && r == (double)(int64_t)r && (r != 0 || !signbit(r))) {
    MANTA_TRY(put_int(b, (int64_t)r));
    return manta__buf_puts(b, ".0");
  }
  int n = 0;
  // 15 digits are never too many for a normal number; a subnormal one has fewer to give.
  for (int digits = fabs(r) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
    n = snprintf(text, sizeof text, "%.*g", digits, r);
    if (strtod(text, NULL) == r)
      break;
  }
  MANTA_TRY(manta__buf_append(b, text, (size_t)n));
  return strpbrk(text, ".e") ? MANTA_OK : manta__buf_puts(b, ".0");
}

static manta_status put_bytes(manta__buf *b, const char *p, size_t n)
{
  MANTA_TRY(manta__buf_puts(b, "{\"$bytes\":\""));
  MANTA_TRY(put_base64(b, (const uint8_t *)p, n));
  return manta__buf_puts(b, "\"}");
}

static manta_status put_break(struct json_writer *w, int depth)
{
  if (w->indent < 0)
    return MANTA_OK;
  size_t n = (size_t)w->indent * (size_t)depth;
  MANTA_TRY(manta__buf_putc(&w->buf, '\n'));
  MANTA_TRY(manta__buf_reserve(&w->buf, n));
  memset(w->buf.data + w->buf.len, ' ', n);
  w->buf.len += n;
  return MANTA_OK;
}

static manta_status put_value(struct json_writer *w, const manta_value *v, int depth);

static manta_status put_key(struct json_writer *w, const char *key)
{
  MANTA_TRY(put_string(&w->buf, key, strlen(key)));
  return manta__buf_puts(&w->buf, w->indent < 0 ? ":" : ": ");
}

static manta_status put_entries(struct json_writer *w, const manta_value *v, int depth)
{
  bool map = v->type == MANTA_MAP;
  if (depth == MANTA_VALUE_MAX_DEPTH) {
    w->too_deep = true;
    return MANTA_ETOOBIG;
  }
  MANTA_TRY(manta__buf_putc(&w->buf, map ? '{' : '['));
  for (uint32_t i = 0; i < v->count; i++) {
    if (i)
      MANTA_TRY(manta__buf_putc(&w->buf, ','));
    MANTA_TRY(put_break(w, depth + 1));
    if (map)
      MANTA_TRY(put_key(w, v->u.pairs[i].key));
    MANTA_TRY(put_value(w, map ? &v->u.pairs[i].value : &v->u.items[i], depth + 1));
  }
  if (v->count)
    MANTA_TRY(put_break(w, depth));
  return manta__buf_putc(&w->buf, map ? '}' : ']');
}

static manta_status put_value(struct json_writer *w, const manta_value *v, int depth)
{
  switch (v->type) {
  case MANTA_BOOL:
    return manta__buf_puts(&w->buf, v->u.b ? "true" : "false");
  case MANTA_INT:
    return put_int(&w->buf, v->u.i);
  case MANTA_REAL:
    if (w->strict && !isfinite(v->u.r)) {
      w->lossy = true;
      return manta__buf_puts(&w->buf, "null");
    }
    return put_real(&w->buf, v->u.r);
  case MANTA_STRING:
    return put_string(&w->buf, v->u.s, v->count);
  case MANTA_BYTES:
    return put_bytes(&w->buf, v->u.s, v->count);
  case MANTA_LIST:
  case MANTA_MAP:
    return put_entries(w, v, depth);
  default:
    return manta__buf_puts(&w->buf, "null");
  }
}

static locale_t c_locale;

static void make_c_locale(void)
{
  c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static manta_status write_all(struct json_writer *w, const manta_value *v)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_c_locale);
  if (!c_locale)
    return MANTA_ENOMEM;
  locale_t before = uselocale(c_locale);
  manta_status st = put_value(w, v, 0);
  uselocale(before);
  return st < 0 ? st : manta__buf_terminate(&w->buf);
}

manta_status manta__json_append(manta__buf *b, const manta_value *v, bool *lossy)
{
  struct json_writer w = {.buf = *b, .indent = -1, .strict = true};
  manta_status st = write_all(&w, v);
  size_t len = st < 0 ? b->len : w.buf.len;
  *b = w.buf; // it may have moved
  b->len = len;
  if (lossy)
    *lossy |= w.lossy;
  return st;
}

manta_status manta_value_to_json(const manta_value *v, int indent, char **out, manta_error *err)
{
  struct json_writer w = {.indent = indent};
  manta__buf_init(&w.buf, (size_t)MANTA__JSON_MAX + 1);
  manta_status st = write_all(&w, v);
  if (st == MANTA_OK) {
    *out = manta__buf_release(&w.buf, NULL);
    return MANTA_OK;
  }
  manta__buf_fini(&w.buf);
  if (w.too_deep)
    return manta_error_set(err, st, "value is nested deeper than %d levels", MANTA_VALUE_MAX_DEPTH);
  if (st == MANTA_ETOOBIG)
    return manta_error_set(err, st, "value takes more than %u bytes of json", MANTA__JSON_MAX);
  return manta_error_set(err, st, "no memory for the json text of a value");
}

/* --- Bare words ------------------------------------------------------------------------------ */

static const struct word {
  const char *text;
  double r;
} words[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};

static const struct word *word_at(const char *s, size_t n)
{
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t len = strlen(words[i].text);
    if (len <= n && !memcmp(s, words[i].text, len))
      return &words[i];
  }
  return NULL;
}

// The next bare word at or after *at, which moves there; NULL and the end if there is none.
static const struct word *next_word(const char *s, size_t n, size_t *at)
{
  bool quoted = false;
  for (; *at < n; ++*at) {
    char c = s[*at];
    if (c == '"')
      quoted = !quoted;
    else if (quoted && c == '\\')
      ++*at;
    else if (!quoted && (c == 'N' || c == 'I' || c == '-')) {
      const struct word *w = word_at(s + *at, n - *at);
      if (w)
        return w;
    }
  }
  *at = n;
  return NULL;
}

#define MARK_OPEN  "{\"$real\":\""
#define MARK_CLOSE "\"}"
#define MARK_GROWS (sizeof MARK_OPEN MARK_CLOSE - 1)

static manta_status mark_words(manta__buf *to, const char *s, size_t n)
{
  size_t done = 0, at = 0;
  const struct word *w;
  while ((w = next_word(s, n, &at))) {
    MANTA_TRY(manta__buf_append(to, s + done, at - done));
    MANTA_TRY(manta__buf_puts(to, MARK_OPEN));
    MANTA_TRY(manta__buf_puts(to, w->text));
    MANTA_TRY(manta__buf_puts(to, MARK_CLOSE));
    done = at += strlen(w->text);
  }
  return manta__buf_append(to, s + done, n - done);
}

// The column that jansson gives counts the marks; this gives the one in the caller's text.
static int column_of(const json_error_t *e, const char *s, size_t n)
{
  size_t line = 0, at = 0, marks = 0, here = 0;
  const struct word *w;
  for (int k = 1; k < e->line && line < n; k++) {
    const char *end = memchr(s + line, '\n', n - line);
    line = end ? (size_t)(end - s) + 1 : n;
  }
  while ((w = next_word(s, n, &at))) {
    here += at >= line;
    at += strlen(w->text);
    if (at + ++marks * MARK_GROWS > (size_t)e->position)
      return e->column - (int)((here - 1) * MARK_GROWS); // at fault is this word, or what is before
  }
  return e->column - (int)(here * MARK_GROWS);
}

/* --- Reading --------------------------------------------------------------------------------- */

// The two shapes that stand for a scalar; fills in all but the bytes. See (1) to (3) on top.
static bool special(json_t *j, manta_value *v, const char **text)
{
  void *it = json_object_size(j) == 1 ? json_object_iter(j) : NULL;
  json_t *inner = it ? json_object_iter_value(it) : NULL;
  if (!json_is_string(inner))
    return false;
  const char *key = json_object_iter_key(it), *s = json_string_value(inner);
  size_t n = json_string_length(inner);
  if (!strcmp(key, "$bytes")) {
    int64_t bytes = base64_length(s, n);
    *v = (manta_value){.type = MANTA_BYTES, .count = (uint32_t)(bytes < 0 ? 0 : bytes)};
    *text = s;
    return bytes >= 0;
  }
  const struct word *w = strcmp(key, "$real") ? NULL : word_at(s, n);
  if (!w || strlen(w->text) != n)
    return false;
  *v = manta_value_real(w->r);
  return true;
}

struct need {
  size_t nodes, text;
};

static bool add_need(json_t *j, int depth, struct need *need);

static bool add_object(json_t *j, int depth, struct need *need)
{
  const char *key;
  json_t *value;
  manta_value v;
  if (special(j, &v, &key)) {
    need->text += v.type == MANTA_BYTES ? (size_t)v.count + 1 : 0;
    return true;
  }
  if (depth == 0)
    return false;
  need->nodes += json_object_size(j) * sizeof(manta_pair);
  json_object_foreach(j, key, value)
  {
    need->text += strlen(key) + 1;
    if (!add_need(value, depth - 1, need))
      return false;
  }
  return true;
}

// First walk: what the tree takes; false if it is nested too deeply.
static bool add_need(json_t *j, int depth, struct need *need)
{
  if (json_is_object(j))
    return add_object(j, depth, need);
  if (json_is_string(j))
    need->text += json_string_length(j) + 1;
  if (!json_is_array(j))
    return true;
  if (depth == 0)
    return false;
  need->nodes += json_array_size(j) * sizeof(manta_value);
  for (size_t i = 0; i < json_array_size(j); i++)
    if (!add_need(json_array_get(j, i), depth - 1, need))
      return false;
  return true;
}

static manta_value build(json_t *j, struct manta__flat *f);

static manta_value build_object(json_t *j, struct manta__flat *f)
{
  const char *key;
  json_t *value;
  manta_value v;
  if (special(j, &v, &key)) {
    if (v.type == MANTA_BYTES) {
      v.u.s = f->text;
      get_base64(f->text, key, v.count);
      f->text[v.count] = 0;
      f->text += (size_t)v.count + 1;
    }
    return v;
  }
  v = (manta_value){.type = MANTA_MAP, .count = (uint32_t)json_object_size(j)};
  v.u.pairs = manta__flat_nodes(f, v.count * sizeof *v.u.pairs);
  manta_pair *p = v.u.pairs;
  json_object_foreach(j, key, value)
  {
    p->key = manta__flat_text(f, key, strlen(key));
    p++->value = build(value, f);
  }
  return v;
}

static manta_value build_array(json_t *j, struct manta__flat *f)
{
  manta_value v = {.type = MANTA_LIST, .count = (uint32_t)json_array_size(j)};
  v.u.items = manta__flat_nodes(f, v.count * sizeof *v.u.items);
  for (uint32_t i = 0; i < v.count; i++)
    v.u.items[i] = build(json_array_get(j, i), f);
  return v;
}

static manta_value build_string(json_t *j, struct manta__flat *f)
{
  size_t n = json_string_length(j);
  const char *s = manta__flat_text(f, json_string_value(j), n);
  return (manta_value){.type = MANTA_STRING, .count = (uint32_t)n, .u.s = s};
}

static manta_value build(json_t *j, struct manta__flat *f)
{
  switch (json_typeof(j)) {
  case JSON_OBJECT:
    return build_object(j, f);
  case JSON_ARRAY:
    return build_array(j, f);
  case JSON_STRING:
    return build_string(j, f);
  case JSON_INTEGER:
    return manta_value_int(json_integer_value(j));
  case JSON_REAL:
    return manta_value_real(json_real_value(j));
  case JSON_NULL:
    return (manta_value){0};
  default:
    return manta_value_bool(json_is_true(j));
  }
}

static manta_status convert(manta_value *out, json_t *j, manta_error *err)
{
  struct need need = {0};
  struct manta__flat f;
  if (!add_need(j, MANTA_VALUE_MAX_DEPTH, &need))
    return manta_error_set(err, MANTA_ETOOBIG, "json: nested deeper than %d levels",
                           MANTA_VALUE_MAX_DEPTH);
  if (manta__flat_init(&f, need.nodes, need.text) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a value of %zu bytes",
                           need.nodes + need.text);
  manta__flat_finish(out, build(j, &f));
  return MANTA_OK;
}

static manta_status refused(const json_error_t *e, const char *text, size_t len, manta_error *err)
{
  switch (json_error_code(e)) {
  case json_error_out_of_memory:
    return manta_error_set(err, MANTA_ENOMEM, "no memory to parse %zu bytes of json", len);
  case json_error_stack_overflow:
    return manta_error_set(err, MANTA_ETOOBIG, "json: nested deeper than %d levels",
                           MANTA_VALUE_MAX_DEPTH);
  default:
    return manta_error_set(err, MANTA_EPROTO, "json: line %d column %d: %s", e->line,
                           column_of(e, text, len), e->text);
  }
}

manta_status manta_value_from_json(manta_value *out, const char *text, size_t len, manta_error *err)
{
  json_error_t e;
  manta__buf marked;
  if (len > MANTA__JSON_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "json text of more than %u bytes", MANTA__JSON_MAX);
  size_t at = 0;
  bool words_in = next_word(text, len, &at) != NULL;
  manta__buf_init(&marked, SIZE_MAX / 2);
  manta_status st = words_in ? mark_words(&marked, text, len) : MANTA_OK;
  if (st < 0) {
    manta__buf_fini(&marked);
    return manta_error_set(err, st, "no memory to parse %zu bytes of json", len);
  }
  json_t *j = json_loadb(words_in ? (const char *)marked.data : text, words_in ? marked.len : len,
                         JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
  manta__buf_fini(&marked);
  if (!j)
    return refused(&e, text, len, err);
  st = convert(out, j, err);
  json_decref(j);
  return st;
}
