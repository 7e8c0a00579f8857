/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/ucx/ucx.c - the transport over UCX; a module of its own, with one visible name.
 *
 * (1) A worker (in UCX's sense) per process. Ranks exchange its address at creation; an endpoint is
 *     made when a peer is first named, by a send or by a receive: without one, nobody would tell us
 *     of the peer's death.
 * (2) UCX fails what was sent to a dead peer, but leaves receives as they are: these are cancelled
 *     here, by the next progress.
 * (3) UCX is configured by its own tables, never by the environment of the process; what the user
 *     has set there (UCX_TLS, UCX_NET_DEVICES, UCX_LOG_LEVEL …) stands.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/hosts/net.h"
#include "sys/iface.h"

#define MAGIC     0x4d4e5831u  /* "MNX1" */
#define PATIENCE  1000000000ll /* ns that stop and destroy may take */
#define SETTLE    100000000ll  /* and what it may take besides */
#define QUIET     10000000ll   /* without anything from the net: no more comes */
#define FREE_KEPT 256

struct manta__net_req {
  struct manta__net_req *prev, *next; /* of the started ones, or of the free ones */
  struct ucx *net;
  void *handle; /* UCX's */
  int peer;
  bool recv, over;
  manta_status status;
  size_t bytes;
};

struct peer {
  void *address; /* of its worker; NULL: not to be reached */
  ucp_ep_h ep;
  struct ucx *net;
  bool lost;
};

struct ucx {
  struct manta__net base;
  ucp_context_h context;
  ucp_worker_h worker;
  int rank, size, fd;
  struct peer *peer;
  struct manta__net_req started; /* head of a ring */
  struct manta__net_req *spare;
  int spares;
  bool mourning; /* receives of a lost peer are to be cancelled */
  bool stopped;
};

struct ucx_hello { /* what ranks exchange, before the address */
  uint32_t magic, api;
};

static struct ucx *ucx_of(struct manta__net *net)
{
  return (struct ucx *)net;
}

static manta_status fail(manta_error *err, const char *what, ucs_status_t st)
{
  manta_status is = st == UCS_ERR_NO_MEMORY ? MANTA_ENOMEM : MANTA_EIO;
  return manta_error_set(err, is, "UCX: %s: %s", what, ucs_status_string(st));
}

// --- configuration ------------------------------------------------------------------------------

struct setting {
  const char *env, *name, *value;
};

static ucs_status_t set(ucp_config_t *config, struct setting s)
{
  return getenv(s.env) ? UCS_OK : ucp_config_modify(config, s.name, s.value);
}

// Over TCP: large messages go by one peer's writing into the other's buffer; and what has come in
// is read in large pieces, which halves the time of an all-reduce of 25 MB. (That setting has its
// transport's name in front in some versions of UCX; what one does not know it leaves alone.)
static const struct setting over_tcp[] = {
    {"UCX_TLS", "TLS", "tcp"},
    {"UCX_RNDV_SCHEME", "RNDV_SCHEME", "put_zcopy"},
    {"UCX_RNDV_THRESH", "RNDV_THRESH", "65k"},
    {"UCX_TCP_RX_SEG_SIZE", "TCP_RX_SEG_SIZE", "512k"},
    {"UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "512k"},
};

static manta_status configure(ucp_config_t *config, const char *local, manta_error *err)
{
  struct manta__iface face;
  ucs_status_t st = UCS_OK;
  for (size_t i = 0; i < sizeof over_tcp / sizeof *over_tcp && !getenv("UCX_TLS"); i++)
    if (st == UCS_OK)
      st = set(config, over_tcp[i]);
  if (st != UCS_OK)
    return fail(err, "configure", st);
  if (!local)
    return MANTA_OK;
  MANTA_TRY(manta__iface_find(&face, local, err));
  st = set(config, (struct setting){"UCX_NET_DEVICES", "NET_DEVICES", face.name});
  return st == UCS_OK ? MANTA_OK : fail(err, "choose the interface", st);
}

// It would print to our standard output.
static void be_quiet(void)
{
  if (!getenv("UCX_LOG_LEVEL"))
    ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

static manta_status start_context(struct ucx *u, const char *local, manta_error *err)
{
  ucp_config_t *config;
  ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                    .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                    .estimated_num_eps = (size_t)u->size};
  ucs_status_t st = ucp_config_read(NULL, NULL, &config);
  if (st != UCS_OK)
    return fail(err, "read the configuration", st);
  manta_status is = configure(config, local, err);
  if (is == MANTA_OK && (st = ucp_init(&p, config, &u->context)) != UCS_OK) {
    u->context = NULL;
    is = st == UCS_ERR_NO_DEVICE && local
             ? manta_error_set(err, MANTA_EIO, "UCX: cannot use the interface %s: is it up?", local)
             : fail(err, "initialise", st);
  }
  ucp_config_release(config);
  return is;
}

static manta_status start_worker(struct ucx *u, manta_error *err)
{
  ucp_worker_params_t p = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                           .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  ucs_status_t st = ucp_worker_create(u->context, &p, &u->worker);
  if (st != UCS_OK) {
    u->worker = NULL;
    return fail(err, "create a worker", st);
  }
  st = ucp_worker_get_efd(u->worker, &u->fd);
  return st == UCS_OK ? MANTA_OK : fail(err, "get a descriptor to wait on", st);
}

// --- addresses ----------------------------------------------------------------------------------

static manta_status learn(struct ucx *u, int r, const void *blob, size_t bytes, manta_error *err)
{
  struct ucx_hello h = {0};
  if (bytes > sizeof h)
    memcpy(&h, blob, sizeof h);
  if (h.magic != MAGIC)
    return manta_error_set(err, MANTA_EPROTO, "rank %d sent no address of UCX", r);
  if (h.api != UCP_API_MAJOR)
    return manta_error_set(err, MANTA_EUNSUPPORTED, "rank %d has version %u of UCX, rank %d has %d",
                           r, h.api, u->rank, UCP_API_MAJOR);
  if (!(u->peer[r].address = manta__malloc(bytes - sizeof h)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an address");
  memcpy(u->peer[r].address, (const char *)blob + sizeof h, bytes - sizeof h);
  return MANTA_OK;
}

static manta_status learn_all(struct ucx *u, const struct manta__net_config *cfg, const void *blob,
                              size_t size, manta_error *err)
{
  const void **all = manta__calloc((size_t)u->size, sizeof *all);
  size_t *bytes = manta__calloc((size_t)u->size, sizeof *bytes);
  manta_status st = all && bytes ? cfg->exchange(cfg->ctx, blob, size, all, bytes, err)
                                 : manta_error_set(err, MANTA_ENOMEM, "no memory for addresses");
  for (int r = 0; r < u->size && st == MANTA_OK; r++)
    if (cfg->remote[r] && r != u->rank)
      st = learn(u, r, all[r], bytes[r], err);
  manta__free(all);
  manta__free(bytes);
  return st;
}

static manta_status meet(struct ucx *u, const struct manta__net_config *cfg, manta_error *err)
{
  uint8_t blob[MANTA__NET_BLOB_MAX];
  struct ucx_hello h = {.magic = MAGIC, .api = UCP_API_MAJOR};
  ucp_address_t *own;
  size_t bytes;
  ucs_status_t st = ucp_worker_get_address(u->worker, &own, &bytes);
  if (st != UCS_OK)
    return fail(err, "get our address", st);
  bool fits = bytes <= sizeof blob - sizeof h;
  memcpy(blob, &h, sizeof h);
  if (fits)
    memcpy(blob + sizeof h, own, bytes);
  ucp_worker_release_address(u->worker, own);
  if (!fits)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "an address of %zu bytes: UCX_NET_DEVICES should "
                           "name fewer interfaces",
                           bytes);
  return learn_all(u, cfg, blob, bytes + sizeof h, err);
}

// --- requests -----------------------------------------------------------------------------------

static struct manta__net_req *req_new(struct ucx *u, int peer, bool recv)
{
  struct manta__net_req *r = u->spare;
  if (r) {
    u->spare = r->next;
    u->spares--;
  } else if (!(r = manta__malloc(sizeof *r))) {
    return NULL;
  }
  *r = (struct manta__net_req){.net = u,
                               .peer = peer,
                               .recv = recv,
                               .status = MANTA__NET_PENDING,
                               .prev = u->started.prev,
                               .next = &u->started};
  r->prev->next = r;
  u->started.prev = r;
  return r;
}

static void req_unlink(struct manta__net_req *r)
{
  r->prev->next = r->next;
  r->next->prev = r->prev;
  r->prev = r->next = r;
}

static void req_free(struct ucx *u, struct manta__net_req *r)
{
  if (u->spares >= FREE_KEPT) {
    manta__free(r);
    return;
  }
  r->next = u->spare;
  u->spare = r;
  u->spares++;
}

static void lose(struct ucx *u, int peer)
{
  u->peer[peer].lost = true;
  u->mourning = true;
}

static manta_status status_of(const struct manta__net_req *r, ucs_status_t st)
{
  if (st == UCS_OK)
    return MANTA_OK;
  if (st == UCS_ERR_MESSAGE_TRUNCATED)
    return MANTA_EPROTO;
  if (st == UCS_ERR_CANCELED && !r->net->peer[r->peer].lost)
    return MANTA_ECANCELED;
  return r->net->stopped ? MANTA_ECANCELED : MANTA_EPEERLOST;
}

static void finish(struct manta__net_req *r, ucs_status_t st, size_t bytes)
{
  r->status = status_of(r, st);
  r->bytes = bytes;
  r->over = true;
  req_unlink(r);
  if (r->status == MANTA_EPEERLOST)
    lose(r->net, r->peer);
}

static void on_sent(void *handle, ucs_status_t st, void *arg)
{
  finish(arg, st, 0);
}

static void on_received(void *handle, ucs_status_t st, const ucp_tag_recv_info_t *info, void *arg)
{
  finish(arg, st, st == UCS_OK ? info->length : 0);
}

// --- endpoints ----------------------------------------------------------------------------------

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t st)
{
  struct peer *p = arg;
  lose(p->net, (int)(p - p->net->peer));
}

static manta_status connect_to(struct ucx *u, int peer, manta_error *err)
{
  struct peer *p = &u->peer[peer];
  if (p->lost || u->stopped)
    return manta_error_set(err, MANTA_EPEERLOST, "rank %d is lost", peer);
  if (p->ep)
    return MANTA_OK;
  ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                          UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                          UCP_EP_PARAM_FIELD_ERR_HANDLER,
                            .address = p->address,
                            .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                            .err_handler = {.cb = on_error, .arg = p}};
  ucs_status_t st = ucp_ep_create(u->worker, &params, &p->ep);
  if (st == UCS_OK)
    return MANTA_OK;
  p->ep = NULL;
  return manta_error_set(err, MANTA_EPEERLOST, "UCX: no way to rank %d: %s", peer,
                         ucs_status_string(st));
}

static manta_status start(struct ucx *u, struct manta__net_req *r, void *handle,
                          struct manta__net_req **out, manta_error *err)
{
  if (UCS_PTR_IS_ERR(handle)) {
    manta_status st = status_of(r, UCS_PTR_STATUS(handle));
    req_unlink(r);
    manta_error_set(err, st, "UCX: rank %d: %s", r->peer,
                    ucs_status_string(UCS_PTR_STATUS(handle)));
    req_free(u, r);
    return st;
  }
  r->handle = handle;
  *out = r;
  return MANTA_OK;
}

static manta_status prepare(struct ucx *u, int peer, bool recv, struct manta__net_req **r,
                            manta_error *err)
{
  MANTA_TRY(connect_to(u, peer, err));
  *r = req_new(u, peer, recv);
  return *r ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for a request");
}

static manta_status ucx_send(struct manta__net *net, int peer, const void *buf, size_t bytes,
                             uint64_t tag, struct manta__net_req **out, manta_error *err)
{
  struct ucx *u = ucx_of(net);
  struct manta__net_req *r;
  MANTA_TRY(prepare(u, peer, false, &r, err));
  ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                           UCP_OP_ATTR_FIELD_USER_DATA |
                                           UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                           .cb = {.send = on_sent},
                           .user_data = r};
  return start(u, r, ucp_tag_send_nbx(u->peer[peer].ep, buf, bytes, tag, &p), out, err);
}

