/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/arrow.c - Arrow's C data interface between Python objects: capsules, and memory of
 * Python objects as a stream.
 *
 * (1) A capsule owns what is in it until somebody moves it out; what is left in it is released.
 * (2) A stream of columns() holds the objects whose memory it shows until its array is released, by
 *     whatever thread: that takes the GIL.
 */
#include "ext.h"

#include <errno.h>
#include <string.h>

#define SCHEMA "arrow_schema"
#define ARRAY  "arrow_array"
#define STREAM "arrow_array_stream"

// --- capsules ------------------------------------------------------------------------------------

#define CAPSULE(type, name, word)                                                                  \
  static void drop_##name(PyObject *capsule)                                                       \
  {                                                                                                \
    struct type *it = PyCapsule_GetPointer(capsule, word);                                         \
    if (it && it->release)                                                                         \
      it->release(it);                                                                             \
    PyMem_Free(it);                                                                                \
  }                                                                                                \
  PyObject *mpy_##name##_capsule(struct type *given)                                               \
  {                                                                                                \
    struct type *it = PyMem_Malloc(sizeof *it);                                                    \
    PyObject *c = NULL;                                                                            \
    if (it) {                                                                                      \
      *it = *given;                                                                                \
      c = PyCapsule_New(it, word, drop_##name);                                                    \
    }                                                                                              \
    if (!c) {                                                                                      \
      PyMem_Free(it);                                                                              \
      given->release(given);                                                                       \
      return PyErr_Occurred() ? NULL : PyErr_NoMemory();                                           \
    }                                                                                              \
    return c;                                                                                      \
  }
CAPSULE(ArrowSchema, schema, SCHEMA)
CAPSULE(ArrowArray, array, ARRAY)
CAPSULE(ArrowArrayStream, stream, STREAM)

bool mpy_take_stream(PyObject *from, struct ArrowArrayStream *out)
{
  PyObject *c = from;
  if (PyCapsule_IsValid(from, STREAM))
    Py_IncRef(c);
  else
    c = PyObject_CallMethod(from, "__arrow_c_stream__", NULL);
  struct ArrowArrayStream *s = c ? PyCapsule_GetPointer(c, STREAM) : NULL;
  if (s && !s->release)
    PyErr_SetString(PyExc_ValueError, "this Arrow stream was read already");
  bool ok = s && s->release;
  if (ok) {
    *out = *s;
    s->release = NULL;
  }
  Py_DecRef(c);
  return ok;
}

// --- memory of Python objects --------------------------------------------------------------------

#define BUFFERS    3      /* valid, offsets, data */
#define SHAPE_TEXT 256    /* bytes of the text of a shape */
#define BRAIN      "bf16" /* a format that Arrow does not have */

/* A column of a stream: its struct, that of the element of a tensor, and the memory. */
struct py_column {
  struct ArrowSchema schema, element_schema, *schema_child;
  struct ArrowArray array, element, *child;
  const void *buffers[BUFFERS];
  const void *element_buffers[2];
  Py_buffer memory[BUFFERS];
  char format[64];
  char list[32];
  char *metadata;
  const char *name;
};

/* What a stream gives once. */
struct py_table {
  int refs; /* the stream, its schemas and its array; with the GIL */
  PyObject *names;
  struct ArrowSchema **fields;
  struct ArrowArray **arrays;
  const void *none[1]; /* the bitmap of all */
  struct py_column *column;
  Py_ssize_t count;
  int64_t rows;
  bool given;
};

static void table_unref(struct py_table *t)
{
  if (!Py_IsInitialized())
    return; // the interpreter has gone, and its memory with it
  PyGILState_STATE gil = PyGILState_Ensure();
  if (--t->refs == 0) {
    for (Py_ssize_t i = 0; i < t->count; i++) {
      for (int k = 0; k < BUFFERS; k++)
        PyBuffer_Release(&t->column[i].memory[k]);
      PyMem_Free(t->column[i].metadata);
    }
    Py_DecRef(t->names);
    PyMem_Free(t->column);
    PyMem_Free(t->fields);
    PyMem_Free(t->arrays);
    PyMem_Free(t);
  }
  PyGILState_Release(gil);
}

static void table_ref(struct py_table *t)
{
  PyGILState_STATE gil = PyGILState_Ensure();
  t->refs++;
  PyGILState_Release(gil);
}

// Children are parts of the table: they need nothing of their own.
static void release_inner_schema(struct ArrowSchema *s)
{
  s->release = NULL;
}

static void release_inner_array(struct ArrowArray *a)
{
  a->release = NULL;
}

static void release_schema(struct ArrowSchema *s)
{
  table_unref(s->private_data);
  s->release = NULL;
}

static void release_array(struct ArrowArray *a)
{
  table_unref(a->private_data);
  a->release = NULL;
}

static int get_schema(struct ArrowArrayStream *s, struct ArrowSchema *out)
{
  struct py_table *t = s->private_data;
  table_ref(t);
  for (Py_ssize_t i = 0; i < t->count; i++) {
    t->column[i].schema.release = release_inner_schema;
    t->column[i].element_schema.release = release_inner_schema;
  }
  *out = (struct ArrowSchema){.format = "+s",
                              .name = "",
                              .n_children = t->count,
                              .children = t->fields,
                              .release = release_schema,
                              .private_data = t};
  return 0;
}

static int get_next(struct ArrowArrayStream *s, struct ArrowArray *out)
{
  struct py_table *t = s->private_data;
  *out = (struct ArrowArray){0};
  if (t->given)
    return 0;
  t->given = true;
  table_ref(t);
  *out = (struct ArrowArray){.length = t->rows,
                             .n_buffers = 1,
                             .buffers = t->none,
                             .n_children = t->count,
                             .children = t->arrays,
                             .release = release_array,
                             .private_data = t};
  return 0;
}

static const char *last_error(struct ArrowArrayStream *s)
{
  return "out of memory";
}

static void release_stream(struct ArrowArrayStream *s)
{
  table_unref(s->private_data);
  s->release = NULL;
}

// --- columns out of tuples -----------------------------------------------------------------------

static char *put_entry(char *to, const char *key, const char *value)
{
  int32_t n[2] = {(int32_t)strlen(key), (int32_t)strlen(value)};
  memcpy(to, &n[0], 4);
  memcpy(to + 4, key, (size_t)n[0]);
  memcpy(to + 4 + n[0], &n[1], 4);
  memcpy(to + 8 + n[0], value, (size_t)n[1]);
  return to + 8 + n[0] + n[1];
}

// The words of an extension type; `meta` may be "".
static bool set_extension(struct py_column *c, struct ArrowSchema *s, const char *name,
                          const char *meta)
{
  int32_t n = 2;
  if (!(c->metadata = PyMem_Calloc(1, 128 + strlen(name) + strlen(meta)))) {
    PyErr_NoMemory();
    return false;
  }
  memcpy(c->metadata, &n, 4);
  char *at = put_entry(c->metadata + 4, "ARROW:extension:name", name);
  put_entry(at, "ARROW:extension:metadata", meta);
  s->metadata = c->metadata;
  return true;
}

static bool is_text(const char *format)
{
  return !strcmp(format, "u") || !strcmp(format, "z");
}

static void lay_out_plain(struct py_column *c, struct ArrowArray *a, struct ArrowSchema *s,
                          int64_t length)
{
  bool text = is_text(c->format);
  *s = (struct ArrowSchema){.format = c->format, .name = c->name, .flags = ARROW_FLAG_NULLABLE};
  *a = (struct ArrowArray){.length = length,
                           .null_count = c->memory[0].obj ? -1 : 0,
                           .n_buffers = text ? 3 : 2,
                           .buffers = c->buffers,
                           .release = release_inner_array};
  c->buffers[0] = c->memory[0].buf;
  c->buffers[1] = text ? c->memory[1].buf : c->memory[2].buf;
  c->buffers[2] = text ? c->memory[2].buf : NULL;
}

// A tensor is a list of fixed size of its elements; `shape` is its text, "[2,3]".
static bool lay_out_tensor(struct py_column *c, int64_t rows, int64_t elements, const char *shape,
                           bool nested)
{
  char meta[256];
  PyOS_snprintf(c->list, sizeof c->list, "+w:%lld", (long long)elements);
  PyOS_snprintf(meta, sizeof meta, "{\"shape\":%s}", shape);
  c->schema_child = &c->element_schema;
  c->child = &c->element;
  lay_out_plain(c, &c->element, &c->element_schema, rows * elements);
  c->element_schema.name = "item";
  c->element.null_count = 0;
  c->element.buffers = c->element_buffers;
  c->element_buffers[1] = c->memory[2].buf;
  c->schema = (struct ArrowSchema){.format = c->list,
                                   .name = c->name,
                                   .flags = ARROW_FLAG_NULLABLE,
                                   .n_children = 1,
                                   .children = &c->schema_child};
  c->array = (struct ArrowArray){.length = rows,
                                 .null_count = c->memory[0].obj ? -1 : 0,
                                 .n_buffers = 1,
                                 .buffers = c->buffers,
                                 .n_children = 1,
                                 .children = &c->child,
                                 .release = release_inner_array};
  return !nested || set_extension(c, &c->schema, "arrow.fixed_shape_tensor", meta);
}

static bool take_memory(PyObject *from, Py_buffer *to)
{
  return from == Py_None || PyObject_GetBuffer(from, to, PyBUF_SIMPLE) == 0;
}

// A buffer must have the bytes that the reader of the array will look at.
static bool check_memory(const struct py_column *c, int64_t rows, int64_t bytes)
{
  bool text = is_text(c->format);
  const int32_t *offsets = c->memory[1].buf;
  bool ok = (!c->memory[0].obj || c->memory[0].len >= (rows + 7) / 8) &&
            (!text || c->memory[1].len >= (rows + 1) * 4);
  if (ok && text)
    bytes = offsets[rows];
  if (!ok || c->memory[2].len < bytes) {
    PyErr_Format(PyExc_ValueError, "column %s: its memory is smaller than %lld rows", c->name,
                 (long long)rows);
    return false;
  }
  return true;
}

// The shape of a tensor, how many elements it has, and its text.
static bool take_shape(PyObject *shape, const char *name, int64_t *elements, char *text)
{
  size_t at = 1;
  for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) {
    long long n = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (PyErr_Occurred())
      return false;
    if (n < 0 || i >= MANTA_MAX_DIMS || __builtin_mul_overflow(*elements, n, elements)) {
      PyErr_Format(PyExc_ValueError, "column %s: its shape makes no sense", name);
      return false;
    }
    PyOS_snprintf(text + at, SHAPE_TEXT - at, "%s%lld]", i ? "," : "", n);
    at = strlen(text) - 1;
  }
  return true;
}

