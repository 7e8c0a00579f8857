/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/search.c - how fast searchers propose, and how good what they find is.
 *
 *   search speed   [--searcher tpe] [--trials 1000] [--dims 10]
 *                  proposals/s, of the last 100
 *   search quality [--searcher tpe] [--trials 200] [--seeds 30] [--function NAME]
 *                  by function: the best value, median of all seeds
 *
 * bench/peers/optuna_search.py has the same functions.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench.h"
#include "tune/searcher.h"

#define MOST_DIMS  32
#define MOST_SEEDS 100

// --- functions, most of them on [0, 1]^d ---------------------------------------------------------

static double branin(const double *x)
{
  double u = x[0] * 15 - 5, v = x[1] * 15, b = 5.1 / (4 * M_PI * M_PI);
  return pow(v - b * u * u + 5 / M_PI * u - 6, 2) + 10 * (1 - 1 / (8 * M_PI)) * cos(u) + 10;
}

static double rosenbrock10(const double *x)
{
  double sum = 0;
  for (int i = 0; i < 9; i++) {
    double a = x[i] * 4 - 2, b = x[i + 1] * 4 - 2;
    sum += 100 * pow(b - a * a, 2) + pow(1 - a, 2);
  }
  return sum;
}

static double ackley5(const double *x)
{
  double a = 0, b = 0;
  for (int i = 0; i < 5; i++) {
    double u = x[i] * 60 - 27;
    a += u * u;
    b += cos(2 * M_PI * u);
  }
  return -20 * exp(-0.2 * sqrt(a / 5)) - exp(b / 5) + 20 + M_E;
}

static double rastrigin5(const double *x)
{
  double sum = 50;
  for (int i = 0; i < 5; i++) {
    double u = x[i] * 10.24 - 3.82;
    sum += u * u - 10 * cos(2 * M_PI * u);
  }
  return sum;
}

static double sphere5(const double *x)
{
  double sum = 0;
  for (int i = 0; i < 5; i++)
    sum += pow(x[i] * 10 - 3.9, 2);
  return sum;
}

static double hartmann6(const double *x)
{
  static const double A[4][6] = {{10, 3, 17, 3.5, 1.7, 8},
                                 {.05, 10, 17, .1, 8, 14},
                                 {3, 3.5, 1.7, 10, 17, 8},
                                 {17, 8, .05, 10, .1, 14}};
  static const double P[4][6] = {{.1312, .1696, .5569, .0124, .8283, .5886},
                                 {.2329, .4135, .8307, .3736, .1004, .9991},
                                 {.2348, .1451, .3522, .2883, .3047, .6650},
                                 {.4047, .8828, .8732, .5743, .1091, .0381}};
  static const double alpha[4] = {1, 1.2, 3, 3.2};
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    double t = 0;
    for (int j = 0; j < 6; j++)
      t += A[i][j] * pow(x[j] - P[i][j], 2);
    sum -= alpha[i] * exp(-t);
  }
  return sum;
}

static double griewank5(const double *x)
{
  double sum = 0, waves = 1;
  for (int i = 0; i < 5; i++) {
    double u = x[i] * 200 - 87;
    sum += u * u;
    waves *= cos(u / sqrt(i + 1));
  }
  return 1 + sum / 4000 - waves;
}

static double levy4(const double *x)
{
  double w[4], sum;
  for (int i = 0; i < 4; i++)
    w[i] = 1 + (x[i] * 20 - 10 - 1) / 4;
  sum = pow(sin(M_PI * w[0]), 2) + pow(w[3] - 1, 2) * (1 + pow(sin(2 * M_PI * w[3]), 2));
  for (int i = 0; i < 3; i++)
    sum += pow(w[i] - 1, 2) * (1 + 10 * pow(sin(M_PI * w[i] + 1), 2));
  return sum;
}

static double styblinski5(const double *x)
{
  double sum = 0;
  for (int i = 0; i < 5; i++) {
    double u = x[i] * 10 - 5;
    sum += (u * u * u * u - 16 * u * u + 5 * u) / 2;
  }
  return sum;
}

static double goldstein(const double *v)
{
  double x = v[0] * 4 - 2, y = v[1] * 4 - 2;
  double a = 1 + pow(x + y + 1, 2) * (19 - 14 * x + 3 * x * x - 14 * y + 6 * x * y + 3 * y * y);
  double b =
      30 + pow(2 * x - 3 * y, 2) * (18 - 32 * x + 12 * x * x + 48 * y - 36 * x * y + 27 * y * y);
  return log(a * b);
}

// An option, and two numbers that count under it.
static double conditional(const double *x)
{
  return x[0] == 0 ? 0.3 + pow(x[1] - 0.2, 2) + pow(x[2] - 0.7, 2)
                   : pow(x[3] - 0.6, 2) + 2 * pow(x[4] - 0.3, 2);
}
#define UNIT "{\"$range\":{\"low\":0,\"high\":1}}"
#define CONDITIONAL                                                                                \
  "{\"kind\":{\"$choice\":[{\"a\":" UNIT ",\"b\":" UNIT "},{\"c\":" UNIT ",\"d\":" UNIT "}]}}"