static manta_status ucx_recv(struct manta__net *net, int peer, void *buf, size_t bytes,
                             uint64_t tag, struct manta__net_req **out, manta_error *err)
{
  struct ucx *u = ucx_of(net);
  struct manta__net_req *r;
  MANTA_TRY(prepare(u, peer, true, &r, err));
  ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                           UCP_OP_ATTR_FIELD_USER_DATA |
                                           UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                           .cb = {.recv = on_received},
                           .user_data = r};
  return start(u, r, ucp_tag_recv_nbx(u->worker, buf, bytes, tag, UINT64_MAX, &p), out, err);
}

static manta_status ucx_test(struct manta__net *net, const struct manta__net_req *r, size_t *bytes)
{
  if (bytes)
    *bytes = r->bytes;
  return r->status;
}

static void ucx_cancel(struct manta__net *net, struct manta__net_req *r)
{
  if (!r->over && r->recv)
    ucp_request_cancel(ucx_of(net)->worker, r->handle);
}

static void ucx_release(struct manta__net *net, struct manta__net_req *r)
{
  if (r->handle)
    ucp_request_free(r->handle);
  req_free(ucx_of(net), r);
}

// --- progress -----------------------------------------------------------------------------------

static void mourn(struct ucx *u, bool all)
{
  u->mourning = false;
  for (struct manta__net_req *r = u->started.next, *next; r != &u->started; r = next) {
    next = r->next; // a cancelled one unlinks itself, and no other
    if (r->recv && (all || u->peer[r->peer].lost))
      ucp_request_cancel(u->worker, r->handle);
  }
}

