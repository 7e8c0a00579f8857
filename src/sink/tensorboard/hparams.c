/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/tensorboard/hparams.c - records of TensorBoard's hparams plugin.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/value.h"
#include "sink/leaves.h"
#include "sink/tensorboard/eventfile.h"

#define PREFIX   "_hparams_/"
#define LIST_MAX 256 /* bytes of a list */
#define DT_FLOAT 1
#define TENSORS  2
enum { TYPE_STRING = 1, TYPE_BOOL, TYPE_NUMBER };
enum { STATUS_SUCCESS = 1, STATUS_FAILURE };

// The message is the content of an empty tensor's metadata.
static manta_status put_record(struct manta__eventfile *e, struct manta__when when, const char *tag,
                               MantaTb__HParams *what, manta_error *err)
{
  size_t n = manta_tb__hparams__get_packed_size(what);
  uint8_t *bytes = manta__malloc(n ? n : 1);
  if (!bytes)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for hyperparameters");
  manta_tb__hparams__pack(what, bytes);
  MantaTb__Shape__Dim dim = MANTA_TB__SHAPE__DIM__INIT, *dims[] = {&dim};
  MantaTb__Shape shape = MANTA_TB__SHAPE__INIT;
  MantaTb__Tensor tensor = MANTA_TB__TENSOR__INIT;
  MantaTb__Metadata__PluginData plugin = MANTA_TB__METADATA__PLUGIN_DATA__INIT;
  MantaTb__Metadata metadata = MANTA_TB__METADATA__INIT;
  MantaTb__Summary__Value value = MANTA_TB__SUMMARY__VALUE__INIT;
  shape.n_dim = 1;
  shape.dim = dims;
  tensor.dtype = DT_FLOAT;
  tensor.tensor_shape = &shape;
  plugin.plugin_name = (char *)"hparams";
  plugin.content.data = bytes;
  plugin.content.len = n;
  metadata.plugin_data = &plugin;
  metadata.data_class = TENSORS;
  value.tag = (char *)(uintptr_t)tag;
  value.value_case = MANTA_TB__SUMMARY__VALUE__VALUE_TENSOR;
  value.tensor = &tensor;
  value.metadata = &metadata;
  manta_status st = manta__eventfile_put_value(e, when, &value, err);
  manta__free(bytes);
  return st;
}

// --- parameters ----------------------------------------------------------------------------------

// Leaves of the config that the plugin has a form for.
struct parameters {
  size_t count, cap;
  struct parameter {
    char *name, *text; // ours; text: of a string
    MantaTb__Any any;
    int type;
  } * at;
};

static void parameters_fini(struct parameters *p)
{
  for (size_t i = 0; i < p->count; i++) {
    manta__free(p->at[i].name);
    manta__free(p->at[i].text);
  }
  manta__free(p->at);
}

static void take_text(struct parameter *p, char *text)
{
  p->text = text;
  p->type = TYPE_STRING;
  p->any.kind_case = MANTA_TB__ANY__KIND_STRING_VALUE;
  p->any.string_value = text;
}

// A list such as the widths of layers, which the plugin has no form for.
static manta_status take_list(struct parameter *p, const manta_value *v)
{
  manta__buf text;
  manta__buf_init(&text, LIST_MAX);
  manta_status st = manta__json_append(&text, v, NULL);
  if (st == MANTA_OK)
    st = manta__buf_terminate(&text);
  if (st == MANTA_ETOOBIG) {
    text.len = 0;
    st = manta__buf_append(&text, "[…]", sizeof "[…]");
  }
  take_text(p, manta__buf_release(&text, NULL));
  return st;
}

static manta_status take_value(struct parameter *p, const manta_value *v)
{
  manta_tb__any__init(&p->any);
  if (v->type == MANTA_LIST)
    return take_list(p, v);
  if (v->type == MANTA_BOOL) {
    p->type = TYPE_BOOL;
    p->any.kind_case = MANTA_TB__ANY__KIND_BOOL_VALUE;
    p->any.bool_value = v->u.b;
  } else if (v->type == MANTA_STRING) {
    manta__buf text;
    manta__buf_init(&text, (size_t)v->count * 3 + 16);
    manta_status st = manta__utf8_append(&text, v->u.s, v->count);
    if (st == MANTA_OK)
      st = manta__buf_terminate(&text);
    take_text(p, manta__buf_release(&text, NULL));
    return st;
  } else {
    p->type = TYPE_NUMBER;
    p->any.kind_case = MANTA_TB__ANY__KIND_NUMBER_VALUE;
    p->any.number_value = v->type == MANTA_INT ? (double)v->u.i : v->u.r;
  }
  return MANTA_OK;
}

static manta_status add_parameter(void *ctx, const char *name, const manta_value *v)
{
  struct parameters *p = ctx;
  if (v->type != MANTA_BOOL && v->type != MANTA_STRING && v->type != MANTA_INT &&
      v->type != MANTA_REAL && v->type != MANTA_LIST)
    return MANTA_OK;
  if (p->count == p->cap) {
    size_t n = p->cap ? 2 * p->cap : 16;
    struct parameter *at = manta__realloc(p->at, n * sizeof *at);
    if (!at)
      return MANTA_ENOMEM;
    p->at = at;
    p->cap = n;
  }
  struct parameter *one = &p->at[p->count];
  *one = (struct parameter){.name = manta__strdup(name)};
  if (!one->name)
    return MANTA_ENOMEM;
  p->count++;
  return take_value(one, v);
}

