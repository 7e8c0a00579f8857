/* SPDX-License-Identifier: Apache-2.0
 *
 * The engines: which there are, what they make of the user's text, and how agents are started.
 */
#include <assert.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/hosts.h"
#include "sys/sock.h"
#include "test.h"

// --- two engines of the test's own ---------------------------------------------------------------

static size_t asked[2];        /* hosts that each was asked to start */
static int calls[2];           /* … and how often it was asked */
static const char *found[3];   /* the hosts that fake-a finds, NULL at the end */
static manta_status find_with; /* … or how it fails */

static manta_status fake_parse(struct manta__engine_host *h, const char *text, manta_error *err)
{
  if (!strcmp(text, "bad"))
    return manta_error_set(err, MANTA_EINVAL, "\"%s\" is no node", text);
  h->target = manta__asprintf("<%s>", text);
  return h->target ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for a node");
}

// A host that has no name is called by the text.
static manta_status naming_parse(struct manta__engine_host *h, const char *text, manta_error *err)
{
  if (h->name[0])
    return MANTA_OK;
  manta__free(h->name);
  h->name = manta__strdup(text);
  return h->name ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for a node");
}

static manta_status fake_discover(struct manta__host_list *out, manta_error *err)
{
  if (find_with < 0)
    return manta_error_set(err, find_with, "the scheduler does not answer");
  for (int i = 0; found[i]; i++) {
    manta_host h = {.name = found[i], .command = "fake-a:x", .slots = i + 1};
    MANTA_TRY(manta__engine_hosts_add(out, &h, err));
  }
  return MANTA_OK;
}

// Starts nothing; those whose name has an x in it fail.
static void fake_start(int which, struct manta__engine_start *const *s, size_t count)
{
  calls[which]++;
  asked[which] += count;
  for (size_t i = 0; i < count; i++)
    if (strchr(s[i]->host->name, 'x'))
      manta_error_set(&s[i]->why, MANTA_EAGENT, "%s is down", s[i]->host->name);
    else
      s[i]->sock = s[i]->pid = 1000 * (which + 1) + (int)i;
}

static void start_a(struct manta__engine_start *const *s, size_t count)
{
  fake_start(0, s, count);
}

static void start_b(struct manta__engine_start *const *s, size_t count)
{
  fake_start(1, s, count);
}

static const struct manta__engine fake_a = {.name = "fake-a",
                                            .remote = true,
                                            .parse = fake_parse,
                                            .discover = fake_discover,
                                            .start_many = start_a,
                                            .end = manta__engine_end},
                                  fake_b = {.name = "fake2",
                                            .remote = true,
                                            .parse = naming_parse,
                                            .start_many = start_b,
                                            .end = manta__engine_end};

static int forget(void **state)
{
  memset(asked, 0, sizeof asked);
  memset(calls, 0, sizeof calls);
  memset(found, 0, sizeof found);
  find_with = MANTA_OK;
  unsetenv("MANTA_HOSTS");
  return 0;
}

// --- the list ------------------------------------------------------------------------------------

static void engines_are_found_by_name(void **state)
{
  assert_ptr_equal(manta__engine_find("local"), &manta__engine_local);
  assert_ptr_equal(manta__engine_find("exec"), &manta__engine_exec);
  assert_ptr_equal(manta__engine_find("fake-a"), &fake_a);
  assert_null(manta__engine_find("fake"));
  assert_null(manta__engine_find(""));
  assert_false(manta__engine_local.remote);
  assert_true(manta__engine_exec.remote);
}

static void a_name_is_one_engine(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__engine e = fake_a;
  assert_status(manta__engine_add(&fake_a, &err), MANTA_EINVAL);
  assert_has(err.message, "an engine \"fake-a\" already");
  static const char *const none[] = {"", "Slurm", "a b", "a:", "a/b"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    e.name = none[i];
    assert_status(manta__engine_add(&e, &err), MANTA_EINVAL);
  }
}

// The last of all tests: there is no way to take one out again.
static void engines_are_limited(void **state)
{
  static struct manta__engine more[MANTA__MAX_ENGINES];
  static char name[MANTA__MAX_ENGINES][8];
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 4; i < MANTA__MAX_ENGINES; i++) {
    snprintf(name[i], sizeof name[i], "e%d", i);
    more[i] = fake_b;
    more[i].name = name[i];
    assert_ok(manta__engine_add(&more[i], &err), &err);
  }
  more[0] = fake_b;
  more[0].name = "last";
  assert_status(manta__engine_add(&more[0], &err), MANTA_ETOOBIG);
  assert_null(manta__engine_find("last"));
  assert_ptr_equal(manta__engine_find("e15"), &more[15]);
}

