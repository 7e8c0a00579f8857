/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport between hosts: messages arrive, deaths are noticed, the process stays as it was.
 */
#include "nets.h"
#include "sys/proc.h"

#include <dirent.h>

#define LIMIT_S 30

static struct manta__wire wire; // of this rank

static void on_nets(const struct place *place, int n, net_fn fn)
{
  struct nets t;
  nets_start(&t, place, n, fn);
  assert_int_equal(nets_end(&t), 0);
}

// Until all are over: the first failure, or MANTA_ETIMEDOUT.
static manta_status wait_all(struct manta__net_req **req, size_t n, double seconds)
{
  int64_t by = manta__deadline(seconds);
  manta_status failed = MANTA_OK;
  for (int idle = 0;;) {
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
      manta_status st = req[i] ? manta__wire_test(&wire, &req[i], NULL) : MANTA_OK;
      left += st == MANTA__NET_PENDING;
      failed = st < 0 ? st : failed;
    }
    if (left == 0 || failed < 0)
      return failed;
    if (manta__now() > by)
      return MANTA_ETIMEDOUT;
    manta__wire_turn(&wire, &idle);
  }
}

static int wire_up(struct manta__net *net)
{
  manta_error err = MANTA_ERROR_INIT;
  EXPECT(manta__wire_init(&wire, net, &err) == MANTA_OK);
  return 0;
}

static void fill(uint8_t *p, size_t n, int seed)
{
  for (size_t i = 0; i < n; i++)
    p[i] = (uint8_t)(i * 31 + (i >> 8) + (size_t)seed * 7);
}

static const size_t sizes[] = {0, 1, 8, 1000, 8192, 32767, 32769, 262144, 1000003, 5 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)

// Everybody to everybody, receives posted before for half of them, and after for the others.
static int everybody_sends(struct manta__net *net, int rank, int n, struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  uint8_t *out = malloc(5 << 20), *in = malloc((size_t)n * (5 << 20)), *want = malloc(5 << 20);
  EXPECT(wire_up(net) == 0);
  for (size_t k = 0; k < SIZES; k++) {
    struct manta__net_req *req[2 * NETS_MAX] = {0};
    fill(out, sizes[k], rank);
    for (int i = 0; i < 2 * n; i++) {
      int p = i % n;
      bool sends = (i < n) == (k % 2 == 0);
      if (p != rank && sends)
        EXPECT(manta__wire_send(&wire, p, out, sizes[k], 100 + (uint64_t)rank, &req[i], &err) == 0);
      else if (p != rank)
        EXPECT(manta__wire_recv(&wire, p, in + (size_t)p * (5 << 20), sizes[k], 100 + (uint64_t)p,
                                &req[i], &err) == 0);
    }
    EXPECT(wait_all(req, 2 * (size_t)n, LIMIT_S) == MANTA_OK);
    for (int p = 0; p < n; p++) {
      fill(want, sizes[k], p);
      EXPECT(p == rank || memcmp(in + (size_t)p * (5 << 20), want, sizes[k]) == 0);
    }
  }
  free(out);
  free(in);
  free(want);
  return 0;
}

static void messages_arrive(void **state)
{
  need_ucx();
  for (int n = 2; n <= 4; n++)
    on_nets(&loopback, n, everybody_sends);
}

static void messages_arrive_between_hosts(void **state)
{
  struct place p;
  need_ucx();
  if (!place_make(&p))
    skip_because("network namespaces need root and the command ip");
  on_nets(&p, 2, everybody_sends);
  on_nets(&p, 4, everybody_sends);
  place_remove(&p);
}

// Tags choose, and order holds within one.
static int tags_and_order(struct manta__net *net, int rank, int n, struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__net_req *req[3] = {0};
  uint32_t v[3] = {1, 2, 3}, got[3] = {0};
  EXPECT(wire_up(net) == 0);
  const uint64_t tags[3] = {7, 9, 7};
  for (int i = 0; i < 3 && rank == 0; i++)
    EXPECT(manta__wire_send(&wire, 1, &v[i], 4, tags[i], &req[i], &err) == MANTA_OK);
  if (rank == 1) {
    EXPECT(manta__wire_recv(&wire, 0, &got[0], 4, 9, &req[0], &err) == MANTA_OK);
    EXPECT(manta__wire_recv(&wire, 0, &got[1], 4, 7, &req[1], &err) == MANTA_OK);
    EXPECT(manta__wire_recv(&wire, 0, &got[2], 4, 7, &req[2], &err) == MANTA_OK);
  }
  EXPECT(wait_all(req, 3, LIMIT_S) == MANTA_OK);
  EXPECT(rank == 0 || (got[0] == 2 && got[1] == 1 && got[2] == 3));
  return 0;
}

static void tags_choose_and_order_holds(void **state)
{
  need_ucx();
  on_nets(&loopback, 2, tags_and_order);
}

