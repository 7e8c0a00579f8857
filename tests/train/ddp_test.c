/* SPDX-License-Identifier: Apache-2.0
 *
 * Data-parallel training over real processes. Every rank knows what all ranks contribute, so each
 * computes what must come out by plain means and compares the bits after every sync.
 */
#include <manta/ddp.h>

#include "base/half.h"
#include "base/hash.h"
#include "comm/reduce/reduce.h"
#include "rig.h"
#include "sys/host.h"

// --- a model ------------------------------------------------------------------------------------

static const struct {
  const char *name;
  size_t count;
  manta_dtype type;
} layer[] = {
    {"embedding", 5000, MANTA_F32}, {"bias 0", 3, MANTA_F32},    {"scale", 1000, MANTA_F64},
    {"weight 1", 1400, MANTA_F32},  {"bias 1", 999, MANTA_BF16}, {"empty", 0, MANTA_F32},
    {"half", 501, MANTA_F16},       {"one", 1, MANTA_F32},       {"weight 2", 4321, MANTA_F32},
    {"late", 2500, MANTA_BF16},     {"head", 17, MANTA_F32},
};
enum { LAYERS = sizeof layer / sizeof *layer, RANKS = 4, STEPS = 4 };

struct plan {
  size_t times; /* so much larger is every parameter; 0: as above */
  size_t bucket;
  int overlap; /* 1 on, 2 off */
  int order;   /* of the ready calls */
  bool compress;
  double clip;
  int micro; /* steps that are accumulated */
  int steps;
};

struct truth { /* of a step, before it is clipped */
  void *mean[LAYERS];
  long double norm;
};

struct model {
  manta_ddp *d;
  struct plan plan;
  int rank, size;
  size_t count[LAYERS];
  void *w[LAYERS], *g[LAYERS];
  float *left[RANKS][LAYERS]; /* the reference's own, of every rank */
  void *in[RANKS];            /* contributions to one parameter */
  void *want[LAYERS];
  struct truth *kept; /* of every step, by a training with the same arithmetic; NULL: none */
};

static float contribution(const struct model *m, int k, size_t i, int rank, int64_t step, int micro)
{
  unsigned n = (unsigned)(i * 31 + (size_t)k * 17 + (size_t)rank * 7) + (unsigned)step * 13;
  float w = layer[k].type == MANTA_F32 ? ((const float *)m->w[k])[i] : 0;
  return w * 0.1f + (float)((n + (unsigned)micro * 5) % 1009) / 997.0f - 0.5f;
}

static float get(const void *x, int k, size_t i)
{
  switch (layer[k].type) {
  case MANTA_F64:
    return (float)((const double *)x)[i];
  case MANTA_F16:
    return manta__f32_of_f16(((const uint16_t *)x)[i]);
  case MANTA_BF16:
    return manta__f32_of_bf16(((const uint16_t *)x)[i]);
  default:
    return ((const float *)x)[i];
  }
}

static void put(void *x, int k, size_t i, float v)
{
  if (layer[k].type == MANTA_F64)
    ((double *)x)[i] = (double)v;
  else if (layer[k].type == MANTA_F16)
    ((uint16_t *)x)[i] = manta__f16_of_f32(v);
  else if (layer[k].type == MANTA_BF16)
    ((uint16_t *)x)[i] = manta__bf16_of_f32(v);
  else
    ((float *)x)[i] = v;
}

static void accumulate(const struct model *m, void *g, int k, int rank, int64_t step, int micro)
{
  for (size_t i = 0; i < m->count[k]; i++) {
    float before = micro > 0 ? get(g, k, i) : 0;
    put(g, k, i, before + contribution(m, k, i, rank, step, micro));
  }
}

// --- the reference ------------------------------------------------------------------------------

// Rounds to bf16 in place what rank r contributes, with what was left over before.
static void round_contribution(struct model *m, int k, int r)
{
  float *g = m->in[r], *left = m->left[r][k];
  uint16_t *to = m->in[r];
  for (size_t i = 0; i < m->count[k]; i++) {
    float v = g[i] + left[i];
    uint16_t rounded = manta__bf16_of_f32(v);
    left[i] = v - manta__f32_of_bf16(rounded);
    to[i] = rounded; // never before it is read: 2 * i <= 4 * i
  }
}

static void mean_of(struct model *m, int k)
{
  bool packed = m->plan.compress && layer[k].type == MANTA_F32;
  for (int r = 0; packed && r < m->size; r++)
    round_contribution(m, k, r);
  manta__reduce_ref(m->want[k], (const void *const *)m->in, m->size, m->count[k],
                    packed ? MANTA_BF16 : layer[k].type, MANTA_MEAN);
  float *wide = m->want[k];
  const uint16_t *narrow = m->want[k];
  for (size_t i = m->count[k]; packed && i > 0; i--)
    wide[i - 1] = manta__f32_of_bf16(narrow[i - 1]);
}

