/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/leaves.h"

#include <string.h>

#include "base/utf8.h"

manta_status manta__utf8_append(manta__buf *b, const char *s, size_t n)
{
  size_t good = manta__utf8_valid(s, n);
  MANTA_TRY(manta__buf_append(b, s, good));
  for (size_t at = good; at < n;) {
    size_t step = manta__utf8_step((const uint8_t *)s + at, n - at);
    MANTA_TRY(step ? manta__buf_append(b, s + at, step) : manta__buf_puts(b, "\xef\xbf\xbd"));
    at += step ? step : 1;
  }
  return MANTA_OK;
}

static manta_status walk(const manta_value *map, manta__buf *path, manta__leaf leaf, void *ctx)
{
  size_t before = path->len;
  for (uint32_t i = 0; i < map->count; i++) {
    const manta_pair *p = &map->u.pairs[i];
    if (before > 0)
      MANTA_TRY(manta__buf_putc(path, '/'));
    MANTA_TRY(manta__utf8_append(path, p->key, strlen(p->key)));
    MANTA_TRY(manta__buf_terminate(path));
    MANTA_TRY(p->value.type == MANTA_MAP ? walk(&p->value, path, leaf, ctx)
                                         : leaf(ctx, (const char *)path->data, &p->value));
    path->len = before;
  }
  return MANTA_OK;
}

manta_status manta__leaves(const manta_value *row, manta__buf *path, manta__leaf leaf, void *ctx)
{
  path->len = 0;
  return row->type == MANTA_MAP ? walk(row, path, leaf, ctx) : MANTA_OK;
}