// --- the user's text -----------------------------------------------------------------------------

static void describes(const char *text, const char *engine, const char *target)
{
  struct manta__engine_host h = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__engine_describe(&h, "a", text, &err), &err);
  assert_string_equal(h.engine->name, engine);
  assert_string_equal(h.name, "a");
  assert_string_equal(h.target, target);
  manta__engine_host_fini(&h);
  manta__engine_host_fini(&h);
}

static void the_text_says_which_engine(void **state)
{
  describes(NULL, "local", "");
  describes("local:", "local", "");
  describes("ssh b manta agent --stdio", "exec", "ssh b manta agent --stdio");
  describes("exec:ssh b", "exec", "ssh b");
  describes("exec:rsh:b", "exec", "rsh:b");
  describes("fake-a:node[1-4]", "fake-a", "<node[1-4]>");
  describes("fake-a://user@node:22", "fake-a", "<//user@node:22>");
  describes("fake2:x", "fake2", "");
}

// What a shell takes for a command is one, wherever else it has a colon.
static void a_colon_in_a_command_names_no_engine(void **state)
{
  static const char *const commands[] = {
      "/opt/a:b/manta agent", "PATH=/a:/b ssh b", ": ; ssh b", "ssh b:22", " fake-a:x", "Fake-a:x"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    describes(commands[i], "exec", commands[i]);
}

static void is_refused(const char *text, const char *why)
{
  struct manta__engine_host h = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__engine_describe(&h, "a", text, &err), MANTA_EINVAL);
  assert_has(err.message, why);
  assert_null(h.engine);
}

static void what_no_engine_takes_is_refused(void **state)
{
  is_refused("slurm:4", "there is no engine \"slurm\"; there are local, exec, fake-a, fake2\n");
  is_refused("ssh://b", "there is no engine \"ssh\"");
  is_refused("ssh:b", "hint: a command that begins with a word and a colon is exec:COMMAND");
  is_refused("local:b", "nothing follows it, not \"b\"");
  is_refused("exec: \t", "followed by a command");
  is_refused("fake-a:bad", "\"bad\" is no node");
}

static void describing_survives_any_oom(void **state)
{
  struct manta__engine_host h = {0}, copy = {0};
  FOR_EACH_OOM(manta__engine_describe(&h, NULL, NULL, NULL), manta__engine_host_fini(&h));
  FOR_EACH_OOM(manta__engine_describe(&h, "b", "fake-a:x", NULL), (void)0);
  FOR_EACH_OOM(manta__engine_host_copy(&copy, &h), (void)0);
  assert_true(manta__engine_same_host(&h, &copy));
  manta__engine_host_fini(&h);
  manta__engine_host_fini(&copy);
}

static bool are_same(const char *name, const char *text, const char *name2, const char *text2)
{
  struct manta__engine_host a = {0}, b = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__engine_describe(&a, name, text, &err), &err);
  assert_ok(manta__engine_describe(&b, name2, text2, &err), &err);
  b.timeout_s = 7; // a host is the same, however patient one is with it
  bool same = manta__engine_same_host(&a, &b);
  assert_int_equal(same, manta__engine_same_host(&b, &a));
  manta__engine_host_fini(&a);
  manta__engine_host_fini(&b);
  return same;
}

static void a_host_is_known_by_name_and_way(void **state)
{
  assert_true(are_same(NULL, NULL, "here", "local:")); // there is one, whatever it is called
  assert_true(are_same("a", "ssh a", "a", "exec:ssh a"));
  assert_false(are_same("a", "ssh a", "b", "ssh a"));
  assert_false(are_same("a", "ssh a", "a", "ssh b"));
  assert_false(are_same("a", "exec:x", "a", "fake-a:x"));
  assert_false(are_same("a", NULL, "a", "ssh a"));
  struct manta__engine_host h = {0};
  assert_status(manta__engine_describe(&h, "a", NULL, NULL), MANTA_OK);
  assert_true(manta__engine_same_host(&h, manta__engine_here()));
  manta__engine_host_fini(&h);
}