static manta_status parameters_init(struct parameters *p, struct manta__eventfile *e,
                                    const manta_value *map, manta_error *err)
{
  *p = (struct parameters){0};
  manta_status st = manta__leaves(map, &e->path, add_parameter, p);
  if (st == MANTA_OK)
    return MANTA_OK;
  parameters_fini(p);
  return manta_error_set(err, st, "no memory for hyperparameters");
}

// --- records -------------------------------------------------------------------------------------

manta_status manta__eventfile_hparams(struct manta__eventfile *e, struct manta__when when,
                                      const manta_value *hparams, const char *group,
                                      manta_error *err)
{
  struct parameters p;
  MantaTb__SessionStart start = MANTA_TB__SESSION_START__INIT;
  MantaTb__HParams record = MANTA_TB__HPARAMS__INIT;
  MANTA_TRY(parameters_init(&p, e, hparams, err));
  MantaTb__SessionStart__Entry *entry = manta__calloc(p.count + 1, sizeof *entry);
  start.hparams = manta__calloc(p.count + 1, sizeof *start.hparams);
  manta_status st = MANTA_OK;
  if (!entry || !start.hparams)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for hyperparameters");
  for (size_t i = 0; i < p.count && st == MANTA_OK; i++) {
    manta_tb__session_start__entry__init(&entry[i]);
    entry[i].key = p.at[i].name;
    entry[i].value = &p.at[i].any;
    start.hparams[i] = &entry[i];
  }
  start.n_hparams = p.count;
  start.group_name = (char *)(uintptr_t)group;
  start.start_time_secs = when.wall_s;
  record.data_case = MANTA_TB__HPARAMS__DATA_SESSION_START_INFO;
  record.session_start_info = &start;
  if (st == MANTA_OK)
    st = put_record(e, when, PREFIX "session_start_info", &record, err);
  manta__free(start.hparams);
  manta__free(entry);
  parameters_fini(&p);
  return st;
}

static manta_status put_experiment(struct manta__eventfile *e, struct manta__when when,
                                   const struct parameters *p, const manta_value *metrics,
                                   manta_error *err)
{
  size_t m = metrics && metrics->type == MANTA_LIST ? metrics->count : 0;
  struct {
    MantaTb__ParameterInfo info;
    MantaTb__MetricInfo metric;
    MantaTb__MetricInfo__Name name;
  } *all = manta__calloc(p->count + m + 1, sizeof *all);
  void **list = manta__calloc(p->count + m + 1, sizeof *list);
  MantaTb__Experiment x = MANTA_TB__EXPERIMENT__INIT;
  MantaTb__HParams record = MANTA_TB__HPARAMS__INIT;
  manta_status st = MANTA_OK;
  if (!all || !list)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for hyperparameters");
  for (size_t i = 0; i < p->count && st == MANTA_OK; i++) {
    manta_tb__parameter_info__init(&all[i].info);
    all[i].info.name = p->at[i].name;
    all[i].info.type = p->at[i].type;
    list[i] = &all[i].info;
  }
  for (size_t i = 0; i < m && st == MANTA_OK; i++) {
    manta_tb__metric_info__init(&all[p->count + i].metric);
    manta_tb__metric_info__name__init(&all[p->count + i].name);
    all[p->count + i].name.tag =
        (char *)(uintptr_t)manta_value_as_string(manta_value_at(metrics, i), "");
    all[p->count + i].metric.name = &all[p->count + i].name;
    list[p->count + i] = &all[p->count + i].metric;
  }
  x.n_hparam_infos = p->count;
  x.hparam_infos = (MantaTb__ParameterInfo **)list;
  x.n_metric_infos = m;
  x.metric_infos = (MantaTb__MetricInfo **)(list + p->count);
  record.data_case = MANTA_TB__HPARAMS__DATA_EXPERIMENT;
  record.experiment = &x;
  if (st == MANTA_OK)
    st = put_record(e, when, PREFIX "experiment", &record, err);
  manta__free(list);
  manta__free(all);
  return st;
}

manta_status manta__eventfile_experiment(struct manta__eventfile *e, struct manta__when when,
                                         const manta_value *hparams, const manta_value *metrics,
                                         manta_error *err)
{
  struct parameters p;
  MANTA_TRY(parameters_init(&p, e, hparams, err));
  manta_status st = put_experiment(e, when, &p, metrics, err);
  parameters_fini(&p);
  return st;
}

manta_status manta__eventfile_end(struct manta__eventfile *e, struct manta__when when, bool ok,
                                  manta_error *err)
{
  MantaTb__SessionEnd end = MANTA_TB__SESSION_END__INIT;
  MantaTb__HParams record = MANTA_TB__HPARAMS__INIT;
  end.status = ok ? STATUS_SUCCESS : STATUS_FAILURE;
  end.end_time_secs = when.wall_s;
  record.data_case = MANTA_TB__HPARAMS__DATA_SESSION_END_INFO;
  record.session_end_info = &end;
  return put_record(e, when, PREFIX "session_end_info", &record, err);
}
