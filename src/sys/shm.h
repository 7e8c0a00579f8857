/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/shm.h - shared memory without names: memfds of sealed size, and waiting on a word in them.
 */
#ifndef MANTA_SYS_SHM_H
#define MANTA_SYS_SHM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

/* A memfd of `bytes` bytes that can neither shrink nor grow. Close it. */
manta_status manta__shm_create(const char *name, size_t bytes, int *fd_out, manta_error *err);
/* The same with that content. Memory that is not there is MANTA_ENOMEM, not a signal. */
manta_status manta__shm_of(const char *name, const void *p, size_t bytes, int *fd_out,
                           manta_error *err);
/* The same with what lies behind a descriptor, from its beginning: a memfd that can be sealed is
 * sealed and dup'ed, anything else is copied. */
manta_status manta__shm_from(const char *name, int fd, int *fd_out, manta_error *err);
/* A memfd that grows: whoever writes to it, through whatever descriptor, writes to its end. -1 with
 * errno. */
int manta__shm_log(const char *name);
/* Maps all of it (shared, writable) and gives its size; refuses one whose size is not sealed, since
 * a peer could shrink it under us. Unmap with manta__shm_unmap. */
manta_status manta__shm_map(int fd, void **out, size_t *bytes_out, manta_error *err);
void manta__shm_unmap(void *p, size_t bytes);

/* Waits while *word == seen, at most until `by`; wakes spuriously. */
void manta__futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t by);
void manta__futex_wake(_Atomic uint32_t *word, int count);

#endif
