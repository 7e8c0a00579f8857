/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column/type.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The first name is ours. Arrow has no format for bf16 (see type.h, 3).
static const struct {
  const char *names[4];
  const char *arrow;
  manta_dtype dtype;
} numbers[] = {
    {{"i8", "int8"}, "c", MANTA_I8},
    {{"u8", "uint8"}, "C", MANTA_U8},
    {{"i16", "int16"}, "s", MANTA_I16},
    {{"u16", "uint16"}, "S", MANTA_U16},
    {{"i32", "int32"}, "i", MANTA_I32},
    {{"u32", "uint32"}, "I", MANTA_U32},
    {{"i64", "int64", "int"}, "l", MANTA_I64},
    {{"u64", "uint64"}, "L", MANTA_U64},
    {{"f16", "float16", "half"}, "e", MANTA_F16},
    {{"f32", "float32", "float"}, "f", MANTA_F32},
    {{"f64", "float64", "double"}, "g", MANTA_F64},
    {{"bf16", "bfloat16"}, "S", MANTA_BF16},
};
#define NUMBERS (sizeof numbers / sizeof *numbers)

static const struct {
  const char *names[4];
  const char *arrow;
  manta_kind kind;
} others[] = {
    {{"bool", "boolean"}, "b", MANTA_KIND_BOOL},
    {{"string", "str", "utf8"}, "u", MANTA_KIND_STRING},
    {{"bytes", "binary"}, "z", MANTA_KIND_BYTES},
};
#define OTHERS (sizeof others / sizeof *others)

bool manta__type_is_float(const struct manta__type *t)
{
  return t->kind == MANTA_KIND_NUMBER && (t->dtype == MANTA_F16 || t->dtype == MANTA_BF16 ||
                                          t->dtype == MANTA_F32 || t->dtype == MANTA_F64);
}

