/* SPDX-License-Identifier: Apache-2.0 */
#include "data/binary/npy.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/utf8.h"

#define SCRATCH (256u << 10)
#define WHOLE   "\nhint: is it a .npy file, and whole? Write or fetch it again"

// --- opening ------------------------------------------------------------------------------------

static manta_status read_bytes(struct manta__npy *a, void *to, size_t n, manta_error *err)
{
  size_t got;
  MANTA_TRY(manta__input_read(&a->input, to, n, &got, err));
  if (got < n)
    return manta_error_set(err, MANTA_ECORRUPT, "%s: ends %zu bytes too early" WHOLE, a->name,
                           n - got);
  if (a->checks)
    a->crc = manta__crc32(a->crc, to, n);
  return MANTA_OK;
}

static manta_status read_header(struct manta__npy *a, manta_error *err)
{
  uint8_t start[MANTA__NPY_START];
  size_t got, n = 0;
  MANTA_TRY(manta__input_read(&a->input, start, sizeof start, &got, err));
  if (got < sizeof start)
    return manta_error_set(err, MANTA_ECORRUPT, "%s: ends in the header of the array" WHOLE,
                           a->name);
  MANTA_TRY(manta__npy_length(start, &n, a->name, err));
  uint8_t *p = manta__malloc(n);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", a->name);
  memcpy(p, start, sizeof start);
  manta_status st = manta__input_read(&a->input, p + sizeof start, n - sizeof start, &got, err);
  if (st == MANTA_OK && got < n - sizeof start)
    st = manta_error_set(err, MANTA_ECORRUPT, "%s: ends in the header of the array" WHOLE, a->name);
  if (st == MANTA_OK)
    st = manta__npy_parse(&a->header, p, n, a->name, err);
  if (st == MANTA_OK)
    a->crc = manta__crc32(0, p, n);
  manta__free(p);
  return st;
}

manta_status manta__npy_open(struct manta__npy *a, struct manta__source *source, int64_t from,
                             int64_t to, enum manta__compression form, const char *name,
                             manta_error *err)
{
  *a = (struct manta__npy){.source = source, .from = from, .checks = true};
  manta_status st = manta__input_open(&a->input, source, from, to, form, err);
  if (st == MANTA_OK && !(a->name = manta__strdup(name)))
    st = manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", name);
  if (st == MANTA_OK)
    st = read_header(a, err);
  a->end = a->header.rows;
  if (st == MANTA_OK && a->header.fortran && form != MANTA__PLAIN)
    st = manta_error_set(err, MANTA_EUNSUPPORTED,
                         "%s: is compressed and in Fortran order, so that its rows lie apart"
                         "\nhint: save numpy.ascontiguousarray of it, or without compression",
                         name);
  int64_t needs = a->header.bytes + a->header.rows * (int64_t)a->header.row;
  if (st == MANTA_OK && form == MANTA__PLAIN && needs > to - from)
    st = manta_error_set(err, MANTA_ECORRUPT,
                         "%s: its %" PRId64 " rows need %" PRId64
                         " bytes, but it has %" PRId64 WHOLE,
                         name, a->header.rows, needs, to - from);
  if (st < 0)
    manta__npy_close(a);
  return st;
}

void manta__npy_close(struct manta__npy *a)
{
  manta__input_close(&a->input);
  manta__free(a->name);
  manta__free(a->scratch);
  *a = (struct manta__npy){0};
}

manta_status manta__npy_seek(struct manta__npy *a, int64_t row, manta_error *err)
{
  int64_t end = a->input.end;
  a->next = row;
  a->checks = false; // what was passed over is not known
  manta__input_close(&a->input);
  return manta__input_open(&a->input, a->source,
                           a->from + a->header.bytes + row * (int64_t)a->header.row, end,
                           MANTA__PLAIN, err);
}

// --- rows ---------------------------------------------------------------------------------------

static void swap(uint8_t *p, size_t n, size_t element)
{
  for (size_t at = 0; at + element <= n; at += element)
    for (size_t i = 0; i < element / 2; i++) {
      uint8_t x = p[at + i];
      p[at + i] = p[at + element - 1 - i];
      p[at + element - 1 - i] = x;
    }
}

