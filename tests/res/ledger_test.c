/* SPDX-License-Identifier: Apache-2.0 */
#include "res/ledger.h"

#include "base/knob.h"
#include "holder.h"
#include "scratch.h"
#include "sys/lease.h"

static int ids[] = {0, 1, 2, 3};
static struct manta__host host;
static struct manta__gpus gpus;
static struct manta__ledger_config cfg;
static manta__ledger *l;
static struct manta__grant *g;
static manta_error err;
static int granted;
static char *dir;

static int setup(void **state)
{
  dir = scratch_make();
  host = (struct manta__host){.cpu_ids = ids, .cpu_count = 4, .cpus = 4};
  gpus = (struct manta__gpus){.count = 2};
  for (int i = 0; i < 2; i++) {
    gpus.gpu[i].index = i;
    snprintf(gpus.gpu[i].id, sizeof gpus.gpu[i].id, "%d", i);
  }
  cfg =
      (struct manta__ledger_config){.host = &host, .gpus = &gpus, .lease_dirfd = scratch_open(dir)};
  err = (manta_error)MANTA_ERROR_INIT;
  l = NULL;
  g = NULL;
  return 0;
}

static int teardown(void **state)
{
  manta__ledger_release(l, g);
  manta__ledger_destroy(l);
  close(cfg.lease_dirfd);
  scratch_remove(dir);
  return 0;
}

static void declare_cpus(double n)
{
  cfg.declares_cpus = true;
  cfg.num_cpus = n;
}

static void make(void)
{
  assert_ok(manta__ledger_create(&l, &cfg, &err), &err);
}

static manta_status ask(struct manta__request rq, int want, int min)
{
  return manta__ledger_reserve(l, &rq, want, min, &g, &granted, &err);
}

static void assert_line(const char *want)
{
  struct manta__ledger_totals t;
  char line[128];
  manta__ledger_totals(l, &t);
  int n = snprintf(line, sizeof line, "CPUs %g/%g", t.cpus_used, t.cpus);
  if (t.gpus > 0)
    snprintf(line + n, sizeof line - (size_t)n, ", GPUs %g/%g", t.gpus_used, t.gpus);
  assert_string_equal(line, want);
}

// So much of a named resource is free: all of it can be had, or the answer says how much.
static void assert_named(const char *name, double total, double left)
{
  manta_pair pair = {.key = name, .value = manta_value_real(total)};
  manta_value all = {.type = MANTA_MAP, .count = 1, .u.pairs = &pair};
  struct manta__request rq = {.custom = &all};
  struct manta__grant *grant = NULL;
  manta_error why = MANTA_ERROR_INIT;
  char text[64];
  manta_status st = manta__ledger_reserve(l, &rq, 1, 1, &grant, NULL, &why);
  manta__ledger_release(l, grant);
  assert_status(st, left < total ? MANTA_ENOROOM : MANTA_OK);
  snprintf(text, sizeof text, "free now: %g of %g", left, total);
  if (left < total)
    assert_has(why.message, text);
}

// --- CPUs ----------------------------------------------------------------------------------------

static void soft_workers_are_warned_about_once(void **state)
{
  make();
  assert_ok(ask((struct manta__request){0}, 4, 4), &err);
  assert_string_equal(g->warning, "");
  struct manta__grant *first = g, *second;
  assert_ok(ask((struct manta__request){0}, 3, 3), &err);
  assert_int_equal(granted, 3);
  assert_int_equal(g->workers, 3);
  assert_null(g->shares[0].cores);
  assert_string_equal(g->shares[0].gpus, "");
  assert_string_equal(g->warning, "workers count as 7 CPUs and there are 4 "
                                  "(affinity 4, cgroup quota none): they take turns");
  assert_line("CPUs 7/4, GPUs 0/2");
  second = g;
  assert_ok(ask((struct manta__request){0}, 1, 1), &err);
  assert_string_equal(g->warning, "");
  manta__ledger_release(l, first);
  manta__ledger_release(l, second);
  assert_line("CPUs 1/4, GPUs 0/2");
}

