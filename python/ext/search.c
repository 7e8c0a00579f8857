/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/search.c - manta._manta.Search: a searcher of libmanta by itself.
 */
#include "ext.h"

typedef struct {
  PyObject_HEAD manta_search *s;
} search;

static int init(PyObject *self, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"name", "space", "options", "seed", NULL};
  manta_error err = MANTA_ERROR_INIT;
  manta_value space = {0}, options = {0};
  PyObject *given, *more = Py_None;
  const char *name;
  unsigned long long seed = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO|OK", names, &name, &given, &more, &seed))
    return -1;
  bool ok = mpy_to_value(given, MPY_SPACE, &space) &&
            (more == Py_None || mpy_to_value(more, MPY_LOOSE, &options));
  if (ok && manta_search_open(&((search *)self)->s, name, &space, more == Py_None ? NULL : &options,
                              seed, &err) < 0) {
    mpy_raise(&err);
    ok = false;
  }
  manta_value_fini(&options);
  manta_value_fini(&space);
  return ok ? 0 : -1;
}

static void dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  manta_search_close(((search *)self)->s);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

static PyObject *propose(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value config = {0};
  unsigned long long number;
  if (!PyArg_ParseTuple(args, "K", &number))
    return NULL;
  if (manta_search_propose(((search *)self)->s, number, &config, &err) < 0)
    return mpy_raise(&err);
  PyObject *o = mpy_from_own(&config);
  manta_value_fini(&config);
  return o;
}

static PyObject *observe(PyObject *self, PyObject *args)
{
  unsigned long long number;
  double value;
  if (!PyArg_ParseTuple(args, "Kd", &number, &value))
    return NULL;
  manta_search_observe(((search *)self)->s, number, value);
  Py_IncRef(Py_None);
  return Py_None;
}

static PyObject *grid(PyObject *self, PyObject *none)
{
  return PyLong_FromUnsignedLongLong(manta_search_grid(((search *)self)->s));
}

static PyMethodDef methods[] = {
    {"propose", propose, METH_VARARGS,
     MPY_DOC("propose($self, number, /)", "(int) -> dict[str, Any]", "The config of a trial.")},
    {"observe", observe, METH_VARARGS,
     MPY_DOC("observe($self, number, value, /)", "(int, float) -> None",
             "That trial has reached a value, which is to be small.")},
    {"grid", grid, METH_NOARGS,
     MPY_DOC("grid($self)", "() -> int", "Combinations of all grids of its space.")},
    {NULL, NULL, 0, NULL}};

static const char search_doc[] =
    MPY_DOC("Search(name, space, options=None, seed=0)",
            "(str, dict[str, Any], dict[str, Any] | None, int) -> None", "A searcher of libmanta.");

static PyType_Slot slots[] = {{Py_tp_init, init},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)(uintptr_t)search_doc},
                              {0, NULL}};
static PyType_Spec spec = {.name = "manta._manta.Search",
                           .basicsize = sizeof(search),
                           .flags = Py_TPFLAGS_DEFAULT,
                           .slots = slots};

int mpy_add_search(PyObject *module)
{
  PyObject *type = PyType_FromSpec(&spec);
  int rc = type ? PyModule_AddObjectRef(module, "Search", type) : -1;
  Py_DecRef(type);
  return rc;
}
