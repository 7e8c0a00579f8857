/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/mlflow_call.c - calls over HTTP, or through the user's package in a helper process.
 *
 * A call waits a few seconds and is tried once: whoever calls comes again by itself (feed.c).
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/value.h"
#include "remote/http.h"
#include "sink/helper.h"
#include "sink/trackers.h"
#include "sys/sock.h"

#define ANSWER_MAX (1u << 20)
#define CONNECT_S  3.0
#define STALL_S    5.0
#define HELPER_S   60.0 /* the first answer comes after its imports */
#define API        "/api/2.0/mlflow/"
#define FILES      "/api/2.0/mlflow-artifacts/artifacts/"
#define PROXIED    "mlflow-artifacts:/"

struct manta__mlflow {
  char *base; // of a server, without a slash at the end; NULL: `helper` it is
  char *auth; // "Authorization: …"
  uint8_t *answer;
  manta__helper *helper;
};

// --- opening -------------------------------------------------------------------------------------

static char *encode_base64(const char *s)
{
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t n = strlen(s), at = 0;
  char *out = manta__malloc((n + 2) / 3 * 4 + 1);
  for (size_t i = 0; out && i < n; i += 3) {
    uint32_t a = (uint8_t)s[i], b = i + 1 < n ? (uint8_t)s[i + 1] : 0,
             c = i + 2 < n ? (uint8_t)s[i + 2] : 0, all = a << 16 | b << 8 | c;
    out[at++] = digits[all >> 18 & 63];
    out[at++] = digits[all >> 12 & 63];
    out[at++] = i + 1 < n ? digits[all >> 6 & 63] : '=';
    out[at++] = i + 2 < n ? digits[all & 63] : '=';
  }
  if (out)
    out[at] = 0;
  return out;
}

// NULL: the server asks for nothing.
static char *make_auth(void)
{
  const char *token = getenv("MLFLOW_TRACKING_TOKEN");
  const char *user = getenv("MLFLOW_TRACKING_USERNAME"),
             *secret = getenv("MLFLOW_TRACKING_PASSWORD");
  if (token && *token)
    return manta__asprintf("Authorization: Bearer %s", token);
  if (!user || !*user)
    return NULL;
  char *both = manta__asprintf("%s:%s", user, secret ? secret : "");
  char *coded = both ? encode_base64(both) : NULL;
  char *auth = coded ? manta__asprintf("Authorization: Basic %s", coded) : NULL;
  manta__free(both);
  manta__free(coded);
  return auth;
}

static bool is_http(const char *uri)
{
  return !strncmp(uri, "http://", 7) || !strncmp(uri, "https://", 8);
}

static manta_status open_server(manta__mlflow *m, const char *uri, manta_error *err)
{
  size_t n = strlen(uri);
  while (n > 0 && uri[n - 1] == '/')
    n--;
  m->base = manta__strndup(uri, n);
  m->answer = manta__malloc(ANSWER_MAX);
  m->auth = make_auth();
  return m->base && m->answer ? MANTA_OK
                              : manta_error_set(err, MANTA_ENOMEM, "no memory for a server");
}

static manta_status open_store(manta__mlflow *m, const char *uri, const char *python,
                               const atomic_bool *quit, manta_error *err)
{
  manta_value answer = {0};
  MANTA_TRY(manta__helper_start(&m->helper, python, "mlflow", quit, err));
  const manta_value ask = MANTA_MAP(MANTA_KV_STR("call", "open"), MANTA_KV_STR("uri", uri));
  manta_status st = manta__helper_ask(m->helper, &ask, &answer, HELPER_S, err);
  manta_value_fini(&answer);
  return st;
}

manta_status manta__mlflow_open(manta__mlflow **out, const char *uri, const char *python,
                                const atomic_bool *quit, manta_error *err)
{
  manta__mlflow *m = manta__calloc(1, sizeof *m);
  if (!m)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a server");
  manta_status st = is_http(uri) ? open_server(m, uri, err) : open_store(m, uri, python, quit, err);
  if (st < 0)
    manta__mlflow_close(m);
  else
    *out = m;
  return st;
}

