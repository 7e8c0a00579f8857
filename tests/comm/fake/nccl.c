/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/fake/nccl.c - NCCL, as far as manta uses it (see fake.h).
 *
 * Every collective is messages between pairs of ranks: a mailbox each, of one message. Sums are
 * those of comm/reduce/reduce.h.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/fake/fake.h"
#include "comm/reduce/reduce.h"

#define SHOW     __attribute__((visibility("default")))
#define MAX_JOBS 64

SHOW struct fake_nccl fake_nccl;

struct mail {
  _Atomic uint32_t full;
  uint32_t bytes;
  uint8_t data[FAKE_MESSAGE];
};

struct segment {
  _Atomic uint32_t joined, gone;
  struct mail mail[FAKE_RANKS][FAKE_RANKS]; // [from][to]
};

struct place { // what a unique id holds
  int pid, fd;
};

struct job { // one call: messages out, messages in, and what becomes of them
  const uint8_t *send;
  uint8_t *recv;
  size_t bytes, count;     // of one message
  bool spread;             // block r of send goes to rank r, not the same to all
  unsigned to, from;       // ranks that are still to be sent to, and heard of
  unsigned all;            // who was to be heard of
  int type, op;            // op < 0: nothing is computed
  uint8_t *in[FAKE_RANKS]; // what came
};

struct batch { // a group of calls
  struct nccl_comm *comm;
  struct cu_stream *stream;
  int jobs;
  struct job job[MAX_JOBS];
};

struct nccl_comm {
  struct segment *seg;
  int rank, size;
  int polls; // left until it is no longer busy
  bool joining, finalizing;
  struct batch *next; // goes onto its stream when it is no longer busy
};

static struct batch *group; // between group_start and group_end
static int group_depth;

#define NCCL_DECLARE(field, symbol, since, arguments) SHOW int symbol arguments;
NCCL_MAP(NCCL_DECLARE)
SHOW const char *ncclGetErrorString(int result);
SHOW const char *ncclGetLastError(struct nccl_comm *comm);

// --- work on a stream ---------------------------------------------------------------------------

static const manta_dtype dtype[] = {MANTA_I8,  MANTA_U8,  MANTA_I32, MANTA_U32, MANTA_I64,
                                    MANTA_U64, MANTA_F16, MANTA_F32, MANTA_F64, MANTA_BF16};
static const manta_op reduction[] = {MANTA_SUM, MANTA_PROD, MANTA_MAX, MANTA_MIN, MANTA_MEAN};

static void post(struct nccl_comm *c, struct job *j, bool *blocked)
{
  for (int r = 0; r < c->size; r++) {
    struct mail *m = &c->seg->mail[c->rank][r];
    if (!(j->to >> r & 1) || blocked[r])
      continue;
    blocked[r] = atomic_load(&m->full);
    if (blocked[r])
      continue;
    memcpy(m->data, j->send + (j->spread ? (size_t)r * j->bytes : 0), j->bytes);
    m->bytes = (uint32_t)j->bytes;
    atomic_store(&m->full, 1);
    j->to &= ~(1u << r);
  }
}

static void take(struct nccl_comm *c, struct job *j, bool *blocked)
{
  for (int r = 0; r < c->size; r++) {
    struct mail *m = &c->seg->mail[r][c->rank];
    if (!(j->from >> r & 1) || blocked[r])
      continue;
    blocked[r] = !atomic_load(&m->full);
    if (blocked[r])
      continue;
    fake_nccl.misuses += m->bytes != j->bytes;
    memcpy(j->in[r], m->data, m->bytes < j->bytes ? m->bytes : j->bytes);
    atomic_store(&m->full, 0);
    j->from &= ~(1u << r);
  }
}

// Where several were heard of: their sum, or side by side. The buffers were read before.
static void close_job(struct nccl_comm *c, struct job *j)
{
  const void *in[FAKE_RANKS];
  int n = 0;
  uint8_t *at = j->recv;
  for (int r = 0; r < c->size; r++)
    if (j->all >> r & 1)
      in[n++] = j->in[r];
  if (n > 0 && j->op >= 0)
    manta__reduce_ref(j->recv, in, n, j->count, dtype[j->type], reduction[j->op]);
  for (int i = 0; i < n && j->op < 0; i++, at += j->bytes)
    memcpy(at, in[i], j->bytes);
}

