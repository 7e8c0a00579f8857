/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/data.c - manta._manta.Data: a data set of libmanta, and its steps.
 *
 * Each step gives another Data; this one stays as it was. Options and expressions come as plain
 * values, which manta.data makes and explains.
 */
#include "ext.h"

#include <string.h>

typedef struct {
  PyObject_HEAD manta_dataset *d;
} data;

static PyTypeObject *data_type;

static manta_dataset *dataset_of(PyObject *o)
{
  return ((data *)o)->d;
}

PyObject *mpy_data_new(manta_status st, manta_dataset *d, const manta_error *err)
{
  if (st < 0)
    return mpy_raise(err);
  data *self = PyObject_New(data, data_type);
  if (self)
    self->d = d;
  else
    manta_dataset_close(d);
  return (PyObject *)self;
}

manta_dataset *mpy_data_of(PyObject *o)
{
  if (Py_TYPE(o) == data_type)
    return dataset_of(o);
  PyErr_SetString(PyExc_TypeError, "a Data is wanted");
  return NULL;
}

static void data_dealloc(PyObject *o)
{
  PyTypeObject *type = Py_TYPE(o);
  manta_dataset *d = dataset_of(o);
  Py_BEGIN_ALLOW_THREADS;
  manta_dataset_close(d);
  Py_END_ALLOW_THREADS;
  PyObject_Free(o);
  Py_DecRef((PyObject *)type);
}

// --- steps ---------------------------------------------------------------------------------------

static PyObject *step_new(manta_status st, manta_dataset *d, const manta_error *err)
{
  return st < 0 ? mpy_raise_column(err) : mpy_data_new(st, d, err);
}

static PyObject *pick(PyObject *self, PyObject *list,
                      manta_status (*step)(manta_dataset **, manta_dataset *, const char *const *,
                                           size_t, manta_error *))
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  const char **w = mpy_words(list);
  if (!w)
    return NULL;
  manta_status st = step(&d, dataset_of(self), w, (size_t)PyList_Size(list), &err);
  PyMem_Free(w);
  return step_new(st, d, &err);
}

static PyObject *data_select(PyObject *self, PyObject *list)
{
  return pick(self, list, manta_dataset_select);
}

static PyObject *data_drop(PyObject *self, PyObject *list)
{
  return pick(self, list, manta_dataset_drop);
}

static PyObject *data_single(PyObject *self, PyObject *list)
{
  return pick(self, list, manta_dataset_single);
}

static PyObject *data_rename(PyObject *self, PyObject *args)
{
  PyObject *from, *to;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  manta_status st = MANTA_OK;
  if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &from, &PyList_Type, &to))
    return NULL;
  const char **a = mpy_words(from), **b = a ? mpy_words(to) : NULL;
  bool ok = b && PyList_Size(from) == PyList_Size(to);
  if (ok)
    st = manta_dataset_rename(&d, dataset_of(self), a, b, (size_t)PyList_Size(from), &err);
  else if (b)
    PyErr_SetString(PyExc_ValueError, "as many new names as old ones are wanted");
  PyMem_Free(a);
  PyMem_Free(b);
  return ok ? step_new(st, d, &err) : NULL;
}

static PyObject *data_add(PyObject *self, PyObject *args)
{
  const char *name;
  PyObject *tree;
  manta_value v;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  if (!PyArg_ParseTuple(args, "sO", &name, &tree) || !mpy_to_tree(tree, &v))
    return NULL;
  manta_status st = manta_dataset_add(&d, dataset_of(self), name, &v, &err);
  manta_value_fini(&v);
  return step_new(st, d, &err);
}

static PyObject *data_filter(PyObject *self, PyObject *tree)
{
  manta_value v;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  if (!mpy_to_tree(tree, &v))
    return NULL;
  manta_status st = manta_dataset_filter(&d, dataset_of(self), &v, &err);
  manta_value_fini(&v);
  return step_new(st, d, &err);
}

static PyObject *data_sample(PyObject *self, PyObject *args)
{
  double fraction;
  unsigned long long seed;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  if (!PyArg_ParseTuple(args, "dK", &fraction, &seed))
    return NULL;
  manta_status st = manta_dataset_sample(&d, dataset_of(self), fraction, seed, &err);
  return step_new(st, d, &err);
}

