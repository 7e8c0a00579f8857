/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/knob.h"

#define FOLDERS 5

struct module_search {
  char folder[FOLDERS][PATH_MAX];
  int count;
};

static void add(struct module_search *s, const char *folder, const char *below)
{
  char *to = s->folder[s->count];
  if (snprintf(to, PATH_MAX, "%s%s%s", folder, *below ? "/" : "", below) < PATH_MAX)
    s->count++;
}

// The folder of the object that this code is in. That of a program is known by what it was called
// as, which may be anything.
static bool own_folder(char *path, size_t size)
{
  Dl_info info;
  struct link_map *map;
  char real[PATH_MAX], *slash;
  if (!dladdr1((const void *)own_folder, &info, (void **)&map, RTLD_DL_LINKMAP))
    return false;
  // The main program has no name there, and what it was called need not be where it is.
  if (!realpath(map->l_name[0] ? info.dli_fname : "/proc/self/exe", real) ||
      !(slash = strrchr(real, '/')))
    return false;
  *slash = 0;
  return (size_t)snprintf(path, size, "%s", real) < size;
}

static void find_folders(struct module_search *s)
{
  const char *given = manta__knob_text(MANTA__KNOB_MODULES);
  char own[PATH_MAX];
  s->count = 0;
  if (given) {
    add(s, given, "");
    return;
  }
  if (own_folder(own, sizeof own)) {
    add(s, own, "manta");
    add(s, own, "");             // in a build tree
    add(s, own, "..");           // of the command there
    add(s, own, "../lib/manta"); // of the command
  }
  add(s, MANTA_MODULE_DIR, "");
}

// A library's constructor may install handlers: whatever differs afterwards is put back.
static void keep_signals(struct sigaction saved[NSIG], bool restore)
{
  for (int i = 1; i < NSIG; i++) {
    struct sigaction now;
    if (!restore)
      sigaction(i, NULL, &saved[i]);
    else if (sigaction(i, NULL, &now) == 0 && now.sa_handler != saved[i].sa_handler)
      sigaction(i, &saved[i], NULL);
  }
}

static void *open_quietly(const char *path)
{
  struct sigaction saved[NSIG];
  stack_t stack;
  sigset_t all, before;
  bool has_stack = sigaltstack(NULL, &stack) == 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  keep_signals(saved, false);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  keep_signals(saved, true);
  if (has_stack)
    sigaltstack(&stack, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return library;
}

bool manta__module_find(const char *name, char *path, size_t size)
{
  struct module_search s;
  find_folders(&s);
  for (int i = 0; i < s.count; i++) {
    snprintf(path, size, "%s/libmanta-%s.so", s.folder[i], name);
    if (access(path, F_OK) == 0)
      return true;
  }
  snprintf(path, size, "%s", s.count ? s.folder[s.count - 1] : "any folder");
  return false;
}

manta_status manta__module_symbol(const char *name, const char *symbol, const char *needs,
                                  void **out, manta_error *err)
{
  char path[PATH_MAX + 64];
  if (!manta__module_find(name, path, sizeof path))
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "there is no libmanta-%s.so in %s\nhint: it is built where %s is "
                           "installed with headers; MANTA_MODULES names another folder",
                           name, path, needs);
  void *library = open_quietly(path);
  if (!library)
    return manta_error_set(err, MANTA_EUNSUPPORTED, "%s\nhint: the module %s needs %s", dlerror(),
                           name, needs);
  if (!(*out = dlsym(library, symbol)))
    return manta_error_set(err, MANTA_EPROTO, "%s is not a module of manta: %s", path, dlerror());
  return MANTA_OK;
}
