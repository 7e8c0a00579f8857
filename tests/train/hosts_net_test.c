/* SPDX-License-Identifier: Apache-2.0
 *
 * A run on two hosts that have a network between them: two network namespaces with a cable. The
 * second is reached over that cable, by a command that does what ssh does (this program as
 * `dial ADDRESS PORT`, answered by `listen PORT COMMAND` there).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "rig.h"
#include "sys/proc.h"
#include "train/session.h"

#define SOON 30.0
#define PORT "7707"

// --- what ssh would do --------------------------------------------------------------------------

static bool pump(int from, int to)
{
  char buf[65536];
  ssize_t n = read(from, buf, sizeof buf);
  for (ssize_t at = 0, w; at < n; at += w)
    if ((w = write(to, buf + at, (size_t)(n - at))) < 0)
      return false;
  return n > 0;
}

static int dial(const char *address, const char *port)
{
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)strtol(port, NULL, 10))};
  int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  inet_pton(AF_INET, address, &to.sin_addr);
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  signal(SIGPIPE, SIG_IGN);
  if (connect(s, (struct sockaddr *)&to, sizeof to) < 0)
    return 255;
  struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = s, .events = POLLIN}};
  while (poll(p, 2, -1) > 0) {
    if (p[0].revents && !pump(STDIN_FILENO, s))
      return 0;
    if (p[1].revents && !pump(s, STDOUT_FILENO))
      return 0;
  }
  return 1;
}

static int listen_at(const char *port, const char *command)
{
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)strtol(port, NULL, 10))};
  int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  signal(SIGCHLD, SIG_IGN);
  if (bind(s, (struct sockaddr *)&at, sizeof at) < 0 || listen(s, 8) < 0)
    return 1;
  for (int c; (c = accept4(s, NULL, NULL, SOCK_CLOEXEC)) >= 0; close(c)) {
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (fork() == 0) {
      signal(SIGCHLD, SIG_DFL);
      dup2(c, STDIN_FILENO);
      dup2(c, STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", command, (char *)NULL);
      _exit(127);
    }
  }
  return 1;
}

// --- the two hosts ------------------------------------------------------------------------------

static char self[600], space[2][32], command[2][1500];
static manta_host two[2];
static pid_t listener;

static int sh(const char *fmt, ...)
{
  char text[2000];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return system(text);
}

static int tear_down(void **state)
{
  if (listener > 0) {
    manta__proc_signal(listener, SIGKILL);
    waitpid(listener, NULL, 0);
  }
  listener = 0;
  for (int i = 0; i < 2; i++)
    sh("ip netns del %s 2>/dev/null", space[i]);
  return 0;
}

static int set_up(void **state)
{
  int n = (int)getpid();
  for (int i = 0; i < 2; i++)
    snprintf(space[i], sizeof space[i], "manta-%c-%d", "ab"[i], n);
  if (geteuid() != 0 || sh("ip netns add %s 2>/dev/null", space[0]) != 0)
    return 0; // every test says that it is skipped
  bool made =
      sh("ip netns add %s && ip link add mh%da type veth peer name mh%db && "
         "ip link set mh%da netns %s && ip link set mh%db netns %s && "
         "ip -n %s addr add 10.77.0.1/24 dev mh%da && ip -n %s addr add 10.77.0.2/24 dev mh%db && "
         "ip -n %s link set mh%da up && ip -n %s link set mh%db up && "
         "ip -n %s link set lo up && ip -n %s link set lo up",
         space[1], n, n, n, space[0], n, space[1], space[0], n, space[1], n, space[0], n, space[1],
         n, space[0], space[1]) == 0;
  if (!made) {
    tear_down(state);
    return 0;
  }
  snprintf(command[0], sizeof command[0],
           "exec ip netns exec %s unshare -u sh -c 'hostname hosta; exec %s agent --stdio'",
           space[0], getenv("MANTA_BIN"));
  snprintf(command[1], sizeof command[1],
           "exec ip netns exec %s unshare -u sh -c \"hostname hostb; exec %s listen " PORT
           " 'exec %s agent --stdio'\"",
           space[1], self, getenv("MANTA_BIN"));
  listener = fork();
  if (listener == 0) {
    execl("/bin/sh", "sh", "-c", command[1], (char *)NULL);
    _exit(127);
  }
  snprintf(command[1], sizeof command[1], "exec ip netns exec %s %s dial 10.77.0.2 " PORT, space[0],
           self);
  return within(SOON,
                sh("ip netns exec %s sh -c 'ss -ltn 2>/dev/null || netstat -ltn' | grep -q :%s",
                   space[1], PORT) == 0)
             ? 0
             : -1;
}

static bool no_network(void)
{
  return listener == 0;
}
#define NEEDS_NETWORK()                                                                            \
  if (no_network())                                                                                \
  skip_because("network namespaces need root and the command ip")

static void rig_hosts(struct rig *r, int workers)
{
  rig_init(r, workers);
  two[0] = (manta_host){.name = "a", .command = command[0], .slots = 2, .address = "10.77.0.1"};
  two[1] = (manta_host){.name = "b", .command = command[1], .slots = 2, .address = "10.77.0.2"};
  r->cfg.hosts = two;
  r->cfg.host_count = 2;
}

static manta_status telling(manta_session *s, manta_value *result, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  char text[400], host[64] = "";
  gethostname(host, sizeof host - 1);
  int at = job->host_of[job->id.rank];
  snprintf(text, sizeof text, "%s %s %s", job->host_name[at], job->host_addr[at], host);
  return manta_value_set_string(result, text);
}

static void workers_are_where_they_say(void **state)
{
  struct rig r;
  NEEDS_NETWORK();
  rig_hosts(&r, 4);
  rig_make(&r);
  assert_ok(manta_trainer_execute(r.t, telling, NULL, &r.results, &r.err), &r.err);
  for (size_t i = 0; i < 4; i++)
    assert_string_equal(manta_value_as_string(manta_value_at(&r.results, i), "?"),
                        i < 2 ? "a 10.77.0.1 hosta" : "b 10.77.0.2 hostb");
  rig_fini(&r);
}

// Nobody says an address: it is that of the only network. How the driver's user came to it does not
// matter, and a name of an interface does for an address.
static manta_status seen_from_afar(manta_session *s, manta_value *result, manta_error *err)
{
  const char *address, *interface;
  char text[100];
  MANTA_TRY(manta_session_address(s, &address, &interface, err));
  snprintf(text, sizeof text, "%s %s", address, interface);
  return manta_value_set_string(result, text);
}

static void hosts_find_their_address(void **state)
{
  NEEDS_NETWORK();
  setenv("SSH_CONNECTION", "203.0.113.7 1000 203.0.113.8 22", 1);
  for (int named = 0; named < 2; named++) {
    struct rig r;
    char face[2][32];
    rig_hosts(&r, 4);
    for (int i = 0; i < 2; i++) {
      snprintf(face[i], sizeof face[i], "mh%d%c", (int)getpid(), "ab"[i]);
      two[i].address = named ? face[i] : NULL;
    }
    rig_make(&r);
    assert_ok(manta_trainer_execute(r.t, seen_from_afar, NULL, &r.results, &r.err), &r.err);
    for (size_t i = 0; i < 4; i++) {
      char want[100];
      snprintf(want, sizeof want, "10.77.0.%d %s", i < 2 ? 1 : 2, face[i / 2]);
      assert_string_equal(manta_value_as_string(manta_value_at(&r.results, i), "?"), want);
    }
    rig_fini(&r);
  }
  unsetenv("SSH_CONNECTION");
}

static void assert_all(const struct rig *r, int workers, int64_t n)
{
  assert_int_equal(r->results.count, workers);
  for (int i = 0; i < workers; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r->results, (size_t)i), -1), n);
  assert_int_equal(r->last, n);
}

static void a_killed_worker_is_revived(void **state)
{
  NEEDS_NETWORK();
  for (int rank = 0; rank < 4; rank += 3) {
    struct rig r;
    rig_hosts(&r, 4);
    manta_value c = MANTA_MAP(MANTA_KV_INT("n", 60), MANTA_KV_STR("fault", "kill"),
                              MANTA_KV_INT("rank", rank), MANTA_KV_INT("at", 37));
    assert_ok(rig_run(&r, &c), &r.err);
    assert_int_equal(board->fired, 1);
    assert_int_equal(board->attempts, 1);
    assert_all(&r, 4, 60);
    assert_renewed(&r, 4, rank, 1);
    rig_fini(&r);
    assert_nothing_left();
  }
}

// The cable is pulled: nobody closes anything, packets only stop. Both sides notice by themselves.
static void *pull(void *arg)
{
  bool *gone = arg;
  if (!within(SOON, board->at[0] > 20 && board->pid[3] > 0))
    return NULL;
  pid_t far[2] = {(pid_t)board->pid[2], (pid_t)board->pid[3]};
  if (sh("ip -n %s link set mh%da down", space[0], (int)getpid()) == 0)
    board->fired++;
  *gone = within(SOON, !alive(far[0]) && !alive(far[1]));
  sh("ip -n %s link set mh%da up", space[0], (int)getpid());
  return NULL;
}

static void a_silent_partition_is_a_lost_host(void **state)
{
  struct rig r;
  pthread_t thread;
  bool gone = false;
  NEEDS_NETWORK();
  rig_hosts(&r, 4);
  r.cfg.host_timeout_s = 1.5;
  r.cfg.min_workers = 4; // it waits for the cable
  r.cfg.max_retries = -1;
  pthread_create(&thread, NULL, pull, &gone);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 300), MANTA_KV_INT("pause_us", 1000));
  manta_status st = rig_run(&r, &c);
  pthread_join(thread, NULL);
  assert_ok(st, &r.err);
  assert_int_equal(board->fired, 1);
  assert_true(gone);
  assert_true(board->attempts >= 1);
  assert_all(&r, 4, 300);
  rig_fini(&r);
  assert_nothing_left();
}

// --- what can be reached ------------------------------------------------------------------------

static bool is_ours(unsigned long inode)
{
  char path[64], link[64], want[64];
  snprintf(want, sizeof want, "socket:[%lu]", inode);
  for (int fd = 0; fd < 1024; fd++) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, link, sizeof link - 1);
    link[n > 0 ? n : 0] = 0;
    if (!strcmp(link, want))
      return true;
  }
  return false;
}

// The addresses at which this process listens, or "any" for one that is all of them.
static void list_listeners(const char *table, char *out, size_t size)
{
  char line[512];
  FILE *f = fopen(table, "r");
  while (f && fgets(line, sizeof line, f)) {
    char local[40];
    unsigned state = 0;
    unsigned long inode = 0;
    if (sscanf(line, "%*d: %39[0-9A-F]:%*x %*[0-9A-F]:%*x %x %*s %*s %*s %*d %*d %lu", local,
               &state, &inode) != 3 ||
        state != 10 || !is_ours(inode)) // 10: TCP_LISTEN
      continue;
    struct in_addr at = {.s_addr = (in_addr_t)strtoul(local, NULL, 16)};
    size_t n = strlen(out);
    snprintf(out + n, size - n, "%s ", strlen(local) == 8 && at.s_addr ? inet_ntoa(at) : "any");
  }
  if (f)
    fclose(f);
}

// All ranks meet, twice: rank 3 dies the first time.
static manta_status meeting(manta_session *s, manta_value *result, manta_error *err)
{
  char text[400] = "";
  MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  list_listeners("/proc/net/tcp", text, sizeof text);
  list_listeners("/proc/net/tcp6", text, sizeof text);
  if (manta_session_rank(s) == 3 && manta_session_attempt(s) == 0) {
    if (!board)
      board_open();
    board->fired++;
    raise(SIGKILL);
  }
  manta_value row = MANTA_MAP(MANTA_KV_INT("count", 1));
  MANTA_TRY(manta_session_report(s, &row, err));
  MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  return manta_value_set_string(result, text);
}

static int warnings_in_log(const struct rig *r)
{
  char path[600];
  snprintf(
      path, sizeof path,
      "exit $(grep -a -o 'trusted networks only: whoever reaches its ports' %s/run.log | wc -l)",
      manta_trainer_run_dir(r->t));
  return WEXITSTATUS(system(path));
}

static void only_the_runs_interface_listens(void **state)
{
  struct rig r;
  NEEDS_NETWORK();
  rig_hosts(&r, 4);
  rig_make(&r);
  manta_status st = manta_trainer_run(r.t, meeting, &r.rc, &r.results, &r.err);
  if (st < 0 && strstr(r.err.message, "libmanta-ucx")) {
    rig_fini(&r);
    skip_because("built without UCX");
  }
  assert_ok(st, &r.err);
  assert_int_equal(board->fired, 1);
  for (size_t i = 0; i < 4; i++)
    assert_string_equal(manta_value_as_string(manta_value_at(&r.results, i), "?"),
                        i < 2 ? "10.77.0.1 " : "10.77.0.2 ");
  assert_int_equal(warnings_in_log(&r), 1); // of two attempts
  manta_value few = MANTA_MAP(MANTA_KV_INT("n", 3));
  r.last = 0;
  assert_ok(rig_run(&r, &few), &r.err);
  assert_int_equal(warnings_in_log(&r), 0); // its ranks never met
  rig_fini(&r);
  assert_nothing_left();
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  if (argc == 4 && !strcmp(argv[1], "dial"))
    return dial(argv[2], argv[3]);
  if (argc == 4 && !strcmp(argv[1], "listen"))
    return listen_at(argv[2], argv[3]);
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(workers_are_where_they_say),      rig_test(hosts_find_their_address),
      rig_test(a_killed_worker_is_revived),      rig_test(a_silent_partition_is_a_lost_host),
      rig_test(only_the_runs_interface_listens),
  };
  int failed = cmocka_run_group_tests(tests, set_up, tear_down);
  board_close();
  return failed;
}
