/* SPDX-License-Identifier: Apache-2.0
 *
 * base/value.c - making, changing and comparing dynamic values; who owns what is in base/value.h.
 *
 * (1) A list or map that is OWNED and not FLAT has room for capacity(count) entries.
 * (2) Only such a container is changed in place; any other is first copied into that form.
 * (3) An entry is moved in as it came: one that borrows goes on borrowing.
 */
#include "base/value.h"

#include <math.h>

#include "base/alloc.h"

void manta_free(void *p)
{
  manta__free(p);
}

/* --- Values that borrow --------------------------------------------------------------------- */

manta_value manta_value_int(int64_t i)
{
  return (manta_value){.type = MANTA_INT, .u.i = i};
}

manta_value manta_value_real(double r)
{
  return (manta_value){.type = MANTA_REAL, .u.r = r};
}

manta_value manta_value_bool(bool b)
{
  return (manta_value){.type = MANTA_BOOL, .u.b = b};
}

manta_value manta_value_borrow_string(const char *s)
{
  if (!s)
    return (manta_value){0};
  manta_value v = manta_value_borrow_bytes(s, strlen(s));
  v.type = MANTA_STRING;
  return v;
}

manta_value manta_value_borrow_bytes(const void *p, size_t n)
{
  // Too long for `count`: kept over the limit, so that writing it fails instead of cutting it.
  uint32_t count = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
  return (manta_value){.type = MANTA_BYTES, .count = count, .u.s = p};
}

/* --- Freeing and moving ---------------------------------------------------------------------- */

void manta_value_fini(manta_value *v)
{
  if (!v)
    return;
  if (v->flags & MANTA__OWNED) {
    bool loose = !(v->flags & MANTA__FLAT);
    for (uint32_t i = 0; loose && v->type == MANTA_LIST && i < v->count; i++)
      manta_value_fini(&v->u.items[i]);
    for (uint32_t i = 0; loose && v->type == MANTA_MAP && i < v->count; i++) {
      manta__free((char *)v->u.pairs[i].key);
      manta_value_fini(&v->u.pairs[i].value);
    }
    manta__free((char *)v->u.s);
  }
  *v = (manta_value){0};
}

// The new content is complete before the old is freed: it may have been made from it.
static manta_status replace(manta_value *v, manta_value with)
{
  manta_value_fini(v);
  *v = with;
  return MANTA_OK;
}

void manta_value_move(manta_value *dst, manta_value *src)
{
  manta_value v = *src;
  *src = (manta_value){0}; // before dst is freed: the two may be one, or src lie within dst
  replace(dst, v);
}

/* --- Copies in one block --------------------------------------------------------------------- */

manta_status manta__flat_init(struct manta__flat *f, size_t nodes, size_t text)
{
  *f = (struct manta__flat){0};
  if (nodes + text == 0)
    return MANTA_OK;
  f->nodes = manta__malloc(nodes + text);
  if (!f->nodes)
    return MANTA_ENOMEM;
  f->text = f->nodes + nodes;
  return MANTA_OK;
}

void manta__flat_finish(manta_value *out, manta_value root)
{
  root.flags = root.type >= MANTA_STRING ? MANTA__OWNED | MANTA__FLAT : 0;
  replace(out, root);
}

static void measure(const manta_value *v, size_t *nodes, size_t *text)
{
  switch (v->type) {
  case MANTA_STRING:
  case MANTA_BYTES:
    *text += (size_t)v->count + 1;
    break;
  case MANTA_LIST:
    *nodes += v->count * sizeof *v->u.items;
    for (uint32_t i = 0; i < v->count; i++)
      measure(&v->u.items[i], nodes, text);
    break;
  case MANTA_MAP:
    *nodes += v->count * sizeof *v->u.pairs;
    for (uint32_t i = 0; i < v->count; i++) {
      *text += strlen(v->u.pairs[i].key) + 1;
      measure(&v->u.pairs[i].value, nodes, text);
    }
    break;
  default:
    break;
  }
}

