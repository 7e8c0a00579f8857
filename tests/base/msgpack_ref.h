/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/base/msgpack_ref.h - msgpack-c as the second opinion on our MessagePack.
 */
#ifndef MANTA_MSGPACK_REF_H
#define MANTA_MSGPACK_REF_H

#include <math.h>
#include <msgpack.h>
#include <stdbool.h>
#include <string.h>

#include <manta/value.h>

static inline void ref_pack(msgpack_packer *pk, const manta_value *v)
{
  switch (v->type) {
  case MANTA_NIL:
    msgpack_pack_nil(pk);
    break;
  case MANTA_BOOL:
    v->u.b ? msgpack_pack_true(pk) : msgpack_pack_false(pk);
    break;
  case MANTA_INT:
    msgpack_pack_int64(pk, v->u.i);
    break;
  case MANTA_REAL:
    msgpack_pack_double(pk, v->u.r);
    break;
  case MANTA_STRING:
    msgpack_pack_str(pk, v->count);
    msgpack_pack_str_body(pk, v->u.s, v->count);
    break;
  case MANTA_BYTES:
    msgpack_pack_bin(pk, v->count);
    msgpack_pack_bin_body(pk, v->u.s, v->count);
    break;
  case MANTA_LIST:
    msgpack_pack_array(pk, v->count);
    for (uint32_t i = 0; i < v->count; i++)
      ref_pack(pk, &v->u.items[i]);
    break;
  case MANTA_MAP:
    msgpack_pack_map(pk, v->count);
    for (uint32_t i = 0; i < v->count; i++) {
      manta_value key = manta_value_borrow_string(v->u.pairs[i].key);
      ref_pack(pk, &key);
      ref_pack(pk, &v->u.pairs[i].value);
    }
    break;
  }
}

// msgpack-c leaves the pointer of an empty string NULL, which memcmp and memchr must not get.
static bool ref_same_bytes(const char *a, const char *b, size_t n)
{
  return n == 0 || !memcmp(a, b, n);
}

static bool ref_same_text(const manta_value *v, manta_type type, const char *p, uint32_t n)
{
  return v->type == type && v->count == n && ref_same_bytes(v->u.s, p, n) && v->u.s[n] == 0;
}

static bool ref_same(const manta_value *v, const msgpack_object *o);

static bool ref_same_entries(const manta_value *v, const msgpack_object *o)
{
  bool map = o->type == MSGPACK_OBJECT_MAP;
  if (v->type != (map ? MANTA_MAP : MANTA_LIST))
    return false;
  if (v->count != (map ? o->via.map.size : o->via.array.size))
    return false;
  for (uint32_t i = 0; i < v->count; i++) {
    const msgpack_object_kv *kv = map ? &o->via.map.ptr[i] : NULL;
    if (map && (strlen(v->u.pairs[i].key) != kv->key.via.str.size ||
                !ref_same_bytes(v->u.pairs[i].key, kv->key.via.str.ptr, kv->key.via.str.size)))
      return false;
    if (!ref_same(map ? &v->u.pairs[i].value : &v->u.items[i],
                  map ? &kv->val : &o->via.array.ptr[i]))
      return false;
  }
  return true;
}

static bool ref_same_real(double a, double b)
{
  return isnan(a) ? isnan(b) : !memcmp(&a, &b, sizeof a);
}

/* Whether v holds what o holds, in the same order. */
static bool ref_same(const manta_value *v, const msgpack_object *o)
{
  switch (o->type) {
  case MSGPACK_OBJECT_NIL:
    return v->type == MANTA_NIL;
  case MSGPACK_OBJECT_BOOLEAN:
    return v->type == MANTA_BOOL && v->u.b == o->via.boolean;
  case MSGPACK_OBJECT_POSITIVE_INTEGER:
    return v->type == MANTA_INT && v->u.i >= 0 && (uint64_t)v->u.i == o->via.u64;
  case MSGPACK_OBJECT_NEGATIVE_INTEGER:
    return v->type == MANTA_INT && v->u.i == o->via.i64;
  case MSGPACK_OBJECT_FLOAT32:
  case MSGPACK_OBJECT_FLOAT64:
    return v->type == MANTA_REAL && ref_same_real(v->u.r, o->via.f64);
  case MSGPACK_OBJECT_STR:
    return ref_same_text(v, MANTA_STRING, o->via.str.ptr, o->via.str.size);
  case MSGPACK_OBJECT_BIN:
    return ref_same_text(v, MANTA_BYTES, o->via.bin.ptr, o->via.bin.size);
  case MSGPACK_OBJECT_ARRAY:
  case MSGPACK_OBJECT_MAP:
    return ref_same_entries(v, o);
  default:
    return false;
  }
}

static bool ref_is_key(const msgpack_object *o)
{
  return o->type == MSGPACK_OBJECT_STR &&
         (o->via.str.size == 0 || !memchr(o->via.str.ptr, 0, o->via.str.size));
}

/* Whether o is something that a manta_value can hold. */
static bool ref_has_meaning(const msgpack_object *o)
{
  bool fine = true;
  if (o->type == MSGPACK_OBJECT_EXT)
    return false;
  if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
    return o->via.u64 <= INT64_MAX;
  if (o->type == MSGPACK_OBJECT_ARRAY)
    for (uint32_t i = 0; fine && i < o->via.array.size; i++)
      fine = ref_has_meaning(&o->via.array.ptr[i]);
  if (o->type == MSGPACK_OBJECT_MAP)
    for (uint32_t i = 0; fine && i < o->via.map.size; i++) {
      const msgpack_object_kv *kv = &o->via.map.ptr[i];
      fine = ref_is_key(&kv->key) && ref_has_meaning(&kv->val);
    }
  return fine;
}

#endif