static void strict_beyond_the_host_is_impossible(void **state)
{
  host.cpu_count = 2;
  host.cpus = 2;
  make();
  assert_status(ask((struct manta__request){.cpus = 2, .strict = true}, 4, 4), MANTA_EINVAL);
  assert_string_equal(err.message, "asked for 4 workers x 2 CPUs = 8 CPUs, this host has 2 "
                                   "(affinity 2, cgroup quota none)");
  assert_int_equal(granted, 0);
  assert_line("CPUs 0/2, GPUs 0/2");
  assert_ok(ask((struct manta__request){.cpus = 2, .strict = true}, 4, 1), &err); // elastic
  assert_int_equal(granted, 1);
}

static void a_quota_counts_with_its_fraction(void **state)
{
  host.quota = 1.5;
  host.cpus = 1.5;
  make();
  assert_status(ask((struct manta__request){.cpus = 0.5, .strict = true}, 4, 4), MANTA_EINVAL);
  assert_string_equal(err.message, "asked for 4 workers x 0.5 CPUs = 2 CPUs, this host has 1.5 "
                                   "(affinity 4, cgroup quota 1.5)");
  assert_ok(ask((struct manta__request){.cpus = 0.5, .strict = true}, 3, 3), &err);
  assert_line("CPUs 1.5/1.5, GPUs 0/2");
}

static void strict_beyond_what_is_free_waits(void **state)
{
  make();
  struct manta__request two = {.cpus = 2, .strict = true};
  assert_ok(ask(two, 1, 1), &err);
  struct manta__grant *first = g;
  assert_status(ask(two, 2, 2), MANTA_ENOROOM);
  assert_int_equal(granted, 1);
  assert_string_equal(err.message, "asked for 2 workers x 2 CPUs = 4 CPUs, free now: 2 of 4 "
                                   "(2 used by this driver, 0 by other runs), room for 1 worker");
  assert_line("CPUs 2/4, GPUs 0/2");
  g = NULL;
  assert_ok(ask(two, 2, 1), &err); // who takes less gets less
  assert_int_equal(granted, 1);
  assert_int_equal(g->workers, 1);
  manta__ledger_release(l, first);
}

// Soft workers are there too: a strict request does not squeeze in beside them.
static void soft_ones_count_against_strict_ones(void **state)
{
  make();
  assert_ok(ask((struct manta__request){0}, 3, 3), &err);
  struct manta__grant *soft = g;
  assert_status(ask((struct manta__request){.cpus = 2, .strict = true}, 1, 1), MANTA_ENOROOM);
  assert_int_equal(granted, 0);
  manta__ledger_release(l, soft);
  assert_ok(ask((struct manta__request){.cpus = 2, .strict = true}, 2, 2), &err);
}

static void thirds_add_up(void **state)
{
  make();
  assert_ok(ask((struct manta__request){.cpus = 1.0 / 3, .strict = true}, 12, 12), &err);
}

static void figures_that_make_no_sense_are_refused(void **state)
{
  make();
  const struct manta__request bad[] = {
      {.cpus = -1, .strict = true},
      {.cpus = NAN, .strict = true},
      {.cpus = 1e300, .strict = true},
      {.cpus = 1.5, .pin = true},
      {.cpus = 0.5, .pin = true},
      {.gpus = 1.5},
      {.gpus = -1},
      {.gpus = INFINITY},
      {.gpus = 1e15},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    err.message[0] = 0;
    assert_status(ask(bad[i], 1, 1), MANTA_EINVAL);
    assert_true(strlen(err.message) > 10);
  }
  assert_status(ask((struct manta__request){0}, 0, 0), MANTA_EINVAL);
  assert_status(ask((struct manta__request){0}, 1, 2), MANTA_EINVAL);
  assert_status(ask((struct manta__request){0}, 4097, 1), MANTA_EINVAL);
  assert_line("CPUs 0/4, GPUs 0/2");
}

// --- Cores ---------------------------------------------------------------------------------------

static void pinned_workers_get_their_own_cores(void **state)
{
  make();
  assert_ok(ask((struct manta__request){.cpus = 2, .strict = true, .pin = true}, 2, 2), &err);
  for (int w = 0; w < 2; w++) {
    assert_int_equal(g->shares[w].core_count, 2);
    assert_int_equal(g->shares[w].cores[0], 2 * w);
    assert_int_equal(g->shares[w].cores[1], 2 * w + 1);
  }
  manta__ledger_drop(l, g, 0);
  assert_int_equal(g->workers, 1);
  assert_int_equal(g->shares[0].cores[0], 2); // the second moved down, with its cores
  assert_line("CPUs 2/4, GPUs 0/2");
  struct manta__grant *rest = g;
  assert_ok(ask((struct manta__request){.pin = true}, 2, 2), &err);
  assert_int_equal(g->shares[0].cores[0], 0);
  assert_int_equal(g->shares[1].cores[0], 1);
  manta__ledger_release(l, rest);
}

