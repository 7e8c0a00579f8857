/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/module.h - parts with large dependencies, loaded when they are used.
 *
 * A module is libmanta-NAME.so in $MANTA_MODULES, or else in manta/ beside the library that this
 * code is in, or where the build tree has it. It stays loaded. Loading leaves the process as it
 * was: signal handlers that a library installs are taken back, its threads have signals blocked.
 */
#ifndef MANTA_SYS_MODULE_H
#define MANTA_SYS_MODULE_H

#include <manta/status.h>

/* The address of `symbol` in the module. `needs` names in the message what may be missing. */
manta_status manta__module_symbol(const char *name, const char *symbol, const char *needs,
                                  void **out, manta_error *err);

#endif
