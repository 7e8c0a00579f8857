/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce/reduce.c - which kernel runs: by type, operation and instruction set.
 *
 * (1) The set is chosen at the first call and stays: the widest that the CPU has and MANTA_COMM_ISA
 *     allows. A name that is not known allows all.
 * (2) One array is copied as it is, whatever the operation: no NaN loses its payload.
 */
#include "comm/reduce/reduce.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/knob.h"
#include "comm/reduce/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports of clang 14 has no name for it. */
static bool has_f16c(void)
{
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
  return __builtin_cpu_supports("avx2") && has_f16c();
}

static bool has_avx512(void)
{
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

enum { SCALAR, AVX2 }; // of the words of MANTA_COMM_ISA

static const struct manta__reduce_isa *choose(int limit)
{
  if (limit == SCALAR)
    return &manta__reduce_scalar;
  __builtin_cpu_init();
  if (limit != AVX2 && has_avx512())
    return &manta__reduce_avx512;
  return has_avx2() ? &manta__reduce_avx2 : &manta__reduce_scalar;
}
#else
static const struct manta__reduce_isa *choose(int limit)
{
  return &manta__reduce_scalar;
}
#endif

/* Threads that race here find the same answer. */
static const struct manta__reduce_isa *isa(void)
{
  static const struct manta__reduce_isa *_Atomic chosen;
  const struct manta__reduce_isa *i = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (!i) {
    i = choose(manta__knob_word(MANTA__KNOB_COMM_ISA));
    atomic_store_explicit(&chosen, i, memory_order_relaxed);
  }
  return i;
}

const char *manta__reduce_isa(void)
{
  return isa()->name;
}

static enum manta__reduce_kind kind_of(manta_op op)
{
  switch (op) {
  case MANTA_PROD:
    return MANTA__MUL;
  case MANTA_MIN:
    return MANTA__MIN;
  case MANTA_MAX:
    return MANTA__MAX;
  case MANTA_BAND:
    return MANTA__AND;
  case MANTA_BOR:
    return MANTA__OR;
  case MANTA_BXOR:
    return MANTA__XOR;
  default:
    return MANTA__ADD;
  }
}

static bool is_bitwise(manta_op op)
{
  return op == MANTA_BAND || op == MANTA_BOR || op == MANTA_BXOR;
}

static bool is_float(manta_dtype type)
{
  return type == MANTA_F16 || type == MANTA_BF16 || type == MANTA_F32 || type == MANTA_F64;
}

bool manta__reduce_valid(manta_dtype type, manta_op op)
{
  if ((unsigned)type >= MANTA_DTYPE_COUNT || (unsigned)op > MANTA_BXOR)
    return false;
  if (is_bitwise(op))
    return !is_float(type);
  return type != MANTA_BOOL8 || op == MANTA_MIN || op == MANTA_MAX;
}

/* Bits do not care how wide the element is that they belong to. */
static void as_bytes(manta_dtype *type, size_t *count, manta_op op)
{
  if (!is_bitwise(op))
    return;
  *count *= manta_dtype_bytes(*type);
  *type = MANTA_U8;
}

/* Wide enough for n, which a byte is not. */
#define DIVIDE(name, type, wide)                                                                   \
  static void name(unsigned char *p, int n, size_t count)                                          \
  {                                                                                                \
    for (size_t i = 0; i < count; i++) {                                                           \
      type x;                                                                                      \
      memcpy(&x, p + i * sizeof(x), sizeof(x));                                                    \
      x = (type)((wide)x / (wide)n);                                                               \
      memcpy(p + i * sizeof(x), &x, sizeof(x));                                                    \
    }                                                                                              \
  }
DIVIDE(divide_u8, uint8_t, uint32_t)
DIVIDE(divide_i8, int8_t, int32_t)
DIVIDE(divide_u16, uint16_t, uint32_t)
DIVIDE(divide_i16, int16_t, int32_t)
DIVIDE(divide_u32, uint32_t, uint32_t)
DIVIDE(divide_i32, int32_t, int32_t)
DIVIDE(divide_u64, uint64_t, uint64_t)
DIVIDE(divide_i64, int64_t, int64_t)

typedef void divide_fn(unsigned char *p, int n, size_t count);

static divide_fn *const divides[MANTA_DTYPE_COUNT] = {
    [MANTA_U8] = divide_u8,   [MANTA_I8] = divide_i8,   [MANTA_U16] = divide_u16,
    [MANTA_I16] = divide_i16, [MANTA_U32] = divide_u32, [MANTA_I32] = divide_i32,
    [MANTA_U64] = divide_u64, [MANTA_I64] = divide_i64,
};

/* The wide sets have only floats: integers are rare, and 16 bytes at a time outrun the memory. */
static manta__reduce_fn *kernel(manta_dtype type, enum manta__reduce_kind kind)
{
  manta__reduce_fn *wide = isa()->fn[type][kind];
  return wide ? wide : manta__reduce_scalar.fn[type][kind];
}

void manta__reduce(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                   manta_op op)
{
  assert(n >= 1 && n <= MANTA__REDUCE_MAX && manta__reduce_valid(type, op));
  if (!count)
    return;
  if (n == 1) {
    if (out != in[0])
      memcpy(out, in[0], count * manta_dtype_bytes(type));
    return;
  }
  as_bytes(&type, &count, op);
  kernel(type, kind_of(op))(out, in, n, count, op == MANTA_MEAN ? n : 1);
  if (op == MANTA_MEAN && divides[type])
    divides[type](out, n, count);
}

// --- in parts -----------------------------------------------------------------------------------

manta_dtype manta__reduce_wide(manta_dtype type)
{
  return type == MANTA_F16 || type == MANTA_BF16 ? MANTA_F32 : type;
}

/* Where the largest node of the tree over n that begins at `from` and ends within `to` ends. */
static int node_end(int from, int to, int n)
{
  int end = from + 1;
  for (int size = 2; from % size == 0 && end < to; size *= 2) {
    int next = size < n - from ? from + size : n;
    if (next > to)
      break;
    end = next;
  }
  return end;
}

int manta__reduce_nodes(int from, int to, int n, struct manta__tree_node *out)
{
  int k = 0;
  for (; from < to; from = out[k++].to)
    out[k] = (struct manta__tree_node){.from = from, .to = node_end(from, to, n)};
  return k;
}

/* Nodes are made block by block, so that they stay in the first cache. */
#define PART_BYTES 4096
#define PART_DEPTH 14 /* MANTA__REDUCE_MAX has 13 levels */

struct part { /* a node that waits for its sibling */
  const void *data;
  struct manta__tree_node node;
};

struct tree_parts {
  _Alignas(64) unsigned char room[PART_DEPTH][PART_BYTES];
  struct part stack[PART_DEPTH];
  int depth;
  size_t count; /* of this block */
  manta__reduce_fn *fn;
};

static int node_size(struct manta__tree_node n)
{
  return n.to - n.from;
}

/* The upper two become one, in the room of the lower. */
static void merge(struct tree_parts *p)
{
  struct part *a = &p->stack[p->depth - 2], *b = a + 1;
  void *to = p->room[p->depth - 2];
  p->fn(to, (const void *const[]){a->data, b->data}, 2, p->count, 1);
  a->data = to;
  a->node.to = b->node.to;
  p->depth--;
}

static bool siblings(const struct tree_parts *p)
{
  if (p->depth < 2)
    return false;
  struct manta__tree_node a = p->stack[p->depth - 2].node, b = p->stack[p->depth - 1].node;
  return node_size(a) == node_size(b) && a.from % (2 * node_size(a)) == 0;
}

/* Siblings meet as soon as both are there. What is left after the last node meets from the right:
 * odd ones move up. */
static void push(struct tree_parts *p, const void *data, struct manta__tree_node node, bool last)
{
  assert(p->depth < PART_DEPTH);
  p->stack[p->depth++] = (struct part){.data = data, .node = node};
  while (last ? p->depth > 2 : siblings(p))
    merge(p);
}

/* The last step of all: two nodes become out, scaled. */
static void merge_to(struct tree_parts *p, void *out, int divisor)
{
  assert(p->depth == 2);
  p->fn(out, (const void *const[]){p->stack[0].data, p->stack[1].data}, 2, p->count, divisor);
  p->depth = 0;
}

/* Leaves of 16 bits become an f32 node. */
static void partial_block(struct tree_parts *p, float *out, const void *const *in, int n, size_t at,
                          manta__widen_fn *widen)
{
  for (int i = 0; i < n; i++) {
    float *leaf = n == 1 ? out : (float *)(void *)p->room[p->depth];
    widen(leaf, (const unsigned char *)in[i] + 2 * at, p->count);
    if (n > 1)
      push(p, leaf, (struct manta__tree_node){i, i + 1}, i == n - 1);
  }
  if (n > 1)
    merge_to(p, out, 1);
}

static size_t block_of(size_t count, size_t at, size_t element)
{
  size_t most = PART_BYTES / element;
  return count - at < most ? count - at : most;
}

void manta__reduce_partial(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                           manta_op op)
{
  assert(n >= 1 && n <= MANTA__REDUCE_MAX && manta__reduce_valid(type, op));
  if (manta__reduce_wide(type) == type) {
    manta__reduce(out, in, n, count, type, op == MANTA_MEAN ? MANTA_SUM : op);
    return;
  }
  struct tree_parts p;
  p.depth = 0;
  p.fn = kernel(MANTA_F32, kind_of(op));
  for (size_t at = 0; at < count; at += p.count) {
    p.count = block_of(count, at, sizeof(float));
    partial_block(&p, (float *)out + at, in, n, at,
                  type == MANTA_F16 ? isa()->widen_f16 : isa()->widen_bf16);
  }
}

/* Nodes of one size, the last perhaps cut short: their tree is that of as many leaves. */
static bool all_alike(const struct manta__tree_node *node, int nodes)
{
  for (int i = 1; i < nodes - 1; i++)
    if (node_size(node[i]) != node_size(node[0]))
      return false;
  return node_size(node[nodes - 1]) <= node_size(node[0]);
}

static void combine_block(struct tree_parts *p, unsigned char *out, const void *const *in,
                          const struct manta__tree_node *node, int nodes, size_t at,
                          manta_dtype type, int divisor)
{
  size_t size = manta_dtype_bytes(type), wide = manta_dtype_bytes(manta__reduce_wide(type));
  for (int i = 0; i < nodes; i++)
    push(p, (const unsigned char *)in[i] + at * wide, node[i], i == nodes - 1);
  if (wide == size) {
    merge_to(p, out + at * size, divisor);
    return;
  }
  float *sum = (float *)(void *)p->room[0];
  merge_to(p, sum, divisor);
  (type == MANTA_F16 ? isa()->narrow_f16 : isa()->narrow_bf16)(out + at * size, sum, p->count);
}

void manta__reduce_combine(void *out, const void *const *in, const struct manta__tree_node *node,
                           int nodes, size_t count, manta_dtype type, manta_op op)
{
  assert(nodes >= 2 && node[0].from == 0 && manta__reduce_valid(type, op));
  as_bytes(&type, &count, op);
  manta_dtype wide = manta__reduce_wide(type);
  int n = node[nodes - 1].to, divisor = op == MANTA_MEAN ? n : 1;
  struct tree_parts p;
  p.depth = 0;
  p.fn = kernel(wide, kind_of(op));
  if (wide == type && all_alike(node, nodes)) {
    if (count)
      p.fn(out, in, nodes, count, divisor);
  } else {
    for (size_t at = 0; at < count; at += p.count) {
      p.count = block_of(count, at, manta_dtype_bytes(wide));
      combine_block(&p, out, in, node, nodes, at, type, divisor);
    }
  }
  if (divisor > 1 && divides[type])
    divides[type](out, divisor, count);
}