static long double make_truth(struct model *m, int64_t step)
{
  long double squares = 0;
  for (int k = 0; k < LAYERS; k++) {
    for (int r = 0; r < m->size; r++)
      for (int micro = 0; micro < m->plan.micro; micro++)
        accumulate(m, m->in[r], k, r, step, micro);
    mean_of(m, k);
    for (size_t i = 0; i < m->count[k]; i++) {
      long double v = layer[k].type == MANTA_F64 ? ((double *)m->want[k])[i] // style: not by f32
                                                 : (double)get(m->want[k], k, i);
      squares += v * v;
    }
  }
  return sqrtl(squares);
}

/* Layouts do not change the truth, and that of the step before was met: made once it serves all. */
static long double expect(struct model *m, int64_t step)
{
  struct truth *t = m->kept ? &m->kept[step - 1] : NULL;
  bool made = t && t->mean[0];
  long double norm = made ? t->norm : make_truth(m, step);
  for (int k = 0; t && k < LAYERS; k++) {
    size_t bytes = m->count[k] * manta_dtype_bytes(layer[k].type);
    if (!made)
      t->mean[k] = malloc(bytes + 1);
    memcpy(made ? m->want[k] : t->mean[k], made ? t->mean[k] : m->want[k], bytes);
  }
  if (t)
    t->norm = norm;
  return norm;
}

static void forget(struct truth kept[STEPS])
{
  for (int i = 0; i < STEPS; i++)
    for (int k = 0; k < LAYERS; k++)
      free(kept[i].mean[k]);
}

static void clip_expected(struct model *m, double norm)
{
  double by = m->plan.clip / norm;
  for (int k = 0; k < LAYERS; k++)
    for (size_t i = 0; i < m->count[k]; i++)
      if (layer[k].type == MANTA_F64)
        ((double *)m->want[k])[i] *= by;
      else
        put(m->want[k], k, i, get(m->want[k], k, i) * (float)by);
}

static manta_status compare(const struct model *m, int64_t step, manta_error *err)
{
  for (int k = 0; k < LAYERS; k++) {
    size_t bytes = manta_dtype_bytes(layer[k].type);
    for (size_t i = 0; i < m->count[k]; i++)
      if (memcmp((char *)m->g[k] + i * bytes, (char *)m->want[k] + i * bytes, bytes) != 0)
        return manta_error_set(err, MANTA_EUSER,
                               "step %lld, %s[%zu]: %g instead of %g (bucket %zu overlap %d order "
                               "%d compress %d clip %g micro %d)",
                               (long long)step, layer[k].name, i, (double)get(m->g[k], k, i),
                               (double)get(m->want[k], k, i), m->plan.bucket, m->plan.overlap,
                               m->plan.order, m->plan.compress, m->plan.clip, m->plan.micro);
  }
  return MANTA_OK;
}

// --- a training ---------------------------------------------------------------------------------

static manta_status model_open(struct model *m, manta_session *s, const struct plan *plan,
                               manta_error *err)
{
  manta_ddp_config cfg = MANTA_DDP_CONFIG_INIT;
  *m = (struct model){
      .plan = *plan, .rank = manta_session_rank(s), .size = manta_session_world_size(s)};
  cfg.bucket_bytes = plan->bucket;
  cfg.overlap = (manta_ddp_overlap)plan->overlap;
  cfg.compress = plan->compress;
  cfg.clip_norm = plan->clip;
  cfg.check_every = 1;
  size_t most = 0;
  for (int k = 0; k < LAYERS; k++) {
    m->count[k] = layer[k].count * (plan->times ? plan->times : 1);
    most = m->count[k] > most ? m->count[k] : most;
  }
  for (int r = 0; r < RANKS; r++)
    m->in[r] = calloc(most, 8);
  for (int k = 0; k < LAYERS; k++) {
    m->want[k] = calloc(m->count[k] + 1, 8);
    for (int r = 0; r < RANKS; r++)
      m->left[r][k] = calloc(m->count[k] + 1, sizeof(float));
  }
  MANTA_TRY(manta_ddp_create(&m->d, manta_session_comm(s), &cfg, err));
  for (int k = 0; k < LAYERS; k++)
    MANTA_TRY(
        manta_ddp_add(m->d, layer[k].name, m->count[k], layer[k].type, &m->w[k], &m->g[k], err));
  return MANTA_OK;
}

