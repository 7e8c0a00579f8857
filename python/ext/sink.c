/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/sink.c - the sinks of a run or an experiment; and a sink without a run: for callbacks
 * that are called by hand, or that change what is written.
 */
#include "ext.h"

void mpy_sinks_fini(struct mpy_sinks *s)
{
  for (int i = 0; i < MPY_MAX_SINKS; i++)
    manta_value_fini(&s->options[i]);
}

bool mpy_take_sinks(PyObject *list, struct mpy_sinks *s)
{
  Py_ssize_t n = list == Py_None ? 0 : PyList_Size(list);
  if (n < 0 || n > MPY_MAX_SINKS) {
    if (n > 0)
      PyErr_Format(PyExc_ValueError, "a run has at most %d sinks", MPY_MAX_SINKS);
    return false;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *options;
    if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sO", &s->sink[i].kind, &options) ||
        !mpy_to_value(options, MPY_LOOSE, &s->options[i]))
      return false;
    s->sink[i].options = &s->options[i];
  }
  s->count = (size_t)n;
  return true;
}

typedef struct {
  PyObject_HEAD manta_sink_writer *w;
} sink;

static int init(PyObject *self, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"kind", "options", "directory", "config", NULL};
  manta_error err = MANTA_ERROR_INIT;
  manta_value options = {0}, config = {0};
  manta_sink it = {.options = &options};
  PyObject *given, *values;
  const char *dir;
  sink *s = (sink *)self;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOsO", names, &it.kind, &given, &dir, &values))
    return -1;
  bool ok = mpy_to_value(given, MPY_LOOSE, &options) && mpy_to_value(values, MPY_LOOSE, &config);
  manta_sink_close(s->w);
  s->w = NULL;
  if (ok && manta_sink_open(&s->w, &it, dir, &config, &err) < 0) {
    mpy_raise(&err);
    ok = false;
  }
  manta_value_fini(&options);
  manta_value_fini(&config);
  return ok ? 0 : -1;
}

static manta_sink_writer *writer(PyObject *self)
{
  manta_sink_writer *w = ((sink *)self)->w;
  if (!w)
    PyErr_SetString(PyExc_RuntimeError, "the sink is closed");
  return w;
}

static PyObject *answer(manta_status st, const manta_error *err)
{
  if (st < 0)
    return mpy_raise(err);
  Py_IncRef(Py_None);
  return Py_None;
}

// With the GIL: the values may borrow from Python's objects.
static PyObject *put(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value rows = {0};
  PyObject *given;
  long long iteration;
  if (!writer(self) || !PyArg_ParseTuple(args, "LO", &iteration, &given) ||
      !mpy_to_value(given, MPY_LOOSE, &rows))
    return NULL;
  manta_sink_writer *w = writer(self); // converting may have run anything
  manta_status st = w ? manta_sink_put(w, iteration, &rows, &err) : MANTA_OK;
  manta_value_fini(&rows);
  return w ? answer(st, &err) : NULL;
}

static PyObject *rewind_to(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  long long to;
  manta_sink_writer *w = writer(self);
  if (!w || !PyArg_ParseTuple(args, "L", &to))
    return NULL;
  return answer(manta_sink_rewind(w, to, &err), &err);
}

static PyObject *shut(PyObject *self, PyObject *none)
{
  manta_sink_writer *w = ((sink *)self)->w;
  ((sink *)self)->w = NULL;
  manta_sink_close(w);
  Py_IncRef(Py_None);
  return Py_None;
}

static void dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  manta_sink_close(((sink *)self)->w);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

static PyMethodDef methods[] = {
    {"put", put, METH_VARARGS,
     MPY_DOC("put($self, iteration, rows, /)", "(int, list[Any]) -> None",
             "Writes the rows of an iteration, by rank.")},
    {"rewind", rewind_to, METH_VARARGS,
     MPY_DOC("rewind($self, to, /)", "(int) -> None", "Iterations after it are void.")},
    {"close", shut, METH_NOARGS, MPY_DOC("close($self)", "() -> None", "Ends it. Idempotent.")},
    {NULL, NULL, 0, NULL}};

static const char sink_doc[] =
    MPY_DOC("Sink(kind, options, directory, config)",
            "(str, dict[str, Any], str, dict[str, Any]) -> None", "A sink without a run.");

static PyType_Slot slots[] = {{Py_tp_init, init},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)(uintptr_t)sink_doc},
                              {0, NULL}};
static PyType_Spec spec = {.name = "manta._manta.Sink",
                           .basicsize = sizeof(sink),
                           .flags = Py_TPFLAGS_DEFAULT,
                           .slots = slots};

int mpy_add_sink(PyObject *module)
{
  PyObject *type = PyType_FromSpec(&spec);
  return type && PyModule_AddObjectRef(module, "Sink", type) == 0 ? 0 : -1;
}
