/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol's table: what is packed by it can be unpacked, what does not fit it is refused, and
 * a build that checks notices whoever breaks it.
 */
#include "group/proto.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/sock.h"
#include "test.h"

// --- kinds ---------------------------------------------------------------------------------------

static void every_kind_has_one_row(void **ctx)
{
  int rows[MANTA__M_KINDS] = {0}, kinds = 0, named = 0;
#define NONE(kind, ...)   rows[MANTA__M_##kind]++, kinds++;
#define BYTES(kind, ...)  rows[MANTA__M_##kind]++, kinds++;
#define FIXED(kind, ...)  rows[MANTA__M_##kind]++, kinds++;
#define HEADED(kind, ...) rows[MANTA__M_##kind]++, kinds++;
#define MAP(kind, ...)    rows[MANTA__M_##kind]++, kinds++;
#include "group/proto.def"
  for (int k = 0; k < MANTA__M_KINDS; k++) {
    assert_true(rows[k] <= 1);
    assert_int_equal(strcmp(manta__proto_name((uint16_t)k), "?") != 0, rows[k]);
    named += rows[k];
  }
  assert_int_equal(named, kinds);
  assert_int_equal(rows[MANTA__M_KINDS - 1], 1);
  assert_string_equal(manta__proto_name(MANTA__M_ATTEMPT), "ATTEMPT");
  assert_string_equal(manta__proto_name(MANTA__M_KINDS), "?");
}

// --- every map, there and back -------------------------------------------------------------------

static manta_value strings = {.type = MANTA_LIST, .count = 2};
static manta_value numbers = {.type = MANTA_LIST, .count = 2};
static manta_value mixed = {.type = MANTA_LIST, .count = 2};
static manta_value table = {.type = MANTA_MAP, .count = 1};

static int make_samples(void **ctx)
{
  static manta_value s[2], n[2], m[2];
  static manta_pair p[1];
  for (int i = 0; i < 2; i++) {
    s[i] = manta_value_borrow_string(i ? "" : "first");
    n[i] = manta_value_int(i ? INT64_MIN : 7);
    m[i] = i ? manta_value_real(0.5) : manta_value_borrow_string("text");
  }
  p[0] = MANTA_KV_REAL("licences", 2.0);
  strings.u.items = s;
  numbers.u.items = n;
  mixed.u.items = m;
  table.u.pairs = p;
  return 0;
}

#define SAMPLE_I32  INT32_MIN
#define SAMPLE_I64  INT64_MIN
#define SAMPLE_U64  UINT64_MAX
#define SAMPLE_REAL -0.25
#define SAMPLE_BOOL true
#define SAMPLE_STR  "some text"
#define SAMPLE_STRS &strings
#define SAMPLE_INTS &numbers
#define SAMPLE_LIST &mixed
#define SAMPLE_DICT &table
#define SAMPLE_ANY  &mixed

// clang-format off
#define MAP(kind, number, ways, call, fds, name) PART(name)
#define REPLY(kind, name)                        PART(name)
#define PART(name)      static void fill_##name(struct manta__##name *s) {
#define KEY(type, key)    s->key = SAMPLE_##type;
#define OPT(type, key)    s->key = SAMPLE_##type;
#define SUB(part, key)    fill_##part(&s->key);
#define END             }
#include "group/proto.def"

#define SAME_I32(a, b)  ((a) == (b))
#define SAME_I64(a, b)  ((a) == (b))
#define SAME_U64(a, b)  ((a) == (b))
#define SAME_REAL(a, b) ((a) == (b))
#define SAME_BOOL(a, b) ((a) == (b))
#define SAME_STR(a, b)  ((a) && (b) ? !strcmp(a, b) : (a) == (b))
#define SAME_STRS(a, b) ((a) && (b) ? manta_value_equal(a, b) : (a) == (b))
#define SAME_INTS(a, b) SAME_STRS(a, b)
#define SAME_LIST(a, b) SAME_STRS(a, b)
#define SAME_DICT(a, b) SAME_STRS(a, b)
#define SAME_ANY(a, b)  SAME_STRS(a, b)

