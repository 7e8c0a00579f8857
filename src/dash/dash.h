/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/dash.h - `manta dashboard`: runs in a browser, read-only.
 *
 *   run.log ──► index (series, marks, ranks) ──► show (JSON) ──► stream (server-sent events)
 *      └─ catalog: which runs, in what order, how much memory      └─ server: who may ask
 *
 * (1) It only reads. No request changes a file, a run or the server.
 * (2) It listens on the loopback address unless it is told otherwise, and beyond that only with a
 *     certificate or on explicit demand; nothing at all is answered without the token (guard.h).
 * (3) The page is one answer that brings its scripts and styles along, whose hashes are the only
 *     ones that its policy admits; it asks this server and nobody else.
 * (4) Memory is bounded (index.h, catalog.h), and so is what one reader may have under way.
 *
 * It is a module (sys/module.h), since libmicrohttpd is needed by nothing else.
 */
#ifndef MANTA_DASH_DASH_H
#define MANTA_DASH_DASH_H

#include <stdbool.h>

#include <manta/status.h>

#define MANTA__DASH_PORT 8420

struct manta__dash_options {
  const char *dir;
  const char *bind;       /* address; NULL: 127.0.0.1 */
  int port;               /* 0: any; -1: MANTA__DASH_PORT, or any if that is taken */
  const char *cert, *key; /* PEM files; NULL: no TLS */
  bool insecure;          /* beyond loopback without TLS */
  const char *token_file; /* NULL: a token is made */
  const char *host;       /* another name of this host that requests may have, or NULL */
  /* Called once when it serves; the link carries the token. */
  void (*ready)(const char *link, void *ctx);
  void *ctx;
};

/* Serves until SIGINT or SIGTERM, which are blocked meanwhile. MANTA_EINVAL: the options
 * contradict each other. */
typedef manta_status manta__dash_serve_fn(const struct manta__dash_options *o, manta_error *err);

/* What the module shows, as manta_dash_entry. */
struct manta__dash_module {
  manta__dash_serve_fn *serve;
};

#endif
