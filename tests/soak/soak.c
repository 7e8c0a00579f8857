/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/soak/soak.c - random kills of workers, zygote and agent over a counting job.
 *
 *   soak KILLS [SEED]
 *       One driver, KILLS random kills: the count must be exact, no checkpoint torn, and processes,
 *       descriptors and memory of the driver flat.
 *   soak driver KILLS [SEED]
 *       The driver itself is killed at random moments and resumed as `manta resume` does it: the
 *       result must be right each time.
 *
 * Each rank counts for itself and checks at every attempt that it goes on from where rank 0 saved.
 * The output is TAP for the test runner; with MANTA_SOAK_OUT the figures also go into that folder.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <manta/manta.h>

#define WORKERS 3
#define STATE   4096 /* numbers in the state: torn content would show */

// A sanitizer keeps freed memory for a while.
#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t seed;
static unsigned roll(unsigned n)
{
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(seed >> 33) % n;
}

// --- the job ------------------------------------------------------------------------------------

static manta_status restore(manta_session *s, int64_t *state, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (!c)
    return MANTA_OK;
  manta_status st = manta_checkpoint_copy(c, "state", state, STATE * sizeof *state, err);
  for (int i = 0; st == MANTA_OK && i < STATE; i++)
    if (state[i] != state[0] + i)
      st = manta_error_set(err, MANTA_ECORRUPT, "torn checkpoint at %d", i);
  if (st == MANTA_OK && state[0] != manta_session_iteration(s))
    st = manta_error_set(err, MANTA_ECORRUPT, "checkpoint of count %lld at iteration %lld",
                         (long long)state[0], (long long)manta_session_iteration(s));
  manta_checkpoint_close(c);
  return st;
}

static manta_status count(manta_session *s, manta_value *result, manta_error *err)
{
  static int64_t state[STATE];
  int64_t n = manta_session_config_int(s, "n", 1000);
  memset(state, 0, sizeof state);
  MANTA_TRY(restore(s, state, err));
  while (state[0] < n) {
    usleep(300);
    for (int i = STATE - 1; i >= 0; i--)
      state[i] = state[0] + 1 + i;
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", state[0]));
    MANTA_TRY(manta_session_report(s, &row, err));
    manta_tensor t = MANTA_VECTOR("state", MANTA_I64, state, STATE);
    manta_state st = {&t, 1, NULL};
    if (state[0] % 7 == 0)
      MANTA_TRY(manta_session_save(s, &st, err));
  }
  return manta_value_set_int(result, state[0]);
}
MANTA_TRAIN("soak_count", count)

// --- processes ----------------------------------------------------------------------------------

static bool stat_of(pid_t pid, char *comm, size_t size, int *ppid, char *state)
{
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
  if (fd >= 0)
    close(fd);
  line[n > 0 ? n : 0] = 0;
  char *a = strchr(line, '('), *b = strrchr(line, ')');
  if (!a || !b || sscanf(b + 1, " %c %d", state, ppid) != 2)
    return false;
  snprintf(comm, size, "%.*s", (int)(b - a - 1), a + 1);
  return true;
}

// Living children of `parent` with this name; the last one's pid in *pid.
static int children(pid_t parent, const char *name, pid_t *pid)
{
  DIR *d = opendir("/proc");
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    pid_t p = (pid_t)strtol(e->d_name, NULL, 10);
    char comm[64], st;
    int pp;
    if (p > 0 && stat_of(p, comm, sizeof comm, &pp, &st) && pp == parent && st != 'Z' &&
        (!name || !strcmp(comm, name))) {
      n++;
      *pid = p;
    }
  }
  if (d)
    closedir(d);
  return n;
}

static int open_files(void)
{
  DIR *d = opendir("/proc/self/fd");
  int n = -1; // the directory's own
  for (struct dirent *e; d && (e = readdir(d));)
    n += e->d_name[0] != '.';
  if (d)
    closedir(d);
  return n;
}

static long resident_kb(void)
{
  char line[256];
  long kb = -1;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "RssAnon: %ld", &kb) == 1)
      break;
  if (f)
    fclose(f);
  return kb;
}

// --- kills --------------------------------------------------------------------------------------

static struct {
  manta_trainer *trainer;
  int kills, done, workers, zygotes, agents;
  _Atomic int stop;
} plan;

static pid_t choose(int *what)
{
  pid_t agent = 0, pid = 0;
  unsigned r = roll(100);
  if (!children(getpid(), "manta-agent", &agent))
    return 0;
  if (r < 6) {
    *what = 2;
    return agent;
  }
  if (r < 20) {
    *what = 1;
    return children(agent, "manta-zygote", &pid) ? pid : 0;
  }
  *what = 0;
  return manta_trainer_pid(plan.trainer, (int)roll(WORKERS));
}

static void *killer(void *arg)
{
  int *counter[] = {&plan.workers, &plan.zygotes, &plan.agents};
  while (plan.done < plan.kills && !plan.stop) {
    int what = 0;
    usleep(1000 + roll(30000));
    pid_t pid = choose(&what);
    if (pid > 0 && kill(pid, SIGKILL) == 0) {
      plan.done++;
      (*counter[what])++;
    }
  }
  return NULL;
}

