/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/commands.c - the table of sub-commands, from which all help comes.
 */
#include "cmd/commands.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>

#include "agent/bridge.h"
#include "base/typo.h"
#include "cmd/doctor.h"
#include "cmd/format.h"

#define JSON                                                                                       \
  {                                                                                                \
    0, "json", NULL, "print one JSON value"                                                        \
  }
#define WORKERS                                                                                    \
  {                                                                                                \
    'n', "workers", "N", "number of workers where the program does not say"                        \
  }
#define RUN_IS                                                                                     \
  "RUN is the path of a run's directory, its name, the beginning or the end of a name if only\n"   \
  "one run matches, \"latest\", or s3://BUCKET/PREFIX/RUN, which is downloaded first.\n"

static const struct manta__option none[] = {{0}};
static const struct manta__option json[] = {JSON, {0}};
static const struct manta__option run_options[] = {
    WORKERS,
    {0, "logdir", "DIR", "where the directories of its runs go"},
    {'v', "verbose", "N", "show the progress of runs: 1, or 2 with each worker (0)"},
    {0, "pdb", "RANK", "give this rank the terminal, for breakpoint() and input()"},
    {0, "ray", NULL, "the program is a Python script, and `import ray` in it gives manta"},
    {0}};
static const struct manta__option resume_options[] = {
    WORKERS, {0, "trust", NULL, "also if the run was downloaded: its log says what is run"}, {0}};
static const struct manta__option logs_options[] = {
    {0, "rank", "N", "of this rank (0)"},
    {0, "all", NULL, "of all ranks, each line with its rank in front"},
    {'f', "follow", NULL, "keep printing until the run ends"},
    {'n', "lines", "LINES", "begin with the last LINES lines of each rank"},
    {0}};
static const struct manta__option ps_options[] = {
    JSON, {'v', "verbose", NULL, "a line per worker, with its pid and state"}, {0}};
static const struct manta__option plot_options[] = {
    {'o', "output", "FILE", "write FILE.svg or FILE.png instead of showing the plot here"},
    {0, "rank", "N", "rows of this rank (0), or of \"all\" ranks together"},
    {0, "x", "WHAT", "over iteration (default) or time"},
    {0, "log", NULL, "logarithmic y axis"},
    {0, "title", "TEXT", "above the plot, instead of the names of the runs"},
    {0}};
static const struct manta__option prune_options[] = {
    {0, "keep", "N", "leave the newest N runs"},
    {0, "older", "AGE", "leave runs that ended less than AGE ago: 30d, 12h, 90m"},
    {0, "unfinished", NULL, "also runs that could be resumed"},
    {0, "dry-run", NULL, "only show what would be removed"},
    JSON,
    {0}};
static const struct manta__option kill_options[] = {
    {0, "now", NULL, "kill the program at once instead of asking it to end the run"}, {0}};
static const struct manta__option agent_options[] = {
    {0, "stdio", NULL, "talk to the driver over standard input and output"}, {0}};
static const struct manta__option bench_options[] = {
    {'n', "workers", "N", "number of workers (the CPUs, at least 2)"},
    {0, "op", "OP", "the collective (allreduce)"},
    {0, "type", "TYPE", "of the elements: f32 (default), bf16, f64, i32 ..."},
    {0, "from", "BYTES", "smallest size (4)"},
    {0, "to", "BYTES", "largest size (1G)"},
    {0, "factor", "N", "from one size to the next (4)"},
    {0, "ms", "MS", "how long each size is measured (300)"},
    {0, "private", NULL, "buffers of the workers' own instead of manta_shm_alloc's"},
    {0, "pin", NULL, "pin every worker to cores of its own"},
    JSON,
    {0}};
static const struct manta__option info_options[] = {
    {0, "params", NULL, "list the MANTA_* environment variables instead"}, JSON, {0}};
