/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/loop.c - connections and timers on the agent's loop.
 */
#include <stdarg.h>
#include <stdio.h>

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/log.h"

// --- connections ---------------------------------------------------------------------------------

static void link_events(struct manta__loop_conn *l);

static void link_free(uv_handle_t *h)
{
  struct manta__loop_conn *l = h->data;
  manta__conn_destroy(l->conn);
  manta__free(l);
}

void manta__agent_disconnect(struct manta__loop_conn *l)
{
  if (!l || l->closing)
    return;
  l->closing = true;
  uv_close((uv_handle_t *)&l->poll, link_free);
}

static void link_read(struct manta__loop_conn *l)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int rc = 0;
  while (!l->closing && (rc = manta__conn_recv(l->conn, &m, &err)) == 1) {
    l->on_msg(l, &m);
    manta__msg_close(&m);
  }
  if (rc < 0 && !l->closing) {
    if (rc != MANTA_ECLOSED)
      manta__warn("agent: %s", err.message);
    manta__agent_disconnect(l);
    l->on_end(l);
  }
}

static void on_link(uv_poll_t *h, int status, int events)
{
  struct manta__loop_conn *l = h->data;
  manta_error err = MANTA_ERROR_INIT;
  if (status < 0)
    l->events = 0; // libuv waits for nothing any more
  if (events & UV_WRITABLE)
    manta__conn_flush(l->conn, &err); // a failure shows when reading
  if (status < 0 || (events & UV_READABLE))
    link_read(l);
  if (!l->closing)
    link_events(l);
}

static void link_events(struct manta__loop_conn *l)
{
  int events = UV_READABLE | (manta__conn_pending(l->conn) ? UV_WRITABLE : 0);
  if (events != l->events && uv_poll_start(&l->poll, events, on_link) == 0)
    l->events = events;
}

struct manta__loop_conn *
manta__agent_connect(struct manta__agent *a, int sock, enum manta__way end,
                     void (*on_msg)(struct manta__loop_conn *, struct manta__msg *),
                     void (*on_end)(struct manta__loop_conn *), void *owner, manta_error *err)
{
  struct manta__loop_conn *l = manta__calloc(1, sizeof *l);
  if (!l) {
    manta_error_set(err, MANTA_ENOMEM, "no memory for a link");
    return NULL;
  }
  if (manta__conn_create(&l->conn, sock, manta__proto_end(end), err) < 0) {
    manta__free(l);
    return NULL;
  }
  l->on_msg = on_msg;
  l->on_end = on_end;
  l->owner = owner;
  l->poll.data = l;
  uv_poll_init(&a->loop, &l->poll, sock);
  link_events(l);
  return l;
}

void manta__agent_send(struct manta__loop_conn *l, const struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  if (!l || l->closing)
    return;
  manta_status st = manta__conn_send(l->conn, m, &err);
  if (st < 0 && st != MANTA_ECLOSED)
    manta__warn("agent: %s", err.message);
  link_events(l);
}

void manta__agent_send_value(struct manta__loop_conn *l, const struct manta__msg *m, manta_value *v)
{
  struct manta__msg full = *m;
  void *bytes;
  if (manta_value_pack(v, &bytes, &full.len, NULL) == MANTA_OK) {
    full.data = bytes;
    manta__agent_send(l, &full);
    manta_free(bytes);
  }
  manta_value_fini(v);
}

void manta__agent_reply(struct manta__loop_conn *l, const struct manta__msg *request,
                        manta_value *v)
{
  struct manta__msg m = {.kind = request->kind,
                         .flags = MANTA__FRAME_REPLY,
                         .group = request->group,
                         .call = request->call};
  manta__agent_send_value(l, &m, v);
}

void manta__agent_warn(struct manta__agent *a, uint32_t group, const char *fmt, ...)
{
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  manta_value v = MANTA__PACK(warn_msg, .text = text);
  manta__agent_send_value(a->driver, &(struct manta__msg){.kind = MANTA__M_WARN, .group = group},
                          &v);
}

// --- timers --------------------------------------------------------------------------------------

uv_timer_t *manta__agent_timer(struct manta__agent *a, double first_s, double repeat_s,
                               uv_timer_cb cb, void *data)
{
  uv_timer_t *t = manta__calloc(1, sizeof *t);
  if (!t)
    return NULL;
  uv_timer_init(&a->loop, t);
  t->data = data;
  uv_timer_start(t, cb, (uint64_t)(first_s * 1e3), (uint64_t)(repeat_s * 1e3));
  return t;
}

static void timer_free(uv_handle_t *h)
{
  manta__free(h);
}

void manta__agent_timer_stop(uv_timer_t **t)
{
  if (*t)
    uv_close((uv_handle_t *)*t, timer_free);
  *t = NULL;
}
