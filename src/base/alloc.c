/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local long fail_after = -1; /* counts down; the one that meets 0 fails */
static _Thread_local long made;

static int starve(void)
{
  made++;
  return fail_after >= 0 && fail_after-- == 0;
}

void *manta__malloc(size_t n)
{
  return starve() ? NULL : malloc(n ? n : 1);
}

void *manta__calloc(size_t n, size_t size)
{
  // Asked here and not of calloc, which a sanitizer makes abort.
  size_t total;
  if (starve() || __builtin_mul_overflow(n, size, &total))
    return NULL;
  return calloc(1, total ? total : 1);
}

void *manta__realloc(void *p, size_t n)
{
  return starve() ? NULL : realloc(p, n ? n : 1);
}

char *manta__strdup(const char *s)
{
  return manta__strndup(s, strlen(s));
}

char *manta__strndup(const char *s, size_t n)
{
  char *p = manta__malloc(n + 1);
  if (p) {
    memcpy(p, s, n);
    p[n] = 0;
  }
  return p;
}

char *manta__asprintf(const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  char *p = NULL;
  int n = starve() ? -1 : vasprintf(&p, fmt, ap);
  va_end(ap);
  return n < 0 ? NULL : p;
}

void manta__free(void *p)
{
  int saved = errno;
  free(p);
  errno = saved;
}

long manta__alloc_fail_after(long n)
{
  long before = made;
  made = 0;
  fail_after = n;
  return before;
}
