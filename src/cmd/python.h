/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/python.h - the interpreter that `manta run` hands scripts to, and what it finds.
 */
#ifndef MANTA_CMD_PYTHON_H
#define MANTA_CMD_PYTHON_H

#include <manta/status.h>

#define MANTA__PYTHON_TEXT 64 /* of a version, longer ones are cut */

struct manta__python {
  char version[MANTA__PYTHON_TEXT];
  char manta[MANTA__PYTHON_TEXT]; /* "": the package is not there; "?": nobody knows its version */
  char torch[MANTA__PYTHON_TEXT];
};

/* Name or path: MANTA_PYTHON, which the command of a Python environment sets, else "python3". */
const char *manta__python_name(void);

/* Asks the interpreter, which imports neither package for it. MANTA_ENOENT: there is none;
 * MANTA_ETIMEDOUT: it did not answer within `limit_s` and was killed; MANTA_EIO: it said something
 * else. *out is {0} then. */
manta_status manta__python_ask(struct manta__python *out, double limit_s, manta_error *err);

#endif
