/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/stream.h"

#include <signal.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "pair.h"

struct ends {
  manta__stream *a, *b;
};

static void open_ends(struct ends *e)
{
  manta_error err = MANTA_ERROR_INIT;
  int there[2], back[2];
  assert_int_equal(pipe2(there, O_CLOEXEC), 0);
  assert_int_equal(pipe2(back, O_CLOEXEC), 0);
  assert_ok(manta__stream_create(&e->a, back[0], there[1], NULL, &err), &err);
  assert_ok(manta__stream_create(&e->b, there[0], back[1], NULL, &err), &err);
}

static void close_ends(struct ends *e)
{
  manta__stream_destroy(e->a);
  manta__stream_destroy(e->b);
}

static int memory(size_t bytes, int seed)
{
  int fd = memfd_create("content", MFD_CLOEXEC);
  assert_true(fd >= 0);
  uint8_t *p = malloc(bytes + 1);
  for (size_t i = 0; i < bytes; i++)
    p[i] = (uint8_t)(i * 7 + (size_t)seed + i / 4096);
  assert_int_equal(pwrite(fd, p, bytes, 0), bytes);
  free(p);
  return fd;
}

static uint64_t hash_of(int fd, size_t *bytes)
{
  struct stat sb;
  assert_int_equal(fstat(fd, &sb), 0);
  *bytes = (size_t)sb.st_size;
  uint8_t *p = malloc(*bytes + 1);
  assert_int_equal(pread(fd, p, *bytes, 0), *bytes);
  uint64_t h = manta__hash(p, *bytes);
  free(p);
  return h;
}

// The next message at b, while a sends; fails after 10 s.
static void next(struct ends *e, struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  int64_t by = manta__deadline(10);
  int rc;
  while ((rc = manta__stream_recv(e->b, m, NULL, &err)) == 0 && manta__now() < by)
    assert_ok(manta__stream_flush(e->a, &err), &err);
  if (rc != 1)
    fail_msg("no message: %s", err.message);
}

static void messages_arrive_as_they_were(void **state)
{
  struct ends e;
  struct manta__msg m = {.kind = 7,
                         .flags = MANTA__FRAME_REPLY,
                         .group = 3,
                         .id = {11, 12, 13, 14},
                         .call = 99,
                         .data = "hello",
                         .len = 5},
                    got;
  manta_error err = MANTA_ERROR_INIT;
  open_ends(&e);
  assert_ok(manta__stream_send(e.a, &m, 0, &err), &err);
  next(&e, &got);
  assert_int_equal(got.kind, 7);
  assert_int_equal(got.flags, MANTA__FRAME_REPLY);
  assert_int_equal(got.group, 3);
  assert_memory_equal(&got.id, &m.id, sizeof m.id);
  assert_int_equal(got.call, 99);
  assert_int_equal(got.len, 5);
  assert_memory_equal(got.data, "hello", 5);
  assert_int_equal(got.fds, 0);
  close_ends(&e);
}

static void content_travels_by_value(void **state)
{
  static const size_t sizes[] = {
      0, 1, MANTA__STREAM_PIECE - 1, MANTA__STREAM_PIECE, MANTA__STREAM_PIECE + 1, 5000000};
  int before = open_fds();
  struct ends e;
  manta_error err = MANTA_ERROR_INIT;
  open_ends(&e);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct manta__msg m = {.kind = (uint16_t)i, .data = "x", .len = 1}, got;
    uint64_t want[3];
    size_t bytes;
    for (m.fds = 0; m.fds < 3; m.fds++) {
      m.fd[m.fds] = memory(sizes[i], m.fds);
      want[m.fds] = hash_of(m.fd[m.fds], &bytes);
    }
    assert_ok(manta__stream_send(e.a, &m, 0, &err), &err);
    manta__fd_close_all(m.fd, 3); // they are the stream's now
    next(&e, &got);
    assert_int_equal(got.kind, i);
    assert_int_equal(got.fds, 3);
    for (int k = 0; k < 3; k++) {
      assert_int_equal(hash_of(got.fd[k], &bytes), want[k]);
      assert_int_equal(bytes, sizes[i]);
    }
    manta__msg_close(&got);
  }
  close_ends(&e);
  assert_int_equal(open_fds(), before);
}

static void messages_overtake_content_but_not_in_their_lane(void **state)
{
  struct ends e;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg big = {.kind = 1, .fds = 1}, got;
  big.fd[0] = memory(8 << 20, 1);
  open_ends(&e);
  assert_ok(manta__stream_send(e.a, &big, 5, &err), &err);
  for (uint16_t k = 2; k < 50; k++)
    assert_ok(manta__stream_send(e.a, &(struct manta__msg){.kind = k},
                                 k % 2   ? 5
                                 : k % 4 ? 0
                                         : 6,
                                 &err),
              &err);
  for (uint16_t k = 2; k < 50; k += 2) { // those of other lanes, in their order
    next(&e, &got);
    assert_int_equal(got.kind, k);
  }
  next(&e, &got);
  assert_int_equal(got.kind, 1);
  assert_int_equal(got.fds, 1);
  manta__msg_close(&got);
  for (uint16_t k = 3; k < 50; k += 2) {
    next(&e, &got);
    assert_int_equal(got.kind, k);
  }
  close(big.fd[0]);
  close_ends(&e);
}

