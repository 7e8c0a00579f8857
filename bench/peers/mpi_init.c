/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/peers/mpi_init.c - when a rank is through MPI_Init: CLOCK_MONOTONIC in ns, on a line.
 */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv)
{
  struct timespec t;
  MPI_Init(&argc, &argv);
  clock_gettime(CLOCK_MONOTONIC, &t);
  printf("%lld\n", (long long)t.tv_sec * 1000000000 + t.tv_nsec);
  MPI_Finalize();
  return 0;
}
