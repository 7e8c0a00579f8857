/* SPDX-License-Identifier: Apache-2.0
 *
 * A reservation is made worker by worker: each gets all it needs or the making stops there. That
 * one loop serves all-or-nothing and elastic requests alike, and undoing it is releasing it.
 */
#include "res/ledger.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/knob.h"
#include "res/need.h"
#include "res/stock.h"

struct manta__ledger {
  struct manta__stock stock;
  bool warned;
};

// A grant and what callers need not see of it.
struct account {
  struct manta__grant grant; // first: a grant is cast back to its account
  struct manta__need need;   // names in it are the request's: only valid while reserving
  int named_at[MANTA__LEDGER_MAX_NAMED]; // places in the stock
  int **gpus;                            // per worker: places in the stock
  int *core_pool, *gpu_pool;             // what the arrays per worker point into
  char *text_pool;
};

// What there was too little of.
enum kind { NOTHING, CPUS, CORES, GPUS, NAMED };
struct shortage {
  enum kind kind;
  int named; // index into need.named
};

// --- Making and unmaking -------------------------------------------------------------------------

void manta__ledger_config_env(struct manta__ledger_config *cfg)
{
  cfg->declares_cpus = manta__knob_number(MANTA__KNOB_NUM_CPUS, &cfg->num_cpus);
  cfg->declares_gpus = manta__knob_whole(MANTA__KNOB_NUM_GPUS, &cfg->num_gpus);
  cfg->resources = manta__knob_text(MANTA__KNOB_RESOURCES);
}

manta_status manta__ledger_create(manta__ledger **out, const struct manta__ledger_config *cfg,
                                  manta_error *err)
{
  manta__ledger *l = manta__calloc(1, sizeof *l);
  if (!l)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the ledger");
  manta_status st = manta__stock_init(&l->stock, cfg, err);
  if (st < 0) {
    manta__free(l);
    return st;
  }
  *out = l;
  return MANTA_OK;
}

manta_status manta__ledger_add_gpus(manta__ledger *l, const struct manta__gpus *gpus,
                                    manta_error *err)
{
  struct manta__ledger_config cfg = {.gpus = gpus};
  manta__ledger_config_env(&cfg);
  return l->stock.gpu_count > 0 ? MANTA_OK : manta__stock_add_gpus(&l->stock, &cfg, err);
}

void manta__ledger_destroy(manta__ledger *l)
{
  if (!l)
    return;
  manta__stock_fini(&l->stock);
  manta__free(l);
}

static void account_free(struct account *a)
{
  manta__free(a->text_pool);
  manta__free(a->gpu_pool);
  manta__free(a->core_pool);
  manta__free(a->gpus);
  manta__free(a->grant.shares);
  manta__free(a);
}

// Room for `n` workers; none is in it yet.
static struct account *account_new(const struct manta__need *need, int n)
{
  size_t workers = (size_t)n, cores = (size_t)need->cores;
  size_t gpus = (size_t)manta__stock_gpus_of(need->gpus);
  size_t text = gpus * sizeof(((struct manta__stock_gpu *)0)->id) + 1;
  struct account *a = manta__calloc(1, sizeof *a);
  if (!a)
    return NULL;
  a->need = *need;
  a->grant.shares = manta__calloc(workers, sizeof *a->grant.shares);
  a->gpus = manta__calloc(workers, sizeof *a->gpus);
  a->core_pool = manta__calloc(workers * cores + 1, sizeof *a->core_pool);
  a->gpu_pool = manta__calloc(workers * gpus + 1, sizeof *a->gpu_pool);
  a->text_pool = manta__calloc(workers, text);
  if (!a->grant.shares || !a->gpus || !a->core_pool || !a->gpu_pool || !a->text_pool) {
    account_free(a);
    return NULL;
  }
  for (size_t i = 0; i < workers; i++) {
    a->grant.shares[i].gpus = a->text_pool + i * text;
    a->grant.shares[i].cores = cores ? a->core_pool + i * cores : NULL;
    a->grant.shares[i].core_count = need->cores;
    a->gpus[i] = a->gpu_pool + i * gpus;
  }
  return a;
}

