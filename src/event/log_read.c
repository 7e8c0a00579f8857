/* SPDX-License-Identifier: Apache-2.0
 *
 * event/log_read.c - the reader of run.log.
 *
 * It reads with pread into a buffer of its own: a mapped file that is cut back under the reader
 * would kill it with SIGBUS.
 * (1) `at` is always the end of a valid record, so whatever a writer cuts off lies behind it.
 * (2) Bytes that did not make a record are forgotten and read again by the next call: the writer
 *     may have been in the middle of them.
 * (3) A writer makes segment n + 1 only when all of segment n is written. So once n + 1 is there,
 *     what is still no record in n never will be.
 * (4) A read that brought less than there was room for reached the end: it is not tried again, so
 *     that whoever follows a log reads once for many records. If the size of the file says
 *     otherwise, it is read again.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "event/record.h"

#define CHUNK    (64u << 10)
#define KEEP_CAP (1u << 20) /* more memory than this is given back after a large record */

struct manta__log_reader {
  int dirfd, fd, segment;
  int64_t at;      /* offset of the next record */
  int64_t torn;    /* behind `at`, as far as known */
  bool bad;        /* it is no record, though all of one is there */
  bool drained;    /* what is in the buffer reaches to the end of the file (4) */
  int64_t skipped; /* in damaged segments that were left behind */
  uint8_t *buf;
  size_t cap, pos, len; /* the file from `at` on is buf[pos..len) */
};

manta_status manta__segment_open(int dirfd, int segment, int *fd_out, manta_error *err)
{
  char name[MANTA__SEGMENT_NAME_MAX];
  manta__segment_name(name, segment);
  // O_NONBLOCK: a named pipe in that place must not hang us.
  int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "open %s: %m", name);
  struct stat sb;
  if (fstat(fd, &sb) < 0 || !S_ISREG(sb.st_mode)) {
    close(fd);
    return manta_error_set(err, MANTA_EIO, "%s is not a regular file", name);
  }
  *fd_out = fd;
  return MANTA_OK;
}

manta_status manta__log_reader_open_at(manta__log_reader **out, int dirfd, int segment, int64_t at,
                                       manta_error *err)
{
  manta_status st;
  manta__log_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to read run.log");
  r->segment = segment;
  r->at = at;
  r->cap = CHUNK;
  if (!(r->buf = manta__malloc(r->cap))) {
    st = manta_error_set(err, MANTA_ENOMEM, "no memory to read run.log");
    goto err_free;
  }
  if ((r->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0)) < 0) {
    st = manta_error_set(err, MANTA_EIO, "dup: %m");
    goto err_free;
  }
  if ((st = manta__segment_open(r->dirfd, segment, &r->fd, err)) < 0)
    goto err_close;
  *out = r;
  return MANTA_OK;
err_close:
  close(r->dirfd);
err_free:
  manta__free(r->buf);
  manta__free(r);
  return st;
}

manta_status manta__log_reader_open(manta__log_reader **out, int dirfd, manta_error *err)
{
  return manta__log_reader_open_at(out, dirfd, 1, 0, err);
}

void manta__log_reader_close(manta__log_reader *r)
{
  if (!r)
    return;
  close(r->fd);
  close(r->dirfd);
  manta__free(r->buf);
  manta__free(r);
}

int64_t manta__log_reader_at(const manta__log_reader *r)
{
  return r->at;
}

int manta__log_reader_segment(const manta__log_reader *r)
{
  return r->segment;
}

manta_status manta__log_reader_tail(const manta__log_reader *r, struct manta__log_tail *out,
                                    manta_error *err)
{
  struct stat sb;
  if (fstat(r->fd, &sb) < 0)
    return manta_error_set(err, MANTA_EIO, "stat run.log: %m");
  *out = (struct manta__log_tail){.size = sb.st_size, .gone = sb.st_nlink == 0, .bad = r->bad};
  return MANTA_OK;
}

int64_t manta__log_torn(const manta__log_reader *r)
{
  return r->skipped + r->torn;
}

// Bytes of the segment from `at` on, or -1.
static int64_t ahead(manta__log_reader *r, manta_error *err)
{
  struct stat sb;
  if (fstat(r->fd, &sb) < 0) {
    manta_error_set(err, MANTA_EIO, "stat run.log: %m");
    return -1;
  }
  return sb.st_size > r->at ? sb.st_size - r->at : 0;
}

