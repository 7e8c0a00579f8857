/* SPDX-License-Identifier: Apache-2.0
 *
 * base/value.h - who owns what inside a manta_value, for the files that make whole trees.
 *
 * (1) OWNED: the block that u.s, u.items or u.pairs points to is this node's and nobody else's. In
 *     an owned map the keys are blocks of their own too.
 * (2) FLAT: owned, and everything beneath lies in that one block; the nodes beneath have flags 0.
 * (3) Neither: borrowed. fini does not follow the pointer.
 */
#ifndef MANTA_BASE_VALUE_H
#define MANTA_BASE_VALUE_H

#include <string.h>

#include <manta/value.h>

#define MANTA__JSON_MAX (1024u << 20) /* bytes of JSON text */

struct manta__buf;

#define MANTA__OWNED 1u
#define MANTA__FLAT  2u

/* A tree under construction in one block: arrays from its start, text behind them. The array of
 * the root must be taken first, since the root frees the block by its own pointer. */
struct manta__flat {
  char *nodes, *text;
};

/* MANTA_ENOMEM, or room for that many bytes of arrays and of text (each with its NUL). */
manta_status manta__flat_init(struct manta__flat *f, size_t nodes, size_t text);
/* Replaces what `out` held by `root`, which from now on owns the block. */
void manta__flat_finish(manta_value *out, manta_value root);

static inline void *manta__flat_nodes(struct manta__flat *f, size_t n)
{
  void *p = f->nodes;
  if (n)
    f->nodes += n;
  return p;
}

static inline char *manta__flat_text(struct manta__flat *f, const void *s, size_t n)
{
  char *p = f->text;
  if (n)
    memcpy(p, s, n);
  p[n] = 0;
  f->text = p + n + 1;
  return p;
}

/* Appends the JSON text of `v` on one line, as strict readers take it: NaN and infinities become
 * null, and *lossy (may be NULL) says that there were some. MANTA_ENOMEM, MANTA_ETOOBIG: too deep,
 * or past the limit of the buffer. */
manta_status manta__json_append(struct manta__buf *b, const manta_value *v, bool *lossy);

/* An entry of a map, or "outer/inner" of maps in it. NULL: it is not there. */
const manta_value *manta__value_path(const manta_value *map, const char *path);

/* A copy for a record that people read: of a value that packs to more than 64 KiB the long strings
 * are cut, and bytes, long lists and deep ones are told by their lengths. `out` must be {0}; after
 * a failure it is to be finished. */
manta_status manta__value_abridge(manta_value *out, const manta_value *v);

#endif
