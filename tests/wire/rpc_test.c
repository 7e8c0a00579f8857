/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests: one callback each, whatever comes first: the reply, the deadline or the end.
 */
#include "pair.h"
#include "wire/rpc.h"

/* What a call's callback saw. */
struct seen {
  int times;
  manta_status st;
  int64_t answer;
  struct bed *again; /* makes a new call from inside the callback */
};

struct bed {
  struct pair p;
  struct manta__rpc rpc;
  struct seen more;
  int64_t more_by;
};

static void on_reply(void *ctx, manta_status st, struct manta__msg *reply);

static manta_status call(struct bed *b, int64_t number, int64_t by, struct seen *s)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = manta_value_int(number);
  struct manta__msg m = {.kind = 5, .group = 2};
  return manta__rpc_call(&b->rpc, b->p.a, &m, &v, by, on_reply, s, &err);
}

static void on_reply(void *ctx, manta_status st, struct manta__msg *reply)
{
  struct seen *s = ctx;
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  s->times++;
  s->st = st;
  assert_int_equal(reply != NULL, st == MANTA_OK);
  if (reply) {
    assert_ok(manta__msg_value(reply, &v, &err), &err);
    s->answer = manta_value_as_int(&v, -1);
  }
  if (s->again)
    assert_status(call(s->again, 1, s->again->more_by, &s->again->more), MANTA_OK);
}

static void reply_to(struct bed *b, const struct manta__msg *request, manta_value v)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = request->kind, .flags = MANTA__FRAME_REPLY, .call = request->call};
  assert_ok(manta__conn_send_value(b->p.b, &m, &v, &err), &err);
}

/* The other end answers the next request with its number + 1000 (or nil), or keeps it for later. */
static struct manta__msg serve(struct bed *b, bool answer)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m;
  manta_value v = {0};
  assert_int_equal(manta__conn_wait(b->p.b, manta__deadline(10), &m, &err), 1);
  assert_int_equal(m.kind, 5);
  assert_ok(manta__msg_value(&m, &v, &err), &err);
  if (answer)
    reply_to(b, &m, manta_value_int(manta_value_as_int(&v, 0) + 1000));
  return m;
}

/* Takes all that came; how many replies were among it. */
static int take_all(struct bed *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m;
  int n = 0;
  while (manta__conn_recv(b->p.a, &m, &err) == 1) {
    n += manta__rpc_take(&b->rpc, &m);
    manta__msg_close(&m);
  }
  return n;
}

static void bed_open(struct bed *b)
{
  *b = (struct bed){.more_by = MANTA__NEVER};
  pair_open(&b->p);
}

static void bed_close(struct bed *b)
{
  manta__rpc_fini(&b->rpc);
  manta__rpc_fini(&b->rpc);
  pair_close(&b->p);
}

static void a_reply_finds_its_call(void **ctx)
{
  struct bed b;
  struct seen s[3] = {{0}};
  struct manta__msg req[3];
  bed_open(&b);
  for (int i = 0; i < 3; i++)
    assert_status(call(&b, i, MANTA__NEVER, &s[i]), MANTA_OK);
  for (int i = 0; i < 3; i++)
    req[i] = serve(&b, false);
  assert_int_equal(s[0].times + s[1].times + s[2].times, 0);
  for (int i = 2; i >= 0; i--) // in another order
    reply_to(&b, &req[i], manta_value_int(10 + i));
  assert_int_equal(take_all(&b), 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(s[i].times, 1);
    assert_int_equal(s[i].answer, 10 + i);
  }
  assert_true(manta__rpc_expire(&b.rpc, INT64_MAX - 1) == MANTA__NEVER);
  manta__rpc_abandon(&b.rpc, MANTA_ECLOSED);
  assert_int_equal(s[0].times, 1);
  bed_close(&b);
}

static void a_reply_may_be_empty(void **ctx)
{
  struct bed b;
  struct seen s = {0};
  bed_open(&b);
  assert_status(call(&b, 1, MANTA__NEVER, &s), MANTA_OK);
  struct manta__msg req = serve(&b, false);
  reply_to(&b, &req, (manta_value){0});
  assert_int_equal(take_all(&b), 1);
  assert_int_equal(s.times, 1);
  assert_int_equal(s.answer, -1);
  bed_close(&b);
}

static void a_deadline_ends_a_call_and_its_late_reply_is_dropped(void **ctx)
{
  struct bed b;
  struct seen s[2] = {{0}};
  bed_open(&b);
  assert_status(call(&b, 1, 1000, &s[0]), MANTA_OK);
  assert_status(call(&b, 2, 3000, &s[1]), MANTA_OK);
  assert_int_equal(manta__rpc_expire(&b.rpc, 999), 1000);
  assert_int_equal(manta__rpc_expire(&b.rpc, 1000), 3000);
  assert_int_equal(s[0].times, 1);
  assert_status(s[0].st, MANTA_ETIMEDOUT);
  serve(&b, true);
  serve(&b, true);
  assert_int_equal(take_all(&b), 2); // both are replies; one finds nobody
  assert_int_equal(s[0].times, 1);
  assert_int_equal(s[1].times, 1);
  assert_int_equal(s[1].answer, 1002);
  bed_close(&b);
}

