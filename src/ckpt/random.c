/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/random.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <manta/session.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "ckpt/ckdir.h"
#include "sys/file.h"
#include "sys/sock.h"

#define MAGIC 0x31444e52u /* "RND1" */

struct random_head { // of a file; the bytes follow
  uint32_t magic;
  int32_t rank;
  uint64_t hash;
};

void manta__random_name(char out[48], uint32_t attempt, int64_t iteration)
{
  manta__ckdir_beside_name(out, MANTA__CKPT_RANDOM, attempt, iteration);
}

bool manta__random_parse(const char *name, uint32_t *attempt, int64_t *iteration)
{
  return manta__ckdir_beside_parse(name, MANTA__CKPT_RANDOM, attempt, iteration);
}

// --- giving --------------------------------------------------------------------------------------

static manta_status make_place(int rundir, const char *name, int *out, manta_error *err)
{
  int dir;
  MANTA_TRY(manta__dir_makeat(rundir, "checkpoints", &dir, err));
  manta_status st = manta__dir_makeat(dir, name, out, err);
  close(dir);
  return st;
}

static int write_state(int dir, const char *name, const struct random_head *head, const void *bytes,
                       size_t len)
{
  int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  int rc = fd < 0 ? -1 : manta__write_all(fd, head, sizeof *head, NULL);
  if (rc == 0)
    rc = manta__write_all(fd, bytes, len, NULL);
  int saved = errno;
  manta__fd_close(&fd);
  errno = saved;
  return rc;
}

manta_status manta__random_put(int rundir, uint32_t attempt, int64_t iteration, int rank,
                               const void *bytes, size_t len, manta_error *err)
{
  struct random_head head = {MAGIC, rank, manta__hash(bytes, len)};
  char place[48], temp[32];
  int dir;
  manta__random_name(place, attempt, iteration);
  snprintf(temp, sizeof temp, ".rank-%d", rank);
  MANTA_TRY(make_place(rundir, place, &dir, err));
  manta_status st = MANTA_OK;
  if (write_state(dir, temp, &head, bytes, len) < 0 || renameat(dir, temp, dir, temp + 1) < 0) {
    st = manta_error_set(err, MANTA_EIO, "write %s/%s: %m", place, temp + 1);
    unlinkat(dir, temp, 0);
  }
  close(dir);
  return st;
}

// --- getting -------------------------------------------------------------------------------------

struct search {
  uint32_t before, best;
  int64_t iteration;
  bool found;
};

static manta_status look_at(void *ctx, const char *name)
{
  struct search *s = ctx;
  uint32_t attempt;
  int64_t iteration;
  if (manta__random_parse(name, &attempt, &iteration) && iteration == s->iteration &&
      attempt < s->before && (!s->found || attempt > s->best)) {
    s->best = attempt;
    s->found = true;
  }
  return MANTA_OK;
}

// The directory of the newest attempt that has one, or -1.
static int find_place(int rundir, uint32_t before, int64_t iteration)
{
  struct search s = {.before = before, .iteration = iteration};
  char name[48];
  int fd = -1, dir = openat(rundir, "checkpoints", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0 && manta__ckdir_each(dir, look_at, &s, NULL) == MANTA_OK && s.found) {
    manta__random_name(name, s.best, iteration);
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  }
  manta__fd_close(&dir);
  return fd;
}

static bool is_whole(const char *text, size_t len, int rank)
{
  struct random_head head;
  if (len < sizeof head)
    return false;
  memcpy(&head, text, sizeof head);
  return head.magic == MAGIC && head.rank == rank &&
         head.hash == manta__hash(text + sizeof head, len - sizeof head);
}

// False: there is none of that rank.
static bool read_state(int dir, int rank, void **bytes, size_t *len)
{
  size_t head = sizeof(struct random_head), n = 0;
  char name[32], *text = NULL;
  snprintf(name, sizeof name, "rank-%d", rank);
  bool ok = manta__file_read(dir, name, head + MANTA_RANDOM_MAX, &text, &n, NULL) == MANTA_OK &&
            is_whole(text, n, rank);
  if (ok) {
    memmove(text, text + head, n - head);
    *bytes = text;
    *len = n - head;
  } else {
    manta_free(text);
  }
  return ok;
}

int manta__random_get(int rundir, uint32_t attempt, int64_t iteration, int rank, void **bytes,
                      size_t *len)
{
  int owner = -1, dir = find_place(rundir, attempt, iteration);
  *bytes = NULL;
  *len = 0;
  if (dir < 0)
    return -1;
  if (read_state(dir, rank, bytes, len))
    owner = rank;
  else if (read_state(dir, 0, bytes, len))
    owner = 0;
  close(dir);
  return owner;
}
