/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/device_cases.h - what must be true of collectives on device memory, real or fake.
 */
#ifndef MANTA_TEST_DEVICE_CASES_H
#define MANTA_TEST_DEVICE_CASES_H

#include "comm/device_ranks.h"
#include "comm/reduce/reduce.h"

#define CALL(call_, ...) ((struct manta__task){.call = MANTA__CALL_##call_, __VA_ARGS__})

/* --- numbers of any type --- */

static bool is_float(manta_dtype type)
{
  return type == MANTA_F16 || type == MANTA_BF16 || type == MANTA_F32 || type == MANTA_F64;
}

/* v is a small whole number, which every type holds exactly. */
static void encode(void *to, size_t i, manta_dtype type, int v)
{
  uint64_t bits = (uint64_t)(int64_t)v;
  size_t bytes = manta_dtype_bytes(type);
  if (type == MANTA_F64) {
    double f = v;
    memcpy(&bits, &f, 8);
  } else if (is_float(type)) {
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t half = v ? (u >> 16 & 0x8000) | ((u >> 23 & 255) - 112) << 10 | (u >> 13 & 1023) : 0;
    bits = type == MANTA_F32 ? u : type == MANTA_BF16 ? u >> 16 : half;
  }
  memcpy((uint8_t *)to + i * bytes, &bits, bytes);
}

static double decode(const void *from, size_t i, manta_dtype type)
{
  uint64_t bits = 0;
  size_t bytes = manta_dtype_bytes(type);
  memcpy(&bits, (const uint8_t *)from + i * bytes, bytes);
  if (type == MANTA_F64) {
    double f;
    memcpy(&f, &bits, 8);
    return f;
  }
  if (is_float(type)) {
    uint32_t u = (uint32_t)bits;
    float f;
    if (type == MANTA_BF16)
      u <<= 16;
    else if (type == MANTA_F16)
      u = bits & 0x7fff ? (u & 0x8000) << 16 | ((u >> 10 & 31) + 112) << 23 | (u & 1023) << 13 : 0;
    memcpy(&f, &u, 4);
    return f;
  }
  bool has_sign = type == MANTA_I8 || type == MANTA_I32 || type == MANTA_I64;
  unsigned shift = 64 - 8 * (unsigned)bytes;
  return has_sign ? (double)((int64_t)(bits << shift) >> shift) : (double)bits;
}

/* Whether they are the same, as far as the type can tell; NaN is not. */
static bool same(const void *a, const void *b, size_t count, manta_dtype type)
{
  double tolerance = type == MANTA_F64    ? 1e-14
                     : type == MANTA_F32  ? 1e-6
                     : type == MANTA_F16  ? 2e-3
                     : type == MANTA_BF16 ? 2e-2
                                          : 0;
  for (size_t i = 0; i < count; i++) {
    double x = decode(a, i, type), y = decode(b, i, type);
    if (!(fabs(x - y) <= tolerance * fabs(y)))
      return false;
  }
  return true;
}

/* --- everything that computes --- */

static const manta_dtype arithmetic_types[] = {MANTA_I8,  MANTA_U8,  MANTA_I32, MANTA_U32,
                                               MANTA_I64, MANTA_U64, MANTA_F16, MANTA_BF16,
                                               MANTA_F32, MANTA_F64};

struct sums { /* one type and operation */
  manta_dtype type;
  manta_op op;
  size_t count, bytes;          /* of one block; n of them */
  uint8_t *in[RANKS_MAX], *out; /* host: what each rank has, and what comes out */
  uint8_t *expected;
};

