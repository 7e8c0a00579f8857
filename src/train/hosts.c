/* SPDX-License-Identifier: Apache-2.0
 *
 * train/hosts.c - the hosts of a trainer, from its config or from MANTA_HOSTS.
 *
 * MANTA_HOSTS is a list, separated by newlines or semicolons; each entry is a name, a number of
 * workers and a command, separated by blanks:  a 2; b 2 ssh b manta agent --stdio
 * The name may be followed by an address or the name of an interface: b@10.0.0.7, b@eth1
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/knob.h"
#include "train/trainer.h"

#define TIMEOUT_S 15.0
#define drv       manta__drv

static bool blank(const char *s)
{
  return s && s[strspn(s, " \t")] == 0;
}

static manta_status add(manta_trainer *t, const manta_host *h, double timeout_s, manta_error *err)
{
  struct manta__engine_host e = {h->name, h->command, timeout_s};
  if (h->slots < 0 || h->slots > MANTA_MAX_RANKS)
    return manta_error_set(err, MANTA_EINVAL, "hosts[%d].slots must be 0 to %d, not %d", t->hosts,
                           MANTA_MAX_RANKS, h->slots);
  if (blank(h->command))
    return manta_error_set(err, MANTA_EINVAL, "hosts[%d].command is empty", t->hosts);
  if (h->command && (!h->name || blank(h->name)))
    return manta_error_set(err, MANTA_EINVAL, "hosts[%d] has a command and no name", t->hosts);
  struct manta__link *n = manta__link_use(&e, err);
  if (!n)
    return err ? err->status : MANTA_ENOMEM;
  for (int i = 0; i < t->hosts; i++)
    if (t->host[i].link == n) {
      manta__link_drop(n);
      return manta_error_set(err, MANTA_EINVAL, "hosts[%d] is the same as hosts[%d]", t->hosts, i);
    }
  struct manta__trainer_host *p = &t->host[t->hosts++];
  *p = (struct manta__trainer_host){.link = n, .slots = h->slots};
  if (h->address && *h->address && !(p->address = manta__strdup(h->address)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a host");
  return MANTA_OK;
}

static manta_status make_room(manta_trainer *t, size_t n, manta_error *err)
{
  if (n > MANTA_MAX_HOSTS)
    return manta_error_set(err, MANTA_EINVAL, "%zu hosts, at most %d", n, MANTA_MAX_HOSTS);
  t->host = manta__calloc(n, sizeof *t->host);
  return t->host ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for %zu hosts", n);
}

// --- MANTA_HOSTS --------------------------------------------------------------------------------

static char *word(char **at)
{
  char *s = *at + strspn(*at, " \t");
  size_t n = strcspn(s, " \t");
  *at = s + n + (s[n] != 0);
  s[n] = 0;
  return s;
}

static manta_status add_entry(manta_trainer *t, char *entry, double timeout_s, manta_error *err)
{
  char *end, *rest = entry, *name = word(&rest), *slots = word(&rest);
  rest += strspn(rest, " \t");
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
  return add(t, &h, timeout_s, err);
}

static manta_status from_text(manta_trainer *t, char *text, double timeout_s, manta_error *err)
{
  size_t count = 1;
  for (char *p = text; *p; p++)
    count += *p == ';' || *p == '\n';
  MANTA_TRY(make_room(t, count, err));
  for (char *at = text, *next; at; at = next) {
    next = strpbrk(at, ";\n");
    if (next)
      *next++ = 0;
    if (!blank(at))
      MANTA_TRY(add_entry(t, at, timeout_s, err));
  }
  return t->hosts ? MANTA_OK : manta_error_set(err, MANTA_EINVAL, "MANTA_HOSTS names no host");
}

static manta_status from_env(manta_trainer *t, const char *s, double timeout_s, manta_error *err)
{
  char *copy = manta__strdup(s);
  if (!copy)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for MANTA_HOSTS");
  manta_status st = from_text(t, copy, timeout_s, err);
  manta__free(copy);
  return st;
}

static manta_status take(manta_trainer *t, const manta_trainer_config *c, manta_error *err)
{
  static const manta_host here = {0};
  const char *env = manta__knob_text(MANTA__KNOB_HOSTS);
  double timeout_s = c->host_timeout_s > 0 ? c->host_timeout_s : TIMEOUT_S;
  const manta_host *hosts = c->host_count > 0 ? c->hosts : &here;
  size_t count = c->host_count > 0 ? c->host_count : 1;
  // A worker's own trainers stay where it is.
  if (c->host_count == 0 && env && !manta__knob_is_set(MANTA__KNOB_WORKER))
    return from_env(t, env, timeout_s, err);
  MANTA_TRY(make_room(t, count, err));
  for (size_t i = 0; i < count; i++)
    MANTA_TRY(add(t, &hosts[i], timeout_s, err));
  return MANTA_OK;
}

manta_status manta__hostlist_take(manta_trainer *t, const manta_trainer_config *c, manta_error *err)
{
  static const struct manta__engine_host here = {0};
  MANTA_TRY(take(t, c, err));
  if (t->hosts == 1 && !t->host[0].link->command)
    return MANTA_OK;
  t->door = manta__link_use(&here, err);
  return t->door ? MANTA_OK : MANTA_ENOMEM;
}

void manta__hostlist_drop(manta_trainer *t)
{
  manta__link_drop(t->door);
  t->door = NULL;
  for (int i = 0; i < t->hosts; i++) {
    manta__link_drop(t->host[i].link);
    manta__free(t->host[i].address);
  }
  manta__muster_end(t);
  t->hosts = 0;
}