static int fail(const char *what)
{
  printf("not ok - %s\n", what);
  return 1;
}

static void write_json(const char *name, const manta_value *v)
{
  char *text, path[4096];
  const char *dir = getenv("MANTA_SOAK_OUT");
  if (!dir)
    return;
  mkdir(dir, 0755);
  snprintf(path, sizeof path, "%s/%s.json", dir, name);
  FILE *f = fopen(path, "w");
  if (f && manta_value_to_json(v, 2, &text, NULL) == MANTA_OK) {
    fprintf(f, "%s\n", text);
    manta_free(text);
  }
  if (f)
    fclose(f);
}

static struct seen {
  int64_t last, rewinds, wrong;
} seen;

static manta_status on_result(void *ctx, const manta_rows *rows, manta_error *err)
{
  if (rows->rewound_to >= 0) {
    seen.rewinds++;
    seen.last = rows->rewound_to;
  }
  seen.wrong += rows->iteration != seen.last + 1;
  seen.last = rows->iteration;
  return MANTA_OK;
}

static int64_t counts_for(int kills)
{
  return 400 + (int64_t)kills * 25;
}

static manta_trainer *make(const char *dir, manta_callbacks *cb)
{
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = NULL;
  cfg.workers = WORKERS;
  cfg.max_retries = -1;
  cfg.logdir = dir;
  cfg.quiet = true;
  cfg.name = "soak";
  cfg.callbacks = cb;
  cfg.callback_count = cb ? 1 : 0;
  if (manta_trainer_create(&t, &cfg, &err) < 0)
    printf("# create: %s\n", err.message);
  return t;
}

static int check_results(const manta_value *results, int64_t n)
{
  if (results->count != WORKERS)
    return fail("results of all ranks");
  for (uint32_t i = 0; i < results->count; i++)
    if (manta_value_as_int(manta_value_at(results, i), -1) != n)
      return fail("the final count is exact");
  return 0;
}

static int soak(int kills)
{
  char dir[] = "/tmp/manta-soak-XXXXXX", cmd[64];
  manta_callbacks cb = {.result = on_result};
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  int64_t n = counts_for(kills);
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", n));
  pthread_t th;
  pid_t left;
  if (!mkdtemp(dir) || !(plan.trainer = make(dir, &cb)))
    return fail("create");
  rc.config = &config;
  plan.kills = kills;
  if (manta_trainer_start(plan.trainer, &err) < 0)
    return fail(err.message);
  int files = open_files();
  long memory = resident_kb();
  double t0 = now();
  pthread_create(&th, NULL, killer, NULL);
  int runs = 0, bad = 0;
  // Runs until all kills have happened: the number of counts that takes is not known ahead.
  do {
    seen.last = 0;
    if (manta_trainer_run(plan.trainer, count, &rc, &results, &err) < 0)
      bad = fail(err.message);
    else
      bad = check_results(&results, n);
    runs++;
  } while (!bad && plan.done < kills);
  plan.stop = 1;
  pthread_join(th, NULL);
  double took = now() - t0;
  int files_after = open_files();
  long memory_after = resident_kb();
  manta_trainer_destroy(plan.trainer);
  manta_value_fini(&results);
  usleep(100000);
  printf("# %d kills in %.1f s (%d workers, %d zygotes, %d agents), %d runs, %" PRId64
         " rewinds; files %d -> %d, memory %ld -> %ld kB\n",
         plan.done, took, plan.workers, plan.zygotes, plan.agents, runs, seen.rewinds, files,
         files_after, memory, memory_after);
  if (!bad && seen.wrong)
    bad = fail("iterations come once and in order");
  if (!bad && files_after > files + 4)
    bad = fail("descriptors stay flat");
  if (!bad && !SANITIZED && memory_after > memory + 8192)
    bad = fail("memory stays flat");
  if (!bad && children(getpid(), NULL, &left) > 0)
    bad = fail("nothing is left");
  manta_value v = MANTA_MAP(
      MANTA_KV_INT("kills", plan.done), MANTA_KV_INT("workers", plan.workers),
      MANTA_KV_INT("zygotes", plan.zygotes), MANTA_KV_INT("agents", plan.agents),
      MANTA_KV_REAL("seconds", took), MANTA_KV_BOOL("exact", !bad),
      MANTA_KV_INT("files_before", files), MANTA_KV_INT("files_after", files_after),
      MANTA_KV_INT("memory_kb_before", memory), MANTA_KV_INT("memory_kb_after", memory_after));
  write_json("kills", &v);
  snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
  if (!bad && system(cmd) == 0)
    printf("ok - %d random kills\n", plan.done);
  return bad;
}

// --- the driver is killed -----------------------------------------------------------------------

// The program that is killed and resumed: `soak job DIR`. Its exit code tells whether the count is
// right.
static int job(const char *dir)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 300));
  manta_trainer *t = make(dir, NULL);
  rc.config = &config;
  if (!t || manta_trainer_run(t, count, &rc, &results, &err) < 0) {
    printf("# job: %s\n", err.message);
    return 1;
  }
  int bad = check_results(&results, 300);
  manta_value_fini(&results);
  manta_trainer_destroy(t);
  return bad;
}

