/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl/lib.c - finds NCCL and CUDA's runtime at run time, and binds the functions that
 * comm/nccl/abi.h lists. Nothing here is linked against them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/knob.h"
#include "comm/nccl/abi.h"

struct symbol_row {
  const char *symbol;
  size_t slot; // offset of the function's pointer in its table
};

#define NCCL_ROW(field, symbol, since, arguments) {#symbol, offsetof(struct nccl, field)},
#define CUDA_ROW(field, symbol, arguments)        {#symbol, offsetof(struct cuda, field)},
static const struct symbol_row nccl_rows[] = {
    NCCL_MAP(NCCL_ROW){"ncclGetErrorString", offsetof(struct nccl, error_string)},
    {"ncclGetLastError", offsetof(struct nccl, last_error)}};
static const struct symbol_row cuda_rows[] = {CUDA_MAP(CUDA_ROW)};

#define NCCL_CHECK(field, symbol, since, arguments)                                                \
  static_assert((since) <= NCCL_OLDEST, #symbol " is newer than the oldest version that is taken");
NCCL_MAP(NCCL_CHECK)

// The name of the first that is missing, or NULL. dlsym gives functions as data pointers, which C
// cannot convert; POSIX has this way round it.
static const char *bind_rows(void *library, const struct symbol_row *rows, size_t n, void *table)
{
  for (size_t i = 0; i < n; i++) {
    void *p = dlsym(library, rows[i].symbol);
    if (!p)
      return rows[i].symbol;
    memcpy((char *)table + rows[i].slot, &p, sizeof p);
  }
  return NULL;
}

// A name without a slash is first looked for among the libraries that the process has.
static void *open_library(const char *file, const char *hint, manta_error *err)
{
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    manta_error_set(err, MANTA_EUNSUPPORTED, "%s%s", dlerror(), hint);
  return library;
}

static manta_status load_cuda(struct cuda *t, manta_error *err)
{
  void *library = open_library(CUDA_LIBRARY, "", err);
  if (!library)
    return MANTA_EUNSUPPORTED;
  const char *missing = bind_rows(library, cuda_rows, sizeof cuda_rows / sizeof *cuda_rows, t);
  if (missing) {
    dlclose(library);
    return manta_error_set(err, MANTA_EUNSUPPORTED, "%s lacks %s: the driver is too old",
                           CUDA_LIBRARY, missing);
  }
  return MANTA_OK;
}

// The version comes first: in an old library the rest may be missing, or mean something else.
static manta_status check_version(void *library, const char *file, int *code, manta_error *err)
{
  struct nccl first = {0};
  const struct symbol_row row = {"ncclGetVersion", offsetof(struct nccl, version)};
  if (bind_rows(library, &row, 1, &first))
    return manta_error_set(err, MANTA_EUNSUPPORTED, "%s is not NCCL: it lacks %s", file,
                           row.symbol);
  if (first.version(code) != NCCL_SUCCESS || *code < NCCL_OLDEST)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "%s has version %d of NCCL, and manta needs %d or later", file, *code,
                           NCCL_OLDEST);
  return MANTA_OK;
}

static manta_status load_nccl(struct nccl *t, manta_error *err)
{
  const char *file = manta__knob_text(MANTA__KNOB_NCCL);
  void *library = open_library(file, "\nhint: MANTA_NCCL names the file of NCCL", err);
  if (!library)
    return MANTA_EUNSUPPORTED;
  manta_status st = check_version(library, file, &t->code, err);
  const char *missing = NULL;
  if (st == MANTA_OK)
    missing = bind_rows(library, nccl_rows, sizeof nccl_rows / sizeof *nccl_rows, t);
  if (missing)
    st = manta_error_set(err, MANTA_EUNSUPPORTED, "%s lacks %s", file, missing);
  if (st < 0)
    dlclose(library);
  return st;
}

manta_status manta__nccl_load(const struct nccl **nccl, const struct cuda **cuda, manta_error *err)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct nccl nccl_table;
  static struct cuda cuda_table;
  static bool loaded;
  pthread_mutex_lock(&lock);
  manta_status st = MANTA_OK;
  if (!loaded && (st = load_cuda(&cuda_table, err)) == MANTA_OK)
    st = load_nccl(&nccl_table, err);
  loaded = loaded || st == MANTA_OK;
  pthread_mutex_unlock(&lock);
  if (st < 0)
    return st;
  *nccl = &nccl_table;
  *cuda = &cuda_table;
  return MANTA_OK;
}
