/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/tune.c - manta._manta.Tune: an experiment, event by event.
 */
#include "tune.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_S 0.1 /* how often a waiting call looks for Ctrl-C */

typedef struct mpy_tune tune;

static PyTypeObject *tune_type;

static PyObject *none(void)
{
  Py_IncRef(Py_None);
  return Py_None;
}

// One call at a time, on an experiment that is open.
static manta_tune *enter(PyObject *self)
{
  tune *it = (tune *)self;
  if (!it->t)
    PyErr_SetString(PyExc_ValueError, "the experiment is closed");
  else if (it->users > 0)
    PyErr_SetString(PyExc_ValueError, "another call on this experiment is in progress");
  else
    it->users = 1;
  return PyErr_Occurred() ? NULL : it->t;
}

static void leave(PyObject *self)
{
  ((tune *)self)->users = 0;
}

// What only looks may also be called by whom a call asks; then the call in progress stays.
static manta_tune *look(PyObject *self, bool *inside)
{
  tune *it = (tune *)self;
  *inside = it->asking > 0;
  return *inside ? it->t : enter(self);
}

static void look_away(PyObject *self, bool inside)
{
  if (!inside)
    leave(self);
}

// --- making --------------------------------------------------------------------------------------

struct mpy_tune *mpy_tune_new(void)
{
  tune *it = PyObject_New(tune, tune_type);
  if (!it)
    return NULL;
  it->t = NULL;
  it->users = 0;
  it->own = false;
  it->asking = 0;
  it->searcher = it->scheduler = it->stop = it->resources = it->explore = it->names = NULL;
  it->shows = NULL;
  it->trainer_dict = NULL;
  it->trainer = (struct mpy_trainer_config){0};
  it->payload = (Py_buffer){0};
  it->raised[0] = it->raised[1] = it->raised[2] = NULL;
  return it;
}

static PyObject *open_it(PyObject *module, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  const char *what;
  if (!PyArg_ParseTuple(args, "z", &what))
    return NULL;
  tune *it = mpy_tune_new();
  if (!it)
    return NULL;
  manta_status st;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_tune_open(&it->t, what, &err);
  Py_END_ALLOW_THREADS;
  if (st < 0) {
    Py_DecRef((PyObject *)it);
    return mpy_raise(&err);
  }
  return (PyObject *)it;
}

// --- events --------------------------------------------------------------------------------------

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// As manta_tune_next, with a look for Ctrl-C now and then. Negative with err->status 0: raised.
static int wait_event(tune *it, double limit, manta_tune_event *e, manta_error *err)
{
  double by = now() + limit;
  for (;;) {
    double slice = limit < 0 || by - now() > LOOK_S ? LOOK_S : by - now();
    int rc;
    Py_BEGIN_ALLOW_THREADS;
    rc = manta_tune_next(it->t, slice > 0 ? slice : 0, e, err);
    Py_END_ALLOW_THREADS;
    if (mpy_tune_raise(it) || PyErr_CheckSignals() < 0) {
      err->status = MANTA_OK;
      return -1;
    }
    if (rc != MANTA_ETIMEDOUT || (limit >= 0 && now() >= by))
      return rc;
  }
}

static PyObject *event_to_python(const tune *it, const manta_tune_event *e)
{
  PyObject *row = mpy_tune_row(it, e->row);
  if (!row)
    return NULL;
  long long trial = e->trial == UINT64_MAX ? -1 : (long long)e->trial;
  return Py_BuildValue("(iLLNz)", (int)e->kind, trial, (long long)e->from, row,
                       e->message && *e->message ? e->message : NULL);
}

static PyObject *next(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_event e;
  double limit = -1;
  if (!PyArg_ParseTuple(args, "|d", &limit) || !enter(self))
    return NULL;
  int rc = wait_event((tune *)self, limit, &e, &err);
  PyObject *result = NULL;
  if (rc == 1)
    result = event_to_python((tune *)self, &e);
  else if (rc == 0)
    result = none();
  else if (err.status != MANTA_OK)
    mpy_raise(&err);
  leave(self);
  return result;
}

// Events that nobody asks for, without a word of Python. 1: *e is for the user.
static int pass_events(tune *it, double seconds, manta_tune_event *e, manta_error *err)
{
  double by = now() + seconds;
  int rc;
  Py_BEGIN_ALLOW_THREADS;
  do {
    double left = by - now();
    rc = manta_tune_next(it->t, left > 0 ? left : 0, e, err);
  } while (rc == 1 && e->kind != MANTA_TUNE_FAILED && e->kind != MANTA_TUNE_NOTE && now() < by);
  Py_END_ALLOW_THREADS;
  if (mpy_tune_raise(it) || PyErr_CheckSignals() < 0) {
    err->status = MANTA_OK;
    return -1;
  }
  return rc;
}

