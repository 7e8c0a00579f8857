/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/death.c - a worker is killed: when its peers know, and when all are back.
 *
 *   death notice --dir D [--workers 2] [--mb 4] [--kills 50] [--busy 1]
 *       SIGKILL of rank 0 -> a session call of a peer fails. The abort word that it reads is raised
 *       by the agent, so this is agent and peers in one.
 *   death revive --dir D [--workers 4] [--mb 1] [--kills 20]
 *       SIGKILL of one rank, each in turn -> the last of all ranks is back from manta_session_load
 *       with the saved state. Every rank holds --mb resident, and so large is the checkpoint; the
 *       rank that saved it dies in its turn, with its slots.
 */
#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench.h"

#define MAX_KILLS 1000
#define MAX_RANKS 64
#define LIMIT_S   120
#define STEP_US   50
#define MARK      42.0f

struct attempt {
  _Atomic int ready;
  _Atomic int pid[MAX_RANKS];
  _Atomic int64_t killed_ns;
  _Atomic int64_t seen_ns[MAX_RANKS]; /* the loss, by a session call */
  _Atomic int64_t back_ns[MAX_RANKS]; /* behind manta_session_load */
};

struct board {
  _Atomic int saved, wrong;
  struct attempt attempt[MAX_KILLS + 1];
};

struct me {
  manta_session *s;
  struct board *b;
  struct attempt *a;
  int rank, world, number; /* number: of the attempt */
  bool busy;
  int64_t kills, mb;
};

static struct me who(manta_session *s)
{
  struct me m = {.s = s,
                 .b = bench_board(s, sizeof(struct board)),
                 .rank = manta_session_rank(s),
                 .world = manta_session_world_size(s),
                 .number = manta_session_attempt(s),
                 .busy = manta_session_config_bool(s, "busy", false),
                 .kills = manta_session_config_int(s, "kills", 0),
                 .mb = manta_session_config_int(s, "mb", 1)};
  m.a = &m.b->attempt[m.number];
  prctl(PR_SET_TIMERSLACK, 1);
  return m;
}

static void spend(const struct me *m)
{
  if (m->busy)
    bench_spin(STEP_US);
  else
    bench_nap(STEP_US * 1000);
}

// All ranks of the attempt have come here. False: it took too long, something else went wrong.
static bool meet(const struct me *m)
{
  atomic_store(&m->a->pid[m->rank], (int)getpid());
  atomic_fetch_add(&m->a->ready, 1);
  for (int64_t by = bench_now() + LIMIT_S * 1000000000ll; bench_now() < by; spend(m))
    if (atomic_load(&m->a->ready) == m->world)
      return true;
  return false;
}

// At no fixed point of anybody's rhythm.
static void kill_rank(const struct me *m, int rank)
{
  bench_nap(2000000 + bench_now() % 5000000);
  atomic_store(&m->a->killed_ns, bench_now());
  kill(atomic_load(&m->a->pid[rank]), SIGKILL);
}

// A process that survives keeps it.
static void *hold_resident(int64_t mb)
{
  static void *held;
  if (!held)
    held = bench_resident((size_t)mb << 20);
  return held;
}

// --- noticing -----------------------------------------------------------------------------------

// On ranks other than 0 a save looks at the abort word and does nothing else.
static manta_status watch(const struct me *m, manta_error *err)
{
  manta_state none = {0};
  for (;;) {
    manta_status st = manta_session_save(m->s, &none, err);
    if (st < 0) {
      atomic_store(&m->a->seen_ns[m->rank], bench_now());
      return st;
    }
    spend(m);
  }
}

static manta_status notice(manta_session *s, manta_value *result, manta_error *err)
{
  struct me m = who(s);
  if (m.number >= m.kills)
    return MANTA_OK;
  if (m.rank == 0)
    hold_resident(m.mb);
  if (!meet(&m))
    return manta_error_set(err, MANTA_EUSER, "the ranks did not meet");
  if (m.rank == 1)
    kill_rank(&m, 0);
  if (m.rank > 0)
    return watch(&m, err);
  for (;;)
    m.busy ? bench_spin(1000) : bench_nap(100000000);
}
MANTA_TRAIN("bench-notice", notice)

// --- coming back --------------------------------------------------------------------------------

static bool on_disk(const char *dir)
{
  char pattern[4200];
  glob_t g;
  snprintf(pattern, sizeof pattern, "%s/*/checkpoints/[0-9]*/manifest.json", dir);
  bool found = glob(pattern, 0, NULL, &g) == 0;
  globfree(&g);
  return found;
}

