/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/bench.c - `manta bench comm`: a collective over a range of sizes, told as nccl-tests does.
 */
#include "cmd/bench.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/pattern.h"
#include "sys/host.h"

#define MAX_BYTES    (1ll << 40)
#define MEMORY_SHARE 0.75 /* of what is available, for all buffers together */

struct bench_plan {
  struct manta__bench_job job; /* all but the count */
  int workers;
  size_t from, to, factor;
  bool pin, json;
  int64_t memory; /* for all buffers; 0: unknown */
};

// --- the command line ---------------------------------------------------------------------------

// "64", "64K", "64M", "1G": powers of two.
static manta_status read_size(size_t *out, const char *text, const char *what, manta_error *err)
{
  static const char units[] = "KMG";
  char *end;
  errno = 0;
  unsigned long long n = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
  const char *unit = n && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
  int shift = unit ? (int)(unit - units + 1) * 10 : 0;
  if (n == 0 || errno || (*end && (!unit || end[1])) || n > (unsigned long long)MAX_BYTES >> shift)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s must be a size such as 4, 64K, 1M or 1G, not \"%s\"", what, text);
  *out = (size_t)n << shift;
  return MANTA_OK;
}

static manta_status read_type(manta_dtype *out, const char *text, manta_error *err)
{
  for (int t = 0; t < MANTA_DTYPE_COUNT; t++)
    if (t != MANTA_BOOL8 && !strcasecmp(text, manta_dtype_name((manta_dtype)t))) {
      *out = (manta_dtype)t;
      return MANTA_OK;
    }
  return manta_error_set(err, MANTA_EINVAL, "--type must be f32, bf16, i64 or the like, not \"%s\"",
                         text);
}

static manta_status read_op(const struct manta__bench_op **out, const char *name, manta_error *err)
{
  char names[256] = "";
  *out = manta__bench_op_find(name);
  if (*out)
    return MANTA_OK;
  for (const struct manta__bench_op *op = manta__bench_ops; op->name; op++)
    snprintf(names + strlen(names), sizeof names - strlen(names), " %s", op->name);
  return manta_error_set(err, MANTA_EINVAL, "--op must be one of%s, not \"%s\"", names, name);
}

static const char *or_else(const struct manta__args *a, const char *name, const char *dflt)
{
  const char *given = manta__args_get(a, name);
  return given ? given : dflt;
}

static manta_status read_numbers(struct bench_plan *p, const struct manta__args *a,
                                 manta_error *err)
{
  const char *n = manta__args_get(a, "workers");
  int64_t workers, factor, ms;
  if (n) {
    MANTA_TRY(manta__args_int(&workers, n, "-n", 1, MANTA__PATTERN_RANKS, err));
    p->workers = (int)workers;
  }
  MANTA_TRY(read_size(&p->from, or_else(a, "from", "4"), "--from", err));
  MANTA_TRY(read_size(&p->to, or_else(a, "to", "1G"), "--to", err));
  MANTA_TRY(manta__args_int(&factor, or_else(a, "factor", "4"), "--factor", 2, 1 << 20, err));
  MANTA_TRY(manta__args_int(&ms, or_else(a, "ms", "300"), "--ms", 1, 1 << 20, err));
  p->factor = (size_t)factor;
  p->job.seconds = (double)ms / 1e3;
  if (p->from > p->to)
    return manta_error_set(err, MANTA_EINVAL, "--from is more than --to");
  return MANTA_OK;
}

