/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/tensorboard/eventfile.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/value.h"
#include "sink/leaves.h"

#define PREFIX      "events.out.tfevents."
#define FRAME       12 /* before the bytes: length, checksum */
#define NAMES_LIMIT (16u << 20)
#define START       1 /* of SessionLog */
#define DT_STRING   7
#define TENSORS     2 /* data class */

void manta__eventfile_name(char *out, size_t size, const char *whose)
{
  char host[65] = "host";
  gethostname(host, sizeof host - 1);
  for (char *p = host; *p; p++)
    *p = *p == '/' ? '-' : *p;
  snprintf(out, size, PREFIX "%010lld.%s.%s.manta", (long long)time(NULL), host, whose);
}

bool manta__eventfile_find(char *out, size_t size, int dirfd, const char *whose)
{
  char suffix[64];
  size_t n = (size_t)snprintf(suffix, sizeof suffix, ".%s.manta", whose);
  int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  bool found = false;
  if (!d && fd >= 0)
    close(fd);
  for (struct dirent *e; d && !found && (e = readdir(d));) {
    size_t len = strlen(e->d_name);
    found = len > n && len < size && !strncmp(e->d_name, PREFIX, strlen(PREFIX)) &&
            !strcmp(e->d_name + len - n, suffix);
    if (found)
      memcpy(out, e->d_name, len + 1);
  }
  if (d)
    closedir(d);
  return found;
}

manta_status manta__eventfile_open(struct manta__eventfile *e, int dirfd, const char *name,
                                   manta_error *err)
{
  *e = (struct manta__eventfile){.file.fd = -1};
  manta__buf_init(&e->path, NAMES_LIMIT);
  manta__buf_init(&e->arena, NAMES_LIMIT);
  return manta__outfile_open(&e->file, dirfd, name, "", "", err);
}

void manta__eventfile_close(struct manta__eventfile *e)
{
  manta__outfile_close(&e->file);
  manta__buf_fini(&e->path);
  manta__buf_fini(&e->arena);
  manta__free(e->value);
  manta__free(e->list);
  manta__free(e->tag);
  *e = (struct manta__eventfile){.file.fd = -1};
}

manta_status manta__eventfile_back(struct manta__eventfile *e, struct manta__outfile_mark m,
                                   manta_error *err)
{
  MANTA_TRY(manta__outfile_back(&e->file, m, err));
  if (m.size > 0)
    return MANTA_OK;
  MantaTb__Event event = MANTA_TB__EVENT__INIT;
  event.wall_time = (double)time(NULL);
  event.what_case = MANTA_TB__EVENT__WHAT_FILE_VERSION;
  event.file_version = (char *)"brain.Event:2";
  return manta__eventfile_put(e, &event, err);
}

// --- records -------------------------------------------------------------------------------------

static void put_u32(uint8_t *p, uint32_t x)
{
  for (int i = 0; i < 4; i++)
    p[i] = (uint8_t)(x >> 8 * i);
}

