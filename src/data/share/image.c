/* SPDX-License-Identifier: Apache-2.0 */
#include "data/share/image.h"

#include <fcntl.h>
#include <string.h>

#include "base/alloc.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define MAGIC 0x31676d496e616dull /* "manImg1" */
#define ALIGN ((size_t)64)
#define PAGE  ((size_t)4096)

struct image_head {
  uint64_t magic;
  int64_t rows, columns;
};

/* Where the buffers of a column lie; length 0: there is none. */
struct image_column {
  int64_t nulls;
  uint64_t at[MANTA__BUFFERS], bytes[MANTA__BUFFERS];
};

static size_t align(size_t n)
{
  return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t text_bytes(const struct manta__column *c)
{
  return c->length ? (size_t)(c->offsets[c->offset + c->length] - c->offsets[c->offset]) : 0;
}

// Bytes of a buffer of a column, without what lies beside the slice.
static size_t buffer_bytes(const struct manta__column *c, int which)
{
  bool varies = manta__type_varies(&c->type);
  if (which == MANTA__VALID)
    return c->valid ? manta__bits_bytes(c->length) : 0;
  if (which == MANTA__OFFSETS)
    return varies ? (size_t)(c->length + 1) * sizeof(int32_t) : 0;
  if (varies)
    return text_bytes(c);
  if (c->type.kind == MANTA_KIND_BOOL)
    return manta__bits_bytes(c->length);
  return (size_t)c->length * manta__type_width(&c->type);
}

static size_t head_bytes(const struct manta__schema *s)
{
  return align(sizeof(struct image_head) + (size_t)s->count * sizeof(struct image_column));
}

size_t manta__image_bytes(const manta_batch *b)
{
  size_t bytes = head_bytes(b->schema);
  for (int i = 0; i < b->schema->count; i++)
    for (int k = 0; k < MANTA__BUFFERS; k++)
      bytes += align(buffer_bytes(&b->column[i], k));
  return bytes;
}

manta_status manta__image_create(const char *name, size_t bytes, int *fd, void **p, size_t *mapped,
                                 manta_error *err)
{
  size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
  room = room ? room : PAGE;
  MANTA_TRY(manta__shm_create(name, room, fd, err));
  manta_status st = MANTA_OK;
  if (posix_fallocate(*fd, 0, (off_t)room)) // else the first write would be a signal
    st = manta_error_set(err, MANTA_ENOMEM, "no shared memory for a batch of %zu bytes", bytes);
  if (st == MANTA_OK)
    st = manta__shm_map(*fd, p, mapped, err);
  if (st < 0)
    manta__fd_close(fd);
  return st;
}

// --- writing ------------------------------------------------------------------------------------

static void write_offsets(int32_t *to, const struct manta__column *c)
{
  const int32_t *from = c->offsets + c->offset;
  to[0] = 0;
  for (int64_t i = 0; c->length && i <= c->length; i++)
    to[i] = from[i] - from[0];
}

static void write_buffer(void *to, const struct manta__column *c, int which, size_t bytes)
{
  if (which == MANTA__VALID)
    manta__bits_copy(to, 0, c->valid, c->offset, c->length);
  else if (which == MANTA__OFFSETS)
    write_offsets(to, c);
  else if (manta__type_varies(&c->type))
    memcpy(to, (const char *)c->data + c->offsets[c->offset], bytes);
  else if (c->type.kind == MANTA_KIND_BOOL)
    manta__bits_copy(to, 0, c->data, c->offset, c->length);
  else
    memcpy(to, manta__column_at(c, 0), bytes);
}

void manta__image_write(void *to, const manta_batch *b)
{
  char *base = to;
  struct image_head head = {MAGIC, b->rows, b->schema->count};
  size_t at = head_bytes(b->schema);
  memcpy(base, &head, sizeof head);
  for (int i = 0; i < b->schema->count; i++) {
    struct manta__column *c = &b->column[i];
    struct image_column row = {.nulls = c->nulls};
    for (int k = 0; k < MANTA__BUFFERS; k++) {
      size_t bytes = buffer_bytes(c, k);
      row.at[k] = at;
      row.bytes[k] = bytes;
      if (bytes)
        write_buffer(base + at, c, k, bytes);
      at += align(bytes);
    }
    memcpy(base + sizeof head + (size_t)i * sizeof row, &row, sizeof row);
  }
}

// --- viewing ------------------------------------------------------------------------------------

static manta_status malformed(manta_error *err)
{
  return manta_error_set(err, MANTA_EPROTO, "a batch of another process makes no sense");
}

// What the buffers of a column of so many rows must have; the text of strings is as it is.
static bool fits(const struct image_column *row, const struct manta__type *t, int64_t rows,
                 size_t bytes)
{
  bool varies = manta__type_varies(t);
  size_t data =
      t->kind == MANTA_KIND_BOOL ? manta__bits_bytes(rows) : (size_t)rows * manta__type_width(t);
  for (int k = 0; k < MANTA__BUFFERS; k++)
    if (row->at[k] % ALIGN || row->at[k] > bytes || row->bytes[k] > bytes - row->at[k])
      return false;
  if (row->bytes[MANTA__VALID] && row->bytes[MANTA__VALID] != manta__bits_bytes(rows))
    return false;
  if (varies)
    return row->bytes[MANTA__OFFSETS] == ((size_t)rows + 1) * sizeof(int32_t) &&
           row->bytes[MANTA__DATA] <= INT32_MAX;
  return row->bytes[MANTA__OFFSETS] == 0 && row->bytes[MANTA__DATA] == data;
}

static void view_column(struct manta__column *c, const struct manta__type *type,
                        const struct image_column *row, const char *base, int64_t rows,
                        struct manta__memory *held)
{
  *c = (struct manta__column){
      .type = *type, .length = rows, .nulls = row->nulls, .data = base + row->at[MANTA__DATA]};
  if (row->bytes[MANTA__VALID])
    c->valid = (const uint8_t *)base + row->at[MANTA__VALID];
  if (row->bytes[MANTA__OFFSETS])
    c->offsets = (const int32_t *)(const void *)(base + row->at[MANTA__OFFSETS]);
  for (int k = 0; k < MANTA__BUFFERS; k++)
    if (row->bytes[k] || k == MANTA__DATA)
      c->held[k] = manta__memory_ref(held);
}

manta_status manta__image_view(manta_batch **out, struct manta__schema *schema, const void *base,
                               size_t bytes, struct manta__memory *held, manta_error *err)
{
  struct image_head head;
  manta_batch *b = NULL;
  if (bytes < head_bytes(schema))
    return malformed(err);
  memcpy(&head, base, sizeof head);
  if (head.magic != MAGIC || head.columns != schema->count || head.rows < 0 ||
      head.rows > MANTA__ROWS_MAX)
    return malformed(err);
  MANTA_TRY(manta__batch_create(&b, schema, head.rows, err));
  b->source_rows = head.rows;
  for (int i = 0; i < schema->count; i++) {
    struct image_column row;
    const struct manta__type *type = &schema->field[i].type;
    memcpy(&row, (const char *)base + sizeof head + (size_t)i * sizeof row, sizeof row);
    if (!fits(&row, type, head.rows, bytes)) {
      manta_batch_destroy(b);
      return malformed(err);
    }
    view_column(&b->column[i], type, &row, base, head.rows, held);
  }
  *out = b;
  return MANTA_OK;
}
