/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/run.c - manta._manta.Run: a manta_run, row by row.
 */
#include "ext.h"

#include <time.h>

/* How often a waiting call looks for Ctrl-C: a signal does not end a wait on a condition. */
#define LOOK_S 0.1

typedef struct {
  PyObject_HEAD manta_run *r; /* NULL: closed */
  int users;                  /* 1: a thread is inside next, drain or close */
  unsigned long user;         /* … which */
  PyObject *owner;            /* the trainer */
  PyObject *output;           /* called with (stream, text), or None */
  PyObject *renew;            /* called with the number of an attempt before it begins, or None */
  PyObject *raised[3];        /* by it, Ctrl-C perhaps: raised again by the call it interrupted */
} run;

static manta_run *open_run(PyObject *self)
{
  manta_run *r = ((run *)self)->r;
  if (!r)
    PyErr_SetString(PyExc_ValueError, "the run is closed");
  return r;
}

// As Python's generators: one thread at a time.
static bool enter(run *self)
{
  mpy_trainer_await(self->owner);
  if (self->users > 0)
    PyErr_SetString(PyExc_ValueError, "another call on this run is in progress");
  if (self->users > 0 || !mpy_trainer_hold(self->owner))
    return false;
  self->users = 1;
  self->user = PyThread_get_thread_ident();
  return true;
}

static void leave(run *self)
{
  self->users = 0;
  mpy_trainer_let_go(self->owner);
}

// On the thread inside next or close, which has released the GIL.
static void on_output(void *ctx, int stream, const char *text, size_t len)
{
  run *self = ctx;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *s = PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
  PyObject *n = PyLong_FromLong(stream);
  PyObject *done = s && n ? PyObject_CallFunctionObjArgs(self->output, n, s, NULL) : NULL;
  if (!done && !self->raised[0])
    PyErr_Fetch(&self->raised[0], &self->raised[1], &self->raised[2]);
  PyErr_Clear();
  Py_DecRef(done);
  Py_DecRef(n);
  Py_DecRef(s);
  PyGILState_Release(gil);
}

static manta_status on_renew(void *ctx, int attempt, manta_error *err)
{
  run *self = ctx;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *n = PyLong_FromLong(attempt);
  PyObject *done = n ? PyObject_CallFunctionObjArgs(self->renew, n, NULL) : NULL;
  manta_status st = MANTA_OK;
  if (!done && !self->raised[0]) {
    PyErr_Fetch(&self->raised[0], &self->raised[1], &self->raised[2]);
    st = manta_error_set(err, MANTA_EUSER, "what was to be called before attempt %d failed",
                         attempt);
  }
  PyErr_Clear();
  Py_DecRef(done);
  Py_DecRef(n);
  PyGILState_Release(gil);
  return st;
}

static PyTypeObject *run_type;

PyObject *mpy_run_new(manta_trainer *t, PyObject *owner, const manta_run_config *rc,
                      const struct mpy_calls *calls)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_run_config c = *rc;
  run *self = PyObject_New(run, run_type);
  if (!self)
    return NULL;
  Py_IncRef(owner);
  Py_IncRef(calls->output);
  Py_IncRef(calls->renew);
  self->r = NULL;
  self->users = 0;
  self->raised[0] = self->raised[1] = self->raised[2] = NULL;
  self->owner = owner;
  self->output = calls->output;
  self->renew = calls->renew;
  manta_display display = {
      .ctx = self,
      .write = on_output,
      .kind = {(manta_display_kind)calls->kinds[0], (manta_display_kind)calls->kinds[1]}};
  if (calls->output != Py_None)
    c.display = &display;
  if (calls->renew != Py_None) {
    c.renew = on_renew;
    c.renew_ctx = self;
  }
  manta_status st = MANTA_OK;
  bool held = mpy_trainer_hold(owner);
  if (held) {
    Py_BEGIN_ALLOW_THREADS;
    st = manta_run_start(&self->r, t, mpy_train_function(), &c, &err);
    Py_END_ALLOW_THREADS;
    mpy_trainer_let_go(owner);
  }
  if (!held || st < 0) {
    Py_DecRef((PyObject *)self);
    return held ? mpy_raise(&err) : NULL;
  }
  return (PyObject *)self;
}

// --- rows ----------------------------------------------------------------------------------------

