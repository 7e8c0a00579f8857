/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/prune.c - `manta prune`: removes runs that nobody needs any more.
 *
 * (1) Only directories that hold a run, are no links and belong to this user; never one that
 *     somebody writes: its lock is taken first, and how it stands is read under the lock.
 * (2) run.log goes behind everything else: what is left of an interrupted prune is still a run.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta/manta.h>

#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runlist.h"
#include "event/lock.h"
#include "sys/tree.h"

#define NS 1000000000ll

struct pruning {
  int64_t keep;     /* the newest so many stay; -1: no matter */
  int64_t older_ns; /* younger ones stay; -1: no matter */
  bool dry, unfinished, json;
  struct manta__runlist list;
  manta_value removed, left; /* lists: [{name, bytes}], [{name, why}] */
  int64_t bytes;
  int failures;
  manta_status st; /* the first lack of memory */
};

// --- What was asked for --------------------------------------------------------------------------

// "30d", "12h": a number and its unit, in ns.
static manta_status read_age(int64_t *out, const char *text, manta_error *err)
{
  static const struct {
    char unit;
    int64_t s;
  } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
  char *end;
  errno = 0;
  double n = strtod(text, &end);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (end != text && end[0] == units[i].unit && !end[1] && n >= 0 &&
        n * (double)units[i].s < 9e9) {
      *out = (int64_t)(n * (double)units[i].s * 1e9);
      return MANTA_OK;
    }
  return manta_error_set(err, MANTA_EINVAL,
                         "--older takes a number with s, m, h, d or w behind it, such as 30d, not "
                         "\"%s\"",
                         text);
}

static manta_status read_args(struct pruning *p, const struct manta__args *a, manta_error *err)
{
  const char *keep = manta__args_get(a, "keep"), *older = manta__args_get(a, "older");
  p->keep = p->older_ns = -1;
  p->dry = manta__args_has(a, "dry-run");
  p->unfinished = manta__args_has(a, "unfinished");
  p->json = manta__args_has(a, "json");
  if (!keep && !older)
    return manta_error_set(err, MANTA_EINVAL,
                           "prune which runs?\nhint: --keep 20 leaves the newest 20, --older 30d "
                           "those of the last 30 days; --dry-run only shows");
  if (keep)
    MANTA_TRY(manta__args_int(&p->keep, keep, "--keep", 0, 1000000, err));
  return older ? read_age(&p->older_ns, older, err) : MANTA_OK;
}

// --- One run -------------------------------------------------------------------------------------

static void note(struct pruning *p, manta_value *list, const char *name, const char *key,
                 manta_value what)
{
  manta_value v = {0};
  manta_status st = manta_value_set_map(&v);
  if (st == MANTA_OK)
    st = manta_value_put_string(&v, "name", name);
  if (st == MANTA_OK)
    st = manta_value_put(&v, key, &what);
  if (st == MANTA_OK)
    st = manta_value_append(list, &v);
  manta_value_fini(&what);
  manta_value_fini(&v);
  if (st < 0)
    p->st = st;
}

static void leave(struct pruning *p, const char *name, const char *why)
{
  manta_value text = {0};
  if (manta_value_set_string(&text, why) < 0)
    p->st = MANTA_ENOMEM;
  note(p, &p->left, name, "why", text);
}

