/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/storage.c - manta/storage.h: what lies under a URI.
 */
#include "ext.h"

static PyObject *none(manta_status st, const manta_error *err)
{
  if (st < 0)
    return mpy_raise(err);
  Py_IncRef(Py_None);
  return Py_None;
}

static PyObject *path_of(manta_status st, char *path, const manta_error *err)
{
  if (st < 0)
    return mpy_raise(err);
  PyObject *o = PyUnicode_DecodeFSDefault(path);
  manta_free(path);
  return o;
}

PyObject *mpy_storage_check(PyObject *self, PyObject *args)
{
  const char *uri;
  manta_error err = MANTA_ERROR_INIT;
  if (!PyArg_ParseTuple(args, "s", &uri))
    return NULL;
  return none(manta_storage_check(uri, &err), &err);
}

PyObject *mpy_storage_local(PyObject *self, PyObject *args)
{
  const char *uri;
  char *path = NULL;
  manta_error err = MANTA_ERROR_INIT;
  if (!PyArg_ParseTuple(args, "s", &uri))
    return NULL;
  manta_status st = manta_storage_local(uri, &path, &err);
  return path_of(st, path, &err);
}

PyObject *mpy_storage_has(PyObject *self, PyObject *args)
{
  const char *uri, *name;
  int found;
  manta_error err = MANTA_ERROR_INIT;
  if (!PyArg_ParseTuple(args, "ss", &uri, &name))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  found = manta_storage_has(uri, name, &err);
  Py_END_ALLOW_THREADS;
  return found < 0 ? mpy_raise(&err) : PyBool_FromLong(found);
}

PyObject *mpy_storage_fetch(PyObject *self, PyObject *args)
{
  const char *uri;
  char *path = NULL;
  manta_status st;
  manta_error err = MANTA_ERROR_INIT;
  if (!PyArg_ParseTuple(args, "s", &uri))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_storage_fetch(uri, &path, &err);
  Py_END_ALLOW_THREADS;
  return path_of(st, path, &err);
}

PyObject *mpy_storage_upload(PyObject *self, PyObject *args)
{
  const char *path, *uri;
  manta_status st;
  manta_error err = MANTA_ERROR_INIT;
  if (!PyArg_ParseTuple(args, "ss", &path, &uri))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_storage_upload(path, uri, &err);
  Py_END_ALLOW_THREADS;
  return none(st, &err);
}

PyObject *mpy_storage_download(PyObject *self, PyObject *args)
{
  const char *uri, *path;
  manta_status st;
  manta_error err = MANTA_ERROR_INIT;
  if (!PyArg_ParseTuple(args, "ss", &uri, &path))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_storage_download(uri, path, &err);
  Py_END_ALLOW_THREADS;
  return none(st, &err);
}
