/* SPDX-License-Identifier: Apache-2.0
 *
 * train/shard.c - the description of a part is a row per tensor, its name behind it, and at the end
 * the packed value. The ranks are of one program, but sizes are checked all the same.
 */
#include "train/shard.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"

#define DESCRIPTION_MAX (512u << 20) /* 65536 tensors with names of 1024 bytes, and the value */
#define PREFIX_MAX      32           /* "rank123." */

struct shard_row {
  int32_t dtype, ndim;
  int64_t shape[MANTA_MAX_DIMS];
  uint64_t name_len; /* with its NUL */
};

struct shard_head {
  uint64_t count, value_len;
};

/* The parts of all ranks, on rank 0; elsewhere that of this one. */
struct shard_parts {
  manta_comm *comm;
  const manta_state *mine;
  int size;
  uint8_t **blob;       /* of each rank, its description */
  uint64_t *bytes;      /* … and its size */
  manta_tensor *tensor; /* all tensors, by rank */
  size_t count, *first; /* … and where each rank's begin; first[size] == count */
  char *names;
  manta_value *values;
};

// --- a description -------------------------------------------------------------------------------

static manta_status put_rows(manta__buf *b, const manta_state *s, manta_error *err)
{
  for (size_t i = 0; i < s->count; i++) {
    const manta_tensor *t = &s->tensors[i];
    if (!t->name || manta_tensor_bytes(t) < 0 || (!t->data && manta_tensor_bytes(t) > 0))
      return manta_error_set(err, MANTA_EINVAL, "tensor \"%s\" has no name, no data or no shape",
                             t->name ? t->name : "");
    struct shard_row row = {.dtype = (int32_t)t->dtype, .ndim = t->ndim};
    memcpy(row.shape, t->shape, sizeof row.shape);
    row.name_len = strlen(t->name) + 1;
    MANTA_TRY(manta__buf_append(b, &row, sizeof row));
    MANTA_TRY(manta__buf_append(b, t->name, row.name_len));
  }
  return MANTA_OK;
}

static manta_status describe(manta__buf *b, const manta_state *s, manta_error *err)
{
  static const manta_value nil;
  void *value;
  size_t value_len;
  MANTA_TRY(manta_value_pack(s->value ? s->value : &nil, &value, &value_len, err));
  struct shard_head head = {s->count, value_len};
  manta_status st = manta__buf_append(b, &head, sizeof head);
  if (st == MANTA_OK)
    st = put_rows(b, s, err);
  if (st == MANTA_OK)
    st = manta__buf_append(b, value, value_len);
  manta_free(value);
  if (st < 0 && err && err->status == MANTA_OK)
    manta_error_set(err, st, "no memory to describe the state");
  return st;
}

// --- one state out of all ------------------------------------------------------------------------

static manta_status torn(int rank, manta_error *err)
{
  return manta_error_set(err, MANTA_EPROTO, "the description of rank %d's part is damaged", rank);
}

// Tensors and bytes of names of all parts, for one allocation each.
static manta_status measure(struct shard_parts *p, size_t *names, manta_error *err)
{
  for (int r = 0; r < p->size; r++) {
    struct shard_head head;
    if (p->bytes[r] < sizeof head)
      return torn(r, err);
    memcpy(&head, p->blob[r], sizeof head);
    if (head.count > p->bytes[r] / sizeof(struct shard_row) || head.value_len > p->bytes[r])
      return torn(r, err);
    p->first[r] = p->count;
    p->count += head.count;
    *names += p->bytes[r] + head.count * PREFIX_MAX;
  }
  p->first[p->size] = p->count;
  return MANTA_OK;
}

static manta_status read_part(struct shard_parts *p, int r, char **name, manta_error *err)
{
  const uint8_t *at = p->blob[r] + sizeof(struct shard_head), *end = p->blob[r] + p->bytes[r];
  for (size_t i = p->first[r]; i < p->first[r + 1]; i++) {
    struct shard_row row;
    if ((size_t)(end - at) < sizeof row)
      return torn(r, err);
    memcpy(&row, at, sizeof row);
    at += sizeof row;
    if (row.name_len == 0 || row.name_len > (size_t)(end - at) || at[row.name_len - 1])
      return torn(r, err);
    p->tensor[i] = (manta_tensor){*name, (manta_dtype)row.dtype, row.ndim, {0}, NULL};
    memcpy(p->tensor[i].shape, row.shape, sizeof row.shape);
    if (r == 0)
      p->tensor[i].data = p->mine->tensors[i].data;
    *name += snprintf(*name, PREFIX_MAX + row.name_len, "rank%d.%s", r, (const char *)at) + 1;
    at += row.name_len;
  }
  return manta_value_unpack(&p->values[r], at, (size_t)(end - at), err);
}

