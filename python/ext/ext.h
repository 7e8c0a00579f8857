/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/ext.h - the CPython extension manta._manta: libmanta's calls as Python sees them.
 *
 * One file per Python type; what can be said in Python is said there (python/manta). Built for the
 * stable ABI of Python 3.11. The GIL is released around every call that waits. libmanta's own
 * thread never takes it: callbacks come on the thread that is inside Run.next().
 */
#ifndef MANTA_EXT_H
#define MANTA_EXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <manta/embed.h>
#include <manta/manta.h>

/* The documentation of a function or type, from which tools/make-stub makes _manta.pyi. `signature`
 * is as inspect.signature reads it, with $self or $module in front; `types` has the types of the
 * parameters after that, in order, and of the result: "(int, str) -> None". */
#define MPY_DOC(signature, types, text) signature "\n--\n\n" types "\n" text

/* --- module.c --- */

extern PyObject *mpy_error; /* manta.Error, and below it the ones that code wants to tell apart */

/* Sets the Python exception for a failure and returns NULL. `detail` (or NULL) becomes its
 * attribute of that name. */
PyObject *mpy_raise(const manta_error *err);
PyObject *mpy_raise_with(const manta_error *err, PyObject *detail);
/* The same where what is not there is a column. */
PyObject *mpy_raise_column(const manta_error *err);
/* The status that a raised exception stands for, and its text, which is cleared: MANTA_EUSER unless
 * it is one of ours. */
manta_status mpy_status_of_raised(manta_error *err);
/* A program out of (argv, env), two lists of strings that must outlive it; false with an exception.
 * Finish it in either case. */
/* A list of strings as C has them, borrowed; free it with PyMem_Free. NULL with an exception. */
const char **mpy_words(PyObject *list);
bool mpy_program(PyObject *pair, manta_program *p);
void mpy_program_fini(manta_program *p);
/* A function of manta._runtime.worker, or of another module, borrowed for good; NULL with an
 * exception. */
PyObject *mpy_worker_function(const char *name);
PyObject *mpy_function(const char *module, const char *name);

/* --- storage.c: functions of the module, each the call of manta/storage.h --- */

PyObject *mpy_storage_check(PyObject *self, PyObject *args);
PyObject *mpy_storage_local(PyObject *self, PyObject *args);
PyObject *mpy_storage_has(PyObject *self, PyObject *args);
PyObject *mpy_storage_fetch(PyObject *self, PyObject *args);
PyObject *mpy_storage_upload(PyObject *self, PyObject *args);
PyObject *mpy_storage_download(PyObject *self, PyObject *args);

/* --- trainer.c --- */

/* Calls on a trainer or its run release the GIL, and others may come meanwhile, from other threads
 * or at the end of the interpreter. Each holds the trainer while it lasts: closing waits for them,
 * having told the run to end. False with an exception: the trainer is being closed. With the GIL.
 */
bool mpy_trainer_hold(PyObject *trainer);
void mpy_trainer_let_go(PyObject *trainer);
/* Waits while it is being closed: its run is over then, and can still be asked and closed. */
void mpy_trainer_await(PyObject *trainer);
/* Tells its run to end; nothing if it is closed. */
void mpy_trainer_cancel(PyObject *trainer);
/* What a trainer is made of, out of the arguments of Trainer() as a dict, whose strings are
 * borrowed. False with an exception. Finish it in either case; {0} may be finished, too. */
struct mpy_trainer_config {
  manta_trainer_config config;
  manta_host *hosts;
  manta_value resources;
  manta_program program;
};
bool mpy_trainer_config(PyObject *dict, struct mpy_trainer_config *to);
void mpy_trainer_config_fini(struct mpy_trainer_config *c);
/* Waits until *count is 0, which changes under the GIL; false when it took too long. */
bool mpy_wait_until_none(const int *count);

/* --- convert.c --- */

/* What has no counterpart travels as a map of these two. */
#define MPY_PICKLE "$py"
#define MPY_REPR   "$repr"

enum mpy_how {
  MPY_EXACT,    /* only what comes back as the same type; else false, without an exception */
  MPY_FAITHFUL, /* exact, or pickled as a whole */
  MPY_LOOSE,    /* tuples become lists, scalars of numpy and torch numbers, the rest is pickled */
  MPY_SPACE     /* of spaces and configs: names may begin with $, scalars become numbers, the rest
                   is exact, or pickled by itself */
};
/* Makes *out of `o`. Strings are borrowed from the objects: they must outlive the value (fini it).
 * False: not possible (EXACT), or with an exception set. */
bool mpy_to_value(PyObject *o, enum mpy_how how, manta_value *out);
/* A new object, or NULL with an exception. Nothing is unpickled: what looks like a pickle comes
 * back as the dict that it is. */
