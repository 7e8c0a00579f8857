/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/manifest.c - the manifest of a checkpoint: one line of JSON that vouches for the files.
 *
 *   {"manta":1,"name":"000012",…,"files":[{"name":…,"bytes":…,"hash":"…"},…],"check":"…"}
 *
 * (1) "check" is the XXH3 of every byte before `,"check"`.
 * (2) Numbers that a double can't hold (hashes, ids, nanoseconds) are strings, so that any JSON
 *     reader sees them whole.
 * (3) A text is accepted only if writing what was read from it gives the same bytes again:
 *     whatever manta__manifest_write did not write is refused, without a rule for each way to be
 *     wrong.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/hash.h"
#include "ckpt/store.h"

#define FORM     1 /* of the manifest; rises when its fields change */
#define TAIL_LEN (sizeof ",\"check\":\"0123456789abcdef\"}\n" - 1)
#define FILES                                                                                      \
  ((int)(sizeof((struct manta__manifest){0}.files) / sizeof(struct manta__manifest_file)))

/* --- Writing ------------------------------------------------------------------------------------
 */

static manta_status put_files(manta_value *list, const struct manta__manifest *m)
{
  MANTA_TRY(manta_value_set_list(list));
  for (int i = 0; i < m->file_count; i++) {
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, m->files[i].hash);
    manta_value file = MANTA_MAP(MANTA_KV_STR("name", m->files[i].name),
                                 MANTA_KV_INT("bytes", (int64_t)m->files[i].bytes),
                                 MANTA_KV_STR("hash", hash)),
                owned = {0};
    MANTA_TRY(manta_value_copy(&owned, &file));
    manta_status st = manta_value_append(list, &owned);
    manta_value_fini(&owned);
    MANTA_TRY(st);
  }
  return MANTA_OK;
}

// Everything but the check; *text ends in '}'.
static manta_status put_body(const struct manta__manifest *m, const manta_value *files, char **text,
                             manta_error *err)
{
  char run[17], seq[17], wall[24];
  snprintf(run, sizeof run, "%016" PRIx64, m->id.run);
  snprintf(seq, sizeof seq, "%016" PRIx64, m->id.seq);
  snprintf(wall, sizeof wall, "%" PRId64, m->wall_ns);
  manta_value score = {0};
  if (m->has_score)
    score = manta_value_real(m->score);
  manta_value v = MANTA_MAP(MANTA_KV_INT("manta", FORM), MANTA_KV_STR("name", m->name),
                            MANTA_KV_STR("run", run), MANTA_KV_INT("attempt", m->id.attempt),
                            MANTA_KV_INT("rank", m->id.rank), MANTA_KV_STR("seq", seq),
                            MANTA_KV_INT("iteration", m->iteration), MANTA_KV_STR("wall_ns", wall),
                            MANTA_KV_INT("world", m->world), MANTA_KV("score", score),
                            MANTA_KV_INT("bytes", (int64_t)m->bytes), MANTA_KV("files", *files));
  return manta_value_to_json(&v, -1, text, err);
}

static manta_status add_check(const char *body, char **out, size_t *len, manta_error *err)
{
  size_t n = strlen(body) - 1; // without the brace
  char *text = manta__malloc(n + TAIL_LEN + 1);
  if (!text)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a manifest");
  memcpy(text, body, n);
  snprintf(text + n, TAIL_LEN + 1, ",\"check\":\"%016" PRIx64 "\"}\n", manta__hash(text, n));
  *out = text;
  *len = n + TAIL_LEN;
  return MANTA_OK;
}

manta_status manta__manifest_write(const struct manta__manifest *m, char **out, size_t *len,
                                   manta_error *err)
{
  if (m->file_count < 0 || m->file_count > FILES || (m->has_score && isnan(m->score)))
    return manta_error_set(err, MANTA_EINVAL, "a manifest of %d files or with a score of NaN",
                           m->file_count);
  manta_value files = {0};
  char *body = NULL;
  manta_status st = put_files(&files, m);
  if (st < 0)
    manta_error_set(err, st, "the manifest's files: %s", manta_status_text(st));
  else
    st = put_body(m, &files, &body, err);
  if (st == MANTA_OK)
    st = add_check(body, out, len, err);
  manta_value_fini(&files);
  manta_free(body);
  return st;
}

/* --- Reading ------------------------------------------------------------------------------------
 */

