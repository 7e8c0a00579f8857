/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/manifest.c - the manifest of a checkpoint: one line of JSON that vouches for the files.
 *
 *   {"manta":1,"name":"000012",…,"files":[{"name":…,"bytes":…,"hash":"…"},…],"check":"…"}
 *
 * and before "check", where there are any, the extras: "data":{"$bytes":"<base64>"}, "random":…
 *
 * (1) "check" is the XXH3 of every byte before `,"check"`.
 * (2) Numbers that a double can't hold (hashes, ids, nanoseconds) are strings, so that any JSON
 *     reader sees them whole.
 * (3) A text is accepted only if it is JSON as manta writes it, and has every field that writing
 *     what was read from it gives, with the same value: what is wrong is refused without a rule for
 *     each way to be so. Fields that this version does not know are passed over.
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

#define FORM     1 /* of the manifest; rises when who does not know what is new would go wrong */
#define TAIL_LEN (sizeof ",\"check\":\"0123456789abcdef\"}\n" - 1)
#define FILES                                                                                      \
  ((int)(sizeof((struct manta__manifest){0}.files) / sizeof(struct manta__manifest_file)))

/* --- Writing ------------------------------------------------------------------------------------
 */

static manta_status put_hex(manta_value *v, const char *key, uint64_t x)
{
  char text[17];
  snprintf(text, sizeof text, "%016" PRIx64, x);
  return manta_value_put_string(v, key, text);
}

static manta_status put_file(manta_value *list, const struct manta__manifest_file *f)
{
  manta_value v = {0};
  manta_status st = manta_value_set_map(&v);
  if (st == MANTA_OK)
    st = manta_value_put_string(&v, "name", f->name);
  if (st == MANTA_OK)
    st = manta_value_put_int(&v, "bytes", (int64_t)f->bytes);
  if (st == MANTA_OK)
    st = put_hex(&v, "hash", f->hash);
  if (st == MANTA_OK)
    st = manta_value_append(list, &v);
  manta_value_fini(&v);
  return st;
}

static manta_status put_files(manta_value *v, const struct manta__manifest *m)
{
  manta_value list = {0};
  manta_status st = manta_value_set_list(&list);
  for (int i = 0; i < m->file_count && st == MANTA_OK; i++)
    st = put_file(&list, &m->files[i]);
  if (st == MANTA_OK)
    st = manta_value_put(v, "files", &list);
  manta_value_fini(&list);
  return st;
}

// Everything but the extras and the check.
static manta_status put_fields(manta_value *v, const struct manta__manifest *m)
{
  char wall[24];
  manta_value score = {0};
  if (m->has_score)
    score = manta_value_real(m->score);
  snprintf(wall, sizeof wall, "%" PRId64, m->wall_ns);
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta_value_put_int(v, "manta", FORM));
  MANTA_TRY(manta_value_put_string(v, "name", m->name));
  MANTA_TRY(put_hex(v, "run", m->id.run));
  MANTA_TRY(manta_value_put_int(v, "attempt", m->id.attempt));
  MANTA_TRY(manta_value_put_int(v, "rank", m->id.rank));
  MANTA_TRY(put_hex(v, "seq", m->id.seq));
  MANTA_TRY(manta_value_put_int(v, "iteration", m->iteration));
  MANTA_TRY(manta_value_put_string(v, "wall_ns", wall));
  MANTA_TRY(manta_value_put_int(v, "world", m->world));
  MANTA_TRY(manta_value_put(v, "score", &score));
  MANTA_TRY(manta_value_put_int(v, "bytes", (int64_t)m->bytes));
  if (m->directory)
    MANTA_TRY(manta_value_put_bool(v, "directory", true));
  return put_files(v, m);
}

