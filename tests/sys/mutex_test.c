/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/mutex.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "test.h"

#define THREADS 8
#define TURNS   20000

static struct manta__mutex mutex;
static int64_t count; // not atomic: only who is in may change it
static _Atomic int64_t missed;

static void take(void)
{
  if (!manta__mutex_try(&mutex) && !manta__mutex_wait(&mutex, manta__deadline(30)))
    abort(); // no assertion works on another thread
}

static void *add(void *arg)
{
  for (int i = 0; i < TURNS; i++) {
    take();
    count++;
    if (i % 1000 == 0)
      usleep(100); // long enough for the others to fall asleep
    manta__mutex_leave(&mutex);
  }
  return NULL;
}

// Gives up again and again, among those who don't.
static void *give_up(void *arg)
{
  for (int i = 0; i < TURNS / 10; i++) {
    if (manta__mutex_wait(&mutex, manta__now() + 1000)) {
      count++;
      manta__mutex_leave(&mutex);
    } else {
      missed++;
    }
  }
  return NULL;
}

static void one_at_a_time(void **state)
{
  pthread_t t[THREADS + 2];
  count = 0;
  for (int i = 0; i < THREADS + 2; i++)
    assert_int_equal(pthread_create(&t[i], NULL, i < THREADS ? add : give_up, NULL), 0);
  for (int i = 0; i < THREADS + 2; i++)
    pthread_join(t[i], NULL);
  assert_int_equal(count + missed, THREADS * TURNS + 2 * (TURNS / 10));
  assert_true(manta__mutex_try(&mutex));
  manta__mutex_leave(&mutex);
}

static void *leave_late(void *arg)
{
  usleep(20000);
  manta__mutex_leave(&mutex);
  return NULL;
}

static void a_wait_has_an_end(void **state)
{
  pthread_t t;
  assert_true(manta__mutex_try(&mutex));
  assert_false(manta__mutex_try(&mutex));
  int64_t by = manta__now() + 5000000;
  assert_false(manta__mutex_wait(&mutex, by));
  assert_true(manta__now() >= by);
  assert_int_equal(pthread_create(&t, NULL, leave_late, NULL), 0);
  assert_true(manta__mutex_wait(&mutex, MANTA__NEVER));
  pthread_join(t, NULL);
  manta__mutex_leave(&mutex);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_at_a_time),
      cmocka_unit_test(a_wait_has_an_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