static void pinning_more_workers_than_cores_is_impossible(void **state)
{
  declare_cpus(16);
  make();
  assert_status(ask((struct manta__request){.pin = true}, 5, 5), MANTA_EINVAL);
  assert_string_equal(err.message, "asked for 5 workers x 1 pinned core = 5 pinned cores, "
                                   "this host has 4 (affinity mask)");
}

// Two cores were asked and one was there: it is not kept.
static void a_half_pinned_worker_is_undone(void **state)
{
  declare_cpus(16);
  make();
  assert_ok(ask((struct manta__request){.pin = true}, 3, 3), &err);
  struct manta__grant *three = g, *last;
  assert_status(ask((struct manta__request){.cpus = 2, .pin = true}, 1, 1), MANTA_ENOROOM);
  assert_string_equal(err.message, "asked for 2 pinned cores, "
                                   "free now: 1 of 4, room for 0 workers");
  assert_line("CPUs 3/16, GPUs 0/2");
  assert_ok(ask((struct manta__request){.pin = true}, 1, 1), &err);
  assert_int_equal(g->shares[0].cores[0], 3);
  last = g;
  g = three;
  manta__ledger_release(l, last);
}

// --- GPUs ----------------------------------------------------------------------------------------

static void halves_share_a_gpu(void **state)
{
  make();
  assert_ok(ask((struct manta__request){.gpus = 0.5}, 3, 3), &err);
  assert_string_equal(g->shares[0].gpus, "0");
  assert_string_equal(g->shares[1].gpus, "0");
  assert_string_equal(g->shares[2].gpus, "1");
  struct manta__grant *parts = g;
  assert_line("CPUs 3/4, GPUs 1.5/2");
  assert_status(ask((struct manta__request){.gpus = 1}, 1, 1), MANTA_ENOROOM);
  assert_string_equal(err.message, "asked for 1 GPU, free now: 0.5 of 2, "
                                   "room for 0 workers");
  manta__ledger_drop(l, parts, 0); // half of GPU 0 is free: the next half goes to a used GPU
  assert_ok(ask((struct manta__request){.gpus = 0.5}, 1, 1), &err);
  assert_string_equal(g->shares[0].gpus, "0");
  manta__ledger_release(l, parts);
}

static void parts_go_beside_parts(void **state)
{
  make();
  assert_ok(ask((struct manta__request){.gpus = 0.5}, 3, 3), &err);
  struct manta__grant *parts = g;
  manta__ledger_drop(l, parts, 0);
  manta__ledger_drop(l, parts, 0); // left: one half of GPU 1
  assert_string_equal(parts->shares[0].gpus, "1");
  assert_ok(ask((struct manta__request){.gpus = 0.5}, 1, 1), &err);
  assert_string_equal(g->shares[0].gpus, "1"); // and GPU 0 stays whole
  manta__ledger_release(l, parts);
  manta__ledger_release(l, g);
  assert_ok(ask((struct manta__request){.gpus = 1}, 2, 2),
            &err); // each came back where it was taken
}

static void a_worker_with_too_few_gpus_is_undone(void **state)
{
  make();
  assert_ok(ask((struct manta__request){.gpus = 1}, 1, 1), &err);
  struct manta__grant *first = g;
  assert_status(ask((struct manta__request){.gpus = 2}, 1, 1), MANTA_ENOROOM);
  assert_line("CPUs 1/4, GPUs 1/2");
  assert_ok(ask((struct manta__request){.gpus = 1}, 1, 1), &err);
  assert_string_equal(g->shares[0].gpus, "1");
  manta__ledger_release(l, first);
}

// 0.4 fits twice on a GPU, not 2.5 times: four workers on two GPUs, although 5 x 0.4 = 2.
static void parts_never_straddle_gpus(void **state)
{
  make();
  assert_status(ask((struct manta__request){.gpus = 0.4}, 5, 5), MANTA_EINVAL);
  assert_ok(ask((struct manta__request){.gpus = 0.4}, 5, 1), &err);
  assert_int_equal(granted, 4);
}

