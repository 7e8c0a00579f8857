/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/cast.c - values of one type as another; what cannot be is null.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "data/expr/node.h"
#include "data/number/number.h"

// One value on its way: what it was read as.
struct scalar {
  enum manta__form form;
  int64_t i; /* of INT and BOOL; of UINT its bits */
  double r;
  struct manta__expr_text t;
};

static struct scalar load(const struct manta__expr_node *from, int i)
{
  struct scalar s = {.form = from->form};
  switch (from->form) {
  case MANTA__FORM_BOOL:
    s.i = ((const uint8_t *)from->values)[i];
    s.form = MANTA__FORM_INT;
    break;
  case MANTA__FORM_REAL:
    s.r = ((const double *)from->values)[i];
    break;
  case MANTA__FORM_TEXT:
    s.t = ((const struct manta__expr_text *)from->values)[i];
    break;
  default:
    s.i = ((const int64_t *)from->values)[i];
  }
  return s;
}

static bool word_is(struct manta__expr_text t, const char *word)
{
  return t.n == strlen(word) && !strncasecmp(t.p, word, t.n);
}

static bool to_bool(const struct scalar *s, uint8_t *out)
{
  if (s->form == MANTA__FORM_TEXT) {
    *out = word_is(s->t, "true") || word_is(s->t, "1");
    return *out || word_is(s->t, "false") || word_is(s->t, "0");
  }
  *out = s->form == MANTA__FORM_REAL ? s->r != 0 : s->i != 0;
  return true;
}

// --- integers -----------------------------------------------------------------------------------

static bool fits(int64_t v, manta_dtype type)
{
  switch (type) {
  case MANTA_I8:
    return v == (int8_t)v;
  case MANTA_I16:
    return v == (int16_t)v;
  case MANTA_I32:
    return v == (int32_t)v;
  case MANTA_U8:
    return v == (uint8_t)v;
  case MANTA_U16:
    return v == (uint16_t)v;
  case MANTA_U32:
    return v == (uint32_t)v;
  default:
    return true;
  }
}

static bool to_int(const struct scalar *s, manta_dtype type, int64_t *out)
{
  if (s->form == MANTA__FORM_TEXT && !manta__number_i64(s->t.p, s->t.n, out))
    return false;
  if (s->form == MANTA__FORM_REAL) {
    double whole = trunc(s->r);
    if (!(whole >= -0x1p63 && whole < 0x1p63)) // neither does NaN
      return false;
    *out = (int64_t)whole;
  } else if (s->form != MANTA__FORM_TEXT)
    *out = s->i;
  if (s->form == MANTA__FORM_UINT && s->i < 0) // 2^63 and above
    return false;
  return fits(*out, type);
}

static bool to_uint(const struct scalar *s, uint64_t *out)
{
  if (s->form == MANTA__FORM_TEXT)
    return manta__number_u64(s->t.p, s->t.n, out);
  if (s->form == MANTA__FORM_REAL) {
    double whole = trunc(s->r);
    if (!(whole >= 0 && whole < 0x1p64))
      return false;
    *out = (uint64_t)whole;
    return true;
  }
  *out = (uint64_t)s->i;
  return s->form == MANTA__FORM_UINT || s->i >= 0;
}

static bool to_real(const struct scalar *s, double *out)
{
  if (s->form == MANTA__FORM_TEXT)
    return manta__number_f64(s->t.p, s->t.n, out);
  *out = s->form == MANTA__FORM_REAL   ? s->r
         : s->form == MANTA__FORM_UINT ? (double)(uint64_t)s->i
                                       : (double)s->i;
  return true;
}

// --- text ---------------------------------------------------------------------------------------

#define NUMBER_TEXT 32

// The fewest digits that read back the same.
static size_t print_real(double v, char *to)
{
  manta_value r = manta_value_real(v);
  char *text;
  if (manta_value_to_json(&r, -1, &text, NULL) < 0)
    return 0;
  size_t n = strlen(text);
  memcpy(to, text, n < NUMBER_TEXT ? n : NUMBER_TEXT);
  manta_free(text);
  return n;
}

static size_t print(const struct manta__expr_node *from, int i, char *to)
{
  struct scalar s = load(from, i);
  if (from->form == MANTA__FORM_REAL)
    return print_real(s.r, to);
  if (from->form == MANTA__FORM_BOOL)
    return (size_t)snprintf(to, NUMBER_TEXT, "%s", s.i ? "true" : "false");
  return (size_t)snprintf(to, NUMBER_TEXT, from->form == MANTA__FORM_UINT ? "%" PRIu64 : "%" PRId64,
                          s.i);
}

static manta_status run_text(struct manta__expr_node *node, int n, manta_error *err)
{
  const struct manta__expr_node *a = node->arg[0];
  struct manta__expr_text *out = node->own;
  char *to;
  if (a->form == MANTA__FORM_TEXT) {
    memcpy(node->own, a->values, (size_t)n * sizeof *out);
    return MANTA_OK;
  }
  MANTA_TRY(manta__node_text(node, (size_t)n * NUMBER_TEXT, &to, err));
  for (int i = 0; i < n; i++, to += NUMBER_TEXT) {
    bool valid = !node->valid || node->valid[i];
    out[i] = (struct manta__expr_text){to, valid ? print(a, i, to) : 0};
    if (valid && out[i].n == 0)
      return manta_error_set(err, MANTA_ENOMEM, "no memory to write a number");
  }
  return MANTA_OK;
}

// --- the kernel ---------------------------------------------------------------------------------

static bool cast_one(struct manta__expr_node *node, const struct scalar *s, int i)
{
  switch (node->form) {
  case MANTA__FORM_BOOL:
    return to_bool(s, (uint8_t *)node->own + i);
  case MANTA__FORM_REAL:
    return to_real(s, (double *)node->own + i);
  case MANTA__FORM_UINT:
    return to_uint(s, (uint64_t *)node->own + i);
  default:
    return to_int(s, node->type.dtype, (int64_t *)node->own + i);
  }
}

// What promotions make of columns: no questions per row.
static bool run_widen(struct manta__expr_node *node, int n)
{
  const struct manta__expr_node *a = node->arg[0];
  double *r = node->own;
  int64_t *s = node->own;
  if (a->form == MANTA__FORM_INT && node->form == MANTA__FORM_REAL)
    for (int i = 0; i < n; i++)
      r[i] = (double)((const int64_t *)a->values)[i];
  else if (a->form == MANTA__FORM_BOOL && node->form == MANTA__FORM_INT)
    for (int i = 0; i < n; i++)
      s[i] = ((const uint8_t *)a->values)[i];
  else if (a->form == MANTA__FORM_REAL && node->form == MANTA__FORM_REAL)
    memcpy(r, a->values, (size_t)n * sizeof *r);
  else
    return false;
  return true;
}

manta_status manta__node_run_cast(struct manta__expr_node *node, int n, manta_error *err)
{
  manta__node_join(node, n);
  if (node->form == MANTA__FORM_TEXT)
    return run_text(node, n, err);
  if (!run_widen(node, n))
    for (int i = 0; i < n; i++) {
      struct scalar s = load(node->arg[0], i);
      if ((!node->valid || node->valid[i]) && !cast_one(node, &s, i))
        manta__node_own_valid(node, n)[i] = 0;
    }
  if (node->form == MANTA__FORM_REAL)
    manta__node_round(node, n);
  return MANTA_OK;
}
