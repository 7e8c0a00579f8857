/* SPDX-License-Identifier: Apache-2.0
 *
 * python/ext/comm.c - manta._manta.Comm and Work: collectives on raw addresses.
 *
 * (1) Whoever calls keeps the buffers alive: until the call returns, or the Work was waited for.
 * (2) Collectives of a Comm are done one at a time, whatever thread they come from.
 * (3) close() ends what is in flight, waits for it, and leaves every Work with its verdict. It must
 *     come before the train function returns: the communicators end with the attempt. With
 *     tell=False the others are not told yet that this rank has left: it may first have to say why.
 */
#include "ext.h"

#include <string.h>
#include <time.h>

#define MAX_NUMBERS 6
#define LOOK_NS     200000 /* how often one who waits for another thread looks */

typedef struct work work;

typedef struct {
  PyObject_HEAD manta_comm *c; /* NULL: closed */
  PyThread_type_lock turn;     /* of collectives */
  int users;                   /* threads inside, besides one that closes; with the GIL */
  work *works;                 /* not waited for; with the GIL */
} comm;

struct work {
  PyObject_HEAD manta_work *w; /* NULL: somebody waits for it, or it is over */
  comm *owner;
  work *prev, *next;
  bool over;
  int peer; /* of a receive */
  manta_error err;
};

static PyTypeObject *comm_type, *work_type;

static PyObject *done(manta_status st, const manta_error *err)
{
  if (st < 0)
    return mpy_raise(err);
  Py_IncRef(Py_None);
  return Py_None;
}

static manta_comm *open_comm(PyObject *self)
{
  manta_comm *c = ((comm *)self)->c;
  if (!c) {
    manta_error err = MANTA_ERROR_INIT;
    manta_error_set(&err, MANTA_ESTATE, "this process group has ended with its run");
    mpy_raise(&err);
  }
  return c;
}

static void nap(void)
{
  const struct timespec t = {0, LOOK_NS};
  Py_BEGIN_ALLOW_THREADS;
  nanosleep(&t, NULL);
  Py_END_ALLOW_THREADS;
}

// --- works ---------------------------------------------------------------------------------------

static work *work_new(comm *owner)
{
  work *self = PyObject_New(work, work_type);
  if (!self)
    return NULL;
  self->w = NULL;
  self->over = false;
  self->peer = -1;
  self->err = (manta_error)MANTA_ERROR_INIT;
  self->prev = NULL;
  self->next = owner->works;
  if (owner->works)
    owner->works->prev = self;
  owner->works = self;
  Py_IncRef((PyObject *)owner);
  self->owner = owner;
  return self;
}

static void unlist(work *self)
{
  if (!self->owner)
    return;
  if (self->prev)
    self->prev->next = self->next;
  else
    self->owner->works = self->next;
  if (self->next)
    self->next->prev = self->prev;
  Py_DecRef((PyObject *)self->owner);
  self->owner = NULL;
}

// With the GIL, which it gives away. A second thread looks until the first is done.
static void finish(work *self)
{
  manta_work *w = self->w;
  self->w = NULL;
  if (!w) {
    while (!self->over)
      nap();
    return;
  }
  comm *owner = self->owner;
  owner->users++;
  Py_BEGIN_ALLOW_THREADS;
  manta_work_wait(w, &self->err);
  Py_END_ALLOW_THREADS;
  owner->users--;
  self->over = true;
  unlist(self);
}

static PyObject *work_wait(PyObject *self, PyObject *none)
{
  work *it = (work *)self;
  Py_IncRef(self);
  finish(it);
  PyObject *result = done(it->err.status, &it->err);
  Py_DecRef(self);
  return result;
}

static PyObject *work_test(PyObject *self, PyObject *none)
{
  const work *it = (work *)self;
  return PyBool_FromLong(it->over || (it->w && manta_work_test(it->w)));
}

