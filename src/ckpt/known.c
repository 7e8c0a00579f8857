/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/known.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"

// The place of the name, or where it would be.
static size_t place_of(const struct manta__known *k, const char *name, bool *found)
{
  size_t low = 0, high = k->count;
  *found = false;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(k->item[middle].name, name);
    if (order == 0) {
      *found = true;
      return middle;
    }
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const struct manta__known_object *manta__known_find(const struct manta__known *k, const char *name)
{
  bool found;
  size_t at = place_of(k, name, &found);
  return found ? &k->item[at] : NULL;
}

static bool insert(struct manta__known *k, size_t at, const char *name)
{
  if (k->count == k->cap) {
    size_t cap = k->cap ? 2 * k->cap : 64;
    struct manta__known_object *p = manta__realloc(k->item, cap * sizeof *p);
    if (!p)
      return false;
    k->item = p;
    k->cap = cap;
  }
  char *copy = manta__strdup(name);
  if (!copy)
    return false;
  memmove(&k->item[at + 1], &k->item[at], (k->count - at) * sizeof *k->item);
  k->item[at] = (struct manta__known_object){.name = copy};
  k->count++;
  return true;
}

manta_status manta__known_set(struct manta__known *k, const char *name, int64_t size,
                              int64_t mtime_ns)
{
  bool found;
  size_t at = place_of(k, name, &found);
  if (!found && !insert(k, at, name))
    return MANTA_ENOMEM;
  k->item[at].size = size;
  k->item[at].mtime_ns = mtime_ns;
  return MANTA_OK;
}

void manta__known_drop(struct manta__known *k, const char *name)
{
  bool found;
  size_t at = place_of(k, name, &found);
  if (!found)
    return;
  manta__free(k->item[at].name);
  k->count--;
  memmove(&k->item[at], &k->item[at + 1], (k->count - at) * sizeof *k->item);
}

void manta__known_fini(struct manta__known *k)
{
  for (size_t i = 0; i < k->count; i++)
    manta__free(k->item[i].name);
  manta__free(k->item);
  *k = (struct manta__known){0};
}