// --- lists of hosts ------------------------------------------------------------------------------

static void assert_entry(const struct manta__host_list *l, size_t i, const char *name,
                         const char *engine, int slots, const char *address)
{
  assert_true(i < l->count);
  assert_string_equal(l->item[i].host.name, name);
  assert_string_equal(l->item[i].host.engine->name, engine);
  assert_int_equal(l->item[i].slots, slots);
  assert_string_equal(l->item[i].address ? l->item[i].address : "-", address);
}

static void hosts_are_read_from_a_text(void **state)
{
  struct manta__host_list l = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__engine_hosts_parse(
                &l, "here 1; b@lo 2 ssh b agent\n\n c@10.1.2.3\t0   fake-a:n7 ;;d@ 3 local:", &err),
            &err);
  assert_int_equal(l.count, 4);
  assert_entry(&l, 0, "here", "local", 1, "-");
  assert_entry(&l, 1, "b", "exec", 2, "lo");
  assert_string_equal(l.item[1].host.target, "ssh b agent");
  assert_entry(&l, 2, "c", "fake-a", 0, "10.1.2.3");
  assert_string_equal(l.item[2].host.target, "<n7 >"); // a command's end is its own
  assert_entry(&l, 3, "d", "local", 3, "-");
  manta__engine_hosts_fini(&l);
  manta__engine_hosts_fini(&l);
}

static void text_is_wrong(const char *text, const char *why)
{
  struct manta__host_list l;
  manta_error err = MANTA_ERROR_INIT;
  setenv("MANTA_HOSTS", text, 1);
  assert_status(manta__engine_hosts_find(&l, NULL, 0, false, &err), MANTA_EINVAL);
  assert_has(err.message, why);
  assert_int_equal(l.count, 0);
  assert_null(l.item);
}

static void a_wrong_text_says_where(void **state)
{
  static const char number[] = "is not followed by a number of workers";
  text_is_wrong("a", number);
  text_is_wrong("a two", "MANTA_HOSTS: \"a\" is not followed by a number of workers\nhint: NAME");
  text_is_wrong("a 1; b 2x", "MANTA_HOSTS: \"b\"");
  text_is_wrong("a -1", number);
  text_is_wrong("a 4097", number);
  text_is_wrong("a 99999999999999999999", number);
  text_is_wrong(" ;\n;", "MANTA_HOSTS names no host");
  text_is_wrong("a 1; b 2 slurm:4", "hosts[1].command: there is no engine \"slurm\"");
  text_is_wrong("a 1; b 2 fake-a:bad", "hosts[1].command: \"bad\" is no node");
  char many[2 * 2048] = "";
  for (int i = 0; i <= MANTA_MAX_HOSTS; i++)
    snprintf(many + strlen(many), sizeof many - strlen(many), "h%d 1;", i);
  text_is_wrong(many, "257 hosts, at most 256");
}

static void given_is_wrong(manta_host h, const char *why)
{
  struct manta__host_list l;
  manta_error err = MANTA_ERROR_INIT;
  manta_host two[] = {{.name = "a"}, h};
  assert_status(manta__engine_hosts_find(&l, two, 2, false, &err), MANTA_EINVAL);
  assert_has(err.message, why);
}

static void a_wrong_host_is_named_by_its_number(void **state)
{
  given_is_wrong((manta_host){.slots = -1}, "hosts[1].slots must be 0 to 4096, not -1");
  given_is_wrong((manta_host){.slots = 5000}, "hosts[1].slots");
  given_is_wrong((manta_host){.name = "b", .command = " \t"}, "hosts[1].command is empty");
  given_is_wrong((manta_host){.command = "ssh b"}, "hosts[1] has a command and no name");
  given_is_wrong((manta_host){.name = " ", .command = "ssh b"}, "has a command and no name");
  given_is_wrong((manta_host){.name = "b", .command = "x:"}, "hosts[1].command: there is no");
  struct manta__host_list l;
  manta_error err = MANTA_ERROR_INIT;
  static manta_host many[MANTA_MAX_HOSTS + 1];
  assert_status(manta__engine_hosts_find(&l, many, MANTA_MAX_HOSTS + 1, false, &err), MANTA_EINVAL);
  assert_string_equal(err.message, "257 hosts, at most 256");
  manta_host named = {.command = "fake2:n4"}; // its engine has a name for it
  assert_ok(manta__engine_hosts_find(&l, &named, 1, false, &err), &err);
  assert_entry(&l, 0, "n4", "fake2", 0, "-");
  manta__engine_hosts_fini(&l);
}

