/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/program.h - what compile.c makes and eval.c runs.
 */
#ifndef MANTA_DATA_EXPR_PROGRAM_H
#define MANTA_DATA_EXPR_PROGRAM_H

#include "data/expr/node.h"

struct manta__expr {
  struct manta__expr_node *root;
};

void manta__node_destroy(struct manta__expr_node *node); /* NULL is fine */
/* is_in: its second argument is node->list, literals that become node->set. */
manta_status manta__expr_bind_in(struct manta__expr_node *node, manta_error *err);

#endif
