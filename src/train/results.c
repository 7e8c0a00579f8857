/* SPDX-License-Identifier: Apache-2.0 */
#include "train/results.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/pack.h"
#include "group/proto.h"
#include "sys/file.h"
#include "sys/shm.h"
#include "sys/sock.h"
#include "train/run.h"
#include "train/say.h"
#include "wire/conn.h"

#define DIRECTORY     "results"
#define TEMPORARY     ".result"
#define PIECE         (4u << 20) /* written before others have their turn */
#define FINISH_INLINE (4u << 20) /* results in the record itself; the rest go into files */
#define NAME_BYTES    64

struct manta__bulk {
  char kind[MANTA__RESULT_KIND]; /* "": the rank's result is small */
  void *data;                    /* NULL: it was delivered */
  size_t bytes;
  bool heap; /* allocated, not mapped */
  bool stored;
  uint64_t hash;
  char *path; /* for messages, or NULL */
};

static void bulk_release(struct manta__bulk *b)
{
  if (b->heap)
    manta_free(b->data);
  else
    manta__shm_unmap(b->data, b->bytes);
  b->data = NULL;
}

static void bulk_fini(struct manta__bulk *b)
{
  bulk_release(b);
  manta__free(b->path);
  *b = (struct manta__bulk){0};
}

static struct manta__bulk *bulk_of(const manta_run *r, int rank)
{
  bool there = r->bulk && rank >= 0 && rank < r->membership.places && r->bulk[rank].kind[0];
  return there ? &r->bulk[rank] : NULL;
}

static bool is_value(const struct manta__bulk *b)
{
  return !strcmp(b->kind, MANTA__RESULT_VALUE);
}

static void name_of(char name[NAME_BYTES], int rank, const struct manta__bulk *b)
{
  snprintf(name, NAME_BYTES, "rank-%d.%s", rank, b->kind);
}

void manta__results_forget(manta_run *r)
{
  for (int i = 0; i < r->membership.places; i++) {
    manta_value_fini(&r->result[i]);
    if (r->bulk)
      bulk_fini(&r->bulk[i]);
  }
}

// What lies beyond the places so far becomes empty: also what an earlier try left there.
static void *grow(void *p, size_t from, size_t to, size_t size)
{
  uint8_t *grown = manta__realloc(p, to * size);
  if (grown)
    memset(grown + from * size, 0, (to - from) * size);
  return grown;
}

manta_status manta__results_reserve(manta_run *r, int count, manta_error *err)
{
  size_t from = (size_t)r->membership.places, to = (size_t)count;
  manta_value *result = grow(r->result, from, to, sizeof *result);
  if (result)
    r->result = result;
  struct manta__bulk *bulk = result && r->bulk ? grow(r->bulk, from, to, sizeof *bulk) : NULL;
  if (bulk)
    r->bulk = bulk;
  if (!result || (r->bulk && !bulk))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the results of %d ranks", count);
  return MANTA_OK;
}

