/* SPDX-License-Identifier: Apache-2.0
 *
 * view/plot.h - the metrics of runs as a picture: panels one below the other over one x axis, as an
 * SVG or PNG file, or as block characters.
 *
 * Metrics whose names end in the same word ("train/loss", "val_loss") share a panel. Lost workers
 * are marked where they were lost.
 */
#ifndef MANTA_VIEW_PLOT_H
#define MANTA_VIEW_PLOT_H

#include "view/axis.h"
#include "view/canvas.h"
#include "view/series.h"

#define MANTA__PLOT_PANELS 12
#define MANTA__PLOT_LINES  12 /* in a panel */
#define MANTA__PLOT_RUNS   12

struct manta__plot_line {
  const struct manta__plot_series *series;
  size_t run;
  int colour; /* its number */
  char label[2 * MANTA__ROW_NAME];
};

struct manta__plot_panel {
  char title[MANTA__ROW_NAME];
  struct manta__plot_line lines[MANTA__PLOT_LINES];
  size_t count;
  struct manta__axis y;
};

struct manta__plot {
  struct manta__run_series runs[MANTA__PLOT_RUNS]; /* read by the caller, freed by fini */
  char names[MANTA__PLOT_RUNS][MANTA__ROW_NAME];
  size_t run_count;
  bool log;     /* y */
  bool by_time; /* x, instead of iterations */
  char title[160];
  /* filled by manta__plot_make */
  struct manta__plot_panel panels[MANTA__PLOT_PANELS];
  size_t panel_count;
  size_t left_out; /* lines that there is no room for */
  struct manta__axis x;
  double unit; /* of time: seconds, minutes or hours in seconds */
  char x_label[32];
};

/* Makes the panels: of `metrics`, or (count 0) of all that the runs have. MANTA_ENOENT names what
 * is not there. */
manta_status manta__plot_make(struct manta__plot *p, char *const *metrics, size_t count,
                              manta_error *err);
void manta__plot_fini(struct manta__plot *p);

/* x of a bin and of a loss. */
double manta__plot_x(const struct manta__plot *p, size_t run, int64_t iteration, int64_t wall_ns);

/* A file. */
manta_status manta__plot_draw(const struct manta__plot *p, const struct manta__canvas_kind *kind,
                              manta__buf *out, manta_error *err);
/* Text of so many columns, panels of so many rows. */
manta_status manta__plot_print(const struct manta__plot *p, int columns, int rows, bool colours,
                               manta__buf *out);

#endif
