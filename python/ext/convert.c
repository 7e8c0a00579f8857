/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/convert.c - Python objects as manta values, and back.
 *
 * What has no counterpart travels as a map of two: MPY_PICKLE and MPY_REPR, for those who read
 * it without Python. Such a map is unpickled only where the caller says that the value comes from
 * the own run (mpy_from_own): anybody can write one into a file.
 */
#include "ext.h"

#include <string.h>

static bool fail(manta_status st)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_error_set(&err, st, "%s", manta_status_text(st));
  mpy_raise(&err);
  return false;
}

// --- from Python ---------------------------------------------------------------------------------

static bool convert(PyObject *o, enum mpy_how how, manta_value *out, int depth);

static bool from_text(PyObject *o, manta_value *out)
{
  Py_ssize_t n;
  const char *s = PyUnicode_AsUTF8AndSize(o, &n);
  if (!s) { // a lone surrogate
    PyErr_Clear();
    return false;
  }
  if (strlen(s) != (size_t)n || (size_t)n > MANTA_VALUE_MAX_BYTES)
    return false; // a NUL inside, or too long
  *out = manta_value_borrow_string(s);
  return true;
}

static bool from_list(PyObject *o, enum mpy_how how, manta_value *out, int depth)
{
  bool list = PyList_Check(o);
  Py_ssize_t n = list ? PyList_Size(o) : PyTuple_Size(o);
  manta_status st = manta_value_set_list(out);
  for (Py_ssize_t i = 0; st == MANTA_OK && i < n; i++) {
    manta_value item = {0};
    PyObject *x = list ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
    if (!x || !convert(x, how, &item, depth + 1))
      return false;
    st = manta_value_append(out, &item);
    manta_value_fini(&item);
  }
  return st == MANTA_OK || fail(st);
}

static bool from_dict(PyObject *o, enum mpy_how how, manta_value *out, int depth)
{
  PyObject *key, *x;
  Py_ssize_t at = 0;
  manta_status st = manta_value_set_map(out);
  while (st == MANTA_OK && PyDict_Next(o, &at, &key, &x)) {
    manta_value item = {0}, name = {0};
    if (!PyUnicode_CheckExact(key) || !from_text(key, &name) ||
        (name.u.s[0] == '$' && how != MPY_SPACE))
      return false;
    if (!convert(x, how, &item, depth + 1))
      return false;
    st = manta_value_put(out, name.u.s, &item);
    manta_value_fini(&item);
  }
  return st == MANTA_OK || fail(st);
}

// Of exactly these types; anything else is left to the caller. An int must fit.
static bool from_plain(PyObject *o, enum mpy_how how, manta_value *out, int depth)
{
  int overflow;
  if (o == Py_None)
    *out = (manta_value){0};
  else if (PyBool_Check(o))
    *out = manta_value_bool(o == Py_True);
  else if (PyFloat_CheckExact(o))
    *out = manta_value_real(PyFloat_AsDouble(o));
  else if (PyLong_CheckExact(o)) {
    *out = manta_value_int(PyLong_AsLongLongAndOverflow(o, &overflow));
    return overflow == 0;
  } else if (PyUnicode_CheckExact(o))
    return from_text(o, out);
  else if (PyBytes_CheckExact(o) && (size_t)PyBytes_Size(o) <= MANTA_VALUE_MAX_BYTES)
    *out = manta_value_borrow_bytes(PyBytes_AsString(o), (size_t)PyBytes_Size(o));
  else if (depth >= MANTA_VALUE_MAX_DEPTH - 2)
    return false;
  else if (PyList_CheckExact(o) || (how == MPY_LOOSE && PyTuple_CheckExact(o)))
    return from_list(o, how, out, depth);
  else if (PyDict_CheckExact(o))
    return from_dict(o, how, out, depth);
  else
    return false;
  return true;
}

// numpy.float32(1), torch.tensor(1.): what has an item() that is a number, and only one. A
// tf.constant(1.) has it behind numpy(). NULL: it is something else.
static PyObject *item_of(PyObject *o)
{
  if (!PyObject_HasAttrString(o, "dtype"))
    return NULL;
  if (PyObject_HasAttrString(o, "item"))
    return PyObject_CallMethod(o, "item", NULL);
  PyObject *array =
      PyObject_HasAttrString(o, "numpy") ? PyObject_CallMethod(o, "numpy", NULL) : NULL;
  PyObject *x = array ? PyObject_CallMethod(array, "item", NULL) : NULL;
  Py_DecRef(array);
  return x;
}

static bool from_scalar(PyObject *o, manta_value *out)
{
  PyObject *x = item_of(o);
  if (!x) { // more than one element
    PyErr_Clear();
    return false;
  }
  bool plain = (PyBool_Check(x) || PyLong_CheckExact(x) || PyFloat_CheckExact(x)) &&
               from_plain(x, MPY_LOOSE, out, 0);
  Py_DecRef(x);
  return plain;
}