void manta__mlflow_close(manta__mlflow *m)
{
  if (!m)
    return;
  manta__helper_end(m->helper, 2);
  manta__free(m->base);
  manta__free(m->auth);
  manta__free(m->answer);
  manta__free(m);
}

// --- calls ---------------------------------------------------------------------------------------

// What a status and its JSON mean.
static manta_status judge(const manta__mlflow *m, const char *call, int status,
                          const manta_value *answer, manta_error *err)
{
  const char *code = manta_value_as_string(manta_value_get(answer, "error_code"), "");
  const char *text = manta_value_as_string(manta_value_get(answer, "message"), "");
  if (status >= 200 && status < 300)
    return MANTA_OK;
  manta_status st = MANTA_EIO;
  if (!strcmp(code, "RESOURCE_DOES_NOT_EXIST"))
    st = MANTA_ENOENT;
  else if (status == 400 || status == 413)
    st = MANTA_EINVAL;
  else if (status == 401 || status == 403)
    st = MANTA_EDENIED;
  return manta_error_set(err, st, "%s answers %s with status %d%s%.300s%s",
                         m->base ? m->base : "mlflow", call, status, *text ? ": " : "", text,
                         st == MANTA_EDENIED ? " (MLFLOW_TRACKING_TOKEN, or _USERNAME and "
                                               "_PASSWORD, are what manta sends)"
                                             : "");
}

static void put_escaped(manta__buf *b, const char *text, const char *besides)
{
  for (const char *p = text; *p; p++)
    if (isalnum((unsigned char)*p) || strchr("-_.~", *p) || strchr(besides, *p))
      manta__buf_putc(b, *p);
    else
      manta__buf_printf(b, "%%%02X", (unsigned char)*p);
}

static char *url_of(const manta__mlflow *m, const char *call, bool get, const manta_value *body)
{
  manta__buf b;
  manta__buf_init(&b, 64u << 10);
  manta__buf_printf(&b, "%s" API "%s", m->base, call);
  if (get && body->count > 0) {
    manta__buf_printf(&b, "?%s=", body->u.pairs[0].key);
    put_escaped(&b, manta_value_as_string(&body->u.pairs[0].value, ""), "");
  }
  if (manta__buf_putc(&b, 0) < 0)
    manta__buf_fini(&b);
  return manta__buf_release(&b, NULL);
}

static char *url_of_file(const manta__mlflow *m, const char *folder, const char *path)
{
  manta__buf b;
  manta__buf_init(&b, 64u << 10);
  manta__buf_printf(&b, "%s" FILES, m->base);
  put_escaped(&b, folder, "/");
  manta__buf_putc(&b, '/');
  put_escaped(&b, path, "/");
  if (manta__buf_putc(&b, 0) < 0)
    manta__buf_fini(&b);
  return manta__buf_release(&b, NULL);
}

static manta_status call_server(manta__mlflow *m, const char *call, bool get,
                                const manta_value *body, manta_value *answer, manta_error *err)
{
  struct manta__http_reply reply = {0};
  manta__buf text;
  manta__buf_init(&text, MANTA__JSON_MAX);
  char *url = url_of(m, call, get, body);
  manta_status st = url ? manta__json_append(&text, body, NULL) : MANTA_ENOMEM;
  if (st == MANTA_OK)
    st = manta__buf_terminate(&text);
  struct manta__http_call c = {.method = get ? "GET" : "POST",
                               .url = url,
                               .headers = {"Content-Type: application/json", m->auth},
                               .to = m->answer,
                               .room = ANSWER_MAX,
                               .text = get ? NULL : (const char *)text.data,
                               .fd = -1,
                               .connect_s = CONNECT_S,
                               .stall_s = STALL_S,
                               .tries = 1};
  if (st < 0)
    manta_error_set(err, st, "no memory for a call");
  else
    st = manta__http_ask(&c, m->base, &reply, err);
  manta__buf_fini(&text);
  manta_free(url);
  MANTA_TRY(st);
  if (manta_value_from_json(answer, (const char *)m->answer, reply.got, NULL) < 0)
    manta_value_set_map(answer); // the text of a proxy, perhaps
  return judge(m, call, reply.status, answer, err);
}