static void model_close(struct model *m)
{
  manta_ddp_destroy(m->d);
  for (int r = 0; r < RANKS; r++)
    free(m->in[r]);
  for (int k = 0; k < LAYERS; k++) {
    free(m->want[k]);
    for (int r = 0; r < RANKS; r++)
      free(m->left[r][k]);
  }
}

// Rank 0's are what all begin with.
static void fill(struct model *m)
{
  for (int k = 0; k < LAYERS; k++)
    for (size_t i = 0; i < m->count[k]; i++)
      put(m->w[k], k, i, (float)(i % 13) * 0.25f + (float)m->rank);
}

static manta_status check_begun(struct model *m, manta_error *err)
{
  for (int k = 0; k < LAYERS; k++)
    for (size_t i = 0; i < m->count[k]; i++)
      if (get(m->w[k], k, i) != (float)(i % 13) * 0.25f)
        return manta_error_set(err, MANTA_EUSER, "%s[%zu] is not rank 0's", layer[k].name, i);
  if (manta_ddp_count(m->d) != LAYERS || manta_ddp_param(m->d, 3)->data != m->w[3] ||
      manta_ddp_grad(m->d, 3)->data != m->g[3] || manta_ddp_param(m->d, LAYERS) ||
      manta_ddp_overlaps(m->d) != (m->plan.overlap == 1))
    return manta_error_set(err, MANTA_EUSER, "the parameters are not those that were added");
  return MANTA_OK;
}

enum { BACKWARD, FORWARD, BY_RANK, NEVER, SOME, ORDERS };

// The i-th parameter to become ready, or -1 if that one never does.
static int ready_at(const struct model *m, int i)
{
  int order[] = {LAYERS - 1 - i, i, (i * 3 + m->rank * 5) % LAYERS, -1,
                 i % 3 == 0 ? -1 : LAYERS - 1 - i};
  return order[m->plan.order];
}

static manta_status backward(struct model *m, int64_t step, int micro, manta_error *err)
{
  MANTA_TRY(manta_ddp_pause(m->d, micro < m->plan.micro - 1, err));
  for (int k = 0; k < LAYERS; k++) // unused ones too: what is never ready is reduced as it is
    if (m->plan.order == NEVER || m->plan.order == SOME)
      accumulate(m, m->g[k], k, m->rank, step, micro);
  for (int i = 0; i < LAYERS; i++) {
    int k = ready_at(m, i);
    if (k < 0)
      continue;
    if (m->plan.order != SOME)
      accumulate(m, m->g[k], k, m->rank, step, micro);
    MANTA_TRY(manta_ddp_ready(m->d, (size_t)k, err));
  }
  return MANTA_OK;
}

static void update(struct model *m)
{
  for (int k = 0; k < LAYERS; k++)
    for (size_t i = 0; i < m->count[k]; i++)
      put(m->w[k], k, i, get(m->w[k], k, i) - 0.05f * get(m->g[k], k, i));
}

static manta_status train_step(struct model *m, int64_t step, manta_error *err)
{
  double norm = 0;
  long double want = expect(m, step);
  MANTA_TRY(manta_ddp_zero_grad(m->d, err));
  for (int micro = 0; micro < m->plan.micro; micro++)
    MANTA_TRY(backward(m, step, micro, err));
  MANTA_TRY(manta_ddp_sync(m->d, &norm, err));
  if (!(fabsl((long double)norm - want) <= 1e-12L * want))
    return manta_error_set(err, MANTA_EUSER, "step %lld: norm %.17g instead of %.17Lg",
                           (long long)step, norm, want);
  if (m->plan.clip > 0 && norm > m->plan.clip)
    clip_expected(m, norm);
  MANTA_TRY(compare(m, step, err));
  update(m);
  return MANTA_OK;
}

static uint64_t weights_hash(const struct model *m)
{
  uint64_t h = 0;
  for (int k = 0; k < LAYERS; k++)
    h = manta__hash_seed(m->w[k], m->count[k] * manta_dtype_bytes(layer[k].type), h);
  return h >> 1;
}

static manta_status train_model(struct model *m, uint64_t *hash, manta_error *err)
{
  fill(m);
  MANTA_TRY(manta_ddp_begin(m->d, err));
  MANTA_TRY(check_begun(m, err));
  for (int step = 1; step <= m->plan.steps; step++)
    MANTA_TRY(train_step(m, step, err));
  *hash = weights_hash(m);
  return MANTA_OK;
}

