/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/plot.c - `manta plot`: the metrics of runs as a picture, in a file or in the terminal.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"
#include "sys/file.h"
#include "sys/sock.h"
#include "view/plot.h"

#define OUT_MAX (256u << 20)
#define ROWS    12 /* of a panel, in a terminal */
#define TITLE   80 /* letters that fit above a plot */
#define STAMP   20 /* "_2026-11-15_04-46-27" behind the name of a run */

// "counter_0007": without the time, which is the same length for all.
static void short_name(char *out, size_t size, const char *name)
{
  size_t n = strlen(name);
  bool stamped = n > STAMP && name[n - STAMP] == '_' && name[n - 9] == '_' && name[n - 15] == '-';
  snprintf(out, size, "%.*s", (int)(stamped ? n - STAMP : n), name);
}

static manta_status add_run(struct manta__plot *p, const char *what, int rank, manta_error *err)
{
  struct manta__runref r;
  if (p->run_count == MANTA__PLOT_RUNS)
    return manta_error_set(err, MANTA_EINVAL, "more than %d runs in one plot", MANTA__PLOT_RUNS);
  MANTA_TRY(manta__runref_open(&r, what, err));
  size_t k = p->run_count++;
  short_name(p->names[k], sizeof p->names[k], r.name);
  manta__text_safe(p->names[k]);
  manta_status st = manta__run_series_read(&p->runs[k], r.fd, rank, err);
  manta__runref_close(&r);
  return st;
}

// RUN,RUN,…
static manta_status add_runs(struct manta__plot *p, const char *list, int rank, manta_error *err)
{
  while (*list) {
    size_t n = strcspn(list, ",");
    char *one = manta__strndup(list, n);
    manta_status st = one ? add_run(p, one, rank, err)
                          : manta_error_set(err, MANTA_ENOMEM, "no memory for a plot");
    manta__free(one);
    MANTA_TRY(st);
    list += n + (list[n] == ',');
  }
  return MANTA_OK;
}

static void make_title(struct manta__plot *p, const char *given)
{
  size_t n = 0;
  if (given) {
    snprintf(p->title, sizeof p->title, "%s", given);
    manta__text_safe(p->title);
    return;
  }
  for (size_t i = 0; i < p->run_count && n < sizeof p->title; i++)
    n += (size_t)snprintf(p->title + n, sizeof p->title - n, "%s%s", i ? ", " : "", p->names[i]);
  if (p->run_count > 1 && n > TITLE) // the legend has their names
    snprintf(p->title, sizeof p->title, "%zu runs", p->run_count);
}

static manta_status prepare(struct manta__plot *p, const struct manta__args *a, manta_error *err)
{
  int64_t rank = 0;
  const char *x = manta__args_get(a, "x"), *r = manta__args_get(a, "rank");
  if (x && strcmp(x, "time") && strcmp(x, "iteration"))
    return manta_error_set(err, MANTA_EINVAL, "--x is iteration or time, not \"%s\"", x);
  if (r && !strcmp(r, "all"))
    rank = -1;
  else if (r)
    MANTA_TRY(manta__args_int(&rank, r, "--rank", 0, INT32_MAX, err));
  p->by_time = x && !strcmp(x, "time");
  p->log = manta__args_has(a, "log");
  MANTA_TRY(add_runs(p, a->operand[0], (int)rank, err));
  make_title(p, manta__args_get(a, "title"));
  MANTA_TRY(manta__plot_make(p, a->operand + 1, (size_t)(a->count - 1), err));
  if (p->left_out > 0)
    manta__say("%zu line%s left out: a plot has %d panels of %d lines\n"
               "hint: name the metrics that you want to see",
               p->left_out, p->left_out == 1 ? " is" : "s are", MANTA__PLOT_PANELS,
               MANTA__PLOT_LINES);
  return MANTA_OK;
}

// --- where it goes -------------------------------------------------------------------------------

static bool ends_in(const char *s, const char *end)
{
  size_t n = strlen(s), k = strlen(end);
  return n > k && !strcasecmp(s + n - k, end);
}

static manta_status put_file(const char *path, const manta__buf *out, manta_error *err)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int rc = fd < 0 ? -1 : manta__write_all(fd, out->data, out->len, NULL);
  if (rc < 0)
    manta_error_set(err, MANTA_EIO, "-o %s: %m", path);
  manta__fd_close(&fd);
  return rc < 0 ? MANTA_EIO : MANTA_OK;
}

static manta_status write_file(const struct manta__plot *p, const char *path, manta_error *err)
{
  const struct manta__canvas_kind *kind = &manta__canvas_svg;
  manta__buf out;
  if (ends_in(path, ".png"))
    MANTA_TRY(manta__canvas_png(&kind, err));
  else if (!ends_in(path, ".svg"))
    return manta_error_set(err, MANTA_EINVAL, "-o %s: the name must end in .png or .svg", path);
  manta__buf_init(&out, OUT_MAX);
  manta_status st = manta__plot_draw(p, kind, &out, err);
  if (st == MANTA_OK)
    st = put_file(path, &out, err);
  manta__buf_fini(&out);
  return st;
}

static int columns_of_terminal(void)
{
  struct winsize w = {0};
  const char *given = getenv("COLUMNS");
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
    return w.ws_col;
  return given && strtol(given, NULL, 10) > 0 ? (int)strtol(given, NULL, 10) : 80;
}

static manta_status print(const struct manta__plot *p, manta_error *err)
{
  manta__buf out;
  int columns = columns_of_terminal();
  manta__buf_init(&out, OUT_MAX);
  manta_status st = manta__plot_print(p, columns > 400 ? 400 : columns, ROWS,
                                      *manta__paint(stdout, 1) != 0, &out);
  if (st == MANTA_OK)
    fwrite(out.data, 1, out.len, stdout);
  else
    manta_error_set(err, st, "no memory for a plot");
  manta__buf_fini(&out);
  return st;
}

int manta__cmd_plot(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  const char *path = manta__args_get(a, "output");
  struct manta__plot *p = manta__calloc(1, sizeof *p);
  manta_status st =
      p ? prepare(p, a, &err) : manta_error_set(&err, MANTA_ENOMEM, "no memory for a plot");
  if (st == MANTA_OK)
    st = path ? write_file(p, path, &err) : print(p, &err);
  if (p)
    manta__plot_fini(p);
  manta__free(p);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}
