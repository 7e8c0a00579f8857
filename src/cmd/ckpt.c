/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/ckpt.c - `manta ckpt`: the checkpoints of a run, listed, shown and verified.
 */
#include "cmd/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ckpt/ckdir.h"
#include "ckpt/retain.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "sys/sock.h"

// --- Choosing ------------------------------------------------------------------------------------

static bool score_min(const struct manta__runref *r)
{
  manta_value start = {0};
  int64_t when;
  manta_error ignored = MANTA_ERROR_INIT;
  bool min = manta__runref_start(r, &start, &when, &ignored) == MANTA_OK &&
             manta_value_as_bool(manta_value_get(&start, "score_min"), false);
  manta_value_fini(&start);
  return min;
}

static bool is_newest(const char *what)
{
  return !what || !strcmp(what, "newest") || !strcmp(what, "latest");
}

static bool is_called(const struct manta__manifest *m, const char *what)
{
  char *end;
  errno = 0;
  long long n = strtoll(what, &end, 10);
  return !strcmp(m->name, what) ||
         (end != what && !*end && !errno && n == manta__ckdir_number(m->name));
}

static int64_t choose(const struct manta__manifest *list, size_t count, const char *what, bool min)
{
  if (is_newest(what))
    return (int64_t)count - 1;
  if (!strcmp(what, "best"))
    return manta__retain_best(list, count, min, NULL);
  for (size_t i = 0; i < count; i++)
    if (is_called(&list[i], what))
      return (int64_t)i;
  return -1;
}

static manta_status no_such(const struct manta__runref *r, const char *what, size_t count,
                            manta_error *err)
{
  if (count == 0)
    return manta_error_set(err, MANTA_ENOENT, "%s has no checkpoint", r->name);
  if (!strcmp(what, "best"))
    return manta_error_set(err, MANTA_ENOENT, "no checkpoint of %s has a score", r->name);
  return manta_error_set(err, MANTA_ENOENT, "%s has no checkpoint %s\nhint: manta ckpt ls %s",
                         r->name, what, r->name);
}

manta_status manta__ckpt_pick(const struct manta__runref *r, const char *what,
                              struct manta__manifest *out, manta_error *err)
{
  struct manta__manifest *list = NULL;
  size_t count = 0;
  MANTA_TRY(manta__store_list(r->fd, false, &list, &count, err));
  int64_t i = choose(list, count, what, score_min(r));
  if (i >= 0)
    *out = list[i];
  manta_free(list);
  return i < 0 ? no_such(r, what, count, err) : MANTA_OK;
}

static int open_all(const struct manta__runref *r, manta_error *err)
{
  int fd = openat(r->fd, "checkpoints", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT)
    manta_error_set(err, MANTA_ENOENT, "%s has no checkpoint", r->name);
  else if (fd < 0)
    manta_error_set(err, MANTA_EIO, "open %s/checkpoints: %m", r->path);
  return fd;
}

