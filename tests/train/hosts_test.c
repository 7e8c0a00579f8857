/* SPDX-License-Identifier: Apache-2.0
 *
 * A run on several hosts. Here a host is a command on this machine: `manta agent --stdio`, which
 * goes the whole way (bridge, stream, far agent, workers) but for a network.
 */
#include "rig.h"
#include "sys/proc.h"
#include "train/session.h"

#define SOON 20.0

static char command[2][600];
static manta_host two[2];

// Both hosts are reached by a command, 2 workers each; or the first is this one.
static void rig_hosts(struct rig *r, int workers, bool here)
{
  rig_init(r, workers);
  for (int i = 0; i < 2; i++) {
    snprintf(command[i], sizeof command[i], "exec %s agent --stdio", getenv("MANTA_BIN"));
    two[i] = (manta_host){.name = i ? "b" : "a", .command = command[i], .slots = 2};
  }
  if (here)
    two[0].command = NULL;
  r->cfg.hosts = two;
  r->cfg.host_count = 2;
}

static void assert_all(const struct rig *r, int workers, int64_t n)
{
  assert_int_equal(r->results.count, workers);
  for (int i = 0; i < workers; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r->results, (size_t)i), -1), n);
  assert_int_equal(r->last, n);
}

static void ranks_on_two_hosts_report_and_save(void **state)
{
  for (int here = 0; here < 2; here++) {
    struct rig r;
    rig_hosts(&r, 4, here);
    manta_value c = MANTA_MAP(MANTA_KV_INT("n", 50));
    assert_ok(rig_run(&r, &c), &r.err);
    assert_all(&r, 4, 50);
    assert_int_equal(r.rows, 50);
    assert_int_equal(r.incomplete, 0);
    manta_checkpoint *k;
    assert_ok(manta_trainer_checkpoint(r.t, &k, &r.err), &r.err);
    assert_non_null(k);
    assert_int_equal(manta_checkpoint_iteration(k), 50);
    manta_checkpoint_close(k);
    rig_fini(&r);
    assert_nothing_left();
  }
}

// --- places -------------------------------------------------------------------------------------

static manta_status telling(manta_session *s, manta_value *result, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  manta_value list = {0};
  MANTA_TRY(manta_value_set_map(result));
  MANTA_TRY(manta_value_put_int(result, "rank", manta_session_rank(s)));
  MANTA_TRY(manta_value_put_int(result, "world", manta_session_world_size(s)));
  MANTA_TRY(manta_value_put_int(result, "local", manta_session_local_rank(s)));
  MANTA_TRY(manta_value_put_int(result, "locals", manta_session_local_world_size(s)));
  MANTA_TRY(manta_value_put_int(result, "node", manta_session_node_rank(s)));
  MANTA_TRY(manta_value_set_list(&list));
  for (int r = 0; r < job->world; r++) {
    manta_value name = manta_value_borrow_string(job->host_name[job->host_of[r]]);
    MANTA_TRY(manta_value_append(&list, &name));
  }
  MANTA_TRY(manta_value_put(result, "hosts", &list));
  MANTA_TRY(manta_value_set_list(&list));
  for (int i = 0; i < job->hosts; i++) {
    manta_value address = manta_value_borrow_string(job->host_addr[i]);
    MANTA_TRY(manta_value_append(&list, &address));
  }
  return manta_value_put(result, "addresses", &list);
}

static int64_t number(const manta_value *v, const char *key)
{
  return manta_value_as_int(manta_value_get(v, key), -1);
}

// Each line of the table names the host of its worker: how many are on a?
static void assert_printed(manta_trainer *t, int on_a)
{
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  assert_ok(manta_trainer_print(t, f), &(manta_error){0});
  fclose(f);
  int a = 0, b = 0;
  for (char *at = text; *at; at++) {
    a += !strncmp(at, " a ", 3);
    b += !strncmp(at, " b ", 3);
  }
  if (a != on_a || b != 4 - on_a)
    fail_msg("%s", text);
  free(text);
}

