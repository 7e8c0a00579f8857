/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/value.h - the dynamic value: configs, report rows, return values.
 *
 * A manta_value is nil, bool, int64, float64, string, bytes, a list or a map with string keys. It
 * is complete and 16 bytes, so it lives on a stack; {0} is nil. A value either owns what it points
 * to (made by manta_value_set_*, copied, parsed) or borrows it (made by the MANTA_* macros below
 * from literals and locals). manta_value_fini frees what is owned and nothing else, and may be
 * called twice. Values are not synchronised: one thread at a time, or many that only read.
 */
#ifndef MANTA_VALUE_H
#define MANTA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum manta_type {
  MANTA_NIL = 0,
  MANTA_BOOL,
  MANTA_INT,
  MANTA_REAL,
  MANTA_STRING,
  MANTA_BYTES,
  MANTA_LIST,
  MANTA_MAP
} manta_type;

#define MANTA_VALUE_MAX_DEPTH 64          /* nesting of lists and maps, in every form */
#define MANTA_VALUE_MAX_BYTES 4294967280u /* of one string; JSON text: 1 GiB */

typedef struct manta_value manta_value;
typedef struct manta_pair manta_pair;

struct manta_value {
  uint8_t type;   /* manta_type */
  uint8_t flags;  /* private */
  uint16_t zero;  /* private */
  uint32_t count; /* bytes of a string, items of a list, pairs of a map */
  union {
    bool b;
    int64_t i;
    double r;
    const char *s;      /* STRING: NUL-terminated; BYTES: count bytes */
    manta_value *items; /* LIST */
    manta_pair *pairs;  /* MAP, in order of insertion */
  } u;
};

struct manta_pair {
  const char *key; /* NUL-terminated */
  manta_value value;
};

/* --- Making values without allocation ------------------------------------------------------- */

#ifndef __cplusplus
/* A map that borrows: MANTA_MAP(MANTA_KV_INT("epoch", e), MANTA_KV_REAL("loss", loss)). It lives as
 * long as the enclosing block. */
#define MANTA_MAP(...)                                                                             \
  ((manta_value){.type = MANTA_MAP,                                                                \
                 .count = sizeof((manta_pair[]){__VA_ARGS__}) / sizeof(manta_pair),                \
                 .u.pairs = (manta_pair[]){__VA_ARGS__}})
#define MANTA_KV(k, v)      ((manta_pair){(k), (v)})
#define MANTA_KV_INT(k, v)  ((manta_pair){(k), {.type = MANTA_INT, .u.i = (v)}})
#define MANTA_KV_REAL(k, v) ((manta_pair){(k), {.type = MANTA_REAL, .u.r = (v)}})
#define MANTA_KV_BOOL(k, v) ((manta_pair){(k), {.type = MANTA_BOOL, .u.b = (v)}})
#define MANTA_KV_STR(k, v)  ((manta_pair){(k), manta_value_borrow_string(v)})
#endif

/* Values that borrow: the memory stays the caller's and must outlive the value. A string that is
 * NULL gives nil, here and below. */
MANTA_API manta_value manta_value_int(int64_t i);
MANTA_API manta_value manta_value_real(double r);
MANTA_API manta_value manta_value_bool(bool b);
MANTA_API manta_value manta_value_borrow_string(const char *s);
MANTA_API manta_value manta_value_borrow_bytes(const void *p, size_t n);

/* --- Making values that own ------------------------------------------------------------------ */

/* Each replaces what `v` held (freeing it if owned) and returns MANTA_OK, or leaves `v` as it was
 * and returns MANTA_ENOMEM or MANTA_ETOOBIG. `v` must be {0} or a valid value. */
MANTA_API void manta_value_set_nil(manta_value *v);
MANTA_API manta_status manta_value_set_bool(manta_value *v, bool b);
MANTA_API manta_status manta_value_set_int(manta_value *v, int64_t i);
MANTA_API manta_status manta_value_set_real(manta_value *v, double r);
MANTA_API manta_status manta_value_set_string(manta_value *v, const char *s);
MANTA_API manta_status manta_value_set_bytes(manta_value *v, const void *p, size_t n);
MANTA_API manta_status manta_value_set_list(manta_value *v); /* empty */
MANTA_API manta_status manta_value_set_map(manta_value *v);  /* empty */

