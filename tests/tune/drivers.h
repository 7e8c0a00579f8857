/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/tune/drivers.h - drivers one after the other, and what they leave in the log.
 */
#ifndef MANTA_TEST_DRIVERS_H
#define MANTA_TEST_DRIVERS_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <manta/tune.h>

#include "test.h"
#include "tune/journal.h"

/* The next driver goes on with the newest experiment in MANTA_RESULTS, if there is one: its
 * directory is in `found` then, which must live as long as *c. */
static inline void go_on_with_newest(manta_tune_config *c, char found[256])
{
  manta_tune *t;
  if (manta_tune_open(&t, NULL, NULL) < 0)
    return;
  snprintf(found, 256, "%s", manta_tune_dir(t));
  c->resume = found;
  manta_tune_close(t);
}

static inline void read_events(const manta_tune *t, const struct manta__journal_reader *to)
{
  struct manta__journal j;
  manta_error err = MANTA_ERROR_INIT;
  int fd = open(manta_tune_dir(t), O_RDONLY | O_DIRECTORY);
  assert_ok(manta__journal_open(&j, fd, false, false, &err), &err);
  assert_ok(manta__journal_read(&j, to, &err), &err);
  manta__journal_close(&j);
  close(fd);
}

#endif
