/* SPDX-License-Identifier: Apache-2.0
 *
 * The mutex whose holder's death the kernel announces: quickly, to one waiter, and only a death.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "holder.h"
#include "sys/robust.h"

static pthread_mutex_t *make(void)
{
  manta_error err = MANTA_ERROR_INIT;
  pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(m != MAP_FAILED);
  assert_ok(manta__robust_init(m, &err), &err);
  return m;
}

static int hold(void *m)
{
  return manta__robust_hold(m);
}

static int hold_and_release(void *m)
{
  int rc = manta__robust_hold(m);
  manta__robust_release(m);
  return rc;
}

static void a_released_one_is_no_death(void **ctx)
{
  pthread_mutex_t *m = make();
  int said = -2;
  pid_t pid = holder_start(hold_and_release, m, &said);
  assert_int_equal(said, 0);
  assert_int_equal(manta__robust_hold(m), 0);
  manta__robust_release(m);
  holder_kill(pid);
  assert_int_equal(manta__robust_hold(m), 0); // it died later, and held nothing
  manta__robust_release(m);
  munmap(m, 4096);
}

struct waiter {
  pthread_mutex_t *m;
  int rc;
  int64_t at;
};

static void *wait_for_it(void *p)
{
  struct waiter *w = p;
  w->rc = manta__robust_hold(w->m);
  w->at = manta__now();
  if (w->rc >= 0)
    manta__robust_release(w->m);
  return NULL;
}

static void a_death_is_handed_over_quickly_and_once(void **ctx)
{
  int deaths = 0;
  for (int round = 0; round < 20; round++) {
    pthread_mutex_t *m = make();
    struct waiter w[2] = {{.m = m}, {.m = m}};
    pthread_t t[2];
    int said = -2;
    pid_t pid = holder_start(hold, m, &said);
    assert_int_equal(said, 0);
    for (int i = 0; i < 2; i++)
      assert_int_equal(pthread_create(&t[i], NULL, wait_for_it, &w[i]), 0);
    usleep(1000);
    int64_t t0 = manta__now();
    holder_kill(pid);
    for (int i = 0; i < 2; i++) {
      pthread_join(t[i], NULL);
      assert_true(w[i].at - t0 < 1000000000); // no clock had to run out
    }
    deaths += w[0].rc == 1 || w[1].rc == 1;
    assert_int_equal(w[0].rc + w[1].rc, 1); // the second finds it mended
    munmap(m, 4096);
  }
  assert_int_equal(deaths, 20);
}

static void a_death_before_the_wait_is_told_too(void **ctx)
{
  pthread_mutex_t *m = make();
  int said;
  holder_kill(holder_start(hold, m, &said));
  assert_int_equal(manta__robust_hold(m), 1);
  manta__robust_release(m);
  assert_int_equal(manta__robust_hold(m), 0);
  manta__robust_release(m);
  munmap(m, 4096);
}

static void it_is_free_unless_the_living_hold_it(void **ctx)
{
  pthread_mutex_t *m = make();
  int said;
  assert_true(manta__robust_is_free(m));
  pid_t pid = holder_start(hold, m, &said);
  assert_false(manta__robust_is_free(m));
  holder_kill(pid);
  assert_true(manta__robust_is_free(m));
  assert_int_equal(manta__robust_hold(m), 0); // and mended
  manta__robust_release(m);
  munmap(m, 4096);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_released_one_is_no_death),
      cmocka_unit_test(a_death_is_handed_over_quickly_and_once),
      cmocka_unit_test(a_death_before_the_wait_is_told_too),
      cmocka_unit_test(it_is_free_unless_the_living_hold_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
