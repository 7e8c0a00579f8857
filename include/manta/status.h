/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/status.h - what can go wrong, how much it harms, and the message beside it.
 *
 * A function that can fail returns a manta_status: 0 is success, negatives are failures, and a
 * positive value is a success that says something more (its contract says what). The message goes
 * into a manta_error that the caller owns and may leave out (NULL).
 */
#ifndef MANTA_STATUS_H
#define MANTA_STATUS_H

#include <stdarg.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MANTA_API               __attribute__((visibility("default")))
#define MANTA_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define MANTA_MUST_CHECK        __attribute__((warn_unused_result))
#else
#define MANTA_API
#define MANTA_PRINTF(fmt, args)
#define MANTA_MUST_CHECK
#endif

/* What a failure leaves broken: the one call, a rank, the group of workers, or the whole run. */
typedef enum manta_harm {
  MANTA_HARM_NONE = 0,
  MANTA_HARM_OP,    /* only this call: retry it or go without */
  MANTA_HARM_RANK,  /* one worker: it must be started again */
  MANTA_HARM_GROUP, /* the group of workers: it must be rebuilt */
  MANTA_HARM_RUN    /* the run: it cannot go on */
} manta_harm;

/*      name          code  harm   text */
#define MANTA_STATUS_MAP(X)                                                                        \
  X(ENOMEM, -1, OP, "out of memory")                                                               \
  X(EINVAL, -2, OP, "invalid argument")                                                            \
  X(ETIMEDOUT, -3, OP, "deadline passed")                                                          \
  X(EIO, -4, OP, "input/output error")                                                             \
  X(ENOENT, -5, OP, "not found")                                                                   \
  X(ETOOBIG, -6, OP, "over a size limit")                                                          \
  X(ETYPE, -7, OP, "value of another type")                                                        \
  X(ESTATE, -8, OP, "not possible in this state")                                                  \
  X(ECANCELED, -9, OP, "canceled")                                                                 \
  X(EUNSUPPORTED, -10, OP, "not supported here")                                                   \
  X(EPROTO, -11, OP, "malformed message")                                                          \
  X(ENOROOM, -12, OP, "not enough resources")                                                      \
  X(EDENIED, -13, OP, "permission denied")                                                         \
  X(ECLOSED, -14, OP, "the other end is gone")                                                     \
  X(EWORKER, -40, RANK, "a worker died")                                                           \
  X(EHUNG, -41, RANK, "a worker hung")                                                             \
  X(EUSER, -42, RANK, "the train function failed")                                                 \
  X(EPEERLOST, -60, GROUP, "a peer left")                                                          \
  X(EABORTED, -61, GROUP, "the attempt was ended")                                                 \
  X(EPREEMPTED, -62, GROUP, "asked to stop")                                                       \
  X(ECORRUPT, -80, RUN, "checksum mismatch")                                                       \
  X(EAGENT, -81, RUN, "the agent died")                                                            \
  X(EUNEVEN, -83, RUN, "ranks reported different numbers of rows")

typedef enum manta_status {
  MANTA_OK = 0,
#define MANTA__STATUS_ENUM(name, code, harm, text) MANTA_##name = code,
  MANTA_STATUS_MAP(MANTA__STATUS_ENUM)
#undef MANTA__STATUS_ENUM
} manta_status;

#define MANTA_ERROR_MESSAGE_MAX 1016

/* The message of a failure, in the caller's memory. {0} is "no error". */
typedef struct manta_error {
  manta_status status;
  int32_t rank; /* the rank it comes from, or -1 */
  char message[MANTA_ERROR_MESSAGE_MAX];
} manta_error;

#define MANTA_ERROR_INIT                                                                           \
  {                                                                                                \
    MANTA_OK, -1,                                                                                  \
    {                                                                                              \
      0                                                                                            \
    }                                                                                              \
  }

/* Writes code and message (cut at the limit) and returns `st`, so that a failing function can end
 * in `return manta_error_set(err, MANTA_EIO, "open %s: %m", path)`. err may be NULL; its rank
 * becomes -1. Allocates nothing and keeps errno (%m is the caller's). Like all functions of this
 * header it may be called from any thread. */
MANTA_API manta_status manta_error_set(manta_error *err, manta_status st, const char *fmt, ...)
    MANTA_PRINTF(3, 4);
MANTA_API manta_status manta_error_setv(manta_error *err, manta_status st, const char *fmt,
                                        va_list ap);

/* Name ("EPEERLOST"), one-line text and harm of a status; "E?", "unknown status" and
 * MANTA_HARM_OP for a number that is none. Static storage; never NULL. */
MANTA_API const char *manta_status_name(manta_status st);
MANTA_API const char *manta_status_text(manta_status st);
MANTA_API manta_harm manta_status_harm(manta_status st);

/* Passes a failure on to the caller; the message is already in place. */
#define MANTA_TRY(expr)                                                                            \
  do {                                                                                             \
    manta_status manta_try_st = (expr);                                                            \
    if (manta_try_st < 0)                                                                          \
      return manta_try_st;                                                                         \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
