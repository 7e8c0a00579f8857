/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/journal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/file.h"

#define LOG_DIR "experiment"

static const char *const names[] = {
    [MANTA__T_NEW] = "new",         [MANTA__T_BEGAN] = "began",
    [MANTA__T_ROW] = "row",         [MANTA__T_SAVED] = "saved",
    [MANTA__T_PAUSED] = "paused",   [MANTA__T_POPPED] = "decided",
    [MANTA__T_COPIED] = "copied",   [MANTA__T_FAILED] = "failed",
    [MANTA__T_ENDED] = "ended",     [MANTA__T_CLOSED] = "closed",
    [MANTA__T_REVIVED] = "revived", [MANTA__T_RESOURCES] = "resources",
    [MANTA__T_ORIGIN] = "origin",   [MANTA__T_YIELDED] = "yielded"};

// --- writing -------------------------------------------------------------------------------------

manta_status manta__journal_open(struct manta__journal *j, int dirfd, bool create, bool write,
                                 manta_error *err)
{
  *j = (struct manta__journal){.dirfd = -1};
  if (getrandom(&j->id, sizeof j->id, 0) != sizeof j->id)
    return manta_error_set(err, MANTA_EIO, "getrandom: %m");
  MANTA_TRY(manta__dir_makeat(dirfd, LOG_DIR, &j->dirfd, err));
  return write ? manta__log_writer_open(&j->writer, j->dirfd, create, err) : MANTA_OK;
}

void manta__journal_stop(struct manta__journal *j)
{
  manta__log_writer_close(j->writer);
  j->writer = NULL;
}

void manta__journal_close(struct manta__journal *j)
{
  manta__journal_stop(j);
  if (j->dirfd >= 0)
    close(j->dirfd);
  *j = (struct manta__journal){.dirfd = -1};
}

void manta__journal_discard(struct manta__journal *j, int dirfd)
{
  manta__journal_stop(j);
  unlinkat(j->dirfd, "run.log", 0);
  unlinkat(j->dirfd, ".lock", 0);
  unlinkat(dirfd, LOG_DIR, AT_REMOVEDIR);
}

static struct manta__ident next_id(struct manta__journal *j, uint32_t attempt, int32_t rank)
{
  return (struct manta__ident){j->id, attempt, rank, ++j->seq};
}

manta_status manta__journal_begin(struct manta__journal *j, const manta_value *info,
                                  manta_error *err)
{
  struct manta__ident id = next_id(j, 0, -1);
  MANTA_TRY(manta__log_add_value(j->writer, MANTA__EV_EXPERIMENT, &id, info, err));
  return manta__log_flush(j->writer, err);
}

manta_status manta__journal_finish(struct manta__journal *j, const char *message, manta_error *err)
{
  struct manta__ident id = next_id(j, 0, -1);
  manta_value v = MANTA_MAP(MANTA_KV_STR("status", "OK"), MANTA_KV_STR("message", message));
  MANTA_TRY(manta__log_add_value(j->writer, MANTA__EV_FINISH, &id, &v, err));
  return manta__log_flush(j->writer, err);
}

// What is zero, or nil, is left out.
static size_t fill(manta_pair *at, const struct manta__event_rec *e)
{
  size_t n = 0;
  at[n++] = MANTA_KV_STR("what", names[e->what]);
  if (e->iteration)
    at[n++] = MANTA_KV_INT("iteration", e->iteration);
  if (e->what == MANTA__T_COPIED || e->verdict == MANTA_TRIAL_COPY)
    at[n++] = MANTA_KV_INT("from", (int64_t)e->from);
  if (e->verdict)
    at[n++] = MANTA_KV_INT("verdict", e->verdict);
  if (e->what == MANTA__T_ENDED)
    at[n++] = MANTA_KV_STR("state", manta_trial_state_name((manta_trial_state)e->state));
  if (e->message)
    at[n++] = MANTA_KV_STR("message", e->message);
  if (e->value)
    at[n++] = MANTA_KV("value", *e->value);
  return n;
}

