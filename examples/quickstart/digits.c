/* SPDX-License-Identifier: Apache-2.0
 *
 * A digit is a few strokes through control points. Points are moved by the habit of the hand, and
 * again by the chance of the moment; a curve is laid through them, bent by a smooth field (an
 * elastic distortion), slanted, turned, scaled, and drawn with a pen whose pressure changes.
 */
#include "digits.h"

#include <math.h>

#include "random.h"

enum { FORMS = 3, POINTS = 18, STEPS = 5, GRID = 3 };

/* How people write: control points "xy" on a grid of 10 x 10, y downwards; a point that comes twice
 * is a corner; "/" lifts the pen. */
static const char *const forms[10][FORMS] = {
    {"50 32 25 38 59 77 84 71 50", "61 40 24 37 59 77 73 50", "40 71 75 68 49 27 23 51"},
    {"50 54 59", "33 42 50 50 55 59", "32 50 50 54 59 59/39 59 79"},
    {"22 31 50 71 73 56 38 29 29 59 89", "22 31 50 71 73 56 38 28 37 58 79 88",
     "31 50 71 63 46 29 29 78"},
    {"21 40 61 72 63 44 44 64 76 68 49 28", "20 70 70 43 43 64 76 68 49 28",
     "31 50 71 63 54 76 68 39 27"},
    {"30 24 26 26 56 86/61 65 69", "69 64 60 60 26 26 56 86", "31 24 35 55 74/72 66 59"},
    {"70 30 30 24 24 43 64 76 68 49 28", "31 24 24 43 64 76 68 49 28/31 51 71",
     "71 40 33 44 64 77 59 38"},
    {"60 42 25 27 49 68 76 64 45 27", "50 31 25 27 49 68 66 54 35 26",
     "71 53 36 37 49 68 66 55 37"},
    {"21 50 70 70 54 39", "20 70 70 54 49/35 55 75", "22 20 20 50 71 65 49"},
    {"61 40 31 33 54 66 67 59 38 27 26 44 63 71 61", "50 31 32 44 63 72 50/44 26 28 59 78 76 54",
     "72 50 31 33 65 77 59 37 26 53 72"},
    {"72 50 32 34 55 73 71 71 75 69", "71 50 31 33 45 64 72 72 66 58 39",
     "61 40 32 44 63 61 65 59"},
};

struct point {
  float x, y;
};

struct line {
  struct point at[POINTS * STEPS];
  int n;
};

struct hand {
  uint64_t key;
  float slant, turn, wide, tall, pen;
};

static struct hand hand_of(uint64_t seed, uint64_t number)
{
  struct random r = random_of(seed, 1, number);
  struct hand h = {.key = random_bits(&r)};
  h.slant = random_bell(&r, 0.2f);
  h.turn = random_bell(&r, 0.08f);
  h.wide = random_between(&r, 0.75f, 1.15f);
  h.tall = random_between(&r, 0.8f, 1.12f);
  h.pen = random_between(&r, 0.7f, 1.5f);
  return h;
}

/* Reads the next stroke of a form and moves its points; gives what is left of the text. */
static const char *read_stroke(const char *text, struct point *p, int *n, struct random *habit,
                               struct random *chance)
{
  for (*n = 0; *text && *text != '/' && *n < POINTS; text += text[2] == ' ' ? 3 : 2, (*n)++) {
    struct point q = {(float)(text[0] - '0') - 4.5f, (float)(text[1] - '0') - 4.5f};
    if (*n > 0 && text[0] == text[-3] && text[1] == text[-2]) { // a corner stays one
      p[*n] = p[*n - 1];
      continue;
    }
    q.x += random_bell(habit, 0.15f) + random_bell(chance, 0.08f);
    q.y += random_bell(habit, 0.15f) + random_bell(chance, 0.08f);
    p[*n] = q;
  }
  return *text == '/' ? text + 1 : text;
}

