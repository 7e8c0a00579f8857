/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/shm/remote.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/shared.h"
#include "sys/robust.h"

#define RANKS_MAX  64           /* with more, pieces are small and system calls many */
#define BOUNCE     (256u << 10) /* for the pieces of all others */
#define PIECE_MIN  (16u << 10)  /* less is not worth a system call */
#define NAP_NS     20000        /* between two looks at a writer */
#define TARGET(of) ((of)&0xffff)

// --- bytes --------------------------------------------------------------------------------------

typedef ssize_t move_fn(pid_t pid, const struct iovec *own, unsigned long owns,
                        const struct iovec *theirs, unsigned long their, unsigned long flags);

// 0, or why not. What ends early meets its reason when it is begun again.
static int move(move_fn *fn, int32_t pid, const struct iovec *own, const struct iovec *theirs,
                unsigned long parts)
{
  ssize_t want = 0;
  for (unsigned long i = 0; i < parts; i++)
    want += (ssize_t)theirs[i].iov_len;
  for (int i = 0; i < 3; i++) {
    ssize_t got = fn(pid, own, parts, theirs, parts, 0);
    if (got == want)
      return 0;
    if (got < 0 && errno != EINTR)
      return errno;
  }
  return EFAULT;
}

static struct iovec at_address(uint64_t address, size_t bytes)
{
  return (struct iovec){(void *)(uintptr_t)(address & ~MANTA__PRIVATE), bytes}; // NOLINT
}

static int pull(const struct manta__team *t, int rank, void *to, uint64_t from, size_t bytes)
{
  struct iovec own = {to, bytes}, theirs = at_address(from, bytes);
  return move(process_vm_readv, t->line[rank].hand.pid, &own, &theirs, 1);
}

// A piece, and behind it its number. Says what it is about to write, then looks whether that may
// be: see (3).
static int push(struct manta__team *t, int rank, uint64_t to, const void *from, size_t bytes)
{
  const struct manta__hand *h = &t->line[rank].hand;
  uint64_t number = ++t->remote.pushes << 16 | (uint64_t)(rank + 1);
  uint64_t done_at = h->done_at + (uint64_t)t->rank * sizeof number;
  struct iovec own[2] = {{(void *)(uintptr_t)from, bytes}, {&number, sizeof number}};
  struct iovec theirs[2] = {at_address(to, bytes), at_address(done_at, sizeof number)};
  atomic_store(&t->line[t->rank].hand.push, number);
  if (atomic_load(&t->line[rank].gave_up))
    return ECANCELED;
  return move(process_vm_writev, h->pid, own, theirs, 2);
}

static bool begin_pushes(struct manta__team *t)
{
  return manta__robust_hold(&t->line[t->rank].hand.writes) >= 0;
}

static void end_pushes(struct manta__team *t)
{
  struct manta__hand *h = &t->line[t->rank].hand;
  atomic_store(&h->push, 0);
  manta__robust_release(&h->writes);
}

// --- offering -----------------------------------------------------------------------------------

manta_status manta__remote_init(struct manta__team *t, manta_error *err)
{
  bool shunned = t->crowded && !t->chooser.fixed; // see (6)
  if (t->size < 2 || t->size > RANKS_MAX || shunned) {
    t->remote.state = MANTA__REMOTE_FORBIDDEN;
    manta__chooser_bar(&t->chooser);
    return MANTA_OK;
  }
  return manta__robust_init(&t->line[t->rank].hand.writes, err);
}

void manta__remote_fini(struct manta__remote *r)
{
  manta__free(r->bounce);
  manta__free(r->done);
  *r = (struct manta__remote){0};
}

// What the others must know of us, and the memory that it takes. Yama lets processes be reached by
// those whom they name, with all that descend from these: here the one that forks the workers.
static bool prepare(struct manta__team *t)
{
  struct manta__remote *r = &t->remote;
  struct manta__hand *h = &t->line[t->rank].hand;
  size_t others = (size_t)t->size - 1, piece = (BOUNCE / others) & ~(size_t)4095;
  if (r->bounce && r->done)
    return true;
  r->piece = piece < PIECE_MIN ? PIECE_MIN : piece;
  r->bounce = r->bounce ? r->bounce : manta__malloc(r->piece * others);
  r->done = r->done ? r->done : manta__calloc((size_t)t->size + 1, sizeof *r->done);
  if (!r->bounce || !r->done)
    return false;
  h->pid = getpid();
  h->done_at = (uintptr_t)r->done;
  h->token = (uint64_t)manta__now() ^ (uint64_t)h->pid << 32 ^ h->done_at;
  r->done[t->size] = h->token;
  prctl(PR_SET_PTRACER, (unsigned long)getppid(), 0, 0, 0);
  return true;
}

// Whether the ends of our own buffer can be reached in this way; they are left as they are.
static bool is_ordinary(const struct manta__team *t, uint8_t *p, size_t bytes, bool writes)
{
  uint8_t ends[2] = {p[0], p[bytes - 1]};
  struct iovec own[2] = {{&ends[0], 1}, {&ends[1], 1}}, there[2] = {{p, 1}, {p + bytes - 1, 1}};
  return move(writes ? process_vm_writev : process_vm_readv, t->line[t->rank].hand.pid, own, there,
              2) == 0;
}

