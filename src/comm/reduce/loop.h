/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce/loop.h - one kernel; included once per type and operation, hence no include guard.
 *
 * In: TYPE, KIND and, where large arrays are worth it, STREAMS (undefined again at the end), and
 * for the type
 *   work_TYPE             the vector of a node of the tree
 *   scale_TYPE            the factor of a mean
 *   STEP_TYPE             bytes of one such vector in memory
 *   get_TYPE(p, part)     a vector out of memory; part: only so many bytes are there, or 0
 *   put_TYPE(p, v, part)  the way back
 *   stream_TYPE(p, v)     the same past the caches, where STREAMS
 *   done_TYPE(v, s)       the root becomes the result
 *   KIND_TYPE(a, b)       a node out of two
 * Out: static manta__reduce_fn TYPE_KIND.
 *
 * Up to four arrays go straight to out. More go by blocks that stay in the first-level cache: four
 * arrays make a slot, and slots meet as a binary counter carries, which is the tree of reduce.h.
 * All arrays of a block are read before out is written, so that out may be one of them.
 */
#define T(name)    GLUE(name, TYPE)
#define K(name)    GLUE(name, KERNEL)
#define KERNEL     GLUE(TYPE, KIND)
#define WORK       T(work)
#define SCALE      T(scale)
#define STEP       ((size_t)T(STEP))
#define ELEMENT    (STEP / (sizeof(WORK) / sizeof(((WORK){0})[0])))
#define OP(a, b)   T(KIND)(a, b)
#define DONE(v, s) T(done)(v, s)

enum {
  K(VECS) = SLOT_BYTES / sizeof(WORK),
};

/* The tree over k <= 4 arrays at one place; part: only the first `part` bytes are there. */
INLINE WORK K(node)(const unsigned char *const p[4], int k, size_t at, size_t part)
{
#define LEAF(i) T(get)(p[i] + at, part)
  WORK a = LEAF(0);
  if (k == 1)
    return a;
  a = OP(a, LEAF(1));
  if (k == 2)
    return a;
  WORK b = LEAF(2);
  if (k == 4)
    b = OP(b, LEAF(3));
  return OP(a, b);
#undef LEAF
}

#ifdef STREAMS
#define STREAM(p, v) T(stream)(p, v)
#else
#define STREAM(p, v) T(put)(p, v, 0)
#endif

/* k arrays become out. k and past (the caches) are constants: each pair gets its own loop. */
INLINE void K(direct_k)(unsigned char *out, const void *const *in, int k, size_t bytes, SCALE s,
                        bool past)
{
  const unsigned char *p[4] = {0}; // a copy that no store to out can change
  for (int i = 0; i < k; i++)
    p[i] = in[i];
  size_t at = 0;
  for (; past && bytes - at >= STEP; at += STEP)
    STREAM(out + at, DONE(K(node)(p, k, at, 0), s));
  for (; bytes - at >= STEP; at += STEP)
    T(put)(out + at, DONE(K(node)(p, k, at, 0), s), 0);
  if (at < bytes)
    T(put)(out + at, DONE(K(node)(p, k, at, bytes - at), s), bytes - at);
}

INLINE void K(direct_to)(unsigned char *out, const void *const *in, int n, size_t bytes, SCALE s,
                         bool past)
{
  if (n == 2)
    K(direct_k)(out, in, 2, bytes, s, past);
  else if (n == 3)
    K(direct_k)(out, in, 3, bytes, s, past);
  else
    K(direct_k)(out, in, 4, bytes, s, past);
}

static void K(direct)(unsigned char *out, const void *const *in, int n, size_t bytes, SCALE s)
{
  K(direct_to)(out, in, n, bytes, s, false);
}

#ifdef STREAMS
static void K(direct_past)(unsigned char *out, const void *const *in, int n, size_t bytes,
                           size_t skip, SCALE s)
{
  const void *rest[4] = {0};
  for (int i = 0; i < n; i++)
    rest[i] = (const unsigned char *)in[i] + skip;
  K(direct)(out, in, n, skip, s);
  K(direct_to)(out + skip, rest, n, bytes - skip, s, true);
  stream_end();
}
#endif

/* k arrays, from byte `from` on, become a slot. */
INLINE void K(fill_k)(WORK *slot, const void *const *in, int k, size_t from, size_t bytes)
{
  const unsigned char *p[4] = {0};
  for (int i = 0; i < k; i++)
    p[i] = (const unsigned char *)in[i] + from;
  size_t at = 0;
  for (; bytes - at >= STEP; at += STEP)
    *slot++ = K(node)(p, k, at, 0);
  if (at < bytes)
    *slot = K(node)(p, k, at, bytes - at);
}

static void K(fill)(WORK *slot, const void *const *in, int k, size_t from, size_t bytes)
{
  if (k == 1)
    K(fill_k)(slot, in, 1, from, bytes);
  else if (k == 2)
    K(fill_k)(slot, in, 2, from, bytes);
  else if (k == 3)
    K(fill_k)(slot, in, 3, from, bytes);
  else
    K(fill_k)(slot, in, 4, from, bytes);
}

static void K(merge)(WORK *a, const WORK *b, size_t bytes)
{
  for (size_t i = 0; i * STEP < bytes; i++)
    a[i] = OP(a[i], b[i]);
}

static void K(finish)(unsigned char *out, const WORK *a, const WORK *b, size_t bytes, SCALE s)
{
  size_t at = 0;
  for (; bytes - at >= STEP; at += STEP, a++, b++)
    T(put)(out + at, DONE(OP(*a, *b), s), 0);
  if (at < bytes)
    T(put)(out + at, DONE(OP(*a, *b), s), bytes - at);
}

static void K(block)(unsigned char *out, const void *const *in, int n, size_t from, size_t bytes,
                     SCALE s)
{
  WORK slot[SLOTS][K(VECS)];
  int depth = 0;
  for (int i = 0; i < n; i += 4) {
    K(fill)(slot[depth++], in + i, n - i < 4 ? n - i : 4, from, bytes);
    for (int carry = i / 4; i + 4 < n && carry & 1; carry >>= 1, depth--)
      K(merge)(slot[depth - 2], slot[depth - 1], bytes);
  }
  for (; depth > 2; depth--)
    K(merge)(slot[depth - 2], slot[depth - 1], bytes);
  K(finish)(out + from, slot[0], slot[1], bytes, s);
}

static void KERNEL(void *out, const void *const *in, int n, size_t count, int divisor)
{
  SCALE s = (SCALE)1 / (SCALE)divisor;
  size_t bytes = count * ELEMENT;
#ifdef STREAMS
  size_t skip;
  if (n <= 4 && streams(out, in, n, bytes, STEP, ELEMENT, &skip)) {
    K(direct_past)(out, in, n, bytes, skip, s);
    return;
  }
#endif
  if (n <= 4) {
    K(direct)(out, in, n, bytes, s);
    return;
  }
  size_t most = (size_t)K(VECS) * STEP;
  for (size_t from = 0; from < bytes; from += most)
    K(block)(out, in, n, from, bytes - from < most ? bytes - from : most, s);
}

#undef T
#undef K
#undef KERNEL
#undef WORK
#undef SCALE
#undef STEP
#undef ELEMENT
#undef STREAM
#undef STREAMS
#undef OP
#undef DONE
#undef TYPE
#undef KIND
