/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/batch.c - manta._manta.Batch: rows as columns, of which nothing is copied.
 *
 * The memory of a column comes out as Views, which hold the batch; arrays that were exported hold
 * it without Python.
 */
#include "ext.h"

typedef struct {
  PyObject_HEAD manta_batch *b;
} batch;

static PyTypeObject *batch_type;

PyObject *mpy_batch_new(manta_batch *b)
{
  batch *self = PyObject_New(batch, batch_type);
  if (self)
    self->b = b;
  else
    manta_batch_destroy(b);
  return (PyObject *)self;
}

static void batch_dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  manta_batch_destroy(((batch *)self)->b);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

static PyObject *batch_rows(PyObject *self, PyObject *none)
{
  return PyLong_FromLongLong(manta_batch_rows(((batch *)self)->b));
}

// --- columns -------------------------------------------------------------------------------------

static size_t data_bytes(const manta_column *c)
{
  int64_t n = c->offset + c->rows;
  if (c->field.kind == MANTA_KIND_BOOL)
    return (size_t)(n + 7) / 8;
  if (c->field.kind != MANTA_KIND_NUMBER)
    return c->rows ? (size_t)c->offsets[n] : 0;
  size_t width = manta_dtype_bytes(c->field.dtype);
  for (int i = 0; i < c->field.ndim; i++)
    width *= (size_t)c->field.shape[i];
  return (size_t)n * width;
}

static PyObject *view_or_none(PyObject *owner, const void *data, size_t bytes)
{
  if (data)
    return mpy_view_new(owner, data, bytes);
  Py_IncRef(Py_None);
  return Py_None;
}

static PyObject *batch_column(PyObject *self, PyObject *number)
{
  manta_column c;
  manta_error err = MANTA_ERROR_INIT;
  long at = PyLong_AsLong(number);
  if (at == -1 && PyErr_Occurred())
    return NULL;
  if (manta_batch_column(((batch *)self)->b, (int)at, &c, &err) < 0)
    return mpy_raise(&err);
  size_t n = (size_t)(c.offset + c.rows);
  PyObject *data = mpy_view_new(self, c.data ? c.data : "", c.data ? data_bytes(&c) : 0);
  PyObject *offsets = view_or_none(self, c.offsets, (n + 1) * sizeof *c.offsets);
  PyObject *valid = view_or_none(self, c.valid, (n + 7) / 8);
  PyObject *row = NULL;
  if (data && offsets && valid)
    row = Py_BuildValue("LLOOO", (long long)c.offset, (long long)c.nulls, data, offsets, valid);
  Py_DecRef(data);
  Py_DecRef(offsets);
  Py_DecRef(valid);
  return row;
}

// --- for other libraries -------------------------------------------------------------------------

static PyObject *batch_array(PyObject *self, PyObject *args)
{
  struct ArrowSchema schema;
  struct ArrowArray array;
  manta_error err = MANTA_ERROR_INIT;
  if (manta_batch_export(((batch *)self)->b, &schema, &array, &err) < 0)
    return mpy_raise(&err);
  PyObject *s = mpy_schema_capsule(&schema);
  if (!s) {
    array.release(&array);
    return NULL;
  }
  PyObject *a = mpy_array_capsule(&array);
  PyObject *pair = a ? PyTuple_Pack(2, s, a) : NULL;
  Py_DecRef(s);
  Py_DecRef(a);
  return pair;
}

static PyMethodDef batch_methods[] = {
    {"__arrow_c_array__", batch_array, METH_VARARGS,
     MPY_DOC("__arrow_c_array__($self, requested_schema=None, /)",
             "(object) -> tuple[object, object]", "Its schema and array, as Arrow's capsules.")},
    {"column", batch_column, METH_O,
     MPY_DOC("column($self, number, /)", "(int) -> tuple[int, int, View, View | None, View | None]",
             "Where it begins, how many values are null, its data, the offsets of text, and the "
             "bitmap of values that are not null.")},
    {"rows", batch_rows, METH_NOARGS, MPY_DOC("rows($self)", "() -> int", "How many.")},
    {NULL, NULL, 0, NULL}};

static PyType_Slot batch_slots[] = {{Py_tp_dealloc, batch_dealloc},
                                    {Py_tp_methods, batch_methods},
                                    {Py_tp_doc, (void *)(uintptr_t) "Rows as columns."},
                                    {0, NULL}};
static PyType_Spec batch_spec = {.name = "manta._manta.Batch",
                                 .basicsize = sizeof(batch),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 .slots = batch_slots};

int mpy_add_batch(PyObject *module)
{
  batch_type = (PyTypeObject *)PyType_FromSpec(&batch_spec);
  return batch_type ? PyModule_AddObjectRef(module, "Batch", (PyObject *)batch_type) : -1;
}