static manta_status bad(manta_error *err, const char *what)
{
  return manta_error_set(err, MANTA_ECORRUPT, "manifest.json: %s", what);
}

// Copies a string that must fit; false if it is none.
static bool get_text(const manta_value *map, const char *key, char *to, size_t size)
{
  const char *s = manta_value_as_string(manta_value_get(map, key), "");
  size_t n = strlen(s);
  if (n == 0 || n >= size)
    return false;
  memcpy(to, s, n + 1);
  return true;
}

// A form that strtoull takes beyond ours (a sign, spaces) does not survive the second writing.
static uint64_t get_hex(const manta_value *map, const char *key)
{
  return strtoull(manta_value_as_string(manta_value_get(map, key), ""), NULL, 16);
}

static int64_t get_int(const manta_value *map, const char *key)
{
  return manta_value_as_int(manta_value_get(map, key), -1);
}

static bool plain_name(const char *s)
{
  return !strchr(s, '/') && s[0] != '.';
}

static manta_status get_files(struct manta__manifest *m, const manta_value *list, manta_error *err)
{
  if (!list || list->type != MANTA_LIST || list->count > (uint32_t)FILES)
    return bad(err, "the list of files is missing or too long");
  for (uint32_t i = 0; i < list->count; i++) {
    const manta_value *f = manta_value_at(list, i);
    struct manta__manifest_file *to = &m->files[m->file_count++];
    if (!get_text(f, "name", to->name, sizeof to->name) || !plain_name(to->name))
      return bad(err, "a file without a plain name");
    if (get_int(f, "bytes") < 0)
      return bad(err, "a file without a size");
    to->bytes = (uint64_t)get_int(f, "bytes");
    to->hash = get_hex(f, "hash");
  }
  return MANTA_OK;
}

static manta_status get_fields(struct manta__manifest *m, const manta_value *v, manta_error *err)
{
  if (get_int(v, "manta") != FORM)
    return bad(err, "written by another version of manta, or not by manta");
  if (!get_text(v, "name", m->name, sizeof m->name) || !plain_name(m->name))
    return bad(err, "no name");
  m->id.run = get_hex(v, "run");
  m->id.seq = get_hex(v, "seq");
  m->id.attempt = (uint32_t)get_int(v, "attempt");
  m->id.rank = (int32_t)get_int(v, "rank");
  m->iteration = get_int(v, "iteration");
  m->wall_ns = strtoll(manta_value_as_string(manta_value_get(v, "wall_ns"), ""), NULL, 10);
  m->world = (int32_t)get_int(v, "world");
  const manta_value *score = manta_value_get(v, "score");
  m->has_score = score && (score->type == MANTA_REAL || score->type == MANTA_INT);
  m->score = manta_value_as_real(score, 0);
  if (m->has_score && isnan(m->score))
    return bad(err, "a score of NaN");
  m->bytes = (uint64_t)get_int(v, "bytes");
  return get_files(m, manta_value_get(v, "files"), err);
}

static manta_status check_sum(const char *text, size_t len, manta_error *err)
{
  char tail[TAIL_LEN + 1];
  if (len < TAIL_LEN + 1)
    return bad(err, "cut off");
  size_t n = len - TAIL_LEN;
  snprintf(tail, sizeof tail, ",\"check\":\"%016" PRIx64 "\"}\n", manta__hash(text, n));
  return memcmp(tail, text + n, TAIL_LEN) ? bad(err, "its checksum does not match") : MANTA_OK;
}

static manta_status check_same(const struct manta__manifest *m, const char *text, size_t len,
                               manta_error *err)
{
  char *again = NULL;
  size_t n = 0;
  MANTA_TRY(manta__manifest_write(m, &again, &n, err));
  bool same = n == len && !memcmp(again, text, n);
  manta_free(again);
  return same ? MANTA_OK : bad(err, "not in the form that manta writes");
}

manta_status manta__manifest_parse(struct manta__manifest *out, const char *text, size_t len,
                                   manta_error *err)
{
  MANTA_TRY(check_sum(text, len, err));
  manta_value v = {0};
  manta_status st = manta_value_from_json(&v, text, len, err);
  if (st < 0)
    return st == MANTA_ENOMEM ? st : bad(err, "not JSON");
  struct manta__manifest m = {0};
  st = get_fields(&m, &v, err);
  manta_value_fini(&v);
  MANTA_TRY(st);
  MANTA_TRY(check_same(&m, text, len, err));
  *out = m;
  return MANTA_OK;
}
