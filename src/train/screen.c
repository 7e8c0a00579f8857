/* SPDX-License-Identifier: Apache-2.0 */
#include "train/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "view/text.h"

#define OUT_MAX  (8u << 20)
#define ROWS_MAX 10 /* changing rows on a terminal; more are not shown */

// --- beginning and end ---------------------------------------------------------------------------

static void write_own(void *ctx, int stream, const char *text, size_t len)
{
  FILE *to = stream == 1 ? stdout : stderr;
  fwrite(text, 1, len, to);
  fflush(to);
}

static bool set(const char *name)
{
  const char *v = getenv(name);
  return v && *v;
}

void manta__screen_init(struct manta__screen *s, const manta_display *display)
{
  const char *term = getenv("TERM");
  bool dumb = !term || !*term || !strcmp(term, "dumb");
  *s = (struct manta__screen){.to.write = write_own};
  if (display)
    s->to = *display;
  for (int i = 0; i < 2; i++) {
    if (!display)
      s->to.kind[i] = isatty(i + 1) ? MANTA_DISPLAY_TERMINAL : MANTA_DISPLAY_PLAIN;
    if (dumb && s->to.kind[i] == MANTA_DISPLAY_TERMINAL)
      s->to.kind[i] = MANTA_DISPLAY_LINE;
    s->colour[i] = s->to.kind[i] == MANTA_DISPLAY_TERMINAL && !set("NO_COLOR");
  }
  manta__buf_init(&s->out, OUT_MAX);
}

bool manta__screen_moves(const struct manta__screen *s)
{
  return s->to.kind[0] != MANTA_DISPLAY_PLAIN || s->to.kind[1] != MANTA_DISPLAY_PLAIN;
}

static void send(struct manta__screen *s, int stream)
{
  if (s->out.len)
    s->to.write(s->to.ctx, stream, (const char *)s->out.data, s->out.len);
  s->out.len = 0;
}

void manta__screen_fini(struct manta__screen *s)
{
  if (!s->to.write)
    return;
  manta__screen_lift(s);
  for (int i = 0; i < 2; i++)
    if (s->open[i])
      s->to.write(s->to.ctx, i + 1, "\n", 1);
  for (struct manta__strip *p = s->strips, *next; p; p = next) {
    next = p->next;
    manta__free(p);
  }
  manta__free(s->block);
  manta__buf_fini(&s->out);
  *s = (struct manta__screen){0};
}

// --- lines ---------------------------------------------------------------------------------------

struct prefix {
  char text[40];
  size_t len;
};

static struct prefix prefix_of(const struct manta__screen *s, int rank, int stream)
{
  static const int colours[] = {36, 32, 33, 35, 34}; // red is for errors
  struct prefix p;
  int n = s->colour[stream - 1] ? snprintf(p.text, sizeof p.text, "\033[%dm(rank %d)\033[0m ",
                                           colours[rank % 5], rank)
                                : snprintf(p.text, sizeof p.text, "(rank %d) ", rank);
  p.len = (size_t)n;
  return p;
}

static void put_lines(struct manta__screen *s, int rank, int stream, const char *p, size_t n)
{
  int *open = &s->open[stream - 1];
  struct prefix prefix = prefix_of(s, rank, stream);
  if (*open && *open != 1 + rank) {
    manta__buf_putc(&s->out, '\n');
    *open = 0;
  }
  while (n > 0) {
    const char *end = memchr(p, '\n', n);
    size_t k = end ? (size_t)(end - p) + 1 : n;
    if (!*open)
      manta__buf_append(&s->out, prefix.text, prefix.len);
    manta__buf_append(&s->out, p, k);
    *open = end ? 0 : 1 + rank;
    p += k;
    n -= k;
  }
  if (*open && s->to.kind[stream - 1] != MANTA_DISPLAY_PLAIN) {
    manta__buf_putc(&s->out, '\n'); // what changes comes below
    *open = 0;
  }
}

void manta__screen_lines(struct manta__screen *s, int rank, int stream, const char *p, size_t n)
{
  if (s->to.kind[stream - 1] != MANTA_DISPLAY_PLAIN)
    manta__screen_lift(s);
  put_lines(s, rank, stream, p, n);
  send(s, stream);
}

void manta__screen_say(struct manta__screen *s, const char *head, const char *text)
{
  if (s->open[1])
    manta__buf_putc(&s->out, '\n');
  s->open[1] = 0;
  manta__buf_puts(&s->out, head);
  manta__buf_puts(&s->out, text);
  manta__buf_putc(&s->out, '\n');
  send(s, 2);
}

// --- changing rows -------------------------------------------------------------------------------

