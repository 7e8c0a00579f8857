/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/pack.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define RECV_CHUNK     (64u << 10)
#define MAX_QUEUED_FDS 256 /* descriptors in flight either way */

// Descriptors leave with the first byte of their frame, which lies at `at` in the stream.
struct fd_mark {
  uint64_t at;
  int fd[MANTA__MSG_FDS];
  int count;
};

struct manta__conn {
  const struct manta__conn_check *check;
  int sock, out_fd; // one, but for pipes
  bool pipes;
  bool closed; // the peer is gone; what was received can still be read
  manta__buf out;
  uint64_t out_at; // stream position of out.data[0]
  struct fd_mark mark[MAX_QUEUED_FDS / MANTA__MSG_FDS];
  int marks;
  uint8_t *in;
  size_t in_len, in_cap, in_at; // bytes [in_at, in_len) are not consumed yet
  int in_fd[MAX_QUEUED_FDS];
  int in_fds;
};

static uint64_t frame_hash(const struct manta__frame *f, const void *data)
{
  uint64_t seed = manta__hash(f, offsetof(struct manta__frame, hash));
  return manta__hash_seed(data, f->len, seed);
}

static manta_status make(manta__conn **out, int in, int out_fd, size_t backlog, manta_error *err)
{
  MANTA_TRY(manta__fd_nonblock(in, true, err));
  MANTA_TRY(manta__fd_nonblock(out_fd, true, err));
  manta__conn *c = manta__calloc(1, sizeof *c);
  if (!c)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a connection");
  c->sock = in;
  c->out_fd = out_fd;
  manta__buf_init(&c->out, backlog);
  *out = c;
  return MANTA_OK;
}

manta_status manta__conn_create(manta__conn **out, int sock, const struct manta__conn_check *check,
                                manta_error *err)
{
  MANTA_TRY(make(out, sock, sock, MANTA__CONN_BACKLOG, err));
  (*out)->check = check;
  return MANTA_OK;
}

manta_status manta__conn_create_pipes(manta__conn **out, int in, int out_fd, size_t backlog,
                                      manta_error *err)
{
  MANTA_TRY(make(out, in, out_fd, backlog, err));
  (*out)->pipes = true;
  return MANTA_OK;
}

void manta__conn_destroy(manta__conn *c)
{
  if (!c)
    return;
  for (int i = 0; i < c->marks; i++)
    manta__fd_close_all(c->mark[i].fd, c->mark[i].count);
  manta__fd_close_all(c->in_fd, c->in_fds);
  if (c->out_fd != c->sock)
    manta__fd_close(&c->out_fd);
  manta__fd_close(&c->sock);
  manta__buf_fini(&c->out);
  manta__free(c->in);
  manta__free(c);
}

int manta__conn_fd(const manta__conn *c)
{
  return c->sock;
}

int manta__conn_out_fd(const manta__conn *c)
{
  return c->out_fd;
}

size_t manta__conn_queued(const manta__conn *c)
{
  return c->out.len;
}

bool manta__conn_pending(const manta__conn *c)
{
  return c->out.len > 0;
}

// --- sending ------------------------------------------------------------------------------------

// How much may go into one sendmsg: up to the next descriptors, which begin a message of their own.
static size_t stretch(const manta__conn *c, size_t at)
{
  int first = c->marks > 0 && c->mark[0].at == c->out_at + at ? 1 : 0;
  if (c->marks > first)
    return (size_t)(c->mark[first].at - c->out_at) - at;
  return c->out.len - at;
}

static void drop_mark(manta__conn *c)
{
  manta__fd_close_all(c->mark[0].fd, c->mark[0].count);
  c->marks--;
  memmove(&c->mark[0], &c->mark[1], sizeof c->mark[0] * (size_t)c->marks);
}

static ssize_t put_bytes(manta__conn *c, const void *p, size_t n, const int *fd, int fds)
{
  ssize_t rc;
  if (!c->pipes)
    return manta__sock_send(c->sock, p, n, fd, fds);
  do
    rc = write(c->out_fd, p, n);
  while (rc < 0 && errno == EINTR);
  return rc;
}

static ssize_t get_bytes(manta__conn *c, void *p, size_t n, int *count)
{
  ssize_t rc;
  if (!c->pipes)
    return manta__sock_recv(c->sock, p, n, c->in_fd + c->in_fds, MAX_QUEUED_FDS - c->in_fds, count);
  *count = 0;
  do
    rc = read(c->sock, p, n);
  while (rc < 0 && errno == EINTR);
  return rc;
}

