/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/npyhead.c - the header of a numpy array: a magic, a length, and a Python dict in
 * text, of which exactly what numpy writes is understood:
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/binary/npy.h"

#define MAGIC       "\x93NUMPY"
#define MAGIC_BYTES 6

/* The text of the dict, and where we are. */
struct npy_text {
  const char *p, *end;
};

static void skip_blanks(struct npy_text *t)
{
  while (t->p < t->end && (*t->p == ' ' || *t->p == '\n' || *t->p == '\t'))
    t->p++;
}

static bool take(struct npy_text *t, const char *word)
{
  size_t n = strlen(word);
  skip_blanks(t);
  if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n) != 0)
    return false;
  t->p += n;
  return true;
}

static bool take_string(struct npy_text *t, char *out, size_t size)
{
  skip_blanks(t);
  char quote = t->p < t->end ? *t->p : 0;
  if (quote != '\'' && quote != '"')
    return false;
  const char *from = ++t->p, *to = memchr(from, quote, (size_t)(t->end - from));
  if (!to || (size_t)(to - from) >= size)
    return false;
  memcpy(out, from, (size_t)(to - from));
  out[to - from] = 0;
  t->p = to + 1;
  return true;
}

// (3, 4), (3,), ()
static bool take_shape(struct npy_text *t, int64_t *shape, int *ndim)
{
  *ndim = 0;
  if (!take(t, "("))
    return false;
  while (!take(t, ")")) {
    int64_t n = 0;
    if (*ndim > MANTA_MAX_DIMS || t->p == t->end || *t->p < '0' || *t->p > '9')
      return false;
    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++)
      if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *t->p - '0', &n))
        return false;
    shape[(*ndim)++] = n;
    if (!take(t, ",") && !(t->p < t->end && *t->p == ')'))
      return false;
  }
  return true;
}

// --- types --------------------------------------------------------------------------------------

static manta_status unknown(const char *name, const char *descr, manta_error *err)
{
  const char *why = strchr(descr, 'O')   ? "Python objects, which are pickles and may run code"
                    : strchr(descr, 'c') ? "complex numbers"
                                         : "a type that manta does not read";
  return manta_error_set(err, MANTA_EUNSUPPORTED,
                         "%s: holds %s ('%.32s')\nhint: save it as an array of numbers, strings or "
                         "bytes",
                         name, why, descr);
}

static bool number_type(char kind, int64_t bytes, struct manta__type *out)
{
  static const struct {
    char kind;
    int64_t bytes;
    manta_dtype dtype;
  } types[] = {{'f', 2, MANTA_F16}, {'f', 4, MANTA_F32}, {'f', 8, MANTA_F64}, {'i', 1, MANTA_I8},
               {'i', 2, MANTA_I16}, {'i', 4, MANTA_I32}, {'i', 8, MANTA_I64}, {'u', 1, MANTA_U8},
               {'u', 2, MANTA_U16}, {'u', 4, MANTA_U32}, {'u', 8, MANTA_U64}, {'b', 1, MANTA_U8},
               {'M', 8, MANTA_I64}, {'m', 8, MANTA_I64}, {'V', 2, MANTA_U16}}; // V2: bfloat16
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].kind == kind && types[i].bytes == bytes) {
      *out = manta__type_of(types[i].dtype);
      return true;
    }
  return false;
}

// What Arrow calls datetime64 and timedelta64; other units are plain numbers.
static void time_type(char kind, const char *unit, struct manta__type *out)
{
  static const char *const units[] = {"[s]", "[ms]", "[us]", "[ns]"};
  for (size_t i = 0; i < 4; i++)
    if (!strcmp(unit, units[i]) && out->ndim == 0) {
      memcpy(out->logical, kind == 'M' ? "ts_:" : "tD_", kind == 'M' ? 5 : 4);
      out->logical[2] = "smun"[i];
    }
}

static manta_status read_descr(struct manta__npy_header *h, const char *descr, const char *name,
                               manta_error *err)
{
  char order = descr[0], kind = order ? descr[1] : 0, *end;
  if (!kind || !strchr("<>|=", order) || descr[2] < '0' || descr[2] > '9')
    return unknown(name, descr, err);
  int64_t n = strtoll(descr + 2, &end, 10);
  h->swapped = order == '>' && n > 1;
  if (n < 1 || n > MANTA__WIDTH_MAX / 4)
    return unknown(name, descr, err);
  h->element = (size_t)(kind == 'U' ? 4 * n : n);
  h->kind = kind == 'S' ? MANTA__NPY_BYTES : kind == 'U' ? MANTA__NPY_UNICODE : MANTA__NPY_NUMBER;
  if (h->kind != MANTA__NPY_NUMBER) {
    h->swapped = order == '>';
    h->type = manta__type_kind(kind == 'S' ? MANTA_KIND_BYTES : MANTA_KIND_STRING);
    return *end ? unknown(name, descr, err) : MANTA_OK;
  }
  if (!number_type(kind, n, &h->type) || (*end && kind != 'M' && kind != 'm'))
    return unknown(name, descr, err);
  if (kind == 'b') {
    h->kind = MANTA__NPY_BOOL;
    h->type = manta__type_kind(MANTA_KIND_BOOL);
  }
  return MANTA_OK;
}