static PyObject *pass(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_event e;
  double seconds;
  if (!PyArg_ParseTuple(args, "d", &seconds) || !enter(self))
    return NULL;
  int rc = pass_events((tune *)self, seconds, &e, &err);
  PyObject *result = NULL;
  if (rc == 1 && (e.kind == MANTA_TUNE_FAILED || e.kind == MANTA_TUNE_NOTE))
    result = event_to_python((tune *)self, &e);
  else if (rc == 1 || rc == MANTA_ETIMEDOUT)
    result = PyTuple_New(0);
  else if (rc == 0)
    result = none();
  else if (err.status != MANTA_OK)
    mpy_raise(&err);
  leave(self);
  return result;
}

static PyObject *stop(PyObject *self, PyObject *args)
{
  manta_tune *t;
  int save = 0;
  if (!PyArg_ParseTuple(args, "|p", &save) || !(t = enter(self)))
    return NULL;
  manta_tune_stop(t, save);
  leave(self);
  return none();
}

static PyObject *stop_trial(PyObject *self, PyObject *args)
{
  manta_tune *t;
  unsigned long long number;
  if (!PyArg_ParseTuple(args, "K", &number) || !(t = enter(self)))
    return NULL;
  manta_tune_stop_trial(t, number);
  leave(self);
  return none();
}

// --- results -------------------------------------------------------------------------------------

static PyObject *trial(PyObject *self, PyObject *args)
{
  bool inside;
  manta_error err = MANTA_ERROR_INIT;
  manta_trial x;
  manta_tune *t;
  unsigned long long number;
  PyObject *out = NULL, *values[4] = {0};
  if (!PyArg_ParseTuple(args, "K", &number) || !(t = look(self, &inside)))
    return NULL;
  if (manta_tune_trial(t, number, &x, &err) < 0) {
    look_away(self, inside);
    return mpy_raise(&err);
  }
  const manta_value *from[4] = {x.config, x.last, x.best, x.result};
  bool ok = true;
  for (int i = 0; i < 4; i++)
    ok = (values[i] = mpy_tune_row((tune *)self, from[i])) && ok;
  if (ok)
    out = Py_BuildValue("{sK,ss,sO,sO,sO,sO,sL,si,ss,ss,sd,sd,sd}", "number", number, "state",
                        manta_trial_state_name(x.state), "config", values[0], "last", values[1],
                        "best", values[2], "result", values[3], "iteration", (long long)x.iteration,
                        "failures", x.failures, "dir", x.dir, "message", x.message, "began",
                        x.began_s, "ended", x.ended_s, "trained", x.trained_s);
  for (int i = 0; i < 4; i++)
    Py_DecRef(values[i]);
  look_away(self, inside);
  return out;
}

static PyObject *count(PyObject *self, PyObject *args)
{
  bool inside;
  manta_tune *t;
  int state = -1;
  if (!PyArg_ParseTuple(args, "|i", &state) || !(t = look(self, &inside)))
    return NULL;
  uint64_t n =
      state < 0 ? manta_tune_count(t) : manta_tune_count_state(t, (manta_trial_state)state);
  look_away(self, inside);
  return PyLong_FromUnsignedLongLong(n);
}

static PyObject *best(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune *t;
  const char *metric;
  int maximize, any;
  uint64_t number;
  if (!PyArg_ParseTuple(args, "zpp", &metric, &maximize, &any) || !(t = enter(self)))
    return NULL;
  manta_status st = manta_tune_best(t, metric, maximize, any, &number, &err);
  leave(self);
  return st < 0 ? mpy_raise(&err) : PyLong_FromUnsignedLongLong(number);
}

static PyObject *checkpoint(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune *t;
  manta_checkpoint *c = NULL;
  unsigned long long number;
  manta_status st;
  if (!PyArg_ParseTuple(args, "K", &number) || !(t = enter(self)))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_tune_checkpoint(t, number, &c, &err);
  Py_END_ALLOW_THREADS;
  leave(self);
  return st < 0 ? mpy_raise(&err) : mpy_checkpoint_new(c);
}

static PyObject *checkpoint_dir(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune *t;
  unsigned long long number;
  char path[4096];
  if (!PyArg_ParseTuple(args, "K", &number) || !(t = enter(self)))
    return NULL;
  manta_status st = manta_tune_checkpoint_dir(t, number, path, sizeof path, &err);
  leave(self);
  if (st == MANTA_ENOENT)
    return none();
  return st < 0 ? mpy_raise(&err) : PyUnicode_DecodeFSDefault(path);
}

struct row_list {
  const tune *it;
  PyObject *list;
};

static manta_status add_row(void *ctx, const manta_value *row, manta_error *err)
{
  struct row_list *to = ctx;
  PyObject *r = mpy_tune_row(to->it, row);
  bool ok = r && PyList_Append(to->list, r) == 0;
  Py_DecRef(r);
  return ok ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "a row cannot be read");
}

static PyObject *rows(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune *t;
  unsigned long long number;
  if (!PyArg_ParseTuple(args, "K", &number) || !(t = enter(self)))
    return NULL;
  struct row_list to = {(tune *)self, PyList_New(0)};
  manta_status st = to.list ? manta_tune_rows(t, number, &to, add_row, &err) : MANTA_ENOMEM;
  leave(self);
  if (st == MANTA_OK)
    return to.list;
  Py_DecRef(to.list);
  return PyErr_Occurred() ? NULL : mpy_raise(&err);
}