// Once, by rank 0 of the first attempt; the disk is left in peace before the first kill.
static manta_status save_state(const struct me *m, manta_error *err)
{
  size_t floats = ((size_t)m->mb << 20) / sizeof(float);
  float *w = hold_resident(m->mb);
  w[0] = w[floats - 1] = MARK;
  manta_tensor t = MANTA_VECTOR("w", MANTA_F32, w, floats);
  manta_state state = {.tensors = &t, .count = 1};
  MANTA_TRY(manta_session_save(m->s, &state, err));
  for (int64_t by = bench_now() + LIMIT_S * 1000000000ll; bench_now() < by; bench_nap(5000000))
    if (on_disk(manta_session_config_string(m->s, "dir", "")))
      return MANTA_OK;
  return manta_error_set(err, MANTA_EUSER, "the checkpoint is not on disk after %d s", LIMIT_S);
}

static void check_state(const struct me *m, const manta_checkpoint *c)
{
  const manta_tensor *t = c ? manta_checkpoint_tensor(c, "w") : NULL;
  size_t floats = ((size_t)m->mb << 20) / sizeof(float);
  const float *w = t ? t->data : NULL;
  if (!w || t->shape[0] != (int64_t)floats || w[0] < MARK || w[floats - 1] < MARK)
    atomic_fetch_add(&m->b->wrong, 1);
}

static manta_status restore(const struct me *m, manta_error *err)
{
  manta_checkpoint *c = NULL;
  MANTA_TRY(manta_session_load(m->s, &c, err));
  atomic_store(&m->a->back_ns[m->rank], bench_now());
  if (m->number > 0)
    check_state(m, c);
  else if (m->rank == 0)
    MANTA_TRY(save_state(m, err));
  manta_checkpoint_close(c);
  return MANTA_OK;
}

static manta_status loop(const struct me *m, manta_error *err)
{
  for (int64_t i = 0;; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("step", i));
    MANTA_TRY(manta_session_report(m->s, &row, err));
    bench_nap(1000000);
  }
}

static manta_status revive(manta_session *s, manta_value *result, manta_error *err)
{
  struct me m = who(s);
  int victim = (m.number + 1) % m.world;
  MANTA_TRY(restore(&m, err));
  if (m.number >= m.kills)
    return MANTA_OK;
  hold_resident(m.mb);
  if (!meet(&m))
    return manta_error_set(err, MANTA_EUSER, "the ranks did not meet");
  if (m.rank == (victim + 1) % m.world)
    kill_rank(&m, victim);
  return loop(&m, err);
}
MANTA_TRAIN("bench-revive", revive)

// --- the driver ---------------------------------------------------------------------------------

static void print_notices(const struct board *b, int kills, int world)
{
  for (int k = 0; k < kills; k++)
    for (int r = 1; r < world; r++) {
      const struct attempt *a = &b->attempt[k];
      int64_t seen = atomic_load(&a->seen_ns[r]), killed = atomic_load(&a->killed_ns);
      if (!seen || !killed)
        bench_die("rank %d did not see death %d", r, k);
      bench_sample("notice_ms", (double)(seen - killed) / 1e6);
    }
}

static void print_revivals(const struct board *b, int kills, int world)
{
  if (atomic_load(&b->wrong))
    bench_die("%d times the restored state was wrong", atomic_load(&b->wrong));
  for (int k = 0; k < kills; k++) {
    int64_t killed = atomic_load(&b->attempt[k].killed_ns), last = 0;
    for (int r = 0; r < world; r++) {
      int64_t back = atomic_load(&b->attempt[k + 1].back_ns[r]);
      if (!back || !killed)
        bench_die("rank %d did not come back from death %d", r, k);
      last = back > last ? back : last;
    }
    bench_sample("revive_ms", (double)(last - killed) / 1e6);
  }
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  bool reviving = argc > 1 && !strcmp(argv[1], "revive");
  if (argc < 2 || (!reviving && strcmp(argv[1], "notice") != 0))
    bench_die("usage: death notice|revive --dir D");
  int workers = (int)bench_arg(argc, argv, "workers", reviving ? 4 : 2);
  int kills = (int)bench_arg(argc, argv, "kills", 20);
  if (workers < 2 || workers > MAX_RANKS || kills < 1 || kills > MAX_KILLS)
    bench_die("2 to %d workers and 1 to %d kills", MAX_RANKS, MAX_KILLS);
  manta_error err = MANTA_ERROR_INIT;
  char path[64];
  struct board *b = bench_board_make(sizeof *b, path, sizeof path);
  manta_trainer *t = bench_trainer(argc, argv, workers, -1);
  manta_value config = MANTA_MAP(MANTA_KV_STR("board", path), MANTA_KV_INT("kills", kills),
                                 MANTA_KV_INT("mb", bench_arg(argc, argv, "mb", 4)),
                                 MANTA_KV_BOOL("busy", bench_arg(argc, argv, "busy", 0) != 0),
                                 MANTA_KV_STR("dir", bench_arg_text(argc, argv, "dir", "")));
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = &config;
  bench_check(manta_trainer_run(t, reviving ? revive : notice, &rc, NULL, &err), "run", &err);
  if (reviving)
    print_revivals(b, kills, workers);
  else
    print_notices(b, kills, workers);
  manta_trainer_destroy(t);
  return 0;
}
