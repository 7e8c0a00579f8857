/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/commands.h - the sub-commands: each takes its arguments apart and gives an exit code.
 */
#ifndef MANTA_CMD_COMMANDS_H
#define MANTA_CMD_COMMANDS_H

#include <manta/tune.h>

#include "cmd/options.h"

int manta__cmd_run(const struct manta__args *a);
int manta__cmd_resume(const struct manta__args *a);
int manta__cmd_upload(const struct manta__args *a);
int manta__cmd_download(const struct manta__args *a);
int manta__cmd_status(const struct manta__args *a);
int manta__cmd_logs(const struct manta__args *a);
int manta__cmd_ls(const struct manta__args *a);
int manta__cmd_plot(const struct manta__args *a);
int manta__cmd_dashboard(const struct manta__args *a);
int manta__cmd_prune(const struct manta__args *a);
int manta__cmd_ps(const struct manta__args *a);
int manta__cmd_kill(const struct manta__args *a);
int manta__cmd_resize(const struct manta__args *a);
int manta__cmd_notice(const struct manta__args *a);
int manta__cmd_ckpt(const struct manta__args *a);
int manta__cmd_mlflow(const struct manta__args *a);
int manta__cmd_sink(const struct manta__args *a);
int manta__cmd_tune(const struct manta__args *a);
int manta__cmd_agent(const struct manta__args *a);
int manta__cmd_bench(const struct manta__args *a);
int manta__cmd_info(const struct manta__args *a);
int manta__cmd_doctor(const struct manta__args *a);
int manta__cmd_version(const struct manta__args *a);
int manta__cmd_help(const struct manta__args *a);

/* What `manta tune status` prints. */
int manta__show_experiment(const struct manta__args *a, manta_tune *t, manta_error *err);

/* All of them, in the order of the help; a row without a name ends it. */
extern const struct manta__command manta__commands[];

/* The row of this name, or NULL. */
const struct manta__command *manta__command_find(const char *name);
/* The name of a command that this looks like, or NULL. */
const char *manta__command_like(const char *name);
/* What --help prints, and the list of all commands. */
void manta__help_command(const struct manta__command *c);
void manta__help_all(void);

#endif