// Argument, environment, what an engine finds, this host: the first that says anything counts.
static void hosts_come_from_the_nearest_word(void **state)
{
  struct manta__host_list l;
  manta_error err = MANTA_ERROR_INIT;
  manta_host given = {.name = "given", .slots = 5, .address = "eth0"};
  found[0] = "n1";
  found[1] = "n2";
  setenv("MANTA_HOSTS", "e 1; f 2", 1);
  assert_ok(manta__engine_hosts_find(&l, &given, 1, true, &err), &err);
  assert_int_equal(l.count, 1);
  assert_entry(&l, 0, "given", "local", 5, "eth0");
  manta__engine_hosts_fini(&l);
  assert_ok(manta__engine_hosts_find(&l, NULL, 0, false, &err), &err);
  assert_int_equal(l.count, 2);
  assert_entry(&l, 1, "f", "local", 2, "-");
  manta__engine_hosts_fini(&l);
  assert_ok(manta__engine_hosts_find(&l, NULL, 0, true, &err), &err);
  assert_int_equal(l.count, 1);
  assert_entry(&l, 0, "", "local", 0, "-");
  manta__engine_hosts_fini(&l);
  setenv("MANTA_HOSTS", "", 1);
  assert_ok(manta__engine_hosts_find(&l, NULL, 0, false, &err), &err);
  assert_int_equal(l.count, 2);
  assert_entry(&l, 1, "n2", "fake-a", 2, "-");
  manta__engine_hosts_fini(&l);
  found[0] = NULL;
  assert_ok(manta__engine_hosts_find(&l, NULL, 0, false, &err), &err);
  assert_entry(&l, 0, "", "local", 0, "-");
  manta__engine_hosts_fini(&l);
  find_with = MANTA_EIO;
  assert_status(manta__engine_hosts_find(&l, NULL, 0, false, &err), MANTA_EIO);
  assert_has(err.message, "the scheduler does not answer");
}

static void lists_survive_any_oom(void **state)
{
  struct manta__host_list l;
  setenv("MANTA_HOSTS", "a@lo 1; b 2 fake-a:x", 1);
  FOR_EACH_OOM(manta__engine_hosts_find(&l, NULL, 0, false, NULL), manta__engine_hosts_fini(&l));
}

// --- starting and ending -------------------------------------------------------------------------

#define MANY 6

static void each_engine_starts_all_its_hosts_at_once(void **state)
{
  static const struct {
    const char *name, *text;
  } want[MANY] = {{"a", "fake-a:"}, {"b", "fake2:"},  {"cx", "fake-a:"},
                  {"d", "fake-a:"}, {"ex", "fake2:"}, {"f", "fake-a:"}};
  struct manta__engine_host h[MANY] = {0};
  struct manta__engine_start s[MANY] = {0}, *todo[MANY];
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < MANY; i++) {
    assert_ok(manta__engine_describe(&h[i], want[i].name, want[i].text, &err), &err);
    s[i].host = &h[i];
    todo[i] = &s[i];
  }
  manta__engine_start_many(todo, MANY);
  assert_true(calls[0] == 1 && calls[1] == 1);
  assert_true(asked[0] == 4 && asked[1] == 2);
  for (int i = 0; i < MANY; i++) { // every one came out as itself
    bool fails = strchr(want[i].name, 'x');
    assert_ptr_equal(s[i].host, &h[i]);
    assert_int_equal(s[i].why.status, fails ? MANTA_EAGENT : MANTA_OK);
    if (fails)
      assert_true(strstr(s[i].why.message, want[i].name) && s[i].pid == 0);
    else
      assert_int_equal(s[i].pid / 1000, h[i].engine == &fake_a ? 1 : 2);
    manta__engine_host_fini(&h[i]);
  }
  manta__engine_start_many(NULL, 0);
  assert_int_equal(calls[0], 1);
}

static struct manta__engine_start started(const struct manta__engine_host *h)
{
  struct manta__engine_start s = {.host = h}, *one = &s;
  manta__engine_start_many(&one, 1);
  return s;
}

