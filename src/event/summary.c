/* SPDX-License-Identifier: Apache-2.0
 *
 * event/summary.c - what a run's log says, put together.
 *
 * A rewind voids rows that come before it, so the log is read once to learn the rewinds (and all
 * else, in case there are none, as in most runs) and a second time, up to the same record, to count
 * what they leave. Memory depends on the number of ranks and of rewinds, not on that of rows.
 */
#include <limits.h>
#include <string.h>

#include <manta/trainer.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "event/record.h"
#include "event/row.h"
#include "event/rundir.h"
#include "sys/file.h"

#define MAX_REWINDS 65536

/* Rows after iteration `to` of attempts before `attempt` are void. */
struct cut {
  uint32_t attempt;
  int64_t to;
};

struct log_scan {
  struct manta__run_summary s;
  struct seen {
    bool any;
    uint32_t attempt; /* newest of this rank */
    uint64_t seq;     /* and its highest */
  } * seen;           /* by rank, of the ranks below seen_count */
  int seen_count;
  struct cut *cuts; /* both fields rise from one to the next */
  size_t cut_count;
  manta__buf last; /* newest row of rank 0, packed */
  int64_t records;
};

// Is there one that voids all that `cut` voids? i: the first that goes back less far than `cut`.
static bool is_covered(const struct log_scan *c, size_t i, struct cut cut)
{
  return i > 0 && c->cuts[i - 1].attempt >= cut.attempt;
}

// Puts a cut into its place and throws out those that it covers.
static manta_status add_cut(struct log_scan *c, struct cut cut, manta_error *err)
{
  size_t hi = 0, lo;
  while (hi < c->cut_count && c->cuts[hi].to <= cut.to)
    hi++;
  if (is_covered(c, hi, cut))
    return MANTA_OK;
  for (lo = hi; lo > 0 && c->cuts[lo - 1].to == cut.to;)
    lo--;
  while (hi < c->cut_count && c->cuts[hi].attempt <= cut.attempt)
    hi++;
  if (c->cut_count >= MAX_REWINDS)
    return manta_error_set(err, MANTA_ETOOBIG, "run.log has more than %d rewinds", MAX_REWINDS);
  struct cut *p = manta__realloc(c->cuts, (c->cut_count + 1) * sizeof *p);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to sum up run.log");
  c->cuts = p;
  memmove(p + lo + 1, p + hi, (c->cut_count - hi) * sizeof *p);
  p[lo] = cut;
  c->cut_count += 1 + lo - hi;
  return MANTA_OK;
}

static bool is_void(const struct log_scan *c, const struct manta__record *h, const uint8_t *payload)
{
  size_t lo = 0, hi = c->cut_count; // finds the first cut of a later attempt: it goes back farthest
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (c->cuts[mid].attempt > h->id.attempt)
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo < c->cut_count && manta__row_iteration(payload, h->len) > c->cuts[lo].to;
}

static manta_status make_place(struct log_scan *c, int rank, manta_error *err)
{
  if (rank < c->seen_count)
    return MANTA_OK;
  int count = rank < 2 * c->seen_count ? 2 * c->seen_count : rank + 1;
  struct seen *p = manta__realloc(c->seen, (size_t)count * sizeof *p);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to sum up run.log");
  memset(p + c->seen_count, 0, (size_t)(count - c->seen_count) * sizeof *p);
  c->seen = p;
  c->seen_count = count;
  return MANTA_OK;
}

// Was this row seen before, or does it belong to an attempt that its rank has left behind?
static bool is_stale(struct log_scan *c, const struct manta__ident *id)
{
  struct seen *s = &c->seen[id->rank];
  if (s->any && (id->attempt < s->attempt || (id->attempt == s->attempt && id->seq <= s->seq)))
    return true;
  *s = (struct seen){true, id->attempt, id->seq};
  return false;
}

