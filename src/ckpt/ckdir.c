/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/ckdir.c - one checkpoint's directory.
 *
 * (1) A file is hashed in the pass that writes it: a piece is read into the cache by the hash, and
 *     the kernel copies it from there.
 * (2) Each piece is sent to the disk at once, so that fsync has only the last ones to wait for.
 * (3) Names are opened without following links: what lies here is ours or is not touched.
 */
#include "ckpt/ckdir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "sys/file.h"

#define PIECE (4u << 20)

static_assert(MANTA__CKPT_MANIFEST_MAX >
                  MANTA__EXTRA_COUNT * (MANTA__EXTRA_MAX / 3 * 4 + 64) + 8192,
              "a manifest with all extras is read again");

/* --- Names --- */

void manta__ckdir_name(char out[32], int64_t number)
{
  snprintf(out, 32, "%06" PRId64, number);
}

int64_t manta__ckdir_number(const char *name)
{
  char again[32];
  int64_t n = 0;
  size_t len = strspn(name, "0123456789");
  if (len < 6 || len > 18 || name[len])
    return -1;
  for (const char *p = name; *p; p++)
    n = 10 * n + (*p - '0');
  manta__ckdir_name(again, n);
  return strcmp(again, name) ? -1 : n;
}

void manta__ckdir_files_name(char out[48], uint32_t attempt, uint64_t number)
{
  snprintf(out, 48, MANTA__CKPT_FILES "%" PRIu32 "-%" PRIu64, attempt, number);
}

bool manta__ckdir_files_parse(const char *name, uint32_t *attempt, uint64_t *number)
{
  char again[48];
  if (sscanf(name, MANTA__CKPT_FILES "%" SCNu32 "-%" SCNu64, attempt, number) != 2)
    return false;
  manta__ckdir_files_name(again, *attempt, *number);
  return !strcmp(again, name);
}

void manta__ckdir_beside_name(char out[48], const char *prefix, uint32_t attempt, int64_t iteration)
{
  char behind[16] = "";
  if (attempt > 0)
    snprintf(behind, sizeof behind, "-%" PRIu32, attempt);
  snprintf(out, 48, "%s%06" PRId64 "%s", prefix, iteration, behind);
}

bool manta__ckdir_beside_parse(const char *name, const char *prefix, uint32_t *attempt,
                               int64_t *iteration)
{
  char again[48];
  size_t n = strlen(prefix);
  *attempt = 0;
  if (strncmp(name, prefix, n) != 0 ||
      sscanf(name + n, "%" SCNd64 "-%" SCNu32, iteration, attempt) < 1)
    return false;
  manta__ckdir_beside_name(again, prefix, *attempt, *iteration);
  return !strcmp(again, name);
}

void manta__ckdir_user_name(char out[48], uint32_t attempt, int64_t iteration)
{
  manta__ckdir_beside_name(out, MANTA__CKPT_USER, attempt, iteration);
}

bool manta__ckdir_user_parse(const char *name, uint32_t *attempt, int64_t *iteration)
{
  return manta__ckdir_beside_parse(name, MANTA__CKPT_USER, attempt, iteration);
}

bool manta__ckdir_user_there(int parent, const struct manta__manifest *m)
{
  char name[48];
  struct stat sb;
  manta__ckdir_user_name(name, m->id.attempt, m->iteration);
  return !m->directory ||
         (fstatat(parent, name, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(sb.st_mode));
}

manta_status manta__ckdir_each(int dirfd, manta_status (*fn)(void *ctx, const char *name),
                               void *ctx, manta_error *err)
{
  int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    manta_error_set(err, MANTA_EIO, "read a checkpoint directory: %m");
    if (fd >= 0)
      close(fd);
    return MANTA_EIO;
  }
  manta_status st = MANTA_OK;
  struct dirent *e;
  while (st >= 0 && (errno = 0, e = readdir(d)))
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      st = fn(ctx, e->d_name);
  if (st >= 0 && errno)
    st = manta_error_set(err, MANTA_EIO, "read a checkpoint directory: %m");
  closedir(d);
  return st;
}

static int open_dir(int parent, const char *name)
{
  return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* --- Reading -------------------------------------------------------------------------------------
 */

manta_status manta__ckdir_manifest(int dir, struct manta__manifest *out, manta_error *err)
{
  char *text = NULL;
  size_t len = 0;
  manta_status st =
      manta__file_read(dir, MANTA__CKPT_MANIFEST, MANTA__CKPT_MANIFEST_MAX, &text, &len, err);
  if (st == MANTA_OK)
    st = manta__manifest_parse(out, NULL, text, len, err);
  manta_free(text);
  return st;
}

manta_status manta__ckdir_manifest_of(int fd, struct manta__manifest *out,
                                      struct manta__extras *extras, manta_error *err)
{
  char *text = manta__malloc(MANTA__CKPT_MANIFEST_MAX + 1);
  ssize_t n = text ? pread(fd, text, MANTA__CKPT_MANIFEST_MAX + 1, 0) : 0;
  manta_status st = MANTA_OK;
  if (!text)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for a manifest");
  else if (n < 0)
    st = manta_error_set(err, MANTA_EIO, "read %s: %m", MANTA__CKPT_MANIFEST);
  else if (n > (ssize_t)MANTA__CKPT_MANIFEST_MAX)
    st = manta_error_set(err, MANTA_ECORRUPT, "%s is over %u bytes", MANTA__CKPT_MANIFEST,
                         MANTA__CKPT_MANIFEST_MAX);
  if (st == MANTA_OK)
    st = manta__manifest_parse(out, extras, text, (size_t)n, err);
  manta__free(text);
  return st;
}

manta_status manta__ckdir_read(int parent, const char *name, struct manta__manifest *out,
                               manta_error *err)
{
  int dir = open_dir(parent, name);
  if (dir < 0)
    return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "open %s: %m", name);
  struct manta__manifest m;
  manta_status st = manta__ckdir_manifest(dir, &m, err);
  close(dir);
  MANTA_TRY(st);
  if (strcmp(m.name, name) != 0)
    return manta_error_set(err, MANTA_ECORRUPT, "the manifest is of checkpoint %s", m.name);
  *out = m;
  return MANTA_OK;
}