// (name, format, bits of an element, shape, data, offsets or None, valid or None)
static bool take_column(PyObject *row, struct py_column *c, int64_t rows)
{
  const char *format;
  PyObject *shape, *data, *offsets, *valid;
  int bits;
  if (!PyArg_ParseTuple(row, "ssiO!OOO", &c->name, &format, &bits, &PyTuple_Type, &shape, &data,
                        &offsets, &valid))
    return false;
  PyOS_snprintf(c->format, sizeof c->format, "%s", format);
  if (!take_memory(valid, &c->memory[0]) || !take_memory(offsets, &c->memory[1]) ||
      !take_memory(data, &c->memory[2]))
    return false;
  char text[SHAPE_TEXT] = "[]";
  int64_t elements = 1;
  if (!take_shape(shape, c->name, &elements, text) ||
      !check_memory(c, rows, (rows * elements * bits + 7) / 8))
    return false;
  bool brain = !strcmp(c->format, BRAIN);
  if (brain)
    PyOS_snprintf(c->format, sizeof c->format, "S");
  if (PyTuple_Size(shape))
    return lay_out_tensor(c, rows, elements, text, PyTuple_Size(shape) > 1);
  lay_out_plain(c, &c->array, &c->schema, rows);
  return !brain || set_extension(c, &c->schema, "manta.bf16", "");
}

