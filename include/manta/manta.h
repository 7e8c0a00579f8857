/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/manta.h - everything, and the one call that must come first.
 */
#ifndef MANTA_H
#define MANTA_H

#define MANTA_VERSION_MAJOR 0
#define MANTA_VERSION_MINOR 1
#define MANTA_VERSION_PATCH 0
#define MANTA_VERSION       "0.1.0"

#include <manta/ckpt.h>
#include <manta/comm.h>
#include <manta/data.h>
#include <manta/ddp.h>
#include <manta/session.h>
#include <manta/sink.h>
#include <manta/status.h>
#include <manta/storage.h>
#include <manta/trainer.h>
#include <manta/tune.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first statement of main, before any thread is started and any file is opened. The workers of
 * a run are this same program, started again with the same arguments: there this call does not
 * return. In the driver it starts nothing and gives MANTA_OK; the strings of *argv are borrowed for
 * the life of the process (they are recorded for `manta resume`) and nothing is removed from them.
 * Call it once, from the main thread. */
MANTA_API manta_status manta_init(int *argc, char ***argv);

/* The version of the library that is loaded, which may be newer than the header's. Static storage;
 * any thread, also before manta_init. */
MANTA_API const char *manta_version(void);

/* Where manta's own messages go; fn NULL: standard error again. `fn` is called from any thread,
 * also from manta's own, perhaps by several at once, and must not call manta; `text` has no newline
 * at its end and is borrowed for the call. ctx is passed on as it is. MANTA_LOG says down to which
 * level messages are made (error, warn, info, debug; without it warn). Any thread may set it. */
typedef enum manta_log_level {
  MANTA_LOG_ERROR,
  MANTA_LOG_WARN,
  MANTA_LOG_INFO,
  MANTA_LOG_DEBUG
} manta_log_level;
typedef void (*manta_log_fn)(void *ctx, manta_log_level level, const char *text);
MANTA_API void manta_set_log(manta_log_fn fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