PyObject *mpy_from_value(const manta_value *v);
/* The same for rows and results of the own run, which no stranger has written: what was pickled is
 * unpickled. */
PyObject *mpy_from_own(const manta_value *v);

/* --- the types: each adds itself to the module, 0 or -1 --- */

int mpy_add_trainer(PyObject *module);
int mpy_add_run(PyObject *module);
int mpy_add_sink(PyObject *module);

/* Sinks out of None or a list of (kind, options); false with an exception. Finish them in either
 * case. */
#define MPY_MAX_SINKS 64
struct mpy_sinks {
  manta_sink sink[MPY_MAX_SINKS];
  manta_value options[MPY_MAX_SINKS];
  size_t count;
};
bool mpy_take_sinks(PyObject *list, struct mpy_sinks *s);
void mpy_sinks_fini(struct mpy_sinks *s);
int mpy_add_checkpoint(PyObject *module);
int mpy_add_comm(PyObject *module);    /* Comm, Work */
int mpy_add_session(PyObject *module); /* functions */
int mpy_add_train(PyObject *module);   /* the train function */
int mpy_add_search(PyObject *module);
int mpy_add_tune(PyObject *module); /* Tune */
int mpy_add_tune_start(PyObject *module);
int mpy_add_arrow(PyObject *module); /* functions */
int mpy_add_batch(PyObject *module);
int mpy_add_data(PyObject *module);
int mpy_add_datasource(PyObject *module); /* functions */
int mpy_add_loader(PyObject *module);
int mpy_add_apply(PyObject *module);    /* functions */
int mpy_add_onearray(PyObject *module); /* functions */
int mpy_add_ending(PyObject *module);   /* functions */
/* In a process that was forked for a trial, before anything of the user's runs. */
void mpy_ending_begin(void);

manta_train_fn mpy_train_function(void);
/* What a run calls; borrowed. */
struct mpy_calls {
  PyObject *output; /* with (stream, text), or None */
  int kinds[2];     /* of the streams that it writes to: manta_display_kind */
  PyObject *renew;  /* with the number of an attempt before it begins, or None */
};
PyObject *mpy_run_new(manta_trainer *t, PyObject *owner, const manta_run_config *rc,
                      const struct mpy_calls *calls);
/* A state out of a list of (name, dtype number, shape, address) and a dict of plain values, which
 * *out points to; all of them must outlive it. False with an exception. Finish it in either case.
 */
bool mpy_to_state(PyObject *rows, PyObject *extra, manta_state *out, manta_value *value);
void mpy_state_fini(manta_state *state, manta_value *value);
PyObject *mpy_checkpoint_new(manta_checkpoint *c); /* takes it; NULL becomes None */
/* Memory to be read, as a View, which holds its owner; with Py_None the caller sees to it that it
 * outlives what reads it. */
PyObject *mpy_view_new(PyObject *owner, const void *data, size_t bytes);

/* --- data.c, datasource.c, batch.c, loader.c, arrow.c: data sets --- */

/* Takes the data set, or raises the failure. */
PyObject *mpy_data_new(manta_status st, manta_dataset *d, const manta_error *err);
/* Of a Data, borrowed; NULL with an exception. */
manta_dataset *mpy_data_of(PyObject *o);
PyObject *mpy_batch_new(manta_batch *b); /* takes it */
PyObject *mpy_loader_new(manta_dataset *d, PyObject *options);
/* What a dict has under `key`, borrowed; NULL: nothing, or None. */
PyObject *mpy_option(PyObject *dict, const char *key);
/* The number under `key`, or `otherwise`; -1 with an exception. */
int64_t mpy_option_int(PyObject *dict, const char *key, int64_t otherwise);
bool mpy_option_bool(PyObject *dict, const char *key);
const char *mpy_option_text(PyObject *dict, const char *key); /* NULL: nothing, or an exception */
/* An expression as a value; strings are borrowed from the objects. False with an exception. */
bool mpy_to_tree(PyObject *o, manta_value *out);

/* Capsules of Arrow's PyCapsule interface. Each takes what it is given; NULL with an exception. */
PyObject *mpy_schema_capsule(struct ArrowSchema *s);
PyObject *mpy_array_capsule(struct ArrowArray *a);
PyObject *mpy_stream_capsule(struct ArrowArrayStream *s);
/* The stream of an object that has __arrow_c_stream__, or of a capsule; false with an exception. */
bool mpy_take_stream(PyObject *from, struct ArrowArrayStream *out);
/* apply.c: raises the exception of a function over rows that this failure stands for; false: it
 * stands for none. */
bool mpy_raise_kept(const manta_error *err);
/* For processes of the reader that call functions. */
extern const manta_callers mpy_callers;

#endif
