// SPDX-License-Identifier: Apache-2.0
#include "show.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define ERASE "\033[K" // to the end of the line

void show_epoch(int epoch, int epochs, double loss, double held_out, double speed)
{
  bool over = isatty(1) && epoch < epochs;
  printf("epoch %2d/%d   loss %.4f   held-out %5.2f %%   %6.0f digits/s%s", epoch, epochs, loss,
         100 * held_out, speed, over ? ERASE "\r" : "\n");
  fflush(stdout);
}

void show_note(const char *format, ...)
{
  va_list ap;
  va_start(ap, format);
  vprintf(format, ap);
  va_end(ap);
  printf("%s\n", isatty(1) ? ERASE : "");
  fflush(stdout);
}

void show_row(const char *name, const char *format, ...)
{
  va_list ap;
  printf("  %-10s", name);
  va_start(ap, format);
  vprintf(format, ap);
  va_end(ap);
  printf("\n");
}

void describe_mistakes(char *text, int size, const struct digit *digits, const uint8_t *guess,
                       int n)
{
  int times[100] = {0}, used = 0; // [label * 10 + guess]
  for (int i = 0; i < n; i++)
    times[digits[i].label * 10 + guess[i]] += guess[i] != digits[i].label;
  snprintf(text, (size_t)size, "none");
  for (int k = 0; k < 3 && used < size; k++) {
    int top = 0;
    for (int i = 1; i < 100; i++)
      top = times[i] > times[top] ? i : top;
    if (times[top] == 0)
      return;
    used += snprintf(text + used, (size_t)(size - used), "%s%d read as %d (%d)", k ? ", " : "",
                     top / 10, top % 10, times[top]);
    times[top] = 0;
  }
}
