/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/nccl/device.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "base/clock.h"
#include "comm/nccl/abi.h"
#include "sys/module.h"

// cuPointerGetAttribute
typedef int (*pointer_fn)(void *out, int attribute, uint64_t p);

// How many objects this process has ever loaded: while that stays, so does an answer.
static int note_loads(struct dl_phdr_info *info, size_t size, void *out)
{
  *(unsigned long long *)out = info->dlpi_adds;
  return 1;
}

// NULL while CUDA's driver is not loaded. Any thread may ask; all find the same. Every small call
// does: an answer holds for a tick of the coarse clock, of some milliseconds, for a driver that was
// just loaded takes far longer until it has given out its first memory.
static pointer_fn find_query(void)
{
  static _Atomic(pointer_fn) found;
  static _Atomic unsigned long long seen;
  static _Atomic int64_t looked;
  pointer_fn query = atomic_load_explicit(&found, memory_order_relaxed);
  int64_t now = query ? 0 : manta__now_coarse();
  if (query || now == atomic_load_explicit(&looked, memory_order_relaxed))
    return query;
  atomic_store_explicit(&looked, now, memory_order_relaxed);
  unsigned long long loads = 0;
  dl_iterate_phdr(note_loads, &loads);
  if (loads == atomic_load_explicit(&seen, memory_order_relaxed))
    return NULL;
  void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  void *p = library ? dlsym(library, "cuPointerGetAttribute") : NULL;
  memcpy(&query, &p, sizeof query);
  atomic_store_explicit(&found, query, memory_order_relaxed);
  atomic_store_explicit(&seen, loads, memory_order_relaxed);
  return query;
}

bool manta__device_owns(const void *p, int *gpu_out)
{
  pointer_fn query = find_query();
  unsigned type = 0;
  int gpu = 0;
  if (!query || !p || query(&type, CU_POINTER_MEMORY_TYPE, (uintptr_t)p) != CU_SUCCESS ||
      type != CU_MEMORY_DEVICE ||
      query(&gpu, CU_POINTER_DEVICE_ORDINAL, (uintptr_t)p) != CU_SUCCESS)
    return false;
  *gpu_out = gpu;
  return true;
}

manta_status manta__device_load(const struct manta__device_ops **out, manta_error *err)
{
  void *entry;
  MANTA_TRY(
      manta__module_symbol("nccl", MANTA__DEVICE_ENTRY, "nothing but the C library", &entry, err));
  const struct manta__device_ops *ops = *(const struct manta__device_ops *const *)entry;
  if (ops->abi != MANTA__DEVICE_ABI)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "libmanta-nccl.so is of another version of manta (%u, not %u)", ops->abi,
                           MANTA__DEVICE_ABI);
  *out = ops;
  return MANTA_OK;
}
