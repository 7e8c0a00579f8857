/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/text_ops.c - strings. A string is a pointer and a length: lower, upper and concat write
 * new ones into memory of their node, the others point into what they were given.
 */
#include <string.h>

#include "data/expr/node.h"

static const struct manta__type boolean = {.kind = MANTA_KIND_BOOL};

static const struct manta__expr_text *texts(const struct manta__expr_node *node, int arg)
{
  return node->arg[arg]->values;
}

static bool is_valid(const struct manta__expr_node *node, int i)
{
  return !node->valid || node->valid[i];
}

static manta_status want_text(struct manta__expr_node *node, manta_error *err)
{
  for (int i = 0; i < node->argc; i++) {
    if (node->arg[i]->form != MANTA__FORM_TEXT && !node->arg[i]->is_nil)
      return manta__node_mismatch(node, "strings", err);
    MANTA_TRY(manta__node_convert(node, i, MANTA__FORM_TEXT, err));
  }
  return MANTA_OK;
}

// --- questions ----------------------------------------------------------------------------------

static manta_status run_length(struct manta__expr_node *node, int n, manta_error *err)
{
  const struct manta__expr_text *a = texts(node, 0);
  bool characters = node->arg[0]->type.kind == MANTA_KIND_STRING;
  int64_t *to = node->own;
  manta__node_join(node, n);
  for (int i = 0; i < n; i++) {
    int64_t inner = 0; // bytes that do not begin a character
    for (size_t k = 0; characters && is_valid(node, i) && k < a[i].n; k++)
      inner += (a[i].p[k] & 0xc0) == 0x80;
    to[i] = is_valid(node, i) ? (int64_t)a[i].n - inner : 0;
  }
  return MANTA_OK;
}

static manta_status bind_length(struct manta__expr_node *node, manta_error *err)
{
  MANTA_TRY(want_text(node, err));
  manta__node_is(node, manta__type_of(MANTA_I64), run_length);
  return MANTA_OK;
}

static bool starts_with(struct manta__expr_text a, struct manta__expr_text b)
{
  return a.n >= b.n && (!b.n || !memcmp(a.p, b.p, b.n));
}

static bool ends_with(struct manta__expr_text a, struct manta__expr_text b)
{
  return a.n >= b.n && (!b.n || !memcmp(a.p + a.n - b.n, b.p, b.n));
}

static bool contains(struct manta__expr_text a, struct manta__expr_text b)
{
  return !b.n || (a.n && memmem(a.p, a.n, b.p, b.n));
}

typedef bool question_fn(struct manta__expr_text a, struct manta__expr_text b);

static void run_question(struct manta__expr_node *node, int n, question_fn *ask)
{
  const struct manta__expr_text *a = texts(node, 0), *b = texts(node, 1);
  uint8_t *to = node->own;
  manta__node_join(node, n);
  for (int i = 0; i < n; i++)
    to[i] = is_valid(node, i) && ask(a[i], b[i]);
}

