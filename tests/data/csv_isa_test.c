/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of the CSV reader: every instruction set against plain loops, bit by bit.
 */
#include "data/csv/isa.h"

#include "cells.h"
#include "data/number/number.h"

static const struct manta__csv_isa *sets[4];
static int set_count;

static int find_sets(void **state)
{
  static const char *const names[] = {"scalar", "avx2", "avx512"};
  for (int i = 0; i < 3; i++)
    if (manta__csv_isa_named(names[i]))
      sets[set_count++] = manta__csv_isa_named(names[i]);
  return set_count == 0;
}

static void the_set_is_one_that_is_here(void **state)
{
  const struct manta__csv_isa *chosen = manta__csv_isa();
  const char *limit = getenv("MANTA_DATA_ISA");
  bool found = false;
  for (int i = 0; i < set_count; i++)
    found |= sets[i] == chosen;
  assert_true(found);
  if (!limit)
    assert_ptr_equal(chosen, sets[set_count - 1]);
  assert_null(manta__csv_isa_named("sse9"));
}

// --- scan ---------------------------------------------------------------------------------------

#define TEXT 400

struct text {
  uint8_t block[64 + TEXT + 64];
  size_t n;
};

static uint8_t *text_of(struct text *t)
{
  return t->block + 64;
}

// Few letters, so that every neighbourhood of marks comes up.
static void random_text(struct text *t, uint64_t *seed)
{
  static const char letters[] = ",,\n\"\"\r1ab..-";
  static const char calm[] = ",\n1234567890abc";
  bool wild = cells_random(seed) & 1;
  memset(t->block, '"', sizeof t->block); // what lies beside it must not matter
  t->n = cells_random(seed) % TEXT;
  for (size_t i = 0; i < t->n; i++)
    text_of(t)[i] = (uint8_t)(wild ? letters[cells_random(seed) % (sizeof letters - 1)]
                                   : calm[cells_random(seed) % (sizeof calm - 1)]);
}

// The same by the letter, one byte at a time.
static size_t plain_scan(const uint8_t *p, size_t n, const struct manta__csv_marks *m,
                         uint32_t *pos, struct manta__csv_scan *out)
{
  size_t count = 0;
  bool inside = false, may_open = true;
  *out = (struct manta__csv_scan){0};
  for (size_t i = 0; i < n; i++) {
    bool quote = m->quotes && p[i] == m->quote, end = p[i] == m->separator || p[i] == '\n';
    if (quote && !inside && !may_open)
      out->stray = true;
    if (quote && inside && i + 1 < n && p[i + 1] != m->quote && p[i + 1] != m->separator &&
        p[i + 1] != '\n' && p[i + 1] != '\r')
      out->stray = true;
    if (quote)
      inside = !inside;
    if (end && !inside) {
      pos[count++] = (uint32_t)i;
      out->rows += p[i] == '\n';
    }
    may_open = (end && !inside) || quote;
  }
  out->inside = inside;
  out->fields = count;
  return count;
}

static void scans_find_the_ends_of_fields(void **state)
{
  uint64_t seed = 60;
  for (int round = 0; round < 20000; round++) {
    struct text t;
    uint32_t want[TEXT], got[TEXT + MANTA__CSV_SLACK];
    struct manta__csv_scan a, b;
    struct manta__csv_marks m = {',', '"', round % 7 != 0};
    random_text(&t, &seed);
    size_t n = plain_scan(text_of(&t), t.n, &m, want, &a);
    for (int k = 0; k < set_count; k++) {
      sets[k]->scan(text_of(&t), t.n, &m, got, &b);
      if (a.fields != b.fields || a.rows != b.rows || a.inside != b.inside || a.stray != b.stray ||
          memcmp(want, got, n * sizeof *want) != 0)
        fail_msg("%s differs in round %d: %zu %zu fields, %zu %zu rows, %d %d, stray %d %d: %.*s",
                 sets[k]->name, round, a.fields, b.fields, a.rows, b.rows, a.inside, b.inside,
                 a.stray, b.stray, (int)t.n, text_of(&t));
    }
  }
}

// --- index --------------------------------------------------------------------------------------

