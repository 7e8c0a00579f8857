/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections: what is sent arrives as it was, whatever the socket takes at a time; and whatever a
 * broken peer sends ends in an error, with nothing leaked.
 */
#include "base/hash.h"
#include "pair.h"
#include "sys/shm.h"

static uint8_t pattern[MANTA__FRAME_MAX + 64];

static void fill_pattern(void)
{
  for (size_t i = 0; i < sizeof pattern; i++)
    pattern[i] = (uint8_t)(i * 2654435761u >> 13);
}

static struct manta__msg message(size_t len)
{
  return (struct manta__msg){.kind = 9,
                             .group = 3,
                             .id = {.run = 1ull << 60, .attempt = 2, .rank = -1, .seq = len},
                             .call = 17,
                             .data = pattern,
                             .len = len};
}

static void check_blob(struct manta__msg *m, size_t len)
{
  manta_error err = MANTA_ERROR_INIT;
  void *p;
  size_t bytes;
  uint64_t claimed;
  assert_int_equal(m->len, sizeof claimed);
  memcpy(&claimed, m->data, sizeof claimed);
  assert_int_equal(claimed, len);
  assert_ok(manta__shm_map(m->fd[m->fds - 1], &p, &bytes, &err), &err);
  assert_int_equal(bytes, len);
  assert_memory_equal(p, pattern, len);
  manta__shm_unmap(p, bytes);
}

static void check_message(struct manta__msg *m, size_t len)
{
  assert_int_equal(m->kind, 9);
  assert_int_equal(m->group, 3);
  assert_int_equal(m->call, 17);
  assert_true(m->id.run == 1ull << 60 && m->id.attempt == 2 && m->id.rank == -1);
  assert_int_equal(m->id.seq, len);
  if (m->flags & MANTA__FRAME_BLOB) {
    assert_true(len > MANTA__FRAME_INLINE);
    check_blob(m, len);
  } else {
    assert_int_equal(m->len, len);
    if (len)
      assert_memory_equal(m->data, pattern, len);
  }
}

static void receive(manta__conn *c, struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  int rc = manta__conn_wait(c, manta__deadline(10), m, &err);
  assert_ok(rc, &err);
  assert_int_equal(rc, 1);
}

static void every_size_arrives(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pair p;
  struct manta__msg in;
  pair_open(&p);
  for (size_t n = 0; n <= MANTA__FRAME_MAX; n = n < 300 ? n + 1 : n * 9 / 8 + 1) {
    struct manta__msg out = message(n);
    assert_ok(manta__conn_send(p.a, &out, &err), &err);
    receive(p.b, &in);
    check_message(&in, n);
    manta__msg_close(&in);
  }
  static const size_t edge[] = {MANTA__FRAME_INLINE, MANTA__FRAME_INLINE + 1, MANTA__FRAME_MAX};
  for (int i = 0; i < 3; i++) {
    struct manta__msg out = message(edge[i]);
    assert_ok(manta__conn_send(p.a, &out, &err), &err);
    receive(p.b, &in);
    assert_int_equal((in.flags & MANTA__FRAME_BLOB) != 0, i > 0);
    check_message(&in, edge[i]);
    manta__msg_close(&in);
  }
  assert_int_equal(manta__conn_recv(p.b, &in, &err), 0);
  pair_close(&p);
}

static void a_blob_can_be_forwarded_unseen(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pair p, q;
  struct manta__msg in, out = message(500000);
  pair_open(&p);
  pair_open(&q);
  out.fd[0] = numbered_fd(5);
  out.fds = 1;
  assert_ok(manta__conn_send(p.a, &out, &err), &err);
  close(out.fd[0]);
  receive(p.b, &in);
  assert_ok(manta__conn_send(q.a, &in, &err), &err);
  manta__msg_close(&in);
  receive(q.b, &in);
  assert_int_equal(in.fds, 2);
  assert_int_equal(number_of(in.fd[0]), 5);
  check_message(&in, 500000);
  manta__msg_close(&in);
  pair_close(&p);
  pair_close(&q);
}

