/* SPDX-License-Identifier: Apache-2.0
 *
 * store FOLDER put NAME FILE | claim NAME | get NAME FILE | ls [PREFIX] | rm NAME - what
 * remote/objects.h does, for tests against real servers. A failure is an error on stderr, and
 * exit code 1.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/objects.h"

static manta_status show(void *ctx, const char *name, int64_t size, manta_error *err)
{
  printf("%" PRId64 " %s\n", size, name);
  return MANTA_OK;
}

static manta_status act(struct manta__objects *o, char **argv, manta_error *err)
{
  struct stat sb;
  const char *verb = argv[0], *name = argv[1] ? argv[1] : "";
  if (!strcmp(verb, "ls"))
    return manta__objects_list(o, name, show, NULL, err);
  if (!strcmp(verb, "rm"))
    return manta__objects_remove(o, name, err);
  if (!strcmp(verb, "claim"))
    return manta__objects_put_text(o, name, "mine", true, err);
  bool puts = !strcmp(verb, "put");
  int fd = open(argv[2], puts ? O_RDONLY : O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || fstat(fd, &sb) < 0)
    return manta_error_set(err, MANTA_EIO, "%s: %m", argv[2]);
  manta_status st = puts ? manta__objects_put(o, name, fd, sb.st_size, err)
                         : manta__objects_get(o, name, fd, err);
  close(fd);
  return st;
}

int main(int argc, char **argv)
{
  struct manta__objects *o = NULL;
  manta_error err = MANTA_ERROR_INIT;
  if (argc < 3)
    return 2;
  manta_status st = manta__objects_open(&o, argv[1], &err);
  if (st == MANTA_OK)
    st = act(o, argv + 2, &err);
  manta__objects_close(o);
  if (st < 0)
    fprintf(stderr, "%s: %s\n", manta_status_name(st), err.message);
  return st < 0;
}
