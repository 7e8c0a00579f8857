/* SPDX-License-Identifier: Apache-2.0
 *
 * event/log_write.c - the writer of run.log.
 *
 * Records are put together in one buffer, which a flush hands to the kernel with one write. The
 * buffer holds whole records, none of which is on disk; `size` is where the segment's last whole
 * record ends.
 * (1) Before anything is written, the file ends at `size`: what a failed write left behind is cut
 *     off at once or, if that fails too, before the next write.
 * (2) A record leaves the buffer only when all of it is in the file, or as a counted, dropped row.
 * (3) The next segment is made only when all of this one is written (readers rely on it).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pack.h"
#include "event/lock.h"
#include "event/record.h"
#include "sys/file.h"

#define FLUSH_AT (1u << 20)
#define KEEP_CAP (4u << 20) /* more memory than this is given back after a flush */

struct manta__log_writer {
  manta__buf buf;
  int dirfd, fd, segment;
  int64_t size;
  int64_t segment_limit;
  size_t backlog;
  bool torn;                /* the file is longer than `size` */
  bool failing;             /* the last write failed, and that was said */
  bool shedding;            /* rows are being dropped, and that was said */
  uint64_t dropped;         /* rows, since the last note about it */
  struct manta__ident last; /* of the newest record */
  struct manta__runlock lock;
  char path[PATH_MAX]; /* of the directory, for messages */
};

/* --- The buffer as records --- */

static struct manta__record head_at(const uint8_t *p)
{
  struct manta__record h;
  memcpy(&h, p, sizeof h);
  return h;
}

// Bytes of the whole records that begin and end within the first n bytes of the buffer.
static size_t whole_records(const manta__log_writer *w, size_t n)
{
  size_t at = 0;
  while (at < n) {
    size_t k = MANTA__RECORD_HEAD + head_at(w->buf.data + at).len;
    if (k > n - at)
      break;
    at += k;
  }
  return at;
}

/* --- Onto the disk --- */

static int cut_tail(manta__log_writer *w)
{
  int rc = ftruncate(w->fd, w->size);
  w->torn = rc < 0;
  return rc;
}

// Writes the first n bytes of the buffer, which are whole records. 0, or -1 with errno.
static int write_records(manta__log_writer *w, size_t n)
{
  size_t done;
  int rc = manta__write_all(w->fd, w->buf.data, n, &done);
  int saved = errno;
  size_t whole = rc == 0 ? n : whole_records(w, done);
  w->size += (int64_t)whole;
  if (done > whole)
    cut_tail(w);
  manta__buf_consume(&w->buf, whole);
  errno = saved;
  return rc;
}

