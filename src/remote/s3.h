/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/s3.h - S3: who asks, which URLs there are, and what listings say.
 */
#ifndef MANTA_REMOTE_S3_H
#define MANTA_REMOTE_S3_H

#include <stdbool.h>
#include <stdint.h>

#include "remote/http.h"

#define MANTA__S3_TEXT 512

/* As the environment and the files of AWS say. Without keys requests are not signed. */
struct manta__s3_account {
  char user[MANTA__S3_TEXT], secret[MANTA__S3_TEXT];
  char token[2 * MANTA__S3_TEXT * 8]; /* a header, or "" */
  char region[64];
  char sign[128];                /* what libcurl is told; "": no signature */
  char endpoint[MANTA__S3_TEXT]; /* "http://127.0.0.1:9000"; "": AWS */
};

/* AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or the profile AWS_PROFILE
 * ("default") of ~/.aws/credentials, or keys that are lent (s3role.h); AWS_REGION or
 * AWS_DEFAULT_REGION, or that of ~/.aws/config; AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. */
void manta__s3_account(struct manta__s3_account *out);
/* The same without keys. */
void manta__s3_anonymous(struct manta__s3_account *out);
/* What signs the request; borrowed. */
void manta__s3_sign(const struct manta__s3_account *a, struct manta__http_call *call);

/* s3://BUCKET/KEY, or s3://anonymous@BUCKET/KEY: requests are not signed then. The key lies in the
 * name. MANTA_EINVAL: no bucket. */
struct manta__s3_name {
  char bucket[64];
  const char *key;
  bool anonymous;
};
manta_status manta__s3_parse(struct manta__s3_name *out, const char *name, manta_error *err);
/* The URL of a key, or with `query` of the bucket; the caller frees it. NULL: no memory. */
char *manta__s3_url(const struct manta__s3_account *a, const char *bucket, const char *key,
                    const char *query);
/* Escapes all but letters, digits, - _ . ~ and, with `slashes`, /. The caller frees it. */
char *manta__s3_escape(const char *text, bool slashes);

/* An object of a listing. */
struct manta__s3_object {
  const char *key;
  int64_t size;
};
typedef manta_status (*manta__s3_each)(void *ctx, const struct manta__s3_object *object,
                                       manta_error *err);

/* One page of a listing (ListObjectsV2 with encoding-type=url): calls `each` for every object, and
 * gives where the next page begins in *token, which the caller frees; NULL: this was the last.
 * MANTA_EPROTO: it is no such listing. */
manta_status manta__s3_page(const char *xml, size_t n, manta__s3_each each, void *ctx, char **token,
                            manta_error *err);
/* All objects whose keys begin with the prefix. */
manta_status manta__s3_list(const struct manta__s3_account *a, const char *name, const char *bucket,
                            const char *prefix, manta__s3_each each, void *ctx, manta_error *err);

#endif
