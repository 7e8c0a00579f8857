/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/file.h - files, always under a directory's descriptor, and files that appear whole or not at
 * all.
 *
 * Tests inject faults through manta__file_fault: every byte that manta writes to a file goes
 * through manta__write_all, so a short write and a full disk can be made to happen at any byte.
 */
#ifndef MANTA_SYS_FILE_H
#define MANTA_SYS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <manta/status.h>

/* Writes all n bytes at the file's position, over interruptions and short writes. 0, or -1 with
 * errno; *done (may be NULL) gets what was written. */
int manta__write_all(int fd, const void *p, size_t n, size_t *done);

/* Makes `dir` and its parents (0700 for those it makes) and gives a descriptor to it. */
manta_status manta__dir_make(const char *dir, int *fd_out, manta_error *err);
/* Makes `name` under dirfd (0700) if it is not there, and gives a descriptor to it. */
manta_status manta__dir_makeat(int dirfd, const char *name, int *fd_out, manta_error *err);

/* The absolute path of an open directory, for messages and listings: PATH_MAX bytes. "?" if
 * unknown. */
void manta__dir_path(int dirfd, char *path);

/* Reads a whole regular file of at most `limit` bytes; *out is NUL-terminated behind *len;
 * manta_free it. */
manta_status manta__file_read(int dirfd, const char *name, size_t limit, char **out, size_t *len,
                              manta_error *err);
/* temp file, write, fsync, rename, fsync of the directory: at every moment `name` has the old
 * content or the new. On failure it has the old one and the temp file is gone, unless the message
 * says "sync": then it has the new one, which a power cut may still undo. */
manta_status manta__file_replace(int dirfd, const char *name, const void *p, size_t n,
                                 manta_error *err);
/* The same without a sync: a power cut may leave an empty file. For what can be made again. */
manta_status manta__file_swap(int dirfd, const char *name, const void *p, size_t n,
                              manta_error *err);

/* From now on, after `bytes` more bytes manta__write_all fails with `error` (and goes on failing
 * until called with error 0); `max_write` > 0 also cuts every single write to that many bytes. This
 * process only. Returns how often a fault fired since the last call. */
long manta__file_fault(int64_t bytes, int error, size_t max_write);

#endif
