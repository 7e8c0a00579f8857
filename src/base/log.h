/* SPDX-License-Identifier: Apache-2.0
 *
 * base/log.h - manta's own messages. Lower case, no trailing dot or newline; %m after a system
 * call. error: cannot go on. warn: went on. info: what an operator wants to see once. debug: per
 * object. MANTA_LOG=error|warn|info|debug sets what is shown (default warn).
 */
#ifndef MANTA_BASE_LOG_H
#define MANTA_BASE_LOG_H

#include <stdbool.h>

#include <manta/manta.h>

void manta__log(manta_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whether messages of that level are shown. */
bool manta__log_shows(manta_log_level level);
/* What a user who sees warnings is to know, without being warned: an info. */
void manta__note(const char *text);

#define manta__error(...) manta__log(MANTA_LOG_ERROR, __VA_ARGS__)
#define manta__warn(...)  manta__log(MANTA_LOG_WARN, __VA_ARGS__)
#define manta__info(...)  manta__log(MANTA_LOG_INFO, __VA_ARGS__)
#define manta__debug(...) manta__log(MANTA_LOG_DEBUG, __VA_ARGS__)

#endif