static manta_status train_plan(manta_session *s, const struct plan *plan, struct truth kept[STEPS],
                               uint64_t *hash, manta_error *err)
{
  struct model m;
  manta_status st = model_open(&m, s, plan, err);
  m.kept = kept;
  if (st == MANTA_OK)
    st = train_model(&m, hash, err);
  model_close(&m);
  return st;
}

// --- the same bits ------------------------------------------------------------------------------

static const size_t bucket_bytes[] = {1 << 10, 1 << 20, 25 << 20};

// For one kind of arithmetic: all buckets, with and without overlap, in every order.
static manta_status all_layouts(manta_session *s, struct plan plan, struct truth kept[STEPS],
                                manta_error *err)
{
  uint64_t first = 0, hash = 0;
  for (int b = 0; b < 3; b++)
    for (plan.overlap = 1; plan.overlap <= 2; plan.overlap++)
      for (plan.order = 0; plan.order < (plan.times ? 1 : ORDERS); plan.order++) {
        plan.bucket = bucket_bytes[b];
        MANTA_TRY(train_plan(s, &plan, kept, &hash, err));
        first = first ? first : hash;
        if (hash != first)
          return manta_error_set(err, MANTA_EUSER, "bucket %zu overlap %d order %d: other bits",
                                 plan.bucket, plan.overlap, plan.order);
      }
  return MANTA_OK;
}

static manta_status layouts(manta_session *s, manta_value *result, manta_error *err)
{
  const struct plan plans[] = {
      {.micro = 1, .steps = 3},
      {.micro = 3, .steps = 2, .clip = 2.5},
      {.micro = 1, .steps = 4, .compress = true},
      {.micro = 2, .steps = 3, .compress = true, .clip = 0.75},
      {.micro = 1, .steps = 1, .clip = 1e9}, // never reached
      {.micro = 1, .steps = 2, .clip = 1, .times = 60},
  };
  manta_status st = MANTA_OK;
  for (size_t i = 0; i < sizeof plans / sizeof *plans && st == MANTA_OK; i++) {
    struct truth kept[STEPS] = {0};
    if (!plans[i].times || manta_session_world_size(s) == 3) // that one takes long
      st = all_layouts(s, plans[i], kept, err);
    forget(kept);
  }
  return st;
}

static void every_layout_gives_the_bits_of_the_reference(void **state)
{
  for (int n = 1; n <= RANKS; n++) {
    struct rig r;
    rig_init(&r, n);
    rig_make(&r);
    assert_ok(manta_trainer_execute(r.t, layouts, NULL, NULL, &r.err), &r.err);
    rig_fini(&r);
  }
}

// --- a death ------------------------------------------------------------------------------------

static void *kill_soon(void *after_us)
{
  usleep((useconds_t)(uintptr_t)after_us);
  raise(SIGKILL);
  return NULL;
}

static void maybe_die(manta_session *s, int64_t step)
{
  pthread_t t;
  if (manta_session_rank(s) != manta_session_config_int(s, "victim", -1) ||
      manta_session_attempt(s) > 0 || step != 13)
    return;
  board->fired++;
  int64_t us = manta_session_config_int(s, "after_us", 0);
  if (us < 0) // between ready and sync
    raise(SIGKILL);
  if (pthread_create(&t, NULL, kill_soon, (void *)(uintptr_t)us) != 0)
    raise(SIGKILL);
}

static manta_status recovering_step(manta_session *s, struct model *m, int64_t step,
                                    manta_error *err)
{
  MANTA_TRY(backward(m, step, 0, err));
  maybe_die(s, step);
  MANTA_TRY(manta_ddp_sync(m->d, NULL, err));
  update(m);
  manta_value row = MANTA_MAP(MANTA_KV_INT("count", step));
  MANTA_TRY(manta_session_report(s, &row, err));
  manta_tensor more = MANTA_VECTOR("more", MANTA_I64, &step, 1);
  return step % 5 == 0 ? manta_ddp_save(m->d, s, &more, 1, &row, err) : MANTA_OK;
}

// After a lost peer every call says so.
static manta_status check_lost(struct model *m, manta_status st, manta_error *err)
{
  manta_error first = MANTA_ERROR_INIT, e = MANTA_ERROR_INIT;
  if (st != MANTA_EPEERLOST)
    return st;
  if (manta_ddp_sync(m->d, NULL, &first) != st || manta_ddp_ready(m->d, 0, &e) != st ||
      manta_ddp_zero_grad(m->d, &e) != st || strcmp(e.message, first.message) != 0)
    return manta_error_set(err, MANTA_EUSER, "after a lost peer: %s, then %s", first.message,
                           e.message);
  return st;
}