static manta_value fill(const manta_value *v, struct manta__flat *f)
{
  manta_value out = *v;
  out.flags = 0;
  switch (v->type) {
  case MANTA_STRING:
  case MANTA_BYTES:
    out.u.s = manta__flat_text(f, v->u.s, v->count);
    break;
  case MANTA_LIST:
    out.u.items = manta__flat_nodes(f, v->count * sizeof *out.u.items);
    for (uint32_t i = 0; i < v->count; i++)
      out.u.items[i] = fill(&v->u.items[i], f);
    break;
  case MANTA_MAP:
    out.u.pairs = manta__flat_nodes(f, v->count * sizeof *out.u.pairs);
    for (uint32_t i = 0; i < v->count; i++) {
      const char *key = v->u.pairs[i].key;
      out.u.pairs[i].key = manta__flat_text(f, key, strlen(key));
      out.u.pairs[i].value = fill(&v->u.pairs[i].value, f);
    }
    break;
  default:
    break;
  }
  return out;
}

manta_status manta_value_copy(manta_value *out, const manta_value *v)
{
  size_t nodes = 0, text = 0;
  struct manta__flat f;
  measure(v, &nodes, &text);
  MANTA_TRY(manta__flat_init(&f, nodes, text));
  manta__flat_finish(out, fill(v, &f));
  return MANTA_OK;
}

/* --- Values that own ------------------------------------------------------------------------- */

void manta_value_set_nil(manta_value *v)
{
  manta_value_fini(v);
}

manta_status manta_value_set_bool(manta_value *v, bool b)
{
  return replace(v, manta_value_bool(b));
}

manta_status manta_value_set_int(manta_value *v, int64_t i)
{
  return replace(v, manta_value_int(i));
}

manta_status manta_value_set_real(manta_value *v, double r)
{
  return replace(v, manta_value_real(r));
}

static manta_status set_text(manta_value *v, manta_type type, const void *p, size_t n)
{
  if (n > MANTA_VALUE_MAX_BYTES)
    return MANTA_ETOOBIG;
  manta_value borrowed = {.type = (uint8_t)type, .count = (uint32_t)n, .u.s = p};
  return manta_value_copy(v, &borrowed);
}

manta_status manta_value_set_string(manta_value *v, const char *s)
{
  return s ? set_text(v, MANTA_STRING, s, strlen(s)) : replace(v, (manta_value){0});
}

manta_status manta_value_set_bytes(manta_value *v, const void *p, size_t n)
{
  return set_text(v, MANTA_BYTES, p, n);
}

manta_status manta_value_set_list(manta_value *v)
{
  return replace(v, (manta_value){.type = MANTA_LIST, .flags = MANTA__OWNED});
}

manta_status manta_value_set_map(manta_value *v)
{
  return replace(v, (manta_value){.type = MANTA_MAP, .flags = MANTA__OWNED});
}

/* --- Changing lists and maps ----------------------------------------------------------------- */

static size_t capacity(uint32_t count)
{
  size_t cap = count ? 4 : 0;
  while (cap < count)
    cap *= 2;
  return cap;
}

static size_t entry_size(const manta_value *v)
{
  return v->type == MANTA_MAP ? sizeof(manta_pair) : sizeof(manta_value);
}

// Moves one entry's content into blocks of its own; `to` counts it only when it is whole.
static manta_status copy_entry(manta_value *to, const manta_value *from)
{
  uint32_t i = to->count;
  if (from->type == MANTA_LIST) {
    to->u.items[i] = (manta_value){0};
    MANTA_TRY(manta_value_copy(&to->u.items[i], &from->u.items[i]));
  } else {
    manta_pair p = {.key = manta__strdup(from->u.pairs[i].key)};
    if (!p.key)
      return MANTA_ENOMEM;
    manta_status st = manta_value_copy(&p.value, &from->u.pairs[i].value);
    if (st < 0) {
      manta__free((char *)p.key);
      return st;
    }
    to->u.pairs[i] = p;
  }
  to->count++;
  return MANTA_OK;
}

