/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring between a worker and its driver: nothing lost, nothing torn, across threads, processes,
 * kills and scribbles. Every byte of a record follows from its seq.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "group/ring.h"
#include "sys/proc.h"
#include "sys/shm.h"
#include "test.h"

static uint64_t mix(uint64_t x)
{
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* Mostly small, sometimes up to `most`. */
static size_t size_of_row(uint64_t seq, size_t most)
{
  uint64_t r = mix(seq);
  return (size_t)(r >> 8) % ((r & 15) == 0 ? most + 1 : (most < 300 ? most : 300) + 1);
}

static void fill_row(uint8_t *p, uint64_t seq, size_t n)
{
  memset(p, (int)(seq & 0xff), n);
  for (size_t i = 0; i < n; i += 61)
    p[i] = (uint8_t)mix(seq + i);
}

static bool row_is_whole(const struct manta__ring_rec *rec, uint64_t seq, size_t most)
{
  const uint8_t *p = manta__ring_payload(rec);
  size_t n = size_of_row(seq, most);
  if (rec->id.seq != seq || rec->used != n || rec->iteration != (int64_t)seq * 3 ||
      rec->wall_ns != (int64_t)mix(seq))
    return false;
  for (size_t i = 0; i < n; i++)
    if (p[i] != (i % 61 ? (uint8_t)seq : (uint8_t)mix(seq + i)))
      return false;
  return true;
}

// As a report does: publish, fence, and ask whether the consumer sleeps.
static bool commit(struct manta__ring *r, size_t n, struct manta__ident id, int64_t wall_ns,
                   int64_t iteration)
{
  manta__ring_publish(r, n, &id, wall_ns, iteration);
  atomic_thread_fence(memory_order_seq_cst);
  return manta__ring_sleeps(r);
}

static bool put(struct manta__ring *r, uint64_t seq, size_t most)
{
  size_t n = size_of_row(seq, most);
  // Room for more than is used in the end, as a report asks for it.
  uint8_t *p = manta__ring_reserve(r, n + 96);
  if (!p)
    return false;
  fill_row(p, seq, n);
  struct manta__ident id = {.run = 7, .seq = seq};
  commit(r, n, id, (int64_t)mix(seq), (int64_t)seq * 3);
  return true;
}

static void open_both(struct manta__ring *producer, struct manta__ring *consumer)
{
  manta_error err = MANTA_ERROR_INIT;
  int fd;
  assert_ok(manta__ring_create(&fd, &err), &err);
  assert_ok(manta__ring_open(consumer, dup(fd), &err), &err);
  assert_ok(manta__ring_open(producer, fd, &err), &err);
}

static void close_both(struct manta__ring *producer, struct manta__ring *consumer)
{
  manta__ring_close(producer);
  manta__ring_close(consumer);
  manta__ring_close(consumer);
}

static void put_wait(struct manta__ring *r, uint64_t seq, size_t most)
{
  while (!put(r, seq, most))
    manta__ring_wait_room(r, manta__deadline(10));
}

// --- two sides at once --------------------------------------------------------------------------

struct side {
  struct manta__ring ring;
  uint64_t rows;
  size_t most;
};

static void *produce(void *p)
{
  struct side *s = p;
  for (uint64_t seq = 1; seq <= s->rows; seq++)
    put_wait(&s->ring, seq, s->most);
  return NULL;
}

// Reads until `rows` have come; releases in batches, as the driver does.
static void consume(struct manta__ring *r, uint64_t rows, size_t most)
{
  int64_t by = manta__deadline(30);
  manta_status st;
  for (uint64_t seq = 1; seq <= rows;) {
    const struct manta__ring_rec *rec = manta__ring_next(r, &st);
    assert_status(st, MANTA_OK);
    if (!rec) {
      manta__ring_release(r);
      assert_true(manta__now() < by);
      if (manta__ring_sleep(r))
        usleep(50);
      continue;
    }
    assert_true(row_is_whole(rec, seq, most));
    if (mix(seq) % 64 == 0)
      manta__ring_release(r);
    seq++;
  }
  manta__ring_release(r);
  assert_null(manta__ring_next(r, &st));
}

static void rows_arrive_across_threads(void **ctx)
{
  static const size_t most[] = {0, 200, 70000, MANTA__ROW_MAX};
  for (int i = 0; i < 4; i++) {
    struct side s = {.rows = i == 3 ? 300 : 20000, .most = most[i]};
    struct manta__ring consumer;
    pthread_t t;
    open_both(&s.ring, &consumer);
    assert_int_equal(pthread_create(&t, NULL, produce, &s), 0);
    consume(&consumer, s.rows, s.most);
    pthread_join(t, NULL);
    close_both(&s.ring, &consumer);
  }
}

static void rows_arrive_across_processes(void **ctx)
{
  struct side s = {.rows = 20000, .most = 50000};
  struct manta__ring consumer;
  open_both(&s.ring, &consumer);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    produce(&s);
    _exit(0);
  }
  consume(&consumer, s.rows, s.most);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_true(atomic_load(&consumer.h->head) > 3ull * consumer.bytes); // it went round
  close_both(&s.ring, &consumer);
}