// While a gigabyte is under way, a message waits for a piece of it, not for all.
static void content_does_not_delay_messages(void **state)
{
  struct ends e;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg big = {.kind = 1, .fds = 1}, got;
  big.fd[0] = memfd_create("content", MFD_CLOEXEC);
  assert_int_equal(ftruncate(big.fd[0], 1 << 30), 0);
  open_ends(&e);
  assert_ok(manta__stream_send(e.a, &big, 0, &err), &err);
  for (uint16_t k = 2; k < 200; k++) {
    bool heard = false;
    assert_ok(manta__stream_send(e.a, &(struct manta__msg){.kind = k}, 0, &err), &err);
    for (int turns = 0; manta__stream_recv(e.b, &got, &heard, &err) == 0; turns++) {
      assert_true(turns < 100); // of 16 pieces each
      assert_ok(manta__stream_flush(e.a, &err), &err);
    }
    assert_int_equal(got.kind, k);
  }
  close(big.fd[0]);
  close_ends(&e);
}

static void what_is_no_stream_is_refused(void **state)
{
  static const char *const words[] = {"Welcome to host b\n", "m", "mFr", "mFrX"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    int there[2], back[2];
    manta__stream *s;
    struct manta__msg m;
    manta_error err = MANTA_ERROR_INIT;
    assert_int_equal(pipe2(there, O_CLOEXEC), 0);
    assert_int_equal(pipe2(back, O_CLOEXEC), 0);
    assert_ok(manta__stream_create(&s, there[0], back[1], NULL, &err), &err);
    assert_true(write(there[1], words[i], strlen(words[i])) > 0);
    bool good = i == 1 || i == 2; // so far
    assert_int_equal(manta__stream_recv(s, &m, NULL, &err), good ? 0 : MANTA_EPROTO);
    close(there[1]);
    if (good)
      assert_int_equal(manta__stream_recv(s, &m, NULL, &err), MANTA_ECLOSED);
    close(back[0]);
    manta__stream_destroy(s);
  }
}

static void an_end_without_a_reader_is_closed(void **state)
{
  struct ends e;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m;
  open_ends(&e);
  manta__stream_destroy(e.b);
  assert_int_equal(manta__stream_recv(e.a, &m, NULL, &err), MANTA_ECLOSED);
  assert_status(manta__stream_send(e.a, &(struct manta__msg){.kind = 1}, 0, &err), MANTA_ECLOSED);
  manta__stream_destroy(e.a);
}

static void what_waits_has_a_limit(void **state)
{
  struct ends e;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg big = {.kind = 1, .fds = 1};
  big.fd[0] = memory(1 << 20, 1);
  open_ends(&e);
  manta_status st = MANTA_OK;
  int sent = 0;
  while (st == MANTA_OK && sent < 2 * MANTA__STREAM_WAITING) {
    st = manta__stream_send(e.a, &big, 0, &err);
    sent++;
  }
  assert_int_equal(st, MANTA_ETOOBIG);
  close(big.fd[0]);
  close_ends(&e);
}

static manta_status dislike_3(const struct manta__conn_check *k, const struct manta__msg *m,
                              bool out, manta_error *err)
{
  return m->kind == 3 ? manta_error_set(err, MANTA_EPROTO, "a 3") : MANTA_OK;
}

// It is the message that is looked at, not the frames it travels in.
static void whoever_checks_sees_whole_messages(void **state)
{
  static const struct manta__conn_check check = {dislike_3};
  manta_error err = MANTA_ERROR_INIT;
  struct ends e;
  struct manta__msg got, m = {.kind = 3, .fd = {memory(100, 1)}, .fds = 1};
  int there[2], back[2];
  if (!MANTA__CHECKED)
    skip_because("this build does not check messages");
  int fds = open_fds();
  assert_int_equal(pipe2(there, O_CLOEXEC), 0);
  assert_int_equal(pipe2(back, O_CLOEXEC), 0);
  assert_ok(manta__stream_create(&e.a, back[0], there[1], NULL, &err), &err);
  assert_ok(manta__stream_create(&e.b, there[0], back[1], &check, &err), &err);
  assert_status(manta__stream_send(e.b, &m, 0, &err), MANTA_EPROTO);
  assert_ok(manta__stream_send(e.a, &m, 0, &err), &err);
  assert_ok(manta__stream_flush(e.a, &err), &err);
  assert_status(manta__stream_recv(e.b, &got, NULL, &err), MANTA_EPROTO);
  assert_string_equal(err.message, "a 3");
  close_ends(&e);
  close(m.fd[0]);
  assert_int_equal(open_fds(), fds - 1);
}

int main(void)
{
  signal(SIGPIPE, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_arrive_as_they_were),
      cmocka_unit_test(content_travels_by_value),
      cmocka_unit_test(messages_overtake_content_but_not_in_their_lane),
      cmocka_unit_test(content_does_not_delay_messages),
      cmocka_unit_test(what_is_no_stream_is_refused),
      cmocka_unit_test(an_end_without_a_reader_is_closed),
      cmocka_unit_test(what_waits_has_a_limit),
      cmocka_unit_test(whoever_checks_sees_whole_messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