static void values_arrive_inline_and_as_blobs(void **ctx)
{
  static const size_t sizes[] = {1, 100, 60000, 70000, 3000000};
  manta_error err = MANTA_ERROR_INIT;
  struct pair p;
  pair_open(&p);
  for (int i = 0; i < 5; i++) {
    char *text = malloc(sizes[i] + 1);
    memset(text, 'x', sizes[i]);
    text[sizes[i]] = 0;
    manta_value v = {0}, got = {0};
    struct manta__msg in, out = {.kind = 4};
    assert_ok(manta_value_set_map(&v), &err);
    assert_ok(manta_value_put_string(&v, "text", text), &err);
    assert_ok(manta__conn_send_value(p.a, &out, &v, &err), &err);
    receive(p.b, &in);
    assert_ok(manta__msg_value(&in, &got, &err), &err);
    assert_string_equal(manta_value_as_string(manta_value_get(&got, "text"), ""), text);
    manta__msg_close(&in);
    manta_value_fini(&v);
    manta_value_fini(&got);
    free(text);
  }
  pair_close(&p);
}

// --- descriptors --------------------------------------------------------------------------------

static void send_numbered(manta__conn *c, int first, int fds, size_t len)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg out = message(len);
  out.fds = fds;
  for (int i = 0; i < fds; i++)
    out.fd[i] = numbered_fd(first + i);
  assert_ok(manta__conn_send(c, &out, &err), &err);
  manta__fd_close_all(out.fd, fds); // borrowed: ours to close at once
}

