/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/s3objects.c - S3 as a store of objects.
 *
 * (1) What is larger than a part goes up in parts, several at once. Until the last step the object
 *     is as it was; if that is not reached the parts are taken back, as far as the server answers.
 * (2) The account is asked for with every object: keys that are lent end.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "remote/objects.h"
#include "remote/ranges.h"
#include "remote/s3.h"
#include "sys/file.h"

#define PART      ((int64_t)16 << 20) /* of at least 5 MB, as S3 wants it */
#define PARTS_MAX 10000
#define ANSWER    8192
#define PIECE     (1u << 20)
#define SLOTS     MANTA__HTTP_SLOTS
#define UNSIGNED  "x-amz-content-sha256: UNSIGNED-PAYLOAD"
#define BINARY    "Content-Type: application/octet-stream"

struct s3_folder {
  struct manta__s3_account account;
  struct manta__s3_name at; /* the key lies in the folder's URI */
};

/* One object while something is done with it. */
struct s3_task {
  struct s3_folder *folder;
  char *key, *uri; /* uri: for messages */
  char answer[ANSWER + 1];
};

static manta_status open_folder(struct manta__objects *o, manta_error *err)
{
  struct s3_folder *f = manta__calloc(1, sizeof *f);
  manta_status st = f ? manta__s3_parse(&f->at, o->uri, err)
                      : manta_error_set(err, MANTA_ENOMEM, "%s: no memory to open it", o->uri);
  if (st < 0)
    manta__free(f);
  else
    o->private = f;
  return st;
}

static void close_folder(struct manta__objects *o)
{
  manta__free(o->private);
}

// --- requests -----------------------------------------------------------------------------------

static void end_task(struct s3_task *t)
{
  if (!t)
    return;
  manta__free(t->key);
  manta__free(t->uri);
  manta__free(t);
}

static struct s3_task *begin_task(struct manta__objects *o, const char *name, manta_error *err)
{
  struct s3_task *t = manta__calloc(1, sizeof *t);
  if (t) {
    t->folder = o->private;
    manta__s3_account(&t->folder->account);
    t->key = manta__asprintf("%s%s%s", t->folder->at.key, t->folder->at.key[0] ? "/" : "", name);
    t->uri = manta__asprintf("%s/%s", o->uri, name);
  }
  if (t && t->key && t->uri)
    return t;
  end_task(t);
  manta_error_set(err, MANTA_ENOMEM, "%s/%s: no memory to store it", o->uri, name);
  return NULL;
}

static char *url_of(const struct s3_task *t, const char *query)
{
  return manta__s3_url(&t->folder->account, t->folder->at.bucket, t->key, query);
}

static void prepare(struct s3_task *t, struct manta__http_call *call, const char *url)
{
  call->url = url;
  call->to = (uint8_t *)t->answer;
  call->room = ANSWER;
  manta__s3_sign(&t->folder->account, call);
}

static bool says(const struct s3_task *t, const char *code)
{
  char text[80];
  snprintf(text, sizeof text, "<Code>%s</Code>", code);
  return strstr(t->answer, text) != NULL;
}

// What the answer of the server says of a failure; messages name the object.
static manta_status failed(const struct s3_task *t, const struct manta__http_reply *r,
                           manta_error *err)
{
  if (says(t, "NoSuchBucket"))
    return manta_error_set(err, MANTA_ENOENT, "%s: there is no bucket \"%s\"\nhint: make it first",
                           t->uri, t->folder->at.bucket);
  if (says(t, "SignatureDoesNotMatch"))
    return manta_error_set(err, MANTA_EDENIED,
                           "%s: access denied: the secret is not that of the key %s\nhint: "
                           "AWS_SECRET_ACCESS_KEY, or the profile in ~/.aws/credentials",
                           t->uri, t->folder->account.user);
  if (says(t, "InvalidAccessKeyId"))
    return manta_error_set(err, MANTA_EDENIED,
                           "%s: access denied: the server does not know the key %s\nhint: "
                           "AWS_ACCESS_KEY_ID, or the profile in ~/.aws/credentials",
                           t->uri, t->folder->account.user);
  return manta__http_failed(r, t->uri, err);
}

