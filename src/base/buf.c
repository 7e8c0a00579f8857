/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

void manta__buf_init(manta__buf *b, size_t limit)
{
  *b = (manta__buf){.limit = limit};
}

void manta__buf_fini(manta__buf *b)
{
  manta__free(b->data);
  *b = (manta__buf){0};
}

manta_status manta__buf_reserve(manta__buf *b, size_t n)
{
  if (n > b->limit || b->len > b->limit - n)
    return MANTA_ETOOBIG;
  size_t need = b->len + n;
  if (need <= b->cap)
    return MANTA_OK;
  size_t cap = b->cap < 64 ? 64 : b->cap;
  while (cap < need)
    cap += cap / 2 + 64;
  if (cap > b->limit)
    cap = b->limit;
  uint8_t *p = manta__realloc(b->data, cap);
  if (!p)
    return MANTA_ENOMEM;
  b->data = p;
  b->cap = cap;
  return MANTA_OK;
}

manta_status manta__buf_append(manta__buf *b, const void *p, size_t n)
{
  MANTA_TRY(manta__buf_reserve(b, n));
  if (n)
    memcpy(b->data + b->len, p, n);
  b->len += n;
  return MANTA_OK;
}

manta_status manta__buf_puts(manta__buf *b, const char *s)
{
  return manta__buf_append(b, s, strlen(s));
}

manta_status manta__buf_putc(manta__buf *b, char c)
{
  return manta__buf_append(b, &c, 1);
}

manta_status manta__buf_printf(manta__buf *b, const char *fmt, ...)
{
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  // One byte more than is kept: vsnprintf writes its NUL there.
  manta_status st = n < 0 ? MANTA_EINVAL : manta__buf_reserve(b, (size_t)n + 1);
  if (st == MANTA_OK) {
    vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, again);
    b->len += (size_t)n;
  }
  va_end(again);
  return st;
}

manta_status manta__buf_terminate(manta__buf *b)
{
  MANTA_TRY(manta__buf_reserve(b, 1));
  b->data[b->len] = 0;
  return MANTA_OK;
}

void manta__buf_consume(manta__buf *b, size_t n)
{
  if (n >= b->len) {
    b->len = 0;
    return;
  }
  memmove(b->data, b->data + n, b->len - n);
  b->len -= n;
}

void *manta__buf_release(manta__buf *b, size_t *len_out)
{
  void *p = b->data;
  if (len_out)
    *len_out = b->len;
  *b = (manta__buf){.limit = b->limit};
  return p;
}
