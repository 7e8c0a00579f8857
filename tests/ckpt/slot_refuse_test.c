/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots: states that make no sense, slots that lie to who holds a dup, and no memory.
 */
#include <sys/mman.h>
#include <sys/resource.h>

#include "sample.h"

/* --- Refusing --- */

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
  value = manta_value_borrow_bytes(big, MANTA__EXTRA_MAX);
  snap.extra[MANTA__EXTRA_RANDOM] = &value;
  manta_state small = {NULL, 0, NULL};
  assert_status(manta__slots_save(&slots, &small, &snap, MANTA__NEVER, NULL, NULL, &i, &err),
                MANTA_ETOOBIG);
  assert_has(err.message, "\"random\" of the checkpoint: over 65536 packed bytes");
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
  int i = sample_save_extras(&slots, &s, 1);
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
    for (int e = 0; e < MANTA__EXTRA_COUNT; e++) {
      LIE(extra[e].off, lies[k]);
      if (lies[k] > MANTA__EXTRA_MAX) {
        LIE(extra[e].len, lies[k]);
      }
    }
  }
  LIE(extra[0].len, MANTA__EXTRA_MAX + 1);
  LIE(extra[1].off, good.value_off); // over the value
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

/* --- Starving --- */

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
