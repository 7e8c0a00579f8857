/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames. The input goes into one end of a socketpair in pieces, a connection reads the other; once
 * as it is, and once more with right magics and checksums, so that what lies behind them is reached
 * too. Whatever comes out must survive being sent again, and no descriptor may be left.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "sys/shm.h"
#include "sys/sock.h"
#include "wire/conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST (64u << 10) /* fits a socket's buffer, so that nobody has to wait */

static void need(bool ok)
{
  if (!ok)
    abort();
}

static manta__conn *connect_to(int *raw)
{
  manta__conn *c = NULL;
  int end[2];
  need(manta__sock_pair(end, NULL) == MANTA_OK);
  need(manta__conn_create(&c, end[1], NULL, NULL) == MANTA_OK);
  *raw = end[0];
  return c;
}

static bool same(const struct manta__msg *a, const struct manta__msg *b)
{
  return a->kind == b->kind && a->flags == b->flags && a->group == b->group && a->call == b->call &&
         !memcmp(&a->id, &b->id, sizeof a->id) && a->len == b->len && a->fds == b->fds &&
         !memcmp(a->data, b->data, a->len);
}

static void send_again(const struct manta__msg *m)
{
  struct manta__msg got;
  manta__conn *from = NULL;
  int raw;
  manta__conn *to = connect_to(&raw);
  need(manta__conn_create(&from, raw, NULL, NULL) == MANTA_OK);
  need(manta__conn_send(from, m, NULL) == MANTA_OK);
  need(manta__conn_recv(to, &got, NULL) == 1 && same(m, &got));
  manta__msg_close(&got);
  manta__conn_destroy(from);
  manta__conn_destroy(to);
}

// The first byte says how the rest is cut, and with how many descriptors each piece goes.
static void feed(int raw, const uint8_t *p, size_t n, uint8_t how, const int *fds)
{
  size_t piece = how & 15 ? (size_t)(how & 15) * 37 : n;
  for (size_t at = 0; at < n; at += piece) {
    size_t len = n - at < piece ? n - at : piece;
    if (manta__sock_send(raw, p + at, len, fds, (how >> 4) % 7) != (ssize_t)len)
      break;
  }
}

static void read_all(const uint8_t *p, size_t n, uint8_t how, const int *fds)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int raw, rc;
  manta__conn *c = connect_to(&raw);
  need(manta__fd_nonblock(raw, true, NULL) == MANTA_OK);
  feed(raw, p, n, how, fds);
  close(raw);
  while ((rc = manta__conn_recv(c, &m, &err)) == 1) {
    manta_value v = {0};
    if (manta__msg_value(&m, &v, &err) == MANTA_OK)
      manta_value_fini(&v);
    send_again(&m);
    manta__msg_close(&m);
  }
  need(rc < 0 && err.message[0]);
  manta__conn_destroy(c);
}

// Walks over the bytes as frames and makes each one valid that fits.
static void mend(uint8_t *p, size_t n)
{
  struct manta__frame f;
  for (size_t at = 0; n - at >= sizeof f; at += sizeof f + f.len) {
    memcpy(&f, p + at, sizeof f);
    f.magic = MANTA__FRAME_MAGIC;
    f.len %= 512;
    if (f.flags & MANTA__FRAME_BLOB)
      f.len = sizeof(uint64_t);
    if (f.len > n - at - sizeof f)
      f.len = (uint32_t)(n - at - sizeof f);
    uint64_t seed = manta__hash(&f, offsetof(struct manta__frame, hash));
    f.hash = manta__hash_seed(p + at + sizeof f, f.len, seed);
    memcpy(p + at, &f, sizeof f);
  }
}

static int next_fd(void)
{
  int fd = dup(0);
  need(fd >= 0);
  close(fd);
  return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 1 || size > MOST)
    return 0;
  int before = next_fd(), fds[6];
  for (int i = 0; i < 6; i++) // a blob that holds the input itself, and others
    need(manta__shm_create("fuzz", size + (size_t)(i & 1), &fds[i], NULL) == MANTA_OK);
  need(pwrite(fds[0], data, size, 0) == (ssize_t)size);
  uint8_t *copy = malloc(size);
  need(copy != NULL);
  memcpy(copy, data, size);
  read_all(copy + 1, size - 1, data[0], fds);
  mend(copy + 1, size - 1);
  read_all(copy + 1, size - 1, data[0], fds);
  free(copy);
  manta__fd_close_all(fds, 6);
  need(next_fd() == before);
  return 0;
}
