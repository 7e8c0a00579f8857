/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/loader.c - manta._manta.Loader: one batch after the other.
 *
 * (1) Threads of the library may need the GIL to end (a source that is Python's): whoever waits for
 *     them has released it.
 * (2) A loader is for one thread at a time. A second one gets an exception, not a crash.
 */
#include "ext.h"

#define MATRICES 64

/* Columns of a batch that go into one matrix. */
struct matrix {
  int *columns;
  int count;
  manta_dtype dtype;
};

typedef struct {
  PyObject_HEAD manta_loader *l; /* NULL: closed */
  bool busy;                     /* a thread is inside; with the GIL */
  struct matrix matrix[MATRICES];
  int matrices;
} loader;

static PyTypeObject *loader_type;

// With the GIL; false with an exception.
static bool enter(loader *self)
{
  if (!self->l)
    PyErr_SetString(PyExc_ValueError, "this iterator is closed");
  else if (self->busy)
    PyErr_SetString(PyExc_ValueError, "another thread is using this iterator\nhint: give each "
                                      "thread one of its own");
  else
    self->busy = true;
  return self->busy && !PyErr_Occurred();
}

static PyObject *none(void)
{
  Py_IncRef(Py_None);
  return Py_None;
}

// --- batches -------------------------------------------------------------------------------------

static PyObject *loader_next(PyObject *o, PyObject *args)
{
  loader *self = (loader *)o;
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b = NULL;
  manta_status st;
  if (!enter(self))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_loader_next(self->l, &b, &err);
  Py_END_ALLOW_THREADS;
  self->busy = false;
  if (st < 0)
    return mpy_raise(&err);
  return st == 1 ? mpy_batch_new(b) : none();
}

static void drop_matrices(loader *self)
{
  for (int i = 0; i < self->matrices; i++)
    PyMem_Free(self->matrix[i].columns);
  self->matrices = 0;
}

// A list of column numbers, and the number of a dtype.
static bool take_matrix(PyObject *row, struct matrix *m)
{
  PyObject *list;
  int dtype;
  if (!PyArg_ParseTuple(row, "O!i", &PyList_Type, &list, &dtype))
    return false;
  Py_ssize_t n = PyList_Size(list);
  if (!(m->columns = PyMem_Calloc((size_t)n + 1, sizeof *m->columns))) {
    PyErr_NoMemory();
    return false;
  }
  m->count = (int)n;
  m->dtype = (manta_dtype)dtype;
  for (Py_ssize_t i = 0; i < n; i++)
    m->columns[i] = (int)PyLong_AsLong(PyList_GetItem(list, i));
  return !PyErr_Occurred();
}

static PyObject *loader_matrices(PyObject *o, PyObject *rows)
{
  loader *self = (loader *)o;
  if (!PyList_Check(rows) || PyList_Size(rows) > MATRICES)
    return PyErr_Format(PyExc_ValueError, "a list of at most %d matrices is wanted", MATRICES);
  if (!enter(self))
    return NULL;
  drop_matrices(self);
  bool ok = true;
  for (Py_ssize_t i = 0; ok && i < PyList_Size(rows); i++) {
    ok = take_matrix(PyList_GetItem(rows, i), &self->matrix[i]);
    self->matrices++;
  }
  self->busy = false;
  return ok ? none() : NULL;
}

// An integer has no value that means null, and 0 is a class among labels.
static manta_status check_nulls(const manta_batch *b, const struct matrix *m, manta_error *err)
{
  for (int i = 0; m->dtype == MANTA_I64 && i < m->count; i++) {
    manta_column c;
    MANTA_TRY(manta_batch_column(b, m->columns[i], &c, err));
    if (c.nulls)
      return manta_error_set(err, MANTA_EINVAL,
                             "column \"%.128s\" has nulls, of which int64 has none\nhint: "
                             "filter(col(\"%.128s\").is_not_null()), add_column() of fill_null(…), "
                             "or a float dtype, where null is NaN",
                             c.field.name, c.field.name);
  }
  return MANTA_OK;
}

// The next batch into the memory of all matrices. Without the GIL. 1, 0 at the end, or a failure.
static manta_status fill(loader *self, void *const *to, int64_t room, int64_t *rows,
                         manta_error *err)
{
  manta_batch *b;
  manta_status st = manta_loader_next(self->l, &b, err);
  if (st != 1)
    return st;
  *rows = manta_batch_rows(b);
  st = *rows <= room ? MANTA_OK
                     : manta_error_set(err, MANTA_ETOOBIG,
                                       "a batch of more rows than there is "
                                       "room for");
  for (int i = 0; i < self->matrices && st == MANTA_OK; i++) {
    const struct matrix *m = &self->matrix[i];
    st = check_nulls(b, m, err);
    if (st == MANTA_OK)
      st = manta_batch_matrix(b, m->columns, m->count, m->dtype, to[i], err);
  }
  manta_batch_destroy(b);
  return st < 0 ? st : (manta_status)1;
}

static PyObject *loader_fill(PyObject *o, PyObject *const *args, Py_ssize_t n)
{
  loader *self = (loader *)o;
  void *to[MATRICES];
  manta_error err = MANTA_ERROR_INIT;
  int64_t rows = 0;
  manta_status st;
  if (n != 2 || !PyList_Check(args[1]) || PyList_Size(args[1]) != self->matrices)
    return PyErr_Format(PyExc_TypeError, "fill: a number and a list of %d addresses are wanted",
                        self->matrices);
  int64_t room = PyLong_AsLongLong(args[0]);
  for (int i = 0; i < self->matrices; i++)
    to[i] = PyLong_AsVoidPtr(PyList_GetItem(args[1], i));
  if (PyErr_Occurred() || !enter(self))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = fill(self, to, room, &rows, &err);
  Py_END_ALLOW_THREADS;
  self->busy = false;
  if (st < 0)
    return mpy_raise(&err);
  return PyLong_FromLongLong(st == 1 ? rows : -1);
}

// --- positions -----------------------------------------------------------------------------------

static PyObject *loader_begin(PyObject *o, PyObject *number)
{
  loader *self = (loader *)o;
  manta_error err = MANTA_ERROR_INIT;
  manta_status st;
  long long epoch = PyLong_AsLongLong(number);
  if (PyErr_Occurred() || !enter(self))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_loader_begin(self->l, epoch, &err);
  Py_END_ALLOW_THREADS;
  self->busy = false;
  return st < 0 ? mpy_raise(&err) : none();
}

static PyObject *loader_epoch(PyObject *o, PyObject *args)
{
  loader *self = (loader *)o;
  if (!enter(self))
    return NULL;
  self->busy = false;
  return PyLong_FromLongLong(manta_loader_epoch(self->l));
}

static PyObject *loader_save(PyObject *o, PyObject *args)
{
  loader *self = (loader *)o;
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  if (!enter(self))
    return NULL;
  manta_status st = manta_loader_save(self->l, &v, &err);
  self->busy = false;
  PyObject *state = st < 0 ? mpy_raise(&err) : mpy_from_value(&v);
  manta_value_fini(&v);
  return state;
}

static PyObject *take_position(PyObject *o, PyObject *state,
                               manta_status (*take)(manta_loader *, const manta_value *,
                                                    manta_error *))
{
  loader *self = (loader *)o;
  manta_error err = MANTA_ERROR_INIT;
  manta_value v;
  manta_status st;
  if (!mpy_to_value(state, MPY_EXACT, &v))
    return PyErr_Occurred()
               ? NULL
               : PyErr_Format(PyExc_ValueError, "is no position of a data set: %R", state);
  if (!enter(self)) {
    manta_value_fini(&v);
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS;
  st = take(self->l, &v, &err);
  Py_END_ALLOW_THREADS;
  self->busy = false;
  manta_value_fini(&v);
  return st < 0 ? mpy_raise(&err) : none();
}

static PyObject *loader_load(PyObject *o, PyObject *state)
{
  return take_position(o, state, manta_loader_load);
}

static PyObject *loader_mark(PyObject *o, PyObject *state)
{
  return take_position(o, state, manta_loader_mark);
}

static PyObject *loader_stats(PyObject *o, PyObject *args)
{
  loader *self = (loader *)o;
  manta_loader_stats s;
  if (!enter(self))
    return NULL;
  manta_loader_get_stats(self->l, &s);
  self->busy = false;
  return Py_BuildValue("{sL sL sd sd sd sd sL}", "batches", (long long)s.batches, "rows",
                       (long long)s.rows, "parse", s.parse, "idle", s.idle, "make", s.make, "wait",
                       s.wait, "bytes_max", (long long)s.bytes_max);
}

// --- life ----------------------------------------------------------------------------------------

static void close_loader(loader *self)
{
  manta_loader *l = self->l;
  self->l = NULL;
  Py_BEGIN_ALLOW_THREADS;
  manta_loader_close(l);
  Py_END_ALLOW_THREADS;
}

static PyObject *loader_close(PyObject *o, PyObject *args)
{
  loader *self = (loader *)o;
  if (!self->l)
    return none();
  if (!enter(self))
    return NULL;
  close_loader(self);
  self->busy = false;
  return none();
}

static void loader_dealloc(PyObject *o)
{
  PyTypeObject *type = Py_TYPE(o);
  close_loader((loader *)o);
  drop_matrices((loader *)o);
  PyObject_Free(o);
  Py_DecRef((PyObject *)type);
}

static bool take_options(PyObject *options, manta_loader_config *c)
{
  c->batch_rows = mpy_option_int(options, "batch_rows", 0);
  c->rank = (int)mpy_option_int(options, "rank", 0);
  c->ranks = (int)mpy_option_int(options, "ranks", 0);
  c->tail = (manta_tail)mpy_option_int(options, "tail", MANTA_TAIL_SHORT);
  c->epoch = mpy_option_int(options, "epoch", 0);
  c->threads = (int)mpy_option_int(options, "threads", 0);
  c->prefetch = (int)mpy_option_int(options, "prefetch", 0);
  c->memory_limit = (size_t)mpy_option_int(options, "memory_limit", 0);
  return !PyErr_Occurred();
}

PyObject *mpy_loader_new(manta_dataset *d, PyObject *options)
{
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_loader *l = NULL;
  manta_status st;
  if (!take_options(options, &c))
    return NULL;
  const char *name = mpy_option_text(options, "name"); // in a run
  manta_session *s = name ? manta_session_current() : NULL;
  if (PyErr_Occurred())
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = s ? manta_session_loader(&l, s, name, d, &c, &err) : manta_loader_open(&l, d, &c, &err);
  Py_END_ALLOW_THREADS;
  if (st < 0)
    return mpy_raise(&err);
  loader *self = PyObject_New(loader, loader_type);
  if (!self) {
    manta_loader_close(l);
    return NULL;
  }
  self->l = l;
  self->busy = false;
  self->matrices = 0;
  return (PyObject *)self;
}

static PyMethodDef loader_methods[] = {
    {"begin", loader_begin, METH_O,
     MPY_DOC("begin($self, epoch, /)", "(int) -> None", "Goes to the beginning of an epoch.")},
    {"close", loader_close, METH_NOARGS,
     MPY_DOC("close($self)", "() -> None", "Ends its threads.")},
    {"epoch", loader_epoch, METH_NOARGS,
     MPY_DOC("epoch($self)", "() -> int", "That the last batch was of.")},
    {"fill", (PyCFunction)(void (*)(void))loader_fill, METH_FASTCALL,
     MPY_DOC("fill($self, room, addresses, /)", "(int, list[int]) -> int",
             "Writes the next batch, of at most `room` rows, to the addresses of its matrices, and "
             "says how many rows it has; -1 at the end.")},
    {"load", loader_load, METH_O,
     MPY_DOC("load($self, position, /)", "(dict[str, int]) -> None", "Goes on from there.")},
    {"mark", loader_mark, METH_O,
     MPY_DOC("mark($self, position, /)", "(dict[str, int] | None) -> None",
             "What save() gives from now on, while batches are taken ahead of their use; None: "
             "where the loader is, as after begin() and load().")},
    {"matrices", loader_matrices, METH_O,
     MPY_DOC("matrices($self, matrices, /)", "(list[tuple[list[int], int]]) -> None",
             "What fill() writes: of each matrix its columns, and the number of its dtype.")},
    {"next", loader_next, METH_NOARGS,
     MPY_DOC("next($self)", "() -> Batch | None", "The next batch; None at the end.")},
    {"save", loader_save, METH_NOARGS,
     MPY_DOC("save($self)", "() -> dict[str, int]",
             "The position behind the batch that was given out last.")},
    {"stats", loader_stats, METH_NOARGS,
     MPY_DOC("stats($self)", "() -> dict[str, float]", "Where the time went, in seconds.")},
    {NULL, NULL, 0, NULL}};

static PyType_Slot loader_slots[] = {
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_methods, loader_methods},
    {Py_tp_doc, (void *)(uintptr_t) "The batches of a data set, one after the other."},
    {0, NULL}};
static PyType_Spec loader_spec = {.name = "manta._manta.Loader",
                                  .basicsize = sizeof(loader),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .slots = loader_slots};

int mpy_add_loader(PyObject *module)
{
  loader_type = (PyTypeObject *)PyType_FromSpec(&loader_spec);
  return loader_type ? PyModule_AddObjectRef(module, "Loader", (PyObject *)loader_type) : -1;
}
