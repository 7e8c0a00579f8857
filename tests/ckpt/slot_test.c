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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "ckpt/store.h"
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

static void assert_holds(int fd, struct sample *s, uint64_t seed)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  assert_ok(manta__checkpoint_from_fd(&c, fd, false, &err), &err);
  assert_true(sample_matches(s, c, seed));
  assert_int_equal(manta_checkpoint_iteration(c), (int64_t)seed * 10);
  manta_checkpoint_close(c);
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

/* --- Waiting
 * -------------------------------------------------------------------------------------- */

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

/* --- Replacing
 * -------------------------------------------------------------------------------------- */

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

// What the child maps where its parent has the slot is the child's.
static void fini_in_child(struct manta__slots *slots)
{
  void *at = slots->slot[0].meta;
  char *own = mmap(at, 4096, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (own != at)
    _exit(2); // the slot reached the child
  manta__slots_fini(slots);
  own[0] = 1;
  _exit(slots->slot[0].fd == -1 ? 0 : 1);
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

/* --- Refusing
 * --------------------------------------------------------------------------------------- */

static void a_state_without_sense_changes_nothing(void **ctx)
{
  char longname[MANTA_TENSOR_NAME_MAX + 2];
  memset(longname, 'n', sizeof longname);
  longname[sizeof longname - 1] = 0;
  float x[4] = {0};
  const struct {
    manta_tensor t[2];
    const char *says;
  } bad[] = {
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR("a", MANTA_F32, x, 4)}, "\"a\""},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR("b", MANTA_F32, NULL, 4)}, "\"b\""},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR(NULL, MANTA_F32, x, 4)}, "tensor 1"},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR("", MANTA_F32, x, 4)}, "tensor 1"},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR("b", MANTA_F32, x, -4)}, "\"b\""},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR("b", (manta_dtype)77, x, 4)}, "\"b\""},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), {"b", MANTA_F32, 9, {1}, x}}, "\"b\""},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), {"b", MANTA_F32, -1, {1}, x}}, "\"b\""},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), {"b", MANTA_F32, 2, {INT64_MAX, 2}, x}}, "\"b\""},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR("b\xff", MANTA_F32, x, 4)}, "UTF-8"},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR("__metadata__", MANTA_F32, x, 4)},
       "reserves"},
      {{MANTA_VECTOR("a", MANTA_F32, x, 4), MANTA_VECTOR(longname, MANTA_F32, x, 4)}, "1024"},
  };
  struct manta__slots slots;
  struct sample s;
  struct manta__snapshot snap = sample_snapshot(2);
  int i;
  manta__slots_init(&slots);
  sample_init(&s, 100);
  int kept = sample_save(&slots, &s, 1);
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    manta_error err = MANTA_ERROR_INIT;
    manta_state state = {bad[k].t, 2, NULL};
    assert_status(manta__slots_save(&slots, &state, &snap, MANTA__NEVER, NULL, NULL, &i, &err),
                  MANTA_EINVAL);
    assert_has(err.message, bad[k].says);
  }
  assert_holds(slots.slot[kept].fd, &s, 1);
  assert_holds(slots.slot[sample_save(&slots, &s, 2)].fd, &s, 2);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void limits_are_named(void **ctx)
{
  struct manta__slots slots;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__snapshot snap = sample_snapshot(2);
  size_t n = MANTA_STATE_MAX_TENSORS + 1;
  manta_tensor *t = calloc(n, sizeof *t);
  char *big = calloc(1, MANTA_STATE_VALUE_MAX + 1);
  manta_value value = manta_value_borrow_bytes(big, MANTA_STATE_VALUE_MAX + 1);
  manta_state many = {t, n, NULL}, heavy = {NULL, 0, &value}, none = {NULL, 1, NULL};
  int i;
  manta__slots_init(&slots);
  assert_status(manta__slots_save(&slots, &many, &snap, MANTA__NEVER, NULL, NULL, &i, &err),
                MANTA_ETOOBIG);
  assert_has(err.message, "65536");
  assert_status(manta__slots_save(&slots, &heavy, &snap, MANTA__NEVER, NULL, NULL, &i, &err),
                MANTA_ETOOBIG);
  assert_status(manta__slots_save(&slots, &none, &snap, MANTA__NEVER, NULL, NULL, &i, &err),
                MANTA_EINVAL);
  manta__slots_fini(&slots);
  free(t);
  free(big);
}