static const struct manta__option dashboard_options[] = {
    {0, "port", "PORT", "to listen on; 0: any (8420, or any if that is taken)"},
    {0, "bind", "ADDRESS", "to listen on (127.0.0.1)"},
    {0, "cert", "FILE", "certificate for TLS, PEM"},
    {0, "key", "FILE", "its key, PEM; nobody else may read it"},
    {0, "insecure", NULL, "listen beyond this host without TLS"},
    {0, "token-file", "FILE", "take the token from FILE instead of making one"},
    {0, "allow-host", "NAME", "another name by which browsers reach this host"},
    {0}};
static const struct manta__option ckpt_options[] = {
    JSON,
    {0, "to", "FILE", "export: the tensors, as FILE.safetensors"},
    {0, "dir", "DIR", "export: the whole checkpoint, as a new directory"},
    {0}};

static const struct manta__option mlflow_options[] = {
    {0, "tracking-uri", "URI", "of a run that has no MLflow sink (MLFLOW_TRACKING_URI)"},
    {0, "experiment", "NAME", "of such a run (MLFLOW_EXPERIMENT_NAME, or Default)"},
    {0}};
static const struct manta__option sink_options[] = {
    {0, "kind", "KIND", "only sinks of this kind: json, csv, tensorboard, mlflow, wandb"}, {0}};
static const struct manta__option tune_options[] = {
    {0, "metric", "NAME", "by which the best trial is found (the experiment's)"},
    {0, "mode", "MODE", "min or max: which values of it are better"},
    JSON,
    {0}};

