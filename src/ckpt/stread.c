/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/stread.c - reads a safetensors header and believes nothing.
 *
 * A parser for this one shape of JSON, instead of a general one: a header of 65,536 tensors is read
 * without a tree, and each refusal can say what is wrong where.
 * (1) The header is copied before it is looked at: it may lie in memory that another process
 *     shares. Strings are decoded in place in that copy, where they can only become shorter.
 * (2) The tensors' data covers the rest of the file exactly: in range, no overlap, no hole.
 * (3) Sizes agree with type and shape; names are UTF-8 without NUL, and there once.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/safetensors.h"

struct byte_span {
  uint64_t begin, end;
  size_t tensor;
};

struct header_reader {
  char *begin, *at, *end;
  manta_tensor *tensors;
  struct byte_span *spans;
  size_t count, cap;
  manta_error *err;
};

static manta_status bad(struct header_reader *r, const char *what)
{
  return manta_error_set(r->err, MANTA_ECORRUPT, "safetensors header: %s at byte %td", what,
                         r->at - r->begin + 8);
}

static void skip_space(struct header_reader *r)
{
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
    r->at++;
}

static bool take(struct header_reader *r, char c)
{
  skip_space(r);
  if (r->at >= r->end || *r->at != c)
    return false;
  r->at++;
  return true;
}

static manta_status expect(struct header_reader *r, char c)
{
  char what[] = "no 'c'";
  what[4] = c;
  return take(r, c) ? MANTA_OK : bad(r, what);
}

// Behind an item: a comma (*more) or the closing character.
static manta_status next_item(struct header_reader *r, char close, bool *more)
{
  *more = take(r, ',');
  return *more ? MANTA_OK : expect(r, close);
}

/* --- Strings and numbers --- */

static manta_status hex4(struct header_reader *r, uint32_t *out)
{
  uint32_t u = 0;
  for (int i = 0; i < 4; i++, r->at++) {
    int c = r->at < r->end ? *r->at : 0;
    int d = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : -1;
    if (d < 0)
      return bad(r, "a bad \\u escape");
    u = u << 4 | (uint32_t)d;
  }
  *out = u;
  return MANTA_OK;
}

// Six bytes or more of source were taken for each: the output never overtakes the input.
static char *put_utf8(char *w, uint32_t u)
{
  int more = u < 0x80 ? 0 : u < 0x800 ? 1 : u < 0x10000 ? 2 : 3;
  static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
  *w++ = (char)(lead[more] | u >> 6 * more);
  while (more-- > 0)
    *w++ = (char)(0x80 | (u >> 6 * more & 0x3f));
  return w;
}

static manta_status unicode_escape(struct header_reader *r, char **w)
{
  uint32_t u, low;
  MANTA_TRY(hex4(r, &u));
  if (u >= 0xd800 && u < 0xe000) {
    if (u >= 0xdc00 || r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
      return bad(r, "half a surrogate pair");
    r->at += 2;
    MANTA_TRY(hex4(r, &low));
    if (low < 0xdc00 || low > 0xdfff)
      return bad(r, "half a surrogate pair");
    u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
  }
  *w = put_utf8(*w, u);
  return MANTA_OK;
}

static manta_status escape(struct header_reader *r, char **w)
{
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  char c = r->at < r->end ? *r->at : 0;
  const char *p = c ? strchr(from, c) : NULL;
  r->at += r->at < r->end;
  if (c == 'u')
    return unicode_escape(r, w);
  if (!p)
    return bad(r, "an unknown escape");
  *(*w)++ = to[p - from];
  return MANTA_OK;
}

// Decodes in place; the closing quote becomes (or has moved up to) a NUL.
static manta_status string(struct header_reader *r, char **out, size_t *len)
{
  MANTA_TRY(expect(r, '"'));
  char *s = r->at, *w = s;
  for (;;) {
    if (r->at >= r->end || (unsigned char)*r->at < 0x20)
      return bad(r, "an unfinished string");
    char c = *r->at++;
    if (c == '"')
      break;
    if (c == '\\')
      MANTA_TRY(escape(r, &w));
    else
      *w++ = c;
  }
  *w = 0;
  *out = s;
  *len = (size_t)(w - s);
  return manta__st_utf8(s, *len) ? MANTA_OK : bad(r, "a string that is not UTF-8, or with a NUL,");
}

static manta_status number(struct header_reader *r, int64_t *out)
{
  skip_space(r);
  const char *from = r->at;
  int64_t n = 0;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
    if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *r->at - '0', &n))
      return bad(r, "a number that is too big");
  if (r->at == from || (*from == '0' && r->at - from > 1))
    return bad(r, "no whole number");
  *out = n;
  return MANTA_OK;
}

