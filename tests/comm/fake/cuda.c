/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/fake/cuda.c - CUDA's driver, as far as manta uses it (see fake.h).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/fake/fake.h"

#define SHOW            __attribute__((visibility("default")))
#define INVALID_VALUE   1
#define OUT_OF_MEMORY   2
#define INVALID_CONTEXT 201
#define DEPTH           8

SHOW struct fake_cuda fake_cuda = {.fail_objects = -1};

struct cu_context {
  int retained;
};

struct cu_event {
  unsigned long asked, done;
};

struct work { /* an operation; or an event to record, or to wait for */
  struct work *next;
  bool (*step)(void *);
  void (*drop)(void *);
  void *arg;
  const void *owner;
  struct cu_event *record, *await;
  unsigned long turn;
};

struct cu_stream {
  struct cu_stream *next;
  struct work *head;
};

struct block {
  struct block *next;
  void *at;
  size_t bytes;
};

static struct cu_context primary;
static struct cu_stream legacy; // the default stream: the first of the list
static struct block *blocks;
static _Thread_local struct cu_context *stack[DEPTH];
static _Thread_local int depth;

// --- declarations that a header of CUDA's would have --------------------------------------------

#define CUDA_DECLARE(field, symbol, arguments) SHOW int symbol arguments;
CUDA_MAP(CUDA_DECLARE)
SHOW int cuPointerGetAttribute(void *out, int attribute, uint64_t p);
SHOW int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
SHOW int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
SHOW void fake_enqueue(struct cu_stream *stream, bool (*step)(void *), void (*drop)(void *),
                       void *arg, const void *owner);
SHOW void fake_cancel(const void *owner);
SHOW bool fake_busy(const void *owner);
SHOW bool fake_context_is_current(void);
SHOW void fake_fill_later(struct cu_stream *stream, void *at, int byte, size_t bytes, int looks);

// --- streams ------------------------------------------------------------------------------------

static struct cu_stream *stream_of(struct cu_stream *s)
{
  return s ? s : &legacy;
}

static void append(struct cu_stream *s, struct work w)
{
  struct work **at = &stream_of(s)->head;
  while (*at)
    at = &(*at)->next;
  *at = malloc(sizeof w);
  **at = w;
}

static bool ready(struct work *w)
{
  if (w->await)
    return w->await->done >= w->turn;
  if (w->record)
    w->record->done = w->turn;
  return w->record || w->step(w->arg);
}

// One round over all streams.
static void look(void)
{
  for (struct cu_stream *s = &legacy; s; s = s->next)
    while (s->head && ready(s->head)) {
      struct work *over = s->head;
      s->head = over->next;
      free(over);
    }
}

void fake_enqueue(struct cu_stream *stream, bool (*step)(void *), void (*drop)(void *), void *arg,
                  const void *owner)
{
  append(stream, (struct work){.step = step, .drop = drop, .arg = arg, .owner = owner});
}

void fake_cancel(const void *owner)
{
  for (struct cu_stream *s = &legacy; s; s = s->next)
    for (struct work **at = &s->head; *at;) {
      struct work *w = *at;
      if (!w->step || w->owner != owner) {
        at = &w->next;
        continue;
      }
      *at = w->next;
      w->drop(w->arg);
      free(w);
    }
}

bool fake_busy(const void *owner)
{
  look();
  for (struct cu_stream *s = &legacy; s; s = s->next)
    for (struct work *w = s->head; w; w = w->next)
      if (w->step && w->owner == owner)
        return true;
  return false;
}

struct fill {
  void *at;
  int byte, looks;
  size_t bytes;
};

static bool fill_step(void *arg)
{
  struct fill *f = arg;
  if (f->looks-- > 0)
    return false;
  memset(f->at, f->byte, f->bytes);
  free(f);
  return true;
}

void fake_fill_later(struct cu_stream *stream, void *at, int byte, size_t bytes, int looks)
{
  struct fill *f = malloc(sizeof *f);
  *f = (struct fill){at, byte, looks, bytes};
  fake_enqueue(stream, fill_step, free, f, NULL);
}

// --- contexts -----------------------------------------------------------------------------------

bool fake_context_is_current(void)
{
  return depth > 0;
}

static bool misused(void)
{
  fake_cuda.misuses += depth == 0;
  return depth == 0;
}

int cuInit(unsigned flags)
{
  usleep(20000); // the real one takes longer; manta looks for it once per tick of a coarse clock
  return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
  *device = ordinal + 100; // a handle is no ordinal
  return ordinal == 0 ? 0 : 101;
}

