/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "sys/proc.h"
#include "sys/sock.h"
#include "sys/thread.h"

#define BATCH_NS    10000000 /* rows are read at most this often */
#define HELLO_S     20.0
#define STACK_BYTES (512u << 10)

struct manta__driver manta__drv = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                   .cond = PTHREAD_COND_INITIALIZER,
                                   .command_fd = -1,
                                   .ring_fd = -1};
#define drv manta__drv

void manta__driver_note_program(int argc, char **argv)
{
  drv.argc = argc;
  drv.argv = argv;
}

void manta__driver_wake(void)
{
  ssize_t n = write(__atomic_load_n(&drv.command_fd, __ATOMIC_ACQUIRE), &(uint64_t){1}, 8);
  (void)n;
}

// --- finding the agent's binary -----------------------------------------------------------------

static char *beside(const char *file, const char *relative)
{
  const char *slash = strrchr(file, '/');
  char *path = slash ? manta__asprintf("%.*s/%s", (int)(slash - file), file, relative) : NULL;
  if (path && access(path, X_OK) == 0)
    return path;
  manta__free(path);
  return NULL;
}

static char *in_path(void)
{
  const char *dirs = getenv("PATH");
  while (dirs && *dirs) {
    size_t n = strcspn(dirs, ":");
    char *path = manta__asprintf("%.*s/manta", (int)n, dirs);
    if (path && n > 0 && access(path, X_OK) == 0)
      return path;
    manta__free(path);
    dirs += n + (dirs[n] == ':');
  }
  return NULL;
}