static manta_status join(struct shard_parts *p, manta_error *err)
{
  size_t names = 1;
  MANTA_TRY(measure(p, &names, err));
  p->tensor = manta__calloc(p->count + 1, sizeof *p->tensor);
  p->names = manta__malloc(names);
  if (!p->tensor || !p->names)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the parts of %d ranks", p->size);
  char *name = p->names;
  for (int r = 0; r < p->size; r++)
    MANTA_TRY(read_part(p, r, &name, err));
  return MANTA_OK;
}

static manta_status save_joined(struct shard_parts *p, manta_fill_fn fill,
                                manta__shard_save_fn save, void *ctx, manta_error *err)
{
  manta_value list = {.type = MANTA_LIST, .count = (uint32_t)p->size, .u.items = p->values};
  manta_value value = MANTA_MAP(MANTA_KV_INT("sharded", p->size), MANTA_KV("parts", list));
  manta_state all = {p->tensor, p->count, &value};
  return save(ctx, &all, fill, p, err);
}

static void parts_fini(struct shard_parts *p)
{
  for (int r = 0; r < p->size; r++) {
    if (p->blob && r > 0)
      manta__free(p->blob[r]); // rank 0's is the caller's
    if (p->values)
      manta_value_fini(&p->values[r]);
  }
  manta__free(p->blob);
  manta__free(p->first);
  manta__free(p->values);
  manta__free(p->tensor);
  manta__free(p->names);
}

// --- rank 0 --------------------------------------------------------------------------------------

static manta_status say(struct shard_parts *p, bool go, manta_error *err)
{
  uint8_t word = go;
  return manta_comm_broadcast(p->comm, &word, 1, MANTA_U8, 0, err);
}

static manta_status receive(void *ctx, void *const *dst, const manta_slot_memory *memory,
                            manta_error *err)
{
  struct shard_parts *p = ctx;
  MANTA_TRY(say(p, true, err));
  for (int r = 1; r < p->size; r++)
    for (size_t i = p->first[r]; i < p->first[r + 1]; i++) {
      int64_t n = manta_tensor_bytes(&p->tensor[i]);
      if (n > 0)
        MANTA_TRY(manta_comm_recv(p->comm, dst[i], (size_t)n, MANTA_U8, r, err));
    }
  return MANTA_OK;
}

// All memory before the first description is asked for: then all of them are taken.
static manta_status make_room(struct shard_parts *p, uint8_t *mine)
{
  p->blob = manta__calloc((size_t)p->size, sizeof *p->blob);
  p->first = manta__calloc((size_t)p->size + 1, sizeof *p->first);
  p->values = manta__calloc((size_t)p->size, sizeof *p->values);
  if (!p->blob || !p->first || !p->values)
    return MANTA_ENOMEM;
  p->blob[0] = mine;
  for (int r = 1; r < p->size; r++)
    if (!(p->blob[r] = manta__malloc(p->bytes[r])))
      return MANTA_ENOMEM;
  return MANTA_OK;
}

static manta_status take_descriptions(struct shard_parts *p, manta_error *err)
{
  MANTA_TRY(say(p, true, err));
  for (int r = 1; r < p->size; r++)
    MANTA_TRY(manta_comm_recv(p->comm, p->blob[r], p->bytes[r], MANTA_U8, r, err));
  return MANTA_OK;
}

static manta_status lead(struct shard_parts *p, uint8_t *mine, manta__shard_save_fn save, void *ctx,
                         manta_error *err)
{
  manta_status st = make_room(p, mine);
  if (st < 0)
    manta_error_set(err, st, "no memory for the parts of %d ranks", p->size);
  if (st == MANTA_OK)
    st = take_descriptions(p, err);
  if (st == MANTA_OK)
    st = join(p, err);
  if (st == MANTA_OK)
    st = save_joined(p, receive, save, ctx, err);
  say(p, st == MANTA_OK, NULL); // what was saved is saved, also if nobody hears it
  parts_fini(p);
  return st;
}