static void whole_gpus_come_as_a_list(void **state)
{
  snprintf(gpus.gpu[0].id, sizeof gpus.gpu[0].id, "GPU-aaaa");
  snprintf(gpus.gpu[1].id, sizeof gpus.gpu[1].id, "GPU-bbbb");
  make();
  assert_ok(ask((struct manta__request){.gpus = 2}, 1, 1), &err);
  assert_string_equal(g->shares[0].gpus, "GPU-aaaa,GPU-bbbb");
  struct manta__grant *both = g;
  assert_status(ask((struct manta__request){.gpus = 0.1}, 1, 1), MANTA_ENOROOM);
  assert_status(ask((struct manta__request){.gpus = 3}, 1, 1), MANTA_EINVAL);
  assert_has(err.message, "asked for 3 GPUs, this host has 2");
  manta__ledger_release(l, both);
  g = NULL;
}

static void a_host_without_gpus_says_why(void **state)
{
  gpus.count = 0;
  snprintf(gpus.why, sizeof gpus.why, "no libnvidia-ml.so.1");
  make();
  assert_status(ask((struct manta__request){.gpus = 1}, 1, 1), MANTA_EINVAL);
  assert_string_equal(err.message, "asked for 1 GPU, this host has 0 "
                                   "(no libnvidia-ml.so.1)");
}

// --- Declared figures ----------------------------------------------------------------------------

static void declared_figures_replace_the_detected(void **state)
{
  declare_cpus(8);
  cfg.declares_gpus = true;
  cfg.num_gpus = 4;
  cfg.resources = "{\"disk\": 2, \"tape\": 0.5}";
  make();
  assert_line("CPUs 0/8, GPUs 0/4");
  assert_named("disk", 2, 2);
  assert_named("tape", 0.5, 0.5);
  assert_ok(ask((struct manta__request){.cpus = 2, .strict = true, .gpus = 1}, 4, 4), &err);
  assert_string_equal(g->shares[3].gpus, "3");
  struct manta__grant *all = g;
  assert_status(ask((struct manta__request){.cpus = 1, .strict = true}, 1, 1), MANTA_ENOROOM);
  assert_has(err.message, "free now: 0 of 8");
  manta__ledger_release(l, all);
  g = NULL;
}

static void named_resources_are_strict(void **state)
{
  cfg.resources = "{\"disk\": 2}";
  make();
  manta_value one = MANTA_MAP(MANTA_KV_INT("disk", 1)), net = MANTA_MAP(MANTA_KV_INT("net", 1));
  manta_value part = MANTA_MAP(MANTA_KV_REAL("disk", 0.5)),
              text = MANTA_MAP(MANTA_KV_STR("disk", "x"));
  assert_status(ask((struct manta__request){.custom = &one}, 3, 3), MANTA_EINVAL);
  assert_string_equal(err.message,
                      "asked for 3 workers x 1 disk = 3 disk, this host has 2 "
                      "(by MANTA_RESOURCES)\n"
                      "hint: MANTA_RESOURCES='{\"disk\": 1}' declares what a host has");
  assert_status(ask((struct manta__request){.custom = &net}, 1, 1), MANTA_EINVAL);
  assert_has(err.message, "this host has none");
  assert_status(ask((struct manta__request){.custom = &text}, 1, 1), MANTA_EINVAL);
  assert_ok(ask((struct manta__request){.custom = &part}, 3, 3), &err);
  struct manta__grant *three = g;
  assert_line("CPUs 3/4, GPUs 0/2");
  assert_named("disk", 2, 0.5);
  assert_status(ask((struct manta__request){.custom = &one}, 1, 1), MANTA_ENOROOM);
  assert_string_equal(err.message, "asked for 1 disk, free now: 0.5 of 2, "
                                   "room for 0 workers");
  assert_line("CPUs 3/4, GPUs 0/2"); // the failed one's CPU came back
  assert_named("disk", 2, 0.5);
  manta__ledger_release(l, three);
  g = NULL;
  assert_line("CPUs 0/4, GPUs 0/2");
  assert_named("disk", 2, 2);
}

