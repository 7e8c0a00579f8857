/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/checkpoint.c - reading a checkpoint, out of a slot or from disk. Nothing is copied: the
 * tensors are where the file (or the slot) is mapped.
 *
 * (1) What is mapped is read-only. A file is mapped privately and stays readable when retention
 * deletes it; a slot stays as it is only while it is RETIRED or otherwise kept from its worker. (2)
 * Opening checks the manifest, the sizes, the tensors' header and the value; `verify` also every
 *     byte.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "ckpt/ckdir.h"
#include "ckpt/origin.h"
#include "ckpt/safetensors.h"
#include "ckpt/slot.h"
#include "ckpt/store.h"
#include "sys/shm.h"

#define COPY_AT_ONCE (16u << 20)

struct manta_checkpoint {
  const uint8_t *map;
  size_t map_len;
  struct manta__st tensors; /* point into the map */
  manta_value value, extra[MANTA__EXTRA_COUNT];
  int64_t iteration;
  bool given;
};

/* --- Out of a slot --- */

static manta_status load_slot(manta_checkpoint *c, int fd, manta_error *err)
{
  struct manta__slot_meta meta;
  MANTA_TRY(manta__slot_map(fd, &c->map, &c->map_len, &meta, err));
  c->iteration = meta.iteration;
  MANTA_TRY(manta__st_open(&c->tensors, c->map + meta.tensors_off, meta.tensors_len, err));
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++)
    if (meta.extra[i].len)
      MANTA_TRY(
          manta_value_unpack(&c->extra[i], c->map + meta.extra[i].off, meta.extra[i].len, err));
  return manta_value_unpack(&c->value, c->map + meta.value_off, meta.value_len, err);
}

/* --- From disk --- */

static const struct manta__manifest_file *file_of(const struct manta__manifest *m, const char *name)
{
  for (int i = 0; i < m->file_count; i++)
    if (!strcmp(m->files[i].name, name))
      return &m->files[i];
  return NULL;
}

static manta_status map_checked(int fd, const struct manta__manifest_file *f, bool verify,
                                const uint8_t **map, manta_error *err)
{
  struct stat sb;
  if (fstat(fd, &sb) < 0)
    return manta_error_set(err, MANTA_EIO, "stat %s: %m", f->name);
  if (!S_ISREG(sb.st_mode) || (uint64_t)sb.st_size != f->bytes || f->bytes == 0)
    return manta_error_set(err, MANTA_ECORRUPT, "%s has %lld bytes, its manifest says %" PRIu64,
                           f->name, (long long)sb.st_size, f->bytes);
  void *p = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED)
    return manta_error_set(err, MANTA_ENOMEM, "map %s: %m", f->name);
  if (verify && manta__hash(p, f->bytes) != f->hash) {
    munmap(p, f->bytes);
    return manta_error_set(err, MANTA_ECORRUPT, "%s does not match its manifest", f->name);
  }
  *map = p;
  return MANTA_OK;
}

static manta_status map_file(int fd, const struct manta__manifest *m, const char *name, bool verify,
                             const uint8_t **map, size_t *len, manta_error *err)
{
  const struct manta__manifest_file *f = file_of(m, name);
  if (!f)
    return manta_error_set(err, MANTA_ECORRUPT, "the manifest does not name %s", name);
  MANTA_TRY(map_checked(fd, f, verify, map, err));
  *len = f->bytes;
  return MANTA_OK;
}

static manta_status load_manifest(manta_checkpoint *c, int fd, struct manta__manifest *m,
                                  manta_error *err)
{
  struct manta__extras extras = {0};
  MANTA_TRY(manta__ckdir_manifest_of(fd, m, &extras, err));
  manta_status st = MANTA_OK;
  for (int i = 0; i < MANTA__EXTRA_COUNT && st == MANTA_OK; i++)
    st = manta__extras_value(&extras, (enum manta__extra)i, &c->extra[i], err);
  manta__extras_fini(&extras);
  c->iteration = m->iteration;
  return st;
}

