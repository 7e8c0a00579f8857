/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/row.c - what a trial has reported, by the names that metrics have.
 */
#include <stdio.h>
#include <string.h>

#include "base/value.h"
#include "tune/experiment.h"

const manta_value *manta__row_metric(const manta_value *row, const char *key)
{
  char own[256];
  const manta_value *v = manta__value_path(row, key);
  if (v || snprintf(own, sizeof own, "_%s", key) >= (int)sizeof own)
    return v;
  return manta_value_get(row, own);
}

static void list(const manta_value *row, const char *above, char *out, size_t size)
{
  for (uint32_t i = 0; row->type == MANTA_MAP && i < row->count; i++) {
    const manta_value *v = &row->u.pairs[i].value;
    const char *key = row->u.pairs[i].key;
    char name[256];
    size_t at = strlen(out);
    if (key[0] == '_' || snprintf(name, sizeof name, "%s%s", above, key) >= (int)sizeof name - 1)
      continue;
    if (v->type == MANTA_MAP && v->count > 0) {
      strncat(name, "/", sizeof name - strlen(name) - 1);
      list(v, name, out, size);
    } else if (at + strlen(name) + 3 < size) {
      snprintf(out + at, size - at, "%s%s", at ? ", " : "", name);
    }
  }
}

void manta__row_names(const manta_value *row, char *out, size_t size)
{
  out[0] = 0;
  list(row, "", out, size);
  if (!out[0])
    snprintf(out, size, "nothing");
}