static void ranks_are_given_out_host_by_host(void **state)
{
  static const int slots[][2] = {{2, 2}, {1, 3}, {3, 1}, {4, 0}};
  for (size_t k = 0; k < sizeof slots / sizeof *slots; k++) {
    struct rig r;
    rig_hosts(&r, 4, k == 1);
    two[0].slots = slots[k][0];
    two[1].slots = slots[k][1];
    rig_make(&r);
    assert_ok(manta_trainer_execute(r.t, telling, NULL, &r.results, &r.err), &r.err);
    assert_int_equal(r.results.count, 4);
    assert_printed(r.t, slots[k][0]);
    for (int i = 0; i < 4; i++) {
      const manta_value *v = manta_value_at(&r.results, (size_t)i);
      int first = slots[k][0], node = i >= first;
      assert_int_equal(number(v, "rank"), i);
      assert_int_equal(number(v, "world"), 4);
      assert_int_equal(number(v, "node"), node);
      assert_int_equal(number(v, "local"), node ? i - first : i);
      assert_int_equal(number(v, "locals"), node ? 4 - first : first);
      for (int q = 0; q < 4; q++)
        assert_string_equal(
            manta_value_as_string(manta_value_at(manta_value_get(v, "hosts"), (size_t)q), "?"),
            q >= first ? "b" : "a");
    }
    rig_fini(&r);
  }
}

// --- losses -------------------------------------------------------------------------------------

static void a_killed_worker_is_revived(void **state)
{
  for (int rank = 0; rank < 4; rank++) {
    struct rig r;
    rig_hosts(&r, 4, rank % 2);
    r.cfg.keep_workers = rank / 2;
    manta_value c = MANTA_MAP(MANTA_KV_INT("n", 60), MANTA_KV_STR("fault", "kill"),
                              MANTA_KV_INT("rank", rank), MANTA_KV_INT("at", 37));
    assert_ok(rig_run(&r, &c), &r.err);
    assert_int_equal(board->fired, 1);
    assert_int_equal(board->attempts, 1);
    assert_int_equal(r.rewinds, 1);
    assert_all(&r, 4, 60);
    assert_renewed(&r, 4, rank, 1);
    rig_fini(&r);
    assert_nothing_left();
  }
}

// Whoever is left on the other host reads who was lost, where and how.
static manta_status witness(manta_session *s, manta_value *result, manta_error *err)
{
  board_open();
  int rank = manta_session_rank(s);
  board->pid[rank] = getpid();
  if (manta_session_attempt(s) > 0)
    return MANTA_OK;
  if (rank == manta_session_config_int(s, "rank", -1)) {
    while (board->counts < 3)
      usleep(200);
    board->fired++;
    raise(SIGKILL);
  }
  board->counts++;
  int64_t by = manta__deadline(SOON);
  manta_status st;
  while ((st = manta_session_check(s, err)) == MANTA_OK && manta__now() < by)
    usleep(100);
  printf("%s: %s\n", manta_status_name(st), err->message);
  return st;
}

static void what_survivors_read_names_rank_and_host(void **state)
{
  for (int rank = 0; rank < 4; rank += 3) {
    struct rig r;
    char want[64];
    rig_hosts(&r, 4, false);
    r.cfg.show_all_output = true;
    rig_make(&r);
    manta_value c = MANTA_MAP(MANTA_KV_INT("rank", rank));
    r.rc.config = &c;
    assert_ok(manta_trainer_run(r.t, witness, &r.rc, NULL, &r.err), &r.err);
    assert_int_equal(board->fired, 1);
    snprintf(want, sizeof want, "EPEERLOST: rank %d on %s was lost: ", rank, rank < 2 ? "a" : "b");
    int found = 0;
    for (const char *at = r.output; (at = strstr(at, want)); at++)
      found++;
    if (found != 3)
      fail_msg("%s", r.output);
    rig_fini(&r);
  }
}

// --- lost hosts ---------------------------------------------------------------------------------

