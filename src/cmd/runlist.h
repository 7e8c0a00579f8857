/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/runlist.h - the runs of a directory of results, one after the other.
 */
#ifndef MANTA_CMD_RUNLIST_H
#define MANTA_CMD_RUNLIST_H

#include <stddef.h>

#include "cmd/runref.h"

/* Newest first. {0} is none; its directory is `fd`, to reach them by their names. */
struct manta__runlist {
  char *dir; /* absolute */
  int fd;
  char **paths;
  size_t count;
};

/* Those in `dir`, or in the default directory of results (NULL). MANTA_ENOENT: there is no such
 * directory; the default one then is an empty list with fd -1. */
manta_status manta__runlist_open(struct manta__runlist *out, const char *dir, manta_error *err);
void manta__runlist_close(struct manta__runlist *l);

/* Opens run `i` and reads how it stands. MANTA_ENOENT: a link, or gone meanwhile. Close and fini
 * both. */
manta_status manta__runlist_read(const struct manta__runlist *l, size_t i, struct manta__runref *r,
                                 struct manta__standing *s, manta_error *err);
/* How old it is: since its last record; 0 while it runs. */
int64_t manta__standing_age(const struct manta__standing *s);

#endif
