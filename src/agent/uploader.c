/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/uploader.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ckpt/replica.h"
#include "group/proto.h"
#include "sys/sock.h"
#include "wire/conn.h"

#define LOOK_S     0.5 /* between two passes */
#define PAUSE_S    2.0 /* after one that failed; then twice as long each time */
#define PAUSE_MAX  30.0
#define LOST_S     60   /* without a driver */
#define LAST_WRITE 35.0 /* … for the agent and the writer to end */

struct uploader {
  manta__conn *conn;
  int rundir;
  char *uri;
  struct manta__replica *replica;
  bool ends, lost; /* all is to be sent; nobody is there to be told */
  bool troubled;
  double pause;
  int64_t quiet_by; /* when a run without a driver is taken to have ended */
};

static void send_msg(struct uploader *u, uint16_t kind, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = kind};
  manta_status st =
      v ? manta__conn_send_value(u->conn, &m, v, &err) : manta__conn_send(u->conn, &m, &err);
  if (st == MANTA_OK)
    manta__conn_drain(u->conn, manta__deadline(5), &err);
}

static void tell(struct uploader *u, const char *text)
{
  manta_value v = MANTA__PACK(warn_msg, .text = text);
  if (!u->lost)
    send_msg(u, MANTA__M_WARN, &v);
}

static void warn_by_message(void *ctx, manta_log_level level, const char *text)
{
  tell(ctx, text);
}

static manta_status pass(struct uploader *u, manta_error *err)
{
  if (!u->replica)
    MANTA_TRY(manta__replica_open(&u->replica, u->rundir, u->uri, err));
  return manta__replica_pass(u->replica, u->ends, err);
}

// Trouble is told when it begins and when it ends, however often it is tried in between.
static void note(struct uploader *u, manta_status st, const manta_error *err)
{
  char text[MANTA_ERROR_MESSAGE_MAX + 128];
  if (st < 0 && !u->troubled) {
    snprintf(text, sizeof text,
             "not stored yet: %s\nthe run goes on, and the upload is tried again and again",
             err->message);
    tell(u, text);
  } else if (st == MANTA_OK && u->troubled) {
    snprintf(text, sizeof text, "%s: the upload works again", u->uri);
    tell(u, text);
  }
  u->troubled = st < 0;
  u->pause = st == MANTA_OK ? 0 : u->pause > 0 ? 2 * u->pause : PAUSE_S;
  if (u->pause > PAUSE_MAX)
    u->pause = PAUSE_MAX;
}

// The driver's word, or its end.
static void listen_for(struct uploader *u, double seconds)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  if (u->lost) {
    usleep((useconds_t)(seconds * 1e6));
    return;
  }
  int rc = manta__conn_wait(u->conn, manta__deadline(seconds), &m, &err);
  if (rc == 1) {
    u->ends |= m.kind == MANTA__M_UPLOAD_ALL;
    manta__msg_close(&m);
  } else if (rc != MANTA_ETIMEDOUT) {
    u->lost = true;
    u->quiet_by = manta__deadline(LAST_WRITE);
    alarm(LOST_S);
  }
}

// Without a driver the run has ended when nobody writes it any more.
static void look_for_end(struct uploader *u)
{
  bool ours = u->lost && !u->ends && flock(u->rundir, LOCK_SH | LOCK_NB) == 0;
  if (ours)
    flock(u->rundir, LOCK_UN);
  if (ours || (u->lost && manta__now() > u->quiet_by))
    u->ends = true;
}

static void serve(struct uploader *u)
{
  for (;;) {
    manta_error err = MANTA_ERROR_INIT;
    look_for_end(u);
    bool last = u->ends;
    manta_status st = pass(u, &err);
    note(u, st, &err);
    if (last && st == MANTA_OK)
      return;
    if (!u->ends || st < 0)
      listen_for(u, st < 0 ? u->pause : LOOK_S);
  }
}

int manta__uploader_main(int conn, char *const argv[])
{
  struct uploader u = {.rundir = -1};
  manta_error err = MANTA_ERROR_INIT;
  prctl(PR_SET_NAME, "manta-uploader");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, SIG_IGN); // a notice to the whole job must not cut the upload short
  int niceness = nice(5);
  (void)niceness;
  if (!argv[1] ||
      manta__conn_create(&u.conn, conn, manta__proto_end(MANTA__UPLOADER_TO_DRIVER), &err) < 0)
    return 1;
  manta__fd_mute();
  manta_set_log(warn_by_message, &u);
  u.rundir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (u.rundir >= 0 && manta__replica_uri(u.rundir, &u.uri, &err) == MANTA_OK) {
    serve(&u);
    if (!u.lost)
      send_msg(&u, MANTA__M_UPLOADED, NULL);
  } else
    tell(&u, u.rundir < 0 ? "the run directory is gone" : err.message);
  manta_set_log(NULL, NULL);
  manta__replica_close(u.replica);
  manta_free(u.uri);
  manta__fd_close(&u.rundir);
  manta__conn_destroy(u.conn);
  return 0;
}
