/* SPDX-License-Identifier: Apache-2.0
 *
 * group/exchange.c - what the ranks of an attempt tell each other through the driver: the worker's
 * side.
 *
 * A call has a number, its round; answers of another round are of a call that was given up. While
 * it waits the worker looks at the abort word: the segment has no way to end a wait for a socket.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "group/worker.h"
#include "sys/shm.h"

#define LOOK_NS  2000000 /* how often the abort word is looked at */
#define READER_S 60.0    /* for the agent to start a reader */

static manta_status ask(struct manta__job *job, uint16_t kind, uint64_t round, const void *p,
                        size_t n, manta_error *err)
{
  struct manta__worker *w = job->worker;
  struct manta__msg m = {.kind = kind, .id = job->id, .call = round, .data = p, .len = n};
  if (w->dead)
    return manta_error_set(err, MANTA_ESTATE, "a forked child of a worker cannot call collectives");
  m.id.seq = ++w->said;
  return manta__worker_send(w, &m, err);
}

// The answer, to be closed by the caller. `watch`: an abort ends the wait.
static manta_status answer(struct manta__job *job, uint16_t kind, uint64_t round, bool watch,
                           int64_t by, struct manta__msg *m, manta_error *err)
{
  for (;;) {
    int64_t now = manta__now(), look = now + LOOK_NS;
    manta_error why = MANTA_ERROR_INIT;
    int rc = manta__conn_wait(job->worker->conn, look < by ? look : by, m, &why);
    if (rc == 1 && m->kind == kind && m->call == round && m->id.attempt == job->id.attempt)
      return MANTA_OK;
    if (rc == 1) {
      manta__msg_close(m);
      continue;
    }
    if (rc != MANTA_ETIMEDOUT)
      return manta_error_set(err, (manta_status)rc, "%s", why.message);
    if (watch)
      MANTA_TRY(manta__ctl_check(job->ctl, err));
    if (manta__now() >= by)
      return manta_error_set(err, MANTA_ETIMEDOUT, "not all of the %d ranks answered in time",
                             job->world);
  }
}

// The clock that looks for hangs stands still while we wait for others.
static manta_status converse(struct manta__job *job, uint16_t say, uint16_t hear, uint64_t round,
                             const void *p, size_t n, int64_t by, struct manta__msg *m,
                             manta_error *err)
{
  MANTA_TRY(ask(job, say, round, p, n, err));
  atomic_store(&job->cell->stalled, 1);
  manta_status st = answer(job, hear, round, hear != MANTA__M_AGREED, by, m, err);
  atomic_store(&job->cell->beat_ns, manta__now());
  atomic_store(&job->cell->stalled, 0);
  return st;
}

// --- exchange -----------------------------------------------------------------------------------

void manta__blobs_fini(struct manta__blobs *b)
{
  manta__free(b->data); // and all that lies behind
  *b = (struct manta__blobs){0};
}

// One block: pointers, sizes, bytes.
static manta_status unfold(struct manta__blobs *out, int world, const uint8_t *p, size_t n,
                           manta_error *err)
{
  struct manta__given head = {0};
  size_t count = (size_t)world, fixed = sizeof head + count * sizeof(uint64_t);
  if (n >= sizeof head)
    memcpy(&head, p, sizeof head);
  if (head.missing >= 0 && n == sizeof head)
    return manta_error_set(err, MANTA_EPEERLOST, "rank %d has left its train function",
                           head.missing);
  if (n < fixed || head.count != count)
    return manta_error_set(err, MANTA_EPROTO, "malformed exchange");
  size_t rest = n - fixed;
  uint8_t *block = manta__malloc(count * (sizeof(void *) + sizeof(size_t)) + rest);
  if (!block)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %zu bytes of all ranks", rest);
  *out = (struct manta__blobs){.count = world, .data = (const uint8_t **)block};
  out->bytes = (size_t *)(block + count * sizeof(void *));
  uint8_t *at = (uint8_t *)(out->bytes + count);
  memcpy(at, p + fixed, rest);
  for (size_t i = 0; i < count; i++) {
    uint64_t bytes;
    memcpy(&bytes, p + sizeof head + i * sizeof bytes, sizeof bytes);
    if (bytes > rest) {
      manta__blobs_fini(out);
      return manta_error_set(err, MANTA_EPROTO, "malformed exchange");
    }
    out->data[i] = at;
    out->bytes[i] = bytes;
    at += bytes;
    rest -= bytes;
  }
  return MANTA_OK;
}

static manta_status take(struct manta__blobs *out, int world, struct manta__msg *m,
                         manta_error *err)
{
  void *p;
  size_t bytes;
  if (!(m->flags & MANTA__FRAME_BLOB))
    return unfold(out, world, m->data, m->len, err);
  MANTA_TRY(manta__shm_map(m->fd[m->fds - 1], &p, &bytes, err));
  manta_status st = unfold(out, world, p, bytes, err);
  manta__shm_unmap(p, bytes);
  return st;
}