static manta_status recover(manta_session *s, struct model *m, manta_value *result,
                            manta_error *err)
{
  manta_checkpoint *c;
  int64_t more = 0, step = manta_session_iteration(s);
  MANTA_TRY(manta_session_load(s, &c, err));
  manta_status st = c && m->rank == 0 ? manta_ddp_load(m->d, c, err) : MANTA_OK;
  if (st == MANTA_OK && c)
    st = manta_checkpoint_copy(c, "more", &more, sizeof more, err);
  manta_checkpoint_close(c);
  MANTA_TRY(st);
  if (more != step)
    return manta_error_set(err, MANTA_EUSER, "saved at %lld, loaded at %lld", (long long)more,
                           (long long)step);
  MANTA_TRY(manta_ddp_begin(m->d, err));
  while (step < m->plan.steps)
    MANTA_TRY(recovering_step(s, m, ++step, err));
  return manta_value_set_int(result, (int64_t)weights_hash(m));
}

static manta_status recovering(manta_session *s, manta_value *result, manta_error *err)
{
  struct model m;
  struct plan plan = {.bucket = 64 << 10, .micro = 1, .steps = 20};
  plan.overlap = (int)manta_session_config_int(s, "overlap", 0);
  plan.compress = manta_session_config_bool(s, "compress", false);
  board_open();
  board->pid[manta_session_rank(s)] = getpid();
  manta_status st = model_open(&m, s, &plan, err);
  if (st == MANTA_OK)
    st = check_lost(&m, recover(s, &m, result, err), err);
  model_close(&m);
  return st;
}

static int64_t recovered(int workers, int overlap, bool compress, int victim, int after_us)
{
  struct rig r;
  rig_init(&r, workers);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_INT("overlap", overlap), MANTA_KV_BOOL("compress", compress),
                            MANTA_KV_INT("victim", victim), MANTA_KV_INT("after_us", after_us));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, recovering, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, victim >= 0);
  int64_t first = manta_value_as_int(manta_value_at(&r.results, 0), -1);
  for (int i = 1; i < workers; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, (size_t)i), -2), first);
  rig_fini(&r);
  return first;
}

static void a_kill_does_not_change_a_bit(void **state)
{
  static const int after_us[] = {-1, 0, 150, 500};
  for (int compress = 0; compress < 2; compress++) {
    int64_t quiet = recovered(3, 2, compress, -1, 0);
    for (int overlap = 1; overlap <= 2; overlap++)
      for (int i = 0; i < 4; i++)
        assert_int_equal(recovered(3, overlap, compress, (i + overlap) % 3, after_us[i]), quiet);
  }
}

// Rank 0 leaves in the middle of a step; rank 1 never comes to it.
static manta_status leaving(manta_session *s, manta_value *result, manta_error *err)
{
  struct model m;
  struct plan plan = {.overlap = 1, .micro = 1};
  manta_status st = model_open(&m, s, &plan, err);
  if (st == MANTA_OK)
    st = manta_ddp_begin(m.d, err);
  if (st == MANTA_OK && m.rank == 0) {
    backward(&m, 1, 0, err);
    st = manta_error_set(err, MANTA_EUSER, "rank 0 has had enough");
  }
  while (st == MANTA_OK)
    st = manta_session_check(s, err);
  model_close(&m);
  return st;
}

static void leaving_in_the_middle_does_not_hang(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.max_retries = -2;
  rig_make(&r);
  assert_status(manta_trainer_run(r.t, leaving, &r.rc, NULL, &r.err), MANTA_EUSER);
  assert_has(r.err.message, "rank 0 has had enough");
  rig_fini(&r);
  assert_nothing_left();
}

// --- convergence --------------------------------------------------------------------------------

enum { TARGETS = 1000 };

// The ranks pull to different targets; the minimum lies at their mean. Steps get so small that bf16
// alone would not move on.
static manta_status descend(manta_session *s, manta_ddp *d, manta_value *result, manta_error *err)
{
  float *w, *g;
  double worst = 0;
  MANTA_TRY(manta_ddp_add(d, "w", TARGETS, MANTA_F32, (void **)&w, (void **)&g, err));
  MANTA_TRY(manta_ddp_begin(d, err));
  for (int step = 0; step < 400; step++) {
    for (int i = 0; i < TARGETS; i++)
      g[i] = w[i] - ((float)i / 3 + (float)manta_session_rank(s) * 100);
    MANTA_TRY(manta_ddp_ready(d, 0, err));
    MANTA_TRY(manta_ddp_sync(d, NULL, err));
    for (int i = 0; i < TARGETS; i++)
      w[i] -= 0.05f * g[i];
  }
  double middle = (manta_session_world_size(s) - 1) * 50.0;
  for (int i = 0; i < TARGETS; i++) {
    double off = fabs((double)w[i] - (double)((float)i / 3) - middle);
    worst = off > worst ? off : worst;
  }
  return manta_value_set_real(result, worst);
}

