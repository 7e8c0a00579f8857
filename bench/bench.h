/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/bench.h - what the bench programs share: a clock, arguments, samples, a board.
 *
 * A program measures one thing and prints its samples, one a line: NAME VALUE. bench/run repeats,
 * pairs and judges them. It exits 1, with a message, if the thing could not be measured.
 */
#ifndef MANTA_BENCH_H
#define MANTA_BENCH_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include <manta/manta.h>

#define BENCH_MB (1u << 20)

int64_t bench_now(void); /* CLOCK_MONOTONIC, ns: the same in all processes of a host */
void bench_nap(int64_t ns);
void bench_sample(const char *name, double value);
_Noreturn void bench_die(const char *fmt, ...) MANTA_PRINTF(1, 2);
/* Dies with the message if `st` is a failure. */
void bench_check(manta_status st, const char *what, const manta_error *err);

/* The value behind --NAME, or `dflt`. */
long bench_arg(int argc, char **argv, const char *name, long dflt);
const char *bench_arg_text(int argc, char **argv, const char *name, const char *dflt);

/* A trainer of `workers` that prints nothing, with its runs below --dir; dies on failure. */
manta_trainer *bench_trainer(int argc, char **argv, int workers, int max_retries);

/* Memory that driver and workers share: a memfd that workers open by the driver's /proc entry, so
 * that nothing is left behind. `path` goes into the run's config. Zeroed. */
void *bench_board_make(size_t bytes, char *path, size_t path_size);
/* In a worker: maps it once per process. */
void *bench_board(const manta_session *s, size_t bytes);

/* Well-mixed bits of x: the same noise in every run. */
uint32_t bench_mix(uint32_t x);
/* Allocates and touches `bytes`; dies without memory. */
void *bench_resident(size_t bytes);
/* Arithmetic that stays in the caches: so many products of small matrices, or for so long. */
void bench_multiply(int times);
void bench_spin(int64_t us);

#endif
