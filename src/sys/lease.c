/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/lease.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define AT_CPU   INT64_C(0)
#define AT_GPU   INT64_C(8192)
#define AT_SHARE (INT64_C(1) << 20)
#define AT_EXTRA (INT64_C(1) << 32)
static_assert(AT_CPU + MANTA__LEASE_CPUS <= AT_GPU, "areas do not overlap");
static_assert(AT_GPU + MANTA__LEASE_GPUS <= AT_SHARE, "areas do not overlap");
static_assert(AT_SHARE + (int64_t)MANTA__LEASE_CPUS * MANTA__LEASE_UNIT <= AT_EXTRA,
              "areas do not overlap");

struct range {
  int64_t at, n;
};

struct manta__lease {
  int fd;    // holds
  int probe; // looks
  struct range *shares;
  size_t count, cap;
  int64_t held; // sum of shares[].n
};

// --- Locks ---------------------------------------------------------------------------------------

static bool set_lock(const manta__lease *l, short type, int64_t at, int64_t n)
{
  struct flock f = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = n};
  int rc;
  while ((rc = fcntl(l->fd, F_OFD_SETLK, &f)) < 0 && errno == EINTR)
    ;
  return rc == 0;
}

// True if [at, at + n) is free; else *taken is some part of it that is not, cut to it.
static bool is_free(const manta__lease *l, int64_t at, int64_t n, struct range *taken)
{
  struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = n};
  *taken = (struct range){at, n};
  if (fcntl(l->probe, F_OFD_GETLK, &f) < 0)
    return false;
  if (f.l_type == F_UNLCK)
    return true;
  int64_t from = f.l_start > at ? f.l_start : at;
  int64_t end = f.l_len && f.l_start + f.l_len < at + n ? f.l_start + f.l_len : at + n;
  *taken = (struct range){from, end - from};
  return false;
}

// --- Open, close ---------------------------------------------------------------------------------

