/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define PIECES_AT_ONCE 16 // before the other direction has its turn
#define MAX_INCOMING   16

enum { MESSAGE = 1, PIECE = 2 }; // kinds of the frames below

struct stream_head { // of a MESSAGE; its payload follows
  uint16_t kind;
  uint8_t flags, fds;
  uint32_t group;
  struct manta__ident id;
  uint64_t call;
  uint64_t content[MANTA__MSG_FDS]; // numbers
};

struct stream_piece { // its bytes follow
  uint64_t content, at, total;
};

struct parcel { // a message that waits for its content to be sent, or for one before it
  struct parcel *next;
  uint64_t lane;
  struct stream_head head;
  int fd[MANTA__MSG_FDS];
  int at;          // which of them is being sent
  uint64_t offset; // in it
  size_t len;
  uint8_t data[];
};

struct incoming {   // content that has come, whole or in part
  uint64_t content; // 0: unused
  uint64_t got, total;
  int fd;
};

struct manta__stream {
  manta__conn *conn;
  const struct manta__conn_check *check;
  uint64_t contents; // numbers given out
  struct parcel *first, **last;
  int parcels;
  bool more;
  struct incoming in[MAX_INCOMING];
};

manta_status manta__stream_create(manta__stream **out, int in, int out_fd,
                                  const struct manta__conn_check *check, manta_error *err)
{
  manta__stream *s = manta__calloc(1, sizeof *s);
  manta_status st = s ? manta__conn_create_pipes(&s->conn, in, out_fd, MANTA__STREAM_BACKLOG, err)
                      : manta_error_set(err, MANTA_ENOMEM, "no memory for a stream");
  if (st < 0) {
    close(in);
    if (out_fd != in)
      close(out_fd);
    manta__free(s);
    return st;
  }
  s->check = check;
  s->last = &s->first;
  *out = s;
  return MANTA_OK;
}

static void parcel_free(struct parcel *p)
{
  manta__fd_close_all(p->fd, p->head.fds);
  manta__free(p);
}

void manta__stream_destroy(manta__stream *s)
{
  if (!s)
    return;
  for (struct parcel *p = s->first, *next; p; p = next) {
    next = p->next;
    parcel_free(p);
  }
  for (int i = 0; i < MAX_INCOMING; i++)
    if (s->in[i].content)
      close(s->in[i].fd);
  manta__conn_destroy(s->conn);
  manta__free(s);
}

int manta__stream_in(const manta__stream *s)
{
  return manta__conn_fd(s->conn);
}

int manta__stream_out(const manta__stream *s)
{
  return manta__conn_out_fd(s->conn);
}

bool manta__stream_pending(const manta__stream *s)
{
  return manta__conn_pending(s->conn) || s->first;
}

size_t manta__stream_queued(const manta__stream *s)
{
  return manta__conn_queued(s->conn);
}

// --- sending ------------------------------------------------------------------------------------

static manta_status send_parts(manta__stream *s, uint16_t kind, const void *head, size_t head_len,
                               const void *data, size_t len, manta_error *err)
{
  uint8_t small[4096],
      *all = head_len + len <= sizeof small ? small : manta__malloc(head_len + len);
  if (!all)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a message of %zu bytes", len);
  memcpy(all, head, head_len);
  if (len)
    memcpy(all + head_len, data, len);
  struct manta__msg m = {.kind = kind, .data = all, .len = head_len + len};
  manta_status st = manta__conn_send(s->conn, &m, err);
  if (all != small)
    manta__free(all);
  return st;
}

static manta_status send_piece(manta__stream *s, struct parcel *p, manta_error *err)
{
  uint8_t bytes[MANTA__STREAM_PIECE];
  struct stat sb;
  if (fstat(p->fd[p->at], &sb) < 0 || (uint64_t)sb.st_size > MANTA__STREAM_MAX)
    return manta_error_set(err, MANTA_EIO, "content of a message: %m");
  struct stream_piece k = {p->head.content[p->at], p->offset, (uint64_t)sb.st_size};
  uint64_t left = k.total - k.at;
  size_t want = left < sizeof bytes ? (size_t)left : sizeof bytes;
  ssize_t n = want ? pread(p->fd[p->at], bytes, want, (off_t)k.at) : 0;
  if (n < 0 || (want && n == 0))
    return manta_error_set(err, MANTA_EIO, "content of a message: %m");
  p->offset += (uint64_t)n;
  if (p->offset == k.total) {
    p->at++;
    p->offset = 0;
  }
  return send_parts(s, PIECE, &k, sizeof k, bytes, (size_t)n, err);
}

