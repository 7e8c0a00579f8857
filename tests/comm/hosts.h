/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/hosts.h - a function on forked ranks that are spread over hosts by a layout: those of
 * one host share memory, the others meet over the loopback interface or between two namespaces.
 */
#ifndef MANTA_TEST_HOSTS_H
#define MANTA_TEST_HOSTS_H

#include "comm/comm.h"
#include "comm/hosts/hosts.h"
#include "nets.h"
#include "sys/shm.h"

struct spread {
  int n, host[NETS_MAX];
};

struct rig { /* of one rank */
  struct manta__wire wire;
  manta_comm *comm; /* of all */
  manta_error err;
};

typedef int (*hosts_fn)(struct rig *g, int rank, int n, struct board *b);

static struct {
  const struct spread *spread;
  hosts_fn fn;
  int heap_fd[NETS_MAX]; /* of each host */
  struct board *board;
} hosts_test;

static manta_status hosts_check(void *ctx, manta_error *err)
{
  uint32_t cause = atomic_load(&hosts_test.board->abort);
  return cause ? manta_error_set(err, MANTA_EPEERLOST, "rank %u was lost", cause - 1) : MANTA_OK;
}

static struct manta__bell *hosts_bell(void *ctx, int local)
{
  int *host = ctx;
  for (int r = 0, i = 0; r < hosts_test.spread->n; r++)
    if (hosts_test.spread->host[r] == *host && i++ == local)
      return &hosts_test.board->bell[r];
  return NULL;
}

static void hosts_alive(void *ctx, bool waits)
{
}

static int hosts_local(int rank, int *size)
{
  const struct spread *s = hosts_test.spread;
  int local = 0;
  *size = 0;
  for (int r = 0; r < s->n; r++) {
    local += r < rank && s->host[r] == s->host[rank];
    *size += s->host[r] == s->host[rank];
  }
  return local;
}

static int hosts_rank(struct manta__net *net, int rank, int n, struct board *b)
{
  static struct rig g;
  int host = hosts_test.spread->host[rank], size;
  hosts_test.board = b;
  g.err = (manta_error)MANTA_ERROR_INIT;
  struct manta__comm_host ch = {.rank = hosts_local(rank, &size),
                                .heap_fd = hosts_test.heap_fd[host],
                                .ctx = &host,
                                .abort = &b->abort,
                                .check = hosts_check,
                                .bell = hosts_bell,
                                .alive = hosts_alive};
  ch.size = size;
  struct manta__span span = {
      .rank = rank, .size = n, .host = hosts_test.spread->host, .wire = &g.wire};
  ch.span = &span;
  EXPECT(manta__wire_init(&g.wire, net, &g.err) == MANTA_OK);
  EXPECT(manta__comm_create(&g.comm, &ch, &g.err) == MANTA_OK);
  EXPECT(manta_comm_rank(g.comm) == rank && manta_comm_size(g.comm) == n);
  int line = hosts_test.fn(&g, rank, n, b);
  if (line && *g.err.message)
    fprintf(stderr, "rank %d: %s\n", rank, g.err.message);
  manta__comm_destroy(g.comm);
  return line;
}

static void hosts_start(struct nets *t, const struct place *place, const struct spread *s,
                        hosts_fn fn)
{
  manta_error err = MANTA_ERROR_INIT;
  hosts_test.spread = s;
  hosts_test.fn = fn;
  for (int r = 0; r < s->n; r++) {
    int host = s->host[r];
    if (hosts_test.heap_fd[host] <= 0)
      assert_ok(manta__shm_create("test-heap", manta__comm_segment(s->n, 16u << 20),
                                  &hosts_test.heap_fd[host], &err),
                &err);
  }
  nets_start(t, place, s->n, hosts_rank);
}

static int hosts_end(struct nets *t)
{
  int bad = nets_end(t);
  for (int i = 0; i < NETS_MAX; i++) {
    if (hosts_test.heap_fd[i] > 0)
      close(hosts_test.heap_fd[i]);
    hosts_test.heap_fd[i] = 0;
  }
  return bad;
}

static void on_hosts(const struct place *place, const struct spread *s, hosts_fn fn)
{
  struct nets t;
  hosts_start(&t, place, s, fn);
  assert_int_equal(hosts_end(&t), 0);
}

#endif