manta_status manta__journal_add(struct manta__journal *j, const struct manta__event_rec *e,
                                manta_error *err)
{
  manta_pair pairs[8];
  struct manta__ident id = next_id(j, e->attempt, (int32_t)e->trial);
  if (e->what == MANTA__T_ROW)
    return manta__log_add_value(j->writer, MANTA__EV_ROW, &id, e->value, err);
  manta_value v = {.type = MANTA_MAP, .count = (uint32_t)fill(pairs, e), .u.pairs = pairs};
  return manta__log_add_value(j->writer, MANTA__EV_TRIAL, &id, &v, err);
}

manta_status manta__journal_flush(struct manta__journal *j, manta_error *err)
{
  return manta__log_flush(j->writer, err);
}

// --- reading -------------------------------------------------------------------------------------

static int find_what(const char *name)
{
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
    if (!strcmp(names[i], name))
      return i;
  return -1;
}

static int find_state(const char *name)
{
  for (int i = MANTA_TRIAL_PENDING; i <= MANTA_TRIAL_FAILED; i++)
    if (!strcmp(manta_trial_state_name((manta_trial_state)i), name))
      return i;
  return MANTA_TRIAL_FAILED;
}

static bool parse(struct manta__event_rec *e, const struct manta__record *head,
                  const manta_value *v)
{
  *e = (struct manta__event_rec){.trial = (uint64_t)(uint32_t)head->id.rank,
                                 .attempt = head->id.attempt,
                                 .wall_ns = head->wall_ns};
  if (head->kind == MANTA__EV_ROW) {
    e->what = MANTA__T_ROW;
    e->value = v;
    e->iteration = manta_value_as_int(manta_value_get(v, "_training_iteration"), 0);
    return true;
  }
  int what = find_what(manta_value_as_string(manta_value_get(v, "what"), ""));
  if (what < 0)
    return false;
  e->what = (enum manta__trial_what)what;
  e->iteration = manta_value_as_int(manta_value_get(v, "iteration"), 0);
  e->from = (uint64_t)manta_value_as_int(manta_value_get(v, "from"), 0);
  e->verdict = (int)manta_value_as_int(manta_value_get(v, "verdict"), 0);
  e->state = find_state(manta_value_as_string(manta_value_get(v, "state"), ""));
  e->message = manta_value_as_string(manta_value_get(v, "message"), NULL);
  e->value = manta_value_get(v, "value");
  return true;
}

static manta_status give(struct manta__journal *j, const struct manta__journal_reader *r,
                         const struct manta__record *head, const manta_value *v, manta_error *err)
{
  struct manta__event_rec e;
  j->id = head->id.run;
  j->seq = head->id.seq > j->seq ? head->id.seq : j->seq;
  if (head->kind == MANTA__EV_EXPERIMENT)
    return r->begin ? r->begin(r->ctx, v, head->wall_ns, err) : MANTA_OK;
  if (head->kind == MANTA__EV_FINISH)
    return r->finish ? r->finish(r->ctx, head->wall_ns, err) : MANTA_OK;
  if ((head->kind == MANTA__EV_ROW || head->kind == MANTA__EV_TRIAL) && parse(&e, head, v))
    return r->event ? r->event(r->ctx, &e, err) : MANTA_OK;
  return MANTA_OK; // of a newer version
}

manta_status manta__journal_read(struct manta__journal *j, const struct manta__journal_reader *r,
                                 manta_error *err)
{
  manta__log_reader *log;
  struct manta__record head;
  const uint8_t *payload;
  int rc;
  MANTA_TRY(manta__log_reader_open(&log, j->dirfd, err));
  while ((rc = manta__log_next(log, &head, &payload, err)) == 1) {
    manta_value v = {0};
    manta_status st = manta_value_unpack(&v, payload, head.len, err);
    if (st == MANTA_OK)
      st = give(j, r, &head, &v, err);
    manta_value_fini(&v);
    if (st < 0) {
      rc = st;
      break;
    }
  }
  manta__log_reader_close(log);
  return (manta_status)rc;
}
