/* SPDX-License-Identifier: Apache-2.0 */
#include "data/binary/example.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static bool take_varint(struct manta__proto *m, uint64_t *out)
{
  uint64_t v = 0;
  for (int shift = 0; shift < 64 && m->p < m->end; shift += 7) {
    uint8_t b = *m->p++;
    v |= (uint64_t)(b & 127) << shift;
    if (!(b & 128)) {
      *out = v;
      return true;
    }
  }
  return false;
}

static bool take_bytes(struct manta__proto *m, struct manta__proto *out)
{
  uint64_t n;
  if (!take_varint(m, &n) || n > (uint64_t)(m->end - m->p))
    return false;
  *out = (struct manta__proto){m->p, m->p + n};
  m->p += n;
  return true;
}

// A field: its number and kind, and its bytes if it has some. Others are passed over.
static int take_field(struct manta__proto *m, uint64_t *number, unsigned *wire,
                      struct manta__proto *body)
{
  uint64_t key, ignored;
  if (m->p == m->end)
    return 0;
  if (!take_varint(m, &key))
    return -1;
  *number = key >> 3;
  *wire = key & 7;
  *body = (struct manta__proto){m->p, m->p};
  size_t fixed = *wire == FIXED64 ? 8 : *wire == FIXED32 ? 4 : 0;
  if (*wire == BYTES)
    return take_bytes(m, body) ? 1 : -1;
  if (*wire == VARINT)
    return take_varint(m, &ignored) ? (body->end = m->p, 1) : -1;
  if (!fixed || (size_t)(m->end - m->p) < fixed)
    return -1;
  m->p += fixed;
  body->end = m->p;
  return 1;
}

// The next field with this number that holds bytes.
static int find_field(struct manta__proto *m, uint64_t number, struct manta__proto *out)
{
  uint64_t n;
  unsigned wire;
  int rc;
  while ((rc = take_field(m, &n, &wire, out)) == 1)
    if (n == number && wire == BYTES)
      return 1;
  return rc;
}

// --- features -----------------------------------------------------------------------------------

static bool read_feature(struct manta__proto m, struct manta__feature *out)
{
  struct manta__proto body;
  uint64_t n;
  unsigned wire;
  int rc;
  *out = (struct manta__feature){0};
  while ((rc = take_field(&m, &n, &wire, &body)) == 1)
    if (wire == BYTES && n >= 1 && n <= 3) {
      out->kind = (enum manta__feature_kind)n; // the last one counts
      out->list = body;
    }
  return rc == 0;
}

int manta__example_next(struct manta__example *e, const char **name, size_t *name_n,
                        struct manta__feature *out)
{
  struct manta__proto entry, body;
  uint64_t n;
  unsigned wire;
  int rc;
  while ((rc = find_field(&e->features, 1, &entry)) == 0) {
    rc = find_field(&e->example, 1, &e->features);
    if (rc != 1)
      return rc;
  }
  if (rc < 0)
    return -1;
  *name = "";
  *name_n = 0;
  *out = (struct manta__feature){0};
  while ((rc = take_field(&entry, &n, &wire, &body)) == 1) {
    if (wire == BYTES && n == 1) {
      *name = (const char *)body.p;
      *name_n = (size_t)(body.end - body.p);
    }
    if (wire == BYTES && n == 2 && !read_feature(body, out))
      return -1;
  }
  return rc < 0 ? -1 : 1;
}

// --- values -------------------------------------------------------------------------------------

static int take_number(struct manta__proto *m, enum manta__feature_kind kind, int64_t *out)
{
  uint64_t v = 0;
  if (m->p == m->end)
    return 0;
  if (kind == MANTA__FEATURE_INTS) {
    if (!take_varint(m, &v))
      return -1;
  } else {
    if (m->end - m->p < 4)
      return -1;
    memcpy(&v, m->p, 4);
    m->p += 4;
  }
  *out = (int64_t)v;
  return 1;
}

// Numbers come packed, many in one field, or one by one.
int manta__feature_number(struct manta__feature_values *v, enum manta__feature_kind kind,
                          int64_t *out)
{
  uint64_t n;
  unsigned wire, single = kind == MANTA__FEATURE_INTS ? VARINT : FIXED32;
  for (;;) {
    int rc = take_number(&v->packed, kind, out);
    if (rc != 0)
      return rc;
    rc = take_field(&v->list, &n, &wire, &v->packed);
    if (rc != 1)
      return rc;
    if (n != 1 || (wire != BYTES && wire != single))
      v->packed = (struct manta__proto){0};
  }
}

int manta__feature_bytes(struct manta__feature_values *v, const char **p, size_t *n)
{
  struct manta__proto body = {0};
  int rc = find_field(&v->list, 1, &body);
  *p = (const char *)body.p;
  *n = rc == 1 ? (size_t)(body.end - body.p) : 0;
  return rc;
}

int64_t manta__feature_count(const struct manta__feature *f)
{
  struct manta__feature_values v = {.list = f->list};
  int64_t count = 0, ignored;
  const char *p;
  size_t n;
  int rc = 0;
  if (f->kind == MANTA__FEATURE_NONE)
    return 0;
  while ((rc = f->kind == MANTA__FEATURE_BYTES ? manta__feature_bytes(&v, &p, &n)
                                               : manta__feature_number(&v, f->kind, &ignored)) == 1)
    count++;
  return rc < 0 ? -1 : count;
}