static void consume(manta__conn *c, size_t n)
{
  manta__buf_consume(&c->out, n);
  c->out_at += n;
}

// MANTA_OK: the socket is full.
static manta_status why_not_sent(manta_error *err)
{
  if (errno == EAGAIN || errno == EWOULDBLOCK)
    return MANTA_OK;
  bool closed = errno == EPIPE || errno == ECONNRESET;
  return manta_error_set(err, closed ? MANTA_ECLOSED : MANTA_EIO, "send: %m");
}

manta_status manta__conn_flush(manta__conn *c, manta_error *err)
{
  size_t at = 0;
  manta_status st = MANTA_OK;
  while (at < c->out.len) {
    bool fds = c->marks > 0 && c->mark[0].at == c->out_at + at;
    ssize_t n = put_bytes(c, c->out.data + at, stretch(c, at), fds ? c->mark[0].fd : NULL,
                          fds ? c->mark[0].count : 0);
    if (n < 0) {
      st = why_not_sent(err);
      break;
    }
    if (fds)
      drop_mark(c);
    at += (size_t)n;
  }
  consume(c, at);
  return st;
}

// Copies of them, to go with what is queued from `at` on.
static manta_status queue_fds(manta__conn *c, uint64_t at, const int *fd, int count,
                              manta_error *err)
{
  if (count == 0)
    return MANTA_OK;
  if (c->marks == (int)(sizeof c->mark / sizeof *c->mark))
    return manta_error_set(err, MANTA_ETOOBIG, "too many descriptors on their way to a peer");
  struct fd_mark *k = &c->mark[c->marks];
  *k = (struct fd_mark){.at = at};
  for (int i = 0; i < count; i++) {
    k->fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 0);
    if (k->fd[i] < 0) {
      manta_error_set(err, MANTA_EIO, "dup: %m");
      manta__fd_close_all(k->fd, i);
      return MANTA_EIO;
    }
    k->count++;
  }
  c->marks++;
  return MANTA_OK;
}

// A frame that is alone in the queue: most leave at once, and their descriptors need no copies.
static manta_status send_first(manta__conn *c, const int *fd, int fds, manta_error *err)
{
  ssize_t n = put_bytes(c, c->out.data, c->out.len, fd, fds);
  manta_status st = MANTA_OK;
  if (n < 0 && (st = why_not_sent(err)) == MANTA_OK)
    st = queue_fds(c, c->out_at, fd, fds, err);
  if (st < 0)
    manta__buf_consume(&c->out, c->out.len);
  else if (n > 0)
    consume(c, (size_t)n);
  return st;
}

static manta_status send_frame(manta__conn *c, const struct manta__msg *m, uint8_t flags,
                               const void *data, size_t len, const int *fd, int fds,
                               manta_error *err)
{
  struct manta__frame f = {.magic = MANTA__FRAME_MAGIC,
                           .kind = m->kind,
                           .fds = (uint8_t)fds,
                           .flags = (uint8_t)(m->flags | flags),
                           .len = (uint32_t)len,
                           .group = m->group,
                           .id = m->id,
                           .call = m->call};
  f.hash = frame_hash(&f, data);
  manta_status st = manta__buf_reserve(&c->out, sizeof f + len);
  if (st == MANTA_ENOMEM)
    return manta_error_set(err, st, "no memory for a message of %zu bytes", len);
  if (st < 0)
    return manta_error_set(err, st, "a peer does not read: %zu bytes wait for it", c->out.len);
  bool first = c->out.len == 0;
  if (!first)
    MANTA_TRY(queue_fds(c, c->out_at + c->out.len, fd, fds, err));
  manta__buf_append(&c->out, &f, sizeof f);
  manta__buf_append(&c->out, data, len);
  return first ? send_first(c, fd, fds, err) : manta__conn_flush(c, err);
}

