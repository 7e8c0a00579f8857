/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/gpu.h - the NVIDIA GPUs that this process may use, by NVML.
 *
 * NVML is loaded when asked for and unloaded again: a host without it has no GPUs, which is no
 * error. Asking does not touch CUDA, so that no context is made in the process that asks.
 */
#ifndef MANTA_SYS_GPU_H
#define MANTA_SYS_GPU_H

#include <stdbool.h>
#include <stdint.h>

#define MANTA__GPU_MAX 64

struct manta__gpu {
  int index;      /* NVML's, whatever CUDA_VISIBLE_DEVICES says: the same for every process */
  char id[96];    /* what names it in CUDA_VISIBLE_DEVICES */
  char uuid[96];  /* "GPU-…" */
  char name[96];  /* "NVIDIA H100 80GB HBM3" */
  int64_t memory; /* bytes */
};

struct manta__gpus {
  int count;
  char why[160]; /* why there are none, or fewer than the host has; "" if there is nothing to say */
  struct manta__gpu gpu[MANTA__GPU_MAX];
};

/* Lists the GPUs left by CUDA_VISIBLE_DEVICES, in its order. MANTA_NVML names another file to load
 * than libnvidia-ml.so.1. */
void manta__gpu_list(struct manta__gpus *out);

/* The same with everything given. `library`: NVML's file. `visible`: the
 * value of CUDA_VISIBLE_DEVICES or NULL if it is not set. Read as CUDA reads it: indices or
 * beginnings of UUIDs, the first that names no GPU ends the list, a GPU named twice empties it,
 * empty is none. `pci_order`: CUDA_DEVICE_ORDER is PCI_BUS_ID, so CUDA counts as NVML does. A GPU's
 * id is what `visible` calls it, else its index if CUDA's count cannot differ from NVML's, else its
 * UUID. */
void manta__gpu_list_in(struct manta__gpus *out, const char *library, const char *visible,
                        bool pci_order);

/* What a process has of the GPUs. */
struct manta__gpu_use {
  int pid;        /* as NVML knows it: of another number space in some containers */
  int64_t memory; /* bytes, on all of them */
  double busy;    /* the part of the time that the busiest of its GPUs computes, for whomever */
};

/* NVML kept open, for who looks again and again: to start it takes milliseconds. NULL: there is
 * none, or it cannot tell. A call may wait for the driver: not for a thread that must not. */
typedef struct manta__gpu_watch manta__gpu_watch;
manta__gpu_watch *manta__gpu_watch_open(void);
void manta__gpu_watch_close(manta__gpu_watch *w); /* NULL is fine */
/* The processes that compute on GPUs, at most `most`; how many. */
int manta__gpu_watch_read(manta__gpu_watch *w, struct manta__gpu_use *out, int most);

#endif