static manta_status converging(manta_session *s, manta_value *result, manta_error *err)
{
  manta_ddp_config cfg = MANTA_DDP_CONFIG_INIT;
  manta_ddp *d;
  cfg.compress = true;
  MANTA_TRY(manta_ddp_create(&d, manta_session_comm(s), &cfg, err));
  manta_status st = descend(s, d, result, err);
  manta_ddp_destroy(d);
  return st;
}

static void a_compressed_training_converges(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, converging, &r.rc, &r.results, &r.err), &r.err);
  // A gradient of a single rank is about 50 here, whose last place in bf16 is 0.25.
  assert_near(manta_value_as_real(manta_value_at(&r.results, 0), NAN), 0, 0.05);
  rig_fini(&r);
}

// --- a choice -----------------------------------------------------------------------------------

static manta_status choosing(manta_session *s, manta_value *result, manta_error *err)
{
  manta_ddp *d;
  MANTA_TRY(manta_ddp_create(&d, manta_session_comm(s), NULL, err));
  manta_status st = manta_ddp_begin(d, err); // a model without parameters is fine
  if (st == MANTA_OK)
    st = manta_ddp_sync(d, NULL, err);
  if (st == MANTA_OK)
    st = manta_value_set_bool(result, manta_ddp_overlaps(d));
  manta_ddp_destroy(d);
  return st;
}

static void overlap_needs_two_cpus_per_rank(void **state)
{
  struct manta__host h;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__host_read(&h, "", &err), &err);
  for (int n = 1; n <= 3; n++) {
    struct rig r;
    bool want = n > 1 && h.cpus >= 2.0 * n;
    rig_init(&r, n);
    rig_make(&r);
    assert_ok(manta_trainer_execute(r.t, choosing, NULL, &r.results, &r.err), &r.err);
    for (int i = 0; i < n; i++)
      assert_int_equal(manta_value_as_bool(manta_value_at(&r.results, (size_t)i), !want), want);
    rig_fini(&r);
  }
  manta__host_fini(&h);
}

// --- ranks that differ --------------------------------------------------------------------------

static manta_status corrupting(manta_session *s, manta_value *result, manta_error *err)
{
  struct model m;
  struct plan plan = {.overlap = 2, .micro = 1, .steps = 6};
  manta_status st = model_open(&m, s, &plan, err);
  if (st == MANTA_OK)
    st = manta_ddp_begin(m.d, err);
  for (int step = 1; st == MANTA_OK && step <= plan.steps; step++) {
    st = manta_ddp_sync(m.d, NULL, err);
    if (step == 3 && m.rank == manta_session_world_size(s) - 2) {
      ((uint16_t *)m.w[9])[2499] ^= 1;
      ((uint16_t *)m.w[6])[7] ^= 1;
    }
  }
  model_close(&m);
  return st;
}

static void a_replica_that_differs_is_named(void **state)
{
  for (int n = 2; n <= 4; n++) {
    struct rig r;
    char want[128];
    rig_init(&r, n);
    r.cfg.max_retries = -2;
    rig_make(&r);
    assert_status(manta_trainer_run(r.t, corrupting, &r.rc, NULL, &r.err), MANTA_ECORRUPT);
    // Of two nobody can say who is right: the first is.
    int who = n == 2 ? 1 : n - 2;
    snprintf(want, sizeof want,
             "replicas differ at sync 4: rank %d has another 'half' (parameter 6 of 11) than rank "
             "0; 1 of %d ranks differ",
             who, n);
    assert_has(r.err.message, want);
    rig_fini(&r);
  }
}

static manta_status mismatched(manta_session *s, manta_value *result, manta_error *err)
{
  const char *how = manta_session_config_string(s, "how", "");
  bool odd = manta_session_rank(s) == 1;
  manta_ddp_config cfg = MANTA_DDP_CONFIG_INIT;
  manta_ddp *d;
  cfg.clip_norm = odd && !strcmp(how, "config") ? 2 : 1;
  MANTA_TRY(manta_ddp_create(&d, manta_session_comm(s), &cfg, err));
  manta_status st = manta_ddp_add(d, "a", 10, MANTA_F32, NULL, NULL, err);
  if (st == MANTA_OK)
    st = manta_ddp_add(d, odd && !strcmp(how, "name") ? "c" : "b",
                       odd && !strcmp(how, "count") ? 8 : 9,
                       odd && !strcmp(how, "type") ? MANTA_F64 : MANTA_F32, NULL, NULL, err);
  if (st == MANTA_OK && odd && !strcmp(how, "more"))
    st = manta_ddp_add(d, "d", 1, MANTA_F32, NULL, NULL, err);
  if (st == MANTA_OK)
    st = manta_ddp_begin(d, err);
  manta_ddp_destroy(d);
  return st;
}