// A payload too big for a frame: its bytes go into a memfd, the frame carries only their number.
static manta_status send_blob(manta__conn *c, const struct manta__msg *m, manta_error *err)
{
  if (m->len > MANTA__BLOB_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "a message of %zu bytes is over the limit of %llu",
                           m->len, (unsigned long long)MANTA__BLOB_MAX);
  if (m->fds >= MANTA__MSG_FDS)
    return manta_error_set(err, MANTA_EINVAL, "too many descriptors in one message");
  int fd[MANTA__MSG_FDS];
  void *p;
  size_t bytes;
  memcpy(fd, m->fd, sizeof fd);
  MANTA_TRY(manta__shm_create("manta-blob", m->len, &fd[m->fds], err));
  manta_status st = manta__shm_map(fd[m->fds], &p, &bytes, err);
  if (st == MANTA_OK) {
    memcpy(p, m->data, m->len);
    manta__shm_unmap(p, bytes);
    uint64_t len = m->len;
    st = send_frame(c, m, MANTA__FRAME_BLOB, &len, sizeof len, fd, m->fds + 1, err);
  }
  close(fd[m->fds]);
  return st;
}

static manta_status look(const manta__conn *c, const struct manta__msg *m, bool out,
                         manta_error *err)
{
  return MANTA__CHECKED && c->check ? c->check->look(c->check, m, out, err) : MANTA_OK;
}

manta_status manta__conn_send(manta__conn *c, const struct manta__msg *m, manta_error *err)
{
  MANTA_TRY(look(c, m, true, err));
  if (m->fds < 0 || m->fds > MANTA__MSG_FDS)
    return manta_error_set(err, MANTA_EINVAL, "too many descriptors in one message");
  if (c->pipes && (m->fds > 0 || m->len > MANTA__FRAME_MAX))
    return manta_error_set(err, MANTA_EINVAL, "descriptors, or %zu bytes, over pipes", m->len);
  if (!c->pipes && m->len > MANTA__FRAME_INLINE && !(m->flags & MANTA__FRAME_BLOB))
    return send_blob(c, m, err);
  return send_frame(c, m, 0, m->data, m->len, m->fd, m->fds, err);
}

manta_status manta__conn_send_value(manta__conn *c, const struct manta__msg *m,
                                    const manta_value *v, manta_error *err)
{
  struct manta__msg full = *m;
  void *bytes;
  MANTA_TRY(manta_value_pack(v, &bytes, &full.len, err));
  full.data = bytes;
  manta_status st = manta__conn_send(c, &full, err);
  manta_free(bytes);
  return st;
}

manta_status manta__conn_drain(manta__conn *c, int64_t by, manta_error *err)
{
  for (;;) {
    MANTA_TRY(manta__conn_flush(c, err));
    if (!manta__conn_pending(c))
      return MANTA_OK;
    int rc = manta__fd_wait(c->out_fd, true, by);
    if (rc <= 0)
      return manta_error_set(err, rc ? MANTA_EIO : MANTA_ETIMEDOUT, "a peer does not read");
  }
}

// --- receiving ----------------------------------------------------------------------------------

// Room for `need` bytes from in_at on.
static manta_status make_room(manta__conn *c, size_t need, manta_error *err)
{
  if (c->in_at > 0) {
    memmove(c->in, c->in + c->in_at, c->in_len - c->in_at);
    c->in_len -= c->in_at;
    c->in_at = 0;
  }
  if (need <= c->in_cap)
    return MANTA_OK;
  uint8_t *p = manta__realloc(c->in, need);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a message of %zu bytes", need);
  c->in = p;
  c->in_cap = need;
  return MANTA_OK;
}

// 1: got bytes, 0: none now, negative: error or end.
static int fill(manta__conn *c, size_t need, manta_error *err)
{
  MANTA_TRY(make_room(c, need < RECV_CHUNK ? RECV_CHUNK : need, err));
  int count;
  ssize_t n = get_bytes(c, c->in + c->in_len, c->in_cap - c->in_len, &count);
  c->in_fds += count;
  if (n > 0) {
    c->in_len += (size_t)n;
    return 1;
  }
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return 0;
  c->closed = true; // after an error, too: bytes or descriptors may be lost
  if (n < 0 && errno != ECONNRESET)
    return manta_error_set(err, MANTA_EIO, "receive: %m");
  return manta_error_set(err, MANTA_ECLOSED, "the other end closed the connection");
}

static manta_status check_head(const struct manta__frame *f, manta_error *err)
{
  if (f->magic != MANTA__FRAME_MAGIC || f->len > MANTA__FRAME_MAX || f->fds > MANTA__MSG_FDS ||
      ((f->flags & MANTA__FRAME_BLOB) && (f->fds == 0 || f->len != sizeof(uint64_t))))
    return manta_error_set(err, MANTA_EPROTO, "malformed frame");
  return MANTA_OK;
}