static PyObject *work_peer(PyObject *self, PyObject *none)
{
  return PyLong_FromLong(((work *)self)->peer);
}

// Who has the buffers drops them next: the operation must be over.
static void work_dealloc(PyObject *self)
{
  work *it = (work *)self;
  PyTypeObject *type = Py_TYPE(self);
  if (it->w)
    finish(it);
  else
    unlist(it);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

// --- calls ---------------------------------------------------------------------------------------

typedef manta_status (*call_fn)(manta_comm *c, const long long *a, int *peer, manta_work **work,
                                manta_error *err);

// `want` numbers, then whether to start only.
static bool numbers(PyObject *const *args, Py_ssize_t n, int want, long long *out, bool *start)
{
  if (n != want && n != want + 1) {
    PyErr_Format(PyExc_TypeError, "%d or %d arguments are wanted, not %zd", want, want + 1, n);
    return false;
  }
  for (int i = 0; i < want; i++) {
    out[i] = PyLong_AsLongLong(args[i]);
    if (out[i] == -1 && PyErr_Occurred())
      return false;
  }
  *start = n > want && PyObject_IsTrue(args[want]) == 1;
  return !PyErr_Occurred();
}

static manta_status run_call(comm *self, bool turns, call_fn call, const long long *a, int *peer,
                             manta_work **w, manta_error *err)
{
  manta_comm *c = self->c; // close() sets it to NULL, and waits for its users
  manta_status st;
  self->users++;
  Py_BEGIN_ALLOW_THREADS;
  if (turns)
    PyThread_acquire_lock(self->turn, WAIT_LOCK);
  st = call(c, a, peer, w, err);
  if (turns)
    PyThread_release_lock(self->turn);
  Py_END_ALLOW_THREADS;
  self->users--;
  return st;
}

static PyObject *start_call(comm *self, bool turns, call_fn call, const long long *a)
{
  manta_error err = MANTA_ERROR_INIT;
  work *w = work_new(self);
  if (!w)
    return NULL;
  if (run_call(self, turns, call, a, &w->peer, &w->w, &err) == MANTA_OK)
    return (PyObject *)w;
  w->over = true;
  Py_DecRef((PyObject *)w);
  return mpy_raise(&err);
}

static PyObject *make_call(PyObject *self, PyObject *const *args, Py_ssize_t n, int want,
                           bool turns, call_fn call)
{
  manta_error err = MANTA_ERROR_INIT;
  long long a[MAX_NUMBERS];
  bool start;
  int peer;
  if (!open_comm(self) || !numbers(args, n, want, a, &start))
    return NULL;
  if (start)
    return start_call((comm *)self, turns, call, a);
  manta_status st = run_call((comm *)self, turns, call, a, &peer, NULL, &err);
  return done(st, &err);
}

static void *at(long long address)
{
  return (void *)(uintptr_t)address;
}

#define CALL(name, want, turns, expression)                                                        \
  static manta_status name##_call(manta_comm *c, const long long *a, int *peer, manta_work **w,    \
                                  manta_error *err)                                                \
  {                                                                                                \
    return expression;                                                                             \
  }                                                                                                \
  static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t n)                       \
  {                                                                                                \
    return make_call(self, args, n, want, turns, name##_call);                                     \
  }
#define TYPE(n) ((manta_dtype)(n))
#define OP(n)   ((manta_op)(n))
#define SIZE(n) ((size_t)(n))

CALL(allreduce, 5, true,
     manta_comm_allreduce_start(c, at(a[0]), at(a[1]), SIZE(a[2]), TYPE(a[3]), OP(a[4]), w, err))
CALL(reduce, 6, true,
     manta_comm_reduce_start(c, at(a[0]), at(a[1]), SIZE(a[2]), TYPE(a[3]), OP(a[4]), (int)a[5], w,
                             err))
CALL(reduce_scatter, 5, true,
     manta_comm_reduce_scatter_start(c, at(a[0]), at(a[1]), SIZE(a[2]), TYPE(a[3]), OP(a[4]), w,
                                     err))
CALL(broadcast, 4, true,
     manta_comm_broadcast_start(c, at(a[0]), SIZE(a[1]), TYPE(a[2]), (int)a[3], w, err))
CALL(allgather, 4, true,
     manta_comm_allgather_start(c, at(a[0]), at(a[1]), SIZE(a[2]), TYPE(a[3]), w, err))
CALL(alltoall, 4, true,
     manta_comm_alltoall_start(c, at(a[0]), at(a[1]), SIZE(a[2]), TYPE(a[3]), w, err))
CALL(gather, 5, true,
     manta_comm_gather_start(c, at(a[0]), at(a[1]), SIZE(a[2]), TYPE(a[3]), (int)a[4], w, err))
CALL(scatter, 5, true,
     manta_comm_scatter_start(c, at(a[0]), at(a[1]), SIZE(a[2]), TYPE(a[3]), (int)a[4], w, err))
CALL(barrier, 0, true, manta_comm_barrier_start(c, w, err))
CALL(send, 5, false,
     manta_comm_send_tagged_start(c, at(a[0]), SIZE(a[1]), TYPE(a[2]), (int)a[3], (int)a[4], w,
                                  err))
CALL(recv, 5, false,
     (*peer = (int)a[3],
      manta_comm_recv_tagged_start(c, at(a[0]), SIZE(a[1]), TYPE(a[2]), peer, (int)a[4], w, err)))
// a[2]: the counts, an array of size_t.
CALL(allgatherv, 4, true,
     manta_comm_allgatherv_start(c, at(a[0]), at(a[1]), at(a[2]), TYPE(a[3]), w, err))

// --- the communicator ----------------------------------------------------------------------------

static PyObject *comm_new(manta_comm *c)
{
  comm *self = PyObject_New(comm, comm_type);
  if (!self)
    return NULL;
  self->c = c;
  self->users = 0;
  self->works = NULL;
  self->turn = PyThread_allocate_lock();
  if (self->turn)
    return (PyObject *)self;
  self->c = NULL;
  Py_DecRef((PyObject *)self);
  return PyErr_NoMemory();
}

// comm() -> Comm of all ranks of the run.
static PyObject *world(PyObject *self, PyObject *none)
{
  manta_session *s = manta_session_current();
  manta_error err = MANTA_ERROR_INIT;
  manta_comm *c;
  if (!s) {
    manta_error_set(&err, MANTA_ESTATE, "there is no session: this is not a train function");
    return mpy_raise(&err);
  }
  Py_BEGIN_ALLOW_THREADS;
  c = manta_session_comm(s);
  Py_END_ALLOW_THREADS;
  return comm_new(c);
}

static int *ranks_of(PyObject *list, Py_ssize_t *n)
{
  *n = PyList_Check(list) ? PyList_Size(list) : -1;
  if (*n < 0) {
    PyErr_SetString(PyExc_TypeError, "a list of ranks is wanted");
    return NULL;
  }
  int *ranks = PyMem_Calloc((size_t)*n + 1, sizeof *ranks);
  for (Py_ssize_t i = 0; ranks && i < *n; i++)
    ranks[i] = (int)PyLong_AsLong(PyList_GetItem(list, i));
  if (ranks && PyErr_Occurred()) {
    PyMem_Free(ranks);
    return NULL;
  }
  return ranks ? ranks : (int *)PyErr_NoMemory();
}

static PyObject *group(PyObject *self, PyObject *list)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_comm *c = open_comm(self), *out = NULL;
  Py_ssize_t n;
  int *ranks = c ? ranks_of(list, &n) : NULL;
  manta_status st;
  if (!ranks)
    return NULL;
  ((comm *)self)->users++;
  Py_BEGIN_ALLOW_THREADS;
  st = manta_comm_group(c, ranks, (int)n, &out, &err);
  Py_END_ALLOW_THREADS;
  ((comm *)self)->users--;
  PyMem_Free(ranks);
  return st < 0 ? mpy_raise(&err) : comm_new(out);
}

