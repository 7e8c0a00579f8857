/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/apply.c - functions of Python over batches, as a step of a data set.
 *
 * (1) Threads of the library call them, so each call takes the GIL; whoever waits for such a thread
 *     has released it.
 * (2) What a function raises travels through the library as a text. The exception itself waits here
 *     by that text, so that the one who asked for the batch gets it, with its traceback.
 */
#include "ext.h"

#include <string.h>

#define WAITING 16 /* exceptions that nobody asked for yet, at most */

// call(batch) gives (an Arrow stream or None, numbers of rows as bytes or None).
struct function {
  PyObject *call, *name;
};

// --- exceptions ----------------------------------------------------------------------------------

static PyObject *waiting; /* a list of (text, exception) */

static PyObject *fetch(void)
{
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value && trace)
    PyException_SetTraceback(value, trace);
  Py_DecRef(type);
  Py_DecRef(trace);
  return value;
}

// Keeps the exception that is set, by a text that no other one has.
static manta_status keep_raised(const struct function *f, manta_error *err)
{
  static unsigned long long number;
  PyObject *e = fetch();
  PyObject *text =
      e ? PyUnicode_FromFormat("%U failed: %.200S (exception %llu)", f->name, e, ++number) : NULL;
  if (e && !text) { // it has no text of its own
    PyErr_Clear();
    text = PyUnicode_FromFormat("%U failed (exception %llu)", f->name, number);
  }
  const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  manta_error_set(err, MANTA_EUSER, "%s", s ? s : "a function over rows failed");
  PyObject *pair = s && waiting ? Py_BuildValue("sO", err ? err->message : s, e) : NULL;
  if (pair && PyList_Size(waiting) >= WAITING)
    PyList_SetSlice(waiting, 0, 1, NULL);
  if (pair)
    PyList_Append(waiting, pair);
  PyErr_Clear();
  Py_DecRef(pair);
  Py_DecRef(text);
  Py_DecRef(e);
  return MANTA_EUSER;
}

bool mpy_raise_kept(const manta_error *err)
{
  for (Py_ssize_t i = 0; waiting && i < PyList_Size(waiting); i++) {
    const char *text;
    PyObject *e;
    if (PyArg_ParseTuple(PyList_GetItem(waiting, i), "sO", &text, &e) &&
        !strcmp(text, err->message)) {
      PyErr_SetObject((PyObject *)Py_TYPE(e), e);
      return true;
    }
  }
  return false;
}

// --- calls ---------------------------------------------------------------------------------------

static bool take_rows(PyObject *from, manta_applied *out)
{
  Py_buffer b;
  manta_error err = MANTA_ERROR_INIT;
  if (from == Py_None)
    return true;
  if (PyObject_GetBuffer(from, &b, PyBUF_SIMPLE) < 0)
    return false;
  manta_status st = manta_applied_rows(out, b.buf, b.len / (Py_ssize_t)sizeof(uint32_t), &err);
  PyBuffer_Release(&b);
  if (st < 0)
    mpy_raise(&err);
  return st == MANTA_OK;
}

// The one batch of a stream.
static bool take_batch(PyObject *from, manta_applied *out)
{
  struct ArrowArrayStream s;
  struct ArrowSchema schema;
  struct ArrowArray array = {0};
  manta_error err = MANTA_ERROR_INIT;
  if (from == Py_None)
    return true;
  if (!mpy_take_stream(from, &s))
    return false;
  bool ok = s.get_schema(&s, &schema) == 0;
  if (ok) {
    ok = s.get_next(&s, &array) == 0 && array.release;
    if (ok && manta_batch_import(&out->batch, &schema, &array, &err) < 0) {
      mpy_raise(&err);
      ok = false;
    }
    if (array.release)
      array.release(&array);
    schema.release(&schema);
  }
  s.release(&s);
  if (!ok && !PyErr_Occurred())
    PyErr_SetString(PyExc_ValueError, "the Arrow stream of a function has no batch");
  return ok;
}

