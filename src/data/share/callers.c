/* SPDX-License-Identifier: Apache-2.0
 *
 * data/share/callers.c - the reader's side: the callers, and calls that outlive their deaths.
 */
#include "data/share/callers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "data/share/image.h"
#include "data/share/share.h"
#include "sys/host.h"
#include "sys/lifeline.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define CALLERS_MAX 64
#define LOADED_MAX  48   /* functions of a caller: then another one takes its place */
#define LOOK_S      0.05 /* how often a wait looks whether anybody waits for it */
#define START_S     300  /* for a caller to begin: what forks it may be importing a framework */
#define OUTPUT_MAX  ((size_t)16 << 10)
#define LOST_ROOM   64 /* for the word that some was left out */
#define RAISED_MAX  8

/* A function of a plan. */
struct called {
  uint64_t number;
  char *name;
  int code; /* memfd of the packed map */
};

struct caller_proc {
  int sock, lifeline, output; /* sock -1: there is none */
  pid_t pid;
  bool busy;
  uint64_t loaded[LOADED_MAX];
  int count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
static struct caller_proc procs[CALLERS_MAX];
static int limit; // of processes; 0: not set up
static manta__caller_start starter;
static void *starter_ctx;
static uint64_t numbers;
static char output[OUTPUT_MAX];          // that no worker has got yet
static size_t output_bytes, output_lost; // lost: that there was no room for
static struct {
  uint64_t hash; /* of the message */
  int fd;        /* -1: none */
} raised[RAISED_MAX];
static int raised_next;

// --- output -------------------------------------------------------------------------------------

static void keep_output(struct caller_proc *p)
{
  struct stat sb;
  if (fstat(p->output, &sb) < 0 || sb.st_size == 0)
    return;
  pthread_mutex_lock(&lock);
  size_t room = sizeof output - output_bytes, n = (size_t)sb.st_size;
  ssize_t got = pread(p->output, output + output_bytes, n < room ? n : room, 0);
  output_bytes += got > 0 ? (size_t)got : 0;
  output_lost += n - (got > 0 ? (size_t)got : 0);
  pthread_mutex_unlock(&lock);
  int rc = ftruncate(p->output, 0);
  (void)rc; // then it comes twice
}

void manta__callers_take_output(char *to, size_t size)
{
  pthread_mutex_lock(&lock);
  size_t n = output_bytes < size - 1 ? output_bytes : size - 1;
  memcpy(to, output, n);
  memmove(output, output + n, output_bytes - n);
  output_bytes -= n;
  if (output_lost && output_bytes == 0 && size - n > LOST_ROOM) {
    n += (size_t)snprintf(to + n, size - n, "\n(%zu bytes of output left out)\n", output_lost);
    output_lost = 0;
  }
  pthread_mutex_unlock(&lock);
  to[n] = 0;
  for (char *zero = to; (zero = memchr(zero, 0, (size_t)(to + n - zero)));)
    *zero = '?';
}

// --- failures -----------------------------------------------------------------------------------

static void keep_raised(const char *message, const void *p, size_t bytes)
{
  int fd;
  if (manta__shm_of("manta-raised", p, bytes, &fd, NULL) < 0)
    return; // the message is there still
  pthread_mutex_lock(&lock);
  manta__fd_close(&raised[raised_next].fd);
  raised[raised_next].hash = manta__hash(message, strlen(message));
  raised[raised_next].fd = fd;
  raised_next = (raised_next + 1) % RAISED_MAX;
  pthread_mutex_unlock(&lock);
}

int manta__callers_take_raised(const char *message)
{
  uint64_t hash = manta__hash(message, strlen(message));
  int fd = -1;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < RAISED_MAX && limit && fd < 0; i++)
    if (raised[i].fd >= 0 && raised[i].hash == hash)
      fd = dup(raised[i].fd); // every worker of the host gets it
  pthread_mutex_unlock(&lock);
  return fd;
}

// --- processes ----------------------------------------------------------------------------------

static void end_proc(struct caller_proc *p)
{
  if (p->output >= 0)
    keep_output(p);
  manta__fd_close(&p->lifeline); // kills it
  manta__fd_close(&p->sock);
  manta__fd_close(&p->output);
  p->count = 0;
}

