/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/s3role.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <manta/value.h>

#include "base/alloc.h"
#include "base/log.h"
#include "sys/host.h"

#define REPLY_MAX 65536
#define EARLY_S   300 /* they are asked for again this long before they end */
#define SHORT_S   1.0 /* for a service that is on the same host, or not there at all */
#define TOKEN_MAX (16u << 10)

struct lent_cache {
  pthread_mutex_t lock;
  bool found, alone; /* alone: there is no service of a machine */
  int64_t ends;      /* seconds since 1970 */
  struct manta__s3_lent keys;
};

static const char *variable(const char *name)
{
  const char *value = getenv(name);
  return value && value[0] ? value : NULL;
}

int64_t manta__s3_time(const char *text)
{
  struct tm tm = {0};
  if (sscanf(text, "%d-%d-%dT%d:%d:%d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
             &tm.tm_min, &tm.tm_sec) != 6)
    return -1;
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  return timegm(&tm);
}

// The body of a reply as text, or NULL; the caller frees it. What failed is worth a debug line:
// whoever lends no keys is passed over.
static char *ask(struct manta__http_call *call, const char *name)
{
  struct manta__http_reply r = {0};
  manta_error err = MANTA_ERROR_INIT;
  char *body = manta__calloc(1, REPLY_MAX + 1);
  call->to = (uint8_t *)body;
  call->room = REPLY_MAX;
  manta_status st = body ? manta__http_ask(call, name, &r, &err) : MANTA_ENOMEM;
  if (st == MANTA_OK && r.status == 200)
    return body;
  manta__debug("%s: no keys: %s", name, st < 0 ? err.message : body);
  manta__free(body);
  return NULL;
}

// --- by web identity ----------------------------------------------------------------------------

static bool put_element(const char *xml, const char *name, char *out, size_t room)
{
  char open[64];
  int n = snprintf(open, sizeof open, "<%s>", name);
  const char *from = strstr(xml, open);
  size_t len = from ? strcspn(from + n, "<") : 0;
  if (len == 0 || len >= room)
    return false;
  memcpy(out, from + n, len);
  out[len] = 0;
  return true;
}

static char *identity_url(const char *region, const char *arn, const char *token)
{
  const char *endpoint = variable("AWS_ENDPOINT_URL_STS");
  const char *session = variable("AWS_ROLE_SESSION_NAME");
  endpoint = endpoint ? endpoint : variable("AWS_ENDPOINT_URL");
  char *at =
      endpoint ? manta__strdup(endpoint) : manta__asprintf("https://sts.%s.amazonaws.com", region);
  char *role = manta__s3_escape(arn, false), *proof = manta__s3_escape(token, false);
  char *who = manta__s3_escape(session ? session : "manta", false), *url = NULL;
  if (at && role && proof && who)
    url = manta__asprintf("%s/?Action=AssumeRoleWithWebIdentity&RoleArn=%s&RoleSessionName=%s"
                          "&Version=2011-06-15&WebIdentityToken=%s",
                          at, role, who, proof);
  manta__free(at);
  manta__free(role);
  manta__free(proof);
  manta__free(who);
  return url;
}

static bool by_identity(const char *region, struct lent_cache *c)
{
  const char *file = variable("AWS_WEB_IDENTITY_TOKEN_FILE"), *arn = variable("AWS_ROLE_ARN");
  char ends[64] = "";
  if (!file || !arn)
    return false;
  char *token = manta__calloc(1, TOKEN_MAX);
  if (token)
    manta__host_text("", file, token, TOKEN_MAX);
  char *url = token ? identity_url(region, arn, token) : NULL;
  struct manta__http_call call = {.method = "GET", .url = url};
  char *xml = url ? ask(&call, "AssumeRoleWithWebIdentity") : NULL;
  bool ok = xml && put_element(xml, "AccessKeyId", c->keys.user, sizeof c->keys.user) &&
            put_element(xml, "SecretAccessKey", c->keys.secret, sizeof c->keys.secret) &&
            put_element(xml, "SessionToken", c->keys.token, sizeof c->keys.token) &&
            put_element(xml, "Expiration", ends, sizeof ends);
  c->ends = manta__s3_time(ends);
  if (!ok)
    manta__warn("AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN are set, but give no keys (%s)",
                xml ? "the answer has none" : "no answer");
  manta__free(token);
  manta__free(url);
  manta__free(xml);
  return ok;
}

