/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that were started (comm/backlog.c): one queue, a thread that may be there or not, and a user
 * who starts WORKS of them, waits for the last, then for the others, and frees. Each is run once,
 * in order, by one at a time, and nobody sleeps for ever.
 *
 * Broken on purpose:
 *   NO_BUSY       whoever finds a first runs it       NO_CALL  an end is not told
 *   STOP_ASLEEP   the end of the lane is not told
 */
#define WORKS  3
#define USER   0
#define THREAD 1

bool locked, busy, stop, has_thread, thread_over, user_over;
bool asleep[2];
bool done[WORKS];
byte queued, first, running; /* queued - first are in the queue */

inline lock()
{
  atomic { !locked; locked = true }
}

inline unlock()
{
  locked = false
}

inline sleep(who)
{
  atomic { asleep[who] = true; locked = false }
  !asleep[who];
  lock()
}

inline tell()
{
  d_step { asleep[USER] = false; asleep[THREAD] = false }
}

/* With the lock, given away while it runs. */
inline run_first()
{
  w = first;
  busy = true;
  unlock();
  running++;
  assert(running == 1 && w == first && !done[w]);
  running--;
  lock();
  busy = false;
  first++;
  done[w] = true;
#ifndef NO_CALL
  tell()
#endif
}

#ifdef NO_BUSY
#define BUSY false
#else
#define BUSY busy
#endif

inline start()
{
  lock();
  queued++;
  tell();
  unlock();
  if
  :: has_thread
  :: !has_thread && queued == 1 -> has_thread = true; run Thread()
  :: !has_thread /* there are none to be had */
  fi
}

inline wait_for(i)
{
  lock();
  do
  :: done[i] -> break
  :: !done[i] && BUSY -> sleep(USER)
  :: !done[i] && !BUSY -> run_first()
  od;
  unlock()
}

proctype Thread()
{
  byte w;
  lock();
  do
  :: stop && first == queued -> break
  :: first < queued && !BUSY -> run_first()
  :: !(stop && first == queued) && !(first < queued && !BUSY) -> sleep(THREAD)
  od;
  unlock();
  thread_over = true
}

active proctype User()
{
  byte w, i = 0;
  do
  :: i < WORKS -> start(); i++
  :: else -> break
  od;
  if
  :: wait_for(WORKS - 1); wait_for(0)
  :: skip /* frees with all of them in flight */
  fi;
  lock();
  stop = true;
#ifndef STOP_ASLEEP
  tell();
#endif
  do
  :: first == queued -> break
  :: first < queued && BUSY -> sleep(USER)
  :: first < queued && !BUSY -> run_first()
  od;
  unlock();
  !has_thread || thread_over;
  assert(first == WORKS);
  user_over = true
}

#ifdef LIVENESS
ltl all_end { <> user_over }
#endif
