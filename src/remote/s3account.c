/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/s3account.c - who asks: what the environment and the files of AWS say.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "remote/s3.h"
#include "remote/s3role.h"
#include "sys/host.h"

#define FILE_MAX 65536

static const char *variable(const char *name)
{
  const char *value = getenv(name);
  return value && value[0] ? value : NULL;
}

static const char *trim(char *line)
{
  line += strspn(line, " \t");
  for (size_t n = strlen(line); n && strchr(" \t\r", line[n - 1]);)
    line[--n] = 0;
  return line;
}

// [default], [NAME] or [profile NAME].
static bool is_section(const char *line, const char *profile)
{
  char plain[MANTA__S3_TEXT + 16], named[MANTA__S3_TEXT + 16];
  snprintf(plain, sizeof plain, "[%.256s]", profile);
  snprintf(named, sizeof named, "[profile %.256s]", profile);
  return !strcmp(line, plain) || !strcmp(line, named);
}

// The value of a key in a section of an INI file; false: there is none.
static bool find(const char *file, const char *profile, const char *key, char *out, size_t room)
{
  static const char separators[] = " \t=";
  char *text = manta__malloc(FILE_MAX), *rest = NULL;
  bool inside = false, found = false;
  if (!text)
    return false;
  manta__host_text("", file, text, FILE_MAX);
  for (char *line = strtok_r(text, "\n", &rest); line && !found;
       line = strtok_r(NULL, "\n", &rest)) {
    const char *at = trim(line);
    size_t n = strcspn(at, separators);
    if (at[0] == '[')
      inside = is_section(at, profile);
    else if (inside && n == strlen(key) && !strncmp(at, key, n)) {
      found = true;
      snprintf(out, room, "%s", at + n + strspn(at + n, separators));
    }
  }
  manta__free(text);
  return found;
}

static void file_of(const char *env, const char *name, char *out, size_t room)
{
  const char *given = variable(env), *home = variable("HOME");
  if (given)
    snprintf(out, room, "%s", given);
  else
    snprintf(out, room, "%s/.aws/%s", home ? home : "", name);
}

// None of the user's own: those that are lent, if somebody does.
static void borrow_keys(struct manta__s3_account *a, char *token, size_t room)
{
  struct manta__s3_lent lent;
  if (a->user[0] || !manta__s3_borrow(a->region, &lent))
    return;
  memcpy(a->user, lent.user, sizeof a->user);
  memcpy(a->secret, lent.secret, sizeof a->secret);
  snprintf(token, room, "%s", lent.token);
}

static void find_keys(struct manta__s3_account *a, const char *profile)
{
  char file[PATH_MAX], token[sizeof a->token - 32] = "";
  const char *user = variable("AWS_ACCESS_KEY_ID"), *secret = variable("AWS_SECRET_ACCESS_KEY");
  if (user && secret) {
    snprintf(a->user, sizeof a->user, "%s", user);
    snprintf(a->secret, sizeof a->secret, "%s", secret);
    if (variable("AWS_SESSION_TOKEN"))
      snprintf(token, sizeof token, "%s", variable("AWS_SESSION_TOKEN"));
  } else {
    file_of("AWS_SHARED_CREDENTIALS_FILE", "credentials", file, sizeof file);
    if (!find(file, profile, "aws_access_key_id", a->user, sizeof a->user) ||
        !find(file, profile, "aws_secret_access_key", a->secret, sizeof a->secret))
      a->user[0] = a->secret[0] = 0;
    find(file, profile, "aws_session_token", token, sizeof token);
    borrow_keys(a, token, sizeof token);
  }
  if (token[0] && a->user[0])
    snprintf(a->token, sizeof a->token, "x-amz-security-token: %s", token);
}

static const char *profile_name(void)
{
  const char *profile = variable("AWS_PROFILE");
  return profile ? profile : "default";
}

void manta__s3_anonymous(struct manta__s3_account *a)
{
  char file[PATH_MAX];
  const char *profile = profile_name(), *region = variable("AWS_REGION");
  const char *endpoint = variable("AWS_ENDPOINT_URL_S3");
  region = region ? region : variable("AWS_DEFAULT_REGION");
  endpoint = endpoint ? endpoint : variable("AWS_ENDPOINT_URL");
  *a = (struct manta__s3_account){0};
  file_of("AWS_CONFIG_FILE", "config", file, sizeof file);
  if (region)
    snprintf(a->region, sizeof a->region, "%s", region);
  else if (!find(file, profile, "region", a->region, sizeof a->region))
    snprintf(a->region, sizeof a->region, "us-east-1");
  if (endpoint)
    snprintf(a->endpoint, sizeof a->endpoint, "%s", endpoint);
  else
    find(file, profile, "endpoint_url", a->endpoint, sizeof a->endpoint);
}

void manta__s3_account(struct manta__s3_account *a)
{
  manta__s3_anonymous(a);
  find_keys(a, profile_name());
  if (a->user[0])
    snprintf(a->sign, sizeof a->sign, "aws:amz:%s:s3", a->region);
}

void manta__s3_sign(const struct manta__s3_account *a, struct manta__http_call *call)
{
  if (!a->sign[0])
    return;
  int i = 0;
  while (i < MANTA__HTTP_HEADERS && call->headers[i])
    i++;
  call->sign = a->sign;
  call->user = a->user;
  call->secret = a->secret;
  if (a->token[0] && i < MANTA__HTTP_HEADERS)
    call->headers[i] = a->token;
}
