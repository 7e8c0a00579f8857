/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define ESC '\033'

void manta__lines_init(struct manta__lines *l, manta__lines_fn final, void *ctx)
{
  *l = (struct manta__lines){.final = final, .ctx = ctx, .rows = 1};
}

void manta__lines_fini(struct manta__lines *l)
{
  for (int i = 0; i < MANTA__LINES_MAX; i++)
    manta__free(l->row[i].text);
  *l = (struct manta__lines){0};
}

// --- the window ----------------------------------------------------------------------------------

static bool blank(const struct manta__line_row *r)
{
  for (size_t i = 0; i < r->len; i++)
    if (r->text[i] != ' ')
      return false;
  return true;
}

static void reset_row(struct manta__line_row *r)
{
  *r = (struct manta__line_row){.text = r->text};
}

// A bar that was wiped off leaves nothing.
static void commit_row(struct manta__lines *l, struct manta__line_row *r)
{
  if (r->moved && !r->spilled && blank(r)) {
    reset_row(r);
    return;
  }
  if (r->text) {
    r->text[r->len] = '\n';
    l->final(l->ctx, r->text, r->len + 1);
  } else {
    l->final(l->ctx, "\n", 1);
  }
  reset_row(r);
}

// The first `n` rows become final and leave the window.
static void commit(struct manta__lines *l, int n)
{
  for (int i = 0; i < n; i++)
    commit_row(l, &l->row[i]);
  for (int i = 0; n > 0 && i + n < l->rows; i++) {
    struct manta__line_row gone = l->row[i];
    l->row[i] = l->row[i + n];
    l->row[i + n] = gone;
  }
  l->rows -= n;
  l->at -= n;
  l->changed |= n > 0;
}

static void open_row(struct manta__lines *l)
{
  if (l->rows == MANTA__LINES_MAX)
    commit(l, 1);
  l->at = l->rows++;
  reset_row(&l->row[l->at]);
  l->drawn = false;
}

static void end_row(struct manta__lines *l)
{
  struct manta__line_row *r = &l->row[l->at];
  l->changed = true;
  if (l->at + 1 < l->rows) { // one that is there already
    r = &l->row[++l->at];
    l->drawn = false;
    if (blank(r))
      reset_row(r);
    r->back = r->len > 0;
    return;
  }
  bool held = r->moved && !r->spilled;
  open_row(l);
  if (!held)
    commit(l, l->at);
}

static void move_up(struct manta__lines *l, long n)
{
  l->at = n < l->at ? l->at - (int)n : 0;
  l->drawn = false;
}

// --- text ----------------------------------------------------------------------------------------

// The bytes of a character stay together.
static size_t whole_characters(const char *p, size_t n)
{
  size_t k = n;
  while (k > 0 && n - k < 4 && ((unsigned char)p[k - 1] & 0xc0) == 0x80)
    k--;
  if (k > 0 && ((unsigned char)p[k - 1] & 0xc0) == 0xc0)
    return k - 1 > 0 ? k - 1 : n;
  return n;
}

static void spill(struct manta__lines *l, struct manta__line_row *r)
{
  commit(l, l->at); // what stands above it comes first
  r = &l->row[l->at];
  size_t k = whole_characters(r->text, r->len);
  l->final(l->ctx, r->text, k);
  memmove(r->text, r->text + k, r->len - k);
  r->len -= k;
  r->spilled = true;
}

// Begins the row anew if the cursor is at its start.
static void draw(struct manta__lines *l)
{
  struct manta__line_row *r = &l->row[l->at];
  if (r->back) {
    r->back = false;
    r->moved = true;
    r->len = 0;
    if (l->drawn && l->at > 0)
      commit(l, l->at); // it moves by itself: the rows above do not any more
  }
  l->drawn = true;
  l->changed = true;
}

static void text(struct manta__lines *l, const char *p, size_t n)
{
  draw(l);
  while (n > 0) {
    struct manta__line_row *r = &l->row[l->at];
    if (!r->text && !(r->text = manta__malloc(MANTA__LINE_MAX + 1))) {
      l->final(l->ctx, p, n); // without memory it is at least said
      return;
    }
    size_t k = MANTA__LINE_MAX - r->len;
    k = k < n ? k : n;
    memcpy(r->text + r->len, p, k);
    r->len += k;
    p += k;
    n -= k;
    if (n > 0 && r->moved)
      return;
    if (n > 0)
      spill(l, r);
  }
}

