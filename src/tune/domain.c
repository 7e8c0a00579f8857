/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/domain.c - the public calls that make domains; tune/space.h says what they look like.
 */
#include <manta/tune.h>

static manta_status wrap(manta_value *out, const char *kind, manta_value *inner)
{
  manta_value v = {0};
  manta_status st = manta_value_set_map(&v);
  if (st == MANTA_OK)
    st = manta_value_put(&v, kind, inner);
  if (st == MANTA_OK)
    manta_value_move(out, &v);
  manta_value_fini(&v);
  manta_value_fini(inner);
  return st;
}

static manta_status wrap_copy(manta_value *out, const char *kind, const manta_value *v)
{
  manta_value inner = {0};
  MANTA_TRY(manta_value_copy(&inner, v));
  return wrap(out, kind, &inner);
}

manta_status manta_space_uniform(manta_value *out, double low, double high, double q, bool log)
{
  manta_value v = MANTA_MAP(MANTA_KV_REAL("low", low), MANTA_KV_REAL("high", high),
                            MANTA_KV_REAL("q", q), MANTA_KV_BOOL("log", log));
  return wrap_copy(out, "$range", &v);
}

manta_status manta_space_normal(manta_value *out, double mean, double sd, double q)
{
  manta_value v =
      MANTA_MAP(MANTA_KV_REAL("mean", mean), MANTA_KV_REAL("sd", sd), MANTA_KV_REAL("q", q));
  return wrap_copy(out, "$normal", &v);
}

manta_status manta_space_randint(manta_value *out, int64_t low, int64_t high, int64_t q, bool log)
{
  manta_value v =
      MANTA_MAP(MANTA_KV_INT("low", low), MANTA_KV_INT("high", high), MANTA_KV_INT("q", q),
                MANTA_KV_BOOL("log", log), MANTA_KV_BOOL("int", true));
  return wrap_copy(out, "$range", &v);
}

manta_status manta_space_choice(manta_value *out, const manta_value *options)
{
  return wrap_copy(out, "$choice", options);
}

manta_status manta_space_grid(manta_value *out, const manta_value *options)
{
  return wrap_copy(out, "$grid", options);
}

manta_status manta_space_literal(manta_value *out, const manta_value *v)
{
  return wrap_copy(out, "$literal", v);
}