static void check_numbered(struct manta__msg *m, int first, int fds, size_t len)
{
  check_message(m, len);
  assert_int_equal(m->fds - (m->flags & MANTA__FRAME_BLOB ? 1 : 0), fds);
  for (int i = 0; i < fds; i++) {
    assert_int_equal(number_of(m->fd[i]), first + i);
    assert_int_equal(fcntl(m->fd[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  for (int i = m->fds; i < MANTA__MSG_FDS; i++)
    assert_int_equal(m->fd[i], -1);
}

// Messages with and without descriptors in turn, queued behind a full socket.
static void descriptors_stay_with_their_message(void **ctx)
{
  int before = open_fds();
  struct pair p;
  pair_open(&p);
  for (int round = 0; round < 40; round++) {
    for (int i = 0; i < 30; i++)
      send_numbered(p.a, i * 10, (i * 7 + round) % (MANTA__MSG_FDS + 1),
                    (size_t)((i * 7919 + round * 131) % 60000));
    for (int i = 0; i < 30; i++) {
      struct manta__msg in;
      manta_error err = MANTA_ERROR_INIT;
      receive(p.b, &in);
      check_numbered(&in, i * 10, (i * 7 + round) % (MANTA__MSG_FDS + 1),
                     (size_t)((i * 7919 + round * 131) % 60000));
      manta__msg_close(&in);
      manta__msg_close(&in);
      assert_ok(manta__conn_flush(p.a, &err), &err);
    }
    assert_false(manta__conn_pending(p.a));
  }
  pair_close(&p);
  assert_int_equal(open_fds(), before);
}

static void taken_descriptors_are_not_closed(void **ctx)
{
  struct pair p;
  struct manta__msg in;
  pair_open(&p);
  send_numbered(p.a, 100, 3, 8);
  receive(p.b, &in);
  int fd = manta__msg_take_fd(&in, 1), other = in.fd[2];
  assert_int_equal(manta__msg_take_fd(&in, 1), -1);
  assert_int_equal(manta__msg_take_fd(&in, 3), -1);
  assert_int_equal(manta__msg_take_fd(&in, -1), -1);
  manta__msg_close(&in);
  assert_int_equal(number_of(fd), 101);
  assert_int_equal(fcntl(other, F_GETFD), -1);
  close(fd);
  pair_close(&p);
}

static void too_many_descriptors_are_refused(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  int before = open_fds();
  struct pair p;
  pair_open(&p);
  struct manta__msg out = message(8);
  out.fds = MANTA__MSG_FDS + 1;
  assert_status(manta__conn_send(p.a, &out, &err), MANTA_EINVAL);
  out = message(100000); // the blob would be the seventh
  out.fds = MANTA__MSG_FDS;
  assert_status(manta__conn_send(p.a, &out, &err), MANTA_EINVAL);
  out = message(8);
  out.fds = 2;
  out.fd[0] = numbered_fd(1);
  out.fd[1] = 9999; // not open
  assert_status(manta__conn_send(p.a, &out, &err), MANTA_EIO);
  close(out.fd[0]);
  struct manta__msg in;
  assert_int_equal(manta__conn_recv(p.b, &in, &err), 0); // none of it was sent
  send_numbered(p.a, 1, 1, 8);
  receive(p.b, &in);
  check_numbered(&in, 1, 1, 8);
  manta__msg_close(&in);
  pair_close(&p);
  assert_int_equal(open_fds(), before);
}

// --- pieces and limits --------------------------------------------------------------------------

static size_t frame_of(const struct manta__msg *m, uint8_t *out)
{
  struct manta__frame f = {.magic = MANTA__FRAME_MAGIC,
                           .kind = m->kind,
                           .fds = (uint8_t)m->fds,
                           .flags = m->flags,
                           .len = (uint32_t)m->len,
                           .group = m->group,
                           .id = m->id,
                           .call = m->call};
  uint64_t seed = manta__hash(&f, offsetof(struct manta__frame, hash));
  f.hash = manta__hash_seed(m->data, m->len, seed);
  memcpy(out, &f, sizeof f);
  memcpy(out + sizeof f, m->data, m->len);
  return sizeof f + m->len;
}

/* A connection fed by hand. */
static manta__conn *raw_open(int *raw)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__conn *c = NULL;
  int end[2];
  assert_ok(manta__sock_pair(end, &err), &err);
  assert_ok(manta__conn_create(&c, end[1], NULL, &err), &err);
  *raw = end[0];
  return c;
}

static void bytes_one_by_one_make_a_message(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  uint8_t bytes[400];
  struct manta__msg in, out = message(300);
  int raw, fd = numbered_fd(3);
  manta__conn *c = raw_open(&raw);
  out.fds = 1;
  size_t n = frame_of(&out, bytes);
  for (int round = 0; round < 3; round++)
    for (size_t i = 0; i < n; i++) {
      assert_int_equal(manta__sock_send(raw, bytes + i, 1, &fd, i == 0), 1);
      int rc = manta__conn_recv(c, &in, &err);
      assert_ok(rc, &err);
      assert_int_equal(rc, i == n - 1);
      if (rc) {
        check_numbered(&in, 3, 1, 300);
        manta__msg_close(&in);
      }
    }
  close(raw);
  close(fd);
  manta__conn_destroy(c);
}

static void a_peer_that_does_not_read_is_an_error(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pair p;
  struct manta__msg in, out = message(60000);
  manta_status st;
  int sent = 0, got = 0;
  pair_open(&p);
  while ((st = manta__conn_send(p.a, &out, &err)) == MANTA_OK)
    assert_true(++sent < 1000);
  assert_status(st, MANTA_ETOOBIG);
  assert_has(err.message, "does not read");
  assert_true((size_t)sent * 60000 >= MANTA__CONN_BACKLOG - 120000);
  assert_true((size_t)sent * 60000 < MANTA__CONN_BACKLOG + (4u << 20));
  assert_status(manta__conn_send(p.a, &out, &err), MANTA_ETOOBIG);
  assert_true(manta__conn_pending(p.a));
  assert_status(manta__conn_drain(p.a, manta__now() + 1000000, &err), MANTA_ETIMEDOUT);
  // Not one is torn: the peer gets every message that was accepted.
  while (got < sent) {
    if (manta__conn_recv(p.b, &in, &err) == 1) {
      check_message(&in, 60000);
      got++;
    } else
      assert_ok(manta__conn_flush(p.a, &err), &err);
  }
  assert_ok(manta__conn_drain(p.a, manta__deadline(1), &err), &err);
  assert_int_equal(manta__conn_recv(p.b, &in, &err), 0);
  pair_close(&p);
}

static void descriptors_in_flight_are_limited(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  int before = open_fds(), accepted = 0;
  struct pair p;
  pair_open(&p);
  struct manta__msg out = message(60000);
  out.fd[0] = numbered_fd(1);
  out.fds = 1;
  manta_status st;
  while ((st = manta__conn_send(p.a, &out, &err)) == MANTA_OK)
    assert_true(++accepted < 1000);
  assert_status(st, MANTA_ETOOBIG);
  assert_has(err.message, "descriptors");
  assert_true(open_fds() - before < 300);
  close(out.fd[0]);
  pair_close(&p); // with all of them queued
  assert_int_equal(open_fds(), before);
}

static void a_blob_over_the_limit_is_refused(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pair p;
  struct manta__msg out = message(0);
  pair_open(&p);
  out.len = MANTA__BLOB_MAX + 1;
  assert_status(manta__conn_send(p.a, &out, &err), MANTA_ETOOBIG);
  assert_has(err.message, "1073741824");
  pair_close(&p);
}

// --- broken peers -------------------------------------------------------------------------------

/* Sends these bytes and two descriptors, then closes; what the receiver says in the end. */
static int feed(const uint8_t *bytes, size_t n, int *messages)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg in;
  int raw, rc, fd[2] = {numbered_fd(1), numbered_fd(2)};
  manta__conn *c = raw_open(&raw);
  assert_int_equal(manta__sock_send(raw, bytes, n, fd, 2), n);
  close(raw);
  manta__fd_close_all(fd, 2);
  *messages = 0;
  while ((rc = manta__conn_recv(c, &in, &err)) == 1) {
    ++*messages;
    manta__msg_close(&in);
  }
  assert_true(rc < 0);
  assert_int_equal(manta__conn_recv(c, &in, &err), rc); // it stays broken
  manta__conn_destroy(c);
  return rc;
}

static void a_wrong_bit_anywhere_breaks_the_connection(void **ctx)
{
  uint8_t bytes[400];
  struct manta__msg out = message(100);
  out.fds = 2;
  size_t n = frame_of(&out, bytes);
  int before = open_fds(), messages, closed = 0;
  assert_status(feed(bytes, n, &messages), MANTA_ECLOSED);
  assert_int_equal(messages, 1);
  for (size_t i = 0; i < n; i++)
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (uint8_t)(1 << bit);
      int rc = feed(bytes, n, &messages);
      assert_int_equal(messages, 0);
      // A bigger length waits for bytes that never come.
      bool longer = i >= offsetof(struct manta__frame, len) &&
                    i < offsetof(struct manta__frame, len) + 4 && rc == MANTA_ECLOSED;
      closed += longer;
      if (!longer)
        assert_status(rc, MANTA_EPROTO);
      bytes[i] ^= (uint8_t)(1 << bit);
    }
  assert_in_range(closed, 1, 31);
  assert_int_equal(open_fds(), before);
}

static void a_peer_that_goes_mid_frame_is_gone(void **ctx)
{
  uint8_t bytes[800];
  struct manta__msg out = message(100);
  out.fds = 1;
  size_t n = frame_of(&out, bytes);
  int before = open_fds(), messages;
  frame_of(&out, bytes + n);
  for (size_t cut = 1; cut < 2 * n; cut++) {
    assert_status(feed(bytes, cut, &messages), MANTA_ECLOSED);
    assert_int_equal(messages, cut >= n);
  }
  assert_int_equal(open_fds(), before);
}

/* A frame whose checksum is right and whose claims are not. */
static void claim(uint32_t len, uint8_t fds, uint8_t flags, int want)
{
  uint8_t bytes[400];
  struct manta__msg out = message(100);
  int messages;
  out.fds = fds;
  out.flags = flags;
  frame_of(&out, bytes);
  struct manta__frame f;
  memcpy(&f, bytes, sizeof f);
  f.len = len;
  f.hash = manta__hash_seed(pattern, 100, manta__hash(&f, offsetof(struct manta__frame, hash)));
  memcpy(bytes, &f, sizeof f);
  assert_status(feed(bytes, sizeof f + 100, &messages), want);
  assert_int_equal(messages, 0);
}

static void claims_beyond_the_limits_are_garbage(void **ctx)
{
  int before = open_fds();
  claim(MANTA__FRAME_MAX + 1, 0, 0, MANTA_EPROTO);
  claim(UINT32_MAX, 0, 0, MANTA_EPROTO);
  claim(100, 3, 0, MANTA_EPROTO); // two came
  claim(100, MANTA__MSG_FDS + 1, 0, MANTA_EPROTO);
  claim(100, 255, 0, MANTA_EPROTO);
  claim(100, 2, MANTA__FRAME_BLOB, MANTA_EPROTO); // a blob's payload is its length
  claim(8, 0, MANTA__FRAME_BLOB, MANTA_EPROTO);   // without a blob
  claim(MANTA__FRAME_MAX, 0, 0, MANTA_ECLOSED);   // allowed, and never comes
  assert_int_equal(open_fds(), before);
}

/* What msg_value says to a blob frame that claims `len` and carries `fd`. */
static manta_status blob_value(uint64_t len, int fd)
{
  manta_error err = MANTA_ERROR_INIT;
  uint8_t bytes[100];
  manta_value v = {0};
  struct manta__msg in,
      out = {.data = &len, .len = sizeof len, .flags = MANTA__FRAME_BLOB, .fds = 1};
  int raw;
  manta__conn *c = raw_open(&raw);
  size_t n = frame_of(&out, bytes);
  assert_int_equal(manta__sock_send(raw, bytes, n, &fd, 1), n);
  receive(c, &in);
  manta_status st = manta__msg_value(&in, &v, &err);
  manta_value_fini(&v);
  manta__msg_close(&in);
  close(raw);
  close(fd);
  manta__conn_destroy(c);
  return st;
}

/* Zeros, but for its first bytes: they hold a packed string that fills all of it. */
static int sealed_fd(size_t bytes)
{
  manta_error err = MANTA_ERROR_INIT;
  uint32_t n = (uint32_t)bytes - 5;
  uint8_t head[5] = {0xdb, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
  int fd = -1;
  assert_ok(manta__shm_create("blob", bytes, &fd, &err), &err);
  assert_int_equal(pwrite(fd, head, 5, 0), 5);
  return fd;
}

static void blobs_that_lie_are_refused(void **ctx)
{
  assert_status(blob_value(100, sealed_fd(100)), MANTA_OK);
  assert_status(blob_value(4, numbered_fd(7)), MANTA_EPROTO); // not sealed
  assert_status(blob_value(101, sealed_fd(100)), MANTA_EPROTO);
  assert_status(blob_value(99, sealed_fd(100)), MANTA_EPROTO);
  assert_status(blob_value(MANTA__BLOB_MAX + 1, sealed_fd(MANTA__BLOB_MAX + 1)), MANTA_EPROTO);
}

/* Bytes with 20 descriptors, more than one receive takes: they are lost, and that must not shift
 * the ones of the next message into this one. */
static void lost_descriptors_break_the_connection(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  int before = open_fds(), raw, fd[20];
  manta__conn *c = raw_open(&raw);
  struct manta__msg in, out = message(10);
  uint8_t bytes[200];
  out.fds = 2;
  size_t n = frame_of(&out, bytes);
  for (int i = 0; i < 20; i++)
    fd[i] = numbered_fd(i);
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof fd)];
  } control = {
      .head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  memcpy(CMSG_DATA(&control.head), fd, sizeof fd);
  struct iovec io = {bytes, n};
  struct msghdr h = {.msg_iov = &io,
                     .msg_iovlen = 1,
                     .msg_control = control.room,
                     .msg_controllen = sizeof control.room};
  assert_int_equal(sendmsg(raw, &h, 0), n);
  assert_int_equal(manta__sock_send(raw, bytes, n, fd, 2), n);
  assert_status(manta__conn_recv(c, &in, &err), MANTA_EIO);
  assert_status(manta__conn_recv(c, &in, &err), MANTA_ECLOSED); // the second is not even looked at
  manta__conn_destroy(c);
  manta__fd_close_all(fd, 20);
  close(raw);
  assert_int_equal(open_fds(), before);
}