static bool begins_well(const uint8_t *p, size_t n)
{
  static const uint32_t magic = MANTA__FRAME_MAGIC;
  return memcmp(p, &magic, n < sizeof magic ? n : sizeof magic) == 0;
}

static void give(manta__conn *c, const struct manta__frame *f, const uint8_t *data,
                 struct manta__msg *m)
{
  *m = (struct manta__msg){.kind = f->kind,
                           .flags = f->flags,
                           .group = f->group,
                           .id = f->id,
                           .call = f->call,
                           .data = data,
                           .len = f->len,
                           .fds = f->fds};
  for (int i = 0; i < MANTA__MSG_FDS; i++)
    m->fd[i] = i < f->fds ? c->in_fd[i] : -1;
  c->in_fds -= f->fds;
  memmove(c->in_fd, c->in_fd + f->fds, sizeof(int) * (size_t)c->in_fds);
  c->in_at += sizeof *f + f->len;
}

int manta__conn_recv(manta__conn *c, struct manta__msg *m, manta_error *err)
{
  for (;;) {
    size_t have = c->in_len - c->in_at, need = sizeof(struct manta__frame);
    if (have > 0 && !begins_well(c->in + c->in_at, have)) // no frame: do not wait for its end
      return manta_error_set(err, MANTA_EPROTO, "malformed frame");
    if (have >= need) {
      struct manta__frame f;
      memcpy(&f, c->in + c->in_at, sizeof f);
      MANTA_TRY(check_head(&f, err));
      need += f.len;
      if (have >= need) {
        const uint8_t *data = c->in + c->in_at + sizeof f;
        if (f.hash != frame_hash(&f, data))
          return manta_error_set(err, MANTA_EPROTO, "frame of kind %u fails its checksum", f.kind);
        if (f.fds > c->in_fds)
          return manta_error_set(err, MANTA_EPROTO, "frame of kind %u lacks a descriptor", f.kind);
        give(c, &f, data, m);
        manta_status st = look(c, m, false, err);
        if (st < 0)
          manta__msg_close(m);
        return st < 0 ? st : 1;
      }
    }
    if (c->closed)
      return manta_error_set(err, MANTA_ECLOSED, "the other end closed the connection");
    int rc = fill(c, need, err);
    if (rc <= 0)
      return rc;
  }
}

int manta__conn_wait(manta__conn *c, int64_t by, struct manta__msg *m, manta_error *err)
{
  for (;;) {
    int rc = manta__conn_recv(c, m, err);
    if (rc != 0)
      return rc;
    rc = manta__fd_wait(c->sock, false, by);
    if (rc == 0)
      return manta_error_set(err, MANTA_ETIMEDOUT, "no message in time");
    if (rc < 0)
      return manta_error_set(err, MANTA_EIO, "poll: %m");
  }
}

manta_status manta__msg_value(const struct manta__msg *m, manta_value *out, manta_error *err)
{
  if (m->len == 0) {
    manta_value_set_nil(out);
    return MANTA_OK;
  }
  if (!(m->flags & MANTA__FRAME_BLOB))
    return manta_value_unpack(out, m->data, m->len, err);
  void *p;
  size_t bytes;
  uint64_t claimed;
  memcpy(&claimed, m->data, sizeof claimed);
  MANTA_TRY(manta__shm_map(m->fd[m->fds - 1], &p, &bytes, err));
  manta_status st = bytes != claimed || bytes > MANTA__BLOB_MAX
                        ? manta_error_set(err, MANTA_EPROTO, "a blob of %zu bytes, not of %llu",
                                          bytes, (unsigned long long)claimed)
                        : manta_value_unpack(out, p, bytes, err);
  manta__shm_unmap(p, bytes);
  return st;
}

bool manta__msg_copy(const struct manta__msg *m, void *out, size_t size)
{
  if (m->len != size || (m->flags & MANTA__FRAME_BLOB))
    return false;
  memcpy(out, m->data, size);
  return true;
}

int manta__msg_take_fd(struct manta__msg *m, int i)
{
  if (i < 0 || i >= m->fds)
    return -1;
  int fd = m->fd[i];
  m->fd[i] = -1;
  return fd;
}

void manta__msg_close(struct manta__msg *m)
{
  manta__fd_close_all(m->fd, m->fds);
  m->fds = 0;
}
