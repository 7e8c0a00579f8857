/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/knob.h"

#define CHUNK ((size_t)1 << 20)

struct manta__spool {
  struct manta__spool *next; /* used before it */
  char *name;
  int fd, refs;
  int64_t size;
  bool fetched; /* false: somebody is at it */
  bool stale;   /* goes with its last user, and is found by nobody */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct manta__spool *newest;

// --- the list -----------------------------------------------------------------------------------

static int64_t limit_of(void)
{
  int64_t mb = 0;
  manta__knob_whole(MANTA__KNOB_DATA_SPOOL, &mb);
  return mb << 20;
}

static void unlink_spool(struct manta__spool *s)
{
  struct manta__spool **at = &newest;
  while (*at != s)
    at = &(*at)->next;
  *at = s->next;
}

static void destroy(struct manta__spool *s)
{
  if (s->fd >= 0)
    close(s->fd);
  manta__free(s->name);
  manta__free(s);
}

// Gives up copies that nobody reads, those that were used last first kept, until n bytes have room.
static bool make_room(int64_t n)
{
  int64_t room = limit_of() - n;
  for (struct manta__spool *s = newest, *next; s; s = next) {
    next = s->next;
    room -= s->size;
    if (room < 0 && s->refs == 0) {
      room += s->size;
      unlink_spool(s);
      destroy(s);
    }
  }
  return room >= 0;
}

static struct manta__spool *find(const char *name)
{
  for (struct manta__spool *s = newest; s; s = s->next)
    if (!s->stale && !strcmp(s->name, name))
      return s;
  return NULL;
}

// --- fetching -----------------------------------------------------------------------------------

static manta_status open_unnamed(const char *name, int *out, manta_error *err)
{
  const char *dir = getenv("TMPDIR");
  char path[4096];
  if (!dir || !*dir)
    dir = "/tmp";
  *out = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (*out >= 0)
    return MANTA_OK;
  snprintf(path, sizeof path, "%s/manta-spool-XXXXXX", dir); // not every file system has it
  *out = mkostemp(path, O_CLOEXEC);
  if (*out < 0)
    return manta_error_set(err, MANTA_EIO,
                           "%s: cannot be copied to %s: %m\nhint: TMPDIR names another directory",
                           name, dir);
  unlink(path);
  return MANTA_OK;
}

static manta_status keep(struct manta__spool *s, const uint8_t *p, size_t n, manta_error *err)
{
  pthread_mutex_lock(&lock);
  bool fits = make_room((int64_t)n);
  if (fits)
    s->size += (int64_t)n;
  pthread_mutex_unlock(&lock);
  if (!fits)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "%s: has more bytes than may be copied (its server has no ranges, or "
                           "does not tell its size)\nhint: MANTA_DATA_SPOOL is %" PRId64
                           " MB; or download it first",
                           s->name, limit_of() >> 20);
  for (size_t done = 0; done < n;) {
    ssize_t w = write(s->fd, p + done, n - done);
    if (w < 0 && errno != EINTR)
      return manta_error_set(err, MANTA_EIO,
                             "%s: cannot be copied: %m\nhint: TMPDIR names another directory",
                             s->name);
    done += w > 0 ? (size_t)w : 0;
  }
  return MANTA_OK;
}

static manta_status start_again(struct manta__spool *s, manta_error *err)
{
  pthread_mutex_lock(&lock);
  s->size = 0;
  pthread_mutex_unlock(&lock);
  if (ftruncate(s->fd, 0) < 0 || lseek(s->fd, 0, SEEK_SET) < 0)
    return manta_error_set(err, MANTA_EIO, "%s: its copy: %m", s->name);
  return MANTA_OK;
}

// One request, to its end. 1: it is worth another try.
static manta_status fetch_once(struct manta__spool *s, const struct manta__http *http,
                               struct manta__http_client *client,
                               const struct manta__http_call *call, struct manta__http_reply *r,
                               manta_error *err)
{
  MANTA_TRY(start_again(s, err));
  MANTA_TRY(http->start(client, 0, call, err));
  for (;;) {
    http->wait(client, 0, r);
    if (r->status >= 200 && r->status < 300 && r->got) {
      manta_status st = keep(s, call->to, r->got, err);
      if (st < 0) {
        http->cancel(client, 0);
        return st;
      }
    }
    if (!r->full)
      break;
    http->more(client, 0, call->to, call->room);
  }
  if (manta__http_busy(r))
    return (manta_status)1;
  return r->status >= 200 && r->status < 300 ? MANTA_OK : manta__http_failed(r, s->name, err);
}