static void sums_begin(struct rank *t, struct sums *s)
{
  const void *in[RANKS_MAX];
  s->bytes = s->count * manta_dtype_bytes(s->type);
  size_t all = s->bytes * (size_t)t->n, values = s->count * (size_t)t->n;
  bool negative = s->op != MANTA_PROD && s->op != MANTA_MEAN && s->type != MANTA_U8 &&
                  s->type != MANTA_U32 && s->type != MANTA_U64;
  for (int r = 0; r < t->n; r++) {
    in[r] = s->in[r] = calloc(1, all + 1);
    for (size_t i = 0; i < values; i++)
      encode(s->in[r], i, s->type, (int)(1 + (i * 7 + (size_t)r * 3) % 4) - 2 * negative);
  }
  s->out = calloc(1, all + 1);
  s->expected = calloc(1, all + 1);
  manta__reduce_ref(s->expected, in, t->n, values, s->type, s->op);
}

static void sums_end(struct rank *t, struct sums *s)
{
  for (int r = 0; r < t->n; r++)
    free(s->in[r]);
  free(s->out);
  free(s->expected);
}

static int try_sums(struct rank *t, struct manta__device *d, struct sums *s)
{
  size_t all = s->bytes * (size_t)t->n;
  void *send = on_device(t, s->in[t->rank], all), *recv = on_device(t, s->out, all);
  EXPECT_OK(done(t, d,
                 CALL(ALLREDUCE, .send = send, .recv = recv, .count = s->count, .type = s->type,
                      .op = s->op)));
  fetch(t, s->out, recv, s->bytes);
  EXPECT(same(s->out, s->expected, s->count, s->type));
  for (int root = 0; root < t->n; root++) {
    memset(s->out, 0, all);
    EXPECT_OK(done(t, d,
                   CALL(REDUCE, .send = send, .recv = t->rank == root ? recv : NULL,
                        .count = s->count, .type = s->type, .op = s->op, .root = root)));
    fetch(t, s->out, recv, s->bytes);
    EXPECT(t->rank != root || same(s->out, s->expected, s->count, s->type));
  }
  EXPECT_OK(done(t, d,
                 CALL(REDUCE_SCATTER, .send = send, .recv = recv, .count = s->count,
                      .type = s->type, .op = s->op)));
  fetch(t, s->out, recv, s->bytes);
  EXPECT(same(s->out, s->expected + (size_t)t->rank * s->bytes, s->count, s->type));
  EXPECT_OK(done(t, d,
                 CALL(ALLREDUCE, .send = send, .recv = send, .count = s->count, .type = s->type,
                      .op = s->op)));
  fetch(t, s->out, send, s->bytes);
  EXPECT(same(s->out, s->expected, s->count, s->type));
  off_device(t, send);
  off_device(t, recv);
  return 0;
}

static int case_sums_of(struct rank *t, struct manta__device *d, size_t count)
{
  for (size_t k = 0; k < sizeof arithmetic_types / sizeof *arithmetic_types; k++)
    for (int op = MANTA_SUM; op <= MANTA_MAX; op++) {
      struct sums s = {.type = arithmetic_types[k], .op = (manta_op)op, .count = count};
      sums_begin(t, &s);
      int line = try_sums(t, d, &s);
      if (line)
        fprintf(stderr, "%s, operation %d, count %zu\n", manta_dtype_name(s.type), op, count);
      sums_end(t, &s);
      if (line)
        return line;
    }
  return 0;
}

static int case_sums(struct rank *t)
{
  struct manta__device *d;
  EXPECT_OK(make(t, &d));
  int line = case_sums_of(t, d, 1);
  if (!line)
    line = case_sums_of(t, d, 1000);
  t->ops->destroy(d);
  return line;
}

/* --- everything that only moves --- */

static uint8_t byte_of(int from, int to, size_t i)
{
  return (uint8_t)((size_t)from * 101 + (size_t)to * 37 + i * 7 + 1);
}

/* One block of what rank `from` has for rank `to`. */
static void fill(uint8_t *at, int from, int to, size_t bytes)
{
  for (size_t i = 0; i < bytes; i++)
    at[i] = byte_of(from, to, i);
}

static bool filled(const uint8_t *at, int from, int to, size_t bytes)
{
  for (size_t i = 0; i < bytes; i++)
    if (at[i] != byte_of(from, to, i))
      return false;
  return true;
}

