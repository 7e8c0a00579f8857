/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker is killed at random moments while it saves: whoever holds its slots always finds the
 * newest READY one whole. Every byte of a snapshot follows from its seq.
 */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "ckpt/ckdir.h"
#include "ckpt/store.h"
#include "sample.h"
#include "sys/proc.h"

#define ROUNDS 80
#define WORDS  300000 /* two tensors of 2.4 MB */

static void send_fds(int sock, const struct manta__slots *slots)
{
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int) * MANTA__SLOTS)];
  } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int) * MANTA__SLOTS),
                        .cmsg_level = SOL_SOCKET,
                        .cmsg_type = SCM_RIGHTS}};
  for (int i = 0; i < MANTA__SLOTS; i++)
    memcpy(CMSG_DATA(&control.head) + sizeof(int) * (size_t)i, &slots->slot[i].fd, sizeof(int));
  struct iovec iov = {"x", 1};
  struct msghdr m = {.msg_iov = &iov,
                     .msg_iovlen = 1,
                     .msg_control = control.room,
                     .msg_controllen = sizeof control.room};
  if (sendmsg(sock, &m, 0) != 1)
    _exit(3);
}

static void receive_fds(int sock, int fds[MANTA__SLOTS])
{
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int) * MANTA__SLOTS)];
  } control;
  char byte;
  struct iovec iov = {&byte, 1};
  struct msghdr m = {.msg_iov = &iov,
                     .msg_iovlen = 1,
                     .msg_control = control.room,
                     .msg_controllen = sizeof control.room};
  struct pollfd p = {sock, POLLIN, 0};
  assert_int_equal(poll(&p, 1, 30000), 1);
  assert_int_equal(recvmsg(sock, &m, MSG_CMSG_CLOEXEC), 1);
  memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int) * MANTA__SLOTS);
}

// Saves for ever. Only the newest stays READY, so that the next save begins at once.
static void save_for_ever(int sock)
{
  struct manta__slots slots;
  struct sample s;
  manta_error err = MANTA_ERROR_INIT;
  prctl(PR_SET_PDEATHSIG, SIGKILL); // a failed test leaves nothing that runs
  manta__slots_init(&slots);
  sample_init(&s, WORDS);
  for (uint64_t seq = 1;; seq++) {
    struct manta__snapshot snap = sample_snapshot(seq);
    int i;
    sample_fill(&s, seq);
    if (manta__slots_save(&slots, &s.state, &snap, MANTA__NEVER, NULL, NULL, &i, &err) < 0)
      _exit(2);
    if (seq == 3) // by now all three are made
      send_fds(sock, &slots);
    if (seq >= 3)
      sample_free_others(&slots, i);
  }
}

// Checks the slots a dead worker left; adds to *mid if it died in the middle of a save.
static void inspect(const int fds[MANTA__SLOTS], struct sample *s, int *mid)
{
  manta_error err = MANTA_ERROR_INIT;
  int newest = -1;
  uint64_t seq = 0;
  for (int i = 0; i < MANTA__SLOTS; i++) {
    struct manta__slot_meta *m = NULL;
    assert_ok(manta__slot_map_meta(fds[i], &m, &err), &err);
    uint32_t state = atomic_load(&m->state);
    *mid += state == MANTA__SLOT_FILLING;
    if (state == MANTA__SLOT_READY && m->id.seq > seq) {
      seq = m->id.seq;
      newest = i;
    }
    munmap(m, MANTA__SLOT_META);
  }
  assert_true(newest >= 0);
  manta_checkpoint *c = NULL;
  assert_ok(manta__checkpoint_from_fd(&c, fds[newest], false, &err), &err);
  assert_true(sample_matches(s, c, seq));
  assert_int_equal(manta_checkpoint_iteration(c), (int64_t)seq * 10);
  manta_checkpoint_close(c);
}

static void the_newest_is_always_whole(void **ctx)
{
  struct sample s;
  int mid = 0;
  sample_init(&s, WORDS);
  srandom((unsigned)getpid());
  for (int round = 0; round < ROUNDS; round++) {
    int pair[2], fds[MANTA__SLOTS], status;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
      save_for_ever(pair[1]);
    receive_fds(pair[0], fds);
    usleep((useconds_t)(random() % 8000));
    assert_int_equal(manta__proc_signal(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    inspect(fds, &s, &mid);
    for (int i = 0; i < MANTA__SLOTS; i++)
      close(fds[i]);
    close(pair[0]);
    close(pair[1]);
  }
  sample_fini(&s);
  print_message("# %d of %d workers died in the middle of a save\n", mid, ROUNDS);
  assert_true(mid >= 3);
}

/* --- The writer --- */

static void store_for_ever(int run, int sock)
{
  struct manta__slots slots;
  struct sample s;
  struct manta__manifest m;
  manta_error err = MANTA_ERROR_INIT;
  manta__store *store = NULL;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  manta__slots_init(&slots);
  sample_init(&s, 2000);
  if (manta__store_open(&store, run, &(struct manta__retention){2, 0, false}, &err) < 0)
    _exit(2);
  for (uint64_t seq = 1;; seq++) {
    int i = sample_save(&slots, &s, seq);
    sample_free_others(&slots, i);
    if (manta__store_write(store, slots.slot[i].fd, &m, &err) < 0 ||
        manta__store_commit(store, &m, &err) < 0 || (seq == 1 && write(sock, "x", 1) != 1))
      _exit(3);
  }
}

static manta_status count_name(void *ctx, const char *name)
{
  ++*(int *)ctx;
  return MANTA_OK;
}

static int entries(int run)
{
  int n = 0, dir = openat(run, "checkpoints", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert_int_equal(manta__ckdir_each(dir, count_name, &n, NULL), MANTA_OK);
  close(dir);
  return n;
}

// What a dead writer left: the newest is whole, and opening the store removes the rest.
static void inspect_store(int run, struct sample *s, int *leftovers)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest m, *list = NULL;
  manta__store *store = NULL;
  manta_checkpoint *c = NULL;
  size_t count = 0;
  int dir;
  assert_ok(manta__store_newest(run, &dir, &m, &err), &err);
  assert_ok(manta__checkpoint_from_fd(&c, dir, true, &err), &err);
  assert_true(sample_matches(s, c, m.id.seq));
  manta_checkpoint_close(c);
  close(dir);
  assert_ok(manta__store_list(run, true, &list, &count, &err), &err);
  manta_free(list);
  *leftovers += entries(run) > (int)count;
  assert_ok(manta__store_open(&store, run, &(struct manta__retention){2, 0, false}, &err), &err);
  manta__store_close(store);
  assert_int_equal(entries(run), count);
}

static void a_dead_writer_leaves_whole_checkpoints(void **ctx)
{
  struct sample s;
  char path[64];
  int leftovers = 0, run = temp_dir(path);
  sample_init(&s, 2000);
  for (int round = 0; round < ROUNDS; round++) {
    int pair[2], status;
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
      store_for_ever(run, pair[1]);
    close(pair[1]);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    usleep((useconds_t)(random() % 5000));
    assert_int_equal(manta__proc_signal(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    inspect_store(run, &s, &leftovers);
    close(pair[0]);
  }
  print_message("# %d of %d writers died in the middle of a write\n", leftovers, ROUNDS);
  assert_true(leftovers >= 3);
  sample_fini(&s);
  close(run);
  temp_dir_drop(path);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_newest_is_always_whole),
      cmocka_unit_test(a_dead_writer_leaves_whole_checkpoints),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