static manta_status fetch(struct manta__spool *s, const struct manta__remote_spec *spec,
                          manta_error *err)
{
  struct manta__http_call call = manta__remote_call(spec, "GET");
  struct manta__http_client *client = NULL;
  const struct manta__http *http;
  struct manta__http_reply r;
  manta_status st = open_unnamed(s->name, &s->fd, err);
  if (st == MANTA_OK)
    st = manta__http_open(&http, &client, err);
  if (st < 0)
    return st;
  call.stream = true;
  call.room = CHUNK;
  if (!(call.to = manta__malloc(CHUNK)))
    st = manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", s->name);
  for (int tried = 1; st == MANTA_OK; tried++) {
    st = fetch_once(s, http, client, &call, &r, err);
    if (st != 1)
      break;
    st = tried < MANTA__HTTP_TRIES ? MANTA_OK : manta__http_failed(&r, s->name, err);
    if (st == MANTA_OK)
      manta__http_pause(tried, &r);
  }
  manta__free(call.to);
  manta__http_close(client);
  return st;
}

// --- taking -------------------------------------------------------------------------------------

// A copy of ours that is to be fetched. The lock is held.
static struct manta__spool *add(const char *name)
{
  struct manta__spool *s = manta__calloc(1, sizeof *s);
  if (s && !(s->name = manta__strdup(name))) {
    manta__free(s);
    return NULL;
  }
  if (s) {
    s->fd = -1;
    s->refs = 1;
    s->next = newest;
    newest = s;
  }
  return s;
}

// The copy that others fetch or have fetched; NULL: it is up to the caller. The lock is held.
static struct manta__spool *join(const char *name)
{
  struct manta__spool *s;
  while ((s = find(name)) && !s->fetched)
    pthread_cond_wait(&changed, &lock);
  if (s) {
    s->refs++;
    unlink_spool(s);
    s->next = newest;
    newest = s;
  }
  return s;
}

manta_status manta__spool_take(struct manta__spool **out, const char *name,
                               const struct manta__remote_spec *spec, manta_error *err)
{
  pthread_mutex_lock(&lock);
  struct manta__spool *s = join(name);
  bool ours = !s;
  if (ours)
    s = add(name);
  pthread_mutex_unlock(&lock);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", name);
  if (!ours) {
    *out = s;
    return MANTA_OK;
  }
  manta_status st = fetch(s, spec, err);
  pthread_mutex_lock(&lock);
  s->fetched = true;
  s->stale = st < 0; // whoever waits tries it, too
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  if (st < 0)
    manta__spool_give(s);
  else
    *out = s;
  return st;
}

void manta__spool_give(struct manta__spool *s)
{
  if (!s)
    return;
  pthread_mutex_lock(&lock);
  bool gone = --s->refs == 0 && s->stale;
  if (gone)
    unlink_spool(s);
  pthread_mutex_unlock(&lock);
  if (gone)
    destroy(s);
}

void manta__spool_forget(const char *name)
{
  pthread_mutex_lock(&lock);
  struct manta__spool *s = find(name);
  bool idle = s && s->fetched && s->refs == 0;
  if (s && s->fetched)
    s->stale = true;
  if (idle)
    unlink_spool(s);
  pthread_mutex_unlock(&lock);
  if (idle)
    destroy(s);
}

int64_t manta__spool_size(const struct manta__spool *s)
{
  return s->size;
}

manta_status manta__spool_read(struct manta__spool *s, int64_t at, void *to, size_t n,
                               manta_error *err)
{
  for (size_t done = 0; done < n;) {
    ssize_t got = pread(s->fd, (char *)to + done, n - done, at + (off_t)done);
    if (got == 0 || (got < 0 && errno != EINTR))
      return manta_error_set(err, MANTA_EIO, "%s: its copy at byte %" PRId64 ": %s", s->name,
                             at + (int64_t)done, got ? strerror(errno) : "it ends there");
    done += got > 0 ? (size_t)got : 0;
  }
  return MANTA_OK;
}
