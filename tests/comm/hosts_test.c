/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of groups that span hosts, against what they should give, bit by bit.
 */
#include "hosts.h"

#include "bits.h"
#include "comm/reduce/reduce.h"
#include "sys/proc.h"

#define LIMIT_S 60
#define ROOM    ((size_t)3 << 20)

static const struct spread one_each[] = {{2, {0, 1}}, {3, {0, 1, 2}}, {5, {0, 1, 2, 3, 4}}};
static const struct spread teams[] = {{4, {0, 0, 1, 1}},
                                      {5, {0, 0, 0, 1, 1}},
                                      {3, {0, 1, 1}},
                                      {6, {0, 1, 0, 1, 1, 0}},
                                      {7, {0, 0, 0, 1, 1, 2, 2}}};
#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

// Numbers whose sums depend on the order of addition.
static uint64_t bits_of(int rank, size_t i, manta_dtype type)
{
  uint64_t r = (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(rank + 1) * 0xc2b2ae3d27d4eb4fu;
  r ^= r >> 29;
  r *= 0xbf58476d1ce4e5b9u;
  r ^= r >> 32;
  switch (type) {
  case MANTA_BOOL8:
    return r & 1;
  case MANTA_F16:
    return (r & 0x8bff) | 0x3800;
  case MANTA_BF16:
    return (r & 0x81ff) | 0x3e00;
  case MANTA_F32:
    return (r & 0x81ffffff) | 0x3e000000;
  case MANTA_F64:
    return (r & 0x803fffffffffffff) | 0x3fc0000000000000;
  default:
    return r;
  }
}

static void fill(uint8_t *p, int rank, size_t from, size_t count, manta_dtype type)
{
  size_t size = manta_dtype_bytes(type);
  for (size_t i = 0; i < count; i++) {
    uint64_t bits = bits_of(rank, from + i, type);
    put_bits(p + i * size, bits, size);
  }
}

// What all ranks hold of [from, from + count); the operations of a type follow one another.
static void inputs(const void *in[], int n, size_t from, size_t count, manta_dtype type)
{
  static uint8_t *mem[NETS_MAX];
  static struct {
    int n;
    size_t from, count;
    manta_dtype type;
  } last;
  bool there = n <= last.n && from == last.from && count <= last.count && type == last.type;
  for (int r = 0; r < n; r++) {
    if (!mem[r])
      mem[r] = malloc(ROOM);
    if (!there)
      fill(mem[r], r, from, count, type);
    in[r] = mem[r];
  }
  if (!there) {
    last.n = n;
    last.from = from;
    last.count = count;
    last.type = type;
  }
}

// The op over all ranks of [from, from + count), as one host would make it.
static void truth(uint8_t *out, int n, size_t from, size_t count, manta_dtype type, manta_op op)
{
  const void *in[NETS_MAX];
  inputs(in, n, from, count, type);
  manta__reduce(out, in, n, count, type, op);
}

struct bufs {
  uint8_t *send, *recv, *want;
};

static struct bufs make_bufs(size_t bytes)
{
  return (struct bufs){malloc(bytes), malloc(bytes), malloc(bytes)};
}

static void free_bufs(struct bufs *b)
{
  free(b->send);
  free(b->recv);
  free(b->want);
}

static manta_status call(struct rig *g, enum manta__call call, const void *send, void *recv,
                         size_t count, manta_dtype type, manta_op op, int root)
{
  struct manta__task t = {call, send, recv, count, NULL, type, op, root};
  return manta__comm_run(g->comm, &t, &g->err);
}

// --- all-reduce ---------------------------------------------------------------------------------

static int one_allreduce(struct rig *g, struct bufs *b, int rank, int n, size_t count,
                         manta_dtype type, manta_op op, int shift)
{
  size_t bytes = count * manta_dtype_bytes(type);
  uint8_t *send = b->send + shift, *recv = shift % 2 ? send : b->recv + shift;
  fill(send, rank, 0, count, type);
  recv[bytes] = 0x5a;
  EXPECT(call(g, MANTA__CALL_ALLREDUCE, send, recv, count, type, op, 0) == MANTA_OK);
  truth(b->want, n, 0, count, type, op);
  EXPECT(memcmp(recv, b->want, bytes) == 0);
  EXPECT(recv[bytes] == 0x5a);
  return 0;
}

static int every_type(struct rig *g, int rank, int n, struct board *board)
{
  static const size_t counts[] = {0, 1, 3, 1000, 2049, 9001, 70001};
  struct bufs b = make_bufs(ROOM);
  for (int type = 0; type < MANTA_DTYPE_COUNT; type++)
    for (int op = 0; op <= MANTA_BXOR; op++)
      for (size_t k = LENGTH(counts); k-- > 0;) { // the largest first: it makes the others' inputs
        if (!manta__reduce_valid((manta_dtype)type, (manta_op)op))
          continue;
        if (counts[k] > 9001 && op > MANTA_MEAN && type != MANTA_F32)
          continue;
        int line = one_allreduce(g, &b, rank, n, counts[k], (manta_dtype)type, (manta_op)op,
                                 (type + op + (int)k) % 4);
        if (line)
          return line;
      }
  free_bufs(&b);
  return 0;
}

static int large(struct rig *g, int rank, int n, struct board *board)
{
  struct bufs b = make_bufs(ROOM);
  size_t count = 600001; // several rounds of chunks
  EXPECT(one_allreduce(g, &b, rank, n, count, MANTA_F32, MANTA_MEAN, 1) == 0);
  EXPECT(one_allreduce(g, &b, rank, n, count, MANTA_F32, MANTA_SUM, 0) == 0);
  EXPECT(one_allreduce(g, &b, rank, n, count, MANTA_BF16, MANTA_MEAN, 0) == 0);
  EXPECT(one_allreduce(g, &b, rank, n, count, MANTA_I8, MANTA_SUM, 1) == 0);
  free_bufs(&b);
  return 0;
}

static void allreduce_gives_the_bits_of_one_host(void **state)
{
  need_ucx();
  for (size_t i = 0; i < LENGTH(one_each); i++) {
    on_hosts(&loopback, &one_each[i], every_type);
    on_hosts(&loopback, &one_each[i], large);
  }
}

static void teams_give_the_bits_of_one_host(void **state)
{
  need_ucx();
  for (size_t i = 0; i < LENGTH(teams); i++) {
    on_hosts(&loopback, &teams[i], every_type);
    on_hosts(&loopback, &teams[i], large);
  }
}

static int in_heap(struct rig *g, int rank, int n, struct board *board)
{
  struct bufs b = {.want = malloc(ROOM)};
  EXPECT(manta_shm_alloc(g->comm, ROOM, (void **)&b.send, &g->err) == MANTA_OK);
  EXPECT(manta_shm_alloc(g->comm, ROOM, (void **)&b.recv, &g->err) == MANTA_OK);
  EXPECT(one_allreduce(g, &b, rank, n, 600001, MANTA_F32, MANTA_MEAN, 1) == 0);
  EXPECT(one_allreduce(g, &b, rank, n, 600001, MANTA_F32, MANTA_SUM, 0) == 0);
  EXPECT(one_allreduce(g, &b, rank, n, 600001, MANTA_F16, MANTA_SUM, 0) == 0);
  free(b.want);
  return 0;
}

static void shared_buffers_give_the_same(void **state)
{
  need_ucx();
  for (size_t i = 0; i < LENGTH(teams); i++)
    on_hosts(&loopback, &teams[i], in_heap);
}

// Between two namespaces: rank r is in namespace r % 2, as are the hosts of these layouts.
static void two_hosts_give_the_same(void **state)
{
  static const struct spread two = {2, {0, 1}}, four = {4, {0, 1, 0, 1}};
  struct place p;
  need_ucx();
  if (!place_make(&p))
    skip_because("network namespaces need root and the command ip");
  on_hosts(&p, &two, every_type);
  on_hosts(&p, &two, large);
  on_hosts(&p, &four, large);
  place_remove(&p);
}

// --- the others ---------------------------------------------------------------------------------

static int one_of_each(struct rig *g, struct bufs *b, int rank, int n, size_t k, int root)
{
  const manta_dtype t = MANTA_F32;
  size_t bytes = k * 4, all = bytes * (size_t)n;
  bool is_root = rank == root;
  fill(b->send, rank, 0, k, t);
  EXPECT(call(g, MANTA__CALL_BROADCAST, b->send, b->send, k, t, 0, root) == MANTA_OK);
  fill(b->want, root, 0, k, t);
  EXPECT(memcmp(b->send, b->want, bytes) == 0);
  fill(b->send, rank, 0, k, t);
  EXPECT(call(g, MANTA__CALL_ALLGATHER, b->send, b->recv, k, t, 0, 0) == MANTA_OK);
  for (int r = 0; r < n; r++)
    fill(b->want + (size_t)r * bytes, r, 0, k, t);
  EXPECT(memcmp(b->recv, b->want, all) == 0);
  memset(b->recv, 0, all);
  EXPECT(call(g, MANTA__CALL_GATHER, b->send, is_root ? b->recv : NULL, k, t, 0, root) == MANTA_OK);
  EXPECT(!is_root || memcmp(b->recv, b->want, all) == 0);
  EXPECT(call(g, MANTA__CALL_SCATTER, is_root ? b->want : NULL, b->recv, k, t, 0, root) ==
         MANTA_OK);
  EXPECT(memcmp(b->recv, b->want + (size_t)rank * bytes, bytes) == 0);
  fill(b->send, rank, 0, k * (size_t)n, t);
  EXPECT(call(g, MANTA__CALL_ALLTOALL, b->send, b->recv, k, t, 0, 0) == MANTA_OK);
  for (int r = 0; r < n; r++)
    fill(b->want + (size_t)r * bytes, r, (size_t)rank * k, k, t);
  EXPECT(memcmp(b->recv, b->want, all) == 0);
  EXPECT(call(g, MANTA__CALL_REDUCE_SCATTER, b->send, b->recv, k, t, MANTA_MEAN, 0) == MANTA_OK);
  truth(b->want, n, (size_t)rank * k, k, t, MANTA_MEAN);
  EXPECT(memcmp(b->recv, b->want, bytes) == 0);
  EXPECT(call(g, MANTA__CALL_REDUCE, b->send, is_root ? b->recv : NULL, k, t, MANTA_SUM, root) ==
         MANTA_OK);
  truth(b->want, n, 0, k, t, MANTA_SUM);
  EXPECT(!is_root || memcmp(b->recv, b->want, bytes) == 0);
  EXPECT(call(g, MANTA__CALL_BARRIER, NULL, NULL, 0, MANTA_U8, 0, 0) == MANTA_OK);
  return 0;
}

// In place, where a buffer holds what goes and what comes.
static int in_place(struct rig *g, struct bufs *b, int rank, int n, size_t k, int root)
{
  const manta_dtype t = MANTA_F32;
  size_t bytes = k * 4, all = bytes * (size_t)n;
  fill(b->recv + (size_t)rank * bytes, rank, 0, k, t);
  EXPECT(call(g, MANTA__CALL_ALLGATHER, b->recv + (size_t)rank * bytes, b->recv, k, t, 0, 0) ==
         MANTA_OK);
  for (int r = 0; r < n; r++)
    fill(b->want + (size_t)r * bytes, r, 0, k, t);
  EXPECT(memcmp(b->recv, b->want, all) == 0);
  fill(b->send, rank, 0, k * (size_t)n, t);
  EXPECT(call(g, MANTA__CALL_ALLTOALL, b->send, b->send, k, t, 0, 0) == MANTA_OK);
  for (int r = 0; r < n; r++)
    fill(b->want + (size_t)r * bytes, r, (size_t)rank * k, k, t);
  EXPECT(memcmp(b->send, b->want, all) == 0);
  fill(b->send, rank, 0, k * (size_t)n, t);
  EXPECT(call(g, MANTA__CALL_REDUCE_SCATTER, b->send, b->send, k, t, MANTA_SUM, 0) == MANTA_OK);
  truth(b->want, n, (size_t)rank * k, k, t, MANTA_SUM);
  EXPECT(memcmp(b->send, b->want, bytes) == 0);
  return 0;
}

static int everything(struct rig *g, int rank, int n, struct board *board)
{
  static const size_t counts[] = {0, 1, 17, 2048, 2049, 40000, 100003};
  struct bufs b = make_bufs(ROOM);
  for (size_t i = 0; i < LENGTH(counts); i++) {
    int line = one_of_each(g, &b, rank, n, counts[i], (int)i % n);
    line = line ? line : in_place(g, &b, rank, n, counts[i], (int)i % n);
    if (line)
      return line;
  }
  free_bufs(&b);
  return 0;
}

static void data_moves_where_it_should(void **state)
{
  need_ucx();
  for (size_t i = 0; i < LENGTH(one_each); i++)
    on_hosts(&loopback, &one_each[i], everything);
  for (size_t i = 0; i < LENGTH(teams); i++)
    on_hosts(&loopback, &teams[i], everything);
}

static int ragged(struct rig *g, int rank, int n, struct board *board)
{
  struct bufs b = make_bufs(ROOM);
  size_t counts[NETS_MAX], total = 0;
  for (int r = 0; r < n; r++) {
    counts[r] = r == 1 ? 0 : 20000u * (size_t)r + 3;
    fill(b.want + total * 4, r, 0, counts[r], MANTA_F32);
    total += counts[r];
  }
  fill(b.send, rank, 0, counts[rank], MANTA_F32);
  struct manta__task t = {MANTA__CALL_ALLGATHERV, b.send, b.recv, total, counts, MANTA_F32, 0, 0};
  EXPECT(manta__comm_run(g->comm, &t, &g->err) == MANTA_OK);
  EXPECT(memcmp(b.recv, b.want, total * 4) == 0);
  free_bufs(&b);
  return 0;
}

static void ragged_blocks_are_gathered(void **state)
{
  need_ucx();
  on_hosts(&loopback, &one_each[2], ragged);
  on_hosts(&loopback, &teams[1], ragged);
  on_hosts(&loopback, &teams[3], ragged);
}

// --- pairs, groups, several at once -------------------------------------------------------------

// Both ways at once with everybody, on this host and on others, small and large.
static int pairs(struct rig *g, int rank, int n, struct board *board)
{
  static const size_t counts[] = {0, 1, 1000, 8192, 9000, 300000};
  manta_work *work[2 * NETS_MAX] = {0};
  uint8_t *in = malloc((size_t)n * ROOM), *out = malloc(ROOM), *want = malloc(ROOM);
  for (size_t k = 0; k < LENGTH(counts); k++) {
    size_t count = counts[k];
    fill(out, rank, 0, count, MANTA_F32);
    for (int r = 0; r < n; r++) {
      if (r == rank)
        continue;
      EXPECT(manta_comm_send_start(g->comm, out, count, MANTA_F32, r, &work[r], &g->err) == 0);
      EXPECT(manta_comm_recv_start(g->comm, in + (size_t)r * ROOM, count, MANTA_F32, r,
                                   &work[n + r], &g->err) == 0);
    }
    for (int i = 0; i < 2 * n; i++)
      EXPECT(manta_work_wait(work[i], &g->err) == MANTA_OK);
    for (int r = 0; r < n; r++) {
      fill(want, r, 0, count, MANTA_F32);
      EXPECT(r == rank || memcmp(in + (size_t)r * ROOM, want, count * 4) == 0);
    }
    memset(work, 0, sizeof work);
  }
  free(in);
  free(out);
  free(want);
  return 0;
}

// A receive that asks for something else is told so, and the next one is well.
static int odd_pair(struct rig *g, int rank, int n, struct board *board)
{
  static float x[100000], y[100000];
  for (int i = 0; i < 2; i++) {
    size_t count = i ? 100000 : 10;
    if (rank == 0) {
      EXPECT(manta_comm_send(g->comm, x, count, MANTA_F32, n - 1, &g->err) == MANTA_OK);
      x[0] = 5;
      EXPECT(manta_comm_send(g->comm, x, count, MANTA_F32, n - 1, &g->err) == MANTA_OK);
    } else if (rank == n - 1) {
      EXPECT(manta_comm_recv(g->comm, y, count - 1, MANTA_I32, 0, &g->err) == MANTA_EINVAL);
      EXPECT(strstr(g->err.message, i ? "sends 100000 F32" : "sends 10 F32"));
      EXPECT(manta_comm_recv(g->comm, y, count, MANTA_F32, 0, &g->err) == MANTA_OK);
      EXPECT(y[0] == 5);
    }
  }
  *g->err.message = 0;
  EXPECT(manta_comm_barrier(g->comm, &g->err) == MANTA_OK);
  return 0;
}

static void ranks_send_to_each_other(void **state)
{
  need_ucx();
  on_hosts(&loopback, &one_each[1], pairs);
  on_hosts(&loopback, &teams[1], pairs);
  on_hosts(&loopback, &one_each[0], odd_pair);
  on_hosts(&loopback, &teams[1], odd_pair);
}

static int one_group(struct rig *g, int rank, int n, int color, int key)
{
  manta_comm *sub;
  EXPECT(manta_comm_split(g->comm, color, key, &sub, &g->err) == MANTA_OK);
  if (color < 0) {
    EXPECT(!sub);
    return 0;
  }
  int size = manta_comm_size(sub), sum = 0, max = -1;
  float x[3000];
  for (int i = 0; i < 3000; i++)
    x[i] = (float)(rank + 1);
  EXPECT(manta_comm_allreduce(sub, &rank, &sum, 1, MANTA_I32, MANTA_SUM, &g->err) == MANTA_OK);
  EXPECT(manta_comm_allreduce(sub, &rank, &max, 1, MANTA_I32, MANTA_MAX, &g->err) == MANTA_OK);
  EXPECT(manta_comm_allreduce(sub, x, x, 3000, MANTA_F32, MANTA_SUM, &g->err) == MANTA_OK);
  EXPECT(x[2999] == (float)(sum + size) && max < n);
  int first = rank; // who is rank 0 of the group
  EXPECT(manta_comm_broadcast(sub, &first, 1, MANTA_I32, 0, &g->err) == MANTA_OK);
  EXPECT((first == rank) == (manta_comm_rank(sub) == 0));
  manta_comm_free(sub);
  return 0;
}

static int groups(struct rig *g, int rank, int n, struct board *board)
{
  for (int i = 0; i < 3; i++) {
    EXPECT(one_group(g, rank, n, 0, -rank) == 0);                         // all, backwards
    EXPECT(one_group(g, rank, n, rank % 2, 0) == 0);                      // across hosts
    EXPECT(one_group(g, rank, n, hosts_test.spread->host[rank], 0) == 0); // hosts
    EXPECT(one_group(g, rank, n, rank == 1 ? -1 : 5, rank * 7 % 5) == 0);
    EXPECT(manta_comm_barrier(g->comm, &g->err) == MANTA_OK);
  }
  return 0;
}

static void groups_span_hosts_or_do_not(void **state)
{
  need_ucx();
  for (size_t i = 0; i < LENGTH(one_each); i++)
    on_hosts(&loopback, &one_each[i], groups);
  for (size_t i = 0; i < LENGTH(teams); i++)
    on_hosts(&loopback, &teams[i], groups);
}

// Two communicators with calls under way at once, on threads of their own, and sends between.
static int at_once(struct rig *g, int rank, int n, struct board *board)
{
  manta_comm *other;
  size_t count = 200000;
  float *x[6];
  EXPECT(manta_comm_split(g->comm, 0, -rank, &other, &g->err) == MANTA_OK);
  for (int i = 0; i < 6; i++)
    x[i] = malloc(count * 4);
  for (int round = 0; round < 5; round++) {
    manta_work *work[6];
    for (int i = 0; i < 6; i++) {
      for (size_t k = 0; k < count; k++)
        x[i][k] = (float)(rank + i);
      EXPECT(manta_comm_allreduce_start(i % 2 ? other : g->comm, x[i], x[i], count, MANTA_F32,
                                        MANTA_SUM, &work[i], &g->err) == MANTA_OK);
    }
    int note = rank, got = -1, next = (rank + 1) % n, last = (rank + n - 1) % n;
    manta_work *send;
    EXPECT(manta_comm_send_start(g->comm, &note, 1, MANTA_I32, next, &send, &g->err) == MANTA_OK);
    EXPECT(manta_comm_recv(g->comm, &got, 1, MANTA_I32, last, &g->err) == MANTA_OK);
    EXPECT(got == last && manta_work_wait(send, &g->err) == MANTA_OK);
    for (int i = 5; i >= 0; i--) {
      EXPECT(manta_work_wait(work[i], &g->err) == MANTA_OK);
      EXPECT(x[i][0] == (float)(n * (n - 1) / 2 + n * i) && x[i][count - 1] == x[i][0]);
    }
  }
  for (int i = 0; i < 6; i++)
    free(x[i]);
  manta_comm_free(other);
  return 0;
}

static void several_are_under_way_at_once(void **state)
{
  need_ucx();
  on_hosts(&loopback, &one_each[1], at_once);
  on_hosts(&loopback, &teams[0], at_once);
  on_hosts(&loopback, &teams[1], at_once);
}

// --- trouble ------------------------------------------------------------------------------------

// One rank differs, small and large; all are told, by what two ranks called, and stay in step.
static int differ(struct rig *g, int rank, int n, struct board *board)
{
  struct bufs b = make_bufs(ROOM);
  for (int i = 0; i < 8; i++) {
    size_t k = i % 2 ? 8 : 100000, other = i % 2 ? 7 : 99999;
    int odd = i / 2 % n;
    memset(b.send, 0, ROOM);
    EXPECT(call(g, MANTA__CALL_ALLREDUCE, b.send, b.recv, rank == odd ? other : k, MANTA_F32,
                MANTA_SUM, 0) == MANTA_EINVAL);
    EXPECT(strstr(g->err.message, "the ranks make different calls"));
    EXPECT(strstr(g->err.message, i % 2 ? "allreduce of 8 F32 sum" : "of 100000 F32 sum"));
    EXPECT(strstr(g->err.message, i % 2 ? "of 7 F32" : "of 99999 F32"));
    EXPECT(one_allreduce(g, &b, rank, n, k, MANTA_F32, MANTA_SUM, 0) == 0);
  }
  EXPECT(call(g, rank ? MANTA__CALL_BARRIER : MANTA__CALL_BROADCAST, b.send, b.send, 0, MANTA_U8, 0,
              0) == MANTA_EINVAL);
  *g->err.message = 0;
  free_bufs(&b);
  return 0;
}

static void different_calls_are_named(void **state)
{
  need_ucx();
  on_hosts(&loopback, &one_each[1], differ);
  on_hosts(&loopback, &teams[1], differ);
}

static int late(struct rig *g, int rank, int n, struct board *b)
{
  float x = 1;
  if (rank == 1) {
    for (int64_t by = manta__deadline(LIMIT_S); b->note[0] == 0 && manta__now() < by;)
      usleep(1000);
    return 0;
  }
  manta_comm_set_timeout(g->comm, 0.1);
  EXPECT(call(g, MANTA__CALL_BARRIER, NULL, NULL, 0, MANTA_U8, 0, 0) == MANTA_ETIMEDOUT);
  EXPECT(strstr(g->err.message, "barrier: rank 1 of 2 is missing"));
  EXPECT(call(g, MANTA__CALL_ALLREDUCE, &x, &x, 1, MANTA_F32, MANTA_SUM, 0) == MANTA_ESTATE);
  b->note[0] = 1;
  return 0;
}

static void a_deadline_names_who_is_missing(void **state)
{
  need_ucx();
  on_hosts(&loopback, &one_each[0], late);
}

static int leaves(struct rig *g, int rank, int n, struct board *b)
{
  EXPECT(call(g, MANTA__CALL_BARRIER, NULL, NULL, 0, MANTA_U8, 0, 0) == MANTA_OK);
  if (rank == 1)
    return 0;
  EXPECT(call(g, MANTA__CALL_BARRIER, NULL, NULL, 0, MANTA_U8, 0, 0) == MANTA_EPEERLOST);
  EXPECT(strstr(g->err.message, "rank 1 has left"));
  return 0;
}

static void a_rank_that_left_is_not_waited_for(void **state)
{
  need_ucx();
  for (int i = 0; i < 5; i++)
    on_hosts(&loopback, &one_each[0], leaves);
}

// For ever, and never a wrong sum.
static int until_lost(struct rig *g, int rank, int n, struct board *b)
{
  size_t count = 1500000;
  float *x = malloc(count * 4);
  for (int64_t i = 1;; i++) {
    for (size_t j = 0; j < count; j += 1000)
      x[j] = (float)(i % 100);
    manta_status st = call(g, MANTA__CALL_ALLREDUCE, x, x, count, MANTA_F32, MANTA_SUM, 0);
    if (st == MANTA_EPEERLOST)
      break;
    EXPECT(st == MANTA_OK);
    for (size_t j = 0; j < count; j += 1000)
      EXPECT(x[j] == (float)(i % 100) * (float)n);
    b->note[rank] = i;
  }
  b->note[rank] = -manta__now();
  free(x);
  return 0;
}

// agent: whether somebody raises the abort word, as the agents of all hosts do.
static void kill_one(const struct place *place, const struct spread *s, int victim, bool agent)
{
  struct nets t;
  hosts_start(&t, place, s, until_lost);
  int64_t by = manta__deadline(LIMIT_S), worst = 0;
  while (t.board->note[victim] < 2 && manta__now() < by)
    usleep(1000);
  usleep((useconds_t)(manta__now() % 5000));
  int64_t killed = manta__now();
  manta__proc_signal(t.pid[victim], SIGKILL);
  if (agent) {
    atomic_store(&t.board->abort, (uint32_t)victim + 1);
    for (int r = 0; r < s->n; r++)
      manta__bell_ring(&t.board->bell[r]);
  }
  for (int r = 0; r < s->n; r++) {
    while (r != victim && t.board->note[r] >= 0 && manta__now() < by)
      usleep(500);
    if (r != victim && -t.board->note[r] - killed > worst)
      worst = -t.board->note[r] - killed;
  }
  assert_int_equal(hosts_end(&t), 0);
  print_message("# %d ranks: the last survivor was back after %.1f ms\n", s->n,
                (double)worst / 1e6);
}

static void survivors_leave_when_a_peer_is_killed(void **state)
{
  need_ucx();
  for (int i = 0; i < 6; i++) {
    kill_one(&loopback, &one_each[i % 2], i % 2, false);
    kill_one(&loopback, &teams[i % 2], i % 4, true);
  }
}

static void survivors_of_another_host_leave(void **state)
{
  struct place p;
  need_ucx();
  if (!place_make(&p))
    skip_because("network namespaces need root and the command ip");
  kill_one(&p, &one_each[0], 1, false);
  kill_one(&p, &one_each[0], 0, true);
  place_remove(&p);
}

// The link is gone and nobody says so; the abort word ends it.
static void the_abort_word_ends_a_wait_on_a_dead_link(void **state)
{
  struct place p;
  struct nets t;
  need_ucx();
  if (!place_make(&p))
    skip_because("network namespaces need root and the command ip");
  hosts_start(&t, &p, &one_each[0], until_lost);
  int64_t by = manta__deadline(LIMIT_S);
  while ((t.board->note[0] < 2 || t.board->note[1] < 2) && manta__now() < by)
    usleep(1000);
  assert_int_equal(nets_sh("ip -n %s link set %s down", p.ns[0], p.dev[0]), 0);
  usleep(300000);
  assert_true(t.board->note[0] > 0 && t.board->note[1] > 0); // still waiting
  int64_t raised = manta__now();
  atomic_store(&t.board->abort, 1);
  while ((t.board->note[0] > 0 || t.board->note[1] > 0) && manta__now() < by)
    usleep(500);
  print_message("# back after %.1f ms\n", (double)(manta__now() - raised) / 1e6);
  assert_int_equal(hosts_end(&t), 0);
  place_remove(&p);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(allreduce_gives_the_bits_of_one_host),
      cmocka_unit_test(teams_give_the_bits_of_one_host),
      cmocka_unit_test(shared_buffers_give_the_same),
      cmocka_unit_test(two_hosts_give_the_same),
      cmocka_unit_test(data_moves_where_it_should),
      cmocka_unit_test(ragged_blocks_are_gathered),
      cmocka_unit_test(ranks_send_to_each_other),
      cmocka_unit_test(groups_span_hosts_or_do_not),
      cmocka_unit_test(several_are_under_way_at_once),
      cmocka_unit_test(different_calls_are_named),
      cmocka_unit_test(a_deadline_names_who_is_missing),
      cmocka_unit_test(a_rank_that_left_is_not_waited_for),
      cmocka_unit_test(survivors_leave_when_a_peer_is_killed),
      cmocka_unit_test(survivors_of_another_host_leave),
      cmocka_unit_test(the_abort_word_ends_a_wait_on_a_dead_link),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
