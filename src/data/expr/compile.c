/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/compile.c - a tree of values becomes a tree of nodes that know their types.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/expr/program.h"

struct compiling {
  const struct manta__schema *schema;
  int nodes;
};

static manta_status compile(struct compiling *c, const manta_value *tree,
                            struct manta__expr_node **out, manta_error *err);

// --- nodes --------------------------------------------------------------------------------------

enum manta__form manta__form_of(const struct manta__type *t)
{
  switch (t->kind) {
  case MANTA_KIND_BOOL:
    return MANTA__FORM_BOOL;
  case MANTA_KIND_STRING:
  case MANTA_KIND_BYTES:
    return MANTA__FORM_TEXT;
  default:
    return manta__type_is_float(t) ? MANTA__FORM_REAL
           : t->dtype == MANTA_U64 ? MANTA__FORM_UINT
                                   : MANTA__FORM_INT;
  }
}

size_t manta__form_bytes(enum manta__form form)
{
  return form == MANTA__FORM_BOOL   ? 1
         : form == MANTA__FORM_TEXT ? sizeof(struct manta__expr_text)
                                    : 8;
}

void manta__node_is(struct manta__expr_node *node, struct manta__type type, manta__expr_fn *run)
{
  node->type = type;
  node->form = manta__form_of(&type);
  node->run = run;
}

void manta__node_destroy(struct manta__expr_node *node)
{
  if (!node)
    return;
  for (int i = 0; i < node->argc; i++)
    manta__node_destroy(node->arg[i]);
  manta__free(node->own);
  manta__free(node->own_valid);
  manta__free(node->text);
  manta__free(node->set);
  manta__free(node);
}

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for an expression");
}

// Room for the values of a chunk; all types are known now.
static manta_status give_room(struct manta__expr_node *node, manta_error *err)
{
  node->own = manta__calloc(MANTA__EXPR_CHUNK, manta__form_bytes(node->form));
  node->own_valid = manta__malloc(MANTA__EXPR_CHUNK);
  node->values = node->own;
  return node->own && node->own_valid ? MANTA_OK : no_memory(err);
}

// --- literals -----------------------------------------------------------------------------------

static void fill_literal(struct manta__expr_node *node)
{
  for (int i = 0; i < MANTA__EXPR_CHUNK; i++)
    switch (node->form) {
    case MANTA__FORM_BOOL:
      ((uint8_t *)node->own)[i] = node->lit_int != 0;
      break;
    case MANTA__FORM_REAL:
      ((double *)node->own)[i] = node->lit_real;
      break;
    case MANTA__FORM_TEXT:
      ((struct manta__expr_text *)node->own)[i] =
          (struct manta__expr_text){node->text ? node->text : "", node->text_cap};
      break;
    default:
      ((int64_t *)node->own)[i] = node->lit_int;
    }
  node->valid = node->is_nil ? memset(node->own_valid, 0, MANTA__EXPR_CHUNK) : NULL;
}

static manta_status set_literal(struct manta__expr_node *node, const manta_value *v,
                                manta_error *err)
{
  node->literal = node->constant = node->computed = true;
  switch (v->type) {
  case MANTA_NIL:
    node->is_nil = true; // and an integer, until something else says more
    manta__node_is(node, manta__type_of(MANTA_I64), NULL);
    return MANTA_OK;
  case MANTA_BOOL:
    node->lit_int = v->u.b;
    manta__node_is(node, manta__type_kind(MANTA_KIND_BOOL), NULL);
    return MANTA_OK;
  case MANTA_INT:
    node->lit_int = v->u.i;
    manta__node_is(node, manta__type_of(MANTA_I64), NULL);
    return MANTA_OK;
  case MANTA_REAL:
    node->lit_real = v->u.r;
    manta__node_is(node, manta__type_of(MANTA_F64), NULL);
    return MANTA_OK;
  case MANTA_STRING:
  case MANTA_BYTES:
    manta__node_is(node,
                   manta__type_kind(v->type == MANTA_STRING ? MANTA_KIND_STRING : MANTA_KIND_BYTES),
                   NULL);
    if (!(node->text = manta__malloc(v->count + 1)))
      return no_memory(err);
    memcpy(node->text, v->u.s, v->count);
    node->text_cap = v->count;
    return MANTA_OK;
  default:
    return manta_error_set(err, MANTA_EINVAL, "a map is no part of an expression");
  }
}