static int bare_memfd(size_t size, unsigned seals)
{
  int fd = memfd_create("bare", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
  if (seals)
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

static void refused(int fd)
{
  struct manta__slot_meta *m = NULL;
  manta_checkpoint *c = NULL;
  manta_error err = MANTA_ERROR_INIT;
  assert_true(manta__slot_map_meta(fd, &m, &err) < 0);
  assert_true(manta__checkpoint_from_fd(&c, fd, false, &err) < 0);
  assert_null(m);
  assert_null(c);
  assert_true(err.message[0] != 0);
}

static void what_is_no_slot_is_refused(void **ctx)
{
  int fds[] = {bare_memfd(8192, 0),
               bare_memfd(8192, F_SEAL_SHRINK),
               bare_memfd(8192, F_SEAL_SHRINK | F_SEAL_GROW),
               bare_memfd(0, F_SEAL_SHRINK | F_SEAL_GROW),
               bare_memfd(5000, F_SEAL_SHRINK | F_SEAL_GROW),
               open("/dev/null", O_RDWR),
               open("/proc/self/exe", O_RDONLY)};
  for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
    refused(fds[i]);
    close(fds[i]);
  }
  refused(-1);
}

// Content that is right, in memory that could be cut off under its reader.
static void an_unsealed_slot_is_refused(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta__slots_init(&slots);
  sample_init(&s, 1000);
  const struct manta__slot *slot = &slots.slot[sample_save(&slots, &s, 1)];
  for (int seals = 0; seals < 3; seals++) {
    int fd = bare_memfd(slot->capacity, 0);
    assert_int_equal(pwrite(fd, slot->meta, slot->capacity, 0), (ssize_t)slot->capacity);
    static const int some[] = {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW};
    assert_int_equal(fcntl(fd, F_ADD_SEALS, some[seals]), 0);
    if (seals < 2)
      refused(fd);
    else
      assert_holds(fd, &s, 1);
    close(fd);
  }
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void a_lying_slot_is_refused(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta__slots_init(&slots);
  sample_init(&s, 1000);
  int i = sample_save(&slots, &s, 1);
  struct manta__slot_meta *m = slots.slot[i].meta, good;
  memcpy(&good, m, sizeof good);
#define LIE(field, value)                                                                          \
  m->field = (value);                                                                              \
  refused(slots.slot[i].fd);                                                                       \
  m->field = good.field
  const uint64_t lies[] = {0,
                           1,
                           4095,
                           good.capacity - 1,
                           good.capacity,
                           good.capacity + 1,
                           1ull << 63,
                           UINT64_MAX - 4095,
                           UINT64_MAX};
  for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
    LIE(tensors_off, lies[k]);
    LIE(value_off, lies[k] == good.capacity ? UINT64_MAX : lies[k]);
    if (lies[k] > 4095) {
      LIE(tensors_len, lies[k]);
      LIE(value_len, lies[k]);
    }
    if (lies[k] != good.capacity) {
      LIE(capacity, lies[k]);
    }
  }
  LIE(magic, 0);
  LIE(state, 5);
  LIE(iteration, -1);
#undef LIE
  assert_holds(slots.slot[i].fd, &s, 1);
  m->state = MANTA__SLOT_FILLING;
  manta_error err = MANTA_ERROR_INIT;
  manta_checkpoint *c = NULL;
  assert_status(manta__checkpoint_from_fd(&c, slots.slot[i].fd, false, &err), MANTA_ESTATE);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

/* --- Starving
 * ---------------------------------------------------------------------------------------- */

static manta_status save_fresh(struct manta__slots *slots, const struct sample *s)
{
  struct manta__snapshot snap = sample_snapshot(1);
  int i;
  manta__slots_init(slots);
  manta_status st = manta__slots_save(slots, &s->state, &snap, MANTA__NEVER, NULL, NULL, &i, NULL);
  if (st < 0)
    manta__slots_fini(slots);
  return st;
}

static void every_allocation_may_fail(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  manta_checkpoint *c = NULL;
  sample_init(&s, 1000);
  FOR_EACH_OOM(save_fresh(&slots, &s), (void)0);
  int fd = slots.slot[0].fd;
  FOR_EACH_OOM(manta__checkpoint_from_fd(&c, fd, false, NULL), manta_checkpoint_close(c));
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void a_failed_growth_leaves_the_old_layout(void **ctx)
{
  struct manta__slots slots;
  struct sample s;
  float x[2] = {1, 2};
  manta_tensor t = MANTA_VECTOR("other", MANTA_F32, x, 2);
  manta_state other = {&t, 1, NULL};
  struct manta__snapshot snap = sample_snapshot(7);
  int i;
  manta__slots_init(&slots);
  sample_init(&s, 1000);
  sample_free_others(&slots, sample_save(&slots, &s, 1));
  FOR_EACH_OOM(manta__slots_save(&slots, &other, &snap, MANTA__NEVER, NULL, NULL, &i, NULL),
               (void)0);
  sample_free_others(&slots, -1);
  assert_holds(slots.slot[sample_save(&slots, &s, 2)].fd, &s, 2);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

static void no_descriptor_left_is_said(void **ctx)
{
  struct rlimit old, none;
  struct manta__slots slots;
  struct sample s;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__snapshot snap = sample_snapshot(1);
  int i;
  sample_init(&s, 10);
  getrlimit(RLIMIT_NOFILE, &old);
  none = (struct rlimit){0, old.rlim_max};
  manta__slots_init(&slots);
  setrlimit(RLIMIT_NOFILE, &none);
  manta_status st = manta__slots_save(&slots, &s.state, &snap, MANTA__NEVER, NULL, NULL, &i, &err);
  setrlimit(RLIMIT_NOFILE, &old);
  assert_status(st, MANTA_ENOROOM);
  assert_has(err.message, "memfd_create");
  assert_holds(slots.slot[sample_save(&slots, &s, 2)].fd, &s, 2);
  manta__slots_fini(&slots);
  sample_fini(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_saved_is_read),
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
      cmocka_unit_test(a_state_without_sense_changes_nothing),
      cmocka_unit_test(limits_are_named),
      cmocka_unit_test(what_is_no_slot_is_refused),
      cmocka_unit_test(an_unsealed_slot_is_refused),
      cmocka_unit_test(a_lying_slot_is_refused),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(a_failed_growth_leaves_the_old_layout),
      cmocka_unit_test(no_descriptor_left_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