// --- How many fit at all -------------------------------------------------------------------------

static int64_t gpu_capacity(int count, int64_t units)
{
  return units < MANTA__UNIT ? count * (MANTA__UNIT / units) : count / (units / MANTA__UNIT);
}

static void lower(int *most, int64_t n, struct shortage *s, enum kind kind, int named)
{
  if (n >= *most)
    return;
  *most = (int)n;
  *s = (struct shortage){kind, named};
}

// The workers, `want` at most, that the host could hold if nobody else were here.
static int capacity(const struct manta__stock *s, const struct manta__need *need, int want,
                    struct shortage *why)
{
  int most = want;
  if (need->cores)
    lower(&most, s->core_count / need->cores, why, CORES, 0);
  if (need->strict && need->cpus)
    lower(&most, s->cpus / need->cpus, why, CPUS, 0);
  if (need->gpus)
    lower(&most, gpu_capacity(s->gpu_count, need->gpus), why, GPUS, 0);
  for (int i = 0; i < need->named_count; i++) {
    int at = manta__stock_find(s, need->named[i].name);
    lower(&most, at < 0 ? 0 : s->named[at].total / need->named[i].n, why, NAMED, i);
  }
  return most;
}

// --- Giving one worker its share -----------------------------------------------------------------

static bool take_named(struct manta__stock *s, const struct account *a, struct shortage *why)
{
  const struct manta__need *need = &a->need;
  for (int i = 0; i < need->named_count; i++) {
    const struct manta__stock_named *r = &s->named[a->named_at[i]];
    if (need->named[i].n > r->total - r->used) {
      *why = (struct shortage){NAMED, i};
      return false;
    }
  }
  for (int i = 0; i < need->named_count; i++)
    s->named[a->named_at[i]].used += need->named[i].n;
  return true;
}

static void name_gpus(const struct manta__stock *s, const int *at, int n, char *text)
{
  for (int i = 0; i < n; i++) {
    size_t len = strlen(s->gpus[at[i]].id);
    if (i)
      *text++ = ',';
    memcpy(text, s->gpus[at[i]].id, len + 1);
    text += len;
  }
}

// Gives the next worker of the account all it needs, or nothing.
static manta_status place(struct manta__stock *s, struct account *a, struct shortage *why)
{
  const struct manta__need *need = &a->need;
  struct manta__share *share = &a->grant.shares[a->grant.workers];
  int *gpus = a->gpus[a->grant.workers];
  *why = (struct shortage){CPUS, 0};
  MANTA_TRY(manta__stock_take_cpus(s, need->cpus, need->strict));
  *why = (struct shortage){CORES, 0};
  if (!manta__stock_take_cores(s, need->cores, share->cores))
    goto give_cpus;
  *why = (struct shortage){GPUS, 0};
  if (!manta__stock_take_gpus(s, need->gpus, gpus))
    goto give_cores;
  if (!take_named(s, a, why))
    goto give_gpus;
  name_gpus(s, gpus, manta__stock_gpus_of(need->gpus), share->gpus);
  a->grant.workers++;
  *why = (struct shortage){NOTHING, 0};
  return MANTA_OK;

give_gpus:
  manta__stock_give_gpus(s, need->gpus, gpus);
give_cores:
  manta__stock_give_cores(s, share->cores, need->cores);
give_cpus:
  manta__stock_give_cpus(s, need->cpus, need->strict);
  return MANTA_ENOROOM;
}