// The bridges are children of the driver, their commands children of them, and so on.
static pid_t half_of(int host, const char *what)
{
  pid_t bridge[2] = {0}, found = 0;
  int n = 0;
  DIR *d = opendir("/proc");
  for (struct dirent *e; d && n < 2 && (e = readdir(d));) {
    char path[300], line[700] = "", name[64];
    pid_t pid = (pid_t)strtol(e->d_name, NULL, 10), parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
      continue;
    ssize_t got = read(fd, line, sizeof line - 1);
    close(fd);
    if (got > 0 && sscanf(line, "%*d (%63[^)]) %*c %d", name, &parent) == 2 && parent == getpid() &&
        !strcmp(name, "manta-bridge"))
      bridge[n++] = pid;
  }
  closedir(d);
  if (n < 2)
    return 0;
  pid_t near = bridge[0] < bridge[1] ? bridge[host] : bridge[!host];
  pid_t far = child_named(near, "manta-stdio");
  if (!strcmp(what, "near"))
    found = near;
  else if (!strcmp(what, "far"))
    found = far;
  else if (!strcmp(what, "agent"))
    found = child_named(far, "manta-agent");
  return found;
}

struct blow {
  int host, sig;
  const char *what;
  pid_t near, far, agent; // as they were before
};

static void *strike(void *arg)
{
  struct blow *b = arg;
  if (!within(SOON, board->at[0] > 20 && half_of(b->host, "agent")))
    return NULL;
  b->near = half_of(b->host, "near");
  b->far = half_of(b->host, "far");
  b->agent = half_of(b->host, "agent");
  pid_t victim = !strcmp(b->what, "near") ? b->near : !strcmp(b->what, "far") ? b->far : b->agent;
  board->fired += manta__proc_signal(victim, b->sig) == 0;
  return NULL;
}

// A blow to one of the processes between driver and workers: the run comes back with all of them.
static void lose_host(int host, const char *what, int sig, const char *cause)
{
  struct rig r;
  pthread_t thread;
  struct blow b = {.host = host, .sig = sig, .what = what};
  rig_hosts(&r, 4, false);
  r.cfg.host_timeout_s = sig == SIGSTOP ? 1.5 : 15;
  r.cfg.keep_workers = host == 0;
  pthread_create(&thread, NULL, strike, &b);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 300), MANTA_KV_INT("pause_us", 1000));
  manta_status st = rig_run(&r, &c);
  pthread_join(thread, NULL);
  if (sig == SIGSTOP) // of what was stopped, we have killed what we could
    manta__proc_signal(b.far, SIGCONT);
  assert_ok(st, &r.err);
  assert_int_equal(board->fired, 1);
  assert_true(board->attempts >= 1);
  assert_all(&r, 4, 300);
  assert_logged(&r, cause);
  assert_true(within(SOON, !alive(b.near) && !alive(b.far) && !alive(b.agent)));
  assert_renewed(&r, 4, 2 * host, 2);
  rig_fini(&r);
  assert_nothing_left();
}

static void a_lost_far_agent_is_started_again(void **state)
{
  lose_host(0, "agent", SIGKILL, "host a was lost: its agent died: killed by signal 9");
  lose_host(1, "agent", SIGKILL, "host b was lost: its agent died: killed by signal 9");
}

static void a_lost_bridge_is_built_again(void **state)
{
  lose_host(1, "near", SIGKILL, "host b was lost: its bridge");
  lose_host(0, "near", SIGKILL, "host a was lost: its bridge");
}

static void a_lost_command_is_run_again(void **state)
{
  lose_host(1, "far", SIGKILL, "host b was lost: its command ended: killed by signal 9");
  lose_host(0, "far", SIGKILL, "host a was lost: its command ended: killed by signal 9");
}

static void silence_counts_after_the_timeout(void **state)
{
  lose_host(1, "near", SIGSTOP, "host b was lost: silent for ");
  lose_host(0, "far", SIGSTOP, "host a was lost: silent for ");
}

// --- a host that does not come back -------------------------------------------------------------

// The command of host b works as long as a file is not there.
static void break_command(char *flag, size_t size)
{
  snprintf(flag, size, "/tmp/manta-broken-%d", (int)getpid());
  unlink(flag);
  snprintf(command[1], sizeof command[1],
           "test -e %s && { echo no route >&2; exit 255; }; exec %s agent --stdio", flag,
           getenv("MANTA_BIN"));
}

static void touch(const char *path)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  close(fd);
}

static void *break_host(void *flag)
{
  if (within(SOON, board->at[0] > 20 && half_of(1, "far"))) {
    touch(flag);
    board->fired += manta__proc_signal(half_of(1, "far"), SIGKILL) == 0;
  }
  return NULL;
}

