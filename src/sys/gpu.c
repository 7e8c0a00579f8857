/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/knob.h"

// --- NVML, the little of it that is needed (its ABI is stable: the _v2 names say so) -------------

struct nvml_device;
struct nvml_memory {
  unsigned long long total, free, used;
};

struct nvml {
  void *library;
  int (*init)(void);
  int (*shutdown)(void);
  int (*count)(unsigned *);
  int (*by_index)(unsigned, struct nvml_device **);
  int (*uuid)(struct nvml_device *, char *, unsigned);
  int (*name)(struct nvml_device *, char *, unsigned);
  int (*memory)(struct nvml_device *, struct nvml_memory *);
};

// dlsym gives functions as data pointers, which C cannot convert; POSIX has this way round it.
static bool bind_symbol(const struct nvml *n, const char *name, void *slot)
{
  void *p = dlsym(n->library, name);
  memcpy(slot, &p, sizeof p);
  return p != NULL;
}

static bool bind_all(struct nvml *n)
{
  return bind_symbol(n, "nvmlInit_v2", &n->init) && bind_symbol(n, "nvmlShutdown", &n->shutdown) &&
         bind_symbol(n, "nvmlDeviceGetCount_v2", &n->count) &&
         bind_symbol(n, "nvmlDeviceGetHandleByIndex_v2", &n->by_index) &&
         bind_symbol(n, "nvmlDeviceGetUUID", &n->uuid) &&
         bind_symbol(n, "nvmlDeviceGetName", &n->name) &&
         bind_symbol(n, "nvmlDeviceGetMemoryInfo", &n->memory);
}

