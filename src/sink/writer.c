/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/writer.c - a sink without a run: rows that a program has itself, written in its own thread.
 *
 * There is no log to read again, so what is put is flushed at once, and the marks of the last
 * MARKS iterations are kept: a rewind goes back to one of these.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <manta/sink.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "sink/pick.h"
#include "sys/file.h"
#include "sys/sock.h"

#define MARKS 4096

struct manta_sink_writer {
  const struct manta__sink_kind *kind;
  struct manta__sink_env env;
  struct manta__pick pick;
  manta_value options, config, memo;
  char *dir, id[20];
  int rundir, outdir;
  atomic_bool quit;
  void *sink;
  struct kept_mark {
    int64_t iteration;
    struct manta__sink_mark mark;
  } mark[MARKS]; // a ring
  size_t count;
};

static void warn(const struct manta__sink_env *env, const char *text)
{
  const manta_sink_writer *w =
      (const manta_sink_writer *)((const char *)env - offsetof(manta_sink_writer, env));
  manta__warn("sink %s: %s", w->kind->name, text);
}

// --- opening -------------------------------------------------------------------------------------

static manta_status copy_all(manta_sink_writer *w, const manta_sink *sink, const char *dir,
                             const manta_value *config)
{
  w->dir = manta__strdup(dir);
  if (!w->dir)
    return MANTA_ENOMEM;
  MANTA_TRY(sink->options && sink->options->type == MANTA_MAP
                ? manta_value_copy(&w->options, sink->options)
                : manta_value_set_map(&w->options));
  return config && config->type == MANTA_MAP ? manta_value_copy(&w->config, config)
                                             : manta_value_set_map(&w->config);
}

static manta_status open_places(manta_sink_writer *w, manta_error *err)
{
  const char *logdir = manta_value_as_string(manta_value_get(&w->options, "logdir"), NULL);
  MANTA_TRY(manta__dir_make(w->dir, &w->rundir, err));
  if (logdir)
    MANTA_TRY(manta__dir_make(logdir, &w->outdir, err));
  const char *slash = strrchr(w->dir, '/');
  snprintf(w->id, sizeof w->id, "%016llx", (unsigned long long)manta__hash(w->dir, strlen(w->dir)));
  w->env = (struct manta__sink_env){.run_id = w->id,
                                    .run_name = slash ? slash + 1 : w->dir,
                                    .run_dir = w->dir,
                                    .rundir = w->rundir,
                                    .outdir = logdir ? w->outdir : w->rundir,
                                    .config = &w->config,
                                    .options = &w->options,
                                    .memo = &w->memo,
                                    .quit = &w->quit,
                                    .warn = warn};
  return MANTA_OK;
}