// Whatever is the last thing missing, all that was taken before it comes back.
static void a_worker_that_does_not_fit_is_undone(void **state)
{
  cfg.resources = "{\"disk\": 1}";
  make();
  manta_value disk = MANTA_MAP(MANTA_KV_INT("disk", 1));
  assert_ok(ask((struct manta__request){.custom = &disk}, 1, 1), &err);
  struct manta__grant *first = g;
  struct manta__request rq = {.cpus = 1, .strict = true, .pin = true, .gpus = 1, .custom = &disk};
  assert_status(ask(rq, 1, 1), MANTA_ENOROOM);
  rq.custom = NULL;
  assert_ok(ask(rq, 2, 2), &err);
  assert_int_equal(g->shares[0].cores[0], 0);
  assert_string_equal(g->shares[0].gpus, "0");
  struct manta__grant *both = g;
  assert_status(ask(rq, 1, 1), MANTA_ENOROOM); // no GPU: the core comes back
  rq.gpus = 0;
  assert_ok(ask(rq, 1, 1), &err);
  assert_int_equal(g->shares[0].cores[0], 2);
  manta__ledger_release(l, first);
  manta__ledger_release(l, both);
}

static void nonsense_among_the_resources_is_named(void **state)
{
  const struct {
    const char *resources, *want;
  } bad[] = {
      {"{", "MANTA_RESOURCES is not JSON"},
      {"[1]", "MANTA_RESOURCES is not a map"},
      {"{\"disk\": \"big\"}", "MANTA_RESOURCES: disk"},
      {"{\"disk\": 1, \"CPU\": 1}", "use MANTA_NUM_CPUS"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cfg.resources = bad[i].resources;
    assert_status(manta__ledger_create(&l, &cfg, &err), MANTA_EINVAL);
    assert_has(err.message, bad[i].want);
    assert_null(l);
  }
}

// Half, so that declared GPUs can count on behind the real ones.
static void the_most_gpus_that_can_be_declared_have_leases(void **state)
{
  assert_int_equal(manta__knob_row(MANTA__KNOB_NUM_GPUS)->high, MANTA__LEASE_GPUS / 2);
}

static void the_environment_is_read(void **state)
{
  setenv("MANTA_NUM_CPUS", "3", 1);
  setenv("MANTA_NUM_GPUS", "0", 1);
  setenv("MANTA_RESOURCES", "", 1);
  manta__ledger_config_env(&cfg);
  assert_true(cfg.declares_gpus && cfg.num_gpus == 0 && !cfg.resources);
  make();
  assert_line("CPUs 0/3");
}

// --- Other runs ----------------------------------------------------------------------------------

static int reserve_much(void *ctx)
{
  struct manta__request rq = {.cpus = 1, .strict = true, .pin = true, .gpus = 0.5};
  make();
  if (ask(rq, 2, 2) < 0)
    return -1;
  return g->shares[0].cores[0] * 10 + g->shares[1].cores[0];
}

static void another_run_is_seen_and_its_death_frees(void **state)
{
  int said;
  pid_t pid = holder_start(reserve_much, NULL, &said);
  assert_int_equal(said, 1); // cores 0 and 1
  make();
  struct manta__request pinned = {.cpus = 1, .strict = true, .pin = true, .gpus = 1};
  assert_status(ask(pinned, 2, 2), MANTA_ENOROOM);
  assert_has(err.message, "2 workers x 1 GPU = 2 GPUs, free now: 1 of 2");
  assert_int_equal(granted, 1);
  assert_status(ask((struct manta__request){.cpus = 3, .strict = true}, 1, 1), MANTA_ENOROOM);
  assert_has(err.message, "free now: 2 of 4 (0 used by this driver, 2 by other runs)");
  assert_ok(ask(pinned, 2, 1), &err);
  assert_int_equal(g->shares[0].cores[0], 2); // not core 0, not GPU 0: those are the other run's
  assert_string_equal(g->shares[0].gpus, "1");
  struct manta__grant *mine = g;
  assert_ok(ask((struct manta__request){0}, 4, 4), &err); // soft ones do not care
  manta__ledger_release(l, g);
  g = NULL;
  holder_kill(pid);
  assert_ok(ask(pinned, 1, 1), &err);
  assert_int_equal(g->shares[0].cores[0], 0);
  assert_string_equal(g->shares[0].gpus, "0");
  manta__ledger_release(l, mine);
}

static void what_is_released_others_can_have(void **state)
{
  manta__ledger *other = NULL;
  struct manta__request rq = {.cpus = 2, .strict = true, .pin = true, .gpus = 1};
  struct manta__grant *theirs = NULL;
  make();
  assert_ok(manta__ledger_create(&other, &cfg, &err), &err);
  assert_ok(ask(rq, 2, 2), &err);
  assert_status(manta__ledger_reserve(other, &rq, 1, 1, &theirs, NULL, &err), MANTA_ENOROOM);
  manta__ledger_drop(l, g, 0);
  assert_ok(manta__ledger_reserve(other, &rq, 1, 1, &theirs, NULL, &err), &err);
  assert_int_equal(theirs->shares[0].cores[1], 1);
  assert_string_equal(theirs->shares[0].gpus, "0");
  manta__ledger_release(other, theirs);
  manta__ledger_destroy(other);
}

// Two runs share no GPU even in parts.
static void parts_of_one_gpu_stay_in_one_run(void **state)
{
  manta__ledger *other = NULL;
  struct manta__request half = {.gpus = 0.5};
  struct manta__grant *theirs = NULL;
  make();
  assert_ok(manta__ledger_create(&other, &cfg, &err), &err);
  assert_ok(ask(half, 1, 1), &err);
  assert_ok(manta__ledger_reserve(other, &half, 1, 1, &theirs, NULL, &err), &err);
  assert_string_equal(g->shares[0].gpus, "0");
  assert_string_equal(theirs->shares[0].gpus, "1");
  manta__ledger_release(other, theirs);
  manta__ledger_destroy(other);
}

static void without_leases_runs_do_not_see_each_other(void **state)
{
  manta__ledger *other = NULL;
  struct manta__request rq = {.cpus = 4, .strict = true, .gpus = 2};
  struct manta__grant *theirs = NULL;
  make();
  assert_ok(ask(rq, 1, 1), &err);
  struct manta__ledger_config nested = cfg;
  nested.lease_dirfd = -1;
  assert_ok(manta__ledger_create(&other, &nested, &err), &err);
  assert_ok(manta__ledger_reserve(other, &rq, 1, 1, &theirs, NULL, &err), &err);
  manta__ledger_release(other, theirs);
  manta__ledger_destroy(other);
}

// --- One worker at a time ------------------------------------------------------------------------

static void a_split_grant_keeps_what_it_has(void **state)
{
  cfg.resources = "{\"tape\": 1, \"disk\": 2}";
  make();
  manta_value disk = MANTA_MAP(MANTA_KV_INT("disk", 1));
  struct manta__request rq = {.cpus = 2, .strict = true, .pin = true, .gpus = 1, .custom = &disk};
  struct manta__grant *one = NULL, *two = NULL, *none = NULL;
  assert_ok(ask(rq, 2, 2), &err);
  FOR_EACH_OOM(manta__ledger_split(l, g, &one, &err), (void)0);
  assert_int_equal(g->workers, 1);
  assert_int_equal(one->workers, 1);
  assert_int_equal(one->shares[0].core_count, 2);
  assert_int_equal(one->shares[0].cores[0], 2);
  assert_int_equal(one->shares[0].cores[1], 3);
  assert_string_equal(one->shares[0].gpus, "1");
  assert_line("CPUs 4/4, GPUs 2/2");
  assert_named("disk", 2, 0);
  assert_ok(manta__ledger_split(l, g, &two, &err), &err);
  assert_status(manta__ledger_split(l, g, &none, &err), MANTA_ESTATE);
  manta__ledger_release(l, g); // empty now
  g = NULL;
  assert_line("CPUs 4/4, GPUs 2/2");
  assert_named("disk", 2, 0);
  manta__ledger_release(l, one);
  assert_line("CPUs 2/4, GPUs 1/2");
  assert_named("disk", 2, 1);
  assert_named("tape", 1, 1);
  assert_ok(ask(rq, 1, 1), &err); // exactly what was given back
  assert_int_equal(g->shares[0].cores[0], 2);
  assert_string_equal(g->shares[0].gpus, "1");
  manta__ledger_release(l, two);
}

// --- Lack of memory ------------------------------------------------------------------------------

static void create_survives_every_lack_of_memory(void **state)
{
  cfg.resources = "{\"disk\": 2, \"tape\": 1}";
  FOR_EACH_OOM(manta__ledger_create(&l, &cfg, &err), (void)0);
}

static void reserve_survives_every_lack_of_memory(void **state)
{
  cfg.resources = "{\"disk\": 2}";
  make();
  manta_value disk = MANTA_MAP(MANTA_KV_INT("disk", 1));
  struct manta__request rq = {.cpus = 2, .strict = true, .pin = true, .gpus = 1, .custom = &disk};
  FOR_EACH_OOM(ask(rq, 2, 2), manta__ledger_release(l, g));
  g = NULL;
  assert_line("CPUs 0/4, GPUs 0/2");
  assert_named("disk", 2, 2);
  assert_ok(ask(rq, 2, 2), &err); // nothing stuck, neither here nor in the leases
}

// --- giving way ----------------------------------------------------------------------------------

static void only_what_is_short_of_eases(void **state)
{
  manta_value disk = MANTA_MAP(MANTA_KV_INT("disk", 2)), tape = MANTA_MAP(MANTA_KV_INT("tape", 1));
  char text[80];
  cfg.resources = "{\"disk\": 2, \"tape\": 1}";
  make();
  struct manta__request one_gpu = {.gpus = 1}, cpus = {.cpus = 3, .strict = true};
  assert_ok(ask((struct manta__request){.gpus = 2, .custom = &disk}, 1, 1), &err);
  assert_true(manta__ledger_eases(l, &one_gpu, 1, g));
  assert_false(manta__ledger_eases(l, &cpus, 1, g)); // there are three CPUs free
  cpus.cpus = 4;
  assert_true(manta__ledger_eases(l, &cpus, 1, g)); // soft ones count against strict ones
  assert_true(manta__ledger_eases(l, &(struct manta__request){.custom = &disk}, 1, g));
  assert_false(manta__ledger_eases(l, &(struct manta__request){.custom = &tape}, 1, g));
  manta__ledger_tell(l, g, 1, text, sizeof text);
  assert_string_equal(text, "1 CPU, 2 GPUs, 2 disk");
  manta__ledger_tell(l, g, 1, text, 4);
  assert_string_equal(text, "1 C");
}

// Two halves are free and no whole one: each of the two that hold the other halves would do.
static void fragments_count_as_short(void **state)
{
  make();
  struct manta__grant *all, *half;
  assert_ok(ask((struct manta__request){.gpus = 0.6}, 2, 2), &err);
  all = g;
  assert_ok(manta__ledger_split(l, all, &half, &err), &err);
  assert_status(ask((struct manta__request){.gpus = 0.5}, 1, 1), MANTA_ENOROOM);
  assert_true(manta__ledger_eases(l, &(struct manta__request){.gpus = 0.5}, 1, half));
  manta__ledger_release(l, half);
  g = all;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(soft_workers_are_warned_about_once),
      T(strict_beyond_the_host_is_impossible),
      T(a_quota_counts_with_its_fraction),
      T(strict_beyond_what_is_free_waits),
      T(soft_ones_count_against_strict_ones),
      T(thirds_add_up),
      T(figures_that_make_no_sense_are_refused),
      T(pinned_workers_get_their_own_cores),
      T(pinning_more_workers_than_cores_is_impossible),
      T(a_half_pinned_worker_is_undone),
      T(halves_share_a_gpu),
      T(parts_go_beside_parts),
      T(a_worker_with_too_few_gpus_is_undone),
      T(parts_never_straddle_gpus),
      T(whole_gpus_come_as_a_list),
      T(a_host_without_gpus_says_why),
      T(declared_figures_replace_the_detected),
      T(named_resources_are_strict),
      T(a_worker_that_does_not_fit_is_undone),
      T(nonsense_among_the_resources_is_named),
      T(the_most_gpus_that_can_be_declared_have_leases),
      T(the_environment_is_read),
      T(another_run_is_seen_and_its_death_frees),
      T(what_is_released_others_can_have),
      T(parts_of_one_gpu_stay_in_one_run),
      T(without_leases_runs_do_not_see_each_other),
      T(a_split_grant_keeps_what_it_has),
      T(only_what_is_short_of_eases),
      T(fragments_count_as_short),
      T(create_survives_every_lack_of_memory),
      T(reserve_survives_every_lack_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
