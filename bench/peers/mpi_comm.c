/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/peers/mpi_comm.c - MPI's collectives, measured as `manta bench comm` measures ours.
 *
 *   mpi_comm OP FROM TO FACTOR MS     f32, sum, root 0; prints: BYTES CALLS MIN P50 P99 WRONG
 *
 * The same loop: every rank rewrites its send buffer, all meet at a barrier, each times its call,
 * and the call took what the slowest rank took. Buffers are touched before, MPI_IN_PLACE where ours
 * is in place (all-reduce, broadcast). The number of calls is what fits MS after two to warm up.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PERIOD    1021
#define WARM_UP   2
#define TRIAL     3
#define MIN_CALLS 5
#define MAX_CALLS 20000

static int rank, ranks;
static float mine[PERIOD], *a, *b;
static double us[MAX_CALLS];

struct op {
  const char *name;
  int send_all, recv_all, in_place, reduces, rooted, ring;
  void (*call)(int count);
};

static void allreduce(int count)
{
  MPI_Allreduce(MPI_IN_PLACE, a, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(int count)
{
  MPI_Reduce(a, b, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void broadcast(int count)
{
  MPI_Bcast(a, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void allgather(int count)
{
  MPI_Allgather(a, count, MPI_FLOAT, b, count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(int count)
{
  MPI_Reduce_scatter_block(a, b, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(int count)
{
  MPI_Alltoall(a, count, MPI_FLOAT, b, count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void gather(int count)
{
  MPI_Gather(a, count, MPI_FLOAT, b, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void scatter(int count)
{
  MPI_Scatter(a, count, MPI_FLOAT, b, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void sendrecv(int count)
{
  MPI_Sendrecv(a, count, MPI_FLOAT, (rank + 1) % ranks, 0, b, count, MPI_FLOAT,
               (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static const struct op ops[] = {{"allreduce", 0, 0, 1, 1, 0, 0, allreduce},
                                {"reduce", 0, 0, 0, 1, 1, 0, reduce},
                                {"broadcast", 0, 0, 1, 0, 1, 0, broadcast},
                                {"allgather", 0, 1, 0, 0, 0, 0, allgather},
                                {"reduce_scatter", 1, 0, 0, 1, 0, 0, reduce_scatter},
                                {"alltoall", 1, 1, 0, 0, 0, 0, alltoall},
                                {"gather", 0, 1, 0, 0, 1, 0, gather},
                                {"scatter", 1, 0, 0, 0, 1, 0, scatter},
                                {"sendrecv", 0, 0, 0, 0, 0, 1, sendrecv},
                                {0}};

// A small number per rank and place, so that sums are exact.
static float number_at(int of, size_t place)
{
  unsigned mixed = ((unsigned)(place % PERIOD) + 1) * 2654435761u + (unsigned)of * 0x9e3779b1u;
  return (float)((mixed ^ mixed >> 13) * 0x85ebca6bu >> 30);
}

static double now_us(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double call_once(const struct op *op, size_t count)
{
  size_t n = op->send_all ? count * (size_t)ranks : count;
  for (size_t i = 0; i < n; i += PERIOD)
    memcpy(a + i, mine, (n - i < PERIOD ? n - i : PERIOD) * sizeof *a);
  MPI_Barrier(MPI_COMM_WORLD);
  double from = now_us();
  op->call((int)count);
  return now_us() - from;
}

static int choose_calls(const struct op *op, size_t count, double ms)
{
  for (int i = 0; i < WARM_UP; i++)
    call_once(op, count);
  double from = now_us();
  for (int i = 0; i < TRIAL; i++)
    call_once(op, count);
  double fit = ms * 1e3 * TRIAL / (now_us() - from);
  int calls = fit < MIN_CALLS ? MIN_CALLS : fit > MAX_CALLS ? MAX_CALLS : (int)fit;
  MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return calls;
}

static float wanted(const struct op *op, int block, size_t place)
{
  float sum = 0;
  if (!op->reduces)
    return number_at(op->ring ? (rank + ranks - 1) % ranks : block, place);
  for (int r = 0; r < ranks; r++)
    sum += number_at(r, place);
  return sum;
}

static long count_wrong(const struct op *op, size_t count)
{
  long wrong = 0;
  const float *recv = op->in_place ? a : b;
  int gets = !op->rooted || rank == 0 || !(op->reduces || op->recv_all);
  call_once(op, count);
  for (int block = 0; gets && block < (op->recv_all ? ranks : 1); block++)
    for (size_t i = 0; i < count; i++)
      wrong += recv[(size_t)block * count + i] !=
               wanted(op, block, op->send_all ? (size_t)rank * count + i : i);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return wrong;
}

static int by_value(const void *x, const void *y)
{
  double p = *(const double *)x, q = *(const double *)y;
  return p < q ? -1 : p > q;
}

static void measure(const struct op *op, size_t count, double ms)
{
  size_t bytes = count * sizeof *a * (size_t)(op->send_all || op->recv_all ? ranks : 1);
  int calls = choose_calls(op, count, ms);
  for (int i = 0; i < calls; i++)
    us[i] = call_once(op, count);
  MPI_Allreduce(MPI_IN_PLACE, us, calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  long wrong = count_wrong(op, count);
  qsort(us, (size_t)calls, sizeof *us, by_value);
  if (rank == 0)
    printf("%zu %d %.3f %.3f %.3f %ld\n", bytes, calls, us[0], us[calls / 2],
           us[(calls * 99 + 99) / 100 - 1], wrong);
  fflush(stdout);
}

static float *touched(size_t bytes)
{
  float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    MPI_Abort(MPI_COMM_WORLD, 1);
  memset(p, 0, bytes);
  return p;
}

static const struct op *find(const char *name)
{
  for (const struct op *op = ops; op->name; op++)
    if (!strcmp(op->name, name))
      return op;
  fprintf(stderr, "mpi_comm: no collective '%s'\n", name);
  MPI_Abort(MPI_COMM_WORLD, 2);
  return NULL;
}

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 6) {
    fprintf(stderr, "usage: mpi_comm OP FROM TO FACTOR MS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const struct op *op = find(argv[1]);
  size_t from = strtoul(argv[2], NULL, 10), to = strtoul(argv[3], NULL, 10);
  size_t factor = strtoul(argv[4], NULL, 10);
  size_t one = sizeof(float) * (size_t)(op->send_all || op->recv_all ? ranks : 1);
  a = touched(to);
  b = touched(to);
  for (size_t i = 0; i < PERIOD; i++)
    mine[i] = number_at(rank, i);
  for (size_t bytes = from; bytes <= to; bytes *= factor)
    if (bytes >= one)
      measure(op, bytes / one, strtod(argv[5], NULL));
  MPI_Finalize();
  return 0;
}