char *manta__driver_find_command(void)
{
  static const char *const places[] = {"manta", "../bin/manta", "cmd/manta", "../../bin/manta"};
  const char *given = getenv("MANTA_BIN");
  if (given && *given)
    return manta__strdup(given);
  Dl_info info;
  char self[PATH_MAX], lib[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  const char *from[] = {NULL, self};
  if (dladdr((void *)manta__driver_find_command, &info) && info.dli_fname &&
      realpath(info.dli_fname, lib))
    from[0] = lib;
  for (size_t f = 0; f < 2; f++)
    for (size_t i = 0; from[f] && i < sizeof places / sizeof *places; i++) {
      char *path = beside(from[f], places[i]);
      if (path)
        return path;
    }
  return in_path();
}

// --- the agent ----------------------------------------------------------------------------------

static void on_hello(void *ctx, manta_status st, struct manta__msg *reply)
{
  manta_value v = {0};
  drv.agent_spoke |= st == MANTA_OK;
  if (st == MANTA_OK && manta__msg_value(reply, &v, NULL) == MANTA_OK) {
    snprintf(drv.host, sizeof drv.host, "%s",
             manta_value_as_string(manta_value_get(&v, "host"), "localhost"));
    drv.host_cpus = manta_value_as_real(manta_value_get(&v, "cpus"), 0);
    drv.host_gpus = manta_value_as_real(manta_value_get(&v, "gpus"), 0);
  }
  manta_value_fini(&v);
}

// The answer is not waited for: what follows can be sent at once.
static manta_status say_hello(manta_error *err)
{
  struct manta__msg m = {.kind = MANTA__M_HELLO, .fd = {drv.ring_fd}, .fds = 1};
  manta_value v = MANTA_MAP(MANTA_KV_INT("version", MANTA__PROTO_VERSION));
  return manta__rpc_call(&drv.rpc, drv.agent, &m, &v, manta__deadline(HELLO_S), on_hello, NULL,
                         err);
}

static manta_status start_agent(manta_error *err)
{
  int sock[2];
  char *path = manta__driver_find_command();
  if (!path)
    return manta_error_set(err, MANTA_ENOENT,
                           "the command \"manta\" is not found, and manta needs it to run workers\n"
                           "hint: install it, or set MANTA_BIN to its path");
  manta_status st = manta__sock_pair(sock, err);
  if (st < 0) {
    manta__free(path);
    return st;
  }
  size_t n = 0;
  while (environ[n])
    n++;
  char **env = manta__calloc(n + 2, sizeof *env);
  char *argv[] = {(char *)"manta-agent", NULL};
  if (!env)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory to start the agent");
  if (st == MANTA_OK) {
    memcpy(env, environ, n * sizeof *env);
    env[n] = (char *)MANTA__ROLE_ENV "=agent";
    st = manta__proc_spawn(&drv.agent_pid, path, argv, env, &sock[1], 1, -1, err);
  }
  manta__free(env);
  manta__free(path);
  close(sock[1]);
  if (st == MANTA_OK)
    st = manta__conn_create(&drv.agent, sock[0], err);
  if (st < 0) {
    close(sock[0]);
    return st;
  }
  drv.program_sent = 0;
  drv.agent_spoke = false;
  drv.refusal = (manta_error)MANTA_ERROR_INIT;
  manta_status said = say_hello(err);
  return said == MANTA_ECLOSED ? MANTA_OK : said; // gone already: that is noticed as any loss
}

// As waitpid gives it, or -1. It is gone, or about to be: its socket has closed.
static int reap_agent(void)
{
  int status = -1;
  if (drv.agent_pid > 0 && waitpid(drv.agent_pid, &status, 0) != drv.agent_pid)
    status = -1; // the program reaps all its children
  drv.agent_pid = 0;
  return status;
}

static void on_refused(struct manta__msg *m)
{
  manta_value v = {0};
  if (manta__msg_value(m, &v, NULL) < 0)
    return;
  manta_error_set(&drv.refusal,
                  (manta_status)manta_value_as_int(manta_value_get(&v, "status"), MANTA_EAGENT),
                  "%s", manta_value_as_string(manta_value_get(&v, "message"), ""));
  manta_value_fini(&v);
}

// One that ended without a word will not speak the next time either: no loss, but an error.
static void agent_lost(void)
{
  manta_error why = drv.refusal;
  char how[64] = "its end is not known";
  int pid = (int)drv.agent_pid, status = reap_agent();
  if (status >= 0)
    manta__proc_explain(status, how, sizeof how);
  if (why.status == MANTA_OK)
    manta_error_set(&why, MANTA_EAGENT, "the agent (pid %d) %s: %s%s", pid,
                    drv.agent_spoke ? "died" : "did not start", how,
                    drv.agent_spoke ? "" : "\nhint: does MANTA_BIN name the command manta?");
  bool final = !drv.agent_spoke && !(status >= 0 && WIFSIGNALED(status));
  manta__conn_destroy(drv.agent);
  drv.agent = NULL;
  manta__rpc_abandon(&drv.rpc, MANTA_ECLOSED);
  for (manta_trainer *t = drv.trainers; t; t = t->next)
    manta__run_agent_lost(t, &why, final);
}

manta_status manta__driver_send(const struct manta__msg *m, const manta_value *v, manta_error *err)
{
  if (!drv.agent)
    return manta_error_set(err, MANTA_EAGENT, "there is no agent");
  manta_status st =
      v ? manta__conn_send_value(drv.agent, m, v, err) : manta__conn_send(drv.agent, m, err);
  if (manta__conn_pending(drv.agent))
    manta__driver_wake();                     // the thread polls for writing
  return st == MANTA_ECLOSED ? MANTA_OK : st; // its loss is noticed by the thread, once
}

// --- the program --------------------------------------------------------------------------------

static bool is_load_time(const char *var)
{
  static const char *const prefix[] = {"OMP_",  "LD_",       "ONEDNN_", "DNNL_",   "MKL_",
                                       "GOMP_", "OPENBLAS_", "KMP_",    "MALLOC_", "GLIBC_",
                                       "ASAN_", "TSAN_",     "UBSAN_",  "LSAN_",   "NVIDIA_"};
  for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
    if (!strncmp(var, prefix[i], strlen(prefix[i])))
      return true;
  return false;
}

static uint64_t program_key(const struct manta__exe *exe, int threads)
{
  uint64_t h = manta__hash_seed(exe, offsetof(struct manta__exe, path), (uint64_t)threads);
  for (char **e = environ; *e; e++)
    if (is_load_time(*e))
      h ^= manta__hash(*e, strlen(*e)); // whatever the order
  return (h >> 1) | 1;
}

manta_status manta__strings_to_value(manta_value *out, char **list, size_t n)
{
  MANTA_TRY(manta_value_set_list(out));
  for (size_t i = 0; i < n; i++) {
    manta_value s = {0};
    MANTA_TRY(manta_value_set_string(&s, list[i]));
    MANTA_TRY(manta_value_append(out, &s));
  }
  return MANTA_OK;
}

// An explicit number of threads beats the environment's.
static manta_status environment_to_list(manta_value *out, bool drop_threads)
{
  MANTA_TRY(manta_value_set_list(out));
  for (char **e = environ; *e; e++) {
    manta_value s = {0};
    if (drop_threads && !strncmp(*e, "OMP_NUM_THREADS=", 16))
      continue;
    MANTA_TRY(manta_value_set_string(&s, *e));
    MANTA_TRY(manta_value_append(out, &s));
  }
  return MANTA_OK;
}

static manta_status describe_program(manta_value *v, uint64_t key, const struct manta__exe *exe,
                                     int threads)
{
  manta_value argv = {0}, env = {0}, omp = {0};
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta__strings_to_value(&argv, drv.argv, (size_t)drv.argc));
  MANTA_TRY(environment_to_list(&env, threads > 0));
  if (threads > 0) {
    char text[48];
    snprintf(text, sizeof text, "OMP_NUM_THREADS=%d", threads);
    MANTA_TRY(manta_value_set_string(&omp, text));
    MANTA_TRY(manta_value_append(&env, &omp));
  }
  MANTA_TRY(manta_value_put(v, "argv", &argv));
  MANTA_TRY(manta_value_put(v, "env", &env));
  MANTA_TRY(manta_value_put_int(v, "key", (int64_t)key));
  MANTA_TRY(manta_value_put_string(v, "path", exe->path));
  MANTA_TRY(manta_value_put_int(v, "dev", (int64_t)exe->dev));
  MANTA_TRY(manta_value_put_int(v, "ino", (int64_t)exe->ino));
  MANTA_TRY(manta_value_put_int(v, "size", (int64_t)exe->size));
  return manta_value_put_int(v, "mtime_ns", exe->mtime_ns);
}

