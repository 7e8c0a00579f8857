/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/params.h - `manta info --params`: the environment variables, and what holds now.
 */
#ifndef MANTA_CMD_PARAMS_H
#define MANTA_CMD_PARAMS_H

#include <stdbool.h>

#include <manta/value.h>

/* Prints a row per variable, or as JSON a list of maps. Wrong values are shown, and named on
 * standard error. Gives the exit code: MANTA__EXIT_USAGE if there is one. */
int manta__params_print(bool json);

/* Those that are set, as a map of NAME to what is written there ({0} or a value; fini it). */
manta_status manta__params_set(manta_value *out);

#endif
