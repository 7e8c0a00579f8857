/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/datasource.c - where the rows of a Data come from: files, an Arrow stream, numbers, or
 * streams that Python opens block by block.
 */
#include "ext.h"

#include <string.h>

// --- options -------------------------------------------------------------------------------------

PyObject *mpy_option(PyObject *dict, const char *key)
{
  PyObject *o = PyDict_GetItemString(dict, key);
  return o == Py_None ? NULL : o;
}

int64_t mpy_option_int(PyObject *dict, const char *key, int64_t otherwise)
{
  PyObject *o = mpy_option(dict, key);
  return o && !PyErr_Occurred() ? PyLong_AsLongLong(o) : otherwise;
}

const char *mpy_option_text(PyObject *dict, const char *key)
{
  PyObject *o = mpy_option(dict, key);
  return o && !PyErr_Occurred() ? PyUnicode_AsUTF8AndSize(o, NULL) : NULL;
}

bool mpy_option_bool(PyObject *dict, const char *key)
{
  PyObject *o = mpy_option(dict, key);
  return o && PyObject_IsTrue(o) == 1;
}

// Strings that are borrowed from the list; free them with PyMem_Free.
static const char **option_words(PyObject *dict, const char *key, size_t *count)
{
  PyObject *o = mpy_option(dict, key);
  *count = 0;
  if (!o || PyErr_Occurred())
    return NULL;
  const char **w = mpy_words(o);
  *count = w ? (size_t)PyList_Size(o) : 0;
  return w;
}

bool mpy_to_tree(PyObject *o, manta_value *out)
{
  if (mpy_to_value(o, MPY_EXACT, out))
    return true;
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_TypeError,
                 "an expression holds bools, numbers of 64 bits, strings and "
                 "bytes, and at most %d steps in each other: %.200R",
                 MANTA_VALUE_MAX_DEPTH - 2, o);
  return false;
}

static char option_char(PyObject *dict, const char *key)
{
  const char *text = mpy_option_text(dict, key);
  if (text && (strlen(text) != 1 || (unsigned char)text[0] > 127))
    PyErr_Format(PyExc_ValueError, "%s=%s: one character of ASCII is wanted", key, text);
  return text ? text[0] : 0;
}

static bool take_options(PyObject *o, manta_data_config *c, manta_value *types)
{
  PyObject *given = mpy_option(o, "types");
  c->format = mpy_option_text(o, "format");
  c->compression = mpy_option_text(o, "compression");
  c->columns = option_words(o, "columns", &c->column_count);
  c->names = option_words(o, "names", &c->name_count);
  c->missing = option_words(o, "missing", &c->missing_count);
  c->skip_errors = mpy_option_bool(o, "skip_errors");
  c->batch_rows = mpy_option_int(o, "batch_rows", 0);
  c->batch_bytes = (size_t)mpy_option_int(o, "batch_bytes", 0);
  c->block_bytes = (size_t)mpy_option_int(o, "block_bytes", 0);
  c->row_bytes = (size_t)mpy_option_int(o, "row_bytes", 0);
  c->skip_bytes = (size_t)mpy_option_int(o, "skip_bytes", 0);
  c->separator = option_char(o, "separator");
  c->quote = option_char(o, "quote");
  c->no_quotes = mpy_option_bool(o, "no_quotes");
  c->no_header = mpy_option_bool(o, "no_header");
  if (given && mpy_to_tree(given, types))
    c->types = types;
  return !PyErr_Occurred();
}

static void options_fini(manta_data_config *c, manta_value *types)
{
  PyMem_Free((void *)(uintptr_t)c->columns);
  PyMem_Free((void *)(uintptr_t)c->names);
  PyMem_Free((void *)(uintptr_t)c->missing);
  manta_value_fini(types);
}

// --- making --------------------------------------------------------------------------------------

static PyObject *open_files(PyObject *module, PyObject *args)
{
  PyObject *list, *options;
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_value types = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  manta_status st = MANTA_OK;
  if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &list, &PyDict_Type, &options))
    return NULL;
  const char **paths = mpy_words(list);
  bool ok = paths && take_options(options, &c, &types);
  if (ok) {
    size_t count = (size_t)PyList_Size(list);
    Py_BEGIN_ALLOW_THREADS;
    st = manta_dataset_open(&d, paths, count, &c, &err);
    Py_END_ALLOW_THREADS;
  }
  options_fini(&c, &types);
  PyMem_Free(paths);
  return ok ? mpy_data_new(st, d, &err) : NULL;
}

static PyObject *import_stream(PyObject *module, PyObject *from)
{
  struct ArrowArrayStream s;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  manta_status st;
  if (!mpy_take_stream(from, &s))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_dataset_import(&d, &s, &err);
  Py_END_ALLOW_THREADS;
  return mpy_data_new(st, d, &err);
}