static void without_a_host_it_goes_on_with_fewer(void **state)
{
  struct rig r;
  pthread_t thread;
  char flag[64];
  rig_hosts(&r, 4, false);
  break_command(flag, sizeof flag);
  r.cfg.min_workers = 2;
  pthread_create(&thread, NULL, break_host, flag);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 300), MANTA_KV_INT("pause_us", 1000));
  manta_status st = rig_run(&r, &c);
  pthread_join(thread, NULL);
  unlink(flag);
  assert_ok(st, &r.err);
  assert_int_equal(board->fired, 1);
  assert_all(&r, 2, 300);
  rig_fini(&r);
  assert_nothing_left();
}

static void *mend_host(void *flag)
{
  break_host(flag);
  if (within(SOON, board->attempts == 1 && board->at[0] > 40)) // with two of them
    unlink(flag);
  return NULL;
}

static void a_host_that_comes_back_is_used_again(void **state)
{
  struct rig r;
  pthread_t thread;
  char flag[64];
  rig_hosts(&r, 4, false);
  break_command(flag, sizeof flag);
  r.cfg.min_workers = 2;
  setenv("MANTA_GROW_AFTER", "0.1", 1);
  setenv("MANTA_RESIZE_EVERY", "0.1", 1);
  pthread_create(&thread, NULL, mend_host, flag);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 4000), MANTA_KV_INT("pause_us", 1000));
  manta_status st = rig_run(&r, &c);
  pthread_join(thread, NULL);
  unsetenv("MANTA_GROW_AFTER");
  unsetenv("MANTA_RESIZE_EVERY");
  unlink(flag);
  assert_ok(st, &r.err);
  assert_int_equal(board->fired, 1);
  assert_all(&r, 4, 4000);
  rig_fini(&r);
}

// --- mistakes -----------------------------------------------------------------------------------

static void refused(const char *cmd, const char *first, const char *second)
{
  struct rig r;
  rig_hosts(&r, 4, false);
  two[1].command = cmd;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 10));
  manta_status st = rig_run(&r, &c);
  assert_true(st < 0);
  assert_has(r.err.message, first);
  assert_has(r.err.message, second);
  rig_fini(&r);
  rig_hosts(&r, 4, false); // the same, asked for ahead
  two[1].command = cmd;
  rig_make(&r);
  assert_true(manta_trainer_start(r.t, &r.err) < 0);
  assert_has(r.err.message, first);
  rig_fini(&r);
  assert_nothing_left();
}

static void a_command_that_starts_no_agent_is_an_error(void **state)
{
  refused("echo no such host >&2; exit 7", "host b: its command ended before an agent answered",
          "exit code 7\nthe command: echo no such host >&2; exit 7\nits last output: no such host");
  refused("echo Welcome; sleep 100", "host b cannot be used: its command printed something",
          "must print nothing before");
  refused("/nowhere/manta agent --stdio", "host b: its command ended", "exit code 127");
}

static void a_program_that_is_not_there_is_named(void **state)
{
  static char cmd[2][1200];
  char self[600];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  assert_true(n > 0);
  self[n] = 0;
  if (geteuid() != 0 || system("unshare -m true 2>/dev/null") != 0)
    skip_because("another file system for a host needs root and mount namespaces");
  snprintf(cmd[0], sizeof cmd[0],
           "exec unshare -m sh -c 'mount --bind /bin/true %s; exec %s agent --stdio'", self,
           getenv("MANTA_BIN"));
  refused(cmd[0], "host b: the program ", "is not the driver's build");
  snprintf(cmd[1], sizeof cmd[1],
           "exec unshare -m sh -c 'mount -t tmpfs x %.*s; exec /proc/self/fd/9 agent --stdio' 9<%s",
           (int)(strrchr(self, '/') - self), self, getenv("MANTA_BIN"));
  refused(cmd[1], "host b: the program ", "hint: it must lie at the same path on every host");
}