static int next_segment(manta__log_writer *w)
{
  char name[MANTA__SEGMENT_NAME_MAX];
  manta__segment_name(name, w->segment + 1);
  int fd = openat(w->dirfd, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return -1;
  // It can only be there if a segment before it was removed by hand, and then no reader gets here.
  struct stat sb;
  if (fstat(fd, &sb) < 0 || (sb.st_size > 0 && ftruncate(fd, 0) < 0)) {
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
  }
  if (sb.st_size > 0)
    manta__warn("%s/%s: %lld bytes behind a missing segment are overwritten", w->path, name,
                (long long)sb.st_size);
  close(w->fd);
  w->fd = fd;
  w->segment++;
  w->size = 0;
  return 0;
}

// How many bytes of the buffer go into this segment: whole records, at least one into an empty one.
static size_t room(const manta__log_writer *w)
{
  int64_t left = w->segment_limit - w->size;
  if ((int64_t)w->buf.len <= left)
    return w->buf.len;
  size_t n = left > 0 ? whole_records(w, (size_t)left) : 0;
  if (n == 0 && w->size == 0)
    n = MANTA__RECORD_HEAD + head_at(w->buf.data).len;
  return n;
}

// Empties the buffer into as many segments as it takes. 0, or -1 with errno.
static int write_out(manta__log_writer *w)
{
  if (w->torn && cut_tail(w) < 0)
    return -1;
  while (w->buf.len > 0) {
    size_t n = room(w);
    if (n == 0 && next_segment(w) < 0)
      return -1;
    if (n > 0 && write_records(w, n) < 0)
      return -1;
  }
  if (w->buf.cap > KEEP_CAP) {
    size_t limit = w->buf.limit;
    manta__buf_fini(&w->buf);
    manta__buf_init(&w->buf, limit);
  }
  return 0;
}

/* --- When the disk is full --- */

static manta_status failed(manta__log_writer *w, manta_error *err)
{
  char name[MANTA__SEGMENT_NAME_MAX];
  manta__segment_name(name, w->segment);
  if (!w->failing)
    manta__warn("write %s/%s: %m; records are kept in memory and tried again", w->path, name);
  w->failing = true;
  return manta_error_set(err, MANTA_EIO, "write %s/%s: %m", w->path, name);
}

// Over the backlog: the oldest rows go, until a quarter of it is free.
static void shed_rows(manta__log_writer *w)
{
  size_t goal = w->backlog - w->backlog / 4, in = 0, out = 0, len = w->buf.len;
  while (in < w->buf.len) {
    struct manta__record h = head_at(w->buf.data + in);
    size_t n = MANTA__RECORD_HEAD + h.len;
    if (len > goal && h.kind == MANTA__EV_ROW) {
      len -= n;
      w->dropped++;
    } else {
      memmove(w->buf.data + out, w->buf.data + in, n);
      out += n;
    }
    in += n;
  }
  w->buf.len = out;
  if (w->dropped && !w->shedding)
    manta__warn("%s/run.log cannot be written and %zu bytes wait in memory: the oldest rows are "
                "dropped",
                w->path, w->backlog);
  w->shedding = w->dropped > 0;
}

// There is room again: says so, and how many rows are missing. The note goes the way of all
// records.
static void recovered(manta__log_writer *w)
{
  if (w->failing)
    manta__warn("%s/run.log can be written again", w->path);
  w->failing = w->shedding = false;
  if (!w->dropped)
    return;
  uint64_t rows = w->dropped;
  w->dropped = 0;
  char text[128];
  snprintf(text, sizeof text, "%" PRIu64 " rows were dropped while run.log could not be written",
           rows);
  struct manta__ident id = {w->last.run, w->last.attempt, MANTA__LOG_SELF, (uint64_t)manta__wall()};
  manta_value note = MANTA_MAP(MANTA_KV_STR("text", text));
  if (manta__log_add_value(w, MANTA__EV_NOTE, &id, &note, NULL) < 0)
    w->dropped = rows; // the next flush tries again
}

manta_status manta__log_flush(manta__log_writer *w, manta_error *err)
{
  if (write_out(w) < 0)
    return failed(w, err);
  if (!w->failing && !w->dropped)
    return MANTA_OK;
  recovered(w);
  return write_out(w) < 0 ? failed(w, err) : MANTA_OK;
}

/* --- Adding --- */

// Gives room in the buffer for a record with len bytes of payload.
static manta_status claim(manta__log_writer *w, size_t len, uint8_t **rec_out, manta_error *err)
{
  if (len > MANTA__LOG_MAX_PAYLOAD)
    return manta_error_set(err, MANTA_ETOOBIG, "a record of %zu bytes, the limit is %u", len,
                           MANTA__LOG_MAX_PAYLOAD);
  manta_status st = manta__buf_reserve(&w->buf, MANTA__RECORD_HEAD + len);
  if (st < 0) { // what is there may make room by going to the disk
    manta__log_flush(w, NULL);
    st = manta__buf_reserve(&w->buf, MANTA__RECORD_HEAD + len);
  }
  if (st < 0)
    return manta_error_set(err, st, "no memory for a record of %zu bytes, %zu wait for the disk",
                           len, w->buf.len);
  *rec_out = w->buf.data + w->buf.len;
  return MANTA_OK;
}

// Completes the record whose payload was put behind rec, and counts it in.
static void seal(manta__log_writer *w, uint8_t *rec, enum manta__event kind,
                 const struct manta__ident *id, int64_t wall_ns, size_t len)
{
  struct manta__record h = {
      .magic = MANTA__LOG_MAGIC, .len = (uint32_t)len, .kind = kind, .id = *id, .wall_ns = wall_ns};
  h.hash = manta__record_hash(&h, rec + sizeof h);
  memcpy(rec, &h, sizeof h);
  w->buf.len += sizeof h + len;
  w->last = *id;
  // While the disk is full only the caller's own flushes try it: a system call per row would not
  // do.
  if (w->buf.len >= FLUSH_AT && !w->failing)
    manta__log_flush(w, NULL);
  if (w->failing && w->buf.len > w->backlog)
    shed_rows(w);
}

manta_status manta__log_add(manta__log_writer *w, enum manta__event kind,
                            const struct manta__ident *id, int64_t wall_ns, const void *payload,
                            size_t len, manta_error *err)
{
  uint8_t *rec = NULL;
  MANTA_TRY(claim(w, len, &rec, err));
  if (len)
    memcpy(rec + MANTA__RECORD_HEAD, payload, len);
  seal(w, rec, kind, id, wall_ns, len);
  return MANTA_OK;
}

manta_status manta__log_add_value(manta__log_writer *w, enum manta__event kind,
                                  const struct manta__ident *id, const manta_value *v,
                                  manta_error *err)
{
  size_t len = manta__pack_size(v);
  if (len == 0)
    return manta_error_set(err, MANTA_ETOOBIG, "a %s record is nested too deeply or too big",
                           manta__event_info(kind) ? manta__event_info(kind)->name : "log");
  uint8_t *rec = NULL;
  MANTA_TRY(claim(w, len, &rec, err));
  manta__pack_into(rec + MANTA__RECORD_HEAD, v);
  seal(w, rec, kind, id, manta__wall(), len);
  return MANTA_OK;
}

/* --- Opening and closing --- */

static bool segment_exists(int dirfd, int segment)
{
  char name[MANTA__SEGMENT_NAME_MAX];
  manta__segment_name(name, segment);
  return faccessat(dirfd, name, F_OK, 0) == 0;
}

// Where the last valid record of the segment ends.
static manta_status find_end(manta__log_writer *w, int64_t *torn_out, manta_error *err)
{
  manta__log_reader *r;
  MANTA_TRY(manta__log_reader_open_at(&r, w->dirfd, w->segment, 0, err));
  struct manta__record h;
  const uint8_t *payload;
  int rc;
  while ((rc = manta__log_next(r, &h, &payload, err)) > 0)
    w->last = h.id;
  w->size = manta__log_reader_at(r);
  *torn_out = manta__log_torn(r);
  manta__log_reader_close(r);
  return (manta_status)rc;
}

static bool keep_bytes(const manta__log_writer *w, const char *name, const uint8_t *p, size_t n)
{
  char kept[MANTA__SEGMENT_NAME_MAX + 16];
  snprintf(kept, sizeof kept, "%s.damaged", name);
  int fd = openat(w->dirfd, kept, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  bool ok = fd >= 0 && manta__write_all(fd, p, n, NULL) == 0;
  int saved = errno;
  if (fd >= 0)
    close(fd);
  errno = saved;
  if (ok)
    manta__warn("%s/%s is damaged; what lies behind that is in %s now", w->path, name, kept);
  return ok;
}

// A torn tail is half a record. If others follow it is damage, and they are kept beside the log,
// behind those of an earlier time. False: errno says why not.
static bool keep_damaged(const manta__log_writer *w, const char *name, size_t torn)
{
  const uint32_t magic = MANTA__LOG_MAGIC;
  uint8_t *p = manta__malloc(torn);
  int fd = p ? openat(w->dirfd, name, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t got = fd >= 0 ? pread(fd, p, torn, w->size) : -1;
  bool ok = got == (ssize_t)torn;
  if (got >= 0 && !ok)
    errno = EIO; // it became shorter
  if (ok && memmem(p + 1, torn - 1, &magic, sizeof magic))
    ok = keep_bytes(w, name, p, torn);
  int saved = p ? errno : ENOMEM;
  if (fd >= 0)
    close(fd);
  manta__free(p);
  errno = saved;
  return ok;
}

static manta_status open_existing(manta__log_writer *w, manta_error *err)
{
  if (!segment_exists(w->dirfd, 1))
    return manta_error_set(err, MANTA_ENOENT, "%s holds no run.log", w->path);
  while (segment_exists(w->dirfd, w->segment + 1))
    w->segment++;
  int64_t torn = 0;
  MANTA_TRY(find_end(w, &torn, err));
  char name[MANTA__SEGMENT_NAME_MAX];
  manta__segment_name(name, w->segment);
  w->fd = openat(w->dirfd, name, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (w->fd < 0)
    return manta_error_set(err, MANTA_EIO, "open %s/%s: %m", w->path, name);
  if (torn > 0 && !keep_damaged(w, name, (size_t)torn))
    return manta_error_set(err, MANTA_EIO, "keep the damaged end of %s/%s: %m", w->path, name);
  if (torn > 0 && cut_tail(w) < 0)
    return manta_error_set(err, MANTA_EIO, "cut %s/%s: %m", w->path, name);
  if (torn > 0)
    manta__warn("%s/%s: cut off a torn tail of %lld bytes", w->path, name, (long long)torn);
  return MANTA_OK;
}

static manta_status create_first(manta__log_writer *w, manta_error *err)
{
  w->fd = openat(w->dirfd, "run.log", O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (w->fd < 0 && errno == EEXIST)
    return manta_error_set(err, MANTA_ESTATE, "%s has a run.log already", w->path);
  if (w->fd < 0)
    return manta_error_set(err, MANTA_EIO, "create %s/run.log: %m", w->path);
  return MANTA_OK;
}

manta_status manta__log_writer_open(manta__log_writer **out, int dirfd, bool create,
                                    manta_error *err)
{
  manta_status st;
  manta__log_writer *w = manta__calloc(1, sizeof *w);
  if (!w)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to write run.log");
  w->fd = -1;
  w->segment = 1;
  manta__log_set_limits(w, MANTA__LOG_SEGMENT, MANTA__LOG_BACKLOG);
  manta__buf_init(&w->buf, MANTA__LOG_BACKLOG + MANTA__RECORD_HEAD + MANTA__LOG_MAX_PAYLOAD);
  if (manta__buf_reserve(&w->buf, FLUSH_AT + FLUSH_AT / 4) < 0) {
    st = manta_error_set(err, MANTA_ENOMEM, "no memory to write run.log");
    goto err_free;
  }
  if ((w->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0)) < 0) {
    st = manta_error_set(err, MANTA_EIO, "dup: %m");
    goto err_buf;
  }
  manta__dir_path(w->dirfd, w->path);
  if ((st = manta__runlock_take(&w->lock, w->dirfd, w->path, err)) < 0)
    goto err_dir;
  if ((st = create ? create_first(w, err) : open_existing(w, err)) < 0)
    goto err_unlock;
  *out = w;
  return MANTA_OK;
err_unlock:
  if (w->fd >= 0)
    close(w->fd);
  manta__runlock_drop(&w->lock);
err_dir:
  close(w->dirfd);
err_buf:
  manta__buf_fini(&w->buf);
err_free:
  manta__free(w);
  return st;
}

void manta__log_writer_close(manta__log_writer *w)
{
  if (!w)
    return;
  if (w->lock.pid == getpid()) {
    manta__log_flush(w, NULL);
    if (w->buf.len > 0)
      manta__warn("%s/run.log: %zu bytes of records could not be written and are lost", w->path,
                  w->buf.len);
  }
  manta__runlock_drop(&w->lock);
  close(w->fd);
  close(w->dirfd);
  manta__buf_fini(&w->buf);
  manta__free(w);
}

void manta__log_set_limits(manta__log_writer *w, int64_t segment, size_t backlog)
{
  w->segment_limit = segment;
  w->backlog = backlog;
}

manta_status manta__log_sync(int dirfd, int from, int to, manta_error *err)
{
  for (int i = from; i <= to; i++) {
    char name[MANTA__SEGMENT_NAME_MAX];
    manta__segment_name(name, i);
    int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "open %s: %m", name);
    int rc = fdatasync(fd);
    int saved = errno;
    close(fd);
    errno = saved;
    if (rc < 0)
      return manta_error_set(err, MANTA_EIO, "sync %s: %m", name);
  }
  if (fsync(dirfd) < 0)
    return manta_error_set(err, MANTA_EIO, "sync the run directory: %m");
  return MANTA_OK;
}