manta_status manta__eventfile_put(struct manta__eventfile *e, MantaTb__Event *event,
                                  manta_error *err)
{
  size_t n = manta_tb__event__get_packed_size(event);
  MANTA_TRY(manta__outfile_room(&e->file, err));
  manta__buf *b = &e->file.buf;
  if (manta__buf_reserve(b, n + FRAME + 4) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an event of %zu bytes", n);
  uint8_t *p = b->data + b->len;
  put_u32(p, (uint32_t)n);
  put_u32(p + 4, (uint32_t)((uint64_t)n >> 32));
  put_u32(p + 8, manta__crc32c_masked(p, 8));
  manta_tb__event__pack(event, p + FRAME);
  put_u32(p + FRAME + n, manta__crc32c_masked(p + FRAME, n));
  b->len += n + FRAME + 4;
  return MANTA_OK;
}

static manta_status put_summary(struct manta__eventfile *e, struct manta__when when,
                                MantaTb__Summary__Value **values, size_t count, manta_error *err)
{
  MantaTb__Summary summary = MANTA_TB__SUMMARY__INIT;
  MantaTb__Event event = MANTA_TB__EVENT__INIT;
  summary.n_value = count;
  summary.value = values;
  event.wall_time = when.wall_s;
  event.step = when.step;
  event.what_case = MANTA_TB__EVENT__WHAT_SUMMARY;
  event.summary = &summary;
  return manta__eventfile_put(e, &event, err);
}

manta_status manta__eventfile_put_value(struct manta__eventfile *e, struct manta__when when,
                                        MantaTb__Summary__Value *value, manta_error *err)
{
  return put_summary(e, when, &value, 1, err);
}

manta_status manta__eventfile_restart(struct manta__eventfile *e, struct manta__when when,
                                      manta_error *err)
{
  MantaTb__SessionLog log = MANTA_TB__SESSION_LOG__INIT;
  MantaTb__Event event = MANTA_TB__EVENT__INIT;
  log.status = START;
  event.wall_time = when.wall_s;
  event.step = when.step;
  event.what_case = MANTA_TB__EVENT__WHAT_SESSION_LOG;
  event.session_log = &log;
  return manta__eventfile_put(e, &event, err);
}

// --- rows ----------------------------------------------------------------------------------------

struct row_at_work {
  struct manta__eventfile *e;
  struct manta__when when;
  const char *suffix;
  manta_error *err;
};

static manta_status grow(struct manta__eventfile *e)
{
  size_t n = e->cap ? 2 * e->cap : 16;
  if (e->count < e->cap)
    return MANTA_OK;
  MantaTb__Summary__Value *value = manta__realloc(e->value, n * sizeof *value);
  if (!value)
    return MANTA_ENOMEM;
  e->value = value;
  MantaTb__Summary__Value **list = manta__realloc(e->list, n * sizeof *list);
  if (!list)
    return MANTA_ENOMEM;
  e->list = list;
  size_t *tag = manta__realloc(e->tag, n * sizeof *tag);
  if (!tag)
    return MANTA_ENOMEM;
  e->tag = tag;
  e->cap = n;
  return MANTA_OK;
}

static manta_status add_scalar(struct manta__eventfile *e, const char *name, const char *suffix,
                               double x)
{
  MANTA_TRY(grow(e));
  MantaTb__Summary__Value *v = &e->value[e->count];
  manta_tb__summary__value__init(v);
  v->value_case = MANTA_TB__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
  v->simple_value = (float)x;
  e->tag[e->count++] = e->arena.len;
  MANTA_TRY(manta__buf_puts(&e->arena, name));
  MANTA_TRY(manta__buf_puts(&e->arena, suffix));
  return manta__buf_putc(&e->arena, 0);
}

static manta_status put_image(const struct row_at_work *r, const char *tag, const manta_value *v)
{
  struct manta__image found;
  MantaTb__Summary__Image image = MANTA_TB__SUMMARY__IMAGE__INIT;
  MantaTb__Summary__Value value = MANTA_TB__SUMMARY__VALUE__INIT;
  if (!manta__image_look((const uint8_t *)v->u.s, v->count, &found))
    return MANTA_OK;
  image.width = found.width;
  image.height = found.height;
  image.colorspace = found.channels;
  image.encoded_image_string.data = (uint8_t *)(uintptr_t)v->u.s;
  image.encoded_image_string.len = v->count;
  value.tag = (char *)(uintptr_t)tag;
  value.value_case = MANTA_TB__SUMMARY__VALUE__VALUE_IMAGE;
  value.image = &image;
  return manta__eventfile_put_value(r->e, r->when, &value, r->err);
}

// Those that have an event of their own. The tag lies behind those of the scalars for the while.
static manta_status put_large(const struct row_at_work *r, const char *name, const manta_value *v)
{
  manta__buf *arena = &r->e->arena;
  size_t before = arena->len;
  MANTA_TRY(manta__buf_puts(arena, name));
  MANTA_TRY(manta__buf_puts(arena, r->suffix));
  MANTA_TRY(manta__buf_putc(arena, 0));
  const char *tag = (const char *)arena->data + before;
  manta_status st = v->type == MANTA_BYTES
                        ? put_image(r, tag, v)
                        : manta__eventfile_histogram(r->e, r->when, tag, v, r->err);
  arena->len = before;
  return st;
}

static bool is_shown(const char *name)
{
  return name[0] != '_' || !strcmp(name, "_time_this_iter_s") || !strcmp(name, "_time_total_s");
}

static manta_status on_leaf(void *ctx, const char *name, const manta_value *v)
{
  struct row_at_work *r = ctx;
  if (!is_shown(name))
    return MANTA_OK;
  switch (v->type) {
  case MANTA_REAL:
    return add_scalar(r->e, name, r->suffix, v->u.r);
  case MANTA_INT:
    return add_scalar(r->e, name, r->suffix, (double)v->u.i);
  case MANTA_BOOL:
    return add_scalar(r->e, name, r->suffix, v->u.b);
  case MANTA_BYTES:
    return put_large(r, name, v);
  case MANTA_LIST:
    return manta__is_histogram(v) ? put_large(r, name, v) : MANTA_OK;
  default:
    return MANTA_OK;
  }
}

manta_status manta__eventfile_row(struct manta__eventfile *e, struct manta__when when,
                                  const char *suffix, const manta_value *row, manta_error *err)
{
  struct row_at_work r = {e, when, suffix, err};
  e->count = 0;
  e->arena.len = 0;
  manta_status st = manta__leaves(row, &e->path, on_leaf, &r);
  if (st == MANTA_ENOMEM || st == MANTA_ETOOBIG)
    return manta_error_set(err, st, "no memory for the events of step %lld", (long long)when.step);
  MANTA_TRY(st);
  for (size_t i = 0; i < e->count; i++) {
    e->value[i].tag = (char *)e->arena.data + e->tag[i];
    e->list[i] = &e->value[i];
  }
  return e->count ? put_summary(e, when, e->list, e->count, err) : MANTA_OK;
}

// --- text ----------------------------------------------------------------------------------------

manta_status manta__eventfile_text(struct manta__eventfile *e, struct manta__when when,
                                   const char *tag, const char *text, size_t len, manta_error *err)
{
  ProtobufCBinaryData bytes = {.len = len, .data = (uint8_t *)(uintptr_t)text};
  MantaTb__Shape__Dim dim = MANTA_TB__SHAPE__DIM__INIT, *dims[] = {&dim};
  MantaTb__Shape shape = MANTA_TB__SHAPE__INIT;
  MantaTb__Tensor tensor = MANTA_TB__TENSOR__INIT;
  MantaTb__Metadata__PluginData plugin = MANTA_TB__METADATA__PLUGIN_DATA__INIT;
  MantaTb__Metadata metadata = MANTA_TB__METADATA__INIT;
  MantaTb__Summary__Value value = MANTA_TB__SUMMARY__VALUE__INIT;
  dim.size = 1;
  shape.n_dim = 1;
  shape.dim = dims;
  tensor.dtype = DT_STRING;
  tensor.tensor_shape = &shape;
  tensor.n_string_val = 1;
  tensor.string_val = &bytes;
  plugin.plugin_name = (char *)"text";
  metadata.plugin_data = &plugin;
  metadata.data_class = TENSORS;
  value.tag = (char *)(uintptr_t)tag;
  value.value_case = MANTA_TB__SUMMARY__VALUE__VALUE_TENSOR;
  value.tensor = &tensor;
  value.metadata = &metadata;
  return manta__eventfile_put_value(e, when, &value, err);
}

struct markdown_table {
  manta__buf text, cell;
};

// Cells end at a bar or a line break: neither is in one.
static manta_status put_escaped(struct markdown_table *t, const char *s, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    if (s[i] == '|')
      MANTA_TRY(manta__buf_putc(&t->text, '\\'));
    MANTA_TRY(manta__buf_putc(&t->text, s[i] == '\n' || s[i] == '\r' ? ' ' : s[i]));
  }
  return MANTA_OK;
}