// --- conversions between arguments --------------------------------------------------------------

static struct manta__type widest(enum manta__form form)
{
  switch (form) {
  case MANTA__FORM_BOOL:
    return manta__type_kind(MANTA_KIND_BOOL);
  case MANTA__FORM_TEXT:
    return manta__type_kind(MANTA_KIND_STRING);
  case MANTA__FORM_REAL:
    return manta__type_of(MANTA_F64);
  default:
    return manta__type_of(form == MANTA__FORM_UINT ? MANTA_U64 : MANTA_I64);
  }
}

static bool is_number(const struct manta__expr_node *n)
{
  return n->form != MANTA__FORM_TEXT || n->is_nil;
}

manta_status manta__node_convert(struct manta__expr_node *node, int i, enum manta__form form,
                                 manta_error *err)
{
  struct manta__expr_node *a = node->arg[i];
  struct manta__type type = widest(form);
  if (a->form == form)
    return MANTA_OK;
  if (!a->literal)
    return manta__node_cast(node, i, &type, err);
  if (a->form == MANTA__FORM_INT || a->form == MANTA__FORM_BOOL)
    a->lit_real = (double)a->lit_int;
  manta__node_is(a, type, NULL);
  manta__free(a->own);
  manta__free(a->own_valid);
  MANTA_TRY(give_room(a, err));
  fill_literal(a);
  return MANTA_OK;
}

static bool is_narrow(const struct manta__expr_node *n)
{
  return n->literal || (manta__type_is_float(&n->type) && n->type.dtype != MANTA_F64);
}

void manta__node_narrow(struct manta__expr_node *node, int i)
{
  struct manta__expr_node *a = node->arg[i];
  if (!a->literal || a->form != MANTA__FORM_REAL)
    return;
  a->lit_real = (double)(float)a->lit_real;
  fill_literal(a);
}

static enum manta__form common_form(const struct manta__expr_node *a,
                                    const struct manta__expr_node *b)
{
  if (a->form == MANTA__FORM_REAL || b->form == MANTA__FORM_REAL)
    return MANTA__FORM_REAL;
  if (a->form != MANTA__FORM_UINT && b->form != MANTA__FORM_UINT)
    return MANTA__FORM_INT;
  const struct manta__expr_node *other = a->form == MANTA__FORM_UINT ? b : a;
  return other->form == MANTA__FORM_UINT || other->form == MANTA__FORM_BOOL ||
                 (other->literal && other->lit_int >= 0)
             ? MANTA__FORM_UINT
             : MANTA__FORM_REAL;
}

manta_status manta__node_promote(struct manta__expr_node *node, int i, int k,
                                 struct manta__type *out, manta_error *err)
{
  struct manta__expr_node *a = node->arg[i], *b = node->arg[k];
  if (!is_number(a) || !is_number(b))
    return manta__node_mismatch(node, "numbers", err);
  enum manta__form form = common_form(a, b);
  bool narrow =
      form == MANTA__FORM_REAL && is_narrow(a) && is_narrow(b) && !(a->literal && b->literal);
  MANTA_TRY(manta__node_convert(node, i, form, err));
  MANTA_TRY(manta__node_convert(node, k, form, err));
  for (int j = 0; j < node->argc && narrow; j++)
    manta__node_narrow(node, j);
  *out = narrow ? manta__type_of(MANTA_F32) : widest(form);
  return MANTA_OK;
}

manta_status manta__node_unite(struct manta__expr_node *node, int i, int k, struct manta__type *out,
                               manta_error *err)
{
  struct manta__expr_node *a = node->arg[i], *b = node->arg[k];
  if (a->is_nil != b->is_nil) {
    *out = a->is_nil ? b->type : a->type;
    return manta__node_convert(node, a->is_nil ? i : k, a->is_nil ? b->form : a->form, err);
  }
  if (manta__type_equal(&a->type, &b->type)) {
    *out = a->type;
    return MANTA_OK;
  }
  if (a->form == MANTA__FORM_TEXT && b->form == MANTA__FORM_TEXT) {
    *out = manta__type_kind(MANTA_KIND_BYTES);
    return MANTA_OK;
  }
  if (a->form == MANTA__FORM_TEXT || b->form == MANTA__FORM_TEXT)
    return manta__node_mismatch(node, "two values of one kind", err);
  return manta__node_promote(node, i, k, out, err);
}