static void free_batch(void *arg)
{
  struct batch *b = arg;
  for (int i = 0; i < b->jobs; i++)
    for (int r = 0; r < FAKE_RANKS; r++)
      free(b->job[i].in[r]);
  free(b);
}

static bool step(void *arg)
{
  struct batch *b = arg;
  struct nccl_comm *c = b->comm;
  bool out[FAKE_RANKS] = {0}, in[FAKE_RANKS] = {0}, over = true;
  for (int i = 0; i < b->jobs; i++) {
    // An earlier message to a rank must be gone before a later one may go.
    post(c, &b->job[i], out);
    take(c, &b->job[i], in);
    over = over && !b->job[i].to && !b->job[i].from;
  }
  if (!over)
    return false;
  for (int i = 0; i < b->jobs; i++)
    close_job(c, &b->job[i]);
  free_batch(b);
  return true;
}

// --- busy or not --------------------------------------------------------------------------------

static bool busy(const struct nccl_comm *c)
{
  return c->joining || c->finalizing || c->polls > 0;
}

static int misuse(void)
{
  fake_nccl.misuses++;
  return NCCL_INVALID_USAGE;
}

static void go(struct nccl_comm *c)
{
  if (c->next)
    fake_enqueue(c->next->stream, step, free_batch, c->next, c);
  c->next = NULL;
}

static int submit(struct batch *b)
{
  struct nccl_comm *c = b->comm;
  c->next = b;
  c->polls = fake_nccl.polls;
  if (c->polls > 0)
    return NCCL_IN_PROGRESS;
  go(c);
  return NCCL_SUCCESS;
}

static int add(struct nccl_comm *c, struct cu_stream *stream, struct job j)
{
  if (busy(c) || !fake_context_is_current() || !stream || j.bytes > FAKE_MESSAGE)
    return misuse();
  struct batch *b = group ? group : calloc(1, sizeof *b);
  if (b->jobs == MAX_JOBS || (b->comm && b->comm != c))
    return misuse();
  b->comm = c;
  b->stream = stream;
  j.all = j.from;
  for (int r = 0; r < c->size; r++)
    j.in[r] = j.from >> r & 1 ? malloc(j.bytes + 1) : NULL;
  b->job[b->jobs++] = j;
  if (group_depth > 0) {
    group = b;
    return NCCL_SUCCESS;
  }
  return submit(b);
}

int ncclGroupStart(void)
{
  group_depth++;
  return NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
  struct batch *b = group;
  if (--group_depth > 0 || !b)
    return NCCL_SUCCESS;
  group = NULL;
  return submit(b);
}

int ncclCommGetAsyncError(struct nccl_comm *c, int *result)
{
  if (c->joining && atomic_load(&c->seg->joined) >= (uint32_t)c->size)
    c->joining = false;
  if (c->finalizing && !fake_busy(c))
    c->finalizing = false;
  if (c->polls > 0 && --c->polls == 0)
    go(c);
  *result = busy(c) ? NCCL_IN_PROGRESS : NCCL_SUCCESS;
  if (fake_nccl.async_result)
    *result = fake_nccl.async_result;
  if (fake_nccl.notices && atomic_load(&c->seg->gone))
    *result = NCCL_REMOTE_ERROR;
  return NCCL_SUCCESS;
}

// --- life ---------------------------------------------------------------------------------------

int ncclGetVersion(int *code)
{
  *code = fake_nccl.code ? fake_nccl.code : NCCL_CODE(2, 28, 9);
  return NCCL_SUCCESS;
}

const char *ncclGetErrorString(int result)
{
  return result == NCCL_REMOTE_ERROR ? "the other end is gone" : "an error of the test";
}

const char *ncclGetLastError(struct nccl_comm *comm)
{
  return "";
}

int ncclGetUniqueId(struct nccl_id *id)
{
  if (fake_nccl.id_result)
    return fake_nccl.id_result;
  struct place place = {getpid(), memfd_create("fake-nccl", MFD_CLOEXEC)};
  if (place.fd < 0 || ftruncate(place.fd, sizeof(struct segment)) != 0)
    return NCCL_SYSTEM_ERROR;
  memcpy(id->bytes, &place, sizeof place);
  return NCCL_SUCCESS;
}

