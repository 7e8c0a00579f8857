/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/export.c - a checkpoint copied out of its run, whole or not at all.
 *
 * (1) The bytes that are written are those that were hashed: both are read from one mapping.
 * (2) A file appears by rename. A directory is filled under another name, its manifest last, and
 *     appears by rename, too; one that is there already is never touched.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "ckpt/ckdir.h"
#include "cmd/ckpt.h"
#include "cmd/format.h"
#include "sys/file.h"
#include "sys/sock.h"

// --- One file ------------------------------------------------------------------------------------

static const struct manta__manifest_file *tensors_of(const struct manta__manifest *m)
{
  for (int i = 0; i < m->file_count; i++)
    if (!strcmp(m->files[i].name, MANTA__CKPT_TENSORS))
      return &m->files[i];
  return NULL;
}

// Maps the file and compares it with what the manifest says.
static manta_status map_file(int dir, const struct manta__manifest *m,
                             const struct manta__manifest_file *f, void **out, manta_error *err)
{
  struct stat sb;
  int fd = openat(dir, f->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &sb) < 0) {
    manta_error_set(err, MANTA_EIO, "open %s/%s: %m", m->name, f->name);
    manta__fd_close(&fd);
    return MANTA_EIO;
  }
  bool whole = (uint64_t)sb.st_size == f->bytes;
  void *p = whole && f->bytes > 0 ? mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
  close(fd);
  if (p == MAP_FAILED)
    return manta_error_set(err, MANTA_EIO, "map %s/%s: %m", m->name, f->name);
  if (!whole || manta__hash(p, f->bytes) != f->hash) {
    if (p)
      munmap(p, f->bytes);
    return manta_error_set(err, MANTA_ECORRUPT,
                           "%s/%s does not match its manifest and is not exported\n"
                           "hint: manta ckpt verify shows which checkpoints are whole",
                           m->name, f->name);
  }
  *out = p;
  return MANTA_OK;
}

static manta_status copy_file(int from, int to, const struct manta__manifest *m,
                              const struct manta__manifest_file *f, const char *name,
                              manta_error *err)
{
  void *p = NULL;
  MANTA_TRY(map_file(from, m, f, &p, err));
  manta_status st = manta__file_replace(to, name, p ? p : "", f->bytes, err);
  if (p)
    munmap(p, f->bytes);
  return st;
}

// --- Where to ------------------------------------------------------------------------------------

/* A path taken apart: its directory, open, and its last part. */
struct destination {
  int dir;
  char parent[PATH_MAX], last[NAME_MAX + 1];
};

static manta_status open_place(struct destination *p, const char *path, manta_error *err)
{
  char a[PATH_MAX], b[PATH_MAX];
  int n = snprintf(a, sizeof a, "%s", path);
  if (n <= 0 || n >= PATH_MAX)
    return manta_error_set(err, MANTA_EINVAL, "\"%s\" is not a path to write to", path);
  memcpy(b, a, sizeof b);
  const char *last = basename(a);
  snprintf(p->parent, sizeof p->parent, "%s", dirname(b));
  if (strlen(last) > NAME_MAX || !strcmp(last, "/") || !strcmp(last, ".") || !strcmp(last, ".."))
    return manta_error_set(err, MANTA_EINVAL, "\"%s\" is not a path to write to", path);
  snprintf(p->last, sizeof p->last, "%s", last);
  p->dir = open(p->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return p->dir < 0 ? manta_error_set(err, MANTA_EIO, "open directory %s: %m", p->parent)
                    : MANTA_OK;
}

static bool ends_with(const char *s, const char *end)
{
  size_t n = strlen(s), k = strlen(end);
  return n >= k && !strcmp(s + n - k, end);
}

static manta_status check_name(const char *to, manta_error *err)
{
  if (ends_with(to, ".pt") || ends_with(to, ".pth"))
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "export to %s comes with the Python package of manta, for it needs "
                           "PyTorch; this command writes .safetensors",
                           to);
  if (!ends_with(to, ".safetensors"))
    return manta_error_set(err, MANTA_EINVAL,
                           "--to needs a name that ends in .safetensors, not "
                           "\"%s\"",
                           to);
  return MANTA_OK;
}

