/* SPDX-License-Identifier: Apache-2.0
 *
 * A reduction in parts, as hosts make it, gives the bits of the reduction at once: every way to
 * cut up to 9 inputs (17 for some types) into contiguous hosts, and random ways for more.
 */
#include "bits.h"
#include "comm/reduce/reduce.h"
#include "test.h"

#define MAX_N     40
#define MAX_COUNT 2100

static uint64_t next_random(void)
{
  static uint64_t x = 88172645463325252u;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

struct bed {
  unsigned char in[MAX_N][MAX_COUNT * 8 + 8], want[MAX_COUNT * 8], out[MAX_COUNT * 8];
  unsigned char part[MAX_N][MAX_COUNT * 8 + 8];
  const void *ptr[MAX_N];
};

// Values near one mostly, so that sums neither lose all bits nor agree by chance; else any bits.
static uint64_t bits_of(manta_dtype type)
{
  uint64_t r = next_random();
  bool tame = next_random() % 8 != 0;
  switch (type) {
  case MANTA_BOOL8:
    return r & 1;
  case MANTA_F16:
    return tame ? (r & 0x8bff) | 0x3800 : r;
  case MANTA_BF16:
    return tame ? (r & 0x81ff) | 0x3e00 : r;
  case MANTA_F32:
    return tame ? (r & 0x81ffffff) | 0x3e000000 : r;
  case MANTA_F64:
    return tame ? (r & 0x803fffffffffffff) | 0x3fc0000000000000 : r;
  default:
    return r;
  }
}

static void fill(struct bed *b, int n, size_t count, manta_dtype type)
{
  size_t size = manta_dtype_bytes(type);
  for (int i = 0; i < n; i++) {
    unsigned char *p = b->in[i] + i % 3; // at any alignment
    for (size_t k = 0; k < count; k++) {
      uint64_t bits = bits_of(type);
      put_bits(p + k * size, bits, size);
    }
    b->ptr[i] = p;
  }
}

/* Bit i of `cuts`: a host begins at rank i + 1. The hosts' nodes, in order. */
static int make_parts(struct bed *b, struct manta__tree_node *node, const void **part, int n,
                      uint64_t cuts, size_t count, manta_dtype type, manta_op op)
{
  int nodes = 0;
  for (int from = 0, to; from < n; from = to) {
    for (to = from + 1; to < n && !(cuts >> (to - 1) & 1); to++)
      ;
    int k = manta__reduce_nodes(from, to, n, node + nodes);
    assert_true(k >= 1 && k <= MANTA__NODES_MAX);
    for (int i = nodes; i < nodes + k; i++) {
      part[i] = b->part[i] + i % 2;
      manta__reduce_partial(b->part[i] + i % 2, b->ptr + node[i].from, node[i].to - node[i].from,
                            count, type, op);
    }
    nodes += k;
  }
  return nodes;
}

static void check_cuts(struct bed *b, int n, uint64_t cuts, size_t count, manta_dtype type,
                       manta_op op)
{
  struct manta__tree_node node[MAX_N + MANTA__NODES_MAX];
  const void *part[MAX_N];
  int nodes = make_parts(b, node, part, n, cuts, count, type, op);
  if (nodes < 2)
    return;
  size_t bytes = count * manta_dtype_bytes(type);
  memset(b->out, 0xa5, sizeof b->out);
  manta__reduce_combine(b->out, part, node, nodes, count, type, op);
  if (memcmp(b->out, b->want, bytes) != 0)
    fail_msg("%s op %d n %d cuts %llx count %zu differs", manta_dtype_name(type), (int)op, n,
             (unsigned long long)cuts, count);
  if (manta__reduce_wide(type) != type) // may not be in place
    return;
  manta__reduce_combine(b->part[1] + 1, part, node, nodes, count, type, op);
  assert_memory_equal(b->part[1] + 1, b->want, bytes);
}

static void check_all_cuts(int n, size_t count, manta_dtype type, manta_op op)
{
  static struct bed b;
  if (!manta__reduce_valid(type, op))
    return;
  fill(&b, n, count, type);
  manta__reduce(b.want, b.ptr, n, count, type, op);
  for (uint64_t cuts = 0; cuts < 1u << (n - 1); cuts++)
    check_cuts(&b, n, cuts, count, type, op);
}

static void every_cut_gives_the_same_bits(void **state)
{
  for (int type = 0; type < MANTA_DTYPE_COUNT; type++)
    for (int op = 0; op <= MANTA_BXOR; op++)
      for (int n = 2; n <= 9; n++)
        check_all_cuts(n, n % 2 ? 37 : 5, (manta_dtype)type, (manta_op)op);
  for (int n = 10; n <= 17; n++) {
    check_all_cuts(n, 3, MANTA_F32, MANTA_SUM);
    check_all_cuts(n, 3, MANTA_BF16, MANTA_MEAN);
  }
}

// Counts beyond a block, and as many ranks as make deep trees.
static void random_cuts_give_the_same_bits(void **state)
{
  static struct bed b;
  static const manta_dtype types[] = {MANTA_F32, MANTA_F16, MANTA_BF16, MANTA_F64, MANTA_I8};
  for (int i = 0; i < 400; i++) {
    manta_dtype type = types[i % 5];
    manta_op op = (manta_op)(i / 5 % 5);
    int n = 2 + (int)(next_random() % (MAX_N - 1));
    size_t count = i % 7 == 0 ? MAX_COUNT : next_random() % 1100;
    uint64_t cuts = next_random() & next_random(); // hosts of about four ranks
    fill(&b, n, count, type);
    manta__reduce(b.want, b.ptr, n, count, type, op);
    check_cuts(&b, n, i % 3 ? cuts : UINT64_MAX, count, type, op);
  }
}

static void nodes_are_few_and_whole(void **state)
{
  struct manta__tree_node node[MANTA__NODES_MAX];
  assert_int_equal(manta__reduce_nodes(0, 7, 7, node), 1);
  assert_int_equal(manta__reduce_nodes(4, 7, 7, node), 1); // cut short by the end
  assert_int_equal(manta__reduce_nodes(4, 7, 8, node), 2);
  assert_int_equal(node[1].from, 6);
  assert_int_equal(manta__reduce_nodes(3, 7, 8, node), 3); // 3, 4-5, 6
  assert_int_equal(node[1].from, 4);
  assert_int_equal(node[1].to, 6);
  assert_int_equal(manta__reduce_nodes(1, 4095, 4096, node), 22);
  assert_int_equal(manta__reduce_nodes(5, 5, 8, node), 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_cut_gives_the_same_bits),
      cmocka_unit_test(random_cuts_give_the_same_bits),
      cmocka_unit_test(nodes_are_few_and_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
