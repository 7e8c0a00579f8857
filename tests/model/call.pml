/* SPDX-License-Identifier: Apache-2.0
 *
 * A wait and what ends it (comm/shm/team.c, sys/bell.h): the phase, the abort word, a rank that left,
 * the deadline. TURNS calls of N ranks: the first DIRECT (none or one) reads the others' memory and
 * ends with a phase that says so, the others carry their data in the post of their turn.
 *
 *   KILL      a rank may die at any point; the agent raises the abort word and rings
 *   DEADLINE  a rank's time may be up at any moment
 *
 * Broken on purpose:
 *   RING_FIRST   rings before the store         NO_RECHECK  sleeps without another look
 *   SILENT       the agent does not ring        NO_READY    goes on after a failed call
 *   NO_SETTLE    trusts memory of who gave up   LEFT_LATE   looks at `left` after the phase
 *   NO_LEAVE     a rank ends without a word
 */
#ifndef N
#define N 2
#endif
#ifndef TURNS
#define TURNS 3
#endif
#ifndef DIRECT
#define DIRECT 1
#endif

byte phase[N * 2]; /* of each rank: the posts of two turns */
byte tiny[N * 2];  /* the data that lie there */
bool left[N], gave_up[N], abort_word;
bool whole[N];     /* the memory of a rank is what it was when the call began */
bool rung[N];      /* its bell was rung since it looked: the futex's count is another */
bool waiting[N], asleep[N];
bool due[N], killed[N], dead[N], over[N];
bool faulty;

#define POST(q)       ((q)*2 + turn % 2)
#define REACHED(q, p) (phase[POST(q)] >= (p))

inline ring(who)
{
  if
  :: waiting[who] ->
     d_step { rung[who] = true; asleep[who] = false }
  :: else
  fi
}

/* Locals go back to 0 when they are not needed: fewer states. */
inline ring_others()
{
  other = (me == 0 -> 1 : 0);
  do
  :: atomic { other < N -> ring(other); other = (other + 1 == me -> other + 2 : other + 1) }
  :: atomic { else -> other = 0; break }
  od
}

inline publish()
{
#ifdef RING_FIRST
  ring_others();
  atomic { ph++; phase[POST(me)] = ph }
#else
  atomic { ph++; phase[POST(me)] = ph }
  ring_others()
#endif
}

/* st becomes false if something else than the phase ends the wait. `left` is looked at first. */
inline look_for_trouble(q, p)
{
#ifdef LEFT_LATE
  if
  :: REACHED(q, p)
  :: else ->
     if
     :: abort_word || left[q] -> st = false
     :: else
     fi
  fi
#else
  gone = left[q];
  atomic {
    if
    :: REACHED(q, p)
    :: !REACHED(q, p) && (abort_word || (!gone && due[me])) -> gave_up[me] = true; st = false
    :: !REACHED(q, p) && !abort_word && gone -> st = false
    :: else
    fi;
    gone = false
  }
#endif
}

inline sleep_for(q, p)
{
  rung[me] = false;
  waiting[me] = true;
#ifndef NO_RECHECK
  if
  :: REACHED(q, p) || left[q] || abort_word
  :: else ->
#endif
     atomic {
       if
       :: !rung[me] && !due[me] -> asleep[me] = true
       :: else
       fi
     }
     !asleep[me];
#ifndef NO_RECHECK
  fi;
#endif
  d_step { waiting[me] = false; rung[me] = false }
}

inline wait_for(q, p)
{
  do
  :: !st || REACHED(q, p) -> break
  :: else ->
     look_for_trouble(q, p);
     if
     :: st && !REACHED(q, p) -> sleep_for(q, p)
     :: else
     fi
  od
}

inline wait_all(p)
{
  peer = (me == 0 -> 1 : 0);
  do
  :: st && peer < N -> wait_for(peer, p); peer = (peer + 1 == me -> peer + 2 : peer + 1)
  :: atomic { else -> peer = 0; break }
  od
}

inline ready()
{
#ifdef NO_READY
  skip
#else
  if
  :: failed || abort_word -> st = false; gave_up[me] = true
  :: else
  fi
#endif
}

/* Straight from the others' memory; the data are right if it was whole all the while. */
inline direct()
{
  publish();
  wait_all(ph);
  fine = true;
  peer = 0;
  do
  :: atomic { st && peer < N -> fine = fine && whole[peer]; peer++ }
  :: else -> break
  od;
  if
  :: st -> publish(); wait_all(ph)
  :: else
  fi;
#ifndef NO_SETTLE
  peer = 0;
  do
  :: atomic {
       st && peer < N ->
       if
       :: abort_word || gave_up[peer] -> st = false
       :: else
       fi;
       peer++
     }
  :: else -> break
  od;
#endif
  atomic { assert(!st || fine); fine = false; peer = 0 }
}

inline posted()
{
  tiny[POST(me)] = turn + 1;
  publish();
  wait_all(ph);
  peer = 0;
  do
  :: atomic { st && peer < N -> assert(tiny[POST(peer)] == turn + 1); peer++ }
  :: atomic { else -> peer = 0; break }
  od
}

proctype Rank(byte me)
{
  byte turn = 0, ph = 0, peer = 0, other = 0;
  bool st, fine = false, gone = false, failed = false;
  {
    do
    :: turn < TURNS ->
       st = true;
       ready();
       if
       :: st && turn < DIRECT -> direct()
       :: st && turn >= DIRECT -> posted()
       :: else
       fi;
       if
       :: st
       :: else -> failed = true; whole[me] = false /* frees it, fills it, ... */
       fi;
       ph = (turn < DIRECT -> 2 : turn + 1 + DIRECT);
       turn++
    :: else -> break
    od;
    assert(faulty || !failed);
#ifndef NO_LEAVE
    left[me] = true;
    ring_others();
#endif
    over[me] = true
  } unless {
    killed[me];
    dead[me] = true;
    over[me] = true
  }
}

proctype Agent()
{
  byte victim = 0, q = 0;
#ifdef KILL
  if
  :: skip
  :: faulty = true;
     do
     :: victim < N - 1 -> victim++
     :: break
     od;
     killed[victim] = true;
     over[victim];
     abort_word = true;
#ifndef SILENT
     do
     :: q < N -> ring(q); q++
     :: else -> break
     od
#endif
  fi
#endif
}

proctype Clock(byte r)
{
  if
  :: skip
  :: atomic {
       faulty = true;
       due[r] = true;
       asleep[r] = false
     }
  fi
}

init {
  byte i = 0;
  atomic {
    do
    :: i < N -> whole[i] = true; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < N ->
       run Rank(i);
#ifdef DEADLINE
       run Clock(i);
#endif
       i++
    :: else -> break
    od;
    run Agent()
  }
}

#if N == 2
#define ALL_OVER (over[0] && over[1])
#else
#define ALL_OVER (over[0] && over[1] && over[2])
#endif
#ifdef LIVENESS
ltl all_end { <> ALL_OVER }
#endif