static struct py_table *table_new(PyObject *list, long long rows)
{
  struct py_table *t = PyMem_Calloc(1, sizeof *t);
  Py_ssize_t n = PyList_Size(list);
  if (t) {
    t->column = PyMem_Calloc((size_t)n + 1, sizeof *t->column);
    t->fields = PyMem_Calloc((size_t)n + 1, sizeof *t->fields);
    t->arrays = PyMem_Calloc((size_t)n + 1, sizeof *t->arrays);
  }
  if (!t || !t->column || !t->fields || !t->arrays) {
    if (t) {
      PyMem_Free(t->column);
      PyMem_Free(t->fields);
      PyMem_Free(t->arrays);
    }
    PyMem_Free(t);
    PyErr_NoMemory();
    return NULL;
  }
  t->refs = 1;
  t->rows = rows;
  t->count = n;
  Py_IncRef(list);
  t->names = list; // its tuples have the names
  for (Py_ssize_t i = 0; i < n; i++) {
    t->fields[i] = &t->column[i].schema;
    t->arrays[i] = &t->column[i].array;
  }
  return t;
}

static PyObject *columns(PyObject *self, PyObject *args)
{
  long long rows;
  PyObject *list;
  if (!PyArg_ParseTuple(args, "LO!", &rows, &PyList_Type, &list))
    return NULL;
  struct py_table *t = table_new(list, rows);
  if (!t)
    return NULL;
  for (Py_ssize_t i = 0; i < t->count; i++)
    if (!take_column(PyList_GetItem(list, i), &t->column[i], rows)) {
      table_unref(t);
      return NULL;
    }
  struct ArrowArrayStream s = {get_schema, get_next, last_error, release_stream, t};
  return mpy_stream_capsule(&s);
}

static PyMethodDef functions[] = {
    {"columns", columns, METH_VARARGS,
     MPY_DOC("columns($module, rows, columns, /)",
             "(int, list[tuple[str, str, int, tuple[int, ...], Any, Any, Any]]) -> object",
             "An Arrow stream over memory of Python objects, which it holds. Of each column: name, "
             "format in Arrow's words, bits of an element, shape of a tensor, data, offsets of "
             "text, and the bitmap of values that are not null.")},
    {NULL, NULL, 0, NULL}};

int mpy_add_arrow(PyObject *module)
{
  return PyModule_AddFunctions(module, functions);
}
