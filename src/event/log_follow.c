/* SPDX-License-Identifier: Apache-2.0
 *
 * event/log_follow.c - the follower of run.log: a reader (log_read.c), what wakes it (log_wake.c),
 * and a judgement of where the log ends.
 *
 * (1) What has happened is forgotten before one looks, so that a write that comes after the look
 *     wakes again.
 * (2) Who writes is asked before the last look: what a writer has added before it left is found.
 * (3) Bytes that are no record are damage only if a writer has gone on behind them, for one that
 *     opens a log cuts off what is none. Otherwise they are a torn tail, and waited for.
 */
#include "event/log_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "event/lock.h"
#include "event/log_wake.h"
#include "event/record.h"
#include "sys/sock.h"

struct manta__log_follow {
  int dirfd;
  manta__log_reader *reader; /* NULL: there is no log yet */
  struct manta__log_wake wake;
  struct manta__log_place place;
  bool cut;     /* `place` is not in the log any more */
  bool watched; /* somebody has asked for the descriptor */
  bool waiting; /* the last call told to wait */
  bool found;   /* records, since then */
  struct {
    int64_t segment, at,
        size; /* bytes that were no record, in a file of that size; segment 0: none */
  } bad;
};

// --- places --------------------------------------------------------------------------------------

static bool is_beginning(const struct manta__log_place *p)
{
  return p->segment == 0;
}

static bool read_head(int dirfd, const struct manta__log_place *p, struct manta__record *head)
{
  int fd;
  if (p->segment < 1 || p->segment > INT32_MAX || p->start < 0 || p->end <= p->start)
    return false;
  if (manta__segment_open(dirfd, (int)p->segment, &fd, NULL) < 0)
    return false;
  struct stat sb;
  bool whole = fstat(fd, &sb) == 0 && sb.st_size >= p->end &&
               pread(fd, head, sizeof *head, p->start) == (ssize_t)sizeof *head;
  close(fd);
  return whole;
}

// Whether the log still has the record that the place is behind.
static bool holds(int dirfd, const struct manta__log_place *p)
{
  struct manta__record head;
  if (is_beginning(p))
    return true;
  return read_head(dirfd, p, &head) && manta__record_head_ok(&head) && head.hash == p->hash &&
         p->end - p->start == (int64_t)(MANTA__RECORD_HEAD + head.len);
}

// Opens the log where the place is; there may be none yet.
static manta_status open_reader(manta__log_follow *f, manta_error *err)
{
  int segment = is_beginning(&f->place) ? 1 : (int)f->place.segment;
  manta_status st = manta__log_reader_open_at(&f->reader, f->dirfd, segment, f->place.end, err);
  return st == MANTA_ENOENT ? MANTA_OK : st;
}

// --- opening and closing -------------------------------------------------------------------------

manta_status manta__log_follow_open(manta__log_follow **out, int dirfd,
                                    const struct manta__log_place *from, manta_error *err)
{
  manta_status st;
  manta__log_follow *f = manta__calloc(1, sizeof *f);
  if (!f)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to follow run.log");
  if ((f->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0)) < 0) {
    st = manta_error_set(err, MANTA_EIO, "dup: %m");
    goto err_free;
  }
  if ((st = manta__log_wake_open(&f->wake, err)) < 0)
    goto err_dir;
  if (from)
    f->place = *from;
  f->cut = !holds(f->dirfd, &f->place);
  if (!f->cut && (st = open_reader(f, err)) < 0)
    goto err_wake;
  *out = f;
  return MANTA_OK;
err_wake:
  manta__log_wake_close(&f->wake);
err_dir:
  close(f->dirfd);
err_free:
  manta__free(f);
  return st;
}

void manta__log_follow_close(manta__log_follow *f)
{
  if (!f)
    return;
  manta__log_reader_close(f->reader);
  manta__log_wake_close(&f->wake);
  close(f->dirfd);
  manta__free(f);
}

int manta__log_follow_fd(manta__log_follow *f)
{
  if (!f->watched)
    manta__log_wake_watch(&f->wake, f->dirfd);
  f->watched = true;
  return f->wake.fd;
}