static bool ucx_progress(struct manta__net *net)
{
  struct ucx *u = ucx_of(net);
  bool moved = !u->stopped && ucp_worker_progress(u->worker) != 0;
  if (u->mourning) {
    mourn(u, false);
    moved = true;
  }
  return moved;
}

static int ucx_arm(struct manta__net *net)
{
  struct ucx *u = ucx_of(net);
  return !u->stopped && ucp_worker_arm(u->worker) == UCS_OK ? u->fd : -1;
}

// --- the end ------------------------------------------------------------------------------------

static bool closing(struct ucx *u, void **request)
{
  int left = 0;
  ucp_worker_progress(u->worker);
  for (int r = 0; r < u->size; r++) {
    if (!request[r])
      continue;
    if (ucp_request_check_status(request[r]) == UCS_INPROGRESS) {
      left++;
    } else {
      ucp_request_free(request[r]);
      request[r] = NULL;
    }
  }
  return left > 0;
}

// All endpoints: those of lost peers at once, the others as told.
static void close_all(struct ucx *u, bool force)
{
  void **request = manta__calloc((size_t)u->size, sizeof *request);
  for (int r = 0; r < u->size && request; r++) {
    struct peer *p = &u->peer[r];
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = force || p->lost ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    void *h = p->ep ? ucp_ep_close_nbx(p->ep, &param) : NULL;
    request[r] = UCS_PTR_IS_PTR(h) ? h : NULL;
    p->ep = NULL;
  }
  for (int64_t by = manta__now() + PATIENCE; request && closing(u, request);)
    if (manta__now() > by)
      break;
  for (int r = 0; r < u->size && request; r++)
    if (request[r])
      ucp_request_free(request[r]);
  manta__free(request);
}

