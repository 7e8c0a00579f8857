/* SPDX-License-Identifier: Apache-2.0
 *
 *   SEED=N repeats a game, GAME_SECONDS=S makes it longer: variables of the environment.
 *
 * All ranks make the same random sequence of calls, each out of the same generator: blocking and
 * started, several in flight, on the world and on groups that come and go, messages between them,
 * calls that differ from rank to rank, and now and then nothing for a while. Every result is
 * checked by plain means. Meanwhile the test stops ranks and lets them go on.
 */
#include <sched.h>

#include "plain.h"
#include "sys/proc.h"

#define FLIGHT   6
#define GROUPS   3
#define ROOM     (400u << 10)
#define PATIENCE 120 // s: against hangs
#define MAIL     60000

static uint64_t seed = 1;
static double seconds = 1.5;

struct flight {
  manta_work *work;
  manta_comm *on;
  struct plain p;
  struct plain_bed bed;
};

struct player {
  manta_comm *world, *group[GROUPS];
  int rank, n;
  uint64_t common, own; // generators: the same on all ranks, and of this one
  struct flight flight[FLIGHT];
  uint8_t *mail[2], *shared;
  uint64_t steps;
};

static uint64_t draw(uint64_t *state, uint64_t n)
{
  *state += 0x9e3779b97f4a7c15;
  return plain_mix(*state) % n;
}

// --- one call -----------------------------------------------------------------------------------

// Mostly small, sometimes around a limit, seldom large.
static size_t draw_bytes(uint64_t *g)
{
  static const size_t limits[] = {64, 1024, 8192, 16384, 65536};
  switch (draw(g, 8)) {
  case 0:
    return (size_t)draw(g, 300000);
  case 1:
  case 2:
    return limits[draw(g, 5)] + (size_t)draw(g, 17) - 8;
  default:
    return (size_t)draw(g, 3000);
  }
}

static struct plain draw_call(uint64_t *g, int n)
{
  struct plain p = {.call = (enum manta__call)(MANTA__CALL_BARRIER + draw(g, 10)),
                    .type = (manta_dtype)draw(g, MANTA_DTYPE_COUNT),
                    .op = (manta_op)draw(g, MANTA_BXOR + 1),
                    .root = (int)draw(g, (uint64_t)n),
                    .seed = draw(g, UINT64_MAX),
                    .place = (enum plain_place)draw(g, PLAIN_PLACES),
                    .in_place = draw(g, 2),
                    .shift = (int)draw(g, 40)};
  if (plain_reduces(&p) && !manta__reduce_valid(p.type, p.op))
    p.op = MANTA_MIN;
  bool blocks = p.call != MANTA__CALL_ALLREDUCE && p.call != MANTA__CALL_REDUCE &&
                p.call != MANTA__CALL_BROADCAST;
  p.count = draw_bytes(g) / manta_dtype_bytes(p.type) / (blocks ? (size_t)n : 1);
  for (int r = 0; r < n; r++)
    p.counts[r] = draw(g, 3) ? (size_t)draw(g, p.count + 1) : 0;
  return p;
}

static int land(struct player *s, struct flight *f)
{
  manta_error err = MANTA_ERROR_INIT;
  if (!f->work)
    return 0;
  manta_status st = manta_work_wait(f->work, &err);
  f->work = NULL;
  EXPECT(st == MANTA_OK);
  return plain_check(&f->bed, &f->p, manta_comm_rank(f->on), manta_comm_size(f->on));
}

static int land_all(struct player *s)
{
  int line = 0;
  for (int i = 0; i < FLIGHT && !line; i++)
    line = land(s, &s->flight[i]);
  return line;
}

// The world, or a group that this rank is in; the generator goes on alike on all.
static manta_comm *draw_comm(struct player *s)
{
  uint64_t k = draw(&s->common, GROUPS + 2);
  return k < GROUPS ? s->group[k] : s->world;
}

static int do_call(struct player *s, bool starts)
{
  manta_comm *c = draw_comm(s);
  uint64_t g = draw(&s->common, UINT64_MAX); // a stream of its own: groups have different sizes
  struct flight *f = &s->flight[draw(&s->common, FLIGHT)];
  manta_error err = MANTA_ERROR_INIT;
  int line = land(s, f);
  if (line || !c)
    return line;
  int rank = manta_comm_rank(c), n = manta_comm_size(c);
  f->p = draw_call(&g, n);
  f->on = c;
  plain_prepare(&f->bed, &f->p, rank, n);
  manta_status st = plain_call(c, &f->p, &f->bed, starts ? &f->work : NULL, &err);
  if (st < 0)
    fprintf(stderr, "rank %d: %s\n", s->rank, err.message);
  EXPECT(st == MANTA_OK);
  return starts ? 0 : plain_check(&f->bed, &f->p, rank, n);
}

