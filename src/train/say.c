/* SPDX-License-Identifier: Apache-2.0
 *
 * train/say.c - what a run says: to the user, who sees it on the thread inside run or next, and to
 * run.log.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/run.h"

#define TEXT_BYTES (1u << 20) /* lines the user has not seen; more are dropped (and in the log) */

void manta__run_show(manta_trainer *t, int rank, const char *data, size_t len)
{
  manta_run *r = t->run;
  if (!r || r->text_bytes + len > TEXT_BYTES)
    return;
  struct manta__text *x = manta__malloc(sizeof *x + len + 1);
  if (!x)
    return;
  *x = (struct manta__text){.rank = rank, .len = len};
  memcpy(x->data, data, len);
  x->data[len] = 0;
  if (r->texts_last)
    r->texts_last->next = x;
  else
    r->texts = x;
  r->texts_last = x;
  r->text_bytes += len;
}

void manta__run_log(manta_run *r, enum manta__event kind, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__ident id = {r->id, r->group.attempt, -1, ++r->log_seq};
  if (r->log && manta__log_add_value(r->log, kind, &id, v, &err) < 0)
    manta__warn("run.log: %s", err.message);
}

void manta__run_warn(manta_trainer *t, const char *fmt, ...)
{
  char text[1200];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  n = n < (int)sizeof text ? n : (int)sizeof text - 1;
  if (!t->run) {
    manta__warn("%s", text);
    return;
  }
  manta__run_show(t, -1, text, (size_t)n);
  manta_value v = MANTA_MAP(MANTA_KV_STR("text", text));
  manta__run_log(t->run, MANTA__EV_NOTE, &v);
}
