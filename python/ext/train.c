/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/train.c - the one train function of all Python runs: it hands the job to
 * manta._runtime.worker.run and translates what comes out.
 */
#include "ext.h"

#include <string.h>
#include <unistd.h>

#define SMALL (32u << 10) /* bytes of a plain result that travel as a value */

// What an exception leaves for the driver: (status name, message, detail), made by
// manta._runtime.worker.explain.
static manta_status take_failure(PyObject *explained, manta_value *result, manta_error *err)
{
  PyObject *detail;
  const char *message;
  int status;
  manta_value v = {0};
  if (!PyArg_ParseTuple(explained, "isO", &status, &message, &detail))
    return MANTA_EUSER;
  if (mpy_to_value(detail, MPY_EXACT, &v)) {
    manta_value_copy(result, &v); // v borrows from `detail`
    manta_value_fini(&v);
  }
  return manta_error_set(err, (manta_status)status, "%s", message);
}

static manta_status fail(manta_value *result, manta_error *err)
{
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace)
    PyException_SetTraceback(value, trace);
  PyObject *explain = mpy_worker_function("explain");
  PyObject *said = explain ? PyObject_CallFunctionObjArgs(explain, value, NULL) : NULL;
  manta_status st = said ? take_failure(said, result, err) : MANTA_EUSER;
  if (!said || PyErr_Occurred())
    st = mpy_status_of_raised(err);
  Py_DecRef(said);
  Py_DecRef(type);
  Py_DecRef(value);
  Py_DecRef(trace);
  return st;
}

// About what it takes in a message.
static size_t weight(const manta_value *v)
{
  size_t n = v->type == MANTA_STRING || v->type == MANTA_BYTES ? v->count : 9;
  for (uint32_t i = 0; v->type == MANTA_LIST && i < v->count; i++)
    n += weight(&v->u.items[i]);
  for (uint32_t i = 0; v->type == MANTA_MAP && i < v->count; i++)
    n += strlen(v->u.pairs[i].key) + weight(&v->u.pairs[i].value);
  return n;
}

// (descriptor, pickle, repr) of manta._runtime.results.dump.
static manta_status take_pickle(manta_session *s, PyObject *dumped, manta_value *result,
                                manta_error *err)
{
  int fd;
  const char *bytes, *repr;
  Py_ssize_t n;
  if (!PyArg_ParseTuple(dumped, "iy#s", &fd, &bytes, &n, &repr))
    return fail(result, err);
  if (fd < 0) {
    manta_value v = MANTA_MAP(MANTA_KV(MPY_PICKLE, manta_value_borrow_bytes(bytes, (size_t)n)),
                              MANTA_KV_STR(MPY_REPR, repr));
    return manta_value_copy(result, &v);
  }
  manta_status st = manta_session_result(s, fd, "pickle", err);
  close(fd);
  return st < 0 ? st : manta_value_set_string(result, repr);
}

// Plain and small: as a value. Else a pickle, and if that is large, a memory file.
static manta_status take_result(manta_session *s, PyObject *o, manta_value *result,
                                manta_error *err)
{
  manta_value v = {0};
  bool plain = mpy_to_value(o, MPY_EXACT, &v);
  bool small = plain && weight(&v) <= SMALL;
  manta_status st = small ? manta_value_copy(result, &v) : MANTA_OK;
  manta_value_fini(&v);
  if (!small && PyErr_Occurred())
    return fail(result, err);
  if (!small) {
    PyObject *dump = mpy_function("manta._runtime.results", "dump");
    PyObject *dumped = dump ? PyObject_CallFunctionObjArgs(dump, o, NULL) : NULL;
    if (!dumped)
      return fail(result, err);
    st = take_pickle(s, dumped, result, err);
    Py_DecRef(dumped);
  }
  return st == MANTA_ENOMEM ? manta_error_set(err, st, "no memory for the result") : st;
}

static manta_status run_in_python(manta_session *s, manta_value *result, manta_error *err)
{
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *run = mpy_worker_function("run");
  PyObject *o = run ? PyObject_CallFunctionObjArgs(run, NULL) : NULL;
  manta_status st = o ? take_result(s, o, result, err) : fail(result, err);
  Py_DecRef(o);
  // A thread that is still saving may have to fill in its state, in Python.
  Py_BEGIN_ALLOW_THREADS;
  manta_session_settle(s);
  Py_END_ALLOW_THREADS;
  PyGILState_Release(gil);
  return st;
}

int mpy_add_train(PyObject *module)
{
  manta_register("python", run_in_python);
  return 0;
}

manta_train_fn mpy_train_function(void)
{
  return run_in_python;
}
