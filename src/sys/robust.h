/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/robust.h - a mutex in shared memory whose holder's death the kernel announces.
 *
 * The holder takes it and keeps it as long as it lives. Whoever waits for it learns of the death
 * within a tenth of a millisecond, before the dead process's memory is torn down. The kernel wakes
 * one waiter only.
 */
#ifndef MANTA_SYS_ROBUST_H
#define MANTA_SYS_ROBUST_H

#include <pthread.h>
#include <stdbool.h>

#include <manta/status.h>

manta_status manta__robust_init(pthread_mutex_t *m, manta_error *err);
/* Takes the mutex for the calling thread; 1 if its holder died meanwhile (and it is now usable
 * again), 0 otherwise, -1 on error. */
int manta__robust_hold(pthread_mutex_t *m);
/* Whether nobody holds it at this moment, or only one who is dead. */
bool manta__robust_is_free(pthread_mutex_t *m);
void manta__robust_release(pthread_mutex_t *m);

#endif