static void ranks_that_add_different_things_are_told(void **state)
{
  static const char *const cases[][2] = {
      {"name", "rank 1 has parameter 1 'c' of 9 F32, rank 0 parameter 1 'b' of 9 F32"},
      {"count", "rank 1 has parameter 1 'b' of 8 F32, rank 0 parameter 1 'b' of 9 F32"},
      {"type", "rank 1 has parameter 1 'b' of 9 F64, rank 0 parameter 1 'b' of 9 F32"},
      {"more", "rank 1 has parameter 2 'd' of 1 F32, rank 0 2 parameters"},
      {"config", "clip_norm 2, check_every 100, rank 0 2 parameters"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct rig r;
    rig_init(&r, 3);
    r.cfg.max_retries = -2;
    rig_make(&r);
    manta_value c = MANTA_MAP(MANTA_KV_STR("how", cases[i][0]));
    r.rc.config = &c;
    assert_status(manta_trainer_run(r.t, mismatched, &r.rc, NULL, &r.err), MANTA_EINVAL);
    assert_has(r.err.message, "the ranks do not train the same: ");
    assert_has(r.err.message, cases[i][1]);
    rig_fini(&r);
  }
}

// --- wrong calls --------------------------------------------------------------------------------

#define WANT(expr, want)                                                                           \
  do {                                                                                             \
    manta_status want_st = (expr);                                                                 \
    if (want_st != (want))                                                                         \
      return manta_error_set(err, MANTA_EUSER, "%s: %s: %s", #expr, manta_status_name(want_st),    \
                             e.message);                                                           \
  } while (0)

static manta_status wrong_configs(manta_comm *comm, manta_error *err)
{
  manta_error e = MANTA_ERROR_INIT;
  manta_ddp *d = NULL;
  manta_ddp_config c[5] = {MANTA_DDP_CONFIG_INIT, MANTA_DDP_CONFIG_INIT, MANTA_DDP_CONFIG_INIT,
                           MANTA_DDP_CONFIG_INIT, MANTA_DDP_CONFIG_INIT};
  c[0].size = 0;
  c[1].bucket_bytes = 7;
  c[2].clip_norm = NAN;
  c[3].check_every = -2;
  c[4].overlap = (manta_ddp_overlap)3;
  for (int i = 0; i < 5; i++)
    WANT(manta_ddp_create(&d, comm, &c[i], &e), MANTA_EINVAL);
  WANT(manta_ddp_create(&d, NULL, NULL, &e), MANTA_EINVAL);
  manta_ddp_destroy(d);
  return MANTA_OK;
}

static manta_status wrong_calls(manta_ddp *d, manta_error *err)
{
  manta_error e = MANTA_ERROR_INIT;
  WANT(manta_ddp_add(d, "", 1, MANTA_F32, NULL, NULL, &e), MANTA_EINVAL);
  WANT(manta_ddp_add(d, "a\nb", 1, MANTA_F32, NULL, NULL, &e), MANTA_EINVAL);
  WANT(manta_ddp_add(d, "a", 1, MANTA_I32, NULL, NULL, &e), MANTA_EINVAL);
  WANT(manta_ddp_add(d, "a", SIZE_MAX / 2, MANTA_F32, NULL, NULL, &e), MANTA_EINVAL);
  WANT(manta_ddp_add(d, "a", SIZE_MAX / 65, MANTA_F32, NULL, NULL, &e), MANTA_ENOMEM);
  WANT(manta_ddp_add(d, "a", 1, MANTA_F32, NULL, NULL, &e), MANTA_OK);
  WANT(manta_ddp_ready(d, 0, &e), MANTA_ESTATE);
  WANT(manta_ddp_sync(d, NULL, &e), MANTA_ESTATE);
  WANT(manta_ddp_begin(d, &e), MANTA_OK);
  WANT(manta_ddp_begin(d, &e), MANTA_ESTATE);
  WANT(manta_ddp_add(d, "b", 1, MANTA_F32, NULL, NULL, &e), MANTA_ESTATE);
  WANT(manta_ddp_ready(d, 1, &e), MANTA_EINVAL);
  WANT(manta_ddp_pause(d, true, &e), MANTA_OK);
  WANT(manta_ddp_ready(d, 0, &e), MANTA_OK);
  WANT(manta_ddp_ready(d, 0, &e), MANTA_OK);
  WANT(manta_ddp_sync(d, NULL, &e), MANTA_ESTATE);
  WANT(manta_ddp_pause(d, false, &e), MANTA_OK);
  WANT(manta_ddp_ready(d, 0, &e), MANTA_OK);
  WANT(manta_ddp_ready(d, 0, &e), MANTA_ESTATE);
  WANT(manta_ddp_pause(d, true, &e), MANTA_ESTATE);
  WANT(manta_ddp_zero_grad(d, &e), MANTA_ESTATE);
  WANT(manta_ddp_sync(d, NULL, &e), MANTA_OK);
  return MANTA_OK;
}

static manta_status twice_the_name(manta_ddp *d, manta_error *err)
{
  manta_error e = MANTA_ERROR_INIT;
  WANT(manta_ddp_add(d, "b", 1, MANTA_F32, NULL, NULL, &e), MANTA_OK);
  WANT(manta_ddp_add(d, "a", 1, MANTA_F32, NULL, NULL, &e), MANTA_OK);
  WANT(manta_ddp_add(d, "b", 2, MANTA_F64, NULL, NULL, &e), MANTA_OK);
  WANT(manta_ddp_begin(d, &e), MANTA_EINVAL);
  if (strcmp(e.message, "two parameters are named 'b'") != 0)
    return manta_error_set(err, MANTA_EUSER, "%s", e.message);
  WANT(manta_ddp_sync(d, NULL, &e), MANTA_EINVAL); // it stays
  return MANTA_OK;
}

static manta_status with_ddp(manta_comm *comm, const manta_ddp_config *cfg,
                             manta_status (*f)(manta_ddp *d, manta_error *err), manta_error *err)
{
  manta_ddp *d;
  MANTA_TRY(manta_ddp_create(&d, comm, cfg, err));
  manta_status st = f(d, err);
  manta_ddp_destroy(d);
  return st;
}

static manta_status misusing(manta_session *s, manta_value *result, manta_error *err)
{
  manta_comm *comm = manta_session_comm(s);
  MANTA_TRY(wrong_configs(comm, err));
  MANTA_TRY(with_ddp(comm, NULL, wrong_calls, err));
  return with_ddp(comm, NULL, twice_the_name, err);
}

static void wrong_calls_are_refused(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, misusing, &r.rc, NULL, &r.err), &r.err);
  rig_fini(&r);
}