static void a_call_made_by_a_callback_has_its_deadline_heard(void **ctx)
{
  struct bed b;
  struct seen first = {0}, second = {.again = &b};
  bed_open(&b);
  // The new call takes the place of the first, which expire has already passed by.
  assert_status(call(&b, 1, 10, &first), MANTA_OK);
  assert_status(call(&b, 2, 20, &second), MANTA_OK);
  b.more_by = 50;
  assert_int_equal(manta__rpc_expire(&b.rpc, 30), 50);
  assert_int_equal(first.times + second.times, 2);
  assert_int_equal(b.more.times, 0);
  assert_true(manta__rpc_expire(&b.rpc, 60) == MANTA__NEVER);
  assert_int_equal(b.more.times, 1);
  bed_close(&b);
}

static void abandoned_calls_end_once(void **ctx)
{
  struct bed b;
  static struct seen s[MANTA__RPC_PENDING + 1];
  memset(s, 0, sizeof s);
  bed_open(&b);
  for (int i = 0; i < MANTA__RPC_PENDING; i++) { // as many as there may be
    assert_status(call(&b, i, MANTA__NEVER, &s[i]), MANTA_OK);
    serve(&b, i == 0);
  }
  assert_status(call(&b, 0, MANTA__NEVER, &s[MANTA__RPC_PENDING]), MANTA_ETOOBIG);
  assert_int_equal(take_all(&b), 1);
  manta__rpc_abandon(&b.rpc, MANTA_ECLOSED);
  manta__rpc_abandon(&b.rpc, MANTA_ECLOSED);
  for (int i = 0; i < MANTA__RPC_PENDING; i++) {
    assert_int_equal(s[i].times, 1);
    assert_status(s[i].st, i == 0 ? MANTA_OK : MANTA_ECLOSED);
  }
  assert_int_equal(s[MANTA__RPC_PENDING].times, 0);
  bed_close(&b);
}

static void forgotten_calls_never_end(void **ctx)
{
  struct bed b;
  struct seen kept = {0}, gone = {0};
  bed_open(&b);
  assert_status(call(&b, 1, 10, &gone), MANTA_OK);
  assert_status(call(&b, 2, 20, &kept), MANTA_OK);
  assert_status(call(&b, 3, 30, &gone), MANTA_OK);
  manta__rpc_forget(&b.rpc, &gone);
  for (int i = 0; i < 3; i++)
    serve(&b, true);
  assert_int_equal(take_all(&b), 3);
  manta__rpc_expire(&b.rpc, 100);
  manta__rpc_abandon(&b.rpc, MANTA_ECLOSED);
  assert_int_equal(gone.times, 0);
  assert_int_equal(kept.times, 1);
  assert_int_equal(kept.answer, 1002);
  bed_close(&b);
}

static void a_call_that_fails_has_no_callback(void **ctx)
{
  struct bed b;
  struct seen s = {0};
  bed_open(&b);
  long n = 0;
  for (;; n++) {
    manta__alloc_fail_after(n);
    manta_status st = call(&b, 1, 10, &s);
    manta__alloc_fail_after(-1);
    if (st == MANTA_OK)
      break;
    assert_status(st, MANTA_ENOMEM);
    assert_true(manta__rpc_expire(&b.rpc, 100) == MANTA__NEVER);
    assert_int_equal(s.times, 0);
  }
  assert_true(n > 0);
  manta__rpc_forget(&b.rpc, &s);
  manta__conn_destroy(b.p.b);
  b.p.b = NULL;
  assert_status(call(&b, 1, 10, &s), MANTA_ECLOSED);
  manta__rpc_abandon(&b.rpc, MANTA_ECLOSED);
  assert_int_equal(s.times, 0);
  bed_close(&b);
}

static void what_is_no_reply_is_left_to_others(void **ctx)
{
  struct bed b;
  struct seen s = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg in, out = {.kind = 5, .call = 1};
  bed_open(&b);
  assert_status(call(&b, 1, 10, &s), MANTA_OK);
  assert_ok(manta__conn_send(b.p.b, &out, &err), &err); // a request with the same number
  assert_int_equal(manta__conn_wait(b.p.a, manta__deadline(10), &in, &err), 1);
  assert_false(manta__rpc_take(&b.rpc, &in));
  assert_int_equal(s.times, 0);
  out.flags = MANTA__FRAME_REPLY;
  out.call = 0; // a reply to nothing must not meet a free place
  assert_ok(manta__conn_send(b.p.b, &out, &err), &err);
  assert_int_equal(take_all(&b), 1);
  assert_int_equal(s.times, 0);
  bed_close(&b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_reply_finds_its_call),
      cmocka_unit_test(a_reply_may_be_empty),
      cmocka_unit_test(a_deadline_ends_a_call_and_its_late_reply_is_dropped),
      cmocka_unit_test(a_call_made_by_a_callback_has_its_deadline_heard),
      cmocka_unit_test(abandoned_calls_end_once),
      cmocka_unit_test(forgotten_calls_never_end),
      cmocka_unit_test(a_call_that_fails_has_no_callback),
      cmocka_unit_test(what_is_no_reply_is_left_to_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
