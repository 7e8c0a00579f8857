/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/chooser.c - what the caller of an experiment brings: a searcher, a scheduler, and
 * functions that stop trials, size them or explore. libmanta asks them on the thread that is inside
 * of next; what they raise ends next with it.
 */
#include "tune.h"

static PyObject *none(void)
{
  Py_IncRef(Py_None);
  return Py_None;
}

static PyGILState_STATE ask(struct mpy_tune *it)
{
  PyGILState_STATE gil = PyGILState_Ensure();
  it->asking++;
  return gil;
}

static void asked(struct mpy_tune *it, PyGILState_STATE gil)
{
  it->asking--;
  PyGILState_Release(gil);
}

// Keeps the first exception; MANTA_EUSER.
static manta_status keep_raised(struct mpy_tune *it, manta_error *err)
{
  if (!it->raised[0])
    PyErr_Fetch(&it->raised[0], &it->raised[1], &it->raised[2]);
  PyErr_Clear();
  return manta_error_set(err, MANTA_EUSER, "a searcher, scheduler or stop function failed");
}

bool mpy_tune_raise(struct mpy_tune *it)
{
  PyObject **e = it->raised;
  if (!e[0])
    return false;
  PyErr_Restore(e[0], e[1], e[2]);
  e[0] = e[1] = e[2] = NULL;
  return true;
}

PyObject *mpy_tune_row(const struct mpy_tune *it, const manta_value *row)
{
  if (!row)
    return none();
  return it->own ? mpy_from_own(row) : mpy_from_value(row);
}

static bool take_config(PyObject *o, manta_value *out)
{
  manta_value v = {0};
  bool ok = mpy_to_value(o, MPY_SPACE, &v) && manta_value_copy(out, &v) == MANTA_OK;
  manta_value_fini(&v);
  if (!ok && !PyErr_Occurred())
    PyErr_SetString(PyExc_TypeError, "a config must be a dict");
  return ok;
}

// suggest(number, config or None) gives a config, None: no more, False: not now.
static int on_suggest(void *ctx, uint64_t number, bool again, manta_value *config, manta_error *err)
{
  struct mpy_tune *it = ctx;
  PyGILState_STATE gil = ask(it);
  PyObject *had = again ? mpy_from_own(config) : none();
  PyObject *got =
      had ? PyObject_CallMethod(it->searcher, "suggest", "KO", (unsigned long long)number, had)
          : NULL;
  int rc = got == Py_None ? 0 : got == Py_False ? 2 : 1;
  if (!got || (rc == 1 && !again && !take_config(got, config)))
    rc = keep_raised(it, err);
  Py_DecRef(got);
  Py_DecRef(had);
  asked(it, gil);
  return rc;
}

// whom.method(number, row), or whom(number, row); NULL: it has raised.
static PyObject *call(const struct mpy_tune *it, PyObject *whom, const char *method,
                      uint64_t number, const manta_value *row)
{
  unsigned long long n = number;
  PyObject *r = mpy_tune_row(it, row), *got = NULL;
  if (r)
    got = method ? PyObject_CallMethod(whom, method, "KO", n, r)
                 : PyObject_CallFunction(whom, "KO", n, r);
  Py_DecRef(r);
  return got;
}

// A call whose answer does not matter.
static manta_status tell(struct mpy_tune *it, PyObject *whom, const char *method, uint64_t number,
                         const manta_value *row, manta_error *err)
{
  PyGILState_STATE gil = ask(it);
  PyObject *got = call(it, whom, method, number, row);
  manta_status st = got ? MANTA_OK : keep_raised(it, err);
  Py_DecRef(got);
  asked(it, gil);
  return st;
}

static manta_status on_report(void *ctx, uint64_t number, const manta_value *row, manta_error *err)
{
  struct mpy_tune *it = ctx;
  return tell(it, it->searcher, "report", number, row, err);
}

static manta_status on_complete(void *ctx, uint64_t number, const manta_value *row, bool failed,
                                manta_error *err)
{
  struct mpy_tune *it = ctx;
  return tell(it, it->searcher, failed ? "fail" : "complete", number, row, err);
}

// A decision is None or (verdict, from, config).
static bool take_decision(PyObject *got, manta_decision *out)
{
  PyObject *config;
  unsigned long long from;
  int verdict;
  if (got == Py_None)
    return true;
  if (!PyArg_ParseTuple(got, "iKO", &verdict, &from, &config))
    return false;
  out->verdict = (manta_verdict)verdict;
  out->from = from;
  return config == Py_None || take_config(config, &out->config);
}

static manta_status schedule_begin(void *ctx, uint64_t trial, const manta_value *config,
                                   manta_error *err)
{
  struct mpy_tune *it = ctx;
  return tell(it, it->scheduler, "begin", trial, config, err);
}

static manta_status schedule_report(void *ctx, uint64_t trial, const manta_value *row,
                                    manta_decision *out, manta_error *err)
{
  struct mpy_tune *it = ctx;
  PyGILState_STATE gil = ask(it);
  PyObject *got = call(it, it->scheduler, "report", trial, row);
  manta_status st = got && take_decision(got, out) ? MANTA_OK : keep_raised(it, err);
  Py_DecRef(got);
  asked(it, gil);
  return st;
}

