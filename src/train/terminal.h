/* SPDX-License-Identifier: Apache-2.0
 *
 * train/terminal.h - MANTA_PDB=RANK (`manta run --pdb RANK`): one rank of each run has the driver's
 * terminal as its standard input, output and error, so that a debugger or a question works there.
 *
 * The rank reads and writes the terminal itself: it is in a session without one, so that the kernel
 * does not count it as a background process. What a rank that died did to its settings is undone.
 */
#ifndef MANTA_TRAIN_TERMINAL_H
#define MANTA_TRAIN_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

#include <manta/trainer.h>

struct manta__tty { /* the terminal of a rank */
  int fd, rank;     /* -1: none has it */
  bool saved;
  struct termios before;
};

/* Opens the terminal if a rank is to have it; gives it back as it was. */
manta_status manta__terminal_take(manta_run *r, manta_error *err);
void manta__terminal_leave(manta_run *r);

#endif