static PyObject *data_limit(PyObject *self, PyObject *rows)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  long long n = PyLong_AsLongLong(rows);
  if (PyErr_Occurred())
    return NULL;
  manta_status st = manta_dataset_limit(&d, dataset_of(self), n, &err);
  return step_new(st, d, &err);
}

static PyObject *data_repeat(PyObject *self, PyObject *times)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  long long n = PyLong_AsLongLong(times);
  if (PyErr_Occurred())
    return NULL;
  manta_status st = manta_dataset_repeat(&d, dataset_of(self), n, &err);
  return step_new(st, d, &err);
}

static PyObject *data_shuffle(PyObject *self, PyObject *args)
{
  unsigned long long seed;
  long long window;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  if (!PyArg_ParseTuple(args, "KL", &seed, &window))
    return NULL;
  manta_status st = manta_dataset_shuffle(&d, dataset_of(self), seed, window, &err);
  return step_new(st, d, &err);
}

static PyObject *data_union(PyObject *self, PyObject *others)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  Py_ssize_t n = PyList_Check(others) ? PyList_Size(others) : -1;
  for (Py_ssize_t i = 0; i < n; i++)
    if (Py_TYPE(PyList_GetItem(others, i)) != data_type)
      n = -1;
  if (n < 0)
    return PyErr_Format(PyExc_TypeError, "a list of Data is wanted");
  manta_dataset **all = PyMem_Calloc((size_t)n + 1, sizeof *all);
  if (!all)
    return PyErr_NoMemory();
  all[0] = dataset_of(self);
  for (Py_ssize_t i = 0; i < n; i++)
    all[i + 1] = dataset_of(PyList_GetItem(others, i));
  manta_status st = manta_dataset_union(&d, all, (size_t)n + 1, &err);
  PyMem_Free(all);
  return step_new(st, d, &err);
}

static PyObject *data_zip(PyObject *self, PyObject *other)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  if (Py_TYPE(other) != data_type)
    return PyErr_Format(PyExc_TypeError, "a Data is wanted");
  manta_status st = manta_dataset_zip(&d, dataset_of(self), dataset_of(other), &err);
  return step_new(st, d, &err);
}

static PyObject *data_fold(PyObject *self, PyObject *o)
{
  manta_fold_config c = MANTA_FOLD_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  if (!PyDict_Check(o))
    return PyErr_Format(PyExc_TypeError, "a dict of options is wanted");
  c.folds = (int)mpy_option_int(o, "folds", 2);
  c.split = (int)mpy_option_int(o, "split", 0);
  c.seed = (uint64_t)mpy_option_int(o, "seed", 0);
  c.validate = mpy_option_bool(o, "validate");
  c.shuffle = mpy_option_bool(o, "shuffle");
  c.series = mpy_option_bool(o, "series");
  c.stratify = mpy_option_text(o, "stratify");
  c.groups = mpy_option_text(o, "groups");
  if (PyErr_Occurred())
    return NULL;
  manta_status st = manta_dataset_fold(&d, dataset_of(self), &c, &err);
  return step_new(st, d, &err);
}

static PyObject *data_part(PyObject *self, PyObject *args)
{
  manta_part_config c = MANTA_PART_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d = NULL;
  long long from, to, of;
  unsigned long long seed;
  int shuffle;
  if (!PyArg_ParseTuple(args, "LLLpK", &from, &to, &of, &shuffle, &seed))
    return NULL;
  c.from = from;
  c.to = to;
  c.of = of;
  c.shuffle = shuffle;
  c.seed = seed;
  manta_status st = manta_dataset_part(&d, dataset_of(self), &c, &err);
  return step_new(st, d, &err);
}

// --- what it is ----------------------------------------------------------------------------------

static PyObject *field_row(const manta_field *f, const char *format)
{
  PyObject *shape = PyTuple_New(f->ndim);
  for (int i = 0; shape && i < f->ndim; i++)
    PyTuple_SetItem(shape, i, PyLong_FromLongLong(f->shape[i]));
  PyObject *row =
      shape ? Py_BuildValue("ssiiO", f->name, format, (int)f->kind, (int)f->dtype, shape) : NULL;
  Py_DecRef(shape);
  return row;
}