// --- one side -----------------------------------------------------------------------------------

static void a_full_ring_takes_nothing_until_released(void **ctx)
{
  struct manta__ring p, c;
  manta_status st;
  open_both(&p, &c);
  uint64_t put_in = 0, got = 0;
  while (put(&p, put_in + 1, 4000))
    put_in++;
  assert_true(atomic_load(&c.h->head) > MANTA__RING_BYTES - 10000);
  assert_true(atomic_load(&c.h->head) <= MANTA__RING_BYTES);
  int64_t t0 = manta__now();
  manta__ring_wait_room(&p, t0 + 20000000);
  assert_true(manta__now() - t0 >= 19000000); // nobody moved: the whole time
  while (got < put_in) {
    const struct manta__ring_rec *rec = manta__ring_next(&c, &st);
    assert_non_null(rec);
    assert_true(row_is_whole(rec, ++got, 4000));
  }
  assert_false(put(&p, put_in + 1, 4000)); // read, not released
  manta__ring_release(&c);
  t0 = manta__now();
  manta__ring_wait_room(&p, t0 + 5000000000);
  assert_true(manta__now() - t0 < 2000000000); // it has moved already
  assert_true(put(&p, put_in + 1, 4000));
  close_both(&p, &c);
}

static void *release_later(void *p)
{
  manta_status st;
  usleep(20000);
  while (manta__ring_next(p, &st))
    ;
  manta__ring_release(p);
  return NULL;
}

static void a_waiting_producer_is_woken(void **ctx)
{
  struct manta__ring p, c;
  pthread_t t;
  uint64_t seq = 1;
  open_both(&p, &c);
  while (put(&p, seq, 4000))
    seq++;
  int64_t t0 = manta__now();
  assert_int_equal(pthread_create(&t, NULL, release_later, &c), 0);
  manta__ring_wait_room(&p, t0 + 10000000000);
  assert_true(manta__now() - t0 < 5000000000);
  assert_true(put(&p, seq, 4000));
  pthread_join(t, NULL);
  close_both(&p, &c);
}

// Whatever was written before, an empty ring has room for any row: who waits for room in an empty
// ring waits for ever.
static void an_empty_ring_has_room_for_any_row(void **ctx)
{
  struct manta__ring p, c;
  manta_status st;
  open_both(&p, &c);
  for (uint64_t i = 0; i < 20000; i++) {
    size_t n = (size_t)(mix(i) % (i % 3 ? 4000 : MANTA__ROW_MAX));
    uint8_t *at = manta__ring_reserve(&p, n);
    if (!at)
      fail_msg("no room for %zu bytes at offset %zu of an empty ring", n,
               (size_t)(p.pos % MANTA__RING_BYTES));
    commit(&p, n, (struct manta__ident){0}, 0, 0);
    assert_non_null(manta__ring_next(&c, &st));
    manta__ring_release(&c);
  }
  close_both(&p, &c);
}

