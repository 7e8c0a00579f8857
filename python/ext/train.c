/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/train.c - the one train function of all Python runs: it hands the job to
 * manta._worker.run and translates what comes out.
 */
#include "ext.h"

// What an exception leaves for the driver: (status name, message, detail), made by
// manta._worker.explain.
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

static manta_status take_result(PyObject *o, manta_value *result, manta_error *err)
{
  manta_value v = {0};
  bool ok = mpy_to_value(o, MPY_FAITHFUL, &v);
  manta_status st = ok ? manta_value_copy(result, &v) : MANTA_OK;
  manta_value_fini(&v);
  if (!ok)
    return fail(result, err);
  return st < 0 ? manta_error_set(err, st, "no memory for the result") : MANTA_OK;
}

static manta_status run_in_python(manta_session *s, manta_value *result, manta_error *err)
{
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *run = mpy_worker_function("run");
  PyObject *o = run ? PyObject_CallFunctionObjArgs(run, NULL) : NULL;
  manta_status st = o ? take_result(o, result, err) : fail(result, err);
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
