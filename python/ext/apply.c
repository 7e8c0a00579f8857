/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/apply.c - functions of Python over batches, as a step of a data set.
 *
 * (1) Threads of the library call them, so each call takes the GIL; whoever waits for such a thread
 *     has released it.
 * (2) What a function raises travels through the library as a text. The exception itself waits here
 *     by that text, so that the one who asked for the batch gets it, with its traceback.
 * (3) A function can be called in a process of the reader: manta._runtime.calls makes it of its
 *     pickle there, and what it raises comes back as a pickle, to wait here like the others.
 */
#include "ext.h"

#include <string.h>
#include <unistd.h>

#define WAITING 16 /* exceptions that nobody asked for yet, at most */

// call(batch) gives (an Arrow stream or None, numbers of rows as bytes or None).
struct function {
  PyObject *call, *name;
  PyObject *pack; /* gives it as bytes, or None if it is to stay here; or None */
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

static void keep_by_text(const char *text, PyObject *e)
{
  PyObject *pair = waiting ? Py_BuildValue("sO", text, e) : NULL;
  if (pair && PyList_Size(waiting) >= WAITING)
    PyList_SetSlice(waiting, 0, 1, NULL);
  if (pair)
    PyList_Append(waiting, pair);
  PyErr_Clear();
  Py_DecRef(pair);
}

// Says what was raised, in a text that no other exception of this process has; gives the exception.
static PyObject *tell_raised(PyObject *name, manta_error *err)
{
  static unsigned long long number;
  PyObject *e = fetch();
  PyObject *text = e ? PyUnicode_FromFormat("%U failed: %.200S (exception %llu of process %d)",
                                            name, e, ++number, (int)getpid())
                     : NULL;
  if (e && !text) { // it has no text of its own
    PyErr_Clear();
    text = PyUnicode_FromFormat("%U failed (exception %llu of process %d)", name, number,
                                (int)getpid());
  }
  const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  manta_error_set(err, MANTA_EUSER, "%s", s ? s : "a function over rows failed");
  PyErr_Clear();
  Py_DecRef(text);
  return e;
}

// Keeps the exception that is set.
static manta_status keep_raised(const struct function *f, manta_error *err)
{
  manta_error own = MANTA_ERROR_INIT;
  PyObject *e = tell_raised(f->name, &own);
  if (e)
    keep_by_text(own.message, e);
  Py_DecRef(e);
  return manta_error_set(err, own.status, "%s", own.message);
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

// False with an exception. number: an argument more, or NULL.
static bool call_with(PyObject *f, const manta_batch *in, PyObject *number, manta_applied *out)
{
  PyObject *batch = batch_of(in), *stream, *rows;
  PyObject *got = batch ? PyObject_CallFunctionObjArgs(f, batch, number, NULL) : NULL;
  bool ok = got && PyArg_ParseTuple(got, "OO", &stream, &rows) && take_batch(stream, out) &&
            take_rows(rows, out);
  Py_DecRef(got);
  Py_DecRef(batch);
  return ok;
}

static manta_status call(void *ctx, const manta_batch *in, manta_applied *out, manta_error *err)
{
  struct function *f = ctx;
  manta_status st = MANTA_OK;
  PyGILState_STATE gil = PyGILState_Ensure();
  if (!call_with(f->call, in, NULL, out))
    st = keep_raised(f, err);
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
  Py_DecRef(f->pack);
  PyMem_Free(f);
  PyGILState_Release(gil);
}

// --- in processes of the reader ------------------------------------------------------------------

static manta_status pack(void *ctx, manta_value *code, manta_error *err)
{
  struct function *f = ctx;
  manta_status st = MANTA_OK;
  char *p;
  Py_ssize_t n;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *bytes = PyObject_CallFunctionObjArgs(f->pack, NULL);
  if (!bytes || bytes == Py_None || PyBytes_AsStringAndSize(bytes, &p, &n) < 0)
    st = manta_error_set(err, MANTA_EUNSUPPORTED, "a function that stays in the worker");
  else if (manta_value_set_bytes(code, p, (size_t)n) < 0)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for a function");
  PyErr_Clear();
  Py_DecRef(bytes);
  PyGILState_Release(gil);
  return st;
}

// What a process of the reader gave beside a failure: the exception, for whoever raises the error.
static void take_raised(void *ctx, const void *detail, size_t bytes, const manta_error *err)
{
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *loads = mpy_function("manta._runtime.calls", "loads");
  PyObject *data = PyBytes_FromStringAndSize(detail, (Py_ssize_t)bytes);
  PyObject *e = loads && data ? PyObject_CallFunctionObjArgs(loads, data, NULL) : NULL;
  if (e)
    keep_by_text(err->message, e);
  PyErr_Clear(); // the text says what it was
  Py_DecRef(e);
  Py_DecRef(data);
  PyGILState_Release(gil);
}

// There: a function is what manta._runtime.calls makes of its bytes, with an attribute `name`.
static manta_status load_function(const void *code, size_t bytes, void **function, manta_error *err)
{
  PyObject *load = mpy_function("manta._runtime.calls", "load");
  PyObject *data = PyBytes_FromStringAndSize(code, (Py_ssize_t)bytes);
  PyObject *f = load && data ? PyObject_CallFunctionObjArgs(load, data, NULL) : NULL;
  Py_DecRef(data);
  if (!f)
    return mpy_status_of_raised(err);
  *function = f;
  return MANTA_OK;
}

static void give_detail(PyObject *e, manta_value *detail)
{
  PyObject *dumps = mpy_function("manta._runtime.calls", "dumps");
  PyObject *data = dumps ? PyObject_CallFunctionObjArgs(dumps, e, NULL) : NULL;
  char *p;
  Py_ssize_t n;
  if (data && PyBytes_AsStringAndSize(data, &p, &n) == 0)
    manta_value_set_bytes(detail, p, (size_t)n); // else the text has to do
  PyErr_Clear();
  Py_DecRef(data);
}

static manta_status call_function(void *function, uint64_t seed, const manta_batch *in,
                                  manta_applied *out, manta_value *detail, manta_error *err)
{
  PyObject *number = PyLong_FromUnsignedLongLong(seed);
  bool ok = number && call_with(function, in, number, out);
  Py_DecRef(number);
  if (ok)
    return MANTA_OK;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *name = PyObject_GetAttrString(function, "name");
  PyErr_Restore(type, value, trace);
  PyObject *e = tell_raised(name, err);
  if (e)
    give_detail(e, detail);
  Py_DecRef(e);
  Py_DecRef(name);
  return MANTA_EUSER;
}

const manta_callers mpy_callers = {load_function, call_function};

// --- the step ------------------------------------------------------------------------------------

static bool take_options(PyObject *o, manta_apply_config *c, struct ArrowSchema *schema)
{
  PyObject *columns = mpy_option(o, "columns"), *types = mpy_option(o, "schema");
  struct ArrowArrayStream s;
  c->name = mpy_option_text(o, "name");
  c->kind = (manta_apply_kind)mpy_option_int(o, "kind", 0);
  c->batch_rows = mpy_option_int(o, "batch_rows", 0);
  c->each_row = mpy_option_int(o, "each_row", 0) != 0;
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
  PyObject *o, *options, *fn, *packs;
  if (!PyArg_ParseTuple(args, "OO!OO", &o, &PyDict_Type, &options, &fn, &packs) ||
      !(from = mpy_data_of(o)))
    return NULL;
  struct function *f = PyMem_Calloc(1, sizeof *f);
  if (!f)
    return PyErr_NoMemory();
  Py_IncRef(fn);
  Py_IncRef(packs);
  f->call = fn;
  f->pack = packs;
  bool ok = take_options(options, &c, &schema);
  if (ok && (f->name = PyUnicode_FromString(c.name ? c.name : "a function"))) {
    c.ctx = f;
    c.call = call;
    c.close = close_function;
    c.pack = packs == Py_None ? NULL : pack;
    c.raised = take_raised;
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
     MPY_DOC(
         "apply_data($module, data, options, call, pack, /)",
         "(Data, dict[str, Any], Callable[[Batch], tuple[object, object]], "
         "Callable[[], bytes | None] | None) -> Data",
         "A function over batches as a step. It gives an Arrow stream of one batch, or None, "
         "and the numbers of rows in 32 bits, or None; threads call it. pack gives it as bytes "
         "for manta._runtime.calls, or None if it cannot leave this process. options: name, "
         "kind (0 map, 1 add, 2 filter, 3 any rows), batch_rows, columns, schema, each_row (a map "
         "of every row by itself).")},
    {NULL, NULL, 0, NULL}};

int mpy_add_apply(PyObject *module)
{
  waiting = PyList_New(0);
  return waiting ? PyModule_AddFunctions(module, functions) : -1;
}