// A record longer than the buffer: asks the file first, for a garbled length must not cost its
// size.
static int grow(manta__log_reader *r, size_t need, manta_error *err)
{
  int64_t have = ahead(r, err);
  if (have < (int64_t)need)
    return have < 0 ? MANTA_EIO : 0;
  uint8_t *p = manta__realloc(r->buf, need);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a record of %zu bytes", need);
  r->buf = p;
  r->cap = need;
  return 1;
}

// Makes buf[pos..) hold `need` bytes. 1: it does; 0: the file ends before; negative: an error.
static int fill(manta__log_reader *r, size_t need, manta_error *err)
{
  if (r->len - r->pos >= need)
    return 1;
  memmove(r->buf, r->buf + r->pos, r->len - r->pos);
  r->len -= r->pos;
  r->pos = 0;
  if (need > r->cap) {
    int rc = grow(r, need, err);
    if (rc != 1)
      return rc;
  }
  while (r->len < need && !r->drained) {
    size_t room = r->cap - r->len;
    ssize_t n = pread(r->fd, r->buf + r->len, room, r->at + (int64_t)r->len);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return manta_error_set(err, MANTA_EIO, "read run.log at %lld: %m", (long long)r->at);
    r->len += (size_t)n;
    r->drained = (size_t)n < room;
  }
  return r->len >= need;
}

// The record at `at`. 1: there is one; 0: there is none (yet); negative: an error.
static int look(manta__log_reader *r, struct manta__record *head, const uint8_t **payload,
                manta_error *err)
{
  int rc = fill(r, MANTA__RECORD_HEAD, err);
  r->bad = false;
  if (rc != 1)
    return rc;
  memcpy(head, r->buf + r->pos, sizeof *head);
  r->bad = !manta__record_head_ok(head);
  if (r->bad)
    return 0;
  size_t whole = MANTA__RECORD_HEAD + head->len;
  if ((rc = fill(r, whole, err)) != 1)
    return rc;
  *payload = r->buf + r->pos + MANTA__RECORD_HEAD;
  r->bad = manta__record_hash(head, *payload) != head->hash;
  if (r->bad)
    return 0;
  r->pos += whole;
  r->at += (int64_t)whole;
  r->torn = 0;
  return 1;
}

// Goes on with the next segment.
static int next_segment(manta__log_reader *r, manta_error *err)
{
  int fd;
  MANTA_TRY(manta__segment_open(r->dirfd, r->segment + 1, &fd, err));
  if (r->torn > 0) {
    char name[MANTA__SEGMENT_NAME_MAX];
    manta__segment_name(name, r->segment);
    manta__warn("%s is damaged at byte %lld: its last %lld bytes are skipped", name,
                (long long)r->at, (long long)r->torn);
  }
  close(r->fd);
  r->fd = fd;
  r->segment++;
  r->skipped += r->torn;
  r->at = r->torn = 0;
  return 0;
}

// A failure only leaves more memory than is needed.
static void shrink(manta__log_reader *r)
{
  uint8_t *p = r->cap > KEEP_CAP ? manta__realloc(r->buf, CHUNK) : NULL;
  if (!p)
    return;
  r->buf = p;
  r->cap = CHUNK;
}

// Notes what lies behind `at`; the buffer is read anew next time (2).
static int stop(manta__log_reader *r, manta_error *err)
{
  r->pos = r->len = 0;
  r->drained = false;
  shrink(r);
  int64_t left = ahead(r, err);
  if (left < 0)
    return MANTA_EIO;
  r->torn = left;
  return 0;
}

// The record at `at`, or a count of what lies there. As look.
static int read_record(manta__log_reader *r, struct manta__record *head, const uint8_t **payload,
                       manta_error *err)
{
  int rc = look(r, head, payload, err);
  bool drained = r->drained;
  if (rc == 0)
    rc = stop(r, err);
  if (rc != 0 || r->torn == 0 || !drained)
    return rc;
  rc = look(r, head, payload, err); // (4)
  return rc == 0 ? stop(r, err) : rc;
}

static bool next_exists(const manta__log_reader *r)
{
  char name[MANTA__SEGMENT_NAME_MAX];
  manta__segment_name(name, r->segment + 1);
  return faccessat(r->dirfd, name, F_OK, 0) == 0;
}

int manta__log_next(manta__log_reader *r, struct manta__record *head, const uint8_t **payload,
                    manta_error *err)
{
  for (;;) {
    int rc = read_record(r, head, payload, err);
    if (rc != 0 || !next_exists(r))
      return rc;
    // Records may have come between that look and the next segment; behind this one none can (3).
    rc = read_record(r, head, payload, err);
    if (rc != 0)
      return rc;
    if ((rc = next_segment(r, err)) < 0)
      return rc;
  }
}
