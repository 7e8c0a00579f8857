/* SPDX-License-Identifier: Apache-2.0 */
#include "train/func.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"

#define MAX_FUNCTIONS 1024
#define MAX_OBJECTS   512

static struct entry {
  const char *name;
  manta_train_fn fn;
} table[MAX_FUNCTIONS];
static int functions;

// Load addresses of the objects that every worker will have too.
static uintptr_t noted[MAX_OBJECTS];
static int objects;

void manta_register(const char *name, manta_train_fn fn)
{
  for (int i = 0; i < functions; i++)
    if (!strcmp(table[i].name, name)) {
      if (table[i].fn == fn)
        return;
      manta__error("two train functions are registered as \"%s\": names must be unique", name);
      abort();
    }
  if (functions == MAX_FUNCTIONS) {
    manta__error("more than %d train functions are registered", MAX_FUNCTIONS);
    abort();
  }
  table[functions++] = (struct entry){name, fn};
}

static int note(struct dl_phdr_info *info, size_t size, void *ctx)
{
  if (objects < MAX_OBJECTS)
    noted[objects++] = info->dlpi_addr;
  return 0;
}

void manta__func_note_objects(void)
{
  objects = 0;
  dl_iterate_phdr(note, NULL);
}

// --- objects ------------------------------------------------------------------------------------

struct func_search {
  uintptr_t pc;     // in: address to find, or 0 to find by name
  const char *name; // in or out: "" is the main program
  uintptr_t base;
  uint64_t build; // XXH3 of the GNU build id, or of nothing
  bool executable, found;
};

static uint64_t build_of(const struct dl_phdr_info *info)
{
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
    if (ph->p_type != PT_NOTE)
      continue;
    const uint8_t *p = (const uint8_t *)(info->dlpi_addr + ph->p_vaddr), *end = p + ph->p_memsz;
    while (p + sizeof(ElfW(Nhdr)) <= end) {
      const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)p;
      const uint8_t *desc = p + sizeof *n + ((n->n_namesz + 3u) & ~3u);
      if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp(p + sizeof *n, "GNU", 4))
        return manta__hash(desc, n->n_descsz);
      p = desc + ((n->n_descsz + 3u) & ~3u);
    }
  }
  return 0;
}

static int look(struct dl_phdr_info *info, size_t size, void *ctx)
{
  struct func_search *s = ctx;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
    uintptr_t from = info->dlpi_addr + ph->p_vaddr;
    if (ph->p_type != PT_LOAD)
      continue;
    if (s->pc ? s->pc < from || s->pc >= from + ph->p_memsz : strcmp(info->dlpi_name, s->name) != 0)
      continue;
    s->name = info->dlpi_name;
    s->base = info->dlpi_addr;
    s->build = build_of(info);
    s->executable = (ph->p_flags & PF_X) != 0;
    s->found = true;
    return 1;
  }
  return 0;
}

static bool was_noted(uintptr_t base)
{
  for (int i = 0; i < objects; i++)
    if (noted[i] == base)
      return true;
  return false;
}

static manta_status describe_pointer(manta_value *out, uintptr_t pc, manta_error *err)
{
  struct func_search s = {.pc = pc};
  dl_iterate_phdr(look, &s);
  if (!s.found || !s.executable)
    return manta_error_set(err, MANTA_EINVAL,
                           "the train function at %#" PRIxPTR " is not code of this program", pc);
  if (!was_noted(s.base))
    return manta_error_set(
        err, MANTA_EINVAL,
        "the train function is in %s, which was loaded after manta_init: workers do "
        "not have it\nhint: link it, or load it before manta_init",
        s.name);
  MANTA_TRY(manta_value_put_string(out, "fn_object", s.name));
  MANTA_TRY(manta_value_put_int(out, "fn_offset", (int64_t)(pc - s.base)));
  return manta_value_put_int(out, "build", (int64_t)(s.build >> 1));
}

manta_status manta__func_describe(manta_value *out, manta_train_fn fn, manta_error *err)
{
  if (!fn)
    return manta_error_set(err, MANTA_EINVAL, "no train function was given");
  for (int i = 0; i < functions; i++)
    if (table[i].fn == fn) {
      MANTA_TRY(manta_value_put_string(out, "fn", table[i].name));
      struct func_search s = {.pc = (uintptr_t)fn};
      dl_iterate_phdr(look, &s);
      return manta_value_put_int(out, "build", (int64_t)(s.build >> 1));
    }
  return describe_pointer(out, (uintptr_t)fn, err);
}

manta_status manta__func_find(manta_train_fn *out, const manta_value *spec, manta_error *err)
{
  const char *name = manta_value_as_string(manta_value_get(spec, "fn"), NULL);
  for (int i = 0; name && i < functions; i++)
    if (!strcmp(table[i].name, name)) {
      *out = table[i].fn;
      return MANTA_OK;
    }
  if (name)
    return manta_error_set(err, MANTA_ENOENT, "no train function is registered as \"%s\"", name);
  struct func_search s = {.name = manta_value_as_string(manta_value_get(spec, "fn_object"), "?")};
  dl_iterate_phdr(look, &s);
  if (!s.found || (int64_t)(s.build >> 1) != manta_value_as_int(manta_value_get(spec, "build"), -1))
    return manta_error_set(
        err, MANTA_ENOENT,
        "the train function was given as a pointer into another build of %s\nhint: "
        "MANTA_TRAIN gives it a name that outlives a build",
        s.name[0] ? s.name : "the program");
  struct func_search at = {
      .pc = s.base + (uintptr_t)manta_value_as_int(manta_value_get(spec, "fn_offset"), 0)};
  dl_iterate_phdr(look, &at);
  if (!at.found || !at.executable || at.base != s.base)
    return manta_error_set(err, MANTA_ENOENT, "the train function's place is not in the code of %s",
                           s.name[0] ? s.name : "the program");
  *out = (manta_train_fn)at.pc;
  return MANTA_OK;
}