manta_status manta__node_mismatch(const struct manta__expr_node *node, const char *wanted,
                                  manta_error *err)
{
  char list[512], text[MANTA__TYPE_TEXT_MAX];
  int at = 0;
  for (int i = 0; i < node->argc && at < (int)sizeof list; i++)
    at += snprintf(list + at, sizeof list - (size_t)at, "%s%s",
                   i == 0               ? ""
                   : i + 1 < node->argc ? ", "
                                        : " and ",
                   node->arg[i]->is_nil ? "null" : manta__type_text(&node->arg[i]->type, text));
  return manta_error_set(err, MANTA_ETYPE,
                         "\"%s\" of %s: %s are wanted\nhint: cast one, as [\"cast\", X, \"f64\"]",
                         node->op->name, list, wanted);
}

// --- casts --------------------------------------------------------------------------------------

static manta_status bind_cast(struct manta__expr_node *node, manta_error *err)
{
  return MANTA_OK; // the type is known, manta__node_run_cast finds out the rest
}

static const struct manta__expr_op cast_op = {"cast", 2, 2, bind_cast};

manta_status manta__node_cast(struct manta__expr_node *node, int i, const struct manta__type *type,
                              manta_error *err)
{
  struct manta__expr_node *cast = manta__calloc(1, sizeof *cast);
  if (!cast)
    return no_memory(err);
  cast->op = &cast_op;
  cast->column = -1;
  cast->argc = 1;
  cast->arg[0] = node->arg[i];
  cast->constant = node->arg[i]->constant;
  manta__node_is(cast, *type, manta__node_run_cast);
  node->arg[i] = cast;
  return give_room(cast, err);
}

// --- operations ---------------------------------------------------------------------------------

static const struct manta__expr_op in_op = {"is_in", 2, 2, manta__expr_bind_in};
static const struct manta__expr_op col_op = {"col", 1, 1, NULL}, lit_op = {"lit", 1, 1, NULL};

static const struct manta__expr_op *const tables[] = {manta__expr_number_ops, manta__expr_logic_ops,
                                                      manta__expr_text_ops};
static const struct manta__expr_op *const special[] = {&cast_op, &in_op, &col_op, &lit_op};

static const struct manta__expr_op *find_op(const char *name)
{
  for (size_t i = 0; i < sizeof special / sizeof *special; i++)
    if (!strcmp(special[i]->name, name))
      return special[i];
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct manta__expr_op *op = tables[t]; op->name; op++)
      if (!strcmp(op->name, name))
        return op;
  return NULL;
}

static manta_status unknown_op(const char *name, manta_error *err)
{
  const char *nearest = NULL;
  int least = 4;
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct manta__expr_op *op = tables[t]; op->name; op++) {
      int d = manta__name_distance(name, op->name, 3);
      if (d < least) {
        least = d;
        nearest = op->name;
      }
    }
  return manta_error_set(err, MANTA_EINVAL, "there is no operation \"%.64s\"%s%s%s", name,
                         nearest ? "; the nearest name is \"" : "", nearest ? nearest : "",
                         nearest ? "\"" : "");
}

static manta_status bind_column(struct compiling *c, struct manta__expr_node *node,
                                const manta_value *name, manta_error *err)
{
  char text[MANTA__TYPE_TEXT_MAX];
  if (name->type != MANTA_STRING)
    return manta_error_set(err, MANTA_EINVAL, "\"col\" wants the name of a column");
  MANTA_TRY(manta__schema_need(c->schema, name->u.s, &node->column, err));
  const struct manta__type *t = &c->schema->field[node->column].type;
  if (t->kind == MANTA_KIND_NUMBER && t->ndim)
    return manta_error_set(err, MANTA_ETYPE,
                           "column \"%.64s\" holds arrays (%s): expressions take plain values",
                           name->u.s, manta__type_text(t, text));
  manta__node_is(node, *t, NULL);
  return MANTA_OK;
}