// Where the first row begins at `target` or behind it, and the rows in front of there.
static size_t plain_index(const uint8_t *p, size_t n, const struct manta__csv_marks *m,
                          size_t target, int64_t *rows)
{
  bool inside = false;
  size_t begin = 0;
  *rows = 0;
  for (size_t i = 0; i < n; i++) {
    if (m->quotes && p[i] == m->quote)
      inside = !inside;
    if (p[i] != '\n' || inside)
      continue;
    bool empty = i == begin || (i == begin + 1 && p[begin] == '\r');
    *rows += !empty;
    begin = i + 1;
    if (begin >= target)
      return begin;
  }
  return n;
}

static void indexes_find_the_beginnings_of_rows(void **state)
{
  uint64_t seed = 61;
  for (int round = 0; round < 20000; round++) {
    struct text t;
    struct manta__csv_marks m = {',', '"', round % 5 != 0};
    random_text(&t, &seed);
    size_t target = cells_random(&seed) % (TEXT + 20);
    int64_t rows;
    size_t want = plain_index(text_of(&t), t.n, &m, target, &rows);
    for (int k = 0; k < set_count; k++) {
      struct manta__csv_index s = {.ended = true};
      size_t at = 0; // in pieces of any size
      while (at < t.n && !(at >= target && at > 0 && s.ended)) {
        size_t piece = cells_random(&seed) % 90 + 1;
        piece = piece < t.n - at ? piece : t.n - at;
        at += sets[k]->index(text_of(&t) + at, piece, &m, target > at ? target - at : 0, &s);
      }
      if (at != want || s.rows != rows)
        fail_msg("%s differs in round %d: %zu %zu, %lld %lld rows, target %zu: %.*s", sets[k]->name,
                 round, at, want, (long long)s.rows, (long long)rows, target, (int)t.n,
                 text_of(&t));
    }
  }
}

// --- numbers ------------------------------------------------------------------------------------

#define ROWS 37

struct table {
  uint8_t block[64 + ROWS * 40 + 64];
  uint32_t pos_block[2 * ROWS + 1 + MANTA__CSV_SLACK], first[ROWS];
  struct manta__csv_fields f;
};

static int make_field(char *to, uint64_t *seed)
{
  uint64_t kind = cells_random(seed) % 16, x = cells_random(seed);
  double d = (double)(int64_t)x / 0x1p63;
  switch (kind) {
  case 0:
    return snprintf(to, 30, "%s", "");
  case 1:
    return snprintf(to, 30, "%s", x & 1 ? "-" : ".");
  case 2:
    return snprintf(to, 30, "%s", x & 1 ? "-." : "1.2.3");
  case 3:
    return snprintf(to, 30, "%.17g", d);
  case 4:
    return snprintf(to, 30, "%.8e", d);
  case 5:
    return snprintf(to, 30, "%lld", (long long)(x >> x % 64));
  case 6:
    return snprintf(to, 30, "-%llu", (unsigned long long)(x >> x % 64));
  case 7:
    return snprintf(to, 30, "%.15s", x & 1 ? "abc" : "12a4");
  case 8:
    return snprintf(to, 30, "%s", x & 1 ? "." : "1-2");
  case 9:
    return snprintf(to, 30, "%s%s", x & 1 ? "+" : " ", "1.5");
  case 10:
    return snprintf(to, 30, "%016llu", (unsigned long long)(x % 10000000000000000));
  case 11:
    return snprintf(to, 30, ".%015llu", (unsigned long long)(x % 1000000000000000));
  case 12:
    return snprintf(to, 30, "%llu.", (unsigned long long)(x % 1000000));
  default:
    return snprintf(to, 30, "%.*f", (int)(x % 12), d * 1000);
  }
}

