/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/storage.c - `manta upload` and `manta download`: runs between this host and a store.
 */
#include <stdio.h>

#include <manta/storage.h>
#include <manta/value.h>

#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"

int manta__cmd_upload(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r;
  if (manta__runref_open(&r, a->operand[0], &err) < 0)
    return manta__complain(&err);
  manta_status st = manta_storage_complete(r.path, &err);
  if (st == MANTA_ENOENT)
    manta__say("%s is not meant to be stored elsewhere\nhint: the logdir of its trainer must be "
               "s3://BUCKET/PREFIX",
               r.name);
  manta__runref_close(&r);
  return st == MANTA_ENOENT ? MANTA__EXIT_FAILED : st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}

int manta__cmd_download(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  char *dir;
  if (manta_storage_fetch(a->operand[0], &dir, &err) < 0)
    return manta__complain(&err);
  printf("%s\n", dir);
  manta_free(dir);
  return MANTA__EXIT_OK;
}
