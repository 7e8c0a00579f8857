/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/lease.h"

#include "holder.h"
#include "scratch.h"

static char *dir;
static int dirfd_;
static manta__lease *l;
static manta_error err;
static const int cpus[] = {0, 1, 2, 5};
static const struct manta__lease_pool pool = {cpus, 4, 4000};

static int setup(void **state)
{
  dir = scratch_make();
  dirfd_ = scratch_open(dir);
  err = (manta_error)MANTA_ERROR_INIT;
  assert_ok(manta__lease_open(&l, dirfd_, &err), &err);
  return 0;
}

static int teardown(void **state)
{
  manta__lease_close(l);
  l = NULL;
  close(dirfd_);
  scratch_remove(dir);
  return 0;
}

// --- In one process: two leases are two holders --------------------------------------------------

static void cores_are_taken_lowest_first_and_once(void **state)
{
  int got[4];
  assert_int_equal(manta__lease_take_cpus(l, cpus, 4, 3, got), 3);
  assert_int_equal(got[0], 0);
  assert_int_equal(got[1], 1);
  assert_int_equal(got[2], 2);
  assert_int_equal(manta__lease_count_free_cpus(l, cpus, 4), 1);
  assert_int_equal(manta__lease_take_cpus(l, cpus, 4, 4, got), 1); // our own are not given twice
  assert_int_equal(got[0], 5);
  assert_int_equal(manta__lease_take_cpus(l, cpus, 4, 1, got), 0);
  int back[] = {1};
  manta__lease_release_cpus(l, back, 1);
  assert_int_equal(manta__lease_take_cpus(l, cpus, 4, 4, got), 1);
  assert_int_equal(got[0], 1);
}

static void another_lease_sees_them_taken(void **state)
{
  manta__lease *other = NULL;
  int got[4];
  assert_ok(manta__lease_open(&other, dirfd_, &err), &err);
  assert_int_equal(manta__lease_take_cpus(other, cpus, 4, 2, got), 2);
  assert_int_equal(manta__lease_take_gpus(other, cpus, 4, 1, got), 1);
  assert_int_equal(manta__lease_take_cpus(l, cpus, 4, 4, got), 2);
  assert_int_equal(got[0], 2);
  assert_int_equal(got[1], 5);
  assert_int_equal(manta__lease_count_free_gpus(l, cpus, 4), 3);
  manta__lease_close(other);
  assert_int_equal(manta__lease_count_free_cpus(l, cpus, 4), 2);
  assert_int_equal(manta__lease_count_free_gpus(l, cpus, 4), 4);
}

static void cores_and_gpus_do_not_collide(void **state)
{
  int got[4];
  const int edge[] = {0, 4095, 4096, -1}; // the last two do not exist
  assert_int_equal(manta__lease_take_cpus(l, edge, 4, 4, got), 2);
  assert_int_equal(manta__lease_count_free_gpus(l, edge, 4), 2);
  assert_int_equal(manta__lease_take_gpus(l, edge, 4, 4, got), 2);
  struct manta__lease_pool whole = {edge, 2, 2000};
  assert_int_equal(manta__lease_count_free(l, &whole), 2000);
}

static void shares_grow_and_shrink_by_thousandths(void **state)
{
  manta__lease *other = NULL;
  assert_ok(manta__lease_open(&other, dirfd_, &err), &err);
  assert_ok(manta__lease_hold(l, &pool, 1500, &err), &err);
  assert_int_equal(manta__lease_held(l), 1500);
  assert_int_equal(manta__lease_count_free(other, &pool), 2500);
  assert_status(manta__lease_hold(other, &pool, 2501, &err), MANTA_ENOROOM);
  assert_int_equal(manta__lease_held(other), 0);
  assert_int_equal(manta__lease_count_free(l, &pool), 2500); // nothing stuck to the failure
  assert_ok(manta__lease_hold(other, &pool, 2500, &err), &err);
  assert_int_equal(manta__lease_count_free(l, &pool), 0);
  assert_ok(manta__lease_hold(l, &pool, 1, &err), &err);
  assert_int_equal(manta__lease_count_free(l, &pool), 1499);
  assert_ok(manta__lease_hold(l, &pool, 0, &err), &err);
  assert_int_equal(manta__lease_count_free(l, &pool), 1500);
  manta__lease_close(other);
}

// Shares that are free in several pieces are found whole: three holders, the middle one leaves.
static void holes_are_filled(void **state)
{
  manta__lease *a = NULL, *b = NULL;
  assert_ok(manta__lease_open(&a, dirfd_, &err), &err);
  assert_ok(manta__lease_open(&b, dirfd_, &err), &err);
  for (int i = 1; i <= 10; i++) { // interleaved, 100 each
    assert_ok(manta__lease_hold(a, &pool, 100 * i, &err), &err);
    assert_ok(manta__lease_hold(b, &pool, 100 * i, &err), &err);
  }
  manta__lease_close(a);
  assert_int_equal(manta__lease_count_free(l, &pool), 3000);
  assert_status(manta__lease_hold(l, &pool, 3001, &err), MANTA_ENOROOM);
  assert_ok(manta__lease_hold(l, &pool, 3000, &err), &err);
  assert_int_equal(manta__lease_count_free(l, &pool), 0);
  manta__lease_close(b);
  assert_int_equal(manta__lease_count_free(l, &pool), 1000);
}