static PyObject *range(PyObject *module, PyObject *args)
{
  const char *name;
  long long rows;
  PyObject *shape;
  int64_t dims[MANTA_MAX_DIMS];
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  if (!PyArg_ParseTuple(args, "sLO!", &name, &rows, &PyTuple_Type, &shape))
    return NULL;
  Py_ssize_t n = PyTuple_Size(shape);
  for (Py_ssize_t i = 0; i < n && i < MANTA_MAX_DIMS; i++)
    dims[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
  if (PyErr_Occurred())
    return NULL;
  manta_status st = manta_dataset_range(&d, name, rows, dims, (int)n, &err);
  return mpy_data_new(st, d, &err);
}

// --- streams that Python opens -------------------------------------------------------------------

// open(block, [numbers of columns]) gives something with __arrow_c_stream__.
struct opener {
  PyObject *open;
  int columns;
};

static PyObject *wanted_list(const struct opener *o, const bool *wanted)
{
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < o->columns; i++) {
    PyObject *n = wanted[i] ? PyLong_FromLong(i) : NULL;
    if (wanted[i] && (!n || PyList_Append(list, n) < 0)) {
      Py_DecRef(list);
      list = NULL;
    }
    Py_DecRef(n);
  }
  return list;
}

static manta_status open_block(void *ctx, int64_t block, const bool *wanted,
                               struct ArrowArrayStream *out, manta_error *err)
{
  struct opener *o = ctx;
  manta_status st = MANTA_OK;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *list = wanted_list(o, wanted);
  PyObject *from = list ? PyObject_CallFunction(o->open, "LO", (long long)block, list) : NULL;
  if (!from || !mpy_take_stream(from, out))
    st = mpy_status_of_raised(err);
  Py_DecRef(from);
  Py_DecRef(list);
  PyGILState_Release(gil);
  return st;
}

static void close_opener(void *ctx)
{
  struct opener *o = ctx;
  if (!Py_IsInitialized())
    return;
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DecRef(o->open);
  PyMem_Free(o);
  PyGILState_Release(gil);
}

// The schema of an empty stream.
static bool take_schema(PyObject *from, struct ArrowSchema *out)
{
  struct ArrowArrayStream s;
  if (!mpy_take_stream(from, &s))
    return false;
  int code = s.get_schema(&s, out);
  if (code)
    PyErr_Format(PyExc_ValueError, "the Arrow stream has no schema: error %d", code);
  s.release(&s);
  return !code;
}

static PyObject *streams(PyObject *module, PyObject *args)
{
  PyObject *schema, *open;
  manta_stream_config c = MANTA_STREAM_CONFIG_INIT;
  struct ArrowSchema s;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  long long blocks;
  unsigned long long mark;
  if (!PyArg_ParseTuple(args, "OLOsK", &schema, &blocks, &open, &c.name, &mark))
    return NULL;
  struct opener *o = PyMem_Calloc(1, sizeof *o);
  if (!o)
    return PyErr_NoMemory();
  if (!take_schema(schema, &s)) {
    PyMem_Free(o);
    return NULL;
  }
  Py_IncRef(open);
  *o = (struct opener){open, (int)s.n_children};
  c.blocks = blocks;
  c.mark = mark;
  c.ctx = o;
  c.open = open_block;
  c.close = close_opener;
  manta_status st = manta_dataset_streams(&d, &s, &c, &err);
  s.release(&s);
  if (st < 0)
    close_opener(o);
  return mpy_data_new(st, d, &err);
}

static PyMethodDef functions[] = {
    {"open_data", open_files, METH_VARARGS,
     MPY_DOC("open_data($module, paths, options, /)", "(list[str], dict[str, Any]) -> Data",
             "The rows of files.")},
    {"import_data", import_stream, METH_O,
     MPY_DOC("import_data($module, stream, /)", "(object) -> Data",
             "The rows of an Arrow stream, which are held in memory.")},
    {"range_data", range, METH_VARARGS,
     MPY_DOC("range_data($module, name, rows, shape, /)", "(str, int, tuple[int, ...]) -> Data",
             "Numbers from 0 on, or tensors that are full of them.")},
    {"stream_data", streams, METH_VARARGS,
     MPY_DOC("stream_data($module, schema, blocks, open, name, mark, /)",
             "(object, int, Callable[[int, list[int]], object], str, int) -> Data",
             "Blocks that open(block, columns) reads when they are asked for: it gives an Arrow "
             "stream of the columns with these numbers, and is called by many threads. schema: a "
             "stream of all columns, of which nothing is read.")},
    {NULL, NULL, 0, NULL}};

int mpy_add_datasource(PyObject *module)
{
  return PyModule_AddFunctions(module, functions);
}
