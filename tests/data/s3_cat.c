/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_cat NAME... - what the names stand for: a line each with the size, the XXH3 of the bytes, read
 * in pieces, and the name. The first that cannot be read is an error on stderr, and exit code 1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "data/source/source.h"

#define PIECE 300000 /* does not divide the chunks of a source */

static manta_status read_all(struct manta__source *s, manta_error *err)
{
  uint8_t *bytes = malloc((size_t)s->size + 1);
  manta_status st = MANTA_OK;
  manta__source_expect(s, 0, s->size);
  for (int64_t at = 0; at < s->size && st == MANTA_OK; at += PIECE)
    st = manta__source_read(s, at, bytes + at,
                            (size_t)(s->size - at < PIECE ? s->size - at : PIECE), err);
  if (st == MANTA_OK)
    printf("%" PRId64 " %016" PRIx64 " %s\n", s->size, manta__hash(bytes, (size_t)s->size),
           s->name);
  free(bytes);
  return st;
}

int main(int argc, char **argv)
{
  struct manta__listing l = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = manta__listing_make(&l, (const char *const *)argv + 1, (size_t)argc - 1, &err);
  for (size_t i = 0; i < l.count && st == MANTA_OK; i++) {
    struct manta__source *s;
    if ((st = manta__source_open(&s, l.found[i].name, &err)) < 0)
      break;
    if (s->size != l.found[i].size)
      st = manta_error_set(&err, MANTA_EIO, "%s: %" PRId64 " bytes, listed with %" PRId64, s->name,
                           s->size, l.found[i].size);
    if (st == MANTA_OK)
      st = read_all(s, &err);
    manta__source_close(s);
  }
  manta__listing_fini(&l);
  if (st < 0)
    fprintf(stderr, "%s: %s\n", manta_status_name(st), err.message);
  return st < 0;
}
