/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture has one byte for a pixel, 0 … 127 from white to black and 128 … 255 from white to
 * red. A PNG may hold its data uncompressed: then all it takes is two checksums.
 */
#include "sheet.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 24, GOOD_ROWS = 10, BAD_ROWS = 4, TILE = DIGIT_SIDE + 2, GAP = 8, ZOOM = 2 };
enum { WIDTH = COLUMNS * TILE, HEIGHT = (GOOD_ROWS + BAD_ROWS) * TILE + GAP, RED = 128 };

// --- the picture --------------------------------------------------------------------------------

/* 0 … 9 in 3 x 5 dots, a row in three bits, the top row first. */
static const uint16_t tiny[10] = {075557, 026227, 071747, 071717, 055711,
                                  074717, 074757, 071244, 075757, 075717};

static void put_guess(uint8_t *to, int guess)
{
  for (int i = 0; i < 15; i++)
    if (tiny[guess] >> (14 - i) & 1)
      to[i / 3 * WIDTH + i % 3] = RED + 127;
}

static void put_digit(uint8_t *to, const struct digit *d, bool red)
{
  for (int i = 0; i < DIGIT_PIXELS; i++)
    to[i / DIGIT_SIDE * WIDTH + i % DIGIT_SIDE] = (uint8_t)(d->pixels[i] / 2 + (red ? RED : 0));
}

static void draw(uint8_t image[HEIGHT][WIDTH], const struct digit *digits, const uint8_t *guess,
                 int n)
{
  int used[10] = {0}, wrong = 0;
  for (int i = 0; i < n; i++) {
    const struct digit *d = &digits[i];
    bool bad = guess[i] != d->label;
    if (used[d->label] < COLUMNS)
      put_digit(&image[d->label * TILE][used[d->label]++ * TILE], d, bad);
    if (bad && wrong < BAD_ROWS * COLUMNS) {
      int y = (GOOD_ROWS + wrong / COLUMNS) * TILE + GAP, x = wrong % COLUMNS * TILE;
      put_digit(&image[y][x], d, true);
      put_guess(&image[y][x], guess[i]);
      wrong++;
    }
  }
}

// --- the file -----------------------------------------------------------------------------------

struct png {
  FILE *file;
  uint32_t crc;  // of the chunk
  uint32_t a, b; // of the data: Adler-32
};

static void put(struct png *p, const void *bytes, size_t n)
{
  const uint8_t *at = bytes;
  for (size_t i = 0; i < n; i++) {
    p->crc ^= at[i];
    for (int k = 0; k < 8; k++)
      p->crc = p->crc >> 1 ^ (p->crc & 1 ? 0xedb88320u : 0);
  }
  fwrite(bytes, 1, n, p->file);
}

static void put_number(struct png *p, uint32_t x)
{
  put(p, (uint8_t[]){(uint8_t)(x >> 24), (uint8_t)(x >> 16), (uint8_t)(x >> 8), (uint8_t)x}, 4);
}

static void begin_chunk(struct png *p, const char *type, uint32_t bytes)
{
  put_number(p, bytes);
  p->crc = 0xffffffffu; // of type and data, not of the length
  put(p, type, 4);
}

static void end_chunk(struct png *p)
{
  put_number(p, ~p->crc);
}

/* One line of the picture is one uncompressed block: its length, a filter of none, the bytes. */
static void put_line(struct png *p, const uint8_t *line, bool last)
{
  enum { BYTES = 1 + WIDTH * ZOOM };
  uint8_t out[BYTES] = {0};
  for (int x = 0; x < WIDTH * ZOOM; x++)
    out[1 + x] = line[x / ZOOM];
  put(p, (uint8_t[]){last, BYTES & 255, BYTES >> 8, ~BYTES & 255, ~BYTES >> 8 & 255}, 5);
  put(p, out, BYTES);
  for (int i = 0; i < BYTES; i++) {
    p->a = (p->a + out[i]) % 65521;
    p->b = (p->b + p->a) % 65521;
  }
}

static void put_head(struct png *p)
{
  fwrite("\x89PNG\r\n\x1a\n", 1, 8, p->file);
  begin_chunk(p, "IHDR", 13);
  put_number(p, WIDTH * ZOOM);
  put_number(p, HEIGHT * ZOOM);
  put(p, (uint8_t[]){8, 3, 0, 0, 0}, 5); // 8 bits, with a palette
  end_chunk(p);
  begin_chunk(p, "PLTE", 768);
  for (int i = 0; i < 256; i++) {
    uint8_t pale = (uint8_t)(255 - 2 * (i % RED));
    put(p, (uint8_t[]){i < RED ? pale : (uint8_t)(255 - i % RED / 3), pale, pale}, 3);
  }
  end_chunk(p);
}

static void put_data(struct png *p, uint8_t image[HEIGHT][WIDTH])
{
  begin_chunk(p, "IDAT", 2 + HEIGHT * ZOOM * (5 + 1 + WIDTH * ZOOM) + 4);
  put(p, "\x78\x01", 2);
  p->a = 1;
  for (int y = 0; y < HEIGHT * ZOOM; y++)
    put_line(p, image[y / ZOOM], y + 1 == HEIGHT * ZOOM);
  put_number(p, p->b << 16 | p->a);
  end_chunk(p);
  begin_chunk(p, "IEND", 0);
  end_chunk(p);
}

int sheet_write(const char *path, const struct digit *digits, const uint8_t *guess, int n)
{
  static uint8_t image[HEIGHT][WIDTH];
  struct png p = {.file = fopen(path, "wb")};
  if (!p.file)
    return -1;
  memset(image, 0, sizeof image);
  draw(image, digits, guess, n);
  put_head(&p);
  put_data(&p, image);
  int failed = ferror(p.file);
  return fclose(p.file) || failed ? -1 : 0;
}
