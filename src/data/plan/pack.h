/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/pack.h - a data set as a value that another process on this host makes it of again.
 *
 * A list of steps, those that others come from first; each is a map of its name ("step"), the
 * numbers of its inputs in the list ("in") and what its pack() put there. The files are in it as
 * they were found and cut: they are neither listed nor looked at again.
 */
#ifndef MANTA_DATA_PLAN_PACK_H
#define MANTA_DATA_PLAN_PACK_H

#include "data/plan/dataset.h"

/* MANTA_EUNSUPPORTED names a step that cannot be sent. `out` must be {0}. */
manta_status manta__plan_pack(manta_dataset *d, manta_value *out, manta_error *err);
/* MANTA_EPROTO: it is no such value. */
manta_status manta__plan_unpack(manta_dataset **out, const manta_value *plan, manta_error *err);

/* Whether it has functions over rows. */
bool manta__plan_calls(const manta_dataset *d);

/* --- for steps --- */

/* Strings as a list, and back: an array that the caller frees, which borrows from the value. */
manta_status manta__plan_put_strings(manta_value *to, const char *key, const char *const *list,
                                     size_t count);
manta_status manta__plan_get_strings(const manta_value *from, const char *key,
                                     const char *const **list, size_t *count, manta_error *err);
/* Numbers, as bytes: those of `from` are of n * size bytes, or it is NULL. */
manta_status manta__plan_put_bytes(manta_value *to, const char *key, const void *p, size_t bytes);
const void *manta__plan_get_bytes(const manta_value *from, const char *key, size_t size, size_t *n);
manta_status manta__plan_put_copy(manta_value *to, const char *key, const manta_value *v);
/* Names and types. */
manta_status manta__plan_put_schema(manta_value *to, const struct manta__schema *s);
manta_status manta__plan_get_schema(const manta_value *from, struct manta__schema **out,
                                    manta_error *err);
manta_status manta__plan_malformed(manta_error *err);

/* The steps that can be sent. Each file of a step has one. */
extern const struct manta__step manta__step_files, manta__step_add, manta__step_filter,
    manta__step_sample, manta__step_project, manta__step_union, manta__step_limit, manta__step_zip,
    manta__step_fold, manta__step_shuffle, manta__step_repeat, manta__step_part, manta__step_range,
    manta__step_apply, manta__step_single;

#endif