static manta_status need_scratch(struct manta__npy *a, size_t n, manta_error *err)
{
  if (n <= a->scratch_bytes)
    return MANTA_OK;
  uint8_t *more = manta__realloc(a->scratch, n);
  if (!more)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", a->name);
  a->scratch = more;
  a->scratch_bytes = n;
  return MANTA_OK;
}

// Where element k of a value lies in Fortran order: there the first dimension goes fastest.
static int64_t fortran_place(const struct manta__type *t, int64_t k)
{
  int64_t place = 0, stride = manta__type_count(t);
  for (int d = t->ndim - 1; d >= 0; d--) {
    stride /= t->shape[d];
    place += k % t->shape[d] * stride;
    k /= t->shape[d];
  }
  return place;
}

// One run of n elements per element of a value, each laid out with the width of a value between.
static manta_status read_fortran(struct manta__npy *a, int64_t n, uint8_t *to, manta_error *err)
{
  const struct manta__npy_header *h = &a->header;
  int64_t each = manta__type_count(&h->type);
  a->checks = false;
  MANTA_TRY(need_scratch(a, (size_t)n * h->element, err));
  for (int64_t k = 0; k < each; k++) {
    int64_t first = fortran_place(&h->type, k) * h->rows + a->next;
    MANTA_TRY(manta__source_read(a->source, a->from + h->bytes + first * (int64_t)h->element,
                                 a->scratch, (size_t)n * h->element, err));
    for (int64_t i = 0; i < n; i++)
      memcpy(to + (size_t)(i * each + k) * h->element, a->scratch + (size_t)i * h->element,
             h->element);
  }
  return MANTA_OK;
}

static manta_status read_numbers(struct manta__npy *a, int64_t n, struct manta__build *b,
                                 manta_error *err)
{
  const struct manta__npy_header *h = &a->header;
  uint8_t *to = manta__build_data(b);
  MANTA_TRY(h->fortran ? read_fortran(a, n, to, err) : read_bytes(a, to, (size_t)n * h->row, err));
  if (h->swapped)
    swap(to, (size_t)n * h->row, h->element);
  return manta__build_valid(b, n, NULL, 0, err);
}

// --- text ---------------------------------------------------------------------------------------

// UTF-32, with zeros at its end.
static manta_status put_unicode(struct manta__npy *a, const uint8_t *p, struct manta__build *b,
                                manta_error *err)
{
  size_t n = a->header.element / 4, len = 0;
  char *to;
  MANTA_TRY(manta__build_text_room(b, 4 * n, &to, err));
  while (n && !memcmp(p + 4 * (n - 1), "\0\0\0\0", 4))
    n--;
  for (size_t i = 0; i < n; i++) {
    uint32_t c;
    memcpy(&c, p + 4 * i, 4);
    c = a->header.swapped ? __builtin_bswap32(c) : c;
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
      return manta_error_set(err, MANTA_EINVAL, "%s: row %" PRId64 " holds no Unicode text",
                             a->name, a->next);
    len += manta__utf8_put(c, to + len);
  }
  manta__build_text_done(b, len);
  return MANTA_OK;
}

static manta_status put_element(struct manta__npy *a, const uint8_t *p, struct manta__build *b,
                                manta_error *err)
{
  size_t n = a->header.element;
  if (a->header.kind == MANTA__NPY_BOOL) {
    manta__build_bool(b, *p != 0);
    return MANTA_OK;
  }
  if (a->header.kind == MANTA__NPY_UNICODE)
    return put_unicode(a, p, b, err);
  while (n && p[n - 1] == 0)
    n--;
  return manta__build_text(b, (const char *)p, n, err);
}

manta_status manta__npy_read(struct manta__npy *a, int64_t n, struct manta__build *b,
                             manta_error *err)
{
  size_t row = a->header.row;
  if (a->header.kind == MANTA__NPY_NUMBER) {
    MANTA_TRY(read_numbers(a, n, b, err));
    a->next += n;
    return MANTA_OK;
  }
  size_t chunk = row < SCRATCH ? SCRATCH / row : 1;
  MANTA_TRY(need_scratch(a, chunk * row, err));
  while (n > 0) {
    size_t some = (size_t)n < chunk ? (size_t)n : chunk;
    MANTA_TRY(read_bytes(a, a->scratch, some * row, err));
    for (size_t i = 0; i < some; i++, a->next++)
      MANTA_TRY(put_element(a, a->scratch + i * row, b, err));
    n -= (int64_t)some;
  }
  return MANTA_OK;
}
