/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/columns.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

void manta__columns_fini(struct manta__columns *c)
{
  manta_value_fini(&c->names);
  manta__free(c->slot);
  *c = (struct manta__columns){0};
}

static const char *name_at(const struct manta__columns *c, size_t i)
{
  return c->names.u.items[i].u.s;
}

static size_t slot_of(const struct manta__columns *c, const char *name)
{
  size_t at = manta__hash(name, strlen(name)) & (c->slots - 1);
  while (c->slot[at] && strcmp(name_at(c, c->slot[at] - 1), name) != 0)
    at = (at + 1) & (c->slots - 1);
  return at;
}

size_t manta__columns_find(struct manta__columns *c, const char *name)
{
  size_t n = c->names.count;
  if (c->next < n && !strcmp(name_at(c, c->next), name))
    return c->next++;
  if (n == 0)
    return MANTA__NO_COLUMN;
  size_t found = (size_t)c->slot[slot_of(c, name)] - 1;
  if (found != MANTA__NO_COLUMN)
    c->next = found + 1;
  return found;
}

static manta_status index_all(struct manta__columns *c, size_t slots)
{
  uint32_t *slot = manta__calloc(slots, sizeof *slot);
  if (!slot)
    return MANTA_ENOMEM;
  manta__free(c->slot);
  c->slot = slot;
  c->slots = slots;
  for (uint32_t i = 0; i < c->names.count; i++)
    c->slot[slot_of(c, name_at(c, i))] = i + 1;
  return MANTA_OK;
}

manta_status manta__columns_add(struct manta__columns *c, const char *name)
{
  manta_value v = {0};
  if (c->names.type == MANTA_NIL)
    MANTA_TRY(manta_value_set_list(&c->names));
  if (2 * (size_t)(c->names.count + 1) > c->slots)
    MANTA_TRY(index_all(c, c->slots ? 2 * c->slots : 32));
  MANTA_TRY(manta_value_set_string(&v, name));
  manta_status st = manta_value_append(&c->names, &v);
  manta_value_fini(&v);
  if (st == MANTA_OK)
    c->slot[slot_of(c, name)] = c->names.count;
  return st;
}

void manta__columns_cut(struct manta__columns *c, size_t n)
{
  for (size_t i = n; i < c->names.count; i++)
    manta_value_fini(&c->names.u.items[i]);
  if (n < c->names.count) {
    c->names.count = (uint32_t)n;
    memset(c->slot, 0, c->slots * sizeof *c->slot);
    for (uint32_t i = 0; i < n; i++)
      c->slot[slot_of(c, name_at(c, i))] = i + 1;
  }
  c->next = 0;
}
