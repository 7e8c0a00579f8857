/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a run.log: readers end, the summary ends, a follower gives what readers do, whatever
 * place it begins from, and a writer that opens it can go on.
 *
 * No mutation would ever hit a checksum, so the first byte says what is made of the rest: bit 0,
 * the records in it are given right headers (what is fuzzed is then behind the checksum); bit 1, it
 * is split into two segments.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "event/log_follow.h"
#include "event/record.h"
#include "event/row.h"
#include "event/rundir.h"

#define MUST(x)                                                                                    \
  do {                                                                                             \
    if (!(x))                                                                                      \
      abort();                                                                                     \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int dir = -1;

static void no_warnings(void *ctx, manta_log_level level, const char *text)
{
}

static char path[] = "/dev/shm/manta-fuzz-XXXXXX"; // thousands of files a second: not on a disk

static void empty_dir(void)
{
  static const char *const names[] = {"run.log", "run.log.2", "run.log.damaged",
                                      "run.log.2.damaged"};
  for (int i = 0; i < 4; i++)
    unlinkat(dir, names[i], 0);
}

static void remove_dir(void)
{
  empty_dir();
  unlinkat(dir, ".lock", 0);
  MUST(rmdir(path) == 0);
}

static void open_dir(void)
{
  MUST(mkdtemp(path));
  dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  MUST(dir >= 0);
  atexit(remove_dir);
  manta_set_log(no_warnings, NULL);
}

static void put(const char *name, const uint8_t *p, size_t n)
{
  int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  MUST(fd >= 0);
  MUST(write(fd, p, n) == (ssize_t)n);
  close(fd);
}

// Makes records of the bytes: magic, a length that fits, the hash.
static void make_records(uint8_t *p, size_t n)
{
  for (size_t at = 0; n - at >= MANTA__RECORD_HEAD;) {
    struct manta__record h;
    memcpy(&h, p + at, sizeof h);
    h.magic = MANTA__LOG_MAGIC;
    h.zero = 0;
    h.len &= 255;
    h.kind &= 15;
    if (h.len > n - at - sizeof h)
      h.len = (uint32_t)(n - at - sizeof h);
    h.hash = manta__record_hash(&h, p + at + sizeof h);
    memcpy(p + at, &h, sizeof h);
    at += sizeof h + h.len;
  }
}

// Reads to the end; the number of records, and the last one's seq.
static void walk(const uint8_t *payload, size_t len)
{
  struct manta__row_walk w;
  double value;
  manta__row_walk(&w, payload, len);
  while (manta__row_next(&w, &value))
    ;
}

static int read_all(uint64_t *seq)
{
  manta__log_reader *r;
  struct manta__record h;
  const uint8_t *payload;
  int n = 0;
  MUST(manta__log_reader_open(&r, dir, NULL) == MANTA_OK);
  for (; manta__log_next(r, &h, &payload, NULL) > 0; n++) {
    *seq = h.id.seq;
    manta__row_iteration(payload, h.len);
    walk(payload, h.len);
  }
  MUST(manta__log_torn(r) >= 0);
  manta__log_reader_close(r);
  return n;
}

// Nobody writes, so the follower comes to an end; the number of records.
static int follow(const struct manta__log_place *from, struct manta__log_place *middle)
{
  manta__log_follow *f;
  struct manta__record h;
  const uint8_t *payload;
  int n = 0, rc;
  MUST(manta__log_follow_open(&f, dir, from, NULL) == MANTA_OK);
  while ((rc = manta__log_follow_next(f, &h, &payload, NULL)) != MANTA__FOLLOW_END) {
    MUST(rc == MANTA__FOLLOW_RECORD || (rc == MANTA__FOLLOW_CUT && n == 0));
    n += rc == MANTA__FOLLOW_RECORD;
    if (middle && n == 1)
      *middle = manta__log_follow_place(f);
  }
  manta__log_follow_close(f);
  return n;
}

// From the beginning, from behind the first record, and from wherever the input says.
static void follow_all(const uint8_t *data, size_t size, int records)
{
  struct manta__log_place middle = {0}, any = {0};
  memcpy(&any, data, size < sizeof any ? size : sizeof any);
  any.segment &= 3;
  any.start &= 0xffff;
  any.end &= 0xffff;
  MUST(follow(NULL, &middle) == records);
  MUST(follow(&middle, NULL) == (records > 0 ? records - 1 : 0));
  MUST(follow(&any, NULL) <= records);
}

static void sum_up(void)
{
  struct manta__run_summary s = {0};
  MUST(manta__run_summary_read(&s, dir, "x", NULL) == MANTA_OK);
  MUST(s.rows >= 0 && s.torn >= 0 && s.attempts >= 0 && s.world >= 0);
  manta__run_summary_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (dir < 0)
    open_dir();
  if (size == 0)
    return 0;
  uint8_t mode = data[0], *p = manta__malloc(size);
  size_t n = size - 1, half = mode & 2 ? n / 2 : n;
  memcpy(p, data + 1, n);
  if (mode & 1) {
    make_records(p, half);
    make_records(p + half, n - half);
  }
  empty_dir();
  put("run.log", p, half);
  if (half < n)
    put("run.log.2", p + half, n - half);
  manta__free(p);

  uint64_t seq = 0;
  int before = read_all(&seq);
  follow_all(data, size, before);
  sum_up();
  manta__log_writer *w;
  MUST(manta__log_writer_open(&w, dir, false, NULL) == MANTA_OK);
  struct manta__ident id = {1, 2, 3, 0xfeed};
  MUST(manta__log_add(w, MANTA__EV_NOTE, &id, 0, "\xc0", 1, NULL) == MANTA_OK);
  MUST(manta__log_flush(w, NULL) == MANTA_OK);
  manta__log_writer_close(w);
  MUST(read_all(&seq) == before + 1);
  MUST(follow(NULL, NULL) == before + 1);
  MUST(seq == 0xfeed);
  return 0;
}