bool manta__remote_offer(struct manta__team *t, const struct manta__transfer *x,
                         struct manta__desc *d)
{
  if (t->remote.state == MANTA__REMOTE_FORBIDDEN || !prepare(t))
    return false;
  if (!is_ordinary(t, x->recv, x->bytes, true) ||
      (x->send != x->recv && !is_ordinary(t, (uint8_t *)(uintptr_t)x->send, x->bytes, false)))
    return false;
  d->send_at = manta__place_private(x->send);
  d->recv_at = manta__place_private(x->recv);
  return true;
}

// That it is the one is known before anything is written there; that is the number only.
static bool reaches(struct manta__team *t, int rank)
{
  const struct manta__hand *h = &t->line[rank].hand;
  uint64_t token = 0;
  if (pull(t, rank, &token, h->done_at + (uint64_t)t->size * sizeof token, sizeof token) != 0)
    return false;
  return token == h->token && push(t, rank, h->done_at, NULL, 0) == 0;
}

static bool reaches_all(struct manta__team *t)
{
  bool all = true;
  if (!begin_pushes(t))
    return false;
  for (int r = 0; r < t->size; r++)
    all = all && (r == t->rank || reaches(t, r));
  end_pushes(t);
  return all;
}

manta_status manta__remote_try(struct manta__team *t, bool *works, manta_error *err)
{
  struct manta__remote *r = &t->remote;
  if (r->state == MANTA__REMOTE_UNTRIED) {
    bool all = reaches_all(t);
    atomic_store_explicit(&t->line[t->rank].hand.verdict, all, memory_order_relaxed);
    MANTA_TRY(manta__team_meet(t, err));
    for (int i = 0; i < t->size; i++)
      all = all && atomic_load_explicit(&t->line[i].hand.verdict, memory_order_relaxed);
    r->state = all ? MANTA__REMOTE_WORKS : MANTA__REMOTE_FORBIDDEN;
  }
  *works = r->state == MANTA__REMOTE_WORKS;
  return MANTA_OK;
}

// --- the call -----------------------------------------------------------------------------------

static manta_status lost(struct manta__team *t, int rank, const char *what, int why,
                         manta_error *err)
{
  MANTA_TRY(manta__team_verify(t, rank, "allreduce", err));
  if (why == ESRCH)
    return manta__team_await_loss(t, rank, err);
  errno = why;
  return manta_error_set(err, MANTA_EIO, "allreduce: cannot %s the memory of rank %d: %m", what,
                         manta__team_label(t, rank));
}

static manta_status pull_all(struct manta__team *t, const struct manta__transfer *x, size_t at,
                             size_t len, manta_error *err)
{
  uint8_t *to = t->remote.bounce;
  t->in[t->rank] = x->send + at;
  for (int i = 1; i < t->size; i++, to += t->remote.piece) {
    int r = (t->rank + i) % t->size;
    int why = pull(t, r, to, manta__team_desc(t, r)->send_at + at, len);
    if (why)
      return lost(t, r, "read", why, err);
    t->in[r] = to;
  }
  return MANTA_OK;
}

static manta_status push_all(struct manta__team *t, const uint8_t *from, size_t at, size_t len,
                             manta_error *err)
{
  int r = t->rank, why = 0;
  if (!begin_pushes(t))
    return manta_error_set(err, MANTA_EIO, "allreduce: a mutex in shared memory is broken");
  for (int i = 1; i < t->size && !why; i++) {
    r = (t->rank + i) % t->size;
    why = push(t, r, manta__team_desc(t, r)->recv_at + at, from, len);
  }
  end_pushes(t);
  return why ? lost(t, r, "write", why, err) : MANTA_OK;
}

manta_status manta__remote_allreduce(struct manta__team *t, const struct manta__transfer *x,
                                     manta_error *err)
{
  size_t from, to;
  manta__slice(t, x->bytes, &from, &to);
  for (size_t at = from; at < to; at += t->remote.piece) {
    size_t len = to - at < t->remote.piece ? to - at : t->remote.piece;
    if (atomic_load_explicit(t->fabric->host.abort, memory_order_relaxed))
      return t->fabric->host.check(t->fabric->host.ctx, err);
    MANTA_TRY(pull_all(t, x, at, len, err));
    manta__reduce(x->recv + at, t->in, t->size, len / x->size, x->type, x->op);
    MANTA_TRY(push_all(t, x->recv + at, at, len, err));
  }
  return MANTA_OK;
}

// --- giving up ----------------------------------------------------------------------------------

// Whether `rank` writes nothing to us and will not any more. Only where stores are seen in the
// order in which they were made does the number of a piece say that all of it is there.
static bool is_done(const struct manta__team *t, int rank)
{
  struct manta__hand *h = &t->line[rank].hand;
  uint64_t number = atomic_load(&h->push);
  if (TARGET(number) != (uint64_t)t->rank + 1)
    return true;
#if defined(__x86_64__)
  if (atomic_load(&t->remote.done[rank]) == number)
    return true;
#endif
  return manta__robust_is_free(&h->writes);
}

void manta__remote_withdraw(struct manta__team *t)
{
  manta__team_give_up(t);
  for (int r = 0; r < t->size; r++)
    while (r != t->rank && !is_done(t, r))
      nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}
