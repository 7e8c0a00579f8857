/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/session.h - what a worker sees: who it is, its config, report, save and load.
 *
 * A session is borrowed: it is valid inside the train function it was passed to.
 *
 * Threads. Any thread of the worker may call what is here, at the same time as others, while the
 * function runs. The rows of a rank are numbered without gaps, in the order in which their calls
 * get through. Saves are made one at a time, and reports go on meanwhile: a snapshot belongs to
 * the reports that got through before it began. A thread that waits for another's call leaves when
 * the attempt ends (MANTA_EPEERLOST, MANTA_EABORTED). When the function returns, calls that are
 * still going on are waited for; later ones of report, save, files and load give MANTA_ESTATE.
 * These belong to one thread, the same as the collectives: save_sharded, which is one, and the
 * first manta_session_comm. A load that waits for rank 0's save keeps other threads of its rank
 * from making communicators meanwhile. Nobody else may save between files and the save that it is
 * for.
 *
 * A forked child of a worker has no part in the run: report, save, files and load give MANTA_ESTATE
 * there.
 */
#ifndef MANTA_SESSION_H
#define MANTA_SESSION_H

#include <manta/ckpt.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_session manta_session;

/* The train function. Runs once per attempt on every worker. `result` is {0} and takes the return
 * value of this rank, which may own memory: manta frees it. A negative status with a message in
 * `err` (never NULL here) is the run's error, and `result` may say more (manta_run_failure); with
 * MANTA_EINVAL it is not tried again even where errors are (retry_errors). When a session call
 * returns MANTA_EPEERLOST, MANTA_EABORTED or MANTA_EPREEMPTED, clean up and return it soon
 * (manta_trainer_config.grace_s): after a lost peer the function is called again, in this process,
 * from the newest checkpoint. So a second call finds static variables as the first one left them.
 */
typedef manta_status (*manta_train_fn)(manta_session *s, manta_value *result, manta_error *err);

/* Registers a function under a name, so that a run can be resumed by another build of the program:
 *   MANTA_TRAIN("mnist", train)        (file scope, no semicolon; names are unique in a program)
 * manta_register does it by hand, before manta_init; the name is borrowed for the life of the
 * process. A name that another function has, and more than 1024 names, end the program. */
#define MANTA_TRAIN(name, fn)                                                                      \
  __attribute__((constructor)) static void manta__register_##fn(void)                              \
  {                                                                                                \
    manta_register((name), (fn));                                                                  \
  }
MANTA_API void manta_register(const char *name, manta_train_fn fn);

/* This worker's place: rank 0 … world_size - 1 among all, local_rank among those on its host, and
 * node_rank of the host. Constant within an attempt, which mostly is a call of the train function
 * (but see manta_comm_rebuild) and has a process of its own, unless the trainer keeps its
 * workers. */
MANTA_API int manta_session_rank(const manta_session *s);
MANTA_API int manta_session_local_rank(const manta_session *s);
MANTA_API int manta_session_world_size(const manta_session *s);
MANTA_API int manta_session_local_world_size(const manta_session *s);
MANTA_API int manta_session_node_rank(const manta_session *s);
/* Where the ranks of other hosts reach this one: an address in figures, and the interface that has
 * it. It is the one of collectives between hosts: manta_host.address, or that of the channel to the
 * driver, or that which leads to the other hosts. With one host it is the loopback. Borrowed until
 * the attempt ends. MANTA_ENOENT: this host has nothing of that name or address. */
MANTA_API manta_status manta_session_address(manta_session *s, const char **address,
                                             const char **interface, manta_error *err);
/* 0 for the first try, one more after each revival or resize. */
MANTA_API int manta_session_attempt(const manta_session *s);
/* Reports made so far by this rank, those before a restored checkpoint counted in. */
MANTA_API int64_t manta_session_iteration(const manta_session *s);
/* The run's directory, as the driver's host has it; NULL outside of a run. Borrowed until the train
 * function returns. */