static PyObject *rows_to_python(const manta_rows *rows)
{
  PyObject *list = PyList_New(rows->count);
  for (int i = 0; list && i < rows->count; i++) {
    PyObject *row = mpy_from_own(&rows->rows[i]);
    if (!row || PyList_SetItem(list, i, row) < 0) {
      Py_DecRef(list);
      return NULL;
    }
  }
  return list ? Py_BuildValue("(NLLN)", list, (long long)rows->iteration,
                              (long long)rows->rewound_to, PyBool_FromLong(rows->complete))
              : NULL;
}

static PyObject *raise_failure(const manta_run *r, const manta_error *err)
{
  const manta_value *v = manta_run_failure(r);
  PyObject *detail = v ? mpy_from_own(v) : NULL;
  if (v && !detail)
    PyErr_Clear(); // the message says enough
  mpy_raise_with(err, detail);
  Py_DecRef(detail);
  return NULL;
}

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool raise_again(run *self)
{
  PyObject **e = self->raised;
  if (!e[0])
    return false;
  PyErr_Restore(e[0], e[1], e[2]);
  e[0] = e[1] = e[2] = NULL;
  return true;
}

// How long to wait before the next look for Ctrl-C.
static double slice_of(double limit, double by)
{
  double left = limit < 0 ? LOOK_S : by - now();
  return left < 0 ? 0 : left < LOOK_S ? left : LOOK_S;
}

// 1: rows, 0: the end, else a failure; -1 with status 0: a signal handler or the output's
// callback raised.
static int wait_rows(run *self, double limit, manta_rows *rows, manta_error *err)
{
  double by = now() + limit;
  for (;;) {
    double slice = slice_of(limit, by);
    int rc;
    Py_BEGIN_ALLOW_THREADS;
    rc = manta_run_next(self->r, slice, rows, err);
    Py_END_ALLOW_THREADS;
    if (raise_again(self) || PyErr_CheckSignals() < 0) {
      err->status = MANTA_OK;
      return -1;
    }
    if (rc != MANTA_ETIMEDOUT || (limit >= 0 && now() >= by))
      return rc;
  }
}

static PyObject *next(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_rows rows;
  double limit = -1;
  manta_run *r = open_run(self);
  if (!r || !PyArg_ParseTuple(args, "|d", &limit) || !enter((run *)self))
    return NULL;
  PyObject *result = NULL;
  int rc = wait_rows((run *)self, limit, &rows, &err);
  if (rc == 1)
    result = rows_to_python(&rows);
  else if (rc < 0 && err.status != MANTA_OK)
    raise_failure(r, &err);
  else if (rc == 0)
    Py_IncRef(result = Py_None);
  leave((run *)self);
  return result;
}

static PyObject *drain(PyObject *self, PyObject *none)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_run *r = open_run(self);
  int rc = 1;
  if (!r || !enter((run *)self))
    return NULL;
  while (rc == 1)
    rc = wait_rows((run *)self, -1, NULL, &err);
  if (rc < 0 && err.status != MANTA_OK)
    raise_failure(r, &err);
  leave((run *)self);
  if (rc < 0)
    return NULL;
  Py_IncRef(Py_None);
  return Py_None;
}

// --- many runs -----------------------------------------------------------------------------------

struct crowd {
  PyObject *objects; // a tuple of Run and None
  size_t count;
  manta_run **runs;
  size_t entered; // the first so many of them
};

static run *member(const struct crowd *c, size_t i)
{
  PyObject *o = PyTuple_GetItem(c->objects, (Py_ssize_t)i);
  return o == Py_None ? NULL : (run *)o;
}

static void leave_all(struct crowd *c)
{
  for (size_t i = 0; i < c->entered; i++)
    if (c->runs[i])
      leave(member(c, i));
  PyMem_Free(c->runs);
  Py_DecRef(c->objects);
}

// False with an exception; leave_all in either case.
static bool enter_all(struct crowd *c, PyObject *objects)
{
  size_t open = 0;
  if (!(c->objects = PySequence_Tuple(objects)))
    return false;
  c->count = (size_t)PyTuple_Size(c->objects);
  if (!(c->runs = PyMem_Calloc(c->count + 1, sizeof(manta_run *)))) {
    PyErr_NoMemory();
    return false;
  }
  for (size_t i = 0; i < c->count; i++, c->entered++) {
    run *it = member(c, i);
    if (it && Py_TYPE((PyObject *)it) != run_type)
      PyErr_SetString(PyExc_TypeError, "a sequence of runs is wanted");
    if (it && (PyErr_Occurred() || !open_run((PyObject *)it) || !enter(it)))
      return false;
    c->runs[i] = it ? it->r : NULL;
    open += it != NULL;
  }
  if (open == 0)
    PyErr_SetString(PyExc_ValueError, "there is no run to wait for");
  return open > 0;
}