static manta_status add_line(void *ctx, const char *name, const manta_value *v)
{
  struct markdown_table *t = ctx;
  t->cell.len = 0;
  MANTA_TRY(v->type == MANTA_STRING ? manta__utf8_append(&t->cell, v->u.s, v->count)
                                    : manta__json_append(&t->cell, v, NULL));
  MANTA_TRY(manta__buf_puts(&t->text, "| "));
  MANTA_TRY(put_escaped(t, name, strlen(name)));
  MANTA_TRY(manta__buf_puts(&t->text, " | "));
  MANTA_TRY(put_escaped(t, (const char *)t->cell.data, t->cell.len));
  return manta__buf_puts(&t->text, " |\n");
}

manta_status manta__eventfile_table(struct manta__eventfile *e, struct manta__when when,
                                    const char *tag, const manta_value *map, manta_error *err)
{
  struct markdown_table t;
  manta__buf_init(&t.text, NAMES_LIMIT);
  manta__buf_init(&t.cell, NAMES_LIMIT);
  manta_status st = manta__buf_puts(&t.text, "| name | value |\n| --- | --- |\n");
  if (st == MANTA_OK)
    st = manta__leaves(map, &e->path, add_line, &t);
  if (st < 0)
    manta_error_set(err, st, "no memory for the table of %s", tag);
  else
    st = manta__eventfile_text(e, when, tag, (const char *)t.text.data, t.text.len, err);
  manta__buf_fini(&t.text);
  manta__buf_fini(&t.cell);
  return st;
}