manta_status manta__driver_program(uint64_t *key_out, int threads, manta_error *err)
{
  struct manta__exe exe;
  manta_value v = {0};
  if (!drv.argv)
    return manta_error_set(err, MANTA_ESTATE,
                           "manta_init was not called: it must be the first statement of main");
  MANTA_TRY(manta__exe_self(&exe, err));
  uint64_t key = program_key(&exe, threads);
  *key_out = key;
  if (drv.program_sent == key)
    return MANTA_OK;
  int cwd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct manta__msg m = {.kind = MANTA__M_PROGRAM, .fd = {cwd}, .fds = cwd >= 0};
  manta_status st = describe_program(&v, key, &exe, threads);
  if (st < 0)
    manta_error_set(err, st, "no memory to describe the program");
  else if ((st = manta__driver_send(&m, &v, err)) == MANTA_OK)
    drv.program_sent = key;
  manta__fd_close(&cwd);
  manta_value_fini(&v);
  return st;
}

// --- the thread ---------------------------------------------------------------------------------

static void read_agent(void)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int rc = 0;
  while (drv.agent && (rc = manta__conn_recv(drv.agent, &m, &err)) == 1) {
    if (m.kind == MANTA__M_REFUSED) {
      on_refused(&m);
    } else if (!manta__rpc_take(&drv.rpc, &m)) {
      manta_trainer *t = drv.trainers;
      while (t && t->group != m.group)
        t = t->next;
      if (t)
        manta__run_on_msg(t, &m);
    }
    manta__msg_close(&m);
  }
  if (drv.agent && rc < 0)
    agent_lost();
}

static int drain_rows(int64_t now)
{
  int rows = 0;
  bool held = false;
  for (manta_trainer *t = drv.trainers; t; t = t->next) {
    rows += manta__rows_drain(t);
    held |= t->run && t->run->held_ns > 0;
  }
  if (rows > 0 || held)
    drv.drained_ns = now;
  drv.rows_flowing = rows > 0 || held;
  return rows;
}

static int64_t step_all(int64_t now)
{
  int64_t next = manta__rpc_expire(&drv.rpc, now);
  for (manta_trainer *t = drv.trainers; t; t = t->next) {
    int64_t at = manta__run_step(t, now);
    next = at < next ? at : next;
  }
  return next;
}

// While rows keep coming they are read every 10 ms; else their producers wake us.
static bool arm_rings(void)
{
  bool quiet = true;
  for (manta_trainer *t = drv.trainers; t; t = t->next)
    for (struct manta__peer *p = t->peers; p; p = p->next)
      if (p->ring.h && !p->damaged && manta__rows_reading(t))
        quiet &= manta__ring_sleep(&p->ring);
  return quiet;
}