static bool any_raised(const struct crowd *c)
{
  for (size_t i = 0; i < c->count; i++)
    if (c->runs[i] && raise_again(member(c, i)))
      return true;
  return false;
}

// As wait_rows, of any of them.
static int wait_any(const struct crowd *c, double limit, size_t *which, manta_rows *rows,
                    manta_error *err)
{
  double by = now() + limit;
  for (;;) {
    double slice = slice_of(limit, by);
    int rc;
    Py_BEGIN_ALLOW_THREADS;
    rc = manta_run_next_any(c->runs, c->count, slice, which, rows, err);
    Py_END_ALLOW_THREADS;
    if (any_raised(c) || PyErr_CheckSignals() < 0) {
      err->status = MANTA_OK;
      return -1;
    }
    if (*which < c->count || rc != MANTA_ETIMEDOUT || (limit >= 0 && now() >= by))
      return rc;
  }
}

static PyObject *next_any(PyObject *module, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_rows rows;
  struct crowd c = {0};
  PyObject *objects, *result = NULL;
  double limit = -1;
  size_t which = 0;
  if (!PyArg_ParseTuple(args, "O|d", &objects, &limit))
    return NULL;
  if (enter_all(&c, objects)) {
    int rc = wait_any(&c, limit, &which, &rows, &err);
    PyObject *item = rc == 1 ? rows_to_python(&rows) : NULL;
    if (item)
      result = Py_BuildValue("(nN)", (Py_ssize_t)which, item);
    else if (rc != 1 && which < c.count && !PyErr_Occurred())
      result = Py_BuildValue("(nO)", (Py_ssize_t)which, Py_None); // next() says how it ended
    else if (rc < 0 && err.status != MANTA_OK)
      mpy_raise(&err);
  }
  leave_all(&c);
  return result;
}

// --- the end -------------------------------------------------------------------------------------

static PyObject *finished(PyObject *self, PyObject *none)
{
  manta_run *r = open_run(self);
  return r ? PyBool_FromLong(manta_run_finished(r)) : NULL;
}

// What went wrong with a result does not lose it.
static void note_file(const manta_run *r, int rank)
{
  PyObject *type, *value, *trace;
  const char *file = manta_run_result_file(r, rank);
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject *note = PyUnicode_FromFormat("the result of rank %d could not be read here; it is in %s",
                                        rank, *file ? file : "run.log of the run's directory");
  PyObject *done = note && value ? PyObject_CallMethod(value, "add_note", "O", note) : NULL;
  if (!done)
    PyErr_Clear();
  Py_DecRef(done);
  Py_DecRef(note);
  PyErr_Restore(type, value, trace);
}

static PyObject *result_of(const manta_run *r, const manta_value *all, int rank)
{
  const void *bytes;
  size_t n;
  if (manta_run_result_bytes(r, rank, &bytes, &n, NULL) < 0)
    return mpy_from_own(manta_value_at(all, (size_t)rank));
  PyObject *load = mpy_function("manta._runtime.results", "load");
  PyObject *view = load ? mpy_view_new(Py_None, bytes, n) : NULL;
  PyObject *x = view ? PyObject_CallFunctionObjArgs(load, view, NULL) : NULL;
  Py_DecRef(view);
  return x;
}

static PyObject *results(PyObject *self, PyObject *none)
{
  manta_run *r = open_run(self);
  const manta_value *v = r ? manta_run_results(r) : NULL;
  if (!v) {
    if (r)
      Py_IncRef(Py_None);
    return r ? Py_None : NULL;
  }
  PyObject *list = PyList_New((Py_ssize_t)v->count);
  for (uint32_t i = 0; list && i < v->count; i++) {
    PyObject *x = result_of(r, v, (int)i);
    if (!x)
      note_file(r, (int)i);
    if (!x || PyList_SetItem(list, (Py_ssize_t)i, x) < 0) {
      Py_DecRef(list);
      return NULL;
    }
  }
  return list;
}