static manta_status compile_args(struct compiling *c, const manta_value *tree,
                                 struct manta__expr_node *node, manta_error *err)
{
  int n = (int)tree->count - 1;
  bool first_only = node->op == &cast_op || node->op == &in_op;
  node->constant = true;
  for (int i = 0; i < (first_only ? 1 : n); i++) {
    MANTA_TRY(compile(c, manta_value_at(tree, (size_t)i + 1), &node->arg[i], err));
    node->argc++;
    node->constant &= node->arg[i]->constant;
  }
  return MANTA_OK;
}

static manta_status bind(struct compiling *c, const manta_value *tree,
                         struct manta__expr_node *node, manta_error *err)
{
  const manta_value *last = manta_value_at(tree, tree->count - 1);
  if (node->op == &col_op)
    return bind_column(c, node, last, err);
  if (node->op == &lit_op)
    return set_literal(node, last, err);
  MANTA_TRY(compile_args(c, tree, node, err));
  if (node->op == &cast_op) {
    struct manta__type type;
    if (last->type != MANTA_STRING)
      return manta_error_set(err, MANTA_EINVAL, "\"cast\" wants a type, as \"f64\"");
    MANTA_TRY(manta__type_parse(&type, last->u.s, err));
    if (type.ndim)
      return manta_error_set(err, MANTA_ETYPE, "nothing can be cast to %s", last->u.s);
    manta__node_is(node, type, manta__node_run_cast);
  }
  node->list = last;
  return node->op->bind(node, err);
}

static manta_status start(const manta_value *tree, struct manta__expr_node *node, manta_error *err)
{
  if (tree->type != MANTA_LIST) {
    node->op = &lit_op;
    return MANTA_OK;
  }
  const manta_value *name = manta_value_at(tree, 0);
  if (!name || name->type != MANTA_STRING)
    return manta_error_set(err, MANTA_EINVAL, "an operation is a list that begins with its name");
  if (!(node->op = find_op(name->u.s)))
    return unknown_op(name->u.s, err);
  int n = (int)tree->count - 1;
  if (n < node->op->least || n > node->op->most)
    return manta_error_set(err, MANTA_EINVAL, "\"%s\" has %d arguments; it wants %d%s",
                           node->op->name, n, node->op->least,
                           node->op->most > node->op->least ? " or more" : "");
  return MANTA_OK;
}

static manta_status compile(struct compiling *c, const manta_value *tree,
                            struct manta__expr_node **out, manta_error *err)
{
  if (++c->nodes > MANTA__EXPR_NODES)
    return manta_error_set(err, MANTA_ETOOBIG, "an expression of more than %d parts",
                           MANTA__EXPR_NODES);
  struct manta__expr_node *node = manta__calloc(1, sizeof *node);
  if (!node)
    return no_memory(err);
  node->column = -1;
  manta_status st = start(tree, node, err);
  if (st == MANTA_OK)
    st = tree->type == MANTA_LIST ? bind(c, tree, node, err) : set_literal(node, tree, err);
  if (st == MANTA_OK)
    st = give_room(node, err);
  if (st < 0) {
    manta__node_destroy(node);
    return st;
  }
  if (node->literal)
    fill_literal(node);
  *out = node;
  return MANTA_OK;
}

// --- the door -----------------------------------------------------------------------------------

manta_status manta__expr_compile(struct manta__expr **out, const manta_value *tree,
                                 const struct manta__schema *schema, manta_error *err)
{
  struct compiling c = {.schema = schema};
  struct manta__expr *e = manta__calloc(1, sizeof *e);
  if (!e)
    return no_memory(err);
  manta_status st = compile(&c, tree, &e->root, err);
  if (st < 0) {
    manta__free(e);
    return st;
  }
  *out = e;
  return MANTA_OK;
}

void manta__expr_destroy(struct manta__expr *e)
{
  if (!e)
    return;
  manta__node_destroy(e->root);
  manta__free(e);
}

const struct manta__type *manta__expr_type(const struct manta__expr *e)
{
  return &e->root->type;
}

static void mark(const struct manta__expr_node *node, bool *used)
{
  if (node->column >= 0)
    used[node->column] = true;
  for (int i = 0; i < node->argc; i++)
    mark(node->arg[i], used);
}

void manta__expr_columns(const struct manta__expr *e, bool *used)
{
  mark(e->root, used);
}
