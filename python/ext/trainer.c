/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/trainer.c - manta._manta.Trainer: a manta_trainer.
 */
#include "ext.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAP_NS  1000000
#define LIMIT_S 20 /* for calls of other threads to end; the run is given 10 */

typedef struct {
  PyObject_HEAD manta_trainer *t; /* NULL: closed */
  int users;                      /* calls that have let go of the GIL */
  int closing;                    /* 1: it is being freed */
} trainer;

static manta_trainer *open_trainer(PyObject *self)
{
  manta_trainer *t = ((trainer *)self)->t;
  if (!t)
    PyErr_SetString(PyExc_ValueError, "the trainer is closed");
  return t;
}

static PyObject *none(void)
{
  Py_IncRef(Py_None);
  return Py_None;
}

// --- calls of several threads --------------------------------------------------------------------

bool mpy_trainer_hold(PyObject *self)
{
  trainer *it = (trainer *)self;
  if (it->closing)
    PyErr_SetString(PyExc_ValueError, "the trainer is being closed");
  else
    it->users++;
  return !it->closing;
}

void mpy_trainer_let_go(PyObject *self)
{
  ((trainer *)self)->users--;
}

void mpy_trainer_await(PyObject *self)
{
  mpy_wait_until_none(&((trainer *)self)->closing);
}

void mpy_trainer_cancel(PyObject *self)
{
  trainer *it = (trainer *)self;
  if (it->t && !it->closing)
    manta_trainer_cancel(it->t);
}

bool mpy_wait_until_none(const int *count)
{
  for (int64_t naps = 0; *count > 0; naps++) {
    if (naps >= (int64_t)LIMIT_S * 1000000000 / NAP_NS)
      return false;
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    Py_END_ALLOW_THREADS;
  }
  return true;
}

// One that is still in use after a while is left to the end of the process, which ends all of it.
static void close_trainer(trainer *self)
{
  if (!self->t || self->closing)
    return;
  if (self->users > 0)
    manta_trainer_cancel(self->t);
  if (!mpy_wait_until_none(&self->users) || !self->t || self->closing)
    return;
  self->closing = 1;
  Py_BEGIN_ALLOW_THREADS;
  manta_trainer_destroy(self->t);
  Py_END_ALLOW_THREADS;
  self->t = NULL;
  self->closing = 0;
}

// --- making --------------------------------------------------------------------------------------

// A list of (name, slots, command, address), whose strings are borrowed. free() it.
static bool take_hosts(PyObject *list, manta_trainer_config *c, manta_host **out)
{
  Py_ssize_t n = list == Py_None ? 0 : PyList_Size(list);
  if (n < 0)
    return false;
  manta_host *h = calloc((size_t)n + 1, sizeof *h);
  if (!h)
    return PyErr_NoMemory() != NULL;
  *out = h;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!PyArg_ParseTuple(PyList_GetItem(list, i), "zizz", &h[i].name, &h[i].slots, &h[i].command,
                          &h[i].address))
      return false;
  c->hosts = h;
  c->host_count = (size_t)n;
  return true;
}

static bool take_parts(struct mpy_trainer_config *to, PyObject *hosts, PyObject *resources,
                       PyObject *program)
{
  if (!take_hosts(hosts, &to->config, &to->hosts))
    return false;
  if (resources != Py_None) {
    if (!mpy_to_value(resources, MPY_EXACT, &to->resources)) {
      if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "resources: a dict of numbers is wanted");
      return false;
    }
    to->config.resources = &to->resources;
  }
  if (program == Py_None)
    return true;
  to->config.program = &to->program;
  return mpy_program(program, &to->program);
}

