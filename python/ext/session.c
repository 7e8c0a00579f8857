/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/session.c - what a train function calls: straight to libmanta.
 *
 * Outside of a worker each gives NULL in Python's sense: the functions of manta.sgd look first
 * (in_worker) and say what is to be said.
 */
#include <string.h>

#include "ext.h"

#define MAX_METRICS 256 /* on the stack; more go through a dict */

static manta_session *session(void)
{
  manta_session *s = manta_session_current();
  if (!s) {
    manta_error err = MANTA_ERROR_INIT;
    manta_error_set(&err, MANTA_ESTATE, "there is no session: this is not a train function");
    mpy_raise(&err);
  }
  return s;
}

static PyObject *done(manta_status st, const manta_error *err)
{
  if (st < 0)
    return mpy_raise(err);
  Py_IncRef(Py_None);
  return Py_None;
}

// --- report --------------------------------------------------------------------------------------

static PyObject *send_row(manta_session *s, const manta_value *row)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_status st;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_session_report(s, row, &err);
  Py_END_ALLOW_THREADS;
  return done(st, &err);
}

// What UTF-8 has no bytes for, a lone surrogate, is written as its escape: \udcff. `held` keeps the
// text.
static const char *metric_name(PyObject *name, PyObject **held)
{
  Py_ssize_t size = 0;
  const char *text = PyUnicode_AsUTF8AndSize(name, &size);
  if (!text) {
    PyErr_Clear();
    PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace");
    if (!bytes)
      return NULL;
    if (!*held)
      *held = PyList_New(0);
    bool kept = *held && PyList_Append(*held, bytes) == 0;
    text = kept ? PyBytes_AsString(bytes) : NULL;
    size = PyBytes_Size(bytes);
    Py_DecRef(bytes);
  }
  if (!text || strlen(text) == (size_t)size)
    return text;
  PyErr_Format(PyExc_ValueError, "the name of a metric has a NUL in it: %R", name);
  return NULL;
}

// Which one it was: what pickle says names a type alone.
static void refuse_metric(PyObject *name)
{
  PyObject *type, *value, *trace;
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
    return; // Ctrl-C
  PyErr_Fetch(&type, &value, &trace);
  if (value)
    PyErr_Format(PyExc_TypeError, "the metric %R cannot be reported: %S", name, value);
  else
    PyErr_Format(PyExc_TypeError, "the metric %R cannot be reported", name);
  Py_DecRef(type);
  Py_DecRef(value);
  Py_DecRef(trace);
}

static bool take_metrics(manta_pair *pairs, PyObject *const *values, PyObject *names, Py_ssize_t n,
                         PyObject **held)
{
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    pairs[i] = (manta_pair){.key = name ? metric_name(name, held) : NULL};
    if (!pairs[i].key)
      return false;
    if (!mpy_to_value(values[i], MPY_LOOSE, &pairs[i].value)) {
      refuse_metric(name);
      return false;
    }
  }
  return true;
}

static PyObject *report(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
  manta_pair pairs[MAX_METRICS] = {{0}};
  Py_ssize_t n = names ? PyTuple_Size(names) : 0;
  manta_session *s = session();
  if (!s)
    return NULL;
  if (nargs > 0)
    return PyErr_Format(PyExc_TypeError, "report takes its metrics by name: report(loss=…)");
  if (n > MAX_METRICS)
    return PyErr_Format(PyExc_ValueError,
                        "a report of %zd metrics; at most %d: what belongs together can be a dict",
                        n, MAX_METRICS);
  manta_value row = {.type = MANTA_MAP, .count = (uint32_t)n, .u.pairs = pairs};
  PyObject *held = NULL;
  PyObject *result = take_metrics(pairs, args, names, n, &held) ? send_row(s, &row) : NULL;
  for (Py_ssize_t i = 0; i < n; i++)
    manta_value_fini(&pairs[i].value);
  Py_DecRef(held);
  return result;
}

// --- who am I ------------------------------------------------------------------------------------

static PyObject *in_session(PyObject *self, PyObject *none)
{
  return PyBool_FromLong(manta_session_current() != NULL);
}

static PyObject *place(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  return s ? Py_BuildValue("(iiiiii)", manta_session_rank(s), manta_session_world_size(s),
                           manta_session_local_rank(s), manta_session_local_world_size(s),
                           manta_session_node_rank(s), manta_session_attempt(s))
           : NULL;
}

static PyObject *own_address(PyObject *self, PyObject *none)
{
  manta_error err = MANTA_ERROR_INIT;
  const char *address, *interface;
  manta_session *s = session();
  if (!s)
    return NULL;
  manta_status st = manta_session_address(s, &address, &interface, &err);
  return st < 0 ? mpy_raise(&err) : Py_BuildValue("(ss)", address, interface);
}

static PyObject *iteration(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  return s ? PyLong_FromLongLong(manta_session_iteration(s)) : NULL;
}

static PyObject *config(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  return s ? mpy_from_value(manta_session_config(s)) : NULL;
}

