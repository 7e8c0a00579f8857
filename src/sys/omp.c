/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/omp.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tell(const char *function, int n)
{
  void (*set)(int);
  void *found = dlsym(RTLD_DEFAULT, function);
  if (!found)
    return;
  memcpy(&set, &found, sizeof set);
  set(n);
}

void manta__omp_set_threads(int n)
{
  char text[16];
  snprintf(text, sizeof text, "%d", n);
  setenv("OMP_NUM_THREADS", text, 1);
  tell("omp_set_num_threads", n);
  tell("openblas_set_num_threads", n);
  tell("MKL_Set_Num_Threads", n);
}

int manta__omp_share(double cpus, int workers)
{
  int n = workers > 0 ? (int)(cpus / workers) : 1;
  return n > 1 ? n : 1;
}