struct moves {
  manta_dtype type;
  size_t count, bytes;      /* of one block; n of them */
  uint8_t *host;            /* n blocks */
  void *send, *recv, *zero; /* device: block r is for rank r; nothing; zeros */
};

static int try_rooted(struct rank *t, struct manta__device *d, struct moves *m, int root)
{
  size_t all = m->bytes * (size_t)t->n;
  bool is_root = t->rank == root;
  EXPECT_OK(done(t, d,
                 CALL(GATHER, .send = m->send, .recv = is_root ? m->recv : NULL, .count = m->count,
                      .type = m->type, .root = root)));
  fetch(t, m->host, m->recv, all);
  for (int r = 0; r < t->n && is_root; r++)
    EXPECT(filled(m->host + (size_t)r * m->bytes, r, 0, m->bytes));
  EXPECT_OK(done(t, d,
                 CALL(SCATTER, .send = is_root ? m->send : NULL, .recv = m->recv, .count = m->count,
                      .type = m->type, .root = root)));
  fetch(t, m->host, m->recv, m->bytes);
  EXPECT(filled(m->host, root, t->rank, m->bytes));
  /* m->recv of the root now has its own block for itself. */
  EXPECT_OK(done(
      t, d, CALL(BROADCAST, .recv = m->recv, .count = m->count, .type = m->type, .root = root)));
  fetch(t, m->host, m->recv, m->bytes);
  EXPECT(filled(m->host, root, root, m->bytes));
  return 0;
}

static int try_all(struct rank *t, struct manta__device *d, struct moves *m)
{
  size_t all = m->bytes * (size_t)t->n, counts[RANKS_MAX];
  EXPECT_OK(done(
      t, d, CALL(ALLGATHER, .send = m->send, .recv = m->recv, .count = m->count, .type = m->type)));
  fetch(t, m->host, m->recv, all);
  for (int r = 0; r < t->n; r++)
    EXPECT(filled(m->host + (size_t)r * m->bytes, r, 0, m->bytes));
  EXPECT_OK(done(
      t, d, CALL(ALLTOALL, .send = m->send, .recv = m->recv, .count = m->count, .type = m->type)));
  fetch(t, m->host, m->recv, all);
  for (int r = 0; r < t->n; r++)
    EXPECT(filled(m->host + (size_t)r * m->bytes, r, t->rank, m->bytes));
  for (int r = 0; r < t->n; r++) // ragged: the first has nothing
    counts[r] = m->count * (size_t)r / (size_t)t->n;
  EXPECT_OK(done(
      t, d, CALL(ALLGATHERV, .send = m->send, .recv = m->recv, .counts = counts, .type = m->type)));
  fetch(t, m->host, m->recv, all);
  uint8_t *at = m->host;
  for (int r = 0; r < t->n; at += counts[r++] * manta_dtype_bytes(m->type))
    EXPECT(filled(at, r, 0, counts[r] * manta_dtype_bytes(m->type)));
  return 0;
}

/* Round the ring: even ranks send first. */
static int try_pairs(struct rank *t, struct manta__device *d, struct moves *m)
{
  int next = (t->rank + 1) % t->n, before = (t->rank + t->n - 1) % t->n;
  if (t->n < 2)
    return 0;
  struct manta__task send =
      CALL(SEND, .send = m->send, .count = m->count, .type = m->type, .root = next);
  struct manta__task recv =
      CALL(RECV, .recv = m->recv, .count = m->count, .type = m->type, .root = before);
  bool last_of_odd = t->n % 2 && t->rank == t->n - 1;
  bool sends_first = t->rank % 2 == 0 && !last_of_odd;
  EXPECT_OK(done(t, d, sends_first ? send : recv));
  EXPECT_OK(done(t, d, sends_first ? recv : send));
  fetch(t, m->host, m->recv, m->bytes);
  EXPECT(filled(m->host, before, 0, m->bytes));
  return 0;
}