static manta_status begin(manta_sink_writer *w, const manta_sink *sink, const char *dir,
                          const manta_value *config, manta_error *err)
{
  static const struct manta__sink_mark beginning;
  MANTA_TRY(manta__sink_check(sink->kind, sink->options, err));
  MANTA_TRY(manta__sink_load(sink->kind, &w->kind, err));
  if (copy_all(w, sink, dir, config) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  MANTA_TRY(manta__pick_init(&w->pick, &w->options, err));
  MANTA_TRY(open_places(w, err));
  MANTA_TRY(w->kind->open(&w->sink, &w->env, err));
  MANTA_TRY(w->kind->back(w->sink, &beginning, err));
  return w->kind->flush(w->sink, err);
}

manta_status manta_sink_open(manta_sink_writer **out, const manta_sink *sink, const char *dir,
                             const manta_value *config, manta_error *err)
{
  manta_sink_writer *w = manta__calloc(1, sizeof *w);
  if (!w)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  w->rundir = w->outdir = -1;
  manta_status st = begin(w, sink, dir, config, err);
  if (st < 0)
    manta_sink_close(w);
  else
    *out = w;
  return st;
}

void manta_sink_close(manta_sink_writer *w)
{
  manta_error err = MANTA_ERROR_INIT;
  if (!w)
    return;
  if (w->sink && w->kind->flush(w->sink, &err) < 0)
    warn(&w->env, err.message);
  if (w->sink)
    w->kind->close(w->sink);
  manta__pick_fini(&w->pick);
  manta_value_fini(&w->options);
  manta_value_fini(&w->config);
  manta_value_fini(&w->memo);
  manta__fd_close(&w->rundir);
  manta__fd_close(&w->outdir);
  manta__free(w->dir);
  manta__free(w);
}

// --- rows ----------------------------------------------------------------------------------------

static int64_t wall_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Those that are wanted, of the list by rank.
static int choose(const manta_sink_writer *w, const manta_value *rows, struct manta__sink_row *out)
{
  int64_t now = wall_clock();
  int n = 0;
  for (uint32_t r = 0; r < rows->count; r++)
    if (rows->u.items[r].type == MANTA_MAP && manta__pick_wants(&w->pick, (int)r))
      out[n++] = (struct manta__sink_row){(int)r, now, rows->u.items[r]}; // borrows
  return n;
}

static manta_status put(manta_sink_writer *w, struct manta__sink_rows *rows, manta_error *err)
{
  bool voided = false, changed = false;
  MANTA_TRY(w->kind->rows(w->sink, rows, err));
  MANTA_TRY(w->kind->flush(w->sink, err));
  if (w->kind->memo)
    w->kind->memo(w->sink, &changed, &voided);
  if (voided)
    w->count = 0;
  struct kept_mark *m = &w->mark[w->count++ % MARKS];
  m->iteration = rows->iteration;
  w->kind->mark(w->sink, &m->mark);
  return MANTA_OK;
}

manta_status manta_sink_put(manta_sink_writer *w, int64_t iteration, const manta_value *rows,
                            manta_error *err)
{
  struct manta__sink_row one = {0};
  manta_value own = {0};
  if (rows->type != MANTA_LIST)
    return manta_error_set(err, MANTA_ETYPE, "rows of a sink must be a list of maps, by rank");
  struct manta__sink_row *row = manta__calloc(rows->count + 1u, sizeof *row);
  if (!row || manta_value_copy(&own, rows) < 0) {
    manta__free(row);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for rows");
  }
  manta__pick_clean(&own);
  int need = manta__pick_need(&w->pick, (int)rows->count);
  struct manta__sink_rows out = {.iteration = iteration, .wall_ns = wall_clock(), .row = row};
  out.count = choose(w, &own, row);
  out.complete = out.count == need;
  out.several = need > 1 && w->pick.how == MANTA__AGGREGATE_NONE;
  manta_status st = MANTA_OK;
  if (w->pick.how != MANTA__AGGREGATE_NONE && out.count > 1) {
    st = manta__pick_merge(&one, row, out.count, w->pick.how, err);
    out.row = &one;
    out.count = 1;
  }
  if (st == MANTA_OK)
    st = put(w, &out, err);
  manta_value_fini(&one.row);
  manta_value_fini(&own);
  manta__free(row);
  return st;
}

manta_status manta_sink_rewind(manta_sink_writer *w, int64_t to, manta_error *err)
{
  static const struct manta__sink_mark beginning;
  size_t had = w->count;
  if (!w->kind->cuts) {
    MANTA_TRY(w->kind->rewound ? w->kind->rewound(w->sink, to, wall_clock(), err) : MANTA_OK);
    return w->kind->flush(w->sink, err);
  }
  while (w->count > 0 && had - w->count < MARKS && w->mark[(w->count - 1) % MARKS].iteration > to)
    w->count--;
  if (had - w->count >= MARKS) {
    w->count = had;
    return manta_error_set(err, MANTA_ETOOBIG, "a sink can go back %d iterations at most", MARKS);
  }
  MANTA_TRY(w->kind->back(w->sink,
                          w->count > 0 ? &w->mark[(w->count - 1) % MARKS].mark : &beginning, err));
  return w->kind->flush(w->sink, err);
}
