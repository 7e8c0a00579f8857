/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/eval.c - runs a compiled expression over a batch, chunk by chunk.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "data/expr/program.h"

// --- what kernels share -------------------------------------------------------------------------

void manta__node_join(struct manta__expr_node *node, int n)
{
  node->valid = NULL;
  for (int k = 0; k < node->argc; k++) {
    const uint8_t *v = node->arg[k]->valid;
    if (!v)
      continue;
    if (!node->valid)
      node->valid = memcpy(node->own_valid, v, (size_t)n);
    else
      for (int i = 0; i < n; i++)
        node->own_valid[i] &= v[i];
  }
}

uint8_t *manta__node_own_valid(struct manta__expr_node *node, int n)
{
  if (!node->valid)
    node->valid = memset(node->own_valid, 1, (size_t)n);
  return node->own_valid;
}

void manta__node_round(struct manta__expr_node *node, int n)
{
  double *v = node->own;
  if (node->type.dtype == MANTA_F32)
    for (int i = 0; i < n; i++)
      v[i] = (double)(float)v[i];
  else if (node->type.dtype == MANTA_F16)
    for (int i = 0; i < n; i++)
      v[i] = (double)manta__f32_of_f16(manta__f16_of_f32((float)v[i]));
  else if (node->type.dtype == MANTA_BF16)
    for (int i = 0; i < n; i++)
      v[i] = (double)manta__f32_of_bf16(manta__bf16_of_f32((float)v[i]));
}

manta_status manta__node_text(struct manta__expr_node *node, size_t n, char **out, manta_error *err)
{
  if (n > node->text_cap) {
    char *more = manta__realloc(node->text, n);
    if (!more)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for %zu bytes of text", n);
    node->text = more;
    node->text_cap = n;
  }
  *out = node->text ? node->text : (char *)node->own; // n is 0
  return MANTA_OK;
}

// --- columns in ---------------------------------------------------------------------------------

#define LOAD(name, from_type, to_type, expression)                                                 \
  static void name(to_type *to, const from_type *from, int n)                                      \
  {                                                                                                \
    for (int i = 0; i < n; i++)                                                                    \
      to[i] = (to_type)(expression);                                                               \
  }
LOAD(load_i8, int8_t, int64_t, from[i])
LOAD(load_u8, uint8_t, int64_t, from[i])
LOAD(load_i16, int16_t, int64_t, from[i])
LOAD(load_u16, uint16_t, int64_t, from[i])
LOAD(load_i32, int32_t, int64_t, from[i])
LOAD(load_u32, uint32_t, int64_t, from[i])
LOAD(load_f32, float, double, from[i])
LOAD(load_f16, uint16_t, double, manta__f32_of_f16(from[i]))
LOAD(load_bf16, uint16_t, double, manta__f32_of_bf16(from[i]))
#undef LOAD

static void load_number(struct manta__expr_node *node, const void *from, int n)
{
  node->values = node->own;
  switch (node->type.dtype) {
  case MANTA_I8:
    load_i8(node->own, from, n);
    break;
  case MANTA_U8:
    load_u8(node->own, from, n);
    break;
  case MANTA_I16:
    load_i16(node->own, from, n);
    break;
  case MANTA_U16:
    load_u16(node->own, from, n);
    break;
  case MANTA_I32:
    load_i32(node->own, from, n);
    break;
  case MANTA_U32:
    load_u32(node->own, from, n);
    break;
  case MANTA_F32:
    load_f32(node->own, from, n);
    break;
  case MANTA_F16:
    load_f16(node->own, from, n);
    break;
  case MANTA_BF16:
    load_bf16(node->own, from, n);
    break;
  default: // of 64 bits: as it lies there
    node->values = (void *)(uintptr_t)from;
  }
}

static void load_bits(uint8_t *to, const uint8_t *bits, int64_t at, int n)
{
  for (int i = 0; i < n; i++)
    to[i] = manta__bit_get(bits, at + i);
}

static void load_column(struct manta__expr_node *node, const struct manta__column *c, int64_t from,
                        int n)
{
  if (node->form == MANTA__FORM_BOOL)
    load_bits(node->own, c->data, c->offset + from, n);
  else if (node->form == MANTA__FORM_TEXT)
    for (int i = 0; i < n; i++) {
      struct manta__expr_text *t = (struct manta__expr_text *)node->own + i;
      t->p = manta__column_text(c, from + i, &t->n);
    }
  else
    load_number(node, manta__column_at(c, from), n);
  node->valid = NULL;
  if (c->valid && manta__bits_count(c->valid, c->offset + from, n) < n) {
    load_bits(node->own_valid, c->valid, c->offset + from, n);
    node->valid = node->own_valid;
  }
}

