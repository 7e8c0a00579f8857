/* SPDX-License-Identifier: Apache-2.0
 *
 * base/buf.h - a growing byte buffer that is born with its limit. {0} is an empty buffer of limit
 * 0.
 */
#ifndef MANTA_BASE_BUF_H
#define MANTA_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

typedef struct manta__buf {
  uint8_t *data;
  size_t len, cap, limit;
} manta__buf;

void manta__buf_init(manta__buf *b, size_t limit);
void manta__buf_fini(manta__buf *b);
/* Room for `n` more bytes behind len: MANTA_ENOMEM, or MANTA_ETOOBIG past the limit. */
manta_status manta__buf_reserve(manta__buf *b, size_t n);
manta_status manta__buf_append(manta__buf *b, const void *p, size_t n);
manta_status manta__buf_puts(manta__buf *b, const char *s);
manta_status manta__buf_putc(manta__buf *b, char c);
/* Never cuts: all of it or an error. */
manta_status manta__buf_printf(manta__buf *b, const char *fmt, ...) MANTA_PRINTF(2, 3);
/* Ends the bytes with a NUL that len does not count. */
manta_status manta__buf_terminate(manta__buf *b);
/* Drops the first `n` bytes. */
void manta__buf_consume(manta__buf *b, size_t n);
/* Gives the memory (free with manta_free) and empties the buffer. */
void *manta__buf_release(manta__buf *b, size_t *len_out);

#endif