static manta_status step(manta__stream *s, manta_error *err)
{
  struct parcel *p = s->first;
  if (p->at < p->head.fds)
    return send_piece(s, p, err);
  manta_status st = send_parts(s, MESSAGE, &p->head, sizeof p->head, p->data, p->len, err);
  s->first = p->next;
  s->parcels--;
  if (!s->first)
    s->last = &s->first;
  parcel_free(p);
  return st;
}

manta_status manta__stream_flush(manta__stream *s, manta_error *err)
{
  MANTA_TRY(manta__conn_flush(s->conn, err));
  for (int i = 0; i < PIECES_AT_ONCE && s->first && !manta__conn_pending(s->conn); i++)
    MANTA_TRY(step(s, err));
  return MANTA_OK;
}

static bool must_wait(const manta__stream *s, const struct manta__msg *m, uint64_t lane)
{
  if (m->fds > 0)
    return true;
  for (const struct parcel *p = s->first; p && lane; p = p->next)
    if (p->lane == lane)
      return true;
  return false;
}

static manta_status queue(manta__stream *s, const struct stream_head *h, const struct manta__msg *m,
                          uint64_t lane, manta_error *err)
{
  if (s->parcels >= MANTA__STREAM_WAITING)
    return manta_error_set(err, MANTA_ETOOBIG, "%d messages wait for a slow stream", s->parcels);
  struct parcel *p = manta__malloc(sizeof *p + m->len);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a message of %zu bytes", m->len);
  *p = (struct parcel){.lane = lane, .head = *h, .len = m->len};
  p->head.fds = 0;
  if (m->len)
    memcpy(p->data, m->data, m->len);
  for (int i = 0; i < m->fds; i++) {
    p->fd[i] = fcntl(m->fd[i], F_DUPFD_CLOEXEC, 0);
    if (p->fd[i] < 0) {
      parcel_free(p);
      return manta_error_set(err, MANTA_EIO, "dup: %m");
    }
    p->head.content[i] = ++s->contents;
    p->head.fds++;
  }
  *s->last = p;
  s->last = &p->next;
  s->parcels++;
  return manta__stream_flush(s, err);
}

static manta_status look(const manta__stream *s, const struct manta__msg *m, bool out,
                         manta_error *err)
{
  return MANTA__CHECKED && s->check ? s->check->look(s->check, m, out, err) : MANTA_OK;
}

manta_status manta__stream_send(manta__stream *s, const struct manta__msg *m, uint64_t lane,
                                manta_error *err)
{
  MANTA_TRY(look(s, m, true, err));
  struct stream_head h = {
      .kind = m->kind, .flags = m->flags, .group = m->group, .id = m->id, .call = m->call};
  if (m->fds < 0 || m->fds > MANTA__MSG_FDS || m->len > MANTA__FRAME_MAX - sizeof h)
    return manta_error_set(err, MANTA_EINVAL, "a message of %zu bytes and %d descriptors", m->len,
                           m->fds);
  if (must_wait(s, m, lane))
    return queue(s, &h, m, lane, err);
  return send_parts(s, MESSAGE, &h, sizeof h, m->data, m->len, err);
}

manta_status manta__stream_send_value(manta__stream *s, const struct manta__msg *m, uint64_t lane,
                                      const manta_value *v, manta_error *err)
{
  struct manta__msg full = *m;
  void *bytes;
  MANTA_TRY(manta_value_pack(v, &bytes, &full.len, err));
  full.data = bytes;
  manta_status st = manta__stream_send(s, &full, lane, err);
  manta_free(bytes);
  return st;
}

