/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/module.c - the module itself: errors, roles, the process.
 */
#include "ext.h"

#include <string.h>
#include <unistd.h>

extern char **environ;

PyObject *mpy_error;
static PyObject *peer_lost, *aborted, *preempted, *canceled, *no_room, *worker_lost, *no_column;

// --- errors --------------------------------------------------------------------------------------

static PyObject *type_of(manta_status st)
{
  switch (st) {
  case MANTA_ENOMEM:
    return PyExc_MemoryError;
  case MANTA_EINVAL:
  case MANTA_ETOOBIG:
    return PyExc_ValueError;
  case MANTA_ETYPE:
    return PyExc_TypeError;
  case MANTA_ETIMEDOUT:
    return PyExc_TimeoutError;
  case MANTA_ENOENT:
    return PyExc_FileNotFoundError;
  case MANTA_EIO:
  case MANTA_EDENIED:
    return PyExc_OSError;
  case MANTA_EPEERLOST:
    return peer_lost;
  case MANTA_EABORTED:
    return aborted;
  case MANTA_EPREEMPTED:
    return preempted;
  case MANTA_ECANCELED:
    return canceled;
  case MANTA_ENOROOM:
    return no_room;
  case MANTA_EWORKER:
  case MANTA_EHUNG:
  case MANTA_EAGENT:
    return worker_lost;
  default:
    return mpy_error;
  }
}

// It may quote bytes of a file, or a name, that are no UTF-8.
static PyObject *message_of(const manta_error *err)
{
  return PyUnicode_DecodeUTF8(err->message, (Py_ssize_t)strlen(err->message), "backslashreplace");
}

PyObject *mpy_raise_with(const manta_error *err, PyObject *detail)
{
  PyObject *type = type_of(err->status), *text = message_of(err);
  PyObject *e = text ? PyObject_CallFunction(type, "O", text) : NULL;
  PyObject *status = e ? PyUnicode_FromString(manta_status_name(err->status)) : NULL;
  PyObject *rank = status ? PyLong_FromLong(err->rank) : NULL;
  if (rank && PyObject_SetAttrString(e, "status", status) == 0 &&
      PyObject_SetAttrString(e, "rank", rank) == 0 &&
      (!detail || PyObject_SetAttrString(e, "detail", detail) == 0))
    PyErr_SetObject(type, e);
  Py_DecRef(rank);
  Py_DecRef(status);
  Py_DecRef(e);
  Py_DecRef(text);
  return NULL;
}

PyObject *mpy_raise(const manta_error *err)
{
  if (err->status == MANTA_EUSER && mpy_raise_kept(err))
    return NULL;
  return mpy_raise_with(err, NULL);
}

PyObject *mpy_raise_column(const manta_error *err)
{
  if (err->status != MANTA_ENOENT)
    return mpy_raise(err);
  PyObject *text = message_of(err);
  if (text)
    PyErr_SetObject(no_column, text);
  Py_DecRef(text);
  return NULL;
}

manta_status mpy_status_of_raised(manta_error *err)
{
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  manta_status st = MANTA_EUSER;
  if (type && PyErr_GivenExceptionMatches(type, peer_lost))
    st = MANTA_EPEERLOST;
  else if (type && PyErr_GivenExceptionMatches(type, aborted))
    st = MANTA_EABORTED;
  else if (type && PyErr_GivenExceptionMatches(type, preempted))
    st = MANTA_EPREEMPTED;
  manta_error_set(err, st, "%s", s ? s : "an exception without a text");
  PyErr_Clear();
  Py_DecRef(text);
  Py_DecRef(type);
  Py_DecRef(value);
  Py_DecRef(trace);
  return st;
}

PyObject *mpy_function(const char *module, const char *name)
{
  PyObject *m = PyImport_ImportModule(module);
  PyObject *f = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_DecRef(f); // the module keeps it
  Py_DecRef(m); // and Python the module
  return f;
}

PyObject *mpy_worker_function(const char *name)
{
  return mpy_function("manta._runtime.worker", name);
}

// --- the process ---------------------------------------------------------------------------------