static bool is_mine(int dirfd)
{
  struct stat dir, log;
  return fstat(dirfd, &dir) == 0 && fstatat(dirfd, "run.log", &log, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(log.st_mode) && dir.st_uid == geteuid() && log.st_uid == geteuid();
}

// NULL: it may go.
static const char *reason_to_stay(const struct pruning *p, const struct manta__runref *r,
                                  const struct manta__standing *s)
{
  if (!is_mine(r->fd))
    return "it belongs to another user";
  if (s->holder != 0 || !strcmp(s->word, "running"))
    return "it is running";
  if (!p->unfinished && !strcmp(s->word, "interrupted"))
    return "it is unfinished (--unfinished removes it)";
  return NULL;
}

static bool is_last(const char *name)
{
  return strncmp(name, "run.log", 7) == 0 || strcmp(name, ".lock") == 0;
}

static bool is_lock(const char *name)
{
  return strcmp(name, ".lock") == 0;
}

static manta_status remove_run(const struct pruning *p, const struct manta__runref *r,
                               manta_error *err)
{
  MANTA_TRY(manta__tree_empty(r->fd, is_last, err));
  MANTA_TRY(manta__tree_empty(r->fd, is_lock, err));
  MANTA_TRY(manta__tree_empty(r->fd, NULL, err));
  if (unlinkat(p->list.fd, r->name, AT_REMOVEDIR) < 0)
    return manta_error_set(err, MANTA_EIO, "remove directory %s: %m", r->path);
  return MANTA_OK;
}

// Under its lock: a program that would resume it finds it taken, or gone.
static manta_status lock_and_remove(const struct pruning *p, const struct manta__runref *r,
                                    manta_error *err)
{
  struct manta__runlock lock;
  struct manta__standing s;
  MANTA_TRY(manta__runlock_take(&lock, r->fd, r->path, err));
  manta_status st = manta__standing_read(&s, r, err);
  if (st == MANTA_OK) {
    bool unfinished = !strcmp(s.word, "interrupted") || s.sum.state == MANTA__RUN_GOING;
    manta__standing_fini(&s);
    st = unfinished && !p->unfinished
             ? manta_error_set(err, MANTA_ESTATE, "%s has begun again", r->path)
             : remove_run(p, r, err);
  }
  manta__runlock_drop(&lock);
  return st;
}

static void take(struct pruning *p, const struct manta__runref *r)
{
  char size[MANTA__TEXT];
  manta_error err = MANTA_ERROR_INIT;
  int64_t bytes = manta__tree_bytes(r->fd);
  if (!p->dry && lock_and_remove(p, r, &err) < 0) {
    manta__say("%s: %s", r->name, err.message);
    p->failures++;
    return;
  }
  p->bytes += bytes;
  note(p, &p->removed, r->name, "bytes", manta_value_int(bytes));
  if (!p->json)
    printf("%s %s (%s)\n", p->dry ? "would remove" : "removed", r->name,
           manta__text_size(size, (uint64_t)bytes));
}

static void consider(struct pruning *p, size_t i)
{
  struct manta__runref r;
  struct manta__standing s;
  manta_error err = MANTA_ERROR_INIT;
  const char *name = strrchr(p->list.paths[i], '/') + 1;
  if ((int64_t)i < p->keep)
    return;
  manta_status st = manta__runlist_read(&p->list, i, &r, &s, &err);
  if (st < 0) {
    leave(p, name, st == MANTA_ENOENT ? "it is a link" : err.message);
    return;
  }
  const char *why = reason_to_stay(p, &r, &s);
  if (p->older_ns < 0 || manta__standing_age(&s) >= p->older_ns) {
    if (why)
      leave(p, name, why);
    else
      take(p, &r);
  }
  manta__standing_fini(&s);
  manta__runref_close(&r);
}

// --- Telling -------------------------------------------------------------------------------------

static void print_text(const struct pruning *p)
{
  char size[MANTA__TEXT];
  for (size_t i = 0; i < p->left.count; i++) {
    const manta_value *v = manta_value_at(&p->left, i);
    printf("left %s: %s\n", manta_value_as_string(manta_value_get(v, "name"), "?"),
           manta_value_as_string(manta_value_get(v, "why"), "?"));
  }
  printf("%u run%s, %s %s\n", p->removed.count, p->removed.count == 1 ? "" : "s",
         manta__text_size(size, (uint64_t)p->bytes), p->dry ? "would be freed" : "freed");
}

static int print_json(const struct pruning *p)
{
  manta_value v = MANTA_MAP(MANTA_KV_STR("path", p->list.dir), MANTA_KV_BOOL("dry_run", p->dry),
                            MANTA_KV("removed", p->removed), MANTA_KV("left", p->left),
                            MANTA_KV_INT("bytes", p->bytes), MANTA_KV_INT("failed", p->failures));
  return manta__print_json(&v);
}

static int prune(struct pruning *p, manta_error *err)
{
  p->st = manta_value_set_list(&p->removed);
  if (p->st == MANTA_OK)
    p->st = manta_value_set_list(&p->left);
  for (size_t i = 0; i < p->list.count && p->st == MANTA_OK; i++)
    consider(p, i);
  if (p->st < 0) {
    manta_error_set(err, p->st, "no memory to list runs");
    return manta__complain(err);
  }
  int code = MANTA__EXIT_OK;
  if (p->json)
    code = print_json(p);
  else
    print_text(p);
  return p->failures ? MANTA__EXIT_FAILED : code;
}

int manta__cmd_prune(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pruning p = {.list = {.fd = -1}};
  if (read_args(&p, a, &err) < 0 || manta__runlist_open(&p.list, a->operand[0], &err) < 0)
    return manta__complain(&err);
  int code = prune(&p, &err);
  manta_value_fini(&p.removed);
  manta_value_fini(&p.left);
  manta__runlist_close(&p.list);
  return code;
}
