/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/peers/mpi_net.c - MPI_Allreduce of f32 in place: ms of the slowest rank, a line a call.
 *
 *   mpi_net BYTES CALLS     the first two calls are not shown
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define WARM 2

int main(int argc, char **argv)
{
  int rank, calls = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 7;
  long count = (argc > 1 ? strtol(argv[1], NULL, 10) : 25000000) / (long)sizeof(float);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float *x = malloc((size_t)count * sizeof *x);
  for (int i = 0; x && i < calls; i++) {
    for (long k = 0; k < count; k++)
      x[k] = (float)(i + rank);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime(), took, slowest;
    MPI_Allreduce(MPI_IN_PLACE, x, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    took = MPI_Wtime() - began;
    MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0 && i >= WARM)
      printf("%.6f\n", slowest * 1e3);
  }
  MPI_Finalize();
  return x ? 0 : 1;
}