// Up to `max` numbers in brackets.
static manta_status numbers(struct header_reader *r, int64_t *out, int max, int *count)
{
  MANTA_TRY(expect(r, '['));
  *count = 0;
  if (take(r, ']'))
    return MANTA_OK;
  for (bool more = true; more;) {
    if (*count == max)
      return bad(r, "a list that is too long");
    MANTA_TRY(number(r, &out[(*count)++]));
    MANTA_TRY(next_item(r, ']', &more));
  }
  return MANTA_OK;
}

/* --- One tensor --- */

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

static manta_status dtype(struct header_reader *r, manta_dtype *out)
{
  char *s;
  size_t n;
  MANTA_TRY(string(r, &s, &n));
  for (int i = 0; i < MANTA_DTYPE_COUNT; i++)
    if (!strcmp(s, manta_dtype_name((manta_dtype)i))) {
      *out = (manta_dtype)i;
      return MANTA_OK;
    }
  return manta_error_set(r->err, MANTA_ECORRUPT, "safetensors header: unknown dtype \"%.32s\"", s);
}

static manta_status offsets(struct header_reader *r, struct byte_span *span)
{
  int64_t v[2];
  int n;
  MANTA_TRY(numbers(r, v, 2, &n));
  if (n != 2)
    return bad(r, "data_offsets without an end");
  span->begin = (uint64_t)v[0];
  span->end = (uint64_t)v[1];
  return MANTA_OK;
}

static manta_status field(struct header_reader *r, manta_tensor *t, struct byte_span *span,
                          unsigned *seen)
{
  char *key;
  size_t n;
  MANTA_TRY(string(r, &key, &n));
  MANTA_TRY(expect(r, ':'));
  unsigned which = !strcmp(key, "dtype")          ? HAS_DTYPE
                   : !strcmp(key, "shape")        ? HAS_SHAPE
                   : !strcmp(key, "data_offsets") ? HAS_OFFSETS
                                                  : 0;
  if (which == 0 || *seen & which)
    return bad(r, "a field that is unknown or there twice");
  *seen |= which;
  if (which == HAS_DTYPE)
    return dtype(r, &t->dtype);
  return which == HAS_SHAPE ? numbers(r, t->shape, MANTA_MAX_DIMS, &t->ndim) : offsets(r, span);
}

static manta_status grow(struct header_reader *r)
{
  if (r->count < r->cap)
    return MANTA_OK;
  if (r->count == MANTA_STATE_MAX_TENSORS)
    return bad(r, "more than 65536 tensors");
  size_t cap = r->cap ? 2 * r->cap : 16;
  manta_tensor *t = manta__realloc(r->tensors, cap * sizeof *t);
  if (t)
    r->tensors = t;
  struct byte_span *s = t ? manta__realloc(r->spans, cap * sizeof *s) : NULL;
  if (!s)
    return manta_error_set(r->err, MANTA_ENOMEM, "no memory for the tensors of a checkpoint");
  r->spans = s;
  r->cap = cap;
  return MANTA_OK;
}

static manta_status tensor(struct header_reader *r, char *name, size_t len)
{
  if (len == 0 || len > MANTA_TENSOR_NAME_MAX)
    return bad(r, "a name that is empty or too long");
  MANTA_TRY(grow(r));
  manta_tensor t = {.name = name};
  struct byte_span span = {.tensor = r->count};
  unsigned seen = 0;
  MANTA_TRY(expect(r, '{'));
  for (bool more = true; more;) {
    MANTA_TRY(field(r, &t, &span, &seen));
    MANTA_TRY(next_item(r, '}', &more));
  }
  if (seen != HAS_ALL)
    return bad(r, "a tensor without dtype, shape or data_offsets");
  int64_t bytes = manta_tensor_bytes(&t);
  if (bytes < 0 || span.end < span.begin || (uint64_t)bytes != span.end - span.begin)
    return manta_error_set(
        r->err, MANTA_ECORRUPT,
        "safetensors header: tensor \"%.200s\" has data_offsets that do not agree "
        "with its type and shape",
        name);
  r->tensors[r->count] = t;
  r->spans[r->count++] = span;
  return MANTA_OK;
}

/* --- The whole header --- */