int cuGetErrorName(int error, const char **name)
{
  *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_TEST";
  return 0;
}

int cuDevicePrimaryCtxRetain(struct cu_context **ctx, int device)
{
  fake_cuda.misuses += device != 100;
  fake_cuda.contexts += primary.retained++ == 0;
  *ctx = &primary;
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
  fake_cuda.misuses += device != 100 || primary.retained == 0;
  fake_cuda.contexts -= --primary.retained == 0;
  return 0;
}

int cuCtxPushCurrent_v2(struct cu_context *ctx)
{
  if (depth == DEPTH || ctx != &primary)
    return INVALID_CONTEXT;
  stack[depth++] = ctx;
  return 0;
}

int cuCtxPopCurrent_v2(struct cu_context **ctx)
{
  if (misused())
    return INVALID_CONTEXT;
  *ctx = stack[--depth];
  return 0;
}

// --- memory -------------------------------------------------------------------------------------

int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
  if (misused())
    return INVALID_CONTEXT;
  struct block *b = malloc(sizeof *b);
  *b = (struct block){blocks, malloc(bytes), bytes};
  blocks = b;
  fake_cuda.blocks++;
  *out = (uintptr_t)b->at;
  return 0;
}

int cuMemFree_v2(uint64_t at)
{
  if (misused())
    return INVALID_CONTEXT;
  for (struct block **b = &blocks; *b; b = &(*b)->next)
    if ((uintptr_t)(*b)->at == at) {
      struct block *over = *b;
      *b = over->next;
      free(over->at);
      free(over);
      fake_cuda.blocks--;
      return 0;
    }
  return INVALID_VALUE;
}

int cuPointerGetAttribute(void *out, int attribute, uint64_t p)
{
  for (struct block *b = blocks; b; b = b->next)
    if (p >= (uintptr_t)b->at && p - (uintptr_t)b->at < b->bytes) {
      *(int *)out = attribute == CU_POINTER_MEMORY_TYPE ? CU_MEMORY_DEVICE : 0;
      return 0;
    }
  return INVALID_VALUE;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
  memcpy((void *)(uintptr_t)to, from, bytes);
  return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return 0;
}

// --- streams and events -------------------------------------------------------------------------

static bool no_more_objects(void)
{
  if (fake_cuda.fail_objects < 0)
    return false;
  return fake_cuda.fail_objects-- == 0;
}

int cuStreamCreate(struct cu_stream **out, unsigned flags)
{
  if (misused() || no_more_objects())
    return OUT_OF_MEMORY;
  struct cu_stream *s = calloc(1, sizeof *s);
  s->next = legacy.next;
  legacy.next = s;
  fake_cuda.streams++;
  *out = s;
  return 0;
}

// What is still on it is done some day; here: never.
int cuStreamDestroy_v2(struct cu_stream *stream)
{
  if (misused())
    return INVALID_CONTEXT;
  for (struct cu_stream *s = &legacy; s; s = s->next)
    if (s->next == stream)
      s->next = stream->next;
  while (stream->head) {
    struct work *w = stream->head;
    stream->head = w->next;
    if (w->step)
      w->drop(w->arg);
    free(w);
  }
  free(stream);
  fake_cuda.streams--;
  return 0;
}

int cuStreamWaitEvent(struct cu_stream *stream, struct cu_event *event, unsigned flags)
{
  if (misused())
    return INVALID_CONTEXT;
  append(stream, (struct work){.await = event, .turn = event->asked});
  return 0;
}

int cuEventCreate(struct cu_event **out, unsigned flags)
{
  if (misused() || no_more_objects())
    return OUT_OF_MEMORY;
  *out = calloc(1, sizeof **out);
  fake_cuda.events++;
  return 0;
}

int cuEventDestroy_v2(struct cu_event *event)
{
  for (struct cu_stream *s = &legacy; s; s = s->next)
    for (struct work **at = &s->head; *at;) {
      struct work *w = *at;
      if (w->record != event && w->await != event) {
        at = &w->next;
        continue;
      }
      *at = w->next;
      free(w);
    }
  free(event);
  fake_cuda.events--;
  return 0;
}

int cuEventRecord(struct cu_event *event, struct cu_stream *stream)
{
  if (misused())
    return INVALID_CONTEXT;
  append(stream, (struct work){.record = event, .turn = ++event->asked});
  return 0;
}

int cuEventQuery(struct cu_event *event)
{
  if (misused())
    return INVALID_CONTEXT;
  look();
  if (fake_cuda.query_result)
    return fake_cuda.query_result;
  return event->done >= event->asked ? CU_SUCCESS : CU_NOT_READY;
}