// What a training may look like: optimizer, learning rate, layers, width, dropout.
static double mixed(const double *x)
{
  static const double cost[3] = {0.25, 0, 0.5}, rate[3] = {1.5, 3, 2};
  int option = (int)x[0];
  return cost[option] + 0.3 * pow(log10(x[1]) + rate[option], 2) + pow((x[2] - 7) / 6, 2) +
         pow(log2(x[3]) - 6.5, 2) / 8 + 2 * pow(x[4] - 0.3, 2);
}
#define MIXED                                                                                      \
  "{\"option\":{\"$choice\":[0,1,2]},"                                                             \
  "\"rate\":{\"$range\":{\"low\":1e-5,\"high\":1,\"log\":true}},"                                  \
  "\"layers\":{\"$range\":{\"low\":1,\"high\":20,\"int\":true}},"                                  \
  "\"width\":{\"$range\":{\"low\":1,\"high\":512,\"int\":true,\"log\":true}},"                     \
  "\"dropout\":{\"$range\":{\"low\":0,\"high\":0.8}}}"

// A deterministic noise of the point's own bits.
static double noisy(const double *x)
{
  uint64_t bits = 0;
  for (int i = 0; i < 5; i++)
    bits = manta__rng_mix(bits ^ (uint64_t)(x[i] * 1e9));
  return sphere5(x) + 0.5 * ((double)(bits >> 11) / 9007199254740992.0 - 0.5);
}

static const struct function {
  const char *name;
  int dims; // each from 0 to 1, unless there is a space
  double (*f)(const double *x);
  const char *space;
} functions[] = {{"branin", 2, branin, NULL},
                 {"hartmann6", 6, hartmann6, NULL},
                 {"rosenbrock10", 10, rosenbrock10, NULL},
                 {"ackley5", 5, ackley5, NULL},
                 {"rastrigin5", 5, rastrigin5, NULL},
                 {"sphere5", 5, sphere5, NULL},
                 {"griewank5", 5, griewank5, NULL},
                 {"levy4", 4, levy4, NULL},
                 {"styblinski5", 5, styblinski5, NULL},
                 {"goldstein", 2, goldstein, NULL},
                 {"conditional", 5, conditional, CONDITIONAL},
                 {"mixed", 5, mixed, MIXED},
                 {"noisy", 5, noisy, NULL}};

// --- searching -----------------------------------------------------------------------------------

static void make_space(struct manta__space *sp, const char *json, int dims)
{
  manta_value spec = {0};
  manta_error err = MANTA_ERROR_INIT;
  bench_check(json ? manta_value_from_json(&spec, json, strlen(json), &err)
                   : manta_value_set_map(&spec),
              "space", &err);
  for (int i = 0; !json && i < dims; i++) {
    char name[16];
    manta_value x = {0};
    snprintf(name, sizeof name, "x%d", i);
    bench_check(manta_space_uniform(&x, 0, 1, 0, false), "space", &err);
    bench_check(manta_value_put(&spec, name, &x), "space", &err);
  }
  bench_check(manta__space_init(sp, &spec, &err), "space", &err);
  manta_value_fini(&spec);
}

// The best of so many trials; *last_ns: what the last 100 proposals took.
static double search(const struct manta__space *sp, const char *name, uint64_t seed, long trials,
                     double (*f)(const double *x), int64_t *last_ns)
{
  struct manta__searcher *s;
  manta_error err = MANTA_ERROR_INIT;
  double best = INFINITY, point[MOST_DIMS];
  bench_check(
      manta__searcher_create(&s, name, sp, &(struct manta__search_config){.seed = seed}, &err),
      name, &err);
  *last_ns = 0;
  for (long i = 0; i < trials; i++) {
    int64_t t0 = bench_now();
    bench_check(manta__searcher_propose(s, (uint64_t)i, point, &err), "propose", &err);
    *last_ns += i >= trials - 100 ? bench_now() - t0 : 0;
    double value = f(point);
    best = fmin(best, value);
    manta__searcher_observe(s, (uint64_t)i, value);
  }
  manta__searcher_destroy(s);
  return best;
}

static int by_size(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void quality(const char *name, const char *function, long trials, long seeds)
{
  double found[MOST_SEEDS];
  int64_t ns;
  seeds = seeds < MOST_SEEDS ? seeds : MOST_SEEDS;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    const struct function *f = &functions[i];
    struct manta__space sp;
    if (*function && strcmp(f->name, function) != 0)
      continue;
    make_space(&sp, f->space, f->dims);
    for (long s = 0; s < seeds; s++)
      found[s] = search(&sp, name, (uint64_t)s + 1, trials, f->f, &ns);
    qsort(found, (size_t)seeds, sizeof *found, by_size);
    bench_sample(f->name, (found[(seeds - 1) / 2] + found[seeds / 2]) / 2);
    manta__space_fini(&sp);
  }
}

static double bowl(const double *x)
{
  double sum = 0;
  for (int i = 0; i < 10; i++)
    sum += pow(x[i] - 0.4, 2);
  return sum;
}

static void speed(const char *name, long trials, long dims)
{
  struct manta__space sp;
  int64_t ns;
  make_space(&sp, NULL, dims < 10 ? 10 : dims > MOST_DIMS ? MOST_DIMS : (int)dims);
  search(&sp, name, 1, trials, bowl, &ns);
  bench_sample("proposals_per_s", 100 / ((double)ns * 1e-9));
  manta__space_fini(&sp);
}

int main(int argc, char **argv)
{
  const char *name = bench_arg_text(argc, argv, "searcher", "tpe");
  if (argc > 1 && !strcmp(argv[1], "speed"))
    speed(name, bench_arg(argc, argv, "trials", 1000), bench_arg(argc, argv, "dims", 10));
  else if (argc > 1 && !strcmp(argv[1], "quality"))
    quality(name, bench_arg_text(argc, argv, "function", ""), bench_arg(argc, argv, "trials", 200),
            bench_arg(argc, argv, "seeds", 30));
  else
    bench_die("search speed|quality");
  return 0;
}