static void a_gone_peer_is_told_and_its_last_words_are_read(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pair p;
  struct manta__msg in, out = message(10);
  pair_open(&p);
  assert_ok(manta__conn_send(p.a, &out, &err), &err);
  assert_ok(manta__conn_send(p.b, &out, &err), &err); // unread by a: a reset, not only an end
  manta__conn_destroy(p.a);
  assert_status(manta__conn_send(p.b, &out, &err), MANTA_ECLOSED);
  receive(p.b, &in);
  check_message(&in, 10);
  assert_status(manta__conn_recv(p.b, &in, &err), MANTA_ECLOSED);
  assert_status(manta__conn_wait(p.b, manta__deadline(1), &in, &err), MANTA_ECLOSED);
  manta__conn_destroy(p.b);
  manta__conn_destroy(NULL);
}

static void waiting_ends_at_the_deadline(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pair p;
  struct manta__msg in;
  pair_open(&p);
  int64_t t0 = manta__now();
  assert_status(manta__conn_wait(p.a, t0 + 15000000, &in, &err), MANTA_ETIMEDOUT);
  assert_true(manta__now() - t0 >= 15000000);
  pair_close(&p);
}

static manta_status create_one(manta__conn **out, int sock, manta_error *err)
{
  return manta__conn_create(out, sock, NULL, err);
}