static void ucx_stop(struct manta__net *net)
{
  struct ucx *u = ucx_of(net);
  if (u->stopped)
    return;
  u->stopped = true;
  for (int r = 0; r < u->size; r++)
    u->peer[r].lost = true;
  mourn(u, true);
  close_all(u, true);
  for (int64_t by = manta__now() + PATIENCE; u->started.next != &u->started && manta__now() < by;)
    ucp_worker_progress(u->worker);
  while (u->started.next != &u->started) // without progress UCX can't touch their buffers either
    finish(u->started.next, UCS_ERR_CANCELED, 0);
}

// A peer that was just about to connect to us is still answered: UCX (1.13) ends the process if it
// has to throw such an answer away with the worker.
static void settle(struct ucx *u)
{
  int64_t now = manta__now(), end = now + SETTLE, quiet = now + QUIET;
  for (; now < end && now < quiet; now = manta__now()) {
    if (ucp_worker_progress(u->worker) != 0)
      quiet = now + QUIET;
    else
      sched_yield();
  }
}

static void ucx_destroy(struct manta__net *net)
{
  struct ucx *u = ucx_of(net);
  if (!u)
    return;
  if (u->worker && !u->stopped)
    close_all(u, false);
  if (u->worker && u->stopped)
    settle(u);
  if (u->worker)
    ucp_worker_destroy(u->worker);
  if (u->context)
    ucp_cleanup(u->context);
  for (int r = 0; r < u->size; r++)
    manta__free(u->peer[r].address);
  for (struct manta__net_req *r = u->spare, *next; r; r = next) {
    next = r->next;
    manta__free(r);
  }
  manta__free(u->peer);
  manta__free(u);
}