bool manta__log_follow_wait(manta__log_follow *f, int64_t by)
{
  return manta__fd_wait(manta__log_follow_fd(f), false, by) > 0;
}

struct manta__log_place manta__log_follow_place(const manta__log_follow *f)
{
  return f->place;
}

// --- the end of what is there --------------------------------------------------------------------

// From the first record on, with the next call.
static int begin_anew(manta__log_follow *f)
{
  manta__log_reader_close(f->reader);
  f->reader = NULL;
  f->place = (struct manta__log_place){0};
  f->bad.segment = 0;
  f->cut = false;
  return MANTA__FOLLOW_CUT;
}

// Bytes that are no record, again and again: did somebody go on behind them (3)?
static bool is_damaged(manta__log_follow *f, int64_t size, bool written)
{
  int64_t segment = manta__log_reader_segment(f->reader), at = manta__log_reader_at(f->reader);
  if (f->bad.segment == segment && f->bad.at == at && size >= f->bad.size)
    return written && size > f->bad.size;
  f->bad.segment = segment;
  f->bad.at = at;
  f->bad.size = size;
  return false;
}

static int judge_end(manta__log_follow *f, bool written, manta_error *err)
{
  struct manta__log_tail tail;
  MANTA_TRY(manta__log_reader_tail(f->reader, &tail, err));
  int64_t at = manta__log_reader_at(f->reader);
  if (tail.gone)
    return MANTA__FOLLOW_GONE;
  if (tail.size < at)
    return begin_anew(f);
  if (!tail.bad)
    f->bad.segment = 0;
  else if (is_damaged(f, tail.size, written))
    return holds(f->dirfd, &f->place)
               ? manta_error_set(err, MANTA_ECORRUPT,
                                 "run.log is damaged at byte %" PRId64 " of segment %d", at,
                                 manta__log_reader_segment(f->reader))
               : begin_anew(f);
  return written ? MANTA__FOLLOW_WAIT : MANTA__FOLLOW_END;
}

// There is no log yet, or no directory any more.
static int judge_none(manta__log_follow *f, bool written)
{
  struct stat sb;
  if (fstat(f->dirfd, &sb) == 0 && sb.st_nlink == 0)
    return MANTA__FOLLOW_GONE;
  return written ? MANTA__FOLLOW_WAIT : MANTA__FOLLOW_END;
}

// --- reading -------------------------------------------------------------------------------------

static int take(manta__log_follow *f, const struct manta__record *head)
{
  int64_t end = manta__log_reader_at(f->reader);
  f->place = (struct manta__log_place){.segment = manta__log_reader_segment(f->reader),
                                       .start = end - (int64_t)(MANTA__RECORD_HEAD + head->len),
                                       .end = end,
                                       .hash = head->hash};
  f->found = true;
  return MANTA__FOLLOW_RECORD;
}

// As manta__log_follow_next, but for what comes before and after.
static int look(manta__log_follow *f, struct manta__record *head, const uint8_t **payload,
                manta_error *err)
{
  if (!f->reader)
    MANTA_TRY(open_reader(f, err));
  int rc = f->reader ? manta__log_next(f->reader, head, payload, err) : 0;
  bool written = rc == 0 && manta__runlock_holder(f->dirfd) != 0;
  if (rc == 0 && !written) { // (2)
    if (!f->reader)
      MANTA_TRY(open_reader(f, err));
    rc = f->reader ? manta__log_next(f->reader, head, payload, err) : 0;
  }
  if (rc != 0)
    return rc > 0 ? take(f, head) : rc;
  return f->reader ? judge_end(f, written, err) : judge_none(f, written);
}

int manta__log_follow_next(manta__log_follow *f, struct manta__record *head,
                           const uint8_t **payload, manta_error *err)
{
  if (f->waiting)
    manta__log_wake_clear(&f->wake);
  f->waiting = false;
  int rc = f->cut ? begin_anew(f) : look(f, head, payload, err);
  if (rc == MANTA__FOLLOW_RECORD || rc == MANTA__FOLLOW_CUT)
    return rc;
  manta__log_wake_arm(&f->wake, f->found);
  f->waiting = true;
  f->found = false;
  return rc;
}