// Of a trial: its driver has written it, as it has the train function.
static PyObject *trial_config(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  return s ? mpy_from_own(manta_session_config(s)) : NULL;
}

static PyObject *run_dir(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  const char *dir = s ? manta_session_run_dir(s) : NULL;
  return s ? PyUnicode_DecodeFSDefault(dir ? dir : "") : NULL;
}

static PyObject *payload(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  size_t n = 0;
  const void *p = s ? manta_session_payload(s, &n) : NULL;
  return s ? mpy_view_new(Py_None, p, n) : NULL;
}

// --- random states -------------------------------------------------------------------------------

static PyObject *save_random(PyObject *self, PyObject *bytes)
{
  manta_error err = MANTA_ERROR_INIT;
  char *p;
  Py_ssize_t n;
  manta_session *s = session();
  if (!s || PyBytes_AsStringAndSize(bytes, &p, &n) < 0)
    return NULL;
  manta_status st;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_session_save_random(s, p, (size_t)n, &err);
  Py_END_ALLOW_THREADS;
  return done(st, &err);
}

static PyObject *load_random(PyObject *self, PyObject *none)
{
  manta_error err = MANTA_ERROR_INIT;
  void *p = NULL;
  size_t n = 0;
  int owner = -1;
  manta_session *s = session();
  if (!s)
    return NULL;
  manta_status st;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_session_load_random(s, &p, &n, &owner, &err);
  Py_END_ALLOW_THREADS;
  PyObject *result = st < 0      ? mpy_raise(&err)
                     : owner < 0 ? done(MANTA_OK, NULL)
                                 : Py_BuildValue("(iy#)", owner, (const char *)p, (Py_ssize_t)n);
  manta_free(p);
  return result;
}

// --- signs of life -------------------------------------------------------------------------------

static PyObject *preempted(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  return s ? PyBool_FromLong(manta_session_preempted(s)) : NULL;
}

static PyObject *heartbeat(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  if (!s)
    return NULL;
  manta_session_heartbeat(s);
  return done(MANTA_OK, NULL);
}

static PyObject *ahead(PyObject *self, PyObject *metrics)
{
  manta_value row = {0};
  manta_session *s = session();
  if (!s)
    return NULL;
  bool taken = mpy_to_value(metrics, MPY_LOOSE, &row);
  if (taken)
    manta_session_ahead(s, &row);
  manta_value_fini(&row);
  return taken ? done(MANTA_OK, NULL) : NULL;
}

static PyObject *check(PyObject *self, PyObject *none)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_session *s = session();
  return s ? done(manta_session_check(s, &err), &err) : NULL;
}

static PyObject *leave(PyObject *self, PyObject *none)
{
  manta_leave(); // comes back only where there is nothing to leave
  return done(MANTA_OK, NULL);
}

static PyObject *departed(PyObject *self, PyObject *none)
{
  manta_session *s = session();
  return s ? PyLong_FromLong(manta_session_departed(s)) : NULL;
}

// --- checkpoints ---------------------------------------------------------------------------------

static PyObject *load(PyObject *self, PyObject *none)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_session *s = session();
  manta_checkpoint *c = NULL;
  manta_status st;
  if (!s)
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_session_load(s, &c, &err);
  Py_END_ALLOW_THREADS;
  return st < 0 ? mpy_raise(&err) : mpy_checkpoint_new(c);
}

// What a state is saved with, besides itself.
struct how {
  PyObject *fill; /* or NULL */
  size_t count;   /* of its tensors */
  int sharded;
};

static PyObject *addresses(void *const *dst, size_t n)
{
  PyObject *list = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; list && i < n; i++)
    if (PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromVoidPtr(dst[i])) < 0) {
      Py_DecRef(list);
      return NULL;
    }
  return list;
}

// An exception stays set, for save to find.
static manta_status call_fill(void *ctx, void *const *dst, const manta_slot_memory *m,
                              manta_error *err)
{
  const struct how *how = ctx;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *list = addresses(dst, how->count);
  PyObject *done = list ? PyObject_CallFunction(
                              how->fill, "NKnK(KKK)", list, (unsigned long long)(uintptr_t)m->base,
                              (Py_ssize_t)m->bytes, m->serial, m->live[0], m->live[1], m->live[2])
                        : NULL;
  Py_DecRef(done);
  PyGILState_Release(gil);
  return done ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "the state could not be filled in");
}

static PyObject *save_state(manta_session *s, const manta_state *state, struct how *how)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_status st;
  Py_BEGIN_ALLOW_THREADS;
  if (how->sharded)
    st = manta_session_save_sharded(s, state, &err);
  else
    st = manta_session_save_by(s, state, how->fill ? call_fill : NULL, how, &err);
  Py_END_ALLOW_THREADS;
  return PyErr_Occurred() ? NULL : done(st, &err);
}

