/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/space.h - which configs an experiment may try.
 *
 * A space is a config in which some values are domains. A domain is a map with one key:
 *
 *   {"$range": {"low": a, "high": b, "q": 0, "log": false, "int": false}}   both ends included
 *   {"$normal": {"mean": 0, "sd": 1, "q": 0}}
 *   {"$choice": [v, ...]}    each v may hold domains, which count only where it is chosen
 *   {"$grid": [v, ...]}      every v is tried
 *   {"$call": n}             somebody else fills it in; it stays as it is
 *   {"$literal": v}          v itself, whatever it looks like
 *
 * Every domain but call and literal is a dimension. A point has a number for each dimension: the
 * value itself of a range or a normal, the index of a choice or a grid, NaN where it does not
 * count. Searchers see points, trials see configs.
 *
 * (1) A dimension that counts only under another one comes after it.
 * (2) What a point has for a dimension is what its config shows: rounded to q, or to an integer.
 * (3) The value drawn for a dimension follows from seed, trial and the dimension's path alone, so
 *     that another dimension beside it changes nothing.
 */
#ifndef MANTA_TUNE_SPACE_H
#define MANTA_TUNE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/value.h>

#define MANTA__SPACE_MAX_DIMS 1024

enum manta__dim_kind { MANTA__DIM_RANGE, MANTA__DIM_NORMAL, MANTA__DIM_CHOICE, MANTA__DIM_GRID };

struct manta__dim {
  enum manta__dim_kind kind;
  bool log, integer;
  double low, high; /* of a range, multiples of q; mean and deviation of a normal */
  double q;         /* 0: not rounded; 1 for integers */
  uint32_t options; /* of a choice or a grid */
  int parent;       /* dimension under which this one counts, or -1 */
  uint32_t branch;  /* the option of it */
  char *path;       /* "optimizer/lr" */
  uint64_t key;     /* of its random numbers: path, and the options above it */
};

#define MANTA__NORMAL_RANGE 4.0 /* deviations of a normal dimension that count as its range */

static inline bool manta__dim_has_options(const struct manta__dim *d)
{
  return d->kind == MANTA__DIM_CHOICE || d->kind == MANTA__DIM_GRID;
}

struct manta__space {
  manta_value spec; /* owned */
  struct manta__dim *dims;
  int count;
  uint64_t grid; /* combinations of all grids; 1 without one */
};

/* Reads a space; `spec` is copied. MANTA_EINVAL names the domain that makes no sense, by its path,
 * and why. */
manta_status manta__space_init(struct manta__space *sp, const manta_value *spec, manta_error *err);
void manta__space_fini(struct manta__space *sp);

/* Whether `dim` counts at a point whose dimensions before it are known. */
bool manta__space_counts(const struct manta__space *sp, int dim, const double *point);

/* The point of trial `number` when nothing is known: grids in order (the first one changes
 * slowest), everything else at random. `point` has room for sp->count numbers. */
void manta__space_draw(const struct manta__space *sp, uint64_t seed, uint64_t number,
                       double *point);
/* One dimension of it. */
double manta__space_draw_dim(const struct manta__space *sp, int dim, uint64_t seed,
                             uint64_t number);
/* The grids of that trial alone; other dimensions keep what they have. */
void manta__space_draw_grid(const struct manta__space *sp, uint64_t number, double *point);

/* The config of a point, which `out` owns. */
manta_status manta__space_config(const struct manta__space *sp, const double *point,
                                 manta_value *out, manta_error *err);

/* --- one dimension, on a scale without units ------------------------------------------------- */

/* Where the searchers work: a range is [0, 1], in logarithms if the range is; a normal is in
 * deviations from the mean. Not for choices. from_scale rounds as (2) says and stays inside. */
double manta__dim_to_scale(const struct manta__dim *d, double x);
double manta__dim_from_scale(const struct manta__dim *d, double u);
/* The stretch of that scale that rounds to x; empty if every number is allowed. */
void manta__dim_cell(const struct manta__dim *d, double x, double *from, double *to);

#endif
