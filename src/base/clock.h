/* SPDX-License-Identifier: Apache-2.0
 *
 * base/clock.h - time. Deadlines are absolute, monotonic, in nanoseconds, and are passed down
 * whole.
 */
#ifndef MANTA_BASE_CLOCK_H
#define MANTA_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MANTA__NEVER INT64_MAX

static inline int64_t manta__now(void) /* monotonic, ns */
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t manta__now_coarse(void) /* the same, some milliseconds late, and cheaper */
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t manta__wall(void) /* since 1970, ns */
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The deadline `s` seconds from now; negative or huge: never. */
static inline int64_t manta__deadline(double s)
{
  return s < 0 || s > 3e8 ? MANTA__NEVER : manta__now() + (int64_t)(s * 1e9);
}

/* What is left until `by`, as a poll() time-out: -1 never, rounded up. */
static inline int manta__left_ms(int64_t by)
{
  if (by == MANTA__NEVER)
    return -1;
  int64_t left = by - manta__now();
  if (left <= 0)
    return 0;
  left = (left + 999999) / 1000000;
  return left > 1000000000 ? 1000000000 : (int)left;
}

#endif