#define QUESTION(ask)                                                                              \
  static manta_status run_##ask(struct manta__expr_node *node, int n, manta_error *err)            \
  {                                                                                                \
    run_question(node, n, ask);                                                                    \
    return MANTA_OK;                                                                               \
  }                                                                                                \
  static manta_status bind_##ask(struct manta__expr_node *node, manta_error *err)                  \
  {                                                                                                \
    MANTA_TRY(want_text(node, err));                                                               \
    manta__node_is(node, boolean, run_##ask);                                                      \
    return MANTA_OK;                                                                               \
  }
QUESTION(contains)
QUESTION(starts_with)
QUESTION(ends_with)
#undef QUESTION

// --- new strings --------------------------------------------------------------------------------

// The bytes of all valid rows of all arguments.
static size_t total(const struct manta__expr_node *node, int n)
{
  size_t bytes = 0;
  for (int k = 0; k < node->argc; k++)
    for (int i = 0; i < n; i++)
      bytes += is_valid(node, i) ? texts(node, k)[i].n : 0;
  return bytes;
}

static char shift_case(char c, bool up)
{
  if (up)
    return c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
  return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static manta_status run_case(struct manta__expr_node *node, int n, bool up, manta_error *err)
{
  const struct manta__expr_text *a = texts(node, 0);
  struct manta__expr_text *out = node->own;
  char *to;
  manta__node_join(node, n);
  MANTA_TRY(manta__node_text(node, total(node, n), &to, err));
  for (int i = 0; i < n; i++) {
    size_t len = is_valid(node, i) ? a[i].n : 0;
    out[i] = (struct manta__expr_text){to, len};
    for (size_t k = 0; k < len; k++)
      *to++ = shift_case(a[i].p[k], up);
  }
  return MANTA_OK;
}

static manta_status run_lower(struct manta__expr_node *node, int n, manta_error *err)
{
  return run_case(node, n, false, err);
}

static manta_status run_upper(struct manta__expr_node *node, int n, manta_error *err)
{
  return run_case(node, n, true, err);
}

static bool is_blank(char c)
{
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static manta_status run_strip(struct manta__expr_node *node, int n, manta_error *err)
{
  const struct manta__expr_text *a = texts(node, 0);
  struct manta__expr_text *out = node->own;
  manta__node_join(node, n);
  for (int i = 0; i < n; i++) {
    struct manta__expr_text t = is_valid(node, i) ? a[i] : (struct manta__expr_text){"", 0};
    for (; t.n && is_blank(t.p[0]); t.n--)
      t.p++;
    while (t.n && is_blank(t.p[t.n - 1]))
      t.n--;
    out[i] = t;
  }
  return MANTA_OK;
}

static manta_status run_concat(struct manta__expr_node *node, int n, manta_error *err)
{
  struct manta__expr_text *out = node->own;
  char *to;
  manta__node_join(node, n);
  MANTA_TRY(manta__node_text(node, total(node, n), &to, err));
  for (int i = 0; i < n; i++) {
    out[i] = (struct manta__expr_text){to, 0};
    for (int k = 0; is_valid(node, i) && k < node->argc; k++) {
      const struct manta__expr_text *a = &texts(node, k)[i];
      if (a->n)
        memcpy(to, a->p, a->n);
      to += a->n;
      out[i].n += a->n;
    }
  }
  return MANTA_OK;
}

static manta_status bind_text(struct manta__expr_node *node, manta__expr_fn *run, manta_error *err)
{
  manta_kind kind = MANTA_KIND_STRING;
  MANTA_TRY(want_text(node, err));
  for (int i = 0; i < node->argc; i++)
    if (node->arg[i]->type.kind == MANTA_KIND_BYTES)
      kind = MANTA_KIND_BYTES;
  manta__node_is(node, manta__type_kind(kind), run);
  return MANTA_OK;
}

static manta_status bind_lower(struct manta__expr_node *node, manta_error *err)
{
  return bind_text(node, run_lower, err);
}

static manta_status bind_upper(struct manta__expr_node *node, manta_error *err)
{
  return bind_text(node, run_upper, err);
}

static manta_status bind_strip(struct manta__expr_node *node, manta_error *err)
{
  return bind_text(node, run_strip, err);
}

manta_status manta__expr_bind_concat(struct manta__expr_node *node, manta_error *err)
{
  return bind_text(node, run_concat, err);
}

const struct manta__expr_op manta__expr_text_ops[] = {
    {"length", 1, 1, bind_length},
    {"contains", 2, 2, bind_contains},
    {"starts_with", 2, 2, bind_starts_with},
    {"ends_with", 2, 2, bind_ends_with},
    {"lower", 1, 1, bind_lower},
    {"upper", 1, 1, bind_upper},
    {"strip", 1, 1, bind_strip},
    {"concat", 1, MANTA__EXPR_ARGS, manta__expr_bind_concat},
    {0}};