static void an_agent_ends_with_its_socket(void **state)
{
  struct manta__engine_start s = started(manta__engine_here());
  assert_ok(s.why.status, &s.why);
  assert_int_equal(waitpid(s.pid, NULL, WNOHANG), 0);
  close(s.sock);
  assert_int_equal(manta__engine_local.end(s.pid, false), 0);
  assert_int_equal(waitpid(s.pid, NULL, WNOHANG), -1); // it was waited for
}

static void an_agent_is_ended_at_once(void **state)
{
  struct manta__engine_start s = started(manta__engine_here());
  assert_ok(s.why.status, &s.why);
  int status = manta__engine_local.end(s.pid, true);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  close(s.sock);
  assert_int_equal(manta__engine_local.end(s.pid, true), -1);
  assert_int_equal(manta__engine_local.end(0, true), -1);
}

static void a_command_that_is_not_there_is_told(void **state)
{
  char *was = strdup(getenv("MANTA_BIN"));
  setenv("MANTA_BIN", "/nowhere/manta", 1);
  struct manta__engine_start s = started(manta__engine_here());
  if (s.why.status == MANTA_OK) { // where a spawn cannot tell, the end does
    close(s.sock);
    assert_int_not_equal(manta__engine_local.end(s.pid, false), 0);
  } else {
    assert_has(s.why.message, "/nowhere/manta");
  }
  setenv("MANTA_BIN", was, 1);
  free(was);
}

// --- roles ---------------------------------------------------------------------------------------

static void roles_are_known_by_name(void **state)
{
  static const char *const names[] = {"agent",    "bridge", "writer", "reader", "sink",
                                      "uploader", "zygote", "worker", "caller"};
  static_assert(sizeof names / sizeof *names == MANTA__ROLE_COUNT, "all of them");
  for (int r = 0; r < MANTA__ROLE_COUNT; r++) {
    char env[64];
    snprintf(env, sizeof env, "MANTA_ROLE=%s", names[r]);
    assert_string_equal(manta__role_env((enum manta__role)r), env);
    assert_int_equal(manta__role_named(names[r]), r);
  }
  static const char *const none[] = {"", "agen", "agents", "Agent", "=agent", "MANTA_ROLE=agent"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    assert_int_equal(manta__role_named(none[i]), MANTA__ROLE_COUNT);
}

// In a child: what is its parent's stays so.
static void a_role_keeps_its_descriptors_to_itself(void **state)
{
  pid_t pid = fork();
  if (pid == 0) {
    int bad = setenv(MANTA__ROLE_ENV, "writer", 1);
    for (int fd = 3; fd < 6; fd++)
      bad |= dup2(STDOUT_FILENO, fd) != fd;
    manta__role_enter(MANTA__ROLE_WRITER);
    bad |= getenv(MANTA__ROLE_ENV) != NULL;
    bad |= fcntl(3, F_GETFD) != FD_CLOEXEC || fcntl(4, F_GETFD) != FD_CLOEXEC;
    bad |= fcntl(5, F_GETFD) != 0; // it is handed two
    _exit(bad);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

#define TEST(f) cmocka_unit_test_setup(f, forget)

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      TEST(engines_are_found_by_name),
      TEST(a_name_is_one_engine),
      TEST(the_text_says_which_engine),
      TEST(a_colon_in_a_command_names_no_engine),
      TEST(what_no_engine_takes_is_refused),
      TEST(describing_survives_any_oom),
      TEST(a_host_is_known_by_name_and_way),
      TEST(hosts_are_read_from_a_text),
      TEST(a_wrong_text_says_where),
      TEST(a_wrong_host_is_named_by_its_number),
      TEST(hosts_come_from_the_nearest_word),
      TEST(lists_survive_any_oom),
      TEST(each_engine_starts_all_its_hosts_at_once),
      TEST(an_agent_ends_with_its_socket),
      TEST(an_agent_is_ended_at_once),
      TEST(a_command_that_is_not_there_is_told),
      TEST(roles_are_known_by_name),
      TEST(a_role_keeps_its_descriptors_to_itself),
      TEST(engines_are_limited),
  };
  if (manta__engine_add(&fake_a, NULL) < 0 || manta__engine_add(&fake_b, NULL) < 0)
    return 1;
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