static float blend(float a, float b, float c, float d, float t) // Catmull-Rom
{
  return b + 0.5f * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

/* A smooth curve through p[0] … p[n - 1]. */
static void lay_curve(struct line *l, const struct point *p, int n)
{
  l->n = 0;
  for (int i = 0; i + 1 < n; i++) {
    const struct point *a = &p[i ? i - 1 : 0], *b = &p[i], *c = &p[i + 1];
    const struct point *d = &p[i + 2 < n ? i + 2 : n - 1];
    for (int k = 0; k < STEPS; k++) {
      float t = (float)k / STEPS;
      l->at[l->n++] =
          (struct point){blend(a->x, b->x, c->x, d->x, t), blend(a->y, b->y, c->y, d->y, t)};
    }
  }
  l->at[l->n++] = p[n - 1];
}

/* What is done to all strokes of one digit: a field of displacements, then an affine map. */
struct warp {
  struct point push[GRID][GRID];
  float xx, xy, yx, yy, dx, dy;
};

static struct warp warp_of(const struct hand *h, struct random *habit, struct random *r)
{
  struct warp w;
  float slant = h->slant + random_bell(r, 0.1f), t = (h->turn + random_bell(r, 0.08f)) / 2;
  float c = (1 - t * t) / (1 + t * t), s = 2 * t / (1 + t * t); // cosine, sine
  float sx = 2.15f * h->wide * random_between(r, 0.85f, 1.1f);
  float sy = 2.15f * h->tall * random_between(r, 0.9f, 1.1f);
  for (int i = 0; i < GRID * GRID; i++) {
    struct point *push = &w.push[i / GRID][i % GRID];
    push->x = random_bell(habit, 0.55f) + random_bell(r, 0.35f);
    push->y = random_bell(habit, 0.55f) + random_bell(r, 0.35f);
  }
  w.xx = c * sx;
  w.xy = -(s + slant) * sy;
  w.yx = s * sx;
  w.yy = c * sy;
  w.dx = DIGIT_SIDE / 2.0f + random_bell(r, 1.2f);
  w.dy = DIGIT_SIDE / 2.0f + random_bell(r, 1.2f);
  return w;
}

static float clamp(float x, float low, float high)
{
  return x < low ? low : x > high ? high : x;
}

static float ease(float t)
{
  return t * t * (3 - 2 * t);
}

/* The displacement at a place of the grid 10 x 10, between the four nearest that are known. */
static struct point push_at(const struct warp *w, struct point p)
{
  float u = clamp((p.x + 4.5f) / 9, 0, 0.999f) * (GRID - 1);
  float v = clamp((p.y + 4.5f) / 9, 0, 0.999f) * (GRID - 1);
  int i = (int)u, j = (int)v;
  const struct point *a = &w->push[j][i], *b = &w->push[j + 1][i];
  u = ease(u - (float)i);
  v = ease(v - (float)j);
  return (struct point){
      (1 - v) * ((1 - u) * a[0].x + u * a[1].x) + v * ((1 - u) * b[0].x + u * b[1].x),
      (1 - v) * ((1 - u) * a[0].y + u * a[1].y) + v * ((1 - u) * b[0].y + u * b[1].y)};
}

static void bend(struct line *l, const struct warp *w)
{
  for (int i = 0; i < l->n; i++) {
    struct point p = l->at[i], push = push_at(w, p);
    p.x += push.x;
    p.y += push.y;
    l->at[i] = (struct point){w->xx * p.x + w->xy * p.y + w->dx, w->yx * p.x + w->yy * p.y + w->dy};
  }
}

/* One piece of a stroke: ink where the pen, of this radius, has passed. */
static void draw_piece(float *ink, struct point a, struct point b, float radius)
{
  float dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy + 1e-6f, reach = radius + 1;
  int x0 = (int)clamp(fminf(a.x, b.x) - reach, 0, DIGIT_SIDE - 1);
  int x1 = (int)clamp(fmaxf(a.x, b.x) + reach, 0, DIGIT_SIDE - 1);
  int y0 = (int)clamp(fminf(a.y, b.y) - reach, 0, DIGIT_SIDE - 1);
  int y1 = (int)clamp(fmaxf(a.y, b.y) + reach, 0, DIGIT_SIDE - 1);
  for (int y = y0; y <= y1; y++)
    for (int x = x0; x <= x1; x++) {
      float px = (float)x + 0.5f - a.x, py = (float)y + 0.5f - a.y;
      float t = clamp((px * dx + py * dy) / length2, 0, 1);
      float ox = px - t * dx, oy = py - t * dy;
      float cover = clamp(radius + 0.5f - sqrtf(ox * ox + oy * oy), 0, 1);
      float *to = &ink[y * DIGIT_SIDE + x];
      *to = fmaxf(*to, cover);
    }
}

static void draw_line(float *ink, const struct line *l, float pen, struct random *r)
{
  float press = random_between(r, 0.75f, 1.1f), lift = random_between(r, 0.65f, 1.1f);
  int gap = random_below(r, 6) == 0 ? random_below(r, l->n) : l->n; // the pen skips now and then
  int skip = 1 + random_below(r, 3);
  for (int i = 0; i + 1 < l->n; i++) {
    float part = (float)i / (float)l->n;
    if (i < gap || i >= gap + skip)
      draw_piece(ink, l->at[i], l->at[i + 1], pen * (press + (lift - press) * part));
  }
}

/* Ink to bytes: uneven where the pen was, with specks on the paper. */
static void develop(uint8_t *pixels, const float *ink, struct random *r)
{
  float dark = random_between(r, 0.7f, 1.0f), grain = random_between(r, 0, 0.25f);
  for (int i = 0; i < DIGIT_PIXELS; i++) {
    float paper = ink[i] > 0 ? random_between(r, 1 - grain, 1) : 0;
    pixels[i] = (uint8_t)(255 * dark * paper * ink[i]);
  }
  for (int k = random_below(r, 12); k > 0; k--) {
    uint8_t *p = &pixels[random_below(r, DIGIT_PIXELS)];
    int speck = 30 + random_below(r, 120);
    *p = (uint8_t)(*p > speck ? *p - speck : speck);
  }
}

void digits_draw(struct digit *d, uint64_t seed, uint64_t index)
{
  float ink[DIGIT_PIXELS] = {0};
  struct hand h = hand_of(seed, index / 10 % DIGIT_HANDS);
  struct random chance = random_of(seed, 2, index);
  d->label = (uint8_t)(index % 10);
  struct random habit = random_of(h.key, 3, d->label);
  struct warp w = warp_of(&h, &habit, &chance);
  float pen = h.pen * random_between(&chance, 0.85f, 1.2f);
  for (const char *text = forms[d->label][random_below(&habit, FORMS)]; *text;) {
    struct point p[POINTS];
    struct line l;
    int n;
    text = read_stroke(text, p, &n, &habit, &chance);
    lay_curve(&l, p, n);
    bend(&l, &w);
    draw_line(ink, &l, pen, &chance);
  }
  develop(d->pixels, ink, &chance);
}

void digits_fill(struct digit *d, int n, uint64_t seed)
{
  for (int i = 0; i < n; i++)
    digits_draw(&d[i], seed, (uint64_t)i);
}
