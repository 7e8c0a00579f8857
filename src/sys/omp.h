/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/omp.h - with how many threads the libraries of this process compute.
 *
 * OpenMP, OpenBLAS and MKL read their number when they are loaded. What workers are forked from
 * loads them with one thread, since a process with more cannot be forked; a worker raises it.
 */
#ifndef MANTA_SYS_OMP_H
#define MANTA_SYS_OMP_H

/* Sets OMP_NUM_THREADS, for what is loaded from now on and for children, and tells the libraries
 * that this program was linked with. n >= 1. */
void manta__omp_set_threads(int n);
/* Each of `workers` on a host with `cpus`: at least 1. */
int manta__omp_share(double cpus, int workers);

#endif
