/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/event/bed.h - a run directory to write logs in, and manta's warnings caught.
 */
#ifndef MANTA_TEST_BED_H
#define MANTA_TEST_BED_H

#include "base/log.h"
#include "base/pack.h"
#include "event/record.h"
#include "scratch.h"

struct bed {
  char *path;
  int dir;
  int warnings;
  char warning[2048]; /* the last one */
};

static inline void bed_catch(void *ctx, manta_log_level level, const char *text)
{
  struct bed *b = ctx;
  b->warnings += level == MANTA_LOG_WARN;
  snprintf(b->warning, sizeof b->warning, "%s", text);
}

static inline int bed_setup(void **state)
{
  static struct bed bed;
  bed = (struct bed){.path = scratch_make()};
  bed.dir = scratch_open(bed.path);
  manta_set_log(bed_catch, &bed);
  *state = &bed;
  return 0;
}

static inline int bed_teardown(void **state)
{
  struct bed *b = *state;
  manta_set_log(NULL, NULL);
  close(b->dir);
  scratch_remove(b->path);
  return 0;
}

static inline manta__log_writer *bed_writer(struct bed *b, bool create)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__log_writer *w = NULL;
  assert_ok(manta__log_writer_open(&w, b->dir, create, &err), &err);
  return w;
}

static inline struct manta__ident ident(uint32_t attempt, int rank, uint64_t seq)
{
  return (struct manta__ident){0x1234, attempt, rank, seq};
}

static inline void bed_add(manta__log_writer *w, enum manta__event kind, struct manta__ident id,
                           manta_value v)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__log_add_value(w, kind, &id, &v, &err), &err);
}

/* A row of `rank` with its iteration and a loss; seq is the iteration unless told. */
static inline void bed_row(manta__log_writer *w, uint32_t attempt, int rank, int64_t iteration)
{
  bed_add(w, MANTA__EV_ROW, ident(attempt, rank, (uint64_t)iteration),
          MANTA_MAP(MANTA_KV_REAL("loss", 1.0 / (double)iteration),
                    MANTA_KV_INT("_training_iteration", iteration), MANTA_KV_STR("note", "x")));
}

static inline void bed_flush(manta__log_writer *w)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__log_flush(w, &err), &err);
}

static inline int64_t bed_size(struct bed *b, const char *name)
{
  struct stat sb;
  return fstatat(b->dir, name, &sb, 0) < 0 ? -1 : sb.st_size;
}

/* How many segments the log has. */
static inline int bed_segments(struct bed *b)
{
  char name[MANTA__SEGMENT_NAME_MAX];
  for (int n = 0;; n++) {
    manta__segment_name(name, n + 1);
    if (bed_size(b, name) < 0)
      return n;
  }
}

/* Reads the log from the start: how many records, how many bytes torn. seqs (may be NULL) gets the
 * seq of the first `max` of them. */
static inline int bed_read(struct bed *b, uint64_t *seqs, int max, int64_t *torn)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__log_reader *r = NULL;
  assert_ok(manta__log_reader_open(&r, b->dir, &err), &err);
  struct manta__record h;
  const uint8_t *payload;
  int n = 0, rc;
  for (; (rc = manta__log_next(r, &h, &payload, &err)) > 0; n++)
    if (seqs && n < max)
      seqs[n] = h.id.seq;
  assert_ok(rc, &err);
  if (torn)
    *torn = manta__log_torn(r);
  manta__log_reader_close(r);
  return n;
}

#endif
