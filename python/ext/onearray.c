/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/onearray.c - an Arrow array as a stream that gives it once.
 */
#include "ext.h"

struct once {
  int refs; /* the stream, and every schema that it gave; with the GIL */
  struct ArrowSchema schema;
  struct ArrowArray array;
};

static void unref(struct once *o)
{
  if (!Py_IsInitialized())
    return; // the interpreter has gone, and its memory with it
  PyGILState_STATE gil = PyGILState_Ensure();
  if (--o->refs == 0) {
    if (o->array.release)
      o->array.release(&o->array);
    if (o->schema.release)
      o->schema.release(&o->schema);
    PyMem_Free(o);
  }
  PyGILState_Release(gil);
}

static void release_schema(struct ArrowSchema *s)
{
  unref(s->private_data);
  s->release = NULL;
}

static int get_schema(struct ArrowArrayStream *s, struct ArrowSchema *out)
{
  struct once *o = s->private_data;
  PyGILState_STATE gil = PyGILState_Ensure();
  o->refs++;
  PyGILState_Release(gil);
  *out = o->schema;
  out->release = release_schema;
  out->private_data = o;
  return 0;
}

static int get_next(struct ArrowArrayStream *s, struct ArrowArray *out)
{
  struct once *o = s->private_data;
  *out = o->array;
  o->array.release = NULL;
  return 0;
}

static const char *last_error(struct ArrowArrayStream *s)
{
  return "no error";
}

static void release(struct ArrowArrayStream *s)
{
  unref(s->private_data);
  s->release = NULL;
}

static PyObject *array_stream(PyObject *module, PyObject *args)
{
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO", &a, &b))
    return NULL;
  struct ArrowSchema *schema = PyCapsule_GetPointer(a, "arrow_schema");
  struct ArrowArray *array = schema ? PyCapsule_GetPointer(b, "arrow_array") : NULL;
  if (!array)
    return NULL;
  if (!schema->release || !array->release)
    return PyErr_Format(PyExc_ValueError, "this Arrow array was read already");
  struct once *o = PyMem_Calloc(1, sizeof *o);
  if (!o)
    return PyErr_NoMemory();
  o->refs = 1;
  o->schema = *schema;
  o->array = *array;
  schema->release = NULL;
  array->release = NULL;
  struct ArrowArrayStream s = {get_schema, get_next, last_error, release, o};
  return mpy_stream_capsule(&s);
}

static PyMethodDef functions[] = {
    {"array_stream", array_stream, METH_VARARGS,
     MPY_DOC("array_stream($module, schema, array, /)", "(object, object) -> object",
             "The two capsules of __arrow_c_array__ as a capsule of a stream.")},
    {NULL, NULL, 0, NULL}};

int mpy_add_onearray(PyObject *module)
{
  return PyModule_AddFunctions(module, functions);
}