// Two terminals are one surface, which is written to as standard error.
static int surface_of(const struct manta__screen *s, int stream)
{
  bool one = s->to.kind[0] == MANTA_DISPLAY_TERMINAL && s->to.kind[1] == MANTA_DISPLAY_TERMINAL;
  return one ? 1 : stream - 1;
}

static void take_away(struct manta__screen *s, int rank, int stream)
{
  for (struct manta__strip **at = &s->strips; *at; at = &(*at)->next)
    if ((*at)->rank == rank && (*at)->stream == stream) {
      struct manta__strip *gone = *at;
      *at = gone->next;
      manta__free(gone);
      return;
    }
}

void manta__screen_live(struct manta__screen *s, int rank, int stream, const char *p, size_t n)
{
  if (s->to.kind[stream - 1] == MANTA_DISPLAY_PLAIN)
    return;
  take_away(s, rank, stream);
  s->surface[surface_of(s, stream)].stale = true;
  struct manta__strip *strip = n ? manta__malloc(sizeof *strip + n) : NULL;
  if (!strip)
    return;
  *strip = (struct manta__strip){.rank = rank, .stream = stream, .newest = true, .len = n};
  memcpy(strip->rows, p, n);
  struct manta__strip **at = &s->strips;
  for (struct manta__strip *q = s->strips; q; q = q->next)
    q->newest &= q->stream != stream;
  while (*at && ((*at)->rank < rank || ((*at)->rank == rank && (*at)->stream < stream)))
    at = &(*at)->next;
  strip->next = *at;
  *at = strip;
}

// The length of an escape sequence that begins here; 0: none does.
static size_t escape_at(const char *p, size_t n)
{
  size_t k = 2;
  if (n < 2 || p[0] != '\033' || p[1] != '[')
    return 0;
  while (k < n && !(p[k] >= '@' && p[k] <= '~'))
    k++;
  return k < n ? k + 1 : n;
}

// At most `room` columns of it; gives the columns.
static size_t put_clipped(struct manta__screen *s, const char *p, size_t n, size_t room)
{
  size_t columns = 0;
  bool coloured = false;
  for (size_t i = 0; i < n;) {
    size_t k = escape_at(p + i, n - i), wide = 0;
    coloured |= k > 0;
    if (k == 0)
      k = manta__text_step(p + i, n - i, &wide);
    if (wide > room - columns)
      break;
    columns += wide;
    manta__buf_append(&s->out, p + i, k);
    i += k;
  }
  if (coloured)
    manta__buf_puts(&s->out, "\033[0m");
  return columns;
}

static struct winsize size_of_terminal(void)
{
  struct winsize w = {0};
  for (int fd = 2; fd >= 0 && w.ws_col == 0; fd--)
    if (ioctl(fd, TIOCGWINSZ, &w) < 0)
      w = (struct winsize){0};
  if (w.ws_col == 0)
    w.ws_col = 80;
  if (w.ws_row == 0)
    w.ws_row = 24;
  return w;
}

static size_t digits(int n)
{
  return (size_t)snprintf(NULL, 0, "%d", n);
}

// "(rank 3) " and the row; gives the columns.
static size_t put_row(struct manta__screen *s, const struct manta__strip *p, const char *row,
                      size_t n, size_t columns)
{
  size_t wide = digits(p->rank) + 8;
  struct prefix prefix = prefix_of(s, p->rank, p->stream);
  manta__buf_append(&s->out, prefix.text, prefix.len);
  return wide + put_clipped(s, row, n, columns > wide ? columns - wide : 0);
}

static void rise(struct manta__screen *s, int rows)
{
  manta__buf_putc(&s->out, '\r');
  if (rows > 0)
    manta__buf_printf(&s->out, "\033[%dA", rows);
}

static void lay_terminal(struct manta__screen *s, int k)
{
  struct winsize w = size_of_terminal();
  struct manta__surface *f = &s->surface[k];
  int rows = 0, most = w.ws_row - 1 < ROWS_MAX ? w.ws_row - 1 : ROWS_MAX;
  if (f->drawn)
    rise(s, f->drawn - 1);
  for (struct manta__strip *p = s->strips; p; p = p->next) {
    const char *row = p->rows, *end = p->rows + p->len;
    while (surface_of(s, p->stream) == k && row <= end && rows < most) {
      const char *stop = memchr(row, '\n', (size_t)(end - row));
      stop = stop ? stop : end;
      if (rows++ > 0)
        manta__buf_putc(&s->out, '\n');
      put_row(s, p, row, (size_t)(stop - row), (size_t)w.ws_col - 1);
      manta__buf_puts(&s->out, "\033[K");
      row = stop + 1;
    }
  }
  if (rows < f->drawn)
    manta__buf_puts(&s->out, rows ? "\n\033[J\033[A" : "\033[J");
  f->drawn = rows;
}

