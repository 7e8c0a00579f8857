/* SPDX-License-Identifier: Apache-2.0
 *
 * The control segment: the abort word goes up once and is seen, a life is handed over, and what is
 * no control segment is refused.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "group/ctl.h"
#include "holder.h"
#include "sys/robust.h"
#include "sys/shm.h"

static struct manta__ctl *make(int world, size_t *bytes)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ctl *c = NULL;
  int fd = -1;
  assert_ok(manta__ctl_create(&fd, 77, 3, world, "here", &err), &err);
  assert_ok(manta__ctl_map(&c, bytes, fd, &err), &err);
  close(fd);
  assert_int_equal(c->run, 77);
  assert_int_equal(c->attempt, 3);
  assert_int_equal(c->cells, world);
  return c;
}

static void nothing_is_wrong_at_first(void **ctx)
{
  size_t bytes;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ctl *c = make(1, &bytes);
  assert_status(manta__ctl_check(c, &err), MANTA_OK);
  assert_status(manta__ctl_check(c, NULL), MANTA_OK);
  assert_string_equal(err.message, "");
  manta__shm_unmap(c, bytes);
}

static void a_lost_rank_is_named(void **ctx)
{
  size_t bytes;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ctl *c = make(5, &bytes);
  manta__ctl_abort(c, MANTA__ABORT_RANK + 4);
  assert_status(manta__ctl_check(c, &err), MANTA_EPEERLOST);
  assert_string_equal(err.message, "rank 4 on here was lost: it died");
  assert_status(manta__ctl_check(c, NULL), MANTA_EPEERLOST);
  manta__shm_unmap(c, bytes);
}

static void the_cause_is_told_once(void **ctx)
{
  size_t bytes;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ctl *c = make(2, &bytes);
  manta__ctl_explain(c, MANTA__ABORT_RANK + 7, "far", "it is silent");
  manta__ctl_explain(c, MANTA__ABORT_RANK + 1, NULL, "too late");
  assert_ok(manta__ctl_check(c, &err), &err);
  manta__ctl_abort(c, MANTA__ABORT_RANK + 7);
  assert_status(manta__ctl_check(c, &err), MANTA_EPEERLOST);
  assert_string_equal(err.message, "rank 7 on far was lost: it is silent");
  manta__shm_unmap(c, bytes);
  c = make(2, &bytes); // one that was explained, and another that was first
  manta__ctl_explain(c, MANTA__ABORT_RANK + 1, NULL, "exit code 3");
  manta__ctl_abort(c, MANTA__ABORT_RANK + 0);
  assert_status(manta__ctl_check(c, &err), MANTA_EPEERLOST);
  assert_string_equal(err.message, "rank 0 on here was lost: it died");
  manta__shm_unmap(c, bytes);
}

static void the_first_cause_stays(void **ctx)
{
  size_t bytes;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ctl *c = make(2, &bytes);
  manta__ctl_abort(c, MANTA__ABORT_STOP);
  manta__ctl_abort(c, MANTA__ABORT_RANK + 1);
  assert_status(manta__ctl_check(c, &err), MANTA_EABORTED);
  assert_has(err.message, "being ended");
  manta__shm_unmap(c, bytes);
}

struct race {
  struct manta__ctl *ctl;
  uint32_t cause;
};

static void *abort_it(void *p)
{
  struct race *r = p;
  manta__ctl_abort(r->ctl, r->cause);
  return NULL;
}

static void of_two_aborts_one_wins(void **ctx)
{
  for (int i = 0; i < 200; i++) {
    size_t bytes;
    struct manta__ctl *c = make(2, &bytes);
    struct race a = {c, MANTA__ABORT_RANK}, b = {c, MANTA__ABORT_RANK + 1};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, abort_it, &a), 0);
    abort_it(&b);
    uint32_t seen = atomic_load(&c->abort);
    pthread_join(t, NULL);
    assert_true(seen == a.cause || seen == b.cause);
    assert_int_equal(atomic_load(&c->abort), seen);
    manta__shm_unmap(c, bytes);
  }
}

static void *wait_for_abort(void *p)
{
  struct manta__ctl *c = p;
  int64_t by = manta__deadline(10);
  while (atomic_load(&c->abort) == 0 && manta__now() < by)
    manta__futex_wait(&c->abort, 0, by);
  return (void *)(intptr_t)(manta__now() < by);
}

static void everyone_who_waits_is_woken(void **ctx)
{
  size_t bytes;
  struct manta__ctl *c = make(4, &bytes);
  pthread_t t[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&t[i], NULL, wait_for_abort, c), 0);
  usleep(10000);
  manta__ctl_abort(c, MANTA__ABORT_STOP);
  for (int i = 0; i < 4; i++) {
    void *in_time;
    pthread_join(t[i], &in_time);
    assert_non_null(in_time);
  }
  manta__shm_unmap(c, bytes);
}

static int hold_second_life(void *p)
{
  struct manta__ctl *c = p;
  return manta__robust_hold(&c->cell[1].life);
}

static void a_life_is_handed_over_and_the_others_stay(void **ctx)
{
  size_t bytes;
  int said = -2;
  struct manta__ctl *c = make(3, &bytes);
  pid_t pid = holder_start(hold_second_life, c, &said);
  assert_int_equal(said, 0);
  assert_int_equal(pthread_mutex_trylock(&c->cell[0].life), 0);
  assert_int_equal(pthread_mutex_trylock(&c->cell[1].life), EBUSY);
  holder_kill(pid);
  assert_int_equal(manta__robust_hold(&c->cell[1].life), 1);
  manta__robust_release(&c->cell[1].life);
  manta__robust_release(&c->cell[0].life);
  manta__shm_unmap(c, bytes);
}

static void refuse(const void *head, size_t n, size_t bytes)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ctl *c = NULL;
  size_t got;
  int fd;
  assert_ok(manta__shm_create("x", bytes, &fd, &err), &err);
  assert_int_equal(pwrite(fd, head, n, 0), n);
  assert_status(manta__ctl_map(&c, &got, fd, &err), MANTA_EPROTO);
  assert_null(c);
  close(fd);
}

static void what_is_no_control_segment_is_refused(void **ctx)
{
  struct manta__ctl head = {.magic = MANTA__CTL_MAGIC, .cells = 2};
  size_t whole = sizeof head + 2 * sizeof(struct manta__cell);
  refuse(&head, 8, 8);
  refuse(&head, sizeof head, whole - 1);
  refuse(&head, sizeof head, whole + 1);
  head.cells = UINT32_MAX;
  refuse(&head, sizeof head, whole);
  head = (struct manta__ctl){.magic = 1, .cells = 2};
  refuse(&head, sizeof head, whole);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_wrong_at_first),
      cmocka_unit_test(a_lost_rank_is_named),
      cmocka_unit_test(the_cause_is_told_once),
      cmocka_unit_test(the_first_cause_stays),
      cmocka_unit_test(of_two_aborts_one_wins),
      cmocka_unit_test(everyone_who_waits_is_woken),
      cmocka_unit_test(a_life_is_handed_over_and_the_others_stay),
      cmocka_unit_test(what_is_no_control_segment_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