static void starving_is_told_and_loses_nothing(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__conn *c = NULL;
  struct pair p;
  int end[2];
  assert_ok(manta__sock_pair(end, &err), &err);
  FOR_EACH_OOM(create_one(&c, end[0], &err), manta__conn_destroy(c));
  close(end[1]);
  pair_open(&p);
  manta_value v = {0};
  assert_ok(manta_value_set_map(&v), &err);
  assert_ok(manta_value_put_string(&v, "k", "a text of some length"), &err);
  struct manta__msg in, out = {.kind = 1};
  FOR_EACH_OOM(manta__conn_send_value(p.a, &out, &v, &err), (void)0);
  FOR_EACH_OOM((manta_status)manta__conn_recv(p.b, &in, &err), (void)0);
  assert_int_equal(in.kind, 1);
  manta_value got = {0};
  FOR_EACH_OOM(manta__msg_value(&in, &got, &err), (void)0);
  assert_int_equal(manta__conn_recv(p.b, &in, &err), 0); // it was sent once
  manta_value_fini(&got);
  manta_value_fini(&v);
  pair_close(&p);
}

// A frame that finds no memory for its queue must not be called a peer that does not read.
static void starving_is_not_blamed_on_the_peer(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pair p;
  struct manta__msg out = message(10);
  pair_open(&p);
  manta__alloc_fail_after(0);
  manta_status st = manta__conn_send(p.a, &out, &err);
  manta__alloc_fail_after(-1);
  assert_status(st, MANTA_ENOMEM);
  assert_null(strstr(err.message, "does not read"));
  pair_close(&p);
}

