/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/doctor.h - `manta doctor`: what is there, what works here, and what to do about the rest.
 */
#ifndef MANTA_CMD_DOCTOR_H
#define MANTA_CMD_DOCTOR_H

#include <stdbool.h>
#include <stdio.h>

#include <manta/value.h>

/* Prints one line per check, or as JSON a list of {"check", "state", "text"} with state "ok",
 * "warn" or "fail". The exit code: 1 if something failed, else 0. The process must have one thread.
 */
int manta__doctor(bool json, FILE *out);

/* The checks alone: a list as above into `rows` ({0} or a value; fini it). `root` is put before
 * /proc, /sys and /dev where these are read; "" for this host. */
manta_status manta__doctor_examine(manta_value *rows, const char *root, manta_error *err);
/* One more row, which takes as long as an interpreter takes to start: what Python finds here. */
manta_status manta__doctor_examine_python(manta_value *rows, manta_error *err);

#endif
