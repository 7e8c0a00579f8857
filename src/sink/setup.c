/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/setup.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "sink/sink.h"
#include "sys/file.h"

#define LIMIT (256u << 20)

manta_status manta_sink_check(const manta_sink *sink, manta_error *err)
{
  return manta__sink_check(sink->kind, sink->options, err);
}

// --- adding --------------------------------------------------------------------------------------

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for the sinks of a run");
}

static manta_status make_absolute(manta_value *options, manta_error *err)
{
  char cwd[PATH_MAX];
  const char *path = manta_value_as_string(manta_value_get(options, "logdir"), NULL);
  if (!path || path[0] == '/')
    return MANTA_OK;
  if (!getcwd(cwd, sizeof cwd))
    return manta_error_set(err, MANTA_EIO, "getcwd: %m");
  char *full = manta__asprintf("%s/%s", cwd, path);
  manta_status st = full ? manta_value_put_string(options, "logdir", full) : MANTA_ENOMEM;
  manta__free(full);
  return st < 0 ? no_memory(err) : MANTA_OK;
}

static const char *text_of(const manta_value *sink, const char *option, const char *dflt)
{
  return manta_value_as_string(manta_value_get(manta_value_get(sink, "options"), option), dflt);
}

static bool same_file(const manta_value *a, const manta_value *b)
{
  const char *kind = manta_value_as_string(manta_value_get(a, "kind"), "");
  const struct manta__sink_kind *k;
  if (manta__sink_find(kind, &k, NULL) < 0 || !k->cuts)
    return false;
  return !strcmp(kind, manta_value_as_string(manta_value_get(b, "kind"), "")) &&
         !strcmp(text_of(a, "logdir", ""), text_of(b, "logdir", "")) &&
         !strcmp(text_of(a, "filename", k->file), text_of(b, "filename", k->file));
}

static manta_status describe(manta_value *out, const manta_sink *sink, manta_error *err)
{
  manta_value options = {0};
  manta_status st = manta_value_set_map(out);
  if (st == MANTA_OK)
    st = manta_value_put_string(out, "kind", sink->kind);
  if (st == MANTA_OK)
    st = sink->options && sink->options->type == MANTA_MAP
             ? manta_value_copy(&options, sink->options)
             : manta_value_set_map(&options);
  if (st < 0)
    no_memory(err);
  else
    st = make_absolute(&options, err);
  if (st == MANTA_OK && manta_value_put(out, "options", &options) < 0)
    st = no_memory(err);
  manta_value_fini(&options);
  return st;
}

static manta_status place(manta_value *sinks, manta_value *sink, manta_error *err)
{
  const char *kind = manta_value_as_string(manta_value_get(sink, "kind"), "");
  for (uint32_t i = 0; i < sinks->count; i++) {
    if (manta_value_equal(&sinks->u.items[i], sink))
      return MANTA_OK;
    if (same_file(&sinks->u.items[i], sink))
      return manta_error_set(err, MANTA_EINVAL,
                             "two %s sinks of the run would write the same file\nhint: give one of "
                             "them another logdir or filename",
                             kind);
  }
  if (sinks->count >= MANTA__SETUP_MAX_SINKS)
    return manta_error_set(err, MANTA_ETOOBIG, "a run has at most %d sinks",
                           MANTA__SETUP_MAX_SINKS);
  return manta_value_append(sinks, sink) < 0 ? no_memory(err) : MANTA_OK;
}

manta_status manta__setup_add(manta_value *sinks, const manta_sink *sink, manta_error *err)
{
  manta_value one = {0};
  MANTA_TRY(manta_sink_check(sink, err));
  if (sinks->type == MANTA_NIL && manta_value_set_list(sinks) < 0)
    return no_memory(err);
  manta_status st = describe(&one, sink, err);
  if (st == MANTA_OK)
    st = place(sinks, &one, err);
  manta_value_fini(&one);
  return st;
}

// --- the file ------------------------------------------------------------------------------------

manta_status manta__setup_write(int rundir, const char *run_id, const manta_value *config,
                                const manta_value *sinks, manta_error *err)
{
  char *text;
  manta_value all = MANTA_MAP(MANTA_KV_STR("run", run_id), MANTA_KV("config", *config),
                              MANTA_KV("sinks", *sinks));
  MANTA_TRY(manta_value_to_json(&all, 1, &text, err));
  manta_status st = manta__file_replace(rundir, MANTA__SETUP_FILE, text, strlen(text), err);
  manta_free(text);
  return st;
}

manta_status manta__setup_read(int rundir, manta_value *out, manta_error *err)
{
  char *text;
  size_t len;
  MANTA_TRY(manta__file_read(rundir, MANTA__SETUP_FILE, LIMIT, &text, &len, err));
  manta_status st = manta_value_from_json(out, text, len, err);
  manta_free(text);
  MANTA_TRY(st);
  const manta_value *sinks = manta_value_get(out, "sinks");
  if (sinks && sinks->type == MANTA_LIST && sinks->count <= MANTA__SETUP_MAX_SINKS)
    return MANTA_OK;
  manta_value_fini(out);
  return manta_error_set(err, MANTA_EPROTO, "%s is not a list of sinks", MANTA__SETUP_FILE);
}