MANTA_API const char *manta_session_run_dir(const manta_session *s);
/* The session of this process, borrowed, or NULL outside of a train function: for code that is
 * called from it and was not handed the session. */
MANTA_API manta_session *manta_session_current(void);

/* The config given to the run (an empty map without one), and its entries with a default for what
 * is missing or of another type. Borrowed until the train function returns; the same on every rank.
 */
MANTA_API const manta_value *manta_session_config(const manta_session *s);
MANTA_API int64_t manta_session_config_int(const manta_session *s, const char *key, int64_t dflt);
MANTA_API double manta_session_config_real(const manta_session *s, const char *key, double dflt);
MANTA_API bool manta_session_config_bool(const manta_session *s, const char *key, bool dflt);
MANTA_API const char *manta_session_config_string(const manta_session *s, const char *key,
                                                  const char *dflt);

/* The bytes that came with the run (manta_run_config.payload) and their number, borrowed until the
 * train function returns; NULL and 0 if there were none. */
MANTA_API const void *manta_session_payload(const manta_session *s, size_t *bytes);

/* Gives this rank's result as the bytes behind a descriptor, a memfd or a file, from its beginning:
 * whatever their number they are passed on, not copied (a memfd that can be sealed is sealed). The
 * descriptor stays the caller's. `kind` is the suffix of the file in the run's directory that keeps
 * them: small letters and digits. What is in `result` when the function returns takes their place
 * in run.log; the driver has them from manta_run_result_bytes. The last call counts; a function
 * that fails has no such result. */
MANTA_API manta_status manta_session_result(manta_session *s, int fd, const char *kind,
                                            manta_error *err);

/* Queues one row of metrics (a map; at most 1 MiB packed) and returns; the row is copied. No
 * barrier, and no system call as long as the driver keeps up: it waits only while 4 MiB of this
 * rank's rows have not been read. Adds _timestamp, _time_this_iter_s and _training_iteration. Every
 * rank is to report equally often (or never). MANTA_EPEERLOST after a peer died, MANTA_EABORTED
 * when the run is being ended: the row was not taken. MANTA_EPREEMPTED when the run was asked to
 * stop and this rank has not saved in this attempt: the row was taken. MANTA_ETYPE, MANTA_ETOOBIG:
 * go on without it. */
MANTA_API manta_status manta_session_report(manta_session *s, const manta_value *row,
                                            manta_error *err);

/* Snapshots `state` into shared memory (one copy) and returns; the state may be changed at once,
 * and the files are written behind the caller's back. It belongs to the reports made so far: report
 * first, then save. Rank 0's state is the checkpoint; on other ranks nothing is copied, but they
 * are to call it too, since it is here that they learn of the end. MANTA_EPREEMPTED when the run
 * was asked to stop: the state was saved; return. MANTA_EPEERLOST, MANTA_EABORTED: it was not.
 * MANTA_EINVAL names a tensor that makes no sense. A disk that fails is a warning in the driver,
 * not an error here. */
MANTA_API manta_status manta_session_save(manta_session *s, const manta_state *state,
                                          manta_error *err);
/* The same, where the bytes of some tensors are not the caller's to point at (they are on a device,
 * say): `fill` is called once, on rank 0, to put them into the slot. */
MANTA_API manta_status manta_session_save_by(manta_session *s, const manta_state *state,
                                             manta_fill_fn fill, void *ctx, manta_error *err);
/* The same, where every rank has a part of the state: a collective of all ranks, over
 * manta_session_comm. The checkpoint has the tensors of all, named "rankR.NAME", and the value
 * {"sharded": world size, "parts": [value of rank 0, …]}; it exists as a whole or not at all, and
 * does when this returns. The memory is rank 0's; each of the others keeps its own part once more,
 * for manta_session_load in the same attempt. If one rank's part makes no sense, all return
 * MANTA_EINVAL. */
MANTA_API manta_status manta_session_save_sharded(manta_session *s, const manta_state *state,
                                                  manta_error *err);