static bool take_arguments(PyObject *args, PyObject *kwargs, struct mpy_trainer_config *to)
{
  static char *names[] = {"workers",
                          "min_workers",
                          "name",
                          "logdir",
                          "max_retries",
                          "retry_errors",
                          "step_timeout",
                          "grace",
                          "cpus_per_worker",
                          "gpus_per_worker",
                          "resources",
                          "threads_per_worker",
                          "pin",
                          "show_all_output",
                          "quiet",
                          "log_limit",
                          "hosts",
                          "host_timeout",
                          "program",
                          NULL};
  static const manta_trainer_config dflt = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer_config *c = &to->config;
  PyObject *resources = Py_None, *program = Py_None, *hosts = Py_None;
  int retry_errors = 0, pin = 0, all = 0, quiet = 0;
  long long log_limit = 0;
  *to = (struct mpy_trainer_config){.config = dflt, .program = MANTA_PROGRAM_INIT};
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "|$iizzipddddOipppLOdO", names, &c->workers, &c->min_workers, &c->name,
          &c->logdir, &c->max_retries, &retry_errors, &c->step_timeout_s, &c->grace_s,
          &c->cpus_per_worker, &c->gpus_per_worker, &resources, &c->threads_per_worker, &pin, &all,
          &quiet, &log_limit, &hosts, &c->host_timeout_s, &program))
    return false;
  c->retry_errors = retry_errors;
  c->pin = pin;
  c->show_all_output = all;
  c->quiet = quiet;
  c->log_limit = log_limit;
  return take_parts(to, hosts, resources, program);
}

bool mpy_trainer_config(PyObject *dict, struct mpy_trainer_config *to)
{
  PyObject *nothing = PyTuple_New(0);
  bool ok = nothing && take_arguments(nothing, dict, to);
  Py_DecRef(nothing);
  return ok;
}

void mpy_trainer_config_fini(struct mpy_trainer_config *c)
{
  mpy_program_fini(&c->program);
  manta_value_fini(&c->resources);
  free(c->hosts);
}

static int init(PyObject *self, PyObject *args, PyObject *kwargs)
{
  manta_error err = MANTA_ERROR_INIT;
  struct mpy_trainer_config c;
  bool ok = take_arguments(args, kwargs, &c);
  if (ok && manta_trainer_create(&((trainer *)self)->t, &c.config, &err) < 0) {
    mpy_raise(&err);
    ok = false;
  }
  mpy_trainer_config_fini(&c);
  return ok ? 0 : -1;
}

static PyObject *prestart(PyObject *self, PyObject *ignored)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = open_trainer(self);
  manta_status st = MANTA_OK;
  if (!t || !mpy_trainer_hold(self))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_trainer_prestart(t, &err);
  Py_END_ALLOW_THREADS;
  mpy_trainer_let_go(self);
  return st < 0 ? mpy_raise(&err) : none();
}

static PyObject *shut(PyObject *self, PyObject *ignored)
{
  close_trainer((trainer *)self);
  return none();
}

static void dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  close_trainer((trainer *)self);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

// --- runs ----------------------------------------------------------------------------------------

static PyObject *start_run(PyObject *self, manta_run_config *rc, PyObject *config, PyObject *sinks,
                           Py_buffer *bytes, const struct mpy_calls *calls)
{
  manta_value map = {0};
  struct mpy_sinks taken = {0};
  manta_trainer *t = open_trainer(self);
  bool ok = t && mpy_take_sinks(sinks, &taken) &&
            (config == Py_None || mpy_to_value(config, MPY_LOOSE, &map));
  rc->sinks = taken.sink;
  rc->sink_count = taken.count;
  rc->config = config == Py_None ? NULL : &map;
  rc->payload = bytes->buf;
  rc->payload_bytes = bytes->buf ? (size_t)bytes->len : 0;
  PyObject *run = ok ? mpy_run_new(t, self, rc, calls) : NULL;
  manta_value_fini(&map);
  mpy_sinks_fini(&taken);
  return run;
}

static PyObject *run(PyObject *self, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {
      "payload",   "config",         "checkpoint", "workers", "keep_last", "keep_best", "score",
      "score_min", "strict_reports", "execute",    "single",  "output",    "kinds",     "resume",
      "renew",     "verbose",        "html",       "sinks",   NULL};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  Py_buffer bytes = {0};
  PyObject *config = Py_None, *sinks = Py_None;
  struct mpy_calls calls = {.output = Py_None, .renew = Py_None};
  int min = 0, strict = 0, execute = 0, single = 0, html = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|O$ziiizppppO(ii)zOipO", names, &bytes, &config,
                                   &rc.checkpoint, &rc.workers, &rc.keep_last, &rc.keep_best,
                                   &rc.score, &min, &strict, &execute, &single, &calls.output,
                                   &calls.kinds[0], &calls.kinds[1], &rc.resume, &calls.renew,
                                   &rc.verbose, &html, &sinks))
    return NULL;
  rc.score_min = min;
  rc.strict_reports = strict;
  rc.execute = execute;
  rc.single = single;
  rc.html = html;
  PyObject *r = start_run(self, &rc, config, sinks, &bytes, &calls);
  PyBuffer_Release(&bytes);
  return r;
}