// A view of the batch: what Python keeps of it may outlive the call.
static PyObject *batch_of(const manta_batch *in)
{
  struct ArrowSchema schema;
  struct ArrowArray array;
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b = NULL;
  if (manta_batch_export(in, &schema, &array, &err) < 0)
    return mpy_raise(&err);
  manta_status st = manta_batch_import(&b, &schema, &array, &err);
  schema.release(&schema);
  if (st < 0) {
    array.release(&array);
    return mpy_raise(&err);
  }
  return mpy_batch_new(b);
}

static manta_status call(void *ctx, const manta_batch *in, manta_applied *out, manta_error *err)
{
  struct function *f = ctx;
  manta_status st = MANTA_OK;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *batch = batch_of(in);
  PyObject *got = batch ? PyObject_CallFunctionObjArgs(f->call, batch, NULL) : NULL;
  PyObject *stream, *rows;
  if (!got || !PyArg_ParseTuple(got, "OO", &stream, &rows) || !take_batch(stream, out) ||
      !take_rows(rows, out))
    st = keep_raised(f, err);
  Py_DecRef(got);
  Py_DecRef(batch);
  PyGILState_Release(gil);
  return st;
}

static void close_function(void *ctx)
{
  struct function *f = ctx;
  if (!Py_IsInitialized())
    return; // the interpreter has gone, and its memory with it
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DecRef(f->call);
  Py_DecRef(f->name);
  PyMem_Free(f);
  PyGILState_Release(gil);
}

// --- the step ------------------------------------------------------------------------------------

static bool take_options(PyObject *o, manta_apply_config *c, struct ArrowSchema *schema)
{
  PyObject *columns = mpy_option(o, "columns"), *types = mpy_option(o, "schema");
  struct ArrowArrayStream s;
  c->name = mpy_option_text(o, "name");
  c->kind = (manta_apply_kind)mpy_option_int(o, "kind", 0);
  c->batch_rows = mpy_option_int(o, "batch_rows", 0);
  if (PyErr_Occurred())
    return false;
  if (columns) {
    if (!(c->columns = mpy_words(columns)))
      return false;
    c->column_count = (size_t)PyList_Size(columns);
  }
  if (types) {
    if (!mpy_take_stream(types, &s))
      return false;
    if (s.get_schema(&s, schema) == 0)
      c->schema = schema;
    s.release(&s);
  }
  return true;
}

static PyObject *apply(PyObject *module, PyObject *args)
{
  manta_apply_config c = MANTA_APPLY_CONFIG_INIT;
  struct ArrowSchema schema = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *from, *d = NULL;
  manta_status st = MANTA_OK;
  PyObject *o, *options, *fn;
  if (!PyArg_ParseTuple(args, "OO!O", &o, &PyDict_Type, &options, &fn) || !(from = mpy_data_of(o)))
    return NULL;
  struct function *f = PyMem_Calloc(1, sizeof *f);
  if (!f)
    return PyErr_NoMemory();
  Py_IncRef(fn);
  f->call = fn;
  bool ok = take_options(options, &c, &schema);
  if (ok && (f->name = PyUnicode_FromString(c.name ? c.name : "a function"))) {
    c.ctx = f;
    c.call = call;
    c.close = close_function;
    Py_BEGIN_ALLOW_THREADS;
    st = manta_dataset_apply(&d, from, &c, &err);
    Py_END_ALLOW_THREADS;
  }
  ok = ok && f->name;
  if (schema.release)
    schema.release(&schema);
  PyMem_Free((void *)(uintptr_t)c.columns);
  if (!ok || st < 0)
    close_function(f);
  return ok ? mpy_data_new(st, d, &err) : NULL;
}

static PyMethodDef functions[] = {
    {"apply_data", apply, METH_VARARGS,
     MPY_DOC("apply_data($module, data, options, call, /)",
             "(Data, dict[str, Any], Callable[[Batch], tuple[object, object]]) -> Data",
             "A function over batches as a step. It gives an Arrow stream of one batch, or None, "
             "and the numbers of rows in 32 bits, or None; threads call it. options: name, kind "
             "(0 map, 1 add, 2 filter, 3 any rows), batch_rows, columns, schema.")},
    {NULL, NULL, 0, NULL}};

int mpy_add_apply(PyObject *module)
{
  waiting = PyList_New(0);
  return waiting ? PyModule_AddFunctions(module, functions) : -1;
}
