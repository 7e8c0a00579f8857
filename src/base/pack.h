/* SPDX-License-Identifier: Apache-2.0
 *
 * base/pack.h - MessagePack straight into memory, for the report path.
 *
 * A codec of our own: it reads straight into manta_value with our limits (msgpack-c allocates what
 * a count claims before it has seen the bytes) and writes without a call per byte. The tests and
 * the fuzz target compare it with msgpack-c.
 */
#ifndef MANTA_BASE_PACK_H
#define MANTA_BASE_PACK_H

#include <manta/value.h>

/* Bytes that manta__pack_into would write, or 0 if the value is nested too deeply or too big. */
size_t manta__pack_size(const manta_value *v);
/* Writes v at p, which has room for manta__pack_size(v) bytes; returns the end. */
uint8_t *manta__pack_into(uint8_t *p, const manta_value *v);

/* Pieces, for who writes a map by hand. Each returns the end. Room needed: 5, 5, 9, 9 and 5 + n. */
uint8_t *manta__pack_map(uint8_t *p, uint32_t pairs);
uint8_t *manta__pack_list(uint8_t *p, uint32_t items);
uint8_t *manta__pack_int(uint8_t *p, int64_t i);
uint8_t *manta__pack_real(uint8_t *p, double r);
uint8_t *manta__pack_string(uint8_t *p, const char *s, uint32_t n);

/* Reads one value; *used (may be NULL) gets its length. One allocation for the whole tree. `out`
 * must be {0} or a valid value; on failure it is as it was. */
manta_status manta__unpack(manta_value *out, const void *bytes, size_t len, size_t *used,
                           manta_error *err);

#endif