static void reserving_again_before_commit_is_harmless(void **ctx)
{
  struct manta__ring p, c;
  manta_status st;
  open_both(&p, &c);
  for (uint64_t seq = 1; seq < 3000; seq++) {
    uint8_t *at = manta__ring_reserve(&p, 9000);
    assert_non_null(at);
    assert_ptr_equal(manta__ring_reserve(&p, 9000), at);
    assert_true(put(&p, seq, 3000));
    const struct manta__ring_rec *rec = manta__ring_next(&c, &st);
    assert_true(rec && row_is_whole(rec, seq, 3000));
    manta__ring_release(&c);
  }
  close_both(&p, &c);
}

static size_t resident_pages(const struct manta__ring *r)
{
  static unsigned char in[(MANTA__RING_BYTES >> 12) + 2];
  size_t n = 0, pages = (r->bytes + 4095) >> 12;
  assert_int_equal(mincore(r->h, r->bytes, in), 0);
  for (size_t i = 0; i < pages; i++)
    n += in[i] & 1;
  return n;
}

static void a_consumer_that_keeps_up_keeps_the_ring_small(void **ctx)
{
  struct manta__ring p, c;
  manta_status st;
  open_both(&p, &c);
  for (uint64_t seq = 1; seq < 100000; seq++) {
    assert_true(put(&p, seq, 300));
    assert_non_null(manta__ring_next(&c, &st));
    manta__ring_release(&c);
  }
  assert_true(p.pos > MANTA__RING_BYTES);
  size_t small = resident_pages(&c);
  assert_true(small <= (MANTA__RING_WARM >> 12) + 3);
  for (uint64_t seq = 1; seq < 5000; seq++)
    put(&p, seq, 300);
  assert_true(resident_pages(&c) > small); // the measure measures
  close_both(&p, &c);
}

static void a_sleeper_is_woken_once(void **ctx)
{
  struct manta__ring p, c;
  manta_status st;
  struct manta__ident id = {0};
  open_both(&p, &c);
  assert_true(manta__ring_sleep(&c));
  manta__ring_reserve(&p, 8);
  assert_true(commit(&p, 8, id, 0, 0));
  manta__ring_reserve(&p, 8);
  assert_false(commit(&p, 8, id, 0, 0));
  assert_false(manta__ring_sleep(&c)); // something to read
  assert_non_null(manta__ring_next(&c, &st));
  assert_non_null(manta__ring_next(&c, &st));
  assert_true(manta__ring_sleep(&c));
  manta__ring_reserve(&p, 8);
  assert_true(commit(&p, 8, id, 0, 0));
  close_both(&p, &c);
}

// --- damage -------------------------------------------------------------------------------------

#define KILLS 60

