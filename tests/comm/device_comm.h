/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/device_comm.h - device memory through the public calls: a communicator between the
 * ranks of device_ranks.h.
 */
#ifndef MANTA_TEST_DEVICE_COMM_H
#define MANTA_TEST_DEVICE_COMM_H

#include <sys/mman.h>

#include "comm/comm.h"
#include "comm/device_cases.h"
#include "sys/shm.h"

static struct { /* made before the ranks are */
  int heap_fd;
  struct manta__bell *bell;
} fabric;

static struct manta__bell *fabric_bell(void *ctx, int rank)
{
  return &fabric.bell[rank];
}

static manta_comm *open_comm(struct rank *t)
{
  manta_comm *c = NULL;
  struct manta__comm_host host = {.rank = t->rank,
                                  .size = t->n,
                                  .heap_fd = fabric.heap_fd,
                                  .ctx = t,
                                  .abort = t->host.abort,
                                  .check = t->host.check,
                                  .bell = fabric_bell,
                                  .alive = t->host.alive};
  return manta__comm_create(&c, &host, &t->err) == MANTA_OK ? c : NULL;
}

/* What differs is named before a GPU is asked; nobody is out of step after that. */
static int differs(struct rank *t, manta_comm *c, float *here, float *there)
{
  float *x = t->rank == 1 ? here : there;
  EXPECT(manta_comm_allreduce(c, x, x, 4, MANTA_F32, MANTA_SUM, &t->err) == MANTA_EINVAL);
  EXPECT(strstr(t->err.message, "allreduce on a GPU of 4 F32 sum"));
  EXPECT(strstr(t->err.message, "rank 1 allreduce of 4 F32 sum"));
  EXPECT_OK(manta_comm_barrier(c, &t->err));
  return 0;
}

static int passes_around(struct rank *t, manta_comm *c, float *there)
{
  int next = (t->rank + 1) % t->n, before = (t->rank + t->n - 1) % t->n;
  float *from = on_device(t, NULL, 4 * sizeof(float)), got[4];
  manta_status sent = MANTA_OK, received = MANTA_OK;
  if (t->rank == 0)
    sent = manta_comm_send(c, there, 4, MANTA_F32, next, &t->err);
  received = manta_comm_recv(c, from, 4, MANTA_F32, before, &t->err);
  if (t->rank != 0)
    sent = manta_comm_send(c, there, 4, MANTA_F32, next, &t->err);
  EXPECT_OK(sent);
  EXPECT_OK(received);
  fetch(t, got, from, sizeof got);
  for (int i = 0; i < 4; i++)
    EXPECT(got[i] == (float)(before * 10 + i));
  return 0;
}

static int case_comm(struct rank *t)
{
  manta_comm *c = open_comm(t);
  manta_work *w;
  float here[4], sum[4];
  EXPECT(c != NULL);
  for (int i = 0; i < 4; i++)
    here[i] = (float)(t->rank * 10 + i);
  float *there = on_device(t, here, sizeof here), *out = on_device(t, NULL, sizeof here);
  EXPECT_OK(manta_comm_allreduce(c, there, out, 4, MANTA_F32, MANTA_SUM, &t->err));
  fetch(t, sum, out, sizeof sum);
  for (int i = 0; i < 4; i++)
    EXPECT(sum[i] == (float)(t->n * (t->n - 1) / 2 * 10 + t->n * i));
  manta_comm_set_stream(c, NULL); // the default; others are tried on the table itself
  EXPECT_OK(manta_comm_allreduce_start(c, out, out, 4, MANTA_F32, MANTA_MAX, &w, &t->err));
  EXPECT_OK(manta_comm_allreduce(c, here, here, 4, MANTA_F32, MANTA_MAX, &t->err));
  EXPECT_OK(manta_work_wait(w, &t->err));
  EXPECT(here[3] == (float)((t->n - 1) * 10 + 3));
  int line = t->n < 2 ? 0 : differs(t, c, here, there);
  line = line || t->n < 2 ? line : passes_around(t, c, there);
  manta__comm_destroy(c);
  return line;
}

static void through_the_public_calls(int most)
{
  for (int n = 1; n <= most; n++) {
    manta_error err = MANTA_ERROR_INIT;
    fabric.bell = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ok(
        manta__shm_create("test-heap", manta__comm_segment(n, 1u << 20), &fabric.heap_fd, &err),
        &err);
    on_ranks(n, case_comm);
    close(fabric.heap_fd);
    munmap(fabric.bell, 4096);
  }
}

#endif
