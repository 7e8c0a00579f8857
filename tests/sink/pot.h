/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/sink/pot.h - a run directory with a log and sinks, fed in this process.
 */
#ifndef MANTA_TEST_POT_H
#define MANTA_TEST_POT_H

#include "base/value.h"
#include "event/bed.h"
#include "sink/process.h"
#include "sink/setup.h"
#include "sys/file.h"

/* The run has these sinks. */
static inline void pot_sinks(struct bed *b, const manta_sink *sinks, size_t count)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value list = {0};
  manta_value config = MANTA_MAP(MANTA_KV_REAL("lr", 0.1), MANTA_KV_REAL("bad", NAN));
  for (size_t i = 0; i < count; i++)
    assert_ok(manta__setup_add(&list, &sinks[i], &err), &err);
  assert_ok(manta__setup_write(b->dir, "0123456789abcdef", &config, &list, &err), &err);
  manta_value_fini(&list);
}

static inline void pot_attempt(manta__log_writer *w, uint32_t attempt, int world, int64_t from)
{
  bed_add(w, MANTA__EV_ATTEMPT, ident(attempt, -1, 1),
          MANTA_MAP(MANTA_KV_INT("world", world), MANTA_KV_INT("from", from)));
}

static inline void pot_rewind(manta__log_writer *w, uint32_t attempt, int world, int64_t to)
{
  bed_add(w, MANTA__EV_REWIND, ident(attempt, -1, 1), MANTA_MAP(MANTA_KV_INT("to", to)));
  pot_attempt(w, attempt, world, to);
}

/* Feeds the sinks to the end of the log. */
static inline void pot_feed(struct bed *b)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__sink_replay(b->dir, NULL, &err), &err);
}

/* The text of a file; free with manta_free. */
static inline char *pot_text(struct bed *b, const char *name)
{
  manta_error err = MANTA_ERROR_INIT;
  char *text;
  size_t len;
  assert_ok(manta__file_read(b->dir, name, 64u << 20, &text, &len, &err), &err);
  return text;
}

/* The file as JSON; fini it. */
static inline manta_value pot_json(struct bed *b, const char *name)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  char *text = pot_text(b, name);
  assert_ok(manta_value_from_json(&v, text, strlen(text), &err), &err);
  manta_free(text);
  return v;
}

/* What results.json says: field `key` of worker number `i` in iteration `at` (from 0). */
static inline const manta_value *pot_cell(const manta_value *v, size_t at, size_t i,
                                          const char *key)
{
  return manta_value_get(manta_value_at(manta_value_at(v, at), i), key);
}

#endif
