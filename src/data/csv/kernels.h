/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/kernels.h - scan and index of one instruction set; included once by each of its files,
 * after ISA and
 *   block_of(p)               64 bytes
 *   equal(block, byte)        a bit per byte that equals it
 *   put_bits(pos, at, bits)   writes at + i for each bit i, rising; may overwrite 64 positions
 */
#define GLUE(a, b)    GLUE2(a, b)
#define GLUE2(a, b)   a##_##b
#define SYMBOL(isa)   GLUE(manta__csv, isa)
#define NAME_OF(isa)  NAME_OF2(isa)
#define NAME_OF2(isa) #isa

/* Bit i becomes the xor of bits 0 to i: 1 from an opening quote on, 0 from the closing one on. */
INLINE uint64_t running_xor(uint64_t x)
{
  x ^= x << 1;
  x ^= x << 2;
  x ^= x << 4;
  x ^= x << 8;
  x ^= x << 16;
  return x ^ x << 32;
}

/* What one block of 64 bytes hands on to the next. */
struct quote_state {
  uint64_t inside;     /* all ones inside of quotes */
  uint64_t ends_ahead; /* 1: the byte in front ended a field, or is a quote, so one may open here */
  uint64_t closed;     /* 1: the byte in front closed a quote */
  uint64_t stray;
};

/* Takes out of `ends` what lies inside of quotes. */
INLINE uint64_t outside_quotes(struct quote_state *s, uint64_t ends, uint64_t quotes,
                               uint64_t carriages, uint64_t there)
{
  uint64_t in = running_xor(quotes) ^ s->inside;
  uint64_t opens = quotes & in, closes = quotes & ~in;
  ends &= ~in;
  // One opens behind the end of a field, or behind one that closed: then the two stand for one.
  uint64_t may_open = (ends | quotes) << 1 | s->ends_ahead;
  // One closes in front of the end of a field, or of one that opens.
  uint64_t behind = closes << 1 | s->closed;
  s->stray |= ((opens & ~may_open) | (behind & ~(ends | quotes | carriages))) & there;
  s->inside = (uint64_t)((int64_t)in >> 63);
  s->ends_ahead = (ends | quotes) >> 63;
  s->closed = closes >> 63;
  return ends;
}

static void scan(const uint8_t *text, size_t n, const struct manta__csv_marks *m, uint32_t *pos,
                 struct manta__csv_scan *out)
{
  struct quote_state s = {.ends_ahead = 1};
  uint32_t *to = pos;
  size_t rows = 0;
  for (size_t at = 0; at < n; at += 64) {
    uint64_t there = n - at < 64 ? ~(uint64_t)0 >> (64 - (n - at)) : ~(uint64_t)0;
    block_type b = block_of(text + at);
    uint64_t newlines = equal(b, '\n') & there;
    uint64_t ends = (equal(b, m->separator) & there) | newlines;
    uint64_t quotes = m->quotes ? equal(b, m->quote) & there : 0;
    if (quotes | s.inside | s.closed) {
      ends = outside_quotes(&s, ends, quotes, equal(b, '\r'), there);
      newlines &= ends;
    } else
      s.ends_ahead = ends >> 63;
    rows += (size_t)__builtin_popcountll(newlines);
    put_bits(to, (uint32_t)at, ends);
    to += __builtin_popcountll(ends);
  }
  *out = (struct manta__csv_scan){(size_t)(to - pos), rows, s.inside != 0, s.stray != 0};
}

/* Rows that end in the first `size` bytes of the block: bits of `ends`, but for empty lines. */
INLINE int full_rows(struct manta__csv_index *s, uint64_t ends, uint64_t carriages, size_t size)
{
  uint64_t begins = ends << 1 | s->ended;
  uint64_t lonely = begins & carriages; // a CR that is alone in its line, if a newline follows
  uint64_t empty = ends & (begins | lonely << 1 | s->carriage);
  s->ended = ends >> (size - 1) & 1;
  s->carriage = lonely >> (size - 1) & 1;
  return __builtin_popcountll(ends & ~empty);
}

static size_t index_rows(const uint8_t *text, size_t n, const struct manta__csv_marks *m,
                         size_t target, struct manta__csv_index *s)
{
  uint64_t inside = s->inside ? ~(uint64_t)0 : 0;
  for (size_t at = 0; at < n; at += 64) {
    size_t size = n - at < 64 ? n - at : 64;
    uint64_t there = ~(uint64_t)0 >> (64 - size);
    block_type b = block_of(text + at);
    uint64_t quotes = m->quotes ? equal(b, m->quote) & there : 0;
    uint64_t in = quotes | inside ? running_xor(quotes) ^ inside : 0;
    uint64_t ends = equal(b, '\n') & there & ~in, enough = ends;
    if (target > at + 1) // a row that ends at e begins at e + 1
      enough = target - 1 - at < 64 ? ends & ~(uint64_t)0 << (target - 1 - at) : 0;
    if (enough)
      size = (size_t)__builtin_ctzll(enough) + 1;
    there = ~(uint64_t)0 >> (64 - size);
    s->rows += full_rows(s, ends & there, equal(b, '\r') & there, size);
    inside = (uint64_t)((int64_t)(in << (64 - size)) >> 63);
    if (enough) {
      s->inside = false;
      return at + size;
    }
  }
  s->inside = inside != 0;
  return n;
}

const struct manta__csv_isa SYMBOL(ISA) = {NAME_OF(ISA), scan, index_rows, fields_f64, fields_i64};
