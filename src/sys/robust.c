/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/robust.h"

#include <errno.h>

manta_status manta__robust_init(pthread_mutex_t *m, manta_error *err)
{
  pthread_mutexattr_t a;
  int rc = pthread_mutexattr_init(&a);
  if (rc == 0) {
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    rc = pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
  }
  errno = rc;
  return rc ? manta_error_set(err, MANTA_EIO, "robust mutex: %m") : MANTA_OK;
}

int manta__robust_hold(pthread_mutex_t *m)
{
  int rc = pthread_mutex_lock(m);
  if (rc == EOWNERDEAD) {
    pthread_mutex_consistent(m);
    return 1;
  }
  return rc == 0 ? 0 : -1;
}

bool manta__robust_is_free(pthread_mutex_t *m)
{
  int rc = pthread_mutex_trylock(m);
  if (rc == EOWNERDEAD)
    pthread_mutex_consistent(m);
  if (rc == 0 || rc == EOWNERDEAD)
    pthread_mutex_unlock(m);
  return rc == 0 || rc == EOWNERDEAD;
}

void manta__robust_release(pthread_mutex_t *m)
{
  pthread_mutex_unlock(m);
}