// "__metadata__": strings only; what they say is for people.
static manta_status metadata(struct header_reader *r)
{
  char *s;
  size_t n;
  MANTA_TRY(expect(r, '{'));
  if (take(r, '}'))
    return MANTA_OK;
  for (bool more = true; more;) {
    MANTA_TRY(string(r, &s, &n));
    MANTA_TRY(expect(r, ':'));
    MANTA_TRY(string(r, &s, &n));
    MANTA_TRY(next_item(r, '}', &more));
  }
  return MANTA_OK;
}

static manta_status header(struct header_reader *r)
{
  bool meta = false;
  MANTA_TRY(expect(r, '{'));
  for (bool more = !take(r, '}'); more;) {
    char *name;
    size_t len;
    MANTA_TRY(string(r, &name, &len));
    MANTA_TRY(expect(r, ':'));
    if (strcmp(name, "__metadata__") != 0)
      MANTA_TRY(tensor(r, name, len));
    else if (meta)
      return bad(r, "__metadata__ twice");
    else
      MANTA_TRY(metadata(r));
    meta |= !strcmp(name, "__metadata__");
    MANTA_TRY(next_item(r, '}', &more));
  }
  skip_space(r);
  return r->at == r->end ? MANTA_OK : bad(r, "something behind its end");
}

static int by_place(const void *a, const void *b)
{
  const struct byte_span *x = a, *y = b;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static manta_status cover(struct header_reader *r, char *data, uint64_t len)
{
  if (r->count)
    qsort(r->spans, r->count, sizeof *r->spans, by_place);
  uint64_t at = 0;
  for (size_t i = 0; i < r->count; i++) {
    const struct byte_span *s = &r->spans[i];
    manta_tensor *t = &r->tensors[s->tensor];
    if (s->begin != at || s->end > len)
      return manta_error_set(r->err, MANTA_ECORRUPT,
                             "safetensors: tensor \"%.200s\" at %" PRIu64 " to %" PRIu64
                             " overlaps, leaves a hole or ends behind the file",
                             t->name, s->begin, s->end);
    t->data = data + s->begin;
    at = s->end;
  }
  if (at != len)
    return manta_error_set(r->err, MANTA_ECORRUPT,
                           "safetensors: %" PRIu64 " bytes of data, the header says %" PRIu64, len,
                           at);
  return MANTA_OK;
}

static manta_status header_len(const uint8_t *file, size_t len, size_t *out, manta_error *err)
{
  uint64_t n = 0;
  for (int i = 7; i >= 0 && len >= 8; i--)
    n = n << 8 | file[i];
  if (len < 8 || n < 2 || n > len - 8 || n > MANTA__ST_HEADER_MAX)
    return manta_error_set(err, MANTA_ECORRUPT,
                           "safetensors: a header of %" PRIu64 " bytes in a file of %zu", n, len);
  *out = (size_t)n;
  return MANTA_OK;
}

static manta_status read_all(struct header_reader *r, struct manta__st *s, char *data, uint64_t len)
{
  MANTA_TRY(header(r));
  MANTA_TRY(cover(r, data, len));
  manta_status st = manta__st_index_make(&s->index, r->tensors, r->count, r->err);
  if (st == MANTA_EINVAL && r->err) // twice the same name: here the file is wrong, not the caller
    r->err->status = MANTA_ECORRUPT;
  return st == MANTA_EINVAL ? MANTA_ECORRUPT : st;
}

manta_status manta__st_open(struct manta__st *out, const void *file, size_t len, manta_error *err)
{
  size_t n = 0;
  MANTA_TRY(header_len(file, len, &n, err));
  struct manta__st s = {.header = manta__malloc(n)};
  if (!s.header)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a header of %zu bytes", n);
  memcpy(s.header, (const char *)file + 8, n);
  struct header_reader r = {.begin = s.header, .at = s.header, .end = s.header + n, .err = err};
  // manta_tensor has one data pointer for saving and loading; what is loaded must not be written
  // to.
  manta_status st = read_all(&r, &s, (char *)(uintptr_t)file + 8 + n, len - 8 - n);
  manta__free(r.spans);
  s.tensors = r.tensors;
  s.count = r.count;
  if (st < 0)
    manta__st_fini(&s);
  else
    *out = s;
  return st;
}

void manta__st_fini(struct manta__st *s)
{
  manta__free(s->tensors);
  manta__st_index_fini(&s->index);
  manta__free(s->header);
  *s = (struct manta__st){0};
}
