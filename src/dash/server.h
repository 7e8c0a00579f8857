/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/server.h - the parts of the server, and what they share.
 *
 * Two threads: the main one reads logs (catalog.h) and wakes streams, libmicrohttpd's answers. What
 * both touch is under the catalog's lock.
 */
#ifndef MANTA_DASH_SERVER_H
#define MANTA_DASH_SERVER_H

#include <microhttpd.h>

#include "base/buf.h"
#include "dash/catalog.h"
#include "dash/dash.h"
#include "dash/guard.h"

#define MANTA__SERVER_CONNECTIONS 64
#define MANTA__SERVER_STREAMS     32 /* of them, readers of events */
#define MANTA__STREAM_RUNS        8  /* that one reader may follow */

struct manta__dash_stream;

struct manta__server {
  struct manta__catalog catalog;
  struct manta__guard guard;
  struct MHD_Daemon *daemon;
  struct manta__dash_stream *streams;
  int stream_count;
  bool stopping;
};

/* --- server.c --- */
manta_status manta__server_start(struct manta__server *s, int sock, const char *cert,
                                 const char *key, manta_error *err);
void manta__server_stop(struct manta__server *s);
/* A response of these bytes, which it takes (manta__buf_release). */
struct MHD_Response *manta__server_text(manta__buf *b);

/* --- stream.c --- */
/* A reader of events: the list of runs, or up to MANTA__STREAM_RUNS runs. NULL: *code says why. */
struct MHD_Response *manta__stream_open(struct manta__server *s, struct MHD_Connection *c,
                                        unsigned *code);
/* Wakes those for whom there is something; gives when to be called again at the latest. */
int64_t manta__stream_tick(struct manta__server *s);

/* --- generated from page/ --- */
extern const unsigned char manta__page[];
extern const unsigned long manta__page_size;
extern const char manta__page_policy[];

#endif