// One rank asks for something else: all are told, and go on in step.
static int do_mismatch(struct player *s)
{
  uint64_t odd = draw(&s->common, (uint64_t)s->n), how = draw(&s->common, 4);
  struct plain p = draw_call(&s->common, s->n);
  struct flight *f = &s->flight[0];
  manta_error err = MANTA_ERROR_INIT;
  int line = land_all(s);
  if (line || s->n == 1)
    return line;
  if ((int)odd == s->rank) {
    if (how == 0 || p.call == MANTA__CALL_BARRIER)
      p.call = p.call == MANTA__CALL_BARRIER ? MANTA__CALL_BROADCAST : MANTA__CALL_BARRIER;
    else if (p.call == MANTA__CALL_ALLGATHERV)
      p.counts[0] += 1;
    else if (how == 1)
      p.type = p.type == MANTA_I64 ? MANTA_I32 : MANTA_I64; // these take every operation
    else
      p.count += how == 2 ? 1 : 5000;
    p.count = p.count * manta_dtype_bytes(p.type) * (size_t)s->n > ROOM ? 0 : p.count;
  }
  plain_prepare(&f->bed, &p, s->rank, s->n);
  EXPECT(plain_call(s->world, &p, &f->bed, NULL, &err) == MANTA_EINVAL);
  EXPECT(strstr(err.message, "the ranks make different calls"));
  return 0;
}

// --- groups and messages ------------------------------------------------------------------------

static int do_split(struct player *s)
{
  manta_comm **g = &s->group[draw(&s->common, GROUPS)];
  uint64_t colours = draw(&s->common, 3) + 1, keys = draw(&s->common, UINT64_MAX);
  manta_error err = MANTA_ERROR_INIT;
  int line = land_all(s); // some may be on the group that goes
  if (line)
    return line;
  manta_comm_free(*g);
  int color = (int)(plain_mix(keys + (uint64_t)s->rank) % (colours + 1)) - 1;
  int key = (int)(plain_mix(keys + 99 + (uint64_t)s->rank) % 7) - 3;
  EXPECT(manta_comm_split(s->world, color, key, g, &err) == MANTA_OK);
  EXPECT((*g == NULL) == (color < 0));
  return 0;
}

static bool holds(const uint8_t *p, uint64_t key, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (p[i] != (uint8_t)(plain_mix(key) >> i % 56 & 0xff))
      return false;
  return true;
}

static void fill(uint8_t *p, uint64_t key, size_t n)
{
  for (size_t i = 0; i < n; i++)
    p[i] = (uint8_t)(plain_mix(key) >> i % 56 & 0xff);
}

// Everybody to its neighbour, some places away; sent first or received first.
static int do_mail(struct player *s)
{
  uint64_t key = draw(&s->common, UINT64_MAX), away = draw(&s->common, 4) + 1;
  size_t bytes = (size_t)draw(&s->common, draw(&s->common, 2) ? MAIL : 500);
  bool wrong = draw(&s->common, 10) == 0;
  manta_error err = MANTA_ERROR_INIT;
  manta_work *out, *in = NULL;
  if (away % (uint64_t)s->n == 0)
    return 0;
  int to = (s->rank + (int)away) % s->n, from = (s->rank + s->n - (int)away % s->n) % s->n;
  uint8_t *send = draw(&s->own, 2) ? s->shared : s->mail[0];
  manta_dtype other = wrong ? MANTA_I8 : MANTA_U8;
  bool first = draw(&s->own, 2);
  fill(send, key + (uint64_t)s->rank, bytes);
  if (first)
    EXPECT(manta_comm_recv_start(s->world, s->mail[1], bytes, other, from, &in, &err) == MANTA_OK);
  EXPECT(manta_comm_send_start(s->world, send, bytes, MANTA_U8, to, &out, &err) == MANTA_OK);
  manta_status st = first ? manta_work_wait(in, &err)
                          : manta_comm_recv(s->world, s->mail[1], bytes, other, from, &err);
  EXPECT(st == (wrong ? MANTA_EINVAL : MANTA_OK));
  EXPECT(wrong || holds(s->mail[1], key + (uint64_t)from, bytes));
  EXPECT(manta_work_wait(out, &err) == MANTA_OK);
  return 0;
}

