/* SPDX-License-Identifier: Apache-2.0
 *
 * Every sequence of ready and written up to DEPTH steps, against a model that keeps a plain list of
 * snapshots in order of arrival.
 */
#include "ckpt/queue.h"
#include "test.h"

#define DEPTH 9

struct snap {
  int slot;
  enum manta__snapq_worth worth;
  enum { WAITS, IS_WRITTEN_NOW, ON_DISK } state;
};

struct model {
  struct snap list[MANTA__SLOTS + 1]; /* oldest first */
  int count;
};

static long sequences, drops, writes;

static unsigned held(const struct model *m)
{
  unsigned mask = 0;
  for (int i = 0; i < m->count; i++)
    mask |= 1u << m->list[i].slot;
  return mask;
}

static int writing(const struct model *m)
{
  for (int i = 0; i < m->count; i++)
    if (m->list[i].state == IS_WRITTEN_NOW)
      return i;
  return -1;
}

static void drop_at(struct model *m, int i)
{
  memmove(&m->list[i], &m->list[i + 1], sizeof *m->list * (size_t)(m->count - i - 1));
  m->count--;
}

static int begin_oldest(struct model *m)
{
  for (int i = 0; writing(m) < 0 && i < m->count; i++)
    if (m->list[i].state == WAITS) {
      m->list[i].state = IS_WRITTEN_NOW;
      return m->list[i].slot;
    }
  return -1;
}

static bool stays(const struct snap *s, enum manta__snapq_worth newest)
{
  if (s->state != WAITS || s->worth == MANTA__Q_NEEDED)
    return s->state != ON_DISK;
  return s->worth != MANTA__Q_PASSING && newest != MANTA__Q_BEST;
}

static struct manta__snapq_do model_ready(struct model *m, int slot, enum manta__snapq_worth worth)
{
  struct manta__snapq_do todo = {.write = -1};
  for (int i = 0; i < m->count;) {
    const struct snap s = m->list[i];
    if (stays(&s, worth)) {
      i++;
      continue;
    }
    todo.dropped += s.state == WAITS;
    if (s.slot != slot) // else it was retired, and a new one has its place
      todo.free |= 1u << s.slot;
    drop_at(m, i);
  }
  m->list[m->count++] = (struct snap){slot, worth, WAITS};
  todo.write = begin_oldest(m);
  return todo;
}

static struct manta__snapq_do model_written(struct model *m)
{
  struct manta__snapq_do todo = {.write = -1};
  int i = writing(m);
  m->list[i].state = ON_DISK;
  if (i != m->count - 1) {
    todo.free = 1u << m->list[i].slot;
    drop_at(m, i);
  }
  todo.write = begin_oldest(m);
  return todo;
}

static void compare(struct manta__snapq_do got, struct manta__snapq_do want, const struct model *m,
                    const struct manta__snapq *q)
{
  assert_int_equal(got.write, want.write);
  assert_int_equal(got.free, want.free);
  assert_int_equal(got.dropped, want.dropped);
  assert_int_equal(q->newest, m->list[m->count - 1].slot);
  assert_int_equal(q->writing, writing(m) < 0 ? -1 : m->list[writing(m)].slot);
  assert_int_equal(manta__snapq_busy(q), writing(m) >= 0);
  assert_false(got.free & 1u << q->newest);                     // (3)
  assert_false(q->writing >= 0 && got.free & 1u << q->writing); // (1)
  assert_int_equal(got.free & held(m), 0);
  drops += got.dropped;
  writes += got.write >= 0;
}

