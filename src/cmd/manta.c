/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/manta.c - the command, and the binary of agent, writer and sinks: which it is, its
 * environment says.
 *
 * A run waits for its agent to start, so the role is looked at before anything else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/manta.h>

#include "agent/agent.h"
#include "agent/bridge.h"
#include "agent/reader.h"
#include "agent/uploader.h"
#include "agent/writer.h"
#include "base/knob.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "group/proto.h"
#include "sink/process.h"

static int be_agent(char **argv)
{
  return manta__agent_main(MANTA__ROLE_CONN_FD, argv);
}

static int be_bridge(char **argv)
{
  return manta__bridge_near_main(MANTA__ROLE_CONN_FD, argv);
}

static int be_writer(char **argv)
{
  return manta__writer_main(MANTA__ROLE_CONN_FD, MANTA__ROLE_LIFELINE_FD, argv);
}

static int be_sink(char **argv)
{
  return manta__sink_main(MANTA__ROLE_CONN_FD, MANTA__ROLE_LIFELINE_FD);
}

static int be_reader(char **argv)
{
  return manta__reader_main(MANTA__ROLE_CONN_FD, MANTA__ROLE_LIFELINE_FD);
}

static int be_uploader(char **argv)
{
  return manta__uploader_main(MANTA__ROLE_CONN_FD, argv);
}

// The command's own; workers are manta_init's, as in any program that trains (`manta bench` does).
static int (*const parts[MANTA__ROLE_COUNT + 1])(char **argv) = {
    [MANTA__ROLE_AGENT] = be_agent,   [MANTA__ROLE_BRIDGE] = be_bridge,
    [MANTA__ROLE_WRITER] = be_writer, [MANTA__ROLE_UPLOADER] = be_uploader,
    [MANTA__ROLE_SINK] = be_sink,     [MANTA__ROLE_READER] = be_reader};

static bool is_help(const char *word)
{
  return !strcmp(word, "--help") || !strcmp(word, "-h");
}

// Among the command's own words, not those of a program that it runs.
static bool asks_for_help(const struct manta__command *c, int argc, char **argv)
{
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (is_help(argv[i]))
      return true;
    if (c->rest && argv[i][0] != '-')
      return false;
  }
  return false;
}

static int unknown(const char *name)
{
  const char *like = manta__command_like(name);
  if (like)
    manta__say("there is no command \"%s\"; did you mean \"%s\"?", name, like);
  else
    manta__say("there is no command \"%s\"\nhint: manta help", name);
  return MANTA__EXIT_USAGE;
}

static manta_status check_environment(const struct manta__command *c, manta_error *err)
{
  if (c->care == MANTA__ENV_ANY)
    return MANTA_OK;
  if (c->care == MANTA__ENV_CHECKED)
    manta__knobs_warn_unknown();
  return manta__knobs_check(err);
}

// argv[0] is the command's name.
static int dispatch(int argc, char **argv)
{
  struct manta__args a;
  manta_error err = MANTA_ERROR_INIT;
  const struct manta__command *c = manta__command_find(argv[0]);
  if (!c)
    return unknown(argv[0]);
  if (asks_for_help(c, argc, argv)) {
    manta__help_command(c);
    return MANTA__EXIT_OK;
  }
  if (manta__args_parse(&a, c, argc, argv, &err) < 0) {
    manta__say("%s\nhint: manta %s --help", err.message, c->name);
    return MANTA__EXIT_USAGE;
  }
  if (check_environment(c, &err) < 0)
    return manta__complain(&err);
  return c->run(&a);
}

// What could not be printed was not done: a full disk behind a pipe must not look like success.
static int flush(int code)
{
  bool bad = ferror(stdout) != 0;
  if (fflush(stdout) == 0 && !bad)
    return code;
  fprintf(stderr, "manta: write to standard output: %m\n");
  return code ? code : MANTA__EXIT_FAILED;
}

int main(int argc, char **argv)
{
  const char *name = manta__knob_text(MANTA__KNOB_ROLE);
  enum manta__role role = name ? manta__role_named(name) : MANTA__ROLE_COUNT;
  if (parts[role]) {
    manta__role_enter(role);
    return parts[role](argv);
  }
  if (manta_init(&argc, &argv) < 0)
    return 64;
  if (argc < 2) {
    manta__help_all();
    return flush(MANTA__EXIT_USAGE);
  }
  if (is_help(argv[1]))
    argv[1] = (char *)"help";
  else if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
    argv[1] = (char *)"version";
  return flush(dispatch(argc - 1, argv + 1));
}
