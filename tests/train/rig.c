/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <sys/socket.h>

struct board *board;

// Leases and sockets of other tests that run at the same time are not ours.
static void own_runtime_dir(void)
{
  static char dir[] = "/tmp/manta-runtime-XXXXXX";
  if (!mkdtemp(dir))
    abort();
  setenv("XDG_RUNTIME_DIR", dir, 1);
}

void board_open(void)
{
  const char *path = getenv("MANTA_TEST_BOARD");
  char made[64] = "/tmp/manta-board-XXXXXX";
  int fd = path ? open(path, O_RDWR) : mkstemp(made);
  if (fd < 0 || ftruncate(fd, sizeof *board) < 0)
    abort();
  if (!path) {
    setenv("MANTA_TEST_BOARD", made, 1);
    own_runtime_dir();
  }
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (board == MAP_FAILED)
    abort();
}

void board_close(void)
{
  char cmd[300];
  unlink(getenv("MANTA_TEST_BOARD"));
  snprintf(cmd, sizeof cmd, "rm -rf '%s'", getenv("XDG_RUNTIME_DIR"));
  if (system(cmd) != 0)
    abort();
}

static void board_clear(void)
{
  memset(board, 0, sizeof *board);
}

// --- the worker's side --------------------------------------------------------------------------

static void leave_a_daemon(void)
{
  pid_t pid = fork();
  if (pid == 0) {
    setsid();
    pid_t again = fork();
    if (again == 0) {
      execlp("sleep", "sleep", "300", NULL);
      _exit(1);
    }
    board->orphan = again;
    _exit(0);
  }
  waitpid(pid, NULL, 0);
}

static manta_status fire(const char *what, manta_error *err)
{
  board->fired++;
  printf("about to %s\n", what);
  if (!strcmp(what, "kill"))
    raise(SIGKILL);
  if (!strcmp(what, "segv")) {
    if (SANITIZED)
      signal(SIGSEGV, SIG_DFL); // it would catch it
    raise(SIGSEGV);
  }
  if (!strcmp(what, "exit"))
    _exit(3);
  if (!strcmp(what, "stop"))
    raise(SIGSTOP);
  if (!strcmp(what, "hang"))
    for (;;)
      pause();
  if (!strcmp(what, "term"))
    raise(SIGTERM);
  if (!strcmp(what, "daemon"))
    leave_a_daemon();
  for (size_t mb = 0; !strcmp(what, "eat") && mb < 4096; mb++)
    memset(malloc(1u << 20), 1, 1u << 20); // never freed: until the kernel has enough
  for (int fd = 3; !strcmp(what, "drop") && fd < 64; fd++) {
    struct stat sb;
    if (fstat(fd, &sb) == 0 && S_ISSOCK(sb.st_mode))
      shutdown(fd, SHUT_RDWR); // its control connection and its lifeline
  }
  if (!strcmp(what, "error"))
    return manta_error_set(err, MANTA_EUSER, "loss is not a number at row %d", 57);
  return MANTA_OK;
}

static bool fault_due(manta_session *s, int64_t count)
{
  return manta_session_config_int(s, "rank", -1) == manta_session_rank(s) &&
         manta_session_config_int(s, "at", -1) == count &&
         manta_session_attempt(s) < manta_session_config_int(s, "attempts", 1);
}

static void sign_in(manta_session *s)
{
  static int calls;
  int r = manta_session_rank(s);
  board->reused += calls++ > 0;
  if (manta_session_attempt(s) == 0)
    board->born[r] = getpid();
  board->pid[r] = getpid();
  if (manta_session_attempt(s) > board->attempts)
    board->attempts = manta_session_attempt(s);
}

static bool ahead(manta_session *s, int64_t count)
{
  for (int r = 0; r < manta_session_world_size(s); r++)
    if (board->at[r] < count - 3)
      return true;
  return false;
}

// As a collective would do.
static manta_status keep_together(manta_session *s, int64_t count, manta_error *err)
{
  board->at[manta_session_rank(s)] = count;
  while (ahead(s, count) || board->hold) {
    MANTA_TRY(manta_session_check(s, err));
    usleep(100);
  }
  return MANTA_OK;
}