// A thread that is inside next is sent away first; if that is this one, in a callback, the run only
// ends, and is freed later.
static bool send_away(run *self)
{
  if (self->users == 0)
    return true;
  mpy_trainer_cancel(self->owner);
  return self->user != PyThread_get_thread_ident() && mpy_wait_until_none(&self->users);
}

// What a last word raised goes nowhere; its frames would hold the run for ever.
static void drop_raised(run *self)
{
  for (int i = 0; i < 3; i++) {
    PyObject *o = self->raised[i];
    self->raised[i] = NULL;
    Py_DecRef(o);
  }
}

static void close_run(run *self)
{
  if (!self->r || !send_away(self) || !enter(self))
    return;
  manta_run *r = self->r;
  self->r = NULL;
  Py_BEGIN_ALLOW_THREADS;
  manta_run_close(r);
  Py_END_ALLOW_THREADS;
  leave(self);
  drop_raised(self);
}

static PyObject *tell_stop(PyObject *self, PyObject *none)
{
  manta_run *r = open_run(self);
  if (!r)
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  manta_run_tell_stop(r);
  Py_END_ALLOW_THREADS;
  drop_raised((run *)self);
  Py_IncRef(Py_None);
  return Py_None;
}

static PyObject *stored(PyObject *self, PyObject *args)
{
  double seconds;
  manta_status st;
  manta_error err = MANTA_ERROR_INIT;
  manta_run *r = open_run(self);
  if (!r || !PyArg_ParseTuple(args, "d", &seconds) || !enter((run *)self))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_run_stored(r, seconds, &err);
  Py_END_ALLOW_THREADS;
  leave((run *)self);
  if (st < 0 && st != MANTA_ETIMEDOUT)
    return mpy_raise(&err);
  return PyBool_FromLong(st == MANTA_OK);
}

static PyObject *shut(PyObject *self, PyObject *none)
{
  close_run((run *)self);
  if (PyErr_Occurred())
    return NULL;
  Py_IncRef(Py_None);
  return Py_None;
}

static void dealloc(PyObject *self)
{
  run *it = (run *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject *raised[3]; // by whatever dropped the last reference
  PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
  close_run(it);
  PyErr_Restore(raised[0], raised[1], raised[2]);
  Py_DecRef(it->owner);
  Py_DecRef(it->output);
  Py_DecRef(it->renew);
  drop_raised(it);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

static PyMethodDef methods[] = {
    {"next", next, METH_VARARGS,
     MPY_DOC("next($self, timeout=-1, /)", "(float) -> tuple[list[Any], int, int, bool] | None",
             "(rows, iteration, rewound_to, complete), or None at the end.")},
    {"drain", drain, METH_NOARGS,
     MPY_DOC("drain($self)", "() -> None", "To the end, without the rows.")},
    {"finished", finished, METH_NOARGS,
     MPY_DOC("finished($self)", "() -> bool", "Whether only the end is left.")},
    {"results", results, METH_NOARGS,
     MPY_DOC("results($self)", "() -> list[Any] | None", "Return values by rank, or None.")},
    {"stored", stored, METH_VARARGS,
     MPY_DOC("stored($self, seconds, /)", "(float) -> bool",
             "Whether a finished run is stored under its URI, after so long at most.")},
    {"tell_stop", tell_stop, METH_NOARGS,
     MPY_DOC("tell_stop($self)", "() -> None", "Says that the run is ended, and how to resume.")},
    {"close", shut, METH_NOARGS,
     MPY_DOC("close($self)", "() -> None", "Ends the run if it is going on.")},
    {NULL, NULL, 0, NULL}};

static PyMethodDef functions[] = {
    {"next_any", next_any, METH_VARARGS,
     MPY_DOC("next_any($module, runs, timeout=-1, /)",
             "(Sequence[Run | None], float) -> tuple[int, tuple[list[Any], int, int, bool] | None]",
             "(index, what next() of that run gives). None: it is over, and its next() says how.")},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)(uintptr_t) "A run of a trainer."},
                              {0, NULL}};
static PyType_Spec spec = {.name = "manta._manta.Run",
                           .basicsize = sizeof(run),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           .slots = slots};

int mpy_add_run(PyObject *module)
{
  run_type = (PyTypeObject *)PyType_FromSpec(&spec);
  if (!run_type || PyModule_AddObjectRef(module, "Run", (PyObject *)run_type) < 0)
    return -1;
  return PyModule_AddFunctions(module, functions);
}
