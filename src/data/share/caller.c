/* SPDX-License-Identifier: Apache-2.0
 *
 * data/share/caller.c - the caller's side: functions that were loaded, and a call at a time.
 */
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/share/callers.h"
#include "data/share/image.h"
#include "data/share/share.h"
#include "sys/lifeline.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define FUNCTIONS 64
#define ALIGN     ((size_t)64)

struct caller_function {
  uint64_t number; /* 0: none */
  void *function;
  struct manta__schema *seen;
};

struct caller {
  int sock;
  const manta_callers *ops;
  struct caller_function function[FUNCTIONS];
  int count;
};

static size_t align(size_t n)
{
  return (n + ALIGN - 1) / ALIGN * ALIGN;
}

// --- functions ----------------------------------------------------------------------------------

static manta_status load_from(struct caller *c, struct caller_function *f, const manta_value *v,
                              manta_error *err)
{
  const manta_value *code = manta_value_get(v, "code");
  if (!code || code->type != MANTA_BYTES)
    return manta__plan_malformed(err);
  if (!c->count)
    manta__home_take(v);
  MANTA_TRY(manta__plan_get_schema(v, &f->seen, err));
  return c->ops->load(code->u.s, code->count, &f->function, err);
}

static manta_status load(struct caller *c, uint64_t number, int fd, manta_error *err)
{
  struct caller_function f = {.number = number};
  manta_value v = {0};
  void *p;
  size_t bytes;
  if (c->count == FUNCTIONS)
    return manta_error_set(err, MANTA_ENOROOM, "more than %d functions", FUNCTIONS);
  MANTA_TRY(manta__shm_map(fd, &p, &bytes, err));
  manta_status st = manta_value_unpack(&v, p, bytes, err);
  manta__shm_unmap(p, bytes);
  if (st == MANTA_OK)
    st = load_from(c, &f, &v, err);
  manta_value_fini(&v);
  if (st < 0)
    manta__schema_unref(f.seen);
  else
    c->function[c->count++] = f;
  return st;
}

static struct caller_function *find(struct caller *c, uint64_t number)
{
  for (int i = 0; i < c->count; i++)
    if (c->function[i].number == number)
      return &c->function[i];
  return NULL;
}

// --- rows ---------------------------------------------------------------------------------------

struct caller_map {
  void *p;
  size_t bytes;
};

static void unmap(void *ctx)
{
  struct caller_map *m = ctx;
  manta__shm_unmap(m->p, m->bytes);
  manta__free(m);
}

// Where they lie: what the function keeps of them keeps the memory.
static manta_status view(manta_batch **out, struct manta__schema *seen, int fd, size_t bytes,
                         manta_error *err)
{
  struct caller_map *m = manta__calloc(1, sizeof *m);
  if (!m)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for rows");
  manta_status st = manta__shm_map(fd, &m->p, &m->bytes, err);
  if (st < 0) {
    manta__free(m);
    return st;
  }
  struct manta__memory *held = manta__memory_foreign(unmap, m);
  if (!held) {
    unmap(m);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for rows");
  }
  st = bytes <= m->bytes ? manta__image_view(out, seen, m->p, bytes, held, err)
                         : manta__plan_malformed(err);
  manta__memory_unref(held);
  return st;
}

// --- answers ------------------------------------------------------------------------------------

static manta_status make_head(const manta_applied *got, const manta_value *detail, void **head,
                              size_t *bytes, manta_error *err)
{
  manta_value map = {0};
  manta_status st = manta_value_set_map(&map);
  if (st == MANTA_OK && got->batch)
    st = manta__plan_put_schema(&map, got->batch->schema);
  if (st == MANTA_OK && detail->type != MANTA_NIL)
    st = manta__plan_put_copy(&map, "detail", detail);
  if (st == MANTA_OK)
    st = manta_value_pack(&map, head, bytes, err);
  manta_value_fini(&map);
  return st;
}