static PyObject *dir(PyObject *self, PyObject *ignored)
{
  bool inside;
  manta_tune *t = look(self, &inside);
  if (!t)
    return NULL;
  PyObject *s = PyUnicode_DecodeFSDefault(manta_tune_dir(t));
  look_away(self, inside);
  return s;
}

static PyObject *info(PyObject *self, PyObject *ignored)
{
  bool inside;
  manta_tune *t = look(self, &inside);
  if (!t)
    return NULL;
  PyObject *o = mpy_from_value(manta_tune_info(t));
  look_away(self, inside);
  return o;
}

// --- the end -------------------------------------------------------------------------------------

static void close_it(tune *it)
{
  manta_tune *t = it->t;
  if (!t || it->users > 0)
    return;
  it->t = NULL;
  Py_BEGIN_ALLOW_THREADS;
  manta_tune_close(t);
  Py_END_ALLOW_THREADS;
}

static PyObject *shut(PyObject *self, PyObject *ignored)
{
  close_it((tune *)self);
  return none();
}

static void dealloc(PyObject *self)
{
  tune *it = (tune *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject *raised[3];
  PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
  close_it(it);
  PyErr_Restore(raised[0], raised[1], raised[2]);
  for (int i = 0; i < 3; i++)
    Py_DecRef(it->raised[i]);
  Py_DecRef(it->searcher);
  Py_DecRef(it->scheduler);
  Py_DecRef(it->stop);
  Py_DecRef(it->resources);
  Py_DecRef(it->explore);
  Py_DecRef(it->names);
  Py_DecRef(it->shows);
  mpy_trainer_config_fini(&it->trainer);
  Py_DecRef(it->trainer_dict);
  PyBuffer_Release(&it->payload);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

static PyMethodDef methods[] = {
    {"next", next, METH_VARARGS,
     MPY_DOC("next($self, timeout=-1, /)",
             "(float) -> tuple[int, int, int, Any, str | None] | None",
             "(kind, trial or -1, from, row, message), or None when the experiment is over.")},
    {"pass_events", pass, METH_VARARGS,
     MPY_DOC("pass_events($self, seconds, /)",
             "(float) -> tuple[int, int, int, Any, str | None] | tuple[()] | None",
             "As next, but only for failures and notes; () when the time is up.")},
    {"stop", stop, METH_VARARGS,
     MPY_DOC("stop($self, save=False, /)", "(bool) -> None",
             "No further trial begins; save: those that run save first, and can go on later.")},
    {"stop_trial", stop_trial, METH_VARARGS,
     MPY_DOC("stop_trial($self, number, /)", "(int) -> None", "Ends one trial.")},
    {"trial", trial, METH_VARARGS,
     MPY_DOC("trial($self, number, /)", "(int) -> dict[str, Any]", "A trial as it is now.")},
    {"count", count, METH_VARARGS,
     MPY_DOC("count($self, state=-1, /)", "(int) -> int", "Of all trials, or those in a state.")},
    {"best", best, METH_VARARGS,
     MPY_DOC("best($self, metric, maximize, any_row, /)", "(str | None, bool, bool) -> int",
             "The number of the best trial.")},
    {"checkpoint", checkpoint, METH_VARARGS,
     MPY_DOC("checkpoint($self, number, /)", "(int) -> Checkpoint | None",
             "The newest one of a trial.")},
    {"checkpoint_dir", checkpoint_dir, METH_VARARGS,
     MPY_DOC("checkpoint_dir($self, number, /)", "(int) -> str | None", "Its directory.")},
    {"rows", rows, METH_VARARGS,
     MPY_DOC("rows($self, number, /)", "(int) -> list[Any]", "All rows of a trial that count.")},
    {"dir", dir, METH_NOARGS, MPY_DOC("dir($self)", "() -> str", "Its directory.")},
    {"info", info, METH_NOARGS,
     MPY_DOC("info($self)", "() -> dict[str, Any]", "What the experiment began with.")},
    {"close", shut, METH_NOARGS,
     MPY_DOC("close($self)", "() -> None", "Ends what runs, and frees it.")},
    {NULL, NULL, 0, NULL}};

static PyMethodDef functions[] = {
    {"tune_open", open_it, METH_VARARGS,
     MPY_DOC("tune_open($module, what, /)", "(str | None) -> Tune", "Reads an experiment.")},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)(uintptr_t) "An experiment."},
                              {0, NULL}};
static PyType_Spec spec = {.name = "manta._manta.Tune",
                           .basicsize = sizeof(tune),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           .slots = slots};

int mpy_add_tune(PyObject *module)
{
  tune_type = (PyTypeObject *)PyType_FromSpec(&spec);
  if (!tune_type || PyModule_AddObjectRef(module, "Tune", (PyObject *)tune_type) < 0)
    return -1;
  return PyModule_AddFunctions(module, functions);
}