static bool nvml_open(struct nvml *n, const char *library, char *why, size_t size)
{
  *n = (struct nvml){.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
  if (!n->library) {
    snprintf(why, size, "no %s", library);
    return false;
  }
  int rc = 0;
  if (!bind_all(n))
    snprintf(why, size, "%s lacks functions that are needed", library);
  else if ((rc = n->init()) != 0)
    snprintf(why, size, "NVML does not start, its error is %d", rc);
  else
    return true;
  dlclose(n->library);
  return false;
}

static void nvml_close(struct nvml *n)
{
  n->shutdown();
  dlclose(n->library);
}

// --- What processes use --------------------------------------------------------------------------

#define MAX_PROCESSES 128 /* of one GPU */

struct nvml_process {
  unsigned pid;
  unsigned long long memory; // ~0: not known
  unsigned instance, compute_instance;
};
struct nvml_rates {
  unsigned gpu, memory; // percent
};

struct manta__gpu_watch {
  struct nvml nvml;
  int (*processes)(struct nvml_device *, unsigned *, struct nvml_process *);
  int (*rates)(struct nvml_device *, struct nvml_rates *);
};

manta__gpu_watch *manta__gpu_watch_open(void)
{
  char why[160];
  manta__gpu_watch *w = manta__calloc(1, sizeof *w);
  if (!w || !nvml_open(&w->nvml, manta__knob_text(MANTA__KNOB_NVML), why, sizeof why)) {
    manta__free(w);
    return NULL;
  }
  if (bind_symbol(&w->nvml, "nvmlDeviceGetComputeRunningProcesses_v3", &w->processes) &&
      bind_symbol(&w->nvml, "nvmlDeviceGetUtilizationRates", &w->rates))
    return w;
  manta__gpu_watch_close(w);
  return NULL;
}

void manta__gpu_watch_close(manta__gpu_watch *w)
{
  if (w)
    nvml_close(&w->nvml);
  manta__free(w);
}

static int add_use(struct manta__gpu_use *out, int count, int most, const struct nvml_process *p,
                   double busy)
{
  int64_t memory = p->memory == ~0ull ? 0 : (int64_t)p->memory;
  int i = 0;
  while (i < count && out[i].pid != (int)p->pid)
    i++;
  if (i == most)
    return count;
  if (i == count)
    out[count++] = (struct manta__gpu_use){.pid = (int)p->pid};
  out[i].memory += memory;
  out[i].busy = busy > out[i].busy ? busy : out[i].busy;
  return count;
}

int manta__gpu_watch_read(manta__gpu_watch *w, struct manta__gpu_use *out, int most)
{
  struct nvml_process found[MAX_PROCESSES];
  struct nvml_device *h;
  unsigned gpus = 0;
  int count = 0;
  if (w->nvml.count(&gpus) != 0)
    return 0;
  for (unsigned i = 0; i < gpus && i < MANTA__GPU_MAX; i++) {
    struct nvml_rates rates = {0};
    unsigned n = MAX_PROCESSES;
    if (w->nvml.by_index(i, &h) != 0 || w->processes(h, &n, found) != 0)
      continue;
    if (w->rates(h, &rates) != 0)
      rates.gpu = 0;
    for (unsigned k = 0; k < n && k < MAX_PROCESSES; k++)
      count = add_use(out, count, most, &found[k], rates.gpu / 100.0);
  }
  return count;
}

// --- The GPUs of the host ------------------------------------------------------------------------

static bool read_gpu(const struct nvml *n, int index, struct manta__gpu *g)
{
  struct nvml_device *h;
  struct nvml_memory memory = {0};
  *g = (struct manta__gpu){.index = index};
  if (n->by_index((unsigned)index, &h) != 0 || n->uuid(h, g->uuid, sizeof g->uuid) != 0)
    return false;
  if (n->name(h, g->name, sizeof g->name) != 0)
    snprintf(g->name, sizeof g->name, "?");
  if (n->memory(h, &memory) == 0)
    g->memory = (int64_t)memory.total;
  return true;
}

// A GPU that does not answer (no permission, fallen off the bus) is left out; the others keep their
// indices.
static void read_all(const struct nvml *n, struct manta__gpus *all)
{
  unsigned count = 0;
  if (n->count(&count) != 0)
    count = 0;
  unsigned silent = 0;
  for (unsigned i = 0; i < count && all->count < MANTA__GPU_MAX; i++)
    if (read_gpu(n, (int)i, &all->gpu[all->count]))
      all->count++;
    else
      silent++;
  if (silent)
    snprintf(all->why, sizeof all->why, "%u of %u GPUs do not answer", silent, count);
  else if (count == 0)
    snprintf(all->why, sizeof all->why, "NVML knows no GPU");
}

// CUDA puts the fastest first unless told otherwise: among equals that is NVML's order.
static bool indices_agree(const struct manta__gpus *all, bool pci_order)
{
  for (int i = 1; i < all->count && !pci_order; i++)
    if (strcmp(all->gpu[i].name, all->gpu[0].name) != 0)
      return false;
  return true;
}

static void name_all(struct manta__gpus *all, bool pci_order)
{
  bool agree = indices_agree(all, pci_order);
  for (int i = 0; i < all->count; i++) {
    struct manta__gpu *g = &all->gpu[i];
    if (agree)
      snprintf(g->id, sizeof g->id, "%d", g->index);
    else
      memcpy(g->id, g->uuid, sizeof g->id);
  }
}

// --- CUDA_VISIBLE_DEVICES ------------------------------------------------------------------------

// The GPU that a word names, or NULL. A beginning of a UUID must be that of one GPU only.
static const struct manta__gpu *find(const struct manta__gpus *all, const char *word)
{
  char *end;
  long index = strtol(word, &end, 10);
  bool number = end != word && *end == 0;
  const struct manta__gpu *found = NULL;
  for (int i = 0; i < all->count; i++) {
    const struct manta__gpu *g = &all->gpu[i];
    if (number ? g->index != index : strncmp(g->uuid, word, strlen(word)) != 0)
      continue;
    if (found)
      return NULL;
    found = g;
  }
  return found;
}

static bool next_word(const char **list, char *word, size_t size)
{
  const char *p = *list + strspn(*list, " ");
  size_t n = strcspn(p, ","), len = n;
  while (len > 0 && p[len - 1] == ' ')
    len--;
  if (len == 0 || len >= size)
    return false;
  memcpy(word, p, len);
  word[len] = 0;
  *list = p[n] == ',' ? p + n + 1 : p + n;
  return true;
}

static void choose(const struct manta__gpus *all, const char *visible, struct manta__gpus *out)
{
  char word[sizeof out->gpu->id] = "";
  for (const char *p = visible; next_word(&p, word, sizeof word);) {
    const struct manta__gpu *g = find(all, word);
    if (!g || out->count == MANTA__GPU_MAX)
      break;
    for (int i = 0; i < out->count; i++)
      if (out->gpu[i].index == g->index) { // CUDA then shows none at all
        out->count = 0;
        snprintf(out->why, sizeof out->why, "CUDA_VISIBLE_DEVICES names GPU %d twice", g->index);
        return;
      }
    out->gpu[out->count] = *g;
    memcpy(out->gpu[out->count++].id, word, sizeof word);
  }
  if (out->count < all->count)
    snprintf(out->why, sizeof out->why, "CUDA_VISIBLE_DEVICES=%.60s leaves %d of %d", visible,
             out->count, all->count);
}

void manta__gpu_list_in(struct manta__gpus *out, const char *library, const char *visible,
                        bool pci_order)
{
  struct manta__gpus all = {0};
  struct nvml n;
  *out = (struct manta__gpus){0};
  if (!nvml_open(&n, library, out->why, sizeof out->why))
    return;
  read_all(&n, &all);
  nvml_close(&n);
  name_all(&all, pci_order);
  memcpy(out->why, all.why, sizeof out->why);
  if (visible)
    choose(&all, visible, out);
  else
    *out = all;
}

void manta__gpu_list(struct manta__gpus *out)
{
  const char *order = getenv("CUDA_DEVICE_ORDER");
  manta__gpu_list_in(out, manta__knob_text(MANTA__KNOB_NVML), getenv("CUDA_VISIBLE_DEVICES"),
                     order && strcmp(order, "PCI_BUS_ID") == 0);
}