static void explore(const struct manta__snapq *q, const struct model *m, int left)
{
  sequences++;
  if (left == 0)
    return;
  for (int slot = 0; slot < MANTA__SLOTS; slot++) {
    bool retired =
        m->count && m->list[m->count - 1].slot == slot && m->list[m->count - 1].state == ON_DISK;
    if (held(m) & 1u << slot && !retired)
      continue;
    for (unsigned worth = MANTA__Q_PASSING; worth <= MANTA__Q_NEEDED; worth++) {
      struct manta__snapq q2 = *q;
      struct model m2 = *m;
      compare(manta__snapq_ready(&q2, slot, worth), model_ready(&m2, slot, worth), &m2, &q2);
      explore(&q2, &m2, left - 1);
    }
  }
  if (writing(m) >= 0) {
    struct manta__snapq q2 = *q;
    struct model m2 = *m;
    compare(manta__snapq_written(&q2, q->writing), model_written(&m2), &m2, &q2);
    explore(&q2, &m2, left - 1);
  }
}

static void every_sequence_agrees_with_the_model(void **ctx)
{
  struct manta__snapq q;
  struct model m = {0};
  manta__snapq_init(&q);
  assert_false(manta__snapq_busy(&q));
  explore(&q, &m, DEPTH);
  assert_true(sequences > 100000 && drops > 1000 && writes > 1000);
}

static void misuse_changes_nothing(void **ctx)
{
  struct manta__snapq q, before;
  manta__snapq_init(&q);
  manta__snapq_ready(&q, 1, MANTA__Q_PASSING);
  manta__snapq_ready(&q, 2, MANTA__Q_PASSING);
  before = q;
  struct manta__snapq_do todo[] = {manta__snapq_ready(&q, 1, MANTA__Q_BEST),
                                   manta__snapq_ready(&q, 2, MANTA__Q_BEST),
                                   manta__snapq_ready(&q, -1, MANTA__Q_PASSING),
                                   manta__snapq_ready(&q, 3, MANTA__Q_PASSING),
                                   manta__snapq_written(&q, 2),
                                   manta__snapq_written(&q, -1)};
  for (size_t i = 0; i < sizeof todo / sizeof *todo; i++) {
    assert_int_equal(todo[i].write, -1);
    assert_int_equal(todo[i].free, 0);
  }
  assert_memory_equal(&q, &before, sizeof q);
}

static void a_slow_disk_drops_the_middle_ones(void **ctx)
{
  struct manta__snapq q;
  manta__snapq_init(&q);
  assert_int_equal(manta__snapq_ready(&q, 0, MANTA__Q_PASSING).write, 0);
  assert_int_equal(manta__snapq_ready(&q, 1, MANTA__Q_PASSING).free, 0);
  struct manta__snapq_do todo = manta__snapq_ready(&q, 2, MANTA__Q_PASSING);
  assert_int_equal(todo.free, 1u << 1);
  assert_int_equal(todo.dropped, 1);
  todo = manta__snapq_written(&q, 0);
  assert_int_equal(todo.free, 1u << 0);
  assert_int_equal(todo.write, 2);
  todo = manta__snapq_written(&q, 2);
  assert_int_equal(todo.free, 0);
  assert_false(manta__snapq_busy(&q));
}

// With one kept for its score, a run that gets better and better does not wait for the disk.
static void a_better_one_takes_the_place_of_those_that_wait(void **ctx)
{
  struct manta__snapq q;
  manta__snapq_init(&q);
  assert_int_equal(manta__snapq_ready(&q, 0, MANTA__Q_BEST).write, 0);
  for (int i = 0; i < 6; i++) {
    struct manta__snapq_do todo = manta__snapq_ready(&q, 1 + i % 2, MANTA__Q_BEST);
    assert_int_equal(todo.free, i == 0 ? 0 : 1u << (2 - i % 2));
  }
  assert_int_equal(manta__snapq_ready(&q, 1, MANTA__Q_PASSING).free, 0); // the best one waits on
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_sequence_agrees_with_the_model),
      cmocka_unit_test(misuse_changes_nothing),
      cmocka_unit_test(a_slow_disk_drops_the_middle_ones),
      cmocka_unit_test(a_better_one_takes_the_place_of_those_that_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