void manta__ledger_drop(manta__ledger *l, struct manta__grant *g, int i)
{
  struct account *a = (struct account *)g;
  const struct manta__need *need = &a->need;
  if (i < 0 || i >= g->workers)
    return;
  for (int k = 0; k < need->named_count; k++)
    l->stock.named[a->named_at[k]].used -= need->named[k].n;
  manta__stock_give_gpus(&l->stock, need->gpus, a->gpus[i]);
  manta__stock_give_cores(&l->stock, g->shares[i].cores, need->cores);
  manta__stock_give_cpus(&l->stock, need->cpus, need->strict);
  size_t behind = (size_t)(--g->workers - i);
  memmove(&g->shares[i], &g->shares[i + 1], behind * sizeof *g->shares);
  memmove(&a->gpus[i], &a->gpus[i + 1], behind * sizeof *a->gpus);
}

manta_status manta__ledger_split(manta__ledger *l, struct manta__grant *g,
                                 struct manta__grant **out, manta_error *err)
{
  struct account *a = (struct account *)g;
  int last = g->workers - 1;
  if (last < 0)
    return manta_error_set(err, MANTA_ESTATE, "no worker is left in this grant");
  struct account *one = account_new(&a->need, 1);
  if (!one)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a reservation");
  const struct manta__share *from = &g->shares[last];
  struct manta__share *to = &one->grant.shares[0];
  size_t gpus = (size_t)manta__stock_gpus_of(a->need.gpus);
  if (from->cores)
    memcpy(to->cores, from->cores, (size_t)from->core_count * sizeof *to->cores);
  memcpy(to->gpus, from->gpus, strlen(from->gpus) + 1);
  memcpy(one->gpus[0], a->gpus[last], gpus * sizeof *one->gpus[0]);
  memcpy(one->named_at, a->named_at, sizeof one->named_at);
  one->grant.workers = 1;
  g->workers = last;
  *out = &one->grant;
  return MANTA_OK;
}

void manta__ledger_release(manta__ledger *l, struct manta__grant *g)
{
  if (!g)
    return;
  while (g->workers > 0)
    manta__ledger_drop(l, g, g->workers - 1);
  account_free((struct account *)g);
}

// --- Saying what is missing ----------------------------------------------------------------------

// "4 workers x 2 CPUs = 8 CPUs"
static void say_asked(char *out, size_t size, int workers, int64_t each, const char *one,
                      const char *many)
{
  char x[32];
  double all = (double)each / MANTA__UNIT * workers; // a figure in bytes could overflow thousandths
  if (workers == 1)
    snprintf(out, size, "%s %s", manta__units_text(each, x), each == MANTA__UNIT ? one : many);
  else
    snprintf(out, size, "%d workers x %s %s = %.15g %s", workers, manta__units_text(each, x),
             each == MANTA__UNIT ? one : many, all, all == 1 ? one : many);
}

static void say_need(char *out, size_t size, const struct manta__need *need, int workers,
                     struct shortage why)
{
  if (why.kind == CORES)
    say_asked(out, size, workers, (int64_t)need->cores * MANTA__UNIT, "pinned core",
              "pinned cores");
  else if (why.kind == GPUS)
    say_asked(out, size, workers, need->gpus, "GPU", "GPUs");
  else if (why.kind == NAMED)
    say_asked(out, size, workers, need->named[why.named].n, need->named[why.named].name,
              need->named[why.named].name);
  else
    say_asked(out, size, workers, need->cpus, "CPU", "CPUs");
}

static manta_status say_never(const struct manta__stock *s, const struct manta__need *need,
                              int workers, struct shortage why, manta_error *err)
{
  char asked[400], x[32];
  say_need(asked, sizeof asked, need, workers, why);
  if (why.kind == CORES)
    return manta_error_set(err, MANTA_EINVAL, "asked for %s, this host has %d (affinity mask)",
                           asked, s->core_count);
  if (why.kind == GPUS)
    return manta_error_set(err, MANTA_EINVAL, "asked for %s, this host has %d (%s)", asked,
                           s->gpu_count, s->gpu_note);
  if (why.kind == CPUS)
    return manta_error_set(err, MANTA_EINVAL, "asked for %s, this host has %s (%s)", asked,
                           manta__units_text(s->cpus, x), s->cpu_note);
  const char *name = need->named[why.named].name;
  int at = manta__stock_find(s, name);
  return manta_error_set(err, MANTA_EINVAL,
                         "asked for %s, this host has %s (by MANTA_RESOURCES)\n"
                         "hint: MANTA_RESOURCES='{\"%s\": 1}' declares what a host has",
                         asked, at < 0 ? "none" : manta__units_text(s->named[at].total, x), name);
}