// Of a tensor the format of its elements.
static const char *format_of(const struct ArrowSchema *s)
{
  return !strncmp(s->format, "+w:", 3) && s->n_children == 1 ? s->children[0]->format : s->format;
}

static PyObject *data_fields(PyObject *self, PyObject *none)
{
  manta_dataset *d = dataset_of(self);
  struct ArrowSchema s;
  manta_error err = MANTA_ERROR_INIT;
  if (manta_dataset_schema(d, &s, &err) < 0)
    return mpy_raise(&err);
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < manta_dataset_columns(d); i++) {
    manta_field f;
    manta_dataset_field(d, i, &f, NULL);
    PyObject *row = field_row(&f, format_of(s.children[i]));
    if (!row || PyList_Append(list, row) < 0) {
      Py_DecRef(list);
      list = NULL;
    }
    Py_DecRef(row);
  }
  s.release(&s);
  return list;
}

static PyObject *data_schema(PyObject *self, PyObject *none)
{
  struct ArrowSchema s;
  manta_error err = MANTA_ERROR_INIT;
  if (manta_dataset_schema(dataset_of(self), &s, &err) < 0)
    return mpy_raise(&err);
  return mpy_schema_capsule(&s);
}

static PyObject *data_blocks(PyObject *self, PyObject *none)
{
  return PyLong_FromLongLong(manta_dataset_blocks(dataset_of(self)));
}

static PyObject *data_file(PyObject *self, PyObject *block)
{
  long long n = PyLong_AsLongLong(block);
  const char *name = PyErr_Occurred() ? NULL : manta_dataset_block_file(dataset_of(self), n);
  return PyErr_Occurred() ? NULL : Py_BuildValue("z", name);
}

static PyObject *data_count(PyObject *self, PyObject *none)
{
  int64_t n = 0;
  manta_error err = MANTA_ERROR_INIT;
  manta_status st;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_dataset_count(dataset_of(self), &n, &err);
  Py_END_ALLOW_THREADS;
  return st < 0 ? mpy_raise(&err) : PyLong_FromLongLong(n);
}

static PyObject *data_explain(PyObject *self, PyObject *none)
{
  char *text;
  manta_error err = MANTA_ERROR_INIT;
  if (manta_dataset_explain(dataset_of(self), &text, &err) < 0)
    return mpy_raise(&err);
  PyObject *s = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  manta_free(text);
  return s;
}

static PyObject *data_stats(PyObject *self, PyObject *none)
{
  manta_data_stats s;
  manta_dataset_stats(dataset_of(self), &s);
  PyObject *why = PyUnicode_DecodeUTF8(s.first_skip, (Py_ssize_t)strlen(s.first_skip), "replace");
  return why ? Py_BuildValue("{sL sL sL sN sd sd}", "rows", (long long)s.rows, "skipped",
                             (long long)s.skipped, "bytes", (long long)s.bytes, "first_skip", why,
                             "step", s.step, "read", s.read)
             : NULL;
}

static PyObject *data_stream(PyObject *self, PyObject *args)
{
  struct ArrowArrayStream s;
  manta_error err = MANTA_ERROR_INIT;
  manta_reader *r = NULL;
  long long first, count;
  manta_status st;
  if (!PyArg_ParseTuple(args, "LL", &first, &count))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_reader_open(&r, dataset_of(self), first, count, &err);
  Py_END_ALLOW_THREADS;
  if (st == MANTA_OK && (st = manta_reader_export(r, &s, &err)) < 0)
    manta_reader_close(r);
  return st < 0 ? mpy_raise(&err) : mpy_stream_capsule(&s);
}

static PyObject *data_loader(PyObject *self, PyObject *options)
{
  if (!PyDict_Check(options))
    return PyErr_Format(PyExc_TypeError, "a dict of options is wanted");
  return mpy_loader_new(dataset_of(self), options);
}

// --- the type ------------------------------------------------------------------------------------