const char **mpy_words(PyObject *list)
{
  Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : -1;
  if (n < 0) {
    PyErr_SetString(PyExc_TypeError, "a list of strings is wanted");
    return NULL;
  }
  const char **out = PyMem_Calloc((size_t)n + 1, sizeof *out);
  for (Py_ssize_t i = 0; out && i < n; i++)
    if (!(out[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL))) {
      PyMem_Free(out);
      return NULL;
    }
  return out ? out : (const char **)PyErr_NoMemory();
}

bool mpy_program(PyObject *pair, manta_program *p)
{
  PyObject *argv, *env;
  if (!PyArg_ParseTuple(pair, "OO", &argv, &env))
    return false;
  p->argv = mpy_words(argv);
  p->env = p->argv ? mpy_words(env) : NULL;
  return p->env != NULL;
}

void mpy_program_fini(manta_program *p)
{
  PyMem_Free((void *)(uintptr_t)p->argv);
  PyMem_Free((void *)(uintptr_t)p->env);
}

static PyObject *embed(PyObject *self, PyObject *argv)
{
  manta_error err = MANTA_ERROR_INIT;
  const char **w = mpy_words(argv);
  if (!w)
    return NULL;
  manta_status st = manta_embed((int)PyList_Size(argv), (char *const *)(uintptr_t)w, &err);
  PyMem_Free(w);
  return st < 0 ? mpy_raise(&err) : PyBool_FromLong(1);
}

static PyObject *prestart(PyObject *self, PyObject *args)
{
  PyObject *pair;
  int threads;
  manta_error err = MANTA_ERROR_INIT;
  manta_program p = MANTA_PROGRAM_INIT;
  if (!PyArg_ParseTuple(args, "O!i", &PyTuple_Type, &pair, &threads))
    return NULL;
  manta_status st = MANTA_OK;
  bool ok = mpy_program(pair, &p);
  if (ok)
    st = manta_prestart(&p, threads, &err);
  mpy_program_fini(&p);
  if (!ok)
    return NULL;
  return st < 0 ? mpy_raise(&err) : PyBool_FromLong(1);
}

static PyObject *release(PyObject *self, PyObject *none)
{
  Py_BEGIN_ALLOW_THREADS;
  manta_release();
  Py_END_ALLOW_THREADS;
  return PyBool_FromLong(1);
}

static PyObject *serving(PyObject *self, PyObject *none)
{
  return PyBool_FromLong(manta_serving());
}

static void tell_worker(const char *name)
{
  PyObject *f = mpy_worker_function(name);
  PyObject *done = f ? PyObject_CallFunctionObjArgs(f, NULL) : NULL;
  if (!done)
    PyErr_Print();
  Py_DecRef(done);
}

// Python's own words for the new side of a fork; then what manta._runtime.worker has to do there.
static void after_fork_in_child(void)
{
  PyOS_AfterFork_Child();
  tell_worker("born");
  mpy_ending_begin();
}

// In the successor of a process that forks: it is to say whether it has loaded all.
static bool warm(void)
{
  PyOS_AfterFork_Child();
  PyObject *f = mpy_worker_function("warm");
  PyObject *done = f ? PyObject_CallFunctionObjArgs(f, NULL) : NULL;
  if (!done)
    PyErr_Print();
  Py_DecRef(done);
  return done != NULL;
}

// In a worker that is to be forked for a trial.
static void prepare(const void *payload, size_t bytes)
{
  PyObject *f = mpy_worker_function("prepare_forks");
  PyObject *view = f ? mpy_view_new(Py_None, payload, bytes) : NULL;
  PyObject *done = view ? PyObject_CallFunctionObjArgs(f, view, NULL) : NULL;
  if (!done)
    PyErr_Print();
  Py_DecRef(done);
  Py_DecRef(view);
}

static PyObject *serve(PyObject *self, PyObject *args)
{
  manta_fork_hooks hooks = {PyOS_BeforeFork, PyOS_AfterFork_Parent, after_fork_in_child, NULL,
                            prepare,         &mpy_callers};
  manta_error err = MANTA_ERROR_INIT;
  PyObject *argv;
  int more;
  if (!PyArg_ParseTuple(args, "O!p", &PyList_Type, &argv, &more))
    return NULL;
  hooks.warm = more ? warm : NULL;
  const char **w = mpy_words(argv);
  if (!w)
    return NULL;
  manta_status st = manta_serve((char *const *)(uintptr_t)w, &hooks, &err);
  PyMem_Free(w);
  return st < 0 ? mpy_raise(&err) : PyBool_FromLong(1);
}

