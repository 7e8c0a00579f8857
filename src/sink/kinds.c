/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/kinds.c - the table of the kinds of sinks, and the options that all of them have.
 */
#include <stdio.h>
#include <string.h>

#include "sink/files.h"
#include "sink/pick.h"
#include "sink/trackers.h"
#include "sys/module.h"

const struct manta__sink_kind *const manta__sink_kinds[] = {
    &manta__sink_json,   &manta__sink_csv,   &manta__sink_tensorboard,
    &manta__sink_mlflow, &manta__sink_wandb, NULL};

const struct manta__sink_kind manta__sink_tensorboard = {
    .name = "tensorboard",
    .help = "event files for TensorBoard",
    .module = "tensorboard",
    .needs = "libprotobuf-c",
};

manta_status manta__sink_find(const char *name, const struct manta__sink_kind **out,
                              manta_error *err)
{
  char known[200] = "";
  size_t n = 0;
  for (const struct manta__sink_kind *const *k = manta__sink_kinds; *k; k++) {
    if (name && !strcmp((*k)->name, name)) {
      *out = *k;
      return MANTA_OK;
    }
    n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", (*k)->name);
  }
  return manta_error_set(err, MANTA_EINVAL, "there is no sink \"%s\": the kinds are %s",
                         name ? name : "", known);
}

manta_status manta__sink_load(const char *name, const struct manta__sink_kind **out,
                              manta_error *err)
{
  const struct manta__sink_kind *k;
  void *entry;
  MANTA_TRY(manta__sink_find(name, &k, err));
  if (k->module) {
    MANTA_TRY(manta__module_symbol(k->module, MANTA__SINK_ENTRY, k->needs, &entry, err));
    k = (const struct manta__sink_kind *)entry;
  }
  *out = k;
  return MANTA_OK;
}

// --- options -------------------------------------------------------------------------------------

static bool is_word(const char *words, const char *word)
{
  size_t n = strlen(word);
  for (const char *at = words; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
    if (!strncmp(at, word, n) && (at[n] == ' ' || at[n] == 0))
      return true;
  return false;
}

static manta_status check_filename(const struct manta__sink_kind *k, const manta_value *options,
                                   manta_error *err)
{
  const manta_value *v = manta_value_get(options, "filename");
  const char *name = manta_value_as_string(v, NULL);
  if (!v)
    return MANTA_OK;
  if (!k->file)
    return manta_error_set(err, MANTA_EINVAL, "sink %s: its files have names of their own",
                           k->name);
  if (!name || !*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
    return manta_error_set(err, MANTA_EINVAL,
                           "sink %s: filename must be a name without a slash\nhint: logdir is the "
                           "directory",
                           k->name);
  return MANTA_OK;
}

manta_status manta__sink_check(const char *name, const manta_value *options, manta_error *err)
{
  const struct manta__sink_kind *k;
  struct manta__pick pick = {0};
  MANTA_TRY(manta__sink_find(name, &k, err));
  if (options && options->type != MANTA_MAP && options->type != MANTA_NIL)
    return manta_error_set(err, MANTA_ETYPE, "sink %s: options must be a map", k->name);
  for (uint32_t i = 0; options && options->type == MANTA_MAP && i < options->count; i++) {
    const char *key = options->u.pairs[i].key;
    if (!is_word("logdir filename workers aggregate", key) && !is_word(k->options, key))
      return manta_error_set(err, MANTA_EINVAL,
                             "sink %s has no option \"%s\"\nhint: logdir filename workers "
                             "aggregate%s%s",
                             k->name, key, k->options ? " " : "", k->options ? k->options : "");
  }
  const manta_value *logdir = manta_value_get(options, "logdir");
  if (logdir && (logdir->type != MANTA_STRING || logdir->count == 0))
    return manta_error_set(err, MANTA_ETYPE, "sink %s: logdir must be a path", k->name);
  MANTA_TRY(check_filename(k, options, err));
  manta_status st = manta__pick_init(&pick, options, err);
  manta__pick_fini(&pick);
  MANTA_TRY(st);
  return k->check ? k->check(options, err) : MANTA_OK;
}