static bool put_bytes(manta_value *map, const char *key, PyObject *bytes)
{
  manta_value v = {0};
  manta_status st = manta_value_set_bytes(&v, PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
  if (st == MANTA_OK)
    st = manta_value_put(map, key, &v);
  return st == MANTA_OK || fail(st);
}

// (pickle, repr) as the worker's Python side makes them.
static bool from_pickle(PyObject *o, manta_value *out)
{
  PyObject *dump = mpy_worker_function("dump");
  PyObject *pair = dump ? PyObject_CallFunctionObjArgs(dump, o, NULL) : NULL;
  if (!pair)
    return false;
  PyObject *bytes = PyTuple_GetItem(pair, 0), *repr = PyTuple_GetItem(pair, 1);
  const char *text = repr ? PyUnicode_AsUTF8AndSize(repr, NULL) : NULL;
  bool ok = bytes && text;
  manta_status st = ok ? manta_value_set_map(out) : MANTA_OK;
  if (ok && st == MANTA_OK && (ok = put_bytes(out, MPY_PICKLE, bytes)))
    st = manta_value_put_string(out, MPY_REPR, text);
  Py_DecRef(pair);
  return ok && (st == MANTA_OK || fail(st));
}

static bool convert(PyObject *o, enum mpy_how how, manta_value *out, int depth)
{
  if (from_plain(o, how, out, depth))
    return true;
  manta_value_fini(out);
  if (PyErr_Occurred() || how == MPY_EXACT)
    return false;
  return from_scalar(o, out) || from_pickle(o, out);
}

bool mpy_to_value(PyObject *o, enum mpy_how how, manta_value *out)
{
  *out = (manta_value){0};
  if (how != MPY_FAITHFUL)
    return convert(o, how, out, 0);
  return convert(o, MPY_EXACT, out, 0) || (!PyErr_Occurred() && from_pickle(o, out));
}

// --- to Python -----------------------------------------------------------------------------------

static PyObject *to_python(const manta_value *v, bool own);

static PyObject *to_list(const manta_value *v, bool own)
{
  PyObject *list = PyList_New((Py_ssize_t)v->count);
  for (uint32_t i = 0; list && i < v->count; i++) {
    PyObject *x = to_python(&v->u.items[i], own);
    if (!x || PyList_SetItem(list, (Py_ssize_t)i, x) < 0) {
      Py_DecRef(list);
      return NULL;
    }
  }
  return list;
}

static PyObject *unpickle(const manta_value *bytes)
{
  PyObject *load = mpy_worker_function("load");
  PyObject *b = PyBytes_FromStringAndSize(bytes->u.s, (Py_ssize_t)bytes->count);
  PyObject *x = load && b ? PyObject_CallFunctionObjArgs(load, b, NULL) : NULL;
  Py_DecRef(b);
  return x;
}

// The same few names come again and again: interned, they are one object and are hashed once.
static PyObject *to_key(const char *key)
{
  PyObject *o = PyUnicode_InternFromString(key);
  if (o)
    return o;
  PyErr_Clear(); // a C program's, that is not UTF-8
  return PyUnicode_DecodeUTF8(key, (Py_ssize_t)strlen(key), "replace");
}

static PyObject *to_dict(const manta_value *v, bool own)
{
  const manta_value *pickled = own && v->count == 2 ? manta_value_get(v, MPY_PICKLE) : NULL;
  if (pickled && pickled->type == MANTA_BYTES)
    return unpickle(pickled);
  PyObject *dict = PyDict_New();
  for (uint32_t i = 0; dict && i < v->count; i++) {
    PyObject *key = to_key(v->u.pairs[i].key);
    PyObject *x = key ? to_python(&v->u.pairs[i].value, own) : NULL;
    if (!x || PyDict_SetItem(dict, key, x) < 0) {
      Py_DecRef(dict);
      dict = NULL;
    }
    Py_DecRef(key);
    Py_DecRef(x);
  }
  return dict;
}

static PyObject *to_python(const manta_value *v, bool own)
{
  switch (v->type) {
  case MANTA_BOOL:
    return PyBool_FromLong(v->u.b);
  case MANTA_INT:
    return PyLong_FromLongLong(v->u.i);
  case MANTA_REAL:
    return PyFloat_FromDouble(v->u.r);
  case MANTA_STRING:
    return PyUnicode_DecodeUTF8(v->u.s, (Py_ssize_t)v->count, "replace");
  case MANTA_BYTES:
    return PyBytes_FromStringAndSize(v->u.s, (Py_ssize_t)v->count);
  case MANTA_LIST:
    return to_list(v, own);
  case MANTA_MAP:
    return to_dict(v, own);
  default:
    Py_IncRef(Py_None);
    return Py_None;
  }
}

PyObject *mpy_from_value(const manta_value *v)
{
  return to_python(v, false);
}

PyObject *mpy_from_own(const manta_value *v)
{
  return to_python(v, true);
}