const struct manta__command manta__commands[] = {
    {"run", "PROGRAM [ARGUMENT...]", "run a program that trains",
     "A SIGTERM asks its runs to save and stop; a second one, or MANTA_GRACE seconds (30), kills\n"
     "the program. The exit code is the program's, or 128 plus the signal that ended it.\n",
     run_options, 1, -1, true, manta__cmd_run, MANTA__ENV_PASSED},
    {"resume", "RUN", "continue a run that was interrupted",
     "Runs the recorded program with its arguments, in its directory. Runs that had finished\n"
     "return their results again; the interrupted one continues from its last checkpoint.\n" RUN_IS,
     resume_options, 1, 1, false, manta__cmd_resume, MANTA__ENV_PASSED},
    {"status", "[RUN]", "show the state of a run",
     RUN_IS "Without RUN it is the newest one. Of an experiment it shows what manta tune status "
            "does.\n",
     json, 0, 1, false, manta__cmd_status},
    {"logs", "RUN", "print what the workers printed", RUN_IS, logs_options, 1, 1, false,
     manta__cmd_logs},
    {"ps", "", "list what is running", NULL, ps_options, 0, 0, false, manta__cmd_ps},
    {"ls", "[DIR]", "list the runs and experiments of a directory",
     "DIR is a directory of runs; without one it is MANTA_RESULTS, or ~/manta_results. The age\n"
     "counts from a run's end. Experiments have a table of their own; manta tune status shows\n"
     "one of them.\n",
     json, 0, 1, false, manta__cmd_ls},
    {"plot", "RUN[,RUN...] [METRIC...]", "plot the metrics of runs",
     "Without METRIC all are plotted; those whose names end in the same word share a panel. Lost\n"
     "workers are marked.\n" RUN_IS,
     plot_options, 1, -1, false, manta__cmd_plot},
    {"dashboard", "[DIR]", "show runs in a browser",
     "Prints a link and serves it until Ctrl-C, on this host only unless --bind says otherwise.\n"
     "Nobody sees anything without the token in the link, and nothing can be changed. DIR is a\n"
     "directory of runs, or of one run; without one it is MANTA_RESULTS, or ~/manta_results.\n",
     dashboard_options, 0, 1, false, manta__cmd_dashboard},
    {"prune", "[DIR]", "remove old runs",
     "Needs --keep, --older or both: what either would leave stays. Runs that are still\n"
     "running, belong to another user, or whose directory is a link stay as well.\n",
     prune_options, 0, 1, false, manta__cmd_prune},
    {"kill", "RUN", "end a run and its workers",
     "The run can be resumed. A program that does not react within 5 seconds is killed.\n" RUN_IS,
     kill_options, 1, 1, false, manta__cmd_kill},
    {"resize", "RUN N", "change the number of workers of a run",
     "The run continues with N workers after its next checkpoint.\n" RUN_IS, none, 2, 2, false,
     manta__cmd_resize},
    {"notice", "RUN", "ask a run to save and stop",
     "The run can be resumed; a program that passes it on ends with exit code 75.\n" RUN_IS, none,
     1, 1, false, manta__cmd_notice},
    {"ckpt", "ls|show|verify|export RUN [CHECKPOINT]", "list, show, verify or export checkpoints",
     "CHECKPOINT is a name or number of ls, \"best\", or \"newest\", which is the default;\n"
     "without one verify takes all.\n" RUN_IS,
     ckpt_options, 2, 3, false, manta__cmd_ckpt},
    {"sink", "RUN", "write what the sinks of a run have not got yet",
     "A run feeds its sinks itself. Where one could not work (a full disk, a file that was\n"
     "deleted), this gives it what it lacks, from the log of the run. RUN may be an experiment,\n"
     "whose trials have the sinks.\n" RUN_IS,
     sink_options, 1, 1, false, manta__cmd_sink},
    {"mlflow", "push RUN", "send a run to MLflow, or what is missing there",
     "A run with an MLflow sink sends its rows itself. What it could not send, because the server\n"
     "was down, this sends later, to the same run there. A run without one is sent whole. RUN may\n"
     "be an experiment: each of its trials is a run there.\n" RUN_IS,
     mlflow_options, 2, 2, false, manta__cmd_mlflow},
    {"upload", "RUN", "store what is missing of a run under its URI",
     "For a run whose upload could not be completed. A run is meant for a URI if the logdir of\n"
     "its trainer was one.\n" RUN_IS,
     none, 1, 1, false, manta__cmd_upload},
    {"download", "URI", "bring a run here from s3://BUCKET/PREFIX/RUN",
     "Prints the directory: the staging directory of the URI, below MANTA_STAGING. What is newer\n"
     "there stays. The URI can also be that of a folder of runs.\n",
     none, 1, 1, false, manta__cmd_download},
    {"tune", "status|best|resume [EXPERIMENT]", "show or continue an experiment",
     "EXPERIMENT is the path of an experiment's directory, its name, or \"latest\", which is the\n"
     "default. best prints the config of the best trial. resume runs the recorded program again:\n"
     "trials that ended do not run again.\n",
     tune_options, 1, 2, false, manta__cmd_tune, MANTA__ENV_PASSED},
    {"agent", "", "run workers here for a driver on another host",
     "The command of a host must end in it, as in `ssh host manta agent --stdio`. A driver starts\n"
     "it; it is not for interactive use. It ends when its input ends.\n",
     agent_options, 0, 0, false, manta__cmd_agent, MANTA__ENV_ANY},
    {"bench", "comm", "measure the collectives on this host",
     "Prints a line per size. OP is allreduce, reduce, broadcast, allgather, reduce_scatter,\n"
     "alltoall, gather, scatter or sendrecv; TYPE f16, bf16, f32, f64, i8 to i64 or u8 to u64.\n"
     "Sizes may end in K, M or G.\n",
     bench_options, 1, 1, false, manta__cmd_bench},
    {"info", "", "describe this manta and this host",
     "Version, build, modules, CPUs, memory, GPUs, and the variables that are set. With --params\n"
     "every MANTA_* variable: its value, its default, where the value comes from, its meaning.\n",
     info_options, 0, 0, false, manta__cmd_info, MANTA__ENV_ANY},
    {"doctor", "", "examine what works on this host", NULL, json, 0, 0, false, manta__cmd_doctor,
     MANTA__ENV_ANY},
    {"version", "", "print the version", NULL, none, 0, 0, false, manta__cmd_version,
     MANTA__ENV_ANY},
    {"help", "[COMMAND]", "show this list, or how a command is used", NULL, none, 0, 1, false,
     manta__cmd_help, MANTA__ENV_ANY},
    {0}};