#define MAP(kind, number, ways, call, fds, name) PART(name)
#define REPLY(kind, name)                        PART(name)
#define PART(name)      static bool same_##name(const struct manta__##name *a, \
                                                const struct manta__##name *b) { return
#define KEY(type, key)    SAME_##type(a->key, b->key) &&
#define OPT(type, key)    SAME_##type(a->key, b->key) &&
#define SUB(part, key)    same_##part(&a->key, &b->key) &&
#define END             true; }
#include "group/proto.def"
// clang-format on

// The message that v makes; its data are to be freed.
static struct manta__msg message(uint16_t kind, bool reply, const manta_value *v)
{
  struct manta__msg m = {.kind = kind, .flags = reply ? MANTA__FRAME_REPLY : 0};
  void *bytes;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_pack(v, &bytes, &m.len, &err), &err);
  m.data = bytes;
  return m;
}

static void drop(struct manta__msg *m)
{
  manta_free((void *)(uintptr_t)m->data);
}

#define THERE_AND_BACK(which, name, reply)                                                         \
  {                                                                                                \
    struct manta__##name in = {0}, out;                                                            \
    manta_value hold = {0};                                                                        \
    manta_pair pairs[MANTA__PROTO_PAIRS];                                                          \
    manta_error err = MANTA_ERROR_INIT;                                                            \
    fill_##name(&in);                                                                              \
    manta_value v = manta__##name##_map(pairs, &in);                                               \
    struct manta__msg m = message(which, reply, &v);                                               \
    memset(&out, 0x55, sizeof out);                                                                \
    assert_ok(manta__##name##_unpack(&m, &hold, &out, &err), &err);                                \
    assert_true(same_##name(&in, &out));                                                           \
    manta_value_fini(&hold);                                                                       \
    m.kind++;                                                                                      \
    assert_status(manta__##name##_unpack(&m, &hold, &out, &err), MANTA_EPROTO);                    \
    drop(&m);                                                                                      \
    maps++;                                                                                        \
  }

static void every_message_comes_back_as_it_went(void **ctx)
{
  int maps = 0, parts = 0;
#define MAP(kind, number, ways, call, fds, name) THERE_AND_BACK(MANTA__M_##kind, name, false)
#define REPLY(kind, name)                        THERE_AND_BACK(MANTA__M_##kind, name, true)
#define PART(name)                               parts++;
#include "group/proto.def"
  assert_int_equal(maps + parts, MANTA__MAPS);
}

static void parts_are_read_alone(void **ctx)
{
#define PART(name)                                                                                 \
  {                                                                                                \
    struct manta__##name in = {0}, out;                                                            \
    manta_pair pairs[MANTA__PROTO_PAIRS];                                                          \
    manta_error err = MANTA_ERROR_INIT;                                                            \
    fill_##name(&in);                                                                              \
    manta_value v = manta__##name##_map(pairs, &in);                                               \
    assert_ok(manta__proto_read(MANTA__MAP_##name, &v, &out, &err), &err);                         \
    assert_true(same_##name(&in, &out));                                                           \
  }
#include "group/proto.def"
}

static void what_is_0_is_not_sent(void **ctx)
{
  struct manta__formed_msg out;
  manta_value hold = {0}, v = MANTA__PACK(formed_msg, .world = 0);
  manta_error err = MANTA_ERROR_INIT;
  assert_int_equal(v.count, 1); // required, whatever it is
  struct manta__msg m = message(MANTA__M_FORMED, false, &v);
  memset(&out, 0x55, sizeof out);
  assert_ok(manta__formed_msg_unpack(&m, &hold, &out, &err), &err);
  assert_true(out.world == 0 && out.gpus == 0 && !out.wids && !out.ready);
  manta_value_fini(&hold);
  drop(&m);
}

// --- an ATTEMPT that does not fit ----------------------------------------------------------------

static void refuse(const manta_value *v, const char *why)
{
  struct manta__attempt_msg out;
  struct manta__msg m = message(MANTA__M_ATTEMPT, false, v);
  manta_value hold = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__attempt_msg_unpack(&m, &hold, &out, &err), MANTA_EPROTO);
  assert_string_equal(err.message, why);
  assert_int_equal(hold.type, MANTA_NIL);
  drop(&m);
}

static manta_value attempt(manta_value *copy)
{
  struct manta__attempt_msg in = {0};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  fill_attempt_msg(&in);
  manta_value v = manta__attempt_msg_map(pairs, &in);
  assert_int_equal(manta_value_copy(copy, &v), MANTA_OK);
  return *copy;
}

// Puts `item` in the place of a key, also inside `order`.
static void with(bool inside, const char *key, manta_value item, const char *why)
{
  manta_value v = {0}, order = {0};
  attempt(&v);
  if (inside) {
    assert_int_equal(manta_value_copy(&order, manta_value_get(&v, "order")), MANTA_OK);
    assert_int_equal(manta_value_put(&order, key, &item), MANTA_OK);
    assert_int_equal(manta_value_put(&v, "order", &order), MANTA_OK);
  } else {
    assert_int_equal(manta_value_put(&v, key, &item), MANTA_OK);
  }
  refuse(&v, why);
  manta_value_fini(&v);
}

static void keys_of_other_types_are_refused(void **ctx)
{
  manta_value text = manta_value_borrow_string("1"), nil = {0};
  with(false, "planned", text, "ATTEMPT: key \"planned\" is not an integer of 32 bits");
  with(false, "planned", nil, "ATTEMPT: key \"planned\" is not an integer of 32 bits");
  with(false, "planned", manta_value_int(1ll << 31),
       "ATTEMPT: key \"planned\" is not an integer of 32 bits");
  with(false, "step_timeout", manta_value_int(1), "ATTEMPT: key \"step_timeout\" is not a real");
  with(false, "given", manta_value_int(1), "ATTEMPT: key \"given\" is not a bool");
  with(false, "wids", strings, "ATTEMPT: key \"wids\" is not a list of integers");
  with(false, "hosts", numbers, "ATTEMPT: key \"hosts\" is not a list of strings");
  with(false, "order", numbers, "ATTEMPT: key \"order\" is not a map");
  with(true, "key", manta_value_real(1), "ATTEMPT: key \"key\" is not an integer");
  with(true, "name", manta_value_int(1), "ATTEMPT: key \"name\" is not a string");
  with(true, "resources", mixed, "ATTEMPT: key \"resources\" is not a map");
}

static void unknown_keys_are_refused(void **ctx)
{
  with(false, "palnned", manta_value_int(1), "ATTEMPT: key \"palnned\" is not in the table");
  with(true, "step_timeout", manta_value_real(1),
       "ATTEMPT: key \"step_timeout\" is not in the table");
}

static void missing_keys_are_refused(void **ctx)
{
  manta_value v = {0};
  attempt(&v);
  for (uint32_t i = 0; i < v.count; i++) { // one after the other
    manta_pair all[MANTA__PROTO_PAIRS];
    manta_value fewer = {.type = MANTA_MAP, .count = v.count - 1, .u.pairs = all};
    memcpy(all, v.u.pairs, sizeof *all * v.count);
    const char *gone = all[i].key;
    all[i] = all[v.count - 1];
    char why[100];
    snprintf(why, sizeof why, "ATTEMPT: key \"%s\" is missing", gone);
    static const char *const optional[] = {"stored", "wids",  "world",     "first",
                                           "node",   "hosts", "addresses", "firsts"};
    bool needed = true;
    for (size_t k = 0; k < sizeof optional / sizeof *optional; k++)
      needed &= strcmp(gone, optional[k]) != 0;
    if (needed)
      refuse(&fewer, why);
  }
  manta_value_fini(&v);
  manta_value nothing = {0};
  refuse(&nothing, "ATTEMPT: key \"order\" is missing");
  refuse(&numbers, "ATTEMPT: key \"order\" is missing");
}

static void a_key_that_comes_twice_is_refused(void **ctx)
{
  manta_value v = {0};
  manta_pair twice[MANTA__PROTO_PAIRS];
  attempt(&v);
  memcpy(twice, v.u.pairs, sizeof *twice * v.count);
  twice[v.count] = MANTA_KV_INT("planned", 5);
  manta_value two = {.type = MANTA_MAP, .count = v.count + 1, .u.pairs = twice};
  refuse(&two, "ATTEMPT: key \"planned\" comes twice");
  manta_value_fini(&v);
}

// Library and command, and two agents, may be of different versions.
static void some_messages_may_have_more_keys(void **ctx)
{
  struct manta__ask_msg out;
  manta_value hold = {0};
  manta_value v = MANTA_MAP(MANTA_KV_STR("what", "ps"), MANTA_KV_INT("verbosely", 1));
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = message(MANTA__M_ASK, false, &v);
  assert_ok(manta__ask_msg_unpack(&m, &hold, &out, &err), &err);
  assert_string_equal(out.what, "ps");
  manta_value_fini(&hold);
  drop(&m);
}

static void starving_is_told(void **ctx)
{
  struct manta__warn_msg out;
  manta_value hold = {0}, v = MANTA__PACK(warn_msg, .text = "some text that needs memory");
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = message(MANTA__M_WARN, false, &v);
  FOR_EACH_OOM(manta__warn_msg_unpack(&m, &hold, &out, &err), manta_value_fini(&hold));
  drop(&m);
}

// --- whole messages ------------------------------------------------------------------------------

static void expect(const struct manta__msg *m, enum manta__way way, const char *why)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = manta__proto_check(m, way, &err);
  if (!why)
    assert_ok(st, &err);
  else
    assert_status(st, MANTA_EPROTO);
  assert_string_equal(err.message, why ? why : "");
}

static void messages_go_their_way_only(void **ctx)
{
  struct manta__msg m = {.kind = MANTA__M_NOTICE};
  expect(&m, MANTA__DRIVER_TO_AGENT, NULL);
  expect(&m, MANTA__NEAR_TO_FAR, NULL);
  expect(&m, MANTA__AGENT_TO_DRIVER, "NOTICE does not go that way");
  expect(&m, MANTA__AGENT_TO_WORKER, "NOTICE does not go that way");
  m.kind = MANTA__M_CKPT;
  expect(&m, MANTA__DRIVER_TO_AGENT, "CKPT does not go that way");
  m.kind = 31;
  expect(&m, MANTA__DRIVER_TO_AGENT, "a message of kind 31 (?)");
  m.kind = 60000;
  expect(&m, MANTA__DRIVER_TO_AGENT, "a message of kind 60000 (?)");
}

static void replies_go_back(void **ctx)
{
  struct manta__msg m = {.kind = MANTA__M_DRAIN, .call = 4};
  expect(&m, MANTA__DRIVER_TO_AGENT, NULL);
  expect(&m, MANTA__AGENT_TO_DRIVER, "DRAIN does not go that way");
  m.flags = MANTA__FRAME_REPLY;
  expect(&m, MANTA__AGENT_TO_DRIVER, NULL);
  expect(&m, MANTA__DRIVER_TO_AGENT, "DRAIN does not go that way");
  m.call = 0;
  expect(&m, MANTA__AGENT_TO_DRIVER, "DRAIN with the call number 0");
  m.kind = MANTA__M_NOTICE;
  expect(&m, MANTA__AGENT_TO_DRIVER, "a reply of kind 8 (NOTICE)");
  manta_value v = MANTA__PACK(probe_reply, .room = 2);
  m = message(MANTA__M_PROBE, true, &v);
  m.call = 9;
  expect(&m, MANTA__FAR_TO_NEAR, NULL);
  m.flags = 0;
  expect(&m, MANTA__NEAR_TO_FAR, "PROBE: key \"room\" is not in the table");
  drop(&m);
}

static void numbers_descriptors_and_sizes_are_looked_at(void **ctx)
{
  struct manta__snap_msg s = {0};
  struct manta__msg m = {.kind = MANTA__M_SNAP, .data = &s, .len = sizeof s};
  expect(&m, MANTA__WORKER_TO_AGENT, NULL);
  m.fds = 2;
  expect(&m, MANTA__WORKER_TO_AGENT, "SNAP with 2 descriptors");
  m.fds = 0;
  m.call = 1;
  expect(&m, MANTA__WORKER_TO_AGENT, "SNAP with the call number 1");
  m.call = 0;
  m.len--;
  expect(&m, MANTA__WORKER_TO_AGENT, "SNAP with 47 bytes");
  m.kind = MANTA__M_ROWS;
  expect(&m, MANTA__FAR_TO_NEAR, NULL);
  m.len = sizeof(struct manta__rows_msg) - 1;
  expect(&m, MANTA__FAR_TO_NEAR, "ROWS with 23 bytes");
  m.kind = MANTA__M_OUTPUT;
  expect(&m, MANTA__AGENT_TO_DRIVER, "OUTPUT with the call number 0");
  m.call = MANTA__STDERR;
  expect(&m, MANTA__AGENT_TO_DRIVER, NULL);
  m = (struct manta__msg){.kind = MANTA__M_GO, .data = &s, .len = 1};
  expect(&m, MANTA__AGENT_TO_WORKER, "GO with 1 bytes");
}

// The last descriptor and eight bytes stand for a payload that was too large.
static void blobs_do_not_count_as_descriptors(void **ctx)
{
  uint64_t bytes = 100000;
  struct manta__msg m = {.kind = MANTA__M_GIVEN,
                         .flags = MANTA__FRAME_BLOB,
                         .call = 1,
                         .data = &bytes,
                         .len = sizeof bytes,
                         .fds = 1};
  expect(&m, MANTA__AGENT_TO_WORKER, NULL);
  m.kind = MANTA__M_AGREED; // eight bytes, but not these
  expect(&m, MANTA__AGENT_TO_WORKER, "AGREED with 100000 bytes in a blob");
}

// --- connections that are checked ----------------------------------------------------------------

struct ends {
  manta__conn *a, *b;
};

static struct ends connect_ends(enum manta__way way, bool a, bool b)
{
  struct ends e;
  int sock[2];
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__sock_pair(sock, &err), &err);
  assert_ok(manta__conn_create(&e.a, sock[0], a ? manta__proto_end(way) : NULL, &err), &err);
  assert_ok(manta__conn_create(&e.b, sock[1],
                               b ? manta__proto_end((enum manta__way)(way ^ 1)) : NULL, &err),
            &err);
  return e;
}

static void disconnect(struct ends *e)
{
  manta__conn_destroy(e->a);
  manta__conn_destroy(e->b);
}

// What the child says before it ends by a signal, which must be SIGABRT if `faulty`.
static void in_child(void (*act)(void), bool faulty, char *said, size_t size)
{
  int out[2], status;
  size_t n = 0;
  assert_int_equal(pipe(out), 0);
  fflush(stdout);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    signal(SIGABRT, SIG_DFL);
    dup2(out[1], STDERR_FILENO);
    act();
    _exit(0);
  }
  close(out[1]);
  for (ssize_t k; (k = read(out[0], said + n, size - 1 - n)) > 0;)
    n += (size_t)k;
  said[n] = 0;
  close(out[0]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (faulty)
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  else
    assert_int_equal(status, 0);
}

static void send_misspelt(void)
{
  struct ends e = connect_ends(MANTA__AGENT_TO_DRIVER, true, false);
  manta_value v = MANTA_MAP(MANTA_KV_INT("wdi", 4));
  manta__conn_send_value(e.a, &(struct manta__msg){.kind = MANTA__M_DYING}, &v, NULL);
}

static void receive_misspelt(void)
{
  struct ends e = connect_ends(MANTA__AGENT_TO_DRIVER, false, true);
  manta_value v = MANTA_MAP(MANTA_KV_INT("wdi", 4));
  struct manta__msg m;
  manta__conn_send_value(e.a, &(struct manta__msg){.kind = MANTA__M_DYING}, &v, NULL);
  manta__conn_recv(e.b, &m, NULL);
}

static void send_misspelt_reply(void)
{
  struct ends e = connect_ends(MANTA__AGENT_TO_COMMAND, true, false);
  struct manta__msg m = {.kind = MANTA__M_ASK, .flags = MANTA__FRAME_REPLY, .call = 1};
  manta_value v = MANTA_MAP(MANTA_KV_INT("agnet", 4));
  manta__conn_send_value(e.a, &m, &v, NULL);
}

static void send_well(void)
{
  struct ends e = connect_ends(MANTA__AGENT_TO_DRIVER, true, true);
  manta_value v = MANTA__PACK(dying_msg, .wid = 4);
  struct manta__msg m;
  if (manta__conn_send_value(e.a, &(struct manta__msg){.kind = MANTA__M_DYING}, &v, NULL) < 0 ||
      manta__conn_recv(e.b, &m, NULL) != 1)
    _exit(1);
}

static void our_own_mistakes_end_the_process(void **ctx)
{
  char said[1000];
  if (!MANTA__CHECKED)
    skip_because("this build does not check messages");
  in_child(send_well, false, said, sizeof said);
  assert_string_equal(said, "");
  in_child(send_misspelt, true, said, sizeof said);
  assert_has(said, "agent (src/agent) to driver, sent: DYING: key \"wdi\" is not in the table");
  in_child(receive_misspelt, true, said, sizeof said);
  assert_has(said, "agent (src/agent) to driver, received: DYING: key \"wdi\" is not in");
  in_child(send_misspelt_reply, true, said, sizeof said);
  assert_has(said, "agent (src/agent) to command, sent: reply to ASK: key \"agent\" is missing");
}

static void mistakes_from_outside_break_the_connection(void **ctx)
{
  static const enum manta__way ways[] = {MANTA__NEAR_TO_FAR, MANTA__FAR_TO_NEAR,
                                         MANTA__COMMAND_TO_AGENT};
  manta_value v = MANTA_MAP(MANTA_KV_INT("wdi", 4));
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  if (!MANTA__CHECKED)
    skip_because("this build does not check messages");
  for (int i = 0; i < 3; i++) {
    struct ends e = connect_ends(ways[i], false, true);
    struct manta__msg out = {.kind = (uint16_t)(i == 0   ? MANTA__M_KILL
                                                : i == 1 ? MANTA__M_DYING
                                                         : MANTA__M_ASK),
                             .call = i == 2};
    assert_ok(manta__conn_send_value(e.a, &out, &v, &err), &err);
    assert_status(manta__conn_recv(e.b, &m, &err), MANTA_EPROTO);
    assert_has(err.message, manta__proto_name(out.kind));
    disconnect(&e);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_has_one_row),
      cmocka_unit_test(every_message_comes_back_as_it_went),
      cmocka_unit_test(parts_are_read_alone),
      cmocka_unit_test(what_is_0_is_not_sent),
      cmocka_unit_test(keys_of_other_types_are_refused),
      cmocka_unit_test(unknown_keys_are_refused),
      cmocka_unit_test(missing_keys_are_refused),
      cmocka_unit_test(a_key_that_comes_twice_is_refused),
      cmocka_unit_test(some_messages_may_have_more_keys),
      cmocka_unit_test(starving_is_told),
      cmocka_unit_test(messages_go_their_way_only),
      cmocka_unit_test(replies_go_back),
      cmocka_unit_test(numbers_descriptors_and_sizes_are_looked_at),
      cmocka_unit_test(blobs_do_not_count_as_descriptors),
      cmocka_unit_test(our_own_mistakes_end_the_process),
      cmocka_unit_test(mistakes_from_outside_break_the_connection),
  };
  return cmocka_run_group_tests(tests, make_samples, NULL);
}