static manta_status call_store(manta__mlflow *m, const char *call, const manta_value *body,
                               manta_value *answer, manta_error *err)
{
  manta_value whole = {0};
  const manta_value ask = MANTA_MAP(MANTA_KV_STR("call", call), MANTA_KV("body", *body));
  manta_status st = manta__helper_ask(m->helper, &ask, &whole, HELPER_S, err);
  const manta_value *part = manta_value_get(&whole, "body");
  if (st == MANTA_OK && (!part || manta_value_copy(answer, part) < 0))
    st = manta_error_set(err, MANTA_EPROTO, "an answer of mlflow makes no sense");
  if (st == MANTA_OK)
    st = judge(m, call, (int)manta_value_as_int(manta_value_get(&whole, "status"), 0), answer, err);
  manta_value_fini(&whole);
  return st;
}

manta_status manta__mlflow_call(manta__mlflow *m, const char *call, bool get,
                                const manta_value *body, manta_value *answer, manta_error *err)
{
  manta_value_fini(answer);
  return m->base ? call_server(m, call, get, body, answer, err)
                 : call_store(m, call, body, answer, err);
}

// --- files ---------------------------------------------------------------------------------------

static manta_status put_file(manta__mlflow *m, const char *url, int fd, int64_t size,
                             manta_error *err)
{
  struct manta__http_reply reply = {0};
  struct manta__http_call c = {.method = "PUT",
                               .url = url,
                               .headers = {m->auth},
                               .to = m->answer,
                               .room = ANSWER_MAX,
                               .fd = fd,
                               .size = size,
                               .connect_s = CONNECT_S,
                               .stall_s = STALL_S,
                               .tries = 1};
  MANTA_TRY(manta__http_ask(&c, m->base, &reply, err));
  const manta_value none = {.type = MANTA_MAP};
  return judge(m, "an artifact", reply.status, &none, err);
}

static manta_status upload_to_server(manta__mlflow *m, const char *root, int rundir,
                                     const char *path, manta_error *err)
{
  struct stat sb;
  size_t skip = sizeof PROXIED - 1;
  if (strncmp(root, PROXIED, skip))
    return manta_error_set(err, MANTA_EUNSUPPORTED, "the server keeps artifacts in %s", root);
  int fd = openat(rundir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &sb) < 0) {
    manta__fd_close(&fd);
    return errno == ENOENT ? MANTA_OK : manta_error_set(err, MANTA_EIO, "open %s: %m", path);
  }
  char *url = url_of_file(m, root + skip + (root[skip] == '/'), path);
  manta_status st = url ? put_file(m, url, fd, sb.st_size, err)
                        : manta_error_set(err, MANTA_ENOMEM, "no memory for a call");
  manta_free(url);
  close(fd);
  return st;
}

manta_status manta__mlflow_upload(manta__mlflow *m, const char *run_id, const char *root,
                                  int rundir, const char *rundir_path, const char *path,
                                  manta_error *err)
{
  manta_value answer = {0};
  if (m->base)
    return upload_to_server(m, root, rundir, path, err);
  const manta_value body = MANTA_MAP(MANTA_KV_STR("run_id", run_id),
                                     MANTA_KV_STR("root", rundir_path), MANTA_KV_STR("path", path));
  manta_status st = call_store(m, "artifact", &body, &answer, err);
  manta_value_fini(&answer);
  return st;
}