// Two columns, the first of junk; every row ends in CRLF or LF.
static void make_table(struct table *t, uint64_t *seed)
{
  size_t at = 64;
  uint32_t *pos = t->pos_block + 1;
  memset(t->block, '7', sizeof t->block);
  pos[-1] = UINT32_MAX;
  for (size_t r = 0; r < ROWS; r++) {
    at += (size_t)snprintf((char *)t->block + at, 4, "%s", r % 3 ? "9" : "");
    pos[2 * r] = (uint32_t)(at++ - 64);
    t->block[at - 1] = ',';
    at += (size_t)make_field((char *)t->block + at, seed);
    if (cells_random(seed) & 1)
      t->block[at++] = '\r';
    pos[2 * r + 1] = (uint32_t)(at++ - 64);
    t->block[at - 1] = '\n';
    t->first[r] = (uint32_t)(2 * r);
  }
  t->f = (struct manta__csv_fields){t->block + 64, pos, t->first, 1, true};
}

// All sets leave the same fields to the caller and read the others as number.h does.
static void numbers_are_those_of_the_plain_reader(void **state)
{
  uint64_t seed = 62;
  int64_t easy = 0;
  for (int round = 0; round < 5000; round++) {
    struct table t;
    uint32_t hard[4][ROWS], hard_ints[4][ROWS];
    size_t left[4], left_ints[4], n = (size_t)(cells_random(&seed) % (ROWS + 1));
    make_table(&t, &seed);
    for (int k = 0; k < set_count; k++) {
      double out[ROWS + 4];
      int64_t ints[ROWS + 4];
      left[k] = sets[k]->f64(out, &t.f, n, hard[k]);
      left_ints[k] = sets[k]->i64(ints, &t.f, n, hard_ints[k]);
      assert_int_equal(left[k], left[0]);
      assert_int_equal(left_ints[k], left_ints[0]);
      assert_memory_equal(hard[k], hard[0], left[0] * sizeof **hard);
      assert_memory_equal(hard_ints[k], hard_ints[0], left_ints[0] * sizeof **hard);
      for (size_t r = 0, i = 0, j = 0; r < n; r++) {
        const char *p = (const char *)t.f.text + manta__csv_begin(&t.f, r);
        size_t len = manta__csv_end(&t.f, r) - manta__csv_begin(&t.f, r);
        double d = 0;
        int64_t s = 0;
        if (i < left[0] && hard[0][i] == r)
          i++;
        else {
          assert_true(manta__number_f64(p, len, &d));
          if (memcmp(&d, &out[r], sizeof d) != 0)
            fail_msg("%s: \"%.*s\" is %a, not %a", sets[k]->name, (int)len, p, out[r], d);
          easy++;
        }
        if (j < left_ints[0] && hard_ints[0][j] == r)
          j++;
        else {
          assert_true(manta__number_i64(p, len, &s));
          assert_true(s == ints[r]);
        }
      }
    }
  }
  assert_true(easy > 100000); // most go the short way
}

// What the short way must take: else it would be right, and slow.
static void simple_numbers_are_simple(void **state)
{
  static const char *const simple[] = {"0",
                                       "-0",
                                       "1",
                                       "-1.5",
                                       "0.123456789",
                                       "123456789012345",
                                       "-.5",
                                       "5.",
                                       "9007199254740991",
                                       "0.00000000000001",
                                       "-99999999.999999"};
  for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
    for (int k = 0; k < set_count; k++) {
      uint8_t block[64 + 64 + 64] = {0};
      size_t n = strlen(simple[i]);
      uint32_t pos[2 + MANTA__CSV_SLACK] = {UINT32_MAX, (uint32_t)n}, first[1] = {0}, hard[4];
      struct manta__csv_fields f = {block + 64, pos + 1, first, 0, true};
      double out[4], want;
      memcpy(block + 64, simple[i], n);
      block[64 + n] = '\n';
      if (sets[k]->f64(out, &f, 1, hard) != 0)
        fail_msg("%s: \"%s\" is hard", sets[k]->name, simple[i]);
      assert_true(manta__number_f64(simple[i], n, &want));
      assert_memory_equal(&want, out, sizeof want);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_set_is_one_that_is_here),
      cmocka_unit_test(scans_find_the_ends_of_fields),
      cmocka_unit_test(indexes_find_the_beginnings_of_rows),
      cmocka_unit_test(numbers_are_those_of_the_plain_reader),
      cmocka_unit_test(simple_numbers_are_simple),
  };
  return cmocka_run_group_tests(tests, find_sets, NULL);
}
