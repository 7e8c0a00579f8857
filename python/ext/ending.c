/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/ending.c - whether a trial has left something to be done at the exit of its process.
 *
 * Every trial asks, and most have left nothing. To look at an object from Python is to write its
 * count of references, and so to copy its page, which the fork shares: here it is only read.
 */
#include <fcntl.h>
#include <unistd.h>

#include "ext.h"

static PyObject *watched;    /* a tuple of containers, and of functions that count */
static unsigned long before; /* what all of them gave when the trial began */

// The lowest number that is free: another one if files were opened and not closed.
static int free_descriptor(void)
{
  int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0)
    close(fd);
  return fd;
}

static long count_of(PyObject *o)
{
  if (!PyCallable_Check(o))
    return (long)PyObject_Size(o);
  PyObject *n = PyObject_CallNoArgs(o);
  long count = n ? PyLong_AsLong(n) : -1;
  Py_DecRef(n);
  return count;
}

// Differs if one of them does, as good as always.
static unsigned long look(void)
{
  unsigned long sum = (unsigned long)free_descriptor();
  for (Py_ssize_t i = 0; watched && i < PyTuple_Size(watched); i++)
    sum = sum * 1000003 + (unsigned long)count_of(PyTuple_GetItem(watched, i));
  PyErr_Clear();
  return sum;
}

void mpy_ending_begin(void)
{
  if (watched)
    before = look();
}

static PyObject *watch(PyObject *self, PyObject *tuple)
{
  if (!PyTuple_Check(tuple))
    return PyErr_Format(PyExc_TypeError, "a tuple is wanted");
  PyObject *last = watched;
  Py_IncRef(tuple);
  watched = tuple;
  Py_DecRef(last);
  mpy_ending_begin();
  Py_IncRef(Py_None);
  return Py_None;
}

static PyObject *left(PyObject *self, PyObject *none)
{
  return PyBool_FromLong(watched && look() != before);
}

static PyMethodDef functions[] = {
    {"watch_ending", watch, METH_O,
     MPY_DOC("watch_ending($module, counted, /)", "(tuple[Any, ...]) -> None",
             "Whose sizes, and what results, say whether something is left at the end.")},
    {"ending_left", left, METH_NOARGS,
     MPY_DOC("ending_left($module)", "() -> bool",
             "Whether these, or the open files, are others than at the beginning.")},
    {NULL, NULL, 0, NULL}};

int mpy_add_ending(PyObject *module)
{
  return PyModule_AddFunctions(module, functions);
}
