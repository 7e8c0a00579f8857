/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/wire/pair.h - two connections that talk to each other, and how many descriptors are open.
 */
#ifndef MANTA_TEST_PAIR_H
#define MANTA_TEST_PAIR_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/sock.h"
#include "test.h"
#include "wire/conn.h"

struct pair {
  manta__conn *a, *b;
};

static inline void pair_open(struct pair *p)
{
  manta_error err = MANTA_ERROR_INIT;
  int end[2];
  assert_ok(manta__sock_pair(end, &err), &err);
  assert_ok(manta__conn_create(&p->a, end[0], NULL, &err), &err);
  assert_ok(manta__conn_create(&p->b, end[1], NULL, &err), &err);
}

static inline void pair_close(struct pair *p)
{
  manta__conn_destroy(p->a);
  manta__conn_destroy(p->b);
}

static inline int open_fds(void)
{
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  assert_non_null(d);
  while (readdir(d))
    n++;
  closedir(d);
  return n;
}

/* A file whose content is the number `n`, so that a descriptor can be told from another. */
static inline int numbered_fd(int n)
{
  int fd = memfd_create("number", MFD_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, &n, sizeof n, 0), sizeof n);
  return fd;
}

static inline int number_of(int fd)
{
  int n = -1;
  assert_int_equal(pread(fd, &n, sizeof n, 0), sizeof n);
  return n;
}

#endif