/* fill(addresses, base, bytes, serial, live) writes those whose address is 0 into the slot. */
static PyObject *save(PyObject *self, PyObject *args)
{
  PyObject *rows, *extra, *fill = Py_None;
  struct how how = {0};
  manta_session *s = session();
  if (!s || !PyArg_ParseTuple(args, "O!O!|Op", &PyList_Type, &rows, &PyDict_Type, &extra, &fill,
                              &how.sharded))
    return NULL;
  how.fill = fill == Py_None ? NULL : fill;
  how.count = (size_t)PyList_Size(rows);
  manta_value value = {0};
  manta_state state = {.value = &value};
  PyObject *result = mpy_to_state(rows, extra, &state, &value) ? save_state(s, &state, &how) : NULL;
  mpy_state_fini(&state, &value);
  return result;
}

/* The path that a call on the session gives. */
static PyObject *path_by(manta_status (*call)(manta_session *, const char **, manta_error *))
{
  manta_error err = MANTA_ERROR_INIT;
  manta_session *s = session();
  const char *dir;
  manta_status st;
  if (!s)
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = call(s, &dir, &err);
  Py_END_ALLOW_THREADS;
  return st < 0 ? mpy_raise(&err) : PyUnicode_DecodeFSDefault(dir);
}

static PyObject *files(PyObject *self, PyObject *none)
{
  return path_by(manta_session_files);
}

static PyObject *directory(PyObject *self, PyObject *none)
{
  return path_by(manta_session_directory);
}

static PyMethodDef functions[] = {
    {"report", (PyCFunction)(void (*)(void))report, METH_FASTCALL | METH_KEYWORDS,
     MPY_DOC("report($module, **metrics)", "(Any) -> None", "Queues one row.")},
    {"in_session", in_session, METH_NOARGS,
     MPY_DOC("in_session($module)", "() -> bool", "Whether a train function is running.")},
    {"place", place, METH_NOARGS,
     MPY_DOC("place($module)", "() -> tuple[int, int, int, int, int, int]",
             "(rank, world size, local rank, local world size, node rank, attempt).")},
    {"own_address", own_address, METH_NOARGS,
     MPY_DOC("own_address($module)", "() -> tuple[str, str]",
             "Where other hosts reach this one: an address, and the interface that has it.")},
    {"iteration", iteration, METH_NOARGS,
     MPY_DOC("iteration($module)", "() -> int", "Reports made so far.")},
    {"save_random", save_random, METH_O,
     MPY_DOC("save_random($module, states, /)", "(bytes) -> None",
             "This rank's, for the checkpoint of the reports made so far.")},
    {"load_random", load_random, METH_NOARGS,
     MPY_DOC(
         "load_random($module)", "() -> tuple[int, bytes] | None",
         "Those of the checkpoint that the attempt began from, and whose they are: this rank's, "
         "or else rank 0's.")},
    {"trial_config", trial_config, METH_NOARGS,
     MPY_DOC("trial_config($module)", "() -> Any", "The config of this trial.")},
    {"config", config, METH_NOARGS, MPY_DOC("config($module)", "() -> Any", "The run's config.")},
    {"run_dir", run_dir, METH_NOARGS,
     MPY_DOC("run_dir($module)", "() -> str",
             "The run's directory, on the driver's host; empty outside of a run.")},
    {"payload", payload, METH_NOARGS,
     MPY_DOC("payload($module)", "() -> View",
             "The bytes that came with the run, until its function returns.")},
    {"preempted", preempted, METH_NOARGS,
     MPY_DOC("preempted($module)", "() -> bool", "Whether the run was asked to stop.")},
    {"heartbeat", heartbeat, METH_NOARGS,
     MPY_DOC("heartbeat($module)", "() -> None", "A sign of life.")},
    {"check", check, METH_NOARGS,
     MPY_DOC("check($module)", "() -> None", "Raises what report would raise now.")},
    {"leave", leave, METH_NOARGS,
     MPY_DOC("leave($module)", "() -> None",
             "Ends the train function well, and the process at once.")},
    {"departed", departed, METH_NOARGS,
     MPY_DOC("departed($module)", "() -> int", "A rank that has left its train function, or -1.")},
    {"save", save, METH_VARARGS,
     MPY_DOC("save($module, tensors, value, fill=None, sharded=False, /)",
             "(list[tuple[str, int, tuple[int, ...], int]], dict[str, Any], "
             "Callable[..., None] | None, bool) -> None",
             "Snapshots a state: name, dtype, shape and address of each tensor, and a value.")},
    {"ahead", ahead, METH_O,
     MPY_DOC("ahead($module, metrics, /)", "(dict[str, Any]) -> None",
             "The next save belongs to the report of these that follows it.")},
    {"files", files, METH_NOARGS,
     MPY_DOC("files($module)", "() -> str", "A directory for files beside the next state.")},
    {"directory", directory, METH_NOARGS,
     MPY_DOC("directory($module)", "() -> str",
             "Where the user's files of the next report's checkpoint go.")},
    {"load", load, METH_NOARGS,
     MPY_DOC("load($module)", "() -> Checkpoint | None", "The newest checkpoint, or None.")},
    {NULL, NULL, 0, NULL}};

int mpy_add_session(PyObject *module)
{
  return PyModule_AddFunctions(module, functions);
}