// --- who looks at messages ----------------------------------------------------------------------

static int looked[2]; // at those received, at those sent

static manta_status dislike_3(const struct manta__conn_check *k, const struct manta__msg *m,
                              bool out, manta_error *err)
{
  looked[out]++;
  return m->kind == 3 ? manta_error_set(err, MANTA_EPROTO, "a 3") : MANTA_OK;
}

static void whoever_checks_sees_every_message(void **ctx)
{
  static const struct manta__conn_check check = {dislike_3};
  manta_error err = MANTA_ERROR_INIT;
  manta__conn *picky, *plain;
  struct manta__msg in, out = message(10);
  int end[2];
  if (!MANTA__CHECKED)
    skip_because("this build does not check messages");
  assert_ok(manta__sock_pair(end, &err), &err);
  assert_ok(manta__conn_create(&picky, end[0], &check, &err), &err);
  assert_ok(manta__conn_create(&plain, end[1], NULL, &err), &err);
  int fds = open_fds();
  assert_ok(manta__conn_send(picky, &out, &err), &err);
  assert_ok(manta__conn_send(plain, &out, &err), &err);
  receive(picky, &in);
  receive(plain, &in);
  assert_true(looked[0] == 1 && looked[1] == 1);
  out.kind = 3;
  assert_status(manta__conn_send(picky, &out, &err), MANTA_EPROTO);
  assert_string_equal(err.message, "a 3");
  assert_int_equal(manta__conn_recv(plain, &in, &err), 0); // nothing was sent
  out.fd[0] = numbered_fd(1);
  out.fds = 1;
  assert_ok(manta__conn_send(plain, &out, &err), &err);
  close(out.fd[0]);
  assert_status(manta__conn_recv(picky, &in, &err), MANTA_EPROTO);
  assert_int_equal(open_fds(), fds);
  manta__conn_destroy(picky);
  manta__conn_destroy(plain);
}

