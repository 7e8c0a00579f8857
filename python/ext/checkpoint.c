/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/checkpoint.c - manta._manta.Checkpoint: named tensors and a value that can be read.
 *
 * A tensor's bytes come out as a View, which has the buffer interface and keeps the checkpoint
 * open: nothing is copied. The memory is private to this process and may be written to.
 */
#include "ext.h"

typedef struct {
  PyObject_HEAD manta_checkpoint *c;
} checkpoint;

typedef struct {
  PyObject_HEAD PyObject *owner; /* a checkpoint, a batch, or None */
  void *data;
  Py_ssize_t bytes;
  int readonly;
} view;

static PyTypeObject *checkpoint_type, *view_type;

// --- views ---------------------------------------------------------------------------------------

static PyObject *view_new(PyObject *owner, void *data, Py_ssize_t bytes)
{
  view *v = PyObject_New(view, view_type);
  if (!v)
    return NULL;
  Py_IncRef(owner);
  v->owner = owner;
  v->data = data;
  v->bytes = bytes;
  v->readonly = 0;
  return (PyObject *)v;
}

PyObject *mpy_view_new(PyObject *owner, const void *data, size_t bytes)
{
  PyObject *v = view_new(owner, (void *)(uintptr_t)data, (Py_ssize_t)bytes);
  if (v)
    ((view *)v)->readonly = 1;
  return v;
}

static int view_buffer(PyObject *self, Py_buffer *b, int flags)
{
  view *v = (view *)self;
  return PyBuffer_FillInfo(b, self, v->data, v->bytes, v->readonly, flags);
}

static void view_dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  Py_DecRef(((view *)self)->owner);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

static PyObject *view_of(PyObject *self, PyObject *args)
{
  unsigned long long at;
  Py_ssize_t bytes;
  PyObject *owner;
  if (!PyArg_ParseTuple(args, "KnO", &at, &bytes, &owner))
    return NULL;
  if (bytes < 0 || (at == 0 && bytes > 0))
    return PyErr_Format(PyExc_ValueError, "no memory at %llu", at);
  return view_new(owner, (void *)(uintptr_t)at, bytes);
}

/* address(object) -> where the bytes of an object with the buffer interface lie. They stay there as
 * long as somebody holds the object and does not change its size. */
static PyObject *address(PyObject *self, PyObject *o)
{
  Py_buffer b;
  if (PyObject_GetBuffer(o, &b, PyBUF_SIMPLE) < 0)
    return NULL;
  PyObject *at = PyLong_FromVoidPtr(b.buf);
  PyBuffer_Release(&b);
  return at;
}

// --- states --------------------------------------------------------------------------------------

// (name, dtype number, shape, address) of each tensor.
static bool take_tensor(PyObject *row, manta_tensor *t)
{
  PyObject *shape;
  unsigned long long at;
  int dtype;
  if (!PyArg_ParseTuple(row, "siO!K", &t->name, &dtype, &PyTuple_Type, &shape, &at))
    return false;
  Py_ssize_t n = PyTuple_Size(shape);
  if (n > MANTA_MAX_DIMS) {
    PyErr_Format(PyExc_ValueError, "tensor %s has %zd dimensions, at most %d", t->name, n,
                 MANTA_MAX_DIMS);
    return false;
  }
  t->dtype = (manta_dtype)dtype;
  t->ndim = (int)n;
  t->data = (void *)(uintptr_t)at;
  for (Py_ssize_t i = 0; i < n; i++)
    t->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
  return !PyErr_Occurred();
}

static bool take_tensors(PyObject *rows, manta_tensor *tensors, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (!take_tensor(PyList_GetItem(rows, (Py_ssize_t)i), &tensors[i]))
      return false;
  return true;
}

bool mpy_to_state(PyObject *rows, PyObject *extra, manta_state *out, manta_value *value)
{
  out->count = (size_t)PyList_Size(rows);
  manta_tensor *tensors = PyMem_Calloc(out->count + 1, sizeof *tensors);
  out->tensors = tensors;
  if (!tensors) {
    PyErr_NoMemory();
    return false;
  }
  if (!mpy_to_value(extra, MPY_EXACT, value)) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError, "the small value of a checkpoint is a dict of plain values");
    return false;
  }
  return take_tensors(rows, tensors, out->count);
}

void mpy_state_fini(manta_state *state, manta_value *value)
{
  manta_value_fini(value);
  PyMem_Free((void *)(uintptr_t)state->tensors);
}

// --- checkpoints ---------------------------------------------------------------------------------

PyObject *mpy_checkpoint_new(manta_checkpoint *c)
{
  if (!c) {
    Py_IncRef(Py_None);
    return Py_None;
  }
  checkpoint *self = PyObject_New(checkpoint, checkpoint_type);
  if (!self)
    manta_checkpoint_close(c);
  else
    self->c = c;
  return (PyObject *)self;
}

static void checkpoint_dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  manta_checkpoint_close(((checkpoint *)self)->c);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

static PyObject *shape_of(const manta_tensor *t)
{
  PyObject *shape = PyTuple_New(t->ndim);
  for (int i = 0; shape && i < t->ndim; i++)
    if (PyTuple_SetItem(shape, i, PyLong_FromLongLong(t->shape[i])) < 0) {
      Py_DecRef(shape);
      return NULL;
    }
  return shape;
}

