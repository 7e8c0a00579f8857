/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/build.h - which build a program file is.
 */
#ifndef MANTA_CMD_BUILD_H
#define MANTA_CMD_BUILD_H

#include <stdbool.h>
#include <stdint.h>

/* The number that a run's log keeps of a program: from its GNU build id. 0 if it has none or is no
 * ELF file of this machine. */
int64_t manta__build_of_file(const char *path);

/* Is the file at `path` another program than the one of build `build` that began to run at
 * `wall_ns`? Without a build id on both sides the file's time decides. */
bool manta__build_changed(const char *path, int64_t build, int64_t wall_ns);

#endif
