/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/module.h - parts with large dependencies, loaded when they are used.
 *
 * A module is libmanta-NAME.so in $MANTA_MODULES, or else in manta/ beside the library that this
 * code is in, where the build tree has it, or in ../lib/manta as seen from the command. It stays
 * loaded. Loading leaves the process as it was: signal handlers that a library installs are taken
 * back, its threads have signals blocked.
 */
#ifndef MANTA_SYS_MODULE_H
#define MANTA_SYS_MODULE_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/status.h>

/* The path of the module's file into `path`; false, and the folder that was searched last, if there
 * is none. Loads nothing. */
bool manta__module_find(const char *name, char *path, size_t size);
/* The address of `symbol` in the module. `needs` names in the message what may be missing. */
manta_status manta__module_symbol(const char *name, const char *symbol, const char *needs,
                                  void **out, manta_error *err);

#endif