// --- Finding -------------------------------------------------------------------------------------

const struct manta__command *manta__command_find(const char *name)
{
  for (const struct manta__command *c = manta__commands; c->name; c++)
    if (!strcmp(c->name, name))
      return c;
  return NULL;
}

// What people know from elsewhere.
static const char *other_name(const char *name)
{
  static const char *const words[][2] = {
      {"list", "ls"},          {"rm", "prune"},        {"clean", "prune"},
      {"gc", "prune"},         {"stop", "kill"},       {"start", "run"},
      {"log", "logs"},         {"checkpoint", "ckpt"}, {"continue", "resume"},
      {"checkpoints", "ckpt"}, {"benchmark", "bench"}, {"top", "ps"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(words[i][0], name))
      return words[i][1];
  return NULL;
}

const char *manta__command_like(const char *name)
{
  const char *best = other_name(name);
  int least_so_far = (int)strlen(name) < 4 ? 2 : 3; // nearer than that
  if (best)
    return best;
  for (const struct manta__command *c = manta__commands; c->name; c++) {
    int d = manta__typo_distance(name, c->name);
    if (d < least_so_far) {
      least_so_far = d;
      best = c->name;
    }
  }
  return best;
}

// --- Help ----------------------------------------------------------------------------------------

static void print_option(const struct manta__option *o)
{
  char left[40], letter[8] = "    ";
  if (o->letter)
    snprintf(letter, sizeof letter, "-%c, ", o->letter);
  snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
           o->arg ? o->arg : "");
  printf("  %-22s  %s\n", left, o->help);
}

void manta__help_command(const struct manta__command *c)
{
  bool options = c->options[0].name != NULL;
  printf("usage: manta %s%s%s%s\n\n%s\n", c->name, options ? " [OPTION...]" : "",
         c->operands[0] ? " " : "", c->operands, c->brief);
  if (c->more)
    printf("\n%s", c->more);
  printf("\noptions:\n");
  for (const struct manta__option *o = c->options; o->name; o++)
    print_option(o);
  print_option(&(struct manta__option){'h', "help", NULL, "show this"});
}

void manta__help_all(void)
{
  printf("usage: manta COMMAND [OPTION...] [ARGUMENT...]\n\ncommands:\n");
  for (const struct manta__command *c = manta__commands; c->name; c++)
    printf("  %-9s  %s\n", c->name, c->brief);
  printf("\nmanta COMMAND --help says more; so do the manual pages manta(1) and manta(3).\n"
         "exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 75 asked to stop, 128+n "
         "ended by\nsignal n\n");
}

// --- The small ones ------------------------------------------------------------------------------

int manta__cmd_agent(const struct manta__args *a)
{
  if (manta__args_has(a, "stdio") && !isatty(STDIN_FILENO))
    return manta__bridge_far_main();
  manta__say("an agent is started by a driver, as `manta agent --stdio` with a pipe\n"
             "hint: hosts in manta_trainer_config, or MANTA_HOSTS");
  return MANTA__EXIT_USAGE;
}

int manta__cmd_doctor(const struct manta__args *a)
{
  return manta__doctor(manta__args_has(a, "json"), stdout);
}

int manta__cmd_version(const struct manta__args *a)
{
  printf("manta %s\n", manta_version());
  return MANTA__EXIT_OK;
}

int manta__cmd_help(const struct manta__args *a)
{
  if (a->count == 0) {
    manta__help_all();
    return MANTA__EXIT_OK;
  }
  const struct manta__command *c = manta__command_find(a->operand[0]);
  if (c) {
    manta__help_command(c);
    return MANTA__EXIT_OK;
  }
  manta__say("there is no command \"%s\"\nhint: manta help", a->operand[0]);
  return MANTA__EXIT_USAGE;
}