/* The next save belongs to the report that follows it, not to those made so far: for a caller who
 * has metrics and state at once, and whose run may end with that report, as a trial of an
 * experiment does. Every rank calls it. A notice is told by that report, then, and not by the
 * save. The checkpoint counts when the report is kept: if a worker ends without making it, what was
 * saved for it is dropped. row: the metrics of that report, if checkpoints are kept by one of them;
 * NULL: the score is that of the report before. */
MANTA_API void manta_session_ahead(manta_session *s, const manta_value *row);
/* A new, empty directory (its path, borrowed until the next call) for files that are to lie beside
 * the next state that rank 0 saves: they move into that checkpoint's directory when it is written,
 * and go with it. The caller syncs them. If that state is never written, they are removed with the
 * next that is. MANTA_ESTATE on other ranks; MANTA_EUNSUPPORTED where the host of this rank does
 * not have the run's directory. */
MANTA_API manta_status manta_session_files(manta_session *s, const char **dir, manta_error *err);

/* A directory (its path, borrowed until the next call) for the user's own files of the checkpoint
 * that belongs to the next report; the same on every rank. It is not made: a directory can be
 * renamed to it. Whatever lies there when rank 0 has made that report and calls save is a part of
 * that checkpoint: it is synced before the checkpoint counts, stays where it is, and goes with it.
 * What is put there without such a save is removed when a later one counts. On other ranks it only
 * tells the path. MANTA_EUNSUPPORTED where the host of this rank does not have the run's
 * directory. */
MANTA_API manta_status manta_session_directory(manta_session *s, const char **dir,
                                               manta_error *err);

/* The state of this rank's random number generators, as bytes (at most MANTA_RANDOM_MAX), for the
 * checkpoint of the reports made so far: every rank that has some calls it before its save. Does
 * not wait. The bytes go where the checkpoint goes, whichever host the rank is on. */
#define MANTA_RANDOM_MAX (256u << 10)
MANTA_API manta_status manta_session_save_random(manta_session *s, const void *bytes, size_t len,
                                                 manta_error *err);
/* What belongs to the checkpoint of the run that this attempt began from, in *bytes (manta_free
 * it): the state of this rank (*owner is its number); for a rank that was not there then, or that
 * had not come to its save, the state of rank 0, to derive its own from (*owner is 0); or nothing,
 * NULL (*owner is -1), as after this rank's first save in the attempt. */
MANTA_API manta_status manta_session_load_random(manta_session *s, void **bytes, size_t *len,
                                                 int *owner, manta_error *err);

/* Gives the newest checkpoint in *out (close it), or NULL in *out if there is none. It is the same
 * on every rank: a rank's first load, before its first save, is what the attempt began from,
 * however far rank 0 has come; later ones are what rank 0 saved last, after a wait if this rank
 * has called save more often than rank 0 so far. An abort ends the wait, and MANTA_ESTATE that
 * rank 0 has left its function. (A rank on another host than rank 0 that does not call save itself
 * may get one that is a little older.) Of a sharded one that was saved in this attempt rank 0 gets
 * the whole; the others get it without the tensors of other ranks, whose values are nil. Its
 * tensors are mapped, not copied; what is written to them is this opening's own. */
MANTA_API manta_status manta_session_load(manta_session *s, manta_checkpoint **out,
                                          manta_error *err);

/* True after the run was asked to stop (SIGTERM): save and return soon. */
MANTA_API bool manta_session_preempted(const manta_session *s);
/* MANTA_OK, or what report would return now: MANTA_EPEERLOST, MANTA_EABORTED. For a long step that
 * wants to leave early when a peer is gone. Costs a load. */
MANTA_API manta_status manta_session_check(const manta_session *s, manta_error *err);
/* "I am alive", for step_timeout, in a long step that neither reports nor saves. */
MANTA_API void manta_session_heartbeat(manta_session *s);

#ifdef __cplusplus
}
#endif
#endif