// --- receiving ----------------------------------------------------------------------------------

static struct incoming *find(manta__stream *s, uint64_t content)
{
  for (int i = 0; i < MAX_INCOMING; i++)
    if (s->in[i].content == content)
      return &s->in[i];
  return NULL;
}

static manta_status begin_content(manta__stream *s, const struct stream_piece *k,
                                  struct incoming **out, manta_error *err)
{
  struct incoming *c = find(s, 0);
  int fd;
  if (!c || k->content == 0 || k->total > MANTA__STREAM_MAX)
    return manta_error_set(err, MANTA_EPROTO, "malformed content");
  MANTA_TRY(manta__shm_create("manta-content", (size_t)k->total, &fd, err));
  *c = (struct incoming){.content = k->content, .total = k->total, .fd = fd};
  *out = c;
  return MANTA_OK;
}

static manta_status take_piece(manta__stream *s, const struct manta__msg *m, manta_error *err)
{
  struct stream_piece k;
  if (m->len < sizeof k)
    return manta_error_set(err, MANTA_EPROTO, "malformed content");
  memcpy(&k, m->data, sizeof k);
  size_t n = m->len - sizeof k;
  struct incoming *c = k.content ? find(s, k.content) : NULL;
  if (!c)
    MANTA_TRY(begin_content(s, &k, &c, err));
  if (k.at != c->got || k.total != c->total || n > c->total - c->got)
    return manta_error_set(err, MANTA_EPROTO, "malformed content");
  if (n && pwrite(c->fd, (const uint8_t *)m->data + sizeof k, n, (off_t)k.at) != (ssize_t)n)
    return manta_error_set(err, MANTA_ENOMEM, "content of %llu bytes: %m",
                           (unsigned long long)c->total);
  c->got += n;
  return MANTA_OK;
}

static manta_status open_message(manta__stream *s, struct manta__msg *m, manta_error *err)
{
  struct stream_head h;
  if (m->len < sizeof h || (memcpy(&h, m->data, sizeof h), h.fds > MANTA__MSG_FDS))
    return manta_error_set(err, MANTA_EPROTO, "malformed message");
  struct manta__msg out = {.kind = h.kind,
                           .flags = h.flags,
                           .group = h.group,
                           .id = h.id,
                           .call = h.call,
                           .data = (const uint8_t *)m->data + sizeof h,
                           .len = m->len - sizeof h};
  for (int i = 0; i < MANTA__MSG_FDS; i++)
    out.fd[i] = -1;
  for (int i = 0; i < h.fds; i++) {
    struct incoming *c = h.content[i] ? find(s, h.content[i]) : NULL;
    if (!c || c->got != c->total) {
      manta__msg_close(&out);
      return manta_error_set(err, MANTA_EPROTO, "a message lacks its content");
    }
    out.fd[out.fds++] = c->fd;
    *c = (struct incoming){0};
  }
  if ((out.flags & MANTA__FRAME_BLOB) && (out.fds == 0 || out.len != sizeof(uint64_t))) {
    manta__msg_close(&out);
    return manta_error_set(err, MANTA_EPROTO, "malformed message");
  }
  *m = out;
  return MANTA_OK;
}

bool manta__stream_more(const manta__stream *s)
{
  return s->more;
}

int manta__stream_recv(manta__stream *s, struct manta__msg *m, bool *heard, manta_error *err)
{
  s->more = false;
  for (int i = 0; i < PIECES_AT_ONCE * 4; i++) {
    int rc = manta__conn_recv(s->conn, m, err);
    if (rc <= 0)
      return rc;
    if (heard)
      *heard = true;
    if (m->kind == MESSAGE) {
      MANTA_TRY(open_message(s, m, err));
      manta_status st = look(s, m, false, err);
      if (st < 0)
        manta__msg_close(m);
      return st < 0 ? st : 1;
    }
    if (m->kind != PIECE)
      return manta_error_set(err, MANTA_EPROTO, "frame of kind %u in a stream", m->kind);
    MANTA_TRY(take_piece(s, m, err));
  }
  s->more = true;
  return 0;
}