// --- escape sequences ----------------------------------------------------------------------------

static bool is_final(char c)
{
  return c >= '@' && c <= '~' && c != '[';
}

// Up, erase and the cursor's look are ours to follow; colours are text.
static void escaped(struct manta__lines *l)
{
  char last = l->escape[l->escape_len - 1];
  bool sequence = l->escape_len > 2 && l->escape[1] == '[';
  l->escape[l->escape_len - 1] = 0;
  if (sequence && last == 'A') {
    long n = strtol(l->escape + 2, NULL, 10);
    move_up(l, n > 0 ? n : 1);
  } else if (sequence && last == 'K') {
    draw(l);
    if (strcmp(l->escape, "\033[2") == 0)
      l->row[l->at].len = 0;
  } else if (!(sequence && (last == 'h' || last == 'l'))) {
    l->escape[l->escape_len - 1] = last;
    text(l, l->escape, l->escape_len);
  }
  l->escape_len = 0;
}

static void escape_byte(struct manta__lines *l, char c)
{
  l->escape[l->escape_len++] = c;
  bool two = l->escape_len == 2 && c != '[';
  if (l->escape_len > 1 && (two || is_final(c) || l->escape_len == sizeof l->escape))
    escaped(l);
}

// --- what comes in -------------------------------------------------------------------------------

static size_t run_of_text(const char *p, size_t n)
{
  size_t i = 0;
  while (i < n && p[i] != '\n' && p[i] != '\r' && p[i] != ESC)
    i++;
  return i;
}

static void put_slowly(struct manta__lines *l, const char *p, size_t n)
{
  while (n > 0) {
    size_t k = l->escape_len ? 0 : run_of_text(p, n);
    if (k > 0)
      text(l, p, k);
    else if (l->escape_len || *p == ESC)
      escape_byte(l, *p);
    else if (*p == '\r')
      l->row[l->at].back = true;
    else
      end_row(l);
    k += k == 0;
    p += k;
    n -= k;
  }
}

static bool empty(const struct manta__lines *l)
{
  const struct manta__line_row *r = &l->row[0];
  return l->rows == 1 && r->len == 0 && !r->back && !r->moved && !r->spilled && !l->escape_len;
}

void manta__lines_put(struct manta__lines *l, const char *p, size_t n)
{
  while (n > 0) {
    // Whole plain lines, all at once.
    const char *back = empty(l) ? memchr(p, '\r', n) : p;
    const char *end = empty(l) ? memrchr(p, '\n', back ? (size_t)(back - p) : n) : NULL;
    if (end) {
      size_t whole = (size_t)(end - p) + 1;
      l->final(l->ctx, p, whole);
      p += whole;
      n -= whole;
      continue;
    }
    // Up to the end of this line.
    const char *first = memchr(p, '\n', n);
    size_t k = first ? (size_t)(first - p) + 1 : n;
    put_slowly(l, p, k);
    p += k;
    n -= k;
  }
}

void manta__lines_settle(struct manta__lines *l)
{
  const struct manta__line_row *r = &l->row[l->at];
  if (l->at > 0 && r->len == 0 && !r->spilled)
    commit(l, l->at);
}

void manta__lines_finish(struct manta__lines *l)
{
  if (l->escape_len)
    l->escape_len = 0;
  int last = l->rows - 1;
  const struct manta__line_row *r = &l->row[last];
  bool says = r->len > 0 || r->spilled;
  l->at = last;
  commit(l, last);
  if (says)
    commit_row(l, &l->row[0]);
  reset_row(&l->row[0]);
  l->drawn = false;
  l->changed = true;
}

size_t manta__lines_live(struct manta__lines *l, char *buf, size_t size)
{
  size_t n = 0, end = 0;
  l->changed = false;
  for (int i = 0; i < l->rows; i++) {
    const struct manta__line_row *r = &l->row[i];
    if (r->len + 1 > size - n)
      break;
    if (i > 0)
      buf[n++] = '\n';
    if (r->len)
      memcpy(buf + n, r->text, r->len);
    n += r->len;
    if (!blank(r))
      end = n;
  }
  return end;
}
