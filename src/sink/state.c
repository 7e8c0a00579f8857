/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/value.h"
#include "sys/file.h"
#include "sys/sock.h"

#define LIMIT   (16u << 20)
#define NUMBERS 11 /* of a bookmark */

const struct manta__bookmark *manta__state_newest(const struct manta__sink_state *s)
{
  return &s->mark[s->count - 1];
}

// The newer half stays dense: every other one of the older half goes, the beginning never.
static void thin_out(struct manta__sink_state *s)
{
  int to = 1;
  for (int i = 2; i < s->count; i++)
    if (i > s->count / 2 || i % 2 == 0)
      s->mark[to++] = s->mark[i];
  s->count = to;
}

void manta__state_add(struct manta__sink_state *s, const struct manta__bookmark *b)
{
  if (s->count == MANTA__BOOKMARKS)
    thin_out(s);
  s->mark[s->count++] = *b;
}

const struct manta__bookmark *manta__state_back(struct manta__sink_state *s, int64_t to)
{
  while (s->count > 1 && (to < 0 || s->mark[s->count - 1].iteration > to))
    s->count--;
  return manta__state_newest(s);
}

// --- the file ------------------------------------------------------------------------------------

static void numbers_of(const struct manta__bookmark *b, int64_t n[NUMBERS])
{
  int64_t hash;
  memcpy(&hash, &b->place.hash, sizeof hash);
  int64_t all[NUMBERS] = {b->place.segment, b->place.start,  b->place.end,   hash,
                          b->iteration,     b->attempt,      b->world,       b->mark.word[0],
                          b->mark.word[1],  b->mark.word[2], b->mark.word[3]};
  memcpy(n, all, sizeof all);
}

static void of_numbers(struct manta__bookmark *b, const int64_t n[NUMBERS])
{
  *b = (struct manta__bookmark){.place = {n[0], n[1], n[2], 0},
                                .iteration = n[4],
                                .attempt = (uint32_t)n[5],
                                .world = (int)n[6],
                                .mark = {{n[7], n[8], n[9], n[10]}}};
  memcpy(&b->place.hash, &n[3], sizeof n[3]);
}

static void path_of(const struct manta__sink_state *s, const char *end, char path[96])
{
  snprintf(path, 96, MANTA__STATE_FOLDER "/%s%s", s->name, end);
}

static bool read_bookmark(struct manta__bookmark *b, const manta_value *list)
{
  int64_t n[NUMBERS];
  for (int i = 0; i < NUMBERS; i++) {
    const manta_value *v = manta_value_at(list, (size_t)i);
    if (!v || v->type != MANTA_INT)
      return false;
    n[i] = v->u.i;
  }
  of_numbers(b, n);
  return b->iteration >= 0 && b->world >= 0;
}

static void take(struct manta__sink_state *s, const manta_value *file)
{
  static const manta_value none = {.type = MANTA_MAP};
  const manta_value *options = manta_value_get(file, "options");
  const manta_value *memo = manta_value_get(file, "memo");
  struct manta__bookmark b;
  if (!options || !manta_value_equal(options, s->options ? s->options : &none) ||
      !read_bookmark(&b, manta_value_get(file, "bookmark")))
    return;
  if (memo && manta_value_copy(&s->memo, memo) < 0)
    return;
  if (b.place.segment > 0)
    manta__state_add(s, &b);
}

void manta__state_init(struct manta__sink_state *s, int rundir, const char *name,
                       const manta_value *options)
{
  char path[96], *text;
  size_t len;
  manta_value file = {0};
  *s = (struct manta__sink_state){.rundir = rundir, .options = options, .count = 1};
  snprintf(s->name, sizeof s->name, "%s", name);
  path_of(s, "", path);
  if (manta__file_read(rundir, path, LIMIT, &text, &len, NULL) < 0)
    return;
  if (manta_value_from_json(&file, text, len, NULL) == MANTA_OK)
    take(s, &file);
  manta_value_fini(&file);
  manta_free(text);
}

void manta__state_fini(struct manta__sink_state *s)
{
  manta_value_fini(&s->memo);
}

static manta_status describe(const struct manta__sink_state *s, manta_value *out)
{
  int64_t n[NUMBERS];
  manta_value list = {0}, memo = {0}, options = {0};
  numbers_of(manta__state_newest(s), n);
  manta_status st = manta_value_set_list(&list);
  for (int i = 0; i < NUMBERS && st == MANTA_OK; i++) {
    manta_value v = manta_value_int(n[i]);
    st = manta_value_append(&list, &v);
  }
  if (st == MANTA_OK)
    st = manta_value_set_map(out);
  if (st == MANTA_OK)
    st = s->options ? manta_value_copy(&options, s->options) : manta_value_set_map(&options);
  if (st == MANTA_OK)
    st = manta_value_copy(&memo, &s->memo);
  if (st == MANTA_OK)
    st = manta_value_put(out, "options", &options);
  if (st == MANTA_OK)
    st = manta_value_put(out, "bookmark", &list);
  if (st == MANTA_OK)
    st = manta_value_put(out, "memo", &memo);
  manta_value_fini(&list);
  manta_value_fini(&memo);
  manta_value_fini(&options);
  return st;
}

static manta_status replace(const struct manta__sink_state *s, const char *text, manta_error *err)
{
  char path[96], temp[96];
  path_of(s, "", path);
  path_of(s, ".new", temp);
  int fd = openat(s->rundir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool bad = fd < 0 || manta__write_all(fd, text, strlen(text), NULL) < 0;
  manta__fd_close(&fd);
  if (bad || renameat(s->rundir, temp, s->rundir, path) < 0)
    return manta_error_set(err, MANTA_EIO, "write %s: %m", path);
  return MANTA_OK;
}

manta_status manta__state_save(const struct manta__sink_state *s, manta_error *err)
{
  int folder;
  char *text = NULL;
  manta_value v = {0};
  MANTA_TRY(manta__dir_makeat(s->rundir, MANTA__STATE_FOLDER, &folder, err));
  close(folder);
  manta_status st = describe(s, &v);
  if (st < 0)
    manta_error_set(err, st, "no memory to note how far a sink is");
  else
    st = manta_value_to_json(&v, -1, &text, err);
  if (st == MANTA_OK)
    st = replace(s, text, err);
  manta_free(text);
  manta_value_fini(&v);
  return st;
}