static void schedule_end(void *ctx, uint64_t trial, const manta_value *row)
{
  struct mpy_tune *it = ctx;
  manta_error err = MANTA_ERROR_INIT;
  tell(it, it->scheduler, "end", trial, row, &err); // what it raised is kept
}

// next() gives None, or (trial, verdict, from, config).
static int schedule_next(void *ctx, manta_decision *out, manta_error *err)
{
  struct mpy_tune *it = ctx;
  PyGILState_STATE gil = ask(it);
  PyObject *got = PyObject_CallMethod(it->scheduler, "next", NULL), *rest = NULL;
  int rc = got == Py_None ? 0 : 1;
  if (got && rc == 1) {
    PyObject *first = PyTuple_GetItem(got, 0);
    unsigned long long trial = first ? PyLong_AsUnsignedLongLong(first) : 0;
    rest = first && !PyErr_Occurred() ? PyTuple_GetSlice(got, 1, 4) : NULL;
    out->trial = trial;
    rc = rest && take_decision(rest, out) ? 1 : keep_raised(it, err);
  } else if (!got) {
    rc = keep_raised(it, err);
  }
  Py_DecRef(rest);
  Py_DecRef(got);
  asked(it, gil);
  return rc;
}

static int on_stop(void *ctx, uint64_t trial, const manta_value *row)
{
  struct mpy_tune *it = ctx;
  manta_error err = MANTA_ERROR_INIT;
  PyGILState_STATE gil = ask(it);
  PyObject *got = call(it, it->stop, NULL, trial, row);
  long rc = got ? PyLong_AsLong(got) : -1;
  if (rc < 0 || rc > 2) {
    keep_raised(it, &err);
    rc = 2;
  }
  Py_DecRef(got);
  asked(it, gil);
  return (int)rc;
}

// resources(number, row) gives a dict of cpus, gpus, workers, or None: as it is.
static int on_resources(void *ctx, uint64_t trial, const manta_value *row, manta_value *out)
{
  struct mpy_tune *it = ctx;
  manta_error err = MANTA_ERROR_INIT;
  PyGILState_STATE gil = ask(it);
  PyObject *got = call(it, it->resources, NULL, trial, row);
  int rc = got && got != Py_None;
  if (!got || (rc && !take_config(got, out))) {
    keep_raised(it, &err);
    rc = 0;
  }
  Py_DecRef(got);
  asked(it, gil);
  return rc;
}

// explore(number, config) gives another config.
static manta_status on_explore(void *ctx, uint64_t trial, manta_value *config, manta_error *err)
{
  struct mpy_tune *it = ctx;
  PyGILState_STATE gil = ask(it);
  PyObject *got = call(it, it->explore, NULL, trial, config);
  manta_status st = got && take_config(got, config) ? MANTA_OK : keep_raised(it, err);
  Py_DecRef(got);
  asked(it, gil);
  return st;
}

// names(number, config) gives the name of a directory.
static manta_status on_name(void *ctx, uint64_t trial, const manta_value *config, char *name,
                            size_t size, manta_error *err)
{
  struct mpy_tune *it = ctx;
  PyGILState_STATE gil = ask(it);
  PyObject *got = call(it, it->names, NULL, trial, config);
  PyObject *bytes = got ? PyUnicode_EncodeFSDefault(got) : NULL;
  const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
  manta_status st = MANTA_OK;
  if (!text)
    st = keep_raised(it, err);
  else if (strlen(text) != (size_t)PyBytes_Size(bytes) || strlen(text) >= size)
    st = manta_error_set(err, MANTA_EINVAL,
                         "the name of the directory of trial %llu is longer than %zu bytes, or has "
                         "a NUL in it: %.40s…",
                         (unsigned long long)trial, size - 1, text);
  else
    snprintf(name, size, "%s", text);
  Py_DecRef(bytes);
  Py_DecRef(got);
  asked(it, gil);
  return st;
}

// shows(number, rank, text) prints them. What it raises ends next.
static void on_output(void *ctx, uint64_t trial, int rank, const char *text, size_t len)
{
  struct mpy_tune *it = ctx;
  PyGILState_STATE gil = ask(it);
  PyObject *lines = PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace");
  PyObject *done =
      lines ? PyObject_CallFunction(it->shows, "KiO", (unsigned long long)trial, rank, lines)
            : NULL;
  if (!done)
    keep_raised(it, NULL);
  Py_DecRef(done);
  Py_DecRef(lines);
  asked(it, gil);
}

void mpy_tune_tables(struct mpy_tune *it, manta_tune_config *c, manta_searcher *searcher,
                     manta_scheduler *scheduler)
{
  *searcher = (manta_searcher){it, on_suggest, on_report, on_complete};
  *scheduler = (manta_scheduler){.ctx = it,
                                 .begin = schedule_begin,
                                 .report = schedule_report,
                                 .end = schedule_end,
                                 .next = schedule_next};
  c->own_searcher = it->searcher ? searcher : NULL;
  c->own_scheduler = it->scheduler ? scheduler : NULL;
  c->stop_fn = it->stop ? on_stop : NULL;
  c->resources_fn = it->resources ? on_resources : NULL;
  c->explore_fn = it->explore ? on_explore : NULL;
  c->dir_fn = it->names ? on_name : NULL;
  c->output_fn = it->shows ? on_output : NULL;
  c->stop_ctx = c->resources_ctx = c->explore_ctx = c->dir_ctx = c->output_ctx = it;
}