static manta_status make_ends(struct caller_proc *p, int theirs[MANTA__C_FDS], manta_error *err)
{
  int end[2], life[2];
  MANTA_TRY(manta__sock_packets(end, err));
  p->sock = end[0];
  theirs[MANTA__C_CONN] = end[1];
  MANTA_TRY(manta__lifeline_create(life, err));
  p->lifeline = life[0];
  theirs[MANTA__C_LIFELINE] = life[1];
  p->output = manta__shm_log("manta-output");
  if (p->output < 0 || (theirs[MANTA__C_OUTPUT] = dup(p->output)) < 0)
    return manta_error_set(err, MANTA_EIO, "memfd for the output of a function: %m");
  return MANTA_OK;
}

static manta_status start_proc(struct caller_proc *p, manta_error *err)
{
  int theirs[MANTA__C_FDS] = {-1, -1, -1};
  manta_status st = make_ends(p, theirs, err);
  if (st == MANTA_OK)
    st = starter(starter_ctx, theirs, err);
  manta__fd_close_all(theirs, MANTA__C_FDS);
  if (st < 0)
    end_proc(p);
  return st;
}

// One that has the function, else one that has not, else a place for another; NULL: all are busy.
static struct caller_proc *choose(uint64_t function)
{
  struct caller_proc *idle = NULL, *empty = NULL;
  for (int i = 0; i < limit; i++) {
    struct caller_proc *p = &procs[i];
    if (p->busy)
      continue;
    for (int k = 0; p->sock >= 0 && k < p->count; k++)
      if (p->loaded[k] == function)
        return p;
    if (p->sock >= 0)
      idle = p;
    else if (!empty)
      empty = p;
  }
  return idle ? idle : empty;
}

static struct caller_proc *take_proc(uint64_t function)
{
  struct caller_proc *p;
  pthread_mutex_lock(&lock);
  while (!(p = choose(function)))
    pthread_cond_wait(&freed, &lock);
  p->busy = true;
  pthread_mutex_unlock(&lock);
  return p;
}

static void give_proc_back(struct caller_proc *p)
{
  pthread_mutex_lock(&lock);
  p->busy = false;
  pthread_cond_signal(&freed);
  pthread_mutex_unlock(&lock);
}

// --- what came back -----------------------------------------------------------------------------

static size_t align(size_t n)
{
  return (n + 63) / 64 * 64;
}

static manta_status malformed(manta_error *err)
{
  return manta_error_set(err, MANTA_EPROTO, "what a function gave makes no sense");
}

static manta_status take_batch(const struct manta__caller_said *m, const manta_value *head,
                               struct manta__memory *own, manta_applied *out, manta_error *err)
{
  struct manta__schema *schema;
  MANTA_TRY(manta__plan_get_schema(head, &schema, err));
  manta_status st = manta__image_view(&out->batch, schema, own->data, (size_t)m->image, own, err);
  manta__schema_unref(schema);
  return st;
}

static manta_status take_parts(const struct called *f, const struct manta__caller_said *m,
                               const char *base, manta_applied *out, manta_error *err)
{
  manta_value head = {0};
  manta_status st = manta_value_unpack(&head, base, (size_t)m->head, err);
  const manta_value *detail = manta_value_get(&head, "detail");
  if (st == MANTA_OK && m->status < 0 && detail && detail->type == MANTA_BYTES)
    keep_raised(m->message, detail->u.s, detail->count);
  if (st == MANTA_OK && m->status >= 0 && m->batch) {
    struct manta__memory *own = manta__memory_create(NULL, (size_t)m->image);
    if (own)
      memcpy(own->data, base + align((size_t)m->head), (size_t)m->image);
    st = own ? take_batch(m, &head, own, out, err)
             : manta_error_set(err, MANTA_ENOMEM, "no memory for what %s gave", f->name);
    manta__memory_unref(own);
  }
  if (st == MANTA_OK && m->status >= 0 && m->count >= 0)
    st = manta_applied_rows(
        out,
        (const uint32_t *)(const void *)(base + align((size_t)m->head) + align((size_t)m->image)),
        m->count, err);
  manta_value_fini(&head);
  return st;
}

static bool fits(const struct manta__caller_said *m, size_t bytes)
{
  return m->head <= bytes && m->image <= bytes && m->count <= MANTA__ROWS_MAX &&
         align((size_t)m->head) + align((size_t)m->image) <= bytes &&
         (m->count < 0 ? 0 : (size_t)m->count * sizeof(uint32_t)) <=
             bytes - align((size_t)m->head) - align((size_t)m->image);
}

