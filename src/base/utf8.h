/* SPDX-License-Identifier: Apache-2.0
 *
 * base/utf8.h - whether bytes are UTF-8, as fast as memory where they are ASCII; and
 * characters as UTF-8.
 */
#ifndef MANTA_BASE_UTF8_H
#define MANTA_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Length of the well-formed sequence at s (n > 0 bytes are there), or 0. No overlong form, no
 * surrogate, nothing past U+10FFFF. */
static inline size_t manta__utf8_step(const uint8_t *s, size_t n)
{
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (s[0] < 0x80)
    return 1;
  size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4 || len > n)
    return 0;
  uint32_t c = s[0] & (0x7fu >> len);
  for (size_t i = 1; i < len; i++) {
    if ((s[i] & 0xc0) != 0x80)
      return 0;
    c = c << 6 | (s[i] & 0x3f);
  }
  return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : len;
}

/* Where the first byte is that cannot be: n if all n bytes are UTF-8. */
static inline size_t manta__utf8_valid(const void *p, size_t n)
{
  const uint8_t *s = (const uint8_t *)p;
  size_t at = 0, step;
  uint64_t w;
  while (at < n) {
    for (; n - at >= 8; at += 8) {
      memcpy(&w, s + at, 8);
      if (w & 0x8080808080808080)
        break;
    }
    for (size_t end = at + 8 < n ? at + 8 : n; at < end; at += step)
      if (!(step = manta__utf8_step(s + at, n - at)))
        return at;
  }
  return n;
}

/* Writes a character (no surrogate, at most U+10FFFF) as 1 to 4 bytes; how many. */
static inline size_t manta__utf8_put(uint32_t c, char *to)
{
  if (c < 0x80) {
    to[0] = (char)c;
    return 1;
  }
  size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = n - 1; i > 0; i--, c >>= 6)
    to[i] = (char)(0x80 | (c & 0x3f));
  to[0] = (char)((0xf00 >> n & 0xff) | c);
  return n;
}

#endif
