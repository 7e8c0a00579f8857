/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/tail.c - the end of a worker's log.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dash/catalog.h"
#include "sys/sock.h"

// The rank's log under the run's directory, if it is a plain file of the directory's owner: a link
// or a file of somebody else may lead to what was never printed.
static int open_log(const struct manta__catalog *c, const char *run, int rank, int64_t *size)
{
  char name[32];
  struct stat dir, file;
  snprintf(name, sizeof name, "rank-%d.log", rank);
  int top = openat(c->fd, run, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int logs = top < 0 ? -1 : openat(top, "logs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int fd = logs < 0 ? -1 : openat(logs, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0 && (fstat(top, &dir) < 0 || fstat(fd, &file) < 0 || !S_ISREG(file.st_mode) ||
                  file.st_uid != dir.st_uid))
    manta__fd_close(&fd);
  manta__fd_close(&logs);
  manta__fd_close(&top);
  if (fd >= 0)
    *size = file.st_size;
  return fd;
}

static manta_status read_end(int fd, int64_t size, size_t most, manta__buf *out)
{
  int64_t from = size > (int64_t)most ? size - (int64_t)most : 0;
  MANTA_TRY(manta__buf_reserve(out, most));
  ssize_t n = pread(fd, out->data, most, from);
  out->len = n > 0 ? (size_t)n : 0;
  const char *line = from > 0 && out->len > 0 ? memchr(out->data, '\n', out->len) : NULL;
  if (line)
    manta__buf_consume(out, (size_t)(line + 1 - (const char *)out->data));
  return MANTA_OK;
}

manta_status manta__catalog_tail(struct manta__catalog *c, const char *run, int rank, size_t most,
                                 manta__buf *out, manta_error *err)
{
  int64_t size = 0;
  pthread_mutex_lock(&c->lock);
  bool known = manta__catalog_find(c, run) != NULL;
  pthread_mutex_unlock(&c->lock);
  if (!known)
    return manta_error_set(err, MANTA_ENOENT, "no such run");
  int fd = open_log(c, run, rank, &size);
  if (fd < 0)
    return MANTA_OK; // it has printed nothing
  manta_status st = read_end(fd, size, most, out);
  close(fd);
  return st < 0 ? manta_error_set(err, st, "no memory for a log") : MANTA_OK;
}
