/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/bench.h - `manta bench`: what one measurement is, between the command and its workers.
 *
 * The workers are this command again: the train function is registered in it, and runs on a trainer
 * as anybody's would.
 */
#ifndef MANTA_CMD_BENCH_H
#define MANTA_CMD_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/manta.h>

/* A collective as it is measured. */
struct manta__bench_op {
  const char *name;
  bool send_all, recv_all; /* that buffer holds a block for every rank */
  bool in_place;           /* one buffer is both */
  bool reduces;            /* by sum */
  bool rooted;             /* at rank 0 */
  bool ring;               /* every rank gets what the one before it sends */
  manta_status (*call)(manta_comm *c, const void *send, void *recv, size_t count, manta_dtype type,
                       manta_error *err);
  /* Bytes that the slowest link between n ranks must carry, per byte of the size. */
  double (*bus)(int n);
};

/* A row without a name ends it. */
extern const struct manta__bench_op manta__bench_ops[];
const struct manta__bench_op *manta__bench_op_find(const char *name);

/* One size of one collective. */
struct manta__bench_job {
  const struct manta__bench_op *op;
  manta_dtype type;
  size_t count;   /* elements of one block */
  bool private_;  /* not in shared memory */
  double seconds; /* that it may take, about */
};

/* Times in µs of the slowest rank of each call. */
struct manta__bench_result {
  int64_t calls, wrong;
  double min, p50, p99;
};

/* Bytes that count: of the larger of a rank's two buffers. */
size_t manta__bench_bytes(const struct manta__bench_job *j, int ranks);
/* Bytes that a rank needs for its buffers. */
size_t manta__bench_memory(const struct manta__bench_job *j, int ranks);

/* Runs it on all workers of a trainer. */
manta_status manta__bench_comm(manta_trainer *t, const struct manta__bench_job *j,
                               struct manta__bench_result *out, manta_error *err);

#endif