static PyObject *rank(PyObject *self, PyObject *none)
{
  manta_comm *c = open_comm(self);
  return c ? PyLong_FromLong(manta_comm_rank(c)) : NULL;
}

static PyObject *size(PyObject *self, PyObject *none)
{
  manta_comm *c = open_comm(self);
  return c ? PyLong_FromLong(manta_comm_size(c)) : NULL;
}

static PyObject *set_timeout(PyObject *self, PyObject *seconds)
{
  manta_comm *c = open_comm(self);
  double s = c ? PyFloat_AsDouble(seconds) : 0;
  if (!c || PyErr_Occurred())
    return NULL;
  manta_comm_set_timeout(c, s);
  return done(MANTA_OK, NULL);
}

static bool is_idle(const comm *self)
{
  return self->users == 0 && !self->works;
}

// Those that nobody waited for, though they are over.
static void reap(comm *self)
{
  for (work *w = self->works, *next; w; w = next) {
    next = w->next;
    if (!w->w || !manta_work_test(w->w))
      continue;
    Py_IncRef((PyObject *)w);
    finish(w); // gives the GIL away: the list may be another one
    Py_DecRef((PyObject *)w);
    next = self->works;
  }
}

// Later calls find no communicator; those in flight are ended, then what they used is freed.
static void shut(comm *self, bool frees)
{
  manta_comm *c = self->c;
  self->c = NULL;
  if (!c)
    return;
  reap(self);
  if (!is_idle(self))
    manta_comm_cancel(c);
  while (!is_idle(self)) {
    work *w = self->works;
    if (w && w->w) {
      Py_IncRef((PyObject *)w);
      finish(w);
      Py_DecRef((PyObject *)w);
    } else {
      nap(); // somebody else waits for it
    }
  }
  if (!frees)
    return; // the attempt does
  Py_BEGIN_ALLOW_THREADS;
  manta_comm_free(c);
  Py_END_ALLOW_THREADS;
}

