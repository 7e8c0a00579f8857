/* SPDX-License-Identifier: Apache-2.0 */
#include "train/deliver.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/pack.h"
#include "train/driver.h"
#include "train/run.h"
#include "train/say.h"
#include "train/trainer.h"

#define drv manta__drv

// --- callbacks ----------------------------------------------------------------------------------

static void complain(const char *what, const manta_error *err)
{
  manta__warn("a %s callback failed: %s", what, err->message);
}

void manta__call_start(manta_run *r)
{
  char id[20];
  snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
  manta_run_info info = {.run_dir = r->dir,
                         .run_id = id,
                         .config = &r->config,
                         .workers = r->membership.policy.want,
                         .resumed = r->resumed};
  for (size_t i = 0; i < r->callback_count; i++) {
    manta_error err = MANTA_ERROR_INIT;
    const manta_callbacks *c = r->callbacks[i];
    if (c->start && c->start(c->ctx, &info, &err) < 0)
      complain("start", &err);
  }
}

void manta__call_finish(manta_run *r)
{
  if (r->finished_told || r->exec)
    return;
  r->finished_told = true;
  for (size_t i = 0; i < r->callback_count; i++) {
    manta_error err = MANTA_ERROR_INIT;
    const manta_callbacks *c = r->callbacks[i];
    if (c->finish && c->finish(c->ctx, r->error.status < 0 ? &r->error : NULL, &err) < 0)
      complain("finish", &err);
  }
}

static void call_result(manta_run *r, const manta_rows *rows)
{
  for (size_t i = 0; i < r->callback_count; i++) {
    manta_error err = MANTA_ERROR_INIT;
    const manta_callbacks *c = r->callbacks[i];
    if (c->result && c->result(c->ctx, rows, &err) < 0)
      complain("result", &err);
  }
}

// Ours: where the lines of the workers go, if that is not this process's own standard error.
static void show_own(manta_run *r, bool warning, const char *text)
{
  if (r->trainer->quiet || !manta__log_shows(MANTA_LOG_WARN))
    return;
  manta__screen_lift(&r->screen);
  if (r->displayed)
    manta__screen_say(&r->screen, warning ? "manta: warn: " : "manta: ", text);
  else if (warning)
    manta__warn("%s", text);
  else
    manta__note(text);
}

static bool callback_takes(manta_run *r, const struct manta__text *x)
{
  bool taken = false;
  for (size_t i = 0; i < r->callback_count; i++) {
    const manta_callbacks *c = r->callbacks[i];
    if (c->output && !x->live)
      c->output(c->ctx, x->rank, x->data, x->len);
    taken |= c->output != NULL;
  }
  return taken;
}

static void show_text(manta_run *r, const struct manta__text *x)
{
  if (x->rank < 0)
    show_own(r, x->rank == -1, x->data);
  else if (callback_takes(r, x) || r->trainer->quiet)
    return;
  else if (x->live)
    manta__screen_live(&r->screen, x->rank, x->stream, x->data, x->len);
  else
    manta__screen_lines(&r->screen, x->rank, x->stream, x->data, x->len);
}

void manta__deliver_texts(manta_run *r)
{
  struct manta__text *x = r->texts;
  if (!x)
    return;
  r->texts = r->texts_last = NULL;
  r->text_bytes = 0;
  pthread_mutex_unlock(&drv.lock);
  for (struct manta__text *next; x; x = next) {
    next = x->next;
    show_text(r, x);
    manta__free(x);
  }
  if (r->moves)
    manta__screen_lay(&r->screen);
  pthread_mutex_lock(&drv.lock);
}

// --- rows ---------------------------------------------------------------------------------------

static void free_values(manta_run *r)
{
  for (int i = 0; i < r->value_count; i++)
    manta_value_fini(&r->values[i]);
  manta__free(r->values);
  r->values = NULL;
  r->value_count = 0;
}

static manta_status unpack_rows(manta_run *r, const struct manta__rowset *s, manta_rows *out,
                                manta_error *err)
{
  if (r->value_count < s->world) {
    free_values(r);
    if (!(r->values = manta__calloc((size_t)s->world, sizeof *r->values)))
      return manta_error_set(err, MANTA_ENOMEM, "no memory for %d rows", s->world);
    r->value_count = s->world;
  }
  for (int i = 0; i < s->world; i++) {
    manta_value_fini(&r->values[i]);
    if (s->row[i])
      MANTA_TRY(manta__unpack(&r->values[i], s->row[i]->data, s->row[i]->len, NULL, err));
  }
  *out = (manta_rows){.iteration = s->iteration,
                      .count = s->world,
                      .complete = s->have == s->world,
                      .rewound_to = s->rewound_to,
                      .rows = r->values};
  return MANTA_OK;
}

int manta__deliver_rows(manta_run *r, manta_rows *out, manta_error *err)
{
  struct manta__rowset *s = r->batch;
  manta_rows unseen;
  if (r->moves && (r->listening || out))
    manta__screen_lift(&r->screen); // whoever gets the row may print
  out = out ? out : &unseen;
  r->batch = s->next;
  manta_status st = unpack_rows(r, s, out, err);
  manta__rowset_free(s);
  if (st < 0)
    return st;
  call_result(r, out);
  return 1;
}

int manta__deliver_end(manta_run *r, manta_error *err)
{
  if (r->moves)
    manta__screen_lift(&r->screen);
  manta__progress_end(r);
  manta__call_finish(r);
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = manta__results_take(r, &why);
  if (r->error.status < 0 && err)
    *err = r->error;
  else if (st < 0 && err)
    *err = why;
  return r->error.status < 0 ? (int)r->error.status : (int)st;
}

void manta_run_tell_stop(manta_run *r)
{
  char how[MANTA__OUTLOOK_MAX], text[MANTA__OUTLOOK_MAX + 64];
  pthread_mutex_lock(&drv.lock);
  bool tell = !r->over && !r->exec;
  manta__run_outlook(r, how, sizeof how);
  pthread_mutex_unlock(&drv.lock);
  snprintf(text, sizeof text, "interrupted: ending the run without a last save; %s", how);
  if (tell)
    show_own(r, false, text);
}

// --- freeing ------------------------------------------------------------------------------------

static void free_texts(manta_run *r)
{
  for (struct manta__text *x = r->texts, *next; x; x = next) {
    next = x->next;
    manta__free(x);
  }
  r->texts = r->texts_last = NULL;
  r->text_bytes = 0;
}

static void free_rowsets(struct manta__rowset *s)
{
  for (struct manta__rowset *next; s; s = next) {
    next = s->next;
    manta__rowset_free(s);
  }
}

void manta__deliver_free(manta_run *r)
{
  free_rowsets(r->queue);
  free_rowsets(r->batch);
  r->queue = r->queue_last = r->batch = NULL;
  r->queued = 0;
  free_values(r);
  free_texts(r);
}
