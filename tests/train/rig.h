/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/train/rig.h - trainers over real processes, faults at a chosen place, and proof that they
 * fired.
 *
 * The train function `counting` counts from its checkpoint to `n`, reports each count and saves
 * every `every` counts. Faults come by config: {"fault": "kill", "rank": 1, "at": 57} fires when
 * that rank is about to report count 57 in attempt 0 (or in every attempt below "attempts").
 */
#ifndef MANTA_TEST_RIG_H
#define MANTA_TEST_RIG_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "test.h"

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#define THREADED  __has_feature(thread_sanitizer) /* it has a thread in every process */
#else
#define SANITIZED 0
#define THREADED  0
#endif

struct rig {
  manta_trainer *t;
  manta_trainer_config cfg;
  manta_run_config rc;
  manta_error err;
  manta_value results;
  char dir[64];
  int64_t rows, last, rewinds, incomplete;
  int starts, finishes;
  manta_status finished_with;
  char output[8192];
  size_t output_len;
};

/* What workers tell the test without going through manta: a page shared by all processes. */
struct board {
  _Atomic int fired;        /* faults that happened */
  _Atomic int64_t born[64]; /* by rank: pid in the first attempt */
  _Atomic int64_t pid[64];  /* by rank: pid now */
  _Atomic int attempts;     /* highest attempt seen */
  _Atomic int64_t at[64];   /* by rank: count now */
  _Atomic int64_t counts;   /* counts made, all ranks and attempts */
  _Atomic int reused;       /* calls of `counting` in a process that had one before */
  _Atomic int hold;         /* workers wait while this is 1 */
  _Atomic int64_t orphan;   /* pid of a daemon that a worker left */
};
extern struct board *board;

/* Call first in main, after manta_init: the board is a file that workers map by path. */
void board_open(void);
void board_close(void); /* last in main */

manta_status counting(manta_session *s, manta_value *result, manta_error *err);

void rig_init(struct rig *r, int workers); /* before the trainer is made: change cfg and rc then */
void rig_make(struct rig *r);
manta_status rig_run(struct rig *r, const manta_value *config);
/* A driver that can be killed: the test's program again, as `TEST driver DIR` with the directory of
 * the rig. Its main makes a rig and drives it: `counting` without end. */
pid_t rig_start_driver(const struct rig *r);
int rig_drive(struct rig *r, char *dir);
void rig_destroy(struct rig *r); /* the trainer, where the rig is still needed */
void rig_fini(struct rig *r);
int rig_teardown(void **state); /* of every test: one that fails must not spoil the next */
#define rig_test(f) cmocka_unit_test_teardown(f, rig_teardown)

/* A group of processes with a memory limit of 512 MB, below ours. Skips the test if that cannot be
 * had here. */
void memory_cgroup(char *dir, size_t size);
bool join_cgroup(const char *dir);

/* Processes: the child of `parent` with this name, or 0; whether a process is there. */
pid_t child_named(pid_t parent, const char *name);
bool alive(pid_t pid);
/* Waits until `what` is true, at most s seconds. */
#define within(s, what)                                                                            \
  ({                                                                                               \
    int64_t within_by = manta__deadline(s);                                                        \
    while (!(what) && manta__now() < within_by)                                                    \
      usleep(500);                                                                                 \
    (what);                                                                                        \
  })
void assert_nothing_left(void);
bool is_logged(const struct rig *r, const char *text); /* run.log of the newest run has it */
void assert_logged(const struct rig *r, const char *text);
/* After a run with a loss of the `count` ranks from `first` on: every rank has begun anew in a
 * fresh process; where the trainer keeps its workers, only those have. */
void assert_renewed(const struct rig *r, int world, int first, int count);

#endif