// A message longer than its room, small and large.
static int too_long(struct manta__net *net, int rank, int n, struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__net_req *req = NULL;
  size_t bytes[2] = {100, 1 << 20};
  uint8_t *buf = calloc(1, 1 << 20);
  EXPECT(wire_up(net) == 0);
  for (int i = 0; i < 2; i++) {
    if (rank == 0)
      EXPECT(manta__wire_send(&wire, 1, buf, bytes[i], 5, &req, &err) == MANTA_OK);
    else
      EXPECT(manta__wire_recv(&wire, 0, buf, bytes[i] - 1, 5, &req, &err) == MANTA_OK);
    manta_status st = wait_all(&req, 1, LIMIT_S);
    EXPECT(rank == 0 ? st == MANTA_OK : st == MANTA_EPROTO);
  }
  free(buf);
  return 0;
}

static void a_message_without_room_is_refused(void **state)
{
  need_ucx();
  on_nets(&loopback, 2, too_long);
}

// --- deaths -------------------------------------------------------------------------------------

// Messages go round until a peer is lost; then everything with it ends, and nothing else does.
static int until_lost(struct manta__net *net, int rank, int n, struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  size_t bytes = rank % 2 ? 3 << 20 : 3 << 20;
  uint8_t *out = calloc(1, bytes), *in = calloc(1, bytes);
  int to = (rank + 1) % n, from = (rank + n - 1) % n;
  manta_status st = MANTA_OK;
  EXPECT(wire_up(net) == 0);
  for (int64_t i = 1; st == MANTA_OK; i++) {
    struct manta__net_req *req[2] = {0};
    st = manta__wire_recv(&wire, from, in, bytes, 1, &req[0], &err);
    if (st == MANTA_OK)
      st = manta__wire_send(&wire, to, out, bytes, 1, &req[1], &err);
    if (st == MANTA_OK)
      st = wait_all(req, 2, LIMIT_S);
    manta__wire_drop(&wire, req, 2);
    b->note[rank] = i;
  }
  b->note[rank] = -manta__now();
  EXPECT(st == MANTA_EPEERLOST);
  free(out);
  free(in);
  return 0;
}

static void the_killed_are_noticed(const struct place *place, int n)
{
  struct nets t;
  nets_start(&t, place, n, until_lost);
  int64_t by = manta__deadline(LIMIT_S), worst = 0;
  while (t.board->note[0] < 3 && manta__now() < by)
    usleep(1000);
  int64_t killed = manta__now();
  manta__proc_signal(t.pid[0], SIGKILL);
  for (int r = 1; r < n; r++) {
    while (t.board->note[r] >= 0 && manta__now() < by)
      usleep(500);
    worst = -t.board->note[r] - killed > worst ? -t.board->note[r] - killed : worst;
  }
  assert_int_equal(nets_end(&t), 0);
  print_message("# %d ranks: the last survivor knew after %.1f ms\n", n, (double)worst / 1e6);
}

static void a_killed_peer_ends_what_was_started_with_it(void **state)
{
  need_ucx();
  the_killed_are_noticed(&loopback, 2);
  the_killed_are_noticed(&loopback, 3);
}

static void a_killed_host_ends_what_was_started_with_it(void **state)
{
  struct place p;
  need_ucx();
  if (!place_make(&p))
    skip_because("network namespaces need root and the command ip");
  the_killed_are_noticed(&p, 2);
  place_remove(&p);
}

// A posted receive, and nobody sends: it is dropped, and the net still works.
static int dropped(struct manta__net *net, int rank, int n, struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__net_req *req[2] = {0};
  uint8_t byte = (uint8_t)rank, got = 0, never[8];
  EXPECT(wire_up(net) == 0);
  EXPECT(manta__wire_recv(&wire, 1 - rank, never, 8, 66, &req[0], &err) == MANTA_OK);
  EXPECT(wait_all(req, 1, 0.05) == MANTA_ETIMEDOUT);
  manta__wire_drop(&wire, req, 2);
  EXPECT(manta__wire_send(&wire, 1 - rank, &byte, 1, 3, &req[0], &err) == MANTA_OK);
  EXPECT(manta__wire_recv(&wire, 1 - rank, &got, 1, 3, &req[1], &err) == MANTA_OK);
  EXPECT(wait_all(req, 2, LIMIT_S) == MANTA_OK);
  EXPECT(got == 1 - rank);
  return 0;
}

static void a_receive_can_be_dropped(void **state)
{
  need_ucx();
  on_nets(&loopback, 2, dropped);
}

// A large send that nobody receives: after the drop its buffer is ours again, and the net is over.
static int stuck(struct manta__net *net, int rank, int n, struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__net_req *req = NULL;
  size_t bytes = 64 << 20;
  uint8_t *buf = calloc(1, bytes);
  EXPECT(wire_up(net) == 0);
  if (rank == 0) {
    EXPECT(manta__wire_send(&wire, 1, buf, bytes, 3, &req, &err) == MANTA_OK);
    EXPECT(wait_all(&req, 1, 0.1) == MANTA_ETIMEDOUT);
    manta__wire_drop(&wire, &req, 1);
    memset(buf, 1, bytes);
    EXPECT(manta__wire_send(&wire, 1, buf, 1, 3, &req, &err) == MANTA_EPEERLOST);
    b->note[0] = 1;
  } else { // and for the other side we are gone
    EXPECT(manta__wire_recv(&wire, 0, buf, 8, 4, &req, &err) == MANTA_OK);
    EXPECT(wait_all(&req, 1, LIMIT_S) == MANTA_EPEERLOST);
  }
  free(buf);
  return 0;
}

