/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/tree.h - a directory with all that is in it: how large it is, links, its way to the disk, its
 * end.
 *
 * (1) Everything is reached through the descriptor of the directory that holds it; a link is
 *     counted and removed as a link, never followed.
 * (2) What is mounted below is left alone, which is an error.
 */
#ifndef MANTA_SYS_TREE_H
#define MANTA_SYS_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

/* Bytes that it takes on the disk. What cannot be read counts as nothing. */
int64_t manta__tree_bytes(int dirfd);
/* Removes what is in the directory, except for entries that `keeps` (NULL: none) wants to stay. On
 * failure (MANTA_EIO, MANTA_ETOOBIG if it is too deep) what could be removed is gone. */
manta_status manta__tree_empty(int dirfd, bool (*keeps)(const char *name), manta_error *err);

/* The same, and `name` itself; one that is not there is fine. */
manta_status manta__tree_remove(int parent, const char *name, manta_error *err);
/* `name` once more in another directory of the same file system: directories are made, files and
 * links are linked to, devices are left out. False: it is gone, is there already, or cannot be
 * linked to; what was made stays. */
bool manta__tree_link(int parent, const char *name, int to);
/* Everything in it and itself to the disk. Links and devices are passed over. */
manta_status manta__tree_sync(int dirfd, manta_error *err);

#endif
