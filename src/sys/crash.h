/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/crash.h - a crash says where.
 */
#ifndef MANTA_SYS_CRASH_H
#define MANTA_SYS_CRASH_H

/* From now on SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT write a backtrace to standard error and
 * then end the process as they would have. A signal that has a handler already (a sanitizer's, the
 * program's) keeps it. */
void manta__crash_trace(void);

#endif