static PyObject *comm_close(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
  int tell = n > 0 ? PyObject_IsTrue(args[0]) : 1;
  if (n > 1 || tell < 0) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError, "close takes one argument at most");
    return NULL;
  }
  Py_IncRef(self);
  shut((comm *)self, tell);
  Py_DecRef(self);
  return done(MANTA_OK, NULL);
}

// Without close() the communicator stays until the attempt ends: here it may have ended.
static void comm_dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  if (((comm *)self)->turn)
    PyThread_free_lock(((comm *)self)->turn);
  PyObject_Free(self);
  Py_DecRef((PyObject *)type);
}

// --- the types -----------------------------------------------------------------------------------

// Numbers, the last of them whether to start only: then a Work comes back, else None.
#define METHOD(name, numbers, types, text)                                                         \
  {                                                                                                \
#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL,                                       \
        MPY_DOC(#name "($self, " numbers "start=False, /)", "(" types "bool) -> Any", text)        \
  }
#define FOUR "int, int, int, int, "

static PyMethodDef comm_methods[] = {
    METHOD(allreduce, "send, recv, count, dtype, op, ", FOUR "int, ", "Buffers are addresses."),
    METHOD(reduce, "send, recv, count, dtype, op, root, ", FOUR "int, int, ", "To one."),
    METHOD(reduce_scatter, "send, recv, count, dtype, op, ", FOUR "int, ", "A block to each."),
    METHOD(broadcast, "buf, count, dtype, root, ", FOUR, "From one to all."),
    METHOD(allgather, "send, recv, count, dtype, ", FOUR, "From all to all."),
    METHOD(allgatherv, "send, recv, counts, dtype, ", FOUR, "counts: an address, too."),
    METHOD(alltoall, "send, recv, count, dtype, ", FOUR, "From each to each."),
    METHOD(gather, "send, recv, count, dtype, root, ", FOUR "int, ", "From all to one."),
    METHOD(scatter, "send, recv, count, dtype, root, ", FOUR "int, ", "From one, a block to each."),
    METHOD(barrier, "", "", "Until all have come."),
    METHOD(send, "buf, count, dtype, to, tag, ", FOUR "int, ", "To one rank."),
    METHOD(recv, "buf, count, dtype, source, tag, ", FOUR "int, ", "source = -1: from any rank."),
    {"group", group, METH_O,
     MPY_DOC("group($self, ranks, /)", "(list[int]) -> Comm", "Of those, who all call it.")},
    {"rank", rank, METH_NOARGS, MPY_DOC("rank($self)", "() -> int", "This rank.")},
    {"size", size, METH_NOARGS, MPY_DOC("size($self)", "() -> int", "How many there are.")},
    {"set_timeout", set_timeout, METH_O,
     MPY_DOC("set_timeout($self, seconds, /)", "(float) -> None", "Of each call; negative: none.")},
    {"close", (PyCFunction)(void (*)(void))comm_close, METH_FASTCALL,
     MPY_DOC("close($self, tell=True, /)", "(bool) -> None",
             "Ends what is in flight, and the communicator.")},
    {NULL, NULL, 0, NULL}};

static PyMethodDef work_methods[] = {
    {"wait", work_wait, METH_NOARGS,
     MPY_DOC("wait($self)", "() -> None", "Raises what went wrong; any number of times.")},
    {"test", work_test, METH_NOARGS, MPY_DOC("test($self)", "() -> bool", "Whether it is over.")},
    {"peer", work_peer, METH_NOARGS,
     MPY_DOC("peer($self)", "() -> int", "Of a receive that is over: who sent.")},
    {NULL, NULL, 0, NULL}};

static PyMethodDef functions[] = {
    {"comm", world, METH_NOARGS, MPY_DOC("comm($module)", "() -> Comm", "All ranks of the run.")},
    {NULL, NULL, 0, NULL}};

static PyType_Slot comm_slots[] = {{Py_tp_dealloc, comm_dealloc},
                                   {Py_tp_methods, comm_methods},
                                   {Py_tp_doc, (void *)(uintptr_t) "A communicator of libmanta."},
                                   {0, NULL}};
static PyType_Spec comm_spec = {.name = "manta._manta.Comm",
                                .basicsize = sizeof(comm),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = comm_slots};

static PyType_Slot work_slots[] = {
    {Py_tp_dealloc, work_dealloc},
    {Py_tp_methods, work_methods},
    {Py_tp_doc, (void *)(uintptr_t) "An operation that was started."},
    {0, NULL}};
static PyType_Spec work_spec = {.name = "manta._manta.Work",
                                .basicsize = sizeof(work),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = work_slots};

static int add_numbers(PyObject *module)
{
  static const char *const op[] = {"SUM", "MEAN", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR"};
  for (int i = 0; i < (int)(sizeof op / sizeof *op); i++)
    if (PyModule_AddIntConstant(module, op[i], i) < 0)
      return -1;
  return PyModule_AddIntConstant(module, "TAG_MAX", MANTA_TAG_MAX);
}

int mpy_add_comm(PyObject *module)
{
  comm_type = (PyTypeObject *)PyType_FromSpec(&comm_spec);
  work_type = (PyTypeObject *)PyType_FromSpec(&work_spec);
  if (!comm_type || !work_type || PyModule_AddFunctions(module, functions) < 0 ||
      add_numbers(module) < 0)
    return -1;
  if (PyModule_AddObjectRef(module, "Comm", (PyObject *)comm_type) < 0)
    return -1;
  return PyModule_AddObjectRef(module, "Work", (PyObject *)work_type);
}