static PyObject *tensors(PyObject *self, PyObject *none)
{
  const manta_checkpoint *c = ((checkpoint *)self)->c;
  size_t n = manta_checkpoint_count(c);
  PyObject *list = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; list && i < n; i++) {
    const manta_tensor *t = manta_checkpoint_at(c, i);
    PyObject *shape = shape_of(t);
    PyObject *data = shape ? view_new(self, t->data, (Py_ssize_t)manta_tensor_bytes(t)) : NULL;
    PyObject *row = data ? Py_BuildValue("(siNN)", t->name, (int)t->dtype, shape, data) : NULL;
    if (!row || PyList_SetItem(list, (Py_ssize_t)i, row) < 0) {
      Py_DecRef(list);
      return NULL;
    }
  }
  return list;
}

static PyObject *value(PyObject *self, PyObject *none)
{
  return mpy_from_value(manta_checkpoint_value(((checkpoint *)self)->c));
}

static PyObject *iteration(PyObject *self, PyObject *none)
{
  return PyLong_FromLongLong(manta_checkpoint_iteration(((checkpoint *)self)->c));
}

static PyObject *given(PyObject *self, PyObject *none)
{
  return PyBool_FromLong(manta_checkpoint_given(((checkpoint *)self)->c));
}

static PyObject *open_checkpoint(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  const char *dir;
  int verify = 1;
  manta_status st;
  if (!PyArg_ParseTuple(args, "s|p", &dir, &verify))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_checkpoint_open(&c, dir, verify, &err);
  Py_END_ALLOW_THREADS;
  return st < 0 ? mpy_raise(&err) : mpy_checkpoint_new(c);
}

static PyObject *write_checkpoint(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  PyObject *rows, *extra;
  manta_value value = {0};
  manta_state state = {.value = &value};
  const char *dir;
  manta_status st = MANTA_OK;
  if (!PyArg_ParseTuple(args, "sO!O!", &dir, &PyList_Type, &rows, &PyDict_Type, &extra))
    return NULL;
  bool ok = mpy_to_state(rows, extra, &state, &value);
  if (ok) {
    Py_BEGIN_ALLOW_THREADS;
    st = manta_checkpoint_write(dir, &state, &err);
    Py_END_ALLOW_THREADS;
  }
  mpy_state_fini(&state, &value);
  if (!ok || st < 0)
    return ok ? mpy_raise(&err) : NULL;
  Py_IncRef(Py_None);
  return Py_None;
}

static PyMethodDef methods[] = {
    {"tensors", tensors, METH_NOARGS,
     MPY_DOC("tensors($self)", "() -> list[tuple[str, int, tuple[int, ...], View]]",
             "Name, dtype, shape and bytes of each.")},
    {"value", value, METH_NOARGS,
     MPY_DOC("value($self)", "() -> Any", "The small value beside them.")},
    {"iteration", iteration, METH_NOARGS,
     MPY_DOC("iteration($self)", "() -> int", "Reports that had been made.")},
    {"given", given, METH_NOARGS,
     MPY_DOC("given($self)", "() -> bool", "Whether it was not saved by this run.")},
    {NULL, NULL, 0, NULL}};

static PyMethodDef functions[] = {
    {"open_checkpoint", open_checkpoint, METH_VARARGS,
     MPY_DOC("open_checkpoint($module, directory, verify=True, /)", "(str, bool) -> Checkpoint",
             "One that lies on disk.")},
    {"write_checkpoint", write_checkpoint, METH_VARARGS,
     MPY_DOC("write_checkpoint($module, directory, tensors, value, /)",
             "(str, list[tuple[str, int, tuple[int, ...], int]], dict[str, Any]) -> None",
             "A state as a checkpoint's directory, outside of a run.")},
    {"address", address, METH_O,
     MPY_DOC("address($module, buffer, /)", "(Any) -> int", "Where its memory begins.")},
    {"view", view_of, METH_VARARGS,
     MPY_DOC("view($module, address, bytes, owner, /)", "(int, int, object) -> View",
             "Memory that the owner keeps alive.")},
    {NULL, NULL, 0, NULL}};

static PyType_Slot checkpoint_slots[] = {
    {Py_tp_dealloc, checkpoint_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, (void *)(uintptr_t) "A checkpoint that can be read."},
    {0, NULL}};
static PyType_Spec checkpoint_spec = {.name = "manta._manta.Checkpoint",
                                      .basicsize = sizeof(checkpoint),
                                      .flags =
                                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                      .slots = checkpoint_slots};

static PyType_Slot view_slots[] = {{Py_tp_dealloc, view_dealloc},
                                   {Py_bf_getbuffer, view_buffer},
                                   {Py_tp_doc, (void *)(uintptr_t) "Bytes of somebody else."},
                                   {0, NULL}};
static PyType_Spec view_spec = {.name = "manta._manta.View",
                                .basicsize = sizeof(view),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = view_slots};

// The names of the element types; a type's number is its index.
static int add_dtypes(PyObject *module)
{
  PyObject *names = PyTuple_New(MANTA_DTYPE_COUNT);
  int failed = !names;
  for (int i = 0; !failed && i < MANTA_DTYPE_COUNT; i++)
    failed = PyTuple_SetItem(names, i, PyUnicode_FromString(manta_dtype_name((manta_dtype)i))) < 0;
  failed = failed || PyModule_AddObjectRef(module, "DTYPES", names) < 0;
  Py_DecRef(names);
  return failed ? -1 : 0;
}

int mpy_add_checkpoint(PyObject *module)
{
  checkpoint_type = (PyTypeObject *)PyType_FromSpec(&checkpoint_spec);
  view_type = (PyTypeObject *)PyType_FromSpec(&view_spec);
  if (!checkpoint_type || !view_type || PyModule_AddFunctions(module, functions) < 0)
    return -1;
  if (add_dtypes(module) < 0)
    return -1;
  if (PyModule_AddObjectRef(module, "Checkpoint", (PyObject *)checkpoint_type) < 0)
    return -1;
  return PyModule_AddObjectRef(module, "View", (PyObject *)view_type);
}