// --- the others ----------------------------------------------------------------------------------

static manta_status hear(manta_comm *c, manta_error *err)
{
  uint8_t go = 0;
  MANTA_TRY(manta_comm_broadcast(c, &go, 1, MANTA_U8, 0, err));
  if (!go)
    return manta_error_set(err, MANTA_EINVAL, "rank 0 could not save the state of all ranks");
  return MANTA_OK;
}

static manta_status follow(manta_comm *c, const manta_state *mine, const manta__buf *b,
                           manta_error *err)
{
  MANTA_TRY(hear(c, err));
  MANTA_TRY(manta_comm_send(c, b->data, b->len, MANTA_U8, 0, err));
  MANTA_TRY(hear(c, err));
  for (size_t i = 0; i < mine->count; i++) {
    int64_t n = manta_tensor_bytes(&mine->tensors[i]);
    if (n > 0)
      MANTA_TRY(manta_comm_send(c, mine->tensors[i].data, (size_t)n, MANTA_U8, 0, err));
  }
  return hear(c, err);
}

// The tensors of this rank, by the names that they have in the whole.
static void name_own(struct shard_parts *p, int rank)
{
  char *name = p->names;
  for (size_t i = 0; i < p->count; i++) {
    const manta_tensor *t = &p->mine->tensors[i];
    p->tensor[i] = *t;
    p->tensor[i].name = name;
    name += snprintf(name, PREFIX_MAX + strlen(t->name), "rank%d.%s", rank, t->name) + 1;
  }
}

static manta_status keep(struct shard_parts *p, int rank, manta__shard_save_fn save, void *ctx,
                         manta_error *err)
{
  size_t names = 1;
  p->count = p->mine->count;
  for (size_t i = 0; i < p->count; i++)
    names += strlen(p->mine->tensors[i].name) + PREFIX_MAX;
  p->tensor = manta__calloc(p->count + 1, sizeof *p->tensor);
  p->values = manta__calloc((size_t)p->size, sizeof *p->values);
  p->names = manta__malloc(names);
  manta_status st = MANTA_ENOMEM;
  if (p->tensor && p->values && p->names) {
    name_own(p, rank);
    if (p->mine->value)
      p->values[rank] = *p->mine->value;
    st = save_joined(p, NULL, save, ctx, err);
    p->values[rank] = (manta_value){0}; // it is the caller's
  } else {
    manta_error_set(err, st, "no memory to keep this rank's part");
  }
  parts_fini(p);
  return st;
}

// Everybody's sizes; 0 is a rank that has nothing to describe.
static manta_status agree_on_sizes(manta_comm *c, uint64_t mine, uint64_t *all, manta_error *err)
{
  MANTA_TRY(manta_comm_allgather(c, &mine, all, 1, MANTA_U64, err));
  for (int r = 0; mine && r < manta_comm_size(c); r++)
    if (all[r] == 0)
      return manta_error_set(err, MANTA_EINVAL, "rank %d could not save its part", r);
  return MANTA_OK;
}

manta_status manta__shard_save(manta_comm *c, const manta_state *mine, manta__shard_save_fn save,
                               void *ctx, manta_error *err)
{
  manta__buf b;
  int size = manta_comm_size(c);
  manta__buf_init(&b, DESCRIPTION_MAX);
  manta_status own = describe(&b, mine, err);
  uint64_t *sizes = manta__calloc((size_t)size, sizeof *sizes);
  if (!sizes) {
    manta__buf_fini(&b);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d sizes", size);
  }
  manta_status st = agree_on_sizes(c, own == MANTA_OK ? b.len : 0, sizes, own < 0 ? NULL : err);
  if (own < 0)
    st = own;
  struct shard_parts p = {.comm = c, .mine = mine, .size = size, .bytes = sizes};
  if (st == MANTA_OK && manta_comm_rank(c) == 0) {
    st = lead(&p, b.data, save, ctx, err);
  } else if (st == MANTA_OK) {
    st = follow(c, mine, &b, err);
    if (st == MANTA_OK)
      st = keep(&p, manta_comm_rank(c), save, ctx, err);
  }
  manta__free(sizes);
  manta__buf_fini(&b);
  return st;
}