// --- what can be asked of it ---------------------------------------------------------------------

static PyObject *hold(PyObject *self, PyObject *args)
{
  manta_trainer *t = ((trainer *)self)->t;
  int on;
  if (!PyArg_ParseTuple(args, "p", &on))
    return NULL;
  if (t)
    manta_trainer_hold(t, on);
  return none();
}

static PyObject *resize(PyObject *self, PyObject *args)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = open_trainer(self);
  int n;
  if (!t || !PyArg_ParseTuple(args, "i", &n))
    return NULL;
  return manta_trainer_resize(t, n, &err) < 0 ? mpy_raise(&err) : none();
}

static PyObject *notice(PyObject *self, PyObject *ignored)
{
  manta_trainer *t = open_trainer(self);
  if (!t)
    return NULL;
  manta_trainer_notice(t);
  return none();
}

static PyObject *cancel(PyObject *self, PyObject *ignored)
{
  manta_trainer *t = open_trainer(self);
  if (!t)
    return NULL;
  manta_trainer_cancel(t);
  return none();
}

static PyObject *shutdown(PyObject *self, PyObject *ignored)
{
  manta_trainer *t = ((trainer *)self)->t;
  if (!t)
    return none();
  if (!mpy_trainer_hold(self))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  manta_trainer_shutdown(t);
  Py_END_ALLOW_THREADS;
  mpy_trainer_let_go(self);
  return none();
}

static PyObject *keep(PyObject *self, PyObject *args)
{
  manta_trainer *t = open_trainer(self);
  int on;
  if (!t || !PyArg_ParseTuple(args, "p", &on))
    return NULL;
  manta_trainer_keep(t, on);
  return none();
}

static PyObject *table(PyObject *self, PyObject *ignored)
{
  manta_trainer *t = open_trainer(self);
  char *text = NULL;
  size_t n = 0;
  FILE *to = t ? open_memstream(&text, &n) : NULL;
  if (!to)
    return t ? PyErr_NoMemory() : NULL;
  manta_trainer_print(t, to);
  fclose(to);
  PyObject *s = PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace");
  free(text);
  return s;
}

static PyObject *workers(PyObject *self, PyObject *ignored)
{
  manta_trainer *t = open_trainer(self);
  return t ? PyLong_FromLong(manta_trainer_workers(t)) : NULL;
}

static PyObject *logdir(PyObject *self, PyObject *ignored)
{
  manta_trainer *t = open_trainer(self);
  return t ? PyUnicode_DecodeFSDefault(manta_trainer_logdir(t)) : NULL;
}

static PyObject *storage(PyObject *self, PyObject *ignored)
{
  manta_trainer *t = open_trainer(self);
  return t ? Py_BuildValue("z", manta_trainer_storage(t)) : NULL;
}

static PyObject *run_dir(PyObject *self, PyObject *ignored)
{
  manta_trainer *t = open_trainer(self);
  return t ? PyUnicode_DecodeFSDefault(manta_trainer_run_dir(t)) : NULL;
}

static PyObject *pid(PyObject *self, PyObject *args)
{
  manta_trainer *t = open_trainer(self);
  int rank;
  if (!t || !PyArg_ParseTuple(args, "i", &rank))
    return NULL;
  return PyLong_FromLong(manta_trainer_pid(t, rank));
}

static PyObject *checkpoint(PyObject *self, PyObject *ignored)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = open_trainer(self);
  manta_checkpoint *c = NULL;
  manta_status st = MANTA_OK;
  if (!t || !mpy_trainer_hold(self))
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_trainer_checkpoint(t, &c, &err);
  Py_END_ALLOW_THREADS;
  mpy_trainer_let_go(self);
  return st < 0 ? mpy_raise(&err) : mpy_checkpoint_new(c);
}

