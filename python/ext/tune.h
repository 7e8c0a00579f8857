/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/tune.h - an experiment, between tune.c, tune_start.c and chooser.c.
 */
#ifndef MANTA_EXT_TUNE_H
#define MANTA_EXT_TUNE_H

#include "ext.h"

struct mpy_tune {
  PyObject_HEAD manta_tune *t;           /* NULL: closed */
  int users;                             /* 1: a thread is inside of a call */
  int asking;                            /* 1: … and it asks one of these */
  bool own;                              /* run here: what its trials have pickled is unpickled */
  PyObject *searcher, *scheduler, *stop; /* the caller's, or NULL */
  PyObject *resources, *explore, *names, *shows;
  PyObject *raised[3];               /* by one of them */
  struct mpy_trainer_config trainer; /* of a trial; its strings are those of trainer_dict */
  PyObject *trainer_dict;
  Py_buffer payload; /* for every trial; libmanta does not copy it */
};

/* One that is closed. */
struct mpy_tune *mpy_tune_new(void);
/* The callbacks that the experiment has, into *c. The two tables must live until it is started. */
void mpy_tune_tables(struct mpy_tune *it, manta_tune_config *c, manta_searcher *searcher,
                     manta_scheduler *scheduler);
/* Raises what one of them has raised; false: nothing. */
bool mpy_tune_raise(struct mpy_tune *it);
/* A row or a config; None for NULL. What is pickled in it is unpickled if the experiment is own. */
PyObject *mpy_tune_row(const struct mpy_tune *it, const manta_value *row);

#endif
