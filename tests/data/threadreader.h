/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/threadreader.h - a reader that is a thread of the test.
 */
#ifndef MANTA_TEST_THREADREADER_H
#define MANTA_TEST_THREADREADER_H

#include <pthread.h>
#include <unistd.h>

#include "data/share/share.h"
#include "sys/sock.h"
#include "test.h"

struct thread_reader {
  pthread_t thread[16];
  int sock[16], count;
  int refuse; // so many connections are dead when they are made
};

static inline void *thread_reader_serve(void *sock)
{
  manta__giver_serve(*(int *)sock);
  return NULL;
}

static inline manta_status thread_reader_connect(void *ctx, int *sock, manta_error *err)
{
  struct thread_reader *r = ctx;
  int end[2];
  MANTA_TRY(manta__sock_packets(end, err));
  *sock = end[1];
  if (r->refuse-- > 0) {
    close(end[0]);
    return MANTA_OK;
  }
  assert_true(r->count < 16);
  r->sock[r->count] = end[0];
  assert_int_equal(
      pthread_create(&r->thread[r->count], NULL, thread_reader_serve, &r->sock[r->count]), 0);
  r->count++;
  return MANTA_OK;
}

static inline manta_status thread_reader_check(void *ctx, manta_error *err)
{
  return MANTA_OK;
}

static inline void thread_reader_join(struct thread_reader *r)
{
  for (int i = 0; i < r->count; i++)
    pthread_join(r->thread[i], NULL);
  r->count = 0;
}

static inline manta_loader *thread_reader_open(struct thread_reader *r, manta_dataset *d,
                                               manta_loader_config c)
{
  struct manta__share_source source = {r, thread_reader_connect, thread_reader_check, true};
  struct manta__supply supply;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader *l;
  assert_ok(manta__loader_config(&c, &c, &err), &err);
  assert_ok(manta__taker_create(&supply, d, &c, &source, &err), &err);
  assert_ok(manta__loader_open(&l, d, &c, &supply, &err), &err);
  return l;
}

#endif