static manta_status take_answer(const struct called *f, const struct manta__caller_said *m, int fd,
                                manta_applied *out, manta_error *err)
{
  manta_status st = MANTA_OK;
  void *p;
  size_t bytes;
  if (fd >= 0) {
    MANTA_TRY(manta__shm_map(fd, &p, &bytes, err));
    st = fits(m, bytes) ? take_parts(f, m, p, out, err) : malformed(err);
    manta__shm_unmap(p, bytes);
  } else if (m->status >= 0)
    return malformed(err);
  if (m->status < 0)
    return manta_error_set(err, (manta_status)m->status, "%s", m->message);
  return st;
}

// --- a call -------------------------------------------------------------------------------------

// 1: *m; 0: the caller is gone; MANTA_ESTATE: nobody waits for it any more.
static manta_status hear(struct caller_proc *p, uint64_t served, void *m, size_t size, int *fd,
                         int64_t by, manta_error *err)
{
  int rc, count;
  *fd = -1;
  while ((rc = manta__fd_wait(p->sock, false, manta__deadline(LOOK_S))) == 0) {
    if (!manta__giver_waits(served))
      return manta_error_set(err, MANTA_ESTATE, "nobody waits for a function any more");
    if (manta__now() > by)
      return MANTA_OK;
  }
  ssize_t n = rc < 0 ? -1 : manta__sock_recv(p->sock, m, size, fd, 1, &count);
  return (manta_status)(n == (ssize_t)size);
}

// As hear: 1 when it is there.
static manta_status have_proc(struct caller_proc *p, uint64_t served, manta_error *err)
{
  struct manta__caller_hello hello = {0};
  int fd;
  bool died = p->sock >= 0 && manta__fd_wait(p->sock, false, 0) != 0; // it speaks when it is asked
  if (p->sock >= 0 && p->count < LOADED_MAX && !died)
    return (manta_status)1;
  end_proc(p);
  MANTA_TRY(start_proc(p, err));
  manta_status st = hear(p, served, &hello, sizeof hello, &fd, manta__deadline(START_S), err);
  manta__fd_close(&fd);
  p->pid = (pid_t)hello.pid;
  return st == 1 && hello.magic != MANTA__CALLER_MAGIC ? malformed(err) : st;
}

static bool send_call(struct caller_proc *p, const struct called *f, int image,
                      const struct manta__caller_ask *ask)
{
  int fds[] = {image, f->code}, k = 0;
  while (k < p->count && p->loaded[k] != f->number)
    k++;
  if (manta__sock_send(p->sock, ask, sizeof *ask, fds, k == p->count ? 2 : 1) !=
      (ssize_t)sizeof *ask)
    return false;
  if (k == p->count)
    p->loaded[p->count++] = f->number;
  return true;
}

// As hear: 1 when the function was called, however that ended.
static manta_status try_call(struct caller_proc *p, const struct called *f, int image,
                             const struct manta__caller_ask *ask, uint64_t served,
                             manta_applied *out, manta_status *how, manta_error *err)
{
  struct manta__caller_said m;
  int fd;
  manta_status st = have_proc(p, served, err);
  if (st != 1 || !send_call(p, f, image, ask))
    return st < 0 ? st : MANTA_OK;
  if ((st = hear(p, served, &m, sizeof m, &fd, MANTA__NEVER, err)) != 1)
    return st;
  m.message[sizeof m.message - 1] = 0;
  keep_output(p);
  *how = take_answer(f, &m, fd, out, err);
  manta__fd_close(&fd);
  if (*how < 0 && m.status >= 0)
    manta__applied_fini(out);
  return (manta_status)1;
}

static manta_status died(const struct called *f, const struct manta__apply_place *at, pid_t pid,
                         manta_error *err)
{
  return manta_error_set(err, MANTA_EWORKER,
                         "%s: the process that calls it died %d times over rows %" PRId64
                         " to %" PRId64 " of %s%sblock %" PRId64 " (the last was process %d)\n"
                         "hint: what it printed is in the output of the workers; if it was killed "
                         "for memory, let it have fewer rows a call (batch_size)",
                         f->name, MANTA__CALLERS_DEATHS, at->first, at->last,
                         at->file ? at->file : "", at->file ? ", " : "", at->block, (int)pid);
}