static void wait_for_events(int64_t until)
{
  bool batching = drv.rows_flowing;
  if (batching) {
    int64_t batch = drv.drained_ns + BATCH_NS;
    until = batch < until ? batch : until;
  } else if (!arm_rings()) {
    until = 0;
  }
  struct pollfd p[3] = {{.fd = drv.command_fd, .events = POLLIN},
                        {.fd = batching ? -1 : drv.ring_fd, .events = POLLIN},
                        {.fd = drv.agent ? manta__conn_fd(drv.agent) : -1, .events = POLLIN}};
  if (drv.agent && manta__conn_pending(drv.agent))
    p[2].events |= POLLOUT;
  pthread_mutex_unlock(&drv.lock);
  poll(p, 3, manta__left_ms(until));
  uint64_t n;
  ssize_t rd = p[0].revents ? read(drv.command_fd, &n, 8) : 0;
  rd = p[1].revents ? read(drv.ring_fd, &n, 8) : rd;
  (void)rd;
  pthread_mutex_lock(&drv.lock);
  if (drv.agent && (p[2].revents & POLLOUT))
    manta__conn_flush(drv.agent, NULL);
}

static void *io_thread(void *arg)
{
  prctl(PR_SET_NAME, "manta-io");
  pthread_mutex_lock(&drv.lock);
  while (!drv.quit) {
    int64_t now = manta__now();
    read_agent();
    drain_rows(now);
    int64_t next = step_all(now);
    pthread_cond_broadcast(&drv.cond);
    wait_for_events(next);
  }
  pthread_mutex_unlock(&drv.lock);
  return NULL;
}

static manta_status start_thread(manta_error *err)
{
  __atomic_store_n(&drv.command_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), __ATOMIC_RELEASE);
  drv.ring_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (drv.command_fd < 0 || drv.ring_fd < 0)
    return manta_error_set(err, MANTA_EIO, "eventfd: %m");
  drv.quit = false;
  errno = manta__thread_start(&drv.thread, "manta-io", STACK_BYTES, io_thread, NULL);
  if (errno)
    return manta_error_set(err, MANTA_EIO, "cannot start a thread: %m");
  drv.running = true;
  return MANTA_OK;
}

// A child that the user forks shares our sockets: it must neither speak nor keep them open.
static void forget_in_child(void)
{
  if (!drv.running)
    return;
  drv.dead = true;
  drv.running = false;
  if (drv.agent) {
    int fd = manta__conn_fd(drv.agent);
    manta__fd_close(&fd);
  }
  manta__fd_close(&drv.command_fd);
  manta__fd_close(&drv.ring_fd);
}

// Non-negative as an int64, which is how logs keep it.
manta_status manta__driver_session(manta_error *err)
{
  while (drv.session == 0) {
    if (getrandom(&drv.session, sizeof drv.session, 0) != sizeof drv.session)
      return manta_error_set(err, MANTA_EIO, "getrandom: %m");
    drv.session >>= 1;
  }
  return MANTA_OK;
}

manta_status manta__driver_up(manta_error *err)
{
  static bool hooked;
  if (drv.dead)
    return manta_error_set(err, MANTA_ESTATE,
                           "manta cannot be used in a forked child of its driver");
  if (!hooked) {
    pthread_condattr_t at;
    pthread_condattr_init(&at);
    pthread_condattr_setclock(&at, CLOCK_MONOTONIC);
    pthread_cond_init(&drv.cond, &at);
    pthread_atfork(NULL, NULL, forget_in_child);
    hooked = true;
  }
  MANTA_TRY(manta__driver_session(err));
  if (!drv.running)
    MANTA_TRY(start_thread(err));
  if (!drv.agent) {
    MANTA_TRY(start_agent(err));
    manta__driver_wake();
  }
  return MANTA_OK;
}

void manta__driver_down(void)
{
  if (!drv.running || drv.trainers)
    return;
  drv.quit = true;
  manta__driver_wake();
  pthread_mutex_unlock(&drv.lock);
  pthread_join(drv.thread, NULL);
  pthread_mutex_lock(&drv.lock);
  drv.running = false;
  manta__rpc_abandon(&drv.rpc, MANTA_ECANCELED);
  manta__conn_destroy(drv.agent); // its end of file tells the agent to leave
  drv.agent = NULL;
  reap_agent();
  manta__fd_close(&drv.command_fd);
  manta__fd_close(&drv.ring_fd);
}
