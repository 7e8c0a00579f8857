/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/hosts/net.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sys/module.h"

#define LOOK_MS 5  /* the abort word is memory: nothing wakes a sleeper when it changes */
#define SPINS   50 /* some 50 us: a round is a system call */

manta_status manta__net_load(const char *name, const struct manta__net_ops **out, manta_error *err)
{
  void *symbol;
  MANTA_TRY(manta__module_symbol(
      name, MANTA__NET_ENTRY, "the package libucx0 or ucx, version 1.13 or later", &symbol, err));
  const struct manta__net_ops *const *entry = symbol;
  if ((*entry)->version != MANTA__NET_VERSION)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "the module libmanta-%s.so has version %u, this library wants %d", name,
                           (*entry)->version, MANTA__NET_VERSION);
  *out = *entry;
  return MANTA_OK;
}

// --- wire ---------------------------------------------------------------------------------------

manta_status manta__wire_init(struct manta__wire *w, struct manta__net *net, manta_error *err)
{
  *w = (struct manta__wire){.net = net, .spins = SPINS};
  w->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (w->kick < 0)
    return manta_error_set(err, MANTA_EIO, "eventfd: %m");
  pthread_mutex_init(&w->lock, NULL);
  return MANTA_OK;
}

void manta__wire_fini(struct manta__wire *w)
{
  w->net->ops->destroy(w->net);
  pthread_mutex_destroy(&w->lock);
  close(w->kick);
}

manta_status manta__wire_send(struct manta__wire *w, int peer, const void *buf, size_t bytes,
                              uint64_t tag, struct manta__net_req **out, manta_error *err)
{
  pthread_mutex_lock(&w->lock);
  manta_status st = w->net->ops->send(w->net, peer, buf, bytes, tag, out, err);
  pthread_mutex_unlock(&w->lock);
  return st;
}

manta_status manta__wire_recv(struct manta__wire *w, int peer, void *buf, size_t bytes,
                              uint64_t tag, struct manta__net_req **out, manta_error *err)
{
  pthread_mutex_lock(&w->lock);
  manta_status st = w->net->ops->recv(w->net, peer, buf, bytes, tag, out, err);
  pthread_mutex_unlock(&w->lock);
  return st;
}

manta_status manta__wire_test(struct manta__wire *w, struct manta__net_req **req, size_t *bytes)
{
  pthread_mutex_lock(&w->lock);
  manta_status st = w->net->ops->test(w->net, *req, bytes);
  if (st != MANTA__NET_PENDING) {
    w->net->ops->release(w->net, *req);
    *req = NULL;
  }
  pthread_mutex_unlock(&w->lock);
  return st;
}

// Until something comes in, or a thread that made progress says so, but no longer than LOOK_MS.
static void doze(struct manta__wire *w)
{
  atomic_fetch_add(&w->sleepers, 1);
  pthread_mutex_lock(&w->lock);
  int fd = w->net->ops->arm(w->net);
  pthread_mutex_unlock(&w->lock);
  if (fd >= 0) {
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = w->kick, .events = POLLIN}};
    uint64_t count;
    if (poll(p, 2, LOOK_MS) > 0 && p[1].revents && read(w->kick, &count, sizeof count) < 0)
      sched_yield(); // somebody else was quicker
  }
  atomic_fetch_sub(&w->sleepers, 1);
}

void manta__wire_turn(struct manta__wire *w, int *idle)
{
  pthread_mutex_lock(&w->lock);
  bool moved = w->net->ops->progress(w->net);
  pthread_mutex_unlock(&w->lock);
  if (moved) {
    uint64_t one = 1;
    *idle = 0;
    if (atomic_load(&w->sleepers) > 0 && write(w->kick, &one, sizeof one) < 0)
      sched_yield(); // it is full, so everybody is awake
  } else if (++*idle > w->spins) {
    doze(w);
  }
}

static bool cancel_all(struct manta__net *net, struct manta__net_req **req, size_t n)
{
  bool over = true;
  for (size_t i = 0; i < n; i++) {
    if (!req[i])
      continue;
    net->ops->cancel(net, req[i]);
    over = over && net->ops->test(net, req[i], NULL) != MANTA__NET_PENDING;
  }
  return over;
}

void manta__wire_drop(struct manta__wire *w, struct manta__net_req **req, size_t n)
{
  pthread_mutex_lock(&w->lock);
  if (!cancel_all(w->net, req, n))
    w->net->ops->stop(w->net);
  for (size_t i = 0; i < n; i++) {
    if (req[i])
      w->net->ops->release(w->net, req[i]);
    req[i] = NULL;
  }
  pthread_mutex_unlock(&w->lock);
}