// A second reader (the writer process) finds the same rows again, from tail on.
static void a_killed_producer_leaves_whole_rows(void **ctx)
{
  int killed = 0;
  uint64_t rows = 0;
  for (int round = 0; round < KILLS; round++) {
    struct manta__ring p, c;
    manta_status st;
    open_both(&p, &c);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (uint64_t seq = 1;; seq++)
        put_wait(&p, seq, 30000);
    }
    uint64_t seq = 1;
    int64_t until = manta__now() + (int64_t)(mix((uint64_t)round) % 4000000);
    while (manta__now() < until || seq == 1) {
      const struct manta__ring_rec *rec = manta__ring_next(&c, &st);
      if (rec)
        assert_true(row_is_whole(rec, seq++, 30000));
      if (mix(seq) % 16 == 0)
        manta__ring_release(&c);
    }
    assert_int_equal(manta__proc_signal(pid, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const struct manta__ring_rec *rec;
    while ((rec = manta__ring_next(&c, &st)))
      assert_true(row_is_whole(rec, seq++, 30000));
    assert_status(st, MANTA_OK);
    struct manta__ring again;
    manta_error err = MANTA_ERROR_INIT;
    assert_ok(manta__ring_open(&again, dup(c.fd), &err), &err);
    uint64_t last = 0;
    while ((rec = manta__ring_next(&again, &st)))
      assert_true(row_is_whole(rec, last = rec->id.seq, 30000));
    assert_status(st, MANTA_OK);
    assert_true(last == 0 || last == seq - 1);
    rows += seq - 1;
    manta__ring_close(&again);
    close_both(&p, &c);
  }
  assert_int_equal(killed, KILLS);
  assert_true(rows > KILLS * 10);
}

// Reads all there is; whatever comes out lies inside the ring.
static bool read_all(struct manta__ring *r)
{
  manta_status st;
  const struct manta__ring_rec *rec;
  unsigned sum = 0;
  while ((rec = manta__ring_next(r, &st))) {
    assert_true((const uint8_t *)rec >= r->data);
    assert_true(manta__ring_payload(rec) + rec->used <= (uint8_t *)r->h + r->bytes);
    for (size_t i = 0; i < rec->used; i += 512)
      sum += manta__ring_payload(rec)[i];
  }
  manta__ring_release(r);
  bool corrupt = st == MANTA_ECORRUPT;
  if (corrupt) {
    assert_null(manta__ring_next(r, &st)); // nothing more comes out
    assert_status(st, MANTA_ECORRUPT);
  }
  return corrupt && sum != 1;
}

static void fill_some(struct manta__ring *p, struct manta__ring *c, int rounds)
{
  manta_status st;
  for (uint64_t seq = 1; seq <= (uint64_t)rounds; seq++)
    if (!put(p, seq, 3000)) {
      while (manta__ring_next(c, &st))
        ;
      manta__ring_release(c);
    }
}

static uint64_t nasty(uint64_t r)
{
  static const uint64_t word[] = {0, 1, 7, 8, MANTA__RING_BYTES - 1, MANTA__RING_BYTES + 3, ~0ull};
  return r % 2 ? word[(r >> 8) % 7] : mix(r);
}

static void scribble(struct manta__ring *r, uint64_t round)
{
  uint64_t where = mix(round * 11 + 2), word = nasty(mix(round * 7 + 1));
  static const size_t heads[] = {8, 64, 128, 192, 68, 132, 12};
  if (round % 4 == 0) { // cursors that fit each other, at an odd place before the end
    word = MANTA__RING_BYTES * (where % 5 + 1) - where % 16;
    atomic_store(&r->h->tail, word);
    atomic_store(&r->h->head, word + 512);
  } else if (round % 2) {
    memcpy((uint8_t *)r->h + heads[where % 7], &word, round % 4 == 1 ? 8 : 4);
  } else {
    size_t at = (size_t)((atomic_load(&r->h->tail) + where % 65536) % MANTA__RING_BYTES);
    memcpy(r->data + (at & ~3ull), &word, 4);
  }
}

// Read by the reader that was there, and by a new one (the writer process).
static void scribbles_never_crash_a_reader(void **ctx)
{
  int found = 0, refused = 0;
  for (uint64_t round = 0; round < 1500; round++) {
    struct manta__ring p, c, late = {.fd = -1};
    manta_error err = MANTA_ERROR_INIT;
    open_both(&p, &c);
    fill_some(&p, &c, (int)(mix(round) % (round % 50 ? 300 : 8000)) + 20);
    scribble(&p, round);
    found += read_all(&c);
    if (manta__ring_open(&late, dup(c.fd), &err) == MANTA_OK)
      found += read_all(&late);
    else
      refused++;
    manta__ring_close(&late);
    close_both(&p, &c);
  }
  assert_true(found > 150);
  assert_true(refused > 50);
}

static void what_is_no_ring_is_refused(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ring r;
  int fds[2], fd;
  assert_int_equal(pipe(fds), 0);
  close(fds[1]);
  assert_status(manta__ring_open(&r, fds[0], &err), MANTA_EPROTO);
  assert_int_equal(fcntl(fds[0], F_GETFD), -1); // taken all the same
  assert_ok(manta__shm_create("x", 4096 + MANTA__RING_BYTES, &fd, &err), &err);
  assert_status(manta__ring_open(&r, fd, &err), MANTA_EPROTO);
  assert_ok(manta__shm_create("x", 4096, &fd, &err), &err);
  uint64_t head[2] = {MANTA__RING_MAGIC, 0};
  assert_int_equal(pwrite(fd, head, sizeof head, 0), sizeof head);
  assert_status(manta__ring_open(&r, fd, &err), MANTA_EPROTO);
}

// --- a mirror -----------------------------------------------------------------------------------

// A producer, its consumer which takes, a mirror that is filled, and the consumer of that.
static void a_mirror_has_the_same_records_at_the_same_places(void **state)
{
  static const size_t most[] = {100, 3000, 200000, MANTA__ROW_MAX - 200};
  for (size_t k = 0; k < sizeof most / sizeof *most; k++) {
    struct manta__ring from, take, fill, to;
    open_both(&from, &take);
    open_both(&fill, &to);
    uint64_t rows = most[k] > 100000 ? 500 : 30000, made = 0, seen = 0;
    manta_status st = MANTA_OK;
    while (seen < rows) {
      while (made < rows && put(&from, made + 1, most[k]))
        made++;
      const uint8_t *p;
      uint64_t pos;
      size_t n;
      while ((p = manta__ring_take(&take, 5000, &pos, &n, &st)))
        for (size_t part; n > 0; n -= part, p += part, pos += part) {
          bool wake;
          part = n < 5000 ? n : 5000;
          assert_ok(manta__ring_put(&fill, pos, p, part, part == n, &wake), &(manta_error){0});
        }
      assert_int_equal(st, MANTA_OK);
      assert_int_equal(fill.pos, take.pos);
      for (const struct manta__ring_rec *rec; (rec = manta__ring_next(&to, &st)); seen++)
        assert_true(row_is_whole(rec, seen + 1, most[k]));
      assert_int_equal(st, MANTA_OK);
      manta__ring_release(&to);
      manta__ring_release_to(&take, manta__ring_tail(&to));
    }
    assert_int_equal(manta__ring_tail(&take), manta__ring_tail(&to));
    close_both(&from, &take);
    close_both(&fill, &to);
  }
}

// Half a record is not seen; what does not follow is refused; the producer waits for the mirror.
static void a_mirror_shows_whole_records_only(void **state)
{
  struct manta__ring from, take, fill, to;
  uint64_t pos, made = 0;
  size_t n;
  bool wake;
  manta_status st;
  open_both(&from, &take);
  open_both(&fill, &to);
  assert_true(put(&from, 1, 100));
  const uint8_t *p = manta__ring_take(&take, 5000, &pos, &n, &st);
  assert_non_null(p);
  assert_null(manta__ring_take(&take, 5000, &pos, &n, &st));
  assert_true(manta__ring_sleep(&to));
  assert_int_equal(manta__ring_put(&fill, pos, p, 16, false, &wake), MANTA_OK);
  assert_false(wake);
  assert_null(manta__ring_next(&to, &st));
  assert_int_equal(manta__ring_put(&fill, pos, p, n, true, &wake), MANTA_EPROTO);
  assert_int_equal(manta__ring_put(&fill, pos + 16, p + 16, n - 16, true, &wake), MANTA_OK);
  assert_true(wake);
  assert_non_null(manta__ring_next(&to, &st));
  assert_int_equal(manta__ring_put(&fill, fill.pos + 8, p, n, true, &wake), MANTA_EPROTO);
  while (put(&from, made + 2, 100))
    made++;
  while (manta__ring_take(&take, 5000, &pos, &n, &st))
    ;
  assert_false(put(&from, made + 2, 100));     // taken, but the other side has not read it
  manta__ring_release_to(&take, take.pos + 8); // cannot be
  assert_false(put(&from, made + 2, 100));
  manta__ring_release_to(&take, take.pos);
  assert_true(put(&from, made + 2, 100));
  close_both(&from, &take);
  close_both(&fill, &to);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_arrive_across_threads),
      cmocka_unit_test(rows_arrive_across_processes),
      cmocka_unit_test(a_full_ring_takes_nothing_until_released),
      cmocka_unit_test(a_waiting_producer_is_woken),
      cmocka_unit_test(an_empty_ring_has_room_for_any_row),
      cmocka_unit_test(reserving_again_before_commit_is_harmless),
      cmocka_unit_test(a_consumer_that_keeps_up_keeps_the_ring_small),
      cmocka_unit_test(a_sleeper_is_woken_once),
      cmocka_unit_test(a_killed_producer_leaves_whole_rows),
      cmocka_unit_test(scribbles_never_crash_a_reader),
      cmocka_unit_test(what_is_no_ring_is_refused),
      cmocka_unit_test(a_mirror_has_the_same_records_at_the_same_places),
      cmocka_unit_test(a_mirror_shows_whole_records_only),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