static manta_status put_extras(manta_value *v, const struct manta__extras *e)
{
  for (int i = 0; e && i < MANTA__EXTRA_COUNT; i++) {
    manta_value bytes = {0};
    if (e->item[i].len == 0)
      continue;
    MANTA_TRY(manta_value_set_bytes(&bytes, e->item[i].bytes, e->item[i].len));
    manta_status st = manta_value_put(v, manta__extra_name((enum manta__extra)i), &bytes);
    manta_value_fini(&bytes);
    MANTA_TRY(st);
  }
  return MANTA_OK;
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

static manta_status check_extras(const struct manta__extras *e, manta_error *err)
{
  for (int i = 0; e && i < MANTA__EXTRA_COUNT; i++)
    if (e->item[i].len > MANTA__EXTRA_MAX)
      return manta_error_set(err, MANTA_EINVAL, "a manifest with %zu bytes of \"%s\"",
                             e->item[i].len, manta__extra_name((enum manta__extra)i));
  return MANTA_OK;
}

manta_status manta__manifest_write(const struct manta__manifest *m,
                                   const struct manta__extras *extras, char **out, size_t *len,
                                   manta_error *err)
{
  if (m->file_count < 0 || m->file_count > FILES || (m->has_score && isnan(m->score)))
    return manta_error_set(err, MANTA_EINVAL, "a manifest of %d files or with a score of NaN",
                           m->file_count);
  MANTA_TRY(check_extras(extras, err));
  manta_value v = {0};
  char *body = NULL;
  manta_status st = put_fields(&v, m);
  if (st == MANTA_OK)
    st = put_extras(&v, extras);
  if (st < 0)
    manta_error_set(err, st, "the manifest's fields: %s", manta_status_text(st));
  else
    st = manta_value_to_json(&v, -1, &body, err);
  if (st == MANTA_OK)
    st = add_check(body, out, len, err);
  manta_value_fini(&v);
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
  m->directory = manta_value_as_bool(manta_value_get(v, "directory"), false);
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

static manta_status get_extras(struct manta__extras *e, const manta_value *v, manta_error *err)
{
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    enum manta__extra which = (enum manta__extra)i;
    const manta_value *b = manta_value_get(v, manta__extra_name(which));
    if (!b)
      continue;
    if (b->type != MANTA_BYTES || b->count == 0 || b->count > MANTA__EXTRA_MAX)
      return bad(err, "an extra that is no packed value, or too long");
    if (e)
      MANTA_TRY(manta__extras_put(e, which, b->u.s, b->count, err));
  }
  return MANTA_OK;
}

// Whether `v` has all that `part` has; of maps it may have more.
static bool contains(const manta_value *v, const manta_value *part)
{
  if (!v || v->type != part->type)
    return false;
  if (part->type == MANTA_MAP) {
    for (uint32_t i = 0; i < part->count; i++)
      if (!contains(manta_value_get(v, part->u.pairs[i].key), &part->u.pairs[i].value))
        return false;
    return true;
  }
  if (part->type != MANTA_LIST)
    return manta_value_equal(v, part);
  for (uint32_t i = 0; i < part->count; i++)
    if (!contains(manta_value_at(v, i), &part->u.items[i]))
      return false;
  return v->count == part->count;
}

static manta_status check_fields(const struct manta__manifest *m, const manta_value *v,
                                 manta_error *err)
{
  manta_value again = {0};
  manta_status st = put_fields(&again, m);
  if (st < 0)
    manta_error_set(err, st, "no memory to read a manifest");
  else if (!contains(v, &again))
    st = bad(err, "not in the form that manta writes");
  manta_value_fini(&again);
  return st;
}

// The text is what manta writes for `v`: no blanks, no field twice, no number in another form.
static manta_status check_text(const manta_value *v, const char *text, size_t len, manta_error *err)
{
  char *again = NULL;
  manta_status st = manta_value_to_json(v, -1, &again, err);
  if (st < 0)
    return st == MANTA_ENOMEM ? st : bad(err, "not in the form that manta writes");
  size_t n = strlen(again);
  bool same = len == n + 1 && !memcmp(again, text, n) && text[n] == '\n';
  manta_free(again);
  return same ? MANTA_OK : bad(err, "not in the form that manta writes");
}

static manta_status read_all(struct manta__manifest *m, struct manta__extras *extras,
                             const manta_value *v, const char *text, size_t len, manta_error *err)
{
  MANTA_TRY(check_text(v, text, len, err));
  MANTA_TRY(get_fields(m, v, err));
  MANTA_TRY(check_fields(m, v, err));
  return get_extras(extras, v, err);
}

manta_status manta__manifest_parse(struct manta__manifest *out, struct manta__extras *extras,
                                   const char *text, size_t len, manta_error *err)
{
  MANTA_TRY(check_sum(text, len, err));
  manta_value v = {0};
  manta_status st = manta_value_from_json(&v, text, len, err);
  if (st < 0)
    return st == MANTA_ENOMEM ? st : bad(err, "not JSON");
  struct manta__manifest m = {0};
  st = read_all(&m, extras, &v, text, len, err);
  manta_value_fini(&v);
  if (st == MANTA_OK)
    *out = m;
  else if (extras)
    manta__extras_fini(extras);
  return st;
}
