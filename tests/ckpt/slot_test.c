/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots: what a save costs and leaves behind, waiting, replacing, and what a holder of a dup
 * refuses.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "sample.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static uint32_t state_at(const struct manta__slots *s, int i)
{
  return s->slot[i].fd < 0 ? 99 : atomic_load(&s->slot[i].meta->state);
}

static void what_is_saved_is_read(void **ctx)
{
  static const size_t sizes[] = {0, 1, 1000, 300000};
  for (size_t k = 0; k < 4; k++) {
    struct manta__slots slots;
    struct sample s;
    manta__slots_init(&slots);
    sample_init(&s, sizes[k]);
    for (uint64_t seed = 1; seed < 8; seed++) {
      int i = sample_save(&slots, &s, seed);
      assert_int_equal(state_at(&slots, i), MANTA__SLOT_READY);
      assert_int_equal(slots.slot[i].meta->id.seq, seed);
      assert_holds(slots.slot[i].fd, &s, seed);
      sample_free_others(&slots, i);
    }
    manta__slots_fini(&slots);
    manta__slots_fini(&slots);
    sample_fini(&s);
  }
}

static void tensors_are_aligned_and_stamped(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  manta__slots_init(&slots);
  sample_init(&s, 800);
  int i = sample_save(&slots, &s, 5);
  assert_ok(manta__checkpoint_from_fd(&c, slots.slot[i].fd, false, &err), &err);
  const char *header = (const char *)slots.slot[i].meta + MANTA__SLOT_META + 8;
  assert_non_null(memmem(header, 100, "\"iteration\":\"50\"", 16));
  for (size_t k = 0; k < manta_checkpoint_count(c); k++) {
    const manta_tensor *t = manta_checkpoint_at(c, k);
    size_t align = manta_tensor_bytes(t) % 64 ? manta_dtype_bytes(t->dtype) : 64;
    assert_int_equal((uintptr_t)t->data % align, 0);
  }
  manta_checkpoint_close(c);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

// As the agent hands them on: descriptors of slots whose process is gone.
static void a_successor_saves_into_the_slots_of_its_predecessor(void **ctx)
{
  struct manta__slots old, slots;
  struct sample s;
  ino_t inode[2];
  struct stat sb;
  manta__slots_init(&old);
  manta__slots_init(&slots);
  sample_init(&s, 300000);
  int filled = sample_save(&old, &s, 1);
  sample_free_others(&old, filled);
  int other = sample_save(&old, &s, 2);
  assert_true(manta__slot_move(old.slot[other].meta, MANTA__SLOT_READY, MANTA__SLOT_FREE));
  assert_int_equal(fstat(old.slot[other].fd, &sb), 0);
  inode[0] = sb.st_ino;
  manta__slots_adopt(&slots, other, dup(old.slot[other].fd));
  manta__slots_adopt(&slots, filled, dup(old.slot[filled].fd)); // not free: refused when mapped
  manta__slots_adopt(&slots, MANTA__SLOTS, dup(old.slot[other].fd));
  manta__slots_fini(&old);
  manta__slots_warm_adopted(&slots);
  int i = sample_save(&slots, &s, 3);
  assert_int_equal(i, other);
  assert_int_equal(fstat(slots.slot[i].fd, &sb), 0);
  inode[1] = sb.st_ino;
  assert_int_equal(inode[0], inode[1]);
  assert_holds(slots.slot[i].fd, &s, 3);
  assert_true(slots.slot[i].announced); // the agent has had its descriptor all the time
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void an_empty_state_is_a_state(void **ctx)
{
  struct manta__slots slots;
  manta_error err = MANTA_ERROR_INIT;
  manta_state state = {0};
  struct manta__snapshot snap = sample_snapshot(1);
  manta_checkpoint *c = NULL;
  int i;
  manta__slots_init(&slots);
  assert_ok(manta__slots_save(&slots, &state, &snap, MANTA__NEVER, NULL, NULL, &i, &err), &err);
  assert_ok(manta__checkpoint_from_fd(&c, slots.slot[i].fd, false, &err), &err);
  assert_int_equal(manta_checkpoint_count(c), 0);
  assert_null(manta_checkpoint_at(c, 0));
  assert_null(manta_checkpoint_tensor(c, "w"));
  assert_int_equal(manta_checkpoint_value(c)->type, MANTA_NIL);
  manta_checkpoint_close(c);
  manta__slots_fini(&slots);
}

// Saves until all slots are made and their thread is gone.
static void warm_up(struct manta__slots *slots, struct sample *s)
{
  for (uint64_t seed = 1; seed < 5 || slots->warmer; seed++)
    sample_free_others(slots, sample_save(slots, s, seed));
}

static void a_warm_save_allocates_nothing(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta__slots_init(&slots);
  sample_init(&s, 100000);
  warm_up(&slots, &s);
  manta__alloc_fail_after(0);
  int i = sample_save(&slots, &s, 5);
  assert_int_equal(manta__alloc_fail_after(-1), 0);
  assert_holds(slots.slot[i].fd, &s, 5);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

// From now on any system call but these kills. (The clock is one where the vDSO has none.)
static int allow_no_system_calls(void)
{
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void save_under_seccomp(void)
{
  struct manta__slots slots;
  struct sample s;
  manta_error err = MANTA_ERROR_INIT;
  int i = 0;
  manta__slots_init(&slots);
  sample_init(&s, 100000);
  warm_up(&slots, &s);
  struct manta__snapshot snap = sample_snapshot(5);
  int64_t by = manta__deadline(10);
  if (allow_no_system_calls() < 0)
    syscall(SYS_exit, 77);
  manta_status st = manta__slots_save(&slots, &s.state, &snap, by, NULL, NULL, &i, &err);
  syscall(SYS_exit, st == MANTA_OK ? 0 : 1);
}

static void a_warm_save_asks_nothing_of_the_kernel(void **ctx)
{
  int status;
  if (SANITIZED) {
    print_message("# not tested: the sanitizer makes system calls of its own\n");
    return;
  }
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0)
    save_under_seccomp();
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    print_message("# not tested: no seccomp\n");
    return;
  }
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- Waiting --- */

static manta_status stop_third(void *ctx, manta_error *err)
{
  return ++*(int *)ctx < 3 ? MANTA_OK : manta_error_set(err, MANTA_EABORTED, "enough");
}

static void no_free_slot_ends_by_deadline_or_stop(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__snapshot snap = sample_snapshot(9);
  int i, calls = 0;
  manta__slots_init(&slots);
  sample_init(&s, 100);
  for (uint64_t seed = 1; seed < 4; seed++)
    sample_save(&slots, &s, seed);
  int64_t begin = manta__now();
  assert_status(
      manta__slots_save(&slots, &s.state, &snap, manta__deadline(0.03), NULL, NULL, &i, &err),
      MANTA_ETIMEDOUT);
  assert_true(manta__now() - begin >= 30000000);
  assert_status(
      manta__slots_save(&slots, &s.state, &snap, MANTA__NEVER, stop_third, &calls, &i, &err),
      MANTA_EABORTED);
  assert_has(err.message, "enough");
  for (i = 0; i < 3; i++)
    assert_holds(slots.slot[i].fd, &s, slots.slot[i].meta->id.seq);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void *free_later(void *arg)
{
  usleep(20000);
  assert_true(manta__slot_move(arg, MANTA__SLOT_WRITING, MANTA__SLOT_FREE));
  return NULL;
}

static void a_freed_slot_ends_the_wait(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  pthread_t t;
  struct manta__slot_meta *meta = NULL;
  manta_error err = MANTA_ERROR_INIT;
  manta__slots_init(&slots);
  sample_init(&s, 100);
  for (uint64_t seed = 1; seed < 4; seed++)
    sample_save(&slots, &s, seed);
  assert_ok(manta__slot_map_meta(slots.slot[1].fd, &meta, &err), &err);
  assert_true(manta__slot_move(meta, MANTA__SLOT_READY, MANTA__SLOT_WRITING));
  assert_false(manta__slot_move(meta, MANTA__SLOT_READY, MANTA__SLOT_FREE));
  pthread_create(&t, NULL, free_later, meta);
  assert_int_equal(sample_save(&slots, &s, 4), 1);
  pthread_join(t, NULL);
  assert_holds(slots.slot[1].fd, &s, 4);
  munmap(meta, MANTA__SLOT_META);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

/* --- Replacing --- */

static void a_retired_slot_is_never_written_again(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta__slots_init(&slots);
  sample_init(&s, 5000);
  for (uint64_t seed = 1; seed < 4; seed++)
    slots.slot[sample_save(&slots, &s, seed)].announced = true;
  int dup0 = dup(slots.slot[0].fd), was = (int)slots.slot[0].meta->id.seq;
  assert_true(manta__slot_move(slots.slot[0].meta, MANTA__SLOT_READY, MANTA__SLOT_RETIRED));
  assert_int_equal(sample_save(&slots, &s, 4), 0);
  assert_false(slots.slot[0].announced);
  assert_true(slots.slot[1].announced);
  struct stat a, b;
  assert_int_equal(fstat(dup0, &a), 0);
  assert_int_equal(fstat(slots.slot[0].fd, &b), 0);
  assert_true(a.st_ino != b.st_ino);
  assert_holds(dup0, &s, (uint64_t)was);
  assert_holds(slots.slot[0].fd, &s, 4);
  close(dup0);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void a_retired_slot_is_replaced_behind_a_save(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta__slots_init(&slots);
  sample_init(&s, 5000);
  for (uint64_t seed = 1; seed < 4; seed++)
    slots.slot[sample_save(&slots, &s, seed)].announced = true;
  manta__slot_move(slots.slot[0].meta, MANTA__SLOT_READY, MANTA__SLOT_RETIRED);
  manta__slot_move(slots.slot[1].meta, MANTA__SLOT_READY, MANTA__SLOT_FREE);
  assert_int_equal(sample_save(&slots, &s, 4),
                   1); // the one that is free, not the one that is not there
  assert_non_null(slots.warmer);
  assert_int_equal(sample_save(&slots, &s, 5), 0);
  assert_false(slots.slot[0].announced);
  assert_holds(slots.slot[0].fd, &s, 5);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void a_larger_state_gets_larger_slots(void **ctx)
{
  struct manta__slots slots;
  struct sample small, large;
  manta__slots_init(&slots);
  sample_init(&small, 100);
  sample_init(&large, 200000);
  int first = sample_save(&slots, &small, 1);
  for (uint64_t seed = 2; seed < 6; seed++) {
    int i = sample_save(&slots, &large, seed);
    assert_true(i != first);
    assert_holds(slots.slot[i].fd, &large, seed);
    for (int k = 0; k < MANTA__SLOTS; k++)
      if (k != i && k != first && slots.slot[k].fd >= 0)
        manta__slot_move(slots.slot[k].meta, MANTA__SLOT_READY, MANTA__SLOT_FREE);
  }
  assert_holds(slots.slot[first].fd, &small, 1);
  sample_free_others(&slots, -1);
  for (uint64_t seed = 6; seed < 12; seed++) { // a small one fits anywhere
    int i = sample_save(&slots, seed % 2 ? &small : &large, seed);
    assert_holds(slots.slot[i].fd, seed % 2 ? &small : &large, seed);
    sample_free_others(&slots, i);
  }
  manta__slots_fini(&slots);
  sample_fini(&small);
  sample_fini(&large);
}

// Past a sanitizer, which would miss the thread of the parent that a child cannot join.
_Noreturn static void leave(int code)
{
  syscall(SYS_exit_group, code);
  abort();
}

// What the child maps where its parent has the slot is the child's.
static void fini_in_child(struct manta__slots *slots)
{
  void *at = slots->slot[0].meta;
  char *own = mmap(at, 4096, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (own != at)
    leave(2); // the slot reached the child
  manta__slots_fini(slots);
  own[0] = 1;
  leave(slots->slot[0].fd == -1 ? 0 : 1);
}

static void fini_at_once_and_in_a_fork(void **ctx)
{
  for (int round = 0; round < 20; round++) {
    struct manta__slots slots;
    struct sample s;
    int status;
    manta__slots_init(&slots);
    sample_init(&s, 400000);
    sample_save(&slots, &s, 1);
    assert_non_null(slots.warmer);
    pid_t pid = round % 2 ? fork() : 0;
    if (round % 2 && pid == 0)
      fini_in_child(&slots);
    if (round % 2) {
      assert_int_equal(waitpid(pid, &status, 0), pid);
      assert_int_equal(status, 0);
      assert_holds(slots.slot[0].fd, &s, 1);
      assert_holds(slots.slot[sample_save(&slots, &s, 2)].fd, &s, 2);
    }
    manta__slots_fini(&slots);
    sample_fini(&s);
  }
}

/* Writes the tensors of a sample that have no data, or fails. */
struct by_hand {
  const struct sample *s;
  manta_slot_memory memory;
  manta_status status;
};

static manta_status fill_by_hand(void *ctx, void *const *dst, const manta_slot_memory *memory,
                                 manta_error *err)
{
  struct by_hand *h = ctx;
  h->memory = *memory;
  for (size_t i = 0; i < h->s->state.count; i++) {
    const uint8_t *at = dst[i], *base = memory->base;
    assert_true(at >= base && at <= base + memory->bytes);
  }
  memcpy(dst[1], h->s->w, (size_t)manta_tensor_bytes(&h->s->tensors[1]));
  return h->status < 0 ? manta_error_set(err, h->status, "no hand") : MANTA_OK;
}

static void the_caller_fills_in_what_has_no_data(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta_error err = MANTA_ERROR_INIT;
  struct by_hand hand = {.s = &s};
  struct manta__snapshot snap = sample_snapshot(5);
  int i = -1;
  manta__slots_init(&slots);
  sample_init(&s, 800);
  sample_fill(&s, 5);
  snap.fill = fill_by_hand;
  snap.fill_ctx = &hand;
  s.tensors[1].data = NULL;
  assert_ok(manta__slots_save(&slots, &s.state, &snap, MANTA__NEVER, NULL, NULL, &i, &err), &err);
  s.tensors[1].data = s.w;
  assert_holds(slots.slot[i].fd, &s, 5);
  assert_ptr_equal(hand.memory.base, slots.slot[i].meta);
  assert_true(hand.memory.serial > 0 && hand.memory.live[i] == hand.memory.serial);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void a_fill_that_fails_leaves_the_slot_free(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta_error err = MANTA_ERROR_INIT;
  struct by_hand hand = {.s = &s, .status = MANTA_EUSER};
  struct manta__snapshot snap = sample_snapshot(5);
  int i = -1;
  manta__slots_init(&slots);
  sample_init(&s, 800);
  warm_up(&slots, &s);
  snap.fill = fill_by_hand;
  snap.fill_ctx = &hand;
  for (int round = 0; round < 2 * MANTA__SLOTS; round++) {
    assert_status(manta__slots_save(&slots, &s.state, &snap, MANTA__NEVER, NULL, NULL, &i, &err),
                  MANTA_EUSER);
    assert_string_equal(err.message, "no hand");
  }
  i = sample_save(&slots, &s, 6);
  assert_holds(slots.slot[i].fd, &s, 6);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_saved_is_read),
      cmocka_unit_test(a_successor_saves_into_the_slots_of_its_predecessor),
      cmocka_unit_test(tensors_are_aligned_and_stamped),
      cmocka_unit_test(an_empty_state_is_a_state),
      cmocka_unit_test(a_warm_save_allocates_nothing),
      cmocka_unit_test(a_warm_save_asks_nothing_of_the_kernel),
      cmocka_unit_test(no_free_slot_ends_by_deadline_or_stop),
      cmocka_unit_test(a_freed_slot_ends_the_wait),
      cmocka_unit_test(a_retired_slot_is_never_written_again),
      cmocka_unit_test(a_retired_slot_is_replaced_behind_a_save),
      cmocka_unit_test(a_larger_state_gets_larger_slots),
      cmocka_unit_test(fini_at_once_and_in_a_fork),
      cmocka_unit_test(the_caller_fills_in_what_has_no_data),
      cmocka_unit_test(a_fill_that_fails_leaves_the_slot_free),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
