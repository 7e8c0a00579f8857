/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/config.c - the options of a data set: defaults, copies, and those that make no sense.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"
#include "data/plan/files.h"

#define BATCH_ROWS  65536
#define BATCH_BYTES ((size_t)4 << 20)
#define BLOCK_BYTES ((size_t)32 << 20)
#define ROW_BYTES   ((size_t)64 << 20)
#define ROW_MAX     ((size_t)1 << 30) /* positions in a row are counted in 32 bits */

// A list of strings in one block: the pointers, then the text.
static manta_status copy_strings(const char *const **list, size_t count, const char *what,
                                 manta_error *err)
{
  size_t bytes = (count + 1) * sizeof(char *);
  if (!*list)
    return MANTA_OK;
  for (size_t i = 0; i < count; i++) {
    if (!(*list)[i])
      return manta_error_set(err, MANTA_EINVAL, "%s: number %zu of %zu is NULL", what, i + 1,
                             count);
    bytes += strlen((*list)[i]) + 1;
  }
  char **copy = manta__malloc(bytes);
  if (!copy)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the options of a data set");
  char *text = (char *)(copy + count + 1);
  for (size_t i = 0; i < count; i++) {
    size_t n = strlen((*list)[i]) + 1;
    copy[i] = memcpy(text, (*list)[i], n);
    text += n;
  }
  *list = (const char *const *)copy;
  return MANTA_OK;
}

static manta_status check(const manta_data_config *c, manta_error *err)
{
  char quote = c->quote ? c->quote : '"';
  enum manta__compression form;
  if (c->compression && !manta__compression_parse(&form, c->compression))
    return manta_error_set(err, MANTA_EINVAL,
                           "there is no compression \"%.32s\"\nhint: there are none, gzip, zstd",
                           c->compression);
  if (c->separator == '\n' || c->separator == '\r' || quote == '\n' || quote == '\r' ||
      (!c->no_quotes && c->separator == quote))
    return manta_error_set(err, MANTA_EINVAL,
                           "separator and quote are two characters, and neither ends a line");
  if (c->batch_rows < 0 || c->row_bytes > ROW_MAX)
    return manta_error_set(err, MANTA_EINVAL, "batch_rows is negative, or row_bytes over %zu",
                           ROW_MAX);
  if (c->names && !c->no_header)
    return manta_error_set(err, MANTA_EINVAL, "names are for files with no_header");
  return MANTA_OK;
}

// The caller's text may be gone when a file is opened.
static const char *own_name(const char *compression)
{
  static const char *const names[] = {"none", "gzip", "zstd"};
  for (size_t i = 0; compression && i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i], compression))
      return names[i];
  return NULL;
}

static void fill_in(manta_data_config *c)
{
  c->compression = own_name(c->compression);
  c->batch_rows = c->batch_rows ? c->batch_rows : BATCH_ROWS;
  c->batch_bytes = c->batch_bytes ? c->batch_bytes : BATCH_BYTES;
  c->block_bytes = c->block_bytes ? c->block_bytes : BLOCK_BYTES;
  c->row_bytes = c->row_bytes ? c->row_bytes : ROW_BYTES;
}

manta_status manta__files_config(struct manta__files *f, const manta_data_config *given,
                                 manta_error *err)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  if (given)
    MANTA_TRY(manta__config_take(&c, sizeof c, given, "MANTA_DATA_CONFIG_INIT", err));
  MANTA_TRY(check(&c, err));
  fill_in(&c);
  f->config = c;
  f->config.columns = f->config.names = f->config.missing = NULL; // until they are copies
  if (c.filter)
    MANTA_TRY(manta_value_copy(&f->filter, c.filter));
  if (c.types)
    MANTA_TRY(manta_value_copy(&f->types, c.types));
  f->config.filter = c.filter ? &f->filter : NULL;
  f->config.types = c.types ? &f->types : NULL;
  MANTA_TRY(copy_strings(&c.names, c.name_count, "names", err));
  f->config.names = c.names;
  MANTA_TRY(copy_strings(&c.missing, c.missing_count, "missing", err));
  f->config.missing = c.missing;
  MANTA_TRY(copy_strings(&c.columns, c.column_count, "columns", err));
  f->config.columns = c.columns;
  return MANTA_OK;
}

void manta__files_config_fini(struct manta__files *f)
{
  manta__free((void *)(uintptr_t)f->config.names);
  manta__free((void *)(uintptr_t)f->config.missing);
  manta__free((void *)(uintptr_t)f->config.columns);
  manta_value_fini(&f->filter);
  manta_value_fini(&f->types);
}
