/* SPDX-License-Identifier: Apache-2.0
 *
 * Every collective with every type, operation and number of ranks, at sizes around every limit of
 * the algorithms, private, shared and mixed, aligned and not, in place and apart.
 *
 * The two loops are complete in (call, type, operation) and in (call, size, place, in place); what
 * they leave open goes round by steps that have no common divisor, so that all pairs come up.
 */
#include "plain.h"

#define ROOM (2200u << 10)

// Bytes of a block: around what decides in comm/shm/shared.c.
static const size_t sizes[] = {0,     1,     2,     8,     63,    64,    65,     1023,
                               1024,  1025,  2047,  2049,  8191,  8192,  8193,   16384,
                               16385, 21824, 32768, 65535, 65536, 65537, 131072, 200003};
#define SIZES (sizeof sizes / sizeof *sizes)

static const enum manta__call calls[] = {
    MANTA__CALL_BARRIER,   MANTA__CALL_ALLREDUCE, MANTA__CALL_REDUCE, MANTA__CALL_REDUCE_SCATTER,
    MANTA__CALL_BROADCAST, MANTA__CALL_ALLGATHER, MANTA__CALL_GATHER, MANTA__CALL_ALLGATHERV,
    MANTA__CALL_ALLTOALL,  MANTA__CALL_SCATTER,
};
#define CALLS (sizeof calls / sizeof *calls)

static const manta_op ops[] = {MANTA_SUM, MANTA_MEAN, MANTA_PROD, MANTA_MIN,
                               MANTA_MAX, MANTA_BAND, MANTA_BOR,  MANTA_BXOR};
#define OPS (sizeof ops / sizeof *ops)

// Ragged: nothing, a little, all of it, half.
static void rag(struct plain *p, int n)
{
  static const size_t part[] = {0, 16, 1, 2};
  for (int r = 0; r < n; r++) {
    size_t k = part[(p->seed + (uint64_t)r) % 4];
    p->counts[r] = k ? p->count / k : 0;
  }
}

struct stepper {
  manta_comm *c;
  struct plain_bed bed;
  int rank, n;
  uint64_t k; // cases so far
};

// The i-th of m, each time another; `stride` has no divisor in common with any m in use.
static size_t turn(const struct stepper *s, uint64_t stride, size_t m)
{
  return (size_t)((s->k * stride + s->k / m) % m);
}

static int one(struct stepper *s, struct plain p, size_t bytes)
{
  static const int shifts[] = {0, 1, 7, 33, 4};
  s->k++;
  p.seed = s->k * 7 + (uint64_t)s->n;
  p.count = bytes / manta_dtype_bytes(p.type);
  p.root = (int)turn(s, 7, (size_t)s->n);
  p.shift = shifts[turn(s, 11, 5)];
  if (p.call == MANTA__CALL_ALLGATHERV)
    rag(&p, s->n);
  return plain_one(s->c, &s->bed, &p, s->rank, s->n);
}

// Sizes and places go round.
static int every_type_and_op(struct stepper *s)
{
  for (size_t call = 0; call < CALLS; call++)
    for (int type = 0; type < MANTA_DTYPE_COUNT; type++)
      for (size_t op = 0; op < OPS; op++) {
        struct plain p = {.call = calls[call], .type = (manta_dtype)type, .op = ops[op]};
        if (plain_reduces(&p) ? !manta__reduce_valid(p.type, p.op) : op > 0)
          continue;
        p.place = (enum plain_place)turn(s, 7, PLAIN_PLACES);
        p.in_place = turn(s, 13, 2);
        size_t size = sizes[turn(s, 17, SIZES - 4)];
        int line = one(s, p, size);
        if (line)
          return line;
      }
  return 0;
}

// Types and operations go round.
static int every_size_and_place(struct stepper *s)
{
  for (size_t call = 1; call < CALLS; call++)
    for (size_t size = 0; size < SIZES; size++)
      for (int place = 0; place < PLAIN_PLACES * 2; place++) {
        struct plain p = {.call = calls[call], .op = ops[turn(s, 3, OPS)]};
        p.place = (enum plain_place)(place / 2);
        p.in_place = place % 2;
        p.type = (manta_dtype)turn(s, 19, MANTA_DTYPE_COUNT);
        if (plain_reduces(&p) && !manta__reduce_valid(p.type, p.op))
          p.op = MANTA_MAX;
        int line = one(s, p, sizes[size]);
        if (line)
          return line;
      }
  return 0;
}

// Over a megabyte: reductions in parts, and everything else right through the staging ring.
static int large(struct stepper *s)
{
  static const size_t big[] = {(1u << 20) - 64, 1u << 20, (1u << 20) + 640, 2100000};
  for (size_t call = 1; call < CALLS; call++)
    for (size_t i = 0; i < 4; i++) {
      struct plain p = {.call = calls[call], .type = i % 2 ? MANTA_F32 : MANTA_U64};
      bool blocks = plain_sent(&(struct plain){.call = p.call, .count = 1}, 0, s->n) > 1 ||
                    plain_received(&(struct plain){.call = p.call, .count = 1}, 0, s->n) > 1;
      bool moves = p.call != MANTA__CALL_ALLREDUCE && i % 3;
      p.place = p.call == MANTA__CALL_ALLREDUCE ? i == 3 : (enum plain_place)turn(s, 7, 3);
      p.in_place = i % 2;
      if (moves) // two of four are enough
        continue;
      int line = one(
          s, p, blocks || p.call == MANTA__CALL_ALLGATHERV ? big[i] / (size_t)s->n / 4 : big[i]);
      if (line)
        return line;
    }
  return 0;
}

static int matrix(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct stepper s = {.c = c, .rank = rank, .n = n};
  int line = plain_open(&s.bed, c, n, ROOM);
  line = line ? line : every_type_and_op(&s);
  line = line ? line : every_size_and_place(&s);
  line = line ? line : large(&s);
  plain_close(&s.bed, c);
  return line;
}

#define RANKS(n)                                                                                   \
  static void ranks_##n(void **state)                                                              \
  {                                                                                                \
    on_ranks(n, matrix);                                                                           \
  }
RANKS(1)
RANKS(2)
RANKS(3)
RANKS(4)
RANKS(5)

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_1), cmocka_unit_test(ranks_2), cmocka_unit_test(ranks_3),
      cmocka_unit_test(ranks_4), cmocka_unit_test(ranks_5),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
