/* SPDX-License-Identifier: Apache-2.0
 *
 * base/status.c - statuses with their names, and errors that carry a message.
 */
#include <manta/status.h>

#include <errno.h>
#include <stdio.h>

struct status_row {
  manta_status st;
  manta_harm harm;
  const char *name, *text;
};

static const struct status_row *find(manta_status st)
{
  static const struct status_row rows[] = {{MANTA_OK, MANTA_HARM_NONE, "OK", "success"},
#define ROW(name, code, harm, text) {MANTA_##name, MANTA_HARM_##harm, #name, text},
                                           MANTA_STATUS_MAP(ROW)
#undef ROW
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].st == st)
      return &rows[i];
  return NULL;
}

const char *manta_status_name(manta_status st)
{
  const struct status_row *r = find(st);
  return r ? r->name : "E?";
}

const char *manta_status_text(manta_status st)
{
  const struct status_row *r = find(st);
  return r ? r->text : "unknown status";
}

manta_harm manta_status_harm(manta_status st)
{
  const struct status_row *r = find(st);
  return r ? r->harm : MANTA_HARM_OP;
}

manta_status manta_error_set(manta_error *err, manta_status st, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  manta_error_setv(err, st, fmt, ap);
  va_end(ap);
  return st;
}

manta_status manta_error_setv(manta_error *err, manta_status st, const char *fmt, va_list ap)
{
  int saved = errno; // %m must see the caller's
  if (err) {
    err->status = st;
    err->rank = -1;
    errno = saved;
    vsnprintf(err->message, sizeof err->message, fmt, ap);
  }
  errno = saved;
  return st;
}