manta_status counting(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t n = manta_session_config_int(s, "n", 100), count = 0;
  int64_t every = manta_session_config_int(s, "every", 10);
  const char *fault = manta_session_config_string(s, "fault", "");
  manta_checkpoint *c;
  if (!board)
    board_open();
  sign_in(s);
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    MANTA_TRY(manta_checkpoint_copy(c, "count", &count, sizeof count, err));
  if (count != manta_session_iteration(s))
    return manta_error_set(err, MANTA_EUSER, "count %lld, iteration %lld", (long long)count,
                           (long long)manta_session_iteration(s));
  manta_checkpoint_close(c);
  board->at[manta_session_rank(s)] = count;
  while (count < n) {
    usleep((useconds_t)manta_session_config_int(s, "pause_us", 200));
    MANTA_TRY(keep_together(s, ++count, err));
    if (fault_due(s, count))
      MANTA_TRY(fire(fault, err));
    board->counts++;
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", count), MANTA_KV_REAL("half", count / 2.0));
    MANTA_TRY(manta_session_report(s, &row, err));
    manta_tensor t = MANTA_VECTOR("count", MANTA_I64, &count, 1);
    manta_state st = {&t, 1, NULL};
    if (every > 0 && count % every == 0)
      MANTA_TRY(manta_session_save(s, &st, err));
  }
  board->at[manta_session_rank(s)] = INT64_MAX;
  return manta_value_set_int(result, count);
}

// --- the driver's side --------------------------------------------------------------------------

static manta_status on_start(void *ctx, const manta_run_info *info, manta_error *err)
{
  struct rig *r = ctx;
  r->starts++;
  assert_true(info->run_dir && info->run_dir[0] == '/');
  return MANTA_OK;
}

// Every iteration comes once and in order, but for rewinds that are announced.
static manta_status on_result(void *ctx, const manta_rows *rows, manta_error *err)
{
  struct rig *r = ctx;
  if (rows->rewound_to >= 0) {
    r->rewinds++;
    r->last = rows->rewound_to;
  }
  assert_int_equal(rows->iteration, r->last + 1);
  r->last = rows->iteration;
  r->rows++;
  r->incomplete += !rows->complete;
  for (int i = 0; i < rows->count; i++) {
    if (rows->rows[i].type == MANTA_NIL)
      continue;
    assert_int_equal(manta_value_as_int(manta_value_get(&rows->rows[i], "count"), rows->iteration),
                     rows->iteration);
    assert_int_equal(manta_value_as_int(manta_value_get(&rows->rows[i], "_training_iteration"), -1),
                     rows->iteration);
  }
  return MANTA_OK;
}

static manta_status on_finish(void *ctx, const manta_error *error, manta_error *err)
{
  struct rig *r = ctx;
  r->finishes++;
  r->finished_with = error ? error->status : MANTA_OK;
  return MANTA_OK;
}

static void on_output(void *ctx, int rank, const char *text, size_t len)
{
  struct rig *r = ctx;
  if (len > sizeof r->output - 1 - r->output_len)
    len = sizeof r->output - 1 - r->output_len;
  memcpy(r->output + r->output_len, text, len);
  r->output_len += len;
  r->output[r->output_len] = 0;
}

static manta_callbacks table;
static manta_trainer *made; // by the test that runs

int rig_teardown(void **state)
{
  manta_trainer_destroy(made); // a test that failed left it behind
  made = NULL;
  return 0;
}

void rig_init(struct rig *r, int workers)
{
  *r = (struct rig){
      .cfg = MANTA_TRAINER_CONFIG_INIT, .rc = MANTA_RUN_CONFIG_INIT, .err = MANTA_ERROR_INIT};
  strcpy(r->dir, "/tmp/manta-test-XXXXXX"); // style: a literal into a larger array
  assert_non_null(mkdtemp(r->dir));
  board_clear();
  table = (manta_callbacks){
      .ctx = r, .start = on_start, .result = on_result, .finish = on_finish, .output = on_output};
  r->cfg.workers = workers;
  r->cfg.logdir = r->dir;
  r->cfg.callbacks = &table;
  r->cfg.callback_count = 1;
  r->cfg.quiet = true;
}

void rig_make(struct rig *r)
{
  assert_ok(manta_trainer_create(&r->t, &r->cfg, &r->err), &r->err);
  made = r->t;
}

manta_status rig_run(struct rig *r, const manta_value *config)
{
  if (!r->t)
    rig_make(r);
  r->rc.config = config;
  return manta_trainer_run(r->t, counting, &r->rc, &r->results, &r->err);
}

pid_t rig_start_driver(const struct rig *r)
{
  pid_t pid = vfork();
  if (pid == 0) {
    execl("/proc/self/exe", "test", "driver", r->dir, (char *)NULL);
    _exit(127);
  }
  return pid;
}