// One request of a task, to its end.
static manta_status ask(struct s3_task *t, struct manta__http_call *call, const char *query,
                        struct manta__http_reply *r, manta_error *err)
{
  char *url = url_of(t, query);
  if (!url)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its URL", t->uri);
  prepare(t, call, url);
  manta_status st = manta__http_ask(call, t->uri, r, err);
  manta__free(url);
  t->answer[st == MANTA_OK && r->got < ANSWER ? r->got : 0] = 0;
  return st;
}

static manta_status ask_well(struct s3_task *t, struct manta__http_call *call, const char *query,
                             struct manta__http_reply *r, manta_error *err)
{
  MANTA_TRY(ask(t, call, query, r, err));
  return r->status >= 300 ? failed(t, r, err) : MANTA_OK;
}

// --- in one piece -------------------------------------------------------------------------------

static manta_status put_whole(struct s3_task *t, int fd, int64_t size, manta_error *err)
{
  struct manta__http_reply r;
  struct manta__http_call call = {
      .method = "PUT", .headers = {UNSIGNED, BINARY}, .fd = fd, .size = size};
  return ask_well(t, &call, NULL, &r, err);
}

static manta_status put_text(struct manta__objects *o, const char *name, const char *text,
                             bool unless_there, manta_error *err)
{
  struct manta__http_reply r;
  struct s3_task *t = begin_task(o, name, err);
  if (!t)
    return MANTA_ENOMEM;
  struct manta__http_call call = {
      .method = "PUT",
      .headers = {UNSIGNED, BINARY, unless_there ? "If-None-Match: *" : NULL},
      .text = text};
  manta_status st = ask(t, &call, NULL, &r, err);
  if (st == MANTA_OK && (r.status == 412 || r.status == 409))
    st = manta_error_set(err, MANTA_ESTATE, "%s: is there already", t->uri);
  else if (st == MANTA_OK && r.status >= 300)
    st = failed(t, &r, err);
  end_task(t);
  return st;
}

// --- in parts -----------------------------------------------------------------------------------

struct s3_upload {
  struct s3_task *task;
  char *id; /* escaped, as queries have it */
  int fd, parts, begun, ended;
  int64_t size, part;
  char (*etags)[128];
  const struct manta__http *http;
  struct manta__http_client *client;
  struct s3_part {
    int number, tried;
    char *url;
    char answer[ANSWER];
  } slot[SLOTS];
};

static manta_status begin_parts(struct s3_upload *u, manta_error *err)
{
  struct manta__http_reply r;
  struct manta__http_call call = {.method = "POST", .headers = {UNSIGNED, BINARY}, .text = ""};
  MANTA_TRY(ask_well(u->task, &call, "uploads=", &r, err));
  const char *from = strstr(u->task->answer, "<UploadId>");
  size_t n = from ? strcspn(from += 10, "<") : 0;
  char *id = n ? manta__strndup(from, n) : NULL;
  u->id = id ? manta__s3_escape(id, false) : NULL;
  manta__free(id);
  if (!u->id)
    return manta_error_set(err, n ? MANTA_ENOMEM : MANTA_EPROTO,
                           "%s: the server begins no upload in parts", u->task->uri);
  return MANTA_OK;
}