static manta_status say_not_now(const struct manta__stock *s, const struct manta__need *need,
                                int workers, int fit, struct shortage why, manta_error *err)
{
  char asked[400], room[64], free[32], all[32], mine[32], others[32];
  say_need(asked, sizeof asked, need, workers, why);
  snprintf(room, sizeof room, "room for %d worker%s", fit, fit == 1 ? "" : "s");
  if (why.kind == CPUS)
    return manta_error_set(
        err, MANTA_ENOROOM,
        "asked for %s, free now: %s of %s (%s used by this driver, %s by other runs), %s", asked,
        manta__units_text(manta__stock_free_cpus(s), free), manta__units_text(s->cpus, all),
        manta__units_text(s->cpus_used, mine),
        manta__units_text(manta__stock_others_cpus(s), others), room);
  if (why.kind == CORES)
    return manta_error_set(err, MANTA_ENOROOM, "asked for %s, free now: %d of %d, %s", asked,
                           manta__stock_free_cores(s), s->core_count, room);
  if (why.kind == GPUS)
    return manta_error_set(err, MANTA_ENOROOM, "asked for %s, free now: %s of %d, %s", asked,
                           manta__units_text(manta__stock_free_gpus(s), free), s->gpu_count, room);
  const struct manta__stock_named *r = &s->named[manta__stock_find(s, need->named[why.named].name)];
  return manta_error_set(err, MANTA_ENOROOM, "asked for %s, free now: %s of %s, %s", asked,
                         manta__units_text(r->total - r->used, free),
                         manta__units_text(r->total, all), room);
}

// Soft workers beyond the CPUs: told once, as it is seldom an accident and never an error.
static void warn_crowded(manta__ledger *l, struct account *a)
{
  const struct manta__stock *s = &l->stock;
  char used[32], all[32];
  if (a->need.strict || l->warned || s->cpus_used <= s->cpus)
    return;
  l->warned = true;
  snprintf(a->grant.warning, sizeof a->grant.warning,
           "workers count as %s CPUs and there are %s (%s): they take turns",
           manta__units_text(s->cpus_used, used), manta__units_text(s->cpus, all), s->cpu_note);
}

// --- Reserving -----------------------------------------------------------------------------------

static manta_status fill(manta__ledger *l, struct account *a, int most, int min, int *fit,
                         manta_error *err)
{
  struct shortage why = {NOTHING, 0};
  manta_status st = MANTA_OK;
  while (a->grant.workers < most && st >= 0)
    st = place(&l->stock, a, &why);
  if (st < 0 && st != MANTA_ENOROOM)
    return manta_error_set(err, st, "no memory for a reservation");
  *fit = a->grant.workers;
  if (*fit >= min)
    return MANTA_OK;
  while (a->grant.workers > 0) // the message tells what is free when this try is undone
    manta__ledger_drop(l, &a->grant, a->grant.workers - 1);
  return say_not_now(&l->stock, &a->need, min, *fit, why, err);
}

