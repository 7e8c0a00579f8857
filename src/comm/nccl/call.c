/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl/call.c - each collective in NCCL's words.
 *
 * What only moves data is moved as bytes, so any type will do. What NCCL has no call for is a group
 * of sends and receives, or of broadcasts, which NCCL does at the same time.
 */
#include "comm/nccl/nccl.h"

#define DTYPE_BYTES(name, bytes, text) bytes,
#define DTYPE_TEXT(name, bytes, text)  text,
static const uint8_t type_bytes[] = {MANTA_DTYPE_MAP(DTYPE_BYTES)};
static const char *const type_text[] = {MANTA_DTYPE_MAP(DTYPE_TEXT)};

// The type that sums and the like are computed in, plus one; 0: none.
#define AS(type) ((type) + 1)
static const int8_t arithmetic[MANTA_DTYPE_COUNT] = {
    [MANTA_BOOL8] = AS(NCCL_U8), [MANTA_U8] = AS(NCCL_U8),   [MANTA_I8] = AS(NCCL_I8),
    [MANTA_U32] = AS(NCCL_U32),  [MANTA_I32] = AS(NCCL_I32), [MANTA_U64] = AS(NCCL_U64),
    [MANTA_I64] = AS(NCCL_I64),  [MANTA_F16] = AS(NCCL_F16), [MANTA_BF16] = AS(NCCL_BF16),
    [MANTA_F32] = AS(NCCL_F32),  [MANTA_F64] = AS(NCCL_F64)};

static const int8_t operation[] = {[MANTA_SUM] = NCCL_SUM,
                                   [MANTA_MEAN] = NCCL_AVG,
                                   [MANTA_PROD] = NCCL_PROD,
                                   [MANTA_MIN] = NCCL_MIN,
                                   [MANTA_MAX] = NCCL_MAX};

// What a call is made with.
struct put {
  const struct nccl *nccl;
  struct nccl_comm *comm;
  struct cu_stream *stream;
  const struct manta__task *task;
  const char *send;
  char *recv;
  size_t size;  // bytes of an element
  size_t bytes; // of one block
  int type, op; // NCCL's, where something is computed
  int rank, ranks;
  uint64_t word;
};

typedef int (*put_fn)(const struct put *p);

// --- one call of NCCL's -------------------------------------------------------------------------

static int put_barrier(const struct put *p)
{
  void *word = (void *)(uintptr_t)p->word;
  return p->nccl->all_reduce(word, word, 1, NCCL_U8, NCCL_MAX, p->comm, p->stream);
}

static int put_allreduce(const struct put *p)
{
  return p->nccl->all_reduce(p->send, p->recv, p->task->count, p->type, p->op, p->comm, p->stream);
}

static int put_reduce(const struct put *p)
{
  return p->nccl->reduce(p->send, p->recv, p->task->count, p->type, p->op, p->task->root, p->comm,
                         p->stream);
}

static int put_broadcast(const struct put *p)
{
  return p->nccl->broadcast(p->recv, p->recv, p->bytes, NCCL_U8, p->task->root, p->comm, p->stream);
}

static int put_allgather(const struct put *p)
{
  return p->nccl->all_gather(p->send, p->recv, p->bytes, NCCL_U8, p->comm, p->stream);
}

static int put_reduce_scatter(const struct put *p)
{
  return p->nccl->reduce_scatter(p->send, p->recv, p->task->count, p->type, p->op, p->comm,
                                 p->stream);
}

static int put_send(const struct put *p)
{
  return p->nccl->send(p->send, p->bytes, NCCL_U8, p->task->root, p->comm, p->stream);
}

static int put_recv(const struct put *p)
{
  return p->nccl->recv(p->recv, p->bytes, NCCL_U8, p->task->root, p->comm, p->stream);
}

// --- groups -------------------------------------------------------------------------------------

static int send_block(const struct put *p, int block, int to)
{
  return p->nccl->send(p->send + (size_t)block * p->bytes, p->bytes, NCCL_U8, to, p->comm,
                       p->stream);
}

static int recv_block(const struct put *p, int block, int from)
{
  return p->nccl->recv(p->recv + (size_t)block * p->bytes, p->bytes, NCCL_U8, from, p->comm,
                       p->stream);
}

static bool well(int rc)
{
  return rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS;
}

static int put_allgatherv(const struct put *p)
{
  int rc = NCCL_SUCCESS;
  char *at = p->recv;
  for (int r = 0; r < p->ranks && well(rc); r++) {
    size_t bytes = p->task->counts[r] * p->size;
    if (bytes > 0)
      rc = p->nccl->broadcast(r == p->rank ? p->send : at, at, bytes, NCCL_U8, r, p->comm,
                              p->stream);
    at += bytes;
  }
  return rc;
}

static int put_alltoall(const struct put *p)
{
  int rc = NCCL_SUCCESS;
  for (int r = 0; r < p->ranks && well(rc); r++)
    if (well(rc = send_block(p, r, r)))
      rc = recv_block(p, r, r);
  return rc;
}

// The root's own block goes the same way, unless it is in place.
static int put_gather(const struct put *p)
{
  const int root = p->task->root;
  bool in_place = p->rank == root && p->send == p->recv + (size_t)root * p->bytes;
  int rc = in_place ? NCCL_SUCCESS : send_block(p, 0, root);
  for (int r = 0; p->rank == root && r < p->ranks && well(rc); r++)
    if (r != root || !in_place)
      rc = recv_block(p, r, r);
  return rc;
}