static int try_moves(struct rank *t, struct manta__device *d, manta_dtype type, size_t count)
{
  struct moves m = {.type = type, .count = count, .bytes = count * manta_dtype_bytes(type)};
  size_t all = m.bytes * (size_t)t->n;
  m.host = calloc(1, all + 1);
  for (int r = 0; r < t->n; r++)
    fill(m.host + (size_t)r * m.bytes, t->rank, r, m.bytes);
  m.send = on_device(t, m.host, all);
  m.recv = on_device(t, NULL, all);
  int line = try_all(t, d, &m);
  for (int root = 0; root < t->n && !line; root++)
    line = try_rooted(t, d, &m, root);
  if (!line)
    line = try_pairs(t, d, &m);
  off_device(t, m.send);
  off_device(t, m.recv);
  free(m.host);
  return line;
}

static int case_moves(struct rank *t)
{
  static const size_t counts[] = {0, 1, 37, 1000};
  struct manta__device *d;
  int line = 0;
  EXPECT_OK(make(t, &d));
  for (int type = 0; type < MANTA_DTYPE_COUNT && !line; type++)
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !line; i++)
      line = try_moves(t, d, (manta_dtype)type, counts[i]);
  if (!line)
    EXPECT_OK(done(t, d, CALL(BARRIER, .count = 0)));
  t->ops->destroy(d);
  return line;
}

/* Gather and scatter where the root's block is already in its place. */
static int case_in_place(struct rank *t)
{
  struct manta__device *d;
  uint8_t host[RANKS_MAX * 8];
  const int root = t->n - 1;
  EXPECT_OK(make(t, &d));
  for (int r = 0; r < t->n; r++)
    fill(host + r * 8, t->rank, r, 8);
  uint8_t *buf = on_device(t, host, sizeof host), *own = buf + root * 8;
  EXPECT_OK(done(
      t, d, CALL(SCATTER, .send = buf, .recv = own, .count = 8, .type = MANTA_U8, .root = root)));
  fetch(t, host, own, 8);
  EXPECT(filled(host, root, t->rank, 8));
  EXPECT_OK(done(
      t, d, CALL(GATHER, .send = own, .recv = buf, .count = 8, .type = MANTA_U8, .root = root)));
  fetch(t, host, buf, sizeof host);
  for (int r = 0; r < t->n && t->rank == root; r++)
    EXPECT(filled(host + r * 8, root, r, 8));
  off_device(t, buf);
  t->ops->destroy(d);
  return 0;
}

/* --- started operations, and communicators that come and go --- */

static int case_flight(struct rank *t)
{
  enum { N = MANTA__DEVICE_FLIGHT * 2 + 5 };
  struct manta__device *d;
  uint32_t host[N];
  uint64_t ticket[N];
  EXPECT_OK(make(t, &d));
  for (int i = 0; i < N; i++)
    host[i] = (uint32_t)(i + t->rank);
  uint32_t *at = on_device(t, host, sizeof host);
  for (int i = 0; i < N; i++) {
    struct manta__task call = CALL(ALLREDUCE, .send = at + i, .recv = at + i, .count = 1,
                                   .type = MANTA_U32, .op = MANTA_SUM);
    EXPECT_OK(t->ops->start(d, &call, soon(), &ticket[i], &t->err));
    EXPECT(ticket[i] == (uint64_t)i + 1);
  }
  EXPECT_OK(t->ops->wait(d, ticket[N - 1], soon(), &t->err));
  EXPECT(t->ops->test(d, ticket[0]) && t->ops->test(d, ticket[N - 1]));
  EXPECT_OK(t->ops->wait(d, ticket[3], soon(), &t->err));
  EXPECT(t->ops->wait(d, N + 1, soon(), &t->err) == MANTA_EINVAL);
  EXPECT(t->ops->wait(d, 0, soon(), &t->err) == MANTA_EINVAL);
  fetch(t, host, at, sizeof host);
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == (uint32_t)(i * t->n + t->n * (t->n - 1) / 2));
  off_device(t, at);
  t->ops->destroy(d);
  return 0;
}

