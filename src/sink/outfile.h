/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/outfile.h - a file that grows at its end, may be cut back, and is recognised again.
 *
 * (1) What is appended is written by manta__outfile_flush, in one write where the kernel lets it.
 *     A write that fails leaves the file as long as it was.
 * (2) A file begins with its head, a literal. It may have a tail: some bytes behind its contents
 *     that every write puts there anew, and that are overwritten by what is appended next.
 * (3) A mark is the length together with a hash of the last bytes before it. A file that does not
 *     have these bytes is not the one that was marked: somebody else wrote to it, or a power cut
 *     took its end.
 */
#ifndef MANTA_SINK_OUTFILE_H
#define MANTA_SINK_OUTFILE_H

#include <stdint.h>

#include <manta/status.h>

#include "base/buf.h"

#define MANTA__OUTFILE_BUFFER (1u << 20) /* more than that is flushed without being asked */
#define MANTA__OUTFILE_HASHED 64         /* bytes of a mark's hash */

struct manta__outfile {
  int fd;
  char name[256];
  const char *head, *tail;
  int64_t size;   /* contents in the file, without the tail */
  manta__buf buf; /* to be appended */
};

struct manta__outfile_mark {
  int64_t size, hash;
};

/* Opens or makes it; it has the contents it had, until manta__outfile_back. name: of a file in
 * dirfd. head and tail: literals, "" perhaps. */
manta_status manta__outfile_open(struct manta__outfile *o, int dirfd, const char *name,
                                 const char *head, const char *tail, manta_error *err);
void manta__outfile_close(struct manta__outfile *o);
/* The buffer to append to; flushed before, if it is full. */
manta_status manta__outfile_room(struct manta__outfile *o, manta_error *err);
manta_status manta__outfile_flush(struct manta__outfile *o, manta_error *err);
/* Of the file as it is flushed. MANTA_EIO: its hash is then 0, which is never right. */
struct manta__outfile_mark manta__outfile_mark(const struct manta__outfile *o);
/* Cuts it there, {0}: behind its head; what is buffered is dropped. MANTA_ECORRUPT: (3). */
manta_status manta__outfile_back(struct manta__outfile *o, struct manta__outfile_mark m,
                                 manta_error *err);

#endif