static void a_payload_of_another_size_is_no_struct(void **ctx)
{
  uint64_t n = 77, got = 0;
  struct manta__msg m = {.data = &n, .len = sizeof n};
  assert_true(manta__msg_copy(&m, &got, sizeof got));
  assert_int_equal(got, 77);
  assert_false(manta__msg_copy(&m, &got, sizeof got - 1));
  m.flags = MANTA__FRAME_BLOB; // these 8 bytes are the length of another payload
  assert_false(manta__msg_copy(&m, &got, sizeof got));
}

int main(void)
{
  fill_pattern();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_arrives),
      cmocka_unit_test(a_blob_can_be_forwarded_unseen),
      cmocka_unit_test(values_arrive_inline_and_as_blobs),
      cmocka_unit_test(descriptors_stay_with_their_message),
      cmocka_unit_test(taken_descriptors_are_not_closed),
      cmocka_unit_test(too_many_descriptors_are_refused),
      cmocka_unit_test(bytes_one_by_one_make_a_message),
      cmocka_unit_test(a_peer_that_does_not_read_is_an_error),
      cmocka_unit_test(descriptors_in_flight_are_limited),
      cmocka_unit_test(a_blob_over_the_limit_is_refused),
      cmocka_unit_test(a_wrong_bit_anywhere_breaks_the_connection),
      cmocka_unit_test(a_peer_that_goes_mid_frame_is_gone),
      cmocka_unit_test(claims_beyond_the_limits_are_garbage),
      cmocka_unit_test(blobs_that_lie_are_refused),
      cmocka_unit_test(lost_descriptors_break_the_connection),
      cmocka_unit_test(a_gone_peer_is_told_and_its_last_words_are_read),
      cmocka_unit_test(waiting_ends_at_the_deadline),
      cmocka_unit_test(starving_is_told_and_loses_nothing),
      cmocka_unit_test(starving_is_not_blamed_on_the_peer),
      cmocka_unit_test(whoever_checks_sees_every_message),
      cmocka_unit_test(a_payload_of_another_size_is_no_struct),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