static pid_t start_job(const char *self, const char *dir, const char *session)
{
  pid_t pid = fork();
  if (pid == 0) {
    if (session)
      setenv("MANTA_RESUME", session, 1);
    execl(self, self, "job", dir, (char *)NULL);
    _exit(127);
  }
  return pid;
}

// "session" of the newest run, in hex, out of `manta status --json`.
static bool session_of(const char *dir, char *out, size_t size)
{
  char cmd[512], *text = NULL;
  size_t len = 0;
  snprintf(cmd, sizeof cmd, "MANTA_RESULTS=%s '%s' status --json latest 2>/dev/null", dir,
           getenv("MANTA_BIN"));
  FILE *f = popen(cmd, "r");
  ssize_t n = f ? getdelim(&text, &len, 0, f) : -1;
  if (f)
    pclose(f);
  manta_value v = {0};
  int64_t id = -1;
  if (n > 0 && manta_value_from_json(&v, text, (size_t)n, NULL) == MANTA_OK)
    id = manta_value_as_int(manta_value_get(manta_value_get(&v, "start"), "session"), -1);
  manta_value_fini(&v);
  free(text);
  snprintf(out, size, "%llx", (unsigned long long)id);
  return id > 0;
}

// Processes whose environment names this directory's job.
static int relatives(const char *dir, bool tell)
{
  DIR *d = opendir("/proc");
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    char path[300], line[4096] = "", comm[64], st = 'Z';
    int pp;
    pid_t p = (pid_t)strtol(e->d_name, NULL, 10);
    if (p <= 0 || !stat_of(p, comm, sizeof comm, &pp, &st) || st == 'Z')
      continue;
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)p);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t k = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
      close(fd);
    for (ssize_t i = 0; i < k; i++)
      if (line[i] == 0)
        line[i] = ' ';
    if (!strstr(line, " job ") || !strstr(line, dir))
      continue;
    n++;
    if (tell)
      printf("# left: pid %d of %d, %s, state %c\n", (int)p, pp, comm, st);
  }
  if (d)
    closedir(d);
  return n;
}

#define GONE_S 20.0 // on a host that has other work, with sanitizers

// An agent that was just starting may still do what it was told before it sees that its driver is
// dead: they are gone when none has been there for a while.
static bool gone_within(const char *dir, double s)
{
  double quiet = now(), by = quiet + s;
  for (; now() < by && now() < quiet + 0.03; usleep(1000))
    if (relatives(dir, false) > 0)
      quiet = now();
  return relatives(dir, true) == 0;
}

static int one_driver(const char *self, int *killed)
{
  char dir[] = "/tmp/manta-soak-XXXXXX", cmd[64], session[32];
  if (!mkdtemp(dir))
    return fail("mkdtemp");
  int status = 0, tries = 0;
  pid_t pid = start_job(self, dir, NULL);
  for (;; tries++) {
    usleep(3000 + roll(120000));
    bool fell = tries < 3 && kill(pid, SIGKILL) == 0;
    if (waitpid(pid, &status, 0) != pid)
      return fail("waitpid");
    fell = fell && WIFSIGNALED(status);
    *killed += fell;
    if (!fell)
      break;
    if (!gone_within(dir, GONE_S))
      return fail("all processes end with their driver");
    bool begun = session_of(dir, session, sizeof session);
    pid = start_job(self, dir, begun ? session : NULL);
  }
  snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail("the resumed run gives the right result");
  return system(cmd) == 0 ? 0 : fail("clean up");
}

static int kill_drivers(const char *self, int kills)
{
  int killed = 0, jobs = 0;
  double t0 = now();
  while (killed < kills) {
    if (one_driver(self, &killed))
      return 1;
    jobs++;
  }
  printf("# %d drivers killed in %.1f s over %d jobs\nok - %d drivers killed and resumed\n", killed,
         now() - t0, jobs, killed);
  manta_value v = MANTA_MAP(MANTA_KV_INT("kills", killed), MANTA_KV_INT("jobs", jobs),
                            MANTA_KV_REAL("seconds", now() - t0), MANTA_KV_BOOL("exact", true));
  write_json("driver", &v);
  return 0;
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc == 3 && !strcmp(argv[1], "job"))
    return job(argv[2]);
  bool driver = argc > 1 && !strcmp(argv[1], "driver");
  const char *kills = argc > 1 + driver ? argv[1 + driver] : "100";
  seed = argc > 2 + driver ? strtoull(argv[2 + driver], NULL, 10) : (uint64_t)time(NULL);
  printf("1..1\n# seed %llu\n", (unsigned long long)seed);
  seed ^= 0x9e3779b97f4a7c15u;
  int n = (int)strtol(kills, NULL, 10);
  char self[4096];
  ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
  self[len > 0 ? len : 0] = 0;
  return driver ? kill_drivers(self, n) : soak(n);
}