// --- running ------------------------------------------------------------------------------------

static manta_status run(struct manta__expr_node *node, const manta_batch *b, int64_t from, int n,
                        manta_error *err)
{
  if (node->computed)
    return MANTA_OK;
  if (node->column >= 0) {
    load_column(node, &b->column[node->column], from, n);
    return MANTA_OK;
  }
  if (node->constant)
    n = MANTA__EXPR_CHUNK; // for every chunk that follows
  for (int i = 0; i < node->argc; i++)
    MANTA_TRY(run(node->arg[i], b, from, n, err));
  MANTA_TRY(node->run(node, n, err));
  node->computed = node->constant;
  return MANTA_OK;
}

static int chunk_at(const manta_batch *b, int64_t from)
{
  return b->rows - from < MANTA__EXPR_CHUNK ? (int)(b->rows - from) : MANTA__EXPR_CHUNK;
}

manta_status manta__expr_filter(struct manta__expr *e, const manta_batch *b, uint32_t *rows,
                                int64_t *count, manta_error *err)
{
  struct manta__expr_node *root = e->root;
  int64_t kept = 0;
  if (root->form != MANTA__FORM_BOOL && !root->is_nil)
    return manta_error_set(err, MANTA_ETYPE,
                           "a filter wants true or false for each row\nhint: "
                           "compare, as [\">\", [\"col\", \"x\"], 0]");
  for (int64_t from = 0; from < b->rows; from += MANTA__EXPR_CHUNK) {
    int n = chunk_at(b, from);
    MANTA_TRY(run(root, b, from, n, err));
    const uint8_t *on = root->values;
    for (int i = 0; i < n; i++) { // no branch: the next row overwrites one that is not kept
      rows[kept] = (uint32_t)(from + i);
      kept += root->is_nil ? 0 : on[i] & (root->valid ? root->valid[i] : 1);
    }
  }
  *count = kept;
  return MANTA_OK;
}

// --- columns out --------------------------------------------------------------------------------

static void put_number(struct manta__build *b, const struct manta__expr_node *node, int i)
{
  const int64_t *s = node->values;
  const double *r = node->values;
  uint16_t half;
  float single;
  switch (node->type.dtype) {
  case MANTA_F32:
    single = (float)r[i];
    manta__build_number(b, &single);
    break;
  case MANTA_F16:
    half = manta__f16_of_f32((float)r[i]);
    manta__build_number(b, &half);
    break;
  case MANTA_BF16:
    half = manta__bf16_of_f32((float)r[i]);
    manta__build_number(b, &half);
    break;
  default: // integers: their lowest bytes come first
    manta__build_number(b, &s[i]);
  }
}

static manta_status put(struct manta__build *b, const struct manta__expr_node *node, int n,
                        manta_error *err)
{
  for (int i = 0; i < n; i++) {
    if (node->valid && !node->valid[i])
      MANTA_TRY(manta__build_null(b, err));
    else if (node->form == MANTA__FORM_BOOL)
      manta__build_bool(b, ((const uint8_t *)node->values)[i]);
    else if (node->form == MANTA__FORM_TEXT) {
      const struct manta__expr_text *t = (const struct manta__expr_text *)node->values + i;
      MANTA_TRY(manta__build_text(b, t->p, t->n, err));
    } else
      put_number(b, node, i);
  }
  return MANTA_OK;
}

manta_status manta__expr_column(struct manta__expr *e, const manta_batch *b,
                                struct manta__column *out, struct manta__pool *pool,
                                manta_error *err)
{
  struct manta__build build = {0};
  manta_status st = manta__build_begin(&build, &e->root->type, b->rows, INT32_MAX, pool, err);
  for (int64_t from = 0; from < b->rows && st == MANTA_OK; from += MANTA__EXPR_CHUNK) {
    int n = chunk_at(b, from);
    st = run(e->root, b, from, n, err);
    if (st == MANTA_OK)
      st = put(&build, e->root, n, err);
  }
  if (st == MANTA_OK)
    manta__build_finish(&build, out);
  manta__build_fini(&build);
  return st;
}