manta_status manta__ledger_reserve(manta__ledger *l, const struct manta__request *rq, int want,
                                   int min, struct manta__grant **out, int *granted,
                                   manta_error *err)
{
  struct manta__need need;
  struct shortage why = {NOTHING, 0};
  int fit = 0;
  if (granted)
    *granted = 0;
  if (min < 1 || want < min || want > MANTA__LEDGER_MAX_WORKERS)
    return manta_error_set(err, MANTA_EINVAL, "%d to %d workers, the limits are 1 and %d", min,
                           want, MANTA__LEDGER_MAX_WORKERS);
  MANTA_TRY(manta__need_read(&need, rq, err));
  int most = capacity(&l->stock, &need, want, &why);
  if (most < min)
    return say_never(&l->stock, &need, min, why, err);
  struct account *a = account_new(&need, most);
  if (!a)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a reservation");
  for (int i = 0; i < need.named_count; i++)
    a->named_at[i] = manta__stock_find(&l->stock, need.named[i].name);
  manta_status st = fill(l, a, most, min, &fit, err);
  if (granted)
    *granted = st == MANTA_OK || st == MANTA_ENOROOM ? fit : 0;
  if (st < 0) {
    manta__ledger_release(l, &a->grant);
    return st;
  }
  warn_crowded(l, a);
  *out = &a->grant;
  return MANTA_OK;
}

// --- Giving way ----------------------------------------------------------------------------------

// Too little is free of it, counted as a whole.
static bool is_short(int64_t free, int64_t each, int workers)
{
  return each > 0 && free / each < workers;
}

static bool holds_named(const struct account *a, int at)
{
  for (int i = 0; i < a->need.named_count; i++)
    if (a->named_at[i] == at)
      return true;
  return false;
}

bool manta__ledger_eases(const manta__ledger *l, const struct manta__request *rq, int workers,
                         const struct manta__grant *g)
{
  const struct manta__stock *s = &l->stock;
  const struct account *a = (const struct account *)g;
  struct manta__need need;
  if (g->workers == 0 || manta__need_read(&need, rq, NULL) < 0)
    return false;
  bool cores = is_short(manta__stock_free_cores(s), need.cores, workers);
  bool cpus = need.strict && is_short(manta__stock_free_cpus(s), need.cpus, workers);
  bool gpus = is_short(manta__stock_free_gpus(s), need.gpus, workers);
  bool named = false, eases = false;
  for (int i = 0; i < need.named_count; i++) {
    int at = manta__stock_find(s, need.named[i].name);
    bool low =
        at >= 0 && is_short(s->named[at].total - s->named[at].used, need.named[i].n, workers);
    named |= low;
    eases |= low && holds_named(a, at);
  }
  // In parts of GPUs there may be enough, and none of them large enough.
  gpus |= need.gpus > 0 && !cores && !cpus && !named;
  return eases || (cores && a->need.cores > 0) || (cpus && a->need.cpus > 0) ||
         (gpus && a->need.gpus > 0);
}

static int tell_one(char *out, size_t size, size_t at, int64_t units, const char *one,
                    const char *many)
{
  char x[32];
  if (units == 0 || at >= size)
    return 0;
  return snprintf(out + at, size - at, "%s%s %s", at ? ", " : "", manta__units_text(units, x),
                  units == MANTA__UNIT ? one : many);
}

void manta__ledger_tell(const manta__ledger *l, const struct manta__grant *g, int workers,
                        char *out, size_t size)
{
  const struct manta__need *need = &((const struct account *)g)->need;
  size_t at = 0;
  out[0] = 0;
  at += (size_t)tell_one(out, size, at, need->cpus * workers, "CPU", "CPUs");
  at += (size_t)tell_one(out, size, at, need->gpus * workers, "GPU", "GPUs");
  for (int i = 0; i < need->named_count; i++) {
    const char *name = l->stock.named[((const struct account *)g)->named_at[i]].name;
    at += (size_t)tell_one(out, size, at, need->named[i].n * workers, name, name);
  }
}

// --- Looking -------------------------------------------------------------------------------------

void manta__ledger_totals(const manta__ledger *l, struct manta__ledger_totals *out)
{
  const struct manta__stock *s = &l->stock;
  int64_t gpus = 0;
  for (int i = 0; i < s->gpu_count; i++)
    gpus += s->gpus[i].used;
  *out = (struct manta__ledger_totals){.cpus_used = (double)s->cpus_used / MANTA__UNIT,
                                       .cpus = (double)s->cpus / MANTA__UNIT,
                                       .gpus_used = (double)gpus / MANTA__UNIT,
                                       .gpus = s->gpu_count};
}
