/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/hosts.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/knob.h"

#define BLANKS " \t"

static bool blank(const char *s)
{
  return s[strspn(s, BLANKS)] == 0;
}

static manta_status too_many(size_t n, manta_error *err)
{
  return manta_error_set(err, MANTA_EINVAL, "%zu hosts, at most %d", n, MANTA_MAX_HOSTS);
}

void manta__engine_hosts_fini(struct manta__host_list *l)
{
  for (size_t i = 0; i < l->count; i++) {
    manta__engine_host_fini(&l->item[i].host);
    manta__free(l->item[i].address);
  }
  manta__free(l->item);
  *l = (struct manta__host_list){0};
}

// --- one -----------------------------------------------------------------------------------------

static manta_status describe(struct manta__host_entry *e, const manta_host *h, size_t at,
                             manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  if (h->slots < 0 || h->slots > MANTA_MAX_RANKS)
    return manta_error_set(err, MANTA_EINVAL, "hosts[%zu].slots must be 0 to %d, not %d", at,
                           MANTA_MAX_RANKS, h->slots);
  if (h->command && blank(h->command))
    return manta_error_set(err, MANTA_EINVAL, "hosts[%zu].command is empty", at);
  manta_status st = manta__engine_describe(&e->host, h->name, h->command, &why);
  if (st < 0)
    return manta_error_set(err, st, "hosts[%zu].command: %s", at, why.message);
  if (e->host.engine->remote && blank(e->host.name))
    return manta_error_set(err, MANTA_EINVAL, "hosts[%zu] has a command and no name", at);
  e->slots = h->slots;
  if (h->address && *h->address && !(e->address = manta__strdup(h->address)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a host");
  return MANTA_OK;
}

manta_status manta__engine_hosts_add(struct manta__host_list *l, const manta_host *h,
                                     manta_error *err)
{
  if (l->count == MANTA_MAX_HOSTS)
    return too_many(l->count + 1, err);
  if (!l->item && !(l->item = manta__calloc(MANTA_MAX_HOSTS, sizeof *l->item)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a list of hosts");
  struct manta__host_entry *e = &l->item[l->count];
  manta_status st = describe(e, h, l->count, err);
  if (st == MANTA_OK) {
    l->count++;
    return MANTA_OK;
  }
  manta__engine_host_fini(&e->host);
  return st;
}

// --- MANTA_HOSTS ---------------------------------------------------------------------------------

static char *word(char **at)
{
  char *s = *at + strspn(*at, BLANKS);
  size_t n = strcspn(s, BLANKS);
  *at = s + n + (s[n] != 0);
  s[n] = 0;
  return s;
}

static manta_status add_text(struct manta__host_list *l, char *entry, manta_error *err)
{
  char *end, *rest = entry, *name = word(&rest), *slots = word(&rest);
  rest += strspn(rest, BLANKS);
  char *address = strchr(name, '@');
  if (address)
    *address++ = 0;
  manta_host h = {.name = name, .command = *rest ? rest : NULL, .address = address};
  long n = strtol(slots, &end, 10);
  if (!*slots || *end || n < 0 || n > MANTA_MAX_RANKS)
    return manta_error_set(err, MANTA_EINVAL,
                           "MANTA_HOSTS: \"%s\" is not followed by a number of workers\nhint: "
                           "NAME[@ADDRESS] WORKERS [COMMAND...]; NAME[@ADDRESS] WORKERS ...",
                           name);
  h.slots = (int)n;
  return manta__engine_hosts_add(l, &h, err);
}

static manta_status parse(struct manta__host_list *l, char *text, manta_error *err)
{
  size_t count = l->count;
  for (char *at = text, *next; at; at = next) {
    next = strpbrk(at, ";\n");
    if (next)
      *next++ = 0;
    if (!blank(at))
      MANTA_TRY(add_text(l, at, err));
  }
  return l->count > count ? MANTA_OK
                          : manta_error_set(err, MANTA_EINVAL, "MANTA_HOSTS names no host");
}

manta_status manta__engine_hosts_parse(struct manta__host_list *l, const char *text,
                                       manta_error *err)
{
  char *copy = manta__strdup(text);
  if (!copy)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for MANTA_HOSTS");
  manta_status st = parse(l, copy, err);
  manta__free(copy);
  return st;
}

// --- all -----------------------------------------------------------------------------------------

static manta_status take_all(struct manta__host_list *l, const manta_host *given, size_t count,
                             manta_error *err)
{
  if (count > MANTA_MAX_HOSTS)
    return too_many(count, err);
  for (size_t i = 0; i < count; i++)
    MANTA_TRY(manta__engine_hosts_add(l, &given[i], err));
  return MANTA_OK;
}

static manta_status find(struct manta__host_list *l, const manta_host *given, size_t count,
                         bool alone, manta_error *err)
{
  static const manta_host here = {0};
  const char *env = manta__knob_text(MANTA__KNOB_HOSTS);
  if (count > 0)
    return take_all(l, given, count, err);
  if (!alone && env)
    return manta__engine_hosts_parse(l, env, err);
  if (!alone)
    MANTA_TRY(manta__engine_discover(l, err));
  return l->count > 0 ? MANTA_OK : manta__engine_hosts_add(l, &here, err);
}

manta_status manta__engine_hosts_find(struct manta__host_list *out, const manta_host *given,
                                      size_t count, bool alone, manta_error *err)
{
  *out = (struct manta__host_list){0};
  manta_status st = find(out, given, count, alone, err);
  if (st < 0)
    manta__engine_hosts_fini(out);
  return st;
}
