/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/http.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sys/module.h"

#define IDLE_MAX  16
#define PAUSE     0.1 /* seconds before the second try; then twice as long each time */
#define PAUSE_MAX 20.0

// --- clients ------------------------------------------------------------------------------------

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static struct manta__http_client *idle[IDLE_MAX];
static int idle_count;
static const struct manta__http *_Atomic loaded;

static manta_status load(const struct manta__http **out, manta_error *err)
{
  void *symbol;
  if ((*out = loaded))
    return MANTA_OK;
  MANTA_TRY(manta__module_symbol("curl", MANTA__HTTP_ENTRY, "libcurl", &symbol, err));
  const struct manta__http *const *entry = symbol;
  if ((*entry)->version != MANTA__HTTP_VERSION)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "the module libmanta-curl.so has version %u, this library wants %d",
                           (*entry)->version, MANTA__HTTP_VERSION);
  loaded = *out = *entry;
  return MANTA_OK;
}

manta_status manta__http_open(const struct manta__http **out, struct manta__http_client **client,
                              manta_error *err)
{
  MANTA_TRY(load(out, err));
  pthread_mutex_lock(&idle_lock);
  *client = idle_count ? idle[--idle_count] : NULL;
  pthread_mutex_unlock(&idle_lock);
  return *client ? MANTA_OK : (*out)->create(client, err);
}

void manta__http_close(struct manta__http_client *client)
{
  if (!client)
    return;
  pthread_mutex_lock(&idle_lock);
  bool kept = idle_count < IDLE_MAX;
  if (kept)
    idle[idle_count++] = client;
  pthread_mutex_unlock(&idle_lock);
  if (!kept)
    loaded->destroy(client);
}

// --- trying again -------------------------------------------------------------------------------

bool manta__http_busy(const struct manta__http_reply *r)
{
  if (r->final)
    return false;
  return r->status == 0 || r->status == 408 || r->status == 429 ||
         (r->status >= 500 && r->status != 501) || (r->status < 300 && !r->complete);
}

void manta__http_pause(int tried, const struct manta__http_reply *r)
{
  double chance = 0.5 + (double)(manta__now() / 1000 % 1000) / 1000; // 0.5 to 1.5
  double s = PAUSE * (double)(1 << (tried - 1)) * chance;
  if (r->retry_after > s)
    s = r->retry_after;
  s = s < PAUSE_MAX ? s : PAUSE_MAX;
  struct timespec t = {(time_t)s, (long)((s - floor(s)) * 1e9)};
  nanosleep(&t, NULL);
}

static manta_status ask_with(const struct manta__http *h, struct manta__http_client *client,
                             const struct manta__http_call *call, struct manta__http_reply *out,
                             manta_error *err)
{
  for (int tried = 1;; tried++) {
    MANTA_TRY(h->start(client, 0, call, err));
    h->wait(client, 0, out);
    if (!manta__http_busy(out) || tried == (call->tries ? call->tries : MANTA__HTTP_TRIES))
      return MANTA_OK;
    manta__http_pause(tried, out);
  }
}

manta_status manta__http_ask(const struct manta__http_call *call, const char *name,
                             struct manta__http_reply *out, manta_error *err)
{
  const struct manta__http *h;
  struct manta__http_client *client;
  MANTA_TRY(manta__http_open(&h, &client, err));
  manta_status st = ask_with(h, client, call, out, err);
  manta__http_close(client);
  if (st == MANTA_OK && (out->status == 0 || manta__http_busy(out)))
    st = manta__http_failed(out, name, err);
  return st;
}

manta_status manta__http_failed(const struct manta__http_reply *r, const char *name,
                                manta_error *err)
{
  if (r->status == 404 || r->status == 410)
    return manta_error_set(err, MANTA_ENOENT, "%s: there is no such file (HTTP %d)", name,
                           r->status);
  if (r->status == 401 || r->status == 403)
    return manta_error_set(err, MANTA_EDENIED,
                           "%s: access denied (HTTP %d)\nhint: for s3:// set AWS_ACCESS_KEY_ID and "
                           "AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws/credentials",
                           name, r->status);
  if (r->status == 301 || r->status == 307 || r->region[0])
    return manta_error_set(err, MANTA_EIO, "%s: HTTP %d: it is elsewhere\nhint: AWS_REGION=%s",
                           name, r->status, r->region[0] ? r->region : "(the bucket's)");
  if (r->status == 0 || r->status < 300)
    return manta_error_set(err, MANTA_EIO, "%s: %s%s", name,
                           r->why[0] ? r->why : "the connection ended too early",
                           r->final ? "" : "; tried 6 times");
  return manta_error_set(err, MANTA_EIO, "%s: HTTP %d%s", name, r->status,
                         manta__http_busy(r) ? "; tried 6 times" : "");
}