static manta_status add_row(struct log_scan *c, const struct manta__record *h,
                            const uint8_t *payload, manta_error *err)
{
  if (h->id.rank < 0 || h->id.rank >= MANTA_MAX_RANKS)
    return MANTA_OK;
  MANTA_TRY(make_place(c, h->id.rank, err));
  if (is_stale(c, &h->id) || is_void(c, h, payload))
    return MANTA_OK;
  c->s.rows++;
  if (h->id.rank != 0)
    return MANTA_OK;
  c->last.len = 0;
  if (manta__buf_append(&c->last, payload, h->len) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to sum up run.log");
  return MANTA_OK;
}

// A payload that is no map (another program's, a bug) counts as nil: the rest is still worth
// seeing.
static manta_status read_map(manta_value *out, const uint8_t *payload, size_t len, manta_error *err)
{
  manta_status st = manta_value_unpack(out, payload, len, err);
  if (st == MANTA_ENOMEM)
    return st;
  if (st < 0 || out->type != MANTA_MAP)
    manta_value_fini(out);
  return MANTA_OK;
}

static manta_status add_rewind(struct log_scan *c, const struct manta__record *h,
                               const uint8_t *payload, manta_error *err)
{
  manta_value v = {0};
  MANTA_TRY(read_map(&v, payload, h->len, err));
  int64_t to = manta_value_as_int(manta_value_get(&v, "to"), -1);
  manta_value_fini(&v);
  return to < 0 ? MANTA_OK : add_cut(c, (struct cut){h->id.attempt, to}, err);
}

static manta_status add_attempt(struct log_scan *c, const struct manta__record *h,
                                const uint8_t *payload, manta_error *err)
{
  manta_value v = {0};
  MANTA_TRY(read_map(&v, payload, h->len, err));
  if ((int64_t)h->id.attempt + 1 > c->s.attempts && h->id.attempt < INT32_MAX)
    c->s.attempts = (int)h->id.attempt + 1;
  int64_t world = manta_value_as_int(manta_value_get(&v, "world"), 0);
  if (world >= 0 && world <= MANTA_MAX_RANKS)
    c->s.world = (int)world;
  manta_value_fini(&v);
  // A run that ended and goes on again (manta resume) has not finished.
  manta_value_fini(&c->s.finish);
  c->s.state = MANTA__RUN_GOING;
  return MANTA_OK;
}

static manta_status add_finish(struct log_scan *c, const struct manta__record *h,
                               const uint8_t *payload, manta_error *err)
{
  MANTA_TRY(read_map(&c->s.finish, payload, h->len, err));
  const char *status = manta_value_as_string(manta_value_get(&c->s.finish, "status"), "");
  c->s.state = strcmp(status, "OK") == 0 ? MANTA__RUN_DONE : MANTA__RUN_FAILED;
  return MANTA_OK;
}

static manta_status add_record(struct log_scan *c, const struct manta__record *h,
                               const uint8_t *payload, manta_error *err)
{
  if (c->records++ == 0) {
    c->s.id = h->id.run;
    c->s.begin_ns = h->wall_ns;
    c->s.state = MANTA__RUN_GOING;
  }
  c->s.end_ns = h->wall_ns;
  switch (h->kind) {
  case MANTA__EV_RUN: // the first one: what a resumed run adds to it is in its attempts
    return c->s.start.type == MANTA_NIL ? read_map(&c->s.start, payload, h->len, err) : MANTA_OK;
  case MANTA__EV_ATTEMPT:
    return add_attempt(c, h, payload, err);
  case MANTA__EV_ROW:
    return add_row(c, h, payload, err);
  case MANTA__EV_REWIND:
    return add_rewind(c, h, payload, err);
  case MANTA__EV_CKPT:
    return read_map(&c->s.ckpt, payload, h->len, err);
  case MANTA__EV_LOST:
    c->s.lost++;
    return MANTA_OK;
  case MANTA__EV_FINISH:
    return add_finish(c, h, payload, err);
  default:
    return MANTA_OK;
  }
}

// Reads the log up to its end or to record `limit`.
static manta_status read_log(struct log_scan *c, int dirfd, int64_t limit, manta_error *err)
{
  manta__log_reader *r;
  MANTA_TRY(manta__log_reader_open(&r, dirfd, err));
  struct manta__record h;
  const uint8_t *payload;
  manta_status st = MANTA_OK;
  while (st == MANTA_OK && c->records < limit) {
    int rc = manta__log_next(r, &h, &payload, err);
    if (rc == 0)
      break;
    st = rc < 0 ? (manta_status)rc : add_record(c, &h, payload, err);
  }
  if (c->s.torn == 0)
    c->s.torn = manta__log_torn(r);
  manta__log_reader_close(r);
  return st;
}

static void forget(struct log_scan *c)
{
  int64_t torn = c->s.torn;
  manta__run_summary_fini(&c->s);
  c->s.torn = torn;
  c->records = 0;
  c->last.len = 0;
  if (c->seen)
    memset(c->seen, 0, (size_t)c->seen_count * sizeof *c->seen);
}

static manta_status scan_all(struct log_scan *c, int dirfd, const char *path, manta_error *err)
{
  MANTA_TRY(read_log(c, dirfd, INT64_MAX, err));
  if (c->cut_count > 0) {
    int64_t records = c->records;
    forget(c);
    MANTA_TRY(read_log(c, dirfd, records, err));
  }
  if (c->last.len > 0)
    MANTA_TRY(read_map(&c->s.last, c->last.data, c->last.len, err));
  c->s.iteration = manta_value_as_int(manta_value_get(&c->s.last, "_training_iteration"), 0);
  char own[PATH_MAX];
  manta__dir_path(dirfd, own);
  if (!(c->s.path = manta__strdup(path ? path : own)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory to sum up run.log");
  return MANTA_OK;
}

manta_status manta__run_summary_read(struct manta__run_summary *out, int dirfd, const char *path,
                                     manta_error *err)
{
  struct log_scan *c = manta__calloc(1, sizeof *c);
  if (!c)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to sum up run.log");
  manta__buf_init(&c->last, MANTA__LOG_MAX_PAYLOAD);
  manta_status st = scan_all(c, dirfd, path, err);
  if (st < 0)
    manta__run_summary_fini(&c->s);
  else
    *out = c->s;
  manta__buf_fini(&c->last);
  manta__free(c->cuts);
  manta__free(c->seen);
  manta__free(c);
  return st;
}

void manta__run_summary_fini(struct manta__run_summary *s)
{
  manta__free(s->path);
  manta_value_fini(&s->start);
  manta_value_fini(&s->finish);
  manta_value_fini(&s->last);
  manta_value_fini(&s->ckpt);
  *s = (struct manta__run_summary){0};
}