// Hash of all that can be read; -1 with errno.
static int hash_all(int fd, XXH3_state_t *x, char *piece, uint64_t *bytes)
{
  *bytes = 0;
  for (;;) {
    ssize_t n = read(fd, piece, PIECE);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return (int)n;
    XXH3_64bits_update(x, piece, (size_t)n);
    *bytes += (uint64_t)n;
  }
}

static manta_status compare(int fd, const struct manta__manifest *m,
                            const struct manta__manifest_file *f, manta_error *err)
{
  manta_status st = MANTA_OK;
  uint64_t bytes;
  XXH3_state_t *x = XXH3_createState();
  char *piece = manta__malloc(PIECE);
  if (!x || !piece)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory to verify a checkpoint");
  else if (XXH3_64bits_reset(x) != XXH_OK || hash_all(fd, x, piece, &bytes) < 0)
    st = manta_error_set(err, MANTA_EIO, "read %s/%s: %m", m->name, f->name);
  else if (bytes != f->bytes || XXH3_64bits_digest(x) != f->hash)
    st =
        manta_error_set(err, MANTA_ECORRUPT, "%s/%s does not match its manifest", m->name, f->name);
  XXH3_freeState(x);
  manta__free(piece);
  return st;
}

manta_status manta__ckdir_verify(int parent, const struct manta__manifest *m, manta_error *err)
{
  int dir = open_dir(parent, m->name);
  if (dir < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", m->name);
  manta_status st = MANTA_OK;
  if (!manta__ckdir_user_there(parent, m))
    st = manta_error_set(err, MANTA_ECORRUPT, "the directory of checkpoint %s is gone", m->name);
  for (int i = 0; st == MANTA_OK && i < m->file_count; i++) {
    int fd = openat(dir, m->files[i].name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
      st = manta_error_set(err, MANTA_ECORRUPT, "open %s/%s: %m", m->name, m->files[i].name);
      break;
    }
    st = compare(fd, m, &m->files[i], err);
    close(fd);
  }
  close(dir);
  return st;
}

/* --- Writing --- */

static int write_pieces(int fd, const uint8_t *p, size_t n, XXH3_state_t *x)
{
  for (size_t at = 0; at < n;) {
    size_t len = n - at < PIECE ? n - at : PIECE;
    XXH3_64bits_update(x, p + at, len);
    if (manta__write_all(fd, p + at, len, NULL) < 0)
      return -1;
    sync_file_range(fd, (off_t)at, (off_t)len, SYNC_FILE_RANGE_WRITE); // a hint: failure is fsync's
    at += len;
  }
  return fsync(fd);
}

manta_status manta__ckdir_put(int dir, const char *name, const uint8_t *p, size_t n,
                              struct manta__manifest_file *out, manta_error *err)
{
  XXH3_state_t *x = XXH3_createState();
  if (!x || XXH3_64bits_reset(x) != XXH_OK) {
    XXH3_freeState(x);
    return manta_error_set(err, MANTA_ENOMEM, "no memory to write %s", name);
  }
  int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  int rc = fd < 0 ? -1 : write_pieces(fd, p, n, x);
  manta_status st = rc < 0 ? manta_error_set(err, MANTA_EIO, "write %s: %m", name) : MANTA_OK;
  if (fd >= 0)
    close(fd);
  if (st == MANTA_OK) {
    *out = (struct manta__manifest_file){.bytes = n, .hash = XXH3_64bits_digest(x)};
    snprintf(out->name, sizeof out->name, "%s", name);
  }
  XXH3_freeState(x);
  return st;
}

struct adoption {
  int from, to;
  manta_error *err;
};

static manta_status adopt_file(void *ctx, const char *name)
{
  const struct adoption *a = ctx;
  if (renameat(a->from, name, a->to, name) == 0)
    return MANTA_OK;
  return manta_error_set(a->err, MANTA_EIO, "move the file %s into its checkpoint: %m", name);
}

manta_status manta__ckdir_adopt(int parent, const char *name, int dir, manta_error *err)
{
  struct adoption a = {open_dir(parent, name), dir, err};
  if (a.from < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", name);
  manta_status st = manta__ckdir_each(a.from, adopt_file, &a, err);
  close(a.from);
  if (st == MANTA_OK && unlinkat(parent, name, AT_REMOVEDIR) < 0)
    st = manta_error_set(err, MANTA_EIO, "remove %s: %m", name);
  return st;
}

/* --- The end --- */

static manta_status remove_file(void *ctx, const char *name)
{
  unlinkat(*(int *)ctx, name, 0); // what stays makes the rmdir fail
  return MANTA_OK;
}

int manta__ckdir_remove(int parent, const char *name)
{
  int dir = open_dir(parent, name);
  if (dir < 0)
    return errno == ENOENT ? 0 : -1;
  int rc = unlinkat(dir, MANTA__CKPT_MANIFEST, 0);
  if (rc == 0)
    rc = fsync(dir);
  else if (errno == ENOENT)
    rc = 0;
  if (rc == 0)
    manta__ckdir_each(dir, remove_file, &dir, NULL);
  int saved = errno;
  close(dir);
  errno = saved;
  return rc < 0 ? -1 : unlinkat(parent, name, AT_REMOVEDIR);
}
