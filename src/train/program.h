/* SPDX-License-Identifier: Apache-2.0
 *
 * train/program.h - what workers are forked from: this program, or one that was named.
 */
#ifndef MANTA_TRAIN_PROGRAM_H
#define MANTA_TRAIN_PROGRAM_H

#include <manta/embed.h>
#include <manta/value.h>

#include "group/proto.h"
#include "sys/proc.h"

/* {0}: the program that called manta_init. */
struct manta__program {
  char **argv, **env; /* NULL-terminated; ours */
};

/* Copies it; p NULL: {0}. */
manta_status manta__program_copy(struct manta__program *out, const manta_program *p,
                                 manta_error *err);
void manta__program_fini(struct manta__program *p);

/* How many threads its libraries are loaded with, in what workers are forked from, if the user asks
 * for `given` (0: he does not); 0: as the environment says. Of a program that was named it is 1, as
 * its workers see to the number themselves: it serves trainers with any. */
int manta__program_threads(const struct manta__program *p, int given);
/* A number that two programs share only if one process can fork the workers of both: executable,
 * arguments, threads and what libraries read when they are loaded. Not 0. */
uint64_t manta__program_key(const struct manta__program *p, const struct manta__exe *exe,
                            int threads);
/* PROGRAM, which borrows from exe and from the two lists: those are {0}, and to be finished also
 * after a failure. MANTA_ESTATE: manta_init was not called. */
manta_status manta__program_describe(const struct manta__program *p, uint64_t key,
                                     const struct manta__exe *exe, int threads,
                                     struct manta__program_msg *out, manta_value *argv,
                                     manta_value *env, manta_error *err);
/* The environment of its workers, a list of NAME=VALUE: the driver's, and the program's own words
 * where the driver has none. */
manta_status manta__program_environment(const struct manta__program *p, bool drop_threads,
                                        manta_value *out);
/* A list of strings. */
manta_status manta__strings_to_value(manta_value *out, char *const *list, size_t n);

#endif