static PyObject *best_checkpoint(PyObject *self, PyObject *ignored)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = open_trainer(self);
  char path[4096];
  if (!t)
    return NULL;
  manta_status st = manta_trainer_best_checkpoint(t, path, sizeof path, &err);
  if (st == MANTA_ENOENT)
    return none();
  return st < 0 ? mpy_raise(&err) : PyUnicode_DecodeFSDefault(path);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_VARARGS | METH_KEYWORDS,
     MPY_DOC("run($self, payload, config=None, *, checkpoint=None, workers=0, "
             "keep_last=0, keep_best=0, score=None, score_min=False, "
             "strict_reports=False, execute=False, single=False, output=None, "
             "kinds=(0, 0), resume=None, renew=None, verbose=0, html=False, "
             "sinks=None)",
             "(bytes, Any, str | None, int, int, int, str | None, bool, bool, bool, "
             "bool, Callable[[int, str], object] | None, tuple[int, int], str | None, "
             "Callable[[int], object] | None, int, bool, "
             "list[tuple[str, dict[str, Any]]] | None) -> Run",
             "Starts a run.")},
    {"prestart", prestart, METH_NOARGS,
     MPY_DOC("prestart($self)", "() -> None",
             "Starts what workers are forked from, on every host, and keeps it until release().")},
    {"hold", hold, METH_VARARGS,
     MPY_DOC("hold($self, on, /)", "(bool) -> None",
             "Whether its idle workers stay when another trainer needs their room.")},
    {"resize", resize, METH_VARARGS,
     MPY_DOC("resize($self, workers, /)", "(int) -> None", "At the next checkpoint.")},
    {"keep", keep, METH_VARARGS,
     MPY_DOC("keep($self, on, /)", "(bool) -> None",
             "Whether workers serve several calls of a train function.")},
    {"notice", notice, METH_NOARGS,
     MPY_DOC("notice($self)", "() -> None", "Asks the run to save and return.")},
    {"cancel", cancel, METH_NOARGS, MPY_DOC("cancel($self)", "() -> None", "Ends the run.")},
    {"shutdown", shutdown, METH_NOARGS,
     MPY_DOC("shutdown($self)", "() -> None", "Ends the workers.")},
    {"close", shut, METH_NOARGS,
     MPY_DOC("close($self)", "() -> None", "Ends the workers and frees the trainer.")},
    {"table", table, METH_NOARGS, MPY_DOC("table($self)", "() -> str", "Workers and resources.")},
    {"workers", workers, METH_NOARGS,
     MPY_DOC("workers($self)", "() -> int", "Workers of the next run.")},
    {"storage", storage, METH_NOARGS,
     MPY_DOC("storage($self)", "() -> str | None", "The URI under which runs are stored.")},
    {"logdir", logdir, METH_NOARGS,
     MPY_DOC("logdir($self)", "() -> str", "Where runs have their directories.")},
    {"run_dir", run_dir, METH_NOARGS,
     MPY_DOC("run_dir($self)", "() -> str", "Directory of the newest run, or an empty string.")},
    {"pid", pid, METH_VARARGS,
     MPY_DOC("pid($self, rank, /)", "(int) -> int", "Of the newest attempt, or -1.")},
    {"checkpoint", checkpoint, METH_NOARGS,
     MPY_DOC("checkpoint($self)", "() -> Checkpoint | None", "The newest one.")},
    {"best_checkpoint", best_checkpoint, METH_NOARGS,
     MPY_DOC("best_checkpoint($self)", "() -> str | None", "Directory of the best one, or None.")},
    {NULL, NULL, 0, NULL}};

static const char trainer_doc[] =
    MPY_DOC("Trainer(*, workers=0, min_workers=0, name=None, logdir=None, "
            "max_retries=0, retry_errors=False, step_timeout=0, grace=0, "
            "cpus_per_worker=0, gpus_per_worker=0, resources=None, "
            "threads_per_worker=0, pin=False, show_all_output=False, quiet=False, "
            "log_limit=0, hosts=None, host_timeout=0, program=None)",
            "(int, int, str | None, str | None, int, bool, float, float, float, float, "
            "dict[str, float] | None, int, bool, bool, bool, int, "
            "list[tuple[str | None, int, str | None, str | None]] | None, float, "
            "tuple[list[str], list[str]] | None) -> None",
            "A trainer of libmanta.");

static PyType_Slot slots[] = {{Py_tp_init, init},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, (void *)(uintptr_t)trainer_doc},
                              {0, NULL}};
static PyType_Spec spec = {.name = "manta._manta.Trainer",
                           .basicsize = sizeof(trainer),
                           .flags = Py_TPFLAGS_DEFAULT,
                           .slots = slots};

int mpy_add_trainer(PyObject *module)
{
  PyObject *type = PyType_FromSpec(&spec);
  return type ? PyModule_AddObjectRef(module, "Trainer", type) : -1;
}