// What the C library has now: a worker's changes with every job, and os.environ is a copy.
static PyObject *environment(PyObject *self, PyObject *none)
{
  PyObject *found = PyDict_New();
  for (char **e = environ; found && *e; e++) {
    const char *equals = strchr(*e, '=');
    if (!equals)
      continue;
    PyObject *name = PyBytes_FromStringAndSize(*e, equals - *e);
    PyObject *value = PyBytes_FromString(equals + 1);
    if (!name || !value || PyDict_SetItem(found, name, value) < 0) {
      Py_DecRef(found);
      found = NULL;
    }
    Py_DecRef(name);
    Py_DecRef(value);
  }
  return found;
}

static PyObject *knob(PyObject *self, PyObject *name)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
  if (!text)
    return NULL;
  if (manta_knob(text, &v, &err) < 0)
    return mpy_raise(&err);
  PyObject *o = mpy_from_value(&v);
  manta_value_fini(&v);
  return o;
}

static PyObject *amx_cure(PyObject *self, PyObject *none)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  if (manta_knob("MANTA_AMX", &v, &err) < 0)
    return mpy_raise(&err);
  manta_value_fini(&v);
  return Py_BuildValue("z", manta_amx_cure());
}

static PyObject *version(PyObject *self, PyObject *none)
{
  return PyUnicode_FromString(manta_version());
}

// --- the module ----------------------------------------------------------------------------------

static PyMethodDef functions[] = {
    {"embed", embed, METH_O,
     MPY_DOC("embed($module, argv, /)", "(list[str]) -> bool", "This process is a driver.")},
    {"prestart", prestart, METH_VARARGS,
     MPY_DOC("prestart($module, program, threads, /)", "(tuple[list[str], list[str]], int) -> bool",
             "Starts (argv, env), that workers are forked from.")},
    {"release", release, METH_NOARGS,
     MPY_DOC("release($module)", "() -> bool", "Ends what no trainer uses.")},
    {"serving", serving, METH_NOARGS,
     MPY_DOC("serving($module)", "() -> bool",
             "Whether this process was started to fork workers.")},
    {"serve", serve, METH_VARARGS,
     MPY_DOC(
         "serve($module, argv, warm, /)", "(list[str], bool) -> bool",
         "Forks workers; comes back at the end of one. warm: later ones come from a successor.")},
    {"environment", environment, METH_NOARGS,
     MPY_DOC("environment($module)", "() -> dict[bytes, bytes]", "The C library's environment.")},
    {"knob", knob, METH_O,
     MPY_DOC("knob($module, name, /)", "(str) -> Any",
             "The value in force of a MANTA_* environment variable, by its type; None without one. "
             "ValueError says what would be right.")},
    {"storage_check", mpy_storage_check, METH_VARARGS,
     MPY_DOC("storage_check($module, uri, /)", "(str) -> None",
             "ValueError or Error: nothing can be stored under this URI, and what can be done.")},
    {"storage_local", mpy_storage_local, METH_VARARGS,
     MPY_DOC("storage_local($module, uri, /)", "(str) -> str",
             "The directory of this host that stands for a URI.")},
    {"storage_has", mpy_storage_has, METH_VARARGS,
     MPY_DOC("storage_has($module, uri, name, /)", "(str, str) -> bool",
             "Whether an object lies below the URI.")},
    {"storage_fetch", mpy_storage_fetch, METH_VARARGS,
     MPY_DOC("storage_fetch($module, uri, /)", "(str) -> str",
             "Brings runs to the directory of this host that stands for the URI.")},
    {"storage_upload", mpy_storage_upload, METH_VARARGS,
     MPY_DOC("storage_upload($module, path, uri, /)", "(str, str) -> None",
             "Stores a file, or what is in a directory.")},
    {"storage_download", mpy_storage_download, METH_VARARGS,
     MPY_DOC("storage_download($module, uri, path, /)", "(str, str) -> None",
             "All below the URI into a directory.")},
    {"amx_cure", amx_cure, METH_NOARGS,
     MPY_DOC("amx_cure($module)", "() -> str | None", "NAME=VALUE that this CPU needs, or None.")},
    {"version", version, METH_NOARGS, MPY_DOC("version($module)", "() -> str", "Of libmanta.")},
    {NULL, NULL, 0, NULL}};