/* Appends to a list / sets a key of a map (replacing the value it had). Takes `item`: on success
 * it is moved in and *item becomes {0}; on failure it stays the caller's. A borrowing container is
 * copied first, so that it owns what it holds; an item that borrows goes on borrowing. MANTA_ETYPE
 * if `v` is something else; MANTA_EINVAL if `item` is `v` or the key is NULL. */
MANTA_API manta_status manta_value_append(manta_value *v, manta_value *item);
MANTA_API manta_status manta_value_put(manta_value *v, const char *key, manta_value *item);
MANTA_API manta_status manta_value_put_int(manta_value *v, const char *key, int64_t i);
MANTA_API manta_status manta_value_put_real(manta_value *v, const char *key, double r);
MANTA_API manta_status manta_value_put_bool(manta_value *v, const char *key, bool b);
MANTA_API manta_status manta_value_put_string(manta_value *v, const char *key, const char *s);

/* Deep copy; `out` owns everything. `out` must be {0} or a valid value; it may not be `v`. */
MANTA_API manta_status manta_value_copy(manta_value *out, const manta_value *v);
/* dst gets what src held, src becomes {0}; what dst held is freed. */
MANTA_API void manta_value_move(manta_value *dst, manta_value *src);
/* Frees what is owned; v becomes {0}. Twice is harmless. NULL is fine. */
MANTA_API void manta_value_fini(manta_value *v);

/* --- Reading -------------------------------------------------------------------------------- */

/* The value under `key`, borrowed, or NULL if there is none or `map` is no map (or NULL). The first
 * one, where a map that was unpacked has the key twice. */
MANTA_API const manta_value *manta_value_get(const manta_value *map, const char *key);
/* Item `i` of a list, borrowed, or NULL. */
MANTA_API const manta_value *manta_value_at(const manta_value *list, size_t i);
/* The value as a number, a flag or text, or `dflt` if it is NULL or of another kind. Int and real
 * convert into each other only without loss (as_int of 2.5 is dflt). */
MANTA_API int64_t manta_value_as_int(const manta_value *v, int64_t dflt);
MANTA_API double manta_value_as_real(const manta_value *v, double dflt);
MANTA_API bool manta_value_as_bool(const manta_value *v, bool dflt);
MANTA_API const char *manta_value_as_string(const manta_value *v, const char *dflt);
/* Same type and same content; maps compare without regard to order; NaN equals NaN, 0.0 equals
 * -0.0. */
MANTA_API bool manta_value_equal(const manta_value *a, const manta_value *b);

/* --- JSON ----------------------------------------------------------------------------------- */

/* Gives the JSON text of `v` in *out (NUL-terminated; free it with manta_free). Reals are written
 * with the fewest digits that read back the same; NaN and infinities as NaN, Infinity, -Infinity;
 * bytes as {"$bytes": "<base64>"}; a byte that is no UTF-8 as \ufffd. indent < 0: one line without
 * blanks; else each entry has a line, indented by so many blanks per level. MANTA_ETOOBIG past a
 * limit. */
MANTA_API manta_status manta_value_to_json(const manta_value *v, int indent, char **out,
                                           manta_error *err);
/* Parses `len` bytes of JSON into `out`, which owns the result (on failure it is as it was; it must
 * be {0} or a valid value). Takes all that to_json writes. Maps of exactly the shapes
 * {"$bytes": "<base64>"} and {"$real": "NaN" | "Infinity" | "-Infinity"} are read as bytes and as a
 * real. Of a key that comes twice the last value is kept. MANTA_EPROTO with line and column. */
MANTA_API manta_status manta_value_from_json(manta_value *out, const char *text, size_t len,
                                             manta_error *err);

/* --- MessagePack ---------------------------------------------------------------------------- */

/* Gives the MessagePack bytes of `v` in *out (free with manta_free) and their number in *len. */
MANTA_API manta_status manta_value_pack(const manta_value *v, void **out, size_t *len,
                                        manta_error *err);
/* Reads exactly one value out of `len` bytes into `out`, which owns the result (on failure it is as
 * it was; it must be {0} or a valid value). Anything left over is MANTA_EPROTO, and so are
 * extension types, integers past INT64_MAX, and keys that are no string or hold a NUL.
 * MANTA_ETOOBIG: it is nested too deeply. Its size is limited by memory alone. */
MANTA_API manta_status manta_value_unpack(manta_value *out, const void *bytes, size_t len,
                                          manta_error *err);

/* Frees memory given by manta_value_to_json, manta_value_pack and the like. NULL is fine. */
MANTA_API void manta_free(void *p);

#ifdef __cplusplus
}
#endif
#endif