static void put_spaces(struct manta__screen *s, size_t n)
{
  manta__buf_printf(&s->out, "%*s", (int)n, "");
}

// The last row of whoever said something last.
static void lay_line(struct manta__screen *s, int k)
{
  struct manta__surface *f = &s->surface[k];
  for (struct manta__strip *p = s->strips; p; p = p->next) {
    if (surface_of(s, p->stream) != k || !p->newest)
      continue;
    const char *row = memrchr(p->rows, '\n', p->len);
    row = row ? row + 1 : p->rows;
    manta__buf_putc(&s->out, '\r');
    size_t width = put_row(s, p, row, (size_t)(p->rows + p->len - row), OUT_MAX);
    if (width < f->width)
      put_spaces(s, f->width - width);
    f->width = width;
    f->drawn = 1;
  }
}

static bool has_strips(const struct manta__screen *s, int k)
{
  for (const struct manta__strip *p = s->strips; p; p = p->next)
    if (surface_of(s, p->stream) == k)
      return true;
  return false;
}

// --- the block -----------------------------------------------------------------------------------

void manta__screen_block(struct manta__screen *s, const char *p, size_t n)
{
  char *copy = p ? manta__strndup(p, n) : NULL;
  manta__free(s->block);
  s->block = copy;
  s->block_len = copy ? n : 0;
  s->surface[1].stale |= s->to.kind[1] == MANTA_DISPLAY_TERMINAL;
}

int manta__screen_rows(void)
{
  return size_of_terminal().ws_row;
}

int manta__screen_columns(void)
{
  return size_of_terminal().ws_col;
}

static int count_rows(const char *p, size_t n)
{
  int rows = 1;
  for (size_t i = 0; i < n; i++)
    rows += p[i] == '\n';
  return rows;
}

// The cursor stays where it is: what the program prints next stands above, whatever it has printed
// last, and a terminal that was resized leaves nothing behind. IND makes room without a change of
// the column; only then can the place be kept.
static void lay_block(struct manta__screen *s)
{
  struct winsize w = size_of_terminal();
  const char *row = s->block, *end = s->block + s->block_len;
  int rows = count_rows(row, s->block_len), most = w.ws_row - 1 - s->surface[1].drawn;
  rows = rows > most ? most : rows;
  manta__buf_puts(&s->out, "\033[J");
  s->block_drawn = rows > 0;
  if (rows <= 0)
    return;
  for (int i = 0; i < rows; i++)
    manta__buf_puts(&s->out, "\033D");
  manta__buf_printf(&s->out, "\033[%dA\0337", rows);
  for (int i = 0; i < rows; i++) {
    const char *stop = memchr(row, '\n', (size_t)(end - row));
    stop = stop ? stop : end;
    manta__buf_puts(&s->out, "\033[B\r");
    put_clipped(s, row, (size_t)(stop - row), (size_t)w.ws_col - 1);
    row = stop + 1;
  }
  manta__buf_puts(&s->out, "\0338");
}

static void lift_block(struct manta__screen *s)
{
  if (!s->block_drawn)
    return;
  manta__buf_puts(&s->out, "\033[J");
  s->block_drawn = false;
  s->surface[1].stale = true;
  send(s, 2);
}

static void lift(struct manta__screen *s, int k)
{
  struct manta__surface *f = &s->surface[k];
  if (k == 1)
    lift_block(s);
  if (!f->drawn)
    return;
  if (s->to.kind[k] == MANTA_DISPLAY_TERMINAL) {
    rise(s, f->drawn - 1);
    manta__buf_puts(&s->out, "\033[J");
  } else {
    manta__buf_putc(&s->out, '\r');
    put_spaces(s, f->width);
    manta__buf_putc(&s->out, '\r');
  }
  *f = (struct manta__surface){.stale = true};
  send(s, k + 1);
}

void manta__screen_lift(struct manta__screen *s)
{
  lift(s, 0);
  lift(s, 1);
}

void manta__screen_lay(struct manta__screen *s)
{
  for (int k = 0; k < 2; k++) {
    if (!s->surface[k].stale)
      continue;
    if (!has_strips(s, k))
      lift(s, k);
    else if (s->to.kind[k] == MANTA_DISPLAY_TERMINAL)
      lay_terminal(s, k);
    else
      lay_line(s, k);
    if (k == 1 && s->block)
      lay_block(s);
    send(s, k + 1);
    s->surface[k].stale = false;
  }
}
