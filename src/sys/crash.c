/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/crash.h"

#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FRAMES 64

// Only what is safe in a handler: backtrace was called before, so that its library is loaded.
static void on_crash(int sig)
{
  void *frame[FRAMES];
  char head[64];
  const char *name = sigabbrev_np(sig);
  int len = snprintf(head, sizeof head, "SIG%s at:\n", name ? name : "?");
  ssize_t w = write(STDERR_FILENO, head, (size_t)len);
  (void)w;
  backtrace_symbols_fd(frame, backtrace(frame, FRAMES), STDERR_FILENO);
  raise(sig); // the handler was reset: this time it ends the process
}

void manta__crash_trace(void)
{
  static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  static char stack[64 << 10]; // a stack overflow has none left
  stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction now,
      ours = {.sa_handler = on_crash, .sa_flags = (int)(SA_ONSTACK | SA_RESETHAND | SA_NODEFER)};
  void *frame[1];
  backtrace(frame, 1);
  sigaltstack(&alt, NULL);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
      sigaction(signals[i], &ours, NULL);
}
