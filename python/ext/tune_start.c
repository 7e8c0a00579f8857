/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/tune_start.c - what an experiment is begun with.
 */
#include "tune.h"

struct given {
  Py_buffer payload;
  PyObject *space, *searcher_options, *scheduler_options, *stop, *trainer;
  manta_value values[4];
  PyObject *sinks;
  struct mpy_sinks taken;
};

static bool take_value(PyObject *o, manta_value *v, const manta_value **to)
{
  if (o == Py_None)
    return true;
  *to = v;
  if (mpy_to_value(o, MPY_SPACE, v))
    return true;
  if (!PyErr_Occurred())
    PyErr_SetString(PyExc_TypeError, "a dict of plain values is wanted");
  return false;
}

static bool take_values(struct given *g, manta_tune_config *c)
{
  return take_value(g->space, &g->values[0], &c->space) &&
         take_value(g->searcher_options, &g->values[1], &c->searcher_options) &&
         take_value(g->scheduler_options, &g->values[2], &c->scheduler_options) &&
         take_value(g->stop, &g->values[3], &c->stop);
}

static bool take_sinks(struct given *g, manta_tune_config *c)
{
  if (!mpy_take_sinks(g->sinks, &g->taken))
    return false;
  c->sinks = g->taken.sink;
  c->sink_count = g->taken.count;
  return true;
}

static void keep(PyObject **to, PyObject *o)
{
  if (o != Py_None) {
    Py_IncRef(o);
    *to = o;
  }
}

static manta_status begin(struct mpy_tune *it, manta_tune_config *c, manta_error *err)
{
  manta_searcher searcher;
  manta_scheduler scheduler;
  manta_status st;
  mpy_tune_tables(it, c, &searcher, &scheduler);
  Py_BEGIN_ALLOW_THREADS;
  st = manta_tune_start(&it->t, mpy_train_function(), c, err);
  Py_END_ALLOW_THREADS;
  return st;
}

// libmanta borrows what a trainer's config points to until the experiment is closed.
static bool take_trainer(struct mpy_tune *it, PyObject *dict, manta_tune_config *c)
{
  if (dict == Py_None)
    return true;
  keep(&it->trainer_dict, dict);
  c->trainer = &it->trainer.config;
  return mpy_trainer_config(dict, &it->trainer);
}

static PyObject *start_it(struct given *g, manta_tune_config *c, PyObject *const own[7])
{
  manta_error err = MANTA_ERROR_INIT;
  struct mpy_tune *it = mpy_tune_new();
  bool ok = it && take_values(g, c) && take_sinks(g, c) && take_trainer(it, g->trainer, c);
  if (ok) {
    keep(&it->searcher, own[0]);
    keep(&it->scheduler, own[1]);
    keep(&it->stop, own[2]);
    keep(&it->resources, own[3]);
    keep(&it->explore, own[4]);
    keep(&it->names, own[5]);
    keep(&it->shows, own[6]);
    it->own = true;
    it->payload = g->payload;
    g->payload = (Py_buffer){0};
    ok = begin(it, c, &err) == MANTA_OK && !it->raised[0];
    if (!ok && !mpy_tune_raise(it))
      mpy_raise(&err);
  }
  for (int i = 0; i < 4; i++)
    manta_value_fini(&g->values[i]);
  mpy_sinks_fini(&g->taken);
  if (ok)
    return (PyObject *)it;
  Py_DecRef((PyObject *)it);
  return NULL;
}

static char *start_names[] = {"payload",
                              "trainer",
                              "space",
                              "samples",
                              "metric",
                              "maximize",
                              "time_key",
                              "searcher",
                              "searcher_options",
                              "own_searcher",
                              "scheduler",
                              "scheduler_options",
                              "own_scheduler",
                              "seed",
                              "concurrency",
                              "reuse",
                              "max_failures",
                              "fail_fast",
                              "stop",
                              "stop_fn",
                              "time_budget",
                              "keep_last",
                              "name",
                              "logdir",
                              "resume",
                              "retry_failed",
                              "resources_fn",
                              "explore_fn",
                              "sinks",
                              "trial_time",
                              "keep_best",
                              "score",
                              "score_min",
                              "dir_fn",
                              "output_fn",
                              "soft_stop",
                              NULL};

static PyObject *start(PyObject *module, PyObject *args, PyObject *kwargs)
{
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  struct given g = {.trainer = Py_None,
                    .space = Py_None,
                    .searcher_options = Py_None,
                    .scheduler_options = Py_None,
                    .stop = Py_None,
                    .sinks = Py_None};
  PyObject *own[7] = {Py_None, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None};
  int maximize = 0, reuse = 0, fast = 0, retry = 0, score_min = 0, soft = 0;
  long long samples = 0;
  unsigned long long seed = 0;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "y*|$OOLzpzzOOzOOKipipOOdizzzpOOOdizpOOp", start_names, &g.payload,
          &g.trainer, &g.space, &samples, &c.metric, &maximize, &c.time_key, &c.searcher,
          &g.searcher_options, &own[0], &c.scheduler, &g.scheduler_options, &own[1], &seed,
          &c.concurrency, &reuse, &c.max_failures, &fast, &g.stop, &own[2], &c.time_budget_s,
          &c.keep_last, &c.name, &c.logdir, &c.resume, &retry, &own[3], &own[4], &g.sinks,
          &c.trial_time_s, &c.keep_best, &c.score, &score_min, &own[5], &own[6], &soft))
    return NULL;
  c.samples = samples;
  c.maximize = maximize;
  c.seed = seed;
  c.reuse = reuse;
  c.fail_fast = fast;
  c.retry_failed = retry;
  c.score_min = score_min;
  c.soft_stop = soft;
  c.payload = g.payload.buf;
  c.payload_bytes = (size_t)g.payload.len;
  PyObject *it = start_it(&g, &c, own);
  PyBuffer_Release(&g.payload);
  return it;
}

static PyMethodDef functions[] = {
    {"tune_start", (PyCFunction)(void (*)(void))start, METH_VARARGS | METH_KEYWORDS,
     MPY_DOC(
         "tune_start($module, payload, *, trainer=None, space=None, samples=0, metric=None, "
         "maximize=False, time_key=None, searcher=None, searcher_options=None, "
         "own_searcher=None, scheduler=None, scheduler_options=None, own_scheduler=None, "
         "seed=0, concurrency=0, reuse=False, max_failures=0, fail_fast=False, stop=None, "
         "stop_fn=None, time_budget=0, keep_last=0, name=None, logdir=None, resume=None, "
         "retry_failed=False, resources_fn=None, explore_fn=None, sinks=None, trial_time=0, "
         "keep_best=0, score=None, score_min=False, dir_fn=None, output_fn=None, "
         "soft_stop=False)",
         "(bytes, dict[str, Any] | None, Any, int, str | None, bool, str | None, str | None, "
         "Any, Any, str | None, Any, Any, int, int, bool, int, bool, Any, "
         "Callable[[int, Any], int] | None, float, int, str | None, str | None, str | None, "
         "bool, Callable[[int, Any], Any] | None, Callable[[int, Any], Any] | None, "
         "list[tuple[str, dict[str, Any]]] | None, float, int, str | None, bool, "
         "Callable[[int, Any], str] | None, Callable[[int, int, str], None] | None, bool) -> Tune",
         "Begins an experiment, or goes on with one.")},
    {NULL, NULL, 0, NULL}};

int mpy_add_tune_start(PyObject *module)
{
  return PyModule_AddFunctions(module, functions);
}
