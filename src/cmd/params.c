/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/params.h"

#include "base/knob.h"
#include "cmd/format.h"
#include "cmd/options.h"

static const char *source_of(enum manta__knob_id id)
{
  return manta__knob_is_set(id) ? "environment" : "default";
}

// --- For people ----------------------------------------------------------------------------------

static void print_table(void)
{
  static const char *const titles[] = {"NAME", "VALUE", "DEFAULT", "FROM", "MEANING"};
  struct manta__grid g;
  manta__grid_init(&g, titles, 5, 0);
  for (int i = 0; i < MANTA__KNOBS; i++) {
    const struct manta__knob *k = manta__knob_row(i);
    const char *value = manta__knob_text(i);
    manta__grid_cell(&g, "%s", k->name);
    manta__grid_cell(&g, "%s", value ? value : "-");
    manta__grid_cell(&g, "%s", k->dflt ? k->dflt : k->otherwise);
    manta__grid_cell(&g, "%s", source_of(i));
    manta__grid_cell(&g, "%s", k->help);
  }
  manta__grid_print(&g, stdout);
  manta__grid_fini(&g);
}

// --- For scripts ---------------------------------------------------------------------------------

// What is wrong is shown as it is written.
static manta_status put_value(manta_value *row, enum manta__knob_id id)
{
  manta_value v = {0}, dflt = {0};
  manta_error why = MANTA_ERROR_INIT;
  if (manta__knob_value(id, false, &v, &why) < 0) {
    v = manta_value_borrow_string(manta__knob_text(id));
    MANTA_TRY(manta_value_put_string(row, "error", why.message));
  }
  MANTA_TRY(manta_value_put(row, "value", &v));
  MANTA_TRY(manta__knob_value(id, true, &dflt, NULL));
  return manta_value_put(row, "default", &dflt);
}

static manta_status fill_row(manta_value *row, enum manta__knob_id id)
{
  const struct manta__knob *k = manta__knob_row(id);
  MANTA_TRY(manta_value_set_map(row));
  MANTA_TRY(manta_value_put_string(row, "name", k->name));
  MANTA_TRY(put_value(row, id));
  MANTA_TRY(manta_value_put_string(row, "from", source_of(id)));
  MANTA_TRY(manta_value_put_string(row, "type", manta__knob_type_name(k->type)));
  manta_value unit = manta_value_borrow_string(k->unit);
  MANTA_TRY(manta_value_put(row, "unit", &unit));
  manta_value otherwise = manta_value_borrow_string(k->otherwise);
  MANTA_TRY(manta_value_put(row, "otherwise", &otherwise));
  MANTA_TRY(manta_value_put_string(row, "for", manta__knob_reader_name(k->reader)));
  return manta_value_put_string(row, "meaning", k->help);
}

static manta_status fill_list(manta_value *list)
{
  MANTA_TRY(manta_value_set_list(list));
  for (int i = 0; i < MANTA__KNOBS; i++) {
    manta_value row = {0};
    manta_status st = fill_row(&row, i);
    if (st == MANTA_OK)
      st = manta_value_append(list, &row);
    manta_value_fini(&row);
    MANTA_TRY(st);
  }
  return MANTA_OK;
}

static int print_list(void)
{
  manta_value list = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = fill_list(&list);
  if (st < 0)
    manta_error_set(&err, st, "no memory for the list of variables");
  int code = st < 0 ? manta__complain(&err) : manta__print_json(&list);
  manta_value_fini(&list);
  return code;
}

// -------------------------------------------------------------------------------------------------

int manta__params_print(bool json)
{
  int code = MANTA__EXIT_OK;
  if (json)
    code = print_list();
  else
    print_table();
  for (int i = 0; i < MANTA__KNOBS && code != MANTA__EXIT_FAILED; i++) {
    manta_error err = MANTA_ERROR_INIT;
    if (manta__knob_check(i, &err) < 0)
      code = manta__complain(&err);
  }
  return code;
}

manta_status manta__params_set(manta_value *out)
{
  MANTA_TRY(manta_value_set_map(out));
  for (int i = 0; i < MANTA__KNOBS; i++)
    if (manta__knob_is_set(i))
      MANTA_TRY(manta_value_put_string(out, manta__knob_row(i)->name, manta__knob_text(i)));
  return MANTA_OK;
}