static manta_status create(struct ucx *u, const struct manta__net_config *cfg, manta_error *err)
{
  MANTA_TRY(start_context(u, cfg->local, err));
  MANTA_TRY(start_worker(u, err));
  return meet(u, cfg, err);
}

static manta_status ucx_create(struct manta__net **out, const struct manta__net_config *cfg,
                               manta_error *err)
{
  extern const struct manta__net_ops *const manta_net_entry;
  struct ucx *u = manta__calloc(1, sizeof *u);
  struct peer *peers = manta__calloc((size_t)cfg->size, sizeof *peers);
  sigset_t all, before;
  if (!u || !peers) {
    manta__free(u);
    manta__free(peers);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a net of %d ranks", cfg->size);
  }
  *u = (struct ucx){.base = {manta_net_entry}, .rank = cfg->rank, .size = cfg->size, .peer = peers};
  u->started.prev = u->started.next = &u->started;
  for (int r = 0; r < u->size; r++)
    peers[r].net = u;
  be_quiet();
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); // UCX starts a thread, which inherits this
  manta_status st = create(u, cfg, err);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (st < 0)
    ucx_destroy(&u->base);
  else
    *out = &u->base;
  return st;
}

static const struct manta__net_ops ops = {.version = MANTA__NET_VERSION,
                                          .name = "ucx",
                                          .create = ucx_create,
                                          .destroy = ucx_destroy,
                                          .send = ucx_send,
                                          .recv = ucx_recv,
                                          .test = ucx_test,
                                          .cancel = ucx_cancel,
                                          .release = ucx_release,
                                          .progress = ucx_progress,
                                          .arm = ucx_arm,
                                          .stop = ucx_stop};

extern MANTA_API const struct manta__net_ops *const manta_net_entry;
const struct manta__net_ops *const manta_net_entry = &ops;
