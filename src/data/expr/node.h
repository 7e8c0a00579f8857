/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/node.h - a compiled expression: a tree of nodes, each with values of a chunk of rows.
 *
 * Evaluation goes chunk by chunk, so that all values of all nodes stay in the caches, and node by
 * node within a chunk. A node keeps its values in one of five forms, whatever type it has: a type
 * that is narrower than its form (i8, f32) is rounded to after each step.
 */
#ifndef MANTA_DATA_EXPR_NODE_H
#define MANTA_DATA_EXPR_NODE_H

#include "data/column/build.h"
#include "data/expr/expr.h"

#define MANTA__EXPR_CHUNK 1024
#define MANTA__EXPR_ARGS  16 /* of concat; the others have three at most */

enum manta__form {
  MANTA__FORM_BOOL, /* uint8_t, 0 or 1 */
  MANTA__FORM_INT,  /* int64_t */
  MANTA__FORM_UINT, /* uint64_t */
  MANTA__FORM_REAL, /* double */
  MANTA__FORM_TEXT, /* struct manta__expr_text */
};

struct manta__expr_text {
  const char *p;
  size_t n;
};

struct manta__expr_node;

/* Computes the values of n rows out of those of the arguments, which are there. */
typedef manta_status manta__expr_fn(struct manta__expr_node *node, int n, manta_error *err);

struct manta__expr_node {
  const struct manta__expr_op *op;
  manta__expr_fn *run; /* NULL: a literal, whose values stay */
  struct manta__type type;
  enum manta__form form;
  bool literal;  /* as it was written: it takes the type of what it meets */
  bool is_nil;   /* a literal without a type */
  bool constant; /* the same in every row: computed once */
  bool computed;
  int64_t lit_int; /* of a literal: its value, in the form that it has */
  double lit_real;
  int column; /* of "col", else -1 */
  int argc;
  struct manta__expr_node *arg[MANTA__EXPR_ARGS];
  const manta_value *list; /* of is_in; borrowed while it is compiled */
  void *set;               /* of is_in: sorted values in the form of its argument */
  size_t set_count;

  /* The chunk. `values` points into `own`, or straight into a column. */
  void *values, *own;
  uint8_t *valid, *own_valid; /* NULL: all are; else a byte each */
  char *text;                 /* what strings of this node point to */
  size_t text_cap;
};

/* One row of the table of operations: its name, how many arguments it may have, and how it finds
 * its type and its kernel. */
struct manta__expr_op {
  const char *name;
  int least, most;
  manta_status (*bind)(struct manta__expr_node *node, manta_error *err);
};

/* The tables of the files that define operations; each ends in a row without a name. */
extern const struct manta__expr_op manta__expr_number_ops[];
extern const struct manta__expr_op manta__expr_logic_ops[];
extern const struct manta__expr_op manta__expr_text_ops[];

/* Sets kind, form and kernel of a node. */
void manta__node_is(struct manta__expr_node *node, struct manta__type type, manta__expr_fn *run);
enum manta__form manta__form_of(const struct manta__type *t);
size_t manta__form_bytes(enum manta__form form);

/* Puts a conversion in front of argument i, unless it has the form already; literals are converted
 * on the spot. */
manta_status manta__node_convert(struct manta__expr_node *node, int i, enum manta__form form,
                                 manta_error *err);
/* Rounds argument i to f32 if it is a literal: what meets f32 columns is as wide as they are. */
void manta__node_narrow(struct manta__expr_node *node, int i);
/* Converts numbers a and b to one form, and gives the type that the result of their arithmetic has.
 * MANTA_ETYPE if one is no number. */
manta_status manta__node_promote(struct manta__expr_node *node, int a, int b,
                                 struct manta__type *out, manta_error *err);
/* Converts a and b, of any kinds, to one form: numbers as above, a nil to what the other is. */
manta_status manta__node_unite(struct manta__expr_node *node, int a, int b, struct manta__type *out,
                               manta_error *err);
/* "… of string and i64: numbers are wanted" */
manta_status manta__node_mismatch(const struct manta__expr_node *node, const char *wanted,
                                  manta_error *err);
/* Replaces argument i by a cast of it to `type`. */
manta_status manta__node_cast(struct manta__expr_node *node, int i, const struct manta__type *type,
                              manta_error *err);

/* "+" of strings, and concat. */
manta_status manta__expr_bind_concat(struct manta__expr_node *node, manta_error *err);

/* --- for kernels --- */

/* A row is valid if it is in all arguments. */
void manta__node_join(struct manta__expr_node *node, int n);
/* The node's own bytes of validity, set to what they are now: for kernels that make nulls. */
uint8_t *manta__node_own_valid(struct manta__expr_node *node, int n);
/* Rounds floats to the node's type. */
void manta__node_round(struct manta__expr_node *node, int n);
/* Memory for n bytes of text that this node's strings point to; valid for this chunk. */
manta_status manta__node_text(struct manta__expr_node *node, size_t n, char **out,
                              manta_error *err);
manta__expr_fn manta__node_run_cast;

#endif
