/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/zip.h - the members of a zip file, as its central directory has them. Zip64 is read,
 * encryption and methods other than "stored" and "deflated" are not.
 */
#ifndef MANTA_DATA_BINARY_ZIP_H
#define MANTA_DATA_BINARY_ZIP_H

#include "data/source/codec.h"
#include "data/source/source.h"

#define MANTA__ZIP_MEMBERS   65536
#define MANTA__ZIP_DIRECTORY (64u << 20) /* bytes of a central directory */

struct manta__zip_member {
  char *name;
  enum manta__compression form; /* PLAIN or DEFLATE */
  int64_t from, to;             /* its bytes in the file */
  int64_t size;                 /* when it is decoded */
  uint32_t crc;                 /* of what is decoded */
};

/* {0} is empty. */
struct manta__zip {
  struct manta__zip_member *member;
  int count;
};

/* MANTA_ECORRUPT: it is no zip file, or not whole; MANTA_EUNSUPPORTED. */
manta_status manta__zip_read(struct manta__zip *out, struct manta__source *s, manta_error *err);
void manta__zip_fini(struct manta__zip *z);

#endif
