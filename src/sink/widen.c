/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/widen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "sys/file.h"
#include "sys/sock.h"

#define CHUNK (256u << 10)

// A copy under way.
struct widening {
  int from, to;
  int64_t at, size; // in the old file
  int64_t wrote;
  bool quoted, header; // inside of quotes; the header has not ended yet
  const char *names;
  size_t len, count;
  manta__buf out;
};

// Behind a row, before the end of its line.
static manta_status put_cells(struct widening *c)
{
  if (c->header) {
    c->header = false;
    return manta__buf_append(&c->out, c->names, c->len);
  }
  for (size_t i = 0; i < c->count; i++)
    MANTA_TRY(manta__buf_putc(&c->out, ','));
  return MANTA_OK;
}

static manta_status put_piece(struct widening *c, const char *p, size_t n)
{
  size_t from = 0;
  for (size_t i = 0; i < n; i++) {
    if (p[i] == '"')
      c->quoted = !c->quoted;
    if (p[i] != '\n' || c->quoted)
      continue;
    MANTA_TRY(manta__buf_append(&c->out, p + from, i - from));
    MANTA_TRY(put_cells(c));
    from = i;
  }
  return manta__buf_append(&c->out, p + from, n - from);
}

static manta_status copy_piece(struct widening *c, char *piece, manta_error *err)
{
  int64_t left = c->size - c->at;
  ssize_t n = pread(c->from, piece, left < (int64_t)CHUNK ? (size_t)left : CHUNK, c->at);
  if (n <= 0)
    return manta_error_set(err, MANTA_EIO, "read: %m");
  c->at += n;
  c->out.len = 0;
  if (put_piece(c, piece, (size_t)n) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for more columns");
  if (manta__write_all(c->to, c->out.data, c->out.len, NULL) < 0)
    return manta_error_set(err, MANTA_EIO, "write: %m");
  c->wrote += (int64_t)c->out.len;
  return MANTA_OK;
}

static manta_status copy_all(struct widening *c, manta_error *err)
{
  char *piece = manta__malloc(CHUNK);
  manta_status st = piece ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory");
  while (st == MANTA_OK && c->at < c->size)
    st = copy_piece(c, piece, err);
  manta__free(piece);
  return st;
}

manta_status manta__widen(struct manta__outfile *o, int dirfd, const char *names, size_t len,
                          size_t count, manta_error *err)
{
  char temp[sizeof o->name + 8];
  struct widening c = {
      .from = o->fd, .size = o->size, .header = true, .names = names, .len = len, .count = count};
  snprintf(temp, sizeof temp, "%s.wider", o->name);
  c.to = openat(dirfd, temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (c.to < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", temp);
  manta__buf_init(&c.out, o->buf.limit);
  manta_status st = copy_all(&c, err);
  if (st == MANTA_OK && renameat(dirfd, temp, dirfd, o->name) < 0)
    st = manta_error_set(err, MANTA_EIO, "rename %s: %m", temp);
  manta__buf_fini(&c.out);
  if (st < 0) {
    unlinkat(dirfd, temp, 0);
    close(c.to);
    return st;
  }
  manta__fd_close(&o->fd);
  o->fd = c.to;
  o->size = c.wrote;
  return MANTA_OK;
}
