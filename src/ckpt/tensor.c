/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/tensor.c - element types and the size of a tensor.
 */
#include <manta/ckpt.h>

static const struct {
  size_t bytes;
  const char *name;
} dtypes[] = {
#define ROW(name, bytes, text) {bytes, text},
    MANTA_DTYPE_MAP(ROW)
#undef ROW
};

size_t manta_dtype_bytes(manta_dtype t)
{
  return (unsigned)t < MANTA_DTYPE_COUNT ? dtypes[t].bytes : 0;
}

const char *manta_dtype_name(manta_dtype t)
{
  return (unsigned)t < MANTA_DTYPE_COUNT ? dtypes[t].name : "?";
}

int64_t manta_tensor_bytes(const manta_tensor *t)
{
  int64_t n = (int64_t)manta_dtype_bytes(t->dtype);
  if (n == 0 || t->ndim < 0 || t->ndim > MANTA_MAX_DIMS)
    return -1;
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] < 0 || __builtin_mul_overflow(n, t->shape[i], &n))
      return -1;
  return n;
}
