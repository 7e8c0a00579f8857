/* SPDX-License-Identifier: Apache-2.0 */
#include "train/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/run.h"
#include "train/trainer.h"

#define TEXT_BYTES (1u << 20) /* lines the user has not seen; more are dropped (and in the log) */

static void queue(manta_run *r, struct manta__text head, const char *data)
{
  if (!r || r->text_bytes + head.len > TEXT_BYTES)
    return;
  struct manta__text *x = manta__malloc(sizeof *x + head.len + 1);
  if (!x)
    return;
  *x = head;
  memcpy(x->data, data, head.len);
  x->data[head.len] = 0;
  if (r->texts_last)
    r->texts_last->next = x;
  else
    r->texts = x;
  r->texts_last = x;
  r->text_bytes += head.len;
}

// Those that nobody has looked at are stale.
static void drop_rows(manta_run *r, int rank, int stream)
{
  struct manta__text *before = NULL;
  for (struct manta__text *x = r->texts, *next; x; x = next) {
    next = x->next;
    if (!x->live || x->rank != rank || x->stream != stream) {
      before = x;
      continue;
    }
    if (before)
      before->next = next;
    else
      r->texts = next;
    if (r->texts_last == x)
      r->texts_last = before;
    r->text_bytes -= x->len;
    manta__free(x);
  }
}

void manta__run_show(manta_trainer *t, const struct manta__msg *m)
{
  int stream = m->call == 2 ? 2 : 1;
  bool live = m->kind == MANTA__M_LIVE;
  if (!t->run || m->id.rank < 0)
    return;
  if (live)
    drop_rows(t->run, m->id.rank, stream);
  queue(t->run,
        (struct manta__text){.rank = m->id.rank, .stream = stream, .live = live, .len = m->len},
        m->data);
}

void manta__run_outlook(const manta_run *r, char *buf, size_t size)
{
  const struct manta__newest *n = &r->trainer->newest;
  int64_t at = n->fd >= 0 ? n->iteration : r->base;
  if (at > 0)
    snprintf(buf, size, "newest checkpoint: iteration %lld; `manta resume %s` continues from it",
             (long long)at, r->dir);
  else
    snprintf(buf, size, "no checkpoint yet; `manta resume %s` begins again", r->dir);
}

void manta__run_log(manta_run *r, enum manta__event kind, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ident id = {r->id, r->membership.attempt, -1, ++r->log_seq};
  if (r->log && manta__log_add_value(r->log, kind, &id, v, &err) < 0)
    manta__warn("run.log: %s", err.message);
  manta__progress_event(r, kind, &id, v);
}

static void say(manta_run *r, int how, const char *text)
{
  queue(r, (struct manta__text){.rank = how, .len = strlen(text)}, text);
  manta_value v = MANTA_MAP(MANTA_KV_STR("text", text));
  manta__run_log(r, MANTA__EV_NOTE, &v);
}

void manta__run_warn(manta_trainer *t, const char *fmt, ...)
{
  char text[1200];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (t->run)
    say(t->run, -1, text);
  else
    manta__warn("%s", text);
}

void manta__run_tell(manta_trainer *t, const char *fmt, ...)
{
  char text[MANTA__OUTLOOK_MAX + 64];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (t->run)
    say(t->run, -2, text);
}
