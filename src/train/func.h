/* SPDX-License-Identifier: Apache-2.0
 *
 * train/func.h - a train function's name across processes.
 *
 * A registered function travels by its name. Another one travels as (object file, offset), which
 * holds if it lies in the main program or in an object loaded before manta_init, since the worker
 * is the same program with the same objects at other addresses.
 */
#ifndef MANTA_TRAIN_FUNC_H
#define MANTA_TRAIN_FUNC_H

#include <manta/session.h>
#include <manta/value.h>

/* Notes the objects loaded now; called by manta_init. */
void manta__func_note_objects(void);
/* Puts "fn" (a name) or "fn_object" and "fn_offset", and "build", into the map `out`. MANTA_EINVAL
 * says why a pointer cannot travel. */
manta_status manta__func_describe(manta_value *out, manta_train_fn fn, manta_error *err);
/* The function that `spec` describes, in this process. */
manta_status manta__func_find(manta_train_fn *out, const manta_value *spec, manta_error *err);

#endif