// --- by a service: JSON -------------------------------------------------------------------------

static bool put_value(const manta_value *v, const char *key, char *out, size_t room)
{
  const char *text = manta_value_as_string(manta_value_get(v, key), "");
  return text[0] && (size_t)snprintf(out, room, "%s", text) < room;
}

static bool take_json(const char *text, struct lent_cache *c)
{
  manta_value v = {0};
  char ends[64] = "";
  bool ok = text && manta_value_from_json(&v, text, strlen(text), NULL) == MANTA_OK &&
            put_value(&v, "AccessKeyId", c->keys.user, sizeof c->keys.user) &&
            put_value(&v, "SecretAccessKey", c->keys.secret, sizeof c->keys.secret) &&
            put_value(&v, "Token", c->keys.token, sizeof c->keys.token) &&
            put_value(&v, "Expiration", ends, sizeof ends);
  c->ends = manta__s3_time(ends);
  manta_value_fini(&v);
  return ok;
}

static bool by_container(struct lent_cache *c)
{
  const char *path = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const char *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const char *file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  char auth[TOKEN_MAX] = "Authorization: ";
  size_t n = strlen(auth);
  if (!path && !full)
    return false;
  char *url = path ? manta__asprintf("http://169.254.170.2%s", path) : manta__strdup(full);
  if (file)
    manta__host_text("", file, auth + n, sizeof auth - n);
  else if (variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"))
    snprintf(auth + n, sizeof auth - n, "%s", variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
  struct manta__http_call call = {.method = "GET", .url = url, .headers = {auth[n] ? auth : NULL}};
  char *json = url ? ask(&call, "the container's credentials") : NULL;
  bool ok = take_json(json, c);
  manta__free(url);
  manta__free(json);
  return ok;
}

static char *ask_machine(const char *base, const char *token, const char *path)
{
  char header[REPLY_MAX / 8];
  char *url = manta__asprintf("%s/latest/meta-data/iam/security-credentials/%s", base, path);
  snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", token);
  struct manta__http_call call = {
      .method = "GET", .url = url, .headers = {header}, .connect_s = SHORT_S};
  char *body = url ? ask(&call, "EC2's metadata service") : NULL;
  manta__free(url);
  return body;
}

static bool by_machine(struct lent_cache *c)
{
  const char *base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  const char *off = variable("AWS_EC2_METADATA_DISABLED");
  base = base ? base : "http://169.254.169.254";
  if (c->alone || (off && !strcasecmp(off, "true")))
    return false;
  char *url = manta__asprintf("%s/latest/api/token", base);
  struct manta__http_call call = {.method = "PUT",
                                  .url = url,
                                  .text = "",
                                  .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
                                  .connect_s = SHORT_S,
                                  .tries = 1};
  char *token = url ? ask(&call, "EC2's metadata service") : NULL;
  c->alone = !token;
  char *role = token ? ask_machine(base, token, "") : NULL;
  if (role)
    role[strcspn(role, "\r\n")] = 0;
  char *json = role ? ask_machine(base, token, role) : NULL;
  bool ok = take_json(json, c);
  manta__free(url);
  manta__free(token);
  manta__free(role);
  manta__free(json);
  return ok;
}

bool manta__s3_borrow(const char *region, struct manta__s3_lent *out)
{
  static struct lent_cache c = {.lock = PTHREAD_MUTEX_INITIALIZER};
  pthread_mutex_lock(&c.lock);
  if (!c.found || time(NULL) > c.ends - EARLY_S)
    c.found = by_identity(region, &c) || by_container(&c) || by_machine(&c);
  *out = c.keys;
  bool found = c.found;
  pthread_mutex_unlock(&c.lock);
  return found;
}