static manta_status read_plan(struct bench_plan *p, const struct manta__args *a, manta_error *err)
{
  struct manta__host host;
  if (strcmp(a->operand[0], "comm") != 0)
    return manta_error_set(err, MANTA_EINVAL, "manta bench has no \"%s\"", a->operand[0]);
  *p = (struct bench_plan){.pin = manta__args_has(a, "pin"), .json = manta__args_has(a, "json")};
  p->job.private_ = manta__args_has(a, "private");
  MANTA_TRY(manta__host_read(&host, "", err));
  p->workers = host.cpu_count < 2                      ? 2
               : host.cpu_count > MANTA__PATTERN_RANKS ? MANTA__PATTERN_RANKS
                                                       : host.cpu_count;
  p->memory = (int64_t)(MEMORY_SHARE * (double)host.mem_available);
  manta__host_fini(&host);
  MANTA_TRY(read_op(&p->job.op, or_else(a, "op", "allreduce"), err));
  MANTA_TRY(read_type(&p->job.type, or_else(a, "type", "f32"), err));
  return read_numbers(p, a, err);
}

// --- telling ------------------------------------------------------------------------------------

struct tally {
  int rows;
  int64_t wrong;
  double bus;
};

static const char *redop_of(const struct bench_plan *p)
{
  return p->job.op->reduces ? "sum" : "none";
}

static const char *type_of(char buf[MANTA__TEXT], const struct bench_plan *p)
{
  size_t i = 0;
  for (const char *s = manta_dtype_name(p->job.type); *s && i < MANTA__TEXT - 1; s++)
    buf[i++] = (char)tolower((unsigned char)*s);
  buf[i] = 0;
  return buf;
}

static void print_head(const struct bench_plan *p)
{
  printf("# manta %s bench comm: %s, %d workers, buffers in %s memory%s\n", manta_version(),
         p->job.op->name, p->workers, p->job.private_ ? "private" : "shared",
         p->pin ? ", pinned" : "");
  printf("# every rank rewrites its buffer before each call; a call takes as long as its slowest "
         "rank;\n# bandwidths are those of the median\n#\n");
  printf("# %12s %12s %6s %6s %5s %11s %11s %11s %8s %8s %7s\n", "size", "count", "type", "redop",
         "root", "min", "p50", "p99", "algbw", "busbw", "#wrong");
  printf("# %12s %12s %6s %6s %5s %11s %11s %11s %8s %8s\n", "(B)", "(elements)", "", "", "",
         "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)");
}

static void print_row(const struct bench_plan *p, const struct manta__bench_result *r, double algbw,
                      double busbw)
{
  char type[MANTA__TEXT];
  printf("  %12zu %12zu %6s %6s %5d %11.2f %11.2f %11.2f %8.3f %8.3f %7lld\n",
         manta__bench_bytes(&p->job, p->workers), p->job.count, type_of(type, p), redop_of(p),
         p->job.op->rooted ? 0 : -1, r->min, r->p50, r->p99, algbw, busbw, (long long)r->wrong);
  fflush(stdout);
}

static manta_status keep_row(manta_value *rows, const struct bench_plan *p,
                             const struct manta__bench_result *r, double algbw, double busbw)
{
  size_t bytes = manta__bench_bytes(&p->job, p->workers);
  manta_value row =
      MANTA_MAP(MANTA_KV_INT("bytes", (int64_t)bytes), MANTA_KV_INT("count", (int64_t)p->job.count),
                MANTA_KV_INT("calls", r->calls), MANTA_KV_REAL("min_us", r->min),
                MANTA_KV_REAL("p50_us", r->p50), MANTA_KV_REAL("p99_us", r->p99),
                MANTA_KV_REAL("algbw", algbw), MANTA_KV_REAL("busbw", busbw),
                MANTA_KV_INT("wrong", r->wrong));
  manta_value copy = {0};
  MANTA_TRY(manta_value_copy(&copy, &row));
  manta_status st = manta_value_append(rows, &copy);
  manta_value_fini(&copy);
  return st;
}

static void print_tally(const struct tally *t)
{
  printf("#\n# Wrong values      : %lld %s\n", (long long)t->wrong, t->wrong ? "FAILED" : "OK");
  printf("# Avg bus bandwidth : %.3f GB/s\n", t->rows ? t->bus / t->rows : 0);
}