static manta_status send_part(struct s3_upload *u, int slot, manta_error *err)
{
  struct s3_part *p = &u->slot[slot];
  char query[64 + 1024];
  int64_t at = (int64_t)p->number * u->part;
  struct manta__http_call call = {.method = "PUT",
                                  .headers = {UNSIGNED, BINARY},
                                  .fd = u->fd,
                                  .at = at,
                                  .size = u->size - at < u->part ? u->size - at : u->part};
  snprintf(query, sizeof query, "partNumber=%d&uploadId=%s", p->number + 1, u->id);
  manta__free(p->url);
  if (!(p->url = url_of(u->task, query)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to store it", u->task->uri);
  prepare(u->task, &call, p->url);
  call.to = (uint8_t *)p->answer;
  call.room = sizeof p->answer;
  return u->http->start(u->client, slot, &call, err);
}

// The oldest part that is on its way; a busy server is asked again.
static manta_status await_part(struct s3_upload *u, manta_error *err)
{
  int slot = u->ended % SLOTS;
  struct s3_part *p = &u->slot[slot];
  struct manta__http_reply r;
  for (;;) {
    u->http->wait(u->client, slot, &r);
    if (r.status >= 200 && r.status < 300 && r.etag[0]) {
      memcpy(u->etags[p->number], r.etag, sizeof r.etag);
      u->ended++;
      return MANTA_OK;
    }
    if (!manta__http_busy(&r) || ++p->tried == MANTA__HTTP_TRIES)
      return manta__http_failed(&r, u->task->uri, err);
    manta__http_pause(p->tried, &r);
    MANTA_TRY(send_part(u, slot, err));
  }
}

static manta_status send_parts(struct s3_upload *u, manta_error *err)
{
  while (u->ended < u->parts) {
    while (u->begun < u->parts && u->begun - u->ended < SLOTS) {
      struct s3_part *p = &u->slot[u->begun % SLOTS];
      p->number = u->begun;
      p->tried = 0;
      MANTA_TRY(send_part(u, u->begun % SLOTS, err));
      u->begun++;
    }
    MANTA_TRY(await_part(u, err));
  }
  return MANTA_OK;
}

// All parts are there: the object becomes what they are.
static manta_status join_parts(struct s3_upload *u, manta_error *err)
{
  struct manta__http_reply r;
  char query[1024 + 16];
  manta__buf b;
  manta__buf_init(&b, (size_t)u->parts * 256 + 256);
  manta_status st = manta__buf_puts(&b, "<CompleteMultipartUpload>");
  for (int i = 0; i < u->parts && st == MANTA_OK; i++)
    st = manta__buf_printf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i + 1,
                           u->etags[i]);
  if (st == MANTA_OK)
    st = manta__buf_puts(&b, "</CompleteMultipartUpload>");
  if (st == MANTA_OK)
    st = manta__buf_terminate(&b);
  if (st < 0) {
    manta__buf_fini(&b);
    return manta_error_set(err, st, "%s: no memory to store it", u->task->uri);
  }
  struct manta__http_call call = {.method = "POST",
                                  .headers = {UNSIGNED, "Content-Type: application/xml"},
                                  .text = (const char *)b.data};
  snprintf(query, sizeof query, "uploadId=%s", u->id);
  st = ask_well(u->task, &call, query, &r, err);
  manta__buf_fini(&b);
  if (st == MANTA_OK && strstr(u->task->answer, "<Error>")) // behind a status that was sent early
    st = manta_error_set(err, MANTA_EIO, "%s: the server could not join its parts", u->task->uri);
  return st;
}

static void abort_parts(struct s3_upload *u)
{
  struct manta__http_reply r;
  struct manta__http_call call = {.method = "DELETE", .tries = 2};
  char query[1024 + 16];
  snprintf(query, sizeof query, "uploadId=%s", u->id);
  for (int i = 0; i < SLOTS && u->client; i++)
    u->http->cancel(u->client, i);
  ask(u->task, &call, query, &r, NULL);
}

static manta_status put_parts(struct s3_task *t, int fd, int64_t size, manta_error *err)
{
  struct s3_upload u = {.task = t, .fd = fd, .size = size, .part = PART};
  while (size > u.part * PARTS_MAX)
    u.part *= 2;
  u.parts = (int)((size + u.part - 1) / u.part);
  if (!(u.etags = manta__calloc((size_t)u.parts, sizeof *u.etags)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to store it", t->uri);
  manta_status st = manta__http_open(&u.http, &u.client, err);
  if (st == MANTA_OK)
    st = begin_parts(&u, err);
  if (st == MANTA_OK)
    st = send_parts(&u, err);
  if (st == MANTA_OK)
    st = join_parts(&u, err);
  if (st < 0 && u.id)
    abort_parts(&u);
  for (int i = 0; i < SLOTS; i++)
    manta__free(u.slot[i].url);
  manta__http_close(u.client);
  manta__free(u.id);
  manta__free(u.etags);
  return st;
}

static manta_status put(struct manta__objects *o, const char *name, int fd, int64_t size,
                        manta_error *err)
{
  struct s3_task *t = begin_task(o, name, err);
  if (!t)
    return MANTA_ENOMEM;
  manta_status st = size > PART ? put_parts(t, fd, size, err) : put_whole(t, fd, size, err);
  end_task(t);
  return st;
}

// --- the other way ------------------------------------------------------------------------------

static manta_status copy_out(manta__ranges *r, const struct s3_task *t, int64_t size, int fd,
                             manta_error *err)
{
  uint8_t *piece = manta__malloc(PIECE);
  manta_status st =
      piece ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", t->uri);
  manta__ranges_expect(r, 0, size);
  for (int64_t at = 0; at < size && st == MANTA_OK;) {
    size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
    st = manta__ranges_read(r, at, piece, n, err);
    if (st == MANTA_OK && manta__write_all(fd, piece, n, NULL) < 0)
      st = manta_error_set(err, MANTA_EIO, "write what comes from %s: %m", t->uri);
    at += (int64_t)n;
  }
  manta__free(piece);
  return st;
}

static manta_status get(struct manta__objects *o, const char *name, int fd, manta_error *err)
{
  struct manta__remote_facts facts;
  manta__ranges *r = NULL;
  struct s3_task *t = begin_task(o, name, err);
  char *url = t ? url_of(t, NULL) : NULL;
  if (!url) {
    end_task(t);
    return manta_error_set(err, MANTA_ENOMEM, "%s/%s: no memory to read it", o->uri, name);
  }
  const struct manta__s3_account *a = &t->folder->account;
  struct manta__remote_spec spec = {url, a->sign, a->user, a->secret, a->token};
  manta_status st = manta__remote_look(t->uri, &spec, &facts, err);
  if (st == MANTA_OK && facts.size < 0)
    st = manta_error_set(err, MANTA_EUNSUPPORTED, "%s: the server does not tell its size", t->uri);
  if (st == MANTA_OK)
    st = manta__ranges_open(&r, t->uri, &spec, &facts, err);
  if (st == MANTA_OK)
    st = copy_out(r, t, facts.size, fd, err);
  manta__ranges_close(r);
  manta__free(url);
  end_task(t);
  return st;
}

struct s3_walk {
  size_t folder; /* bytes of a key in front of the names */
  manta__objects_each each;
  void *ctx;
};

static manta_status on_object(void *ctx, const struct manta__s3_object *object, manta_error *err)
{
  const struct s3_walk *w = ctx;
  const char *name = object->key + w->folder;
  size_t n = strlen(name);
  if (n == 0 || name[n - 1] == '/') // what stands for a folder
    return MANTA_OK;
  return w->each(w->ctx, name, object->size, err);
}

static manta_status list(struct manta__objects *o, const char *prefix, manta__objects_each each,
                         void *ctx, manta_error *err)
{
  struct s3_task *t = begin_task(o, prefix, err);
  if (!t)
    return MANTA_ENOMEM;
  const char *key = t->folder->at.key;
  struct s3_walk w = {strlen(key) + (key[0] != 0), each, ctx};
  manta_status st =
      manta__s3_list(&t->folder->account, t->uri, t->folder->at.bucket, t->key, on_object, &w, err);
  end_task(t);
  return st;
}

static manta_status remove_object(struct manta__objects *o, const char *name, manta_error *err)
{
  struct manta__http_reply r;
  struct manta__http_call call = {.method = "DELETE"};
  struct s3_task *t = begin_task(o, name, err);
  if (!t)
    return MANTA_ENOMEM;
  manta_status st = ask(t, &call, NULL, &r, err);
  if (st == MANTA_OK && r.status >= 300 && r.status != 404)
    st = failed(t, &r, err);
  end_task(t);
  return st;
}

const struct manta__store_kind manta__store_s3 = {
    .scheme = "s3",
    .open = open_folder,
    .close = close_folder,
    .put = put,
    .put_text = put_text,
    .get = get,
    .list = list,
    .remove = remove_object,
};
