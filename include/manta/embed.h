/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/embed.h - for those who bring manta to another language.
 *
 * A C program is its own worker: manta_init turns a second copy of it into one. An interpreter has
 * no such main. Its driver calls manta_embed, names a program whose copies fork the workers (the
 * interpreter again, with a framework imported), and that program calls manta_serve when it is
 * ready. The train function is one that both have registered (manta_register).
 */
#ifndef MANTA_EMBED_H
#define MANTA_EMBED_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/data.h>
#include <manta/session.h>
#include <manta/status.h>
#include <manta/trainer.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What workers are forked from. All is copied. Programs that differ in anything have processes of
 * their own; at most four are kept. */
typedef struct manta_program {
  size_t size;             /* filled by MANTA_PROGRAM_INIT */
  const char *const *argv; /* NULL-terminated; argv[0] is what it is called, not what is run */
  const char *const *env;  /* NULL-terminated: NAME=VALUE for it and its workers, of names that are
                              not in the driver's environment; or NULL */
} manta_program;
#define MANTA_PROGRAM_INIT                                                                         \
  {                                                                                                \
    sizeof(manta_program), NULL, NULL                                                              \
  }

/* Instead of manta_init, in a driver. argv (NULL-terminated, copied) is the command line that
 * `manta resume` is to run again with this process's executable. Once per process. */
MANTA_API manta_status manta_embed(int argc, char *const argv[], manta_error *err);

/* Starts the agent and a process of the program now, beside whatever the driver does until its
 * first run, and keeps both until manta_release, also while there is no trainer. Does not wait.
 * threads: as manta_trainer_config.threads_per_worker; a program that is named is loaded with one,
 * and serves workers with any number. It is run by the driver's own executable. */
MANTA_API manta_status manta_prestart(const manta_program *p, int threads, manta_error *err);
/* The same on every host of the trainer, with its program and threads. */
MANTA_API manta_status manta_trainer_prestart(manta_trainer *t, manta_error *err);
/* Ends what no trainer uses; if none has workers, all of it. It is started again when needed. */
MANTA_API void manta_release(void);

/* Functions over rows (manta_apply_config) in processes of their own, which the reader of a host
 * has forked from the program. One call at a time, on the main thread. */
typedef struct manta_callers {
  /* The function of what its `pack` gave; it stays until the process ends. */
  manta_status (*load)(const void *code, size_t bytes, void **function, manta_error *err);
  /* As manta_apply_config.call. seed: the same whenever these rows are given, wherever. On failure
   * *detail, which is nil, may become bytes for `raised` in the worker. */
  manta_status (*call)(void *function, uint64_t seed, const manta_batch *in, manta_applied *out,
                       manta_value *detail, manta_error *err);
} manta_callers;

/* What surrounds a fork in the program: in the process that forks before and after it, and in the
 * new worker. Each may be NULL.
 *
 * `warm` loads what later workers may want and the first ones could not wait for. It is called
 * once, instead of `child`, in a fork of the program that is made right after the first workers.
 * When it returns true that fork takes over and the process it came from ends; until then, and for
 * good if it fails or ends, the old one forks workers. It must leave one thread. Workers inherit
 * the priority of the thread that forks: to yield to workers that train, lower that of another
 * thread.
 *
 * `prepare` is called in a worker whose train functions are called in forks of it (a trial of an
 * experiment), before each fork, with the payload of the run: what is loaded here all of these
 * forks share. If it leaves more than one thread there is no fork: the worker calls the function
 * itself, and no other after it.
 *
 * `callers` must outlive the program; NULL: it has no functions that can be packed. */
typedef struct manta_fork_hooks {
  void (*before)(void);
  void (*parent)(void);
  void (*child)(void);
  bool (*warm)(void);
  void (*prepare)(const void *payload, size_t bytes);
  const manta_callers *callers;
} manta_fork_hooks;

/* Whether this process was started as a program, so that manta_serve is to be called when it is
 * ready. From this call on it ends with its driver, at any moment: make it the first. */
MANTA_API bool manta_serving(void);
/* In the program, from its main thread, when all that workers are to share is loaded: forks workers
 * until the driver is gone. Comes back only in a worker whose work is over, with MANTA_OK: the
 * process is to end in its normal way, soon. argv: its own command line, for workers that cannot be
 * forked because there are threads. MANTA_ESTATE: the process was not started as a program. */
MANTA_API manta_status manta_serve(char *const argv[], const manta_fork_hooks *hooks,
                                   manta_error *err);

/* In a train function, before it returns: waits until no other thread is in report, save or load;
 * from now on those calls fail there. manta does so itself when the function has returned. For an
 * interpreter that must first let go of a lock which such a call may need. */
MANTA_API void manta_session_settle(manta_session *s);
/* In a worker, from any thread: the train function has ended well, without a result, and so does
 * the process, at once; nothing is finalised. What a language's immediate exit with status 0 may
 * mean. False, and nothing was done, if no train function is running here, or this is a child that
 * the worker forked. */
MANTA_API bool manta_leave(void);
/* A rank of this host that has left its train function while ours runs, or -1: who a framework's
 * own collective may have waited for. */
MANTA_API int manta_session_departed(manta_session *s);

/* A CPU that says it has AMX, but not which, makes oneDNN (and PyTorch with it) die by SIGILL: the
 * NAME=VALUE that prevents it if it is in the environment before the library is loaded, or NULL if
 * this CPU needs none. Static storage. */
MANTA_API const char *manta_amx_cure(void);

/* The value in force of one of manta's environment variables, which manta-params(7) lists: nil (not
 * set, and no default), bool, int, real or string. It is read now. *out, {0} or a value, owns it.
 * MANTA_EINVAL: the variable has a wrong value, and the message says what would be right; or there
 * is none of this name. */
MANTA_API manta_status manta_knob(const char *name, manta_value *out, manta_error *err);

#ifdef __cplusplus
}
#endif
#endif