static manta_status load_files(manta_checkpoint *c, const int fd[3], bool verify, manta_error *err)
{
  struct manta__manifest m;
  const uint8_t *value = NULL;
  size_t len = 0;
  MANTA_TRY(load_manifest(c, fd[0], &m, err));
  MANTA_TRY(map_file(fd[1], &m, MANTA__CKPT_TENSORS, verify, &c->map, &c->map_len, err));
  MANTA_TRY(manta__st_open(&c->tensors, c->map, c->map_len, err));
  MANTA_TRY(map_file(fd[2], &m, MANTA__CKPT_VALUE, verify, &value, &len, err));
  manta_status st = manta_value_unpack(&c->value, value, len, err);
  munmap((void *)(uintptr_t)value, len);
  return st;
}

static manta_status load_dir(manta_checkpoint *c, int dir, bool verify, manta_error *err)
{
  struct manta__origin o;
  MANTA_TRY(manta__origin_open(&o, dir, err));
  manta_status st = load_files(c, o.fd, verify, err);
  manta__origin_close(&o);
  return st;
}

/* --- Disk to slot --- */

struct copy {
  int to;
  void (*tick)(void *ctx);
  void *ctx;
};

// Appends a file of the checkpoint at `at`.
static manta_status copy_file(const struct copy *c, int fd, const struct manta__manifest_file *f,
                              uint64_t at, manta_error *err)
{
  uint64_t left = f->bytes;
  off_t from = 0;
  if (lseek(c->to, (off_t)at, SEEK_SET) < 0)
    return manta_error_set(err, MANTA_EIO, "seek in a slot: %m");
  for (ssize_t n; left > 0; left -= (uint64_t)n) {
    n = sendfile(c->to, fd, &from, left < COPY_AT_ONCE ? (size_t)left : COPY_AT_ONCE);
    if (n <= 0)
      break;
    c->tick(c->ctx);
  }
  return left == 0 ? MANTA_OK : manta_error_set(err, MANTA_EIO, "read %s: %m", f->name);
}

static manta_status copy_extras(int to, const struct manta__extras *e,
                                const struct manta__slot_meta *meta, manta_error *err)
{
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    const struct manta__extra_bytes *b = &e->item[i];
    if (b->len && pwrite(to, b->bytes, b->len, (off_t)meta->extra[i].off) != (ssize_t)b->len)
      return manta_error_set(err, MANTA_EIO, "write to a slot: %m");
  }
  return MANTA_OK;
}

static void describe_slot(struct manta__slot_meta *meta, const struct manta__manifest *m,
                          uint64_t tensors_len, uint64_t value_len, const struct manta__extras *e)
{
  *meta = (struct manta__slot_meta){.magic = MANTA__SLOT_MAGIC,
                                    .state = MANTA__SLOT_RETIRED,
                                    .has_score = m->has_score,
                                    .id = m->id,
                                    .iteration = m->iteration,
                                    .wall_ns = m->wall_ns,
                                    .score = m->score,
                                    .tensors_off = MANTA__SLOT_META,
                                    .tensors_len = tensors_len,
                                    .value_off = MANTA__SLOT_META + tensors_len,
                                    .value_len = value_len,
                                    .world = m->world};
  uint64_t end = meta->value_off + value_len;
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    meta->extra[i] = (struct manta__slot_part){end, e->item[i].len};
    end += e->item[i].len;
  }
  meta->capacity = (end + 4095) / 4096 * 4096;
}

static manta_status fill_slot(const struct copy *c, const int fd[3],
                              const struct manta__manifest *m, const struct manta__extras *e,
                              const struct manta__slot_meta *meta, manta_error *err)
{
  MANTA_TRY(copy_file(c, fd[1], file_of(m, MANTA__CKPT_TENSORS), meta->tensors_off, err));
  MANTA_TRY(copy_file(c, fd[2], file_of(m, MANTA__CKPT_VALUE), meta->value_off, err));
  MANTA_TRY(copy_extras(c->to, e, meta, err));
  if (pwrite(c->to, meta, sizeof *meta, 0) != (ssize_t)sizeof *meta)
    return manta_error_set(err, MANTA_EIO, "write to a slot: %m");
  return MANTA_OK;
}

static manta_status make_slot(struct copy *c, const int fd[3], const struct manta__manifest *m,
                              const struct manta__extras *e, manta_error *err)
{
  struct manta__slot_meta meta;
  const struct manta__manifest_file *tensors = file_of(m, MANTA__CKPT_TENSORS),
                                    *value = file_of(m, MANTA__CKPT_VALUE);
  if (!tensors || !value)
    return manta_error_set(err, MANTA_ECORRUPT, "the manifest does not name all files");
  describe_slot(&meta, m, tensors->bytes, value->bytes, e);
  MANTA_TRY(manta__shm_create("manta-ckpt", meta.capacity, &c->to, err));
  manta_status st = fill_slot(c, fd, m, e, &meta, err);
  if (st < 0)
    close(c->to);
  return st;
}