// Brings v into the form that can be changed in place (invariants 1 and 2).
static manta_status loosen(manta_value *v)
{
  if ((v->flags & MANTA__OWNED) && !(v->flags & MANTA__FLAT))
    return MANTA_OK;
  manta_value own = {.type = v->type, .flags = MANTA__OWNED};
  if (v->count) {
    own.u.s = manta__malloc(capacity(v->count) * entry_size(v));
    if (!own.u.s)
      return MANTA_ENOMEM;
  }
  while (own.count < v->count) {
    manta_status st = copy_entry(&own, v);
    if (st < 0) {
      manta_value_fini(&own);
      return st;
    }
  }
  return replace(v, own);
}

static manta_status make_room(manta_value *v)
{
  if (v->count >= MANTA_VALUE_MAX_BYTES)
    return MANTA_ETOOBIG;
  if (v->count < capacity(v->count))
    return MANTA_OK;
  void *p = manta__realloc((char *)v->u.s, capacity(v->count + 1) * entry_size(v));
  if (!p)
    return MANTA_ENOMEM;
  v->u.s = p;
  return MANTA_OK;
}

manta_status manta_value_append(manta_value *v, manta_value *item)
{
  if (v->type != MANTA_LIST)
    return MANTA_ETYPE;
  if (item == v)
    return MANTA_EINVAL;
  MANTA_TRY(loosen(v));
  MANTA_TRY(make_room(v));
  v->u.items[v->count++] = *item;
  *item = (manta_value){0};
  return MANTA_OK;
}

manta_status manta_value_put(manta_value *v, const char *key, manta_value *item)
{
  if (v->type != MANTA_MAP)
    return MANTA_ETYPE;
  if (item == v || !key)
    return MANTA_EINVAL;
  size_t n = strlen(key);
  if (n > MANTA_VALUE_MAX_BYTES)
    return MANTA_ETOOBIG;
  MANTA_TRY(loosen(v));
  manta_value *old = (manta_value *)manta_value_get(v, key);
  if (old) {
    manta_value_move(old, item);
    return MANTA_OK;
  }
  MANTA_TRY(make_room(v));
  char *own_key = manta__strndup(key, n);
  if (!own_key)
    return MANTA_ENOMEM;
  v->u.pairs[v->count++] = (manta_pair){own_key, *item};
  *item = (manta_value){0};
  return MANTA_OK;
}

manta_status manta_value_put_int(manta_value *v, const char *key, int64_t i)
{
  manta_value item = manta_value_int(i);
  return manta_value_put(v, key, &item);
}

manta_status manta_value_put_real(manta_value *v, const char *key, double r)
{
  manta_value item = manta_value_real(r);
  return manta_value_put(v, key, &item);
}

manta_status manta_value_put_bool(manta_value *v, const char *key, bool b)
{
  manta_value item = manta_value_bool(b);
  return manta_value_put(v, key, &item);
}

manta_status manta_value_put_string(manta_value *v, const char *key, const char *s)
{
  manta_value item = {0};
  MANTA_TRY(manta_value_set_string(&item, s));
  manta_status st = manta_value_put(v, key, &item);
  manta_value_fini(&item);
  return st;
}

/* --- Reading --------------------------------------------------------------------------------- */

const manta_value *manta_value_get(const manta_value *map, const char *key)
{
  if (!map || map->type != MANTA_MAP || !key)
    return NULL;
  for (uint32_t i = 0; i < map->count; i++)
    if (!strcmp(map->u.pairs[i].key, key))
      return &map->u.pairs[i].value;
  return NULL;
}

