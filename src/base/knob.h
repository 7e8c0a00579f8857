/* SPDX-License-Identifier: Apache-2.0
 *
 * base/knob.h - the environment variables that manta reads: one row each.
 *
 * (1) Every MANTA_* variable that manta reads or sets for its own processes has a row. Nobody else
 *     calls getenv for one. `manta info --params` prints the rows, manta-params(7) explains them.
 * (2) A value is read when it is asked for: what setenv has changed counts from then on.
 * (3) A variable that is empty counts as not set.
 * (4) A wrong value is refused where something begins (a trainer, a run, an agent, a command):
 *     manta__knobs_check. A getter that meets one nevertheless warns, once per variable, and goes
 *     on as if it was not set.
 *
 * A new knob is a name in the enum and a row in knob.c, with its paragraph in the manual page.
 */
#ifndef MANTA_BASE_KNOB_H
#define MANTA_BASE_KNOB_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>
#include <manta/value.h>

/* In the order in which they are shown: by who uses them. */
enum manta__knob_id {
  MANTA__KNOB_RESULTS,
  MANTA__KNOB_STAGING,
  MANTA__KNOB_UPLOAD_WAIT,
  MANTA__KNOB_DATA_SPOOL,
  MANTA__KNOB_NUM_WORKERS,
  MANTA__KNOB_HOSTS,
  MANTA__KNOB_LOG,
  MANTA__KNOB_VERBOSE,
  MANTA__KNOB_PDB,
  MANTA__KNOB_GRACE,
  MANTA__KNOB_DETAILED_METRICS,
  MANTA__KNOB_STRICT,
  MANTA__KNOB_PYTHON,
  MANTA__KNOB_NUM_CPUS,
  MANTA__KNOB_NUM_GPUS,
  MANTA__KNOB_RESOURCES,
  MANTA__KNOB_GROW_AFTER,
  MANTA__KNOB_RESIZE_EVERY,
  MANTA__KNOB_GONE_AFTER,
  MANTA__KNOB_BIN,
  MANTA__KNOB_MODULES,
  MANTA__KNOB_NCCL,
  MANTA__KNOB_AMX,
  MANTA__KNOB_COMM_ISA,
  MANTA__KNOB_COMM_WAY,
  MANTA__KNOB_DATA_ISA,
  MANTA__KNOB_DATA_READER,
  MANTA__KNOB_NVML,
  MANTA__KNOB_RESUME,
  MANTA__KNOB_TUNE_RESUME,
  MANTA__KNOB_ROLE,
  MANTA__KNOB_WORKER,
  MANTA__KNOBS /* how many */
};

enum manta__knob_type {
  MANTA__AS_TEXT,   /* anything: a path, a name, a list that its reader takes apart */
  MANTA__AS_WHOLE,  /* a whole number from low to high */
  MANTA__AS_NUMBER, /* a number from low to high */
  MANTA__AS_BOOL,   /* 1, true, yes, on; 0, false, no, off */
  MANTA__AS_WORD,   /* one of `words` */
  MANTA__AS_HEX     /* up to 16 hexadecimal digits */
};

enum manta__knob_reader {
  MANTA__FOR_USERS,     /* who runs a program */
  MANTA__FOR_OPERATORS, /* who keeps a host or a cluster */
  MANTA__FOR_DEBUGGING,
  MANTA__FOR_MANTA /* set by manta for its own processes; left alone by people */
};

struct manta__knob {
  const char *name; /* "MANTA_GROW_AFTER" */
  enum manta__knob_type type;
  enum manta__knob_reader reader;
  double low, high;      /* of a number */
  const char *unit;      /* of a number: "seconds"; or NULL */
  const char *words;     /* "error warn info debug" */
  const char *dflt;      /* as it would be in the environment; NULL: there is none */
  const char *otherwise; /* what holds where there is no default, in words; else NULL */
  const char *help;      /* one line, no capital, no dot */
};

/* --- The table --- */

/* The row; never NULL. */
const struct manta__knob *manta__knob_row(enum manta__knob_id id);
/* MANTA__KNOBS if there is none of this name. */
enum manta__knob_id manta__knob_find(const char *name);
/* "text", "whole number", "number", "bool", "word", "hex"; "users", "operators", … */
const char *manta__knob_type_name(enum manta__knob_type type);
const char *manta__knob_reader_name(enum manta__knob_reader reader);

/* --- Values ---
 *
 * What the environment says, else the default. The getters that write to *out give false, and leave
 * it alone, if there is neither. Each is for rows of its type. Any thread, as far as getenv allows:
 * what is borrowed from the environment lives until somebody changes that. */

bool manta__knob_whole(enum manta__knob_id id, int64_t *out);
bool manta__knob_number(enum manta__knob_id id, double *out);
bool manta__knob_hex(enum manta__knob_id id, uint64_t *out);
bool manta__knob_bool(enum manta__knob_id id);
/* The place of the word among `words`; -1 without one. */
int manta__knob_word(enum manta__knob_id id);
/* A number of seconds, of a row that has a default. */
double manta__knob_seconds(enum manta__knob_id id);
/* Borrowed from the environment or the table; NULL without one. Of any type, as it is written. */
const char *manta__knob_text(enum manta__knob_id id);
/* Whether the environment sets it, rightly or wrongly. */
bool manta__knob_is_set(enum manta__knob_id id);

/* The value in force, or with `dflt` the default: nil, bool, int, real or a string, which is
 * borrowed. MANTA_EINVAL as below. */
manta_status manta__knob_value(enum manta__knob_id id, bool dflt, manta_value *out,
                               manta_error *err);

/* --- What is wrong --- */

/* MANTA_EINVAL if the environment has a wrong value for it: the message names the variable, the
 * value, and what would be right. */
manta_status manta__knob_check(enum manta__knob_id id, manta_error *err);
/* All rows: the first that is wrong. */
manta_status manta__knobs_check(manta_error *err);

/* The name of the row that `name`, which no row has, was probably meant to be; NULL if it is like
 * none, or does not begin with MANTA_. Rows that are manta's own are never meant. */
const char *manta__knob_like(const char *name);
/* Calls `tell` for each variable of the environment that is like a row but is none. */
void manta__knobs_tell_unknown(void (*tell)(void *ctx, const char *name, const char *like),
                               void *ctx);
/* Warns of them, at the first call in a process. For drivers and the command: what they start has
 * the same environment. */
void manta__knobs_warn_unknown(void);

#endif