static PyObject *add_error(PyObject *module, const char *name, PyObject *base, const char *doc)
{
  char full[64];
  PyOS_snprintf(full, sizeof full, "manta.%s", name);
  // Those of one that Python code has made; mpy_raise gives each its own.
  PyObject *fields = Py_BuildValue("{ss si sO}", "status", "", "rank", -1, "detail", Py_None);
  PyObject *e = fields ? PyErr_NewExceptionWithDoc(full, doc, base, fields) : NULL;
  Py_DecRef(fields);
  if (e && PyModule_AddObjectRef(module, name, e) < 0)
    return NULL;
  return e;
}

// A KeyError that prints its message as it is.
static PyObject *add_no_column(PyObject *m)
{
  PyObject *text = PyObject_GetAttrString(PyExc_Exception, "__str__");
  PyObject *fields = text ? Py_BuildValue("{sO}", "__str__", text) : NULL;
  PyObject *e = NULL;
  if (fields)
    e = PyErr_NewExceptionWithDoc("manta.NoColumn", "A data set has no column of this name.",
                                  PyExc_KeyError, fields);
  Py_DecRef(text);
  Py_DecRef(fields);
  return e && PyModule_AddObjectRef(m, "NoColumn", e) == 0 ? e : NULL;
}

static int add_errors(PyObject *m)
{
  mpy_error = add_error(m, "Error", PyExc_RuntimeError, "What manta could not do.");
  if (!mpy_error)
    return -1;
  peer_lost = add_error(m, "PeerLost", mpy_error, "Another worker of the run is gone.");
  aborted = add_error(m, "Aborted", mpy_error, "The attempt is being ended.");
  canceled = add_error(m, "Canceled", mpy_error, "The run was ended from outside.");
  no_room = add_error(m, "NoRoom", mpy_error, "Not enough CPUs, GPUs or other resources.");
  worker_lost = add_error(m, "WorkerLost", mpy_error, "A worker died, and retries are used up.");
  preempted =
      add_error(m, "Preempted", PyExc_SystemExit, "The run was asked to stop, and can be resumed.");
  no_column = add_no_column(m);
  return peer_lost && aborted && canceled && no_room && worker_lost && preempted && no_column ? 0
                                                                                              : -1;
}

static int add_statuses(PyObject *m)
{
#define ADD(name, code, harm, text)                                                                \
  if (PyModule_AddIntConstant(m, #name, code) < 0)                                                 \
    return -1;
  MANTA_STATUS_MAP(ADD)
#undef ADD
  return 0;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "manta._manta",
                                        .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__manta(void); // the interpreter knows it by its name

PyMODINIT_FUNC PyInit__manta(void)
{
  PyObject *m = PyModule_Create(&definition);
  if (m && add_errors(m) == 0 && add_statuses(m) == 0 && mpy_add_run(m) == 0 &&
      mpy_add_trainer(m) == 0 && mpy_add_checkpoint(m) == 0 && mpy_add_session(m) == 0 &&
      mpy_add_comm(m) == 0 && mpy_add_train(m) == 0 && mpy_add_arrow(m) == 0 &&
      mpy_add_batch(m) == 0 && mpy_add_data(m) == 0 && mpy_add_datasource(m) == 0 &&
      mpy_add_loader(m) == 0 && mpy_add_apply(m) == 0 && mpy_add_onearray(m) == 0 &&
      mpy_add_ending(m) == 0 && mpy_add_sink(m) == 0 && mpy_add_tune(m) == 0 &&
      mpy_add_tune_start(m) == 0 && mpy_add_search(m) == 0)
    return m;
  Py_DecRef(m);
  return NULL;
}