static void settings_are_checked(void **state)
{
  struct rig r;
  manta_trainer *t;
  rig_hosts(&r, 4, false);
  two[1].slots = -1;
  assert_status(manta_trainer_create(&t, &r.cfg, &r.err), MANTA_EINVAL);
  assert_has(r.err.message, "hosts[1].slots");
  two[1].slots = 2;
  two[1].name = NULL;
  assert_status(manta_trainer_create(&t, &r.cfg, &r.err), MANTA_EINVAL);
  two[1].name = "a";
  assert_status(manta_trainer_create(&t, &r.cfg, &r.err), MANTA_EINVAL);
  assert_has(r.err.message, "hosts[1] is the same as hosts[0]");
  two[1].command = "  ";
  assert_status(manta_trainer_create(&t, &r.cfg, &r.err), MANTA_EINVAL);
  assert_has(r.err.message, "hosts[1].command is empty");
  r.cfg.host_timeout_s = -1;
  assert_status(manta_trainer_create(&t, &r.cfg, &r.err), MANTA_EINVAL);
  assert_has(r.err.message, "host_timeout_s");
  rig_fini(&r);
  rig_init(&r, 4);
  setenv("MANTA_HOSTS", "a two", 1);
  assert_status(manta_trainer_create(&t, &r.cfg, &r.err), MANTA_EINVAL);
  assert_has(r.err.message, "MANTA_HOSTS: \"a\" is not followed by a number");
  unsetenv("MANTA_HOSTS");
  rig_fini(&r);
}

static void hosts_may_come_from_outside(void **state)
{
  struct rig r;
  char text[1300];
  rig_init(&r, 4);
  snprintf(text, sizeof text,
           "here 1; b@lo 2 %s agent --stdio\n c@10.1.2.3 0 exec %s agent --stdio;",
           getenv("MANTA_BIN"), getenv("MANTA_BIN"));
  setenv("MANTA_HOSTS", text, 1);
  rig_make(&r);
  unsetenv("MANTA_HOSTS");
  assert_ok(manta_trainer_execute(r.t, telling, NULL, &r.results, &r.err), &r.err);
  static const int64_t node[] = {0, 1, 1, 2};
  for (size_t i = 0; i < 4; i++)
    assert_int_equal(number(manta_value_at(&r.results, i), "node"), node[i]);
  static const char *const want[] = {"", "lo", "10.1.2.3"}, *const name[] = {"here", "b", "c"};
  const manta_value *v = manta_value_at(&r.results, 0);
  for (size_t i = 0; i < 3; i++) {
    const manta_value *a = manta_value_at(manta_value_get(v, "addresses"), i);
    assert_string_equal(manta_value_as_string(a, "?"), want[i]);
    a = manta_value_at(manta_value_get(v, "hosts"), i + (i > 1));
    assert_string_equal(manta_value_as_string(a, "?"), name[i]);
  }
  rig_fini(&r);
}

// --- what goes over the bridge ------------------------------------------------------------------

static void far_ranks_have_logs(void **state)
{
  struct rig r;
  rig_hosts(&r, 4, true);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_INT("rank", 3));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, witness, &r.rc, NULL, &r.err), &r.err);
  for (int rank = 0; rank < 3; rank++) {
    char path[600], text[512] = "";
    snprintf(path, sizeof path, "%s/logs/rank-%d.log", manta_trainer_run_dir(r.t), rank);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    assert_has(text, "EPEERLOST: rank 3 on ");
  }
  rig_fini(&r);
}

// The second run begins from a directory of the first; far hosts get it by value.
static void a_checkpoint_reaches_far_hosts(void **state)
{
  struct rig r;
  char dir[700];
  rig_hosts(&r, 4, false);
  r.rc.keep_last = 1;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 30));
  assert_ok(rig_run(&r, &c), &r.err);
  snprintf(dir, sizeof dir, "%s/checkpoints", manta_trainer_run_dir(r.t));
  DIR *d = opendir(dir);
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));)
    if (e->d_name[0] == '0') {
      size_t n = strlen(dir);
      snprintf(dir + n, sizeof dir - n, "/%s", e->d_name);
      break;
    }
  closedir(d);
  board->counts = 0;
  r.last = 30;
  r.rc.checkpoint = dir;
  c = MANTA_MAP(MANTA_KV_INT("n", 50));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_all(&r, 4, 50);
  assert_int_equal(board->counts, 4 * 20);
  rig_fini(&r);
}