int ncclCommInitRankConfig(struct nccl_comm **out, int size, struct nccl_id id, int rank,
                           struct nccl_config *config)
{
  struct place place;
  char path[64];
  fake_nccl.inits++;
  if (fake_nccl.init_result)
    return fake_nccl.init_result;
  if (config->magic != NCCL_CONFIG_MAGIC || config->size != 24 || config->blocking != 0 ||
      config->version > NCCL_CODE(2, 16, 99) || !fake_context_is_current())
    return misuse();
  memcpy(&place, id.bytes, sizeof place);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", place.pid, place.fd);
  for (int i = 0; fake_nccl.init_late && i < 5000 && access(path, F_OK) == 0; i++)
    usleep(1000);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  void *seg = fd < 0
                  ? MAP_FAILED
                  : mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0)
    close(fd);
  if (seg == MAP_FAILED)
    return NCCL_REMOTE_ERROR;
  struct nccl_comm *c = calloc(1, sizeof *c);
  *c = (struct nccl_comm){.seg = seg, .rank = rank, .size = size, .joining = true};
  atomic_fetch_add(&c->seg->joined, 1);
  *out = c;
  return NCCL_IN_PROGRESS;
}

static int release(struct nccl_comm *c)
{
  fake_cancel(c);
  if (c->next)
    free_batch(c->next);
  munmap(c->seg, sizeof *c->seg);
  free(c);
  return NCCL_SUCCESS;
}

int ncclCommFinalize(struct nccl_comm *c)
{
  fake_nccl.finalizes++;
  if (busy(c))
    return misuse();
  c->finalizing = true;
  return NCCL_IN_PROGRESS;
}

int ncclCommDestroy(struct nccl_comm *c)
{
  fake_nccl.destroys++;
  return busy(c) ? misuse() : release(c);
}

int ncclCommAbort(struct nccl_comm *c)
{
  fake_nccl.aborts++;
  while (fake_nccl.abort_hangs)
    pause();
  atomic_store(&c->seg->gone, 1);
  return release(c);
}

// --- calls --------------------------------------------------------------------------------------

static size_t bytes_of(size_t count, int type)
{
  static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return count * bytes[type];
}

static unsigned everyone(const struct nccl_comm *c)
{
  return (1u << c->size) - 1;
}

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
                  struct nccl_comm *comm, struct cu_stream *stream)
{
  return add(comm, stream,
             (struct job){.send = send,
                          .recv = recv,
                          .bytes = bytes_of(count, type),
                          .count = count,
                          .type = type,
                          .op = op,
                          .to = everyone(comm),
                          .from = everyone(comm)});
}

int ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root,
               struct nccl_comm *comm, struct cu_stream *stream)
{
  return add(comm, stream,
             (struct job){.send = send,
                          .recv = recv,
                          .bytes = bytes_of(count, type),
                          .count = count,
                          .type = type,
                          .op = op,
                          .to = 1u << root,
                          .from = comm->rank == root ? everyone(comm) : 0});
}

int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
                  struct nccl_comm *comm, struct cu_stream *stream)
{
  return add(comm, stream,
             (struct job){.send = send,
                          .recv = recv,
                          .bytes = bytes_of(count, type),
                          .op = -1,
                          .to = comm->rank == root ? everyone(comm) : 0,
                          .from = 1u << root});
}

int ncclAllGather(const void *send, void *recv, size_t count, int type, struct nccl_comm *comm,
                  struct cu_stream *stream)
{
  return add(comm, stream,
             (struct job){.send = send,
                          .recv = recv,
                          .bytes = bytes_of(count, type),
                          .op = -1,
                          .to = everyone(comm),
                          .from = everyone(comm)});
}

int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op,
                      struct nccl_comm *comm, struct cu_stream *stream)
{
  return add(comm, stream,
             (struct job){.send = send,
                          .recv = recv,
                          .bytes = bytes_of(count, type),
                          .count = count,
                          .spread = true,
                          .type = type,
                          .op = op,
                          .to = everyone(comm),
                          .from = everyone(comm)});
}

int ncclSend(const void *buf, size_t count, int type, int to, struct nccl_comm *comm,
             struct cu_stream *stream)
{
  return add(comm, stream,
             (struct job){.send = buf, .bytes = bytes_of(count, type), .op = -1, .to = 1u << to});
}

int ncclRecv(void *buf, size_t count, int type, int from, struct nccl_comm *comm,
             struct cu_stream *stream)
{
  return add(
      comm, stream,
      (struct job){.recv = buf, .bytes = bytes_of(count, type), .op = -1, .from = 1u << from});
}