static manta_status write_answer(struct manta__caller_said *m, const manta_applied *got,
                                 const void *head, int *fd, manta_error *err)
{
  void *base;
  size_t all, rows = m->count > 0 ? (size_t)m->count * sizeof(uint32_t) : 0;
  m->image = got->batch ? manta__image_bytes(got->batch) : 0;
  m->batch = got->batch != NULL;
  MANTA_TRY(manta__image_create("manta-called", align(m->head) + align(m->image) + rows, fd, &base,
                                &all, err));
  char *p = base;
  memcpy(p, head, m->head);
  if (m->batch)
    manta__image_write(p + align(m->head), got->batch);
  if (rows)
    memcpy(p + align(m->head) + align(m->image), got->rows, rows);
  manta__shm_unmap(base, all);
  return MANTA_OK;
}

// False: the reader is gone.
static bool answer(struct caller *c, manta_status st, manta_applied *got, manta_value *detail,
                   manta_error *err)
{
  struct manta__caller_said m = {.status = st, .count = got->rows ? got->count : -1};
  void *head = NULL;
  size_t bytes = 0;
  int fd = -1;
  manta_status put = make_head(got, detail, &head, &bytes, err);
  m.head = bytes;
  if (put == MANTA_OK)
    put = write_answer(&m, got, head, &fd, err);
  if (put < 0 && st >= 0)
    m.status = put;
  if (m.status < 0)
    memcpy(m.message, err->message, sizeof m.message);
  manta_free(head);
  ssize_t sent = manta__sock_send(c->sock, &m, sizeof m, &fd, fd >= 0);
  manta__fd_close(&fd);
  return sent == (ssize_t)sizeof m;
}

static manta_status serve(struct caller *c, const struct manta__caller_ask *ask, const int *fds,
                          int count, manta_applied *got, manta_value *detail, manta_error *err)
{
  manta_batch *in;
  if (count < 1)
    return manta__plan_malformed(err);
  if (count > 1)
    MANTA_TRY(load(c, ask->function, fds[1], err));
  struct caller_function *f = find(c, ask->function);
  if (!f)
    return manta__plan_malformed(err);
  MANTA_TRY(view(&in, f->seen, fds[0], (size_t)ask->bytes, err));
  manta_status st = c->ops->call(f->function, ask->seed, in, got, detail, err);
  manta_batch_destroy(in);
  return st;
}

static bool serve_one(struct caller *c)
{
  struct manta__caller_ask ask;
  manta_error err = MANTA_ERROR_INIT;
  manta_applied got = {0};
  manta_value detail = {0};
  int fds[2], count = 0;
  ssize_t n = manta__sock_recv(c->sock, &ask, sizeof ask, fds, 2, &count);
  bool goes = n == (ssize_t)sizeof ask;
  if (goes) {
    manta_status st = serve(c, &ask, fds, count, &got, &detail, &err);
    goes = answer(c, st, &got, &detail, &err);
  }
  manta__fd_close_all(fds, count);
  manta__applied_fini(&got);
  manta_value_fini(&detail);
  return goes;
}

void manta__caller_main(const int fds[MANTA__C_FDS], const manta_callers *functions)
{
  struct caller c = {.sock = fds[MANTA__C_CONN], .ops = functions};
  struct manta__caller_hello hello = {MANTA__CALLER_MAGIC, getpid()};
  prctl(PR_SET_NAME, "manta-caller");
  if (manta__lifeline_hang_on(fds[MANTA__C_LIFELINE], NULL) < 0 ||
      dup2(fds[MANTA__C_OUTPUT], STDOUT_FILENO) < 0 ||
      dup2(fds[MANTA__C_OUTPUT], STDERR_FILENO) < 0)
    return;
  close(fds[MANTA__C_OUTPUT]);
  if (manta__sock_send(c.sock, &hello, sizeof hello, NULL, 0) == (ssize_t)sizeof hello)
    while (serve_one(&c))
      ;
  for (int i = 0; i < c.count; i++)
    manta__schema_unref(c.function[i].seen);
  close(c.sock);
}