manta_status manta__worker_exchange(struct manta__job *job, const void *mine, size_t bytes,
                                    struct manta__blobs *all, int64_t by, manta_error *err)
{
  struct manta__msg m;
  *all = (struct manta__blobs){0};
  if (bytes > MANTA__GIVE_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "%zu bytes for all ranks are over the limit of %u",
                           bytes, MANTA__GIVE_MAX);
  MANTA_TRY(manta__ctl_check(job->ctl, err));
  pthread_mutex_lock(&job->worker->hearing);
  manta_status st =
      converse(job, MANTA__M_GIVE, MANTA__M_GIVEN, job->exchanges + 1, mine, bytes, by, &m, err);
  if (st == MANTA_OK) {
    job->exchanges++;
    st = take(all, job->world, &m, err);
    manta__msg_close(&m);
  }
  pthread_mutex_unlock(&job->worker->hearing);
  return st;
}

// --- agree --------------------------------------------------------------------------------------

manta_status manta__worker_agree(struct manta__job *job, int64_t *value, int64_t by,
                                 manta_error *err)
{
  struct manta__msg m;
  pthread_mutex_lock(&job->worker->hearing);
  manta_status st = converse(job, MANTA__M_AGREE, MANTA__M_AGREED, job->agreements + 1, value,
                             sizeof *value, by, &m, err);
  if (st == MANTA_OK) {
    job->agreements++;
    if (!manta__msg_copy(&m, value, sizeof *value))
      st = manta_error_set(err, MANTA_EPROTO, "malformed agreement");
    manta__msg_close(&m);
  }
  pthread_mutex_unlock(&job->worker->hearing);
  return st;
}

// --- fetch --------------------------------------------------------------------------------------

manta_status manta__worker_fetch(struct manta__job *job, uint64_t least, int *fd, manta_error *err)
{
  struct manta__msg m;
  struct manta__fetched how = {0};
  pthread_mutex_lock(&job->worker->hearing);
  manta_status st = converse(job, MANTA__M_FETCH, MANTA__M_FETCHED, ++job->fetches, &least,
                             sizeof least, MANTA__NEVER, &m, err);
  if (st == MANTA_OK) {
    if (manta__msg_copy(&m, &how, sizeof how))
      *fd = manta__msg_take_fd(&m, 0);
    else
      st = manta_error_set(err, MANTA_EPROTO, "malformed snapshot");
    manta__msg_close(&m);
  }
  pthread_mutex_unlock(&job->worker->hearing);
  MANTA_TRY(st);
  if (how.left)
    return manta_error_set(err, MANTA_ESTATE,
                           "rank 0 has left its train function, and has not saved as often as this "
                           "rank (%llu times)",
                           (unsigned long long)least);
  return MANTA_OK;
}

// --- the reader ---------------------------------------------------------------------------------

manta_status manta__worker_reader(struct manta__job *job, int *sock, manta_error *err)
{
  struct manta__msg m;
  struct manta__reading_msg how = {.status = MANTA_EPROTO};
  MANTA_TRY(manta__ctl_check(job->ctl, err));
  pthread_mutex_lock(&job->worker->hearing);
  manta_status st = converse(job, MANTA__M_READ, MANTA__M_READING, ++job->reads, NULL, 0,
                             manta__deadline(READER_S), &m, err);
  if (st == MANTA_OK) {
    manta__msg_copy(&m, &how, sizeof how);
    *sock = manta__msg_take_fd(&m, 0);
    manta__msg_close(&m);
  }
  pthread_mutex_unlock(&job->worker->hearing);
  MANTA_TRY(st);
  how.message[sizeof how.message - 1] = 0;
  if (how.status < 0 || *sock < 0)
    return manta_error_set(err, (manta_status)how.status, "no process to read data: %s",
                           how.message);
  return MANTA_OK;
}

// --- random states ------------------------------------------------------------------------------

manta_status manta__worker_put_random(struct manta__job *job, int64_t iteration, const void *bytes,
                                      size_t len, manta_error *err)
{
  struct manta__random_msg head = {iteration};
  uint8_t *p = manta__malloc(sizeof head + len);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for random states");
  memcpy(p, &head, sizeof head);
  memcpy(p + sizeof head, bytes, len);
  manta_status st = ask(job, MANTA__M_RANDOM, 0, p, sizeof head + len, err);
  manta__free(p);
  return st;
}

static manta_status take_random(const struct manta__msg *m, int *owner, void **bytes, size_t *len,
                                manta_error *err)
{
  struct manta__recalled_msg head;
  if (m->len < sizeof head)
    return manta_error_set(err, MANTA_EPROTO, "malformed random states");
  memcpy(&head, m->data, sizeof head);
  *owner = head.owner;
  if (head.owner < 0)
    return MANTA_OK;
  *len = m->len - sizeof head;
  if (!(*bytes = manta__malloc(*len + 1)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for random states");
  memcpy(*bytes, (const uint8_t *)m->data + sizeof head, *len);
  return MANTA_OK;
}

manta_status manta__worker_recall(struct manta__job *job, int64_t iteration, int *owner,
                                  void **bytes, size_t *len, manta_error *err)
{
  struct manta__msg m;
  MANTA_TRY(manta__ctl_check(job->ctl, err));
  pthread_mutex_lock(&job->worker->hearing);
  manta_status st = converse(job, MANTA__M_RECALL, MANTA__M_RECALLED, ++job->recalls, &iteration,
                             sizeof iteration, MANTA__NEVER, &m, err);
  if (st == MANTA_OK) {
    st = take_random(&m, owner, bytes, len, err);
    manta__msg_close(&m);
  }
  pthread_mutex_unlock(&job->worker->hearing);
  return st;
}