static PyMethodDef data_methods[] = {
    {"add", data_add, METH_VARARGS,
     MPY_DOC("add($self, name, expression, /)", "(str, Any) -> Data",
             "A column more, or another.")},
    {"blocks", data_blocks, METH_NOARGS, MPY_DOC("blocks($self)", "() -> int", "How many.")},
    {"count", data_count, METH_NOARGS, MPY_DOC("count($self)", "() -> int", "Rows of one pass.")},
    {"drop", data_drop, METH_O,
     MPY_DOC("drop($self, columns, /)", "(list[str]) -> Data", "All columns but these.")},
    {"explain", data_explain, METH_NOARGS,
     MPY_DOC("explain($self)", "() -> str", "The plan as text, the last step first.")},
    {"fields", data_fields, METH_NOARGS,
     MPY_DOC("fields($self)", "() -> list[tuple[str, str, int, int, tuple[int, ...]]]",
             "Of each column its name, format in Arrow's words, kind, dtype and shape.")},
    {"file", data_file, METH_O,
     MPY_DOC("file($self, block, /)", "(int) -> str | None", "That a block is of.")},
    {"filter", data_filter, METH_O,
     MPY_DOC("filter($self, expression, /)", "(Any) -> Data", "The rows for which it is true.")},
    {"fold", data_fold, METH_O,
     MPY_DOC("fold($self, options, /)", "(dict[str, Any]) -> Data",
             "The rows of a split of a cross validation.")},
    {"limit", data_limit, METH_O,
     MPY_DOC("limit($self, rows, /)", "(int) -> Data", "The first rows.")},
    {"loader", data_loader, METH_O,
     MPY_DOC("loader($self, options, /)", "(dict[str, Any]) -> Loader", "What gives batches.")},
    {"part", data_part, METH_VARARGS,
     MPY_DOC("part($self, start, end, of, shuffle, seed, /)", "(int, int, int, bool, int) -> Data",
             "The rows from rows * start / of to rows * end / of.")},
    {"rename", data_rename, METH_VARARGS,
     MPY_DOC("rename($self, old, new, /)", "(list[str], list[str]) -> Data", "Other names.")},
    {"repeat", data_repeat, METH_O,
     MPY_DOC("repeat($self, times, /)", "(int) -> Data", "So many passes; 0: without end.")},
    {"sample", data_sample, METH_VARARGS,
     MPY_DOC("sample($self, fraction, seed, /)", "(float, int) -> Data",
             "Each row with this probability.")},
    {"schema", data_schema, METH_NOARGS,
     MPY_DOC("schema($self)", "() -> object", "As a capsule of Arrow.")},
    {"select", data_select, METH_O,
     MPY_DOC("select($self, columns, /)", "(list[str]) -> Data", "These columns.")},
    {"shuffle", data_shuffle, METH_VARARGS,
     MPY_DOC("shuffle($self, seed, window, /)", "(int, int) -> Data",
             "Another order in each epoch.")},
    {"single", data_single, METH_O,
     MPY_DOC("single($self, columns, /)", "(list[str]) -> Data",
             "These columns of text files as f32, if they are f64.")},
    {"stats", data_stats, METH_NOARGS,
     MPY_DOC("stats($self)", "() -> dict[str, Any]", "What was read so far.")},
    {"stream", data_stream, METH_VARARGS,
     MPY_DOC("stream($self, first, count, /)", "(int, int) -> object",
             "Some of its blocks, as a capsule of an Arrow stream.")},
    {"union", data_union, METH_O,
     MPY_DOC("union($self, others, /)", "(list[Data]) -> Data", "Its rows, then those of others.")},
    {"zip", data_zip, METH_O,
     MPY_DOC("zip($self, other, /)", "(Data) -> Data", "Rows side by side.")},
    {NULL, NULL, 0, NULL}};

static PyType_Slot data_slots[] = {{Py_tp_dealloc, data_dealloc},
                                   {Py_tp_methods, data_methods},
                                   {Py_tp_doc, (void *)(uintptr_t) "A data set of libmanta."},
                                   {0, NULL}};
static PyType_Spec data_spec = {.name = "manta._manta.Data",
                                .basicsize = sizeof(data),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = data_slots};

int mpy_add_data(PyObject *module)
{
  data_type = (PyTypeObject *)PyType_FromSpec(&data_spec);
  return !data_type ? -1 : PyModule_AddObjectRef(module, "Data", (PyObject *)data_type);
}
