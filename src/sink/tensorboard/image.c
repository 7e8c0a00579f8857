/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/tensorboard/image.c - what an encoded image says of its size.
 *
 * The bytes come from a train function: every offset is checked, and what does not look right is no
 * image.
 */
#include <string.h>

#include "sink/tensorboard/eventfile.h"

#define MAX_SIDE 65535

static uint32_t be(const uint8_t *p, int n)
{
  uint32_t x = 0;
  for (int i = 0; i < n; i++)
    x = x << 8 | p[i];
  return x;
}

static bool fill(struct manta__image *out, uint32_t width, uint32_t height, int channels)
{
  if (width == 0 || height == 0 || width > MAX_SIDE || height > MAX_SIDE)
    return false;
  *out = (struct manta__image){(int)width, (int)height, channels};
  return true;
}

static bool look_png(const uint8_t *p, size_t n, struct manta__image *out)
{
  static const uint8_t channels[7] = {1, 0, 3, 3, 2, 0, 4}; // by colour type
  if (n < 33 || memcmp(p, "\x89PNG\r\n\x1a\n", 8) != 0 || memcmp(p + 12, "IHDR", 4) != 0)
    return false;
  int c = p[25] < 7 ? channels[p[25]] : 0;
  return c > 0 && fill(out, be(p + 16, 4), be(p + 20, 4), c);
}

static bool look_gif(const uint8_t *p, size_t n, struct manta__image *out)
{
  if (n < 13 || (memcmp(p, "GIF87a", 6) != 0 && memcmp(p, "GIF89a", 6) != 0))
    return false;
  return fill(out, (uint32_t)(p[6] | p[7] << 8), (uint32_t)(p[8] | p[9] << 8), 3);
}

// Marker by marker to the one that begins a frame: all of C0 to CF but DHT, JPG and DAC.
static bool look_jpeg(const uint8_t *p, size_t n, struct manta__image *out)
{
  if (n < 4 || p[0] != 0xff || p[1] != 0xd8)
    return false;
  for (size_t at = 2; at + 4 <= n && p[at] == 0xff;) {
    uint8_t marker = p[at + 1];
    size_t len = be(p + at + 2, 2);
    if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc)
      return at + 10 <= n && fill(out, be(p + at + 7, 2), be(p + at + 5, 2), p[at + 9]);
    if (len < 2)
      return false;
    at += 2 + len;
  }
  return false;
}

bool manta__image_look(const uint8_t *p, size_t n, struct manta__image *out)
{
  return look_png(p, n, out) || look_jpeg(p, n, out) || look_gif(p, n, out);
}
