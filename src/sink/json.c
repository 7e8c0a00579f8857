/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/json.c - results.json: an array with an array per iteration, that has a map per worker.
 *
 * The closing bracket is a tail that each write puts behind what it appends: the file is JSON after
 * every write, whatever its length, and nothing is written twice. results.jsonl has the same arrays
 * without the outer one, an iteration per line, for `tail -f` and for programs that read along.
 * params.json is the config.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/value.h"
#include "sink/files.h"
#include "sink/outfile.h"
#include "sys/file.h"

#define FILENAME "results.json"
#define PARAMS   "params.json"

struct json_sink {
  const struct manta__sink_env *env;
  struct manta__outfile array, lines;
  bool told_nan;
};

static manta_status write_params(const struct manta__sink_env *env, manta_error *err)
{
  manta__buf b;
  manta__buf_init(&b, MANTA__JSON_MAX);
  manta_status st = manta__json_append(&b, env->config, NULL);
  if (st == MANTA_OK)
    st = manta__buf_putc(&b, '\n');
  if (st < 0)
    manta_error_set(err, st, "no memory for " PARAMS);
  else
    st = manta__file_swap(env->outdir, PARAMS, b.data, b.len, err);
  manta__buf_fini(&b);
  return st;
}

// results.json -> results.jsonl; without that ending it is put behind.
static void name_lines(char *out, size_t size, const char *name)
{
  size_t n = strlen(name);
  bool json = n > 5 && !strcmp(name + n - 5, ".json");
  snprintf(out, size, "%s%s", name, json ? "l" : ".jsonl");
}

static void json_close(void *sink)
{
  struct json_sink *s = sink;
  manta__outfile_close(&s->array);
  manta__outfile_close(&s->lines);
  manta__free(s);
}

static manta_status json_open(void **out, const struct manta__sink_env *env, manta_error *err)
{
  char lines[256];
  const char *name = manta_value_as_string(manta_value_get(env->options, "filename"), FILENAME);
  struct json_sink *s = manta__calloc(1, sizeof *s);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  s->env = env;
  s->array.fd = s->lines.fd = -1;
  name_lines(lines, sizeof lines, name);
  manta_status st = write_params(env, err);
  if (st == MANTA_OK)
    st = manta__outfile_open(&s->array, env->outdir, name, "[", "\n]\n", err);
  if (st == MANTA_OK)
    st = manta__outfile_open(&s->lines, env->outdir, lines, "", "", err);
  if (st < 0)
    json_close(s);
  else
    *out = s;
  return st;
}

static void tell_nan(struct json_sink *s, int64_t iteration)
{
  char text[160];
  if (!s->told_nan)
    snprintf(text, sizeof text,
             "a number of iteration %lld is NaN or infinite: JSON has none, null is written",
             (long long)iteration);
  if (!s->told_nan)
    s->env->warn(s->env, text);
  s->told_nan = true;
}

static manta_status put_rows(manta__buf *b, const struct manta__sink_rows *rows, bool *lossy)
{
  MANTA_TRY(manta__buf_putc(b, '['));
  for (int i = 0; i < rows->count; i++) {
    if (i > 0)
      MANTA_TRY(manta__buf_putc(b, ','));
    MANTA_TRY(manta__json_append(b, &rows->row[i].row, lossy));
  }
  return manta__buf_puts(b, "]\n");
}

// The same text goes to both files; only what separates iterations differs.
static manta_status put(struct json_sink *s, const struct manta__sink_rows *rows, bool *lossy)
{
  manta__buf *lines = &s->lines.buf, *array = &s->array.buf;
  size_t from = lines->len;
  bool first = s->array.size + (int64_t)array->len == 1;
  MANTA_TRY(put_rows(lines, rows, lossy));
  MANTA_TRY(manta__buf_puts(array, first ? "\n" : ",\n"));
  return manta__buf_append(array, lines->data + from, lines->len - from - 1);
}

static manta_status json_rows(void *sink, const struct manta__sink_rows *rows, manta_error *err)
{
  struct json_sink *s = sink;
  bool lossy = false;
  MANTA_TRY(manta__outfile_room(&s->array, err));
  MANTA_TRY(manta__outfile_room(&s->lines, err));
  manta_status st = put(s, rows, &lossy);
  if (st < 0)
    return manta_error_set(err, st, "no memory for the JSON text of iteration %lld",
                           (long long)rows->iteration);
  if (lossy)
    tell_nan(s, rows->iteration);
  return MANTA_OK;
}

static manta_status json_flush(void *sink, manta_error *err)
{
  struct json_sink *s = sink;
  MANTA_TRY(manta__outfile_flush(&s->lines, err));
  return manta__outfile_flush(&s->array, err);
}

static void json_mark(const void *sink, struct manta__sink_mark *out)
{
  const struct json_sink *s = sink;
  struct manta__outfile_mark a = manta__outfile_mark(&s->array), l = manta__outfile_mark(&s->lines);
  *out = (struct manta__sink_mark){{a.size, a.hash, l.size, l.hash}};
}

static manta_status json_back(void *sink, const struct manta__sink_mark *m, manta_error *err)
{
  struct json_sink *s = sink;
  MANTA_TRY(
      manta__outfile_back(&s->array, (struct manta__outfile_mark){m->word[0], m->word[1]}, err));
  return manta__outfile_back(&s->lines, (struct manta__outfile_mark){m->word[2], m->word[3]}, err);
}

const struct manta__sink_kind manta__sink_json = {
    .name = "json",
    .help = "results.json, results.jsonl and params.json",
    .file = FILENAME,
    .cuts = true,
    .open = json_open,
    .rows = json_rows,
    .flush = json_flush,
    .mark = json_mark,
    .back = json_back,
    .close = json_close,
};