/* Sums one number of all ranks of d; whether it is right. */
static bool sums_one(struct rank *t, struct manta__device *d)
{
  float x = (float)(t->rank + 1);
  float *at = on_device(t, &x, sizeof x);
  bool ok = done(t, d,
                 CALL(ALLREDUCE, .send = at, .recv = at, .count = 1, .type = MANTA_F32,
                      .op = MANTA_SUM)) == MANTA_OK;
  fetch(t, &x, at, sizeof x);
  off_device(t, at);
  return ok && x == (float)(t->n * (t->n + 1) / 2);
}

static int case_again(struct rank *t)
{
  struct manta__device *d, *other;
  for (int i = 0; i < 3; i++) {
    EXPECT_OK(make(t, &d));
    EXPECT(sums_one(t, d));
    t->ops->destroy(d);
  }
  EXPECT_OK(make(t, &d)); // two at a time
  EXPECT_OK(make(t, &other));
  EXPECT(sums_one(t, other) && sums_one(t, d) && sums_one(t, other));
  t->ops->destroy(d);
  EXPECT(sums_one(t, other));
  t->ops->destroy(other);
  t->ops->destroy(NULL);
  return 0;
}

/* What is left to the last rank after the others are gone: itself, with the same process. */
static int expect_usable_alone(struct rank *t)
{
  struct manta__device *d;
  atomic_store(&t->board->note[t->rank], 2);
  while (atomic_load(&t->board->abort)) // until the test has seen all
    usleep(1000);
  t->host.rank = t->rank = 0;
  t->host.size = t->n = 1;
  EXPECT_OK(make(t, &d));
  EXPECT(sums_one(t, d));
  t->ops->destroy(d);
  return 0;
}

/* The last rank kills itself while the others are in an all-reduce with it. */
static int case_killed(struct rank *t)
{
  struct manta__device *d;
  uint64_t ticket = 0;
  EXPECT_OK(make(t, &d));
  EXPECT(sums_one(t, d));
  if (t->rank == t->n - 1) {
    for (int r = 0; r < t->n - 1; r++)
      while (!atomic_load(&t->board->note[r]))
        usleep(1000);
    raise(SIGKILL);
  }
  float *at = on_device(t, NULL, 4096 * sizeof *at);
  struct manta__task call =
      CALL(ALLREDUCE, .send = at, .recv = at, .count = 4096, .type = MANTA_F32);
  atomic_store(&t->board->note[t->rank], 1);
  // NCCL may have to connect first, which waits for the last rank as well.
  manta_status st = t->ops->start(d, &call, soon(), &ticket, &t->err);
  if (st == MANTA_OK) {
    st = t->ops->wait(d, ticket, soon(), &t->err);
    EXPECT(t->ops->test(d, ticket));
    EXPECT(t->ops->wait(d, ticket, soon(), NULL) == MANTA_EPEERLOST);
  }
  EXPECT(st == MANTA_EPEERLOST && strstr(t->err.message, "was lost"));
  EXPECT(t->ops->start(d, &call, soon(), &ticket, &t->err) == MANTA_EPEERLOST);
  off_device(t, at);
  t->ops->destroy(d);
  return expect_usable_alone(t);
}

/* As the agent does it: who died is told to the others. */
static void kill_one_of(int n)
{
  struct ranks t;
  ranks_start(&t, n, case_killed);
  int status = end_of(t.pid[n - 1]);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  t.pid[n - 1] = 0;
  int64_t at = manta__now();
  atomic_store(&t.board->abort, (uint32_t)n);
  for (int r = 0; r < n - 1; r++)
    while (atomic_load(&t.board->note[r]) != 2 && manta__now() < at + HANG_S * 1000000000LL)
      usleep(200);
  print_message("# %d survivors knew after %.1f ms\n", n - 1, (double)(manta__now() - at) / 1e6);
  atomic_store(&t.board->abort, 0);
  assert_int_equal(ranks_end(&t), 0);
}

#endif
