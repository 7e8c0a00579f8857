/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/tensorboard/board.c - the sink "tensorboard": one event file for the whole run.
 *
 * (1) The file's name is the memo: after a revival, a kill or a resumption it goes on in the same
 *     file, cut back to the bookmark. What is written again has the same bytes, so TensorBoard may
 *     have read it already. What a process has left that was killed before the memo was kept is
 *     known by the id of the run in its name.
 * (2) A rewind is a SessionLog START: TensorBoard then drops what it had of that step and later
 *     ones. Nothing is cut from a file that it may have read.
 * (3) With several workers, each tag ends in /rank-N.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sink/sink.h"
#include "sink/tensorboard/eventfile.h"

struct board {
  const struct manta__sink_env *env;
  struct manta__eventfile events;
  manta_value name;
  bool named; // a new file
};

static double seconds(int64_t wall_ns)
{
  return (double)wall_ns / 1e9;
}

static void board_close(void *sink)
{
  struct board *b = sink;
  manta__eventfile_close(&b->events);
  manta_value_fini(&b->name);
  manta__free(b);
}

static manta_status choose_name(struct board *b)
{
  char name[160];
  const char *before = manta_value_as_string(b->env->memo, NULL);
  if (before && !strchr(before, '/'))
    return manta_value_set_string(&b->name, before);
  if (!manta__eventfile_find(name, sizeof name, b->env->outdir, b->env->run_id))
    manta__eventfile_name(name, sizeof name, b->env->run_id);
  b->named = true;
  return manta_value_set_string(&b->name, name);
}

static manta_status board_open(void **out, const struct manta__sink_env *env, manta_error *err)
{
  struct board *b = manta__calloc(1, sizeof *b);
  if (!b)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  b->env = env;
  b->events.file.fd = -1;
  manta_status st = choose_name(b);
  if (st < 0)
    manta_error_set(err, st, "no memory for a sink");
  else
    st = manta__eventfile_open(&b->events, env->outdir, b->name.u.s, err);
  if (st < 0)
    board_close(b);
  else
    *out = b;
  return st;
}

static manta_status board_rows(void *sink, const struct manta__sink_rows *rows, manta_error *err)
{
  struct board *b = sink;
  char suffix[24] = "";
  for (int i = 0; i < rows->count; i++) {
    const struct manta__sink_row *r = &rows->row[i];
    struct manta__when when = {rows->iteration, seconds(r->wall_ns)};
    if (rows->several)
      snprintf(suffix, sizeof suffix, "/rank-%d", r->rank);
    MANTA_TRY(manta__eventfile_row(&b->events, when, suffix, &r->row, err));
  }
  return MANTA_OK;
}

static manta_status board_rewound(void *sink, int64_t to, int64_t wall_ns, manta_error *err)
{
  struct board *b = sink;
  struct manta__when when = {to + 1, seconds(wall_ns)};
  return manta__eventfile_restart(&b->events, when, err);
}

// The config, when the run begins; how it ended.
static manta_status board_event(void *sink, const struct manta__record *head,
                                const manta_value *payload, manta_error *err)
{
  struct board *b = sink;
  struct manta__when when = {0, seconds(head->wall_ns)};
  const manta_value *config = b->env->config;
  if (head->kind == MANTA__EV_RUN && config->count > 0) {
    MANTA_TRY(manta__eventfile_table(&b->events, when, "config", config, err));
    return manta__eventfile_hparams(&b->events, when, config, "", err);
  }
  if (head->kind != MANTA__EV_FINISH || config->count == 0)
    return MANTA_OK;
  const char *status = manta_value_as_string(manta_value_get(payload, "status"), "");
  return manta__eventfile_end(&b->events, when, !strcmp(status, "OK"), err);
}

static manta_status board_flush(void *sink, manta_error *err)
{
  struct board *b = sink;
  return manta__outfile_flush(&b->events.file, err);
}

static void board_mark(const void *sink, struct manta__sink_mark *out)
{
  const struct board *b = sink;
  struct manta__outfile_mark m = manta__outfile_mark(&b->events.file);
  *out = (struct manta__sink_mark){{m.size, m.hash, 0, 0}};
}

static manta_status board_back(void *sink, const struct manta__sink_mark *m, manta_error *err)
{
  struct board *b = sink;
  return manta__eventfile_back(&b->events, (struct manta__outfile_mark){m->word[0], m->word[1]},
                               err);
}

static const manta_value *board_memo(void *sink, bool *changed, bool *void_marks)
{
  struct board *b = sink;
  *changed = b->named;
  *void_marks = false;
  b->named = false;
  return &b->name;
}

extern const struct manta__sink_kind manta_sink_entry;
__attribute__((visibility("default"))) const struct manta__sink_kind manta_sink_entry = {
    .name = "tensorboard",
    .open = board_open,
    .rows = board_rows,
    .rewound = board_rewound,
    .event = board_event,
    .flush = board_flush,
    .mark = board_mark,
    .back = board_back,
    .memo = board_memo,
    .close = board_close,
};