// --- the game -----------------------------------------------------------------------------------

static void dawdle(struct player *s)
{
  switch (draw(&s->own, 24)) {
  case 0:
    usleep((useconds_t)draw(&s->own, 3000));
    break;
  case 1:
  case 2:
    sched_yield();
    break;
  default:
    break;
  }
}

static int do_step(struct player *s)
{
  uint64_t what = draw(&s->common, 32);
  dawdle(s);
  s->steps++;
  if (what == 0)
    return do_mismatch(s);
  if (what <= 2)
    return do_split(s);
  if (what <= 7)
    return do_mail(s);
  return do_call(s, what % 2);
}

// Rank 0 says when it is enough; all hear it in the same step.
static int go_on(struct player *s, int64_t by, bool *more)
{
  uint8_t yes = s->rank == 0 && manta__now() < by;
  manta_error err = MANTA_ERROR_INIT;
  EXPECT(manta_comm_broadcast(s->world, &yes, 1, MANTA_U8, 0, &err) == MANTA_OK);
  *more = yes;
  return 0;
}

static int play(manta_comm *c, int rank, int n, struct shared *sh)
{
  struct player *s = calloc(1, sizeof *s);
  int64_t by = manta__now() + (int64_t)(seconds * 1e9);
  bool more = true;
  int line = 0;
  alarm(PATIENCE + (unsigned)seconds);
  *s = (struct player){
      .world = c, .rank = rank, .n = n, .common = seed, .own = seed + 1u + (unsigned)rank};
  for (int i = 0; i < FLIGHT && !line; i++)
    line = plain_open(&s->flight[i].bed, c, n, ROOM);
  for (int i = 0; i < 2; i++)
    s->mail[i] = malloc(MAIL);
  EXPECT(manta_shm_alloc(c, MAIL, (void **)&s->shared, NULL) == MANTA_OK);
  while (more && !line) {
    for (int i = 0; i < 40 && !line; i++)
      line = do_step(s);
    atomic_store(&sh->note[rank], (int64_t)s->steps);
    line = line ? line : go_on(s, by, &more);
  }
  line = line ? line : land_all(s);
  if (line)
    fprintf(stderr, "SEED=%llu, %d ranks: rank %d fails in step %llu\n", (unsigned long long)seed,
            n, rank, (unsigned long long)s->steps);
  for (int i = 0; i < FLIGHT; i++)
    plain_close(&s->flight[i].bed, c);
  for (int i = 0; i < 2; i++)
    free(s->mail[i]);
  free(s); // groups end with the world
  return line;
}

// Stops one rank after the other for a moment, until one has ended.
static void disturb(struct ranks *t)
{
  uint64_t g = seed * 3;
  siginfo_t info = {0};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
    pid_t pid = t->pid[draw(&g, (uint64_t)t->n)];
    usleep((useconds_t)draw(&g, 20000));
    manta__proc_signal(pid, SIGSTOP);
    usleep((useconds_t)draw(&g, 4000));
    manta__proc_signal(pid, SIGCONT);
  }
}

// Large all-reduces go one way, or that which is found to be fastest.
static void a_random_game(int n)
{
  static const char *const ways[] = {"", "cached", "past", "remote"};
  struct ranks t;
  setenv("MANTA_COMM_WAY", ways[(seed + (uint64_t)n) % 4], 1);
  ranks_start(&t, n, play);
  disturb(&t);
  int bad = ranks_end(&t);
  if (bad)
    fail_msg("SEED=%llu: %d of %d ranks failed", (unsigned long long)seed, bad, n);
}

#define GAME(n)                                                                                    \
  static void ranks_##n(void **state)                                                              \
  {                                                                                                \
    a_random_game(n);                                                                              \
  }
GAME(2)
GAME(3)
GAME(4)
GAME(5)

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_2),
      cmocka_unit_test(ranks_3),
      cmocka_unit_test(ranks_4),
      cmocka_unit_test(ranks_5),
  };
  struct timespec now;
  const char *given = getenv("SEED"), *length = getenv("GAME_SECONDS");
  clock_gettime(CLOCK_REALTIME, &now);
  seed = given ? strtoull(given, NULL, 10) : (uint64_t)now.tv_nsec / 1000;
  seconds = length ? strtod(length, NULL) : seconds;
  print_message("# SEED=%llu\n", (unsigned long long)seed);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