const manta_value *manta__value_path(const manta_value *map, const char *path)
{
  const manta_value *v = manta_value_get(map, path);
  if (v || !map || map->type != MANTA_MAP)
    return v;
  for (uint32_t i = 0; i < map->count && !v; i++) {
    const manta_pair *p = &map->u.pairs[i];
    size_t n = strlen(p->key);
    if (p->value.type == MANTA_MAP && !strncmp(p->key, path, n) && path[n] == '/')
      v = manta__value_path(&p->value, path + n + 1);
  }
  return v;
}

const manta_value *manta_value_at(const manta_value *list, size_t i)
{
  return list && list->type == MANTA_LIST && i < list->count ? &list->u.items[i] : NULL;
}

int64_t manta_value_as_int(const manta_value *v, int64_t dflt)
{
  if (v && v->type == MANTA_INT)
    return v->u.i;
  if (v && v->type == MANTA_REAL && v->u.r >= -0x1p63 && v->u.r < 0x1p63 &&
      v->u.r == (double)(int64_t)v->u.r)
    return (int64_t)v->u.r;
  return dflt;
}

double manta_value_as_real(const manta_value *v, double dflt)
{
  if (v && v->type == MANTA_REAL)
    return v->u.r;
  if (!v || v->type != MANTA_INT)
    return dflt;
  double r = (double)v->u.i;
  // 2^63 itself is what the largest integers round up to, and does not fit back.
  return r < 0x1p63 && (int64_t)r == v->u.i ? r : dflt;
}

bool manta_value_as_bool(const manta_value *v, bool dflt)
{
  return v && v->type == MANTA_BOOL ? v->u.b : dflt;
}

const char *manta_value_as_string(const manta_value *v, const char *dflt)
{
  return v && v->type == MANTA_STRING ? v->u.s : dflt;
}

/* --- Comparing ------------------------------------------------------------------------------- */

// The pair of `b` that stands for pair i of `a`: a key that comes twice is matched turn by turn.
static const manta_value *counterpart(const manta_value *a, uint32_t i, const manta_value *b)
{
  const char *key = a->u.pairs[i].key;
  uint32_t skip = 0;
  for (uint32_t k = 0; k < i; k++)
    skip += !strcmp(a->u.pairs[k].key, key);
  for (uint32_t k = 0; k < b->count; k++)
    if (!strcmp(b->u.pairs[k].key, key) && skip-- == 0)
      return &b->u.pairs[k].value;
  return NULL;
}

static bool equal_maps(const manta_value *a, const manta_value *b)
{
  // Most pairs of maps have one order, and then no search is needed.
  bool aligned = true;
  for (uint32_t i = 0; i < a->count; i++) {
    aligned = aligned && !strcmp(a->u.pairs[i].key, b->u.pairs[i].key);
    const manta_value *other = aligned ? &b->u.pairs[i].value : counterpart(a, i, b);
    if (!other || !manta_value_equal(&a->u.pairs[i].value, other))
      return false;
  }
  return true;
}

static bool equal_lists(const manta_value *a, const manta_value *b)
{
  for (uint32_t i = 0; i < a->count; i++)
    if (!manta_value_equal(&a->u.items[i], &b->u.items[i]))
      return false;
  return true;
}

bool manta_value_equal(const manta_value *a, const manta_value *b)
{
  if (a->type != b->type || (a->type >= MANTA_STRING && a->count != b->count))
    return false;
  switch (a->type) {
  case MANTA_BOOL:
    return a->u.b == b->u.b;
  case MANTA_INT:
    return a->u.i == b->u.i;
  case MANTA_REAL:
    return a->u.r == b->u.r || (isnan(a->u.r) && isnan(b->u.r));
  case MANTA_STRING:
  case MANTA_BYTES:
    return !a->count || !memcmp(a->u.s, b->u.s, a->count);
  case MANTA_LIST:
    return equal_lists(a, b);
  case MANTA_MAP:
    return equal_maps(a, b);
  default:
    return true;
  }
}
