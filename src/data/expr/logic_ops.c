/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/logic_ops.c - comparisons, logic of three values, nulls, choices, sets.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/expr/program.h"

static const struct manta__type boolean = {.kind = MANTA_KIND_BOOL};

// --- comparisons --------------------------------------------------------------------------------

static int compare_text(const struct manta__expr_text *a, const struct manta__expr_text *b)
{
  size_t n = a->n < b->n ? a->n : b->n;
  int c = n ? memcmp(a->p, b->p, n) : 0;
  return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

#define LOOP(type, op)                                                                             \
  {                                                                                                \
    const type *x = a, *y = b;                                                                     \
    for (int i = 0; i < n; i++)                                                                    \
      to[i] = x[i] op y[i];                                                                        \
    break;                                                                                         \
  }
#define COMPARE(name, op)                                                                          \
  static manta_status run_##name(struct manta__expr_node *node, int n, manta_error *err)           \
  {                                                                                                \
    const void *a = node->arg[0]->values, *b = node->arg[1]->values;                               \
    const struct manta__expr_text *s = a, *t = b;                                                  \
    uint8_t *to = node->own;                                                                       \
    manta__node_join(node, n);                                                                     \
    switch (node->arg[0]->form) {                                                                  \
    case MANTA__FORM_BOOL:                                                                         \
      LOOP(uint8_t, op)                                                                            \
    case MANTA__FORM_INT:                                                                          \
      LOOP(int64_t, op)                                                                            \
    case MANTA__FORM_UINT:                                                                         \
      LOOP(uint64_t, op)                                                                           \
    case MANTA__FORM_REAL:                                                                         \
      LOOP(double, op)                                                                             \
    case MANTA__FORM_TEXT:                                                                         \
      for (int i = 0; i < n; i++)                                                                  \
        to[i] = compare_text(&s[i], &t[i]) op 0;                                                   \
    }                                                                                              \
    return MANTA_OK;                                                                               \
  }                                                                                                \
  static manta_status bind_##name(struct manta__expr_node *node, manta_error *err)                 \
  {                                                                                                \
    struct manta__type ignored;                                                                    \
    MANTA_TRY(manta__node_unite(node, 0, 1, &ignored, err));                                       \
    manta__node_is(node, boolean, run_##name);                                                     \
    return MANTA_OK;                                                                               \
  }
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)
#undef COMPARE
#undef LOOP

// --- three values -------------------------------------------------------------------------------

// What decides alone, whatever the other is: false for `and`, true for `or`.
static void run_kleene(struct manta__expr_node *node, int n, uint8_t decides)
{
  const struct manta__expr_node *x = node->arg[0], *y = node->arg[1];
  const uint8_t *a = x->values, *b = y->values;
  uint8_t *to = node->own;
  node->valid = x->valid || y->valid ? node->own_valid : NULL;
  for (int i = 0; i < n; i++)
    to[i] = decides ? a[i] | b[i] : a[i] & b[i];
  for (int i = 0; node->valid && i < n; i++) {
    bool have_a = !x->valid || x->valid[i], have_b = !y->valid || y->valid[i];
    bool decided = (have_a && a[i] == decides) || (have_b && b[i] == decides);
    node->own_valid[i] = decided || (have_a && have_b);
    to[i] = decided ? decides : to[i];
  }
}

static manta_status run_and(struct manta__expr_node *node, int n, manta_error *err)
{
  run_kleene(node, n, 0);
  return MANTA_OK;
}

static manta_status run_or(struct manta__expr_node *node, int n, manta_error *err)
{
  run_kleene(node, n, 1);
  return MANTA_OK;
}

static manta_status run_not(struct manta__expr_node *node, int n, manta_error *err)
{
  const uint8_t *a = node->arg[0]->values;
  uint8_t *to = node->own;
  manta__node_join(node, n);
  for (int i = 0; i < n; i++)
    to[i] = !a[i];
  return MANTA_OK;
}

static manta_status bind_bools(struct manta__expr_node *node, manta__expr_fn *run, manta_error *err)
{
  for (int i = 0; i < node->argc; i++) {
    if (node->arg[i]->form != MANTA__FORM_BOOL && !node->arg[i]->is_nil)
      return manta__node_mismatch(node, "true or false", err);
    MANTA_TRY(manta__node_convert(node, i, MANTA__FORM_BOOL, err));
  }
  manta__node_is(node, boolean, run);
  return MANTA_OK;
}

static manta_status bind_and(struct manta__expr_node *node, manta_error *err)
{
  return bind_bools(node, run_and, err);
}

static manta_status bind_or(struct manta__expr_node *node, manta_error *err)
{
  return bind_bools(node, run_or, err);
}

static manta_status bind_not(struct manta__expr_node *node, manta_error *err)
{
  return bind_bools(node, run_not, err);
}

// --- nulls and choices --------------------------------------------------------------------------

static manta_status run_is_null(struct manta__expr_node *node, int n, manta_error *err)
{
  const uint8_t *v = node->arg[0]->valid;
  uint8_t *to = node->own;
  node->valid = NULL;
  for (int i = 0; i < n; i++)
    to[i] = v && !v[i];
  return MANTA_OK;
}

static manta_status bind_is_null(struct manta__expr_node *node, manta_error *err)
{
  manta__node_is(node, boolean, run_is_null);
  return MANTA_OK;
}

static manta_status run_is_nan(struct manta__expr_node *node, int n, manta_error *err)
{
  const double *a = node->arg[0]->values;
  uint8_t *to = node->own;
  manta__node_join(node, n);
  for (int i = 0; i < n; i++)
    to[i] = a[i] != a[i];
  return MANTA_OK;
}

static manta_status bind_is_nan(struct manta__expr_node *node, manta_error *err)
{
  if (node->arg[0]->form == MANTA__FORM_TEXT)
    return manta__node_mismatch(node, "numbers", err);
  MANTA_TRY(manta__node_convert(node, 0, MANTA__FORM_REAL, err));
  manta__node_is(node, boolean, run_is_nan);
  return MANTA_OK;
}

// Row i of a or of b, whose forms are the node's own.
static void choose(struct manta__expr_node *node, int i, const struct manta__expr_node *from)
{
  size_t bytes = manta__form_bytes(node->form);
  memcpy((char *)node->own + (size_t)i * bytes, (const char *)from->values + (size_t)i * bytes,
         bytes);
  if (node->valid)
    node->own_valid[i] = !from->valid || from->valid[i];
}

static manta_status run_where(struct manta__expr_node *node, int n, manta_error *err)
{
  const struct manta__expr_node *c = node->arg[0], *a = node->arg[1], *b = node->arg[2];
  node->valid = a->valid || b->valid ? node->own_valid : NULL;
  for (int i = 0; i < n; i++) // a null is not true
    choose(node, i, ((const uint8_t *)c->values)[i] && (!c->valid || c->valid[i]) ? a : b);
  if (node->form == MANTA__FORM_REAL)
    manta__node_round(node, n);
  return MANTA_OK;
}

static manta_status bind_where(struct manta__expr_node *node, manta_error *err)
{
  struct manta__type type;
  if (node->arg[0]->form != MANTA__FORM_BOOL && !node->arg[0]->is_nil)
    return manta__node_mismatch(node, "true or false and two values", err);
  MANTA_TRY(manta__node_convert(node, 0, MANTA__FORM_BOOL, err));
  MANTA_TRY(manta__node_unite(node, 1, 2, &type, err));
  manta__node_is(node, type, run_where);
  return MANTA_OK;
}

static manta_status run_fill_null(struct manta__expr_node *node, int n, manta_error *err)
{
  const struct manta__expr_node *a = node->arg[0], *b = node->arg[1];
  node->valid = a->valid && b->valid ? node->own_valid : NULL;
  for (int i = 0; i < n; i++)
    choose(node, i, !a->valid || a->valid[i] ? a : b);
  if (node->form == MANTA__FORM_REAL)
    manta__node_round(node, n);
  return MANTA_OK;
}

static manta_status bind_fill_null(struct manta__expr_node *node, manta_error *err)
{
  struct manta__type type;
  MANTA_TRY(manta__node_unite(node, 0, 1, &type, err));
  manta__node_is(node, type, run_fill_null);
  return MANTA_OK;
}

// --- sets ---------------------------------------------------------------------------------------

static int by_int(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static int by_real(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y || x != x; // a NaN equals nothing, and stands in no list
}

static int by_text(const void *a, const void *b)
{
  return compare_text(a, b);
}

typedef int order_fn(const void *a, const void *b);

static order_fn *order_of(enum manta__form form)
{
  return form == MANTA__FORM_REAL ? by_real : form == MANTA__FORM_TEXT ? by_text : by_int;
}

static manta_status run_in(struct manta__expr_node *node, int n, manta_error *err)
{
  const struct manta__expr_node *a = node->arg[0];
  size_t bytes = manta__form_bytes(a->form);
  order_fn *order = order_of(a->form);
  uint8_t *to = node->own;
  manta__node_join(node, n);
  for (int i = 0; i < n; i++)
    to[i] = bsearch((const char *)a->values + (size_t)i * bytes, node->set, node->set_count, bytes,
                    order) != NULL;
  return MANTA_OK;
}

static manta_status not_in_kind(const struct manta__expr_node *node, manta_error *err)
{
  char text[MANTA__TYPE_TEXT_MAX];
  return manta_error_set(err, MANTA_ETYPE,
                         "\"is_in\" of %s: its second argument is a list of literals of that kind",
                         manta__type_text(&node->arg[0]->type, text));
}

// Numbers of the list that no value of the column can equal are left out.
static bool add_number(struct manta__expr_node *node, const manta_value *v)
{
  enum manta__form form = node->arg[0]->form;
  if (v->type == MANTA_NIL) // a null is in no list
    return true;
  if (v->type != MANTA_BOOL && v->type != MANTA_INT && v->type != MANTA_REAL)
    return false;
  int64_t i = v->type == MANTA_BOOL ? v->u.b : manta_value_as_int(v, 0);
  bool whole = v->type != MANTA_REAL || manta_value_as_int(v, 1) == i;
  double r = v->type == MANTA_REAL ? v->u.r : (double)i;
  if (form == MANTA__FORM_REAL && r == r)
    ((double *)node->set)[node->set_count++] = r;
  else if (form != MANTA__FORM_REAL && whole && (i >= 0 || form == MANTA__FORM_INT))
    ((int64_t *)node->set)[node->set_count++] = i;
  return true;
}

static bool add_text(struct manta__expr_node *node, const manta_value *v, char **text)
{
  if (v->type != MANTA_STRING && v->type != MANTA_BYTES)
    return v->type == MANTA_NIL;
  memcpy(*text, v->u.s, v->count);
  ((struct manta__expr_text *)node->set)[node->set_count++] =
      (struct manta__expr_text){*text, v->count};
  *text += v->count;
  return true;
}

manta_status manta__expr_bind_in(struct manta__expr_node *node, manta_error *err)
{
  const manta_value *list = node->list;
  size_t text = 0;
  if (list->type != MANTA_LIST)
    return not_in_kind(node, err);
  if (node->arg[0]->form == MANTA__FORM_BOOL)
    MANTA_TRY(manta__node_convert(node, 0, MANTA__FORM_INT, err));
  enum manta__form form = node->arg[0]->form;
  for (size_t i = 0; i < list->count; i++)
    text += list->u.items[i].type == MANTA_STRING || list->u.items[i].type == MANTA_BYTES
                ? list->u.items[i].count
                : 0;
  node->set = manta__calloc(list->count + 1, manta__form_bytes(form));
  node->text = manta__malloc(text + 1);
  if (!node->set || !node->text)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a list of %u values", list->count);
  char *to = node->text;
  for (size_t i = 0; i < list->count; i++)
    if (form == MANTA__FORM_TEXT ? !add_text(node, &list->u.items[i], &to)
                                 : !add_number(node, &list->u.items[i]))
      return not_in_kind(node, err);
  qsort(node->set, node->set_count, manta__form_bytes(form), order_of(form));
  manta__node_is(node, boolean, run_in);
  return MANTA_OK;
}

const struct manta__expr_op manta__expr_logic_ops[] = {
    {"==", 2, 2, bind_eq},         {"!=", 2, 2, bind_ne},
    {"<", 2, 2, bind_lt},          {"<=", 2, 2, bind_le},
    {">", 2, 2, bind_gt},          {">=", 2, 2, bind_ge},
    {"and", 2, 2, bind_and},       {"or", 2, 2, bind_or},
    {"not", 1, 1, bind_not},       {"is_null", 1, 1, bind_is_null},
    {"is_nan", 1, 1, bind_is_nan}, {"fill_null", 2, 2, bind_fill_null},
    {"where", 3, 3, bind_where},   {0}};
