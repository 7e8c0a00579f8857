/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may write where (comm/shm/shared.c): the posts of two turns and the staging ring, under every
 * sequence of CALLS calls of three kinds. A copy takes two steps, and what is read must be what was
 * put there for this call and piece, in both.
 *
 * Broken on purpose: fewer SLOTS than 2 * AHEAD; one of the POSTS.
 * (NO_LAST leaves out the phase behind the last piece, and is well.)
 */
#ifndef N
#define N 2
#endif
#ifndef SLOTS
#define SLOTS 4
#endif
#ifndef POSTS
#define POSTS 2
#endif
#ifndef AHEAD
#define AHEAD 2
#endif
#ifndef CALLS
#define CALLS 4
#endif
#define PIECES 5 /* one more than there are slots */

#define TINY  0 /* the data lie in the post */
#define RIDES 1 /* in the ring, published with the description */
#define LONG  2 /* piece after piece */

byte kind[CALLS];
byte phase[N * POSTS], tiny[N * POSTS], slot[N * SLOTS];

#define POST(q) ((q)*POSTS + turn % POSTS)

inline publish()
{
  ph++;
  phase[POST(me)] = ph
}

inline await(p)
{
  q = 0;
  do
  :: q < N -> phase[POST(q)] >= (p); q++
  :: else -> break
  od
}

inline stage(which)
{
  slot[me * SLOTS + (which) % SLOTS] = 0; /* half written */
  slot[me * SLOTS + (which) % SLOTS] = (which) + 1
}

inline take(which)
{
  q = 0;
  do
  :: q < N ->
     assert(slot[q * SLOTS + (which) % SLOTS] == (which) + 1);
     assert(slot[q * SLOTS + (which) % SLOTS] == (which) + 1);
     q++
  :: else -> break
  od
}

inline take_tiny()
{
  q = 0;
  do
  :: q < N ->
     assert(tiny[POST(q)] == turn + 1);
     assert(tiny[POST(q)] == turn + 1);
     q++
  :: else -> break
  od
}

inline pieces()
{
  publish();
  await(ph);
  first = ph + 1;
  k = 0;
  do
  :: k < PIECES + AHEAD - 1 ->
     if
     :: k < PIECES -> stage(at + k); publish()
     :: else
     fi;
     if
     :: k >= AHEAD - 1 -> await(first + k - (AHEAD - 1)); take(at + k - (AHEAD - 1))
     :: else
     fi;
     k++
  :: else -> break
  od;
  at = at + PIECES;
#ifndef NO_LAST
  publish();
  await(ph)
#endif
}

proctype Rank(byte me)
{
  byte turn = 0, ph = 0, at = 0, first = 0, k = 0, q = 0;
  do
  :: turn < CALLS ->
     if
     :: kind[turn] == TINY ->
        tiny[POST(me)] = 0;
        tiny[POST(me)] = turn + 1;
        publish();
        await(ph);
        take_tiny()
     :: kind[turn] == RIDES ->
        stage(at);
        publish();
        await(ph);
        take(at);
        at++
     :: else -> pieces()
     fi;
     turn++
  :: else -> break
  od
}

init {
  byte i = 0;
  atomic {
    do
    :: i < CALLS ->
       if
       :: kind[i] = TINY
       :: kind[i] = RIDES
       :: kind[i] = LONG
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < N -> run Rank(i); i++
    :: else -> break
    od
  }
}