int rig_drive(struct rig *r, char *dir)
{
  r->cfg.logdir = dir;
  r->cfg.callback_count = 0;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 1000000), MANTA_KV_INT("pause_us", 1000),
                            MANTA_KV_INT("every", 5));
  return rig_run(r, &c) == MANTA_OK ? 0 : 1;
}

void rig_destroy(struct rig *r)
{
  manta_trainer_destroy(r->t);
  r->t = made = NULL;
}

void rig_fini(struct rig *r)
{
  char cmd[128];
  rig_destroy(r);
  manta_value_fini(&r->results);
  snprintf(cmd, sizeof cmd, "rm -rf %s 2>/dev/null", r->dir);
  assert_true(within(5, system(cmd) == 0)); // the writer of a killed agent may still be at work
}

// --- processes ----------------------------------------------------------------------------------

bool alive(pid_t pid)
{
  char path[64], line[256] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (pid <= 0 || fd < 0)
    return false;
  ssize_t n = read(fd, line, sizeof line - 1);
  close(fd);
  char *p = n > 0 ? strrchr(line, ')') : NULL;
  return p && p[2] != 'Z' && p[2] != 'X';
}

static bool is_child(pid_t pid, pid_t parent, const char *name)
{
  char path[64], line[512] = "", comm[64] = "";
  int ppid = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  ssize_t n = read(fd, line, sizeof line - 1);
  close(fd);
  char *open_ = strchr(line, '('), *close_ = strrchr(line, ')');
  if (n <= 0 || !open_ || !close_ || sscanf(close_ + 1, " %*c %d", &ppid) != 1)
    return false;
  snprintf(comm, sizeof comm, "%.*s", (int)(close_ - open_ - 1), open_ + 1);
  return ppid == parent && !strcmp(comm, name) && alive(pid);
}

pid_t child_named(pid_t parent, const char *name)
{
  DIR *d = opendir("/proc");
  pid_t found = 0;
  for (struct dirent *e; d && !found && (e = readdir(d));) {
    pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
    if (pid > 0 && is_child(pid, parent, name))
      found = pid;
  }
  if (d)
    closedir(d);
  return found;
}

void assert_renewed(const struct rig *r, int world, int first, int count)
{
  for (int i = 0; i < world; i++) {
    bool lost = i >= first && i < first + count;
    assert_true((board->born[i] == board->pid[i]) == (r->cfg.keep_workers && !lost));
  }
  assert_true((board->reused > 0) == (r->cfg.keep_workers && count < world));
}

bool is_logged(const struct rig *r, const char *text)
{
  char path[600];
  static char log[1u << 20];
  snprintf(path, sizeof path, "%s/run.log", manta_trainer_run_dir(r->t));
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = read(fd, log, sizeof log);
  close(fd);
  return n > 0 && memmem(log, (size_t)n, text, strlen(text));
}

void assert_logged(const struct rig *r, const char *text)
{
  if (!is_logged(r, text))
    fail_msg("run.log does not say \"%s\"", text);
}

void assert_nothing_left(void)
{
  assert_true(within(2, child_named(getpid(), "manta-agent") == 0));
  for (int i = 0; i < 64; i++)
    assert_false(alive((pid_t)board->pid[i]));
}

void memory_cgroup(char *dir, size_t size)
{
  char line[512], file[640];
  if (SANITIZED)
    skip_because("a sanitizer needs more memory than the limit of this test");
  dir[0] = 0;
  FILE *f = fopen("/proc/self/cgroup", "r");
  while (f && fgets(line, sizeof line, f)) {
    char *at = strstr(line, ":memory:");
    if (at)
      snprintf(dir, size, "/sys/fs/cgroup/memory%.*s/manta-test-%d", (int)strcspn(at + 8, "\n"),
               at + 8, (int)getpid());
  }
  if (f)
    fclose(f);
  snprintf(file, sizeof file, "%s/memory.limit_in_bytes", dir);
  int fd = dir[0] && mkdir(dir, 0700) == 0 ? open(file, O_WRONLY) : -1;
  bool limited = fd >= 0 && write(fd, "536870912", 9) == 9;
  if (fd >= 0)
    close(fd);
  if (!limited)
    skip_because("no memory cgroup (v1) can be made here");
}

bool join_cgroup(const char *dir)
{
  char file[640], pid[16];
  snprintf(file, sizeof file, "%s/cgroup.procs", dir);
  int fd = open(file, O_WRONLY), n = snprintf(pid, sizeof pid, "%d", (int)getpid());
  bool joined = fd >= 0 && write(fd, pid, (size_t)n) == n;
  if (fd >= 0)
    close(fd);
  return joined;
}