static manta_status have_bulk(manta_run *r, manta_error *err)
{
  if (!r->bulk && !(r->bulk = manta__calloc((size_t)r->membership.places, sizeof *r->bulk)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for results");
  return MANTA_OK;
}

// --- what a rank gives --------------------------------------------------------------------------

// The mapping keeps the memory; a descriptor per rank would add up.
static manta_status take_memory(manta_run *r, int rank, struct manta__msg *m, const char *kind,
                                manta_error *err)
{
  struct manta__bulk b = {0};
  size_t n = strspn(kind, "abcdefghijklmnopqrstuvwxyz0123456789");
  if (n == 0 || kind[n] || n >= sizeof b.kind)
    return manta_error_set(err, MANTA_EPROTO, "a result of an unknown kind");
  memcpy(b.kind, kind, n);
  MANTA_TRY(have_bulk(r, err));
  MANTA_TRY(manta__shm_map(m->fd[0], &b.data, &b.bytes, err));
  bulk_fini(&r->bulk[rank]);
  r->bulk[rank] = b;
  return MANTA_OK;
}

manta_status manta__results_give(manta_run *r, struct manta__msg *m,
                                 const struct manta__done_msg *done, manta_error *err)
{
  int rank = m->id.rank;
  if (manta_value_copy(&r->result[rank], done->result) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the result of rank %d", rank);
  return done->kind && m->fds > 0 ? take_memory(r, rank, m, done->kind, err) : MANTA_OK;
}

// --- into files ---------------------------------------------------------------------------------

// FINISH is one record: many small results are more than it may hold.
static void set_aside(manta_run *r)
{
  size_t total = 0;
  for (int i = 0; i < r->membership.world; i++) {
    struct manta__bulk b = {.heap = true, .kind = MANTA__RESULT_VALUE};
    size_t n = bulk_of(r, i) ? 0 : manta__pack_size(&r->result[i]);
    if (n == 0 || (total += n) <= FINISH_INLINE || have_bulk(r, NULL) < 0 ||
        manta_value_pack(&r->result[i], &b.data, &b.bytes, NULL) < 0)
      continue;
    manta_value_fini(&r->result[i]);
    r->bulk[i] = b;
  }
}

static bool next_rank(manta_run *r)
{
  struct manta__storing *s = &r->storing;
  for (s->rank++; s->rank < r->membership.world; s->rank++)
    if (bulk_of(r, s->rank))
      return true;
  return false;
}

bool manta__results_store(manta_run *r)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__storing *s = &r->storing;
  *s = (struct manta__storing){.rank = -1, .dir = -1, .fd = -1};
  if (r->exec || r->rundir < 0)
    return false;
  set_aside(r);
  if (!next_rank(r))
    return false;
  if (manta__dir_makeat(r->rundir, DIRECTORY, &s->dir, &err) == MANTA_OK &&
      (s->hash = XXH3_createState())) {
    s->busy = true;
    return true;
  }
  manta__run_warn(r->trainer, "the results are not kept in the run's directory: %s", err.message);
  manta__fd_close(&s->dir);
  return false;
}

void manta__results_stop(manta_run *r)
{
  struct manta__storing *s = &r->storing;
  if (!s->busy)
    return;
  s->busy = false;
  manta__fd_close(&s->fd);
  manta__fd_close(&s->dir);
  XXH3_freeState(s->hash);
  s->hash = NULL;
}

static int begin_file(struct manta__storing *s)
{
  unlinkat(s->dir, TEMPORARY, 0);
  s->fd = openat(s->dir, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  s->at = 0;
  XXH3_64bits_reset(s->hash);
  return s->fd;
}

static int end_file(struct manta__storing *s, int rank, struct manta__bulk *b)
{
  char name[NAME_BYTES];
  manta__fd_close(&s->fd);
  name_of(name, rank, b);
  if (renameat(s->dir, TEMPORARY, s->dir, name) < 0)
    return -1;
  b->hash = XXH3_64bits_digest(s->hash);
  b->stored = true;
  return 0;
}

// One piece of one file; -1 with errno.
static int write_piece(manta_run *r)
{
  struct manta__storing *s = &r->storing;
  struct manta__bulk *b = &r->bulk[s->rank];
  if (s->fd < 0 && begin_file(s) < 0)
    return -1;
  size_t n = b->bytes - s->at < PIECE ? b->bytes - s->at : PIECE;
  const char *p = (const char *)b->data + s->at;
  if (manta__write_all(s->fd, p, n, NULL) < 0)
    return -1;
  XXH3_64bits_update(s->hash, p, n);
  s->at += n;
  return s->at == b->bytes ? end_file(s, s->rank, b) : 0;
}

bool manta__results_step(manta_run *r)
{
  struct manta__storing *s = &r->storing;
  if (write_piece(r) < 0) {
    manta__run_warn(r->trainer, "the result of rank %d is not kept in the run's directory: %s",
                    s->rank, strerror(errno));
    manta__fd_close(&s->fd);
    unlinkat(s->dir, TEMPORARY, 0);
  }
  if (s->fd >= 0 || next_rank(r))
    return true;
  manta__results_stop(r);
  return false;
}

// --- in run.log ---------------------------------------------------------------------------------

static manta_status describe(manta_value *out, int rank, const struct manta__bulk *b)
{
  char name[NAME_BYTES], file[NAME_BYTES + sizeof DIRECTORY], hash[20];
  name_of(name, rank, b);
  snprintf(file, sizeof file, DIRECTORY "/%s", name);
  snprintf(hash, sizeof hash, "%016" PRIx64, b->hash);
  MANTA_TRY(manta_value_set_map(out));
  MANTA_TRY(manta_value_put_string(out, "file", file));
  MANTA_TRY(manta_value_put_string(out, "kind", b->kind));
  MANTA_TRY(manta_value_put_int(out, "bytes", (int64_t)b->bytes));
  return manta_value_put_string(out, "hash", hash);
}

manta_status manta__results_files(const manta_run *r, manta_value *out)
{
  bool any = false;
  for (int i = 0; i < r->membership.world; i++)
    any |= bulk_of(r, i) && r->bulk[i].stored;
  if (!any)
    return MANTA_OK;
  MANTA_TRY(manta_value_set_list(out));
  for (int i = 0; i < r->membership.world; i++) {
    manta_value one = {0};
    if (bulk_of(r, i) && r->bulk[i].stored)
      MANTA_TRY(describe(&one, i, &r->bulk[i]));
    MANTA_TRY(manta_value_append(out, &one));
  }
  return MANTA_OK;
}

// --- out of files -------------------------------------------------------------------------------

static manta_status map_file(struct manta__bulk *b, int fd, const char *hash, manta_error *err)
{
  struct stat sb;
  if (fstat(fd, &sb) < 0 || !S_ISREG(sb.st_mode) || (uint64_t)sb.st_size != b->bytes)
    return manta_error_set(err, MANTA_ECORRUPT,
                           "its size is not the %zu bytes that run.log records", b->bytes);
  void *p = mmap(NULL, b->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED)
    return manta_error_set(err, MANTA_ENOMEM, "map %zu bytes: %m", b->bytes);
  char found[20];
  snprintf(found, sizeof found, "%016" PRIx64, manta__hash(p, b->bytes));
  if (strcmp(found, hash) != 0) {
    munmap(p, b->bytes);
    return manta_error_set(err, MANTA_ECORRUPT, "it does not match the hash in run.log");
  }
  b->data = p;
  b->stored = true;
  return MANTA_OK;
}

static manta_status open_file(manta_run *r, int rank, const manta_value *v, manta_error *err)
{
  struct manta__bulk b = {0};
  char name[NAME_BYTES], file[NAME_BYTES + sizeof DIRECTORY];
  manta_error why = MANTA_ERROR_INIT;
  b.bytes = (size_t)manta_value_as_int(manta_value_get(v, "bytes"), 0);
  snprintf(b.kind, sizeof b.kind, "%s", manta_value_as_string(manta_value_get(v, "kind"), ""));
  name_of(name, rank, &b);
  if (strchr(b.kind, '/'))
    return manta_error_set(err, MANTA_ECORRUPT, "a result of an unknown kind");
  snprintf(file, sizeof file, DIRECTORY "/%s", name);
  int fd = openat(r->rundir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  manta_status st =
      fd < 0 ? manta_error_set(&why, MANTA_EIO, "%m")
             : map_file(&b, fd, manta_value_as_string(manta_value_get(v, "hash"), ""), &why);
  if (fd >= 0)
    close(fd);
  if (st < 0)
    return manta_error_set(err, st, "the result of rank %d, %s/%s: %s", rank, r->dir, file,
                           why.message);
  r->bulk[rank] = b;
  return MANTA_OK;
}

manta_status manta__results_open(manta_run *r, const manta_value *finish, manta_error *err)
{
  const manta_value *files = manta_value_get(finish, "files");
  size_t n = files && files->type == MANTA_LIST ? files->count : 0;
  if (n == 0)
    return MANTA_OK;
  if (n > MANTA_MAX_RANKS)
    return manta_error_set(err, MANTA_ECORRUPT, "run.log has results of %zu ranks", n);
  MANTA_TRY(manta__ranks_reserve(r, (int)n, err));
  r->membership.world = (int)n;
  MANTA_TRY(have_bulk(r, err));
  for (size_t i = 0; i < n; i++)
    if (manta_value_at(files, i)->type == MANTA_MAP)
      MANTA_TRY(open_file(r, (int)i, manta_value_at(files, i), err));
  return MANTA_OK;
}

// --- to the user, on its thread -----------------------------------------------------------------

const char *manta_run_result_file(const manta_run *r, int rank)
{
  char name[NAME_BYTES], path[PATH_MAX];
  struct manta__bulk *b = bulk_of(r, rank);
  if (!b || !b->stored || !r->dir)
    return "";
  name_of(name, rank, b);
  snprintf(path, sizeof path, "%s/" DIRECTORY "/%s", r->dir, name);
  if (!b->path)
    b->path = manta__strdup(path);
  return b->path ? b->path : "";
}

// Of a small one a copy: the list may lie in one block.
static manta_status deliver(const manta_run *r, int rank, manta_value *out, manta_error *err)
{
  const manta_value *small = manta_value_at(&r->results, (size_t)rank);
  struct manta__bulk *b = bulk_of(r, rank);
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = MANTA_OK;
  if (b && is_value(b))
    st = manta_value_unpack(out, b->data, b->bytes, &why);
  else if (b && b->bytes <= MANTA_VALUE_MAX_BYTES)
    *out = manta_value_borrow_bytes(b->data, b->bytes);
  else if (!b && small && (st = manta_value_copy(out, small)) < 0)
    manta_error_set(&why, st, "out of memory");
  if (st == MANTA_OK)
    return MANTA_OK;
  const char *file = manta_run_result_file(r, rank);
  return manta_error_set(err, st, "the result of rank %d cannot be delivered: %s%s%s", rank,
                         why.message, *file ? "\nit is in " : "", file);
}

static manta_status deliver_all(manta_run *r, manta_error *err)
{
  manta_value all = {0};
  manta_status st = manta_value_set_list(&all);
  for (int i = 0; i < r->membership.world && st == MANTA_OK; i++) {
    manta_value one = {0};
    st = deliver(r, i, &one, err);
    if (st == MANTA_OK && (st = manta_value_append(&all, &one)) < 0)
      manta_value_fini(&one);
  }
  if (st < 0) {
    manta_value_fini(&all);
    return st;
  }
  manta_value_move(&r->results, &all);
  return MANTA_OK;
}

// Without it the message of the failure has to do.
static void take_failure(manta_run *r)
{
  const struct manta__bulk *b = bulk_of(r, r->error.rank);
  if (b && is_value(b))
    manta_value_unpack(&r->result[r->error.rank], b->data, b->bytes, NULL);
}

manta_status manta__results_take(manta_run *r, manta_error *err)
{
  if (!r->bulk || r->taken)
    return MANTA_OK;
  if (r->error.status < 0) {
    r->taken = true;
    take_failure(r);
    return MANTA_OK;
  }
  MANTA_TRY(deliver_all(r, err));
  r->taken = true;
  for (int i = 0; i < r->membership.world; i++)
    if (bulk_of(r, i) && is_value(&r->bulk[i]))
      bulk_release(&r->bulk[i]);
  return MANTA_OK;
}

manta_status manta_run_result_bytes(const manta_run *r, int rank, const void **bytes, size_t *count,
                                    manta_error *err)
{
  const struct manta__bulk *b = manta_run_finished(r) ? bulk_of(r, rank) : NULL;
  if (!b || is_value(b) || r->error.status < 0)
    return manta_error_set(err, MANTA_ENOENT, "rank %d has not given its result as bytes", rank);
  *bytes = b->data;
  *count = b->bytes;
  return MANTA_OK;
}