int manta__ckpt_dir(const struct manta__runref *r, const char *name, manta_error *err)
{
  int all = open_all(r, err);
  if (all < 0)
    return -1;
  int fd = openat(all, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    manta_error_set(err, MANTA_EIO, "open checkpoint %s: %m", name);
  close(all);
  return fd;
}

// --- ls ------------------------------------------------------------------------------------------

struct listing {
  struct manta__manifest *list;
  size_t count;
  int64_t best;
};

static const char *marks(const struct listing *l, size_t i)
{
  bool newest = i + 1 == l->count, best = (int64_t)i == l->best;
  return newest && best ? "newest, best" : newest ? "newest" : best ? "best" : "";
}

static void print_list(const struct listing *l)
{
  static const char *const titles[] = {"name", "iteration", "score", "size", "age", ""};
  struct manta__grid g;
  char text[MANTA__TEXT];
  manta__grid_init(&g, titles, 6, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
  for (size_t i = 0; i < l->count; i++) {
    const struct manta__manifest *m = &l->list[i];
    manta__grid_cell(&g, "%s", m->name);
    manta__grid_cell(&g, "%" PRId64, m->iteration);
    if (m->has_score)
      manta__grid_cell(&g, "%.6g", m->score);
    else
      manta__grid_cell(&g, "-");
    manta__grid_cell(&g, "%s", manta__text_size(text, m->bytes));
    manta__grid_cell(&g, "%s", manta__text_duration(text, manta__wall() - m->wall_ns));
    manta__grid_cell(&g, "%s", marks(l, i));
  }
  if (l->count > 0)
    manta__grid_print(&g, stdout);
  manta__grid_fini(&g);
}

static manta_status put_manifest(manta_value *v, const struct manta__manifest *m)
{
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta_value_put_string(v, "name", m->name));
  MANTA_TRY(manta_value_put_int(v, "iteration", m->iteration));
  MANTA_TRY(manta_value_put_int(v, "workers", m->world));
  MANTA_TRY(manta_value_put_int(v, "bytes", (int64_t)m->bytes));
  MANTA_TRY(manta_value_put_real(v, "time", (double)m->wall_ns / 1e9));
  manta_value score = {0};
  if (m->has_score)
    score = manta_value_real(m->score);
  return manta_value_put(v, "score", &score);
}

static manta_status list_json(manta_value *out, const struct listing *l)
{
  MANTA_TRY(manta_value_set_list(out));
  for (size_t i = 0; i < l->count; i++) {
    manta_value v = {0};
    MANTA_TRY(put_manifest(&v, &l->list[i]));
    MANTA_TRY(manta_value_put_bool(&v, "newest", i + 1 == l->count));
    MANTA_TRY(manta_value_put_bool(&v, "best", (int64_t)i == l->best));
    MANTA_TRY(manta_value_append(out, &v));
  }
  return MANTA_OK;
}

static int finish_json(manta_value *v, manta_status st)
{
  manta_error err = MANTA_ERROR_INIT;
  if (st < 0)
    manta_error_set(&err, st, "no memory for the answer");
  int code = st < 0 ? manta__complain(&err) : manta__print_json(v);
  manta_value_fini(v);
  return code;
}

static int list(const struct manta__runref *r, const struct manta__args *a, manta_error *err)
{
  struct listing l = {0};
  manta_value v = {0};
  int code = MANTA__EXIT_OK;
  if (manta__store_list(r->fd, false, &l.list, &l.count, err) < 0)
    return manta__complain(err);
  l.best = manta__retain_best(l.list, l.count, score_min(r), NULL);
  if (manta__args_has(a, "json"))
    code = finish_json(&v, list_json(&v, &l));
  else if (l.count == 0)
    manta__say("%s has no checkpoint", r->name);
  else
    print_list(&l);
  manta_free(l.list);
  return code;
}

// --- show ----------------------------------------------------------------------------------------

static const char *shape_text(char *buf, size_t size, const manta_tensor *t)
{
  size_t at = 0;
  snprintf(buf, size, "scalar");
  for (int d = 0; d < t->ndim && at + 1 < size; d++)
    at += (size_t)snprintf(buf + at, size - at, "%s%" PRId64, d ? " x " : "", t->shape[d]);
  return buf;
}

static void print_tensors(const manta_checkpoint *c)
{
  static const char *const titles[] = {"tensor", "type", "shape", "size"};
  char text[MANTA__TEXT], shape[256];
  struct manta__grid g;
  manta__grid_init(&g, titles, 4, 1u << 3);
  for (size_t i = 0; i < manta_checkpoint_count(c); i++) {
    const manta_tensor *t = manta_checkpoint_at(c, i);
    manta__grid_cell(&g, "%s", t->name);
    manta__grid_cell(&g, "%s", manta_dtype_name(t->dtype));
    manta__grid_cell(&g, "%s", shape_text(shape, sizeof shape, t));
    manta__grid_cell(&g, "%s", manta__text_size(text, (uint64_t)manta_tensor_bytes(t)));
  }
  if (manta_checkpoint_count(c) > 0)
    manta__grid_print(&g, stdout);
  manta__grid_fini(&g);
}

static int print_checkpoint(const struct manta__manifest *m, const manta_checkpoint *c)
{
  char size[MANTA__TEXT], when[MANTA__TEXT], score[48] = "";
  if (m->has_score)
    snprintf(score, sizeof score, ", score %.6g", m->score);
  printf("checkpoint %s, iteration %" PRId64 "%s, %s, %s\n\n", m->name, m->iteration, score,
         manta__text_size(size, m->bytes), manta__text_time(when, m->wall_ns));
  print_tensors(c);
  printf("%svalue\n", manta_checkpoint_count(c) > 0 ? "\n" : "");
  return manta__print_json(manta_checkpoint_value(c));
}

static manta_status tensor_json(manta_value *list_out, const manta_tensor *t)
{
  manta_value v = {0}, shape = {0};
  MANTA_TRY(manta_value_set_map(&v));
  MANTA_TRY(manta_value_set_list(&shape));
  for (int d = 0; d < t->ndim; d++) {
    manta_value n = manta_value_int(t->shape[d]);
    MANTA_TRY(manta_value_append(&shape, &n));
  }
  MANTA_TRY(manta_value_put_string(&v, "name", t->name));
  MANTA_TRY(manta_value_put_string(&v, "dtype", manta_dtype_name(t->dtype)));
  MANTA_TRY(manta_value_put(&v, "shape", &shape));
  MANTA_TRY(manta_value_put_int(&v, "bytes", manta_tensor_bytes(t)));
  return manta_value_append(list_out, &v);
}

static manta_status show_json(manta_value *v, const struct manta__manifest *m,
                              const manta_checkpoint *c)
{
  manta_value tensors = {0}, value = {0};
  MANTA_TRY(put_manifest(v, m));
  MANTA_TRY(manta_value_set_list(&tensors));
  for (size_t i = 0; i < manta_checkpoint_count(c); i++)
    MANTA_TRY(tensor_json(&tensors, manta_checkpoint_at(c, i)));
  MANTA_TRY(manta_value_put(v, "tensors", &tensors));
  MANTA_TRY(manta_value_copy(&value, manta_checkpoint_value(c)));
  return manta_value_put(v, "value", &value);
}

static int show(const struct manta__runref *r, const struct manta__args *a, manta_error *err)
{
  struct manta__manifest m;
  manta_checkpoint *c;
  manta_value v = {0};
  if (manta__ckpt_pick(r, a->operand[2], &m, err) < 0)
    return manta__complain(err);
  int fd = manta__ckpt_dir(r, m.name, err);
  if (fd < 0 || manta__checkpoint_from_fd(&c, fd, false, err) < 0) {
    manta__fd_close(&fd);
    return manta__complain(err);
  }
  int code =
      manta__args_has(a, "json") ? finish_json(&v, show_json(&v, &m, c)) : print_checkpoint(&m, c);
  manta_checkpoint_close(c);
  close(fd);
  return code;
}

// --- verify --------------------------------------------------------------------------------------

struct verification {
  int dir;
  const char *only; // or NULL
  bool json;
  manta_value rows;
  int good, bad;
};

static manta_status note(struct verification *x, const char *name, const char *why)
{
  manta_value v = {0};
  if (!x->json) {
    printf("%s  %s%s%s\n", name, why ? "BAD" : "ok", why ? ": " : "", why ? why : "");
    return MANTA_OK;
  }
  MANTA_TRY(manta_value_set_map(&v));
  MANTA_TRY(manta_value_put_string(&v, "name", name));
  MANTA_TRY(manta_value_put_bool(&v, "ok", !why));
  MANTA_TRY(manta_value_put_string(&v, "message", why));
  return manta_value_append(&x->rows, &v);
}

static manta_status verify_one(void *ctx, const char *name)
{
  struct verification *x = ctx;
  struct manta__manifest m;
  manta_error why = MANTA_ERROR_INIT;
  if (manta__ckdir_number(name) < 0 || (x->only && strcmp(x->only, name) != 0))
    return MANTA_OK;
  manta_status st = manta__ckdir_read(x->dir, name, &m, &why);
  if (st == MANTA_ENOENT)
    return MANTA_OK; // being written, or being deleted: no checkpoint
  if (st == MANTA_OK)
    st = manta__ckdir_verify(x->dir, &m, &why);
  x->good += st == MANTA_OK;
  x->bad += st < 0;
  return note(x, name, st < 0 ? why.message : NULL);
}

static int judge(struct verification *x, const struct manta__runref *r, manta_status st,
                 manta_error *err)
{
  int code = MANTA__EXIT_OK;
  if (st < 0)
    code = manta__complain(err);
  else if (x->json)
    code = manta__print_json(&x->rows);
  if (code == MANTA__EXIT_OK && x->bad > 0) {
    manta__say("%d of %d checkpoints of %s are damaged", x->bad, x->good + x->bad, r->name);
    code = MANTA__EXIT_FAILED;
  }
  return code;
}

// A name is looked up among the directories, not the manifests: it may be damaged.
static void name_of(char out[32], const char *what)
{
  char *end;
  long long n = strtoll(what, &end, 10);
  if (end != what && !*end && n >= 0)
    manta__ckdir_name(out, n);
  else
    snprintf(out, 32, "%s", what);
}

static int verify(const struct manta__runref *r, const struct manta__args *a, manta_error *err)
{
  struct verification x = {.json = manta__args_has(a, "json")};
  struct manta__manifest m;
  const char *what = a->operand[2];
  char name[32];
  if (what && (is_newest(what) || !strcmp(what, "best"))) {
    if (manta__ckpt_pick(r, what, &m, err) < 0)
      return manta__complain(err);
    what = m.name;
  }
  if (what) {
    name_of(name, what);
    x.only = name;
  }
  if ((x.dir = open_all(r, err)) < 0)
    return manta__complain(err);
  manta_status st = manta_value_set_list(&x.rows);
  if (st == MANTA_OK)
    st = manta__ckdir_each(x.dir, verify_one, &x, err);
  if (st == MANTA_OK && x.good + x.bad == 0)
    st = no_such(r, what ? what : "", what ? 1 : 0, err);
  int code = judge(&x, r, st, err);
  manta_value_fini(&x.rows);
  close(x.dir);
  return code;
}

// --- export --------------------------------------------------------------------------------------

static int export(const struct manta__runref *r, const struct manta__args *a, manta_error *err)
{
  struct manta__manifest m;
  if (manta__ckpt_pick(r, a->operand[2], &m, err) < 0 || manta__ckpt_export(r, &m, a, err) < 0)
    return manta__complain(err);
  return MANTA__EXIT_OK;
}

// --- All of them ---------------------------------------------------------------------------------

static const struct part {
  const char *name;
  int (*run)(const struct manta__runref *r, const struct manta__args *a, manta_error *err);
} parts[] = {{"ls", list}, {"show", show}, {"verify", verify}, {"export", export}};

int manta__cmd_ckpt(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r;
  const struct part *p = NULL;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (!strcmp(parts[i].name, a->operand[0]))
      p = &parts[i];
  if (!p)
    manta_error_set(&err, MANTA_EINVAL,
                    "manta ckpt has no \"%s\"; there are ls, show, verify and "
                    "export",
                    a->operand[0]);
  if (!p || manta__runref_open(&r, a->operand[1], &err) < 0)
    return manta__complain(&err);
  int code = p->run(&r, a, &err);
  manta__runref_close(&r);
  return code;
}