static int print_all(const struct bench_plan *p, const struct tally *t, manta_value *rows)
{
  char type[MANTA__TEXT];
  manta_value all = MANTA_MAP(
      MANTA_KV_STR("op", p->job.op->name), MANTA_KV_STR("type", type_of(type, p)),
      MANTA_KV_STR("redop", redop_of(p)), MANTA_KV_INT("root", p->job.op->rooted ? 0 : -1),
      MANTA_KV_INT("workers", p->workers),
      MANTA_KV_STR("memory", p->job.private_ ? "private" : "shared"), MANTA_KV("rows", *rows),
      MANTA_KV_INT("wrong", t->wrong), MANTA_KV_REAL("busbw", t->rows ? t->bus / t->rows : 0));
  return manta__print_json(&all);
}

// --- measuring ----------------------------------------------------------------------------------

// The next size whose buffers fit, as the job's count. Sizes too small for an element are left out.
static bool next_size(struct bench_plan *p, size_t *bytes)
{
  const struct manta__bench_op *op = p->job.op;
  size_t of_one =
      manta_dtype_bytes(p->job.type) * (op->send_all || op->recv_all ? (size_t)p->workers : 1);
  for (p->job.count = 0; p->job.count == 0 && *bytes <= p->to; *bytes *= p->factor)
    p->job.count = *bytes / of_one;
  if (p->job.count == 0)
    return false;
  int64_t need = (int64_t)manta__bench_memory(&p->job, p->workers) * p->workers;
  if (p->memory == 0 || need <= p->memory)
    return true;
  manta__say("the buffers for %zu bytes do not fit into memory: larger sizes are left out",
             manta__bench_bytes(&p->job, p->workers));
  return false;
}

static manta_status sweep(manta_trainer *t, struct bench_plan *p, struct tally *tally,
                          manta_value *rows, manta_error *err)
{
  for (size_t bytes = p->from; next_size(p, &bytes);) {
    struct manta__bench_result r;
    MANTA_TRY(manta__bench_comm(t, &p->job, &r, err));
    double algbw = (double)manta__bench_bytes(&p->job, p->workers) / 1e3 / r.p50;
    double busbw = algbw * p->job.op->bus(p->workers);
    if (p->json)
      MANTA_TRY(keep_row(rows, p, &r, algbw, busbw));
    else
      print_row(p, &r, algbw, busbw);
    tally->rows++;
    tally->wrong += r.wrong;
    tally->bus += busbw;
  }
  return MANTA_OK;
}

static manta_status run_plan(struct bench_plan *p, struct tally *tally, manta_value *rows,
                             manta_error *err)
{
  manta_trainer *t;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  cfg.workers = cfg.min_workers = p->workers;
  cfg.max_retries = -2;
  cfg.pin = p->pin;
  cfg.quiet = true;
  cfg.name = "manta-bench";
  MANTA_TRY(manta_trainer_create(&t, &cfg, err));
  manta_status st = sweep(t, p, tally, rows, err);
  manta_trainer_destroy(t);
  return st;
}

int manta__cmd_bench(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct bench_plan p;
  struct tally tally = {0};
  manta_value rows = {0};
  if (read_plan(&p, a, &err) < 0) {
    manta__say("%s\nhint: manta bench --help", err.message);
    return MANTA__EXIT_USAGE;
  }
  if (!p.json)
    print_head(&p);
  manta_status st = manta_value_set_list(&rows);
  if (st == MANTA_OK)
    st = run_plan(&p, &tally, &rows, &err);
  int code = MANTA__EXIT_OK;
  if (st < 0)
    code = manta__complain(&err);
  else if (p.json)
    code = print_all(&p, &tally, &rows);
  else
    print_tally(&tally);
  manta_value_fini(&rows);
  return code ? code : tally.wrong ? MANTA__EXIT_FAILED : MANTA__EXIT_OK;
}