// Others may have put something in our place as long as they could write there; the runtime
// directory forbids that, and this costs nothing.
static int open_file(int dirfd)
{
  int fd = openat(dirfd, "leases", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  struct stat sb;
  if (fd >= 0 && (fstat(fd, &sb) < 0 || !S_ISREG(sb.st_mode) || sb.st_uid != geteuid())) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  return fd;
}

manta_status manta__lease_open(manta__lease **out, int dirfd, manta_error *err)
{
  manta__lease *l = manta__calloc(1, sizeof *l);
  if (!l)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for leases");
  l->probe = -1;
  l->fd = open_file(dirfd);
  if (l->fd >= 0)
    l->probe = open_file(dirfd);
  if (l->probe < 0) {
    manta_error_set(err, MANTA_EIO, "open the file of leases: %m");
    manta__lease_close(l);
    return MANTA_EIO;
  }
  *out = l;
  return MANTA_OK;
}

void manta__lease_close(manta__lease *l)
{
  if (!l)
    return;
  if (l->fd >= 0)
    close(l->fd);
  if (l->probe >= 0)
    close(l->probe);
  manta__free(l->shares);
  manta__free(l);
}

// --- Cores and GPUs ------------------------------------------------------------------------------

// Looking first matters: locking a byte that is ours already would succeed as well.
static int take(manta__lease *l, int64_t area, int limit, const int *ids, int n, int want,
                int *taken)
{
  int got = 0;
  struct range unused;
  for (int i = 0; i < n && got < want; i++) {
    if (ids[i] < 0 || ids[i] >= limit || !is_free(l, area + ids[i], 1, &unused))
      continue;
    if (set_lock(l, F_WRLCK, area + ids[i], 1))
      taken[got++] = ids[i];
  }
  return got;
}

static void release(manta__lease *l, int64_t area, const int *ids, int n)
{
  for (int i = 0; i < n; i++)
    set_lock(l, F_UNLCK, area + ids[i], 1);
}

static int count_free(const manta__lease *l, int64_t area, int limit, const int *ids, int n)
{
  int free = 0;
  struct range unused;
  for (int i = 0; i < n; i++)
    if (ids[i] >= 0 && ids[i] < limit && is_free(l, area + ids[i], 1, &unused))
      free++;
  return free;
}

int manta__lease_take_cpus(manta__lease *l, const int *candidates, int n, int want, int *taken)
{
  return take(l, AT_CPU, MANTA__LEASE_CPUS, candidates, n, want, taken);
}

int manta__lease_take_gpus(manta__lease *l, const int *candidates, int n, int want, int *taken)
{
  return take(l, AT_GPU, MANTA__LEASE_GPUS, candidates, n, want, taken);
}

void manta__lease_release_cpus(manta__lease *l, const int *ids, int n)
{
  release(l, AT_CPU, ids, n);
}

void manta__lease_release_gpus(manta__lease *l, const int *ids, int n)
{
  release(l, AT_GPU, ids, n);
}

int manta__lease_count_free_cpus(const manta__lease *l, const int *candidates, int n)
{
  return count_free(l, AT_CPU, MANTA__LEASE_CPUS, candidates, n);
}

int manta__lease_count_free_gpus(const manta__lease *l, const int *candidates, int n)
{
  return count_free(l, AT_GPU, MANTA__LEASE_GPUS, candidates, n);
}

// --- Shares --------------------------------------------------------------------------------------

// The i-th piece of the pool's shares: one per CPU of the mask, then one for what is beyond. n is 0
// after the last.
static struct range piece(const struct manta__lease_pool *pool, int i)
{
  int64_t before = (int64_t)i * MANTA__LEASE_UNIT, left = pool->total - before;
  if (left <= 0 || i > pool->cpu_count)
    return (struct range){0, 0};
  if (i == pool->cpu_count)
    return (struct range){AT_EXTRA, left};
  return (struct range){AT_SHARE + (int64_t)pool->cpus[i] * MANTA__LEASE_UNIT,
                        left < MANTA__LEASE_UNIT ? left : MANTA__LEASE_UNIT};
}

static int64_t free_in(const manta__lease *l, int64_t at, int64_t n)
{
  int64_t total = 0;
  while (n > 0) {
    struct range t;
    if (is_free(l, at, n, &t))
      return total + n;
    total += free_in(l, at, t.at - at); // the kernel names some lock, not the lowest
    n -= t.at + t.n - at;
    at = t.at + t.n;
  }
  return total;
}

int64_t manta__lease_count_free(const manta__lease *l, const struct manta__lease_pool *pool)
{
  int64_t total = 0;
  struct range p;
  for (int i = 0; (p = piece(pool, i)).n > 0; i++)
    total += free_in(l, p.at, p.n);
  return total;
}

static bool note(manta__lease *l, int64_t at, int64_t n)
{
  if (l->count == l->cap) {
    size_t cap = l->cap ? 2 * l->cap : 8;
    struct range *grown = manta__realloc(l->shares, cap * sizeof *grown);
    if (!grown)
      return false;
    l->shares = grown;
    l->cap = cap;
  }
  l->shares[l->count++] = (struct range){at, n};
  l->held += n;
  return true;
}

// Takes up to `want` free shares of [at, at + n); how many, or -1 without memory.
static int64_t take_in(manta__lease *l, int64_t at, int64_t n, int64_t want)
{
  int64_t got = 0;
  while (n > 0 && got < want) {
    struct range t;
    int64_t k = n < want - got ? n : want - got;
    if (is_free(l, at, k, &t)) {
      if (set_lock(l, F_WRLCK, at, k)) {
        if (!note(l, at, k)) {
          set_lock(l, F_UNLCK, at, k);
          return -1;
        }
        got += k;
      }
      t = (struct range){at, k};
    } else {
      int64_t low = take_in(l, at, t.at - at, want - got);
      if (low < 0)
        return -1;
      got += low;
    }
    n -= t.at + t.n - at;
    at = t.at + t.n;
  }
  return got;
}

static void shrink_to(manta__lease *l, int64_t want)
{
  while (l->held > want) {
    struct range *last = &l->shares[l->count - 1];
    int64_t n = l->held - want < last->n ? l->held - want : last->n;
    set_lock(l, F_UNLCK, last->at + last->n - n, n);
    last->n -= n;
    l->held -= n;
    if (last->n == 0)
      l->count--;
  }
}

manta_status manta__lease_hold(manta__lease *l, const struct manta__lease_pool *pool, int64_t want,
                               manta_error *err)
{
  int64_t before = l->held;
  struct range p;
  for (int i = 0; l->held < want && (p = piece(pool, i)).n > 0; i++)
    if (take_in(l, p.at, p.n, want - l->held) < 0) {
      shrink_to(l, before);
      return manta_error_set(err, MANTA_ENOMEM, "no memory for leases");
    }
  if (l->held < want) {
    shrink_to(l, before);
    return manta_error_set(err, MANTA_ENOROOM, "other runs hold the CPUs");
  }
  shrink_to(l, want);
  return MANTA_OK;
}

int64_t manta__lease_held(const manta__lease *l)
{
  return l->held;
}