static manta_status set_shape(struct manta__npy_header *h, const int64_t *shape, int ndim,
                              const char *descr, const char *name, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  bool plain = ndim <= 1, empty = false;
  int64_t total;
  h->rows = ndim ? shape[0] : 1;
  if (!plain && h->kind == MANTA__NPY_BOOL) { // bits have no shape
    h->kind = MANTA__NPY_NUMBER;
    h->type = manta__type_of(MANTA_U8);
  }
  if (!plain && h->kind != MANTA__NPY_NUMBER)
    return unknown(name, descr, err);
  h->type.ndim = plain ? 0 : ndim - 1;
  for (int d = 1; d < ndim; d++) {
    h->type.shape[d - 1] = shape[d];
    empty |= shape[d] == 0;
  }
  if (empty || manta__type_check(&h->type, &why) < 0)
    return manta_error_set(err, MANTA_EINVAL, "%s: an array of impossible shape: %s", name,
                           empty ? "a dimension is 0" : why.message);
  if (descr[1] == 'M' || descr[1] == 'm')
    time_type(descr[1], strchr(descr, '[') ? strchr(descr, '[') : "", &h->type);
  h->row = h->element * (size_t)manta__type_count(&h->type);
  if (__builtin_mul_overflow(h->rows, (int64_t)h->row, &total) || total > INT64_MAX / 4)
    return manta_error_set(err, MANTA_EINVAL, "%s: an array of impossible shape", name);
  h->fortran &= !plain;
  return MANTA_OK;
}

// --- the dict -----------------------------------------------------------------------------------

static manta_status read_dict(struct manta__npy_header *h, struct npy_text *t, const char *name,
                              manta_error *err)
{
  char key[32], descr[64] = "";
  int64_t shape[MANTA_MAX_DIMS + 2];
  int ndim = -1;
  bool ok = take(t, "{");
  while (ok && !take(t, "}")) {
    ok = take_string(t, key, sizeof key) && take(t, ":");
    if (ok && !strcmp(key, "descr"))
      ok = take_string(t, descr, sizeof descr);
    else if (ok && !strcmp(key, "fortran_order"))
      ok = (h->fortran = take(t, "True")) || take(t, "False");
    else if (ok && !strcmp(key, "shape"))
      ok = take_shape(t, shape, &ndim);
    else
      ok = false;
    if (ok && !take(t, ",")) {
      ok = take(t, "}");
      break;
    }
  }
  if (!ok || ndim < 0 || !descr[0] || ndim > MANTA_MAX_DIMS)
    return manta_error_set(
        err, MANTA_EINVAL,
        "%s: the header of the array is not understood\nhint: records and arrays "
        "of more than %d dimensions are not read",
        name, MANTA_MAX_DIMS);
  MANTA_TRY(read_descr(h, descr, name, err));
  return set_shape(h, shape, ndim, descr, name, err);
}

// Where the text begins: versions 2 and 3 have a length of 32 bits.
static size_t text_at(const uint8_t *p)
{
  return p[6] >= 2 ? 12 : 10;
}

manta_status manta__npy_length(const uint8_t p[MANTA__NPY_START], size_t *out, const char *name,
                               manta_error *err)
{
  if (memcmp(p, MAGIC, MAGIC_BYTES) != 0)
    return manta_error_set(err, MANTA_EINVAL, "%s: is no numpy array: it does not begin as one",
                           name);
  size_t length = (size_t)p[8] | (size_t)p[9] << 8;
  if (p[6] >= 2)
    length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
  if (p[6] < 1 || p[6] > 3 || length < 2 || length > MANTA__NPY_HEADER_MAX)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "%s: a numpy array of version %d with a header of %zu bytes", name, p[6],
                           length);
  *out = text_at(p) + length;
  return MANTA_OK;
}

manta_status manta__npy_parse(struct manta__npy_header *out, const uint8_t *p, size_t n,
                              const char *name, manta_error *err)
{
  struct manta__npy_header h = {0};
  struct npy_text t = {(const char *)p + text_at(p), (const char *)p + n};
  MANTA_TRY(read_dict(&h, &t, name, err));
  h.bytes = (int64_t)n;
  *out = h;
  return MANTA_OK;
}