static manta_status export_file(int from, const struct manta__manifest *m, const char *to,
                                manta_error *err)
{
  struct destination p;
  const struct manta__manifest_file *f = tensors_of(m);
  MANTA_TRY(check_name(to, err));
  if (!f)
    return manta_error_set(err, MANTA_ENOENT, "checkpoint %s has no tensors", m->name);
  MANTA_TRY(open_place(&p, to, err));
  manta_status st = copy_file(from, p.dir, m, f, p.last, err);
  close(p.dir);
  return st;
}

// --- A whole directory ---------------------------------------------------------------------------

static manta_status fill_dir(int from, int to, const struct manta__manifest *m, manta_error *err)
{
  char *text = NULL;
  size_t len;
  for (int i = 0; i < m->file_count; i++)
    MANTA_TRY(copy_file(from, to, m, &m->files[i], m->files[i].name, err));
  // Byte by byte: it may say more than this version knows.
  MANTA_TRY(
      manta__file_read(from, MANTA__CKPT_MANIFEST, MANTA__CKPT_MANIFEST_MAX, &text, &len, err));
  manta_status st = manta__file_replace(to, MANTA__CKPT_MANIFEST, text, len, err);
  manta_free(text);
  return st;
}

// renameat alone would replace an empty directory.
static manta_status put_in_place(const struct destination *p, const char *temp, manta_error *err)
{
  if (renameat2(p->dir, temp, p->dir, p->last, RENAME_NOREPLACE) == 0)
    return MANTA_OK;
  if (errno == EEXIST)
    return manta_error_set(err, MANTA_ESTATE, "%s/%s exists already and is left unchanged",
                           p->parent, p->last);
  return manta_error_set(err, MANTA_EIO, "rename to %s/%s: %m", p->parent, p->last);
}

static manta_status export_dir(int from, const struct manta__manifest *m, const char *path,
                               manta_error *err)
{
  struct destination p;
  char temp[64];
  int to;
  MANTA_TRY(open_place(&p, path, err));
  snprintf(temp, sizeof temp, ".manta-export-%d", (int)getpid());
  manta_status st = MANTA_OK;
  if (faccessat(p.dir, p.last, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
    st = manta_error_set(err, MANTA_ESTATE, "%s exists already and is left unchanged", path);
  if (st == MANTA_OK && (st = manta__dir_makeat(p.dir, temp, &to, err)) == MANTA_OK) {
    st = fill_dir(from, to, m, err);
    close(to);
    if (st == MANTA_OK)
      st = put_in_place(&p, temp, err);
    if (st < 0)
      manta__ckdir_remove(p.dir, temp);
  }
  close(p.dir);
  return st;
}

manta_status manta__ckpt_export(const struct manta__runref *r, const struct manta__manifest *m,
                                const struct manta__args *a, manta_error *err)
{
  const char *to = manta__args_get(a, "to"), *dir = manta__args_get(a, "dir");
  char size[MANTA__TEXT];
  if (!to == !dir)
    return manta_error_set(err, MANTA_EINVAL,
                           "manta ckpt export needs either --to FILE.safetensors or --dir DIR");
  int from = manta__ckpt_dir(r, m->name, err);
  if (from < 0)
    return err->status;
  manta_status st = to ? export_file(from, m, to, err) : export_dir(from, m, dir, err);
  close(from);
  if (st == MANTA_OK)
    printf("exported checkpoint %s (iteration %lld, %s) to %s\n", m->name, (long long)m->iteration,
           manta__text_size(size, m->bytes), to ? to : dir);
  return st;
}
