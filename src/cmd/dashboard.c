/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/dashboard.c - `manta dashboard`: runs in a browser.
 */
#include <stdio.h>
#include <string.h>

#include <manta/manta.h>

#include "cmd/commands.h"
#include "cmd/format.h"
#include "dash/dash.h"
#include "event/rundir.h"
#include "sys/file.h"
#include "sys/module.h"
#include "sys/sock.h"

// The one line of output is the link: a script may take it from there.
static void print_link(const char *link, void *ctx)
{
  const char *dir = ctx;
  fprintf(stderr, "the runs of %s, until Ctrl-C:\n", dir);
  printf("%s\n", link);
  fflush(stdout);
}

static manta_status read_options(struct manta__dash_options *o, const struct manta__args *a,
                                 manta_error *err)
{
  int64_t port = -1;
  const char *text = manta__args_get(a, "port");
  if (text)
    MANTA_TRY(manta__args_int(&port, text, "--port", 0, 65535, err));
  *o = (struct manta__dash_options){.bind = manta__args_get(a, "bind"),
                                    .port = (int)port,
                                    .cert = manta__args_get(a, "cert"),
                                    .key = manta__args_get(a, "key"),
                                    .insecure = manta__args_has(a, "insecure"),
                                    .token_file = manta__args_get(a, "token-file"),
                                    .host = manta__args_get(a, "allow-host"),
                                    .ready = print_link};
  return MANTA_OK;
}

// The default directory is made: the first run may come later.
static manta_status choose_dir(char **out, const char *given, manta_error *err)
{
  int fd = -1;
  *out = NULL;
  if (given)
    return MANTA_OK;
  MANTA_TRY(manta__rundir_default(out, err));
  MANTA_TRY(manta__dir_make(*out, &fd, err));
  manta__fd_close(&fd);
  return MANTA_OK;
}

int manta__cmd_dashboard(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__dash_options o;
  const struct manta__dash_module *module;
  void *entry = NULL;
  char *dir = NULL;
  manta_status st = read_options(&o, a, &err);
  if (st == MANTA_OK)
    st = choose_dir(&dir, a->operand[0], &err);
  if (st == MANTA_OK)
    st = manta__module_symbol("dash", "manta_dash_entry", "libmicrohttpd", &entry, &err);
  if (st == MANTA_OK) {
    module = entry;
    o.dir = dir ? dir : a->operand[0];
    o.ctx = (void *)(uintptr_t)o.dir;
    st = module->serve(&o, &err);
  }
  manta_free(dir);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}
