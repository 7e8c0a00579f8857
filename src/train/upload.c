/* SPDX-License-Identifier: Apache-2.0 */
#include "train/upload.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/knob.h"
#include "base/log.h"
#include "engine/engine.h"
#include "group/proto.h"
#include "sys/sock.h"
#include "train/driver.h"
#include "train/run.h"
#include "train/say.h"

#define LOOK_NS   1000000000 /* what it says may wait so long */
#define AGAIN_S   5.0
#define STARTS    10
#define CANCEL_S  10.0 /* a run that was interrupted is not waited for longer */
#define PATIENT_S 2.0  /* what takes longer is told */
#define drv       manta__drv

manta_status manta__upload_start(manta_run *r, manta_error *err)
{
  struct manta__upload *u = &r->upload;
  char *argv[] = {(char *)"manta-uploader", r->dir, NULL};
  int sock;
  if (!u->uri)
    return MANTA_OK;
  u->starts++;
  MANTA_TRY(manta__engine_start_role(MANTA__ROLE_UPLOADER, argv, &sock, &u->pid, err));
  manta_status st =
      manta__conn_create(&u->conn, sock, manta__proto_end(MANTA__DRIVER_TO_UPLOADER), err);
  if (st < 0)
    close(sock);
  return st;
}

static void reap(struct manta__upload *u)
{
  manta__conn_destroy(u->conn);
  u->conn = NULL;
  manta__engine_end(u->pid, false);
  u->pid = 0;
}

// One message of the uploader. False: that was the last.
static bool take(struct manta__upload *u, const struct manta__msg *m, manta_trainer *t)
{
  manta_value v = {0};
  struct manta__warn_msg in;
  if (m->kind == MANTA__M_UPLOADED)
    u->stored = true;
  else if (m->kind == MANTA__M_WARN && manta__warn_msg_unpack(m, &v, &in, NULL) == MANTA_OK) {
    if (t)
      manta__run_warn(t, "%s", in.text);
    else
      manta__warn("%s", in.text);
  }
  manta_value_fini(&v);
  return !u->stored;
}

int64_t manta__upload_step(manta_run *r, int64_t now)
{
  struct manta__upload *u = &r->upload;
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int rc = 0;
  if (!u->uri || u->asked || r->replayed)
    return MANTA__NEVER;
  while (u->conn && (rc = manta__conn_recv(u->conn, &m, &err)) == 1) {
    take(u, &m, r->trainer);
    manta__msg_close(&m);
  }
  if (rc < 0) {
    reap(u);
    u->retry_ns = manta__deadline(AGAIN_S);
    manta__run_warn(r->trainer, "the process that uploads to %s died; it is started again", u->uri);
  }
  if (!u->conn && u->starts < STARTS && now >= u->retry_ns && manta__upload_start(r, &err) < 0)
    u->retry_ns = manta__deadline(AGAIN_S);
  return now + LOOK_NS;
}

// Until all is stored (MANTA_OK), the uploader died, or the time is up.
static manta_status await(struct manta__upload *u, int64_t by, manta_error *err)
{
  for (;;) {
    struct manta__msg m;
    int rc = manta__conn_wait(u->conn, by, &m, err);
    if (rc != 1)
      return (manta_status)rc;
    bool more = take(u, &m, NULL);
    manta__msg_close(&m);
    if (!more)
      return MANTA_OK;
  }
}

static manta_status ask(manta_run *r, manta_error *err)
{
  struct manta__msg m = {.kind = MANTA__M_UPLOAD_ALL};
  if (!r->upload.conn)
    MANTA_TRY(manta__upload_start(r, err));
  return manta__conn_send(r->upload.conn, &m, err);
}

static manta_status send_all(manta_run *r, int64_t by, manta_error *err)
{
  struct manta__upload *u = &r->upload;
  for (;;) {
    manta_status st = u->conn && u->asked ? MANTA_OK : ask(r, err);
    if (st == MANTA_OK)
      st = await(u, by, err);
    if (st == MANTA_OK)
      reap(u);
    if (st == MANTA_OK || st == MANTA_ETIMEDOUT || u->starts >= STARTS)
      return st;
    if (u->conn)
      reap(u); // it died, and another one goes on
  }
}

static bool has_all(const manta_run *r)
{
  const struct manta__upload *u = &r->upload;
  return !u->uri || u->stored || r->replayed || u->starts == 0;
}

static manta_status await_all(manta_run *r, double timeout_s, manta_error *err)
{
  pthread_mutex_lock(&drv.lock);
  bool first = !r->upload.asked;
  if (first)
    r->upload.asked_ns = manta__now();
  r->upload.asked = true; // from now on nobody else reads what the uploader says
  pthread_mutex_unlock(&drv.lock);
  if (first && r->upload.conn) {
    struct manta__msg m = {.kind = MANTA__M_UPLOAD_ALL};
    manta__conn_send(r->upload.conn, &m, NULL); // one that died is started again
  }
  if (send_all(r, manta__deadline(timeout_s), err) == MANTA_OK)
    return MANTA_OK;
  return manta_error_set(err, MANTA_ETIMEDOUT, "%s: not all is stored yet", r->upload.uri);
}

manta_status manta_run_stored(manta_run *r, double timeout_s, manta_error *err)
{
  if (has_all(r))
    return MANTA_OK;
  if (!manta_run_finished(r))
    return manta_error_set(err, MANTA_ESTATE, "the run goes on: it is not stored before its end");
  return await_all(r, timeout_s, err);
}

void manta__upload_end(manta_run *r)
{
  struct manta__upload *u = &r->upload;
  manta_error err = MANTA_ERROR_INIT;
  double limit = u->asked ? 0 : manta__knob_seconds(MANTA__KNOB_UPLOAD_WAIT);
  if (has_all(r))
    return;
  if (r->error.status == MANTA_ECANCELED && limit > CANCEL_S)
    limit = CANCEL_S;
  double patient = limit < PATIENT_S ? limit : PATIENT_S;
  manta_status st = u->asked && !u->conn ? MANTA_ETIMEDOUT : await_all(r, patient, &err);
  if (st < 0 && limit > patient) {
    manta__warn("the last files of the run are still being uploaded to %s", u->uri);
    st = await_all(r, limit - patient, &err);
  }
  if (st == MANTA_OK)
    return;
  manta__warn("the upload to %s is not complete after %.1f s\nnothing is lost, all is in %s\n"
              "hint: manta upload %s sends the rest",
              u->uri, (double)(manta__now() - u->asked_ns) * 1e-9, r->dir, r->dir);
  manta__conn_destroy(u->conn); // it goes on for a while by itself
  u->conn = NULL;
}

void manta__upload_forget(manta_run *r)
{
  int fd = r->upload.conn ? manta__conn_fd(r->upload.conn) : -1;
  manta__fd_close(&fd);
}

void manta__upload_free(manta_run *r)
{
  manta__conn_destroy(r->upload.conn);
  r->upload.conn = NULL;
  manta__free(r->upload.uri);
  r->upload.uri = NULL;
}