// --- memory -------------------------------------------------------------------------------------

static manta_status a_small_set(manta_ddp *d, manta_error *err)
{
  char name[16];
  for (int i = 0; i < 40; i++) {
    snprintf(name, sizeof name, "p%d", i);
    MANTA_TRY(manta_ddp_add(d, name, 1000, i % 2 ? MANTA_F32 : MANTA_BF16, NULL, NULL, err));
  }
  MANTA_TRY(manta_ddp_begin(d, err));
  return manta_ddp_sync(d, NULL, err);
}

static manta_status starving(manta_session *s, manta_value *result, manta_error *err)
{
  manta_comm *comm = manta_session_comm(s);
  manta_ddp_config cfg = MANTA_DDP_CONFIG_INIT;
  manta_status st = MANTA_ENOMEM;
  long n = 0;
  cfg.bucket_bytes = 4096;
  cfg.compress = true;
  cfg.check_every = 1;
  cfg.overlap = MANTA_DDP_OVERLAP_OFF;
  for (; st == MANTA_ENOMEM && n < 100000; n++) {
    manta__alloc_fail_after(n);
    st = with_ddp(comm, &cfg, a_small_set, err);
    manta__alloc_fail_after(-1);
  }
  return st < 0 ? st : manta_value_set_int(result, n);
}

static void memory_that_is_not_there_is_an_error(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, starving, &r.rc, &r.results, &r.err), &r.err);
  assert_in_range(manta_value_as_int(manta_value_at(&r.results, 0), 0), 20, 5000);
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(every_layout_gives_the_bits_of_the_reference),
      rig_test(a_kill_does_not_change_a_bit),
      rig_test(leaving_in_the_middle_does_not_hang),
      rig_test(a_compressed_training_converges),
      rig_test(overlap_needs_two_cpus_per_rank),
      rig_test(a_replica_that_differs_is_named),
      rig_test(ranks_that_add_different_things_are_told),
      rig_test(wrong_calls_are_refused),
      rig_test(memory_that_is_not_there_is_an_error),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