manta_status manta__checkpoint_to_slot(const int fd[3], void (*tick)(void *ctx), void *ctx,
                                       int *slot_out, manta_error *err)
{
  struct manta__manifest m;
  struct manta__extras extras = {0};
  struct copy c = {.to = -1, .tick = tick, .ctx = ctx};
  MANTA_TRY(manta__ckdir_manifest_of(fd[0], &m, &extras, err));
  manta_status st = make_slot(&c, fd, &m, &extras, err);
  manta__extras_fini(&extras);
  if (st == MANTA_OK)
    *slot_out = c.to;
  return st;
}

/* --- The public side --- */

static manta_status load(manta_checkpoint **out, const int *fd, int count, bool verify,
                         manta_error *err)
{
  struct stat sb;
  if (fstat(fd[0], &sb) < 0)
    return manta_error_set(err, MANTA_EIO, "stat a checkpoint: %m");
  manta_checkpoint *c = manta__calloc(1, sizeof *c);
  if (!c)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a checkpoint");
  manta_status st = count == 3            ? load_files(c, fd, verify, err)
                    : S_ISDIR(sb.st_mode) ? load_dir(c, fd[0], verify, err)
                                          : load_slot(c, fd[0], err);
  if (st < 0)
    manta_checkpoint_close(c);
  else
    *out = c;
  return st;
}

manta_status manta__checkpoint_from_fd(manta_checkpoint **out, int fd, bool verify,
                                       manta_error *err)
{
  return load(out, &fd, 1, verify, err);
}

manta_status manta__checkpoint_from_files(manta_checkpoint **out, const int fd[3], bool verify,
                                          manta_error *err)
{
  return load(out, fd, 3, verify, err);
}

void manta__checkpoint_mark(manta_checkpoint *c, bool given)
{
  c->given = given;
}

bool manta_checkpoint_given(const manta_checkpoint *c)
{
  return c->given;
}

manta_status manta_checkpoint_open(manta_checkpoint **out, const char *dir, bool verify,
                                   manta_error *err)
{
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "open %s: %m", dir);
  manta_status st = manta__checkpoint_from_fd(out, fd, verify, err);
  close(fd);
  return st;
}

void manta_checkpoint_close(manta_checkpoint *c)
{
  if (!c)
    return;
  manta__st_fini(&c->tensors);
  manta_value_fini(&c->value);
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++)
    manta_value_fini(&c->extra[i]);
  if (c->map)
    munmap((void *)(uintptr_t)c->map, c->map_len);
  manta__free(c);
}

size_t manta_checkpoint_count(const manta_checkpoint *c)
{
  return c->tensors.count;
}

const manta_tensor *manta_checkpoint_at(const manta_checkpoint *c, size_t i)
{
  return i < c->tensors.count ? &c->tensors.tensors[i] : NULL;
}

const manta_tensor *manta_checkpoint_tensor(const manta_checkpoint *c, const char *name)
{
  int64_t i = manta__st_index_find(&c->tensors.index, c->tensors.tensors, name);
  return i < 0 ? NULL : &c->tensors.tensors[i];
}

const manta_value *manta_checkpoint_value(const manta_checkpoint *c)
{
  return &c->value;
}

const manta_value *manta__checkpoint_extra(const manta_checkpoint *c, enum manta__extra which)
{
  return &c->extra[which];
}

int64_t manta_checkpoint_iteration(const manta_checkpoint *c)
{
  return c->iteration;
}

manta_status manta_checkpoint_copy(const manta_checkpoint *c, const char *name, void *dst,
                                   size_t bytes, manta_error *err)
{
  const manta_tensor *t = manta_checkpoint_tensor(c, name);
  if (!t)
    return manta_error_set(err, MANTA_ENOENT, "the checkpoint has no tensor \"%s\"", name);
  int64_t has = manta_tensor_bytes(t);
  if ((uint64_t)has != bytes)
    return manta_error_set(err, MANTA_ETYPE, "tensor \"%s\" has %" PRId64 " bytes, not %zu", name,
                           has, bytes);
  if (bytes)
    memcpy(dst, t->data, bytes);
  return MANTA_OK;
}
