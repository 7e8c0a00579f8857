/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/http.h - requests over HTTP: the table that a module fills, and what is done with it.
 *
 * libcurl is loaded when the first http:// or s3:// is used, as libmanta-curl.so. A client has some
 * slots, each a request that is under way; whoever waits for one drives all of them, so a few
 * connections are busy without a thread of their own. A client is for one thread at a time.
 */
#ifndef MANTA_REMOTE_HTTP_H
#define MANTA_REMOTE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#define MANTA__HTTP_VERSION 3
#define MANTA__HTTP_ENTRY   "manta_http_entry"
#define MANTA__HTTP_SLOTS   4
#define MANTA__HTTP_HEADERS 8

/* What is asked. All that it points to is borrowed until the request is done. */
struct manta__http_call {
  const char *method; /* "GET", "HEAD", "PUT", "POST" or "DELETE" */
  const char *url;
  const char *headers[MANTA__HTTP_HEADERS]; /* "Name: value"; unused ones are NULL */
  const char *sign;                         /* "aws:amz:REGION:s3"; NULL: not signed */
  const char *user, *secret;                /* of the signature */
  uint8_t *to;                              /* where the body of the reply goes */
  size_t room;
  const char *text; /* what PUT and POST send; NULL: `size` bytes of the file from `at` on */
  int fd;
  int64_t at, size;
  bool stream;      /* a reply that is larger than the room is given in parts (`more`) */
  double connect_s; /* how long a connection may take; 0: as usual */
  int tries;        /* 0: MANTA__HTTP_TRIES */
  double stall_s;   /* how long nothing may come; 0: as usual */
};

struct manta__http_reply {
  int status;         /* of HTTP; 0: none came */
  size_t got;         /* bytes of the body that are there, whether or not it is complete */
  int64_t length;     /* of the body, as it was announced; -1: it was not */
  double retry_after; /* seconds; -1: nothing is said */
  bool complete;      /* all of the body came, or it has more than there is room for */
  bool final;         /* trying again would not help */
  bool over;          /* it has more than there is room for */
  bool full;          /* … and stands still until there is more room */
  char etag[128], region[64];
  char why[256]; /* what the connection failed with; "" if it did not */
};

struct manta__http_client;

struct manta__http {
  uint32_t version; /* MANTA__HTTP_VERSION */
  manta_status (*create)(struct manta__http_client **out, manta_error *err);
  void (*destroy)(struct manta__http_client *c);
  /* The slot is free. */
  manta_status (*start)(struct manta__http_client *c, int slot, const struct manta__http_call *call,
                        manta_error *err);
  /* Until the request of this slot is done, which frees it. */
  void (*wait)(struct manta__http_client *c, int slot, struct manta__http_reply *out);
  /* Room for the next part of a stream whose last reply was `full`; then it is waited for again. */
  void (*more)(struct manta__http_client *c, int slot, uint8_t *to, size_t room);
  /* Gives up the request of a slot, if there is one. */
  void (*cancel)(struct manta__http_client *c, int slot);
};

/* --- what others use --- */

/* A client out of those that are idle, with their connections, or a new one. */
manta_status manta__http_open(const struct manta__http **out, struct manta__http_client **client,
                              manta_error *err);
/* Gives it back; no slot is in use. NULL is fine. */
void manta__http_close(struct manta__http_client *client);

#define MANTA__HTTP_TRIES 6
/* Whether a reply is worth another try: nothing came, or too little, or the server was busy. */
bool manta__http_busy(const struct manta__http_reply *r);
/* Sleeps before try number `tried` + 1: longer each time, by chance somewhat more or less, or as
 * long as the server said. */
void manta__http_pause(int tried, const struct manta__http_reply *r);
/* One request, tried again while the server is busy. MANTA_OK for any status that came; MANTA_EIO
 * names the place and what failed. */
manta_status manta__http_ask(const struct manta__http_call *call, const char *name,
                             struct manta__http_reply *out, manta_error *err);
/* What a status that is no success means: MANTA_ENOENT, MANTA_EDENIED, MANTA_EIO. */
manta_status manta__http_failed(const struct manta__http_reply *r, const char *name,
                                manta_error *err);

#endif
