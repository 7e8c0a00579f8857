/* SPDX-License-Identifier: Apache-2.0
 *
 * An NVML of a host that exists in the environment only: FAKE_NVML holds one word per GPU,
 * "UUID=name", where a name of "broken" answers nothing. "down" alone: NVML that does not start.
 * Process 4242 computes on every GPU, and a process of its own number + 1 on each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT   __attribute__((visibility("default")))
#define MAX_GPUS 100

static char uuid[MAX_GPUS][96], name[MAX_GPUS][96];
static unsigned gpus;
static int running;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *n);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h);
EXPORT int nvmlDeviceGetUUID(void *h, char *buf, unsigned size);
EXPORT int nvmlDeviceGetName(void *h, char *buf, unsigned size);
EXPORT int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *memory);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, void *out);
EXPORT int nvmlDeviceGetUtilizationRates(void *h, unsigned *percent);

int nvmlInit_v2(void)
{
  const char *p = getenv("FAKE_NVML");
  int used = 0;
  if (!p || strcmp(p, "down") == 0)
    return 9;
  for (gpus = 0;
       gpus < MAX_GPUS && sscanf(p, " %95[^=]=%95s%n", uuid[gpus], name[gpus], &used) == 2; gpus++)
    p += used;
  running++;
  return 0;
}

int nvmlShutdown(void)
{
  running--;
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
  *n = gpus;
  return running ? 0 : 1;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h)
{
  if (!running || i >= gpus || strcmp(name[i], "broken") == 0)
    return 2;
  *h = &uuid[i];
  return 0;
}

static unsigned at(const void *h)
{
  return (unsigned)((const char(*)[96])h - (const char(*)[96])uuid);
}

int nvmlDeviceGetUUID(void *h, char *buf, unsigned size)
{
  snprintf(buf, size, "%s", uuid[at(h)]);
  return 0;
}

int nvmlDeviceGetName(void *h, char *buf, unsigned size)
{
  snprintf(buf, size, "%s", name[at(h)]);
  return 0;
}

int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *memory)
{
  memory[0] = (at(h) + 1ull) << 30;
  return 0;
}

struct process {
  unsigned pid;
  unsigned long long memory;
  unsigned instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, void *out)
{
  struct process *p = out;
  if (*n < 2)
    return 7;
  *n = 2;
  p[0] = (struct process){.pid = 4242, .memory = 1000 * (at(h) + 1)};
  p[1] = (struct process){.pid = at(h) + 1, .memory = ~0ull};
  return 0;
}

int nvmlDeviceGetUtilizationRates(void *h, unsigned *percent)
{
  percent[0] = 10 * (at(h) + 1);
  percent[1] = 0;
  return 0;
}
