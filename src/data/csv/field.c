/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/field.c - one field: its quotes, and whether it is there at all.
 */
#include <string.h>
#include <strings.h>

#include "data/csv/csv.h"

struct manta__csv_field manta__csv_field_at(const struct manta__csv_fields *f, size_t r,
                                            const struct manta__csv_marks *m)
{
  size_t begin = manta__csv_begin(f, r), end = manta__csv_end(f, r);
  struct manta__csv_field out = {(const char *)f->text + begin, end - begin, false};
  if (m->quotes && out.n >= 2 && f->text[begin] == m->quote && f->text[end - 1] == m->quote) {
    out.p++;
    out.n -= 2;
    out.quoted = true;
  }
  return out;
}

size_t manta__csv_unquote(const struct manta__csv_field *f, uint8_t quote, char *to)
{
  const char *p = f->p, *end = p + f->n;
  char *start = to;
  const char *found = f->quoted ? memchr(p, quote, f->n) : NULL;
  while (found) { // the first of two: one of them is meant
    size_t n = (size_t)(found - p) + 1;
    memcpy(to, p, n);
    to += n;
    p = found + 2 < end ? found + 2 : end;
    found = memchr(p, quote, (size_t)(end - p));
  }
  if (p < end)
    memcpy(to, p, (size_t)(end - p));
  return (size_t)(to - start) + (size_t)(end - p);
}

static bool is(const struct manta__csv_field *f, const char *word)
{
  return strlen(word) == f->n && !memcmp(word, f->p, f->n);
}

bool manta__csv_missing(const struct manta__csv_field *f, const manta_data_config *c,
                        bool is_string)
{
  static const char *const words[] = {"",     "NA",   "N/A", "n/a", "#N/A", "<NA>", "NULL",
                                      "null", "None", "nan", "NaN", "-nan", "-NaN"};
  if (c->missing) {
    for (size_t i = 0; i < c->missing_count && !f->quoted; i++)
      if (is(f, c->missing[i]))
        return true;
    return !is_string && f->n == 0; // nothing is no number
  }
  if (is_string || f->n > 4)
    return false;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (is(f, words[i]))
      return true;
  return false;
}

bool manta__csv_bool(const struct manta__csv_field *f, bool *out)
{
  struct manta__csv_field t = *f;
  for (; t.n && t.p[0] == ' '; t.n--)
    t.p++;
  while (t.n && t.p[t.n - 1] == ' ')
    t.n--;
  *out = t.n == 4 && !strncasecmp(t.p, "true", 4);
  return *out || (t.n == 5 && !strncasecmp(t.p, "false", 5));
}