static void disjoint_masks_do_not_contend(void **state)
{
  const int low[] = {0, 1}, high[] = {2, 3};
  struct manta__lease_pool a = {low, 2, 2000}, b = {high, 2, 2000};
  manta__lease *other = NULL;
  assert_ok(manta__lease_open(&other, dirfd_, &err), &err);
  assert_ok(manta__lease_hold(other, &a, 2000, &err), &err);
  assert_ok(manta__lease_hold(l, &b, 2000, &err), &err);
  manta__lease_close(other);
}

static void a_pool_can_be_smaller_or_bigger_than_its_mask(void **state)
{
  struct manta__lease_pool quota = {cpus, 4, 1500}, declared = {cpus, 4, 9000};
  assert_int_equal(manta__lease_count_free(l, &quota), 1500);
  assert_int_equal(manta__lease_count_free(l, &declared), 9000);
  assert_ok(manta__lease_hold(l, &declared, 9000, &err), &err);
  assert_int_equal(manta__lease_count_free(l, &declared), 0);
}

// --- Over processes ------------------------------------------------------------------------------

static int hold_everything(void *ctx)
{
  manta__lease *mine = NULL;
  int got[4];
  if (manta__lease_open(&mine, dirfd_, NULL) < 0)
    return -1;
  manta__lease_hold(mine, &pool, 4000, NULL);
  return manta__lease_take_cpus(mine, cpus, 4, 4, got) +
         10 * manta__lease_take_gpus(mine, cpus, 4, 4, got) +
         100 * (int)(manta__lease_held(mine) / 1000);
}

static void a_killed_holder_holds_nothing(void **state)
{
  int said;
  // The child would inherit our descriptors; it must not matter as we hold nothing.
  pid_t pid = holder_start(hold_everything, NULL, &said);
  assert_int_equal(said, 444);
  assert_int_equal(manta__lease_count_free_cpus(l, cpus, 4), 0);
  assert_int_equal(manta__lease_count_free_gpus(l, cpus, 4), 0);
  assert_int_equal(manta__lease_count_free(l, &pool), 0);
  assert_status(manta__lease_hold(l, &pool, 1, &err), MANTA_ENOROOM);
  holder_kill(pid);
  assert_int_equal(manta__lease_count_free_cpus(l, cpus, 4), 4);
  assert_int_equal(manta__lease_count_free_gpus(l, cpus, 4), 4);
  assert_ok(manta__lease_hold(l, &pool, 4000, &err), &err);
}

// Many processes grab at once: together they get each core exactly once.
static void racers_never_share(void **state)
{
  enum { RACERS = 8, CORES = 64 };
  int ids[CORES], p[2], total = 0, seen[CORES] = {0};
  for (int i = 0; i < CORES; i++)
    ids[i] = i;
  assert_int_equal(pipe(p), 0);
  pid_t pids[RACERS];
  for (int r = 0; r < RACERS; r++) {
    pids[r] = fork();
    if (pids[r] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL); // a test that fails leaves nobody behind
      manta__lease *mine = NULL;
      int got[CORES] = {0};
      if (manta__lease_open(&mine, dirfd_, NULL) < 0)
        _exit(1);
      for (int k = 0; k < CORES; k++) { // one by one, to give the others a chance
        int n = manta__lease_take_cpus(mine, ids, CORES, 1, got);
        if (n == 1 && write(p[1], got, sizeof *got) != sizeof *got)
          _exit(1);
      }
      close(p[1]);
      pause();
    }
  }
  close(p[1]);
  for (int id; read(p[0], &id, sizeof id) == sizeof id; total++)
    seen[id]++;
  for (int i = 0; i < CORES; i++)
    assert_int_equal(seen[i], 1);
  assert_int_equal(total, CORES);
  for (int r = 0; r < RACERS; r++)
    holder_kill(pids[r]);
  close(p[0]);
}

static void a_link_in_place_of_the_file_is_refused(void **state)
{
  manta__lease *other = NULL;
  assert_int_equal(unlinkat(dirfd_, "leases", 0), 0);
  assert_int_equal(symlinkat("/etc/passwd", dirfd_, "leases"), 0);
  assert_status(manta__lease_open(&other, dirfd_, &err), MANTA_EIO);
  assert_null(other);
}

static void open_survives_every_lack_of_memory(void **state)
{
  manta__lease *other = NULL;
  FOR_EACH_OOM(manta__lease_open(&other, dirfd_, &err), manta__lease_close(other));
}

static void hold_survives_every_lack_of_memory(void **state)
{
  FOR_EACH_OOM(manta__lease_hold(l, &pool, 2500, &err), (void)0);
  assert_int_equal(manta__lease_count_free(l, &pool), 1500);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(cores_are_taken_lowest_first_and_once),
      T(another_lease_sees_them_taken),
      T(cores_and_gpus_do_not_collide),
      T(shares_grow_and_shrink_by_thousandths),
      T(holes_are_filled),
      T(disjoint_masks_do_not_contend),
      T(a_pool_can_be_smaller_or_bigger_than_its_mask),
      T(a_killed_holder_holds_nothing),
      T(racers_never_share),
      T(a_link_in_place_of_the_file_is_refused),
      T(open_survives_every_lack_of_memory),
      T(hold_survives_every_lack_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