bool manta__type_equal(const struct manta__type *a, const struct manta__type *b)
{
  if (a->kind != b->kind)
    return false;
  if (a->kind != MANTA_KIND_NUMBER)
    return true;
  return a->dtype == b->dtype && a->ndim == b->ndim && !strcmp(a->logical, b->logical) &&
         !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

int64_t manta__type_count(const struct manta__type *t)
{
  int64_t n = 1;
  for (int d = 0; d < t->ndim; d++)
    n *= t->shape[d];
  return n;
}

size_t manta__type_width(const struct manta__type *t)
{
  if (t->kind != MANTA_KIND_NUMBER)
    return 0;
  return manta_dtype_bytes(t->dtype) * (size_t)manta__type_count(t);
}

manta_status manta__type_check(const struct manta__type *t, manta_error *err)
{
  int64_t bytes = (int64_t)manta_dtype_bytes(t->dtype);
  if (t->kind != MANTA_KIND_NUMBER)
    return MANTA_OK;
  if (t->ndim < 0 || t->ndim > MANTA_MAX_DIMS)
    return manta_error_set(err, MANTA_EINVAL, "%d dimensions; at most %d are possible", t->ndim,
                           MANTA_MAX_DIMS);
  for (int d = 0; d < t->ndim; d++)
    if (t->shape[d] < 1 || __builtin_mul_overflow(bytes, t->shape[d], &bytes) ||
        bytes > MANTA__WIDTH_MAX)
      return manta_error_set(err, MANTA_EINVAL,
                             "dimension %d is %" PRId64
                             ": a value has 1 to %d bytes, and no dimension is 0",
                             d, t->shape[d], MANTA__WIDTH_MAX);
  return MANTA_OK;
}

// --- text ---------------------------------------------------------------------------------------

static bool is_one_of(const char *const names[4], const char *s, size_t n)
{
  for (int i = 0; i < 4 && names[i]; i++)
    if (strlen(names[i]) == n && !memcmp(names[i], s, n))
      return true;
  return false;
}

static bool find_name(struct manta__type *out, const char *s, size_t n)
{
  for (size_t i = 0; i < NUMBERS; i++)
    if (is_one_of(numbers[i].names, s, n)) {
      *out = manta__type_of(numbers[i].dtype);
      return true;
    }
  for (size_t i = 0; i < OTHERS; i++)
    if (is_one_of(others[i].names, s, n)) {
      *out = manta__type_kind(others[i].kind);
      return true;
    }
  return false;
}

// "[28,28]" and nothing behind it.
static bool parse_shape(struct manta__type *t, const char *s)
{
  char *end;
  do {
    s++;
    if (t->ndim == MANTA_MAX_DIMS || *s < '0' || *s > '9')
      return false;
    t->shape[t->ndim++] = strtoll(s, &end, 10);
    s = end;
  } while (*s == ',');
  return s[0] == ']' && s[1] == 0;
}

manta_status manta__type_parse(struct manta__type *out, const char *text, manta_error *err)
{
  struct manta__type t;
  size_t n = strcspn(text, "[");
  bool known = find_name(&t, text, n);
  if (known && text[n])
    known = t.kind == MANTA_KIND_NUMBER && parse_shape(&t, text + n);
  if (!known)
    return manta_error_set(err, MANTA_EINVAL,
                           "\"%.64s\" is no type\nhint: there are bool, i8 to i64, u8 to u64, f16, "
                           "bf16, f32, f64, string, bytes, and arrays of numbers as f32[28,28]",
                           text);
  MANTA_TRY(manta__type_check(&t, err));
  *out = t;
  return MANTA_OK;
}

const char *manta__type_text(const struct manta__type *t, char *text)
{
  size_t at = 0;
  const char *name = "?";
  for (size_t i = 0; i < NUMBERS; i++)
    if (t->kind == MANTA_KIND_NUMBER && numbers[i].dtype == t->dtype)
      name = numbers[i].names[0];
  for (size_t i = 0; i < OTHERS; i++)
    if (others[i].kind == t->kind)
      name = others[i].names[0];
  at = (size_t)snprintf(text, MANTA__TYPE_TEXT_MAX, "%s", name);
  for (int d = 0; t->kind == MANTA_KIND_NUMBER && d < t->ndim; d++)
    at += (size_t)snprintf(text + at, MANTA__TYPE_TEXT_MAX - at, "%c%" PRId64, d ? ',' : '[',
                           t->shape[d]);
  if (t->kind == MANTA_KIND_NUMBER && t->ndim)
    snprintf(text + at, MANTA__TYPE_TEXT_MAX - at, "]");
  return text;
}

// --- Arrow --------------------------------------------------------------------------------------

const char *manta__type_arrow(const struct manta__type *t)
{
  if (t->kind == MANTA_KIND_NUMBER && t->logical[0])
    return t->logical;
  for (size_t i = 0; i < NUMBERS; i++)
    if (t->kind == MANTA_KIND_NUMBER && numbers[i].dtype == t->dtype)
      return numbers[i].arrow;
  for (size_t i = 0; i < OTHERS; i++)
    if (others[i].kind == t->kind)
      return others[i].arrow;
  return "n";
}

// Dates, times and durations: what they are stored as.
static bool from_time(struct manta__type *out, const char *f)
{
  static const struct {
    const char *prefix;
    manta_dtype dtype;
  } times[] = {{"tdD", MANTA_I32}, {"tdm", MANTA_I64}, {"tts", MANTA_I32}, {"ttm", MANTA_I32},
               {"ttu", MANTA_I64}, {"ttn", MANTA_I64}, {"ts", MANTA_I64},  {"tD", MANTA_I64}};
  if (strlen(f) >= MANTA__LOGICAL_MAX)
    return false;
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    if (!strncmp(f, times[i].prefix, strlen(times[i].prefix))) {
      *out = manta__type_of(times[i].dtype);
      memcpy(out->logical, f, strlen(f) + 1);
      return true;
    }
  return false;
}

bool manta__type_from_arrow(struct manta__type *out, const char *format)
{
  for (size_t i = 0; i < NUMBERS; i++)
    if (!strcmp(format, numbers[i].arrow)) {
      *out = manta__type_of(numbers[i].dtype);
      return true;
    }
  for (size_t i = 0; i < OTHERS; i++)
    if (!strcmp(format, others[i].arrow)) {
      *out = manta__type_kind(others[i].kind);
      return true;
    }
  return from_time(out, format);
}
