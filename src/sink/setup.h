/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/setup.h - sinks.json in a run's directory: the sinks that the run has.
 *
 *   {"run": "0123456789abcdef", "config": {…}, "sinks": [{"kind": "json", "options": {…}}, …]}
 *
 * The driver writes it before the process of the sinks starts; that one, one after it, and `manta
 * sink RUN` read it.
 */
#ifndef MANTA_SINK_SETUP_H
#define MANTA_SINK_SETUP_H

#include <manta/sink.h>

#define MANTA__SETUP_FILE      "sinks.json"
#define MANTA__SETUP_MAX_SINKS 64

/* Adds a sink to the list `sinks` ({0} at first). Paths are made absolute. The same sink twice is
 * one; two that would write the same file are MANTA_EINVAL. */
manta_status manta__setup_add(manta_value *sinks, const manta_sink *sink, manta_error *err);
/* run_id: 16 hexadecimal digits. */
manta_status manta__setup_write(int rundir, const char *run_id, const manta_value *config,
                                const manta_value *sinks, manta_error *err);
/* `out` {0}; MANTA_ENOENT: the run has no sinks. */
manta_status manta__setup_read(int rundir, manta_value *out, manta_error *err);

#endif
