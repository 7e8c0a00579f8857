/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/engine.c - the engines that there are, and what is done with any of them.
 */
#include "engine/engine.h"

#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "engine/hosts.h"

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyz0123456789-"

static const struct manta__engine *engines[MANTA__MAX_ENGINES] = {&manta__engine_local,
                                                                  &manta__engine_exec};

// --- the list ------------------------------------------------------------------------------------

static const struct manta__engine *find(const char *name, size_t len)
{
  for (int i = 0; i < MANTA__MAX_ENGINES && engines[i]; i++)
    if (strlen(engines[i]->name) == len && !memcmp(engines[i]->name, name, len))
      return engines[i];
  return NULL;
}

const struct manta__engine *manta__engine_find(const char *name)
{
  return find(name, strlen(name));
}

manta_status manta__engine_add(const struct manta__engine *e, manta_error *err)
{
  if (!e->name[0] || e->name[strspn(e->name, NAME_LETTERS)])
    return manta_error_set(err, MANTA_EINVAL, "\"%s\" is no name for an engine", e->name);
  if (manta__engine_find(e->name))
    return manta_error_set(err, MANTA_EINVAL, "there is an engine \"%s\" already", e->name);
  for (int i = 0; i < MANTA__MAX_ENGINES; i++)
    if (!engines[i]) {
      engines[i] = e;
      return MANTA_OK;
    }
  return manta_error_set(err, MANTA_ETOOBIG, "more than %d engines", MANTA__MAX_ENGINES);
}

static manta_status unknown(const char *name, size_t len, manta_error *err)
{
  manta__buf b;
  manta__buf_init(&b, MANTA_ERROR_MESSAGE_MAX / 2);
  for (int i = 0; i < MANTA__MAX_ENGINES && engines[i]; i++)
    manta__buf_printf(&b, "%s%s", i ? ", " : "", engines[i]->name);
  manta_status st = manta__buf_terminate(&b);
  manta_error_set(err, MANTA_EINVAL,
                  "there is no engine \"%.*s\"; there are %s\n"
                  "hint: a command that begins with a word and a colon is exec:COMMAND",
                  (int)len, name, st < 0 ? "too many to list" : (const char *)b.data);
  manta__buf_fini(&b);
  return MANTA_EINVAL;
}

// --- hosts ---------------------------------------------------------------------------------------

// Length of the engine's name in front of the text; 0: there is none.
static size_t prefix(const char *text)
{
  size_t n = strspn(text, NAME_LETTERS);
  return text[n] == ':' ? n : 0;
}

static manta_status parse(struct manta__engine_host *h, const char *text, manta_error *err)
{
  size_t n = text ? prefix(text) : 0;
  h->engine = n ? find(text, n) : text ? &manta__engine_exec : &manta__engine_local;
  if (!h->engine)
    return unknown(text, n, err);
  MANTA_TRY(h->engine->parse(h, !text ? "" : n ? text + n + 1 : text, err));
  return h->target || (h->target = manta__strdup(""))
             ? MANTA_OK
             : manta_error_set(err, MANTA_ENOMEM, "no memory for a host");
}

manta_status manta__engine_describe(struct manta__engine_host *out, const char *name,
                                    const char *text, manta_error *err)
{
  struct manta__engine_host h = {.name = manta__strdup(name ? name : "")};
  if (!h.name)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a host");
  manta_status st = parse(&h, text, err);
  if (st < 0)
    manta__engine_host_fini(&h);
  else
    *out = h;
  return st;
}

const struct manta__engine_host *manta__engine_here(void)
{
  static char nothing[] = "";
  static const struct manta__engine_host here = {&manta__engine_local, nothing, nothing, 0};
  return &here;
}

manta_status manta__engine_host_copy(struct manta__engine_host *out,
                                     const struct manta__engine_host *from)
{
  struct manta__engine_host h = {from->engine, manta__strdup(from->name),
                                 manta__strdup(from->target), from->timeout_s};
  if (h.name && h.target) {
    *out = h;
    return MANTA_OK;
  }
  manta__engine_host_fini(&h);
  return MANTA_ENOMEM;
}

void manta__engine_host_fini(struct manta__engine_host *h)
{
  manta__free(h->name);
  manta__free(h->target);
  *h = (struct manta__engine_host){0};
}

bool manta__engine_same_host(const struct manta__engine_host *a, const struct manta__engine_host *b)
{
  if (a->engine != b->engine)
    return false;
  return !a->engine->remote || (!strcmp(a->name, b->name) && !strcmp(a->target, b->target));
}

manta_status manta__engine_discover(struct manta__host_list *out, manta_error *err)
{
  for (int i = 0; i < MANTA__MAX_ENGINES && engines[i] && out->count == 0; i++)
    if (engines[i]->discover)
      MANTA_TRY(engines[i]->discover(out, err));
  return MANTA_OK;
}

// --- starting ------------------------------------------------------------------------------------

// Brings those of one engine, which the first is of, to the front; their number.
static size_t gather(struct manta__engine_start **s, size_t count)
{
  size_t n = 0;
  for (size_t i = 0; i < count; i++)
    if (s[i]->host->engine == s[0]->host->engine) {
      struct manta__engine_start *other = s[n];
      s[n++] = s[i];
      s[i] = other;
    }
  return n;
}

void manta__engine_start_many(struct manta__engine_start **s, size_t count)
{
  for (size_t n; count > 0; s += n, count -= n) {
    n = gather(s, count);
    s[0]->host->engine->start_many(s, n);
  }
}
