/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "sys/file.h"
#include "sys/sock.h"

#define LIMIT (256u << 20) /* of the buffer: some hundred of the largest rows */

manta_status manta__outfile_open(struct manta__outfile *o, int dirfd, const char *name,
                                 const char *head, const char *tail, manta_error *err)
{
  struct stat sb;
  *o = (struct manta__outfile){.head = head, .tail = tail};
  snprintf(o->name, sizeof o->name, "%s", name);
  manta__buf_init(&o->buf, LIMIT);
  o->fd = openat(dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  if (o->fd < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", name);
  if (fstat(o->fd, &sb) == 0 && S_ISREG(sb.st_mode))
    return MANTA_OK;
  manta__outfile_close(o);
  return manta_error_set(err, MANTA_EIO, "%s is not a regular file", name);
}

void manta__outfile_close(struct manta__outfile *o)
{
  manta__buf_fini(&o->buf);
  manta__fd_close(&o->fd);
}

manta_status manta__outfile_room(struct manta__outfile *o, manta_error *err)
{
  return o->buf.len < MANTA__OUTFILE_BUFFER ? MANTA_OK : manta__outfile_flush(o, err);
}

// Nothing of a failed write stays but, at most, a tail that is missing.
static manta_status undo(const struct manta__outfile *o, manta_error *err)
{
  int why = errno;
  if (ftruncate(o->fd, o->size) == 0 && lseek(o->fd, o->size, SEEK_SET) >= 0)
    (void)!write(o->fd, o->tail, strlen(o->tail));
  errno = why;
  return manta_error_set(err, MANTA_EIO, "write %s: %m", o->name);
}

static manta_status put(struct manta__outfile *o, manta_error *err)
{
  size_t body = o->buf.len, tail = strlen(o->tail);
  if (manta__buf_append(&o->buf, o->tail, tail) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %s", o->name);
  bool bad = lseek(o->fd, o->size, SEEK_SET) < 0 ||
             manta__write_all(o->fd, o->buf.data, o->buf.len, NULL) < 0;
  o->buf.len = body;
  if (bad)
    return undo(o, err);
  o->size += (int64_t)body;
  o->buf.len = 0;
  return MANTA_OK;
}

manta_status manta__outfile_flush(struct manta__outfile *o, manta_error *err)
{
  return o->buf.len == 0 ? MANTA_OK : put(o, err);
}

static bool hash_end(const struct manta__outfile *o, int64_t size, int64_t *out)
{
  uint8_t end[MANTA__OUTFILE_HASHED];
  size_t n = size < (int64_t)sizeof end ? (size_t)size : sizeof end;
  if (pread(o->fd, end, n, size - (int64_t)n) != (ssize_t)n)
    return false;
  uint64_t h = manta__hash(end, n) | 1; // never 0
  memcpy(out, &h, sizeof h);
  return true;
}

struct manta__outfile_mark manta__outfile_mark(const struct manta__outfile *o)
{
  struct manta__outfile_mark m = {.size = o->size};
  if (!hash_end(o, o->size, &m.hash))
    m.hash = 0;
  return m;
}

manta_status manta__outfile_back(struct manta__outfile *o, struct manta__outfile_mark m,
                                 manta_error *err)
{
  int64_t hash;
  struct stat sb;
  o->buf.len = 0;
  if (m.size > 0 && (fstat(o->fd, &sb) < 0 || sb.st_size < m.size || !hash_end(o, m.size, &hash) ||
                     hash != m.hash))
    return manta_error_set(err, MANTA_ECORRUPT, "%s is not as it was left", o->name);
  o->size = m.size;
  if (ftruncate(o->fd, o->size) < 0)
    return manta_error_set(err, MANTA_EIO, "truncate %s: %m", o->name);
  if (m.size == 0 && manta__buf_puts(&o->buf, o->head) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %s", o->name);
  return put(o, err); // at least the tail
}
