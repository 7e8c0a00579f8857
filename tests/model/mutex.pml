/* SPDX-License-Identifier: Apache-2.0
 *
 * The mutex of a worker's threads (sys/mutex.h): N threads take it TURNS times each, by trying or by
 * waiting, and one that waits may give up at any moment and try again later. One is in at a time,
 * and nobody sleeps while it is free and nobody else is awake to take it.
 *
 * Broken on purpose:
 *   AS_ONE    who was woken takes it as 1      KEEP_ONE  who finds it taken sleeps without a word
 */
#ifndef N
#define N 3
#endif
#ifndef TURNS
#define TURNS 2
#endif

byte word;   /* 0: free; 1: taken; 2: taken, and somebody may sleep */
byte inside; /* threads */
bool asleep[N];

/* Compares and exchanges, as one operation. */
inline try()
{
  atomic {
    if
    :: word == 0 -> word = 1; got = true
    :: else -> got = false
    fi
  }
}

inline exchange(value)
{
  atomic { was = word; word = value }
}

/* The kernel compares before the sleep, as one operation with falling asleep. */
inline futex_wait()
{
  atomic {
    if
    :: word == 2 -> asleep[_pid] = true
    :: else
    fi
  }
  if
  :: !asleep[_pid]
#ifdef GIVE_UP
  :: asleep[_pid] -> d_step { asleep[_pid] = false; late = true } /* time is up */
#endif
  fi
}

/* One of those who sleep, any. */
inline futex_wake()
{
  atomic {
    if
    :: asleep[0] -> asleep[0] = false
    :: asleep[1] -> asleep[1] = false
#if N > 2
    :: asleep[2] -> asleep[2] = false
#endif
    :: else
    fi
  }
}

inline wait()
{
  late = false;
  do
  :: true ->
#ifdef AS_ONE
     if
     :: woken -> atomic { was = word; if :: word == 0 -> word = 1 :: else -> word = 2 fi }
     :: else -> exchange(2)
     fi;
#elif defined(KEEP_ONE)
     try();
     was = (got -> 0 : 1);
#else
     exchange(2);
#endif
     if
     :: was == 0 -> got = true; break
     :: was != 0 && late -> got = false; break
     :: was != 0 && !late ->
#ifdef KEEP_ONE
        atomic { if :: word != 0 -> asleep[_pid] = true :: else fi };
        !asleep[_pid]
#else
        futex_wait()
#endif
        ;
        woken = true
     fi
  od
}

inline leave()
{
  exchange(0);
  if
  :: was == 2 -> futex_wake()
  :: else
  fi
}

active [N] proctype thread()
{
  byte turn, was;
  bool got, late, woken;
  do
  :: turn == TURNS -> break
  :: turn < TURNS ->
     woken = false;
     try();
     if
     :: !got -> wait()
     :: else
     fi;
     if
     :: got ->
        inside++;
        assert(inside == 1);
        inside--;
        leave();
        turn++
     :: else /* gave up: later again */
     fi
  od
}
