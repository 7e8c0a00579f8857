/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/options.h - a sub-command as a row of a table, and its command line taken apart.
 */
#ifndef MANTA_CMD_OPTIONS_H
#define MANTA_CMD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

/* What the command's exit codes mean; a program that it runs adds its own. */
enum manta__exit {
  MANTA__EXIT_OK = 0,
  MANTA__EXIT_FAILED = 1,
  MANTA__EXIT_USAGE = 2,
  MANTA__EXIT_NOT_FOUND = 3,
  MANTA__EXIT_PREEMPTED = 75, /* of a program that was asked to stop, and can be resumed */
  MANTA__EXIT_SIGNAL = 128    /* plus the number of the signal that ended the program */
};

#define MANTA__OPTIONS_MAX 12 /* of one command */

/* A row {0} ends the list. */
struct manta__option {
  char letter;      /* -n, or 0 */
  const char *name; /* --lines */
  const char *arg;  /* name of its argument in the help, or NULL for a flag */
  const char *help;
};

struct manta__args;

/* What a command does about MANTA_* variables, before anything else. */
enum manta__env_care {
  MANTA__ENV_CHECKED = 0, /* refuses wrong values, warns of unknown names */
  MANTA__ENV_PASSED,      /* refuses wrong values; the program that it runs warns */
  MANTA__ENV_ANY          /* nothing: it shows them, does not read them, or has others told */
};

struct manta__command {
  const char *name;     /* "logs" */
  const char *operands; /* as the help shows them: "RUN" */
  const char *brief;    /* one line */
  const char *more;     /* what --help adds below, or NULL */
  const struct manta__option *options;
  int min, max; /* operands; max < 0: any number */
  bool rest;    /* the first operand ends the options: what follows is another program's */
  int (*run)(const struct manta__args *a);
  enum manta__env_care care;
};

/* A command line that fits its command. Strings are argv's own. */
struct manta__args {
  const struct manta__command *cmd;
  const char *given[MANTA__OPTIONS_MAX]; /* by row: NULL not given, "" a flag, else the argument */
  char **operand;                        /* NULL-terminated */
  int count;
};

/* argv[0] is the first word behind the command's name. Reorders argv as getopt does.
 * MANTA_EINVAL says what is wrong with it. */
manta_status manta__args_parse(struct manta__args *out, const struct manta__command *cmd, int argc,
                               char **argv, manta_error *err);
/* The argument of --name, "" for a flag; NULL if it was not given. */
const char *manta__args_get(const struct manta__args *a, const char *name);
static inline bool manta__args_has(const struct manta__args *a, const char *name)
{
  return manta__args_get(a, name) != 0;
}
/* A whole number between low and high. `what` names it in the message. */
manta_status manta__args_int(int64_t *out, const char *text, const char *what, int64_t low,
                             int64_t high, manta_error *err);

#endif