static void a_stuck_send_ends_the_net(void **state)
{
  need_ucx();
  on_nets(&loopback, 2, stuck);
}

// --- a guest ------------------------------------------------------------------------------------

static int open_files(void)
{
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  while (d && readdir(d))
    n++;
  closedir(d);
  return n;
}

// A line of /proc/self/status, or of a thread's.
static uint64_t mask_of(const char *file, const char *name)
{
  char line[256];
  uint64_t mask = 0;
  FILE *f = fopen(file, "r");
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, name, strlen(name)))
      mask = strtoull(line + strlen(name) + 1, NULL, 16);
  if (f)
    fclose(f);
  return mask;
}

// SIGKILL, SIGSTOP, and two that the C library keeps for itself.
#define NOT_OURS 0x180040100u

static uint64_t caught_signals(void)
{
  return mask_of("/proc/self/status", "SigCgt:") & ~(uint64_t)NOT_OURS;
}

static void on_segv(int sig)
{
  _exit(98);
}

// Every thread but ours has all signals blocked.
static bool threads_are_deaf(void)
{
  bool deaf = true;
  DIR *d = opendir("/proc/self/task");
  for (struct dirent *e; d && (e = readdir(d));) {
    char file[300];
    snprintf(file, sizeof file, "/proc/self/task/%s/status", e->d_name);
    if (e->d_name[0] != '.' && strtol(e->d_name, NULL, 10) != getpid())
      deaf = deaf && (mask_of(file, "SigBlk:") | NOT_OURS) == UINT64_MAX;
  }
  closedir(d);
  return deaf;
}

static int quiet_guest(struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__net *net;
  stack_t before;
  EXPECT(sigaltstack(NULL, &before) == 0);
  signal(SIGSEGV, on_segv);
  uint64_t caught = caught_signals();
  EXPECT(caught >> (SIGSEGV - 1) & 1);
  EXPECT(nets_join(&net, b, 0, 1, "127.0.0.1", &err) == MANTA_OK);
  EXPECT(caught_signals() == caught);
  struct sigaction now;
  stack_t stack;
  EXPECT(sigaltstack(NULL, &stack) == 0 && stack.ss_sp == before.ss_sp);
  EXPECT(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_handler == on_segv);
  EXPECT(threads_are_deaf());
  EXPECT(mask_of("/proc/self/status", "SigBlk:") == 0);
  net->ops->destroy(net);
  EXPECT(caught_signals() == caught);
  return 0;
}

static int no_leak(struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  int before = 0;
  for (int i = 0; i < 100; i++) {
    struct manta__net *net;
    EXPECT(nets_join(&net, b, 0, 1, "lo", &err) == MANTA_OK);
    net->ops->destroy(net);
    if (i == 0)
      before = open_files(); // what UCX keeps for good
  }
  EXPECT(open_files() == before);
  return 0;
}

static int unknown_place(struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__net *net;
  EXPECT(nets_join(&net, b, 0, 1, "10.255.254.253", &err) == MANTA_ENOENT);
  EXPECT(strstr(err.message, "10.255.254.253"));
  return 0;
}

static int no_module(struct board *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__net *net;
  setenv("MANTA_MODULES", "/nowhere", 1);
  EXPECT(nets_join(&net, b, 0, 1, "lo", &err) == MANTA_EUNSUPPORTED);
  EXPECT(strstr(err.message, "libmanta-ucx.so in /nowhere") && strstr(err.message, "libucx"));
  return 0;
}

// In a process of its own, which has not loaded UCX.
static void alone(int (*fn)(struct board *b))
{
  struct board *b =
      mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(b != MAP_FAILED);
  pid_t pid = fork();
  if (pid == 0) {
    int line = fn(b);
    if (line)
      fprintf(stderr, "line %d\n", line);
    _exit(line != 0);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  munmap(b, sizeof *b);
}

static void the_process_stays_as_it_was(void **state)
{
  need_ucx();
  alone(quiet_guest);
}

static void a_hundred_nets_leave_no_descriptor(void **state)
{
  need_ucx();
  alone(no_leak);
}

static void what_is_missing_is_named(void **state)
{
  need_ucx();
  alone(unknown_place);
  alone(no_module);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_arrive),
      cmocka_unit_test(messages_arrive_between_hosts),
      cmocka_unit_test(tags_choose_and_order_holds),
      cmocka_unit_test(a_message_without_room_is_refused),
      cmocka_unit_test(a_killed_peer_ends_what_was_started_with_it),
      cmocka_unit_test(a_killed_host_ends_what_was_started_with_it),
      cmocka_unit_test(a_receive_can_be_dropped),
      cmocka_unit_test(a_stuck_send_ends_the_net),
      cmocka_unit_test(the_process_stays_as_it_was),
      cmocka_unit_test(a_hundred_nets_leave_no_descriptor),
      cmocka_unit_test(what_is_missing_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