static int put_scatter(const struct put *p)
{
  const int root = p->task->root;
  bool in_place = p->rank == root && p->recv == p->send + (size_t)root * p->bytes;
  int rc = in_place ? NCCL_SUCCESS : recv_block(p, 0, root);
  for (int r = 0; p->rank == root && r < p->ranks && well(rc); r++)
    if (r != root || !in_place)
      rc = send_block(p, r, r);
  return rc;
}

// --- the table ----------------------------------------------------------------------------------

enum { COMPUTES = 1, ROOTED = 2, GROUPED = 4 };

static const struct kind {
  const char *name;
  put_fn put;
  int is;
} kinds[] = {
    [MANTA__CALL_BARRIER] = {"barrier", put_barrier, 0},
    [MANTA__CALL_ALLREDUCE] = {"allreduce", put_allreduce, COMPUTES},
    [MANTA__CALL_REDUCE] = {"reduce", put_reduce, COMPUTES | ROOTED},
    [MANTA__CALL_BROADCAST] = {"broadcast", put_broadcast, ROOTED},
    [MANTA__CALL_ALLGATHER] = {"allgather", put_allgather, 0},
    [MANTA__CALL_ALLGATHERV] = {"allgatherv", put_allgatherv, GROUPED},
    [MANTA__CALL_REDUCE_SCATTER] = {"reduce_scatter", put_reduce_scatter, COMPUTES},
    [MANTA__CALL_ALLTOALL] = {"alltoall", put_alltoall, GROUPED},
    [MANTA__CALL_GATHER] = {"gather", put_gather, ROOTED | GROUPED},
    [MANTA__CALL_SCATTER] = {"scatter", put_scatter, ROOTED | GROUPED},
    [MANTA__CALL_SEND] = {"send", put_send, ROOTED},
    [MANTA__CALL_RECV] = {"recv", put_recv, ROOTED},
};

static const struct kind *kind_of(enum manta__call call)
{
  size_t i = (size_t)call;
  return i < sizeof kinds / sizeof *kinds && kinds[i].put ? &kinds[i] : NULL;
}

const char *manta__nccl_name(enum manta__call call)
{
  const struct kind *k = kind_of(call);
  return k ? k->name : "?";
}

// All blocks of all ranks must fit into memory, whichever of them the call has.
static bool fits(const struct manta__device *d, const struct manta__task *t)
{
  size_t left = SIZE_MAX / 2 / type_bytes[t->type];
  if (t->call != MANTA__CALL_ALLGATHERV)
    return t->count <= left / (size_t)d->host.size;
  for (int r = 0; r < d->host.size; left -= t->counts[r++])
    if (t->counts[r] > left)
      return false;
  return true;
}

static manta_status check_arithmetic(const struct manta__task *t, const char *name,
                                     manta_error *err)
{
  if (t->op == MANTA_BAND || t->op == MANTA_BOR || t->op == MANTA_BXOR)
    return manta_error_set(err, MANTA_ETYPE, "%s: NCCL has no bitwise operations on device memory",
                           name);
  if ((size_t)t->op >= sizeof operation)
    return manta_error_set(err, MANTA_EINVAL, "%s: operation %d does not exist", name, (int)t->op);
  if (!arithmetic[t->type])
    return manta_error_set(err, MANTA_ETYPE, "%s: NCCL cannot compute with %s on device memory",
                           name, type_text[t->type]);
  if (t->type == MANTA_BOOL8 && t->op != MANTA_MIN && t->op != MANTA_MAX)
    return manta_error_set(err, MANTA_ETYPE, "%s: BOOL has only min and max", name);
  return MANTA_OK;
}

manta_status manta__nccl_check(const struct manta__device *d, const struct manta__task *t,
                               manta_error *err)
{
  const struct kind *k = kind_of(t->call);
  if (!k)
    return manta_error_set(err, MANTA_EINVAL, "device operation %d does not exist", (int)t->call);
  if ((size_t)t->type >= MANTA_DTYPE_COUNT)
    return manta_error_set(err, MANTA_EINVAL, "%s: type %d does not exist", k->name, (int)t->type);
  if ((k->is & ROOTED) && (t->root < 0 || t->root >= d->host.size))
    return manta_error_set(err, MANTA_EINVAL, "%s: there is no rank %d among %d", k->name, t->root,
                           d->host.size);
  if (!fits(d, t))
    return manta_error_set(err, MANTA_EINVAL, "%s: more elements than memory can hold", k->name);
  if (t->call == MANTA__CALL_ALLTOALL && t->send == t->recv && d->host.size > 1)
    return manta_error_set(err, MANTA_EINVAL, "alltoall on device memory cannot be in place");
  return k->is & COMPUTES ? check_arithmetic(t, k->name, err) : MANTA_OK;
}

int manta__nccl_put(const struct manta__device *d, const struct manta__task *t,
                    struct cu_stream *stream)
{
  const struct kind *k = kind_of(t->call);
  struct put p = {.nccl = d->nccl,
                  .comm = d->comm,
                  .stream = stream,
                  .task = t,
                  .send = t->send,
                  .recv = t->recv,
                  .size = type_bytes[t->type],
                  .bytes = t->count * type_bytes[t->type],
                  .rank = d->host.rank,
                  .ranks = d->host.size,
                  .word = d->word};
  if (k->is & COMPUTES) {
    p.type = arithmetic[t->type] - 1;
    p.op = operation[t->op];
  }
  if (!(k->is & GROUPED))
    return k->put(&p);
  int rc = d->nccl->group_start();
  if (rc != NCCL_SUCCESS)
    return rc;
  rc = k->put(&p);
  int end = d->nccl->group_end();
  return well(rc) ? end : rc;
}
