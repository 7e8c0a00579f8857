/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/print.c - an expression as a person would write it.
 */
#include <string.h>

#include "base/buf.h"
#include "data/expr/expr.h"

#define TEXT_MAX (64u << 10)

static manta_status print(manta__buf *b, const manta_value *v);

// Between its arguments, or in front of them with parentheses?
static bool is_infix(const char *name)
{
  static const char *const infix[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or"};
  for (size_t i = 0; i < sizeof infix / sizeof *infix; i++)
    if (!strcmp(name, infix[i]))
      return true;
  return false;
}

static bool is_operation(const manta_value *v, const char *name)
{
  const manta_value *first = v->type == MANTA_LIST ? manta_value_at(v, 0) : NULL;
  return first && first->type == MANTA_STRING && (!name || !strcmp(first->u.s, name));
}

// What needs no parentheses of its own: names, literals, calls.
static manta_status print_side(manta__buf *b, const manta_value *v)
{
  bool open = is_operation(v, NULL) && is_infix(manta_value_at(v, 0)->u.s);
  if (open)
    MANTA_TRY(manta__buf_putc(b, '('));
  MANTA_TRY(print(b, v));
  return open ? manta__buf_putc(b, ')') : MANTA_OK;
}

static manta_status print_call(manta__buf *b, const manta_value *v, size_t from)
{
  MANTA_TRY(manta__buf_putc(b, '('));
  for (size_t i = from; i < v->count; i++) {
    if (i > from)
      MANTA_TRY(manta__buf_puts(b, ", "));
    MANTA_TRY(print(b, &v->u.items[i]));
  }
  return manta__buf_putc(b, ')');
}

static manta_status print_literal(manta__buf *b, const manta_value *v)
{
  char *text;
  MANTA_TRY(manta_value_to_json(v, -1, &text, NULL));
  manta_status st = manta__buf_puts(b, text);
  manta_free(text);
  return st;
}

static manta_status print(manta__buf *b, const manta_value *v)
{
  if (!is_operation(v, NULL))
    return v->type == MANTA_LIST ? print_call(b, v, 0) : print_literal(b, v);
  const char *name = manta_value_at(v, 0)->u.s;
  if (v->count == 2 && !strcmp(name, "lit"))
    return print_literal(b, &v->u.items[1]);
  if (v->count == 2 && !strcmp(name, "col") && v->u.items[1].type == MANTA_STRING)
    return manta__buf_puts(b, v->u.items[1].u.s);
  if (v->count == 2 && (!strcmp(name, "not") || !strcmp(name, "neg"))) {
    MANTA_TRY(manta__buf_puts(b, name[1] == 'e' ? "-" : "not "));
    return print_side(b, &v->u.items[1]);
  }
  if (v->count == 3 && is_infix(name)) {
    MANTA_TRY(print_side(b, &v->u.items[1]));
    MANTA_TRY(manta__buf_printf(b, " %s ", name));
    return print_side(b, &v->u.items[2]);
  }
  MANTA_TRY(manta__buf_puts(b, name));
  return print_call(b, v, 1);
}

manta_status manta__expr_print(const manta_value *tree, char **out, manta_error *err)
{
  manta__buf b;
  manta__buf_init(&b, TEXT_MAX);
  manta_status st = print(&b, tree);
  if (st == MANTA_OK)
    st = manta__buf_terminate(&b);
  if (st < 0) {
    manta__buf_fini(&b);
    return manta_error_set(err, st, "an expression that is too long to print");
  }
  *out = manta__buf_release(&b, NULL);
  return MANTA_OK;
}