// Far more than fits any buffer, and a host that would be lost if a beat had to wait for all of it.
static manta_status heavy(manta_session *s, manta_value *result, manta_error *err)
{
  size_t n = (size_t)manta_session_config_int(s, "mb", 100) << 20;
  uint8_t *p = malloc(n);
  manta_checkpoint *c;
  board_open();
  MANTA_TRY(manta_session_load(s, &c, err));
  int from = (int)manta_session_iteration(s);
  for (size_t i = 0; c && i < n; i += 4096)
    if (((const uint8_t *)manta_checkpoint_tensor(c, "w")->data)[i] != (uint8_t)(i / 4096 + 2))
      return manta_error_set(err, MANTA_EUSER, "byte %zu of the checkpoint is wrong", i);
  manta_checkpoint_close(c);
  for (int step = from + 1; step <= from + 2; step++) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", step));
    MANTA_TRY(manta_session_report(s, &row, err));
    for (size_t i = 0; i < n; i++)
      p[i] = (uint8_t)(i / 4096 + (size_t)step);
    manta_tensor t = MANTA_VECTOR("w", MANTA_U8, p, (int64_t)n);
    manta_state st = {&t, 1, NULL};
    MANTA_TRY(manta_session_save(s, &st, err));
  }
  free(p);
  return manta_value_set_int(result, from);
}

static void a_large_snapshot_comes_while_beats_go_on(void **state)
{
  struct rig r;
  manta_checkpoint *c;
  rig_hosts(&r, 2, false);
  two[0].slots = two[1].slots = 1;
  r.cfg.host_timeout_s = 3;
  r.rc.keep_last = -1;
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, heavy, &r.rc, &r.results, &r.err), &r.err);
  assert_ok(manta_trainer_checkpoint(r.t, &c, &r.err), &r.err);
  assert_int_equal(manta_checkpoint_iteration(c), 2);
  const manta_tensor *t = manta_checkpoint_tensor(c, "w");
  assert_int_equal(manta_tensor_bytes(t), 100 << 20);
  for (size_t i = 0; i < 100u << 20; i += 4096)
    assert_int_equal(((const uint8_t *)t->data)[i], (uint8_t)(i / 4096 + 2));
  manta_checkpoint_close(c);
  char dir[700];
  assert_true(manta_trainer_best_checkpoint(r.t, dir, sizeof dir, &r.err) < 0); // no score
  snprintf(dir, sizeof dir, "%s/checkpoints/000002", manta_trainer_run_dir(r.t));
  r.rc.checkpoint = dir;
  r.last = 2;
  assert_ok(manta_trainer_run(r.t, heavy, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 1), -1), 2);
  rig_fini(&r);
}

static manta_status giving(manta_session *s, manta_value *result, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  struct manta__blobs all;
  static uint8_t mine[MANTA__GIVE_MAX];
  memset(mine, job->id.rank, sizeof mine);
  for (int round = 0; round < 3; round++) {
    int64_t least = 10 * round - job->id.rank;
    MANTA_TRY(manta__worker_exchange(job, mine, sizeof mine, &all, manta__deadline(SOON), err));
    bool right = all.count == job->world;
    for (int r = 0; right && r < all.count; r++)
      right = all.bytes[r] == sizeof mine && all.data[r][77] == r;
    manta__blobs_fini(&all);
    MANTA_TRY(manta__worker_agree(job, &least, manta__deadline(SOON), err));
    if (!right || least != 10 * round - (job->world - 1))
      return manta_error_set(err, MANTA_EUSER, "round %d: not what was given", round);
  }
  return MANTA_OK;
}

static void ranks_of_two_hosts_exchange_and_agree(void **state)
{
  for (int here = 0; here < 2; here++) {
    struct rig r;
    rig_hosts(&r, 4, here);
    rig_make(&r);
    assert_ok(manta_trainer_run(r.t, giving, &r.rc, NULL, &r.err), &r.err);
    rig_fini(&r);
  }
}