static manta_status call_until(const struct called *f, const struct manta__apply_place *at,
                               int image, const struct manta__caller_ask *ask, manta_applied *out,
                               manta_error *err)
{
  uint64_t served = manta__giver_served();
  manta_status st = MANTA_OK, how = MANTA_OK;
  for (int deaths = 0; st == MANTA_OK; deaths++) {
    if (deaths == MANTA__CALLERS_DEATHS)
      return how;
    struct caller_proc *p = take_proc(f->number);
    st = try_call(p, f, image, ask, served, out, &how, err);
    if (st != 1)
      end_proc(p);
    if (st == MANTA_OK)
      how = died(f, at, p->pid, err);
    give_proc_back(p);
  }
  return st < 0 ? st : how;
}

static manta_status call_function(void *function, const struct manta__apply_place *at,
                                  const manta_batch *in, manta_applied *out, manta_error *err)
{
  const struct called *f = function;
  struct manta__caller_ask ask = {f->number, manta__image_bytes(in), at->seed};
  void *p;
  size_t bytes;
  int image;
  MANTA_TRY(manta__image_create("manta-rows", (size_t)ask.bytes, &image, &p, &bytes, err));
  manta__image_write(p, in);
  manta__shm_unmap(p, bytes);
  manta_status st = call_until(f, at, image, &ask, out, err);
  close(image);
  return st;
}

// --- functions ----------------------------------------------------------------------------------

static void close_function(void *function)
{
  struct called *f = function;
  manta__fd_close(&f->code);
  manta__free(f->name);
  manta__free(f);
}

static manta_status pack_function(struct called *f, const void *code, size_t bytes,
                                  const struct manta__schema *seen, manta_error *err)
{
  manta_value map = {0};
  void *packed = NULL;
  size_t n = 0;
  manta_status st = manta_value_set_map(&map);
  if (st == MANTA_OK)
    st = manta__plan_put_bytes(&map, "code", code, bytes);
  if (st == MANTA_OK)
    st = manta__plan_put_schema(&map, seen);
  if (st == MANTA_OK)
    st = manta__home_put(&map);
  if (st == MANTA_OK)
    st = manta_value_pack(&map, &packed, &n, err);
  if (st == MANTA_OK)
    st = manta__shm_of("manta-function", packed, n, &f->code, err);
  manta_free(packed);
  manta_value_fini(&map);
  return st;
}

static manta_status open_function(void **function, const char *name, const void *code, size_t bytes,
                                  struct manta__schema *seen, manta_error *err)
{
  struct called *f = manta__calloc(1, sizeof *f);
  if (!f || !(f->name = manta__strdup(name))) {
    manta__free(f);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a function");
  }
  f->code = -1;
  pthread_mutex_lock(&lock);
  f->number = ++numbers;
  pthread_mutex_unlock(&lock);
  manta_status st = pack_function(f, code, bytes, seen, err);
  if (st < 0) {
    close_function(f);
    return st;
  }
  *function = f;
  return MANTA_OK;
}

// --- life ---------------------------------------------------------------------------------------

static const struct manta__apply_host host = {open_function, call_function, close_function};

static int count_cpus(void)
{
  struct manta__host h;
  int n = 1;
  if (manta__host_read(&h, "", NULL) == MANTA_OK) {
    n = (int)h.cpus;
    manta__host_fini(&h);
  }
  return n < 1 ? 1 : n > CALLERS_MAX ? CALLERS_MAX : n;
}

void manta__callers_set_up(manta__caller_start start, void *ctx)
{
  starter = start;
  starter_ctx = ctx;
  limit = count_cpus();
  for (int i = 0; i < CALLERS_MAX; i++)
    procs[i] = (struct caller_proc){.sock = -1, .lifeline = -1, .output = -1};
  for (int i = 0; i < RAISED_MAX; i++)
    raised[i].fd = -1;
  manta__apply_set_host(&host);
}

void manta__callers_end(void)
{
  for (int i = 0; i < limit; i++)
    if (!procs[i].busy)
      end_proc(&procs[i]);
  for (int i = 0; i < RAISED_MAX; i++)
    manta__fd_close(&raised[i].fd);
  manta__apply_set_host(NULL);
}