// Rows that nobody takes hold a far worker back as they do one at hand, and none is lost.
static manta_status wordy(manta_session *s, manta_value *result, manta_error *err)
{
  static char text[20000];
  board_open();
  memset(text, 'x', sizeof text - 1);
  for (int i = 1; i <= 5000; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", i), MANTA_KV_STR("text", text));
    MANTA_TRY(manta_session_report(s, &row, err));
    board->at[manta_session_rank(s)] = i;
  }
  return MANTA_OK;
}

static void back_pressure_reaches_far_workers(void **state)
{
  struct rig r;
  manta_run *run;
  manta_rows rows;
  rig_hosts(&r, 2, false);
  two[0].slots = two[1].slots = 1;
  r.cfg.callback_count = 0;
  rig_make(&r);
  assert_ok(manta_run_start(&run, r.t, wordy, &r.rc, &r.err), &r.err);
  assert_true(within(SOON, board->at[0] > 100 && board->at[1] > 100));
  int64_t before;
  do { // until they stand still
    before = board->at[0] + board->at[1];
    usleep(300000);
  } while (board->at[0] + board->at[1] != before);
  // 32 MB of rows wait for us, 4 MB of each rank in its ring, and those of one rank for the other.
  assert_in_range(board->at[0], 200, 4000);
  assert_in_range(board->at[1], 200, 4000);
  int64_t n = 0;
  while (manta_run_next(run, SOON, &rows, &r.err) == 1)
    assert_int_equal(rows.iteration, ++n);
  assert_int_equal(n, 5000);
  manta_run_close(run);
  rig_fini(&r);
}

// --- the end of the driver ----------------------------------------------------------------------

static int be_driver(char *dir)
{
  struct rig r;
  board_open();
  rig_hosts(&r, 4, false);
  return rig_drive(&r, dir);
}

static void a_lost_driver_takes_far_workers_along(void **state)
{
  struct rig r;
  rig_init(&r, 4); // for its directory
  pid_t pid = rig_start_driver(&r);
  assert_true(within(SOON, board->counts > 200));
  pid_t near = child_named(pid, "manta-bridge"), far = child_named(near, "manta-stdio");
  pid_t agent = child_named(far, "manta-agent");
  assert_true(alive(near) && alive(far) && alive(agent));
  manta__proc_signal(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  for (int i = 0; i < 4; i++)
    assert_true(within(SANITIZED ? 5 : 1, !alive((pid_t)board->pid[i])));
  assert_true(within(5, !alive(near) && !alive(far) && !alive(agent)));
  rig_fini(&r);
}

static void a_notice_reaches_all_hosts(void **state)
{
  struct rig r;
  rig_hosts(&r, 4, false);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 100000), MANTA_KV_STR("fault", "term"),
                            MANTA_KV_INT("rank", 3), MANTA_KV_INT("at", 25));
  assert_status(rig_run(&r, &c), MANTA_EPREEMPTED);
  assert_int_equal(board->fired, 1);
  rig_fini(&r);
  assert_nothing_left();
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  if (argc == 3 && !strcmp(argv[1], "driver"))
    return be_driver(argv[2]);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(ranks_on_two_hosts_report_and_save),
      rig_test(ranks_are_given_out_host_by_host),
      rig_test(a_killed_worker_is_revived),
      rig_test(what_survivors_read_names_rank_and_host),
      rig_test(a_lost_far_agent_is_started_again),
      rig_test(a_lost_bridge_is_built_again),
      rig_test(a_lost_command_is_run_again),
      rig_test(silence_counts_after_the_timeout),
      rig_test(without_a_host_it_goes_on_with_fewer),
      rig_test(a_host_that_comes_back_is_used_again),
      rig_test(a_command_that_starts_no_agent_is_an_error),
      rig_test(a_program_that_is_not_there_is_named),
      rig_test(settings_are_checked),
      rig_test(hosts_may_come_from_outside),
      rig_test(far_ranks_have_logs),
      rig_test(a_checkpoint_reaches_far_hosts),
      rig_test(a_large_snapshot_comes_while_beats_go_on),
      rig_test(ranks_of_two_hosts_exchange_and_agree),
      rig_test(back_pressure_reaches_far_workers),
      rig_test(a_lost_driver_takes_far_workers_along),
      rig_test(a_notice_reaches_all_hosts),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
